"""How many workers are tried, when none may be, the edit that hands them over, and what is said of starting them."""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
from fake_clock import FakeClock
from surveys import survey_of

from perfaudit.knobs import REFUTED, Bench, Prediction, Probe, Refused, Survey, Told, Unanswered
from perfaudit.knobs._code import Code
from perfaudit.knobs._dataloader_look import _is_calm, _is_known, _Load, _on_one_thread, _reply_of, _Step
from perfaudit.knobs._fewer_threads import fewer_threads
from perfaudit.knobs._samples_alike import draws_nothing
from perfaudit.knobs._workers_needed import is_sure, most_workers, start_seconds, wanted_workers
from perfaudit.knobs.dataloader import KNOB
from perfaudit.measure.facts import CallSite, Script
from perfaudit.measurements import Settings, Trial
from perfaudit.static import edit
from perfaudit.static.source import Source

MIB = 1 << 20


def survey(device: str = "cpu", batches: int | None = 1000, cores: int = 8, **loader: object) -> Survey:
    return survey_of(device={"type": device}, host={"cores": cores}, loader={"epoch_batches": batches, **loader})


def seen(fetch: float, step: float, threads: int = 2, **more: object) -> dict[str, Any]:
    """What a look without workers found: milliseconds, and by default a batch that waits for a disk.

    threads: so many a step keeps busy.
    """
    base = {
        "fetch": fetch / 1e3,
        "fetch_own": fetch / 1e3 * float(str(more.get("cpu_share", 0.05))),
        "step": step / 1e3,
        "step_cpu": threads * step / 1e3,
        "cv": 0.0,
        "cpu_share": 0.05,
        "batch_bytes": MIB,
        "batches": 24,
        "grown_bytes": 0,
    }
    return {**base, "shared_memory": 1 << 34, "samples": 32, "undisturbed": fetch / 1e3, **more}


SAME: dict[str, Any] = {
    "samples": 256,
    "whole": False,
    "compared": ["sample.1"],
    "random": [],
    "differing": [],
    "repeats": None,
}
SAME["start"] = (0.02, 0.15, 0.1)


def bench(given: Survey, look: object, samples: object = SAME, cores: int = 2, pace: object = None) -> Bench:
    def ask(settings: Settings, question: str, **arguments: Any) -> Any:
        assert settings["num_workers"] == 0
        reply = {"instrument": look, "samples": samples, "pace": pace}[question]
        if isinstance(reply, Exception):
            raise reply
        return reply

    return Bench(given, cores, 1 << 30, lambda settings: Probe(settings, 1, 1), ask)


def workers(settings: list[Settings]) -> list[object]:
    return [s["num_workers"] for s in settings]


@pytest.mark.parametrize(
    ("look", "wanted"),
    [
        (seen(10, 10), 1),
        (seen(11, 10), 2),
        (seen(50, 10), 5),
        (seen(50, 10, cv=0.5), 7),  # 6.25: one slow batch must not empty the queue
        (seen(0.01, 10), 1),
        (seen(10, 0), 10_000),
    ],
)
def test_as_many_workers_as_keep_up_with_the_step(look: dict[str, Any], wanted: int) -> None:
    assert wanted_workers(look) == wanted


@pytest.mark.parametrize(
    ("look", "cores", "most"),
    [
        (seen(50, 1, cpu_share=1.0), 4, 4),  # each needs a core
        (seen(50, 1, cpu_share=0.5), 4, 8),
        (seen(50, 1, cpu_share=0.0), 4, 32),  # waiting for a disk costs no core
        (seen(50, 1, shared_memory=64 * MIB, batch_bytes=4 * MIB), 4, 4),  # half of it, two batches a worker
        (seen(50, 1, shared_memory=1 * MIB, batch_bytes=4 * MIB), 4, 1),
        (seen(50, 1, shared_memory=0), 4, 32),  # a system without /dev/shm
    ],
)
def test_how_many_workers_can_pay(look: dict[str, Any], cores: int, most: int) -> None:
    assert most_workers(look, cores, 2) == most


@pytest.mark.parametrize(
    ("given", "look", "tried"),
    [
        (survey(), seen(50, 10), [4, 5, 6]),
        (survey(), seen(5, 10), [1, 2]),  # none is what there is
        (survey(batches=100_000, num_workers=5, prefetch_factor=2), seen(50, 10), [0, 4, 6]),
        (survey(num_workers=5, prefetch_factor=2), seen(50, 10), [0, 4, 5, 6]),  # 5 again, kept between epochs
        (survey(num_workers=12, prefetch_factor=2), seen(50, 10), [0, 4, 5, 6]),
        (survey(), seen(50, 10, cpu_share=1.0), [1, 2]),
        (survey(), Unanswered("out of memory"), [1, 2]),
    ],
)
def test_the_predicted_number_and_its_neighbours_are_tried(given: Any, look: Any, tried: list[int]) -> None:
    assert workers(KNOB.candidates(bench(given, look))) == tried


@pytest.mark.parametrize(
    ("given", "share"),
    [
        (survey(), 0.25),
        (survey(batches=1), 1.0),  # its loading is not in the profile
        (survey(batches=None), 1.0),
        (survey(num_workers=2, prefetch_factor=2), 1.0),  # workers take cores from the step
    ],
)
def test_what_loading_could_gain(given: Survey, share: float) -> None:
    assert KNOB.share(replace(given, profile={"loading": 1.0, "forward": 3.0})) == share
    assert KNOB.share(given) == 1.0


def test_pinned_memory_is_tried_on_an_accelerator_only() -> None:
    assert {s["pin_memory"] for s in KNOB.candidates(bench(survey("cuda"), seen(50, 10)))} == {True}
    assert {s["pin_memory"] for s in KNOB.candidates(bench(survey(), seen(50, 10)))} == {False}


def test_the_users_prefetching_stays() -> None:
    now = survey(num_workers=2, prefetch_factor=6)
    assert {s["prefetch_factor"] for s in KNOB.candidates(bench(now, seen(50, 10)))} == {None, 6}


def test_numbers_of_workers_that_change_the_samples_are_left_out() -> None:
    asked = bench(survey(), seen(50, 10), {**SAME, "differing": [5, 6]})
    assert workers(KNOB.candidates(asked)) == [4]
    with pytest.raises(Refused, match="not tried: with 4 and 5 and 6 workers the first 256 samples of an epoch differ"):
        KNOB.candidates(bench(survey(), seen(50, 10), {**SAME, "differing": [4, 5, 6]}))
    (remark,) = [r for r in _remarks(survey(), asked) if "not tried" in r]
    assert remark == ("not tried: with 5 and 6 workers the first 256 samples of an epoch differ from those without")


@pytest.mark.parametrize(
    ("batches", "loader", "persistent"),
    [
        (10, {}, True),  # 3 workers: 0.26 s a start, 0.17 s an epoch
        (10_000, {}, False),  # 0.15 % of an epoch
        (None, {}, False),  # how long an epoch is cannot be told
        (10_000, {"num_workers": 9, "prefetch_factor": 2, "persistent_workers": True}, True),  # the user's choice
    ],
)
def test_workers_are_kept_between_epochs_where_that_pays(batches: int, loader: Any, persistent: bool) -> None:
    tried = KNOB.candidates(bench(survey(batches=batches, **loader), seen(50, 17)))
    assert {s["persistent_workers"] for s in tried if s["num_workers"]} == {persistent}
    assert not any(s["persistent_workers"] for s in tried if not s["num_workers"])


def test_what_starting_workers_costs() -> None:
    assert start_seconds(seen(50, 10), (0.02, 0.15, 0.1), 4) == pytest.approx(4 * 0.02 + 0.1 + 0.1)
    assert start_seconds(seen(50, 10), (0.02, 0.01, 0.1), 1) == pytest.approx(0.02 + 0.1)


STEADY = seen(190, 13, threads=1, step_least=0.0125)  # 15 workers


@pytest.mark.parametrize(
    ("look", "most", "cores", "sure"),
    [
        (STEADY, 32, 2, True),
        ({**STEADY, "cv": 0.11}, 32, 2, False),
        (
            {**STEADY, "step_least": 0.0115},
            32,
            2,
            False,
        ),  # the usual step takes an eighth longer: others may hold the cores
        ({**STEADY, "cpu_share": 0.26}, 32, 8, False),  # workers compute
        ({**STEADY, "cpu_share": 0.2, "step_cpu": 0.013}, 32, 4, True),  # three workers' cores, and one of the step
        ({**STEADY, "cpu_share": 0.2, "step_cpu": 0.026}, 32, 4, False),
        (STEADY, 15, 2, False),  # more would be needed, or not
        (seen(90, 13, threads=1, step_least=0.013), 32, 2, False),  # 7 and its neighbours are soon looked at
        (seen(100, 13, threads=1, step_least=0.013), 32, 2, True),
    ],
)
def test_a_number_of_workers_is_sure_where_all_is_steady_and_waits(
    look: dict[str, Any], most: int, cores: int, sure: bool
) -> None:
    assert is_sure(look, min(most, wanted_workers(look)), most, cores) is sure


@pytest.mark.parametrize(
    ("pace", "is_told"),
    [
        ({"seconds": 0.0131}, True),
        ({"seconds": 0.0140}, False),  # so many at once load more slowly
        ({"seconds": None}, False),
        (Unanswered("a worker died"), False),
    ],
)
def test_a_sure_number_of_workers_that_keeps_up_is_predicted(pace: object, is_told: bool) -> None:
    given = survey(batches=64)
    asked = bench(given, STEADY, pace=pace)
    found = KNOB.candidates(asked)
    assert workers(found) == [12, 15, 18]
    predicted = KNOB.prediction(asked, found)
    assert predicted == (Prediction(found[1], 0.013, pytest.approx(0.203)) if is_told else None)
    words = (
        "; as many loaded a batch every 13.1 ms, so other numbers are not raced, nor your code as a control"
        if is_told
        else ", raced with fewer and more"
    )
    assert _remarks(given, asked)[0].endswith(f"the step 13 ms: 15 workers predicted{words}")


def test_in_the_place_of_a_control_the_blocks_of_the_own_code_are_told() -> None:
    given = survey(batches=64)
    asked = bench(given, STEADY, pace={"seconds": 0.013})
    KNOB.prediction(asked, KNOB.candidates(asked))
    own = Trial("dataloader", KNOB.current(given), "ok", samples=(0.21, 0.205, 0.215))
    told = KNOB.remarks(Told(given, (own,), (), asked.kept, None))[0]
    assert told.endswith("nor your code as a control; blocks of its own steps took 205 ms to 215 ms a step")
    asked.kept[REFUTED] = "failed (out of memory)"
    assert "blocks of its own" not in KNOB.remarks(Told(given, (own,), (), asked.kept, None))[0]


def test_a_prediction_that_did_not_hold_is_told() -> None:
    given = survey(batches=64)
    asked = bench(given, STEADY, pace={"seconds": 0.013})
    KNOB.prediction(asked, KNOB.candidates(asked))
    asked.kept[REFUTED] = "failed (out of memory)"
    assert _remarks(given, asked)[0].endswith(
        "15 workers predicted; that failed (out of memory), so other numbers were tried"
    )


def test_nothing_is_predicted_beside_workers_that_are_there_or_for_a_number_that_changes_the_samples() -> None:
    for given, samples in ((survey(num_workers=4, prefetch_factor=2), SAME), (survey(), {**SAME, "differing": [15]})):
        asked = bench(given, STEADY, samples, pace={"seconds": 0.013})
        assert KNOB.prediction(asked, KNOB.candidates(asked)) is None


def _remarks(given: Survey, asked: Bench, winner: Settings | None = None) -> list[str]:
    return KNOB.remarks(Told(given, (), (), asked.kept, winner))


def test_the_remarks_tell_the_prediction_the_check_and_the_start_up() -> None:
    given = survey(batches=10)
    asked = bench(given, seen(50, 17, cv=0.1))
    winner = KNOB.candidates(asked)[1]
    assert _remarks(given, asked, winner) == [
        "loading a batch in the training process takes 50 ms (varying by 10 %, 5 % of it computing), the step 17 ms: "
        "4 workers predicted, raced with fewer and more",
        "the first 256 samples of an epoch were compared with and without workers: the same",
        "an epoch of 10 batches takes about 170 ms; starting 4 workers for each takes about 280 ms more: "
        "persistent_workers=True saves that from the second epoch on",
    ]
    assert _remarks(given, bench(given, seen(50, 17))) == []


def test_a_look_that_failed_is_told() -> None:
    asked = bench(survey(), Unanswered("out of memory"))
    KNOB.candidates(asked)
    assert _remarks(survey(), asked) == ["how many workers are needed could not be predicted: out of memory"]


@pytest.mark.parametrize(("n", "prefetch", "least"), [(0, None, 2), (1, 2, 2), (4, 2, 4), (4, 6, 4)])
def test_a_block_has_a_batch_of_each_worker_behind_those_that_lie_ready(
    n: int, prefetch: int | None, least: int
) -> None:
    settings: Settings = {"num_workers": n, "prefetch_factor": prefetch}
    assert KNOB.least_steps(settings) == least
    assert KNOB.batches_ready(settings) == n * (prefetch or 0)


# ---- iterable datasets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            {**SAME, "whole": True, "repeats": [2, 400, 200]},
            "each of 2 workers yields every sample again: 400 samples with 2 workers, 200 with none; the dataset does not "
            "share its samples out (torch.utils.data.get_worker_info() in __iter__)",
        ),
        (
            {**SAME, "samples": 2000},
            "the iterable dataset does not end within 2000 samples, so whether workers would repeat samples cannot be told",
        ),
        (
            {**SAME, "whole": True, "compared": []},
            "the iterable dataset yields other samples on every pass, so whether workers repeat some cannot be told",
        ),
        (
            {**SAME, "whole": True, "differing": [2]},
            "with 2 workers the iterable dataset yields other samples than with none",
        ),
        (
            Unanswered("disk on fire"),
            "loading with workers was tried and failed: disk on fire",
        ),
    ],
)
def test_an_iterable_dataset_whose_samples_may_repeat_is_refused(found: object, why: str) -> None:
    with pytest.raises(Refused) as refused:
        KNOB.candidates(bench(survey(iterable=True), seen(50, 10), found))
    assert str(refused.value) == why


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            {"samples": 0, "failed": "OSError: in a worker"},
            "loading with a worker was tried and failed: OSError: in a worker",
        ),
        (Unanswered("no answer within 6 s"), "loading with workers was tried and failed: no answer within 6 s"),
    ],
)
def test_workers_that_fail_are_not_raced(found: object, why: str) -> None:
    with pytest.raises(Refused) as refused:
        KNOB.candidates(bench(survey(), seen(50, 10), found))
    assert str(refused.value) == why


def test_a_training_that_keeps_what_it_loads_is_not_raced() -> None:
    leaking = seen(5, 5, grown_bytes=96 * MIB)  # 4 MiB a batch; the race would make about 1,200 steps
    with pytest.raises(Refused) as refused:
        KNOB.candidates(bench(survey(), leaking))
    assert str(refused.value) == (
        "the training process grew by 96 MiB over 24 batches (4.0 MiB each); it keeps what it loads, and measuring would "
        "fill the memory"
    )
    # This is a cache that fills.
    assert workers(KNOB.candidates(bench(survey(), seen(500, 500, grown_bytes=96 * MIB)))) == [1, 2]
    assert workers(KNOB.candidates(bench(survey(), seen(0.5, 0.5, grown_bytes=MIB)))) == [1, 2]


def test_who_repeats_samples_now_is_told() -> None:
    now = survey(iterable=True, num_workers=4, prefetch_factor=2)
    with pytest.raises(Refused, match="with your num_workers=4 a training sees each sample 4 times an epoch"):
        KNOB.candidates(bench(now, seen(50, 10), {**SAME, "whole": True, "repeats": [2, 400, 200]}))


def test_an_iterable_dataset_that_shares_its_samples_out_is_raced() -> None:
    shared = {**SAME, "whole": True, "samples": 200}
    assert workers(KNOB.candidates(bench(survey(iterable=True), seen(50, 10), shared))) == [4, 5, 6]


# ---- in the child, on real loaders --------------------------------------------------------------------------------


def samples(dataset: Any, counts: list[int], **arguments: Any) -> Any:
    """The reply of a child that holds a loader of this dataset."""
    from torch.utils.data import DataLoader

    training = SimpleNamespace(loader=DataLoader(dataset, **arguments))
    return KNOB.answer_samples(training, counts, 50)


class Numbers:
    """0, 1, 2, … with a random number beside each, each process yielding `share(all, worker, workers)` of them."""

    def __init__(self, n: int, share: Callable[[list[int], int, int], list[int]]) -> None:
        self.n, self.share = n, share

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        import torch

        info = torch.utils.data.get_worker_info()
        mine = self.share(list(range(self.n)), info.id, info.num_workers) if info else list(range(self.n))
        for number in mine:
            yield number, torch.rand(2)


def iterable(n: int, share: Callable[[list[int], int, int], list[int]]) -> Any:
    from torch.utils.data import IterableDataset

    return type("Iterable", (Numbers, IterableDataset), {})(n, share)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (lambda all_, worker, workers: all_[worker::workers], ([], None)),
        (lambda all_, worker, workers: all_, ([], [2, 40, 20])),
        (lambda all_, worker, workers: all_[worker::workers][:-1], ([2], None)),  # drops the last ones
        (lambda all_, worker, workers: all_[: len(all_) // workers], ([2], None)),  # as many, but the first half twice
    ],
    ids=["shares", "repeats", "drops", "halves"],
)
def test_whether_workers_share_the_samples_out(share: Any, expected: Any) -> None:
    found = samples(iterable(20, share), [2], batch_size=4)
    assert (found["differing"], found["repeats"]) == expected
    assert (found["compared"], found["random"]) == (["0"], ["1"])


@pytest.mark.slow
def test_a_dataset_without_end_that_repeats_is_seen_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfaudit.target.sampling.ITERABLE_SAMPLES", 30)
    plain = iterable(10_000, lambda all_, worker, workers: all_)
    plain.__class__.__iter__ = lambda self: iter(range(self.n))
    found = samples(plain, [2], batch_size=4)
    assert (found["whole"], found["repeats"][0]) == (False, 2)


class Squares:
    """A map-style dataset whose samples are wrong in worker processes if `forks_badly`."""

    def __init__(self, n: int, forks_badly: bool) -> None:
        self.n, self.forks_badly = n, forks_badly

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch

        wrong = self.forks_badly and torch.utils.data.get_worker_info() is not None
        return torch.rand(2), index * index + wrong


@pytest.mark.slow
@pytest.mark.parametrize(("forks_badly", "differing"), [(False, []), (True, [1, 2])])
def test_the_samples_behind_the_samplers_indices_are_compared(forks_badly: bool, differing: list[int]) -> None:
    found = samples(Squares(24, forks_badly), [1, 2], batch_size=8, shuffle=True)
    assert (found["samples"], found["batches"], found["whole"], found["differing"]) == (24, 3, True, differing)
    assert found["random"] == ["sample.0"] and "index" in found["compared"]


@pytest.mark.slow
def test_what_a_worker_raises_is_the_answer() -> None:
    found = samples(Squares(24, False), [1], batch_size=8, worker_init_fn=_broken)
    assert found == {"samples": 0, "failed": "OSError: in a loader worker: OSError: no such disk"}


class Reopened(Squares):
    """Opened anew in every worker by its `worker_init_fn`, as HDF5 files must be."""

    is_open = False

    def open(self) -> None:
        self.is_open = True

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch

        if torch.utils.data.get_worker_info() is not None and not self.is_open:
            raise OSError("not open")
        return super().__getitem__(index)


def _opened(worker: int) -> None:
    import torch

    torch.utils.data.get_worker_info().dataset.open()  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [8, None])
def test_workers_hold_the_users_own_dataset(batch_size: int | None) -> None:
    found = samples(Reopened(24, False), [1], batch_size=batch_size, worker_init_fn=_opened)
    assert (found["samples"], found["differing"]) == (24, [])
    assert {"index", "sample.1"} <= set(found["compared"]) and found["is_plain"]


@pytest.mark.slow
def test_the_pace_of_workers_is_told_where_an_epoch_has_two_waves_of_them() -> None:
    from torch.utils.data import DataLoader

    def pace(n: int, **arguments: Any) -> Any:
        dataset: Any = Squares(n, False)
        return KNOB.answer_pace(SimpleNamespace(loader=DataLoader(dataset, **arguments)), 2)["seconds"]

    assert pace(24, batch_size=4) is not None and pace(16, batch_size=4) is not None
    assert pace(15, batch_size=4, drop_last=True) is None
    assert pace(24, batch_size=None) is None


class WholeBatches(Squares):
    """Makes a batch of all its indices at once, and no list of samples."""

    def __getitems__(self, indices: list[int]) -> dict[str, Any]:
        return {"squares": [self[index][1] for index in indices]}


@pytest.mark.slow
@pytest.mark.parametrize(("forks_badly", "differing"), [(False, []), (True, [1])])
def test_batches_that_are_no_lists_of_samples_are_compared_as_a_whole(forks_badly: bool, differing: list[int]) -> None:
    found = samples(WholeBatches(24, forks_badly), [1], batch_size=8, collate_fn=dict)
    assert (found["samples"], found["random"], found["differing"]) == (3, [], differing)
    assert not found["is_plain"]


def _broken(worker: int) -> None:
    raise OSError("no such disk")


@pytest.mark.slow
def test_a_look_at_a_training_without_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In process, on a training that does nothing: numbers and types only, no time is judged."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.zeros(64, 4), torch.zeros(64, dtype=torch.int64)), batch_size=8)
    batches, threads = iter([*loader] * 4), list[int]()
    training = SimpleNamespace(
        is_script=False,
        loader=loader,
        device=torch.device("cpu"),
        restart_seconds=[],
        next_batch=lambda: next(batches),
        to_device=lambda batch: batch,
        synchronize=lambda: None,
        step=lambda batch: threads.append(torch.get_num_threads()),
    )
    monkeypatch.setattr("perfaudit.knobs._dataloader_look.BATCHES", 5)
    monkeypatch.setattr("perfaudit.knobs._dataloader_look._is_calm", lambda loads, steps: is_calm)
    is_calm = False
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        reply = KNOB.answer_instrument(training)
        assert threads == [2] * 7 + [1] * 6 and torch.get_num_threads() == 2
        training.device = torch.device("cuda")
        KNOB.answer_instrument(training)
        assert threads[13:] == [2] * 7
        training.device = torch.device("cpu")
        with pytest.raises(StopIteration):  # there are no more, on one thread
            KNOB.answer_instrument(training)
        assert threads[20:] == [2] * 7 + [1] * 5 and torch.get_num_threads() == 2
        is_calm, batches = True, iter([*loader] * 4)
        KNOB.answer_instrument(training)
        assert threads[32:] == [2] * 7
    finally:
        torch.set_num_threads(before)
    assert (reply["batches"], reply["samples"], reply["batch_bytes"]) == (5, 8, 8 * 4 * 4 + 8 * 8)
    assert reply["grown_bytes"] >= 0
    assert reply["fetch"] > 0 and reply["step"] > 0 and 0 <= reply["cpu_share"] <= 1 and reply["step_cpu"] >= 0


@pytest.mark.parametrize(
    ("seconds", "batches"),
    [
        ([0.2] * 12, 5),
        ([0.2, 0.21] * 6, 5),
        ([0.1, 0.3] * 6, 12),
        ([0.01] * 12, 12),
    ],
    ids=["steady", "nearly steady", "uneven", "short"],
)
def test_a_look_at_loading_that_takes_long_ends_when_it_is_known(seconds: list[float], batches: int) -> None:
    loads = [_Load(each, 0.0, each, 0.0, False) for each in seconds]
    steps = [_Step(0.01, 0.01, 0.0)] * 12
    known = [n for n in range(2, 13) if _is_known(loads[:n], steps[:n])]
    assert (known or [12])[0] == batches


@pytest.mark.parametrize(
    ("queued", "computing", "is_told"),
    [(0.0, 0.01, True), (0.0002, 0.01, True), (0.0003, 0.01, False), (0.0, 0.09, True), (0.0, 0.1, False)],
)
def test_steps_on_one_thread_tell_nothing_on_a_calm_machine_where_loading_waits(
    queued: float, computing: float, is_told: bool
) -> None:
    loads, steps = [_Load(0.2, computing, 0.2, computing, False)] * 5, [_Step(0.01, 0.01, queued)] * 5
    assert _is_calm(loads, steps) is is_told


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "steps"), [(0.01, 6), (0.13, 4), (0.2, 3), (2.0, 2)])
def test_steps_on_one_thread_are_few_where_they_take_long(
    monkeypatch: pytest.MonkeyPatch, seconds: float, steps: int
) -> None:
    import torch

    clock = FakeClock()
    monkeypatch.setattr("perfaudit.knobs._dataloader_look.time", SimpleNamespace(monotonic=clock.now))
    training, before = SimpleNamespace(is_script=False, device=torch.device("cpu")), torch.get_num_threads()

    def make_step() -> _Step:
        clock.sleep(seconds)
        return _Step(seconds, seconds, 0.0)

    torch.set_num_threads(2)
    try:
        assert len(_on_one_thread(training, [_Step(0.01, 0.01, 0.0)], make_step)) == steps
    finally:
        torch.set_num_threads(before)


def test_what_others_hold_of_the_cores_makes_no_step_longer() -> None:
    """Two threads wait for each other by computing, where one alone only waits for a core."""
    loads = [_Load(0.3, 0.12, 0.12, 0.12, False)] * 3
    steps, alone = [_Step(2.5, 1.8, 1.0)] * 3, [_Step(0.2, 0.06, 0.13)] * 3
    found = _reply_of(loads, steps, alone, None, 32, 0)
    assert found["step"] == pytest.approx(0.07) and found["step_cpu"] == 0.06
    assert wanted_workers(found) == 2  # not 1, which 0.3 s of loading and 2.5 s of the step would need
    calm = _reply_of(loads, [_Step(0.04, 0.07, 0.0)] * 3, alone, None, 32, 0)
    assert calm["step"] == 0.04 and calm["step_cpu"] == 0.06
    assert _reply_of(loads, steps, [], None, 32, 0)["step"] == 2.5


def test_long_steps_that_are_rare_count_in_what_a_step_computes() -> None:
    """Two short steps and a long one: in the mean a step computes 40 ms, and one thread may have met short ones alone."""
    loads, short, long = [_Load(0.02, 0.16, 0.16, 0.02, False)] * 3, _Step(0.001, 0.001, 0.0), _Step(0.06, 0.118, 0.0)
    found = _reply_of(loads, [short, short, long], [short] * 3, None, 32, 0)
    assert found["step_cpu"] == pytest.approx(0.04)
    assert found["fetch_own"] == 0.02  # of 0.16 that eight threads compute together
    assert fewer_threads(on_cores(2, 2), 1, {**found, "step_cpu": 0.041}) is None
    assert fewer_threads(on_cores(2, 2), 1, found) == 1


# ---- the edit -----------------------------------------------------------------------------------------------------

TWO = {"num_workers": 2, "pin_memory": False, "prefetch_factor": 2, "persistent_workers": False}
NONE = {"num_workers": 0, "pin_memory": False, "prefetch_factor": None, "persistent_workers": False}


@pytest.mark.parametrize(
    ("call", "now", "settings", "patched"),
    [
        ("DataLoader(d, 8)", {}, TWO, "DataLoader(d, 8, num_workers=2)"),
        (
            "DataLoader(d, 8)",
            {},
            {**TWO, "persistent_workers": True},
            "DataLoader(d, 8, num_workers=2, persistent_workers=True)",
        ),
        (
            "DataLoader(d, 8, num_workers=n)",
            {"num_workers": 4, "prefetch_factor": 2},
            TWO,
            "DataLoader(d, 8, num_workers=2)",
        ),
        (
            "DataLoader(d, 8, True, None, None, 4)",
            {"num_workers": 4, "prefetch_factor": 2},
            TWO,
            "DataLoader(d, 8, True, None, None, 2)",
        ),
        (
            "DataLoader(d, num_workers=4, prefetch_factor=4, persistent_workers=True)",
            {"num_workers": 4, "prefetch_factor": 4, "persistent_workers": True},
            NONE,
            "DataLoader(d, num_workers=0)",
        ),
        (
            'DataLoader(d, num_workers=4, multiprocessing_context="spawn")',
            {"num_workers": 4, "prefetch_factor": 2},
            NONE,
            "DataLoader(d, num_workers=0)",
        ),
        (
            "DataLoader(d, num_workers=4, timeout=30)",
            {"num_workers": 4, "prefetch_factor": 2},
            NONE,
            "DataLoader(d, num_workers=0)",
        ),
        (
            "DataLoader(d, 8, True, None, None, 4, None, False, False, 30)",
            {"num_workers": 4, "prefetch_factor": 2},
            NONE,
            "DataLoader(d, 8, True, None, None, 0, None, False, False, 0)",
        ),
        ("DataLoader(d)", {}, {**TWO, "pin_memory": True}, "DataLoader(d, num_workers=2, pin_memory=True)"),
        (
            "DataLoader(d, **options)",
            {"num_workers": 1, "prefetch_factor": 2},
            {**TWO, "persistent_workers": True},
            'DataLoader(d, **{**options, "num_workers": 2, "persistent_workers": True})',
        ),
        (
            "DataLoader(d, num_workers=4, **options)",
            {"num_workers": 4, "prefetch_factor": 4, "persistent_workers": True},
            NONE,
            'DataLoader(d, num_workers=0, **{**options, "prefetch_factor": None, "persistent_workers": False})',
        ),
        (
            "TrainingArguments('out', num_workers=7)",  # a trainer's arguments have names of their own
            {"prefix": "dataloader_"},
            {**TWO, "persistent_workers": True},
            "TrainingArguments('out', num_workers=7, dataloader_num_workers=2, dataloader_persistent_workers=True)",
        ),
        (
            "TrainingArguments('out', dataloader_num_workers=4, dataloader_persistent_workers=True)",
            {"prefix": "dataloader_", "num_workers": 4, "prefetch_factor": 2, "persistent_workers": True},
            NONE,
            "TrainingArguments('out', dataloader_num_workers=0)",
        ),
    ],
)
def test_the_patch(
    call: str, now: dict[str, object], settings: Settings, patched: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"loader = {call}\n"
    (tmp_path / "train.py").write_text(text)
    node = ast.parse(text).body[0].value  # type: ignore[attr-defined]
    site = CallSite(str(tmp_path / "train.py"), 1, 1, node.col_offset, node.end_col_offset)
    patch = KNOB.patch(Code("train.py", survey(**now, site=site)), settings)
    assert patch is not None and patch.after == f"loader = {patched}\n"
    assert edit.apply(text, patch.edits) == Source("train.py", patch.after).text


PLAIN = {**SAME, "compared": ["", "sample.1"], "is_plain": True, "batches": 8}
TWO_KEPT = {**TWO, "persistent_workers": True}


@pytest.mark.parametrize(
    ("given", "settings", "samples", "changes"),
    [
        ({}, TWO, PLAIN, ()),
        ({}, TWO_KEPT, PLAIN, ("rng",)),  # seeded once, where each epoch began with a draw
        ({"num_workers": 1, "persistent_workers": True}, TWO_KEPT, PLAIN, ()),
        ({}, TWO, {**PLAIN, "random": ["sample.1"]}, ("rng",)),
        ({}, TWO, {**PLAIN, "is_plain": False}, ("rng",)),  # what puts samples together may draw
        ({}, TWO, {**PLAIN, "differing": [2]}, ("rng",)),
        ({}, TWO, {**PLAIN, "samples": 63}, ("rng",)),  # too few to say that nothing is random
        ({}, TWO, {**PLAIN, "batches": 1}, ("rng",)),
        ({}, TWO, {**PLAIN, "samples": 24, "whole": True}, ()),
        ({}, TWO, None, ("rng",)),
        ({"iterable": True}, TWO, PLAIN, ("rng",)),  # another order
        ({"prefix": "dataloader_"}, TWO, PLAIN, ()),  # a Trainer's draws indices in the training process too
    ],
)
def test_workers_change_nothing_where_a_script_draws_nothing_for_its_samples(
    given: dict[str, object], settings: Settings, samples: object, changes: tuple[str, ...]
) -> None:
    on_script = Survey(replace(survey(**given).facts, script=Script()))
    assert KNOB.changes_found(settings, on_script, {"samples": samples}) == changes
    assert KNOB.changes_found(settings, survey(**given), {"samples": samples}) == ("rng",)
    assert KNOB.changes_at_least(on_script) == (("rng",) if given.get("iterable") else ())


def default_collator(samples: object) -> object:
    return samples


default_collator.__module__ = "transformers.data.data_collator"
default_collator.__name__ = "default_data_collator"


def of_transformers(name: str, **fields: object) -> object:
    return type(name, (), {**fields, "__module__": "transformers.data.data_collator"})()


@pytest.mark.parametrize(
    ("collate", "draws"),
    [
        ("torch's own", False),
        (default_collator, False),
        (lambda samples: samples, True),  # nobody knows
        (FunctionType(default_collator.__code__, {}), True),  # of no module
        (of_transformers("DataCollatorWithPadding"), False),
        (type("DataCollatorWithPadding", (), {})(), True),  # of somebody else
        (of_transformers("DataCollatorForLanguageModeling", mlm=False), False),
        (of_transformers("DataCollatorForLanguageModeling", mlm=True), True),
        (of_transformers("RemoveColumnsCollator", data_collator=of_transformers("DefaultDataCollator")), False),
        (of_transformers("RemoveColumnsCollator", data_collator=lambda samples: samples), True),
    ],
)
def test_what_puts_samples_together_is_known_to_draw_nothing(collate: object, draws: bool) -> None:
    if collate == "torch's own":
        from torch.utils.data import default_collate as collate
    assert draws_nothing(collate) is not draws


@pytest.mark.parametrize(
    ("look", "most"),
    [
        (seen(10, 10), 30),  # 0.3 s of loading
        (seen(400, 10), 2),  # 64 samples
        (seen(200, 10, samples=16), 4),
        (seen(200, 10, samples=100), 2),
        (seen(600, 10), 1),  # longer than a second
        (Unanswered("out of memory"), 1),
    ],
)
def test_enough_samples_are_compared_where_they_tell_whether_a_script_draws(look: Any, most: int) -> None:
    asked: list[int] = []

    def ask(settings: Settings, question: str, **arguments: Any) -> Any:
        if question == "samples":
            asked.append(arguments["most"])
            return PLAIN
        if isinstance(look, Exception):
            raise look
        return look

    on_script = Survey(replace(survey().facts, script=Script()))
    KNOB.candidates(Bench(on_script, 2, 1 << 30, lambda settings: Probe(settings, 1, 1), ask))
    assert asked == [most]


def test_workers_need_leave_where_the_loop_changes_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "loader = DataLoader(data)\nfor step, batch in enumerate(loader):\n    data.size = 32 * step\n"
    (tmp_path / "train.py").write_text(text)
    site = CallSite(str(tmp_path / "train.py"), 1, 1, 9, 25)
    on_script = Survey(replace(survey(site=site).facts, script=Script()))
    assert KNOB.changes_found(TWO, on_script, {"samples": PLAIN}) == ("rng",)
    assert KNOB.changes_at_least(on_script) == ("rng",)
    (tmp_path / "train.py").write_text(text.partition("\n")[0])
    assert KNOB.changes_found(TWO, on_script, {"samples": PLAIN}) == ()


def test_workers_are_not_kept_where_the_dataset_changes_between_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "loader = DataLoader(data)\nfor epoch in range(3):\n    data.set_epoch(epoch)\n"
    (tmp_path / "train.py").write_text(text)
    given = survey(batches=10, site=CallSite(str(tmp_path / "train.py"), 1, 1, 9, 25))
    asked = bench(given, seen(50, 17))
    tried = KNOB.candidates(asked)
    assert not any(s["persistent_workers"] for s in tried)
    assert _remarks(given, asked, tried[0])[-1].endswith(
        "persistent_workers stays off, because the program changes its dataset between epochs"
    )


def test_the_words_name_what_changes() -> None:
    trainers = KNOB.words(TWO, survey(prefix="dataloader_"))
    assert trainers == "give the trainer's arguments dataloader_num_workers=2"
    assert KNOB.words(TWO, survey()) == "build the training DataLoader with num_workers=2"
    assert KNOB.words({**TWO, "persistent_workers": True}, survey()) == (
        "build the training DataLoader with num_workers=2, persistent_workers=True"
    )
    assert KNOB.words({**TWO, "pin_memory": True}, survey("cuda")) == (
        "build the training DataLoader with num_workers=2, pin_memory=True"
    )


# ---- fewer threads beside the workers -------------------------------------------------------------------------------

COMPUTING = seen(50, 20, cpu_share=1.0)
BESIDE = {**TWO, "threads": 1}


def on_cores(cores: int, threads: int, device: str = "cpu", **loader: object) -> Survey:
    return survey_of(device={"type": device}, host={"cores": cores, "threads": threads}, loader=loader)


@pytest.mark.parametrize(
    ("given", "look", "tried"),
    [
        (on_cores(2, 2), COMPUTING, {2: 1}),
        (on_cores(8, 8), COMPUTING, {3: 5}),
        (on_cores(8, 4), COMPUTING, {}),  # each worker has a core of its own
        (on_cores(2, 1), COMPUTING, {}),
        (on_cores(2, 2), seen(20, 20, cpu_share=1.0), {1: 1}),
        (
            on_cores(2, 2),
            seen(19, 20, cpu_share=1.0),
            {},
        ),  # a step of one thread may take longer than loading and the step do
        (on_cores(8, 8), seen(30, 50, 8, cpu_share=1.0), {1: 7}),  # 8/7 of 50 ms
        (on_cores(8, 8), seen(7, 50, 8, cpu_share=1.0), {}),
        (on_cores(2, 2), seen(19, 100, cpu_share=1.0, step_cpu=0.038), {1: 1}),  # most of the step waits for a core
        (on_cores(2, 2), seen(19, 100, cpu_share=1.0, step_cpu=0.039), {}),
        (on_cores(2, 2), seen(50, 20, cpu_share=0.2), {}),  # workers that wait leave the core to the step
        (on_cores(2, 2), Unanswered("out of memory"), {}),
        (on_cores(2, 2, "cuda"), COMPUTING, {}),
        (on_cores(2, 2, prefix="dataloader_"), COMPUTING, {}),
        (
            on_cores(2, 2, num_workers=2, prefetch_factor=2, persistent_workers=True),
            COMPUTING,
            {},
        ),  # the knob `threads` does
    ],
)
def test_fewer_threads_are_tried_beside_workers_that_need_the_cores(
    given: Survey, look: Any, tried: dict[int, int]
) -> None:
    settings = KNOB.candidates(bench(given, look, cores=given.facts.host.cores))
    assert {s["num_workers"]: s["threads"] for s in settings if "threads" in s} == tried
    beside = [s for s in settings if "threads" in s]
    assert all({name: s[name] for name in TWO} in settings for s in beside)  # the same workers alone, too
    assert [KNOB.covers(s) for s in beside] == [("threads",)] * len(tried)


def test_fewer_threads_are_the_larger_setting_and_reach_the_child() -> None:
    assert min((BESIDE, TWO), key=KNOB.size) == TWO and KNOB.size({**TWO, "num_workers": 3}) > KNOB.size(BESIDE)
    assert "threads" not in KNOB.setup(BESIDE).loader_overrides
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with KNOB.in_place(None, BESIDE):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with KNOB.in_place(None, TWO):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("entry", "other", "patched"),
    [
        ("", "", "import torch\ntorch.set_num_threads(1)\nloader = DataLoader(d, num_workers=2)\n"),
        (
            "torch.set_num_threads(4)\n",
            "",
            "import torch\ntorch.set_num_threads(1)\nloader = DataLoader(d, num_workers=2)\n",
        ),
        ("torch.set_num_threads(n)\n", "", None),
        ("", "import torch\ntorch.set_num_threads(4)\n", None),  # who comes last is not known
    ],
)
def test_the_patch_sets_threads_where_no_other_file_does(
    entry: str, other: str, patched: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"import torch\n{entry}loader = DataLoader(d)\n"
    files = {tmp_path / "train.py": text, tmp_path / "model.py": other}
    for path, content in files.items():
        path.write_text(content)
    digests = {os.path.realpath(path): hashlib.sha256(content.encode()).hexdigest() for path, content in files.items()}
    site = CallSite(str(tmp_path / "train.py"), text.count("\n"), text.count("\n"), 9, 22)
    given = Survey(replace(survey(site=site).facts, digests=digests))
    patch = KNOB.patch(Code("train.py", given), BESIDE)
    assert (patch.after if patch is not None else None) == patched
    assert KNOB.patch(Code("train.py", given), TWO) is not None
    assert KNOB.patch(Code("model.py", given), BESIDE) is None  # who imports train.py keeps their threads
    assert KNOB.patch(Code("model.py", given), TWO) is not None


def test_fewer_threads_change_roundings_and_must_be_there_in_the_patched_training() -> None:
    on_script = Survey(replace(on_cores(2, 2).facts, script=Script()))
    assert KNOB.changes_found(BESIDE, on_script, {"samples": PLAIN}) == ("rounding",)
    assert KNOB.changes_found({**BESIDE, "persistent_workers": True}, on_script, {"samples": PLAIN}) == (
        "rng",
        "rounding",
    )
    has_workers = {"num_workers": 2, "prefetch_factor": 2}
    assert KNOB.holds(on_cores(2, 1, **has_workers), BESIDE) and KNOB.holds(on_cores(2, 2, **has_workers), TWO)
    assert not KNOB.holds(on_cores(2, 2, **has_workers), BESIDE) and not KNOB.holds(on_cores(2, 1), BESIDE)


def test_the_words_name_the_threads_and_what_they_rest_on() -> None:
    given = on_cores(2, 2, epoch_batches=10)
    assert KNOB.words(BESIDE, given) == (
        "build the training DataLoader with num_workers=2, and call torch.set_num_threads(1)"
    )
    asked = bench(given, COMPUTING)
    winner = next(s for s in KNOB.candidates(asked) if "threads" in s)
    assert _remarks(given, asked, winner)[-1] == (
        "the whole program computes with 1 thread then, evaluation too, because workers need the 2 cores as well: on a machine "
        "with more cores search again"
    )


@pytest.mark.parametrize(("cores", "said"), [(2, True), (8, False)])
def test_more_workers_than_cores_are_told_with_torchs_warning(cores: int, said: bool) -> None:
    given = survey(batches=10, cores=cores)
    asked = bench(given, seen(50, 17, cv=0.1))
    winner = KNOB.candidates(asked)[1]
    assert any("torch will warn that 4 workers" in remark for remark in _remarks(given, asked, winner)) == said
