"""Layers in a row: what stands in a `nn.Sequential`, and in the lists, dicts and generators that become one.

What cannot be read is None in the row; what is done to a list and not followed makes it no row at all.
"""

from __future__ import annotations

import ast

from perfaudit.records import field, record
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.branches import Branch, branches
from perfaudit.static.understanding.members import attributes, attributes_of, is_own, is_super
from perfaudit.static.understanding.values import assigned_value

Element = ast.expr | None  # None: some layers, or none, that cannot be read
Row = list[Element]

SEQUENTIAL = "torch.nn.Sequential"
ORDERED_DICT = "collections.OrderedDict"
DESCRIPTIVE = {  # attributes of a layer that may be read without running it another way
    *("weight", "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"),
    *("in_features", "out_features", "num_features", "eps"),
}

Variable = ast.Name | ast.Attribute  # an attribute is one of `self`

_ITERATES = {"list", "tuple", "enumerate", "zip", "iter", "reversed", "next", "map", "filter", "dict", "set"}
_OPENS = {"children", "named_children", "modules", "named_modules", "_modules", "get_submodule", "insert", "pop"}
_GROWS = {"append", "extend", "add_module"}
_DEPTH = 4  # calls from builder to builder that are followed


def rows(source: Source, scopes: frozenset[int]) -> list[Row]:
    """The layers of every Sequential and of every list that becomes one, in order, those under a condition too.

    scopes: ids of the functions and classes of which rows are wanted. Each row is written in one of them.
    """
    if not source.mentions("Sequential"):
        return []
    calls = [call for call in source.calls(SEQUENTIAL) if id(source.scope(call)) in scopes]
    calls = [call for call in calls if not _is_bound_to_name(source, call) and not _is_opened(source, call)]
    found = [arguments(source, call) for call in calls]
    for scope, variable in _list_variables(source, scopes):
        found += [life.row for life in _lives(source, scope, variable) if life.is_row]
    found += _generator_rows(source, scopes)
    for statement in source.nodes(ast.Return):
        if isinstance(statement.value, (ast.List, ast.BinOp)) and becomes_sequential(source, statement.value):
            found.append(elements(source, statement.value))
    for definition in source.nodes(ast.ClassDef):
        if [source.qualified_name(base) for base in definition.bases] == [SEQUENTIAL]:
            found.append(_own_row(source, definition))
    return [row for row in found if len(row) > 1]


def elements(source: Source, node: ast.expr) -> Row:
    """The elements of a list expression, both sides of a condition in order; None for what cannot be read."""
    if isinstance(node, (ast.List, ast.Tuple)):
        row: Row = []
        for item in node.elts:
            row += elements(source, item.value) if isinstance(item, ast.Starred) else _choices(source, item)
        return row
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return elements(source, node.left) + elements(source, node.right)
    if isinstance(node, ast.IfExp):
        return elements(source, node.body) + elements(source, node.orelse)
    return [None]


def _choices(source: Source, node: ast.expr) -> Row:
    """One element; the two sides of `a if flag else b`; the layers of a Sequential inside; nothing for an Identity."""
    if isinstance(node, ast.IfExp):
        return _choices(source, node.body) + _choices(source, node.orelse)
    if isinstance(node, ast.Call) and _is_sequential(source, node):
        return arguments(source, node)
    is_identity = isinstance(node, ast.Call) and source.qualified_name(node.func) == "torch.nn.Identity"
    return [] if is_identity else [node]


def arguments(source: Source, call: ast.Call) -> Row:
    """The layers handed to a Sequential: arguments, or the values of one ordered dict."""
    if len(call.args) == 1 and (values := _dict_values(source, call.args[0])) is not None:
        return values
    row: Row = []
    for item in call.args:
        row += elements(source, item.value) if isinstance(item, ast.Starred) else _choices(source, item)
    return row if not call.keywords else [None]


def _dict_values(source: Source, node: ast.expr) -> Row | None:
    """The values of a dict expression in order; None for anything else."""
    if isinstance(node, ast.Call) and _is_ordered_dict(source, node):
        if not node.keywords and not node.args:
            return []
        if node.keywords or len(node.args) != 1:
            return [None]
        node = node.args[0]
        if isinstance(node, (ast.List, ast.Tuple)):
            pairs = [p for p in node.elts if isinstance(p, ast.Tuple) and len(p.elts) == 2]
            return _all_choices(source, [p.elts[1] for p in pairs]) if len(pairs) == len(node.elts) else [None]
    if isinstance(node, ast.Dict):
        return _all_choices(source, node.values) if None not in node.keys else [None]
    return None


def _all_choices(source: Source, items: list[ast.expr]) -> Row:
    return [element for item in items for element in _choices(source, item)]


def _generator_rows(source: Source, scopes: frozenset[int]) -> list[Row]:
    """What each generator yields that is only used to fill a Sequential: `nn.Sequential(*layers(widths))`."""
    found: dict[int, Row] = {}
    yields: list[ast.Yield | ast.YieldFrom] = [*source.nodes(ast.Yield), *source.nodes(ast.YieldFrom)]
    for node in sorted(yields, key=lambda n: (n.lineno, n.col_offset)):
        function = source.scope(node)
        if id(function) not in scopes:
            continue
        if id(function) not in found:
            found[id(function)] = []
            if not _callers_make_sequential(source, node, 0):
                found[id(function)] = [None]
        if node.value is None or not isinstance(source.parent(node), ast.Expr):
            found[id(function)] = [None]
        elif found[id(function)] != [None]:
            is_one = isinstance(node, ast.Yield)
            found[id(function)] += _choices(source, node.value) if is_one else elements(source, node.value)
    return list(found.values())


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
            row += arguments(source, call)
        elif isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
            row += _added_row(source, call) or [None]
    return row


def _added_row(source: Source, call: ast.Call) -> Row | None:
    """What a method call puts behind a list or a Sequential; None if it does something else to it."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if call.keywords or any(isinstance(item, ast.Starred) for item in call.args):
        return None
    if method == "append" and len(call.args) == 1:
        return _choices(source, call.args[0])
    if method == "extend" and len(call.args) == 1:
        return elements(source, call.args[0])
    if method == "add_module" and len(call.args) == 2:
        return _choices(source, call.args[1])
    return None


# ---- lists that become a Sequential --------------------------------------------------------------------------------


@record(slots=True)
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


def _list_variables(source: Source, scopes: frozenset[int]) -> list[tuple[ast.AST, Variable]]:
    """Variables, and attributes of `self`, that are bound to a list, an ordered dict or a Sequential somewhere."""
    found: dict[tuple[int, str], tuple[ast.AST, Variable]] = {}
    stored: list[Variable] = [n for n in source.nodes(ast.Name) if isinstance(n.ctx, ast.Store)]
    stored += [n for n in source.nodes(ast.Attribute) if isinstance(n.ctx, ast.Store) and is_own(n)]
    for variable in stored:
        if id(scope := source.scope(variable)) not in scopes:
            continue
        value = assigned_value(source, variable) or _unpacked_value(source.statement(variable), variable)
        if value is not None and _is_container(source, value):
            found.setdefault((id(scope), source.text_of(variable)), (scope, variable))
    return list(found.values())


def _is_container(source: Source, value: ast.expr) -> bool:
    return _is_list(value) or _is_sequential(source, value) or _is_ordered_dict(source, value)


def _mentions(source: Source, scope: ast.AST, variable: Variable) -> list[ast.AST]:
    """Every node that binds or reads a variable, or an attribute that may be this one."""
    if isinstance(variable, ast.Attribute):
        definition = source.enclosing(variable, ast.ClassDef)
        return [*attributes_of(source, variable.attr, definition)]
    bindings = source.bound_in(scope).get(variable.id, [])
    return [*bindings, *source.uses_of(bindings[0], variable.id)] if bindings else []


def _lives(source: Source, scope: ast.AST, variable: Variable, depth: int = 0) -> list[_Life]:
    """What becomes of a variable, statement by statement; nothing where code elsewhere may do more to it."""
    mentions = _mentions(source, scope, variable)
    nodes = [node for node in mentions if isinstance(node, (ast.Name, ast.Attribute))]
    is_name = isinstance(variable, ast.Name)
    inner = [node for node in nodes if source.scope(node) is not scope or not (is_name or is_own(node))]
    if len(nodes) < len(mentions) or any(_opens(source, node) or _changes(source, node) for node in inner):
        return []
    by_statement: dict[int, tuple[ast.stmt, list[Variable]]] = {}
    for node in nodes:
        if not any(node is other for other in inner):
            statement = source.statement(node)
            by_statement.setdefault(id(statement), (statement, []))[1].append(node)
    lives: list[_Life] = []
    life: _Life | None = None
    for statement, names in sorted(by_statement.values(), key=lambda item: (item[0].lineno, item[0].col_offset)):
        value = _plain_value(statement, names)
        if value is not None and len(names) == 1:
            life = None
            if _is_container(source, value):
                row = _dict_values(source, value)
                if row is None:
                    row = elements(source, value) if not isinstance(value, ast.Call) else arguments(source, value)
                is_list = not _is_sequential(source, value)
                broken = is_list and bool(inner) and is_name
                life = _Life(row, branches(source, statement), is_list, [statement], broken=broken)
                lives.append(life)
        elif life is not None:
            life.statements.append(statement)
            is_outside = branches(source, statement)[: len(life.begins)] != life.begins
            # `downsample` that is None or a Sequential may be handed on behind the branch, as it is.
            is_bound = any(isinstance(name.ctx, ast.Store) for name in names)
            if is_outside and (life.is_list or is_bound or _grown_by(source, statement, names) is not None):
                life.broken = True
            _go_on(source, life, statement, names, depth)
            if value is not None and life.becomes == 1:  # `layers = nn.Sequential(*layers)`
                life.is_list = False
    if lives and lives[-1].is_list and inner:  # an attribute that other methods read as a list
        lives[-1].broken = True
    return lives


def _changes(source: Source, node: Variable) -> bool:
    """Whether a mention binds the variable or grows what it holds."""
    parent = source.parent(node)
    grows = isinstance(parent, ast.Attribute) and parent.attr in _GROWS
    return grows or (isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and is_own(node))


def _plain_value(statement: ast.stmt, names: list[Variable]) -> ast.expr | None:
    """The value of `name = value`; names are the mentions of the variable in the statement."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and statement.targets[0] in names:
        return statement.value
    if isinstance(statement, ast.AnnAssign) and statement.target in names:
        return statement.value
    return _unpacked_value(statement, names[0]) if len(names) == 1 else None


def _unpacked_value(statement: ast.stmt, variable: Variable) -> ast.expr | None:
    """What a variable gets in `layers, width = [], 3`; None for anything else."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if not isinstance(target, ast.Tuple) or not isinstance(statement, ast.Assign):
        return None
    value = statement.value
    if not isinstance(value, ast.Tuple) or len(value.elts) != len(target.elts):
        return None
    if any(isinstance(item, ast.Starred) for item in (*value.elts, *target.elts)):
        return None
    return next((given for name, given in zip(target.elts, value.elts, strict=True) if name is variable), None)


def _go_on(source: Source, life: _Life, statement: ast.stmt, names: list[Variable], depth: int) -> None:
    """Follow one statement that mentions the variable."""
    more = _grown_by(source, statement, names)
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


def _grown_by(source: Source, statement: ast.stmt, names: list[Variable]) -> Row | None:
    """What a statement puts behind a variable's last element; None if it does not, or does more than that."""
    value = _plain_value(statement, names)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and value.left in names and len(names) == 2:
        return elements(source, value.right)
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add) and names == [statement.target]:
        return elements(source, statement.value)
    if len(names) != 1:
        return None
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and function.value is names[0]:
            return _added_row(source, statement.value)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:  # `layers["conv1"] = nn.Conv2d(3, 8, 3)`
        target = statement.targets[0]
        if isinstance(target, ast.Subscript) and target.value is names[0] and _is_new_key(target.slice):
            return _choices(source, statement.value)
    return None


def _is_new_key(key: ast.expr) -> bool:
    """Whether a key is a text; that the same text is not used twice is taken for granted."""
    return isinstance(key, ast.JoinedStr) or (isinstance(key, ast.Constant) and isinstance(key.value, str))


def _is_length(source: Source, node: ast.expr) -> bool:
    call = source.parent(node)
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "len"


def becomes_sequential(source: Source, node: ast.expr, depth: int = 0) -> bool:
    """Whether a list is only used to be a Sequential, or a part of one; through builder functions too."""
    parent = source.parent(node)
    if depth > _DEPTH:
        return False
    if (
        isinstance(parent, ast.Call)
        and node in parent.args
        and len(parent.args) == 1
        and _is_sequential(source, parent)
    ):
        return not _is_opened(source, parent)  # `nn.Sequential(layers)` of an ordered dict
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
        lives = _lives(source, source.scope(target), target, depth + 1)
        return any(life.is_row and statement in life.statements for life in lives)
    return False


def _list_grown_by(parent: ast.AST | None, node: ast.expr) -> Variable | None:
    """The variable that a list becomes, or becomes part of."""
    target: ast.AST | None = None
    if isinstance(parent, ast.AugAssign) and isinstance(parent.op, ast.Add) and parent.value is node:
        target = parent.target
    elif isinstance(parent, ast.Assign) and len(parent.targets) == 1 and _is_list(parent.value):
        target = parent.targets[0]
    elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "extend":
        target = parent.func.value
    is_variable = isinstance(target, ast.Name) or (target is not None and is_own(target))
    return target if is_variable else None  # type: ignore[return-value]  # as is_own says


def _callers_make_sequential(source: Source, statement: ast.AST, depth: int) -> bool:
    """Whether the function of a `return` or `yield` is called in this file, and each call's list becomes a Sequential."""
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
    return isinstance(node, ast.Call) and source.qualified_name(node.func) == SEQUENTIAL


def _is_ordered_dict(source: Source, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and source.qualified_name(node.func) == ORDERED_DICT


def _is_own_sequential(source: Source, call: ast.Call) -> bool:
    """`super().__init__(*layers)` in a subclass of Sequential."""
    definition = source.enclosing(call, ast.ClassDef)
    function = call.func
    if definition is None or not isinstance(function, ast.Attribute) or not is_super(function.value):
        return False
    methods = {item.name for item in definition.body if isinstance(item, FUNCTIONS)}
    bases = [source.qualified_name(base) for base in definition.bases]
    return function.attr == "__init__" and bases == [SEQUENTIAL] and methods == {"__init__"}


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
    if isinstance(parent, ast.Call):
        return _takes_layers_apart(source, parent)
    if not isinstance(parent, ast.Assign):
        return False
    definition = source.enclosing(call, ast.ClassDef)
    mentions: list[Variable] = []
    for target in parent.targets:
        if isinstance(target, ast.Name):
            mentions += source.uses_of(target, target.id)
        elif isinstance(target, ast.Attribute):
            mentions += attributes_of(source, target.attr, definition)
    return any(_opens(source, node) and source.statement(node) is not parent for node in mentions)


def _takes_layers_apart(source: Source, call: ast.Call) -> bool:
    """Whether a class of this file that gets a Sequential goes through the layers of something it keeps."""
    bindings = source.lookup(call.func) if isinstance(call.func, ast.Name) else []
    definitions = [binding for binding in bindings if isinstance(binding, ast.ClassDef)]
    kept = (n for definition in definitions for n in ast.walk(definition) if isinstance(n, ast.Attribute))
    return any(is_own(node) and _opens(source, node) for node in kept)


def _opens(source: Source, node: ast.expr) -> bool:
    """Whether this use of a Sequential takes out single layers, otherwise than to describe or initialise them."""
    parent = source.parent(node)
    if isinstance(parent, ast.Subscript) and parent.value is node:
        reader = source.parent(parent)
        return not (isinstance(reader, ast.Attribute) and reader.attr in DESCRIPTIVE)
    if isinstance(parent, (*LOOPS, ast.comprehension, ast.Starred)):
        return True
    if isinstance(parent, ast.Call) and node in parent.args:
        return isinstance(parent.func, ast.Name) and parent.func.id in _ITERATES
    return isinstance(parent, ast.Attribute) and parent.attr in _OPENS
