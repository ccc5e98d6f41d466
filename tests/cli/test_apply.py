"""`perfaudit apply`: what a saved report hands over is what is written, and nothing else in it is believed."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfaudit import forked_work as workers
from perfaudit.errors import UserError
from perfaudit.findings import Edit, FilePatch, Finding, Fix, Location, Saving, Span
from perfaudit.measurements import Ladder, Winner
from perfaudit.reading import digest
from perfaudit.report import Report, to_json
from perfaudit.static.document import Document
from perfaudit.static.patching import file_patch
from perfaudit.tune.apply import of_scan, of_tuning, patch_bytes
from perfaudit.tune.saved_report import read_report

pytestmark = pytest.mark.usefixtures("in_this_process")
DOCS = Path(__file__).parents[2] / "docs"
Run = Callable[..., Any]
Project = Callable[..., Path]
Json = dict[str, Any]

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.autograd.set_detect_anomaly(True)


def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())


def loader(data):
    return DataLoader(data, batch_size=8)
"""
MODEL = "WIDTH = 64\nDEPTH = 2\n"


def patched(path: str, before: str, *changes: tuple[str, str]) -> FilePatch:
    return file_patch(path, before, [edit_of(before, old, new) for old, new in changes])


def edit_of(text: str, old: str, new: str) -> Edit:
    """That replaces a text where it stands first."""
    at = text.index(old)
    return Edit(Span(at, at + len(old)), new)


def fix_of(path: str, text: str, title: str, old: str, new: str, *changes: str) -> Fix:
    """One edit as a fix, with all that a report has of it."""
    fix = Fix(title, "unsafe" if changes else "safe", changes, (edit_of(text, old, new),))
    found = Document(text, text)
    return found.as_handed_over(path, replace(fix, diff=found.diff(path, fix.edits)))


LADDER = Ladder(
    files=(
        patched(
            "train.py", TRAIN, ("anomaly(True)", "anomaly(False)"), ("batch_size=8", "batch_size=8, num_workers=2")
        ),
        patched("nets/model.py", MODEL, ("64", "128")),
    ),
    changes=("rounding",),
)


def winner(knob: str, old: str, new: str, low: float, *changes: str, path: str = "train.py") -> Winner:
    fix = fix_of(path, TRAIN, knob, old, new, *changes)
    return Winner(knob, {}, False, knob, Saving("measured", low, low + 0.1), fix, Location(path, 1, 1, 1, 1))


WORKERS = winner("dataloader", "batch_size=8", "batch_size=8, num_workers=2", 0.2)
BIGGER = winner("batch_size", "batch_size=8", "batch_size=64", 0.5, "algorithm")


@pytest.fixture
def saved(project: Project) -> Callable[[Report | Json | str | bytes], str]:
    """Write the two files and a report, and return the report's name."""
    project(**{"train.py": TRAIN, "nets/model.py": MODEL})

    def save(report: Report | Json | str | bytes) -> str:
        data = to_json(report) if isinstance(report, Report) else report
        text = json.dumps(data) if isinstance(data, dict) else data
        Path("report.json").unlink(
            missing_ok=True
        )  # to write over a file takes ten times as long as to write another one
        Path("report.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        return "report.json"

    return save


def files() -> dict[str, str]:
    return {path: Path(path).read_text() for path in ("train.py", "nets/model.py")}


UNTOUCHED = {"train.py": TRAIN, "nets/model.py": MODEL}
CLIMBED = {
    "train.py": TRAIN.replace("(True)", "(False)").replace("size=8", "size=8, num_workers=2"),
    "nets/model.py": MODEL.replace("64", "128"),
}


# ---- reports of tune ---------------------------------------------------------------------------------------------


def test_the_patch_of_a_ladder_is_written_as_a_whole(saved: Run, perfaudit: Run) -> None:
    report = saved(Report("tune", ladder=LADDER, winners=(BIGGER,)))
    check = perfaudit("apply", report, "--check")
    assert (check.code, check.err, files()) == (1, "", UNTOUCHED)
    assert re.findall(r"^diff --git .*$", check.out, re.M) == [
        "diff --git a/train.py b/train.py",
        "diff --git a/nets/model.py b/nets/model.py",
    ]
    assert "+torch.autograd.set_detect_anomaly(False)\n" in check.out
    done = perfaudit("apply", report)
    assert (done.code, done.out, done.err) == (0, "", "train.py: patched\nnets/model.py: patched\n")
    assert files() == CLIMBED
    for again in (perfaudit("apply", report), perfaudit("apply", report, "--check")):
        assert (again.code, again.out) == (0, "")
        assert again.err == "train.py: already applied\nnets/model.py: already applied\n"
    assert files() == CLIMBED


def test_half_a_ladder_is_finished_and_a_changed_file_refuses_it_all(saved: Run, perfaudit: Run) -> None:
    report = saved(Report("tune", ladder=LADDER))
    Path("nets/model.py").write_text(MODEL + "# mine\n")
    done = perfaudit("apply", report)
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(
        r"perfaudit: nets/model\.py: changed since it was read \(SHA-256 \w{12} then, \w{12} now\): "
        r"run `perfaudit tune` again; nothing was written\n",
        done.err,
    )
    assert files() == {**UNTOUCHED, "nets/model.py": MODEL + "# mine\n"}
    Path("nets/model.py").write_text(CLIMBED["nets/model.py"])
    assert perfaudit("apply", report).err == "train.py: patched\nnets/model.py: already applied\n"
    assert files() == CLIMBED


def test_without_a_ladder_the_winner_that_saves_most_is_written(saved: Run, perfaudit: Run) -> None:
    report = saved(Report("tune", winners=(BIGGER, WORKERS)))
    said = "batch_size: not applied, it is another training, so name it alone to have it applied\n"
    check = perfaudit("apply", report, "--check")
    assert (check.code, check.err, files()) == (1, said, UNTOUCHED)
    assert "+    return DataLoader(data, batch_size=8, num_workers=2)\n" in check.out
    done = perfaudit("apply", report)
    assert (done.code, done.err) == (0, "train.py: dataloader applied\n" + said)
    assert files() == {**UNTOUCHED, "train.py": TRAIN.replace("size=8", "size=8, num_workers=2")}
    again = perfaudit("apply", report)
    assert (again.code, again.err) == (0, "train.py: dataloader already applied\n" + said)
    assert perfaudit("apply", report, "--check").code == 0


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (Report("tune"), "nothing to apply: every knob keeps what you have\n"),
        (
            Report("tune", winners=(Winner("threads", {}, False, "OMP_NUM_THREADS=1"),)),
            "threads: nothing to apply, OMP_NUM_THREADS=1\n",
        ),
        (Report("tune", winners=(WORKERS,), ladder=Ladder()), "nothing to apply: no patch was shown to pay\n"),
        (Report("scan"), "nothing to apply\n"),
    ],
)
def test_nothing_to_apply_is_said(saved: Run, perfaudit: Run, report: Report, said: str) -> None:
    for options in ([], ["--check"]):
        done = perfaudit("apply", saved(report), *options)
        assert (done.code, done.out, done.err, files()) == (0, "", said, UNTOUCHED)


@pytest.mark.parametrize("option", [["--unsafe-fixes"], ["--allow", "rng"], ["--select", "PA101"]])
def test_a_patch_of_tune_is_not_chosen_from(saved: Run, perfaudit: Run, option: list[str]) -> None:
    done = perfaudit("apply", saved(Report("tune", ladder=LADDER)), *option)
    assert (done.code, files()) == (2, UNTOUCHED)
    assert done.err.startswith("perfaudit: --unsafe-fixes, --allow and --select choose among fixes of a scan")


# ---- reports of scan ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--unsafe-fixes"],
        ["--allow", "rounding,rng,checkpoint"],
        ["--allow", "checkpoint", "--allow", "rounding,rng"],
        ["--allow", "rounding"],
    ],
)
def test_a_scan_applied_later_is_the_scan_that_fixes(project: Project, perfaudit: Run, options: list[str]) -> None:
    folder = project(**{"train.py": TRAIN, "nets/model.py": TRAIN})
    assert perfaudit("scan", ".", "--no-cache", "--format", "json", "-o", "report.json").code == 1
    check = perfaudit("apply", "report.json", "--check", *options)
    diff = perfaudit("scan", ".", "--no-cache", "--diff", *options).out
    assert check.code == (1 if diff else 0)
    assert re.sub(r"^diff --git .*\n", "", check.out, flags=re.M) == diff
    done = perfaudit("apply", "report.json", *options)
    assert done.code == 0
    later = (folder / "train.py").read_text()
    project(**{"train.py": TRAIN, "nets/model.py": TRAIN})
    perfaudit("scan", ".", "--no-cache", "--fix", *options)
    assert later == (folder / "train.py").read_text() == (folder / "nets/model.py").read_text()
    assert later != TRAIN


def test_only_the_selected_rules_and_what_is_left_is_said(project: Project, perfaudit: Run) -> None:
    project(**{"train.py": TRAIN})
    perfaudit("scan", "train.py", "--no-cache", "--format", "json", "-o", "report.json")
    done = perfaudit("apply", "report.json", "--select", "conv-bias-before-norm")
    assert (done.code, Path("train.py").read_text()) == (0, TRAIN)
    assert done.err == "1 fix not applied, changing rounding, rng, checkpoint: --unsafe-fixes or --allow takes it\n"
    done = perfaudit("apply", "report.json", "--select", "PA201", "--unsafe-fixes")
    assert (done.code, done.err) == (0, "train.py: 1 fixed\n")
    assert Path("train.py").read_text() == TRAIN.replace("8, 3)", "8, 3, bias=False)")
    assert perfaudit("apply", "report.json", "--select", "PA999").err == (
        "perfaudit: --select PA999: the report has no such finding\n"
    )
    assert "fixes change rounding, precision, rng" in perfaudit("apply", "report.json", "--allow", "speed").err


def test_a_file_that_changed_after_the_scan_refuses_all(project: Project, perfaudit: Run) -> None:
    project(**{"train.py": TRAIN, "nets/model.py": TRAIN})
    perfaudit("scan", ".", "--no-cache", "--format", "json", "-o", "report.json")
    Path("nets/model.py").write_text(TRAIN + "# mine\n")
    done = perfaudit("apply", "report.json")
    assert done.code == 2
    assert done.err.startswith("perfaudit: nets/model.py: changed since it was read (SHA-256 ")
    assert done.err.endswith("run `perfaudit scan` again; nothing was written\n")
    assert Path("train.py").read_text() == TRAIN


def scan_of(*changes: tuple[str, str], text: str = TRAIN) -> Json:
    """A report of a scan whose findings each have one safe fix: replace one text by another."""
    found = []
    for number, (old, new) in enumerate(changes):
        place = Location("train.py", number + 1, 1, number + 1, 1)
        found.append(Finding(f"PA90{number}", "x", "info", "", place, fix=fix_of("train.py", text, "", old, new)))
    return to_json(Report("scan", tuple(found)))


def test_fixes_of_one_line_wait_and_others_are_put_together_where_they_stood(saved: Run, perfaudit: Run) -> None:
    more = "import torch\nimport math\n"
    report = saved(
        scan_of(
            ("import torch\n", more),
            ("batch_size=8", "batch_size=8, pin_memory=True"),
            ("batch_size=8", "batch_size=9"),
            ("import torch\n", more),
            ("nn.ReLU()", "nn.GELU()"),
        )
    )
    done = perfaudit("apply", report)
    assert done.err == (
        "train.py: 4 fixed\n"
        "train.py:3:1: PA902 not applied, it touches the text of another; run `perfaudit scan` again\n"
    )
    wanted = TRAIN.replace("import torch\n", more, 1).replace("=8", "=8, pin_memory=True").replace("ReLU", "GELU")
    assert Path("train.py").read_text() == wanted


def test_a_fix_after_which_the_text_does_not_compile_is_left_out(saved: Run, perfaudit: Run) -> None:
    done = perfaudit("apply", saved(scan_of(("def net():", "def net(:"), ("ReLU", "GELU"))))
    assert done.code == 0
    assert "train.py: 1 fixed\n" in done.err
    assert Path("train.py").read_text() == TRAIN.replace("ReLU", "GELU")


def test_patches_that_take_long_to_try_are_refused(
    project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4,000 lines that do not compile, each was tried: minutes, and days for the 100,000 that a report may hold."""
    text = "".join(f"x{number} = 1\n" for number in range(1500))
    project(**{"a.py": text})
    fix = {"safety": "safe", "changes": [], "title": "", "diff": "", "before": digest(text.encode())}
    finding = {"rule": "PA901", "name": "x", "severity": "info", "message": "", "path": "a.py"}
    findings = []
    for number in range(1500):
        at = text.index(f"x{number} = 1") + len(f"x{number} ")
        edits = [{"start": at, "end": at, "text": "= "}]
        findings.append({**finding, "line": number, "fix": {**fix, "edits": edits}})
    report = json.dumps({"schema": "perfaudit.report/1", "command": "scan", "findings": findings})
    Path("report.json").write_text(report)
    monkeypatch.setattr(workers, "can_fork", lambda: True)
    monkeypatch.setattr(workers, "CPU_SECONDS", 0.25)
    done = perfaudit("apply", "report.json")
    assert done.err == "perfaudit: a.py: its patch: took longer than 0.25 s; nothing was written\n"
    assert (done.code, Path("a.py").read_text()) == (2, text)


def notebook_of(*cells: str) -> str:
    written = [{"cell_type": "markdown", "source": ["# training"], "metadata": {}}]
    for cell in cells:
        lines = cell.splitlines(keepends=True)
        written.append({"cell_type": "code", "source": lines, "metadata": {}, "outputs": []})  # type: ignore[dict-item]
    return json.dumps({"cells": written, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


@pytest.mark.parametrize("options", [[], ["--unsafe-fixes"]])
def test_a_notebook_is_written_as_scan_writes_it(project: Project, perfaudit: Run, options: list[str]) -> None:
    notebook = notebook_of("%matplotlib inline\nimport torch", TRAIN)
    project(**{"train.ipynb": notebook})
    perfaudit("scan", "train.ipynb", "--no-cache", "--format", "json", "-o", "report.json")
    edits = [e for f in json.loads(Path("report.json").read_text())["findings"] if f["fix"] for e in f["fix"]["edits"]]
    assert {(e["cell"], e["line"]) for e in edits} >= {(3, 5), (3, 9)}
    assert perfaudit("apply", "report.json", *options).code == 0
    later = Path("train.ipynb").read_text()
    project(**{"train.ipynb": notebook})
    perfaudit("scan", "train.ipynb", "--no-cache", "--fix", *options)
    assert later == Path("train.ipynb").read_text() != notebook


@pytest.mark.parametrize(
    ("start", "end", "text", "said"),
    [
        (0, 2, "1#", "an edit of lines that only IPython understands"),
        (31, 45, "\n", "an edit across two cells"),
        (10_000, 10_000, "1", "an edit ends at character 10000 of a text of"),
    ],
)
def test_edits_that_a_notebook_cannot_take(
    project: Project, perfaudit: Run, start: int, end: int, text: str, said: str
) -> None:
    notebook = notebook_of("%matplotlib inline\nimport torch", TRAIN)
    project(**{"train.ipynb": notebook})
    report = scan_of(("ReLU", "GELU"))
    report["findings"][0]["path"] = "train.ipynb"
    fix = report["findings"][0]["fix"]
    fix |= {"before": digest(notebook.encode()), "edits": [{"start": start, "end": end, "text": text}]}
    Path("report.json").write_text(json.dumps(report))
    done = perfaudit("apply", "report.json")
    assert (done.code, Path("train.ipynb").read_text()) == (2, notebook)
    assert said in done.err


TEXTS = [
    TRAIN.replace("\n", "\r\n").encode(),
    b"\xef\xbb\xbf" + TRAIN.encode(),
    ("# -*- coding: latin-1 -*-\n# \xe9\n" + TRAIN).encode("latin-1"),
    ("# größe, 训练 𝒳\n" + TRAIN).encode(),
    TRAIN.rstrip("\n").encode(),
]


@pytest.mark.parametrize("data", TEXTS)
def test_line_ends_mark_and_encoding_stay(project: Project, perfaudit: Run, data: bytes) -> None:
    project()
    Path("train.py").write_bytes(data)
    perfaudit("scan", "train.py", "--no-cache", "--format", "json", "-o", "report.json")
    assert perfaudit("apply", "report.json").err.startswith("train.py: 1 fixed\n")
    assert Path("train.py").read_bytes() == data.replace(b"anomaly(True)", b"anomaly(False)")


EXAMPLE = textwrap.dedent(
    re.search(r"In Python, without perfaudit:\n\n```python\n(.*?)```", (DOCS / "formats.md").read_text(), re.DOTALL)[1]  # type: ignore[index]
)


@pytest.mark.parametrize("data", TEXTS)
def test_another_program_applies_what_the_page_on_formats_describes(
    project: Project, perfaudit: Run, data: bytes
) -> None:
    project()
    Path("train.py").write_bytes(data)
    perfaudit("scan", "train.py", "--no-cache", "--format", "json", "-o", "report.json")
    fixes = [
        f["fix"] for f in json.loads(Path("report.json").read_text())["findings"] if f["fix"] and f["fix"]["edits"]
    ]
    assert len(fixes) > 2
    for fix in fixes:
        exec("import codecs, hashlib\n" + EXAMPLE, {"path": "train.py", "fix": fix})  # its last line compares `after`


def test_a_report_from_the_cache_can_be_applied(project: Project, perfaudit: Run) -> None:
    project(**{"train.py": TRAIN, "pyproject.toml": ""})
    for _ in range(2):
        perfaudit("scan", ".", "--format", "json", "-o", "report.json")
    assert perfaudit("apply", "report.json").err.startswith("train.py: 1 fixed\n")


def test_fewer_bits_of_an_older_report_are_no_rounding(project: Project, perfaudit: Run) -> None:
    project(**{"train.py": TRAIN})
    report = scan_of(("ReLU", "GELU"))
    report["findings"][0] |= {"rule": "PA304"}
    report["findings"][0]["fix"] |= {"safety": "unsafe", "changes": ["rounding"]}
    Path("report.json").write_text(json.dumps(report))
    done = perfaudit("apply", "report.json", "--allow", "rounding")
    assert (done.code, Path("train.py").read_text()) == (0, TRAIN)
    assert "1 fix not applied, changing precision" in done.err
    assert read_report(Path("report.json")).findings[0].fix.changes == ("precision",)  # type: ignore[union-attr]
    perfaudit("apply", "report.json", "--allow", "precision")
    assert Path("train.py").read_text() == TRAIN.replace("ReLU", "GELU")


# ---- reports that nobody should believe --------------------------------------------------------------------------

TUNE, WON, SCAN = (
    json.loads(json.dumps(to_json(Report("tune", ladder=LADDER)))),
    json.loads(json.dumps(to_json(Report("tune", winners=(WORKERS,))))),
    scan_of(("ReLU", "GELU")),
)


def with_value(report: Json, where: str, value: object) -> Json:
    """A copy of the report with one value changed: `with_value(TUNE, "ladder files 0 path", 1)`."""
    changed = json.loads(json.dumps(report))
    place: Any = changed
    *path, last = [int(part) if part.isdigit() else part for part in where.split()]
    for part in path:
        place = place[part]
    place[last] = value
    return changed


EVIL = {"start": 0, "end": 0, "text": "import os\n"}


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"\0" * 100, "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "JSON of something else"),
        ("null", "JSON of something else"),
        ("NaN", "JSON of something else"),
        ("1" * 10_000, "not JSON"),
        ("{}", "no report of perfaudit"),
        ('{"schema": 1}', "no report of perfaudit"),
        ('{"schema": "sarif"}', "no report of perfaudit"),
        (with_value(TUNE, "schema", "perfaudit.report/1\n"), "no report of perfaudit"),
        (with_value(TUNE, "schema", "perfaudit.report/2"), "and this version reads perfaudit.report/1: update"),
        (with_value(TUNE, "command", 1), "command must be a string, it is 1"),
        (with_value(TUNE, "command", "gate"), "a report of 'gate' has no patches"),
        (with_value(TUNE, "command", "\x1b[2J"), "a report of '\\x1b[2J' has no patches"),
        ({"schema": "perfaudit.report/1"}, "command is missing"),
        (with_value(TUNE, "ladder", []), "ladder must be an object"),
        (with_value(TUNE, "ladder", True), "ladder must be an object"),
        (with_value(TUNE, "ladder files", {}), "ladder.files must be a list"),
        (with_value(TUNE, "ladder files", [1]), "ladder.files[0] must be an object"),
        (with_value(TUNE, "ladder files", [{}] * 100_001), "ladder.files has 100,001 entries"),
        (with_value(TUNE, "ladder files 0", {}), "ladder.files[0].path is missing"),
        (with_value(TUNE, "ladder files 1 path", None), "ladder.files[1].path must be a string"),
        (with_value(TUNE, "ladder files 1 path", ["train.py"]), "ladder.files[1].path must be a string"),
        (with_value(TUNE, "ladder files 1 before", "x"), "ladder.files[1].before must be a SHA-256"),
        (with_value(TUNE, "ladder files 1 before", "A" * 64), "ladder.files[1].before must be a SHA-256"),
        (with_value(TUNE, "ladder files 1 after", ""), "ladder.files[1].after must be a SHA-256"),
        (with_value(TUNE, "ladder files 1 after", "0" * 63), "ladder.files[1].after must be a SHA-256"),
        (with_value(TUNE, "ladder files 1 after", "0" * 64), "nets/model.py: its edits do not give the file"),
        (with_value(TUNE, "ladder changes", "rounding"), "ladder.changes must be a list"),
        (with_value(TUNE, "ladder files 1 path", "../model.py"), "'../model.py': not a path inside the project"),
        (with_value(TUNE, "ladder files 1 path", "/etc/passwd"), "'/etc/passwd': not a path inside the project"),
        (with_value(TUNE, "ladder files 1 path", "\x1b[2J.py"), "'\\x1b[2J.py': not a path inside the project"),
        (with_value(TUNE, "ladder files 1 path", "\ud800.py"), "'\\ud800.py': not a path inside the project"),
        (with_value(TUNE, "ladder files 1 path", "train.py"), "train.py: has two patches"),
        (with_value(TUNE, "ladder files 1 path", "report.json"), "report.json: neither a Python file nor a notebook"),
        (with_value(TUNE, "ladder files 1 path", "gone.py"), "gone.py: no such file here"),
        (with_value(TUNE, "ladder files 1 edits", 3), "ladder.files[1].edits must be a list, it is 3"),
        (
            with_value(TUNE, "ladder files 1 edits", None),
            "ladder.files[1] has a diff and no edits; run `perfaudit tune`",
        ),
        (with_value(TUNE, "ladder files 1 edits", []), "nets/model.py: its edits do not give the file"),
        (with_value(TUNE, "ladder files 1 edits", [EVIL] * 100_001), "ladder.files[1].edits has 100,001 entries"),
        (with_value(TUNE, "ladder files 0 edits 1", [EVIL]), "ladder.files[0].edits[1] must be an object"),
        (with_value(TUNE, "ladder files 0 edits 1", EVIL), "train.py: its edits do not give the file"),
        (with_value(TUNE, "ladder files 0 edits 1", {}), "ladder.files[0].edits[1].start is missing"),
        (
            with_value(TUNE, "ladder files 0 edits 1 start", -1),
            "ladder.files[0].edits[1].start must be a whole number of at",
        ),
        (
            with_value(TUNE, "ladder files 0 edits 1 start", "9"),
            "ladder.files[0].edits[1].start must be a whole number",
        ),
        (
            with_value(TUNE, "ladder files 0 edits 1 start", True),
            "ladder.files[0].edits[1].start must be a whole number",
        ),
        (
            with_value(TUNE, "ladder files 0 edits 1 start", 9.0),
            "ladder.files[0].edits[1].start must be a whole number",
        ),
        (
            with_value(TUNE, "ladder files 0 edits 1 start", 0),
            "train.py: its edits do not fit: edits overlap at character",
        ),
        (
            with_value(TUNE, "ladder files 0 edits 1 end", 2),
            "ladder.files[0].edits[1].end must be a whole number of at least",
        ),
        (with_value(TUNE, "ladder files 0 edits 1 end", 10**9), "an edit ends at character 1000000000 of a text of"),
        (with_value(TUNE, "ladder files 0 edits 1 text", None), "ladder.files[0].edits[1].text must be a string"),
        (
            with_value(TUNE, "ladder files 1 edits 0 text", "\ud800"),
            "nets/model.py: its text cannot be written in utf-8",
        ),
        (with_value(WON, "winners", {"a": 1}), "winners must be a list"),
        (with_value(WON, "winners 0 knob", None), "winners[0].knob must be a string"),
        (
            with_value(WON, "winners 0 keeps_current", "no"),
            "winners[0].keeps_current must be true or false, it is 'no'",
        ),
        (with_value(WON, "winners 0 saving", 1), "winners[0].saving must be an object"),
        (with_value(WON, "winners 0 saving low", "much"), "winners[0].saving.low must be a number of at most 1"),
        (with_value(WON, "winners 0 saving low", True), "winners[0].saving.low must be a number of at most 1"),
        (with_value(WON, "winners 0 saving low", float("nan")), "winners[0].saving.low must be a number of at most 1"),
        (with_value(WON, "winners 0 saving high", 10**400), "winners[0].saving.high must be a number of at most 1"),
        (with_value(WON, "winners 0 line", "1"), "winners[0].line must be a whole number"),
        (with_value(WON, "winners 0 fix safety", "fine"), "winners[0].fix.safety must be one of safe, unsafe, manual"),
        (
            with_value(WON, "winners 0 fix before", None),
            "the report does not say which text dataloader was measured on",
        ),
        (with_value(WON, "winners 0 fix after", None), "the report does not say which text dataloader was measured on"),
        (with_value(WON, "winners 0 fix after", "0" * 64), "train.py: its edits do not give the file"),
        (with_value(WON, "winners 0 fix before", "0" * 64), "train.py: changed since it was read"),
        (with_value(WON, "winners 0 fix edits", [EVIL]), "train.py: its edits do not give the file"),
        (with_value(WON, "winners 0 path", "nets/model.py"), "nets/model.py: changed since it was read"),
        (with_value(SCAN, "findings", 1), "findings must be a list"),
        (with_value(SCAN, "findings 0 rule", 1), "findings[0].rule must be a string"),
        (
            with_value(SCAN, "findings 0 severity", "deadly"),
            "findings[0].severity must be one of error, warning, info, hint",
        ),
        (with_value(SCAN, "findings 0 path", 1), "findings[0].path must be a string"),
        (with_value(SCAN, "findings 0 line", 1.5), "findings[0].line must be a whole number"),
        (with_value(SCAN, "findings 0 fix", "yes"), "findings[0].fix must be an object"),
        (with_value(SCAN, "findings 0 fix changes", None), "findings[0].fix.changes must be a list"),
        (with_value(SCAN, "findings 0 fix changes", ["world"]), "findings[0].fix.changes[0] must be one of rounding, "),
        (with_value(SCAN, "findings 0 fix changes", [[]]), "findings[0].fix.changes[0] must be one of rounding, "),
        (with_value(SCAN, "findings 0 fix changes", ["rng"]), "findings[0].fix.changes must be empty"),
        (with_value(SCAN, "findings 0 fix before", None), "train.py: the report does not say which text it is of"),
        (with_value(SCAN, "findings 0 fix before", "0" * 64), "train.py: changed since it was read"),
        (with_value(SCAN, "findings 0 fix after", "0" * 64), "train.py: its edits do not give the file"),
        (
            with_value(SCAN, "findings 0 fix edits", None),
            "findings[0].fix has a diff and no edits; run `perfaudit scan`",
        ),
        (with_value(SCAN, "findings 0 fix edits", [EVIL]), "train.py: its edits do not give the file"),
        (
            with_value(SCAN, "findings 0 fix edits 0 end", 10**9),
            "train.py: PA900: its edits do not fit: an edit ends at",
        ),
        (
            with_value(SCAN, "findings 0 fix edits", [{**EVIL, "end": 5}, {**EVIL, "start": 4, "end": 9}]),
            "train.py: PA900: its edits do not fit: edits overlap at character 4",
        ),
        (with_value(SCAN, "findings 0 path", "nets/../train.py"), "not a path inside the project"),
    ],
)
def test_a_damaged_or_hostile_report_is_refused_in_words(
    saved: Run, perfaudit: Run, report: Json | str | bytes, said: str
) -> None:
    name = saved(report)
    for options in ([], ["--check"]):
        done = perfaudit("apply", name, *options)
        assert (done.code, done.out, files()) == (2, "", UNTOUCHED)
        assert said in done.err
        assert done.err.count("\n") == 1
        assert "\x1b" not in done.err


def test_every_value_of_every_type_is_taken_or_refused_and_never_a_traceback(saved: Run) -> None:
    """Each value of three good reports replaced by one of each type, one after the other; nothing is written."""
    strange = [None, True, -1, 1.5, "", "\0", "a/" * 3000, [], [None], {}, {"path": {}}]
    refused = taken = 0
    for report in (TUNE, WON, SCAN):
        for place in places(report, "")[1:]:
            for value in strange:
                try:
                    read = read_report(Path(saved(with_value(report, place, value))))
                    of_tuning(read, Path.cwd())
                    of_scan(read, Path.cwd(), unsafe=True, allow=frozenset())
                    taken += 1
                except UserError:
                    refused += 1
    assert refused > 100
    assert taken > 100  # what nobody needs for applying
    assert files() == UNTOUCHED


def places(value: object, path: str) -> list[str]:
    """Where the values of nested JSON are, in the words of `with_value`."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    return [path, *(p for key, item in inside for p in places(item, f"{path} {key}".strip()))]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "perfaudit: report.json: no such file\n"),
        (Path.mkdir, "perfaudit: report.json: no file\n"),
        (lambda path: path.symlink_to(path.name), "perfaudit: report.json: "),
        (lambda path: path.open("wb").truncate((64 << 20) + 1), "perfaudit: report.json: larger than 64 MiB"),
    ],
)
def test_what_is_no_report_is_refused(
    project: Project, perfaudit: Run, make: Callable[[Path], object], said: str
) -> None:
    make(project() / "report.json")
    done = perfaudit("apply", "report.json")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(said)


def test_the_patch_as_one_text_is_the_one_that_check_prints(saved: Run, perfaudit: Run) -> None:
    for report in (Report("tune", ladder=LADDER), Report("tune", winners=(BIGGER, WORKERS))):
        assert patch_bytes(report) == perfaudit("apply", saved(report), "--check").out.encode() != b""
    assert patch_bytes(Report("tune")) == patch_bytes(Report("tune", ladder=Ladder(), winners=(WORKERS,))) == b""
