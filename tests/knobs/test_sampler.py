"""When batches by length can be meant, the sampler that is written into the file, and what is said of it."""

from __future__ import annotations

import ast
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from surveys import survey_of
from torch.utils.data import DataLoader, DistributedSampler

from perfaudit.knobs import Bench, Probe, Refused, Survey, Tokens, Told, Unanswered
from perfaudit.knobs._batches_by_length import (
    ALONE,
    LOADER,
    NAME,
    ON_RANKS,
    WINDOW,
    NotWritten,
    random_loader,
    sampler_edits,
)
from perfaudit.knobs._code import Code
from perfaudit.knobs.sampler import KNOB, by_length, paddings
from perfaudit.measure.facts import CallSite
from perfaudit.measurements import Settings, Trial
from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.target.sample_lengths import SampleLengths

HEAD = "import torch\nfrom torch.utils.data import DataLoader, DistributedSampler\n\n"
BY_IDS: Settings = {"batches": 'by len(sample["input_ids"])'}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def survey(text: str, **loader: Any) -> Survey:
    """Of a program with this text behind the imports, whose only DataLoader gives the batches."""
    text = text if text.startswith('"""') else HEAD + text
    Path("train.py").write_text(text)
    calls = Source("train.py", text).calls(LOADER)
    site = None
    if calls:
        call = calls[0]
        assert call.end_lineno is not None and call.end_col_offset is not None
        site = CallSite(
            str(Path("train.py").resolve()), call.lineno, call.end_lineno, call.col_offset, call.end_col_offset
        )
    return survey_of(loader={"site": site, **loader})


PLAIN = "loader = DataLoader(data, batch_size=32, shuffle=True, collate_fn=pad)\n"


@pytest.mark.parametrize(
    ("text", "loader", "why"),
    [
        (PLAIN, {}, ""),
        (PLAIN, {"is_there": False}, "no DataLoader"),
        (PLAIN, {"prefix": "dataloader_"}, "group_by_length=True"),
        (PLAIN, {"iterable": True}, "in its own order"),
        (PLAIN, {"batch_size": None}, "a batch sampler of its own"),
        (PLAIN, {"batch_size": 1}, "has no padding"),
        ("x = 1\n", {}, "no line of your files builds the loader"),
        (PLAIN.replace("shuffle=True, ", ""), {}, "does not shuffle by shuffle=True"),
        (PLAIN.replace("True", "shuffled"), {}, "does not shuffle by shuffle=True"),
        (PLAIN.replace(", collate_fn=pad", ""), {}, "torch's puts only samples of one length together"),
        (PLAIN.replace("pad)", "pad, sampler=mine)"), {}, "no DistributedSampler"),
        (PLAIN.replace("pad)", "pad, **options)"), {}, "options that are made elsewhere"),
        (PLAIN.replace("pad)", "pad, generator=chance)"), {}, "a generator of its own"),
        (PLAIN + "seen = steps * loader.batch_size\n", {}, "asks the loader for its batch_size"),
        (PLAIN + "for epoch in range(3):\n    data.set_epoch(epoch)\n    for x in loader:\n        pass\n", {}, "would not hold"),
        ("loaders = [" + PLAIN[9:-1] + " for data in parts]\n", {}, "no line can be put before it"),
        ("class BatchesByLength: ...\n" + PLAIN, {}, "has a BatchesByLength already"),
        (PLAIN.replace("shuffle=True", "sampler=DistributedSampler(data)"), {}, "behind a launcher"),
    ],
)  # fmt: skip
def test_when_it_cannot_be_meant(text: str, loader: dict[str, Any], why: str) -> None:
    said = KNOB.not_applicable(survey(text, **loader))
    assert (said == "") == (why == "")
    assert why in said


PROGRAM = '''\
"""Trains."""

import torch
from torch.utils.data import DataLoader


# What is trained on.
def main(args):
    data = Texts()
    loader = DataLoader(
        data,
        batch_size=args.size,
        shuffle=True,
        collate_fn=pad,  # to the longest
        drop_last=True,
    )
    for batch in loader:
        step(batch)
'''


def test_the_patch_is_a_class_the_lengths_and_the_argument() -> None:
    given = survey(PROGRAM)
    patch = KNOB.patch(Code("train.py", given), BY_IDS)
    assert patch is not None
    before, _, behind = patch.after.partition(ALONE)
    assert before == '"""Trains."""\n\nimport torch\nfrom torch.utils.data import DataLoader\n\n\n'
    assert (
        behind
        == """

# What is trained on.
def main(args):
    data = Texts()
    lengths = [len(data[i]["input_ids"]) for i in range(len(data))]
    loader = DataLoader(
        data,
        batch_sampler=BatchesByLength(lengths, batch_size=args.size, drop_last=True),
        collate_fn=pad,  # to the longest
    )
    for batch in loader:
        step(batch)
"""
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "loader = DataLoader(data, 32, True, collate_fn=pad)\n",
            [
                "lengths = [len(data[i][0]) for i in range(len(data))]",
                "loader = DataLoader(data, batch_sampler=BatchesByLength(lengths, batch_size=32), collate_fn=pad)",
            ],
        ),
        (
            "loader = DataLoader(Texts(lengths), 32, shuffle=True, collate_fn=pad)\n",
            [
                "samples = Texts(lengths)",
                "sample_lengths = [len(samples[i][0]) for i in range(len(samples))]",
                "loader = DataLoader(samples, batch_sampler=BatchesByLength(sample_lengths, batch_size=32), collate_fn=pad)",
            ],
        ),
        (
            "sampler: DistributedSampler[int] = DistributedSampler(data, seed=3)\n"
            "loader = DataLoader(data, batch_size=32, sampler=sampler, collate_fn=pad)\n"
            "sampler.set_epoch(1)\n",
            [
                "lengths = [len(data[i][0]) for i in range(len(data))]",
                "sampler: BatchesByLength = BatchesByLength(lengths, batch_size=32, seed=3)",
                "loader = DataLoader(data, batch_sampler=sampler, collate_fn=pad)",
                "sampler.set_epoch(1)",
            ],
        ),
        (
            "loader = DataLoader(data, 32, sampler=DistributedSampler(data), collate_fn=pad)\n",
            [
                "lengths = [len(data[i][0]) for i in range(len(data))]",
                "loader = DataLoader(data, batch_sampler=BatchesByLength(lengths, batch_size=32), collate_fn=pad)",
            ],
        ),
    ],
)
def test_calls_of_other_kinds(text: str, lines: list[str]) -> None:
    source = Source("train.py", HEAD + text)
    edits = sampler_edits(random_loader(source, source.calls(LOADER)[0]), "[0]", 0)
    after = edit.apply(source.text, edits)
    ast.parse(after)
    assert after.splitlines()[-len(lines) :] == lines
    assert (ON_RANKS if "Distributed" in text else ALONE) in after


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("loader = DataLoader(data, 32, sampler=DistributedSampler(data, 4, 0))\n", "more than its samples"),
        ("loader = DataLoader(data, 32, sampler=DistributedSampler(data, shuffle=False))\n", "does not shuffle"),
        ("loader = DataLoader(data, 32, sampler=DistributedSampler(other))\n", "from other samples"),
        (
            "sampler = DistributedSampler(data)\nloader = DataLoader(data, 32, sampler=sampler)\nprint(len(sampler))\n",
            "used for more than to load",
        ),
        (
            "loader = DataLoader(data, 32, sampler=DistributedSampler(data))\nloader.sampler.set_epoch(1)\n",
            "asks the loader for its sampler",
        ),
        ("x = 1; loader = DataLoader(data, 32, shuffle=True)\n", "shares its line"),
    ],
)
def test_calls_that_are_left_as_they_are(text: str, why: str) -> None:
    source = Source("train.py", HEAD + text)
    with pytest.raises(NotWritten, match=why):
        sampler_edits(random_loader(source, source.calls(LOADER)[0]), "[0]", 0)


def test_the_setting_is_read_back_as_it_was_written() -> None:
    given = survey(PROGRAM)
    for accessor, dimension, line in [
        ("[0]", 0, "lengths = [len(data[i][0]) for i in range(len(data))]"),
        ("", 0, "lengths = [len(data[i]) for i in range(len(data))]"),
        ('["mel"]', 1, 'lengths = [data[i]["mel"].shape[1] for i in range(len(data))]'),
    ]:
        patch = KNOB.patch(Code("train.py", given), {"batches": by_length(accessor, dimension)})
        assert patch is not None and line in patch.after
    assert KNOB.patch(Code("train.py", given), {"batches": "as drawn"}) is None
    assert KNOB.holds(survey(PROGRAM, batch_size=None), BY_IDS)
    assert not KNOB.holds(given, BY_IDS)


# ---- the sampler -----------------------------------------------------------------------------------------------------

LENGTHS = [1 + (37 * n) % 101 for n in range(1000)]


def sampler(*given: Any, **more: Any) -> Any:
    names: dict[str, Any] = {"torch": torch}
    exec(ALONE, names)
    return names[NAME](*given, **more)


def drawn(batches: Any) -> list[list[int]]:
    """The numbers of samples that a loader with shuffle=True, or with a batch sampler, gives with one random stream."""
    torch.manual_seed(5)
    more = {"batch_size": 8, "shuffle": True} if batches is None else {"batch_sampler": batches}
    return [[int(n) for n in batch] for batch in DataLoader(range(1000), **more)]  # type: ignore[arg-type]  # a sequence


def test_a_window_has_the_samples_that_shuffling_gives_there() -> None:
    plain, by_length = drawn(None), drawn(sampler(LENGTHS, 8))
    assert [len(batch) for batch in by_length] == [len(batch) for batch in plain]
    assert by_length != plain
    for start in range(0, len(plain), WINDOW):
        one, other = (sorted(chain.from_iterable(each[start : start + WINDOW])) for each in (plain, by_length))
        assert one == other


def test_each_epoch_has_every_sample_once_in_another_order() -> None:
    torch.manual_seed(0)
    own = sampler(LENGTHS, 16, window=10)
    first, second = list(own), list(own)
    for epoch in (first, second):
        assert sorted(chain.from_iterable(epoch)) == list(range(1000))
        assert len(epoch) == len(own) == 63
    assert first != second
    short = sampler(LENGTHS, 16, drop_last=True)
    assert [len(batch) for batch in short] == [16] * 62 == [16] * len(short)


def test_batches_are_of_similar_length_and_in_random_order() -> None:
    torch.manual_seed(0)
    batches = [[LENGTHS[n] for n in batch] for batch in sampler(LENGTHS, 8)]
    assert max(max(batch) - min(batch) for batch in batches) < 20 < 80 < max(LENGTHS) - min(LENGTHS)
    means = [sum(batch) / len(batch) for batch in batches[:WINDOW]]
    assert means != sorted(means) and means != sorted(means, reverse=True)


def on_ranks(ranks: int, **more: Any) -> list[Any]:
    """The sampler of each rank."""
    found = []
    for rank in range(ranks):
        said = SimpleNamespace(get_rank=lambda rank=rank: rank, get_world_size=lambda: ranks)
        names: dict[str, Any] = {
            "torch": SimpleNamespace(Generator=torch.Generator, randperm=torch.randperm, distributed=said)
        }
        exec(ON_RANKS, names)
        found.append(names[NAME](LENGTHS[:998], 8, **more))
    return found


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_ranks_share_the_samples_of_a_window_as_distributed_sampler_does(ranks: int) -> None:
    samplers = on_ranks(ranks)
    for epoch in (0, 3):
        theirs = []
        for rank in range(ranks):
            plain = DistributedSampler(range(998), ranks, rank)  # type: ignore[var-annotated, arg-type]  # a sequence
            plain.set_epoch(epoch)
            samplers[rank].set_epoch(epoch)
            theirs.append(list(torch.utils.data.BatchSampler(plain, 8, False)))
        mine = [list(each) for each in samplers]
        assert [[len(batch) for batch in rank] for rank in mine] == [[len(batch) for batch in rank] for rank in theirs]
        assert all(len(rank) == len(each) for rank, each in zip(mine, samplers, strict=True))
        for start in range(0, len(mine[0]), WINDOW):
            one, other = (
                sorted(n for rank in each for batch in rank[start : start + WINDOW] for n in batch)
                for each in (theirs, mine)
            )
            assert one == other


def spread(of_ranks: list[list[list[int]]]) -> float:
    """Samples' lengths in the batches of a step, of the rank that has most over the mean of all; the mean over the steps."""
    held = [[sum(LENGTHS[n] for n in batch) for batch in rank] for rank in of_ranks]
    return sum(max(step) * len(step) / sum(step) for step in zip(*held, strict=True)) / len(held[0])


def test_ranks_have_batches_of_similar_length_at_the_same_time() -> None:
    plain = [
        list(torch.utils.data.BatchSampler(DistributedSampler(range(998), 4, rank), 8, True))  # type: ignore[arg-type]
        for rank in range(4)
    ]
    assert spread(plain) > 1.15
    assert spread([list(each) for each in on_ranks(4, drop_last=True)]) < 1.02


# ---- the search ------------------------------------------------------------------------------------------------------

SEEN = {
    "why": "", "accessor": "[0]", "dimension": 0, "samples": 4000, "read": 4000, "seconds_each": 1e-4, "before": 0.4,
    "after": 0.03, "shortest": 4, "middle": 30, "longest": 200,
}  # fmt: skip


def bench(seen: dict[str, Any] | Exception) -> Bench:
    def ask(settings: Settings, question: str, **arguments: Any) -> Any:
        assert (settings, question, arguments) == ({"batches": "as drawn"}, "lengths", {})
        if isinstance(seen, Exception):
            raise seen
        return seen

    return Bench(survey(PLAIN), 2, 1 << 30, lambda settings: Probe(settings, 1, 1), ask)


def test_what_is_tried_and_why_nothing_may_be() -> None:
    assert KNOB.candidates(bench(SEEN)) == [{"batches": "by len(sample[0])"}]
    assert KNOB.candidates(bench({**SEEN, "accessor": '["mel"]', "dimension": 1})) == [
        {"batches": 'by sample["mel"].shape[1]'}
    ]
    for seen, why in [
        ({"why": "samples are all of one length"}, "samples are all of one length"),
        ({**SEEN, "seconds_each": 0.1}, "takes about 4e+02 s, and a sampler needs them at each start"),
        (Unanswered("ValueError: no"), "could not be read: ValueError: no"),
    ]:
        with pytest.raises(Refused, match=why.replace("+", r"\+")):
            KNOB.candidates(bench(seen))  # type: ignore[arg-type]  # of any kind


def test_little_padding_is_left_as_it_is() -> None:
    asked = bench({**SEEN, "before": 0.04})
    assert KNOB.candidates(asked) == []
    assert KNOB.kept_words(Told(asked.survey, (), (), asked.kept, None)) == (
        "keep what you have: lengths of samples go from 4 to 200, half of them up to 30; padding is 4.0 % of random batches, "
        "and 3.0 % of those by length"
    )


def test_the_padding_of_the_sampler_that_is_handed_over() -> None:
    torch.manual_seed(0)
    before, after = paddings(SampleLengths(("", 0), 1, LENGTHS, 1000), 8, False)
    assert before > 0.3 > 0.08 > after
    assert paddings(SampleLengths(("", 0), 1, [7] * 100, 100), 8, True) == (0.0, 0.0)


def test_a_loader_is_asked_for_the_lengths_of_its_samples() -> None:
    data = [{"words": torch.ones(n), "label": 1} for n in LENGTHS]

    def pad(samples: list[Any]) -> Any:
        return torch.nn.utils.rnn.pad_sequence([sample["words"] for sample in samples])

    before = torch.get_rng_state()
    seen = KNOB.answer_lengths(SimpleNamespace(loader=DataLoader(data, 8, shuffle=True, collate_fn=pad)))  # type: ignore[arg-type]
    assert (seen["why"], seen["accessor"], seen["dimension"], seen["multiple"]) == ("", '["words"]', 0, 1)
    assert (seen["shortest"], seen["longest"], seen["read"]) == (1, 101, 1000)
    assert seen["before"] > 0.3 > 0.08 > seen["after"]
    assert torch.equal(before, torch.get_rng_state())
    alike = DataLoader([data[0]] * 100, 8, shuffle=True, collate_fn=pad)  # type: ignore[arg-type]
    assert KNOB.answer_lengths(SimpleNamespace(loader=alike)) == {"why": "samples are all of one length"}

    def broken(samples: list[Any]) -> Any:
        raise KeyError("words")

    broken_one = DataLoader(data, 8, shuffle=True, collate_fn=broken)  # type: ignore[arg-type]
    assert KNOB.answer_lengths(SimpleNamespace(loader=broken_one)) == {
        "why": "reading samples raises KeyError: 'words'"
    }


@pytest.mark.parametrize("masked", [True, False])
def test_what_is_said_of_a_search(masked: bool) -> None:
    asked = bench(SEEN)
    (wanted,) = KNOB.candidates(asked)
    trials = [Trial("sampler", settings, "ok", n=4) for settings in ({"batches": "as drawn"}, wanted)]
    tokens = {"as drawn": Tokens(1500, 0.4, 2e-5), "by len(sample[0])": Tokens(1510, 0.03, 1.25e-5)}
    told = Told(
        asked.survey, trials, (), asked.kept, wanted,
        tokens_in=lambda settings: tokens[str(settings["batches"])] if masked else None,
    )  # fmt: skip
    first, second, reading, _ = KNOB.remarks(told)
    assert first.endswith("padding is 40.0 % of random batches, and 3.0 % of those by length")
    assert second == (
        "measured: as drawn, 1,500 tokens a step, 40.0 % padding beside them, 20 µs a token; by len(sample[0]), 1,510 tokens "
        "a step, 3.0 % padding beside them, 12.5 µs a token"
        if masked
        else "no mask tells the tokens of a batch, so times are those of as many samples a step"
    )
    assert reading == "reading the lengths of 4,000 samples takes about 0.4 s, once at each start"
