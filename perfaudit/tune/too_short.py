"""What is said where a script ends by itself before anything is decided: no budget helps it. Reads its text, runs nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.static.settings_files import settings_files
from perfaudit.static.source import Unreadable, read_text
from perfaudit.static.training_length import words_of_length
from perfaudit.target.names import Target

if TYPE_CHECKING:
    from perfaudit.tune.race_results import Raced

LONGER = "on more data or for more epochs"
SEVERAL_ENDS = 3  # of one race; with fewer, a longer budget may decide it as well
FEWEST_UPDATES = 20  # of a script with fewer, no patch can be checked and raced in fresh processes, whatever the budget


def longer_words(target: Target) -> str:
    """How to have a script train longer, with what its text or its arguments show of that."""
    said, arguments = "", target.arguments or ()
    with contextlib.suppress(Unreadable):
        text = read_text(Path(target.file))[0]
        said = words_of_length(text, target.file, arguments, settings_files(text, target.file, arguments))
    return f"have it train longer, {LONGER}{f': {said}' if said else ''}"


def ended_words(target: Target, failure: str) -> str:
    """What to do where the code as it is could not be raced because the script came to its end; "" for another failure."""
    is_end = f"{target}: the script ended after " in failure
    return f"a longer --budget does not help where the script ends before: {longer_words(target)}" if is_end else ""


def is_too_short(raced: Raced) -> bool:
    """Whether the training is too short for this race: no other process would help, or it came to its end several times."""
    return bool(raced.own_end) and (_is_hopeless(raced) or raced.own_ends >= SEVERAL_ENDS)


def _is_hopeless(raced: Raced) -> bool:
    return raced.gave_up or 0 < raced.updates_to_end < FEWEST_UPDATES


def too_short_words(target: Target, names: Sequence[str], raced: Sequence[Raced]) -> str:
    """That a script is too short for these knobs to be decided, and what to do; "" where it is not.

    names: of knobs that more steps would tell something about. raced: their races.
    """
    ended = [each for each in raced if is_too_short(each)]
    if not ended or not names:
        return ""
    last, what = ended[-1], ", ".join(names)
    if any(_is_hopeless(each) for each in ended):
        return f"{last.own_end}, too few to decide {what}, and a longer --budget does not help: {longer_words(target)}"
    why = f"{last.own_end}, so that it was started again and again and {what} stayed undecided"
    return f"{why}: {longer_words(target)}. That helps more than a longer --budget"
