"""Batch sizes: how far up, what fits, the knee, and the edit."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from surveys import survey_of

from perfaudit.knobs import Bench, Probe, Reply, Survey, Told, Unanswered, batch_size
from perfaudit.measurements import Settings, Trial
from perfaudit.static import edit
from perfaudit.static.source import Source

KNOB = batch_size.KNOB
MIB = 1 << 20


def survey(size: int | None = 32, dataset: int | None = 100_000, step: float = 0.01, device: str = "cpu") -> Survey:
    loader = {"batch_size": size, "dataset_length": dataset}
    return survey_of(profile={"forward": step}, device={"type": device}, loader=loader)


class Child:
    """A training whose step takes 10 MiB and 1 MiB a sample, and whose libraries take `beyond` times its tensors."""

    def __init__(self, beyond: float = 1.0, cannot: str = "", fails_above: int = 1 << 30) -> None:
        self.beyond, self.cannot, self.fails_above = beyond, cannot, fails_above
        self.real: list[int] = []

    def peak(self, size: int) -> int:
        return (10 + size) * MIB

    def probe(self, settings: Settings) -> Probe:
        size = int(str(settings["batch_size"]))
        return Probe(settings, self.peak(size), self.peak(size) + 300 * MIB)

    def ask(self, settings: Settings, question: str, **arguments: Any) -> Reply:
        if question == "limits":
            if self.cannot:
                return {"cannot": self.cannot}
            limit = min(arguments["most"], arguments["budget"] // MIB - 10)
            return {
                "limits": {"plain": limit, "bfloat16 autocast (changes precision)": 2 * limit},
                "peaks": [(n, self.peak(n)) for n in (16, 32, limit)],
            }
        self.real.append(arguments["size"])
        if arguments["size"] > self.fails_above:
            raise Unanswered("out of memory")
        peak = self.peak(arguments["size"])
        return {"peak": peak, "resident": int(peak * self.beyond) + 300 * MIB}


def bench(given: Survey, child: Child, memory: int = 1310 * MIB, seconds: float = 1e9) -> Bench:
    return Bench(given, 2, memory, child.probe, child.ask, {}, lambda: seconds)


def sizes(found: list[Settings]) -> list[object]:
    return [settings["batch_size"] for settings in found]


def test_sizes_go_from_half_to_what_fits() -> None:
    child = Child()
    desk = bench(survey(), child)
    assert sizes(KNOB.candidates(desk)) == [64, 128, 256, 512, 16]
    assert (desk.kept["limit"], child.real) == (989, [250, 989])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (survey(dataset=100), [64, 16]),
        (survey(size=1, dataset=8), [2, 4, 8]),
        (survey(step=1.0), [64, 128, 16]),  # 32 samples take a second; steps of over four are not timed
    ],
)
def test_sizes_end_at_the_dataset_and_at_steps_too_long(given: Survey, expected: list[int]) -> None:
    assert sizes(KNOB.candidates(bench(given, Child()))) == expected


def test_what_libraries_take_besides_tensors_lowers_the_limit_before_it_is_tried() -> None:
    child = Child(beyond=1.25)
    desk = bench(survey(), child)
    KNOB.candidates(desk)
    assert child.real == [250, 789]
    assert desk.kept["limit"] == 789
    assert "memory limit: 789 samples in 1.3 GiB, confirmed: a real step of 789 samples took 1,298.8 MiB (799.0" in (
        _remarks(desk)
    )


class OnCuda(Child):
    """The same on a device, where libraries and the allocator take `beyond` times the tensors, and `constant` MiB."""

    def __init__(self, beyond: float = 1.0, constant: int = 0) -> None:
        super().__init__(beyond)
        self.constant = constant

    def taken(self, size: int) -> int:
        return int(self.peak(size) * self.beyond) + self.constant * MIB

    def probe(self, settings: Settings) -> Probe:
        size = int(str(settings["batch_size"]))
        return Probe(settings, self.peak(size), 3 << 30, self.taken(size))

    def ask(self, settings: Settings, question: str, **arguments: Any) -> Reply:
        reply = super().ask(settings, question, **arguments)
        if question == "real":
            if self.taken(arguments["size"]) > 2000 * MIB:
                raise Unanswered("out of memory", out_of_memory=True)
            reply = {**reply, "taken": self.taken(arguments["size"])}
        return reply


@pytest.mark.parametrize(
    ("child", "limit"),
    [(OnCuda(), 980), (OnCuda(1.4), 697), (OnCuda(constant=300), 680), (OnCuda(3.0), 320), (OnCuda(1.0, 1900), 0)],
    ids=["tensors", "two fifths", "constant", "threefold", "nothing fits"],
)
def test_a_budget_is_for_what_a_step_takes_of_the_device(child: OnCuda, limit: int) -> None:
    """A budget of 1,000 with a real peak of 1,400 is not confirmed."""
    desk = bench(survey(device="cuda"), child, memory=1000 * MIB)
    KNOB.candidates(desk)
    said = _remarks(desk)
    assert desk.kept["limit"] == pytest.approx(limit, rel=0.02)
    assert (f"memory limit: {desk.kept['limit']:,} samples in 1.0 GiB, confirmed: a real step of" in said) == bool(
        limit
    )
    assert child.taken(desk.kept["limit"]) <= 1000 * MIB or not limit
    if not limit:
        assert "predicted and not confirmed: a real step of" in said and "took more than the budget" in said


def test_a_device_that_does_not_say_what_is_taken_confirms_nothing() -> None:
    desk = bench(survey(device="mps"), Child())
    KNOB.candidates(desk)
    assert "predicted and not confirmed: what a step takes of mps memory beside its tensors is not told" in _remarks(
        desk
    )


def test_a_real_step_that_fails_is_told_and_nothing_larger_is_offered() -> None:
    desk = bench(survey(), Child(fails_above=200))
    assert max(map(int, map(str, sizes(KNOB.candidates(desk))))) <= 125
    assert "a real step of 250 samples failed: out of memory" in _remarks(desk)


def test_where_the_peak_cannot_be_predicted_real_steps_double_up() -> None:
    desk = bench(survey(dataset=300), Child(cannot="the step reads .item()"))
    assert sizes(KNOB.candidates(desk)) == [64, 128, 256, 16]
    assert "cannot be predicted: the step reads .item()" in _remarks(desk)


def test_a_limit_whose_step_would_take_too_long_is_not_tried() -> None:
    child = Child()
    desk = bench(survey(), child, seconds=0.1)
    KNOB.candidates(desk)
    assert child.real == []
    assert "not confirmed: no time was left for real steps of 250 samples" in _remarks(desk)


def test_the_limit_is_told_with_what_saves_memory() -> None:
    desk = bench(survey(), Child())
    KNOB.candidates(desk)
    said = _remarks(desk)
    assert (
        "memory limit: 989 samples in 1.3 GiB, confirmed: a real step of 989 samples took 1,299.0 MiB (999.0 MiB of "
        "tensors); a larger one is expected not to fit" in said
    )
    assert "limit with bfloat16 autocast (changes precision): 2,000 (predicted, tensors alone)" in said
    assert "arXiv:1904.00962" in said


def _remarks(desk: Bench, *timed: tuple[int, float]) -> str:
    trials = [
        Trial("batch_size", {"batch_size": size}, "ok", "samples_per_second", speed, speed, speed, 4)
        for size, speed in timed
    ]
    return "\n".join(KNOB.remarks(Told(desk.survey, trials, [], desk.kept, None)))


@pytest.mark.parametrize(
    ("timed", "said"),
    [
        ([(16, 100), (32, 150), (64, 198), (128, 200)], "64 is the smallest batch within 3 % of the best median"),
        (
            [(16, 100), (32, 150)],
            "32 is the smallest batch within 3 % of the best median: still growing at the largest",
        ),
    ],
)
def test_the_knee(timed: list[tuple[int, float]], said: str) -> None:
    assert said in _remarks(bench(survey(), Child()), *timed)


@pytest.mark.parametrize(
    ("call", "patched"),
    [
        ("DataLoader(d, 32)", "DataLoader(d, 64)"),
        ("DataLoader(d, batch_size=B)", "DataLoader(d, batch_size=64)"),
        ("DataLoader(d)", "DataLoader(d, batch_size=64)"),
    ],
)
def test_the_patch(call: str, patched: str) -> None:
    source = Source("x.py", call)
    edits = batch_size._edits(source, source.nodes(ast.Call)[0], {"batch_size": 64})
    assert edits is not None
    assert edit.apply(call, edits) == patched


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        ({"batch_sampler": "ByLength"}, "a batch sampler (ByLength) makes the batches, so no number"),
        ({}, "the dataset makes the batches"),
        (
            {"library_line": "accelerate/data_loader.py:441", "batch_sampler": "BatchSampler"},
            "Accelerate has prepared the loader",
        ),
        ({"library_line": "accelerate/data_loader.py:441"}, "set the batch_size of your loader and run"),
        (
            {"library_line": "accelerate/data_loader.py:441", "prefix": "dataloader_"},
            "set per_device_train_batch_size and run",
        ),
    ],
)
def test_a_loader_without_a_batch_size_has_none_to_search(loader: dict[str, object], said: str) -> None:
    assert said in KNOB.not_applicable(survey_of(loader={"batch_size": None, **loader}))


def test_samples_are_repeated_to_any_size() -> None:
    import torch

    batch = {"x": torch.arange(6).reshape(3, 2), "n": 7, "pair": (torch.arange(3), [torch.zeros(())])}
    seen = batch_size._repeat_samples(batch, 3, 5)
    assert seen["x"].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]
    assert (seen["pair"][0].tolist(), seen["n"]) == ([0, 1, 2, 0, 1], 7)
