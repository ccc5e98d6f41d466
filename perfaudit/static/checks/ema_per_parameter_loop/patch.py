"""The patch of a loop that averages: one call over two lists in its place."""

from __future__ import annotations

import ast

from perfaudit.static import edit
from perfaudit.static.checks.ema_per_parameter_loop.plain_numbers import is_plain_number
from perfaudit.static.checks.ema_per_parameter_loop.same_structure import have_same_structure
from perfaudit.static.checks.ema_per_parameter_loop.updated_average import Average
from perfaudit.static.registry import Proposal
from perfaudit.static.source import Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.averages import may_mix_types
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.values import constant

LONGEST_LINE = 100


def one_call(source: Source, loop: ast.For, average: Average) -> Proposal | None:
    """One call over two lists in place of the loop; None if they may not be plain floating tensors of one dtype."""
    pairs = _parameters_of_two_modules(loop)
    old, new = _root(average.average), _root(average.new)
    if pairs is None or not average.whole_body or old is None or new is None or {old, new} != set(pairs):
        return None
    if any(isinstance(node, (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)) for node in walk(loop)):
        return None  # none of them may stand in the lists
    if may_mix_types(source) or _read_elsewhere(source, loop) or not _pair_up(source, loop, pairs):
        return None
    if not all(is_plain_number(source, rate) for rate in average.rates):  # the operator takes no tensor as weight
        return None
    if source.neighbours is not None and source.neighbours.program_carries("mixed types"):
        return None
    if isinstance(average.new, ast.Name) and not in_no_grad(source, loop):  # the average would get a graph
        return None
    lists = [_list(source, node, name, pairs[name]) for node, name in ((average.average, old), (average.new, new))]
    function, imported = edit.name_for(source, "torch._foreach_lerp_")
    arguments = [*lists, average.weight]
    text = f"{function}({', '.join(arguments)})"
    indent = source.indent_of(loop)
    if len(indent) + len(text) > LONGEST_LINE:
        step = "\t" if "\t" in indent else "    "
        lines = "".join(f"{source.newline}{indent}{step}{argument}," for argument in arguments)
        text = f"{function}({lines}{source.newline}{indent})"
    edits = edit.together(edit.replace(source, loop, text), imported)
    if edits is None:
        return None
    changes = ("rounding", "aliasing") if average.rebinds else None
    return Proposal("average all parameters in one call, with a few kernels in all", edits, changes=changes)


def _parameters_of_two_modules(loop: ast.For) -> dict[str, ast.Call] | None:
    """The two loop variables with what they go over, for `for a, b in zip(x.parameters(), y.parameters())`."""
    zipped, target = loop.iter, loop.target
    if not (isinstance(zipped, ast.Call) and isinstance(zipped.func, ast.Name) and zipped.func.id == "zip"):
        return None
    only_strict = all(k.arg == "strict" for k in zipped.keywords)  # lists of unequal length raise in the patch as well
    if not only_strict or len(zipped.args) != 2 or not isinstance(target, ast.Tuple) or len(target.elts) != 2:
        return None
    pairs: dict[str, ast.Call] = {}
    for name, call in zip(target.elts, zipped.args, strict=True):
        is_parameters = (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "parameters"
        )
        if (
            not (isinstance(name, ast.Name) and isinstance(call, ast.Call) and is_parameters)
            or call.args
            or call.keywords
        ):
            return None
        pairs[name.id] = call
    return pairs if len(pairs) == 2 else None


def _root(node: ast.expr) -> str | None:
    """`p` of `p`, `p.data`, `p.detach()` and `p.data.detach()`; None for everything else."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach":
            node = node.func.value
        else:
            return None
    return node.id


def _list(source: Source, node: ast.expr, name: str, iterable: ast.Call) -> str:
    over = source.text_of(iterable)
    return f"list({over})" if isinstance(node, ast.Name) else f"[{source.text_of(node)} for {name} in {over}]"


def _pair_up(source: Source, loop: ast.For, pairs: dict[str, ast.Call]) -> bool:
    """Whether both lists are provably of one length; where they are not, `zip` drops the rest and the patch would raise."""
    strict = [k.value for k in loop.iter.keywords] if isinstance(loop.iter, ast.Call) else []
    if any(constant(source, value) is True for value in strict):
        return True
    modules = [call.func.value for call in pairs.values() if isinstance(call.func, ast.Attribute)]
    return len(modules) == 2 and have_same_structure(source, modules[0], modules[1])


def _read_elsewhere(source: Source, loop: ast.For) -> bool:
    """Whether a loop variable is read outside the loop, other than where another loop binds it."""
    for target in [n for n in walk(loop.target) if isinstance(n, ast.Name)]:
        for use in source.uses_of(target, target.id):
            if not any(a is loop or _binds(a, use.id) for a in source.ancestors(use)):
                return True
    return False


def _binds(node: ast.AST, name: str) -> bool:
    targets = [node.target] if isinstance(node, (ast.For, ast.comprehension)) else []
    targets += [generator.target for generator in getattr(node, "generators", [])]
    return any(isinstance(n, ast.Name) and n.id == name for target in targets for n in walk(target))
