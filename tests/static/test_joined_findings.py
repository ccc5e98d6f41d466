"""One finding for two rules: a loader that lacks two arguments, a call that waits for a loss and keeps its graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from perfaudit.findings import Finding
from perfaudit.report import Report, to_json
from perfaudit.static.edit import apply
from perfaudit.static.fix import patches
from perfaudit.static.scan import Options, scan, scan_bytes

pytestmark = pytest.mark.usefixtures("in_this_process")

PROGRAM = """import torch
from torch.utils.data import DataLoader

%s

def train(model):
    for batch in loader:
        model(batch.cuda()).backward()
"""
BOTH = "without `pin_memory` it is copied to the GPU from pageable memory"


def found(loader: str, *rules: str) -> tuple[Finding, ...]:
    text = PROGRAM % loader
    report, _ = scan_bytes(text.encode(), "train.py", Options(frozenset(rules or ("PA101", "PA102"))))
    return report.findings


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loader = DataLoader(ds, 64)", "loader = DataLoader(ds, 64, num_workers=2, pin_memory=True)"),
        (
            "loader = DataLoader(\n    ds,\n    num_workers=0,\n    pin_memory=False,\n)",
            "loader = DataLoader(\n    ds,\n    num_workers=2,\n    pin_memory=True,\n)",
        ),
        (
            "loader = DataLoader(\n    ds,\n    64,  # a few\n)",
            "loader = DataLoader(\n    ds,\n    64,  # a few\n    num_workers=2,\n    pin_memory=True,\n)",
        ),
        (  # the option is for workers alone
            "workers = 0\nloader = DataLoader(ds, 64, num_workers=workers)",
            "workers = 2\nloader = DataLoader(ds, 64, num_workers=workers, pin_memory=True)",
        ),
        (  # whether it pins is said in a dict that others may share
            "options = {'pin_memory': False}\nloader = DataLoader(ds, 64, **options)",
            "options = {'pin_memory': False}\nloader = DataLoader(ds, 64, **options, num_workers=2)",
        ),
    ],
)
def test_one_patch_sets_both(before: str, after: str) -> None:
    (finding,) = found(before)
    assert (finding.rule, finding.also, finding.instead) == ("PA101", ("PA102",), None)
    assert finding.fix is not None
    assert (finding.fix.safety, finding.fix.changes) == ("unsafe", ("rng",))
    assert apply(PROGRAM % before, finding.fix.edits) == PROGRAM % after
    assert finding.fingerprint == found(before, "PA101")[0].fingerprint, "a baseline knows it as before"


def test_the_words_of_both() -> None:
    (finding,) = found("loader = DataLoader(ds, 64)")
    assert finding.message.endswith(f"while the device waits; {BOTH}")
    assert finding.fix is not None
    assert finding.fix.title.startswith("load with 2 workers and pin their batches")


def test_where_it_is_advice_it_is_one_advice() -> None:
    stream = "class Log(torch.utils.data.IterableDataset):\n    def __iter__(self):\n        yield 1\n\n"
    (finding,) = found(f"{stream}loader = DataLoader(Log(), 64)")
    assert finding.also == ("PA102",)
    assert finding.fix is not None
    assert (finding.fix.safety, finding.fix.edits) == ("manual", ())
    assert finding.fix.title.endswith("then pin their batches as well")


@pytest.mark.parametrize(
    ("loader", "rules", "also"),
    [
        ("loader = DataLoader(ds, 64, pin_memory=True)", ["PA101"], [()]),
        ("loader = DataLoader(ds, 64, num_workers=4)", ["PA102"], [()]),
        ("loader = DataLoader(ds, 64)  # perfaudit: ignore[PA102] none to spare", ["PA101"], [()]),
        ("loader = DataLoader(ds, 64)  # perfaudit: ignore[PA101] in memory", [], []),
        ("loader = DataLoader(ds, 64, num_workers=4)  # perfaudit: ignore[PA101]", ["PA102"], [()]),
        (  # the comment is for one of two
            "other = DataLoader(ds, 32)  # perfaudit: ignore[PA101]\nloader = DataLoader(ds, 64)",
            ["PA101"],
            [("PA102",)],
        ),
        ("loader = DataLoader(ds, 64)  # perfaudit: ignore[PA1]", [], []),
        (  # two loaders in one line
            "loader, other = DataLoader(ds, 64), DataLoader(ds, 32, num_workers=4)",
            ["PA101", "PA102"],
            [("PA102",), ()],
        ),
    ],
)
def test_each_rule_speaks_alone_where_the_other_does_not(loader: str, rules: list[str], also: list[object]) -> None:
    findings = found(loader)
    assert [finding.rule for finding in findings] == rules
    assert [finding.also for finding in findings] == also
    alone = [f.fix for f in findings if f.fix and f.rule == "PA101" and not f.also]
    assert not any("pin_memory" in edit.text for fix in alone for edit in fix.edits)


@pytest.mark.parametrize("rule", ["PA101", "PA102"])
def test_a_rule_that_was_not_selected_is_not_spoken_for(rule: str) -> None:
    (finding,) = found("loader = DataLoader(ds, 64)", rule)
    assert (finding.rule, finding.also) == (rule, ())


def test_pinning_alone_advises_no_workers() -> None:
    """Who ignores PA101 has decided about workers."""
    (finding,) = found("loader = DataLoader(ds, 64)", "PA102")
    assert finding.fix is not None
    assert finding.fix.title.startswith("pin where a measurement shows that it pays: without workers")


STREAM = "class Log(torch.utils.data.IterableDataset):\n    def __iter__(self): ...\n\nloader = DataLoader(Log(), 64)"
IGNORING = "[tool.perfaudit.per-file-ignores]\n'train.py' = ['%s']\n"


@pytest.mark.parametrize(("ignored", "left"), [("PA101", ["PA102"]), ("PA102", ["PA101"]), ("PA1", [])])
@pytest.mark.parametrize("times", [1, 2])  # the second scan has it from the cache, where there is no patch
@pytest.mark.parametrize("loader", ["loader = DataLoader(ds, 64)", STREAM])
def test_a_rule_that_is_ignored_in_the_file_leaves_the_other(
    project: Callable[..., Path], perfaudit: Callable[..., Done], ignored: str, left: list[str], times: int, loader: str
) -> None:
    project(**{"train.py": PROGRAM % loader, "pyproject.toml": IGNORING % ignored})
    for _ in range(times):
        done = perfaudit("scan", ".", "--format", "json", "--select", "PA101,PA102")
    findings = json.loads(done.out)["findings"]
    assert [(finding["rule"], finding["also"]) for finding in findings] == [(rule, []) for rule in left]
    assert "pin_memory=True" not in done.out


def test_a_baseline_knows_each_rule(project: Callable[..., Path], perfaudit: Callable[..., Done]) -> None:
    folder = project(**{"train.py": PROGRAM % "loader = DataLoader(ds, 64)"})
    scan = ("scan", ".", "--format", "json", "--select", "PA101,PA102", "--baseline", "known.json")
    perfaudit(*scan, "--update-baseline")
    known = json.loads((folder / "known.json").read_text())
    assert [entry["rule"] for entry in known["findings"]] == ["PA101", "PA102"]
    found = json.loads(perfaudit(*scan).out)
    assert (found["findings"], found["baseline"]) == ([], {"known": 2, "gone": 0})
    known["findings"].pop()
    (folder / "known.json").write_text(json.dumps(known))
    (finding,) = json.loads(perfaudit(*scan).out)["findings"]
    assert (finding["rule"], finding["also"]) == ("PA102", [])


@pytest.mark.parametrize(
    ("severity", "expected"), [("PA101 = 'info'", "warning"), ("PA102 = 'error'", "error"), ("PA1 = 'info'", "info")]
)
def test_the_worst_severity_of_its_rules(
    project: Callable[..., Path], perfaudit: Callable[..., Done], severity: str, expected: str
) -> None:
    project(
        **{
            "train.py": PROGRAM % "loader = DataLoader(ds, 64)",
            "pyproject.toml": f"[tool.perfaudit.severity]\n{severity}\n",
        }
    )
    (finding,) = json.loads(perfaudit("scan", ".", "--format", "json", "--select", "PA101,PA102").out)["findings"]
    assert (finding["severity"], finding["also"]) == (expected, ["PA102"])


def test_settings_that_make_one_rule_a_hint_part_the_two(
    project: Callable[..., Path], perfaudit: Callable[..., Done]
) -> None:
    project(
        **{
            "train.py": PROGRAM % "loader = DataLoader(ds, 64)",
            "pyproject.toml": "[tool.perfaudit]\nselect = ['PA1']\n[tool.perfaudit.severity]\nPA101 = 'hint'\n",
        }
    )
    report = json.loads(perfaudit("scan", ".", "--format", "json").out)
    (finding,) = report["findings"]
    assert (finding["rule"], finding["parts"], report["hints_left_out"]) == ("PA102", [], 1)


VALIDATION = """import torch
from torch.utils.data import DataLoader

train_loader = DataLoader(train_set, num_workers=4, pin_memory=True, persistent_workers=True)
val_loader = DataLoader(val_set, num_workers=4)

def train(model):
    for epoch in range(100):
        for x, y in train_loader:
            model(x.cuda()).backward()
        with torch.no_grad():
            for x, y in val_loader:
                model(x.cuda())
"""


def test_a_hint_stays_outside_of_a_warning_and_its_patch(
    project: Callable[..., Path], perfaudit: Callable[..., Done]
) -> None:
    """Workers that an evaluation starts anew are hardly worth a word, unpinned batches are worth one."""
    project(**{"train.py": VALIDATION})
    scan = ("scan", "train.py", "--format", "json", "--ignore", "PA104", "--select")
    for select, rules in (("PA1", ["PA102"]), ("PA102,PA103", ["PA102", "PA103"])):
        report = json.loads(perfaudit(*scan, select).out)
        findings = report["findings"]
        assert [(f["rule"], f["also"], f["parts"]) for f in findings] == [(rule, [], []) for rule in rules]
        assert report["hints_left_out"] == 2 - len(rules)
    assert [f["severity"] for f in findings] == ["warning", "hint"]
    lines = [[line for line in f["fix"]["diff"].splitlines() if line.startswith("+val")] for f in findings]
    assert lines == [
        ["+val_loader = DataLoader(val_set, num_workers=4, pin_memory=True)"],
        ["+val_loader = DataLoader(val_set, num_workers=4, persistent_workers=True)"],
    ]


def test_json_has_the_fingerprints_of_both() -> None:
    (finding,) = found("loader = DataLoader(ds, 64)")
    alone = [found("loader = DataLoader(ds, 64)", rule)[0].fingerprint for rule in ("PA101", "PA102")]
    assert to_json(Report("scan", (finding,)))["findings"][0]["fingerprints"] == alone


def test_what_is_written_needs_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROGRAM % "loader = DataLoader(ds, 64)")
    options = Options(frozenset({"PA101", "PA102"}))
    (patched,) = patches(scan(["train.py"], options).findings, unsafe=True)
    Path("train.py").write_text(patched.after)
    assert scan(["train.py"], options).findings == ()


EPOCHS = """import torch
from torch.utils.data import DataLoader

loader = DataLoader(%s)

def train(model):
    for epoch in range(100):
        for batch in loader:
            model(batch.cuda()).backward()
"""
RULES = frozenset({"PA102", "PA103"})


@pytest.mark.parametrize(
    ("before", "after", "safety"),
    [
        ("ds, num_workers=4", "ds, num_workers=4, pin_memory=True, persistent_workers=True", "unsafe"),
        (
            "ds,\n    num_workers=4,\n    persistent_workers=False,\n",
            "ds,\n    num_workers=4,\n    persistent_workers=True,\n    pin_memory=True,\n",
            "unsafe",
        ),
        ("ds, num_workers=4, **{'persistent_workers': False}", "", "safe"),  # not known to be the call's own to set
    ],
)
def test_one_patch_pins_and_keeps_workers(before: str, after: str, safety: str) -> None:
    report, _ = scan_bytes((EPOCHS % before).encode(), "train.py", Options(RULES))
    (finding,) = report.findings
    assert (finding.rule, finding.also) == ("PA102", ("PA103",))
    assert finding.fix is not None
    assert (finding.fix.safety, finding.fix.changes) == (safety, ("rng",) if safety == "unsafe" else ())
    if after:
        assert apply(EPOCHS % before, finding.fix.edits) == EPOCHS % after


def test_the_safe_part_of_a_patch_is_applied_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(EPOCHS % "ds, num_workers=4")
    findings = scan(["train.py"], Options(RULES)).findings
    (patched,) = patches(findings, unsafe=False)
    assert patched.after == EPOCHS % "ds, num_workers=4, pin_memory=True"
    (both,) = patches(findings, unsafe=True)
    assert both.after == EPOCHS % "ds, num_workers=4, pin_memory=True, persistent_workers=True"


@pytest.mark.parametrize(("options", "kept"), [([], ""), (["--unsafe-fixes"], ", persistent_workers=True")])
def test_a_saved_report_is_applied_as_the_scan_fixes(
    project: Callable[..., Path], perfaudit: Callable[..., Done], options: list[str], kept: str
) -> None:
    project(**{"train.py": EPOCHS % "ds, num_workers=4"})
    perfaudit("scan", "train.py", "--select", "PA102,PA103", "--format", "json", "-o", "report.json")
    done = perfaudit("apply", "report.json", *options)
    assert Path("train.py").read_text() == EPOCHS % f"ds, num_workers=4, pin_memory=True{kept}", done.err


LOADERS = """import torch
from torch.utils.data import DataLoader

loader = DataLoader(%s)
other = DataLoader(%s)

def train(model):
    for epoch in range(100):
        for batch in loader:
            model(batch.cuda()).backward()
        for batch in other:
            model(batch.cuda()).backward()
"""


def test_of_loaders_that_are_alike_the_safe_part_is_applied_to_each(
    project: Callable[..., Path], perfaudit: Callable[..., Done]
) -> None:
    project(**{"train.py": LOADERS % ("ds, num_workers=4", "ds, num_workers=4")})
    perfaudit("scan", "train.py", "--select", "PA102,PA103", "--format", "json", "-o", "report.json")
    (finding,) = json.loads(Path("report.json").read_text())["findings"]
    assert [part["rule"] for part in finding["parts"]] == ["PA102", "PA103"] * 2
    done = perfaudit("apply", "report.json")
    pinned = "ds, num_workers=4, pin_memory=True"
    assert Path("train.py").read_text() == LOADERS % (pinned, pinned), done.err


def test_what_is_offered_counts_the_safe_part(tmp_path: Path, perfaudit: Callable[..., Done]) -> None:
    (tmp_path / "train.py").write_text(EPOCHS % "ds, num_workers=4")
    done = perfaudit("scan", str(tmp_path / "train.py"), "--select", "PA102,PA103")
    assert "`--fix` applies 1 safe fix, `--fix --unsafe-fixes` 1 more" in done.out


def test_a_loader_whose_workers_live_on_is_told_to_pin_only() -> None:
    text = EPOCHS % "ds, num_workers=4, persistent_workers=True"
    (finding,) = scan_bytes(text.encode(), "train.py", Options(RULES))[0].findings
    assert (finding.rule, finding.also) == ("PA102", ())
    assert "workers" not in finding.message


METER = """
class Meter:
    def update(self, value):
        self.last = float(value)
        self.sum += value
"""
TRAINING = """
import torch
from meters import Meter

def train(model, loader, optimizer):
    meter = Meter()
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        meter.update(loss)
    print(meter.sum)
"""


def test_a_call_that_waits_and_keeps_graphs_is_one_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("meters.py").write_text(METER)
    Path("train.py").write_text(TRAINING)
    (finding,) = scan(["."], Options(frozenset({"PA601", "PA603"}))).findings
    assert (finding.rule, finding.also) == ("PA601", ("PA603",))
    assert finding.message.endswith("meters.py line 4; what it adds up keeps the graphs of all steps")
    assert finding.fix is not None
    assert finding.fix.title.endswith("; pass the loss detached (`.detach()`)")
    (alone,) = scan(["."], Options(frozenset({"PA601"}))).findings
    assert "graphs" not in alone.message


TRAINER = """from transformers import Trainer, TrainingArguments

data.set_transform(crop)
arguments = TrainingArguments(output_dir="out"%s)
Trainer(model, arguments, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("more", "rule", "also"),
    [
        ("", "PA101", ("PA304",)),
        (", bf16=True", "PA101", ()),
        (", dataloader_num_workers=4", "PA304", ()),
    ],
)
def test_arguments_of_a_trainer_are_one_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, rule: str, also: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAINER % more)
    (finding,) = scan(["."], Options(frozenset({"PA101", "PA304"}))).findings  # a file that says nothing of torch
    assert (finding.rule, finding.also) == (rule, also)
    assert ("float32" in finding.message) == (not more or rule == "PA304")
