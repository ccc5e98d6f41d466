"""torch.compile: what is tried on which device, what a child tells, when no verdict can follow, patch and words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from surveys import survey_of

from perfaudit.knobs import Bench, Probe, Survey, Told, Unanswered
from perfaudit.knobs._code import Code
from perfaudit.knobs.compile import GENERATIONS, KNOB, _told_break, _was_cached
from perfaudit.measure.gather_facts import drops_values
from perfaudit.measure.stats import LOOKS
from perfaudit.measurements import Comparison, Trial

OFF, ON, GRAPHS = {"compile": "off"}, {"compile": "default"}, {"compile": "reduce-overhead"}


def survey(device: str = "cpu", cxx: str | None = "/usr/bin/g++", length: int = 100, **model: object) -> Survey:
    loader = {"dataset_length": length, "epoch_batches": 10, "batch_size": 10}
    return survey_of(device={"type": device}, host={"cxx": cxx}, loader=loader, model=model)


class Asked:
    """Answers as children would give them: compile seconds by mode, from scratch and from the cache; notes the questions."""

    def __init__(self, cold: dict[str, float], warm: float = 1.0, failure: str = "") -> None:
        self.cold, self.warm, self.failure = cold, warm, failure
        self.questions: list[tuple[str, str]] = []

    def __call__(self, settings: Any, question: str, timeout: float = 0.0, again: bool = False) -> dict[str, Any]:
        self.questions.append((settings["compile"], question))
        if question == "explain":
            return {"graphs": 1, "breaks": []}
        if self.failure or settings["compile"] not in self.cold:
            raise Unanswered(self.failure or "train.py: RuntimeError: no graph")
        seconds = self.warm if again else self.cold[settings["compile"]]
        return {"compile_seconds": seconds, "step_seconds": 0.1, "cached": again}


def bench(given: Survey, asked: Any, seconds: float = 300.0) -> Bench:
    return Bench(given, 2, 0, lambda s: Probe(s), asked, {}, lambda: seconds, seconds)


def test_what_it_counts_on_is_so() -> None:
    assert LOOKS[0].generations == GENERATIONS


@pytest.mark.parametrize(
    ("given", "tried"),
    [(survey(), [ON]), (survey("cuda"), [ON, GRAPHS])],
)
def test_cuda_graphs_are_tried_on_cuda_only(given: Survey, tried: list[dict[str, str]]) -> None:
    assert KNOB.candidates(bench(given, Asked({"default": 20.0, "reduce-overhead": 20.0}))) == tried


def test_a_mode_that_fails_is_a_result_with_its_reason() -> None:
    given = survey("cuda")
    made = bench(given, Asked({"default": 20.0}))
    assert KNOB.candidates(made) == [ON]
    assert made.kept["why"] == ["compiling (reduce-overhead) failed: train.py: RuntimeError: no graph"]


@pytest.mark.parametrize(
    ("asked", "seconds", "words"),
    [
        (
            Asked({"default": 36.0}, warm=30.0),
            100.0,
            "keep what you have: compiling (default) took 36 s, and a verdict takes 4 more starts of 30 s each, for which "
            "100 s were left: give it longer with --budget",
        ),
        (
            Asked({}, failure="no answer within 100 s"),
            100.0,
            "keep what you have: compiling (default) was not finished within 100 s, give it longer with --budget",
        ),
        (
            Asked({}, failure="CppCompileError: C++ compile error"),
            100.0,
            "keep what you have: compiling (default) failed: CppCompileError: C++ compile error",
        ),
    ],
)
def test_what_cannot_lead_to_a_verdict_is_not_begun(asked: Asked, seconds: float, words: str) -> None:
    made = bench(survey(), asked, seconds)
    assert KNOB.candidates(made) == []
    assert KNOB.kept_words(Told(made.survey, (), (), made.kept, None)) == words


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (survey(), ""),
        (survey(compiled=True), "the model is compiled already"),
        (
            survey(cxx=None),
            "torch.compile needs a C++ compiler for the CPU, and there is no g++ here; install it or set CXX",
        ),
        (survey("cuda", cxx=None), ""),
    ],
)
def test_where_it_cannot_matter(monkeypatch: pytest.MonkeyPatch, given: Survey, reason: str) -> None:
    monkeypatch.delenv("CXX", raising=False)
    assert KNOB.not_applicable(given) == reason


@pytest.mark.parametrize(
    ("settings", "dropouts", "line", "changes"),
    [
        (ON, 0, "model.compile()", ("rounding",)),
        (ON, 2, "model.compile()", ("rounding", "rng")),
        (GRAPHS, 0, 'model.compile(mode="reduce-overhead")', ("rounding",)),
    ],
)
def test_the_patch(
    project: Callable[..., Path], settings: dict[str, str], dropouts: int, line: str, changes: tuple[str, ...]
) -> None:
    project(**{"train.py": "from torch import nn\n\n\ndef build_model():\n    return nn.Linear(2, 2)\n"})
    patch = KNOB.patch(Code("train.py", survey(dropouts=dropouts)), settings)
    assert patch is not None
    assert patch.after.endswith(f"def build_model():\n    model = nn.Linear(2, 2)\n    {line}\n    return model\n")
    assert patch.changes == changes


def test_a_patch_holds_when_the_model_it_builds_is_compiled() -> None:
    assert KNOB.holds(survey(compiled=True), ON) and not KNOB.holds(survey(), ON)


def test_compiling_in_place_keeps_the_keys_and_is_undone() -> None:
    import torch

    model = torch.nn.Linear(2, 2)
    keys = list(model.state_dict())
    with KNOB.setup(ON).applied(SimpleNamespace(model=model, is_script=False)):
        assert model._compiled_call_impl is not None
        assert list(model.state_dict()) == keys
    assert model._compiled_call_impl is None


def test_explaining_names_each_break_with_the_users_line() -> None:
    import torch

    from perfaudit.knobs.compile import _call_of_model

    class Breaks(torch.nn.Module):
        def forward(self, x: Any, scale: float = 1.0) -> Any:
            x = x * scale
            torch._dynamo.graph_break()
            return x + 1

    model = Breaks()
    training: Any = SimpleNamespace(
        is_script=False,
        model=model,
        fixed_batch=lambda: torch.ones(2),
        around_loss=torch.enable_grad,
        loss=lambda batch: model(batch, scale=3.0).sum(),
        next_batch=iter([[torch.ones(2)], [torch.ones(2)], [torch.ones(3)]]).__next__,
        epoch_batches=3,
    )
    assert _call_of_model(training)[1] == {"scale": 3.0}
    reply = KNOB.answer_explain(training)
    assert (reply["graphs"], reply["batches"], reply["shapes"]) == (2, 3, 2)
    [broken] = reply["breaks"]
    line = Breaks.forward.__code__.co_firstlineno + 2
    assert f"test_compile.py:{line} `torch._dynamo.graph_break()` (" in broken
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("stack", "reason", "told"),
    [
        ([], "\nno such thing\n  hint: none", "no such thing"),
        (
            [("outer.py", 1, "f(x)"), ("model.py", 12, "if x.sum() > 0:")],
            "generic_jump TensorVariable()",
            "model.py:12 `if x.sum() > 0:` (a branch that depends on values of a tensor)",
        ),
    ],
)
def test_a_break_is_told_in_one_line(stack: list[tuple[str, int, str]], reason: str, told: str) -> None:
    frames = [SimpleNamespace(filename=path, lineno=number, line=line) for path, number, line in stack]
    assert _told_break(SimpleNamespace(user_stack=frames, reason=reason)) == told


def test_compile_seconds_are_what_the_first_steps_take_beyond_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([9.0, 2.0, 1.0, 1.0, 1.0, 4.0])
    monkeypatch.setattr("perfaudit.knobs.compile._timed_step", lambda training: next(times))
    monkeypatch.setattr("perfaudit.knobs.compile._was_cached", lambda: True)
    training = SimpleNamespace(fixed_batch=lambda: None, is_script=False)
    assert KNOB.answer_trial_compile(training) == {"compile_seconds": 9.0, "step_seconds": 1.0, "cached": True}


@pytest.mark.parametrize(
    ("counted", "cached"),
    [
        (
            {"inductor": {"fxgraph_cache_hit": 1}, "aot_autograd": {"autograd_cache_hit": 1}, "stats": {"calls": 9}},
            True,
        ),
        ({"inductor": {"fxgraph_cache_hit": 1, "fxgraph_cache_miss": 1}}, False),
        ({"stats": {"calls_captured": 9}}, False),  # no cache was asked
    ],
)
def test_whether_it_came_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, counted: dict[str, dict[str, int]], cached: bool
) -> None:
    monkeypatch.setattr("torch._dynamo.utils.counters", counted)
    assert _was_cached() is cached


def test_a_full_cache_is_not_sold_as_a_first_start() -> None:
    kept = {"default": {"cold": 8.0, "warm": 9.0, "cached": True}}
    assert KNOB.remarks(Told(survey(), (), (), kept, None)) == [
        "compiling (default) took 9 s from the cache on disk, which held it already; without, it takes longer"
    ]


def test_the_words_below_the_table() -> None:
    """A step of 0.2 s takes 0.75 times as long: 36 s of compiling are paid for by 720 steps that save 0.05 s each."""
    breaks = [f"m.py:{n}: item()" for n in range(7)]
    kept = {
        "explained": {"graphs": 8, "breaks": breaks},
        "default": {"cold": 36.0, "warm": 5.6, "cached": False},
        "why": [],
    }
    trials = (Trial("compile", OFF, "ok", median=0.2), Trial("compile", ON, "ok", median=0.15))
    compared = (Comparison("compile", OFF, ON, 0.75, 0.7, 0.8, "faster"),)
    odd = survey(length=97)
    assert KNOB.remarks(Told(odd, trials, compared, kept, ON)) == [
        "compiling (default) took 36 s at the first start here, 6 s from the cache on disk; it has paid for itself after "
        "720 steps",
        "the model compiles to 8 graphs, broken at m.py:0: item(); m.py:1: item(); m.py:2: item(); m.py:3: item(); "
        "m.py:4: item(); and 2 more",
        "the last batch of an epoch has 7 samples instead of 10, for which it compiles once more; drop_last=True avoids that",
    ]


def test_who_collects_outputs_of_cuda_graphs_is_warned() -> None:
    kept = {"reduce-overhead": {"cold": 36.0, "warm": 5.6, "cached": False}}
    for winner in (GRAPHS, None):
        [warning] = [r for r in KNOB.remarks(Told(survey("cuda"), (), (), kept, winner)) if "overwrites" in r]
        assert ".clone()" in warning and "cudagraph_mark_step_begin()" in warning
    assert KNOB.words(GRAPHS, survey("cuda")).endswith("so .clone() what is collected")
    kept = {"default": kept["reduce-overhead"]}
    assert not any("overwrites" in r for r in KNOB.remarks(Told(survey("cuda"), (), (), kept, ON)))
    assert "clone" not in KNOB.words(ON, survey("cuda"))


def test_what_is_asked_gets_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that the answers advance: explaining gets a third of 300 s, the second start what the first one left."""
    now, limits = [0.0], []

    def ask(settings: Any, question: str, timeout: float, again: bool = False) -> dict[str, Any]:
        limits.append(timeout)
        now[0] += 100.0 if question == "explain" else 50.0
        return {"graphs": 1, "breaks": []} if question == "explain" else {"compile_seconds": 9.0, "cached": again}

    monkeypatch.setattr("perfaudit.knobs.compile.time.monotonic", lambda: now[0])
    KNOB.candidates(bench(survey(), ask, 300.0))
    assert limits == [100.0, 200.0, 150.0]


def test_a_mode_that_failed_beside_one_that_ran_is_told_below_the_table() -> None:
    compared = (Comparison("compile", OFF, ON, 0.99, 0.9, 1.1, "undecided"),)
    told = Told(survey("cuda"), (), compared, {"why": ["compiling (reduce-overhead) failed: no"]}, None)
    assert KNOB.remarks(told) == ["compiling (reduce-overhead) failed: no"]
    assert KNOB.kept_words(told) == ""


@pytest.mark.parametrize(
    ("explained", "line"),
    [
        ({"graphs": 1, "breaks": []}, "the model compiles to 1 graph without a break"),
        ({"failure": "timed out"}, "where it breaks the graph could not be told: timed out"),
    ],
)
def test_the_graphs_in_words(explained: dict[str, Any], line: str) -> None:
    assert KNOB.remarks(Told(survey(), (), (), {"explained": explained}, None)) == [line]


def test_batches_of_many_shapes_are_spoken_of() -> None:
    explained = {"graphs": 1, "breaks": [], "batches": 4, "shapes": 3}
    [_, shapes] = KNOB.remarks(Told(survey(), (), (), {"explained": explained}, None))
    assert shapes.startswith("4 batches have 3 different shapes, and new shapes are compiled for again")


@pytest.mark.parametrize(
    ("build", "drops"),
    [
        (lambda nn: nn.Dropout(0.1), 1),
        (lambda nn: nn.Dropout(0.0), 0),
        (lambda nn: nn.MultiheadAttention(4, 2, dropout=0.1), 1),
        (lambda nn: nn.Linear(2, 2), 0),
    ],
)
def test_dropout_is_seen_in_a_model(build: Callable[[Any], Any], drops: int) -> None:
    import torch

    assert sum(drops_values(module) for module in build(torch.nn).modules()) == drops


@pytest.mark.gpu
def test_both_modes_run_on_a_cuda_device(project: Callable[..., Path], perfaudit: Callable[..., Any]) -> None:
    import json

    project(
        **{
            "train.py": """
            import torch
            from torch import nn
            from torch.utils.data import DataLoader, TensorDataset

            def build_model():
                layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
                return nn.Sequential(*layers, nn.Linear(64, 10))

            def build_dataloader():
                return DataLoader(TensorDataset(torch.randn(256, 64), torch.randint(0, 10, (256,))), batch_size=64)
            """
        }
    )
    report = json.loads(perfaudit("tune", "train.py", "--compile", "--budget", "5m", "--format", "json").out)
    ok = {trial["settings"]["compile"] for trial in report["trials"] if trial["status"] == "ok"}
    assert ok == {"off", "default", "reduce-overhead"}
