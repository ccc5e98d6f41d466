"""Patches of several files: what a diff does is exactly what was meant, git takes it, and files are replaced all or none."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from perfaudit.errors import UserError
from perfaudit.findings import FilePatch
from perfaudit.static import edit, ondisk, unified
from perfaudit.static.ondisk import Planned, write_all
from perfaudit.static.patching import file_patch, git_patch, git_patch_of, planned

TEN = "".join(f"line {n}\n" for n in range(1, 11))
CHANGED = TEN.replace("line 2\n", "LINE 2\nmore\n").replace("line 9\n", "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (TEN, CHANGED),
        ("a\nb\n", "a\nb"),
        ("a\nb", "a\nb\n"),
        ("a\nb", "a\nb\nc"),
        ("a", "b"),
        ("a\n", ""),
        ("", "a\n"),
        ("", "a"),
        ("a\r\nb\r\n", "a\r\nB\r\n"),
        ("a\r\nb\r\n", "a\r\nb\n"),
        ("a\rb\nc\n", "a\rB\nc\n"),
        ("-- a\n++ b\n@@ c\n", "--- a\n+++ b\n@@ -1 +1 @@\n"),
        ("\\ No newline at end of file\nx\n", "\\ No newline at end of file\ny"),
        ("x = '\x0c\x85\u2028'\ny\n", "x = '\x0c\x85\u2028'\nz\n"),
        ("\n\n\n\n", "\n\n\n"),
    ],
)
def test_a_diff_read_back_does_what_was_meant_and_undone_takes_it_back(before: str, after: str) -> None:
    diff = edit.diff("train.py", before, after)
    assert edit.apply(before, unified.edits("train.py", diff, before)) == after
    assert edit.apply(after, unified.edits("train.py", unified.undoing("train.py", diff), after)) == before


def test_random_texts_come_back_through_their_diffs() -> None:
    chance = random.Random(0)
    lines = ["a\n", "b\n", "\n", "  a\n", "a\r\n", "-a\n", "+b\n", " \n"]
    for _ in range(2000):
        before, after = (
            "".join(chance.choices(lines, k=chance.randrange(30))) + chance.choice(["", "end"]) for _ in "12"
        )
        if chance.random() < 0.7:  # usually most lines stay
            kept = before.splitlines(keepends=True)
            for _ in range(chance.randrange(4)):
                at = chance.randrange(len(kept) + 1)
                kept[at : at + chance.randrange(3)] = chance.choices(lines, k=chance.randrange(3))
            after = "".join(kept)
        if before == after:
            continue
        diff = edit.diff("x.py", before, after)
        assert edit.apply(before, unified.edits("x.py", diff, before)) == after, (before, after)
        assert edit.apply(after, unified.edits("x.py", unified.undoing("x.py", diff), after)) == before, (before, after)


HEAD = "--- a/train.py\n+++ b/train.py\n"


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ("", "its diff is of another file"),
        (edit.diff("other.py", TEN, CHANGED), "its diff is of another file"),
        ("--- a/train.py\n+++ b/other.py\n@@ -1 +1 @@\n-line 1\n+x\n", "its diff is of another file"),
        (HEAD, "its diff changes nothing"),
        (HEAD + "@@ -1 +1 @@\n line 1\n", "its diff changes nothing"),
        (HEAD + "@@ -2 +2 @@\n-line 1\n+x\n", "its diff does not fit the text"),
        (HEAD + "@@ -1 +2 @@\n-line 1\n+x\n", "its diff does not fit the text"),
        (HEAD + "@@ -1 +1 @@\n-line 1 \n+x\n", "its diff does not fit the text"),
        (HEAD + "@@ -1 +1 @@\n-line 1\r\n+x\n", "its diff does not fit the text"),
        (HEAD + "@@ -11 +11 @@\n-line 11\n+x\n", "its diff does not fit the text"),
        (HEAD + "@@ -999999999,0 +999999999 @@\n+x\n", "its diff does not fit the text"),
        (HEAD + "@@ -2 +2 @@\n-line 2\n+x\n@@ -1 +1 @@\n-line 1\n+y\n", "its diff does not fit the text"),
        (HEAD + "@@ -1 +1,2 @@\n-line 1\n+x\n", "its diff cannot be read"),
        (HEAD + "@@ -1 +1 @@\n-line 1\n+x\n+y\n", "its diff cannot be read"),
        (HEAD + "@@ -1 +1 @@\nline 1\n", "its diff cannot be read"),
        (HEAD + "@@ -1 +1 @@ def f():\n-line 1\n+x\n", "its diff cannot be read"),
        (HEAD + "@@ -9999999999 +1 @@\n-line 1\n+x\n", "its diff cannot be read"),
        (HEAD + "@@ -1 +1 @@\n-line 1\n+x\n" + HEAD.replace("train", "other"), "its diff cannot be read"),
        (HEAD + "@@ -1 +1 @@\n-line 1\n+x\n\\ No newline at end of file\n", "its diff ends the text before its end"),
        (HEAD + "@@ -1,0 +2 @@\n+x\n\\ No newline at end of file\n", "its diff ends the text before its end"),
    ],
)
def test_a_diff_that_does_not_fit_to_the_letter_is_refused(diff: str, said: str) -> None:
    with pytest.raises(unified.DoesNotFit) as refused:
        unified.edits("train.py", diff, TEN)
    assert str(refused.value) == said


def test_a_line_is_not_glued_to_a_text_without_an_end() -> None:
    with pytest.raises(unified.DoesNotFit, match="ends the text before its end"):
        unified.edits("train.py", HEAD + "@@ -1,0 +2 @@\n+b\n", "a")


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
    from perfaudit.static.source import decoded

    (old, encoding), (new, same) = decoded(before), decoded(after)
    assert encoding == same
    return file_patch(name, old, new, encoding)


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
    assert patch == git_patch_of(planned(PATCHES, root))
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
    write_all(planned(PATCHES, root))
    assert contents(root) == AFTER
    assert (root / "train.py").stat().st_mode & 0o777 == 0o750
    assert sorted(p.name for p in root.iterdir() if p.name.startswith(".")) == []
    assert planned(PATCHES, root) == []


def test_what_has_its_patch_already_is_left_alone_and_the_rest_follows(root: Path) -> None:
    write_all(planned(PATCHES[:3], root))
    assert [item.path for item in planned(PATCHES, root)] == [item.path for item in PATCHES[3:]]


def test_one_file_that_changed_refuses_all(root: Path) -> None:
    (root / "old.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = 1\n")
    with pytest.raises(
        UserError, match=r"^old\.py: changed since it was read \(SHA-256 \w{12} then, \w{12} now\): run"
    ):
        planned(PATCHES, root)


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
        (replace(TRAIN, path="./train.py"), "./train.py: its diff is of another file"),
        (replace(TRAIN, diff=TRAIN.diff.replace("train.py", "cells.py")), "train.py: its diff is of another file"),
        (replace(TRAIN, diff=TRAIN.diff.replace(" line 1\n", " line 0\n")), "train.py: its diff does not fit the text"),
        (replace(TRAIN, diff=TRAIN.diff.replace("+more", "+evil")), "train.py: its diff does not give the file"),
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
        planned([*PATCHES[1:], patch], root)
    assert said in str(refused.value)
    assert str(refused.value).endswith("; nothing was written")
    assert contents(root) == BEFORE
    assert (outside / "train.py").read_bytes() == BEFORE[0]


def test_one_file_under_two_names_is_refused(root: Path) -> None:
    (root / "same.py").symlink_to("train.py")
    again = patch_of("same.py", *FILES[0][1:])
    with pytest.raises(UserError, match=r"^same\.py: has two patches, the other as train\.py; nothing was written$"):
        planned([TRAIN, again], root)
    with pytest.raises(UserError, match=r"^train\.py: has two patches, the other as train\.py"):
        planned([TRAIN, TRAIN], root)


def test_a_link_inside_the_project_stays_one(root: Path) -> None:
    (root / "link.py").symlink_to("train.py")
    write_all(planned([patch_of("link.py", *FILES[0][1:])], root))
    assert (root / "link.py").is_symlink()
    assert (root / "train.py").read_bytes() == AFTER[0]


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("failing", range(len(FILES)))
def test_a_file_that_cannot_be_written_puts_the_others_back(
    root: Path, monkeypatch: pytest.MonkeyPatch, failing: int, links: bool
) -> None:
    todo = planned(PATCHES, root)
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
    todo = planned(PATCHES, root)
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
    todo = planned(PATCHES[:2], root)
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
    todo = planned(PATCHES, root)
    (root / "old.py").write_bytes(b"x = 1\n")
    with pytest.raises(UserError, match=r"^old\.py: changed while its patch was written; nothing was written$"):
        write_all(todo)
    assert contents(root) == [*BEFORE[:6], b"x = 1\n", *BEFORE[7:]]


def test_text_that_the_encoding_cannot_hold_is_refused() -> None:
    with pytest.raises(UserError, match=r"^x\.py: its text cannot be written in latin-1$"):
        file_patch("x.py", "a", "\u7f51", "latin-1")


def test_an_unknown_encoding_of_a_saved_patch_is_refused() -> None:
    for encoding in ("warp", "hex", "rot13"):
        with pytest.raises(UserError, match=r"^train\.py: its text cannot be written in "):
            git_patch([replace(TRAIN, encoding=encoding)])


def test_nothing_planned_is_nothing_written(root: Path) -> None:
    nothing: list[Planned] = []
    write_all(nothing)
    assert git_patch_of(nothing) == b""
    assert contents(root) == BEFORE
