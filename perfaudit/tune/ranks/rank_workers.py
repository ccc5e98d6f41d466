"""Workers of a loader, of which each rank has its own, so that they share the node's cores."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, argument, constant
from perfaudit.tune.ranks.ddp_call import the_call
from perfaudit.tune.ranks.patches import PatchRefused, RankPatch, SeenRanks, patch

LOADER = "torch.utils.data.DataLoader"
WORKERS = "num_workers"
POSITION = 5  # of the parameter
MOST = 8  # workers of a rank that are tried, however many cores there are


def candidates(sources: Sequence[Source], ranks: SeenRanks) -> Iterator[RankPatch]:
    """One worker for each rank, and as many as the node has cores for each rank; none where there are more than that."""
    try:
        the_call(sources)
    except PatchRefused:
        return  # that is said by `ddp_call`
    source, call = _training_loader(sources, ranks)
    if ranks.reads_iterable:
        raise PatchRefused(
            f"{WORKERS} of {source.path}:{call.lineno} is left as it is: each worker reads an IterableDataset of its own, and "
            "gives the same samples again unless the dataset shares them out"
        )
    given = argument(source, call, WORKERS, POSITION)
    workers = 0 if given is ABSENT else constant(source, given)
    if given is UNKNOWN or not isinstance(workers, int) or isinstance(workers, bool):
        raise PatchRefused(f"{WORKERS} of {source.path}:{call.lineno} is left as it is: it is no number in the text")
    wanted = sorted({1, min(MOST, ranks.cores), *([0] if workers > ranks.cores else [])} - {workers})
    for number in wanted:
        if isinstance(given, ast.expr):
            edits = edit.replace(source, given, str(number)) if isinstance(given, ast.Constant) else None
        else:
            edits = edit.add_keyword(source, call, WORKERS, str(number))
        if number == 0 and any(each.arg in ("persistent_workers", "prefetch_factor") for each in call.keywords):
            continue  # without workers torch refuses them
        words = f"load with {_number_of(number, 'worker')} on each rank; this node has {_number_of(ranks.cores, 'core')} for each"
        yield patch(source, call, {WORKERS: number}, {WORKERS: workers}, words, ("rng",), edits)


def _training_loader(sources: Sequence[Source], ranks: SeenRanks) -> tuple[Source, ast.Call]:
    """The one loader that steps have read. Raises PatchRefused where there are several, or none that the text makes by name."""
    calls = [(source, call) for source in sources for call in source.calls(LOADER)]
    read = [(source, call) for source, call in calls if ranks.have_read(source, call)]
    if len(read) == 1:
        return read[0]
    if read:
        places = ", ".join(f"{source.path}:{call.lineno}" for source, call in read[:4])
        raise PatchRefused(f"{WORKERS} is left as it is: steps read {len(read)} loaders: {places}")
    raise PatchRefused(
        f"{WORKERS} is left as it is: steps have read none of the {len(calls)} loaders that the files make by name"
        if calls
        else f"{WORKERS} is left as it is: the files that the script runs make no loaders by name"
    )


def _number_of(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
