"""Which target is meant, from the text of files alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.errors import TargetError
from perfaudit.target.names import Target, check_names, choose_target, defines, parse, script_target, split_target

Project = Callable[..., Path]
MODEL = "def build_model():\n    pass\n"
FILES = {"a/train.py": MODEL, "a/other.py": MODEL, "b/only.py": MODEL, "b/plain.py": "", "plain.py": ""}


@pytest.mark.parametrize(
    ("paths", "target"),
    [
        (["a/train.py"], "a/train.py"),
        (["a/train.py", "a"], "a/train.py"),  # a file that is named is meant; the folder is to be scanned
        (["a", "a/train.py"], "a/train.py"),
        (["a/train.py", "./a/train.py"], "./a/train.py"),
        (["plain.py", "b"], "b/only.py"),
        (["b", "b"], "b/only.py"),
    ],
)
def test_the_target_that_is_meant(project: Project, paths: list[str], target: str) -> None:
    folder = project(**FILES)
    assert str(choose_target(paths, folder)) == target


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        (["a"], "several files define factories: a/other.py, a/train.py; name one of them"),
        (["a/train.py", "b/only.py"], "several files define factories: a/train.py, b/only.py; name one of them"),
        (["plain.py", "b/plain.py"], "no file in plain.py, b/plain.py defines factories"),
        (["plain.py", "b/plain.py"], "to run a script as it is, name it alone"),
    ],
)
def test_what_could_be_meant_is_listed(project: Project, paths: list[str], why: str) -> None:
    folder = project(**FILES)
    with pytest.raises(TargetError, match=why):
        choose_target(paths, folder)


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("def big(): ...", True),
        ("async def big(): ...", True),
        ("class big: ...", True),
        ("from nets import big", True),
        ("from nets import large as big", True),
        ("from nets import *", True),
        ("big = small", True),
        ("with x as big: ...", True),
        ("def __getattr__(name): ...", True),
        ("def big(:", True),  # running it says what is wrong
        ("", False),
        ("print(big)", False),
        ("def small():\n    big = 1", False),
        ("from nets import big as small", False),
        ("class nets:\n    def big(self): ...", False),
    ],
)
def test_a_name_that_a_file_may_have(tmp_path: Path, text: str, there: bool) -> None:
    (tmp_path / "train.py").write_text(text)
    assert defines(str(tmp_path / "train.py"), "big") == there


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("train.py", Target("train.py")),
        ("sub/more.py:adam", Target("sub/more.py", {"optimizer": "adam"})),  # told by its annotation there
        ("sub.more", Target("sub/more.py")),
        ("odd:name.py", Target("odd:name.py")),
    ],
)
def test_a_target_of_another_folder(project: Project, text: str, target: Target) -> None:
    adam = "def adam(model) -> Optimizer: ...\n"
    there = project(**{f"there/{name}": adam for name in ("train.py", "sub/more.py", "odd:name.py")}) / "there"
    assert parse(text, folder=there) == target
    with pytest.raises(TargetError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "arguments", "is_script"),
    [
        ("def build_model(): ...\ndef build_dataloader(): ...\n", (), False),
        ("def build_model(): ...\ndef build_dataloader(): ...\n", ("--epochs", "1"), True),
        ("from timm.models import create_model\ncreate_model('x')\n", (), True),  # one name alone is met everywhere
        ("def main(): ...\n", (), True),
    ],
)
def test_what_is_run_as_a_script(project: Project, text: str, arguments: tuple[str, ...], is_script: bool) -> None:
    project(**{"train.py": text})
    found = script_target("train.py", arguments, False)
    assert found == (Target("train.py", {}, arguments) if is_script else None)


def test_a_module_is_run_from_its_file_or_its_main(project: Project) -> None:
    project(**{"pkg/__init__.py": "", "pkg/__main__.py": "", "pkg/train.py": ""})
    assert script_target("pkg", ("a",), True) == Target("pkg/__main__.py", {}, ("a",), "pkg")
    assert script_target("pkg.train", (), True) == Target("pkg/train.py", {}, (), "pkg.train")
    assert script_target("nowhere.py", (), False) is None
    assert str(script_target("pkg", ("a b",), True)) == "-m pkg 'a b'"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nope", "nope: no such module"),
        ("pkg.nope", "pkg.nope: no such module"),
        ("train.py", "train.py: no such module; a file is run without -m"),
        ("pkg", "pkg: is a package without __main__.py"),
        ("space", "space: is a package without __main__.py"),
        ("json", "json: is a package without __main__.py"),
    ],
)
def test_a_module_that_cannot_be_run_is_told_as_by_run(project: Project, name: str, said: str) -> None:
    project(**{"pkg/__init__.py": "", "space/train.py": "", "train.py": ""})
    with pytest.raises(TargetError, match=f"^{re.escape(said)}$"):
        script_target(name, (), True)


def test_modules_of_the_library_are_found() -> None:
    for name in ("timeit", "json.tool", "venv"):
        found = script_target(name, (), True)
        assert found is not None
        assert Path(found.file).is_file()


@pytest.mark.parametrize(
    ("text", "name", "label", "target"),
    [
        ("train.py --data 'a b'", "", "train.py --data 'a b'", Target("train.py", {}, ("--data", "a b"))),
        ("train.py -n 1", "small", "small", Target("train.py", {}, ("-n", "1"), name="small")),
        ("train.py -- -n 1 -- x", "", "train.py -n 1 -- x", Target("train.py", {}, ("-n", "1", "--", "x"))),
        ("-m train x", "small", "small", Target("train.py", {}, ("x",), "train", "small")),
    ],
)
def test_a_target_that_is_one_text(project: Project, text: str, name: str, label: str, target: Target) -> None:
    project(**{"train.py": "def main(): ...\n"})
    found = split_target(text, name).script()
    assert found == target
    assert found is not None and found.label == label


def test_a_target_that_names_nothing(project: Project) -> None:
    project(**{"model.py": MODEL + "def build_dataloader(): ...\n"})
    assert split_target("model.py", "nets").script() is None  # factories, which go by their file
    for text in ("", "-m", "train.py 'a"):
        with pytest.raises(TargetError):
            split_target(text)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Net.build", ""),
        ("other.py:net", ""),  # a file that is not there is told where it is imported
        ("zzz", "train.py: no function 'zzz' for the model (it has: Net, train)"),
        ("zzz.build", "train.py: no function 'zzz.build' for the model (it has: Net, train)"),
        ("few.py:zzz", "few.py: no function 'zzz' for the model (it has: none)"),
    ],
)
def test_a_factory_that_is_not_there_is_told_before_anything_is_imported(
    project: Callable[..., Path], name: str, said: str
) -> None:
    project(**{"train.py": "class Net: pass\n\ndef train(): pass\n\ntrain()\n", "few.py": "x = 1\n"})
    target = Target("train.py", {"model": name})
    if not said:
        assert check_names(target) is target
        return
    with pytest.raises(TargetError) as refused:
        check_names(target)
    assert str(refused.value) == said
