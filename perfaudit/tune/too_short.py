"""What is said where a script ends by itself before anything is decided: no budget helps it. Reads its text, runs nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.static.source import Unreadable, read_text
from perfaudit.static.training_length import words_of_length
from perfaudit.target.names import Target

if TYPE_CHECKING:
    from perfaudit.tune.race_results import Raced

LONGER = "on more data or for more epochs"
FEWEST_UPDATES = 20  # of a script with fewer, no patch can be checked and raced in fresh processes, whatever the budget


def longer_words(target: Target) -> str:
    """How to have a script train longer, with what its text or its arguments show of that."""
    said = ""
    with contextlib.suppress(Unreadable):
        said = words_of_length(read_text(Path(target.file))[0], target.file, target.arguments or ())
    return f"have it train longer, {LONGER}{f': {said}' if said else ''}"


def too_short_words(target: Target, names: Sequence[str], raced: Sequence[Raced]) -> str:
    """That a script ended by itself before these knobs were decided, and what to do; "" where it did not.

    names: of knobs that more steps would tell something about. raced: their races.
    """
    ended = [each for each in raced if each.own_end]
    if not ended or not names:
        return ""
    last, what = ended[-1], ", ".join(names)
    if any(each.gave_up or 0 < each.updates_to_end < FEWEST_UPDATES for each in ended):
        return f"{last.own_end}, too few to decide {what}, and a longer --budget does not help: {longer_words(target)}"
    why = f"{last.own_end}, so that it was started again and again and {what} stayed undecided"
    return f"{why}: {longer_words(target)}. That helps more than a longer --budget"
