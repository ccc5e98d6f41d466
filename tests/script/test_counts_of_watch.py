"""What is counted of a training, and who hears of it. No torch."""

from __future__ import annotations

from perfaudit.script.counts import Counts


def test_signs_come_from_evaluations_once_there_was_an_update() -> None:
    signs: list[tuple[int, int]] = []
    counts = Counts(lambda: signs.append((counts.updates, counts.evaluated)))
    counts.add_batch()
    counts.note_early_batch()
    counts.add_backward()
    counts.add_update()
    ended = counts.first_update_at
    assert ended is not None and counts.first_batch_at is not None and ended >= counts.first_batch_at
    counts.add_batch()
    counts.add_evaluated()
    assert signs == [(0, 1), (1, 1), (1, 2)]
    assert (counts.batches, counts.backwards, counts.updates) == (2, 1, 1)
    counts.add_update()
    assert counts.first_update_at == ended


def test_the_first_batch_is_the_last_one_before_a_backward_pass() -> None:
    """An evaluation before the training has batches too."""
    counts = Counts(lambda: None)
    assert counts.loader_at is None
    counts.begin_loader()
    counts.add_batch()
    counts.note_early_batch()
    early, loader = counts.first_batch_at, counts.loader_at
    assert loader is not None
    assert early is not None
    counts.begin_loader()
    counts.add_batch()
    counts.note_early_batch()
    assert counts.first_batch_at is not None
    assert counts.loader_at is not None
    assert counts.first_batch_at >= early
    assert counts.loader_at > loader
    began, first = counts.loader_at, counts.first_batch_at
    counts.add_backward()
    counts.begin_loader()
    assert (counts.loader_at, counts.first_batch_at) == (began, first)
    without_batches = Counts(lambda: None)
    without_batches.add_backward()
    assert without_batches.first_batch_at is not None
