"""Workers of the training loader: how many would keep up is predicted from one look without any, then raced.

The predicted number, fewer and more are raced against the user's setting; how that compares with trying every number is
measured by benchmarks/search_quality.py (benchmarks/search_quality.md). Where the prediction is sure, it is raced alone. Where
workers and the threads of a step are more than there are cores, the predicted number is raced with fewer threads as well: threads
that share an operator wait for the one whose core a worker holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfaudit.knobs import REFUTED, Bench, Knob, Prediction, Refused, Reply, Setup, Survey, Told, Unanswered
from perfaudit.knobs._code import Code, Patch, built_at
from perfaudit.knobs._fewer_threads import THREADS, edits_of_threads, fewer_threads
from perfaudit.knobs._loader_arguments import PREFETCH, call_of_loader, edits, is_default
from perfaudit.knobs._samples_alike import (
    are_alike,
    changes_its_dataset,
    counts_alike,
    draws_nothing,
    may_load_alike,
    said_of_samples,
)
from perfaudit.knobs._trainers import added_by_hand, by_options, words_of_options
from perfaudit.knobs._workers_needed import (
    FEW,
    Start,
    epoch_seconds,
    is_sure,
    keeps_up,
    leak,
    most_workers,
    start_seconds,
    wanted_workers,
)
from perfaudit.measurements import Settings
from perfaudit.target.flags import threads_set

LONG_EPOCH = 20  # batches; in shorter ones the first batch, which is timed apart, is more than a twentieth of loading
PERSISTENT_PAYS = 0.01  # share of an epoch that starting workers must take; below, keeping them alive gains nothing


class Dataloader(Knob):
    name = "dataloader"
    title = "how many workers the training step needs"
    tries = "Try other numbers of loader workers."
    usual_gain = 0.7
    way = "loader"
    metric = "samples_per_second"
    # Exhaustive sweeps here were up to 3 % off the true best, and an early call on one run once lost 16 %.
    min_gain = 0.03
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
        alone = _alone(now)
        try:
            seen = bench.kept["seen"] = bench.ask(alone, "instrument")
        except Unanswered as failure:
            bench.kept["unanswered"] = str(failure)
            seen = None
        if seen and (why := leak(seen, bench.memory_budget)):
            raise Refused(why)
        most = bench.kept["most"] = most_workers(seen, bench.cores, _prefetch(now)) if seen else bench.cores
        wanted = bench.kept["wanted"] = min(most, wanted_workers(seen)) if seen else 1
        apart = max(1, wanted // FEW)  # of more, one more or less is too little a difference to be told apart
        counts = sorted({min(most, wanted + n) for n in (-apart, 0, apart)} | ({0} if _workers(now) else set()))
        counts = counts_alike(bench, alone, counts, seen)
        start = bench.kept["samples"]["start"]
        pinned = bench.survey.facts.device.type == "cuda" or bool(now["pin_memory"])
        found = [
            _settings(n, pinned, _prefetch(now), bool(n) and _is_persistent(now, seen, start, n, bench.survey))
            for n in counts
        ]
        found = [settings for settings in found if settings != now]
        if not found:
            raise Refused(said_of_samples(bench.kept["samples"])[0])
        threads = fewer_threads(bench.survey, wanted, seen) if seen else None
        return found + [{**each, THREADS: threads} for each in found if threads and _workers(each) == wanted]

    def prediction(self, bench: Bench, found: Sequence[Settings]) -> Prediction | None:
        """The predicted number, where loads and steps are steady, and that many workers were seen to keep up with the step."""
        seen, now = bench.kept.get("seen"), self.current(bench.survey)
        if seen is None or _workers(now) or not is_sure(seen, bench.kept["wanted"], bench.kept["most"], bench.cores):
            return None
        chosen = [settings for settings in found if _workers(settings) == bench.kept["wanted"]]
        if len(chosen) != 1:
            return None
        try:
            pace = bench.ask(_alone(now), "pace", workers=_workers(chosen[0]))["seconds"]
        except Unanswered:
            return None
        if not keeps_up(seen, pace):
            return None
        bench.kept["pace"] = pace
        return Prediction(chosen[0], float(seen["step"]), float(seen["fetch"]) + float(seen["step"]))

    def size(self, settings: Settings) -> tuple[int, bool]:
        return _workers(settings), THREADS in settings

    def order(self, settings: Settings) -> tuple[int, bool]:
        return self.size(settings)

    def covers(self, settings: Settings) -> tuple[str, ...]:
        return ("threads",) if THREADS in settings else ()

    def least_steps(self, settings: Settings) -> int:
        """A batch of each worker: they come in waves. What lies ready when a block begins is used up before it is timed."""
        return max(2, _workers(settings))

    def batches_ready(self, settings: Settings) -> int:
        """Those that its workers load ahead."""
        return _workers(settings) * _prefetch(settings) if _workers(settings) else 0

    def setup(self, settings: Settings) -> Setup:
        overrides: dict[str, Any] = {name: value for name, value in settings.items() if name != THREADS}
        if not settings["num_workers"]:
            overrides.pop("prefetch_factor")
            overrides.pop("persistent_workers")
        if THREADS not in settings:
            return Setup(loader_overrides=overrides, fixed_batch=False)
        threads = int(str(settings[THREADS]))
        return Setup(loader_overrides=overrides, applied=lambda training: threads_set(threads), fixed_batch=False)

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        found = call_of_loader(code)
        if found is None:
            return None
        written = edits(*found, self.current(code.survey), settings, code.survey.facts.loader.prefix)
        if THREADS in settings:
            of_threads = edits_of_threads(code, found[0], int(str(settings[THREADS])))
            written = (*written, *of_threads) if written and of_threads else None
        return code.patch(*found, written)

    def holds(self, survey: Survey, settings: Settings) -> bool:
        loader = {name: value for name, value in settings.items() if name != THREADS}
        return (
            self.current(survey) == loader
            and settings.get(THREADS, survey.facts.host.threads) == survey.facts.host.threads
        )

    def changes_at_least(self, survey: Survey) -> tuple[str, ...]:
        return () if may_load_alike(survey) and not changes_its_dataset(survey) else self.changes_always

    def changes_found(self, settings: Settings, survey: Survey, kept: dict[str, Any]) -> tuple[str, ...]:
        """Nothing where samples loaded twice, with other random numbers, were the same: torch draws indices in either way.

        Few samples do not tell that, and of a dataset that the program changes no sample tells what comes later.
        Workers that live on from epoch to epoch are seeded once, which shifts the random stream of the epochs behind the first.
        Fewer threads split sums differently.
        """
        found, now = kept.get("samples") or {}, self.current(survey)
        lives_on = settings["persistent_workers"] != now["persistent_workers"]
        is_alike = bool(found) and are_alike(found) and not changes_its_dataset(survey)
        of_loader = () if may_load_alike(survey) and is_alike and not lives_on else self.changes_always
        return (*of_loader, "rounding") if THREADS in settings else of_loader

    def milder(self, settings: Settings) -> tuple[Settings, ...]:
        """The same number of workers, started anew for each epoch."""
        return ({**settings, "persistent_workers": False},) if settings["persistent_workers"] else ()

    def by_hand(self, survey: Survey) -> str:
        loader = survey.facts.loader
        if loader.prefix and (why := by_options(survey, (f"{loader.prefix}num_workers", "N"))):
            return why
        if not survey.facts.is_script or not loader.is_there or call_of_loader(Code("", survey)) is not None:
            return ""
        if loader.owner:
            return (
                f"{loader.owner} builds the loader, and your call{built_at(loader.site)} does not name it: "
                f"give it {loader.prefix}num_workers by hand"
            )
        library = f": {loader.library_line} does" if loader.library_line and loader.site is None else ""
        return f"no line of your files builds the loader{built_at(loader.site)}{library}"

    # ---- words ----------------------------------------------------------------------------------------------------

    def words(self, settings: Settings, survey: Survey) -> str:
        now = self.current(survey)
        changed = {
            k: settings[k]
            for k in now
            if k == "num_workers" or not (settings[k] == now[k] or is_default(k, settings[k]))
        }
        prefix = survey.facts.loader.prefix
        if prefix and (by_command_line := words_of_options(survey, _trainer_arguments(prefix, changed))):
            return by_command_line
        whose = survey.facts.loader.owner or "the trainer's arguments"
        what = f"give {whose}" if prefix else "build the training DataLoader with"
        loader = f"{what} {', '.join(f'{prefix}{name}={value!r}' for name, value in changed.items())}"
        return f"{loader}, and call torch.set_num_threads({settings[THREADS]})" if THREADS in settings else loader

    def handed_over(self, settings: Settings, survey: Survey) -> str:
        prefix = survey.facts.loader.prefix
        return added_by_hand(survey, (f"{prefix}num_workers", "")) if prefix else ""

    def remarks(self, told: Told) -> list[str]:
        seen = told.kept.get("seen")
        if seen is None:
            why = told.kept.get("unanswered")
            return [f"how many workers are needed could not be predicted: {why}"] if why else []
        return [
            _prediction(seen, told),
            *said_of_samples(told.kept.get("samples")),
            *_start_up(seen, told),
            *_beyond_cores(told),
            *_threads_beside(told),
        ]

    # ---- in the child ---------------------------------------------------------------------------------------------

    def answer_instrument(self, training: Any) -> Reply:
        """Seconds to load each of some batches and of the steps on them, without workers; see `_dataloader_look`."""
        from perfaudit.knobs._dataloader_look import look

        return look(training)

    def answer_samples(self, training: Any, counts: list[int], most: int) -> Reply:
        """Whether the loader yields the same samples with these numbers of workers as with none; and seconds to start one.

        most: batches of a map-style dataset to compare, at most. See `target.sampling.compared_with_workers`. is_plain: samples
        are put together by a function that is known to draw nothing.
        """
        if training.loader.num_workers:
            raise ValueError("asked of a loader with workers")
        from perfaudit.target.load import words_of_error
        from perfaudit.target.sampling import compared_with_workers, start_and_stop

        try:
            start = start_and_stop(training.loader)
        except Exception as failure:  # whatever a worker raises
            return {"samples": 0, "failed": f"{type(failure).__name__}: {words_of_error(failure)}"}
        is_plain = draws_nothing(training.loader.collate_fn)
        return {**compared_with_workers(training.loader, counts, most), "start": start, "is_plain": is_plain}

    def answer_pace(self, training: Any, workers: int) -> Reply:
        """Seconds from one batch of so many workers to the next; None where that cannot be told."""
        from perfaudit.target.sampling import seconds_a_batch

        return {"seconds": seconds_a_batch(training.loader, workers)}


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
    return not changes_its_dataset(survey)


# ---- sentences ----------------------------------------------------------------------------------------------------


def _prediction(seen: Reply, told: Told) -> str:
    computing = f"{100 * seen['cpu_share']:.0f} % of it computing"
    wanted, pace, refuted = told.kept["wanted"], told.kept.get("pace"), told.kept.get(REFUTED)
    raced = ", raced with fewer and more"
    if refuted:
        raced = f"; {'that' if wanted > 1 else 'it'} {refuted}, so other numbers were tried"
    elif pace is not None:
        raced = (
            f"; as many loaded a batch every {_ms(pace)}, so other numbers are not raced, nor your code as a control"
        )
        raced += _own_scatter(told)
    return (
        f"loading a batch in the training process takes {_ms(seen['fetch'])} (varying by {100 * seen['cv']:.0f} %, "
        f"{computing}), the step {_ms(seen['step'])}: {wanted} worker{'s' if wanted > 1 else ''} predicted{raced}"
    )


def _own_scatter(told: Told) -> str:
    """In the place of a control: how far blocks of the user's own code lie apart."""
    now = KNOB.current(told.survey)
    own = next((trial.samples for trial in told.trials if trial.settings == now), ())
    return f"; blocks of its own steps took {_ms(min(own))} to {_ms(max(own))} a step" if len(own) > 1 else ""


def _beyond_cores(told: Told) -> list[str]:
    """That torch will warn, where more workers than cores were measured to pay."""
    workers, cores = _workers(told.winner) if told.winner else 0, int(told.survey.facts.host.cores)
    if not cores or workers <= cores:
        return []
    return [
        f"torch will warn that {workers} workers are more than the {cores} core{'s' if cores > 1 else ''} there are; it was "
        "measured with them, and workers that mostly wait need no core each"
    ]


def _threads_beside(told: Told) -> list[str]:
    """What fewer threads rest on, where they were measured to pay."""
    if told.winner is None or THREADS not in told.winner:
        return []
    threads, cores = int(str(told.winner[THREADS])), int(told.survey.facts.host.cores)
    noun = "thread" if threads == 1 else "threads"
    return [
        f"the whole program computes with {threads} {noun} then, evaluation too, because workers need the {cores} cores as well: "
        "on a machine with more cores search again"
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


def _trainer_arguments(prefix: str, settings: Mapping[str, object]) -> list[tuple[str, str]]:
    """Settings as arguments of a trainer."""
    return [(f"{prefix}{name}", repr(value)) for name, value in settings.items()]


# ---- settings -----------------------------------------------------------------------------------------------------


def _settings(workers: int, pinned: bool, prefetch: int | None, persistent: bool) -> Settings:
    return {
        "num_workers": workers,
        "pin_memory": pinned,
        "prefetch_factor": prefetch if workers else None,
        "persistent_workers": persistent if workers else False,
    }


def _alone(now: Settings) -> Settings:
    """The user's setting without workers."""
    return _settings(0, bool(now["pin_memory"]), None, False)


def _workers(settings: Settings) -> int:
    return int(str(settings["num_workers"]))


def _prefetch(settings: Settings) -> int:
    return int(str(settings["prefetch_factor"] or PREFETCH))


KNOB = Dataloader()
