"""A file in which statements stand twice: as they are and as patches have them, with a switch that says which of them is run.

A function whose frame stays alive, such as a training loop, keeps the code that it began with. So the file is compiled with all
versions from the start, each at the lines of the user's file. Reads texts, runs nothing.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dis
import os
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perfaudit.training.code_change import NotSwappable, parse_source
from perfaudit.training.edited_places import (
    Edited,
    Place,
    Way,
    edited_places,
    nodes_on,
    order_of,
    patched_statements,
    statements_at,
)
from perfaudit.training.stepping_functions import (
    STEPS,
    may_be_switched,
    running_loop_in,
    stepping_units,
    unit_of,
)

SWITCHES = "__perfaudit_switches__"  # the builtin list that has the version of each region which is run
AS_IT_IS = 0  # the version of the user's text


@dataclass(slots=True)
class Region:
    """Statements that stand more than once. lines: theirs. versions: of patches, by number from 1; the last one is a copy.

    number: of its switch. unit: the way to the outermost function around it, () for the top level.
    """

    way: Way
    start: int
    stop: int
    lines: tuple[int, int]
    unit: Way
    number: int = 0
    versions: dict[str, list[ast.stmt]] = field(default_factory=dict)

    @property
    def control(self) -> int:
        """The version that is a copy of the statements as they are."""
        return len(self.versions) + 1

    def version(self, key: str) -> int | None:
        """The number of the version with this key; None where no patch has it."""
        return 1 + list(self.versions).index(key) if key in self.versions else None

    def covers(self, place: Place) -> bool:
        """Whether a place lies in it."""
        if place.way == self.way:
            is_own = (self.start, self.stop) == (place.start, place.stop)
            return is_own or (self.start <= place.start and place.stop <= self.stop and self.start < self.stop and (
                place.start < place.stop or self.start < place.start < self.stop
            ))  # fmt: skip
        inner = place.way[len(self.way) :]
        return (
            place.way[: len(self.way)] == self.way and isinstance(inner[0], int) and self.start <= inner[0] < self.stop
        )


@dataclass(frozen=True, slots=True)
class SwitchSetting:
    """A region with the version of it that is to be run."""

    region: Region
    version: int


@dataclass(slots=True)
class Multiplexed:
    """A file with its regions. units: the ways to functions that have any, and () where the top level has."""

    path: str
    text: str
    tree: ast.Module
    regions: list[Region]
    stepping: frozenset[str] = STEPS  # names of what is called where a step ends

    @property
    def path_to_show(self) -> str:
        """The file, for messages."""
        return os.path.relpath(self.path)

    @property
    def units(self) -> set[Way]:
        """The outermost functions that have regions, () for the top level."""
        return {region.unit for region in self.regions}

    def split(self, edited: Edited) -> tuple[list[Place], list[Place]]:
        """The places of a patch that switches can turn, and those that are left for swapping code."""
        units, switched, left = self.units, list[Place](), list[Place]()
        for place in edited.places:
            unit = unit_of(self.tree, place.way)
            (switched if unit in units and (unit or self._region_of(place)) else left).append(place)
        return switched, left

    def turns(self, places: Sequence[Place]) -> list[SwitchSetting]:
        """The switches that put these places of one patch in place. Raises NotSwappable where a version is not there."""
        by_region: dict[int, list[Place]] = {}
        for place in places:
            region = self._region_of(place)
            if (loop := running_loop_in(self.tree, place, self.stepping)) is not None:
                raise NotSwappable(
                    f"the patch changes the loop at line {loop.lineno} of {self.path_to_show}, which runs for the whole training"
                )
            if region is None:
                line = _lines_of(self.tree, place)[0]
                raise NotSwappable(
                    f"line {line} of {self.path_to_show} was not known to change when the script was started"
                )
            by_region.setdefault(id(region), []).append(place)
        found = []
        for region in self.regions:
            if id(region) not in by_region:
                continue
            body = statements_at(self.tree, region.way)
            statements = patched_statements(body, region.way, region.start, region.stop, by_region[id(region)])
            version = region.version(_key(statements))
            if version is None:
                raise NotSwappable(
                    f"line {region.lines[0]} of {self.path_to_show} is changed by several patches, and not in this combination"
                )
            found.append(SwitchSetting(region, version))
        return found

    def code(self) -> types.CodeType:
        """The file with its switches, compiled."""
        return _compile(self.path, _with_switches(self.tree, self.regions))

    def _region_of(self, place: Place) -> Region | None:
        return next((region for region in self.regions if region.covers(place)), None)


def multiplex(
    path: str, text: str, versions: Sequence[str], others: frozenset[str] = frozenset(), first: int = 0
) -> Multiplexed:
    """The file with a switch for each run of statements that one of these patched texts changes where a frame may stay alive.

    others: names of functions of other files that may be on the stack where a step ends. first: the number of the first switch.
    What cannot stand beside its other version (a name would become a local one, a function a generator) has no region, nor has a
    loop that makes steps. Raises NotSwappable.
    """
    tree = parse_source(text, path)
    units = stepping_units(tree, others)
    stepping = STEPS | others | ({*units.values()} - {""})
    wanted: list[list[Place]] = []
    for version in versions:
        try:
            edited = edited_places(text, version, path)
        except NotSwappable:
            continue
        wanted.append(
            [
                place
                for place in edited.places
                if may_be_switched(tree, place, units) and running_loop_in(tree, place, stepping) is None
            ]
        )
    own = compile(text, path, "exec", dont_inherit=True)
    regions = _regions(tree, wanted)
    if not _is_alike(own, path, tree, regions):
        good: list[Region] = []
        for region in regions:
            if _is_alike(own, path, tree, [*good, region]):
                good.append(region)
        regions = good
    for number, region in enumerate(regions):
        region.number = first + number
    return Multiplexed(path, text, tree, regions, stepping)


def multiplex_files(texts: Mapping[str, tuple[str, Sequence[str]]]) -> list[Multiplexed]:
    """Files with their switches, which are numbered on from one to the next; those that have any. By path: see `multiplex`."""
    names: frozenset[str] = frozenset()
    trees: dict[str, ast.Module] = {}
    for path, (before, _) in texts.items():
        with contextlib.suppress(NotSwappable):
            trees[path] = parse_source(before, path)
    while True:
        more = {name for tree in trees.values() for name in stepping_units(tree, names).values()} - {""}
        if more <= names:
            break
        names |= more
    found: list[Multiplexed] = []
    for path in trees:
        before, versions = texts[path]
        file = multiplex(path, before, versions, names, sum(len(each.regions) for each in found))
        if file.regions:
            found.append(file)
    return found


# ---- regions ---------------------------------------------------------------------------------------------------------


def _regions(tree: ast.Module, wanted: Sequence[Sequence[Place]]) -> list[Region]:
    """Runs of statements that hold the places of all patches, with the versions that those make of them."""
    regions: list[Region] = []
    for place in sorted({place for places in wanted for place in places}, key=lambda each: (len(each.way), each.start)):
        new = Region(place.way, place.start, place.stop, (0, 0), unit_of(tree, place.way))
        while touched := [region for region in regions if region.covers(_as_place(new)) or new.covers(_as_place(region))
                          or _overlap(region, new)]:  # fmt: skip
            outer = min([new, *touched], key=lambda each: len(each.way))
            spans = [_span_at(each, outer.way) for each in [new, *touched]]
            regions = [region for region in regions if region not in touched]
            new = Region(outer.way, min(a for a, _ in spans), max(b for _, b in spans), (0, 0), outer.unit)
        regions.append(new)
    for region in regions:
        body = statements_at(tree, region.way)
        region.lines = _lines_of(tree, region)
        own = _key(body[region.start : region.stop])
        for places in wanted:
            if mine := [place for place in places if region.covers(place)]:
                statements = patched_statements(body, region.way, region.start, region.stop, mine)
                if _key(statements) != own:
                    region.versions.setdefault(_key(statements), statements)
    return sorted(regions, key=lambda each: (each.lines, each.start, each.stop))


def touch(some: Sequence[Place], others: Sequence[Place]) -> bool:
    """Whether places of two patches lie in the same statements, so that both together are a version of their own."""
    regions = [Region(place.way, place.start, place.stop, (0, 0), ()) for place in some]
    for place in others:
        other = Region(place.way, place.start, place.stop, (0, 0), ())
        if any(one.covers(place) or other.covers(_as_place(one)) or _overlap(one, other) for one in regions):
            return True
    return False


def _as_place(region: Region) -> Place:
    return Place(region.way, region.start, region.stop, "", ())


def _overlap(one: Region, other: Region) -> bool:
    return one.way == other.way and one.start < other.stop and other.start < one.stop


def _span_at(region: Region, way: Way) -> tuple[int, int]:
    """Which statements of the body at `way` a region lies in."""
    if region.way == way:
        return region.start, region.stop
    at = region.way[len(way)]
    assert isinstance(at, int)
    return at, at + 1


def _lines_of(tree: ast.Module, place: Place | Region) -> tuple[int, int]:
    """The first and last line of statements; of none, the last one of the statement before, or the first one of the next."""
    body = statements_at(tree, place.way)
    if place.start < place.stop:
        return body[place.start].lineno, body[place.stop - 1].end_lineno or body[place.stop - 1].lineno
    if place.start:
        line = body[place.start - 1].end_lineno or body[place.start - 1].lineno
    elif body:
        line = body[0].lineno
    else:
        line = max(getattr(node, "end_lineno", None) or 1 for node in nodes_on(tree, place.way))
    return line, line


def _key(statements: Sequence[ast.stmt]) -> str:
    return "\n".join(map(ast.dump, statements))


# ---- the tree with its switches --------------------------------------------------------------------------------------


def _with_switches(tree: ast.Module, regions: Sequence[Region]) -> ast.Module:
    """A copy of the tree in which each region is an `if` over its versions; the last `else` has the statements as they are."""
    own = copy.deepcopy(tree)
    for region in sorted(regions, key=lambda each: order_of(each.way, each.start, each.stop), reverse=True):
        body = statements_at(own, region.way)
        before = body[region.start : region.stop]
        choice: list[ast.stmt] = before
        copied = copy.deepcopy(before)
        for number, statements in reversed([*enumerate([*region.versions.values(), copied], start=1)]):
            choice = [_if(region.number, number, statements, choice, region.lines[0])]
        body[region.start : region.stop] = choice
    return own


def _if(number: int, version: int, then: Sequence[ast.stmt], other: Sequence[ast.stmt], line: int) -> ast.If:
    switch = ast.Subscript(ast.Name(SWITCHES, ast.Load()), ast.Constant(number), ast.Load())
    test = ast.Compare(switch, [ast.Eq()], [ast.Constant(version)])
    found = ast.If(test, [*copy.deepcopy([*then])] or [ast.Pass()], [*other])
    for node in (found, *ast.walk(test), *(found.body if not then else ())):
        node.lineno = node.end_lineno = line
        node.col_offset = node.end_col_offset = 0
    return found


def _compile(path: str, tree: ast.Module) -> types.CodeType:
    code: types.CodeType = compile(tree, path, "exec", dont_inherit=True)
    return code


def _is_alike(own: types.CodeType, path: str, tree: ast.Module, regions: Sequence[Region]) -> bool:
    """Whether the file compiles with these switches, and names and functions mean in it what they mean without them."""
    for number, region in enumerate(regions):
        region.number = number
    try:
        code = _compile(path, _with_switches(tree, regions))
    except (SyntaxError, ValueError):
        return False
    new = {_name(each): each for each in _codes(code)}
    return all(_name(each) in new and _means_the_same(each, new[_name(each)]) for each in _codes(own))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code and those of functions and classes that are defined in it, without lambdas and comprehensions."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType) and not constant.co_name.startswith("<"):
            yield from _codes(constant)


def _name(code: types.CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _means_the_same(before: types.CodeType, after: types.CodeType) -> bool:
    """Whether a function is of the same kind, and no name that it takes from outside has become its own."""
    own = {*before.co_varnames, *before.co_cellvars}
    new = {*after.co_varnames, *after.co_cellvars} - own
    is_kind = before.co_flags == after.co_flags and before.co_argcount == after.co_argcount
    return is_kind and not new & {*_names_outside(before), *before.co_freevars}


def _names_outside(code: types.CodeType) -> Iterator[str]:
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_CLASSDEREF", "LOAD_DEREF", "LOAD_FROM_DICT_OR_GLOBALS"):
            yield str(each.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_outside(constant)
