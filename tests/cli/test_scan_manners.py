"""`perfaudit scan` as a linter: standard input, statistics, comments, configuration, tests on request."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("in_this_process")

Project = Callable[..., Path]
Run = Callable[..., Any]
BAD = "import torch\ntorch.autograd.set_detect_anomaly(True)\nx = torch.utils.data.DataLoader(d)\n"


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Let the next command read these bytes."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


def test_standard_input(project: Project, perfaudit: Run, stdin: Callable[[bytes], None]) -> None:
    project()
    stdin(BAD.encode())
    done = perfaudit("scan", "-", "--stdin-filename", "src/train.py", "--select", "PA501", "--format", "concise")
    assert done.code == 1
    assert done.out.startswith("src/train.py:2:1: PA501 ")


def test_standard_input_without_an_end(
    project: Project, perfaudit: Run, stdin: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    project()
    monkeypatch.setattr("perfaudit.reading.MAX_FILE_BYTES", 1 << 20)
    stdin(b"#" * (1 << 20))
    assert perfaudit("scan", "-").code == 0
    stdin(b"#" * ((1 << 20) + 1))
    done = perfaudit("scan", "-")
    assert (done.code, done.err) == (2, "perfaudit: standard input holds more than 1 MiB\n")


def test_standard_input_fixed(project: Project, perfaudit: Run, stdin: Callable[[bytes], None]) -> None:
    project()
    stdin(BAD.replace("\n", "\r\n").encode("utf-8-sig"))
    done = perfaudit("scan", "-", "--fix", "--select", "PA501,PA101")
    assert done.code == 1  # PA101 is left: its patch is not safe
    assert done.out == "\ufeff" + BAD.replace("(True)", "(False)").replace("\n", "\r\n")
    assert done.err.startswith("stdin.py:3:5: PA101 ")
    stdin(b"import torch\n")
    assert perfaudit("scan", "-", "--fix").out == "import torch\n"  # nothing to do: the text as it came


def test_standard_input_diff(project: Project, perfaudit: Run, stdin: Callable[[bytes], None]) -> None:
    project()
    stdin(BAD.encode())
    assert "+torch.autograd.set_detect_anomaly(False)" in perfaudit("scan", "-", "--diff").out


def test_standard_input_that_is_no_text(project: Project, perfaudit: Run, stdin: Callable[[bytes], None]) -> None:
    project()
    stdin(b"x = (\n")
    done = perfaudit("scan", "-", "--fix")
    assert (done.code, done.out) == (3, "x = (\n")  # an editor takes what comes back for its text
    assert "stdin.py: not audited: does not parse at line 1" in done.err


PAGEABLE = """import torch
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)

for images, labels in loader:
    images, labels = images.to(device), labels.to(device)
"""
PINNED = PAGEABLE.replace("=4)", "=4, pin_memory=True)")  # copies from pinned memory need not block: a fix of its own
COPIES = ("--select", "PA102,PA104")


def test_what_is_printed_is_what_is_written(project: Project, perfaudit: Run) -> None:
    folder = project(**{"a.py": PAGEABLE})
    patch = perfaudit("scan", "a.py", "--diff", *COPIES).out
    done = perfaudit("scan", "a.py", "--fix", *COPIES)
    assert (done.code, done.err, "PA104" in done.out) == (1, "a.py: 1 fixed\n", True)
    assert (folder / "a.py").read_text() == PINNED
    assert patch.count("\n+") - 1 == 1  # a line, besides the name of the file
    assert "\n+loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4, pin_memory=True)\n" in patch
    assert perfaudit("scan", "a.py", "--fix", *COPIES).code == 0
    assert (folder / "a.py").read_text() == PINNED.replace("(device)", "(device, non_blocking=True)")


def test_of_standard_input_too(project: Project, perfaudit: Run, stdin: Callable[[bytes], None]) -> None:
    project()
    stdin(PAGEABLE.encode())
    done = perfaudit("scan", "-", "--fix", *COPIES)
    assert (done.code, done.out, done.err.count("PA104")) == (1, PINNED, done.err.count("\n"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("-", "a.py"), "- reads one text from standard input"),
        (("a.py", "--stdin-filename", "x.py"), "--stdin-filename is the name of what `perfaudit scan -` reads"),
        (("a.py", "--resume"), "--resume goes on with a scan that measured: add --measure"),
        (("a.py", "--update-baseline"), "--update-baseline writes the file"),
        (("a.py", "--statistics", "--format", "sarif"), "--statistics prints text or json"),
    ],
)
def test_options_that_do_not_go_together(
    project: Project, perfaudit: Run, arguments: tuple[str, ...], problem: str
) -> None:
    project(**{"a.py": BAD})
    done = perfaudit("scan", *arguments)
    assert (done.code, done.err.startswith(f"perfaudit: {problem}")) == (2, True), done.err


def test_statistics(project: Project, perfaudit: Run) -> None:
    project(**{"a.py": BAD, "b.py": BAD.replace("torch.autograd", "# ")})
    done = perfaudit("scan", ".", "--statistics", "--select", "PA101,PA501")
    assert done.code == 1
    assert done.out == (
        "findings  files  fixes  safe  rule\n"
        "       2      2      2     0  PA101 dataloader-no-workers\n"
        "       1      1      1     1  PA501 anomaly-detection-enabled\n"
    )
    rows = json.loads(perfaudit("scan", ".", "--statistics", "--select", "PA501", "--format", "json").out)
    assert rows == [
        {"rule": "PA501", "name": "anomaly-detection-enabled", "findings": 1, "files": 1, "fixes": 1, "safe": 1}
    ]


def test_comments(project: Project, perfaudit: Run) -> None:
    text = BAD.replace("(True)", "(True)  # noqa: PA501").replace("(d)", "(d)  # perfaudit: ignore[PA1, PA601] small")
    project(**{"a.py": text, "b.py": "# perfaudit: ignore-file old\n" + BAD})
    done = perfaudit("scan", ".", "--format", "json")
    assert done.code == 0
    assert json.loads(done.out)["unused_suppressions"] == [
        {"path": "a.py", "cell": None, "line": 3, "rules": ["PA601"]}
    ]
    assert "PA601" in perfaudit("scan", ".").out  # said in the text as well


def test_configuration(project: Project, perfaudit: Run) -> None:
    folder = project(
        **{
            "pyproject.toml": """
            [tool.perfaudit]
            tests = true
            select = ["PA1", "PA5"]
            [tool.perfaudit.per-file-ignores]
            "scripts/" = ["PA501"]
            [tool.perfaudit.severity]
            PA501 = "info"
            """,
            "scripts/a.py": BAD,
            "tests/b.py": BAD,
        }
    )
    found = json.loads(perfaudit("scan", ".", "--format", "json").out)["findings"]
    assert [(f["path"], f["rule"], f["severity"]) for f in found] == [
        ("scripts/a.py", "PA101", "warning"),
        ("tests/b.py", "PA101", "warning"),
        ("tests/b.py", "PA501", "info"),
    ]
    alone = json.loads(perfaudit("scan", ".", "--isolated", "--format", "json").out)
    assert [f["rule"] for f in alone["findings"] if f["path"] == "scripts/a.py"] == ["PA501", "PA101"]
    assert alone["tests_left_out"] == 1
    (folder / "sub").mkdir()
    (folder / "sub" / "pyproject.toml").write_text("[tool.perfaudit]\nselect = ['PA9X']\n")
    (folder / "sub" / "c.py").write_text(BAD)
    assert perfaudit("scan", "sub").code == 2  # the nearest file to what is scanned


def test_tests_are_counted(project: Project, perfaudit: Run) -> None:
    project(**{"a.py": "import torch\n", "tests/b.py": BAD})
    done = perfaudit("scan", ".")
    assert (done.code, "1 test file" in done.out) == (0, True)
    assert perfaudit("scan", ".", "--tests").code == 1


@pytest.mark.parametrize(
    ("name", "is_test"),
    [
        ("test_utils.py", True),
        ("pkg/testing_utils.py", True),
        ("mocks/model.py", True),
        ("mock_net.py", True),
        ("testing/net.py", False),  # it evaluates a network, and is written for no test runner
        ("contest_utils.py", False),
        ("hammocks.py", False),
    ],
)
def test_what_tests_are_written_with_is_a_test(name: str, is_test: bool, project: Project, perfaudit: Run) -> None:
    project(**{"a.py": "import torch\n", name: BAD})
    assert perfaudit("scan", ".").code == (0 if is_test else 1)
    assert perfaudit("scan", ".", "--tests").code == 1


@pytest.mark.parametrize(
    ("files", "code", "said"),
    [
        (["tests/test_b.py"], 0, "1 test file left out"),
        (["tests/test_b.py", "tests/test_c.py"], 0, "2 test files left out"),
        (["jaxy.py", "./jaxy.py"], 0, "1 file left out: excluded"),
        (["jaxy.py", "gen/d.py", "tests/test_b.py"], 0, "2 files left out: excluded; 1 test file left out"),
        (["sub"], 3, "no Python files in sub besides 1 test (--tests reads it)"),
        (["."], 3, "no Python files in . besides 3 tests (--tests reads them)"),
        (["gen", "jaxy.py"], 3, "no Python files in gen, jaxy.py"),
        (["jaxy.py", "--measure", "--budget", "1s"], 3, "no Python files in jaxy.py"),
        (["jaxy.py", "--baseline", "known.json", "--update-baseline"], 3, "no Python files in jaxy.py"),
    ],
)
def test_a_hook_passes_files_that_are_left_out(
    project: Project, perfaudit: Run, files: list[str], code: int, said: str
) -> None:
    """A commit of tests or of excluded files alone goes through; a folder without files to read is a mistake all the same."""
    settings = "[tool.perfaudit]\nexclude = ['jaxy.py', 'gen/']\n"
    bad = dict.fromkeys(["jaxy.py", "gen/d.py", "tests/test_b.py", "tests/test_c.py", "sub/tests/e.py"], BAD)
    project(**{"pyproject.toml": settings, **bad})
    done = perfaudit("scan", "--force-exclude", *files)
    assert (done.code, done.out, done.err) == (code, "", f"perfaudit: {said}\n")


def test_a_hook_still_stops_at_a_file_that_is_not_left_out(project: Project, perfaudit: Run) -> None:
    project(**{"a.py": BAD, "b.py": "x = (", "tests/test_b.py": BAD})
    assert perfaudit("scan", "--force-exclude", "tests/test_b.py", "a.py").code == 1
    assert perfaudit("scan", "--force-exclude", "tests/test_b.py", "b.py").code == 3
    assert perfaudit("scan", "tests/test_b.py").code == 1


def test_no_cache(project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(**{"a.py": BAD, "pyproject.toml": ""})
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    perfaudit("scan", "a.py", "--no-cache")
    assert not (folder / "cache").exists()
    perfaudit("scan", "a.py")
    assert (folder / "cache" / "perfaudit" / "scan").is_dir()


def test_statistics_say_that_files_were_not_audited(project: Project, perfaudit: Run) -> None:
    project(**{"a.py": "import torch\n", "b.py": "import torch\nx = ("})
    done = perfaudit("scan", ".", "--statistics")
    assert done.err == "perfaudit: 1 was not audited; the report without --statistics names each with its reason\n"
