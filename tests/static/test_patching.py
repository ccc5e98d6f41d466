"""Patches of several files: what edits do is exactly what was meant, git takes it, and files are replaced all or none."""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from perfaudit.errors import UserError
from perfaudit.findings import Edit, FilePatch, Span
from perfaudit.static import ondisk
from perfaudit.static.ondisk import Planned, write_all
from perfaudit.static.patching import file_patch, git_patch, git_patch_of, plan_writes

pytestmark = pytest.mark.usefixtures("in_this_process")

TEN = "".join(f"line {n}\n" for n in range(1, 11))
CHANGED = TEN.replace("line 2\n", "LINE 2\nmore\n").replace("line 9\n", "")


# what a file is called, its bytes before and after
FILES = [
    ("train.py", TEN.encode(), CHANGED.encode()),
    ("my models/the net.py", b"a\n", b"b\n"),
    ("d\u00e9p\u00f4t/\u7f51.py", b"a\nb", b"a\nc"),
    ("windows.py", b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\n"),
    ("marked.py", b"\xef\xbb\xbfa = 1\nb = 2\n", b"\xef\xbb\xbfimport os\na = 1\nb = 2\n"),
    ("marked_below.py", b"\xef\xbb\xbf" + TEN.encode(), b"\xef\xbb\xbf" + CHANGED.encode()),
    ("old.py", b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", b"# -*- coding: latin-1 -*-\nx = '\xe9\xe8'\n"),
    ('odd"name\\.py', b"a\n", b"b\n"),
    ("open.py", b"a", b"a\n"),
    ("cells.ipynb", b'{"cells": [\n "a"\n]}', b'{"cells": [\n "b"\n]}'),
]


def patch_of(name: str, before: bytes, after: bytes) -> FilePatch:
    from perfaudit.static.source import decode_source

    (old, encoding), (new, same) = decode_source(before), decode_source(after)
    assert encoding == same
    return file_patch(name, old, edits_between(old, new), encoding)


def edits_between(old: str, new: str) -> list[Edit]:
    """One edit for each piece that differs."""
    pieces = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [Edit(Span(i, j), new[k:m]) for kind, i, j, k, m in pieces if kind != "equal"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, before, _ in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(before)
    return tmp_path


def contents(root: Path) -> list[bytes]:
    return [(root / name).read_bytes() for name, _, _ in FILES]


BEFORE, AFTER = [before for _, before, _ in FILES], [after for _, _, after in FILES]
PATCHES = [patch_of(*item) for item in FILES]


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_git_takes_the_patch_and_gives_these_bytes(root: Path) -> None:
    git = ["git", "-c", "core.autocrlf=false"]
    subprocess.run([*git, "init", "-q"], cwd=root, check=True)
    patch = git_patch(PATCHES)
    assert patch == git_patch_of(plan_writes(PATCHES, root))
    subprocess.run([*git, "apply", "--check"], cwd=root, input=patch, check=True)
    subprocess.run([*git, "apply"], cwd=root, input=patch, check=True)
    assert contents(root) == AFTER
    subprocess.run([*git, "apply", "-R"], cwd=root, input=patch, check=True)
    assert contents(root) == BEFORE


@pytest.mark.skipif(not shutil.which("patch"), reason="needs patch")
def test_patch_takes_it_too(root: Path) -> None:
    subprocess.run(["patch", "-p1", "-s", "--binary"], cwd=root, input=git_patch(PATCHES), check=True)
    assert contents(root) == AFTER


def test_all_files_are_written_and_then_nothing_is_left_to_do(root: Path) -> None:
    (root / "train.py").chmod(0o750)
    write_all(plan_writes(PATCHES, root))
    assert contents(root) == AFTER
    assert (root / "train.py").stat().st_mode & 0o777 == 0o750
    assert sorted(p.name for p in root.iterdir() if p.name.startswith(".")) == []
    assert plan_writes(PATCHES, root) == []


def test_what_has_its_patch_already_is_left_alone_and_the_rest_follows(root: Path) -> None:
    write_all(plan_writes(PATCHES[:3], root))
    assert [item.path for item in plan_writes(PATCHES, root)] == [item.path for item in PATCHES[3:]]


def test_one_file_that_changed_refuses_all(root: Path) -> None:
    (root / "old.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = 1\n")
    with pytest.raises(
        UserError, match=r"^old\.py: changed since it was read \(SHA-256 \w{12} then, \w{12} now\): run"
    ):
        plan_writes(PATCHES, root)


TRAIN = PATCHES[0]


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        (replace(TRAIN, path="../train.py"), "'../train.py': not a path inside the project"),
        (replace(TRAIN, path="a/../train.py"), "'a/../train.py': not a path inside the project"),
        (replace(TRAIN, path="..\\train.py"), "not a path inside the project"),
        (replace(TRAIN, path="/etc/train.py"), "'/etc/train.py': not a path inside the project"),
        (replace(TRAIN, path="C:\\train.py"), "not a path inside the project"),
        (replace(TRAIN, path="C:train.py"), "not a path inside the project"),
        (replace(TRAIN, path="\\\\host\\share\\train.py"), "not a path inside the project"),
        (replace(TRAIN, path=""), "'': not a path inside the project"),
        (replace(TRAIN, path="."), "'.': not a path inside the project"),
        (replace(TRAIN, path="tr\0ain.py"), "not a path inside the project"),
        (replace(TRAIN, path="\x1b[2Jtrain.py"), "not a path inside the project"),
        (replace(TRAIN, path="\ud800.py"), "not a path inside the project"),
        (replace(TRAIN, path="setup.cfg"), "setup.cfg: neither a Python file nor a notebook"),
        (replace(TRAIN, path="gone.py"), "gone.py: no such file here"),
        (replace(TRAIN, path="x" * 5000 + ".py"), "file name too long"),
        (replace(TRAIN, path="train.py/x.py"), "not a directory"),
        (replace(TRAIN, path="folder.py"), "folder.py: no regular file"),
        (replace(TRAIN, path="pipe.py"), "pipe.py: no regular file"),
        (replace(TRAIN, path="out.py"), "out.py: leads out of the project"),
        (replace(TRAIN, path="outside/train.py"), "outside/train.py: leads out of the project"),
        (replace(TRAIN, path="circle.py"), "circle.py: "),
        (replace(TRAIN, path="null.py"), "null.py: binary: it holds null bytes"),
        (replace(TRAIN, path="huge.py"), "huge.py: larger than 4 MiB"),
        (replace(TRAIN, edits=()), "train.py: its edits do not give the file"),
        (replace(TRAIN, edits=TRAIN.edits[1:]), "train.py: its edits do not give the file"),
        (replace(TRAIN, edits=(*TRAIN.edits, Edit(Span(0, 0), "evil"))), "train.py: its edits do not give the file"),
        (replace(TRAIN, edits=(*TRAIN.edits, Edit(Span(0, 71), ""))), "train.py: its edits do not fit: edits overlap"),
        (replace(TRAIN, edits=(Edit(Span(0, 72), ""),)), "an edit ends at character 72 of a text of 71"),
        (
            replace(TRAIN, edits=(Edit(Span(10**30, 10**30), ""),)),
            f"an edit ends at character {10**30} of a text of 71",
        ),
        (replace(TRAIN, edits=(Edit(Span(3, 2), ""),)), "train.py: its edits do not fit: edits overlap at character 3"),
        (
            replace(TRAIN, edits=(Edit(Span(-2, -1), ""),)),
            "train.py: its edits do not fit: edits overlap at character -2",
        ),
        (replace(TRAIN, edits=(Edit(Span(0, 0), "\ud800"),)), "train.py: its text cannot be written in utf-8"),
        (replace(TRAIN, before="0" * 64), "train.py: changed since it was read"),
    ],
)
def test_what_is_not_the_projects_or_not_what_was_measured_is_refused(
    root: Path, tmp_path_factory: pytest.TempPathFactory, patch: FilePatch, said: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "train.py").write_bytes(BEFORE[0])
    (root / "out.py").symlink_to(outside / "train.py")
    (root / "outside").symlink_to(outside)
    (root / "circle.py").symlink_to("circle.py")
    (root / "folder.py").mkdir()
    os.mkfifo(root / "pipe.py")
    (root / "null.py").write_bytes(b"\0")
    (root / "huge.py").write_bytes(b"#" * (5 << 20))
    with pytest.raises(UserError) as refused:
        plan_writes([*PATCHES[1:], patch], root)
    assert said in str(refused.value)
    assert str(refused.value).endswith("; nothing was written")
    assert contents(root) == BEFORE
    assert (outside / "train.py").read_bytes() == BEFORE[0]


def test_one_file_under_two_names_is_refused(root: Path) -> None:
    (root / "same.py").symlink_to("train.py")
    again = patch_of("same.py", *FILES[0][1:])
    with pytest.raises(UserError, match=r"^same\.py: has two patches, the other as train\.py; nothing was written$"):
        plan_writes([TRAIN, again], root)
    with pytest.raises(UserError, match=r"^train\.py: has two patches, the other as train\.py"):
        plan_writes([TRAIN, TRAIN], root)


def test_a_link_inside_the_project_stays_one(root: Path) -> None:
    (root / "link.py").symlink_to("train.py")
    write_all(plan_writes([patch_of("link.py", *FILES[0][1:])], root))
    assert (root / "link.py").is_symlink()
    assert (root / "train.py").read_bytes() == AFTER[0]


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("failing", range(len(FILES)))
def test_a_file_that_cannot_be_written_puts_the_others_back(
    root: Path, monkeypatch: pytest.MonkeyPatch, failing: int, links: bool
) -> None:
    todo = plan_writes(PATCHES, root)
    replace_source = ondisk.replace_source

    def full(path: Path, data: bytes) -> None:
        if path == todo[failing].real:
            raise OSError(28, "No space left on device")
        replace_source(path, data)

    def no_links(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(ondisk, "replace_source", full)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(UserError) as failed:
        write_all(todo)
    assert str(failed.value) == f"{todo[failing].path}: not written: no space left on device; nothing was written"
    assert contents(root) == BEFORE
    assert [p.name for p in root.rglob(".*")] == []


def test_an_interruption_puts_everything_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    todo = plan_writes(PATCHES, root)
    replace_source = ondisk.replace_source

    def interrupted(path: Path, data: bytes) -> None:
        replace_source(path, data)
        if path == todo[4].real:
            raise KeyboardInterrupt

    monkeypatch.setattr(ondisk, "replace_source", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_all(todo)
    assert contents(root) == BEFORE


def test_what_cannot_be_put_back_is_kept_and_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    todo = plan_writes(PATCHES[:2], root)
    replace_source = ondisk.replace_source

    def broken(path: Path, data: bytes) -> None:
        if path == todo[1].real:
            monkeypatch.setattr(os, "replace", no_more)
            raise OSError(5, "Input/output error")
        replace_source(path, data)

    def no_more(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(ondisk, "replace_source", broken)
    with pytest.raises(UserError) as failed:
        write_all(todo)
    said = str(failed.value)
    assert said.startswith("my models/the net.py: not written: input/output error; ")
    where = said.split(f"{todo[0].real} could not be put back: what it held is ")[1].split(";")[0]
    assert Path(where).read_bytes() == BEFORE[0]


def test_a_file_that_changes_between_planning_and_writing_refuses_all(root: Path) -> None:
    todo = plan_writes(PATCHES, root)
    (root / "old.py").write_bytes(b"x = 1\n")
    with pytest.raises(UserError, match=r"^old\.py: changed while its patch was written; nothing was written$"):
        write_all(todo)
    assert contents(root) == [*BEFORE[:6], b"x = 1\n", *BEFORE[7:]]


def test_text_that_the_encoding_cannot_hold_is_refused() -> None:
    with pytest.raises(UserError, match=r"^x\.py: its text cannot be written in latin-1$"):
        file_patch("x.py", "a", [Edit(Span(0, 1), "\u7f51")], "latin-1")


def test_a_diff_is_for_people_and_never_read(root: Path) -> None:
    write_all(plan_writes([replace(TRAIN, diff="no diff at all", encoding="warp")], root))
    assert (root / "train.py").read_bytes() == AFTER[0]


def test_where_the_edits_of_a_patch_are() -> None:
    (edit,) = file_patch("x.py", "a = 1\r\nb = 2", [Edit(Span(11, 12), "3")]).edits
    assert str(edit.place) == "x.py:2:5"


def test_nothing_planned_is_nothing_written(root: Path) -> None:
    nothing: list[Planned] = []
    write_all(nothing)
    assert git_patch_of(nothing) == b""
    assert contents(root) == BEFORE
