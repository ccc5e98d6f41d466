# ruff: noqa: E501 - a row of a table is one line, so that programs can be compared
"""What a run says of findings: confirmed with numbers, taken back, sharpened, and the ones that reading alone missed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from surveys import profile_of, survey_of

from perfaudit.findings import Finding, Fix, Location
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.watch import Watch
from perfaudit.report import Report
from perfaudit.rules import rule_heads
from perfaudit.static import edit
from perfaudit.static.registry import run_checks
from perfaudit.static.source import read_source
from perfaudit.target.names import Target
from perfaudit.tune.observed_findings import Merged, merge_findings, observed_findings
from perfaudit.tune.price import _observe
from perfaudit.tune.session import Session

pytest.importorskip("torch")

Project = Callable[..., Path]
RULES = frozenset({"PA201", "PA202", "PA206", "PA601", "PA604"})

HEAD = """\
import copy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def build_dataloader(): return DataLoader(TensorDataset(torch.rand(16, 3, 8, 8), torch.arange(16) % 2), batch_size=4)
def training_step(model, batch): return model(batch[0]).square().mean()
"""


def net(built: str, forward: str, more: str = "") -> str:
    """A program whose model builds these things and runs them so."""
    lines = "".join(f"        {line}\n" for line in built.splitlines())
    run = "".join(f"        {line}\n" for line in forward.splitlines())
    return (
        f"{more}class Net(nn.Module):\n    def __init__(self, use_norm=True):\n        super().__init__()\n{lines}"
        f"    def forward(self, x):\n{run}        return x\ndef build_model(): return Net()\n"
    )


def scanned(name: str) -> list[Finding]:
    return run_checks(read_source(Path(name), name), rule_heads(), RULES)


def seen_in(name: str) -> dict[str, Any]:
    """What a child would say of a training, in its JSON."""
    from perfaudit.target.observed.adjacency import pairs
    from perfaudit.target.observed.layers import layers
    from perfaudit.target.observed.syncs import syncs
    from perfaudit.training.factory_training import FactoryTraining

    training = FactoryTraining(Target(name, {}), "cpu")
    batch = training.fixed_batch()

    def run() -> None:
        training.loss(batch)

    found = {"pairs": pairs(training.model, run, training.module_sites), "layers": layers(training, run)}
    reply: dict[str, Any] = json.loads(json.dumps({**found, "syncs": syncs(training)}))
    training.close()
    return reply


def observed(project: Project, text: str, name: str) -> tuple[list[Finding], Merged]:
    """Findings of reading alone, and what a run makes of them."""
    project(**{f"{name}.py": HEAD + text})
    findings = scanned(f"{name}.py")
    return findings, merge_findings(findings, seen_in(f"{name}.py"))


def brief(finding: Finding) -> tuple[str, str, str]:
    """Rule, what is offered, and what was observed."""
    offered = "" if finding.fix is None else ("fix" if finding.fix.edits else "advice")
    return finding.rule, offered, finding.note


PAIR = "self.conv = nn.Conv2d(3, 4, 3)\nself.bn = nn.BatchNorm2d(4)"
HELPER = "def conv(a, b):\n    return nn.Conv2d(a, b, 3)\n"
BEHIND = "with a norm behind and nothing else"

# what the program builds, what its forward does; what becomes of the scanner's one finding: offered, note
JUDGED = [
    (net(PAIR, "x = self.bn(self.conv(x))"), "fix", f"observed: 1 layer is built here (`conv`), {BEHIND}"),
    (
        net("self.blocks = nn.Sequential(*[nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)) for _ in range(5)])", "x = self.blocks(x)"),
        "fix",
        f"observed: 5 layers are built here (`blocks.0.0`, `blocks.1.0`, `blocks.2.0`, …), {BEHIND}",
    ),
    (  # built, but this training does not run it: nothing is known
        net(PAIR + "\nself.other = nn.Conv2d(3, 4, 3)", "x = self.other(x) if len(x) else self.bn(self.conv(x))"),
        "fix",
        "",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("number", "text", "offered", "note"), [(n, *row) for n, row in enumerate(JUDGED)])
def test_findings_are_confirmed_and_counted(project: Project, number: int, text: str, offered: str, note: str) -> None:
    before, after = observed(project, text, f"judged_{number}")
    assert len(before) == 1, before
    assert [brief(finding) for finding in after.findings] == [(before[0].rule, offered, note)]
    assert after.withdrawn == ()


def the_layer(seen: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in seen["layers"] if entry["layer"] == name)


def one_more(seen: dict[str, Any], name: str) -> None:
    """A second layer of the same call, which has no norm behind."""
    seen["layers"].append({**the_layer(seen, name), "layer": f"{name}_2"})


def without_pairs(seen: dict[str, Any]) -> None:
    seen["pairs"] = []


def two_consumers(seen: dict[str, Any]) -> None:
    seen["pairs"][0]["consumers"] = 2


def built_elsewhere(seen: dict[str, Any]) -> None:
    seen["pairs"] = []
    the_layer(seen, "conv")["alike"] = 1


def never_ran(seen: dict[str, Any]) -> None:
    seen["pairs"] = []
    the_layer(seen, "conv")["ran"] = False


def old_child(seen: dict[str, Any]) -> None:
    """It tells of pairs only."""
    two_consumers(seen)
    del seen["layers"]


SUBTRACTED = "so the bias is not subtracted again"
CONTRADICTED = [  # what was seen differently; kept or withdrawn, offered, part of the note
    (two_consumers, "withdrawn", "advice", f"not only a norm takes the output, {SUBTRACTED}"),
    (without_pairs, "withdrawn", "advice", f"no norm follows, {SUBTRACTED}"),
    (lambda seen: one_more(seen, "conv"), "kept", "advice", "of 2 layers are built here (`conv`, `conv_2`); `conv_2` cannot do without"),
    (built_elsewhere, "kept", "advice", "`conv` cannot do without the bias"),
    (never_ran, "kept", "fix", ""),
    (old_child, "kept", "advice", "`conv` cannot do without the bias"),
    (lambda seen: seen.clear(), "kept", "fix", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "change", "kept", "offered", "note"), [(n, *row) for n, row in enumerate(CONTRADICTED)]
)
def test_what_a_run_contradicts_loses_its_fix(
    project: Project, number: int, change: Callable[[dict[str, Any]], None], kept: str, offered: str, note: str
) -> None:
    name = f"contradicted_{number}.py"
    project(**{name: HEAD + net(PAIR, "x = self.bn(self.conv(x))")})
    seen = seen_in(name)
    seen["syncs"] = []
    change(seen)
    after = merge_findings(scanned(name), seen)
    [finding] = after.withdrawn if kept == "withdrawn" else after.findings
    assert len(after.findings) + len(after.withdrawn) == 1
    assert brief(finding)[1] == offered
    assert note in finding.note


LISTS = "self.convs = nn.ModuleDict()\nself.bns = nn.ModuleDict()\nfor k in 'ab':\n    self.convs[k] = nn.Conv2d(3, 3, 1{more})\n    self.bns[k] = nn.BatchNorm2d(3)"
LOOP = "for k in 'ab': x = self.bns[k](self.convs[k](x))"
TWO = f"observed: 2 layers are built here (`convs.a`, `convs.b`), {BEHIND}"

MISSED = [  # programs that reading alone says nothing of; what is offered, the line after the fix
    (net(LISTS.format(more=""), LOOP), "fix", "self.convs[k] = nn.Conv2d(3, 3, 1, bias=False)"),
    (net(LISTS.format(more=", bias=True"), LOOP), "fix", "self.convs[k] = nn.Conv2d(3, 3, 1, bias=False)"),
    (net(LISTS.format(more=", 1, 0, 1, 1, True"), LOOP), "fix", "self.convs[k] = nn.Conv2d(3, 3, 1, 1, 0, 1, 1, False)"),
    (  # the norm is conditional where it is built, or where it is used
        net(LISTS.format(more="").replace("    self.bns[k]", "    if use_norm: self.bns[k]"), LOOP),
        "advice",
        "a norm follows wherever else this code is used",
    ),
    (
        net(LISTS.format(more="") + "\nself.use_norm = use_norm", "for k in 'ab': x = self.bns[k](self.convs[k](x)) if self.use_norm else self.convs[k](x)"),
        "advice",
        "a norm follows wherever else this code is used",
    ),
    (  # the norm is the caller's to choose
        net(LISTS.format(more="").replace("nn.BatchNorm2d(3)", "kind(3)").replace("self.convs =", "kind = {'a': nn.BatchNorm2d}['a']\nself.convs =", 1), LOOP),
        "advice",
        "a norm follows wherever else this code is used",
    ),
    (  # something sets biases
        net(LISTS.format(more="") + "\nfor c in self.convs.values(): nn.init.zeros_(c.bias)", LOOP),
        "advice",
        "code that reads or sets this bias can do without it",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("number", "text", "offered", "told"), [(n, *row) for n, row in enumerate(MISSED)])
def test_pairs_that_reading_missed_are_told(project: Project, number: int, text: str, offered: str, told: str) -> None:
    before, after = observed(project, text, f"missed_{number}")
    assert before == []
    [finding] = after.findings
    assert brief(finding) == ("PA201", offered, TWO)
    assert finding.fix is not None and finding.fingerprint == ""
    if offered == "advice":
        assert told in finding.fix.title
        return
    assert (finding.fix.safety, finding.fix.changes) == ("unsafe", ("rounding", "rng", "checkpoint"))
    assert finding.fix.before == hashlib.sha256(Path(f"missed_{number}.py").read_bytes()).hexdigest()
    assert finding.location is not None
    text = Path(f"missed_{number}.py").read_text()
    assert told in edit.apply(text, finding.fix.edits).splitlines()[finding.location.line - 1]


LEFT_ALONE = [  # programs with a pair that nobody may edit: nothing is told
    ("a helper that serves both", net("self.a = conv(3, 4)\nself.bn = nn.BatchNorm2d(4)\nself.b = conv(4, 4)", "x = self.b(self.bn(self.a(x)).relu())", HELPER)),
    ("the same call for another model", net("self.a = conv(3, 4)\nself.bn = nn.BatchNorm2d(4)", "x = self.bn(self.a(x))", HELPER + "JUDGE = None\n").replace("def build_model(): return", "def build_model():\n    global JUDGE\n    JUDGE = conv(4, 1)\n    return")),
    ("copies that run without a norm", net(LISTS.format(more="") + "\nself.tail = copy.deepcopy(self.convs['a'])", LOOP + "\nx = self.tail(x.relu())")),
    ("options from elsewhere", net(LISTS.format(more=", **options").replace("self.convs =", "options = {'stride': 1}\nself.convs =", 1), LOOP)),
    ("arguments from elsewhere", net(LISTS.format(more="").replace("nn.Conv2d(3, 3, 1)", "nn.Conv2d(*(3, 3, 1))"), LOOP)),
    ("a bias that is asked for by name", net(LISTS.format(more=", bias=use_norm"), LOOP)),
    ("no bias at all", net(LISTS.format(more=", bias=False"), LOOP)),
    ("a class that a variable holds", net(LISTS.format(more="").replace("nn.Conv2d(3, 3, 1)", "kind(3, 3, 1)").replace("self.convs =", "kind = {'a': nn.Conv2d}['a']\nself.convs =", 1), LOOP)),
    ("a class of the user's own", net(LISTS.format(more="").replace("nn.Conv2d(3, 3, 1)", "Scaled()"), LOOP, "class Scaled(nn.Conv2d):\n    def __init__(self): super().__init__(3, 3, 1)\n")),
    ("the output is kept", net(LISTS.format(more=""), "for k in 'ab':\n    y = self.convs[k](x)\n    x = self.bns[k](y) + y")),
    ("an activation between", net(LISTS.format(more=""), "for k in 'ab': x = self.bns[k](self.convs[k](x).relu())")),
    ("a norm in evaluation mode", net(LISTS.format(more="") + "", "for bn in self.bns.values(): bn.train(False)\n" + LOOP)),
    ("silenced by a comment", net(LISTS.format(more="").replace("(3, 3, 1)", "(3, 3, 1)  # perfaudit: ignore[PA201]"), LOOP)),
    ("a helper is only advised on", net("self.a = conv(3, 4)\nself.norm = nn.ModuleDict({'n': nn.BatchNorm2d(4)})", "x = self.norm['n'](self.a(x))", HELPER)),
    ("one of two is never run", net(LISTS.format(more=""), "x = self.bns['a'](self.convs['a'](x))")),
]  # fmt: skip


@pytest.mark.parametrize(("number", "why", "text"), [(n, *row) for n, row in enumerate(LEFT_ALONE)])
def test_what_another_use_may_need_is_left_alone(project: Project, number: int, why: str, text: str) -> None:
    before, after = observed(project, text, f"alone_{number}")
    known = {finding.location for finding in before}
    new = [finding for finding in after.findings if finding.location not in known]
    assert [brief(finding)[:2] for finding in new] == ([("PA201", "advice")] if "only advised" in why else [])


def test_a_linear_layer_is_the_other_rule(project: Project) -> None:
    built = "self.rows = nn.ModuleDict()\nself.norms = nn.ModuleDict()\nfor k in 'ab':\n    self.rows[k] = nn.Linear(8, 8)\n    self.norms[k] = nn.BatchNorm1d(8)"
    text = net(built, "x = x.mean((1, 2))\nfor k in 'ab': x = self.norms[k](self.rows[k](x))")
    _, after = observed(project, text, "linear")
    assert [brief(f)[:2] for f in after.findings] == [("PA202", "fix")]


STEP = "def training_step(model, batch):\n    loss = model(batch[0]).square().mean()\n{lines}    return loss\n"
PLAIN = "def build_model(): return nn.Sequential(nn.Flatten(), nn.Linear(192, 2))\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("    best = min(3.0, loss.item())\n", ("PA601", "`loss.item()` makes the host wait for the device on every step", "observed: the host waits here once a step", "keep the detached tensor")),
        ("    if loss > 1e9: raise ValueError\n", ("PA601", "`loss > 1e9` makes the host wait for the device on every step", "observed: the host waits here once a step", "keep the detached tensor")),
        ("    for _ in range(3): batch[1].tolist()\n", ("PA601", "`batch[1].tolist()` makes the host wait for the device on every step", "observed: the host waits here 3 times a step", "it derives from the batch alone")),
        ("    x = batch[1][batch[1] > 1]\n", ("PA604", "`x = batch[1][batch[1] > 1]` makes the host wait for the device on every step", "observed: the host waits here once a step", "keep the shape")),
    ],
)  # fmt: skip
def test_a_sync_that_reading_missed_is_told(project: Project, lines: str, expected: tuple[str, ...]) -> None:
    name = f"sync_{abs(hash(lines))}"
    _, after = observed(project, PLAIN + STEP.format(lines=lines), name)
    [finding] = after.findings
    assert finding.fix is not None
    assert (finding.rule, finding.message, finding.note) == expected[:3]
    assert finding.fix.safety == "manual" and finding.fix.title.startswith(expected[3])
    silent = merge_findings((), seen_in(f"{name}.py"), on_accelerator=False)
    assert silent.findings == ()


def placed(rule: str, line: int, *places: int) -> Finding:
    """A finding of the scanner on a line, and on more of them."""
    where = [Location("train.py", number, 1, number, 20) for number in (line, *places)]
    head = rule_heads()[rule]
    return Finding(
        rule, head.name, head.severity, "", where[0], fix=Fix("read it later", "manual"), places=tuple(where)
    )


@pytest.mark.parametrize(
    ("finding", "note"),
    [
        (placed("PA601", 2), "observed: the host waits here 3 times a step"),
        (placed("PA601", 3, 2, 4), "observed: the host waits here 5 times a step"),
        (placed("PA604", 4), "observed: the host waits here 2 times a step"),
        (placed("PA601", 9), ""),
        (placed("PA602", 2), ""),
    ],
)
def test_the_syncs_of_a_finding_are_counted(project: Project, finding: Finding, note: str) -> None:
    project(**{"train.py": "\n".join(f"x{n} = {n}" for n in range(12))})
    sync = {"of": "parameters", "path": "train.py"}
    seen = {"syncs": [{**sync, "what": "item", "line": 2, "count": 3}, {**sync, "what": "mask", "line": 4, "count": 2}]}
    after = merge_findings([finding], seen, on_accelerator=False)
    assert [f.note for f in after.findings] == [note]


def unaligned(module: str, kind: str, dimension: str, size: int, line: int, wanted: int = 8) -> dict[str, Any]:
    return {"module": module, "kind": kind, "dimension": dimension, "size": size, "wanted": wanted, "site": ["train.py", line, line, 4, 4 + len(LINES[line - 1]) - 4]}  # fmt: skip


LINES = ["a = nn.Linear(8, SIZE)", "b = nn.Linear(SIZE, 8)", "c = nn.Embedding(SIZE, 8)", "from torch import nn"]


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ([unaligned("a", "Linear", "out_features", 513, 1), unaligned("b", "Linear", "out_features", 513, 2)], ["out_features of 513 is no multiple of 8"]),
        ([unaligned("a", "Linear", "out_features", 1003, 1, 64)], ["out_features of 1003 is no multiple of 64"]),
        ([{**unaligned("a", "Linear", "out_features", 513, 1), "site": None}], []),
    ],
)  # fmt: skip
def test_dimensions_that_the_text_hides(project: Project, seen: list[dict[str, Any]], told: list[str]) -> None:
    project(**{"train.py": "\n".join(LINES)})
    after = merge_findings((), {"unaligned": seen})
    assert [finding.message.partition(":")[0] for finding in after.findings] == told
    assert all(finding.rule == "PA206" and finding.fix and not finding.fix.edits for finding in after.findings)


class FakeWorkshop:
    """Answers that it cannot observe, or with this."""

    def __init__(self, reply: dict[str, Any] | None) -> None:
        self.reply = reply

    def ask(self, variant: Any, *commands: Any) -> list[Any]:
        assert [command["do"] for command in commands] == ["observe"]
        if self.reply is None:
            raise ChildFailed("step", "training_step raised ValueError")
        return [{}, self.reply]


@pytest.mark.parametrize(
    ("reply", "problems"),
    [
        (None, ("training_step raised ValueError",)),
        ({"problems": ["syncs: a step under observation failed"]}, ("syncs: a step under observation failed",)),
        ({}, ()),
    ],
)
def test_what_cannot_be_observed_leaves_findings_as_they_are(
    project: Project, reply: dict[str, Any] | None, problems: tuple[str, ...]
) -> None:
    project(**{"train.py": HEAD})
    workshop: Any = FakeWorkshop(reply)
    session = Session(Target("train.py", {}), workshop, Watch())
    after = observed_findings(session, survey_of([placed("PA601", 2)]))
    assert (after.findings, after.withdrawn, after.problems) == ((placed("PA601", 2),), (), problems)


@pytest.mark.parametrize(
    ("selected", "seconds_per_step", "rules", "notes"),
    [
        (None, 0.001, ["PA201"], []),
        (RULES, 0.001, ["PA201"], []),
        (frozenset({"PA601"}), 0.001, [], []),
        (None, 60.0, [], ["the training was not observed: its steps are too long for this --budget"]),
    ],
)
def test_what_reading_missed_is_priced_too(
    project: Project, selected: frozenset[str] | None, seconds_per_step: float, rules: list[str], notes: list[str]
) -> None:
    """Its lines count as lines that run; a rule that was not asked for stays out."""
    name = f"priced_{len(rules)}_{len(notes)}_{selected is None}.py"
    project(**{name: HEAD + net(LISTS.format(more=""), LOOP)})
    workshop: Any = FakeWorkshop(None if notes else seen_in(name))
    session = Session(Target(name, {}), workshop, Watch())
    profile = profile_of(survey_of(), seconds_per_step=seconds_per_step)
    lines: dict[str, set[int]] = {}
    after = _observe(session, profile, Report("scan"), lines, 60.0, selected)
    assert [finding.rule for finding in after.survey.findings] == rules
    places = [finding.location for finding in after.survey.findings]
    assert lines == {place.path: {place.line} for place in places if place is not None}
    assert after.notes == tuple(notes)


def test_a_finding_that_a_run_contradicts_becomes_a_note(project: Project) -> None:
    project(**{"taken_back.py": HEAD + net(PAIR, "x = self.bn(self.conv(x))")})
    seen = seen_in("taken_back.py")
    two_consumers(seen)
    workshop: Any = FakeWorkshop(seen)
    findings = scanned("taken_back.py")
    session = Session(Target("taken_back.py", {}), workshop, Watch())
    after = _observe(session, profile_of(survey_of()), Report("scan", findings=tuple(findings)), {}, 60.0, None)
    assert after.survey.findings == ()
    said = "observed: 1 layer is built here (`conv`); not only a norm takes the output, so the bias is not subtracted again"
    assert after.notes == (f"taken_back.py:12:21: PA201 is taken back: {said}",)
