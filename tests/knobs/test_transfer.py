"""Copies to an accelerator: pinned or not, waited for or not, and what of it stands in a line that a patch can change."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfaudit.knobs import Bench, Probe, Told, transfer
from perfaudit.knobs._code import Code
from perfaudit.measurements import Settings

KNOB = transfer.KNOB


def facts(device: str = "cuda", pinned: bool = False, workers: int = 2, **places: list[str]) -> dict[str, Any]:
    return {"device": device, "loader": {"pin_memory": pinned, "num_workers": workers}, "places": places}


def setting(pinned: bool, non_blocking: bool) -> Settings:
    return {"pin_memory": pinned, "non_blocking": non_blocking}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (facts(), ""),
        (facts("cpu"), "nothing is copied to a device: this training runs on cpu"),
        (
            facts("mps"),
            "the CPU and this device (mps) share their memory, and copies that are not waited for lose data there",
        ),
    ],
)
def test_where_it_cannot_matter(given: dict[str, Any], reason: str) -> None:
    assert KNOB.not_applicable(given) == reason


@pytest.mark.parametrize(
    ("given", "now"),
    [
        (facts(), setting(False, False)),
        (facts(pinned=True), setting(True, True)),
        (facts(pinned=True, PA104=["train.py:9"]), setting(True, False)),
    ],
)
def test_the_three_others_are_tried(given: dict[str, Any], now: Settings) -> None:
    tried = KNOB.candidates(Bench(given, 2, 1, lambda s: Probe(s), lambda *a, **k: {}))
    assert KNOB.current(given) == now
    assert now not in tried and len(tried) == 3


@pytest.mark.parametrize("non_blocking", [True, False])
def test_a_setting_is_an_argument_of_the_loader_and_a_way_to_copy(non_blocking: bool) -> None:
    training = SimpleNamespace(non_blocking=None)
    setup = KNOB.setup(setting(True, non_blocking))
    assert (setup.loader_overrides, setup.fixed_batch) == ({"pin_memory": True}, False)
    with setup.applied(training):
        assert training.non_blocking is non_blocking


@pytest.mark.parametrize(
    ("given", "settings", "words"),
    [
        (
            facts(PA102=["train.py:3"]),
            setting(True, True),
            "build the training DataLoader with pin_memory=True (train.py:3) and copy batches with "
            ".to(device, non_blocking=True)",
        ),
        (
            facts(pinned=True, PA104=["train.py:9", "train.py:10"]),
            setting(True, True),
            "copy batches with .to(device, non_blocking=True) (train.py:9, train.py:10)",
        ),
        (facts(), setting(True, False), "build the training DataLoader with pin_memory=True"),
        (facts(pinned=True), setting(True, False), "copy batches without non_blocking=True"),
    ],
)
def test_the_words_name_the_lines(given: dict[str, Any], settings: Settings, words: str) -> None:
    assert KNOB.words(settings, given) == words


WAITS = "x = x.to(device)"
RUNS_ON = "x = x.to(device, non_blocking=True)"


@pytest.mark.parametrize(
    ("call", "copy", "settings", "patched"),
    [
        ("DataLoader(d, 8)", RUNS_ON, setting(True, True), "DataLoader(d, 8, pin_memory=True)"),
        ("DataLoader(d, 8, pin_memory=False)", RUNS_ON, setting(True, True), "DataLoader(d, 8, pin_memory=True)"),
        (
            "DataLoader(d, 8, True, None, None, 0, None, False)",
            RUNS_ON,
            setting(True, True),
            "DataLoader(d, 8, True, None, None, 0, None, True)",
        ),
        ("DataLoader(d, 8)", WAITS, setting(True, True), None),  # their copies wait, those that are measured do not
        ("DataLoader(d, 8)", RUNS_ON, setting(True, False), None),
        ("DataLoader(d, pin_memory=True)", WAITS, setting(False, False), "DataLoader(d, pin_memory=False)"),
    ],
)
def test_the_patch(
    call: str, copy: str, settings: Settings, patched: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"loader = {call}\nfor x in loader:\n    {copy}\n"
    Path("train.py").write_text(text)
    node = ast.parse(text).body[0].value  # type: ignore[attr-defined]  # an assignment
    site = ["train.py", node.lineno, node.end_lineno, node.col_offset, node.end_col_offset]
    patch = KNOB.patch(Code("train.py", {**facts(), "loader_site": site}), settings)
    assert (patch and patch.after) == (patched and text.replace(call, patched))


def test_patched_source_that_pins_is_copied_from_without_waiting() -> None:
    assert KNOB.holds(facts(pinned=True), setting(True, True))
    assert not KNOB.holds(facts(), setting(True, True))


def test_without_workers_the_training_process_pins() -> None:
    assert "training process pins" in KNOB.remarks(Told(facts(workers=0), (), (), {}, None))[0]
    assert KNOB.remarks(Told(facts(), (), (), {}, None)) == []


@pytest.mark.gpu
def test_copies_on_a_cuda_device() -> None:
    import torch

    for pinned in (True, False):
        batch = torch.arange(1000.0)
        there = (batch.pin_memory() if pinned else batch).to("cuda", non_blocking=True)
        assert torch.equal(there.cpu(), batch)
