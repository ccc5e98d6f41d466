"""cuDNN's benchmark mode: where it matters, and what sizes that change cost it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from surveys import survey_of

from perfaudit.knobs import Bench, Probe, Reply, Survey, Told, Unanswered, cudnn
from perfaudit.knobs._code import Code
from perfaudit.measurements import Settings
from perfaudit.target.flags import flags

KNOB = cudnn.KNOB


def survey(device: str = "cuda", benchmark: bool = False, convolutions: int = 3) -> Survey:
    flags = {"cudnn.benchmark": benchmark}
    return survey_of(device={"type": device}, flags=flags, model={"convolutions": convolutions})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (survey(), ""),
        (survey("cpu"), "cuDNN runs on CUDA devices, and this training runs on cpu"),
        (survey(convolutions=0), "the model has no convolution"),
    ],
)
def test_where_it_cannot_matter(given: Survey, reason: str) -> None:
    assert KNOB.not_applicable(given) == reason


@pytest.mark.parametrize("now", [True, False])
def test_the_other_setting_is_tried_and_changing_sizes_are_asked_for(now: bool) -> None:
    reply: Reply = {"on": 3.0, "off": 1.0, "fixed": 1.0, "convolutions": 3, "sizes": 8}

    def ask(settings: Settings, question: str) -> Reply:
        assert (settings, question) == ({"benchmark": now}, "changing_shapes")
        return reply

    bench = Bench(survey(benchmark=now), 2, 1, lambda s: Probe(s), ask)
    assert KNOB.candidates(bench) == [{"benchmark": not now}]
    assert bench.kept == {"changing": reply}


def test_a_question_without_an_answer_stops_nothing() -> None:
    def ask(settings: Settings, question: str) -> Reply:
        raise Unanswered("out of memory")

    bench = Bench(survey(), 2, 1, lambda s: Probe(s), ask)
    assert KNOB.candidates(bench) == [{"benchmark": True}]
    assert KNOB.remarks(Told(survey(), (), (), bench.kept, None)) == []


@pytest.mark.parametrize(
    ("on", "said"),
    [
        (
            5.2,
            "with sizes that change on each step, benchmark costs: a pass through the 3 convolutions on sizes never seen before "
            "takes 5.2 times as long with it on",
        ),
        (1.05, "a pass through the 3 convolutions on sizes never seen before takes no longer with benchmark on"),
    ],
)
def test_what_is_said_of_changing_sizes(on: float, said: str) -> None:
    kept = {"changing": {"on": on, "off": 1.0, "fixed": 0.5, "convolutions": 3, "sizes": 8}}
    assert KNOB.remarks(Told(survey(), (), (), kept, None)) == [said]


class Training:
    """Two convolutions on the CPU; keeps the flag and the size of each pass through the second one."""

    def __init__(self, device: str = "cpu") -> None:
        import torch

        self.device = torch.device(device)
        self.model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Conv2d(2, 2, 3, padding=1)).to(device)
        self.passes: list[tuple[bool, int]] = []
        self.model[1].register_forward_hook(self._keep)

    def _keep(self, module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        self.passes.append((bool(flags()["cudnn.benchmark"]), inputs[0].shape[-1]))

    def fixed_batch(self) -> Any:
        import torch

        return torch.ones(1, 1, 8, 8, device=self.device)

    def loss(self, batch: Any) -> Any:
        return self.model(batch).sum()

    def synchronize(self) -> None:
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize()


def test_no_size_is_seen_twice_with_benchmark_off_and_on() -> None:
    """A clock that jumps 1 s each time it is read: each of the two convolutions takes 1 s a pass."""
    ticks = iter(range(10_000))
    training, before = Training(), flags()
    reply = KNOB.answer_changing_shapes(training, clock=lambda: float(next(ticks)))
    assert reply == {"convolutions": 2, "sizes": 8, "fixed": 2.0, "off": 2.0, "on": 2.0}
    sizes = {flag: [size for was, size in training.passes[1:] if was is flag and size != 6] for flag in (True, False)}
    assert sizes == {False: [7, 9, 11, 13, 15, 17, 19, 21], True: [8, 10, 12, 14, 16, 18, 20, 22]}
    assert flags() == before


def test_words_and_promises() -> None:
    assert KNOB.words({"benchmark": False}, survey(benchmark=True)).endswith("benchmark = False once before training")
    assert KNOB.words({"benchmark": True}, survey()).endswith(", as long as inputs keep their shapes")
    assert KNOB.changes({"benchmark": True}) == ("rounding",)


def test_the_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\nprint(1)\n")
    patch = KNOB.patch(Code("train.py", survey()), {"benchmark": True})
    assert patch and patch.after == "import torch\ntorch.backends.cudnn.benchmark = True\nprint(1)\n"


@pytest.mark.gpu
def test_changing_sizes_are_timed_on_a_cuda_device() -> None:
    reply = KNOB.answer_changing_shapes(Training("cuda"))
    assert min(reply["fixed"], reply["off"], reply["on"]) > 0
