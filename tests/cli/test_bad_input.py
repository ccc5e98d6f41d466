"""What a scan meets on other people's disks: every kind of bad input, with what is said about it. Nothing is damaged.

Where a kind has its test elsewhere, `ELSEWHERE` says where.
"""

from __future__ import annotations

import encodings.aliases
import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from conftest import Done

from perfaudit import forked_work, reading
from perfaudit.static import audit as auditing
from perfaudit.static import scan as scanning
from perfaudit.static.document import Document, read_document
from perfaudit.static.fix import patch_document
from perfaudit.static.project import Project as Files
from perfaudit.static.scan import Options, scan, scan_bytes

Run = Callable[..., Done]
PARSER = f" (read as Python {sys.version_info.major}.{sys.version_info.minor}, with which perfaudit runs)"
Project = Callable[..., Path]

CALL = "torch.autograd.set_detect_anomaly(True)"
ANOMALY = f"import torch\n{CALL}\n"  # PA501, error, safe fix
FIXED = ANOMALY.replace("True", "False")
TESTS = Path(__file__).parents[1]

ELSEWHERE = {
    "a byte that is no UTF-8": "cli/test_scan.py::test_one_bad_file_among_good_ones",
    "a byte-order mark": "cli/test_scan.py::test_diff_applies_and_is_what_fix_writes",
    "PEP 263, written back": "static/test_fix.py::test_write_keeps_encoding_and_line_ends",
    "2,000 brackets, null bytes, a file that is too large": "cli/test_scan.py::test_one_bad_file_among_good_ones",
    "an empty file": "cli/test_scan.py::test_files_that_can_be_audited",
    "links that lead in a circle": "static/test_discover.py::test_links",
    "a named link that leads in a circle, a pipe": "cli/test_scan.py::test_wrong_use_is_one_line",
    "what may not be read, on disk": "cli/test_scan.py::test_what_may_not_be_read",
    "a file that changes between reading and writing": "static/test_fix.py::test_a_file_that_changed_is_refused",
    "a notebook that is none": "static/test_notebook.py::test_damaged",
    "every wrong key of pyproject.toml": "test_config.py::test_errors_name_file_and_key",
    "every wrong key of a rule file": "test_rules.py::test_refusals_name_file_and_key",
    "a tree that is read-only": "cli/test_scan.py::test_fix_where_nothing_may_be_written",
    "a cache that cannot be written": "static/test_cache.py::test_a_folder_that_cannot_be_written",
    "two scans that share a cache": "static/test_cache.py::test_scans_at_the_same_time",
    "a report on a full disk": "cli/test_scan.py::test_a_full_disk_is_no_finding",
    "a patch on a full disk, at each step": "static/test_fix.py::test_a_disk_that_takes_nothing_leaves_the_file",
    "a process that dies": "static/test_scanning.py::test_a_process_that_dies_names_its_file",
    "a check that fails": "static/test_scanning.py::test_a_check_that_fails_costs_itself_only",
    "random programs, and damaged ones": "static/test_fuzz.py::test_programs",
}


@pytest.mark.parametrize("test", ELSEWHERE.values(), ids=list(ELSEWHERE))
def test_elsewhere(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (TESTS / file).read_text()


def skipped(done: Done) -> dict[str, str]:
    return {item["path"]: item["reason"] for item in json.loads(done.out)["skipped"]}


# ---- text ----------------------------------------------------------------------------------------------------------

CODECS = sorted({*encodings.aliases.aliases.values(), "undefined", "idna", "unicode_escape", "nonsense", "utf-8-sig"})


@pytest.mark.parametrize("bytes_", [ANOMALY.encode(), b"# caf\xe9 +AGE-\n" + ANOMALY.encode()], ids=["ascii", "latin"])
def test_every_codec_of_python(bytes_: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A declared encoding is obeyed or the file is a result; no codec raises what nobody catches."""
    monkeypatch.setattr(forked_work, "can_fork", lambda: False)
    for codec in CODECS:
        report, _ = scan_bytes(f"# coding: {codec}\n".encode() + bytes_, "nowhere/a.py")
        assert bool(report.findings) is not bool(report.skipped), codec


@pytest.mark.parametrize(
    ("code", "since"),
    [
        ("type Batch = list[int]", (3, 12)),
        ("def first[T](items: list[T]) -> T: ...", (3, 12)),
        ("print(f'{batch['x']}')", (3, 12)),
        ("try:\n    pass\nexcept OSError, ValueError:\n    pass", (3, 14)),
        ("print(t'{x}')", (3, 14)),
    ],
)
def test_syntax_of_a_newer_python(project: Project, perfaudit: Run, code: str, since: tuple[int, int]) -> None:
    project(**{"new.py": ANOMALY + code + "\n", "old.py": ANOMALY})
    done = perfaudit("scan", ".", "--select", "PA501", "--format", "json")
    found = [finding["path"] for finding in json.loads(done.out)["findings"]]
    if sys.version_info >= since:
        assert found == ["new.py", "old.py"]
    else:
        assert found == ["old.py"]
        assert skipped(done)["new.py"].startswith("does not parse at line ")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("x = " + "[" * 90 + "]" * 90, ""),
        ("x = " + "(" * 2000 + ")" * 2000, f"does not parse at line 3: too many nested parentheses{PARSER}"),
        ("x = " + "-" * 100_000 + "1", "nested too deeply to parse"),
        ("x = y" + ".a" * 900 + ".item()", ""),
        ("x = " + " + ".join(f"t{n}.item()" for n in range(200)), ""),
        ("if a == 0:\n    pass\n" + "".join(f"elif a == {n}:\n    pass\n" for n in range(300)), ""),
        ("".join("    " * n + f"def f{n}(x):\n" for n in range(90)) + "    " * 90 + "pass", ""),
    ],
)
def test_nested_code(code: str, reason: str) -> None:
    report, _ = scan_bytes(f"{ANOMALY}{code}\n".encode(), "nowhere/a.py", Options(frozenset({"PA501"})))
    assert [item.reason for item in report.skipped] == ([reason] if reason else [])
    assert len(report.findings) == (not reason)


LOOP = """
import torch
model = torch.nn.Linear(3, 3).cuda()
{before}
for x, y in loader:
    loss = model(x.cuda()).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
model.eval()
for x in loader:
    print(model(x).mean())
"""
CALLS = range(12)


@pytest.mark.parametrize(
    "before",
    [
        "".join(f"if a{n}:\n    model = model.to(b)\n" for n in range(20)),
        "".join(f"model{n} = model{m}\n" for n in CALLS for m in CALLS) + "model = model0",
        "".join(f"def f{n}(x):\n" + "".join(f"    f{m}(x) + f{m}(x)\n" for m in CALLS) for n in CALLS) + "f0(model)",
        "def f(c):\n    return torch.nn.Sequential(g(c), g(c), f(c))\ndef g(c):\n    return f(c)\nmodel = f(3)",
        "class A(B): ...\nclass B(A): ...\nclass C(C): ...\nmodel = A(B(), C())",
        "n0 = 1\n" + "".join(f"n{n + 1} = n{n} + n{n}\n" for n in range(60)) + "0.5 * x * (1 + torch.erf(x / n60))",
        "def f(n, x):\n    m = m * m + m\n    return 0.5 * x * (1 + torch.erf(x / m))",
        "n = 9**9**9\nloader = torch.utils.data.DataLoader(d, num_workers=n * 9**9**9)",
        "v = " + "".join(f"a.item() if c{n} else " for n in range(60)) + "0",
    ],
)
def test_code_in_which_paths_multiply(before: str) -> None:
    """What refers to itself, or to much that refers to much: without a limit each of these takes hours."""
    report, _ = scan_bytes(LOOP.format(before=before).encode(), "nowhere/a.py")
    assert report.skipped == ()
    assert "PA601" in {finding.rule for finding in report.findings}


def test_as_many_findings_as_lines() -> None:
    """One patch for all of them, and each with its own diff."""
    lines = "".join(f"x{n} = torch.zeros({n}).cuda()\n" for n in range(1, 1001))
    report, document = scan_bytes(f"import torch\n{lines}".encode(), "nowhere/a.py", Options(frozenset({"PA105"})))
    assert document is not None
    patched = patch_document("nowhere/a.py", document, report.findings)
    assert (len(patched.applied), patched.waiting) == (1000, ())
    assert report.findings[500].fix is not None
    assert report.findings[500].fix.diff.splitlines()[2] == "@@ -499,7 +499,7 @@"


@pytest.mark.parametrize("source", ["x = '\ud800'", "x = '\0'", "x = " + "-" * 100_000 + "1", "x = " + "(" * 2000, "("])
def test_one_bad_cell_of_a_notebook(project: Project, perfaudit: Run, source: str) -> None:
    cells = [{"cell_type": "code", "source": text} for text in (source, ANOMALY)]
    path = project() / "nb.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}))
    done = perfaudit("scan", ".", "--select", "PA501", "--fix", "--format", "json")
    assert (done.code, done.err) == (0, "nb.ipynb: 1 fixed\n")
    assert skipped(done)["nb.ipynb"].startswith("cell 1: does not parse")
    assert [cell["source"] for cell in json.loads(path.read_text())["cells"]] == [source, FIXED]


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ELOOP, errno.EISDIR])
def test_a_file_that_cannot_be_read(
    project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """As another user, and on a network disk; root may read what it likes."""
    project(**{"bad.py": ANOMALY, "good.py": ANOMALY})
    real = reading.read_bytes

    def read(path: Path | str, limit: int = reading.MAX_FILE_BYTES) -> bytes:
        if Path(path).name == "bad.py":
            raise OSError(error, os.strerror(error))
        return real(path, limit)

    for module in ("source.reading", "project", "fix", "scan"):
        monkeypatch.setattr(f"perfaudit.static.{module}.read_bytes", read)
    done = perfaudit("scan", ".", "--fix", "--select", "PA501", "--format", "json")
    assert skipped(done) == {"bad.py": os.strerror(error).lower()}
    assert done.err == "good.py: 1 fixed\n"


@pytest.mark.parametrize("remains", [True, False])
def test_a_file_that_vanishes_before_it_is_read(
    project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch, remains: bool
) -> None:
    """Between finding and reading it; whether the first look at it still saw something or not."""
    folder = project(**{"a.py": ANOMALY, "b.py": ANOMALY})
    real = scanning._audit_files

    def audited(*rest: object) -> object:
        (folder / "a.py").unlink()
        return real(*rest)  # type: ignore[arg-type]  # handed on as they came

    def no_glance(files: Files, path: str) -> None:
        return None

    monkeypatch.setattr(scanning, "_audit_files", audited)
    if not remains:
        monkeypatch.setattr(Files, "glance", no_glance)
    done = perfaudit("scan", ".", "--select", "PA501", "--format", "json")
    assert skipped(done) == {"a.py": "no such file or directory"}
    assert [finding["path"] for finding in json.loads(done.out)["findings"]] == ["b.py"]


def test_a_file_that_vanishes_before_it_is_fixed(
    project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(**{"a.py": ANOMALY, "b.py": ANOMALY})

    def read(path: Path) -> Document:
        found = read_document(path)
        if path.name == "a.py":
            path.unlink()
        return found

    monkeypatch.setattr(auditing, "read_document", read)
    done = perfaudit("scan", ".", "--select", "PA501", "--fix")
    assert (done.code, done.out) == (2, "")
    assert done.err == "perfaudit: a.py: changed since it was read: no such file or directory\n"
    assert (folder / "b.py").read_text() == ANOMALY  # files are read again before the first is written


def test_a_folder_that_vanishes(project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(**{"a.py": ANOMALY, "sub/b.py": ANOMALY})
    real = os.scandir

    def listing(path: str | Path | int = ".") -> object:
        if not isinstance(path, int) and Path(path).name == "sub":
            shutil.rmtree(folder / "sub", ignore_errors=True)
        return real(path)

    monkeypatch.setattr(os, "scandir", listing)
    done = perfaudit("scan", ".", "--no-cache", "--select", "PA501", "--format", "json")
    assert skipped(done) == {"sub": "folder not read: no such file or directory"}


def test_a_generated_file_is_not_read(project: Project, perfaudit: Run) -> None:
    folder = project(**{"a.py": ANOMALY})
    with (folder / "generated.py").open("wb") as file:
        file.write(ANOMALY.encode())
        file.truncate(1 << 40)  # takes no room on the disk
    done = perfaudit("scan", ".", "--select", "PA501", "--format", "json")
    assert skipped(done) == {"generated.py": "larger than 4 MiB, probably generated"}


# ---- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[tool.ruff]\nselect = 1\n\n[tool.perfaudit]\nselect = 'PA1'\n", ":5"),
        ("[tool.perfaudit]\nignore = []\ncolour = 1\n", ":3"),
        ("[tool.perfaudit]\n[tool.perfaudit.severity]\n# low\nPA101 = 'low'\n", ":4"),
        ("[tool.perfaudit.per-file-ignores]\n'a b.py' = 'PA1'\n", ":2"),
        ("[tool.perfaudit.target]\nmodel = 1\n", ":2"),
        ("[tool]\nperfaudit = { tests = 3 }\n", ""),  # not a line of its own
        ("[tool]\n\nperfaudit = 3\n", ":3"),
    ],
)
def test_what_is_wrong_in_pyproject_has_a_line(project: Project, perfaudit: Run, text: str, line: str) -> None:
    path = project(**{"pyproject.toml": text, "a.py": ANOMALY}) / "pyproject.toml"
    done = perfaudit("scan", ".")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"perfaudit: {path}{line}: ")


RULE = """
    id = "XY001"
    name = "ours"
    title = "Ours"
    area = "input"
    severity = "warning"
    fix = "none"
    why = "Because."
    sources = ["https://example.org"]
    [[example]]
    bad = "import torch"
    lines = [1]
    [[example]]
    good = "import math"
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"warning"', '"loud"', ":5: key 'severity': 'loud' is none of "),
        ("fix =", "fixes = 1\n    fix =", ":6: key 'fixes': unknown"),
        ("fix =", "", ": not valid TOML: "),
        ('title = "Ours"', "", ": key 'title': missing"),
        ('"import math"', "3", ":12: key 'example 2': code is a string"),
        ("[1]", "[9]", ":9: key 'example 1': `lines` is a list of numbers from 1 to 1, the lines of the code"),
    ],
)
def test_what_is_wrong_in_a_rule_file_has_a_line(
    project: Project, perfaudit: Run, old: str, new: str, message: str
) -> None:
    settings = '[tool.perfaudit]\nrules = ["mine"]\n'
    check = "from perfaudit.static.registry import check\n@check('XY001', call='torch.ours')\ndef ours(s, c): ...\n"
    rule = RULE.replace(old, new, 1)
    project(**{"pyproject.toml": settings, "mine/XY001-ours.toml": rule, "mine/ours.py": check, "a.py": ANOMALY})
    done = perfaudit("scan", ".", "--rules", "mine")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"XY001-ours.toml{message}" in done.err


# ---- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit on the size of files")
@pytest.mark.parametrize("arguments", [["--fix"], ["--fix", "--unsafe-fixes", "--no-cache"], []])
def test_no_room_on_the_disk(project: Project, arguments: list[str]) -> None:
    """A limit of 0 bytes a file fails in the system call, as a full disk does: nothing is damaged, nothing is left over."""
    folder = project(**{"a.py": ANOMALY})

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    command = [sys.executable, "-B", "-m", "perfaudit", "scan", ".", "--select", "PA501", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, preexec_fn=no_room)
    if "--fix" in arguments:
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "perfaudit: a.py: not written: file too large\n"
    else:
        assert (done.returncode, done.stderr) == (1, "")
    assert (folder / "a.py").read_text() == ANOMALY
    left = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("a.py", ".gitignore")]
    assert [path for path in left if path.stat().st_size or path.parent == folder] == []


def test_a_cache_on_a_full_disk_keeps_no_halves(
    project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project(**{"a.py": "import torch\nfor batch in DataLoader(d):\n    pass\n"})
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patching:
        patching.setattr(os, "replace", full)
        assert perfaudit("scan", ".").code == 0
    assert list((cache / "perfaudit" / "scan").iterdir()) == []
    assert perfaudit("scan", ".").code == 0
    assert len(list((cache / "perfaudit" / "scan").glob("*.json"))) == 1


def test_two_fixes_at_the_same_time(project: Project) -> None:
    """Each file is as one run alone leaves it; who comes too late says so."""
    folder = project(**{f"m{number}.py": ANOMALY * 30 for number in range(20)})
    command = [sys.executable, "-m", "perfaudit", "scan", ".", "--select", "PA501", "--fix"]
    both = [subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, said = process.communicate()
        assert process.returncode == 0 or "changed since it was read; scan it again" in said
    assert {path.read_text() for path in folder.glob("*.py")} == {FIXED * 30}
    assert sorted(path.name for path in folder.glob("*.py*")) == sorted(f"m{number}.py" for number in range(20))
    assert scan(["."], Options(frozenset({"PA501"}))).findings == ()
