"""Candidates screened in one running training: each in place for a few steps at a time, in turn with the code as it is.

Child only. What comes of it is not `measured`: it is the training in one process, not the patched program, and nobody has
compared losses. It says which are worth that.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import random
import time
import types
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Literal, Protocol

from perfaudit.errors import TargetError
from perfaudit.measure.environment import free_memory
from perfaudit.measure.queued import queued_seconds
from perfaudit.measure.race import BASE, Pace, Race, Turn
from perfaudit.target.load import said, where
from perfaudit.target.training import NoBatches
from perfaudit.target.working_folder import full_path
from perfaudit.training import Variant
from perfaudit.training.code_change import CodeChange, NotSwappable, code_change
from perfaudit.training.code_variant import own_code, prepare
from perfaudit.training.start_of_step import Numbers, around, bytes_of, changed
from perfaudit.training.together import Together
from perfaudit.training.workers import Workers

Json = dict[str, Any]  # Any: nested JSON

CONTROL = "control"
LEAST_BLOCK_SECONDS = 0.005  # of a block on the CPU: long against what switching and a clock take
LEAST_DEVICE_STEPS, LEAST_DEVICE_SECONDS = (
    5,
    0.05,
)  # of a block between two waits, so that the host may run ahead as in real life
NUMBERS_SHARE = 0.1  # of the free memory of the host, which a copy of parameters and optimizer may take
DIVERGES = "with it, losses become NaN or infinite"
BLOCKS_OF_QUAD = 3  # which shares one with the next
TIMED_STEPS = 3  # of the base, for the length of a block


class Steps(Protocol):
    """A training as far as screening it goes; `target.training.Training` is one."""

    loader: Any
    phases: Any
    restart_seconds: list[float]
    model: Any
    optimizer: Any
    last_loss: Any

    def whole_step(self, fixed: bool = False) -> Any:
        """Load a batch and make a step; of the fixed batch, only the step."""

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""

    def restart_per_step(self) -> float:
        """Seconds that beginning an epoch takes, shared out among its steps."""

    def step_functions(self) -> list[FunctionType]:
        """The user's functions that every step calls."""


class Twin(Variant, Protocol):
    """A variant that is a training of its own, from modules of its own by name."""

    training: Any
    modules: dict[str, types.ModuleType]

    def close(self) -> None:
        """Let go of it."""


class OtherLoader(Variant, Protocol):
    """A variant whose steps take their batches from a loader of its own; `loader` is None before it was first entered."""

    @property
    def loader(self) -> Any:
        """The DataLoader."""


class LeavesSomething(Exception):
    """A candidate behind which the training is not what it was: it is to be built again."""


class StepRaises(NotSwappable):
    """A candidate with which a step raises: it would however it is put in place."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is to be put in place, and how.

    code: by path, the text as imported and as patched, of functions that a step runs. settings: contexts in which a setting
    holds. loader: another one in the place of the training's. whole: by path, the text with all of the candidate, for a twin; {}
    where none can be built of it. way: "in place" falls back on a twin where the code cannot be swapped; "control" is identical
    code.
    """

    key: str
    code: Mapping[str, Sequence[str]] = field(default_factory=dict)
    settings: Sequence[Variant] = ()
    loader: OtherLoader | None = None
    whole: Mapping[str, str] = field(default_factory=dict)
    way: Literal["in place", "twin", "control"] = "in place"


@dataclass(slots=True)
class Twins:
    """Second trainings of this process by the text that they are built from: several races of it share them.

    build: makes one of texts by path; raises NotSwappable, also where memory does not hold another. Here is also known whose
    loader workers run: those of the first training, of a twin, or of a loader that takes the place of the training's.
    """

    build: Callable[[Mapping[str, str]], Twin]
    _built: dict[str, Twin] = field(default_factory=dict)
    _workers: Workers = field(default_factory=lambda: Workers(""))

    def of(self, texts: Mapping[str, str]) -> Twin:
        """The twin with these texts. Raises NotSwappable."""
        key = json.dumps(texts, sort_keys=True)
        if key not in self._built:
            self._workers.give_turn_to(key)  # processes that building it starts are its own
            try:
                self._built[key] = self.build(texts)
            finally:
                self._workers.give_turn_to("")
        return self._built[key]

    def drop(self, twin: Variant) -> None:
        """Let go of a twin that is no use."""
        if key := self._key(twin):
            self._built.pop(key).close()

    @property
    def modules(self) -> list[types.ModuleType]:
        """The modules of all twins."""
        return [module for twin in self._built.values() for module in twin.modules.values()]

    def training_of(self, variant: Variant | None) -> Any:
        """The training that makes a variant's steps where it is one of its own; None where the first one does."""
        key = self._key(variant)
        return self._built[key].training if key else None

    def give_turn_to(self, variant: Variant | None, loader: OtherLoader | None = None) -> None:
        """Let the loader workers that a variant's steps need go on, and all others stand still.

        variant: None for the first training. loader: that takes the place of the training's while the variant is in it.
        """
        self._workers.give_turn_to(self._key(variant) if loader is None else f"loader {id(loader)}")

    def _key(self, variant: Variant | None) -> str:
        return next((key for key, twin in self._built.items() if twin is variant), "")

    def close(self) -> None:
        """Let go of all of them; workers that stand still could not end."""
        self._workers.close()
        for twin in self._built.values():
            twin.close()


def prepare_screening(
    training: Steps,
    candidates: Sequence[Candidate],
    least: float | None,
    seed: int,
    twins: Twins,
    runs_behind: bool = False,
    base: str = BASE,
    mark: Callable[[str], None] = lambda key: None,
    rivals: bool = False,
) -> Screening:
    """Put each candidate in place for a step, time some of the base's, and be ready to run the race.

    least: the share of the step that a candidate must gain, see `Race`. runs_behind: a device runs behind the host. base: the
    key of the candidate that the others are compared with; BASE for the training as it is, which is compared too where it is
    not the base.
    mark: called with the key of what is put in place, "" when it is taken back. rivals: only the fastest is wanted, see `Race`.
    Raises what a step of the training as it is raises, and NotSwappable for a base that cannot be put in place.
    """
    training.whole_step()
    first = around(training)
    training.whole_step()
    numbers = Numbers(training) if bytes_of(training) < NUMBERS_SHARE * free_memory() else None
    prepared = _Preparation(training, twins, frozenset(changed(first, around(training))), numbers)
    # Twins come last: what they compile keeps code from being swapped.
    for candidate in sorted(candidates, key=lambda item: item.way == "twin"):
        if candidate.way != "control":
            mark(candidate.key)
            prepared.put_in(candidate)
    mark("")
    if base in prepared.refused:
        raise NotSwappable(prepared.refused[base])
    for key in [CONTROL, *(candidate.key for candidate in candidates if candidate.way == "control")]:
        prepared.variants[key], prepared.ways[key] = prepared.variants.get(base) or prepared.control(), "control"
        if base in prepared.loaders:
            prepared.loaders[key] = prepared.loaders[base]
    block = _block_steps(training, runs_behind)
    paces = {key: _pace(prepared.loader_of(key), block) for key in (BASE, *prepared.variants)}
    raced = [key for key in (BASE, *prepared.variants) if key not in (base, CONTROL)]
    race = Race(raced, CONTROL, least, seed, paces=paces, base=base, rivals=rivals)
    return Screening(
        training,
        prepared.variants,
        prepared.refused,
        prepared.ways,
        twins,
        race,
        mark,
        prepared.loaders,
        numbers=numbers,
    )


@dataclass(slots=True)
class _Preparation:
    """Candidates tried so far: those in place as variants, the others with the reason."""

    training: Steps
    twins: Twins
    unsteady: frozenset[str] = frozenset()  # what the training's own steps change
    numbers: Numbers | None = None  # as they were before anything was put in place
    variants: dict[str, Variant] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    ways: dict[str, str] = field(default_factory=dict)
    loaders: dict[str, OtherLoader] = field(default_factory=dict)
    swapped: list[CodeChange] = field(default_factory=list)

    def put_in(self, candidate: Candidate) -> None:
        """Try a candidate for a step."""
        why = ""
        if candidate.way == "in place":
            try:
                self.variants[candidate.key] = self._in_place(candidate)
                self.ways[candidate.key] = " and ".join(
                    way
                    for way, is_used in (
                        ("code", candidate.code),
                        ("setting", candidate.settings and candidate.loader is None),
                        ("loader", candidate.loader),
                    )
                    if is_used
                )
                return
            except NotSwappable as refusal:
                why = str(refusal)
                if isinstance(refusal, StepRaises) or not candidate.whole:
                    self.refused[candidate.key] = why
                    return
        try:
            twin = self._tried_twin(candidate.whole)
        except NotSwappable as refusal:
            self.refused[candidate.key] = "; ".join(filter(None, [why, str(refusal)]))
        else:
            self.variants[candidate.key], self.ways[candidate.key] = twin, "twin"
            return
        gc.collect()  # what is left of a twin: its functions, of the same names, would be taken for the first training's

    def _in_place(self, candidate: Candidate) -> Variant:
        loader = [candidate.loader] if candidate.loader is not None else []
        changes = [code_change(full_path(path), before, after) for path, (before, after) in candidate.code.items()]
        parts: list[Variant] = []
        if changes:
            code = prepare(changes, self.twins.modules)
            if not code.swaps:
                raise NotSwappable("the patch changes no function")
            parts.append(code)
        variant = Together([*parts, *candidate.settings, *loader])
        before, learns = around(self.training), _is_finite(self.training.last_loss)
        self.twins.give_turn_to(None, candidate.loader)
        try:
            _try(variant, self.training.whole_step)
        finally:
            self.twins.give_turn_to(None)
            now = around(self.training) if changes else before  # settings are ours, and their tests compare to the bit
            if left := [name for name in changed(before, now) if name not in self.unsteady]:
                raise LeavesSomething(f"after a step with it {' and '.join(left[:2])} is not what it was")
        if learns and self.numbers is not None and not _is_finite(self.training.last_loss):
            self.numbers.put_back()
            self.training.whole_step()
            raise StepRaises(DIVERGES)
        self.swapped += changes
        if candidate.loader is not None:
            self.loaders[candidate.key] = candidate.loader
        return variant

    def control(self) -> Variant:
        """Identical code, put in place as the candidates are: by a twin where one of them is one.

        Where none of theirs is to be swapped, by the code of the step.
        """
        if "twin" in self.ways.values():
            with contextlib.suppress(NotSwappable):
                return self._tried_twin({})
        with contextlib.suppress(NotSwappable):
            own = prepare([item.with_own_code() for item in _each_once(self.swapped)], self.twins.modules)
            if own.swaps:
                return own
        return own_code(self.training.step_functions())

    def _tried_twin(self, texts: Mapping[str, str]) -> Twin:
        twin = self.twins.of(texts)
        self.twins.give_turn_to(twin)
        try:
            _try(twin, twin.training.whole_step)
        except NotSwappable:
            if not any(variant is twin for variant in self.variants.values()):
                self.twins.drop(twin)
            raise
        finally:
            self.twins.give_turn_to(None)
        return twin

    def loader_of(self, key: str) -> Any:
        """The loader that a variant's steps take their batches from."""
        if key in self.loaders:
            return self.loaders[key].loader
        return (self.twins.training_of(self.variants.get(key)) or self.training).loader


@dataclass(slots=True)
class Screening:
    """A race in this process. `refused` says of those that cannot take part why, `ways` how the others are put in place.

    numbers: of the training at the beginning, put back where losses become NaN or infinite; None where memory does not hold them.
    strikes: by key, how often they did so with it in place.

    base_totals: of the base's timed blocks, "steps", seconds on the wall ("wall"), of the process ("cpu"), of waiting for a core
    ("queued"), and by phase ("phases").
    """

    training: Steps
    variants: dict[str, Variant]
    refused: dict[str, str]
    ways: dict[str, str]
    twins: Twins
    race: Race
    mark: Callable[[str], None] = lambda key: None
    loaders: Mapping[str, OtherLoader] = field(default_factory=dict)
    base_totals: Json = field(
        default_factory=lambda: {"steps": 0, "wall": 0.0, "cpu": 0.0, "queued": 0.0, "phases": {}}
    )
    _turns: Generator[Turn, float, None] = field(init=False)
    _turn: Turn | None = field(init=False)
    numbers: Numbers | None = None
    strikes: dict[str, int] = field(default_factory=dict)
    _is_learning: bool = field(init=False)
    _own_loader: Any = field(init=False)
    _chance: random.Random = field(init=False)
    _inside: str = BASE
    _trouble: str = ""

    def __post_init__(self) -> None:
        self._own_loader = self.training.loader  # others may be in its place later
        self._is_learning = _is_finite(self.training.last_loss)
        self._chance = random.Random(self.race.seed)
        self._turns = self.race.turns()
        self._turn = next(self._turns, None)

    def run(self, seconds: float, last: bool = False) -> Json:
        """Race for about so long, to the end of a quad's block, and say how it stands, see `state`. last: the time is over.

        Where the training itself cannot go on, all are judged by what there is, and "trouble" says why. Raises what it raised
        where there is nothing.
        """
        ends = time.perf_counter() + seconds
        self._trouble = ""
        try:
            while self._turn is not None and time.perf_counter() < ends:
                self._lose_step()
                self._turn = _sent(self._turns, self._seconds_of(self._turn))
        except Exception as error:
            if not any(entrant.log_ratios for entrant in self.race.entrants.values()):
                raise
            self._trouble = str(error) if isinstance(error, TargetError) else f"a step raises {_named(error)}"
        finally:
            self._put(BASE)
        if last or self._trouble:
            self.race.end()
        return self.state()

    def _lose_step(self) -> None:
        """About once a round, before a block of the base, make a few of its steps that do not count.

        A quad takes three blocks. What a training does every sixth step, say (an evaluation, a checkpoint, the short batch that
        ends an epoch), would otherwise fall on the same side of every quad, and identical code would be told apart.
        """
        turn, pace = self._turn, self.race.paces[self.race.base]
        if turn is None or turn.key != self.race.base or not turn.is_timed or pace.skipped:
            return
        if self._chance.random() * sum(entrant.is_open for entrant in self.race.entrants.values()) < 1:
            steps = self._chance.randrange(BLOCKS_OF_QUAD * pace.block)
            self._seconds_of(Turn(turn.key, steps, False))

    def state(self) -> Json:
        """What is known: for each entrant its log ratios, its interval and why it left; refused; whether all is decided."""
        entrants = {
            key: {
                "log_ratios": list(entrant.log_ratios),
                "seconds": list(entrant.seconds),
                "left": entrant.left,
                "interval": [
                    entrant.interval.ratio,
                    entrant.interval.low,
                    entrant.interval.high,
                    entrant.interval.quads,
                ]
                if entrant.interval
                else None,
            }
            for key, entrant in self.race.entrants.items()
        }
        return {
            "entrants": entrants,
            "refused": dict(self.refused),
            "ways": dict(self.ways),
            "ended": self._turn is None,
            "trouble": self._trouble,
            "learns": self._is_learning,
            "block": self.race.paces[self.race.base].block,
            "base": self.base_totals,
        }

    def _put(self, key: str) -> None:
        if key == self._inside:
            return
        if self._inside != BASE:
            self.variants[self._inside].leave()
        self._inside = BASE
        self.mark("" if key == BASE else key)
        self.twins.give_turn_to(self.variants.get(key), self.loaders.get(key))
        if key != BASE:
            self._inside = key
            self.variants[key].enter()

    def _seconds_of(self, turn: Turn) -> float:
        """Run a turn's steps, and tell their seconds. A variant with which one raises leaves the race with the reason.

        Seconds of a variant with another batch size are those that the base's batch size would take.
        """
        training = self.twins.training_of(self.variants.get(turn.key)) or self.training
        is_base = turn.key == self.race.base and turn.is_timed
        try:
            self._put(turn.key)
            restarts = len(training.restart_seconds)
            queued, cpu = (queued_seconds(), time.process_time()) if is_base else (0.0, 0.0)
            began = time.perf_counter()
            for _ in range(turn.steps):
                training.whole_step()
            training.synchronize()
        except (Exception, SystemExit) as error:
            is_over = (
                isinstance(error, NoBatches) and training is self.training and self.training.loader is self._own_loader
            )
            if turn.key == self.race.base or is_over:
                raise
            self._put(BASE)
            training.phases.take()  # of the step that was not finished
            self.race.fail(turn.key, _raised(error))
            return 0.0
        seconds = time.perf_counter() - began - sum(training.restart_seconds[restarts:])
        phases = training.phases.take()
        if self._is_learning and not _is_finite(training.last_loss):
            self._learn_again(turn.key, training)
            if turn.key != self.race.base and not self.race.entrants[turn.key].is_open:
                return 0.0
        if is_base:
            seen = {"steps": turn.steps, "wall": seconds, "cpu": time.process_time() - cpu}
            self._add(seen | {"queued": max(0.0, queued_seconds() - queued)}, phases)
        restart: float = turn.steps * training.restart_per_step()
        return float(seconds + restart) * _of_batch(self._own_loader, training.loader)

    def _learn_again(self, key: str, training: Any) -> None:
        """Put the numbers back after losses that are none. A candidate to which that happens twice, and to nobody else, leaves.

        Where it happens to two, the training diverges by itself, and losses are looked at no more.
        """
        self.strikes[key] = self.strikes.get(key, 0) + 1
        others = self.strikes.keys() - {key}
        if training is not self.training and not others:  # a twin, which hurts nobody else
            self.race.fail(key, DIVERGES)
            del self.strikes[key]
            return
        if self.numbers is None or others or key == self.race.base:
            self._is_learning = False
        if self.numbers is not None and training is self.training:
            self._put(BASE)
            self.numbers.put_back()
        if self._is_learning and self.strikes[key] > 1:
            self.race.fail(key, DIVERGES)
            del self.strikes[key]

    def _add(self, seen: Mapping[str, float], phases: Mapping[str, float]) -> None:
        for name, value in seen.items():
            self.base_totals[name] += value
        known = self.base_totals["phases"]
        for name, value in phases.items():
            known[name] = known.get(name, 0.0) + value


def _is_finite(loss: Any) -> bool:
    return loss is None or math.isfinite(float(loss))


def _of_batch(base: Any, own: Any) -> float:
    """The base's samples a step over those of another loader; 1 where either is not told."""
    theirs, mine = (getattr(loader, "batch_size", None) for loader in (base, own))
    return float(theirs / mine) if theirs and mine else 1.0


def _pace(loader: Any, block: int) -> Pace:
    """How steps with a loader are timed: whole rounds of its workers, one of them left out after each switch.

    A worker may have waited for a disk while it stood still, so the first batch of each comes too early.
    """
    count = getattr(loader, "num_workers", 0)
    if not count:
        return Pace(block)
    ahead = count * (getattr(loader, "prefetch_factor", None) or 0)
    return Pace(count * math.ceil(block / count), count, ahead + 2)


def _block_steps(training: Steps, runs_behind: bool) -> int:
    """How many steps a block needs."""
    training.synchronize()
    began, restarts = time.perf_counter(), len(training.restart_seconds)
    for _ in range(TIMED_STEPS):
        training.whole_step()
    training.synchronize()
    seconds = time.perf_counter() - began - sum(training.restart_seconds[restarts:])
    training.phases.take()
    step = max(seconds / TIMED_STEPS, 1e-6)
    if runs_behind:
        return max(LEAST_DEVICE_STEPS, round(LEAST_DEVICE_SECONDS / step))
    return max(1, round(LEAST_BLOCK_SECONDS / step))


def _try(variant: Variant, step: Callable[[], object]) -> None:
    """Make one step with a variant. Raises NotSwappable where that raises, or runs not all of what it changes."""
    try:
        variant.enter()
        missing = variant.parts_not_run(step)
    except NotSwappable:
        raise
    except (Exception, SystemExit) as error:
        raise StepRaises(_raised(error)) from error
    finally:
        variant.leave()
    if missing:
        raise NotSwappable(f"a step does not run {', '.join(missing)}, which the patch changes")


def _raised(error: BaseException) -> str:
    return f"with it, a step raises {_named(error)}"


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {said(error)[:300]}{where(error)}"


def _each_once(changes: Iterable[CodeChange]) -> list[CodeChange]:
    """The same functions, each in one change only."""
    seen: set[tuple[str, str, int]] = set()
    found = []
    for change in changes:
        new = []
        for item in change.functions:
            key = (change.path, item.name, item.before.co_firstlineno)
            if key not in seen:
                seen.add(key)
                new.append(item)
        found.append(CodeChange(change.path, tuple(new)))
    return found


def _sent(turns: Generator[Turn, float, None], seconds: float) -> Turn | None:
    with contextlib.suppress(StopIteration):
        return turns.send(seconds)
    return None
