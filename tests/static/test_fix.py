"""Which fixes are applied together, and what may go wrong between reading a file and writing it."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest

from perfaudit.cli.scanning import fix_files
from perfaudit.errors import UserError
from perfaudit.findings import Edit, Finding, Fix, Location, Safety, Span
from perfaudit.report import Report
from perfaudit.static import edit, unified_diff
from perfaudit.static.fix import Patched, is_allowed, patch, patches, together, write

Project = Callable[..., Path]

TEXT = "import torch\na = 1\nb = 2\n"


def finding(*edits: Edit, safety: Safety = "safe", changes: tuple[str, ...] = (), path: str = "a.py") -> Finding:
    diff = unified_diff.diff(path, TEXT, edit.apply(TEXT, edits)) if edits else ""
    fix = Fix("mend it", safety, changes, edits, diff, sha256(TEXT.encode()).hexdigest())
    return Finding("PA000", "a-rule", "warning", "slow", Location(path, 1, 1, 1, 2), fix=fix)


def put(old: str, new: str) -> Edit:
    start = TEXT.index(old)
    return Edit(Span(start, start + len(old)), new)


ONE = put("1", "3")


@pytest.mark.parametrize(
    ("found", "unsafe", "allow", "expected"),
    [
        (finding(ONE), False, (), True),
        (finding(ONE, safety="unsafe", changes=("rng",)), False, (), False),
        (finding(ONE, safety="unsafe", changes=("rng",)), True, (), True),
        (finding(ONE, safety="unsafe", changes=("rng",)), False, ("rng", "order"), True),
        (finding(ONE, safety="unsafe", changes=("rng", "checkpoint")), False, ("rng",), False),
        (finding(ONE, safety="unsafe"), False, ("rng",), False),  # does not say what it changes
        (finding(ONE, safety="manual"), True, (), False),
        (finding(), True, (), False),
        (finding(ONE).with_(fix=None), True, (), False),
    ],
)
def test_allowed(found: Finding, unsafe: bool, allow: tuple[str, ...], expected: bool) -> None:
    assert is_allowed(found, unsafe, frozenset(allow)) is expected


@pytest.mark.parametrize(
    ("edits", "after", "applied"),
    [
        ([put("1", "3"), put("2", "4")], "import torch\na = 3\nb = 4\n", 2),
        ([put("1", "3"), put("1", "3")], "import torch\na = 3\nb = 2\n", 2),  # the same edit for two reasons
        ([put("1", "3"), put("a = 1", "c")], "import torch\na = 3\nb = 2\n", 1),
        ([put("1", "("), put("2", "4")], "import torch\na = 1\nb = 4\n", 1),  # would not parse
        ([put("1", "[y for y in (x := z)]"), put("2", "4")], "import torch\na = 1\nb = 4\n", 1),  # parses, is refused
        ([put("1", "\0"), put("2", "4")], "import torch\na = 1\nb = 4\n", 1),
        ([], TEXT, 0),
    ],
)
def test_patch(edits: list[Edit], after: str, applied: int) -> None:
    found = [finding(e) for e in edits]
    patched = patch("a.py", TEXT, found)
    assert patched.after == after
    assert (len(patched.applied), len(patched.waiting)) == (applied, len(found) - applied)


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ([put("1", "3"), put("a = 1", "c")], ["a.py: 1 fixed", "1 more touches the same lines: run again for it"]),
        (
            [put("1", "3"), put("a = 1", "c"), put("= 1", "= 5")],
            ["a.py: 1 fixed", "2 more touch the same lines: run again for them"],
        ),
        ([put("1", "3"), put("2", "(")], ["a.py: 1 fixed"]),  # another run would not take it either
        ([put("1", "3"), put("2", "4")], ["a.py: 2 fixed"]),
    ],
)
def test_fixes_that_wait_are_told(project: Project, edits: list[Edit], told: list[str]) -> None:
    project(**{"a.py": TEXT})
    said: list[str] = []
    report = Report("scan", tuple(finding(item) for item in edits))
    left = Report("scan", (finding(put("b", "c")),))  # what the first fixes made possible
    assert fix_files(report, lambda: left, False, frozenset(), said.append) is left
    assert said == told
    assert "\nb = " in Path("a.py").read_text()


def test_a_fix_is_whole_or_not_at_all() -> None:
    first, second = finding(put("1", "3")), finding(put("a = 1", "c"), put("2", "4"))
    assert patch("a.py", TEXT, [first, second]).after == "import torch\na = 3\nb = 2\n"


def test_one_patch_a_file(project: Project) -> None:
    project(**{"b.py": TEXT, "a.py": TEXT})
    found = [finding(put("1", "3"), path="b.py"), finding(ONE), finding(put("2", "4"), path="b.py")]
    assert [(p.path, len(p.applied)) for p in patches(found, unsafe=False)] == [("a.py", 1), ("b.py", 2)]


@pytest.mark.parametrize(
    "now",
    [
        b"# one line more\n" + TEXT.encode(),
        TEXT.replace("a = 1", "a =1").encode(),
        b"",
        b"import torch \xff",
        b"\0",
        None,
    ],
)
def test_a_file_that_changed_is_refused(project: Project, now: bytes | None) -> None:
    path = project(**{"a.py": TEXT}) / "a.py"
    if now is None:
        path.unlink()
    else:
        path.write_bytes(now)
    with pytest.raises(UserError, match=r"^a\.py: changed since it was read"):  # between scan and patch
        patches([finding(ONE)], unsafe=False)
    with pytest.raises(UserError, match=r"^a\.py: changed since it was read"):  # between patch and write
        write(patch("a.py", TEXT, [finding(ONE)]))
    assert now is None or path.read_bytes() == now


@pytest.mark.parametrize(
    "now", [b"# one line more\n" + TEXT.encode(), TEXT.replace("a = 1", "a =1").encode(), b"\0", None]
)
def test_nothing_is_measured_of_a_file_that_changed(project: Project, now: bytes | None) -> None:
    path = project(**{"a.py": TEXT}) / "a.py"
    known = finding(ONE)
    done = together([known])
    assert done is not None
    assert done.after == TEXT.replace("1", "3")
    if now is None:
        path.unlink()
    else:
        path.write_bytes(now)
    assert together([known]) is None


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("utf-8", "# größer\nx = 1\n"),
        ("utf-8", "x = 1\r\ny = 2\r\n"),
        ("utf-8-sig", "x = 1\n"),
        ("latin-1", "# coding: latin-1\n# größer\nx = 1\n"),
        ("cp1252", "# coding: cp1252\n# „größer“\nx = 1"),
        ("euc-jp", "# coding: euc-jp\n# 日本\nx = 1\n"),
    ],
)
def test_write_keeps_encoding_and_line_ends(project: Project, encoding: str, content: str) -> None:
    path = project() / "a.py"
    path.write_bytes(content.encode(encoding))
    write(Patched("a.py", content, content.replace("x = 1", "x = 9"), (), ()))
    assert path.read_bytes() == content.replace("x = 1", "x = 9").encode(encoding)


def test_text_that_does_not_encode_to_the_same_bytes_is_left_alone(project: Project) -> None:
    path = project() / "a.py"
    content = b"# coding: utf-7\n# +AGE-\nx = 1\n"  # an "a" in the long way
    path.write_bytes(content)
    text = content.decode("utf-7")
    with pytest.raises(UserError, match="would not give the same bytes"):
        write(Patched("a.py", text, text.replace("1", "2"), (), ()))
    assert path.read_bytes() == content


def test_the_diff_is_in_the_encoding_of_the_file() -> None:
    latin = Patched("größe.py", "# é\nx = 1\n", "# é\nx = 2\n", (), (), "latin-1")
    assert latin.diff_bytes == (
        "--- a/größe.py\n+++ b/größe.py\n@@ -1,2 +1,2 @@\n".encode() + b" # \xe9\n-x = 1\n+x = 2\n"
    )
    marked = Patched("a.py", "x = 1\n", "x = 2\n", (), (), "utf-8-sig")
    assert marked.diff_bytes.endswith(b"-\xef\xbb\xbfx = 1\n+\xef\xbb\xbfx = 2\n")
    assert Patched("a.py", "x\n", "x\n", (), ()).diff_bytes == b""


def test_a_disk_that_takes_nothing_leaves_the_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(**{"a.py": TEXT})

    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    for target, name in ((os, "fsync"), (os, "write"), (os, "replace")):
        with monkeypatch.context() as patching:
            patching.setattr(target, name, lambda *a, **k: full())
            with pytest.raises(UserError, match=r"^a\.py: not written: no space left on device$"):
                write(patch("a.py", TEXT, [finding(ONE)]))
        assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("a.py", TEXT)]


def test_a_write_protected_file_stays(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project(**{"a.py": TEXT}) / "a.py"
    path.chmod(0o444)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # root may write everything
    with pytest.raises(UserError, match=r"^a\.py: not written: permission denied$"):
        write(patch("a.py", TEXT, [finding(ONE)]))
    assert path.read_text() == TEXT
