"""What an argument or a name is worth, where the text alone settles it; everything else is UNKNOWN, and unknown is silent."""

from __future__ import annotations

import ast
import enum
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from perfaudit.expressions import regex
from perfaudit.static.call_index import shape_of
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.names import last_name


class Known(enum.Enum):
    """What can be said of an argument that is not an expression in the text."""

    ABSENT = "absent"  # the call provably does not pass it
    UNKNOWN = "unknown"  # the call may pass it; nothing may be concluded


ABSENT, UNKNOWN = Known.ABSENT, Known.UNKNOWN
Argument = ast.expr | Known

_NAMES_FOLLOWED = 4  # from one to the next, to what an expression stands for
_OPTIONS = regex(r"(^|\.|_)(args?|opts?|options|hparams|hps|cfg|conf|config|params|flags)$", re.IGNORECASE)

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {  # Any: arithmetic on literals
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def argument(source: Source, call: ast.Call, name: str, position: int | None = None) -> Argument:
    """The expression passed for a parameter, ABSENT if the call provably leaves it out, UNKNOWN otherwise.

    position: its 0-based place when passed by position, None for a keyword-only parameter. Keywords behind `**` count
    where the dict can be read (see `dict_items`), and so does what `functools.partial` was given.
    """
    made = source.partial_behind(call)
    if made is None:
        return _argument_in_call(source, call, name, position)
    first = [item for item in made.args[1:] if not isinstance(item, ast.Starred)]
    if position is not None and len(first) < len(made.args) - 1:
        return UNKNOWN
    if position is not None and position < len(first):
        return first[position]
    own = _argument_in_call(source, call, name, None if position is None else position - len(first))
    return _argument_in_call(source, made, name, None) if own is ABSENT else own


def _argument_in_call(source: Source, call: ast.Call, name: str, position: int | None) -> Argument:
    """What the call itself passes."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    starred = next((i for i, a in enumerate(call.args) if isinstance(a, ast.Starred)), None)
    if position is not None:
        if starred is not None and starred <= position:
            return UNKNOWN
        if position < len(call.args):
            return call.args[position]
    for keyword in call.keywords:
        if keyword.arg is None:
            items = dict_items(source, keyword.value)
            if items is None:
                return UNKNOWN
            if name in items:
                return items[name]
    return ABSENT


def dict_items(source: Source, node: ast.expr, following: frozenset[str] = frozenset()) -> dict[str, Argument] | None:
    """The keys of a dict expression with their values, or None where they cannot all be read.

    Follows a name to the one place that binds it in its function or module, with what `kw["x"] = ...`, `kw.update(...)`
    and `kw.pop("x")` touch as UNKNOWN values (they may depend on a branch). A dict that is handed to anything else may
    grow: None.
    `following` are the names on the way here: `kw = dict(kw)` cannot be read.
    """
    if isinstance(node, ast.Dict):
        items: dict[str, Argument] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = dict_items(source, value, following)
                if inner is None:
                    return None
                items.update(inner)
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                items[key.value] = value
            else:
                return None
        return items
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        items = {}
        for argument_ in node.args:
            inner = dict_items(source, argument_, following)
            if inner is None:
                return None
            items.update(inner)
        for keyword in node.keywords:
            if keyword.arg is None:
                inner = dict_items(source, keyword.value, following)
                if inner is None:
                    return None
                items.update(inner)
            else:
                items[keyword.arg] = keyword.value
        return items
    if isinstance(node, ast.IfExp):
        branches = [dict_items(source, branch, following) for branch in (node.body, node.orelse)]
        if branches[0] is None or branches[1] is None:
            return None
        return {key: UNKNOWN for branch in branches if branch for key in branch}
    if isinstance(node, ast.Name):
        return None if node.id in following else _named_dict(source, node, following | {node.id})
    return None


def _named_dict(source: Source, name: ast.Name, following: frozenset[str]) -> dict[str, Argument] | None:
    bindings = source.lookup(name)
    if not bindings:
        return None
    items: dict[str, Argument] = {}
    for binding in bindings:
        value = assigned_value(source, binding)
        inner = dict_items(source, value, following) if value is not None else None
        if inner is None:
            return None
        items.update(inner if len(bindings) == 1 else dict.fromkeys(inner, UNKNOWN))
    for use in source.uses_of(bindings[0], name.id):
        added = _keys_added(source, use, following)
        if added is None:
            return None
        items.update(added)
    return items


def _keys_added(source: Source, use: ast.Name, following: frozenset[str]) -> dict[str, Argument] | None:
    """What one use of a dict adds to it: nothing for reading, keys for writing, None when it cannot be told."""
    parent = source.parent(use)
    if isinstance(parent, ast.keyword) and parent.arg is None:
        return {}
    if isinstance(parent, ast.Subscript) and parent.value is use:
        if isinstance(parent.ctx, ast.Load):
            return {}
        key = parent.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return {key.value: UNKNOWN}
        return None
    if isinstance(parent, ast.Compare):
        return {}
    if isinstance(parent, ast.Attribute):
        call = source.parent(parent)
        if not isinstance(call, ast.Call):
            return None
        if parent.attr in ("get", "items", "keys", "values", "copy"):
            return {}
        if parent.attr == "update":
            added: dict[str, Argument] = {k.arg: UNKNOWN for k in call.keywords if k.arg}
            for item in [*call.args, *(k.value for k in call.keywords if k.arg is None)]:
                inner = dict_items(source, item, following)
                if inner is None:
                    return None
                added.update(dict.fromkeys(inner, UNKNOWN))
            return added
        if parent.attr in ("setdefault", "pop") and call.args and isinstance(call.args[0], ast.Constant):
            return {str(call.args[0].value): UNKNOWN}
    return None


def assigned_value(source: Source, binding: ast.AST) -> ast.expr | None:
    """The expression a binding name gets in a plain `name = value`, else None (loop targets, parameters, unpacking)."""
    parent = source.parent(binding)
    if isinstance(parent, ast.Assign) and any(target is binding for target in parent.targets):
        return parent.value
    if isinstance(parent, (ast.AnnAssign, ast.NamedExpr)) and parent.target is binding:
        return parent.value
    return None


def resolve(source: Source, node: ast.expr) -> ast.expr | None:
    """The expression itself, or what the name stands for when one plain assignment binds it; None when it is not clear."""
    for _ in range(_NAMES_FOLLOWED):
        if not isinstance(node, ast.Name):
            return node
        bindings = source.lookup(node)
        value = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
        if value is None:
            return None
        node = value
    return None if isinstance(node, ast.Name) else node


def constant(source: Source, node: Argument, depth: int = 8) -> object:
    """The value of literals, of names bound once to one, and of plain arithmetic on them; else UNKNOWN.

    Names are followed `depth` times: `n = n + 1` would never end.
    """
    if isinstance(node, Known) or not depth:
        return UNKNOWN
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        value = constant(source, node.operand, depth)
        if isinstance(node.op, ast.Not):
            return UNKNOWN if value is UNKNOWN else not value
        return -value if isinstance(value, (int, float)) else UNKNOWN
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left = constant(source, node.left, depth)
        right = UNKNOWN if left is UNKNOWN else constant(source, node.right, depth)  # else `n = n * n` costs 2 ** depth
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            try:
                return _OPERATORS[type(node.op)](left, right)
            except (ZeroDivisionError, OverflowError):
                return UNKNOWN
        return UNKNOWN
    if isinstance(node, ast.Name):
        value_node = resolve(source, node)
        return constant(source, value_node, depth - 1) if value_node is not None else UNKNOWN
    return UNKNOWN


# ---- defaults ------------------------------------------------------------------------------------------------------


class Default(NamedTuple):
    """What a value is unless somebody says otherwise.

    unless: who may, in words for a message. node: the literal in this file, None where it is not one or reached by a
    detour. uses: every expression of this file that reads it.
    """

    value: object
    unless: str
    node: ast.expr | None = None
    uses: tuple[ast.expr, ...] = ()


def default(source: Source, node: Argument, depth: int = 4) -> Default | None:
    """What an expression is by a plain default that nothing visible overrides; None where that cannot be told.

    Of a parameter of the function around it that no call passes, in this file or in those that import it; of an
    option of `argparse` or `click` that this file declares once; of a field that a class of options gives a literal.
    """
    if isinstance(node, Known) or not depth:
        return None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and len(node.args) == 1:
        return default(source, node.args[0], depth)
    if isinstance(node, ast.Attribute):
        return _option(source, node) or _field(source, node, depth)
    if not isinstance(node, ast.Name):
        return None
    bindings = source.lookup(node)
    if len(bindings) != 1:
        return None
    if isinstance(bindings[0], ast.arg):
        return _parameter(source, bindings[0], depth)
    value = assigned_value(source, bindings[0])
    found = default(source, value, depth - 1) if value is not None else None
    return found and Default(found.value, found.unless)


def _parameter(source: Source, parameter: ast.arg, depth: int) -> Default | None:
    """The default of a parameter that no visible call passes."""
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS):
        return None
    if function.decorator_list and not _is_method_only(function):
        return _command_option(source, function, parameter)
    written = default_written(function, parameter)
    if written is None or _is_overridden(source, function, parameter):
        return None
    value = constant(source, written)
    if value is UNKNOWN:
        return default(source, written, depth - 1)
    literal = written if isinstance(written, ast.Constant) else None
    return Default(value, "a caller says otherwise", literal, tuple(source.uses_of(parameter, parameter.arg)))


def default_class(source: Source, node: ast.expr) -> ast.expr | None:
    """What the definition gives the parameter that an expression is, if some call is in sight and none says otherwise."""
    parameter, function = _parameter_meant(source, node)
    if function is None or parameter is None:
        return None
    written = default_written(function, parameter)
    if written is None or _is_another_passed(source, function, parameter, source.qualified_name(written), {}):
        return None
    return written


def _is_another_passed(
    source: Source, function: Function, parameter: ast.arg, kind: str | None, known: dict[int, bool]
) -> bool:
    """Whether a call may pass a parameter something else than its default class.

    A call that hands on another parameter passes what that one is, `**options` of the function around it what is not seen.
    known: the answer for each parameter by id, also for those that are being asked about.
    """
    if id(parameter) in known:
        return known[id(parameter)]
    known[id(parameter)] = False

    def passes_another(call: ast.Call, place: int | None) -> bool:
        passed = argument(source, call, parameter.arg, place)
        if passed is ABSENT:
            return False
        if isinstance(passed, Known):
            return not _hands_on_options(source, call)
        handed, around = _parameter_meant(source, passed)
        if handed is None or around is None:
            return kind is None or source.qualified_name(passed) != kind
        written = default_written(around, handed)
        if written is None or source.qualified_name(written) != kind:
            return True
        return _is_another_passed(source, around, handed, kind, known)

    known[id(parameter)] = _is_overridden(source, function, parameter, needs_call=True, passes_another=passes_another)
    return known[id(parameter)]


def _hands_on_options(source: Source, call: ast.Call) -> bool:
    """Whether all that a call unpacks are the options of the function around it: `**kwargs`."""
    function = source.enclosing(call, *FUNCTIONS)
    own = function.args.kwarg.arg if isinstance(function, FUNCTIONS) and function.args.kwarg is not None else None
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    return (
        own is not None
        and bool(unpacked)
        and not any(isinstance(item, ast.Starred) for item in call.args)
        and all(isinstance(value, ast.Name) and value.id == own for value in unpacked)
    )


def leaves_out(source: Source, call: ast.Call, name: str) -> bool:
    """Whether all that a call unpacks are the options of the function around it, `**kwargs`, and no caller has one of this name.

    Some call must be in sight, and the function may only hand its options on.
    """
    function = source.enclosing(call, *FUNCTIONS)
    options = function.args.kwarg if isinstance(function, FUNCTIONS) else None
    if not isinstance(function, FUNCTIONS) or options is None or function.decorator_list:
        return False
    if not _hands_on_options(source, call) or any(keyword.arg == name for keyword in call.keywords):
        return False
    parents = [source.parent(use) for use in source.uses_of(options, options.arg)]
    if not all(isinstance(parent, ast.keyword) and parent.arg is None for parent in parents):
        return False
    return not _is_overridden(source, function, ast.arg(name), needs_call=True)


def written_default(source: Source, node: ast.expr) -> ast.expr | None:
    """What the definition gives the parameter that an expression is; calls may pass something else."""
    parameter, function = _parameter_meant(source, node)
    return default_written(function, parameter) if function is not None and parameter is not None else None


def _parameter_meant(source: Source, node: ast.expr) -> tuple[ast.arg | None, Function | None]:
    """The parameter that a name is, and its function, if that is not decorated."""
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    parameter = bindings[0] if len(bindings) == 1 else None
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda) if isinstance(parameter, ast.arg) else None
    if not isinstance(function, FUNCTIONS) or not isinstance(parameter, ast.arg) or function.decorator_list:
        return None, None
    return parameter, function


def _is_method_only(function: Function) -> bool:
    return all(isinstance(d, ast.Name) and d.id in ("staticmethod", "classmethod") for d in function.decorator_list)


def default_written(function: Function, parameter: ast.arg) -> ast.expr | None:
    """The expression behind `=` in the definition."""
    positional = [*function.args.posonlyargs, *function.args.args]
    with_default = positional[len(positional) - len(function.args.defaults) :]
    pairs: Iterable[tuple[ast.arg, ast.expr | None]] = [
        *zip(with_default, function.args.defaults, strict=True),
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
    ]
    return next((value for item, value in pairs if item is parameter), None)


def _is_overridden(
    source: Source,
    function: Function,
    parameter: ast.arg,
    *,
    needs_call: bool = False,
    passes_another: Callable[[ast.Call, int | None], bool] | None = None,
) -> bool:
    """Whether a call may pass the parameter: one does, one unpacks, or the function is used otherwise than called.

    Calls are told by the last name. A class must be built somewhere in sight: its caller is often a configuration.
    needs_call: a function must be called somewhere too. passes_another: whether a call of this file matters, which has the
    place of the parameter; any that may pass it does where nothing is said.
    """
    name, skipped = function.name, 0
    owner = source.parent(function)
    if isinstance(owner, ast.ClassDef):
        static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
        name, skipped = (owner.name if name == "__init__" else name), int(not static)
        if function.name == "__init__" and any(
            isinstance(base, ast.Name) and base.id == owner.name
            for other in source.nodes(ast.ClassDef)
            for base in other.bases
        ):
            return True
    calls = [call for call in source.nodes(ast.Call) if last_name(call.func) == name]
    called = {id(call.func) for call in calls}
    called |= {id(call.args[0]) for call in source.nodes(ast.Call) if last_name(call.func) == "super" and call.args}
    elsewhere = source.neighbours.calls_by_importers(name) if source.neighbours is not None else []
    is_constructor = isinstance(owner, ast.ClassDef) and function.name == "__init__"
    if (is_constructor or needs_call) and not calls and not elsewhere:
        return True
    if any(
        use.id == name and id(use) not in called and isinstance(use.ctx, ast.Load) for use in source.nodes(ast.Name)
    ):
        return True
    positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][skipped:]
    place = positional.index(parameter.arg) if parameter.arg in positional else None
    if passes_another is None:
        passes_another = lambda call, place: shape_of(call).may_pass(parameter.arg, place)  # noqa: E731  # a default
    if any(passes_another(call, place) for call in calls):
        return True
    return any(shape.may_pass(parameter.arg, place) for shape in elsewhere)


def _option(source: Source, node: ast.Attribute) -> Default | None:
    """The default of `args.workers`, by the one `add_argument("--workers", default=...)` of this file."""
    if not is_of_options(source, node.value) or _is_set(source, node.attr):
        return None
    declared = [call for call in source.calls(".add_argument") if destination(call) == node.attr]
    preset = any(k.arg in (node.attr, None) for call in source.calls(".set_defaults") for k in call.keywords)
    uses = tuple(a for a in source.nodes(ast.Attribute) if a.attr == node.attr)
    return None if preset or len(declared) != 1 else _declared_default(source, declared[0], uses)


def is_of_options(source: Source, node: ast.expr) -> bool:
    """Whether an expression is what a parser returned, or is named as such things are: `args`, `self.opt`."""
    if isinstance(node, ast.Name):
        values = [assigned_value(source, binding) for binding in source.lookup(node)]
        parsed = [v for v in values if isinstance(v, ast.Call) and last_name(v.func).startswith("parse_")]
        if parsed and len(parsed) == len(values):
            return True
    return bool(_OPTIONS.search(last_name(node)))


def _is_set(source: Source, attribute: str) -> bool:
    """Whether anything in the file assigns to an attribute of this name."""
    return any(a.attr == attribute and not isinstance(a.ctx, ast.Load) for a in source.nodes(ast.Attribute))


def _declared_default(source: Source, call: ast.Call, uses: tuple[ast.expr, ...]) -> Default | None:
    """The default that the declaration of a command-line option gives it."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if None in given or "action" in given or "default" not in given:
        return None
    written = given["default"]
    value = constant(source, written)
    if value is UNKNOWN:
        return None
    literal = written if isinstance(written, ast.Constant) else None
    return Default(value, "the command line says otherwise", literal, uses)


def destination(call: ast.Call) -> str:
    """The attribute under which `parse_args` returns an option."""
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    for keyword in call.keywords:
        if keyword.arg == "dest":
            return str(keyword.value.value) if isinstance(keyword.value, ast.Constant) else ""
    long = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else "")
    return long.lstrip("-").replace("-", "_")


def _command_option(source: Source, function: Function, parameter: ast.arg) -> Default | None:
    """The default of a parameter that `@click.option("--workers", default=...)` fills."""
    options = [d for d in function.decorator_list if isinstance(d, ast.Call) and last_name(d.func) == "option"]
    declared = [option for option in options if parameter.arg in _click_names(option)]
    uses = tuple(source.uses_of(parameter, parameter.arg))
    return _declared_default(source, declared[0], uses) if len(declared) == 1 else None


def _click_names(option: ast.Call) -> set[str]:
    flags = [a.value for a in option.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return {flag.lstrip("-").replace("-", "_") for flag in flags}


def _field(source: Source, node: ast.Attribute, depth: int) -> Default | None:
    """What an attribute is by the one place in the file that gives it a value.

    `num_workers: int = 0` in a class of options, or `self.num_workers = num_workers` in a constructor.
    """
    stores = [a for a in source.nodes(ast.Attribute) if a.attr == node.attr and not isinstance(a.ctx, ast.Load)]
    classes = source.nodes(ast.ClassDef)
    fields = [(c, b) for c in classes for b in source.bound_in(c).get(node.attr, []) if isinstance(b, ast.Name)]
    if len(stores) == 1 and not fields and isinstance(node.value, ast.Name) and node.value.id == "self":
        same = source.enclosing(stores[0], ast.ClassDef) is source.enclosing(node, ast.ClassDef)
        value = assigned_value(source, stores[0]) if same else None
        if value is None or not (isinstance(stores[0].value, ast.Name) and stores[0].value.id == "self"):
            return None
        found = default(source, value, depth - 1)
        return found and Default(found.value, found.unless)
    if stores or len(fields) != 1 or not is_of_options(source, node.value):
        return None
    written = assigned_value(source, fields[0][1])
    given = constant(source, written) if written is not None else UNKNOWN
    built = [call for call in source.nodes(ast.Call) if last_name(call.func) == fields[0][0].name]
    if given is UNKNOWN or not built or any(shape_of(call).may_pass(node.attr, 0) for call in built):
        return None
    return Default(given, "the configuration says otherwise")


def is_false(source: Source, node: Argument) -> bool:
    """Provably False (the literal, or a name bound once to it)."""
    return constant(source, node) is False


def is_true(source: Source, node: Argument) -> bool:
    """Provably True (the literal, or a name bound once to it)."""
    return constant(source, node) is True


def local_class(source: Source, node: ast.expr) -> ast.ClassDef | None:
    """The class of this file that an expression is an instance of, through one name."""
    node = resolve(source, node) or node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        for definition in source.bound_in(source.tree).get(node.func.id, []):
            if isinstance(definition, ast.ClassDef):
                return definition
    return None


def enclosing_function(source: Source, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function around a node, or None at module level."""
    around = source.enclosing(node, *FUNCTIONS)
    return around if isinstance(around, FUNCTIONS) else None
