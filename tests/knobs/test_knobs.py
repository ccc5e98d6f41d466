"""Each knob: what it tries, on this machine and on a described one, and the edit that hands its winner over."""

from __future__ import annotations

import ast
from types import ModuleType
from typing import Any

import pytest

from perfaudit.knobs import Bench, Probe, all_knobs, batch_size, cudnn, dataloader, ema, knob
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.source import Source

INTERFACE = (
    "TITLE",
    "METRIC",
    "MIN_GAIN",
    "RULES",
    "not_applicable",
    "current",
    "candidates",
    "refine",
    "size",
    "setup",
    "words",
    "changes",
)


def facts(device: str = "cpu", **loader: object) -> dict[str, Any]:
    base = {"num_workers": 0, "pin_memory": False, "prefetch_factor": None, "batch_size": 32, "iterable": False}
    return {
        "device": device,
        "has_ema": False,
        "epoch_batches": 10,
        "dataset_length": 100_000,
        "loader": {**base, **loader},
    }


def bench(given: dict[str, Any], cores: int = 2, memory: int = 1 << 30, probe: Any = None) -> Bench:
    return Bench(given, cores, memory, probe or (lambda settings: Probe(settings, 1, 1)))


@pytest.mark.parametrize("name", all_knobs())
def test_every_knob_offers_the_interface(name: str) -> None:
    module = knob(name)
    assert [key for key in INTERFACE if not hasattr(module, key)] == []
    assert module.__doc__


def workers(settings: list[Settings]) -> list[object]:
    return [s["num_workers"] for s in settings]


@pytest.mark.parametrize(
    ("cores", "counts"), [(1, [0, 1, 2]), (2, [0, 1, 2, 4]), (6, [0, 1, 2, 4, 6, 8]), (64, [0, 1, 2, 4, 8, 16])]
)
def test_worker_counts_go_to_twice_the_cores(cores: int, counts: list[int]) -> None:
    assert workers(dataloader.candidates(bench(facts(), cores))) == counts


def test_pinned_memory_is_tried_where_there_is_an_accelerator() -> None:
    best: Settings = {"num_workers": 2, "pin_memory": True, "prefetch_factor": 2}
    tried = dataloader.refine(bench(facts("cuda")), best)
    assert {(s["pin_memory"], s["prefetch_factor"]) for s in tried} == {(True, 2), (True, 4), (False, 2), (False, 4)}
    assert {s["pin_memory"] for s in dataloader.refine(bench(facts()), {**best, "pin_memory": False})} == {False}


def test_an_iterable_dataset_is_refused_because_samples_could_repeat() -> None:
    assert "iterable" in dataloader.not_applicable(facts(iterable=True))
    assert dataloader.not_applicable(facts()) == ""


@pytest.mark.parametrize(
    ("call", "now", "settings", "patched"),
    [
        ("DataLoader(d, 8)", {}, {"num_workers": 2}, "DataLoader(d, 8, num_workers=2)"),
        ("DataLoader(d, 8, num_workers=n)", {"num_workers": 4}, {"num_workers": 2}, "DataLoader(d, 8, num_workers=2)"),
        (
            "DataLoader(d, 8, True, None, None, 4)",
            {"num_workers": 4},
            {"num_workers": 2},
            "DataLoader(d, 8, True, None, None, 2)",
        ),
        (
            "DataLoader(d, num_workers=4, prefetch_factor=4, persistent_workers=True)",
            {"num_workers": 4, "prefetch_factor": 4},
            {"num_workers": 0},
            "DataLoader(d, num_workers=0)",
        ),
        (
            "DataLoader(d)",
            {},
            {"num_workers": 2, "prefetch_factor": 4},
            "DataLoader(d, num_workers=2, prefetch_factor=4)",
        ),
        ("DataLoader(d)", {}, {"num_workers": 2, "pin_memory": True}, "DataLoader(d, num_workers=2, pin_memory=True)"),
    ],
)
def test_the_loader_patch(call: str, now: dict[str, object], settings: Settings, patched: str) -> None:
    workers = int(str(settings["num_workers"]))
    full: Settings = {"pin_memory": False, "prefetch_factor": 2 if workers else None, **settings}
    assert _patched(dataloader, call, facts(**now), full) == patched


@pytest.mark.parametrize(
    ("call", "patched"),
    [
        ("DataLoader(d, 32)", "DataLoader(d, 64)"),
        ("DataLoader(d, batch_size=B)", "DataLoader(d, batch_size=64)"),
        ("DataLoader(d)", "DataLoader(d, batch_size=64)"),
    ],
)
def test_the_batch_size_patch(call: str, patched: str) -> None:
    assert _patched(batch_size, call, facts(), {"batch_size": 64}) == patched


def _patched(module: ModuleType, text: str, given: dict[str, Any], settings: Settings) -> str:
    source = Source("x.py", text)
    edits = module.edits(source, source.nodes(ast.Call)[0], settings, given)
    return edit.apply(text, edits)


def test_batch_sizes_grow_only_as_far_as_a_step_provably_fits() -> None:
    """Peak 10 + 2 a sample; the process holds 100 besides; the budget of 1,000 allows 445."""
    asked: list[int] = []

    def probe(settings: Settings) -> Probe:
        size = int(str(settings["batch_size"]))
        asked.append(size)
        peak = 10 + 2 * size
        assert peak + 100 <= 1000, "a batch was tried that does not fit"
        return Probe(settings, peak, peak + 100)

    sizes = [s["batch_size"] for s in batch_size.candidates(bench(facts(), memory=1000, probe=probe))]
    assert sizes == [16, 64, 128, 256, 441]
    assert asked == [32, 64, 128, 256, 441]


def test_running_out_of_memory_ends_the_growth_as_a_result() -> None:
    def probe(settings: Settings) -> Probe:
        return (
            Probe(settings, 1, 1)
            if settings["batch_size"] == 32
            else Probe(settings, failure="out of memory", out_of_memory=True)
        )

    assert batch_size.candidates(bench(facts(), probe=probe)) == [{"batch_size": 16}]


def test_a_batch_never_exceeds_the_dataset() -> None:
    given = {**facts(), "dataset_length": 100}
    assert batch_size.candidates(bench(given)) == [{"batch_size": 16}, {"batch_size": 64}]


def test_cudnn_matters_on_cuda_only() -> None:
    assert cudnn.not_applicable(facts()) == "cuDNN runs on CUDA devices, and this training runs on cpu"
    on_cuda = {**facts("cuda"), "cudnn_benchmark": False}
    assert cudnn.not_applicable(on_cuda) == ""
    assert (cudnn.current(on_cuda), cudnn.candidates(bench(on_cuda))) == ({"benchmark": False}, [{"benchmark": True}])


def test_every_way_of_averaging_keeps_the_same_average() -> None:
    """After three updates all ways agree with the formula; only the order of roundings differs."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    start = [p.detach().clone() for p in model.parameters()]
    expected = [p.clone() for p in start]
    kept: dict[str, Any] = {}
    for way in ema.WAYS:
        update, averages = _update_and_averages(way, model)
        kept[way] = averages
        kept[way, "update"] = update
    for _ in range(3):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        expected = [
            ema.DECAY * e + (1 - ema.DECAY) * p.detach() for e, p in zip(expected, model.parameters(), strict=True)
        ]
        for way in ema.WAYS:
            kept[way, "update"]()
    for way in ema.WAYS:
        if way.startswith("averaged_model"):
            continue  # its first update copies, as its documentation says
        for ours, theirs in zip(kept[way], expected, strict=True):
            torch.testing.assert_close(ours, theirs)


def _update_and_averages(way: str, model: Any) -> tuple[Any, list[Any]]:
    update = ema.updater(way, model)
    cells = {
        name: cell.cell_contents
        for name, cell in zip(update.__code__.co_freevars, update.__closure__ or (), strict=True)
    }
    inner = cells.get("func", update)  # what `torch.no_grad()` wraps
    cells = {
        name: cell.cell_contents for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True)
    }
    return update, cells.get("kept", [])


def test_the_users_own_average_is_the_setting_to_beat() -> None:
    with_ema = {**facts(), "has_ema": True}
    assert ema.current(with_ema)["average"] == "yours"
    tried = ema.candidates(bench(with_ema))
    assert ema.REFERENCE in tried and len(tried) == 8


def test_who_keeps_no_average_is_told_the_cheapest_way_and_no_saving() -> None:
    assert ema.current(facts()) == ema.REFERENCE
    tried = ema.candidates(bench(facts()))
    assert ema.REFERENCE not in tried and len(tried) == 7
    assert "no build_ema" in ema.without(facts(), tried[2])
    assert ema.without({**facts(), "has_ema": True}, tried[2]) == ""
