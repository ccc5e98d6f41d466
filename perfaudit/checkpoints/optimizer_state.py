"""The state of an optimizer without the entries of parameters that are gone. No user code.

torch keys the state by the position of a parameter in the groups, so what is behind a removed one moves up. Which position is
which parameter, the file does not say (but for `param_names`): it comes from the target's own optimizer factory, called
with the biases given back to the model, and counts and shapes must agree with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfaudit.checkpoints.fold import Loaded, Refused, is_tensor, mappings

State = dict[str, Any]  # the state dict of an optimizer


@dataclass(frozen=True, slots=True)
class Layout:
    """Names of the parameters by group in the order an optimizer holds them, and who says so."""

    groups: tuple[tuple[str, ...], ...]
    source: str

    @property
    def counts(self) -> list[int]:
        return [len(group) for group in self.groups]


@dataclass(frozen=True, slots=True)
class Dropped:
    """What was taken out of one optimizer's state: parameters, and how many of them had state."""

    place: str
    parameters: int
    of: int
    with_state: int
    source: str


def optimizer_states(data: Loaded) -> list[tuple[str, State]]:
    """The state dicts of optimizers in a loaded file, with their places."""
    return [(place, value) for place, value in mappings(data) if _is_optimizer_state(value)]


def _is_optimizer_state(value: dict[str, Any]) -> bool:
    groups = value.get("param_groups")
    if not isinstance(value.get("state"), dict) or not isinstance(groups, list) or not groups:
        return False
    return all(isinstance(group, dict) and isinstance(group.get("params"), list) for group in groups)


def drop(
    place: str,
    state: State,
    layouts: list[Layout],
    shapes: dict[str, tuple[int, ...]],
    removed: set[str],
) -> Dropped:
    """Take the entries of removed parameters out of an optimizer's state, in place, and close the gaps.

    layouts: what the optimizer of the old model may have held; the first with the file's counts is taken. shapes: of the
    old model's parameters, by name. All that groups and remaining entries hold stays (`step`, `foreach`, `fused`, …).
    Raises Refused unless one layout fits, and with it every tensor.
    """
    groups = state["param_groups"]
    layout = _named_by_the_file(groups, shapes) or _fitting(place, groups, layouts)
    ids = [id_ for group in groups for id_ in group["params"]]
    if len(set(ids)) != len(ids) or not set(state["state"]) <= set(ids):
        raise Refused(f"{place}: its groups and its state do not name the same parameters")
    names = dict(zip(ids, (name for group in layout.groups for name in group), strict=True))
    for id_, entry in state["state"].items():
        _check_entry(place, names[id_], entry, shapes[names[id_]], layout)
    kept = [id_ for id_ in ids if names[id_] not in removed]
    renumbered = {id_: id_ if isinstance(id_, str) else index for index, id_ in enumerate(kept)}
    with_state = sum(id_ not in renumbered for id_ in state["state"])
    state["state"] = {renumbered[id_]: entry for id_, entry in state["state"].items() if id_ in renumbered}
    for group in groups:
        if "param_names" in group:
            pairs = zip(group["params"], group["param_names"], strict=True)
            group["param_names"] = [name for id_, name in pairs if id_ in renumbered]
        group["params"] = [renumbered[id_] for id_ in group["params"] if id_ in renumbered]
    return Dropped(place, len(ids) - len(kept), len(ids), with_state, layout.source)


def _named_by_the_file(groups: list[dict[str, Any]], shapes: dict[str, tuple[int, ...]]) -> Layout | None:
    """The layout that a file tells itself: parameters by name, or `param_names` beside the numbers. None without."""
    named = []
    for group in groups:
        names = group.get("param_names", group["params"])
        if len(names) != len(group["params"]) or not all(isinstance(name, str) for name in names):
            return None
        named.append(names)
    every = [name for names in named for name in names]
    for prefix in dict.fromkeys(_prefix(name, shapes) for name in every[:1]):
        if prefix is not None and all(n.startswith(prefix) and n.removeprefix(prefix) in shapes for n in every):
            return Layout(
                tuple(tuple(n.removeprefix(prefix) for n in names) for names in named), "the names in the file"
            )
    return None


def _prefix(name: str, shapes: dict[str, tuple[int, ...]]) -> str | None:
    parts = name.split(".")
    starts = (start for start in range(len(parts)) if ".".join(parts[start:]) in shapes)
    return next(("".join(part + "." for part in parts[:start]) for start in starts), None)


def _fitting(place: str, groups: list[dict[str, Any]], layouts: list[Layout]) -> Layout:
    counts = [len(group["params"]) for group in groups]
    for layout in layouts:
        if layout.counts == counts:
            return layout
    told = "; ".join(f"{_in_groups(layout.counts)} by {layout.source}" for layout in layouts)
    raise Refused(
        f"{place}: it holds {_in_groups(counts)}, the old model had {told}: which entry belongs to which parameter is not "
        "certain. Name the factory that built it with --factory optimizer=NAME, or leave the optimizer out of the file"
    )


def _in_groups(counts: list[int]) -> str:
    if len(counts) == 1:
        return f"{counts[0]} parameters"
    return f"{len(counts)} groups of {', '.join(map(str, counts[:-1]))} and {counts[-1]} parameters"


def _check_entry(place: str, name: str, entry: Loaded, shape: tuple[int, ...], layout: Layout) -> None:
    values = entry.values() if isinstance(entry, dict) else [entry]
    for value in values:
        if is_tensor(value) and value.ndim and tuple(value.shape) != shape:
            raise Refused(
                f"{place}: by {layout.source} one entry belongs to {name} of shape {shape}, but it has a tensor of shape "
                f"{tuple(value.shape)}; which entry belongs to which parameter is not certain"
            )
