"""benchmarks/ladder.py: records become tables, programs are found. The two of benchmarks/gpt2 train alike. Nothing is timed."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import ladder  # noqa: E402  # it stands in that folder

from perfaudit.static.scan import scan  # noqa: E402

NAIVE, EXPERT = BENCHMARKS / "gpt2" / "naive.py", BENCHMARKS / "gpt2" / "expert.py"

# ---- tables ------------------------------------------------------------------------------------------------------------


def rung(words: str, **changed: Any) -> dict[str, Any]:
    middle = {"from_start": 0.5, "from_low": 0.45, "from_high": 0.55, "seconds_per_step": 0.1}
    return {"words": words, "dropped": "", "changes": [], "peak_memory_bytes": 3 * 2**19, **middle, **changed}


def record(**changed: Any) -> dict[str, Any]:
    climb = {
        "rungs": [
            rung("fused attention", changes=["rounding"]),
            rung("a fused update", dropped="it no longer pays", seconds_per_step=None),
        ],
        "changes": ["rounding"],
        "ratio": 0.5,
        "low": 0.4,
        "high": None,
        "patched_seconds_per_step": 0.1,
        "verified": "the losses agree",
        "trouble": "",
        "left": [{"knob": name, "reason": "there is no convolution"} for name in ("cudnn", "conv_bias")],
    }
    return {
        "command": "perfaudit tune gpt2.py --all",
        "options": "--budget 600 --race 300 --programs 4 --device cuda",
        "machine": "a device",
        "load": [0.5, 1.5],
        "seconds": 60,
        "ladder": climb,
        "apply": [0, "1 file patched"],
        "race": {
            "ms": {"sample": 200.0, "climbed": 100.0, "twin": 80.0},
            "ratios": {
                "climbed / sample": [0.5, 0.45, 0.55, 12],
                "twin / sample": [0.4, 0.35, 0.45, 12],
                "twin / climbed": [0.8, 0.5, 1.0, 12],
            },
        },
        "programs": None,
        **changed,
    }


def test_the_page_is_that_of_the_records() -> None:
    assert ladder.page() == (BENCHMARKS / "ladder.md").read_text(encoding="utf-8")


TABLE = """
## gpt2

`perfaudit tune gpt2.py --all` took 60 s on a device; load 0.5 before, 1.5 after.

| rung | ms per step | of the sample's step | peak memory, MiB | also changes |
|---|---|---|---|---|
| 1 fused attention | 100.0 | 0.500 [0.450, 0.550] | 1.5 | rounding |
| taken out again: a fused update | | it no longer pays | | |
| all of it, raced against the sample | 100.0 | 0.500 [0.400, inf] | | rounding |

- checked: the losses agree
- not climbed: cudnn, conv_bias: there is no convolution

| | ms per step | against the sample | against the twin |
|---|---|---|---|
| sample | 200.0 | 1 |  |
| climbed | 100.0 | 0.500 [0.450, 0.550] | 1.250 [1.000, 2.000] |
| twin | 80.0 | 0.400 [0.350, 0.450] | 1 |

`perfaudit apply report.json` on the fresh copy: 1 file patched (exit 0).
Of the twin's speed the climb reaches 80 % [50, 100].
"""


def test_the_table() -> None:
    assert ladder.table("gpt2", record()) == TABLE.lstrip("\n")


SCREENED = """
| rung | alone, screened | beside the others | also changes |
|---|---|---|---|
| 1 fused attention | 0.500 [0.450, 0.550] | 0.600 [0.580, 0.620] | rounding |
| taken out again: a fused update | 0.900 [0.800, 0.990] | not measured | it no longer pays |

All of it, {how}: 0.500 [0.400, inf], 200.0 -> 100.0 ms per step.

- checked: the losses agree
"""


@pytest.mark.parametrize(("basis", "how"), [("screened", "screened"), ("measured", "raced in fresh processes")])
def test_the_table_of_rungs_that_were_screened(basis: str, how: str) -> None:
    """A rung has no time and no ratio on top of the others any more; these keys are null."""
    null = dict.fromkeys(("from_start", "from_low", "from_high", "seconds_per_step", "peak_memory_bytes"))
    first, second = (
        {**rung("fused attention", changes=["rounding"]), **null, "ratio": 0.5, "low": 0.45, "high": 0.55},
        {**rung("a fused update", dropped="it no longer pays"), **null, "ratio": 0.9, "low": 0.8, "high": 0.99},
    )
    rungs = [{**first, "beside": [0.6, 0.58, 0.62]}, {**second, "beside": None}]
    climb = {**record()["ladder"], "rungs": rungs, "basis": basis, "seconds_per_step": 0.2}
    assert SCREENED.format(how=how).strip() in ladder.table("gpt2", record(ladder=climb))


def test_a_climb_without_rungs_has_no_figures() -> None:
    climb = {**record()["ladder"], "rungs": [], "ratio": None, "verified": ""}
    text = ladder.table("gpt2", record(ladder=climb))
    assert "All of it" not in text and "- not climbed: cudnn, conv_bias: there is no convolution" in text


def test_a_race_that_was_not_made_is_told_as_such() -> None:
    text = ladder.table(
        "gpt2",
        record(
            race={"ms": {"sample": 200.0}, "ratios": {"twin / climbed": None}, "failures": {"twin": "out of memory"}}
        ),
    )
    assert text.endswith("Not raced to the end: twin: out of memory\n")
    assert "| climbed | nan | not measured | not measured |" in text
    assert "the climb reaches" not in text


def test_a_step_of_the_programs_in_their_own_loops() -> None:
    found = {
        "steps": [10, 40],
        "seconds": {"sample": [0.2, 0.2, 0.2], "climbed": [0.1, 0.1, 0.1], "twin": [0.05, 0.05, 0.05]},
    }
    assert ladder.table("gpt2", record(programs=found)).endswith(
        "As programs (`--steps 10` and `--steps 40`, 3 rounds), a step of their own loop: sample 200 ms, climbed 100 ms, "
        "twin 50 ms; against the sample: climbed 0.500 [0.500, 0.500], twin 0.250 [0.250, 0.250].\n"
    )


def test_the_page_has_the_command_and_the_records_of_every_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "HERE", tmp_path)
    (tmp_path / "ladder_cpu.json").write_text(json.dumps({"char_gpt": record()}))
    (tmp_path / "ladder_cuda.json").write_text(json.dumps({"char_gpt": record(), "gpt2": record()}))
    page = ladder.page()
    assert "\n    python benchmarks/ladder.py gpt2 --budget 600 --race 300 --programs 4 --device cuda --write\n" in page
    assert re.findall(r"^## (\w+)", page, flags=re.MULTILINE) == ["char_gpt", "char_gpt", "gpt2"]


# ---- what is climbed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", ladder.ALLOW)
def test_every_sample_has_a_program_a_twin_and_numbers_of_steps(sample: str) -> None:
    slow, fast = ladder.texts_of(sample)
    assert slow.split('"""')[1].count("Slow on purpose") == fast.split('"""')[1].count("Changed:") == 1
    short, long = ladder.STEPS[sample]
    assert 0 < short < long


def called(monkeypatch: pytest.MonkeyPatch, device: str, *arguments: str) -> list[tuple[str, str]]:
    """Samples and devices that the command climbs on a machine with this device."""
    climbs: list[tuple[str, str]] = []

    def climbed(sample: str, budget: float, race: float, rounds: int, device: str) -> dict[str, Any]:
        climbs.append((sample, device))
        return record()

    monkeypatch.setattr(ladder, "climbed", climbed)
    monkeypatch.setattr(ladder, "_device", lambda: device)
    monkeypatch.setattr(sys, "argv", ["ladder.py", *arguments])
    ladder.main()
    return climbs


def test_gpt2_is_refused_in_one_line_without_an_accelerator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        called(monkeypatch, "cpu", "char_gpt", "gpt2")
    assert left.value.code == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert said.err.startswith("gpt2 takes hours on a CPU")


@pytest.mark.parametrize(
    ("device", "arguments", "climbs"),
    [
        ("cpu", ["gpt2", "--device", "cpu"], [("gpt2", "cpu")]),
        ("cuda", ["gpt2"], [("gpt2", "auto")]),
        ("cpu", ["char_gpt"], [("char_gpt", "auto")]),
    ],
)
def test_what_is_climbed_where(
    monkeypatch: pytest.MonkeyPatch, device: str, arguments: list[str], climbs: list[tuple[str, str]]
) -> None:
    assert called(monkeypatch, device, *arguments) == climbs


# ---- the two programs of benchmarks/gpt2 -------------------------------------------------------------------------------

Programs = tuple[ModuleType, ModuleType]
TINY = {"VOCABULARY": 64, "BLOCK": 16, "LAYERS": 2, "HEADS": 2, "WIDTH": 32, "BATCH_SIZE": 4, "SAMPLES": 8}


@pytest.fixture
def programs() -> Iterator[Programs]:
    """naive.py and expert.py as modules; what the expert sets for the whole process is put back."""
    import torch

    before = torch.get_float32_matmul_precision()
    naive = imported(NAIVE)
    assert torch.get_float32_matmul_precision() == before
    expert = imported(EXPERT)
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision(before)
    yield naive, expert


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"gpt2_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models whose `compile` was called; it does nothing else, because a compiler takes longer than a test may."""
    import torch

    models: list[Any] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda model: models.append(model))
    return models


@pytest.fixture
def tiny(programs: Programs, compiled: list[Any], monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Both programs with a few layers and one size of vocabulary."""
    for module in programs:
        for name, value in TINY.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(programs[1], "TOKENS", TINY["VOCABULARY"])
    return programs


def models_alike(naive: ModuleType, expert: ModuleType) -> tuple[Any, Any]:
    """Both models with the same parameters, so large that every layer tells in the loss; added rows of the vocabulary are 0."""
    import torch

    torch.manual_seed(0)
    slow, fast = naive.build_model(), expert.build_model()
    with torch.no_grad():
        for (name, mine), (other, its) in zip(slow.named_parameters(), fast.named_parameters(), strict=True):
            assert name == other
            mine.normal_(std=0.3)
            its.zero_()[: len(mine)] = mine
    return slow, fast


def test_gpt2_the_header_says_what_is_found() -> None:
    header = set(re.findall(r"^- (PA\d+):", NAIVE.read_text(), flags=re.MULTILINE))
    assert {finding.rule for finding in scan([str(NAIVE)]).findings} == header
    assert scan([str(EXPERT)]).findings == ()


def test_gpt2_is_as_large_as_the_published_one(programs: Programs, compiled: list[Any]) -> None:
    import torch

    with torch.device("meta"):
        naive, expert = (sum(p.numel() for p in module.build_model().parameters()) for module in programs)
    assert naive == 124_439_808
    assert expert - naive == (50304 - 50257) * 768
    assert {name: vars(programs[0])[name] for name in TINY if name != "VOCABULARY"} == {
        name: vars(programs[1])[name] for name in TINY if name != "VOCABULARY"
    }


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
@pytest.mark.parametrize("number", [0, 1], ids=["naive", "expert"])
def test_gpt2_takes_a_step(tiny: Programs, compiled: list[Any], number: int) -> None:
    import torch

    module = tiny[number]
    torch.manual_seed(0)
    model = module.build_model()
    optimizer = module.build_optimizer(model)
    batch = next(iter(module.build_dataloader()))
    assert [tuple(part.shape) for part in batch] == [(4, 16), (4, 16)]
    assert torch.equal(batch[0][:, 1:], batch[1][:, :-1])
    before = module.training_step(model, batch)
    before.backward()
    optimizer.step()
    assert module.training_step(model, batch).item() < before.item()
    assert (compiled == [model]) == (number == 1)
    assert bool(optimizer.defaults["fused"]) == (number == 1)


def test_gpt2_both_compute_the_same_in_float32(tiny: Programs, compiled: list[Any]) -> None:
    import torch

    slow, fast = models_alike(*tiny)
    tokens = torch.randint(64, (4, 16))
    torch.testing.assert_close(fast(tokens), slow(tokens), rtol=1e-4, atol=1e-4)


def test_gpt2_the_losses_differ_by_no_more_than_bfloat16_rounds(tiny: Programs, compiled: list[Any]) -> None:
    import torch

    slow, fast = models_alike(*tiny)
    seen: list[torch.dtype] = []
    fast.head.register_forward_hook(lambda module, given, made: seen.append(made.dtype))
    batch = torch.randint(64, (4, 16)), torch.randint(64, (4, 16))
    wanted, got = tiny[0].training_step(slow, batch).item(), tiny[1].training_step(fast, batch).item()
    assert seen == [torch.bfloat16]
    assert got == pytest.approx(wanted, rel=2**-8)
    assert got != wanted


def test_gpt2_padding_adds_entries_to_the_softmax_and_nothing_else(
    tiny: Programs, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of zeros have the logit 0; no token of the data is one of them."""
    import torch
    from torch.nn import functional as F

    naive, expert = tiny
    monkeypatch.setattr(naive, "VOCABULARY", 57)
    monkeypatch.setattr(expert, "TOKENS", 57)
    slow, fast = models_alike(naive, expert)
    inputs, targets = (tokens[:4] for tokens in expert.build_dataloader().dataset.tensors)
    assert max(inputs.max(), targets.max()) < 57
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            naive.build_dataloader().dataset.tensors, expert.build_dataloader().dataset.tensors, strict=True
        )
    )
    padded = F.pad(slow(inputs), (0, 64 - 57))
    torch.testing.assert_close(fast(inputs), padded, rtol=1e-4, atol=1e-4)
    wanted = F.cross_entropy(padded.flatten(0, 1), targets.flatten()).item()
    assert expert.training_step(fast, (inputs, targets)).item() == pytest.approx(wanted, rel=2**-8)


@pytest.mark.gpu
@pytest.mark.parametrize("number", [0, 1], ids=["naive", "expert"])
def test_gpt2_takes_a_step_of_its_real_size_on_a_cuda_device(
    programs: Programs, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sibling of the step above, compiled where the program compiles; one sample, so that any card holds it."""
    import torch

    module = programs[number]
    monkeypatch.setattr(module, "BATCH_SIZE", 1)
    torch.manual_seed(0)
    model = module.build_model().to("cuda")
    optimizer = module.build_optimizer(model)
    batch = [part.to("cuda") for part in next(iter(module.build_dataloader()))]
    before = module.training_step(model, batch)
    before.backward()
    optimizer.step()
    assert module.training_step(model, batch).item() < before.item()
