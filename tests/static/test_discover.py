"""Which files a scan looks at."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.errors import UserError
from perfaudit.static.discover import RealPaths, files_below, python_files, shown_path

Project = Callable[..., Path]


def names(*paths: str, exclude: tuple[str, ...] = (), base: Path | None = None) -> list[str]:
    return [file.shown_as for file in python_files(paths, exclude, base)]


FILES = ["a.py", "b/c.py", "b/d/e.py", "out/f.py", "g.txt", "h.pyc", "script"]


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["."], ["a.py", "b/c.py", "b/d/e.py", "out/f.py"]),
        (["b", "a.py"], ["b/c.py", "b/d/e.py", "a.py"]),
        (["b/d/", "b"], ["b/d/e.py", "b/c.py"]),
        (["a.py", "./a.py", "b/../a.py"], ["a.py"]),
        (["script"], ["script"]),
        (["g.txt"], ["g.txt"]),
        ([], []),
    ],
)
def test_paths(project: Project, paths: list[str], found: list[str]) -> None:
    project(**dict.fromkeys(FILES, ""))
    assert names(*paths) == found


def test_real_paths_are_those_of_the_system(project: Project) -> None:
    root = project(**dict.fromkeys(FILES, ""))
    (root / "linked").symlink_to("b")
    (root / "b/link.py").symlink_to("../a.py")
    (root / "nowhere.py").symlink_to("missing.py")
    paths = [
        "a.py",
        "b/../a.py",
        "linked/c.py",
        "linked/link.py",
        "linked/../a.py",
        "nowhere.py",
        "no/such.py",
        ".",
        "b/..",
    ]
    real_paths = RealPaths()
    for path in [Path(name) for name in paths] + [root / name for name in paths]:
        assert real_paths.of(path) == os.path.realpath(path)


@pytest.mark.parametrize(
    ("ignores", "paths", "found"),
    [
        ({".gitignore": "out/\n"}, ["."], ["a.py", "b/c.py", "b/d/e.py"]),
        ({".gitignore": "/b/*\n!/b/c.py\n"}, ["."], ["a.py", "b/c.py", "out/f.py"]),
        ({".gitignore": "/b\n!/b/c.py\n"}, ["."], ["a.py", "out/f.py"]),  # a folder that is out keeps all out
        ({".gitignore": "*.py\n", "b/.gitignore": "!c.py\n"}, ["."], ["b/c.py"]),
        ({"b/.gitignore": "/e.py\n"}, ["."], ["a.py", "b/c.py", "b/d/e.py", "out/f.py"]),
        ({"b/.gitignore": "e.py\n"}, ["."], ["a.py", "b/c.py", "out/f.py"]),
        ({".gitignore": "/b/d/\n"}, ["b"], ["b/c.py"]),  # of a parent
        ({".gitignore": "b\n"}, ["b"], ["b/c.py", "b/d/e.py"]),  # named
        ({".gitignore": "b\n"}, ["b/d"], ["b/d/e.py"]),
        ({".gitignore": "*.py\n"}, ["a.py"], ["a.py"]),
        ({".gitignore": "*.py\n"}, ["."], []),
        ({".gitignore": "# *.py\n\n\\#x\n"}, ["b"], ["b/c.py", "b/d/e.py"]),
        ({".gitignore": "\ufeffb\n!\n/\n[\n"}, ["."], ["a.py", "out/f.py"]),
        ({"../.gitignore": "*.py\n"}, ["b"], ["b/c.py", "b/d/e.py"]),  # above the repository
    ],
)
def test_gitignore(project: Project, ignores: dict[str, str], paths: list[str], found: list[str]) -> None:
    folder = project(**dict.fromkeys(FILES, ""), **{".git/config": ""}, **ignores)
    try:
        assert names(*paths) == found
    finally:
        (folder.parent / ".gitignore").unlink(missing_ok=True)


@pytest.mark.parametrize(
    "patterns",
    ["out/", "/b/*\n!/b/c.py", "b/**/e.py", "*.py\n!a.py", "[ab].py", "d", "/d", "**/d/", "!", "\\", "a.py "],
)
def test_as_git_does(project: Project, patterns: str) -> None:
    folder = project(**dict.fromkeys(FILES, ""), **{".gitignore": patterns})
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    command = ["git", "ls-files", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    assert sorted(names(".")) == sorted(listed.split())


def test_outside_a_repository_parents_say_nothing(project: Project) -> None:
    project(**{"a/b.py": "", ".gitignore": "b.py\n"})
    assert names("a") == ["a/b.py"]
    assert names(".") == []


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"env/pyvenv.cfg": "", "env/lib/a.py": ""}, []),
        ({"env/conda-meta/history": "", "env/a.py": ""}, []),
        ({"env/lib/python3.11/site-packages/a.py": ""}, []),
        (
            {".venv/a.py": "", "node_modules/a.py": "", "__pycache__/a.py": "", ".git/hooks/a.py": "", ".tox/a.py": ""},
            [],
        ),
        ({"venv.py": "", "env/a.py": ""}, ["env/a.py", "venv.py"]),
        ({".hidden/a.py": ""}, [".hidden/a.py"]),
    ],
)
def test_environments_are_left_out(project: Project, files: dict[str, str], found: list[str]) -> None:
    project(**files)
    assert names(".") == found


def test_a_named_environment_is_taken(project: Project) -> None:
    project(**{".venv/pyvenv.cfg": "", ".venv/a.py": ""})
    assert names(".venv") == [".venv/a.py"]


@pytest.mark.parametrize(
    ("exclude", "found"),
    [
        (("b",), ["a.py", "out/f.py"]),
        (("b/", "out/*.py"), ["a.py"]),
        (("*.py", "!a.py"), ["a.py"]),
        (("nothing",), ["a.py", "b/c.py", "b/d/e.py", "out/f.py"]),
    ],
)
def test_exclude(project: Project, exclude: tuple[str, ...], found: list[str]) -> None:
    project(**dict.fromkeys(FILES, ""))
    assert names(".", exclude=exclude) == found


def test_exclude_is_relative_to_its_base(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(**dict.fromkeys(FILES, ""))
    monkeypatch.chdir(folder / "b")
    assert names(".", exclude=("/b/d",), base=folder) == ["c.py"]
    assert names("..", exclude=("/out",), base=folder / "b") == ["../a.py", "c.py", "d/e.py", "../out/f.py"]


def test_links(project: Project) -> None:
    folder = project(**{"a/real.py": "", "z.py": ""})
    for link, target in {
        "a/self": "..",
        "a/b.py": "real.py",
        "a/loop.py": "loop.py",
        "a/gone.py": "gone",
        "a/.#lock.py": "user@host.123",
        "a/folder.py": "..",
    }.items():
        (folder / link).symlink_to(target)
    assert names(".") == ["a/gone.py", "a/loop.py", "a/real.py", "z.py"]  # b.py is real.py; the first two are reported
    assert names("a/self/z.py") == ["a/self/z.py"]


def test_a_deep_tree(project: Project) -> None:
    deep = "/".join(["d"] * 500)
    project(**{f"{deep}/a.py": ""})
    assert names(".") == [f"{deep}/a.py"]


@pytest.mark.parametrize("path", ["missing", "", "a.py/b.py", "a\0b"])
def test_a_path_that_is_none(project: Project, path: str) -> None:
    project(**{"a.py": ""})
    with pytest.raises(UserError, match=r"; name a Python file or a folder, e\.g\. `perfaudit scan \.`$"):
        python_files([path])


def test_shown(project: Project) -> None:
    folder = project()
    assert shown_path(Path("./a/../b.py")) == "b.py"
    assert shown_path(folder / "a b" / "c.py") == "a b/c.py"
    assert shown_path(folder.parent / "x.py") == "../x.py"


def test_another_checkout_is_shown_as_from_one_of_its_folders(project: Project) -> None:
    """Its paths read as those of the same files here, wherever the process is."""
    there = project(**{"there/src/a.py": "", "there/b.py": "", "there/.gitignore": "", "c.py": ""}) / "there"
    src = there / "src"
    assert [file.shown_as for file in python_files([str(there)], seen_from=src)] == ["../b.py", "a.py"]
    assert [file.shown_as for file in python_files([str(there / "b.py"), "c.py"], seen_from=src)] == [
        "../b.py",
        "../../c.py",
    ]
    assert [shown_path(path, there / "gone") for path in (src, there / "gone", there)] == ["../src", ".", ".."]


def test_other_files_below_a_folder(project: Project) -> None:
    folder = project(
        **dict.fromkeys(["a.yaml", "b/c.yaml", "b/d.py", ".e/f.yaml", "out/g.yaml", "node_modules/h.yaml"], "")
    )
    (folder / "i.yaml").symlink_to(folder / "a.yaml")
    assert files_below(folder, (".yaml",), 9, 99, {"out"}) == ["a.yaml", "b/c.yaml", "i.yaml"]
    assert files_below(folder, (".yaml",), 3, 99) is None
    assert files_below(folder, (".yaml",), 9, 5) is None
