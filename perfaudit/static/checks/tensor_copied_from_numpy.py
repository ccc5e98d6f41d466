"""PA107: an array that is copied, or read element by element, to become a tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.understanding.how_often import runs_often
from perfaudit.static.understanding.values import assigned_value, resolve

FRESH = {  # functions that return an array nobody else holds; none of them gives a scalar or a view
    *("numpy.zeros", "numpy.ones", "numpy.full", "numpy.empty", "numpy.arange", "numpy.linspace", "numpy.eye"),
    *("numpy.stack", "numpy.concatenate", "numpy.vstack", "numpy.hstack", "numpy.array"),
    *("numpy.zeros_like", "numpy.ones_like", "numpy.full_like"),
}
REPEATED = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


@check("PA107", call="torch.tensor")
def tensor_copied_from_numpy(source: Source, call: ast.Call) -> Iterator[Seen]:
    if not call.args or isinstance(call.args[0], ast.Starred):
        return
    data = call.args[0]
    if _is_list_of_arrays(source, data):
        has_dtype = edit.keyword(call, "dtype") is not None
        yield Seen(
            call,
            f"`{source.brief(call)}` reads a list of arrays number by number, in Python",
            Proposal(
                "stack the arrays first",
                _stack_edits(source, data),
                "safe" if has_dtype else "unsafe",
                () if has_dtype else ("rounding",),  # numpy finds another common dtype for float32 and int64
            ),
        )
        return
    if len(call.args) != 1 or call.keywords:
        return
    array = resolve(source, data)
    if not isinstance(array, ast.Call) or not _is_fresh(source, array) or not runs_often(source, call):
        return
    message = f"`{source.brief(call)}` copies an array that lies in host memory already"
    if array is not data and not _is_handed_over(source, data, array, call):
        advice = "let the tensor use the array's memory (`torch.as_tensor`), if nothing writes into either behind it"
        yield Seen(call, message, Proposal(advice))
        return
    is_named = array is not data
    yield Seen(
        call,
        message,
        Proposal(
            "let the tensor use the array's memory",
            _as_tensor(source, call),
            "unsafe" if is_named else "safe",
            ("aliasing",) if is_named else (),
        ),
    )


def _is_handed_over(source: Source, data: ast.expr, array: ast.Call, call: ast.Call) -> bool:
    """Whether the tensor is the only one to use the array: a name of this function, set anew before each such call.

    Nothing else reads the name, except for its shape and dtype.
    """
    function = source.enclosing(call, *FUNCTIONS, ast.Lambda)
    if not isinstance(data, ast.Name) or not isinstance(function, FUNCTIONS):
        return False
    bindings = source.bound_in(function).get(data.id, [])
    if len(bindings) != 1 or assigned_value(source, bindings[0]) is not array:
        return False
    assignment = source.statement(bindings[0])
    if not isinstance(assignment, ast.Assign) or len(assignment.targets) != 1:
        return False
    if not any(item is assignment for item in _block_around(source, call, function)):
        return False
    reads = [use for use in source.uses_of(bindings[0], data.id) if use is not data]
    return all(_asks_for_form(source, read) for read in reads)


def _block_around(source: Source, call: ast.Call, function: Function) -> list[ast.stmt]:
    """The statements that run once for each time the call does: its own block and those around, up to a loop."""
    statements: list[ast.stmt] = []
    child: ast.AST = call
    for ancestor in source.ancestors(call):
        if isinstance(ancestor, REPEATED):
            return statements
        if isinstance(child, ast.stmt):
            statements += source.block(child)
            if isinstance(ancestor, LOOPS) or ancestor is function:
                return statements
        child = ancestor
    return statements


def _asks_for_form(source: Source, read: ast.Name) -> bool:
    parent = source.parent(read)
    return isinstance(parent, ast.Attribute) and parent.attr in ("shape", "dtype", "ndim", "size", "nbytes")


def _is_list_of_arrays(source: Source, data: ast.expr) -> bool:
    """Whether the data is written here as a list whose elements are arrays."""
    if isinstance(data, (ast.List, ast.Tuple)):
        return len(data.elts) > 1 and all(_is_array(source, element) for element in data.elts)
    return isinstance(data, ast.ListComp) and _is_array(source, data.elt)


def _is_array(source: Source, node: ast.expr) -> bool:
    node = resolve(source, node) or node
    return isinstance(node, ast.Call) and _is_fresh(source, node)


def _is_fresh(source: Source, call: ast.Call) -> bool:
    name = source.qualified_name(call.func)
    return name in FRESH and not any(k.arg in ("copy", "subok", "like", "out", None) for k in call.keywords)


def _stack_edits(source: Source, data: ast.expr) -> edit.Edits | None:
    """`np.stack(...)` around the list, by the name this file has for numpy."""
    stack = next(
        (
            f"{name}.stack"
            for name, target in source.aliases.items()
            if target == "numpy" and name in source.module_imports
        ),
        None,
    )
    if stack is None or "#" in source.text_of(data):
        return None
    return edit.replace(source, data, f"{stack}({source.text_of(data)})")


def _as_tensor(source: Source, call: ast.Call) -> edit.Edits | None:
    name, imported = edit.name_for(source, "torch.as_tensor")
    return edit.together(edit.replace(source, call.func, name), imported)
