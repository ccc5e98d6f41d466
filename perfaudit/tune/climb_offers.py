"""What patches that are not allowed would gain, in words, with the flag that allows them."""

from __future__ import annotations

from perfaudit.measure.race import FUTILE
from perfaudit.tune.candidates import Candidate, flag_for
from perfaudit.tune.climb_state import Climb


def tell_offers(state: Climb) -> None:
    """Say what patches that are not allowed would gain: of each knob the best of them."""
    offers = [each for key, each in state.candidates.items() if each.lacks and key not in state.alone.out]
    for name in dict.fromkeys(candidate.knob for candidate in offers):
        best = min((candidate for candidate in offers if candidate.knob == name), key=lambda each: _rank(state, each))
        state.left[name] = f"{_offer_words(state, best)}; {how_to_allow(state, best)}"


def _rank(state: Climb, offer: Candidate) -> tuple[bool, float, bool]:
    """The order of offers: those with an interval by their ratio, then those that more time would tell something of."""
    seen, entrant = state.alone.interval(offer.key), state.alone.entrants.get(offer.key)
    return seen is None, seen[0] if seen is not None else 0.0, entrant is not None and entrant.left == FUTILE


def _offer_words(state: Climb, offer: Candidate) -> str:
    """What a patch that is not allowed would gain, as far as it was seen."""
    seen, entrant = state.alone.interval(offer.key), state.alone.entrants.get(offer.key)
    if entrant is not None and entrant.left == FUTILE:
        return f"{offer.words}: {FUTILE}"
    if seen is None:
        return "measured too briefly to say what it would gain"
    if seen[2] >= 1:
        return f"{offer.words}: was not shown to gain anything"
    return f"{offer.words}: would take {seen[0]:.2f} [{seen[1]:.2f}, {seen[2]:.2f}] of the step (screened)"


def how_to_allow(state: Climb, candidate: Candidate) -> str:
    """What a patch changes that is not allowed, and the flag for it."""
    return f"it changes {' and '.join(candidate.lacks)}: {flag_for(candidate.lacks, state.allow)}"
