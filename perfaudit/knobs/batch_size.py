"""Batch size: what fits into memory, told without running it, and from which size on more samples gain no more time."""

from __future__ import annotations

import ast
import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any

from perfaudit.findings import Edit
from perfaudit.knobs import Bench, Knob, Probe, Reply, Setup, Survey, Told, Unanswered
from perfaudit.knobs._batch_of_script import (
    OF_TRAINER,
    POSITION,
    answer_real_sizes,
    handed_over_of_script,
    limit_of_script,
    patch_of_script,
    why_by_hand,
)
from perfaudit.knobs._code import Code, Patch
from perfaudit.knobs._memory_limit import RealStep, Untried, between, confirm
from perfaudit.measure.facts import Loader
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.target.batches import with_tensors
from perfaudit.target.blocks import checkpointing, repeated_blocks

KNEE = 0.03  # a batch whose throughput is within this of the best is as good, and the smallest such is taken
DOUBLINGS = 5  # of the current size that are timed at most; throughput has long flattened by then
LONGEST_STEP = 4.0  # seconds; larger batches are not timed
LARGEST = 1 << 20  # samples; no budget is asked about beyond
SHRUNK = 0.98  # times the predicted peak of a smaller batch; below, the two steps were not of the same shape

CONVERGENCE = (
    "a larger batch is another training: fewer updates per epoch. Tune the learning rate again, starting from k times for "
    "SGD with a warm-up (Goyal et al. 2017, arXiv:1706.02677) or sqrt(k) times for Adam (Malladi et al. 2022, "
    "arXiv:2205.10287); beyond the critical batch more samples teach no more (McCandlish et al. 2018, arXiv:1812.06162). "
    "Optimizers made for very large batches: LARS (arXiv:1708.03888), LAMB (arXiv:1904.00962), NovoGrad (arXiv:1905.11286)"
)


class BatchSize(Knob):
    name = "batch_size"
    title = "samples per second and peak memory against the batch size"
    tries = "Measure memory and samples per second of other batch sizes."
    usual_gain = 0.3
    asks_for_memory = True
    metric = "samples_per_second"
    way = "loader"
    min_gain = KNEE
    fixed_batch = False
    changes_always = ("algorithm",)

    def not_applicable(self, survey: Survey) -> str:
        if not survey.facts.loader.is_there:
            return "the script takes its batches from no DataLoader"
        return _without_size(survey.facts.loader) if survey.facts.loader.batch_size is None else ""

    def share(self, survey: Survey) -> float:
        """A profile cannot tell what larger batches gain; a third of the attention, for it is another training."""
        return 0.33

    def current(self, survey: Survey) -> Settings:
        return {"batch_size": survey.facts.loader.batch_size}

    def candidates(self, bench: Bench) -> list[Settings]:
        """Half the current batch, and doublings of it up to the limit, the dataset, and steps that are not too long."""
        now = int(str(self.current(bench.survey)["batch_size"]))
        if bench.survey.facts.is_script:
            limit = limit_of_script(bench, self.current(bench.survey), [now, *_larger(bench, now, LARGEST)])
        else:
            limit = _limit(bench, self.current(bench.survey))
        larger = _larger(bench, now, limit)
        smaller = [size for size in _sizes(now) if size < now]  # last, as the first to go where time is short
        return [{"batch_size": size} for size in [*larger, *smaller]]

    def size(self, settings: Settings) -> int:
        return int(str(settings["batch_size"]))

    def order(self, settings: Settings) -> int:
        return self.size(settings)

    def setup(self, settings: Settings) -> Setup:
        return Setup(loader_overrides=dict(settings), fixed_batch=False)

    def words(self, settings: Settings, survey: Survey) -> str:
        return (
            f"train with batch_size={settings['batch_size']}, the smallest within {100 * KNEE:.0f} % of the best "
            "throughput; it is another training, see below"
        )

    def by_hand(self, survey: Survey) -> str:
        return why_by_hand(survey) if survey.facts.is_script else ""

    def handed_over(self, settings: Settings, survey: Survey) -> str:
        return handed_over_of_script(survey, settings) if survey.facts.is_script else ""

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        if code.survey.facts.is_script:
            return patch_of_script(code, settings)
        found = code.call(code.survey.facts.loader.site)
        return code.patch(*found, _edits(*found, settings)) if found is not None else None

    def peak_bytes(self, settings: Settings, kept: dict[str, Any]) -> int | None:
        found: int | None = kept.get("peaks", {}).get(settings["batch_size"])
        return found

    def remarks(self, told: Told) -> list[str]:
        return [*_memory_remarks(told), *_knee_remark(told), CONVERGENCE]

    # ---- asked in a child -----------------------------------------------------------------------------------------

    def answer_limits(self, training: Any, budget: int, most: int, seconds: float) -> Reply:
        """The largest batch whose predicted peak stays within a budget of tensor bytes, as it is and with what saves memory.

        Replies with "limits" by name, and "peaks": predicted bytes of the plain step at the sizes that were asked about and
        those that may be timed; or with "cannot", why not. What saves memory is left out once `seconds` have passed.
        """
        from perfaudit.measure.memory_prediction import CannotPredict, largest_batch, predicting

        began, start = time.monotonic(), int(training.loader.batch_size)
        limits: dict[str, int] = {}
        peaks: dict[int, int] = {}
        for name, applied in _ways(training):
            if limits and time.monotonic() - began > seconds:
                break
            try:
                with applied, predicting(training) as peak_at:
                    limits[name], asked = largest_batch(peak_at, budget, limits.get("plain") or start, most)
                    if name == "plain":
                        timed = [size for size in _sizes(start) if size <= limits[name]]
                        peaks = {**dict(asked), **{size: peak_at(size) for size in timed}}
            except CannotPredict as error:
                if name == "plain":
                    return {"cannot": str(error)}
        return {"limits": limits, "peaks": sorted(peaks.items())}

    def answer_real_sizes(self, training: Any, sizes: list[int], room: int, seconds: float) -> Reply:
        """Of a script: see `_batch_of_script`."""
        return answer_real_sizes(training, sizes, room, seconds)

    def answer_real(self, training: Any, size: int) -> Reply:
        """Peak bytes of a real step on a batch of this size, made of repeated samples: of tensors, of the process ("resident")
        and of the device ("taken", null where that is not known)."""
        from perfaudit.measure.memory import memory_of_step, peak_resident_bytes

        loaded = training.to_device(training.next_batch())  # not the fixed one, which would stay alive beside it
        batch = _repeat_samples(loaded, int(training.loader.batch_size), size)
        del loaded
        seen = memory_of_step(training, batch)
        return {"peak": seen.tensors, "taken": seen.bytes_on_device, "resident": peak_resident_bytes()}


def _without_size(loader: Loader) -> str:
    """Why no other size is tried for a loader that has none of its own."""
    if loader.library_line.startswith("accelerate/"):
        argument = OF_TRAINER if loader.prefix and not loader.owner else "the batch_size of your loader"
        return (
            "Accelerate has prepared the loader, and loads one batch ahead: in the running training no step can be given a batch "
            f"of another size; to compare sizes, set {argument} and run `perfaudit run` with each"
        )
    if loader.batch_sampler:
        return f"a batch sampler ({loader.batch_sampler}) makes the batches, so no number in the loader's call sets their size"
    return "the dataset makes the batches, so no number in the loader's call sets their size"


def _sizes(now: int) -> list[int]:
    """Half of the current size, it, and its doublings."""
    return [size for size in (now // 2, *(now << n for n in range(DOUBLINGS + 1))) if size]


def _larger(bench: Bench, now: int, limit: int) -> list[int]:
    """Doublings of the current size up to a limit, the dataset, and steps that are not too long."""
    most, step = min(limit, bench.survey.facts.loader.dataset_length or LARGEST), bench.survey.step_seconds
    return [size for size in _sizes(now) if now < size <= most and step * size / now <= LONGEST_STEP]


def _limit(bench: Bench, current: Settings) -> int:
    """The largest batch that fits; what is known of it is kept for the remarks. 0 where nothing could be found out."""
    now = int(str(current["batch_size"]))
    seen = bench.probe(current)
    if seen.peak_bytes is None:
        return 0
    outside = max(0, (seen.resident_bytes or 0) - seen.peak_bytes) if bench.survey.facts.device.type == "cpu" else 0
    room = bench.memory_budget - outside
    kept = bench.kept
    kept.update(budget=bench.memory_budget, outside=outside, current=now)
    try:
        reply = bench.ask(current, "limits", budget=room, most=LARGEST, seconds=bench.seconds_left() / 2)
    except Unanswered as error:
        reply = {"cannot": str(error)}
    if "cannot" in reply:
        kept["cannot"] = reply["cannot"]
        return _limit_by_real_steps(bench, now, seen, room)
    kept.update(limits=reply["limits"], peaks=dict(reply["peaks"]))
    known = [] if seen.taken_bytes is None else [RealStep(now, seen.taken_bytes)]
    return _confirm_limit(bench, current, room, int(reply["limits"]["plain"]), known)


def _confirm_limit(bench: Bench, current: Settings, room: int, limit: int, known: list[RealStep]) -> int:
    """The predicted limit, lowered by what libraries were seen to take besides tensors, with a real step as proof."""
    kept = bench.kept
    kept.update(limit=limit, confirmed=None)
    if limit >= LARGEST or not limit:
        return limit
    step = bench.survey.step_seconds / max(1, kept["current"])
    tensors: dict[int, int] = {}

    def take(size: int) -> RealStep:
        if 3 * step * size > bench.seconds_left():
            raise Untried(f"no time was left for real steps of {size:,} samples")
        try:
            real = bench.ask(current, "real", size=size)
        except Unanswered as error:
            if error.out_of_memory:
                return RealStep(size, None)
            largest = max(kept["current"], size // 2)
            raise Untried(f"a real step of {size:,} samples failed: {error}", largest) from error
        tensors[size] = real["peak"]
        if (taken := _bytes_taken(bench, real)) is None:
            raise Untried(
                f"what a step takes of {bench.survey.facts.device.type} memory beside its tensors is not told by torch"
            )
        return RealStep(size, taken)

    found = confirm(between(kept["peaks"]), room, limit, take, known)
    kept.update(limit=found.size, unconfirmed=found.unconfirmed, more=found.more)
    if (real := found.step) is not None:
        kept["confirmed"] = (real.size, real.taken, tensors.get(real.size), kept["peaks"].get(real.size))
    return found.size


def _bytes_taken(bench: Bench, real: Reply) -> int | None:
    """What a real step took of the budget, but for what the process had before; None where only its tensors are known."""
    if bench.survey.facts.device.type == "cpu":
        return max(int(real["peak"]), int(real["resident"]) - int(bench.kept["outside"]))
    taken: int | None = real.get("taken")
    return taken


def _limit_by_real_steps(bench: Bench, now: int, seen: Probe, room: int) -> int:
    """Where the peak cannot be predicted: double while a step is sure to fit.

    The peak of a step is the largest of several sums `fixed + slope · batch`, so at k times the batch it is at most k times
    the peak: each next size is expected to fit, and no allocation has to fail to find the limit. What is reserved on a
    device follows the peak, and is looked at after each step.
    """
    size, limit, peak = now, now, seen.taken_bytes or seen.peak_bytes or 0
    while bench.seconds_left() and peak and size < LARGEST:
        following = int(size * min(2.0, room / peak))
        if following < 1.1 * size or following > (bench.survey.facts.loader.dataset_length or LARGEST):
            break
        seen = bench.probe({"batch_size": following})
        taken = seen.taken_bytes or seen.peak_bytes
        if taken is None or taken > room:
            break
        size, limit, peak = following, following, taken
    bench.kept["limit"] = limit
    return limit


def _ways(training: Any) -> Iterator[tuple[str, contextlib.AbstractContextManager[Any]]]:
    """Ways to make a step, by name, each as a context in which the training makes it so."""
    yield "plain", contextlib.nullcontext()
    yield "bfloat16 autocast (changes precision)", _autocast(training)
    if repeated_blocks(training.model) is not None:
        yield "activation checkpointing", checkpointing(training.model)


@contextlib.contextmanager
def _autocast(training: Any) -> Iterator[None]:
    import torch

    before = training.around_loss
    training.around_loss = lambda: torch.autocast(training.device.type, dtype=torch.bfloat16)
    try:
        yield
    finally:
        training.around_loss = before


def _repeat_samples(batch: Any, samples: int, size: int) -> Any:
    """The batch with its samples repeated, or cut off, to `size`."""

    def repeat_tensor(tensor: Any) -> Any:
        if not tensor.dim() or tensor.shape[0] != samples:
            return tensor
        return tensor.repeat(-(-size // samples), *[1] * (tensor.dim() - 1))[:size].clone()

    return with_tensors(batch, repeat_tensor)


def _memory_remarks(told: Told) -> list[str]:
    kept = told.kept
    if "limit" not in kept:
        return []
    budget = f"{kept['budget'] / 2**30:.1f} GiB"
    if "cannot" in kept:
        more = [f"a step with more samples failed: {kept['failed']}"] if kept.get("failed") else []
        return [
            f"at least {kept['limit']:,} samples fit into {budget} (by real steps; the peak of this step cannot be "
            f"predicted: {kept['cannot']})",
            *more,
        ]
    said = [f"memory limit: {kept['limit']:,} samples in {budget}"]
    if kept["limit"] >= LARGEST:
        said = [f"memory is no limit: more than {LARGEST:,} samples are predicted to fit into {budget}"]
    elif kept.get("confirmed"):
        said[0] += f", confirmed: {_real_words(kept['outside'], *kept['confirmed'])}"
        said[0] += f"; {kept['more']}" if kept.get("more") else "; a larger one is expected not to fit"
    else:
        said[0] += f", predicted and not confirmed: {kept.get('unconfirmed') or 'not one sample fits'}"
    if _shrinks(dict(kept["peaks"])):
        said.append(
            "a larger batch was seen to need less memory, so the step takes other shapes each time: each peak is of one draw, "
            "and the limit may be lower"
        )
    others = {name: n for name, n in kept["limits"].items() if name != "plain" and 0 < n < LARGEST}
    if others:
        said.append(
            "limit " + ", ".join(f"with {name}: {n:,}" for name, n in others.items()) + " (predicted, tensors alone)"
        )
    return said


def _real_words(outside: int, size: int, taken: int, tensors: int | None, predicted: int | None) -> str:
    """What a real step took, in all and of tensors, beside what was predicted of these."""
    said = f"a real step of {size:,} samples took {(taken + outside) / 2**20:,.1f} MiB"
    if tensors is None:
        return said
    beside = f", predicted {predicted / 2**20:,.1f}" if predicted else ""
    return f"{said} ({tensors / 2**20:,.1f} MiB of tensors{beside})"


def _shrinks(peaks: dict[int, int]) -> bool:
    """Whether some larger batch needs clearly less than a smaller one, which steps of one shape never do."""
    in_order = [peaks[size] for size in sorted(peaks)]
    return any(after < SHRUNK * before for before, after in itertools.pairwise(in_order))


def _knee_remark(told: Told) -> list[str]:
    """From which size on throughput grows no more, by the medians of the trials."""
    timed = {int(str(t.settings["batch_size"])): t.median for t in told.trials if t.status == "ok" and t.median}
    if len(timed) < 2:
        return []
    best = max(timed.values())
    knee = min(size for size, median in timed.items() if median >= (1 - KNEE) * best)
    more = "" if knee < max(timed) else ": still growing at the largest size that was timed"
    return [f"knee of throughput: {knee} is the smallest batch within {100 * KNEE:.0f} % of the best median{more}"]


def _edits(source: Source, call: ast.Call, settings: Settings) -> tuple[Edit, ...] | None:
    value = repr(settings["batch_size"])
    if len(call.args) > POSITION:
        return edit.replace(source, call.args[POSITION], value)
    return edit.set_keyword(source, call, "batch_size", value)


KNOB = BatchSize()
