"""Copies to an accelerator: pinned or not, waited for or not, and what of it stands in a line that a patch can change."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from surveys import found, survey_of

from perfaudit.knobs import Bench, Probe, Survey, Told, transfer
from perfaudit.knobs._code import Code
from perfaudit.measure.facts import CallSite, Script
from perfaudit.measurements import Settings

KNOB = transfer.KNOB


def survey(
    device: str = "cuda", pinned: bool = False, workers: int = 2, non_blocking: bool = False, **places: list[str]
) -> Survey:
    loader = {"pin_memory": pinned, "num_workers": workers}
    findings = [found(rule, place) for rule, at in places.items() for place in at]
    return survey_of(findings, device={"type": device}, loader=loader, non_blocking=non_blocking)


def setting(pinned: bool, non_blocking: bool) -> Settings:
    return {"pin_memory": pinned, "non_blocking": non_blocking}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (survey(), ""),
        (survey("cpu"), "nothing is copied to a device: this training runs on cpu"),
        (
            survey("mps"),
            "the CPU and this device (mps) share their memory, and copies that are not waited for lose data there",
        ),
    ],
)
def test_where_it_cannot_matter(given: Survey, reason: str) -> None:
    assert KNOB.not_applicable(given) == reason


@pytest.mark.parametrize(
    ("given", "now"),
    [
        (survey(), setting(False, False)),
        (survey(pinned=True), setting(True, False)),  # the loader says nothing of the copies
        (survey(pinned=True, non_blocking=True), setting(True, True)),
        (survey(non_blocking=True), setting(False, True)),
    ],
)
def test_the_three_others_are_tried(given: Survey, now: Settings) -> None:
    tried = KNOB.candidates(Bench(given, 2, 1, lambda s: Probe(s), lambda *a, **k: {}))
    assert KNOB.current(given) == now
    assert now not in tried and len(tried) == 3


@pytest.mark.parametrize("non_blocking", [True, False])
def test_a_setting_is_an_argument_of_the_loader_and_a_way_to_copy(non_blocking: bool) -> None:
    training = SimpleNamespace(non_blocking=None, is_script=False)
    setup = KNOB.setup(setting(True, non_blocking))
    assert (setup.loader_overrides, setup.fixed_batch) == ({"pin_memory": True}, False)
    with setup.applied(training):
        assert training.non_blocking is non_blocking


@pytest.mark.parametrize(
    ("given", "settings", "words"),
    [
        (
            survey(PA102=["train.py:3"]),
            setting(True, True),
            "build the training DataLoader with pin_memory=True (train.py:3:1) and copy batches with "
            ".to(device, non_blocking=True)",
        ),
        (
            survey(pinned=True, PA104=["train.py:9", "train.py:10"]),
            setting(True, True),
            "copy batches with .to(device, non_blocking=True) (train.py:9:1, train.py:10:1)",
        ),
        (survey(), setting(True, False), "build the training DataLoader with pin_memory=True"),
        (survey(pinned=True, non_blocking=True), setting(True, False), "copy batches without non_blocking=True"),
    ],
)
def test_the_words_name_the_lines(given: Survey, settings: Settings, words: str) -> None:
    assert KNOB.words(settings, given) == words


@pytest.mark.parametrize(
    ("call", "given", "settings", "patched"),
    [
        ("DataLoader(d, 8)", survey(non_blocking=True), setting(True, True), "DataLoader(d, 8, pin_memory=True)"),
        ("DataLoader(d, 8)", survey(), setting(True, False), "DataLoader(d, 8, pin_memory=True)"),
        ("DataLoader(d, 8, pin_memory=False)", survey(), setting(True, False), "DataLoader(d, 8, pin_memory=True)"),
        (
            "DataLoader(d, 8, True, None, None, 0, None, False)",
            survey(),
            setting(True, False),
            "DataLoader(d, 8, True, None, None, 0, None, True)",
        ),
        ("DataLoader(d, 8)", survey(), setting(True, True), None),  # their copies wait, those that are measured do not
        ("DataLoader(d, 8)", survey(non_blocking=True), setting(True, False), None),
        (
            "DataLoader(d, pin_memory=True)",
            survey(pinned=True),
            setting(False, False),
            "DataLoader(d, pin_memory=False)",
        ),
        # No finding knows the lines.
        ("DataLoader(d, pin_memory=True)", survey(pinned=True), setting(True, True), None),
    ],
)
def test_the_patch(
    call: str,
    given: Survey,
    settings: Settings,
    patched: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"loader = {call}\n"
    Path("train.py").write_text(text)
    node = ast.parse(text).body[0].value  # type: ignore[attr-defined]  # an assignment
    site = CallSite("train.py", node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
    sited = replace(given.facts, loader=replace(given.facts.loader, site=site))
    patch = KNOB.patch(Code("train.py", replace(given, facts=sited)), settings)
    assert (patch and patch.after) == (patched and text.replace(call, patched))


LOOP = """import torch
from torch.utils.data import DataLoader

for x in DataLoader(dataset, pin_memory=True, num_workers=2):
    x = x.to("cuda")
    model(x).backward()
"""


def test_the_copies_of_the_users_loop_are_patched_where_a_finding_knows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patched text is what the child reads, so that a race of it measures copies that are not waited for."""
    from perfaudit.static.scan import Options, scan
    from perfaudit.target.copies import copies_without_waiting

    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(LOOP)
    findings = tuple(scan(["train.py"], Options(processes=1)).findings)
    patch = KNOB.patch(Code("train.py", replace(survey(pinned=True), findings=findings)), setting(True, True))
    assert patch is not None and patch.after == LOOP.replace('"cuda")', '"cuda", non_blocking=True)')
    assert (copies_without_waiting(LOOP), copies_without_waiting(patch.after)) == (False, True)


def test_a_scripts_own_copies_are_code_and_its_loader_is_exchanged() -> None:
    script = replace(survey(pinned=True, PA104=["train.py:5"]).facts, script=Script())
    given = replace(survey(pinned=True, PA104=["train.py:5"]), facts=script)
    tried = KNOB.candidates(Bench(given, 2, 1, lambda s: Probe(s), lambda *a, **k: {}))
    assert [(settings, KNOB.way_on(given, settings)) for settings in tried] == [
        (setting(False, False), "loader"),
        (setting(True, True), "code"),
    ]
    assert KNOB.holds(given, setting(True, True)) and not KNOB.holds(given, setting(False, True))


def test_patched_source_has_a_setting_where_its_text_says_so() -> None:
    assert KNOB.holds(survey(pinned=True, non_blocking=True), setting(True, True))
    assert not KNOB.holds(survey(pinned=True), setting(True, True))


def test_the_remarks_say_how_batches_were_copied() -> None:
    waits, pins = KNOB.remarks(Told(survey(workers=0), (), (), {}, None))
    assert waits.startswith("your loop waits for its copies, as far as its text says")
    assert "training process pins" in pins
    (runs_on,) = KNOB.remarks(Told(survey(non_blocking=True), (), (), {}, None))
    assert runs_on.startswith("your loop copies batches with non_blocking=True")


@pytest.mark.gpu
def test_copies_on_a_cuda_device() -> None:
    import torch

    for pinned in (True, False):
        batch = torch.arange(1000.0)
        there = (batch.pin_memory() if pinned else batch).to("cuda", non_blocking=True)
        assert torch.equal(there.cpu(), batch)
