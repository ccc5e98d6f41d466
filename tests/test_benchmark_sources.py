"""benchmarks/sources.py: every case builds, rounds become ratios, ratios become a table. Nothing is timed."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import families  # noqa: E402  # they stand in that folder
import sources  # noqa: E402

TINY = sources.Place("cpu", tiny=True)
# Enough to build: the other models of the family are made by the same lines.
BUILT = [case for case in sources.CASES if "ema-wrapper" not in case.name or case.name.endswith(("-18", "-tiny"))]


@pytest.mark.parametrize("case", BUILT, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:'pin_memory' argument", "ignore:`torch.jit.script` is deprecated")
def test_a_case_has_the_variants_of_its_headline(case: sources.Case) -> None:
    variants = case.build(TINY)
    for call in variants.values():
        call()
    assert case.baseline in variants
    # What only an accelerator has is named in the case all the same.
    assert {name for name in variants if name != case.baseline} <= set(case.candidates)
    missing = set(case.candidates) - set(variants)
    assert all("graph" in name.lower() or "reduce-overhead" in name for name in missing)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("ResNet-18", 11_689_512),
        ("ResNet-34", 21_797_672),
        ("ResNet-50", 25_557_032),
        ("ResNet-101", 44_549_160),
        ("ViT-Tiny", 5_717_416),
        ("ViT-Small", 22_050_664),
        ("ViT-Base", 86_567_656),
    ],
)
def test_models_are_as_large_as_those_published(name: str, parameters: int) -> None:
    import torch

    with torch.device("meta"):
        model = families.FAMILIES[name](224)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_averages_agree_however_they_are_updated() -> None:
    import torch

    weights = [torch.randn(3, 4), torch.randn(5)]
    start = [torch.randn(3, 4), torch.randn(5)]
    kept = []
    for update in (sources.mul_add, sources.lerp, sources.foreach_lerp):
        average = [tensor.clone() for tensor in start]
        update(average, weights)
        kept.append(average)
    for average in kept[1:]:
        torch.testing.assert_close(average, kept[0])
    assert not torch.equal(kept[0][0], start[0])


def test_gelu_written_out_is_gelu() -> None:
    import torch

    x = torch.linspace(-4, 4, 101)
    torch.testing.assert_close(families.gelu(x), torch.nn.functional.gelu(x), atol=1e-4, rtol=1e-4)


def test_an_image_is_decoded_and_normalised() -> None:
    image, target = sources.Digits(20)[13]
    assert image.shape == (1, 28, 28)
    assert target == 3
    # 0 and 255 of the stored bytes, by the mean and deviation of MNIST
    assert image.min().item() == pytest.approx(-0.1307 / 0.3081)
    assert image.max().item() == pytest.approx((1 - 0.1307) / 0.3081)


def test_every_round_has_each_variant_twice_in_mirrored_order(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Told(sources.Clock):
        def block(self, call: sources.Call, count: int) -> float:
            call()
            return {"a": 0.2, "b": 0.3, "c": 0.4}[order[-1]]

    monkeypatch.setattr(sources, "FEWEST_PER_PROCESS", 2)
    variants = {name: lambda name=name: order.append(name) for name in "abc"}
    rounds = sources.rounds_of(variants, Told(TINY, ahead=False), seconds=0, seed=1)
    assert rounds == [{"a": [0.2, 0.2], "b": [0.3, 0.3], "c": [0.4, 0.4]}] * 2
    measured = order[6:]  # two calls each before, to warm up
    for start in (0, 6):
        assert measured[start : start + 3] == measured[start + 3 : start + 6][::-1]


def test_variants_with_processes_of_their_own_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in sources.CASES if case.apart)

    def run_child(options: object, case: object, seed: int, cache: Path, variant: str) -> dict[str, Any]:
        return {"rounds": [{variant: [0.1, 0.1]}] * (3 if variant == "benchmark on" else 2), "load": 1.0, "device": "a"}

    monkeypatch.setattr(sources, "run_child", run_child)
    together = sources.run_case(None, case, 0, Path())
    assert together["rounds"] == [{"benchmark off": [0.1, 0.1], "benchmark on": [0.1, 0.1]}] * 2


def test_drift_within_a_round_cancels() -> None:
    # Everything gets slower by a tenth from block to block: base, candidate, candidate, base.
    current = {"base": [1.0, 1.1**3], "candidate": [1.1, 1.1**2]}
    assert sources.log_ratios([[current, current]], "base", "candidate") == [[pytest.approx(0), pytest.approx(0)]]


def processes(ratio: float, noise: float = 0.01) -> list[list[sources.Round]]:
    """Four processes that say `ratio`, some more and some less."""
    return [
        [{"base": [0.1, 0.1], "candidate": [0.1 * ratio * math.exp(off)] * 2}] * 3
        for off in (-noise, noise, -noise / 2, noise / 2)
    ]


@pytest.mark.parametrize(
    ("figure", "ratio", "noise", "words"),
    [
        (sources.Figure("−40 %", 0.6, 0.6), 0.60, 0.01, "reproduced"),
        (sources.Figure("−40 %", 0.6, 0.6), 0.64, 0.01, "reproduced"),
        (sources.Figure("close to 4×", 0.25, 0.3), 0.40, 0.01, "same direction, smaller"),
        (sources.Figure("570 → 620", 0.92, 0.96), 0.98, 0.001, "same direction, smaller"),
        (sources.Figure("−40 %", 0.6, 0.6), 0.30, 0.01, "same direction, larger"),
        (sources.Figure("−40 %", 0.6, 0.6), 0.90, 0.01, "same direction, smaller"),
        (sources.Figure("−40 %", 0.6, 0.6), 1.00, 0.01, "undecided here: not reproduced"),
        (sources.Figure("−40 %", 0.6, 0.6), 1.20, 0.01, "not reproduced: slower here"),
        (sources.Figure("1.00–1.46×", 1 / 1.46, 1.0), 0.90, 0.01, "reproduced"),
        (
            sources.Figure("1.00–1.46×", 1 / 1.46, 1.0),
            1.00,
            0.01,
            "undecided here; the source's range begins at 1.00 too",
        ),
        (
            sources.Figure("−40 %", 0.6, 0.6),
            0.75,
            0.1,
            "same direction, smaller; the source's figure is inside our interval",
        ),
        (sources.Figure("for the average", 1.0, 1.0), 1.00, 0.01, "no difference to be called"),
        (None, 1.00, 0.01, "no figure; undecided"),
        (None, 0.50, 0.01, "no figure; faster"),
        (None, 2.00, 0.01, "no figure; slower"),
    ],
)
def test_what_is_said_of_a_figure(figure: sources.Figure | None, ratio: float, noise: float, words: str) -> None:
    found = sources.result(processes(ratio, noise), "base", "candidate")
    assert found is not None
    assert found.low < ratio < found.high
    assert found.candidate_s == pytest.approx(0.1 * ratio, rel=0.1)
    assert sources.outcome(figure, found) == words


@pytest.mark.parametrize("said", [[], processes(0.5)[:1]])
def test_one_process_is_no_interval(said: list[list[sources.Round]]) -> None:
    assert sources.result(said, "base", "candidate") is None


def stored(kind: str, **entries: dict[str, Any]) -> dict[str, Any]:
    cases = {
        name.replace("_", "-"): {"processes": [], "loads": [], "error": "", **entry} for name, entry in entries.items()
    }
    return {"command": "python …", "device_kind": kind, "device": "a device", "threads": 1, "cases": cases}


def gelu_processes() -> list[list[sources.Round]]:
    names = {"written out, eager": 0.01, "torch.jit.script": 0.0025, "torch.compile": 0.002, "F.gelu": 0.001}
    return [[{name: [seconds * off] * 2 for name, seconds in names.items()}] for off in (1.0, 1.01, 0.99)]


def test_the_table() -> None:
    table = sources.rows(
        stored(
            "cpu",
            cudnn_benchmark={},
            gelu_forward={"processes": gelu_processes(), "loads": [0.5, 2.0, None]},
            gelu_backward={"error": "no C++ compiler"},
            ema_lerp_resnet_50={"processes": [[{"mul_, add_": [0.1, 0.1], "lerp_": [0.1, 0.1]}]]},
        )
    )
    assert [[*row[2:4], row[5]] for row in table] == [
        ["1430 → 840 µs", "–", "does not apply here: the flag is read by cuDNN only"],
        [
            "close to 4×",
            "0.250 [0.250, 0.250]; 10 → 2.5 ms/evaluation",
            "reproduced; memory traffic and allocation are saved here, not launches",
        ],
        ["close to 4×", "0.200 [0.200, 0.200]; 10 → 2 ms/evaluation", "same direction, larger"],
        ["–", "0.100 [0.100, 0.100]; 10 → 1 ms/evaluation", "no figure; faster"],
        ["–", "–", "not measured: no C++ compiler"],
        ["−40 % GPU time", "–", "not measured: too few processes"],
    ]


def test_the_page_is_one_table_and_says_where() -> None:
    page = sources.page(stored("cpu", gelu_forward={"processes": gelu_processes(), "loads": [0.5, 2.0, None]}))
    table = [line for line in page.partition("## On two ranks")[0].splitlines() if line.startswith("|")]
    assert len(table) == 5
    assert {line.count("|") for line in table} == {7}
    assert "`python …` on a device, 1 thread(s), load average 0.5 to 2.0." in page
    assert "Finished processes per case: 3;" in page
    assert "On two ranks" not in sources.page(stored("cuda"))


def test_stored_rounds_come_back() -> None:
    kept = stored("cpu", gelu_forward={"processes": gelu_processes(), "loads": [0.5]}, cudnn_benchmark={})
    assert sources.page(json.loads(sources.dumped(kept))) == sources.page(kept)


def test_names_are_those_of_one_case_each() -> None:
    names = [case.name for case in sources.CASES]
    assert len(set(names)) == len(names)
