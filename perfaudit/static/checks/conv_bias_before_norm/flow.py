"""What feeds what: which layer's output goes directly, and only, into which other layer.

Two ways of writing it are read: layers in a row (`layer_rows`), and layers that a class builds as attributes and
calls in turn. What is not certain is left out: every link here holds whenever the code runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from perfaudit.records import NamedTuple, record
from perfaudit.static.checks.conv_bias_before_norm.layer_rows import DESCRIPTIVE, SEQUENTIAL, Row, arguments, rows
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.branches import Path, Where, branches, exclude_each_other, leaves_between
from perfaudit.static.understanding.members import attributes_of, is_own, opens_itself, texts
from perfaudit.static.understanding.values import assigned_value


class Layer(NamedTuple):
    """A layer where it is built; `name` is the attribute or key that holds it ("conv1"), empty in a plain list."""

    call: ast.Call
    name: str = ""


class Link(NamedTuple):
    """The output of `first` goes into `second` and nowhere else, where all tests of `where` are as said.

    `first` is built in any case; its value of a test may be another (`branches.is_steady` tells).
    """

    first: Layer
    second: Layer
    where: Where = ()


@remember
def links(source: Source, seconds: frozenset[int]) -> tuple[Link, ...]:
    """Every link of a file whose second layer is wanted, in order of the first layer.

    seconds: ids of the calls that build such layers. Few are wanted, and what only leads to others is not read.
    """
    if not seconds or not source.imports_torch:
        return ()
    found = {}
    scopes = frozenset(id(source.scope(call)) for call in source.nodes(ast.Call) if id(call) in seconds)
    for row in rows(source, scopes):
        found.update({(id(link.first.call), id(link.second.call)): link for link in _neighbours(source, row, seconds)})
    for link in _called_in_turn(source, seconds):
        found[id(link.first.call), id(link.second.call)] = link
    return tuple(sorted(found.values(), key=lambda link: (link.first.call.lineno, link.first.call.col_offset)))


# ---- neighbours in a row -------------------------------------------------------------------------------------------


# ---- neighbours in a row -------------------------------------------------------------------------------------------


def _neighbours(source: Source, row: Row, wanted: frozenset[int]) -> Iterator[Link]:
    for index, element in enumerate(row):
        firsts = [] if element is None or isinstance(source.parent(element), ast.IfExp) else _layers(source, element)
        if not firsts or element is None:
            continue
        here = branches(source, element)
        for following in _followers(source, element, row[index + 1 :]):
            seconds = _layers(source, following)
            if len(seconds) != 1 or id(seconds[0].call) not in wanted or leaves_between(source, element, following):
                continue
            for first in firsts:
                where = _where(here, branches(source, following), branches(source, first.call))
                if where is not None:
                    yield Link(first, seconds[0], where)


def _where(here: Path, there: Path, built: Path) -> Where | None:
    """Under which conditions an element that is built and handed on here is followed by the one there; None if unclear."""
    if not (_loops(here) == _loops(there) == _loops(built)):
        return None
    if here != there[: len(here)] and there != here[: len(there)]:
        return None
    if built[: len(there)] == there:
        return ()
    certain = min(built, here, key=len)  # built in a branch and handed on behind it, or handed on in a branch
    if there[: len(certain)] != certain or exclude_each_other(built, there):
        return None
    conditions = [(node, bool(side)) for node, side in there[len(certain) :] if isinstance(node, (ast.If, ast.IfExp))]
    return tuple((node.test, side) for node, side in conditions)


def _followers(source: Source, element: ast.expr, rest: Row) -> list[ast.expr]:
    """The elements that may come directly behind one, each under conditions that exclude the others'."""
    here = branches(source, element)
    found: list[ast.expr] = []
    for other in rest:
        if other is None:
            break
        there = branches(source, other)
        if exclude_each_other(here, there):
            continue
        if not all(exclude_each_other(there, branches(source, item)) for item in found):
            break
        found.append(other)
        if here[: len(there)] == there:
            break
    return found


def _loops(path: Path) -> list[ast.AST]:
    return [node for node, side in path if side is None]


def _layers(source: Source, element: ast.expr) -> list[Layer]:
    """The layer that an element of a row is, if it is in no other row; all it may be, if branches build it."""
    if isinstance(element, ast.Call):
        return [Layer(element, _key(source, element))]
    if isinstance(element, ast.Name):
        return [Layer(call, _key(source, element)) for call in _built_for(source, element)]
    if isinstance(element, ast.Attribute):
        definition = source.enclosing(element, ast.ClassDef)
        layer = _attribute(source, definition, element) if definition is not None else None
        return [layer] if layer is not None and source.scope(layer.call) is source.scope(element) else []
    return []


def _key(source: Source, element: ast.expr) -> str:
    """The name a Sequential gives the element: the key beside it in a dict or in `add_module`."""
    parent = source.parent(element)
    key: ast.expr | None = None
    if isinstance(parent, ast.Tuple) and len(parent.elts) == 2:
        key = parent.elts[0]
    elif isinstance(parent, ast.Call) and len(parent.args) == 2 and parent.args[1] is element:
        key = parent.args[0]
    elif isinstance(parent, ast.Dict):
        key = parent.keys[parent.values.index(element)]
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _built_for(source: Source, name: ast.Name) -> list[ast.Call]:
    """The calls that built a variable's layer, one per branch, if the rows that take it exclude each other."""
    bindings = source.lookup(name)
    paths = [branches(source, binding) for binding in bindings]
    if not bindings or any(source.scope(binding) is not source.scope(name) for binding in bindings):
        return []
    if not _exclude_one_another(paths):
        return []
    uses = [
        use
        for use in source.uses_of(bindings[0], name.id)
        if not (isinstance(parent := source.parent(use), ast.Attribute) and parent.attr in DESCRIPTIVE)
    ]
    if not _exclude_one_another([branches(source, use) for use in uses]):
        return []
    calls = [call for binding in bindings if isinstance(call := assigned_value(source, binding), ast.Call)]
    return calls if len(calls) == len(bindings) else []


def _exclude_one_another(paths: list[Path]) -> bool:
    return all(exclude_each_other(path, other) for index, path in enumerate(paths) for other in paths[:index])


# ---- layers that a class calls in turn -----------------------------------------------------------------------------


@record(frozen=True, slots=True)
class _Slot:
    """Where a called layer is kept: an attribute of `self`, or a list there with the text that says which element."""

    holder: ast.Attribute
    index: str = ""


def _called_in_turn(source: Source, wanted: frozenset[int]) -> Iterator[Link]:
    """`self.second(self.first(x))`, and `x = self.first(x)` followed by `x = self.second(x)`."""
    names = _that_may_hold(source, wanted)
    for call in source.nodes(ast.Call):
        feeding = call.args[0] if len(call.args) == 1 and not call.keywords else None
        if not isinstance(feeding, (ast.Name, ast.Call)):
            continue
        if isinstance(call.func, ast.Attribute) and call.func.attr not in names:
            continue
        second = _slot(source, call.func)
        definition = source.enclosing(call, ast.ClassDef) if second is not None else None
        if second is None or definition is None or not (second.index or second.holder.attr in names):
            continue
        if isinstance(feeding, ast.Name):
            feeding = _only_value(source, call, feeding) or feeding
        first = _slot(source, feeding.func) if isinstance(feeding, ast.Call) and feeding.args else None
        if first is None or first.index != second.index or not _is_only_call(source, feeding):
            continue
        behind = [_end(source, layer, 0) for layer in _layers_in_slot(source, definition, second)]
        if not behind or len({source.text_of(layer.call.func) for layer in behind if layer}) != 1 or None in behind:
            continue
        for layer in _layers_in_slot(source, definition, first):
            last = _end(source, layer, -1)
            if last is not None and behind[0] is not None and id(behind[0].call) in wanted:
                yield Link(last, behind[0])


def _is_only_call(source: Source, feeding: ast.expr) -> bool:
    """Whether the variable through which a layer is called is read nowhere else.

    In `if self.norms: x = norm(conv(x))`, `else: x = conv(x)` the layer has to keep its bias for the other branch.
    """
    callee = feeding.func if isinstance(feeding, ast.Call) else None
    bindings = source.lookup(callee) if isinstance(callee, ast.Name) else []
    return not isinstance(callee, ast.Name) or all(
        use is callee
        for binding in bindings
        for use in source.uses_of(binding, callee.id)
        if _shares_loop(source, use, callee)
    )


def _shares_loop(source: Source, use: ast.AST, other: ast.AST) -> bool:
    """Whether two reads of a variable stand in the same innermost loop: other loops give the name to other layers."""
    return source.enclosing(use, *LOOPS) is source.enclosing(other, *LOOPS)


def _that_may_hold(source: Source, wanted: frozenset[int]) -> set[str]:
    """Names of attributes to which a wanted layer, or a Sequential, is assigned."""
    stores = (node for node in source.nodes(ast.Attribute) if isinstance(node.ctx, ast.Store))
    built = ((store.attr, assigned_value(source, store)) for store in stores)
    return {
        name
        for name, value in built
        if isinstance(value, ast.Call) and (id(value) in wanted or source.qualified_name(value.func) == SEQUENTIAL)
    }


def _slot(source: Source, callee: ast.expr, depth: int = 2) -> _Slot | None:
    """Where the layer that is called is kept; through one variable, and the variables of a loop over lists."""
    if isinstance(callee, ast.Attribute):
        return _Slot(callee) if is_own(callee) else None
    if isinstance(callee, ast.Subscript):
        if not isinstance(callee.slice, ast.Name):
            return None
        holder, index = callee.value, callee.slice.id
        inner = holder.slice if isinstance(holder, ast.Subscript) else None
        if isinstance(holder, ast.Subscript) and isinstance(inner, ast.Name):  # `self.convs[i][j]`
            holder, index = holder.value, f"{inner.id} {index}"
        return _Slot(holder, index) if isinstance(holder, ast.Attribute) and is_own(holder) else None
    bindings = source.lookup(callee) if isinstance(callee, ast.Name) and depth else []
    if len(bindings) > 1:  # the variable of the loop around, if other loops have one of the same name
        around = source.enclosing(callee, ast.For)
        bindings = [b for b in bindings if around is not None and any(a is around for a in source.ancestors(b))]
        if around is None or not any(n is b for b in bindings for n in walk(around.target)):
            return None
    if len(bindings) != 1:
        return None
    value = assigned_value(source, bindings[0])
    if value is not None:
        return _slot(source, value, depth - 1) if not isinstance(value, ast.Call) else None
    return _looped_over(source, bindings[0])


def _looped_over(source: Source, target: ast.AST) -> _Slot | None:
    """The list of `self` whose elements a loop variable takes: itself, in `enumerate` or in `zip`."""
    loop = source.enclosing(target, ast.For)
    if loop is None:
        return None
    names, over, index = loop.target, loop.iter, f"{loop.lineno}:{loop.col_offset}"
    if _is_call_of(over, "enumerate") and isinstance(names, ast.Tuple) and len(names.elts) == 2 and len(over.args) == 1:
        if isinstance(names.elts[0], ast.Name) and not _is_call_of(over.args[0], "zip"):
            index = names.elts[0].id
        names, over = names.elts[1], over.args[0]
    if _is_call_of(over, "zip") and isinstance(names, ast.Tuple) and len(names.elts) == len(over.args):
        pairs = list(zip(names.elts, over.args, strict=True))
    else:
        pairs = [(names, over)]
    for name, items in pairs:
        if name is target and isinstance(items, ast.Attribute) and is_own(items):
            return _Slot(items, index)
    return None


def _is_call_of(node: ast.expr, name: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _layers_in_slot(source: Source, definition: ast.ClassDef, slot: _Slot) -> list[Layer]:
    """The layers that may be in a slot, if nothing else can reach them."""
    if slot.index:
        return _layers_in_list(source, definition, slot.holder)
    layer = _attribute(source, definition, slot.holder)
    return [layer] if layer is not None else []


def _layers_in_list(source: Source, definition: ast.ClassDef, holder: ast.Attribute) -> list[Layer]:
    """Everything a class puts into a ModuleList, if that can be read and one place uses the list."""
    built: list[ast.expr | None] = []
    for use in attributes_of(source, holder.attr, definition):
        if use is holder:
            continue
        parent = source.parent(use)
        call = source.parent(parent) if isinstance(parent, ast.Attribute) else None
        value = assigned_value(source, use)
        if not is_own(use) or source.enclosing(use, ast.ClassDef) is not definition:
            return []
        if isinstance(value, ast.Call) and source.qualified_name(value.func) == "torch.nn.ModuleList":
            built += _items(value.args[0]) if value.args else []
        elif isinstance(call, ast.Call) and source.text_of(call.func).endswith(".append") and len(call.args) == 1:
            built += _appended_items(source, call.args[0])
        elif not _is_measured(source, use):
            return []
    if holder.attr in texts(source) or opens_itself(source, definition):
        return []
    layers = [Layer(item, holder.attr) for item in built if isinstance(item, ast.Call)]
    return layers if len(layers) == len(built) else []


def _is_measured(source: Source, use: ast.expr) -> bool:
    """`len(self.convs)` and `len(self.convs[i])`."""
    parent = source.parent(use)
    if isinstance(parent, ast.Subscript):
        parent = source.parent(parent)
    return isinstance(parent, ast.Call) and _is_call_of(parent, "len")


def _appended_items(source: Source, item: ast.expr) -> list[ast.expr | None]:
    """An element, or everything in a local ModuleList that is filled by `append` alone."""
    bindings = source.lookup(item) if isinstance(item, ast.Name) else []
    value = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
    if not isinstance(item, ast.Name) or not isinstance(value, ast.Call):
        return [item]
    if source.qualified_name(value.func) != "torch.nn.ModuleList" or value.args:
        return [None]
    found: list[ast.expr | None] = []
    for use in source.uses_of(bindings[0], item.id):
        method = source.parent(use)
        call = source.parent(method) if isinstance(method, ast.Attribute) and method.attr == "append" else None
        if isinstance(call, ast.Call) and len(call.args) == 1:
            found.append(call.args[0])
        elif use is not item:
            return [None]
    return found


def _items(node: ast.expr) -> list[ast.expr | None]:
    if isinstance(node, (ast.List, ast.Tuple)):
        return list(node.elts)
    return [node.elt] if isinstance(node, (ast.ListComp, ast.GeneratorExp)) else [None]


def _end(source: Source, layer: Layer, place: int) -> Layer | None:
    """The layer itself; of a Sequential the first (place 0) or the last one (place -1)."""
    if source.qualified_name(layer.call.func) != SEQUENTIAL:
        return layer
    row = arguments(source, layer.call)
    element = row[place] if row else None
    if not isinstance(element, ast.Call) or isinstance(source.parent(element), ast.IfExp):
        return None
    return Layer(element, _key(source, element))


def _only_value(source: Source, consumer: ast.Call, name: ast.Name) -> ast.expr | None:
    """The value a variable has where the consumer reads it, if nothing else ever reads that value."""
    statement, function = source.statement(consumer), source.scope(consumer)
    block = source.block(statement)
    if not isinstance(function, FUNCTIONS) or len(_mentions(statement, name.id, ast.Load)) != 1:
        return None
    at = next(i for i, item in enumerate(block) if item is statement)
    before = next((item for item in reversed(block[:at]) if _mentions(item, name.id)), None)
    if not (isinstance(before, ast.Assign) and len(before.targets) == 1 and isinstance(before.targets[0], ast.Name)):
        return None
    everywhere = _own_names(source, function).get(name.id, [])
    if before.targets[0].id != name.id or not everywhere:
        return None
    if isinstance(statement, ast.Return) or _is_rebound(statement, name.id):
        return before.value
    after = next((item for item in block[at + 1 :] if _mentions(item, name.id)), None)
    if after is not None:
        return before.value if _is_rebound(after, name.id) and not _mentions(after, name.id, ast.Load) else None
    in_loop = source.enclosing(statement, *LOOPS, within=function) is not None
    is_read_later = any(isinstance(n.ctx, ast.Load) and n.lineno > (statement.end_lineno or 0) for n in everywhere)
    return None if in_loop or is_read_later else before.value


@remember
def _own_names(source: Source, function: ast.AST) -> dict[str, list[ast.Name]]:
    """Every mention of each variable that no function inside this one mentions, by name."""
    table: dict[str, list[ast.Name]] = {}
    shared = set()
    for node in walk(function):
        if isinstance(node, ast.Name):
            table.setdefault(node.id, []).append(node)
            if source.scope(node) is not function:
                shared.add(node.id)
    return {name: mentions for name, mentions in table.items() if name not in shared}


def _mentions(node: ast.AST, name: str, kind: type[ast.expr_context] = ast.expr_context) -> list[ast.Name]:
    return [n for n in walk(node) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, kind)]


def _is_rebound(statement: ast.stmt, name: str) -> bool:
    """Whether a statement is a plain `name = …`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _attribute(source: Source, definition: ast.ClassDef, node: ast.expr) -> Layer | None:
    """The layer that `self.name` is, if one place builds it, one place uses it, and nothing else can reach it."""
    if not isinstance(node, ast.Attribute) or not is_own(node):
        return None
    call: ast.expr | None = None
    for use in attributes_of(source, node.attr, definition):
        if use is node:
            continue
        parent = source.parent(use)
        if (
            isinstance(use.ctx, ast.Store)
            and is_own(use)
            and isinstance(parent, ast.Assign)
            and len(parent.targets) == 1
        ):
            if call is not None:
                return None
            call = parent.value
        elif not (isinstance(parent, ast.Attribute) and parent.attr in {*DESCRIPTIVE, "bias"}):
            return None
    if not isinstance(call, ast.Call) or node.attr in texts(source) or opens_itself(source, definition):
        return None
    return Layer(call, node.attr)
