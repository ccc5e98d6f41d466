"""Candidates screened in a child, as a climb asks for it: put in place in every way, raced, marked, and two races in a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perfaudit.measure.child import Child, ChildFailed
from perfaudit.measure.lab import build_command
from perfaudit.measure.ledger import Variant

pytestmark = pytest.mark.slow
TIMEOUT = 120.0
TRAIN = """\
import os
import torch
from torch import nn
from sizes import WIDTH

def build_model():
    return nn.Sequential(nn.Linear(16, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))

def build_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)

def build_dataloader():
    data = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
    return torch.utils.data.DataLoader(data, 8)

def training_step(model, batch):
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    return loss
"""
RETURN = "    return loss\n"


@pytest.fixture
def child(project: Callable[..., Path]) -> Iterator[Child]:
    """A child in which the training is built."""
    project(**{"train.py": TRAIN, "sizes.py": "WIDTH = 32\n"})
    with Child(False) as started:
        target = {"file": "train.py", "names": {}}
        started.ask(build_command(target, Variant("screened", "", {}), "cpu", 0), TIMEOUT)
        yield started


def code(key: str, new: str) -> dict[str, Any]:
    patched = TRAIN.replace(RETURN, new)
    return {"key": key, "code": {"train.py": [TRAIN, patched]}, "whole": {"train.py": patched}, "way": "in place"}


def screen(child: Child, entrants: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return child.ask({"do": "screen", "entrants": entrants, "least": 0.01, "seed": 1, **more}, TIMEOUT)


def race(child: Child) -> dict[str, Any]:
    """Race until each has a quad or has left; however slow the machine is."""
    while True:
        state = child.ask({"do": "race", "seconds": 0.1}, TIMEOUT)
        if state["ended"] or all(entrant["log_ratios"] or entrant["left"] for entrant in state["entrants"].values()):
            return state


def test_every_way_of_putting_a_candidate_in_place(child: Child, tmp_path: Path) -> None:
    marker = tmp_path / "in place"
    marker.touch()
    entrants = [
        code("same", "    pass\n" + RETURN),
        code("raises", "    raise ValueError('no')\n"),
        {"key": "fused", "settings": [["perfaudit.knobs.optimizer:KNOB", {"update": "fused"}]], "way": "in place"},
        {"key": "wide", "whole": {"sizes.py": "WIDTH = 64\n"}, "way": "twin"},
        {"key": "nowhere", "whole": {"other.py": "WIDTH = 64\n"}, "way": "twin"},
        {"key": "again", "way": "control"},
    ]
    prepared = screen(child, entrants, marker=str(marker))
    assert prepared["ways"] == {
        "same": "code", "fused": "setting", "wide": "twin", "control": "twin", "again": "twin",
    }  # fmt: skip
    assert prepared["refused"].keys() == {"raises", "nowhere"}
    assert prepared["refused"]["raises"].startswith("with it, a step raises ValueError: no")
    assert prepared["refused"]["nowhere"] == "other.py is not imported as a module, so the patch is not what runs"
    state = race(child)
    last = child.ask({"do": "race", "seconds": 0.0, "last": True}, TIMEOUT)
    assert last["entrants"].keys() == {"same", "fused", "wide", "control", "again"}
    for key, entrant in state["entrants"].items():
        assert entrant["log_ratios"] == last["entrants"][key]["log_ratios"]  # none was added after the time was over
        assert len(entrant["seconds"]) == len(entrant["log_ratios"])
    assert last["base"]["steps"] > 0
    assert marker.read_text().splitlines()[0] == ""


def test_a_second_race_against_all_of_it_in_the_same_training(child: Child) -> None:
    wide = {"sizes.py": "WIDTH = 64\n"}
    both = {**code("all", "    pass\n" + RETURN), "settings": []}
    screen(child, [{"key": "wide", "whole": wide, "way": "twin"}, code("same", "    pass\n" + RETURN)])
    race(child)
    prepared = screen(child, [both, {"key": "without", "whole": wide, "way": "twin"}], base="all")
    assert (prepared["refused"], prepared["ways"]) == ({}, {"all": "code", "without": "twin", "control": "code"})
    state = race(child)
    assert state["entrants"].keys() == {"base", "without", "control"}
    assert all(entrant["log_ratios"] for entrant in state["entrants"].values())


def test_a_dead_child_leaves_the_name_of_what_killed_it(child: Child, tmp_path: Path) -> None:
    marker = tmp_path / "in place"
    marker.touch()
    with pytest.raises(ChildFailed) as caught:
        screen(child, [code("same", "    pass\n" + RETURN), code("kills", "    os._exit(3)\n")], marker=str(marker))
    assert caught.value.kind == "crash"
    assert marker.read_text().splitlines()[0] == "kills"


def test_a_base_that_cannot_be_put_in_place_says_why(child: Child) -> None:
    with pytest.raises(ChildFailed, match="a step raises ValueError: no"):
        screen(child, [code("all", "    raise ValueError('no')\n"), code("same", "    pass\n" + RETURN)], base="all")


def test_what_holds_for_the_whole_process(child: Child) -> None:
    """The files that were imported, and settings that all trainings of a process share."""
    before = child.ask({"do": "process"}, TIMEOUT)
    assert sorted(Path(real).name for real in before["files"]) == ["sizes.py", "train.py"]
    assert before["workers"] == 0
    assert before["shared"]["anomaly"] is False
    setting = "import gc, os, torch\ntorch.set_num_threads(1)\nos.environ['A_NAME'] = '1'\ngc.disable()\nWIDTH = 32\n"
    with Child(False) as other:
        Path("sizes.py").write_text(setting)
        other.ask(build_command({"file": "train.py", "names": {}}, Variant("other", "", {}), "cpu", 0), TIMEOUT)
        after = other.ask({"do": "process"}, TIMEOUT)
    changed = {name for name, value in after["shared"].items() if value != before["shared"][name]}
    assert changed - {"threads", "mkl.dynamic", "mkl.threads"} == {"environment", "garbage collection"}
    assert after["shared"]["threads"] == 1


# ---- trainings that do something wrong with a candidate in place ---------------------------------------------------------


def begin(child: Child, entrants: list[dict[str, Any]]) -> None:
    assert screen(child, entrants, least=None)["refused"] == {}  # nobody leaves for looking slow


def race_until(child: Child, is_over: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    ends = time.monotonic() + TIMEOUT
    while True:
        state = child.ask({"do": "race", "seconds": 0.1}, TIMEOUT)
        if is_over(state):
            return state
        assert time.monotonic() < ends, state


COUNTING = """    model.steps = getattr(model, "steps", 0) + 1
    if model.steps > 40:
        {raises}
"""


@pytest.mark.parametrize(
    ("raises", "said"),
    [
        ("raise ValueError('no such kernel')", "with it, a step raises ValueError: no such kernel (train.py:"),
        ("raise SystemExit(3)", "with it, a step raises SystemExit: 3 (train.py:"),
        ("model(None)", "with it, a step raises TypeError: "),
    ],
)
def test_a_step_that_raises_later_leaves_with_the_reason_and_the_training_goes_on(
    child: Child, raises: str, said: str
) -> None:
    begin(child, [code("bad", COUNTING.format(raises=raises) + RETURN), code("same", "    pass\n" + RETURN)])
    state = race_until(
        child, lambda state: state["entrants"]["bad"]["left"] and state["entrants"]["same"]["log_ratios"]
    )
    assert state["entrants"]["bad"]["left"].startswith(said)
    quads = len(state["entrants"]["same"]["log_ratios"])
    later = race_until(child, lambda state: len(state["entrants"]["same"]["log_ratios"]) > quads or state["ended"])
    assert (later["trouble"], later["entrants"]["same"]["left"] in ("", "decided", "looked no faster")) == ("", True)


LAST = """
ONCE = iter([(torch.randn(8, 16), torch.randint(0, 4, (8,))) for _ in range(1500)])

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return ONCE
"""


def test_a_training_whose_data_end_during_the_race_is_judged_by_what_there_is(project: Callable[..., Path]) -> None:
    """Nobody is to blame for that: no candidate leaves with it as the reason."""
    text = TRAIN.replace("\ndef build_model", LAST + "\ndef build_model", 1).replace(
        "torch.utils.data.DataLoader(data, 8)", "torch.utils.data.DataLoader(Stream(), None)"
    )
    project(**{"train.py": text, "sizes.py": "WIDTH = 32\n"})
    with Child(False) as child:
        target = {"file": "train.py", "names": {}}
        child.ask(build_command(target, Variant("screened", "", {}), "cpu", 0), TIMEOUT)
        patched = text.replace(RETURN, "    pass\n" + RETURN)
        same = {"key": "same", "code": {"train.py": [text, patched]}, "whole": {"train.py": patched}, "way": "in place"}
        child.ask({"do": "screen", "entrants": [same], "least": None, "seed": 1}, TIMEOUT)
        state = race_until(child, lambda state: bool(state["trouble"]))
    assert state["trouble"] == "train.py: the dataloader is empty (it yields no batch)"
    assert state["entrants"]["same"]["left"] in ("", "decided")
    assert (state["entrants"]["same"]["interval"] is not None) is (len(state["entrants"]["same"]["log_ratios"]) >= 5)


def test_a_patch_that_does_not_take_the_short_batch_of_an_epoch_leaves(
    child: Child, project: Callable[..., Path]
) -> None:
    """64 samples in batches of 6: the last one has four, and the tenth step of an epoch raises with the patch in place."""
    text = TRAIN.replace("DataLoader(data, 8)", "DataLoader(data, 6)")
    project(**{"train.py": text})
    with Child(False) as other:
        target = {"file": "train.py", "names": {}}
        other.ask(build_command(target, Variant("screened", "", {}), "cpu", 0), TIMEOUT)
        sums = "    assert len(batch[0]) == 6\n" + RETURN
        entrants = []
        for key, new in (("fixed", sums), ("same", "    pass\n" + RETURN)):
            patched = text.replace(RETURN, new)
            whole = {"train.py": patched}
            entrants.append({"key": key, "code": {"train.py": [text, patched]}, "whole": whole, "way": "in place"})
        other.ask({"do": "screen", "entrants": entrants, "least": None, "seed": 1}, TIMEOUT)
        state = race_until(
            other, lambda state: state["entrants"]["fixed"]["left"] and state["entrants"]["same"]["log_ratios"]
        )
    assert state["entrants"]["fixed"]["left"].startswith("with it, a step raises AssertionError")
    assert state["entrants"]["same"]["left"] in ("", "decided")


@pytest.mark.parametrize("is_finite", [False, True])
def test_a_candidate_with_which_losses_become_nan_leaves_and_the_training_learns_on(
    child: Child, is_finite: bool
) -> None:
    """Parameters are put back, so that the steps of the others are of a training that learns."""
    is_bad = "False" if is_finite else "model.n > 4"
    counts = "    model.n = getattr(model, 'n', 0) + 1\n"
    spoils = f"{counts}    loss = loss * (float('nan') if {is_bad} else 1.0)\n"
    begin(child, [code("nan", spoils + RETURN), code("same", "    pass\n" + RETURN)])
    state = race_until(
        child,
        lambda state: all(
            len(state["entrants"][key]["log_ratios"]) > 3 or state["entrants"][key]["left"] for key in ("nan", "same")
        ),
    )
    said = "with it, losses become NaN or infinite"
    assert state["entrants"]["nan"]["left"] == said or is_finite
    assert (state["entrants"]["same"]["left"] in ("", "decided"), state["learns"]) == (True, True)
    losses = child.ask({"do": "block", "steps": 2}, TIMEOUT)
    assert losses["finite"]


def test_a_candidate_with_which_the_first_loss_is_nan_is_refused(child: Child) -> None:
    prepared = screen(child, [code("nan", "    return loss * float('nan')\n"), code("same", "    pass\n" + RETURN)])
    assert prepared["refused"] == {"nan": "with it, losses become NaN or infinite"}
    assert child.ask({"do": "race", "seconds": 0.1}, TIMEOUT)["learns"]


@pytest.mark.parametrize("steps", [12, 14, 30])
def test_where_losses_are_nan_whoever_is_in_place_nobody_is_blamed(project: Callable[..., Path], steps: int) -> None:
    text = TRAIN.replace(
        "    return loss\n",
        "    model.n = getattr(model, 'n', 0) + 1\n    return loss * (1 if model.n < STEPS else float('nan'))\n",
    ).replace("STEPS", str(steps))
    project(**{"train.py": text, "sizes.py": "WIDTH = 32\n"})
    with Child(False) as child:
        target = {"file": "train.py", "names": {}}
        child.ask(build_command(target, Variant("screened", "", {}), "cpu", 0), TIMEOUT)
        entrants = []
        for key in ("a", "b"):
            patched = text.replace("    return loss *", f"    {key} = 1\n    return loss *")
            entrants.append(
                {"key": key, "code": {"train.py": [text, patched]}, "whole": {"train.py": patched}, "way": "in place"}
            )
        child.ask({"do": "screen", "entrants": entrants, "least": None, "seed": 1}, TIMEOUT)
        state = race_until(
            child, lambda state: all(len(state["entrants"][key]["log_ratios"]) > 3 for key in ("a", "b"))
        )
    assert (state["learns"], {item["left"] for item in state["entrants"].values()} <= {"", "decided"}) == (False, True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("model[0].register_buffer('seen', torch.zeros(1))", "the module 0, its seen"),
        ("model[1].eval()", "the module 1, its mode"),
        ("model[0].weight.requires_grad_(False)", "the module 0, its weight"),
        ("model[2].bias = nn.Parameter(torch.zeros(4))", "the module 2, its bias"),
        ("model[0].register_forward_hook(lambda *_: None)", "the module 0, _forward_hooks"),
    ],
)
def test_a_patch_that_changes_what_the_next_step_starts_from_is_named(
    child: Child, tmp_path: Path, line: str, said: str
) -> None:
    """Whoever asked builds the training again, without it."""
    marker = tmp_path / "in place"
    marker.touch()
    with pytest.raises(ChildFailed, match=f"after a step with it {said}.* is not what it was"):
        screen(
            child, [code("same", "    pass\n" + RETURN), code("leaves", f"    {line}\n" + RETURN)], marker=str(marker)
        )
    assert marker.read_text().splitlines()[0] == "leaves"


def test_an_attribute_that_only_the_patch_knows_is_left_to_it(child: Child) -> None:
    begin(child, [code("keeps", "    model.note = 1\n" + RETURN)])
