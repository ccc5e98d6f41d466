"""Workers of the training loader: how many would keep up is predicted from one look without any, then raced.

Formula: w* = ceil(fetch · (1 + ½ · cv) / step), with the seconds to load a batch in the training process, their coefficient
of variation, and the seconds of a step. That number, fewer and more are raced against the user's setting; how that
compares with trying every number is measured by benchmarks/search_quality.py (benchmarks/search_quality.md).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

from perfaudit.findings import Edit
from perfaudit.knobs import Bench, Knob, Refused, Reply, Setup, Survey, Told, Unanswered
from perfaudit.knobs._code import Code, Patch, built_at
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.given_arguments import give, hands_on_options
from perfaudit.static.source import Source

MOST_WORKERS = 32  # each is a process with a copy of the dataset's Python objects; none of our runs gained beyond 16
PREFETCH = 2  # torch's default; in steady state it is inside the noise
LONG_EPOCH = 20  # batches; in shorter ones the first batch, which is timed apart, is more than a twentieth of loading
FEW = 4  # workers; of more, one more or less is too little a difference to be told apart
SHARED_MEMORY = 0.5  # of what is free in /dev/shm may fill with batches that wait; full, it kills workers
MAP_SECONDS = 0.3  # of a pass that compares samples, where torch draws the indices itself,
ALIKE_SECONDS = 1.0  # and at most, where that pass tells whether anything random is in them
ALIKE_SAMPLES, ALIKE_BATCHES = 64, 2  # at least, to say so; rare augmentation would still be missed in fewer
PERSISTENT_PAYS = 0.01  # share of an epoch that starting workers must take; below, keeping them alive gains nothing

LEAK_BYTES = 64 << 20  # that a process may grow by during the look, for pools of allocators and caches
RACED_SECONDS = 12.0  # of steps in all processes of one generation together: four, two blocks of each in three rounds

_POSITIONS = {"num_workers": 5, "pin_memory": 7}
_TIMEOUT = 9  # its position


Start = Sequence[float]  # seconds to start one worker, then until its first batch is there, and to stop it


class Dataloader(Knob):
    name = "dataloader"
    title = "how many workers the training step needs"
    way = "loader"
    metric = "samples_per_second"
    min_gain = (
        0.03  # exhaustive sweeps here were up to 3 % off the true best, and an early call on one run once lost 16 %
    )
    rules = ("PA101",)
    gains_from = ("loading",)
    in_process = False
    asks = 2
    fixed_batch = False
    changes_always = ("rng",)
    offers = frozenset({"rng"})  # where a step waits for data nothing else gains as much

    def not_applicable(self, survey: Survey) -> str:
        return "" if survey.facts.loader.is_there else "the script takes its batches from no DataLoader"

    def share(self, survey: Survey) -> float:
        """What a step waits for its batch, where no workers load it; with workers, fewer may gain what no profile tells.

        The first batch of an epoch is not in the profile, so short epochs are not judged by it.
        """
        whole, loader = survey.step_seconds, survey.facts.loader
        told = whole and not loader.num_workers and (loader.epoch_batches or 0) >= LONG_EPOCH
        return survey.profile.get("loading", 0.0) / whole if told else 1.0

    def current(self, survey: Survey) -> Settings:
        loader = survey.facts.loader
        return _settings(loader.num_workers, loader.pin_memory, loader.prefetch_factor, loader.persistent_workers)

    def candidates(self, bench: Bench) -> list[Settings]:
        """w*, fewer and more, and none if there are workers now. Raises Refused where workers would repeat samples."""
        now = self.current(bench.survey)
        alone = _settings(0, bool(now["pin_memory"]), None, False)
        try:
            seen = bench.kept["seen"] = bench.ask(alone, "instrument")
        except Unanswered as failure:
            bench.kept["unanswered"] = str(failure)
            seen = None
        if seen and (why := _leak(seen, bench.memory_budget)):
            raise Refused(why)
        most = most_workers(seen, bench.cores, _prefetch(now)) if seen else bench.cores
        wanted = bench.kept["wanted"] = min(most, wanted_workers(seen)) if seen else 1
        apart = max(1, wanted // FEW)
        counts = sorted({min(most, wanted + n) for n in (-apart, 0, apart)} | ({0} if _workers(now) else set()))
        counts = _sharing(bench, alone, counts, seen)
        start = bench.kept["samples"]["start"]
        pinned = bench.survey.facts.device.type == "cuda" or bool(now["pin_memory"])
        found = [
            _settings(n, pinned, _prefetch(now), bool(n) and _is_persistent(now, seen, start, n, bench.survey))
            for n in counts
        ]
        found = [settings for settings in found if settings != now]
        if not found:
            raise Refused(_samples_checked(bench.kept["samples"])[0])
        return found

    def size(self, settings: Settings) -> int:
        return _workers(settings)

    def order(self, settings: Settings) -> int:
        return _workers(settings)

    def least_steps(self, settings: Settings) -> int:
        """More batches than may lie ready when a block begins, twice over; in fewer the queue is measured."""
        return 2 * _workers(settings) * _prefetch(settings) + 1 if _workers(settings) else 2

    def setup(self, settings: Settings) -> Setup:
        overrides: dict[str, Any] = dict(settings)
        if not settings["num_workers"]:
            overrides.pop("prefetch_factor")
            overrides.pop("persistent_workers")
        return Setup(loader_overrides=overrides, fixed_batch=False)

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        found = code.call(code.survey.facts.loader.site)
        return code.patch(*found, _edits(*found, settings, code.survey)) if found is not None else None

    def changes_at_least(self, survey: Survey) -> tuple[str, ...]:
        return () if _may_load_alike(survey) and not _dataset_changes(survey) else self.changes_always

    def changes_found(self, settings: Settings, survey: Survey, kept: dict[str, Any]) -> tuple[str, ...]:
        """Nothing where samples loaded twice, with other random numbers, were the same: torch draws indices in either way.

        Few samples do not tell that, and of a dataset that the program changes no sample tells what comes later.
        Workers that live on from epoch to epoch are seeded once, which shifts the random stream of the epochs behind the first.
        """
        found, now = kept.get("samples") or {}, self.current(survey)
        lives_on = settings["persistent_workers"] != now["persistent_workers"]
        is_alike = bool(found) and _is_alike(found) and not _dataset_changes(survey)
        return () if _may_load_alike(survey) and is_alike and not lives_on else self.changes_always

    def milder(self, settings: Settings) -> tuple[Settings, ...]:
        """The same number of workers, started anew for each epoch."""
        return ({**settings, "persistent_workers": False},) if settings["persistent_workers"] else ()

    def by_hand(self, survey: Survey) -> str:
        loader = survey.facts.loader
        is_known = not survey.facts.is_script or not loader.is_there or Code("", survey).call(loader.site) is not None
        return "" if is_known else f"no line of your files builds the loader{built_at(loader.site)}"

    # ---- words ----------------------------------------------------------------------------------------------------

    def words(self, settings: Settings, survey: Survey) -> str:
        now = self.current(survey)
        changed = {k: v for k, v in settings.items() if k == "num_workers" or (v != now[k] and not _is_default(k, v))}
        prefix = survey.facts.loader.prefix
        what = "give the trainer's arguments" if prefix else "build the training DataLoader with"
        return f"{what} {', '.join(f'{prefix}{name}={value!r}' for name, value in changed.items())}"

    def remarks(self, told: Told) -> list[str]:
        seen = told.kept.get("seen")
        if seen is None:
            why = told.kept.get("unanswered")
            return [f"how many workers are needed could not be predicted: {why}"] if why else []
        return [
            _prediction(seen, told.kept["wanted"]),
            *_samples_checked(told.kept.get("samples")),
            *_start_up(seen, told),
            *_beyond_cores(told),
        ]

    # ---- in the child ---------------------------------------------------------------------------------------------

    def answer_instrument(self, training: Any) -> Reply:
        """Seconds to load each of some batches and of the steps on them, without workers; see `_dataloader_look`."""
        from perfaudit.knobs._dataloader_look import look

        return look(training)

    def answer_samples(self, training: Any, counts: list[int], most: int) -> Reply:
        """Whether the loader yields the same samples with these numbers of workers as with none; and seconds to start one.

        most: batches of a map-style dataset to compare, at most. See `target.sampling.compared_with_workers`. is_plain: samples
        are put together by torch's own function, which draws nothing.
        """
        if training.loader.num_workers:
            raise ValueError("asked of a loader with workers")
        from torch.utils.data import default_collate, default_convert

        from perfaudit.target.load import said
        from perfaudit.target.sampling import compared_with_workers, start_and_stop

        try:
            start = start_and_stop(training.loader)
        except Exception as failure:  # whatever a worker raises
            return {"samples": 0, "failed": f"{type(failure).__name__}: {said(failure)}"}
        is_plain = training.loader.collate_fn in (default_collate, default_convert)
        return {**compared_with_workers(training.loader, counts, most), "start": start, "is_plain": is_plain}


def wanted_workers(seen: Reply) -> int:
    """How many workers load batches as fast as the step uses them; `seen` is the reply to "instrument"."""
    fetch, cv, step = float(seen["fetch"]), float(seen["cv"]), float(seen["step"])
    return max(1, math.ceil(fetch * (1 + cv / 2) / max(step, 1e-6)))


def most_workers(seen: Reply, cores: int, prefetch: int) -> int:
    """How many workers can pay: those that compute need a core each, those that wait for a disk share one."""
    computing = max(cores, math.floor(cores / max(float(seen["cpu_share"]), cores / MOST_WORKERS)))
    queued = prefetch * max(1, int(seen["batch_bytes"]))
    free = int(seen["shared_memory"])
    fitting = math.floor(SHARED_MEMORY * free / queued) if free else MOST_WORKERS
    return max(1, min(MOST_WORKERS, computing, fitting))


def start_seconds(seen: Reply, start: Start, workers: int) -> float:
    """Seconds that so many workers cost at the start of every epoch: forking, the first batch's delay, stopping."""
    fork, first, stop = start
    return float(workers * fork + max(0.0, first - seen["fetch"]) + stop)


def _leak(seen: Reply, memory: int) -> str:
    """Why a training that keeps what it loads is not measured for minutes in several processes; "" where it fits."""
    steps = RACED_SECONDS / max(float(seen["fetch"]) + float(seen["step"]), 1e-6)
    a_batch = int(seen["grown_bytes"]) / max(1, int(seen["batches"]))
    if int(seen["grown_bytes"]) < LEAK_BYTES or a_batch * steps < memory:
        return ""
    return (
        f"the training process grew by {seen['grown_bytes'] / (1 << 20):.0f} MiB over {seen['batches']} batches "
        f"({a_batch / (1 << 20):.1f} MiB each); it keeps what it loads, and measuring would fill the memory"
    )


def epoch_seconds(seen: Reply, workers: int, batches: int) -> float:
    """Seconds of an epoch once workers run, by the prediction."""
    return float(batches * max(seen["step"], seen["fetch"] / max(1, workers)))


def _is_persistent(now: Settings, seen: Reply | None, start: Start, workers: int, survey: Survey) -> bool:
    """Whether keeping the workers between epochs pays by the computation; the user's own choice stays.

    Where the program changes its dataset between epochs, workers that live on would not see it.
    """
    batches = survey.facts.loader.epoch_batches
    if _workers(now) and now["persistent_workers"]:
        return True
    if seen is None or not batches:
        return False
    cost = start_seconds(seen, start, workers)
    if cost < PERSISTENT_PAYS * (cost + epoch_seconds(seen, workers, batches)):
        return False
    return not _dataset_changes(survey)


def _dataset_changes(survey: Survey) -> bool:
    """Whether the file that builds the loader changes its dataset; no where no line of the user's builds it."""
    from perfaudit.static.checks.dataloader_workers_not_persistent import dataset_changes

    found = Code("", survey).call(survey.facts.loader.site)
    return found is not None and dataset_changes(*found)


# ---- samples ------------------------------------------------------------------------------------------------------


def _may_load_alike(survey: Survey) -> bool:
    """Whether workers may change nothing but the time: batches of a script keep their order where it draws their indices."""
    return survey.facts.is_script and not survey.facts.loader.iterable and not survey.facts.loader.prefix


def _is_alike(found: Reply) -> bool:
    """Whether enough samples were compared, and were the same with other random numbers and in workers."""
    is_same = found.get("is_plain") and "" in found["compared"] and not found["random"] and not found["differing"]
    is_enough = found["whole"] or found["samples"] >= ALIKE_SAMPLES
    return bool(is_same and is_enough and found.get("batches", 0) >= ALIKE_BATCHES)


def _most_batches(seen: Reply, survey: Survey) -> int:
    """Batches to compare: as many as load in a moment, or as it takes to say that nothing random is in them."""
    fetch = max(float(seen["fetch"]), 1e-6)
    enough = max(ALIKE_BATCHES, math.ceil(ALIKE_SAMPLES / max(1, int(seen["samples"] or 0))))
    is_worth = _may_load_alike(survey) and not _dataset_changes(survey) and enough * fetch <= ALIKE_SECONDS
    return max(1, math.floor(MAP_SECONDS / fetch), enough if is_worth else 1)


def _sharing(bench: Bench, alone: Settings, counts: list[int], seen: Reply | None) -> list[int]:
    """Those numbers of workers that yield the samples that none do; what was compared is kept for the remarks.

    Raises Refused where workers fail, where an iterable dataset does not share its samples out, or where that cannot be told.
    """
    iterable = bool(bench.survey.facts.loader.iterable)
    asked = sorted({n for n in counts if n} | ({2} if iterable else set()))
    most = _most_batches(seen, bench.survey) if seen else 1
    try:
        found = bench.kept["samples"] = bench.ask(alone, "samples", counts=asked, most=most)
    except Unanswered as failure:
        raise Refused(f"loading with workers was tried and failed: {failure}") from None
    if why := found.get("failed"):
        raise Refused(f"loading with a worker was tried and failed: {why}")
    if iterable and (why := _why_refused(found)):
        yours = int(bench.survey.facts.loader.num_workers)
        twice = f"; with your num_workers={yours} a training sees each sample {yours} times an epoch"
        raise Refused(why + (twice if yours > 1 and found["repeats"] else ""))
    return [n for n in counts if n not in found["differing"]]


def _why_refused(found: Reply) -> str:
    if found["repeats"]:
        n, with_workers, without = found["repeats"]
        return (
            f"each of {n} workers yields every sample again: {with_workers} samples with {n} workers, {without} with none; "
            "the dataset does not share its samples out (torch.utils.data.get_worker_info() in __iter__)"
        )
    if not found["whole"]:
        return (
            f"the iterable dataset does not end within {found['samples']} samples, "
            "so whether workers would repeat samples cannot be told"
        )
    if not found["compared"]:
        return "the iterable dataset yields other samples on every pass, so whether workers repeat some cannot be told"
    if found["differing"]:
        n = found["differing"][0]
        return f"with {n} workers the iterable dataset yields other samples than with none"
    return ""


# ---- sentences ----------------------------------------------------------------------------------------------------


def _prediction(seen: Reply, wanted: int) -> str:
    computing = f"{100 * seen['cpu_share']:.0f} % of it computing"
    return (
        f"loading a batch in the training process takes {_ms(seen['fetch'])} (varying by {100 * seen['cv']:.0f} %, "
        f"{computing}), the step {_ms(seen['step'])}: {wanted} worker{'s' if wanted > 1 else ''} predicted, "
        "raced with fewer and more"
    )


def _samples_checked(found: Reply | None) -> list[str]:
    if found is None:
        return []
    which = "all samples of an epoch" if found["whole"] else f"the first {found['samples']} samples of an epoch"
    if found["differing"]:
        counts = " and ".join(map(str, found["differing"]))
        return [
            f"not tried: with {counts} worker{'s' if found['differing'] != [1] else ''} {which} differ from those without"
        ]
    if found["random"]:
        return [f"{which} were compared with and without workers: the same, but for what is random in them"]
    return [f"{which} were compared with and without workers: the same"]


def _beyond_cores(told: Told) -> list[str]:
    """That torch will warn, where more workers than cores were measured to pay."""
    workers, cores = _workers(told.winner) if told.winner else 0, int(told.survey.facts.host.cores)
    if not cores or workers <= cores:
        return []
    return [
        f"torch will warn that {workers} workers are more than the {cores} core{'s' if cores > 1 else ''} there are; it was "
        "measured with them, and workers that mostly wait need no core each"
    ]


def _start_up(seen: Reply, told: Told) -> list[str]:
    settings = told.winner or KNOB.current(told.survey)
    workers = _workers(settings)
    batches = told.survey.facts.loader.epoch_batches
    if not workers or not batches:
        return []
    cost = start_seconds(seen, told.kept["samples"]["start"], workers)
    epoch = epoch_seconds(seen, workers, batches)
    fact = (
        f"an epoch of {batches} batches takes about {_time(epoch)}; starting {workers} "
        f"worker{'s' if workers > 1 else ''} for each takes about {_time(cost)} more"
    )
    share = cost / (cost + epoch)
    if settings["persistent_workers"]:
        return [f"{fact}: persistent_workers=True saves that from the second epoch on"]
    if share < PERSISTENT_PAYS:
        return [f"{fact}: persistent_workers=True would not pay ({100 * share:.1f} % of an epoch)"]
    if told.winner is None:
        return [f"{fact}: persistent_workers=True would save that from the second epoch on"]
    return [f"{fact}: persistent_workers stays off, because the program changes its dataset between epochs"]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else _ms(seconds)


# ---- the edit -----------------------------------------------------------------------------------------------------


def _edits(source: Source, call: ast.Call, settings: Settings, survey: Survey) -> tuple[Edit, ...] | None:
    """The call with the settings that differ from what it builds now; None where an argument cannot be set in place."""
    now = KNOB.current(survey)
    changed = {name: settings[name] for name in now if settings[name] != now[name]}
    prefix = survey.facts.loader.prefix
    found: list[Edit] = []
    given: dict[str, str] = {}
    may_hold = hands_on_options(call)
    for plain, value in changed.items():
        name = prefix + plain
        position = _POSITIONS.get(name)
        own = edit.keyword(call, name)
        if _is_default(plain, value) and plain in ("prefetch_factor", "persistent_workers"):
            if own is None and may_hold and not _is_default(plain, now[plain]):
                given[name] = repr(value)
            part = edit.remove_keyword(source, call, name) if own else ()
        elif position is not None and position < len(call.args):
            part = edit.replace(source, call.args[position], repr(value))
        else:
            given[name] = repr(value)
            part = ()
        if part is None:
            return None
        found += part
    written = give(source, call, given)
    if written is None:
        return None
    found += written
    if not settings["num_workers"] and not prefix:
        for name in ("persistent_workers", "multiprocessing_context", "timeout"):  # torch refuses them without workers
            if name in changed or not edit.keyword(call, name):
                continue
            part = edit.remove_keyword(source, call, name)
            if part is None:
                return None
            found += part
        if len(call.args) > _TIMEOUT:
            part = edit.replace(source, call.args[_TIMEOUT], "0")
            if part is None:
                return None
            found += part
    return tuple(found)


def _is_default(name: str, value: object) -> bool:
    return value == {"num_workers": 0, "pin_memory": False, "prefetch_factor": PREFETCH, "persistent_workers": False}[
        name
    ] or (name == "prefetch_factor" and value is None)


def _settings(workers: int, pinned: bool, prefetch: int | None, persistent: bool) -> Settings:
    return {
        "num_workers": workers,
        "pin_memory": pinned,
        "prefetch_factor": prefetch if workers else None,
        "persistent_workers": persistent if workers else False,
    }


def _workers(settings: Settings) -> int:
    return int(str(settings["num_workers"]))


def _prefetch(settings: Settings) -> int:
    return int(str(settings["prefetch_factor"] or PREFETCH))


KNOB = Dataloader()
