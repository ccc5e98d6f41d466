"""What feeds what: which layer's output goes directly, and only, into which other layer.

Two ways of writing it are read: layers in a row (`nn.Sequential`, and lists that become one), and layers that a class
builds as attributes and calls in turn. What is not certain is left out: every link here holds whenever the code runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.values import assigned_value

Element = ast.expr | None  # None: some layers, or none, that cannot be read
Row = list[Element]
Branch = tuple[ast.AST, bool | None]

SEQUENTIAL = "torch.nn.Sequential"

_SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ITERATES = {"list", "tuple", "enumerate", "zip", "iter", "reversed", "next", "map", "filter", "dict", "set"}
_OPENS = {"children", "named_children", "modules", "named_modules", "_modules", "get_submodule", "insert", "pop"}
_DESCRIPTIVE = {  # attributes of a layer that may be read without running it another way
    *("weight", "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"),
    *("in_features", "out_features", "num_features", "eps"),
}
_DEPTH = 4  # calls from builder to builder that are followed


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer where it is built; `name` is the attribute or key that holds it ("conv1"), empty in a plain list."""

    call: ast.Call
    name: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """The output of `first` goes into `second` and nowhere else; with a flag, this holds where the flag is true.

    A flag is a plain name or attribute whose value is the same where `first` is built.
    """

    first: Layer
    second: Layer
    flag: ast.expr | None = None


@lru_cache(maxsize=2)
def links(source: Source) -> tuple[Link, ...]:
    """Every link of a file, in order of the first layer."""
    if not source.imports_torch:
        return ()
    found = [link for row in rows(source) for link in _neighbours(source, row)]
    for definition in source.nodes(ast.ClassDef):
        found += _called_in_turn(source, definition)
    return tuple(sorted(found, key=lambda link: (link.first.call.lineno, link.first.call.col_offset)))


# ---- layers in a row -----------------------------------------------------------------------------------------------


def rows(source: Source) -> list[Row]:
    """The layers of every Sequential and of every list that becomes one, in order, those under a condition too."""
    calls = [c for c in source.calls(SEQUENTIAL) if not _is_bound_to_name(source, c) and not _is_opened(source, c)]
    found = [_arguments(source, call) for call in calls]
    for scope, name in _list_variables(source):
        found += [life.row for life in _lives(source, scope, name) if life.is_row]
    for statement in source.nodes(ast.Return):
        if isinstance(statement.value, (ast.List, ast.BinOp)) and becomes_sequential(source, statement.value):
            found.append(elements(source, statement.value))
    for definition in source.nodes(ast.ClassDef):
        if [source.qualified(base) for base in definition.bases] == [SEQUENTIAL]:
            found.append(_own_row(source, definition))
    return [row for row in found if len(row) > 1]


def elements(source: Source, node: ast.expr) -> Row:
    """The elements of a list expression, both sides of a condition in order; None for what cannot be read."""
    if isinstance(node, (ast.List, ast.Tuple)):
        row: Row = []
        for item in node.elts:
            row += elements(source, item.value) if isinstance(item, ast.Starred) else _choices(item)
        return row
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return elements(source, node.left) + elements(source, node.right)
    if isinstance(node, ast.IfExp):
        return elements(source, node.body) + elements(source, node.orelse)
    return [None]


def _choices(node: ast.expr) -> Row:
    """One element; the two sides of `a if flag else b`."""
    return _choices(node.body) + _choices(node.orelse) if isinstance(node, ast.IfExp) else [node]


def _arguments(source: Source, call: ast.Call) -> Row:
    """The layers handed to a Sequential: arguments, or the values of one ordered dict."""
    if len(call.args) == 1 and (values := _dict_values(source, call.args[0])) is not None:
        return values
    row: Row = []
    for item in call.args:
        row += elements(source, item.value) if isinstance(item, ast.Starred) else _choices(item)
    return row if not call.keywords else [None]


def _dict_values(source: Source, node: ast.expr) -> Row | None:
    if isinstance(node, ast.Call) and source.qualified(node.func) == "collections.OrderedDict":
        if node.keywords or len(node.args) != 1:
            return [None]
        node = node.args[0]
        if isinstance(node, (ast.List, ast.Tuple)):
            pairs = [p for p in node.elts if isinstance(p, ast.Tuple) and len(p.elts) == 2]
            return [p.elts[1] for p in pairs] if len(pairs) == len(node.elts) else [None]
    if isinstance(node, ast.Dict):
        return list(node.values) if None not in node.keys else [None]
    return None


def _own_row(source: Source, definition: ast.ClassDef) -> Row:
    """The layers a subclass of Sequential gives itself in `__init__`, if it leaves running them to Sequential."""
    methods = {item.name: item for item in definition.body if isinstance(item, FUNCTIONS)}
    if set(methods) - {"__init__"} or "__init__" not in methods:
        return []
    row: Row = []
    for node in ast.walk(methods["__init__"]):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            return []  # an attribute may be a layer too, and comes in between
    statements = sorted((n for n in ast.walk(methods["__init__"]) if isinstance(n, ast.Expr)), key=lambda n: n.lineno)
    for statement in statements:
        call = statement.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr == "__init__" and is_super(call.func.value):
            row += _arguments(source, call)
        elif isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
            row += _added(source, call) or [None]
    return row


def _added(source: Source, call: ast.Call) -> Row | None:
    """What a method call puts behind a list or a Sequential; None if it does something else to it."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if call.keywords or any(isinstance(item, ast.Starred) for item in call.args):
        return None
    if method == "append" and len(call.args) == 1:
        return _choices(call.args[0])
    if method == "extend" and len(call.args) == 1:
        return elements(source, call.args[0])
    if method == "add_module" and len(call.args) == 2:
        return _choices(call.args[1])
    return None


# ---- lists that become a Sequential --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Life:
    """A variable from the statement that binds it to a list or a Sequential until the next that binds it."""

    row: Row
    begins: tuple[Branch, ...]
    is_list: bool
    statements: list[ast.stmt] = field(default_factory=list)
    becomes: int = 0  # how often it is made into a Sequential
    broken: bool = False  # something is done to it that is not followed

    @property
    def is_row(self) -> bool:
        return not self.broken and (self.becomes == 1 or not self.is_list)


def _list_variables(source: Source) -> list[tuple[ast.AST, str]]:
    """Variables that are bound to a list or a Sequential somewhere."""
    found: dict[tuple[int, str], tuple[ast.AST, str]] = {}
    for name in source.nodes(ast.Name):
        if not isinstance(name.ctx, ast.Store):
            continue
        value = assigned_value(source, name)
        if value is not None and (_is_list(value) or _is_sequential(source, value)):
            scope = source.scope(name)
            found.setdefault((id(scope), name.id), (scope, name.id))
    return list(found.values())


def _lives(source: Source, scope: ast.AST, name: str, depth: int = 0) -> list[_Life]:
    """What becomes of a variable, statement by statement; nothing where functions inside may do more to it."""
    bindings = source.bound_in(scope).get(name, [])
    mentions = [*bindings, *source.uses_of(bindings[0], name)] if bindings else []
    nodes = [node for node in mentions if isinstance(node, ast.Name)]
    inner = [node for node in nodes if source.scope(node) is not scope]
    if len(nodes) < len(mentions) or any(_opens(source, node) for node in inner):
        return []
    by_statement: dict[int, tuple[ast.stmt, list[ast.Name]]] = {}
    for node in nodes:
        if node not in inner:
            statement = source.statement(node)
            by_statement.setdefault(id(statement), (statement, []))[1].append(node)
    lives: list[_Life] = []
    life: _Life | None = None
    for statement, names in sorted(by_statement.values(), key=lambda item: (item[0].lineno, item[0].col_offset)):
        value = _plain_value(statement, names)
        if value is not None and len(names) == 1:
            life = None
            if _is_list(value) or _is_sequential(source, value):
                row = elements(source, value) if not isinstance(value, ast.Call) else _arguments(source, value)
                is_list = _is_list(value)
                life = _Life(row, branches(source, statement), is_list, [statement], broken=is_list and bool(inner))
                lives.append(life)
        elif life is not None:
            life.statements.append(statement)
            if branches(source, statement)[: len(life.begins)] != life.begins:
                life.broken = True
            _go_on(source, life, statement, names, depth)
            if value is not None and life.becomes == 1:  # `layers = nn.Sequential(*layers)`
                life.is_list = False
    return lives


def _plain_value(statement: ast.stmt, names: list[ast.Name]) -> ast.expr | None:
    """The value of `name = value`; names are the mentions of the variable in the statement."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and statement.targets[0] in names:
        return statement.value
    if isinstance(statement, ast.AnnAssign) and statement.target in names:
        return statement.value
    return None


def _is_sum(value: ast.expr, name: str) -> bool:
    """`name + something`."""
    is_sum = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)
    return is_sum and isinstance(value.left, ast.Name) and value.left.id == name  # type: ignore[attr-defined]


def _go_on(source: Source, life: _Life, statement: ast.stmt, names: list[ast.Name], depth: int) -> None:
    """Follow one statement that mentions the variable."""
    more: Row | None = None
    value = _plain_value(statement, names)
    if isinstance(value, ast.BinOp) and _is_sum(value, names[0].id) and len(names) == 2:
        more = elements(source, value.right)
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add) and names == [statement.target]:
        more = elements(source, statement.value)
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and len(names) == 1:
        function = statement.value.func
        if isinstance(function, ast.Attribute) and function.value is names[0]:
            more = _added(source, statement.value)
    if more is not None:
        life.row += more
        life.broken |= life.becomes > 0  # it grows after it was used
        return
    for node in names:
        if isinstance(node.ctx, ast.Store) or _is_length(source, node):
            continue
        if not life.is_list:
            life.broken |= _opens(source, node)
        elif becomes_sequential(source, node, depth + 1):
            life.becomes += 1
        else:
            life.broken = True


def _is_length(source: Source, node: ast.expr) -> bool:
    call = source.parent(node)
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "len"


def becomes_sequential(source: Source, node: ast.expr, depth: int = 0) -> bool:
    """Whether a list is only used to be a Sequential, or a part of one; through builder functions too."""
    parent = source.parent(node)
    if depth > _DEPTH:
        return False
    if isinstance(parent, ast.Starred):
        call = source.parent(parent)
        if isinstance(call, ast.Call):
            return (_is_sequential(source, call) or _is_own_sequential(source, call)) and not _is_opened(source, call)
        return isinstance(call, (ast.List, ast.Tuple)) and becomes_sequential(source, call, depth)
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add):
        return becomes_sequential(source, parent, depth)
    if isinstance(parent, ast.IfExp) and parent.test is not node:
        return becomes_sequential(source, parent, depth)
    if isinstance(parent, ast.Return):
        return _callers_make_sequential(source, parent, depth)
    target = _list_grown_by(parent, node)
    if target is not None:
        statement = source.statement(node)
        lives = _lives(source, source.scope(target), target.id, depth + 1)
        return any(life.is_row and statement in life.statements for life in lives)
    return False


def _list_grown_by(parent: ast.AST | None, node: ast.expr) -> ast.Name | None:
    """The variable that a list becomes, or becomes part of."""
    target: ast.AST | None = None
    if isinstance(parent, ast.AugAssign) and isinstance(parent.op, ast.Add) and parent.value is node:
        target = parent.target
    elif isinstance(parent, ast.Assign) and len(parent.targets) == 1 and _is_list(parent.value):
        target = parent.targets[0]
    elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "extend":
        target = parent.func.value
    return target if isinstance(target, ast.Name) else None


def _callers_make_sequential(source: Source, statement: ast.Return, depth: int) -> bool:
    """Whether the function of a `return` is called in this file, and each call's list becomes a Sequential."""
    function = source.scope(statement)
    if not isinstance(function, ast.FunctionDef):
        return False
    if isinstance(source.parent(function), ast.ClassDef):
        mentions: list[ast.expr] = [*attributes(source).get(function.name, [])]
        decorators = {source.text_of(d) for d in function.decorator_list} - {"staticmethod", "classmethod"}
    else:
        mentions = list(source.uses_of(function, function.name))
        decorators = {source.text_of(d) for d in function.decorator_list}
    if not mentions or decorators:
        return False
    for mention in mentions:
        call = source.parent(mention)
        if not isinstance(call, ast.Call) or call.func is not mention:
            return False
        if not becomes_sequential(source, call, depth + 1):
            return False
    return True


def _is_list(value: ast.expr) -> bool:
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Add) and (_is_list(value.left) or _is_list(value.right))
    return isinstance(value, ast.List)


def _is_sequential(source: Source, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and source.qualified(node.func) == SEQUENTIAL


def _is_own_sequential(source: Source, call: ast.Call) -> bool:
    """`super().__init__(*layers)` in a subclass of Sequential."""
    definition = source.enclosing(call, ast.ClassDef)
    function = call.func
    if definition is None or not isinstance(function, ast.Attribute) or not is_super(function.value):
        return False
    methods = {item.name for item in definition.body if isinstance(item, FUNCTIONS)}
    bases = [source.qualified(base) for base in definition.bases]
    return function.attr == "__init__" and bases == [SEQUENTIAL] and methods == {"__init__"}


def is_super(node: ast.expr) -> bool:
    """`super()`, in both forms."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _is_bound_to_name(source: Source, call: ast.Call) -> bool:
    parent = source.parent(call)
    if isinstance(parent, ast.Assign):
        return len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name)
    return isinstance(parent, ast.AnnAssign) and isinstance(parent.target, ast.Name)


def _is_opened(source: Source, call: ast.Call) -> bool:
    """Whether the file takes single layers out of a Sequential that is kept as a variable or an attribute."""
    holder: ast.AST = call
    while isinstance(parent := source.parent(holder), (ast.Attribute, ast.Call)) and holder not in getattr(
        parent, "args", ()
    ):
        holder = parent  # `.to(device)`
    if not isinstance(parent, ast.Assign):
        return False
    definition = source.enclosing(call, ast.ClassDef)
    for target in parent.targets:
        if isinstance(target, ast.Name) and any(_opens(source, use) for use in source.uses_of(target, target.id)):
            return True
        if isinstance(target, ast.Attribute):
            uses = attributes(source).get(target.attr, [])
            if any(_opens(source, use) and _may_be_of(source, use, definition) for use in uses):
                return True
    return False


def _opens(source: Source, node: ast.expr) -> bool:
    """Whether this use of a Sequential takes out single layers, otherwise than to describe or initialise them."""
    parent = source.parent(node)
    if isinstance(parent, ast.Subscript) and parent.value is node:
        reader = source.parent(parent)
        return not (isinstance(reader, ast.Attribute) and reader.attr in _DESCRIPTIVE)
    if isinstance(parent, (*LOOPS, ast.comprehension, ast.Starred)):
        return True
    if isinstance(parent, ast.Call) and node in parent.args:
        return isinstance(parent.func, ast.Name) and parent.func.id in _ITERATES
    return isinstance(parent, ast.Attribute) and parent.attr in _OPENS


# ---- neighbours in a row -------------------------------------------------------------------------------------------


def branches(source: Source, node: ast.AST) -> tuple[Branch, ...]:
    """The conditions (true or false side), loops and guarded blocks around a node in its function, outermost first."""
    found: list[Branch] = []
    child = node
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, _SCOPES):
            break
        if isinstance(ancestor, (ast.If, ast.IfExp)):
            if child is not ancestor.test:
                body = ancestor.body if isinstance(ancestor.body, list) else [ancestor.body]
                found.append((ancestor, any(child is item for item in body)))
        elif isinstance(ancestor, (*LOOPS, *_COMPREHENSIONS, ast.Try, ast.ExceptHandler, ast.match_case)):
            found.append((ancestor, None))
        child = ancestor
    return tuple(reversed(found))


def exclude_each_other(first: tuple[Branch, ...], second: tuple[Branch, ...]) -> bool:
    """Whether one stands on the true and the other on the false side of one condition."""
    sides = {id(node): side for node, side in first if side is not None}
    return any(side is not None and sides.get(id(node), side) != side for node, side in second)


def _neighbours(source: Source, row: Row) -> Iterator[Link]:
    for index, element in enumerate(row):
        first = _layer(source, element)
        if first is None or element is None or isinstance(source.parent(element), ast.IfExp):
            continue
        here = branches(source, element)
        following: Element = None
        for other in row[index + 1 :]:
            if other is None or not exclude_each_other(here, branches(source, other)):
                following = other
                break
        second = _layer(source, following)
        if second is None or following is None or _leaves_between(source, element, following):
            continue
        there, built = branches(source, following), branches(source, first.call)
        if not (_loops(here) == _loops(there) == _loops(built)) or (
            here != there[: len(here)] and there != here[: len(there)]
        ):
            continue
        if built[: len(there)] == there:
            yield Link(first, second)
        elif there[: len(built)] == built and len(there) == len(built) + 1 and there[-1][1]:
            flag: ast.expr = there[-1][0].test  # type: ignore[attr-defined]  # a side that is true belongs to a condition
            if _is_steady(source, flag, first.call):
                yield Link(first, second, flag)


def _loops(path: tuple[Branch, ...]) -> list[ast.AST]:
    return [node for node, side in path if side is None]


def _layer(source: Source, element: Element) -> Layer | None:
    """The layer that an element of a row is, if it is in no other row."""
    if isinstance(element, ast.Call):
        return Layer(element, _key(source, element))
    if isinstance(element, ast.Name):
        call = _built_for(source, element)
        return Layer(call, _key(source, element)) if call is not None else None
    if isinstance(element, ast.Attribute):
        definition = source.enclosing(element, ast.ClassDef)
        layer = _attribute(source, definition, element) if definition is not None else None
        return layer if layer is not None and source.scope(layer.call) is source.scope(element) else None
    return None


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


def _built_for(source: Source, name: ast.Name) -> ast.Call | None:
    """The call that built a variable's layer, if the rows that take it exclude each other."""
    bindings = source.lookup(name)
    if len(bindings) != 1 or source.scope(bindings[0]) is not source.scope(name):
        return None
    call = assigned_value(source, bindings[0])
    takes: list[tuple[Branch, ...]] = []
    for use in source.uses_of(bindings[0], name.id):
        parent = source.parent(use)
        if isinstance(parent, ast.Attribute) and parent.attr in _DESCRIPTIVE:
            continue
        path = branches(source, use)
        if not all(exclude_each_other(path, other) for other in takes):
            return None
        takes.append(path)
    return call if isinstance(call, ast.Call) else None


def _leaves_between(source: Source, first: ast.expr, second: ast.expr) -> bool:
    """Whether the function can be left, or a loop go on, after the first and before the second."""
    begin, end = _position(first), _position(second)
    return any(
        begin < _position(jump) < end and not exclude_each_other(branches(source, first), branches(source, jump))
        for jump in _jumps(source).get(source.scope(first), ())
    )


@lru_cache(maxsize=2)
def _jumps(source: Source) -> dict[ast.AST, list[ast.stmt]]:
    """The statements that leave a function or a turn of a loop, by the function they stand in."""
    table: dict[ast.AST, list[ast.stmt]] = {}
    for kind in (ast.Return, ast.Break, ast.Continue):
        for jump in source.nodes(kind):
            table.setdefault(source.scope(jump), []).append(jump)
    return table


def _position(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _is_steady(source: Source, flag: ast.expr, built: ast.Call) -> bool:
    """Whether a condition is a plain name or attribute with the same value where the layer is built."""
    if isinstance(flag, ast.Name):
        bindings = source.lookup(flag)
        if len(bindings) != 1:
            return not bindings and flag.id in source.aliases
        binding = bindings[0]
        if isinstance(binding, ast.arg):
            return True
        return isinstance(binding, ast.Name) and _position(binding) < _position(built)
    if isinstance(flag, ast.Attribute) and isinstance(flag.value, ast.Name):
        scope = source.scope(flag)
        objects = source.lookup(flag.value)
        return len(objects) <= 1 and not any(
            not isinstance(node.ctx, ast.Load) and source.scope(node) is scope and _position(node) >= _position(built)
            for node in attributes(source)[flag.attr]
        )
    return False


# ---- layers that a class calls in turn -----------------------------------------------------------------------------


def _called_in_turn(source: Source, definition: ast.ClassDef) -> Iterator[Link]:
    """`self.second(self.first(x))`, and `x = self.first(x)` followed by `x = self.second(x)`."""
    for call in (node for node in ast.walk(definition) if isinstance(node, ast.Call)):
        if not _is_own(call.func) or len(call.args) != 1 or call.keywords:
            continue
        if source.enclosing(call, ast.ClassDef) is not definition:
            continue
        feeding = call.args[0]
        if isinstance(feeding, ast.Name):
            feeding = _only_value(source, call, feeding) or feeding
        if not isinstance(feeding, ast.Call) or not _is_own(feeding.func) or not feeding.args:
            continue
        first = _attribute(source, definition, feeding.func)
        second = _attribute(source, definition, call.func)
        if first is not None and second is not None:
            yield Link(first, second)


def _is_own(node: ast.AST) -> bool:
    """`self.something`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


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


@lru_cache(maxsize=2)
def _own_names(source: Source, function: ast.AST) -> dict[str, list[ast.Name]]:
    """Every mention of each variable that no function inside this one mentions, by name."""
    table: dict[str, list[ast.Name]] = {}
    shared = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            table.setdefault(node.id, []).append(node)
            if source.scope(node) is not function:
                shared.add(node.id)
    return {name: mentions for name, mentions in table.items() if name not in shared}


def _mentions(node: ast.AST, name: str, kind: type[ast.expr_context] = ast.expr_context) -> list[ast.Name]:
    return [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, kind)]


def _is_rebound(statement: ast.stmt, name: str) -> bool:
    """Whether a statement is a plain `name = …`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _attribute(source: Source, definition: ast.ClassDef, node: ast.expr) -> Layer | None:
    """The layer that `self.name` is, if one place builds it, one place uses it, and nothing else can reach it."""
    if not isinstance(node, ast.Attribute) or not _is_own(node):
        return None
    call: ast.expr | None = None
    for use in attributes(source).get(node.attr, []):
        if use is node or not _may_be_of(source, use, definition):
            continue
        parent = source.parent(use)
        if (
            isinstance(use.ctx, ast.Store)
            and _is_own(use)
            and isinstance(parent, ast.Assign)
            and len(parent.targets) == 1
        ):
            if call is not None:
                return None
            call = parent.value
        elif not (isinstance(parent, ast.Attribute) and parent.attr in {*_DESCRIPTIVE, "bias"}):
            return None
    if not isinstance(call, ast.Call) or node.attr in _texts(source) or _opens_itself(source, definition):
        return None
    return Layer(call, node.attr)


def _may_be_of(source: Source, use: ast.Attribute, definition: ast.ClassDef | None) -> bool:
    """Whether an attribute may belong to an object of this class: always, but for `self` in an unrelated class."""
    if definition is None or not _is_own(use):
        return True
    other = source.enclosing(use, ast.ClassDef)
    return other is None or other is definition or _are_related(source, other, definition)


def _are_related(source: Source, first: ast.ClassDef, second: ast.ClassDef) -> bool:
    return bool(_family(source, first) & _family(source, second))


def _family(source: Source, definition: ast.ClassDef) -> frozenset[int]:
    """A class and the classes of this file it descends from."""
    found: dict[int, ast.ClassDef] = {}
    pending = [definition]
    while pending:
        item = pending.pop()
        if id(item) in found:
            continue
        found[id(item)] = item
        for base in item.bases:
            if isinstance(base, ast.Name):
                pending += [d for d in source.bound_in(source.tree).get(base.id, []) if isinstance(d, ast.ClassDef)]
    return frozenset(found)


@lru_cache(maxsize=2)
def attributes(source: Source) -> dict[str, list[ast.Attribute]]:
    """Every attribute that is read or set in a file, by its name."""
    table: dict[str, list[ast.Attribute]] = {}
    for node in source.nodes(ast.Attribute):
        table.setdefault(node.attr, []).append(node)
    return table


@lru_cache(maxsize=2)
def _texts(source: Source) -> frozenset[str]:
    """Every text in a file; one may name an attribute: `getattr(model, "conv1")`, the name of a layer to hook."""
    return frozenset(constant.value for constant in source.nodes(ast.Constant) if isinstance(constant.value, str))


@lru_cache(maxsize=8)
def _opens_itself(source: Source, definition: ast.ClassDef) -> bool:
    """Whether the class reaches its layers otherwise than by name: its children in a loop, or a computed name."""
    for node in ast.walk(definition):
        if (
            isinstance(node, ast.Attribute)
            and _is_own(node)
            and node.attr in ("children", "named_children", "_modules")
        ):
            return True
        if isinstance(node, ast.Call) and source.text_of(node.func) in ("getattr", "setattr") and len(node.args) > 1:
            if isinstance(node.args[1], ast.Constant):
                continue
            return True
    return False
