"""`perfaudit tune` and `scan --measure` on small trainings, as a user types them. Nothing here asserts how fast anything is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from surveys import survey_of

from perfaudit.errors import UserError
from perfaudit.measure.facts import CallSite

pytestmark = pytest.mark.slow

# Batches and steps that sleep, so that other work changes little of how their times compare: three workers are enough.
SLOW = """
class Slow(TensorDataset):
    def __getitem__(self, index):
        import time

        time.sleep(0.003)
        return super().__getitem__(index)


class Rest(nn.Module):
    def forward(self, x):
        import time

        time.sleep(0.008)
        return x


def build_model"""
TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.autograd.set_detect_anomaly(True)


class Average:
    def __init__(self, model):
        self.kept = [p.detach().clone() for p in model.parameters()]

    def update(self, model):
        pass


def build_model():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3))


def build_dataloader():
    return DataLoader(
        TensorDataset(torch.randn(96, 3, 8, 8), torch.randint(0, 3, (96,))),
        batch_size=8,  # as in the paper
    )


def build_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def build_ema(model):
    return Average(model)
"""

Run = Callable[..., Any]
Project = Callable[..., Path]


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few steps: as many processes and rounds as ever, in a fifth of the time."""
    monkeypatch.setattr("perfaudit.tune.search.BLOCK_SECONDS", 0.05)
    monkeypatch.setattr("perfaudit.tune.search.SHORT_BLOCK_SECONDS", 0.05)


SEEN = ("screened", "measured")  # the latter where it is the only one that pays: the race of all that does is its own


def test_scan_measure_prices_findings_by_their_own_patch(project: Project, perfaudit: Run) -> None:
    """Anomaly detection costs this many small operations a third of the step, which is told on a busy machine too."""
    many = "nn.BatchNorm2d(8), *[nn.Hardtanh() for _ in range(60)], nn.Flatten()"
    project(**{"train.py": TRAIN.replace("nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()", many)})
    for budget in ("16s", "60s", "200s"):  # beside other work, a step that takes half the time is not told at once
        done = perfaudit("scan", "train.py", "--measure", "--severity", "hint", "--budget", budget, "--format", "json")
        assert done.code == 1
        report = json.loads(done.out)
        assert (report["command"], report["target"]) == ("scan", "train.py")
        found = {f["rule"]: f for f in report["findings"]}
        said = " ".join([found["PA501"]["note"], *report["notes"]])
        is_told = found["PA501"]["saving"]["basis"] in SEEN and found["PA501"]["saving"]["low"] > 0
        if is_told and "the same losses to the bit" in said:
            break
    assert set(found) == {"PA201", "PA402", "PA501"}  # its samples lie in memory, so PA101 is silent
    assert "the same losses to the bit" in said
    assert found["PA501"]["saving"]["basis"] in SEEN
    assert "-torch.autograd.set_detect_anomaly(True)" in found["PA501"]["fix"]["diff"]
    patches = {c["candidate"]["patch"]: c for c in report["comparisons"] if c["knob"] == "patch"}
    assert {"PA201", "PA402", "PA501"} <= set(patches)
    for compared in patches.values():
        assert compared["baseline"] == {"patch": "none"}
        assert compared["low"] is None or compared["low"] <= compared["ratio"] <= compared["high"]
    screened = [f for f in report["findings"] if f["saving"] and f["saving"]["basis"] == "screened"]
    paying = [f["saving"]["low"] for f in screened if f["saving"]["low"] > 0]
    assert paying == sorted(paying, reverse=True)
    measured = sum(f["saving"] is not None and f["saving"]["basis"] == "measured" for f in report["findings"])
    assert report["findings"][measured : measured + len(paying)] == screened[: len(paying)]
    assert {c["way"] for c in patches.values() if c["basis"] == "screened"} == {"twin"}
    control = report["calibration"]
    assert control["low"] <= control["ratio"] <= control["high"]


def test_a_patch_that_breaks_the_training_is_withdrawn(project: Project, perfaudit: Run) -> None:
    """The bias is read by code that no scan of this file can see; the patched model fails to build."""
    helper = (
        "def check(model):\n    assert all(m.bias is not None for m in model if hasattr(m, 'bias'))\n    return model\n"
    )
    text = TRAIN.replace("import torch\n", "import torch\nfrom helper import check\n", 1)
    text = text.replace("return nn.Sequential(", "return check(nn.Sequential(").replace(
        "nn.Linear(8 * 36, 3))", "nn.Linear(8 * 36, 3)))"
    )
    project(**{"train.py": text, "helper.py": helper})
    done = perfaudit("scan", "train.py", "--measure", "--budget", "10s", "--format", "json", "--select", "PA201")
    (finding,) = json.loads(done.out)["findings"]
    assert finding["note"].startswith("its patch is withdrawn: train.py: build_model() failed: AssertionError")
    assert finding["fix"] is None


def test_lines_that_a_step_does_not_run_are_not_priced(project: Project, perfaudit: Run) -> None:
    text = TRAIN + "\n\ndef other():\n    return torch.optim.SGD(build_model().parameters(), lr=1.0)\n"
    project(**{"train.py": text})
    done = perfaudit("scan", "train.py", "--measure", "--budget", "8s", "--format", "json", "--select", "PA402")
    notes = [f["note"] for f in json.loads(done.out)["findings"] if "SGD" in f["message"]]
    assert notes == ["not measured: building the training and making a step does not run this line of train.py"]


def report_of(perfaudit: Run, is_enough: Callable[[Any], bool], *arguments: str, first: str = "60s") -> tuple[Any, int]:
    """The report of `perfaudit tune train.py` with these arguments, and its exit code.

    A machine that does other work needs more time until the report has what a test looks at. first: the budget that is tried
    first, where a run goes on until its budget has passed; others end when nothing is left to be found out.
    """
    for budget in (first, "60s", "120s"):
        done = perfaudit("tune", "train.py", *arguments, "--budget", budget, "--format", "json")
        report = json.loads(done.out) if done.out else {}
        if report and is_enough(report):
            break
    return report, done.code


def has_control(report: Any) -> bool:
    """Whether the control ran beside the candidates; it ends with them, after three quads where they are far apart."""
    return report["calibration"] is not None and report["calibration"]["rounds"] > 0


@pytest.mark.usefixtures("short_blocks")
def test_tune_dataloader_reports_trials_race_and_winner(project: Project, perfaudit: Run) -> None:
    project(**{"train.py": TRAIN})
    report, code = report_of(perfaudit, has_control, "--dataloader", first="24s")
    assert code in (0, 1)
    trials = report["trials"]
    assert {t["settings"]["num_workers"] for t in trials} >= {0, 1, 2}
    for trial in trials:
        assert set(trial) >= {"knob", "settings", "status", "metric", "median", "low", "high", "n", "peak_memory_bytes"}
        if trial["status"] == "ok":
            assert trial["low"] <= trial["median"] <= trial["high"]
    (winner,) = report["winners"]
    assert (winner["knob"], code == 1) == ("dataloader", not winner["keeps_current"])
    assert has_control(report)


def test_tune_dataloader_races_loaders_in_one_training_and_the_best_as_source(project: Project, perfaudit: Run) -> None:
    text = TRAIN.replace("def build_model", SLOW, 1).replace("TensorDataset(torch", "Slow(torch")
    text = text.replace("nn.ReLU(), ", "nn.ReLU(), Rest(), ")
    assert "Slow(torch" in text and "Rest(), " in text
    project(**{"train.py": text})

    def has_both(report: Any) -> bool:
        bases = {
            each["basis"]
            for each in report["comparisons"]
            if each["basis"] != "measured" or each["verdict"] == "faster"
        }
        return bases == {"measured", "screened"}

    report, _ = report_of(perfaudit, has_both, "--dataloader")
    compared = {c["candidate"]["num_workers"]: c for c in report["comparisons"]}
    screened = [c for c in compared.values() if c["basis"] == "screened"]
    measured = [c for c in compared.values() if c["basis"] == "measured"]
    assert len(measured) == 1 and {c["way"] for c in screened} == {"loader"}
    assert measured[0]["verdict"] == "faster"  # the step waits for 24 ms of sleep otherwise
    (winner,) = report["winners"]
    assert winner["settings"] == measured[0]["candidate"]
    assert winner["saving"]["basis"] == "measured"


@pytest.mark.usefixtures("short_blocks")
def test_tune_batch_size_stays_within_the_memory_given(project: Project, perfaudit: Run) -> None:
    project(**{"train.py": TRAIN})
    report, _ = report_of(perfaudit, has_control, "--batch-size", "--memory", "4GiB")
    assert {c["way"] for c in report["comparisons"] if c["basis"] == "screened"} <= {"loader"}
    assert has_control(report)  # of the race in one training, in which the sizes were looked at
    sizes = {t["settings"]["batch_size"]: t for t in report["trials"]}
    assert set(sizes) >= {4, 8, 16, 32} and max(sizes) <= 96
    peaks = [sizes[size]["peak_memory_bytes"] for size in sorted(sizes) if sizes[size]["peak_memory_bytes"]]
    assert peaks == sorted(peaks) and len(peaks) >= 3


@pytest.mark.usefixtures("short_blocks")
def test_tune_ema_says_what_each_way_adds(project: Project, perfaudit: Run) -> None:
    project(**{"train.py": TRAIN})
    report, _ = report_of(perfaudit, lambda report: len(report["trials"]) > 4, "--ema", first="6s")
    trials = report["trials"]
    ways = {(t["settings"]["average"], t["settings"]["when"]) for t in trials}
    assert {
        ("yours", "after step"),
        ("none", "-"),
        ("foreach_lerp", "before step"),
        ("averaged_model_multi", "after step"),
    } <= ways
    assert all(
        t["added_seconds"][0] > 0
        for t in trials
        if t["added_seconds"] and t["settings"]["average"] not in ("yours", "none")
    )


def test_a_knob_that_cannot_matter_here_says_why(project: Project, perfaudit: Run) -> None:
    project(**{"train.py": TRAIN})
    done = perfaudit("tune", "train.py", "--cudnn", "--device", "cpu")
    assert done.code == 3
    assert "cudnn: cuDNN runs on CUDA devices, and this training runs on cpu" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tune", "nowhere.py"), "perfaudit: nowhere.py: no such file\n"),
        (
            ("tune", "broken.py"),
            "broken.py: SyntaxError: invalid syntax (broken.py:1)",
        ),
        (("tune", "broken.py", "--factory", "model=net"), "broken.py does not import: SyntaxError: invalid syntax"),
        (
            ("tune", "train.py", "--factory", "model=net"),
            "no function 'net' for the model (it has: Average, build_model",
        ),
        (("tune", "train.py", "--factory", "wheels=net"), "write ROLE=NAME with one of the roles model, dataloader"),
        (("tune", "train.py", "--budget", "soon"), "'soon' is no duration; write e.g. 90s, 5m or 1h"),
        (("tune", "train.py", "--memory", "lots"), "'lots' is no amount of memory"),
        (("tune", "train.py", "-o", "no/such/folder.txt"), "no/such/folder.txt: no such folder"),
        (("tune", "train.py", "--device", "warp"), "--device warp: not usable here"),
        (("scan", "train.py", "--measure", "--fix"), "--measure"),
        (("scan", "empty.py", "--measure", "--factory", "model=net"), "empty.py defines no dataloader factory"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(
    project: Project, perfaudit: Run, arguments: tuple[str, ...], said: str
) -> None:
    project(**{"train.py": TRAIN, "empty.py": "import torch\n\ndef net():\n    return 1\n", "broken.py": "def (:\n"})
    done = perfaudit(*arguments)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("arguments", [("tune", "empty.py"), ("scan", "empty.py", "--measure")])
def test_a_script_that_ends_without_a_step_leaves_nothing_to_measure(
    project: Project, perfaudit: Run, arguments: tuple[str, ...]
) -> None:
    project(**{"empty.py": "import torch\n"})
    done = perfaudit(*arguments)
    assert done.code == 3
    assert "empty.py: the script ended before its first step; there were 0 batches" in done.err
    assert "Traceback" not in done.err


def test_without_a_target_the_one_file_with_factories_is_taken(project: Project, perfaudit: Run) -> None:
    project(**{"train.py": TRAIN, "notes.py": "x = 1\n"})
    assert "train.py on cpu" in perfaudit("tune", "--cudnn", "--device", "cpu").out
    project(**{"again.py": TRAIN})
    done = perfaudit("tune", "--cudnn")
    assert (done.code, done.err) == (
        2,
        "perfaudit: several files define factories: again.py, train.py; name one of them\n",
    )
    project(**{"pyproject.toml": '[tool.perfaudit.target]\nfile = "again.py"\n'})
    assert "again.py on cpu" in perfaudit("tune", "--cudnn", "--device", "cpu").out


def test_apply_writes_the_patch_that_was_measured(project: Project) -> None:
    """The winner of a search is not known beforehand, so the writing is tested with a report made by hand."""
    from perfaudit.measurements import Winner
    from perfaudit.report import Report
    from perfaudit.static.document import handed_over
    from perfaudit.tune.apply import apply_winners

    project(**{"train.py": TRAIN})
    from perfaudit.findings import Fix
    from perfaudit.knobs import dataloader
    from perfaudit.knobs._code import Code

    survey = survey_of(loader={"site": CallSite(str(Path("train.py").absolute()), 21, 24, 11, 5)})
    settings = {**dataloader.KNOB.current(survey), "num_workers": 2, "prefetch_factor": 2}
    patch = dataloader.KNOB.patch(Code("train.py", survey), settings)
    assert patch is not None
    fix = handed_over("train.py", patch.before, Fix("", "unsafe", ("rng",), patch.edits, patch.diff))
    location = patch.location
    report = Report("tune", winners=(Winner("dataloader", {}, False, "", None, fix, location),))
    assert apply_winners(report) == ["train.py: dataloader applied"]
    assert Path("train.py").read_text() == patch.after
    assert "        batch_size=8,  # as in the paper\n        num_workers=2,\n" in patch.after
    assert apply_winners(report) == ["train.py: dataloader already applied"]
    Path("train.py").write_text(patch.after + "# more\n")
    with pytest.raises(UserError, match=r"^train\.py: changed since it was read \("):
        apply_winners(report)


def test_apply_writes_one_patch_and_names_the_others(project: Project) -> None:
    """Each was measured alone; another batch size comes last, however much it saves."""
    from perfaudit.findings import Edit, Fix, Location, Saving, Span
    from perfaudit.measurements import Winner
    from perfaudit.report import Report
    from perfaudit.static.document import handed_over
    from perfaudit.tune.apply import apply_winners

    text = "a = 1\nb = 2\nc = 3\n"
    project(**{"train.py": text})

    def winner(knob: str, at: int, low: float, *changes: str) -> Winner:
        edits = (Edit(Span(at, at + 1), "9"),)
        fix = handed_over("train.py", text, Fix(knob, "unsafe", changes, edits))
        return Winner(knob, {}, False, knob, Saving("measured", low, low), fix, Location("train.py", 1, 1, 1, 1))

    winners = (winner("batch_size", 4, 0.5, "algorithm"), winner("compile", 10, 0.1), winner("optimizer", 16, 0.2))
    assert apply_winners(Report("tune", winners=winners)) == [
        "train.py: optimizer applied",
        "compile: not applied, it was measured without the one above; run again to have it measured on top",
        "batch_size: not applied, it is another training, so name it alone to have it applied",
    ]
    assert Path("train.py").read_text() == "a = 1\nb = 2\nc = 9\n"


def test_ctrl_c_prints_what_was_measured_and_leaves_no_process(project: Project) -> None:
    project(**{"train.py": TRAIN})
    command = [
        sys.executable,
        "-m",
        "perfaudit",
        "tune",
        "train.py",
        "--dataloader",
        "--budget",
        "120s",
        "-o",
        "out.txt",
    ]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background of a shell ignore it
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "dataloader:" in line:
            break
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(60) == 130
    assert "Traceback" not in rest
    assert "note: interrupted" in Path("out.txt").read_text()
    assert _children_of(process.pid) == []


def _children_of(pid: int) -> list[str]:
    """Processes of the command's session, or whose working directory is this test's."""
    here, found = str(Path.cwd()), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str((folder / "cwd").readlink()) == here and int(folder.name) != os.getpid():
                found.append((folder / "cmdline").read_text())
        except OSError:
            continue
    return found


def test_a_program_that_fails_by_itself_is_not_blamed_on_a_patch(project: Project, perfaudit: Run) -> None:
    failing = (
        TRAIN.replace("TensorDataset(torch.randn(96", "Failing(torch.randn(96")
        + """

class Failing(TensorDataset):
    def __getitem__(self, index):
        if index >= 40:
            raise OSError("corrupt image")
        return super().__getitem__(index)
"""
    )
    project(**{"train.py": failing})
    done = perfaudit("scan", "train.py", "--measure", "--budget", "30s", "--select", "PA501")
    assert done.code == 3
    assert (
        "train.py: your code as it is could not be measured: train.py: the dataloader failed: OSError: corrupt image"
        in done.err
    )
    assert "PA501" in done.out  # what reading found is printed all the same


def test_a_loader_is_patched_at_its_own_line_even_if_another_was_thrown_away(project: Project, perfaudit: Run) -> None:
    from perfaudit.measure.child import Child

    text = TRAIN.replace("    return DataLoader(\n", "    len(DataLoader([1, 2], 1))\n    return DataLoader(\n")
    project(**{"train.py": text})
    with Child() as child:
        command = {
            "do": "build",
            "target": {"file": "train.py", "names": {}},
            "overlay": {},
            "knob": "",
            "settings": {},
            "device": "cpu",
        }
        assert child.ask(command, 60)["loader"]["site"][1:3] == [22, 25]
