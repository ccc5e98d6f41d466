"""torch.compile of the whole model, in place, so that the keys of its state dict stay as they are."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from perfaudit.knobs import Bench, Knob, Refused, Reply, Setup, Survey, Told, Unanswered
from perfaudit.knobs._code import Code, Patch, built_at
from perfaudit.knobs._script_code import NO_NAME, about_models
from perfaudit.knobs._trainers import ALONE, arguments_of_trainer, by_options, patch_trainer, words_of_trainer
from perfaudit.measurements import Settings
from perfaudit.target.working_folder import shown_path

NONE = "off"
DEFAULT = "default"
GRAPHS = "reduce-overhead"

BREAKS_SHOWN = 5
BATCHES_SEEN = 4  # whose shapes are compared: every new one is compiled for again
FIRST_STEPS = 3  # forward and backward are compiled in the first; CUDA graphs are recorded in the second and third
STEADY_STEPS = 3  # whose median is a step without compiling
GENERATIONS = 4  # of processes before the first verdict: `measure.stats.LOOKS[0]`
LONGEST = 600.0  # seconds that compiling may take, whatever the budget
SHORTEST = 10.0  # seconds that a child gets to answer, in which it starts and builds the training
EXPLAINING = 1 / 3  # of the knob's time, at most, for telling where graphs break: a remark, not a verdict
OVERWRITTEN = (  # https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html
    f"with {GRAPHS} (CUDA graphs) each call overwrites the outputs of the one before: code that collects outputs must "
    ".clone() them; where a step calls the model several times, torch.compiler.cudagraph_mark_step_begin() at its start "
    "tells one step from the next"
)
UNCALLED = "the training step does not call the model itself, so compiling it changes nothing"
# Compiling char_gpt at load 7 took 165 s from nothing, and 6 to 9 s from the cache on disk at each later start.
SECONDS_NEEDED = 90.0


class Compile(Knob):
    name = "compile"
    title = "the model as it is, and compiled"
    tries = "Try torch.compile."
    usual_gain = 0.3
    rules = ("PA306",)
    phases = ("forward", "backward")
    seconds_needed = SECONDS_NEEDED
    changes_always = ("rounding",)

    def not_applicable(self, survey: Survey) -> str:
        if survey.facts.model.compiled:
            sites = survey.facts.model.compiled_sites
            return f"the model is compiled already{built_at(next(iter(sites.values()), None))}"
        return no_compiler(survey)

    def current(self, survey: Survey) -> Settings:
        return {"compile": DEFAULT if survey.facts.model.compiled else NONE}

    def no_line(self, survey: Survey) -> str:
        by_command_line = by_options(survey, ("torch_compile", "True"))
        return (by_command_line or NO_NAME) if survey.facts.is_script else ""

    def holds(self, survey: Survey, settings: Settings) -> bool:
        """Whether it is compiled; the mode cannot be read from a built model, and stands in the patched line."""
        return survey.facts.model.compiled == (settings["compile"] != NONE)

    def candidates(self, bench: Bench) -> list[Settings]:
        """The modes that compile at all, and so fast that a verdict can be reached in the time there is."""
        left = _countdown(bench.seconds)
        modes = [DEFAULT, GRAPHS] if bench.survey.facts.device.type == "cuda" else [DEFAULT]
        try:
            longest = max(SHORTEST, min(LONGEST, EXPLAINING * left()))
            bench.kept["explained"] = bench.ask({"compile": NONE}, "explain", timeout=longest)
        except Unanswered as failure:
            if UNCALLED in str(failure):
                raise Refused(UNCALLED) from None
            bench.kept["explained"] = {"failure": str(failure)}
        return [{"compile": mode} for mode in modes if _try_to_compile(bench, mode, left)]

    def raced_behind(self, survey: Survey) -> list[Settings]:
        """Of a script, as its one process holds code that runs already; of factories where there is no time to ask before."""
        return [{"compile": DEFAULT}]

    def prepare(self, bench: Bench, settings: Settings) -> bool:
        """Compiled once, and once more from the cache on disk, within the time there is."""
        return _try_to_compile(bench, str(settings["compile"]), _countdown(bench.seconds))

    def size(self, settings: Settings) -> int:
        return [NONE, DEFAULT, GRAPHS].index(str(settings["compile"]))

    def phases_on(self, survey: Survey, settings: Settings) -> tuple[str, ...]:
        """The whole step of a script: what its compiled model takes is not timed apart (`script.watch`)."""
        return () if survey.facts.is_script else self.phases

    def setup(self, settings: Settings) -> Setup:
        mode = str(settings["compile"])
        return Setup() if mode == NONE else Setup(applied=lambda training: _compile_models(training, mode))

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        """The model compiled in place where it is built."""
        mode = str(settings["compile"])
        line = "{}.compile()" if mode == DEFAULT else f'{{}}.compile(mode="{mode}")'
        if of_trainer := _of_trainer(code.survey, mode):
            done = patch_trainer(code, self.name, of_trainer)
        else:
            done = about_models(code, line) if code.survey.facts.is_script else _in_factory(code, line)
        if done is None:
            return None
        # With dropout the compiled model draws other numbers; without, only rounding can move.
        changes = ("rounding", "rng") if code.survey.facts.model.dropouts else ("rounding",)
        return Patch(done.path, done.edits, done.before, done.after, done.location, changes)

    def words(self, settings: Settings, survey: Survey) -> str:
        mode = str(settings["compile"])
        if by_trainer := words_of_trainer(survey, self.name, _of_trainer(survey, mode)):
            return by_trainer
        call = "model.compile()" if mode == DEFAULT else f'model.compile(mode="{mode}")'
        graphs = (
            "; each call overwrites the last one's outputs, so .clone() what is collected" if mode == GRAPHS else ""
        )
        return f"compile the model where it is built: {call}; the keys of its state dict stay as they are{graphs}"

    def changes(self, settings: Settings) -> tuple[str, ...]:
        """With dropout other numbers are drawn besides; the patch, which knows the model, says whether there is any."""
        return ("rounding", "rng")

    def kept_words(self, told: Told) -> str:
        whys = [] if told.comparisons else [str(why) for why in told.kept.get("why", [])]
        return f"keep what you have: {'; '.join(whys)}" if whys else ""

    def remarks(self, told: Told) -> list[str]:
        if not told.kept:
            return []
        explained = told.kept.get("explained") or {}
        failed = [str(why) for why in told.kept.get("why", [])] if told.comparisons else []  # else `kept_words` says it
        lines = [*_told_compile_times(told), *failed, *_told_graphs(explained), *_told_shapes(told.survey, explained)]
        return [*lines, OVERWRITTEN] if GRAPHS in told.kept else lines

    # ---- answered in a child ------------------------------------------------------------------------------------------

    def answer_explain(self, training: Any) -> Reply:
        """How torch.compile would cut the model up: number of graphs, where and why it breaks off; and shapes of batches."""
        import torch

        from perfaudit.target.batches import tensors_in

        if training.is_script:
            return _explain_script(training)
        args, kwargs = _call_of_model(training)
        said = torch._dynamo.explain(training.model)(*args, **kwargs)
        breaks = [_told_break(reason) for reason in said.break_reasons]
        batches = [training.next_batch() for _ in range(min(BATCHES_SEEN, training.epoch_batches or BATCHES_SEEN))]
        shapes = {tuple(tuple(tensor.shape) for tensor in tensors_in(batch)) for batch in batches}
        reply = {"graphs": said.graph_count, "breaks": list(dict.fromkeys(breaks))}
        return {**reply, "batches": len(batches), "shapes": len(shapes)}

    def answer_trial_compile(self, training: Any, again: bool = False) -> Reply:
        """Seconds of the first steps, which compile, beyond what as many steps take later; and whether it was cached.

        again: only tells one question from another. cached: everything compiled was found in the cache on disk.
        """
        if not training.is_script:
            training.fixed_batch()
        times = [_timed_step(training) for _ in range(FIRST_STEPS + STEADY_STEPS)]
        steady = sorted(times[FIRST_STEPS:])[STEADY_STEPS // 2]
        seconds = max(0.0, sum(times[:FIRST_STEPS]) - FIRST_STEPS * steady)
        return {"compile_seconds": seconds, "step_seconds": steady, "cached": _was_cached()}


def _of_trainer(survey: Survey, mode: str) -> str:
    """The mode as an argument of a trainer that compiles its model itself; "" where none does.

    Hugging Face's switches TF32 on besides (transformers/training_args.py), which is a change of precision, and no part of this.
    """
    facts = survey.facts
    if facts.trainer is None or facts.trainer.site is None:
        return ""
    alone = facts.device.type == "cuda" and facts.flags["matmul_precision"] == "highest"
    setting = f"{mode} {ALONE}" if alone and facts.trainer.precision != "tf32" else mode
    return setting if arguments_of_trainer(survey, "compile", setting) else ""


def _in_factory(code: Code, line: str) -> Patch | None:
    """The line about the model before the model factory returns it."""
    from perfaudit.static.rewrite import change_returned

    found = code.factory("model")
    if found is None:
        return None
    source, function = found
    return code.patch(source, function, change_returned(source, function, [line]))


def no_compiler(survey: Survey) -> str:
    """Why nothing can be compiled on this machine, "" if it can."""
    if survey.facts.device.type == "cpu" and not survey.facts.host.cxx:
        wanted = os.environ.get("CXX") or "g++"
        return f"torch.compile needs a C++ compiler for the CPU, and there is no {wanted} here; install it or set CXX"
    return ""


def _countdown(seconds: float) -> Any:  # a function that gives the seconds left
    end = time.monotonic() + seconds
    return lambda: end - time.monotonic()


def _try_to_compile(bench: Bench, mode: str, left: Any) -> bool:
    """Compile once, and once more from the cache on disk; False, with why in `kept`, where no verdict can follow."""
    whys = bench.kept.setdefault("why", [])
    allowed = max(SHORTEST, min(LONGEST, left()))
    try:
        cold = bench.ask({"compile": mode}, "trial_compile", timeout=allowed)
        begun = left()
        allowed = max(SHORTEST, min(LONGEST, begun))
        warm = bench.ask({"compile": mode}, "trial_compile", timeout=allowed, again=True)
    except Unanswered as failure:
        slow = str(failure).startswith("no answer within")
        how = f"was not finished within {allowed:.0f} s, give it longer with --budget" if slow else f"failed: {failure}"
        whys.append(f"compiling ({mode}) {how}")
        return False
    bench.kept[mode] = {"cold": cold["compile_seconds"], "warm": warm["compile_seconds"], "cached": cold["cached"]}
    needed = GENERATIONS * max(begun - left(), warm["compile_seconds"])
    if needed > left():
        whys.append(
            f"compiling ({mode}) took {cold['compile_seconds']:.0f} s, and a verdict takes {GENERATIONS} more starts of "
            f"{needed / GENERATIONS:.0f} s each, for which {max(0.0, left()):.0f} s were left: give it longer with --budget"
        )
        return False
    return True


@contextlib.contextmanager
def _compile_models(training: Any, mode: str) -> Iterator[None]:
    models = training.models if training.is_script else [training.model]
    before = [model._compiled_call_impl for model in models]
    for model in models:
        model.compile(mode=mode)
    try:
        yield
    finally:
        for model, own in zip(models, before, strict=True):
            model._compiled_call_impl = own


def _call_of_model(training: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with which the loss of a fixed batch calls the model first. Raises ValueError if it does not call it."""
    import torch

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    hook = training.model.register_forward_pre_hook(
        lambda module, args, kwargs: calls.append((args, kwargs)), with_kwargs=True
    )
    try:
        with torch.no_grad(), training.around_loss():
            training.loss(training.fixed_batch())
    finally:
        hook.remove()
    if not calls:
        raise ValueError(UNCALLED)
    return calls[0]


def _explain_script(training: Any) -> Reply:
    """What `answer_explain` replies, of the models that a script's steps call. Raises ValueError where they call none."""
    import torch

    from perfaudit.target.batches import tensors_in

    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def note(model: Any, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled():
            calls.append((model, args, kwargs))

    hooks = [model.register_forward_pre_hook(note, with_kwargs=True) for model in training.models]
    shapes, batches = set(), 0
    try:
        while batches < BATCHES_SEEN:
            training.whole_step()
            batches += 1
            if not calls:
                raise ValueError(UNCALLED)
            args, kwargs = calls[-1][1:]
            shapes.add(tuple(tuple(tensor.shape) for tensor in tensors_in([*args, *kwargs.values()])))
            del calls[len(training.models) :]  # enough to say how each is called
    finally:
        for hook in hooks:
            hook.remove()
    each = {id(model): (model, args, kwargs) for model, args, kwargs in calls}
    # What is compiled in place: `__call__` of its class has a clock around it, see `script.watch`.
    said = [torch._dynamo.explain(model._call_impl)(*args, **kwargs) for model, args, kwargs in each.values()]
    breaks = [_told_break(reason) for explained in said for reason in explained.break_reasons]
    graphs = sum(explained.graph_count for explained in said)
    reply = {"graphs": graphs, "breaks": list(dict.fromkeys(breaks))}
    return {**reply, "batches": batches, "shapes": len(shapes)}


def _told_break(reason: Any) -> str:  # torch._dynamo.output_graph.GraphCompileReason
    """A reason for a graph break behind the innermost line of the user's: "model.py:12 `x.item()` (Unsupported …)"."""
    said = str(reason.reason).strip().partition("\n")[0]
    if said.startswith("generic_jump"):
        said = "a branch that depends on values of a tensor"
    if not reason.user_stack:
        return said
    frame = reason.user_stack[-1]
    return f"{shown_path(frame.filename)}:{frame.lineno} `{frame.line}` ({said})"


def _was_cached() -> bool:
    """Whether all that this process has compiled came from the caches on disk, by torch's own counters."""
    from torch._dynamo.utils import counters

    counts = [(name, number) for group in counters.values() for name, number in group.items()]
    hits = sum(number for name, number in counts if name.endswith("cache_hit"))
    return hits > 0 and not any(number for name, number in counts if name.endswith("cache_miss"))


def _timed_step(training: Any) -> float:
    started = time.perf_counter()
    training.whole_step(True)
    training.synchronize()
    return time.perf_counter() - started


def _told_compile_times(told: Told) -> list[str]:
    lines = []
    for mode in (DEFAULT, GRAPHS):
        times = told.kept.get(mode)
        if times is None:
            continue
        how = f"{times['cold']:.0f} s at the first start here, {times['warm']:.0f} s from the cache on disk"
        if times["cached"]:  # by an earlier run of ours or theirs
            how = f"{times['warm']:.0f} s from the cache on disk, which held it already; without, it takes longer"
        lines.append(f"compiling ({mode}) took {how}{_break_even(told, mode, times['cold'])}")
    return lines


def _break_even(told: Told, mode: str, seconds: float) -> str:
    """After how many steps the saving has paid for compiling; "" where none was shown."""
    compared = [c for c in told.comparisons if c.candidate["compile"] == mode and c.verdict == "faster"]
    base = [t.median for t in told.trials if t.settings["compile"] == NONE and t.median is not None]
    if not compared or not base:
        return ""
    saved = (1 - compared[0].ratio) * base[0]
    return f"; it has paid for itself after {max(1, round(seconds / saved)):,} steps" if saved > 0 else ""


def _told_graphs(explained: Reply) -> list[str]:
    if "failure" in explained:
        return [f"where it breaks the graph could not be told: {explained['failure']}"]
    if not explained:
        return []
    graphs, breaks = int(explained["graphs"]), [str(text) for text in explained["breaks"]]
    if not breaks:
        return [f"the model compiles to {graphs} graph{'s' if graphs != 1 else ''} without a break"]
    more = f"; and {len(breaks) - BREAKS_SHOWN} more" if len(breaks) > BREAKS_SHOWN else ""
    return [f"the model compiles to {graphs} graphs, broken at " + "; ".join(breaks[:BREAKS_SHOWN]) + more]


def _told_shapes(survey: Survey, explained: Reply) -> list[str]:
    """That batches change their shape, and what it costs a compiled model; nothing where they do not."""
    batches, shapes = int(explained.get("batches", 0)), int(explained.get("shapes", 0))
    if shapes > 1:
        return [
            f"{batches} batches have {shapes} different shapes, and new shapes are compiled for again: the times above are "
            "of one batch; pad to few lengths, or try compile(dynamic=True)"
        ]
    loader = survey.facts.loader
    length, size, count = loader.dataset_length, loader.batch_size, loader.epoch_batches
    if not length or not size or not count or count * size <= length:
        return []
    last = length - (count - 1) * size
    return [
        f"the last batch of an epoch has {last} samples instead of {size}, for which it compiles once more; drop_last=True "
        "avoids that"
    ]


KNOB = Compile()
