"""What is raced first on ranks, and how much of it fits into the budget. Pure.

A set of ranks costs a start of the script, so a budget has few of them. What the phases of a step say that a patch may gain
decides which come first; whether it does, the race says.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfaudit.measure.stats import LOOKS, looks_made, student_quantile
from perfaudit.tune.ranks.patches import RankPatch

SCREENING_SHARE = 0.3  # of the budget, for patches that a running set of ranks can be given
STARTS_TO_SCREEN = 3  # of the script, for which there must be time: two of them to see what there is and to race it
BESIDE = 2  # sets of a generation besides those of the patches: your code, and identical code
ONCE = 1  # sets of the first generation alone: your code with its gradients moved
# Of a step, chosen: from which on what no running set can be given is sure of its generations before anything is screened.
PROMISING = 0.1


@dataclass(frozen=True, slots=True)
class Shares:
    """Where the step of the first set goes. communication: of the rank that waits least, None where it is not known."""

    communication: float | None = None
    update: float = 0.0
    loading: float = 0.0


@dataclass(slots=True)
class Pace:
    """What the tuning has taken so far. of_set: seconds of a set of ranks; first: of the first one, with the choice of patches;
    spent: until now. has_screened: a longer budget has a longer screening, too.
    """

    of_set: float
    first: float = 0.0
    spent: float = 0.0
    has_screened: bool = False

    def budget_for_more(self, generations: int, patches: int) -> str:
        """The budget that has so many more generations of so many patches, as it is typed: what is spent is spent again."""
        more = generations * (BESIDE + patches) * self.of_set
        return budget_words(self.spent + more / (1 - SCREENING_SHARE * self.has_screened))

    def budget_to_look(self, patches: int) -> str:
        """The budget that has the generations before the first look at so many patches, as it is typed."""
        screens = self.has_screened or patches > 1  # that of one patch is kept before anything is screened
        return budget_words((self.first + _seconds_of_race(patches, self.of_set)) / (1 - SCREENING_SHARE * screens))


def budget_words(seconds: float) -> str:
    """A budget as it is typed."""
    return f"--budget {math.ceil(seconds)}s"


def generations_to_show(log_ratios: Sequence[float], least: float) -> int | None:
    """How many generations would show the gain `least`, if the next ones scatter as these do; None where no number would.

    Of a race that its budget ends, as `interval_at` has it.
    """
    if len(log_ratios) < 2:
        return None
    centre, scatter = statistics.fmean(log_ratios), statistics.stdev(log_ratios)
    for count in range(len(log_ratios) + 1, LOOKS[-1].generations + 1):
        alpha = looks_made(LOOKS, count, True)[-1][1]
        if centre + student_quantile(count - 1, alpha) * scatter / math.sqrt(count) <= math.log(1 - least):
            return count
    return None


# Of the time in collectives that a patch may take away, by its first setting. `no_sync` leaves one pass of several; a hook sends
# half of the bytes. For the others chosen: what is sent is still sent.
_OF_COMMUNICATION = {
    "no_sync": 1.0,
    "comm_hook": 0.5,
    "find_unused_parameters": 0.5,
    "bucket_cap_mb": 0.4,
    "reshard_after_forward": 0.5,
    "forward_prefetch": 0.5,
    "gradient_as_bucket_view": 0.3,
    "static_graph": 0.3,
}
_OF_UPDATE = {"optimizer": 0.5}  # each of two ranks updates half
_OF_LOADING = {"num_workers": 1.0}
_NEED_FRESH_SETS = {"no_sync", "num_workers", "optimizer", "reshard_after_forward", "forward_prefetch"}


def promise(patch: RankPatch, shares: Shares) -> float:
    """What a patch may gain at most, as a share of a step, as far as the phases tell; 0 where they tell nothing."""
    parts = [
        (shares.communication or 0.0) * _OF_COMMUNICATION.get(name, 0.0)
        + shares.update * _OF_UPDATE.get(name, 0.0)
        + shares.loading * _OF_LOADING.get(name, 0.0)
        for name in _settings_changed(patch)
    ]
    return max(parts, default=0.0)


def _settings_changed(patch: RankPatch) -> set[str]:
    return {name for name, value in patch.settings.items() if patch.now.get(name) != value}


def in_order(
    patches: Sequence[RankPatch], shares: Shares, saved: Mapping[str, float], looks: Mapping[str, float]
) -> list[RankPatch]:
    """The patches, what promises most first; those that promise the same as they are.

    saved: the share of a step that a patch was shown to save in a running set, by key, which counts in the place of its promise;
    looks: that which one seemed to save that was not decided there, and promises no more than that.
    """

    def worth(patch: RankPatch) -> float:
        promised = promise(patch, shares)
        return saved.get(patch.key, min(promised, looks.get(patch.key, promised)))

    return sorted(patches, key=worth, reverse=True)


def seconds_to_screen(
    budget: float, spent: float, of_set: float, patches: Sequence[RankPatch], shares: Shares
) -> float:
    """Seconds for a running set: a share of the budget, as far as what is promising and needs fresh sets leaves them.

    spent: seconds of the budget; of_set: that a set takes.
    """
    return max(0.0, min(SCREENING_SHARE * budget, budget - spent - _seconds_kept(of_set, patches, shares)))


def budget_to_screen(spent: float, of_set: float, patches: Sequence[RankPatch], shares: Shares) -> float:
    """The least budget of which STARTS_TO_SCREEN starts are left for a running set. spent: seconds, of one start."""
    wanted = STARTS_TO_SCREEN * spent
    return max(wanted / SCREENING_SHARE, spent + wanted + _seconds_kept(of_set, patches, shares))


def _seconds_kept(of_set: float, patches: Sequence[RankPatch], shares: Shares) -> float:
    """Seconds for the generations of a patch that is promising and needs fresh sets; 0 where there is none."""
    promises = [promise(each, shares) for each in patches if _NEED_FRESH_SETS & _settings_changed(each)]
    return _seconds_of_race(1, of_set) if max(promises, default=0.0) >= PROMISING else 0.0


def seconds_that_fit(seconds: float) -> float:
    """Seconds that a set may take for the generations of one patch to fit into so many seconds."""
    return seconds / _seconds_of_race(1, 1.0)


def _seconds_of_race(patches: int, of_set: float) -> float:
    """Seconds until the first look at so many patches."""
    return (LOOKS[0].generations * (BESIDE + patches) + ONCE) * of_set


def number_that_fit(seconds: float, of_set: float) -> int:
    """Patches of which the generations before the first look fit into so many seconds. of_set: that a set takes."""
    return max(0, int((seconds / of_set - ONCE) / LOOKS[0].generations) - BESIDE)
