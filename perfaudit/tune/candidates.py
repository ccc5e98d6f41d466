"""What a climb can try: settings of knobs as patches of the user's source, and how each is put into a training that runs."""

from __future__ import annotations

import ast
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perfaudit.findings import CHANGES, Edit, Fix, Location
from perfaudit.knobs import Refused, Survey, Way, knob
from perfaudit.measure.clock import Deadline
from perfaudit.measure.entrants import BEATEN, FUTILE
from perfaudit.measure.stats import verdict
from perfaudit.measurements import Comparison, Interval, Settings
from perfaudit.static import edit
from perfaudit.tune.bout import Bout, fix_for, key_of, variant_of
from perfaudit.tune.first_look import pair_of, smallest_as_good
from perfaudit.tune.race_results import Raced
from perfaudit.tune.race_so_far import LEAST
from perfaudit.tune.recording import changed_files
from perfaudit.tune.search import CHANGED, NO_LINE, bench_of, by_name, pointless, too_little_time
from perfaudit.tune.session import Session
from perfaudit.tune.workshop import Json

PATCH = "patch"  # in the place of a knob's name: the fix of a finding
OF_AVERAGE = frozenset({"PA404", "PA406"})  # rules; the fix of PA405 promises nothing of the average


class TooLate(Refused):
    """There is not the time that a knob needs."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting of a knob, or the fix of a finding, as a patch of one file.

    before: the file's text as it is. lacks: what the patch changes that is not allowed; such a candidate is raced to say what it
    would gain, and is not handed over. settings_in_child: the setting that puts it in place, {} for the setting itself.
    applying_knob: the knob that does so, "" for its own.
    """

    key: str
    knob: str
    settings: Settings
    fix: Fix
    location: Location
    before: str
    way: Way
    lacks: tuple[str, ...] = ()
    settings_in_child: Settings = field(default_factory=dict)
    applying_knob: str = ""

    @property
    def words(self) -> str:
        """The advice."""
        return self.fix.title

    @property
    def is_of_average(self) -> bool:
        """Whether it changes how an average of the weights is kept."""
        return self.knob == "ema" or (self.knob == PATCH and self.settings.get("patch") in OF_AVERAGE)

    @property
    def path(self) -> str:
        return self.location.path

    @property
    def edits(self) -> tuple[Edit, ...]:
        return self.fix.edits


def candidates_of(
    session: Session, survey: Survey, name: str, allow: frozenset[str], deadline: Deadline
) -> list[Candidate]:
    """The patches of a knob that change no more than is allowed, and those that would be offered.

    Raises Refused for none, TooLate where more time might have some.
    """
    _refuse_unasked(session, survey, name, allow, deadline)
    module = knob(name)
    session.watch.stage(f"{name}: {module.title}")
    current = variant_of(name, module.current(survey))
    bout = Bout(name, survey, current)
    found, lacking = list[Candidate](), dict[str, None]()
    known = {current.key}
    all_wanted = module.candidates(bench_of(session, bout, deadline, deadline.seconds_left()))
    for wanted in all_wanted:
        tried: list[Candidate] = []
        for settings in (wanted, *module.milder(wanted)):
            key = key_of(name, settings)
            written = fix_for(session, name, survey, settings, bout.kept) if key not in known else None
            if written is None:
                continue
            patch, fix = written
            lacks = _not_allowed(fix.changes, allow)
            lacking.update(dict.fromkeys(lacks))
            if not lacks or (set(lacks) <= module.offers and allow):
                way = module.way_on(survey, settings)
                told = module.told_in_place(patch, settings)
                tried.append(Candidate(key, name, settings, fix, patch.location, patch.before, way, lacks, told))
            if not lacks:
                break
        if tried:
            taken = tried[-1] if not tried[-1].lacks else tried[0]
            known.add(taken.key)
            found.append(taken)
    if not found:
        reason = module.no_line(survey)
        without = f"; {by_name(name)}" if all_wanted and module.is_measured_unpatched else ""
        reason = f"{reason or NO_LINE}{without}"
        why = CHANGED if changed_files(session.digests) else reason
        raise Refused(not_allowed(tuple(lacking), allow) if lacking else why)
    return found


def _refuse_unasked(session: Session, survey: Survey, name: str, allow: frozenset[str], deadline: Deadline) -> None:
    """Raise Refused where a knob has no patch to race beside others here, whatever it would answer."""
    module = knob(name)
    if reason := module.why_not(survey) or (pointless(module, survey) if session.skips_idle else ""):
        raise Refused(reason)
    if module.alone_because:
        raise Refused(f"{module.alone_because}; search it alone with --{name.replace('_', '-')}, without --allow")
    if survey.facts.is_script and module.way_on(survey, module.current(survey)) == "fresh":
        raise Refused(
            f"a script runs once in a process, so this is not raced beside the others; {alone_words(survey, name)}"
        )
    if why := module.by_hand(survey):
        raise Refused(f"{why}; {by_name(name)}")
    if late := too_little_time(module, deadline):
        raise TooLate(f"{late}, or search it alone with --{name.replace('_', '-')}")
    if never := why_never_allowed(survey, name, allow):
        raise Refused(never)


def why_never_allowed(survey: Survey, name: str, allow: frozenset[str]) -> str:
    """Why no setting of a knob may be raced: each changes more than is allowed, and is not offered either. "" where some may."""
    module = knob(name)
    always = _not_allowed(module.changes_at_least(survey), allow)
    return not_allowed(always, allow) if set(always) - module.offers or (always and not allow) else ""


def candidates_behind(session: Session, survey: Survey, name: str, allow: frozenset[str]) -> list[Candidate]:
    """The patches of a knob that are raced behind the others; [] where it is none of those. Raises Refused for none."""
    module, found = knob(name), list[Candidate]()
    for settings in module.raced_behind(survey):
        written = fix_for(session, name, survey, settings, {})
        if written is None:
            raise Refused(f"{module.no_line(survey) or NO_LINE}; {by_name(name)}")
        patch, fix = written
        if lacks := _not_allowed(fix.changes, allow):
            raise Refused(not_allowed(lacks, allow))
        way = module.way_on(survey, settings)
        found.append(Candidate(key_of(name, settings), name, settings, fix, patch.location, patch.before, way))
    return found


def alone_words(survey: Survey, name: str) -> str:
    """How to measure a knob that a climb cannot race beside the others."""
    whose = "the script" if survey.facts.is_script else "your code"
    return f"search it alone with --{name.replace('_', '-')}, on {whose} with the patch of the others applied"


def least_gain(candidate: Candidate) -> float:
    """The share of the step that a candidate must gain for certain; 0 for the fix of a finding, which must gain anything."""
    return max(LEAST, knob(candidate.knob).min_gain) if candidate.knob != PATCH else 0.0


def pays(candidate: Candidate, seen: Interval | None) -> bool:
    """Whether a candidate with this ratio gains what it must."""
    return seen is not None and seen[2] < 1 and 1 - seen[2] >= least_gain(candidate)


def best_of(candidates: Sequence[Candidate], raced: Raced) -> Candidate | None:
    """Of the settings of one knob, the smallest that is as good as the fastest of those that pay; None where none does."""
    known = {candidate.key: candidate for candidate in candidates}
    ratios = {key: seen[0] for key, each in known.items() if (seen := raced.interval(key)) and pays(each, seen)}
    best = smallest_as_good(ratios, lambda key: knob(known[key].knob).size(known[key].settings))
    return known[best] if best is not None else None


def screened_comparisons(candidates: Mapping[str, Candidate], raced: Raced) -> tuple[Comparison, ...]:
    """Each of these candidates, by key, that was raced against the user's code in one training."""
    found = []
    for key, candidate in candidates.items():
        seen, interval = raced.entrants.get(key), raced.interval(key)
        if seen is None or key in raced.failures:
            continue
        logs = raced.log_ratios.get(key)
        ratio, low, high = interval or (math.exp(statistics.median(logs)) if logs else 1.0, 0.0, math.inf)
        current: Settings = {"patch": "none"}
        found.append(
            Comparison(
                candidate.knob, current, candidate.settings, ratio, low, high, verdict(low, high), seen.quads,
                given_up=seen.left in (FUTILE, BEATEN) or (interval is None and seen.left != ""), basis="screened",
                way=raced.ways.get(key, ""), clock=raced.clock, in_halves=key in raced.in_halves,
            )
        )  # fmt: skip
    return tuple(found)


def texts_of(candidates: Sequence[Candidate]) -> dict[str, str]:
    """By path, the text with all these patches. Raises ValueError where two of them change the same text."""
    texts = {}
    for path in dict.fromkeys(candidate.path for candidate in candidates):
        mine = [candidate for candidate in candidates if candidate.path == path]
        for at, candidate in enumerate(mine):
            if any(edit.overlap(candidate.edits, other.edits) for other in mine[:at]):
                raise ValueError(f"two patches change the same text of {path}")
        text = edit.apply(mine[0].before, [item for candidate in mine for item in candidate.edits])
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise ValueError(f"together the patches leave no Python in {path}") from error
        texts[path] = text
    return texts


def in_place(key: str, candidates: Sequence[Candidate]) -> Json:
    """These patches together, as the child is told to put them in place: see `verbs.racing`."""
    whole = texts_of(candidates)
    swapped = [candidate for candidate in candidates if candidate.way == "code"]
    before = {candidate.path: candidate.before for candidate in swapped}
    code = {path: [before[path], text] for path, text in texts_of(swapped).items()}
    settings = [
        pair_of(c.applying_knob or c.knob, c.settings_in_child or c.settings)
        for c in candidates
        if c.way in ("setting", "loader")
    ]
    loaders = [pair_of(c.knob, c.settings) for c in candidates if c.way == "loader"]
    is_built = any(candidate.way == "fresh" for candidate in candidates) or len(loaders) > 1
    entrant = {
        "key": key,
        "code": code,
        "settings": settings,
        "whole": whole,
        "way": "twin" if is_built else "in place",
    }
    return entrant | ({"loader": loaders[0]} if loaders else {})


def alone_in_place(candidate: Candidate, is_first: bool = False) -> Json:
    """This patch by itself, as the child is told to put it in place, with what it must gain and what it is a setting of.

    is_first: others wait for its first quads. One that is not allowed is no setting of anything there: the others are not
    measured beside what will not be handed over.
    """
    thing = candidate.key if candidate.knob == PATCH else candidate.knob
    own = {"least": max(LEAST, least_gain(candidate)), "slot": "" if candidate.lacks else thing}
    return in_place(candidate.key, [candidate]) | own | ({"is_first": True} if is_first else {})


def not_allowed(changes: tuple[str, ...], allow: frozenset[str]) -> str:
    """Why a patch that changes these things besides what is allowed was not climbed."""
    return f"it changes {' and '.join(changes)}; allow that with {flag_for(changes, allow)}"


def how_to_allow(candidate: Candidate, allow: frozenset[str]) -> str:
    """What a patch changes that is not allowed, and the flag for it."""
    return f"it changes {' and '.join(candidate.lacks)}: {flag_for(candidate.lacks, allow)}"


def flag_for(changes: tuple[str, ...], allow: frozenset[str]) -> str:
    """The flag that allows these changes beside what is allowed already."""
    return f"--allow {','.join(change for change in CHANGES if change in {*changes, *allow})}"


def _not_allowed(changes: Iterable[str], allow: frozenset[str]) -> tuple[str, ...]:
    return tuple(change for change in changes if change not in allow)
