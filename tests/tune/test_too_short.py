"""What is said of scripts that end by themselves before anything is decided."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.render.run import FEWEST_TO_TUNE
from perfaudit.target.names import Target
from perfaudit.tune.race_results import Raced
from perfaudit.tune.too_short import FEWEST_UPDATES, SEVERAL_ENDS, ended_words, longer_words, too_short_words

END = "t.py --epochs 1: the script ended after {} updates of its optimizers"
LONGER = "have it train longer, on more data or for more epochs"


@pytest.fixture
def target(project: Callable[..., Path]) -> Target:
    project(**{"t.py": "parser.add_argument('--epochs', default=9)\n"})
    return Target("t.py", arguments=("--epochs", "1"))


def test_the_option_is_named_with_the_value_that_it_has(target: Target) -> None:
    assert longer_words(target) == f"{LONGER}: `--epochs` (1 now)"


def test_the_file_of_settings_is_read(project: Callable[..., Path]) -> None:
    project(**{"t.py": "parser.add_argument('--epochs', default=9)\n", "a.yaml": "epochs: 3\n"})
    said = longer_words(Target("t.py", arguments=("--config", "a.yaml")))
    assert said == f"{LONGER}: `epochs: 3` in a.yaml:1 or `--epochs`"


def test_a_file_that_cannot_be_read_says_nothing() -> None:
    assert longer_words(Target("nowhere.py", arguments=())) == LONGER


@pytest.mark.parametrize(
    ("updates", "gave_up", "ends", "said"),
    [
        (FEWEST_UPDATES - 1, False, 1, "too few to decide a, b, and a longer --budget does not help"),
        (200, True, 1, "too few to decide a, b, and a longer --budget does not help"),
        (200, False, SEVERAL_ENDS, "so that it was started again and again and a, b stayed undecided"),
    ],
)
def test_what_stayed_undecided_as_the_training_ended(
    target: Target, updates: int, gave_up: bool, ends: int, said: str
) -> None:
    raced = [Raced(), Raced(own_end=END.format(updates), own_ends=ends, updates_to_end=updates, gave_up=gave_up)]
    told = too_short_words(target, ["a", "b"], raced)
    assert told.startswith(f"{END.format(updates)}, {said}: {LONGER}: `--epochs` (1 now)")


def test_code_that_could_not_be_raced_to_its_end_is_to_train_longer(target: Target) -> None:
    """As where one knob is searched in fresh processes of a script of nine updates."""
    said = f"a longer --budget does not help where the script ends before: {LONGER}: `--epochs` (1 now)"
    assert ended_words(target, END.format(9)) == said
    assert ended_words(target, "t.py --epochs 1: it raised ValueError: no data") == ""


def test_nothing_is_said_where_the_training_went_on_or_all_is_decided(target: Target) -> None:
    assert too_short_words(target, ["a"], [Raced()]) == ""
    assert too_short_words(target, [], [Raced(own_end=END.format(9), own_ends=1, updates_to_end=9)]) == ""


def test_a_training_that_came_to_its_end_once_or_twice_is_not_too_short(target: Target) -> None:
    """A race over many minutes: a longer budget decides it."""
    ended = Raced(own_end=END.format(5000), own_ends=SEVERAL_ENDS - 1, updates_to_end=5000)
    assert too_short_words(target, ["a"], [ended]) == ""


def test_run_and_tune_agree_on_how_many_steps_are_too_few() -> None:
    assert FEWEST_UPDATES == FEWEST_TO_TUNE
