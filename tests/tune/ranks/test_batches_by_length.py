"""Batches of similar length on ranks: the patch, when there is none, how it is compared, and two ranks that it evens out."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from forked_programs import run_perfaudit_on_ranks

from perfaudit.tune.ranks.candidates import BY_LENGTH, NoCandidates, candidates_of
from perfaudit.tune.ranks.patches import SeenRanks
from perfaudit.tune.ranks.race import BASE, CONTROL, Race, SetRun

PROGRAM = Path(__file__).parents[3] / "benchmarks/rank_programs/padded_ranks.py"
LENGTHS = {"why": "", "accessor": '["words"]', "dimension": 0}
HEAD = """\
from torch.utils.data import DataLoader, DistributedSampler
sampler = DistributedSampler(data)
"""
LOADER = "loader = DataLoader(data, batch_size=8, sampler=sampler, collate_fn=pad)\n"
KEY = "batches='by len(sample[\"words\"])'"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ranks(lengths: dict[str, Any] = LENGTHS, lines: tuple[int, int] = (3, 3)) -> SeenRanks:
    return SeenRanks(lengths=lengths, loaders_read=[("train.py", *lines)])


def test_the_sampler_takes_the_place_of_the_distributed_one() -> None:
    Path("train.py").write_text(HEAD + LOADER)
    (candidate,) = candidates_of(["train.py"], frozenset({"order"}), ranks(), BY_LENGTH).candidates
    assert (candidate.key, candidate.fix.safety, candidate.fix.changes) == (KEY, "unsafe", ("order",))
    assert candidate.text.endswith(
        'lengths = [len(data[i]["words"]) for i in range(len(data))]\n'
        "sampler = BatchesByLength(lengths, batch_size=8)\n"
        "loader = DataLoader(data, batch_sampler=sampler, collate_fn=pad)\n"
    )


@pytest.mark.parametrize(
    ("text", "seen", "allow", "why"),
    [
        (LOADER, ranks(), frozenset({"rounding"}), "it changes order; --allow order tries it"),
        (
            LOADER,
            ranks({"why": "samples are all of one length"}),
            frozenset({"order"}),
            "samples are all of one length",
        ),
        (LOADER, ranks({}), frozenset({"order"}), "no sample has a length"),
        (LOADER, ranks(lines=(9, 9)), frozenset({"order"}), "no sample has a length"),
        (LOADER.replace("sampler=sampler", "shuffle=True"), ranks(), frozenset({"order"}), "by no DistributedSampler"),
        (LOADER + "print(len(sampler))\n", ranks(), frozenset({"order"}), "used for more than to load"),
    ],
)
def test_why_there_is_no_such_patch(text: str, seen: SeenRanks, allow: frozenset[str], why: str) -> None:
    Path("train.py").write_text(HEAD + text)
    with pytest.raises(NoCandidates, match=re.escape(why)):
        candidates_of(["train.py"], allow, seen, BY_LENGTH)


# ---- the race --------------------------------------------------------------------------------------------------------


def race(*runs: tuple[SetRun, SetRun]) -> Race:
    """Generations of the code as it is and of the patch."""
    raced = Race({KEY: {"patch": KEY}}, {KEY: ("order",)}, {"patch": "none"})
    for base, patched in runs:
        raced.add({BASE: base, CONTROL: base, KEY: patched})
    return raced


def held(mean: float, tokens: float, losses: tuple[float, ...] = (1.0,), **more: Any) -> SetRun:
    """A set whose median step says nothing, as the lengths of batches go by chance."""
    return SetRun(9.0 * mean, (losses, losses), mean=mean, tokens=tokens, **more)


def test_steps_with_other_samples_are_compared_by_the_mean_of_a_token() -> None:
    raced = race(*[(held(0.10 * n, 100 * n), held(0.04 * n, 50 * n)) for n in (1, 1.1, 1.2, 1.3)])
    (compared,) = raced.comparisons()
    assert (compared.ratio, compared.per, compared.verdict) == (pytest.approx(0.8), "token", "faster")
    assert raced.best() == KEY
    assert [trial.median for trial in raced.trials()] == pytest.approx([0.115, 0.046])


def test_without_masks_they_are_compared_by_the_step() -> None:
    (compared,) = race(*[(held(0.10, 0.0), held(0.04, 50.0))] * 4).comparisons()
    assert (compared.ratio, compared.per) == (pytest.approx(0.4), "step")


def test_of_losses_only_that_they_are_numbers_is_asked() -> None:
    fine = race(*[(held(1, 1, (1.0, 0.5)), held(1, 1, (2.0, 3.0)))] * 2)
    assert fine.failures == {}
    assert fine.loss_words(KEY) == (
        "the first 2 losses of each rank are finite, in 2 starts; equality is not claimed, because the patch changes the "
        "order in which samples come"
    )
    assert race((held(1, 1), held(1, 1, (math.nan,)))).failures == {KEY: "its losses are not finite"}


def test_what_batches_hold_is_told_before_and_after() -> None:
    raced = race((held(1, 1, padding=0.5, spread=1.25), held(1, 1, padding=0.04, spread=1.01)))
    assert raced.batches_words(KEY) == (
        f"{KEY}: padding is 50 % of what batches hold, and 4 % with it; the fullest batch of a step holds 1.25 times the mean of "
        "all ranks, and 1.01 times with it; it is compared by the token"
    )
    assert race((held(1, 0), held(1, 0))).batches_words(KEY) == (
        f"{KEY}: it is compared by the step, as no mask tells the tokens of a batch"
    )


# ---- two ranks -------------------------------------------------------------------------------------------------------


def run_on_two_ranks() -> dict[str, Any]:
    """What `perfaudit run` says of 30 steps of padded_ranks.py here."""
    done = run_perfaudit_on_ranks(Path.cwd(), 2, "run", "padded_ranks.py", "--steps", "30", "--format", "json")
    assert done.code in (0, 1), done.err
    found: dict[str, Any] = json.loads(done.out)["run"]
    return found


@pytest.mark.slow
def test_two_ranks_whose_batches_differ_have_about_the_same_with_the_patch() -> None:
    """Of gloo. What batches hold is counted, so that nothing here goes by the clock."""
    pytest.importorskip("torch")
    text = PROGRAM.read_text()
    Path("padded_ranks.py").write_text(text)
    line = 1 + text[: text.index("loader = DataLoader")].count("\n")
    before = run_on_two_ranks()
    seen = SeenRanks(lengths=LENGTHS, loaders_read=[("padded_ranks.py", line, line)])
    (candidate,) = candidates_of(["padded_ranks.py"], frozenset({"order"}), seen, BY_LENGTH).candidates
    Path("padded_ranks.py").write_text(candidate.text)
    after = run_on_two_ranks()
    assert before["batch_spread"] > 1.15 > 1.03 > after["batch_spread"]
    paddings = [[rank["padding"] for rank in each["by_rank"]] for each in (before, after)]
    assert min(paddings[0]) > 0.5 > 0.12 > max(paddings[1])
