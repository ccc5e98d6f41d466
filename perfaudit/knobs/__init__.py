"""The knobs: one file for each thing that can be tuned. A knob is found by its file's name; adding one is adding a file.

A file holds `KNOB`, an instance of a subclass of `Knob`. What it leaves out has the defaults below. Nothing here measures:
`tune.search` asks a knob what to try, has it measured, and asks it for words and the patch.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perfaudit.knobs._code import Code, Patch
from perfaudit.knobs._survey import Survey as Survey
from perfaudit.measurements import Comparison, Settings, Trial

Reply = dict[str, Any]  # JSON


# How a setting comes into a training: as a patch whose functions are swapped ("code"), by switches and parts of the training
# that can be set while it runs ("setting"), by another loader in the place of its own ("loader"), or only in a process that is
# built with it ("fresh").
Way = Literal["code", "setting", "loader", "fresh"]


def _nothing(training: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


@dataclass(frozen=True, slots=True)
class Setup:
    """How a child builds a training with one setting: arguments of loader and optimizer, and a change after building.

    while_built: a context in which it is built, and a script makes its first step. applied: a context in which the training
    runs; it puts back what it changes globally. fixed_batch: measure on one batch again and again, for knobs that have nothing
    to do with loading.
    """

    loader_overrides: dict[str, Any] = field(default_factory=dict)
    optimizer_overrides: dict[str, Any] = field(default_factory=dict)
    # Any: a training.factory_training.FactoryTraining.
    applied: Callable[[Any], contextlib.AbstractContextManager[None]] = _nothing
    fixed_batch: bool = True
    while_built: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


@dataclass(frozen=True, slots=True)
class Probe:
    """One setting tried once: peak and resident bytes of a step, or why it failed.

    taken_bytes: what the training takes of its device, tensors and the rest; None where only tensors can be counted.
    """

    settings: Settings
    peak_bytes: int | None = None
    resident_bytes: int | None = None
    taken_bytes: int | None = None
    failure: str = ""
    out_of_memory: bool = False


class Unanswered(Exception):
    """A question that a child could not answer, and why. out_of_memory: because memory ran out."""

    def __init__(self, why: str, out_of_memory: bool = False) -> None:
        super().__init__(why)
        self.out_of_memory = out_of_memory


class Refused(Exception):
    """What a knob that asked found out: it cannot matter here, or its settings would break the training; and why."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a knob may ask while it chooses candidates: what is known of the user's training, limits, questions to a child.

    probe: one step with a setting, in a child of its own. ask(settings, question, **arguments): builds the training with a
    setting in a child and calls the knob's own `answer_<question>(training, **arguments)` there; raises Unanswered.
    kept: whatever the knob wants to find again in `remarks`. seconds: of its whole search; seconds_left: of it, for asking.
    """

    survey: Survey
    cores: int
    memory_budget: int
    probe: Callable[[Settings], Probe]
    ask: Callable[..., Reply]
    kept: dict[str, Any] = field(default_factory=dict)
    seconds_left: Callable[[], float] = lambda: float("inf")
    seconds: float = float("inf")


REFUTED = "refuted"  # under which a search keeps why a predicted setting is not the one to take; others are raced then


@dataclass(frozen=True, slots=True)
class Prediction:
    """The setting that figures of the training itself say is the best, before any was raced.

    seconds: of a step with it; seconds_now: of one of the user's code as it is.
    """

    settings: Settings
    seconds: float
    seconds_now: float


@dataclass(frozen=True, slots=True)
class Tokens:
    """What batches of a setting held: tokens a step, the share of padding beside them, and the seconds that one token takes."""

    per_step: float
    padding: float
    seconds_each: float


@dataclass(frozen=True, slots=True)
class Told:
    """What was measured of a knob, for its last words.

    winner: None where the current setting stays. seconds_in: of a step with a setting, in a phase (`target.phases`, also
    those of the host); None where it was not timed. tokens_in: of its batches; None where these do not tell.
    """

    survey: Survey
    trials: Sequence[Trial]
    comparisons: Sequence[Comparison]
    kept: dict[str, Any]
    winner: Settings | None
    seconds_in: Callable[[Settings, str], float | None] = lambda settings, phase: None
    tokens_in: Callable[[Settings], Tokens | None] = lambda settings: None


class Knob(ABC):
    """One thing that can be tuned. A subclass says what to try and how a training is built with it."""

    name: str  # as its file
    title: str  # what it searches, in a few words
    tries: str  # what its option of `perfaudit tune` does, as --help has it
    metric: Literal["seconds_per_step", "samples_per_second"] = "seconds_per_step"
    # Share of the step that must be gained, by the interval's lower bound, to give up the user's setting.
    min_gain = 0.01
    rules: tuple[str, ...] = ()  # ids of findings whose saving it measures; no rule has two knobs
    phases: tuple[str, ...] = ()  # parts of the step that its settings change (`target.phases`); () for all of it
    # Of the part of the step that it works on, what it saves where it saves something: a guess by hand, which no benchmark has
    # told. It says who gives way where time is short. No verdict and no figure of a report rests on it.
    usual_gain = 0.1
    gains_from: tuple[str, ...] = ()  # parts of the step that it could save, where its settings change others as well
    in_process = True  # nothing runs in other processes, so that processor time may be compared on a busy machine
    fixed_batch = True  # see Setup
    counts_tokens = False  # a step has other samples with each setting, so that its time is told by the token
    alone_because = ""  # why a climb cannot race it beside others, "" where it can
    is_measured_unpatched = True  # its settings can be applied to a program whose text takes no patch
    measures_memory = False  # the table shows the peak memory of every setting
    asks_for_memory = False  # its questions are about the memory of a process, which nothing else must have used
    reference: Settings | None = None  # the setting against which every other one's added time is told
    base_is_applied = False  # the user's setting must be applied too: our loop differs from theirs in it
    seconds_needed = 0.0  # of measuring, below which it is not begun
    asks = 0  # questions behind its candidates for which a training is built in a process of its own
    way: Way = "fresh"
    # Its settings hold for a whole process and cannot be taken back: a climb races them behind the others, in fresh processes.
    is_of_process = False
    is_judged_on_a_busy_machine = True  # False where others on the cores turn its verdict round
    on_scripts = True  # False where it changes what functions of the target build, or the loop that is ours
    changes_always: tuple[str, ...] = ()  # what besides speed each of its settings changes, as fixes say it
    # Of what its settings change: that which may be missing from `--allow` for a setting to be raced and told, not handed over.
    offers: frozenset[str] = frozenset({"precision"})

    @property
    def found_at(self) -> str:
        """Where a child finds it, as module:attribute (`measure.attribute_names`)."""
        return f"{type(self).__module__}:KNOB"

    # ---- whether --------------------------------------------------------------------------------------------------

    def why_not(self, survey: Survey) -> str:
        """Why it cannot matter here, or not be measured on such a target; "" if it can."""
        if survey.facts.is_script and not self.on_scripts:
            return "on a script it is not measured yet; with functions that build the model and the loader it is"
        return self.not_applicable(survey)

    def not_applicable(self, survey: Survey) -> str:
        """Why it cannot matter here, "" if it can."""
        return ""

    def share(self, survey: Survey) -> float:
        """The share of the step that it could gain at most, by the first profile; 1.0 where a profile cannot tell."""
        whole = survey.step_seconds
        return sum(survey.profile.get(name, 0.0) for name in self.phases) / whole if whole and self.phases else 1.0

    def likely_gain(self, survey: Survey) -> float:
        """The share of the step that it saves where it saves something, by the first profile and a guess."""
        whole = survey.step_seconds
        seen = (
            sum(survey.profile.get(part, 0.0) for part in self.gains_from) / whole
            if whole and self.gains_from
            else None
        )
        return self.usual_gain * (seen if seen is not None else self.share(survey))

    def phases_for(self, settings: Settings) -> tuple[str, ...]:
        """The phases that this setting changes, () where only the whole step tells."""
        return self.phases

    def phases_on(self, survey: Survey, settings: Settings) -> tuple[str, ...]:
        """The same on this training."""
        return self.phases_for(settings)

    def way_on(self, survey: Survey, settings: Settings) -> Way:
        """How this setting is put into this training."""
        return self.way

    def raced_behind(self, survey: Survey) -> list[Settings]:
        """Settings that a climb races behind the others, in fresh processes; [] for none.

        They cannot stand in a training that runs or, with factories, they need `seconds_needed` and have less before the race.
        Settings of a knob that `is_of_process` are always raced so.
        """
        return []

    def prepare(self, bench: Bench, settings: Settings) -> bool:
        """Whether a race of such a setting can come to a verdict; asked once, before it. `kept["why"]` says why not."""
        return True

    def idle_words(self, survey: Survey) -> str:
        """Why the share is too small, "" for the share itself."""
        return ""

    # ---- what -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def current(self, survey: Survey) -> Settings:
        """What the user's code does now."""

    @abstractmethod
    def candidates(self, bench: Bench) -> list[Settings]:
        """What else to try first. Raises Refused where asking shows that nothing may be."""

    def prediction(self, bench: Bench, found: Sequence[Settings]) -> Prediction | None:
        """Which of these candidates is the best, where steady figures leave little doubt; None where a first look has to choose.

        What is predicted is raced in fresh processes all the same: only what that race measures is a result. Where it fails there
        or is not shown to be faster, the other candidates are looked at and raced.
        """
        return None

    def size(self, settings: Settings) -> Any:
        """What "smaller" means where two are equally fast: the smaller one is taken."""
        return 0

    def order(self, settings: Settings) -> Any:
        """The order of rows in the table; in the order tried without it."""
        return 0

    def covers(self, settings: Settings) -> tuple[str, ...]:
        """Other knobs that a setting sets as well, which a climb then leaves to it."""
        return ()

    # ---- how ------------------------------------------------------------------------------------------------------

    def least_steps(self, settings: Settings) -> int:
        """How many steps a block must have for its time to be that of the steady state."""
        return 2

    def batches_ready(self, settings: Settings) -> int:
        """How many batches may lie ready when a block begins; as many steps are made before it is timed."""
        return 0

    @abstractmethod
    def setup(self, settings: Settings) -> Setup:
        """How a training is built with a setting; called in the child."""

    def in_place(self, training: Any, settings: Settings) -> contextlib.AbstractContextManager[None]:
        """Inside, a training that runs has a setting, and afterwards what it had; for knobs whose way is "setting"."""
        return self.setup(settings).applied(training)

    def tried_within(self) -> contextlib.AbstractContextManager[None]:
        """What the first step with a setting in place is made in. An error that it raises at its end has not ended a script."""
        return contextlib.nullcontext()

    def told_in_place(self, patch: Patch, settings: Settings) -> Settings:
        """A setting as `in_place` takes it, in the child: with what it needs to know of the patch that makes it the setting."""
        return settings

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        """The edit of the user's source that makes this the setting; None where it cannot be made without a doubt."""
        return None

    def no_line(self, survey: Survey) -> str:
        """Why none of its candidates has an edit, where more is known than that the text is in doubt."""
        return ""

    def by_hand(self, survey: Survey) -> str:
        """Why none of its settings is a patch of this program, "" where one may be."""
        return ""

    def holds(self, survey: Survey, settings: Settings) -> bool:
        """Whether a training built from patched source has the setting."""
        return self.current(survey) == settings

    def spoils(self, before: Survey, after: Survey) -> str:
        """What a training built from patched source has otherwise than the user's, besides the setting; "" for nothing."""
        return ""

    def changes(self, settings: Settings) -> tuple[str, ...]:
        """What besides speed a setting changes, as fixes say it."""
        return self.changes_always

    def changes_at_least(self, survey: Survey) -> tuple[str, ...]:
        """What each of its settings changes on this program, as far as that is known before anything is asked."""
        return self.changes_always

    def changes_found(self, settings: Settings, survey: Survey, kept: dict[str, Any]) -> tuple[str, ...]:
        """What besides speed a setting changes on this program, by what `candidates` has found out; see `Bench.kept`."""
        return self.changes(settings)

    def milder(self, settings: Settings) -> tuple[Settings, ...]:
        """What to try in the place of a setting that changes more than is allowed."""
        return ()

    def changes_in_place(self, settings: Settings, survey: Survey) -> tuple[str, ...]:
        """What a setting that is applied at run time may change in the first losses and in the user's average."""
        return self.changes(settings)

    def is_checked(self, settings: Settings) -> bool:
        """Whether the first losses with a setting that is applied at run time are compared with the user's."""
        return True

    def peak_bytes(self, settings: Settings, kept: dict[str, Any]) -> int | None:
        """The peak memory of a setting, where `candidates` found it out without measuring; see `Bench.kept`."""
        return None

    # ---- words ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def words(self, settings: Settings, survey: Survey) -> str:
        """The advice, which is also the title of the patch."""

    def handed_over(self, settings: Settings, survey: Survey) -> str:
        """How a setting without a patch gets into the source, "" for by hand."""
        return ""

    def kept_words(self, told: Told) -> str:
        """What to say instead of "keep what you have", "" for that."""
        return ""

    def remarks(self, told: Told) -> list[str]:
        """Sentences below the table."""
        return []


def knob(name: str) -> Knob:
    """The knob of this name. Raises ModuleNotFoundError for a name that is none."""
    found: Knob = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").KNOB
    return found


def all_knobs() -> tuple[str, ...]:
    """Names of all knobs, as they stand in reports."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")))


@functools.cache
def settled_by() -> dict[str, str]:
    """The name of the knob that measures the findings of a rule, by the rule's id; rules without a knob are missing."""
    return {rule: name for name in all_knobs() for rule in knob(name).rules}
