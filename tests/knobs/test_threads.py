"""Threads of CPU training: which numbers a machine suggests, and the call that sets them."""

from __future__ import annotations

from pathlib import Path

import pytest
from surveys import survey_of

from perfaudit.knobs import Bench, Probe, Survey, Told, threads
from perfaudit.knobs._code import Code
from perfaudit.machine.limits import physical_cores, usable_cores
from perfaudit.measurements import Settings
from perfaudit.target.flags import flags

KNOB = threads.KNOB


def survey(now: int, cores: int, physical: int | None = None, device: str = "cpu", workers: int = 0) -> Survey:
    host = {"threads": now, "cores": cores, "physical_cores": physical or cores}
    return survey_of(device={"type": device}, host=host, loader={"num_workers": workers})


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        (survey(2, 2), [1]),
        (survey(1, 2), [2]),
        (survey(8, 8), [1, 4]),
        (survey(8, 16, 8), [1, 16]),
        (survey(12, 12, 4), [1, 4, 6]),
        (survey(3, 8), [1, 4, 8]),
        (survey(4, 1), [1]),
    ],
)
def test_numbers_of_threads(given: Survey, numbers: list[int]) -> None:
    bench = Bench(given, given.facts.host.cores, 1, lambda s: Probe(s), lambda *a, **k: {})
    assert [s["threads"] for s in KNOB.candidates(bench)] == numbers
    assert KNOB.not_applicable(given) == ""


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (survey(8, 8, device="cuda"), "it is about training on the CPU, and this training runs on cuda"),
        (survey(1, 1), "this process may use one core, and torch uses one thread"),
    ],
)
def test_where_it_cannot_matter(given: Survey, reason: str) -> None:
    assert KNOB.not_applicable(given) == reason


def test_only_the_wall_clock_tells() -> None:
    assert not KNOB.in_process


def test_the_number_is_set_and_put_back() -> None:
    before = flags()
    with KNOB.setup({"threads": 3}).applied(None):
        assert flags()["threads"] == 3
    assert flags() == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\nprint(1)\n", "import torch\ntorch.set_num_threads(1)\nprint(1)\n"),
        ("import torch\ntorch.set_num_threads(8)\n", "import torch\ntorch.set_num_threads(1)\n"),
        ("import torch\n\n\ndef main(n):\n    torch.set_num_threads(n)\n", None),
    ],
)
def test_the_patch(before: str, after: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(before)
    patch = KNOB.patch(Code("train.py", survey(2, 2)), {"threads": 1})
    assert (patch and patch.after) == after


@pytest.mark.parametrize(
    ("workers", "winner", "said"),
    [
        (0, {"threads": 2}, "measured beside whatever else ran here"),
        (0, {"threads": 1}, "measured beside whatever else ran here"),
        (0, None, ""),
        (1, None, "your 1 loader worker shares these cores"),
        (4, {"threads": 2}, "your 4 loader workers share these cores"),
    ],
)
def test_workers_share_the_cores(workers: int, winner: Settings | None, said: str) -> None:
    remarks = KNOB.remarks(Told(survey(2, 2, workers=workers), (), (), {}, winner))
    assert " ".join(remarks).startswith(said) and bool(remarks) == bool(said)
    assert any("loader workers would share" in remark for remark in remarks) == (
        winner == {"threads": 2} and not workers
    )


def test_physical_cores_are_among_the_usable_ones() -> None:
    assert 1 <= physical_cores() <= usable_cores()
