"""How far a race in one training has come, over all processes and runs that it takes: what is left to race, and with what quads.

Where a process dies, or a run is resumed, an entrant that was open goes on with the quads that it has: were it begun again, it
would have its looks, and their chance to be wrong, once more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from perfaudit.measure.entrants import BASE, CONTROL, CONTROLS, HALVES, way_of_control
from perfaudit.measure.halves import Pair
from perfaudit.tune.own_end import End, error_of, is_own
from perfaudit.tune.race_results import Raced, seen_of
from perfaudit.tune.workshop import Json

LEAST = 0.01  # of the step; what a patch must gain for certain to stay


@dataclass(frozen=True, slots=True)
class Lineup:
    """Who is raced, against what and how long.

    entrants: as the child takes them, see `verbs.racing`; without any the control is raced alone. names: by key, short, for
    those who watch. base: the key of that which the others are compared with, "" for the training as it is. most_quads: which
    those that stay undecided have at most, None for as many as there is time for. least: the share of the step to be gained,
    None where `most_quads` and the time alone end the race. rivals: only the fastest is wanted.
    """

    entrants: Sequence[Json]
    names: Mapping[str, str]
    base: str = ""
    most_quads: int | None = None
    least: float | None = LEAST
    rivals: bool = False

    def key(self, label: str) -> str:
        """Of its notes. An entrant is compared with just this base, whoever else is raced."""
        return " ".join(["race", label, *(_digest(item) for item in self.entrants if item["key"] == self.base)])

    @property
    def digests(self) -> dict[str, str]:
        """What each is that has quads, by key."""
        own = {item["key"]: _digest(item) for item in self.entrants if item["key"] != self.base}
        return {**own, **dict.fromkeys((*CONTROLS, *([BASE] if self.base else [])), "")}


@dataclass(slots=True)
class RaceSoFar:
    """What the processes of a race have told, one after the other; `raced` has the same for those who asked for it.

    told: entrants by key, as a child tells them. others: of earlier runs, which are not raced now. controls: of the processes
    before this one. why_apart: what went wrong with several in place at the same time; "" where nothing did. pairs: of
    blocks with halves in place, of all processes.
    """

    lineup: Lineup
    raced: Raced
    told: dict[str, Json] = field(default_factory=dict)
    _far_before: int = 0  # of this process
    others: dict[str, Json] = field(default_factory=dict)
    controls: list[Json] = field(default_factory=list)
    why_apart: str = ""
    pairs: list[Pair] = field(default_factory=list)
    _aside: list[Pair] = field(default_factory=list)  # from before they were raced apart
    _ends: list[End] = field(default_factory=list)  # of processes, for which somebody was blamed
    _end: Json | None = None  # by which the script has ended, as the child tells it

    def recall(self, notes: Sequence[Json]) -> None:
        """Go on from what earlier runs have noted, without the pairs in which something was in place that is other code now."""
        digests = self.lineup.digests
        for note in notes:
            for key, item in note["entrants"].items():
                (self.told if digests.get(key) == item["digest"] else self.others)[key] = item
            self.controls, self.why_apart = note["controls"], note.get("apart", "")
            noted = {key: item["digest"] for key, item in note["entrants"].items()}
            changed = {key for key, digest in noted.items() if digests.get(key, digest) != digest}
            self.pairs = [pair for pair in note.get("pairs", []) if not changed & {*pair[0], *pair[1]}]
        if notes:
            known = {key for first, second, _ in self.pairs for key in (*first, *second)}
            self._begin_anew({*notes[-1].get("in_halves", ())} - known)
            self.raced.take({**notes[-1], "entrants": self.told, "ended": False})
            self.end_process()

    def note(self) -> Json:
        """What a later run can go on from."""
        digests = self.lineup.digests
        told = {key: {**item, "digest": digests[key]} for key, item in self.told.items()}
        return {
            "entrants": {**self.others, **told},
            "controls": self.controls,
            "ways": self.raced.ways,
            "base": self.raced.base,
            "in_halves": sorted(self.raced.in_halves),
            "apart": self.why_apart,
            "pairs": self.pairs,
        }

    def waiting(self) -> list[Json]:
        """The entrants that are to be raced, and the base with them; [] where all are decided."""
        found = [
            item
            for item in self.lineup.entrants
            if not self._has_left(item["key"]) and item["key"] not in self.raced.refused
        ]
        is_base_alone = [item["key"] for item in found] == [self.lineup.base] and self._has_left(BASE)
        return [] if is_base_alone else found

    def quads_of(self, waiting: Sequence[Json]) -> Json:
        """By key, what is known of entrants that go on in another process."""
        return {key: self.told[key] for key in self._keys(waiting) if key in self.told}

    def controls_beside(self, waiting: Sequence[Json]) -> Json:
        """By way, what the last control of each has shown: another process goes on with that of the way that its own has.

        It has as many quads as the one of those beside it that has fewest, so that beside each of them lies a control.
        """
        quads = {key: len(self.told[key]["log_ratios"]) if key in self.told else 0 for key in self._keys(waiting)}
        in_halves, found = self._keys_in_halves(waiting), Json()
        for item in self.controls:
            way = item.get("way", "")
            beside = quads.keys() & in_halves if way == HALVES else quads.keys() - in_halves
            fewest = min((quads[key] for key in beside), default=0)
            own = {name: item[name][-fewest:] if fewest else [] for name in ("log_ratios", "seconds")}
            found[way] = {**own, "left": ""}
        return found

    def _keys(self, waiting: Sequence[Json]) -> list[str]:
        """Of these, and of the training as it is where that is compared with another base."""
        return [item["key"] for item in waiting if item["key"] != self.lineup.base] + [BASE] * bool(self.lineup.base)

    def _keys_in_halves(self, waiting: Sequence[Json]) -> set[str]:
        """Of these: one that was never put in place is raced so, too, where it is a setting of something, see `measure.slots`."""
        known = self.raced.ways
        return {
            item["key"]
            for item in waiting
            if item["key"] in self.raced.in_halves or (item.get("slot") and item["key"] not in known)
        }

    def take(self, state: Json) -> tuple[bool, bool]:
        """Keep what a child tells; whether somebody has left now, and whether a look was taken."""
        in_halves = state.get("in_halves", ())
        ways = {key: {"way": way_of_control(key, state["ways"], in_halves)} for key in CONTROLS}
        entrants = {key: {**item, **ways.get(key, {})} for key, item in state["entrants"].items()}
        candidates = {key: item for key, item in self.told.items() if key not in CONTROLS}
        before, self.told = self.told, {**candidates, **entrants}
        others = self.raced.in_halves - state["entrants"].keys()  # who was decided in another process
        self.raced.take({**state, "entrants": self.told, "in_halves": {*others, *in_halves}})
        self.why_apart = self.why_apart or state.get("apart", "")
        self.pairs, self._end = state.get("pairs", []), state.get("end")
        for key, updates in [*self.raced.unsure.items()]:
            if state.get("updates", 0) > updates:  # without it, the script goes on
                del self.raced.unsure[key]
        has_left = any(item["left"] and not before.get(key, {}).get("left") for key, item in self.told.items())
        return has_left, any(item["interval"] != before.get(key, {}).get("interval") for key, item in self.told.items())

    def end_process(self, guilty: str = "", why: str = "") -> None:
        """Keep the controls of a process that has ended: what was decided beside them stands and falls with them.

        guilty: with which the process died; it is out, and nothing is said of it.
        """
        if guilty:
            self.raced.refused[guilty] = why
        if guilty in self.told:
            self.told[guilty] = {**self.told[guilty], "left": why, "interval": None}
            self.raced.entrants[guilty] = seen_of(self.told[guilty])
        self.controls = [*self.controls, *({**self.told[key], "key": key} for key in CONTROLS if key in self.told)]
        self.raced.former_controls = [(item.get("key", CONTROL), seen_of(item)) for item in self.controls]
        self._far_before = self._far()

    def race_apart(self, why: str) -> None:
        """From now on put one in place at a time, as several together end the process; who is open begins anew."""
        self.why_apart, self._aside, self.pairs = why, self.pairs or self._aside, []
        self.raced.in_halves -= self._begin_anew(self.raced.in_halves)

    def _begin_anew(self, keys: Set[str]) -> set[str]:
        """Forget what those of these have shown that are open; which they are."""
        is_open = {key for key in keys if not self._has_left(key)}
        for key in is_open & self.told.keys():
            self.told[key] = {**self.told[key], "log_ratios": [], "seconds": [], "interval": None}
        return is_open

    def take_end(self, failure: str, guilty: str) -> End | None:
        """How the script has ended by raising in this process; None where it has not.

        guilty: what the process died with, if it did.
        """
        told, self._end = self._end, None
        if told is not None and (error := error_of(told["words"])):
            return End(error, frozenset(told["with"]), told["updates"])
        error = error_of(failure)
        return End(error, frozenset({guilty} - {"", BASE, *CONTROLS})) if error else None

    def is_own(self, end: End) -> bool:
        """Whether the script has ended so by itself, see `own_end`; with all patches in place as the base, nobody can tell."""
        return not self.lineup.base and is_own(end, self._ends)

    def blame(self, end: End) -> None:
        """Remember who has left because the script ended, until it has come further without them."""
        self._ends.append(end)
        self.raced.unsure |= dict.fromkeys(end.inside, end.updates) if end.updates else {}

    def acquit(self, error: str) -> None:
        """Take back in who has left because of an error that is the script's own, with the quads and pairs that there were."""
        self.raced.refused = {key: why for key, why in self.raced.refused.items() if error_of(why) != error}
        for key, item in self.told.items():
            if error_of(item["left"]) == error:
                self.told[key] = {**item, "left": "", "interval": None}
                self.raced.entrants[key] = seen_of(self.told[key])
                self.raced.unsure.pop(key, None)
        if error_of(self.why_apart) == error:
            self.why_apart, self.pairs = "", self.pairs or self._aside

    def has_gone_on(self) -> bool:
        """Whether this process has added quads to those that there were, or candidates to those that have left."""
        return self._far() > self._far_before

    def _far(self) -> int:
        """Pairs, quads of all candidates, and how many have left: it grows with whatever a process finds out."""
        return len(self.pairs) + sum(
            len(item["log_ratios"]) + bool(item["left"]) for key, item in self.told.items() if key not in CONTROLS
        )

    def is_enough(self) -> bool:
        """Whether all that are open have as many quads as they may have; a control counts where it is raced alone."""
        most = self.lineup.most_quads
        counted = [key for key in self.told if key not in CONTROLS or not self.lineup.entrants]
        return most is not None and all(
            len(self.told[key]["log_ratios"]) >= most for key in counted if not self._has_left(key)
        )

    def _has_left(self, key: str) -> bool:
        return bool(self.told.get(key, {}).get("left"))


def _digest(entrant: Json) -> str:
    return hashlib.sha256(json.dumps(entrant, sort_keys=True).encode()).hexdigest()[:16]
