"""Patches of the call that wraps a model in DistributedDataParallel."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.measurements import Settings
from perfaudit.records import NamedTuple
from perfaudit.static import edit
from perfaudit.static.checks.ddp_find_unused_parameters import (
    PICKS_PARTS,
    ddp_find_unused_parameters,
    freezes,
)
from perfaudit.static.source import Source
from perfaudit.static.understanding.distributed import DDP
from perfaudit.static.understanding.names import dotted_name
from perfaudit.static.understanding.values import ABSENT, argument, is_true
from perfaudit.tune.ranks.patches import PatchRefused, RankPatch, SeenRanks, patch
from perfaudit.tune.ranks.static_graphs import why_graph_may_change

VIEW, STATIC, BUCKET, UNUSED = (
    "gradient_as_bucket_view",
    "static_graph",
    "bucket_cap_mb",
    "find_unused_parameters",
)
DEFAULTS: Settings = {VIEW: False, STATIC: False, BUCKET: 25}  # of torch
# Each with what besides speed it changes. Instead of torch's 25 MiB: buckets that leave sooner, and fewer, larger ones; in these
# a sum over more than two ranks adds up in another order.
SETTINGS: tuple[tuple[Settings, tuple[str, ...]], ...] = (
    ({VIEW: True}, ()),
    ({STATIC: True}, ()),
    ({VIEW: True, STATIC: True}, ()),
    ({BUCKET: 5}, ("rounding",)),
    ({BUCKET: 100}, ("rounding",)),
)
# Each number of each gradient of each pass moved by a share of itself, up, down or not at all: by its last bit, as another order
# of sums moves it, or by all of it, as gradients are that were summed wrongly. Before passes are added up: where they cancel out,
# another number is left, of which Adam makes as long a step as of any. The program's own random streams are left alone.
MOVE = (
    "[_w.register_hook(lambda grad, _t=__import__('torch'), _chance=__import__('torch').Generator().manual_seed(_n): "
    "grad * (1 + {share} * _t.randint(-1, 2, grad.shape, generator=_chance)).to(grad)) "
    "for _n, _w in enumerate({model}.parameters()) if _w.requires_grad]"
)
LAST_BIT, ALL = "2**-23", "1.0"
_WORDS = {
    VIEW: "let gradients be views of the buckets they are summed in",
    STATIC: "say that the graph is the same in each step, which it must then be during the whole training",
    BUCKET: "sum gradients in buckets of {} MiB",
}


def the_call(sources: Sequence[Source]) -> tuple[Source, ast.Call]:
    """The one call of DistributedDataParallel in a program. Raises PatchRefused where there is none, or more."""
    calls = [(source, call) for source in sources for call in source.calls(DDP)]
    if not calls:
        raise PatchRefused("no file that the script runs calls DistributedDataParallel by its name")
    if len(calls) > 1:
        places = ", ".join(f"{source.path}:{call.lineno}" for source, call in calls[:4])
        raise PatchRefused(f"the files that the script runs call DistributedDataParallel {len(calls)} times: {places}")
    return calls[0]


def candidates(sources: Sequence[Source], ranks: SeenRanks) -> Iterator[RankPatch]:
    """What the call leaves to torch's defaults, set otherwise; and the search for unused parameters left out."""
    source, call = the_call(sources)
    if any(keyword.arg is None for keyword in call.keywords):  # **options may have it
        raise PatchRefused(f"{source.path}:{call.lineno} cannot be edited: it takes options that are made elsewhere")
    now = {name: value for name, value in DEFAULTS.items() if argument(source, call, name) is ABSENT}
    if not now:
        raise PatchRefused(f"{source.path}:{call.lineno} sets all of its settings itself")
    left = []
    why = why_graph_may_change(sources, source, call) if STATIC in now else ""
    if why:
        left.append(f"{STATIC}=True is not tried for {source.path}:{call.lineno}: {why}")
    for settings, changes in SETTINGS:
        if settings.keys() <= now.keys() and not (why and STATIC in settings):
            text = ", ".join(f"{name}={value!r}" for name, value in settings.items())
            words = "; ".join(_WORDS[name].format(value) for name, value in settings.items())
            edits = edit.add_argument(source, call, text)
            yield patch(
                source, call, settings, now, words, changes, edits, is_safe=not {STATIC, VIEW} & settings.keys()
            )
    if is_true(source, argument(source, call, UNUSED)):
        try:
            yield _without_search(sources, source, call)
        except PatchRefused as reason:
            left.append(str(reason))
    if left:
        raise PatchRefused("; ".join(left))


class MovedGradients(NamedTuple):
    """The file with the call, and its text with each gradient moved by its last bit, and by all of itself."""

    path: str
    nudged: str
    spoiled: str


def moved_gradients(sources: Sequence[Source]) -> MovedGradients | None:
    """None where the model has no name where it is wrapped."""
    try:
        source, call = the_call(sources)
    except PatchRefused:
        return None
    if not (name := name_of(source, call)):
        return None
    line = source.statement(call)
    moved = [edit.insert_after(source, line, MOVE.format(share=share, model=name)) for share in (LAST_BIT, ALL)]
    texts = [edit.apply(source.text, edits) for edits in moved if edits]
    return MovedGradients(source.path, *texts) if len(texts) == len(moved) else None


def name_of(source: Source, call: ast.Call) -> str:
    """The name that the wrapped model gets where the call stands, with attributes; "" for none."""
    assigned = source.parent(call)
    is_one = isinstance(assigned, ast.Assign) and len(assigned.targets) == 1
    return dotted_name(assigned.targets[0]) if isinstance(assigned, ast.Assign) and is_one else ""


def _without_search(sources: Sequence[Source], source: Source, call: ast.Call) -> RankPatch:
    """The call without `find_unused_parameters=True`: a set in which a parameter is unused fails, and so does the candidate.

    Only where nothing in the text says that a later step may leave one unused, as rule PA702 has it, and never safe: the race
    sees the first steps.
    """
    place = f"{source.path}:{call.lineno}"
    others = [each for each in sources if each is not source]
    is_elsewhere = any(each.says(PICKS_PARTS) or freezes(each) for each in others)
    if is_elsewhere or not list(ddp_find_unused_parameters(source, call)):
        raise PatchRefused(
            f"find_unused_parameters=True of {place} stays: parts are frozen, or left out in some steps, or the graph is static"
        )
    words = (
        "do not look for unused parameters: no rank had one in these steps, and where there is one, backward says so"
    )
    edits = edit.remove_keyword(source, call, UNUSED) or edit.set_keyword(source, call, UNUSED, "False")
    return patch(source, call, {UNUSED: False}, {UNUSED: True}, words, (), edits, is_safe=False)
