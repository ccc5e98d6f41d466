"""Workers of a loader, of which each rank has its own, so that they share the node's cores."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, argument, constant, resolve
from perfaudit.tune.ranks.ddp_call import the_call
from perfaudit.tune.ranks.patches import Candidate, Ranks, Refused, patch

LOADER = "torch.utils.data.DataLoader"
WORKERS = "num_workers"
POSITION = 5  # of the parameter
MOST = 8  # workers of a rank that are tried, however many cores there are


def candidates(sources: Sequence[Source], ranks: Ranks) -> Iterator[Candidate]:
    """One worker for each rank, and as many as the node has cores for each rank; none where there are more than that."""
    try:
        the_call(sources)
    except Refused:
        return  # that is said by `ddp_call`
    source, call = _training_loader(sources)
    given = argument(source, call, WORKERS, POSITION)
    workers = 0 if given is ABSENT else constant(source, given)
    if given is UNKNOWN or not isinstance(workers, int) or isinstance(workers, bool):
        raise Refused(f"{WORKERS} of {source.path}:{call.lineno} is left as it is: it is no number in the text")
    wanted = sorted({1, min(MOST, ranks.cores), *([0] if workers > ranks.cores else [])} - {workers})
    for number in wanted:
        if isinstance(given, ast.expr):
            edits = edit.replace(source, given, str(number)) if isinstance(given, ast.Constant) else None
        else:
            edits = edit.add_keyword(source, call, WORKERS, str(number))
        if number == 0 and any(each.arg in ("persistent_workers", "prefetch_factor") for each in call.keywords):
            continue  # without workers torch refuses them
        words = f"load with {number} workers on each rank; this node has {ranks.cores} cores for each"
        yield patch(source, call, {WORKERS: number}, {WORKERS: workers}, words, (), edits)


def _training_loader(sources: Sequence[Source]) -> tuple[Source, ast.Call]:
    """The loader that shares its samples out among the ranks, or the only one. Raises Refused."""
    calls = [(source, call) for source in sources for call in source.calls(LOADER)]
    shared = [(source, call) for source, call in calls if _is_shared_out(source, call)]
    for found in (shared, calls):
        if len(found) == 1:
            return found[0]
    raise Refused(
        f"{WORKERS} is left as it is: the files that the script runs make {len(calls) or 'no'} loaders by name"
    )


def _is_shared_out(source: Source, call: ast.Call) -> bool:
    sampler = argument(source, call, "sampler", 3)
    made = resolve(source, sampler) if isinstance(sampler, ast.expr) else None
    return isinstance(made, ast.Call) and (source.qualified_name(made.func) or "").endswith(".DistributedSampler")
