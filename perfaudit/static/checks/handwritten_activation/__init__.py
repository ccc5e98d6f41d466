"""PA205: SiLU, quick-GELU, Mish, RMSNorm or LayerNorm, written out in single operators."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static import edit
from perfaudit.static.checks.handwritten_activation.formulas import is_wanted_written_out, may_hold_integers
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.members import built_as, own_values
from perfaudit.static.understanding.names import dotted_name
from perfaudit.static.understanding.values import assigned_value, constant

SIGMOID = ("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit")
TANH = ("torch.tanh", "torch.nn.functional.tanh")
QUICK_GELU = 1.702


@check("PA205", ast.BinOp)
def handwritten_activation(source: Source, node: ast.BinOp) -> Iterator[Seen]:
    if not isinstance(node.op, (ast.Mult, ast.Div)) or not source.imports_torch:
        return
    seen = _product(source, node) if isinstance(node.op, ast.Mult) else _layer_norm(source, node)
    if seen is not None and not is_wanted_written_out(source, node) and not _is_fallback(source, node):
        yield seen


def _is_fallback(source: Source, node: ast.AST) -> bool:
    """Whether the formula stands in for a library that may lack it: `except ImportError`, `if not hasattr(F, "silu")`."""
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, ast.ExceptHandler):
            return True
        if isinstance(ancestor, ast.If) and any(
            word in source.text_of(ancestor.test) for word in ("hasattr", "version")
        ):
            return True
    return False


def _product(source: Source, node: ast.BinOp) -> Seen | None:
    for x, curve in ((node.left, node.right), (node.right, node.left)):
        if not isinstance(curve, ast.Call):
            continue
        inner = _curve_of(source, curve, SIGMOID, "sigmoid", "torch.nn.Sigmoid")
        if inner is not None and _is_same(inner, x) and not may_hold_integers(source, x):
            return _activation(source, node, x, "SiLU", "torch.nn.functional.silu")
        if inner is not None and _is_quick_gelu(source, inner, x):
            return Seen(
                node,
                f"quick-GELU of `{source.brief(x)}` is written out: each of its operators reads and writes the whole tensor",
                Proposal("let torch.compile fuse it; in a model that is trained anew, torch.nn.functional.gelu"),
                hot=runs_every_step(source, node),
            )
        inner = _curve_of(source, curve, TANH, "tanh", "torch.nn.Tanh")
        if (
            isinstance(inner, ast.Call)
            and _is_softplus(source, inner)
            and _is_same(inner.args[0], x)
            and not may_hold_integers(source, x)
        ):
            return _activation(source, node, x, "Mish", "torch.nn.functional.mish")
        if _is_root_mean_square(source, curve, x):
            return _rms_norm(source, node, x)
    return None


def _curve_of(source: Source, call: ast.Call, names: tuple[str, ...], method: str, layer: str) -> ast.expr | None:
    """What a curve is taken of: `torch.sigmoid(x)`, `x.sigmoid()`, `nn.Sigmoid()(x)`, `self.gate(x)` of that layer."""
    if call.keywords or len(call.args) > 1:
        return None
    name = source.qualified_name(call.func)
    if name is not None:
        return call.args[0] if name in names and call.args else None
    if isinstance(call.func, ast.Call):
        return call.args[0] if source.qualified_name(call.func.func) == layer and call.args else None
    if not isinstance(call.func, ast.Attribute):
        return None
    if not call.args:
        return call.func.value if call.func.attr == method else None
    if dotted_name(call.func) != f"self.{call.func.attr}":
        return None
    made = {source.qualified_name(item.func) for item in built_as(source, call, call.func.attr)}
    return call.args[0] if made == {layer} else None


def _is_same(first: ast.expr, second: ast.expr) -> bool:
    """Whether both are the same name, attribute or element, read twice: nothing is called in between."""
    if not isinstance(first, (ast.Name, ast.Attribute, ast.Subscript)) or ast.dump(first) != ast.dump(second):
        return False
    return not any(isinstance(n, (ast.Call, ast.NamedExpr, ast.Await, ast.Yield)) for n in ast.walk(first))


def _is_quick_gelu(source: Source, inner: ast.expr, x: ast.expr) -> bool:
    if not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.Mult):
        return False
    sides = ((inner.left, inner.right), (inner.right, inner.left))
    return any(constant(source, factor) == QUICK_GELU and _is_same(other, x) for factor, other in sides)


def _is_softplus(source: Source, call: ast.Call) -> bool:
    return (
        source.qualified_name(call.func) == "torch.nn.functional.softplus" and len(call.args) == 1 and not call.keywords
    )


def _activation(source: Source, node: ast.BinOp, x: ast.expr, shown: str, dotted: str) -> Seen:
    function, imported = edit.name_for(source, dotted)
    text = source.text_of(x)
    edits = edit.together(edit.replace(source, node, f"{function}({text})"), imported)
    return Seen(
        node,
        f"{shown} of `{source.brief(x)}` is written out: each of its operators reads and writes the whole tensor, and "
        "keeps one for backward",
        Proposal(f"compute it in one operator, `{function}`", edits if len(text.splitlines()) == 1 else None),
        hot=runs_every_step(source, node),
    )


# ---- norms ---------------------------------------------------------------------------------------------------------


def _rms_norm(source: Source, node: ast.BinOp, x: ast.expr) -> Seen:
    return Seen(
        node,
        f"RMSNorm of `{source.brief(x)}` is written out: each of its operators reads and writes the whole tensor",
        Proposal("use torch.nn.functional.rms_norm or torch.nn.RMSNorm (torch 2.4 and later) with the same eps"),
        hot=runs_every_step(source, node),
    )


def _is_root_mean_square(source: Source, curve: ast.Call, x: ast.expr) -> bool:
    """`torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)`."""
    inner = _curve_of(source, curve, ("torch.rsqrt",), "rsqrt", "")
    return inner is not None and _is_mean_square(source, _without_eps(inner), x)


def _without_eps(node: ast.expr | None) -> ast.expr | None:
    return node.left if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) else None


def _is_mean_square(source: Source, node: ast.expr | None, x: ast.expr) -> bool:
    square = _reduction_operand(source, _value_of_name(source, node), "mean")
    return (
        square is not None and (base := _square_operand(source, square)) is not None and _is_same(_bare(base), _bare(x))
    )


def _bare(node: ast.expr) -> ast.expr:
    """`x` of `x.float()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("float", "to"):
        return node.func.value
    return node


def _square_operand(source: Source, node: ast.expr | None) -> ast.expr | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and constant(source, node.right) == 2:
        return node.left
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and _is_same(node.left, node.right):
        return node.left
    if not isinstance(node, ast.Call):
        return None
    if source.qualified_name(node.func) in ("torch.square", "torch.pow") and node.args:
        is_square = len(node.args) == 1 or constant(source, node.args[1]) == 2
        return node.args[0] if is_square else None
    if isinstance(node.func, ast.Attribute) and source.qualified_name(node.func) is None:
        exponent = constant(source, node.args[0]) if node.func.attr == "pow" and node.args else None
        return node.func.value if node.func.attr == "square" or exponent == 2 else None
    return None


def _reduction_operand(source: Source, node: ast.expr | None, *methods: str) -> ast.expr | None:
    """`x` of `x.mean(-1, keepdim=True)` and `torch.mean(x, dim=-1, keepdim=True)`: over the last axis, which stays."""
    if not isinstance(node, ast.Call):
        return None
    name = source.qualified_name(node.func)
    if name in {f"torch.{method}" for method in methods} and node.args:
        x, rest = node.args[0], node.args[1:]
    elif name is None and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
        x, rest = node.func.value, node.args
    else:
        return None
    keywords = {k.arg: k.value for k in node.keywords}
    axis = rest[0] if rest else keywords.get("dim", keywords.get("axis"))
    keeps = rest[1] if len(rest) == 2 else keywords.get("keepdim", keywords.get("keepdims"))
    if axis is None or keeps is None or constant(source, axis) != -1 or constant(source, keeps) is not True:
        return None
    return x


def _value_of_name(source: Source, node: ast.expr | None) -> ast.expr | None:
    """What the name of an intermediate value stands for, where its function binds it once."""
    if isinstance(node, ast.Name) and source.enclosing(node, *FUNCTIONS) is not None:
        bindings = source.lookup(node)
        return assigned_value(source, bindings[0]) if len(bindings) == 1 else None
    return node


def _layer_norm(source: Source, node: ast.BinOp) -> Seen | None:
    """`(x - mean) / (std + eps)` and `(x - mean) / sqrt(var + eps)` over the last axis."""
    top = node.left.right if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mult) else node.left
    if not isinstance(top, ast.BinOp) or not isinstance(top.op, ast.Sub):
        return None
    mean = _reduction_operand(source, _value_of_name(source, top.right), "mean")
    if mean is None or not _is_same(mean, top.left):
        return None
    outside = _reduction_operand(source, _value_of_name(source, _without_eps(node.right)), "std")
    if outside is not None and _is_same(outside, top.left):
        return _norm(
            source, node, "compute it in one operator, torch.nn.LayerNorm; not equal: here eps is added to the "
            "standard deviation, which divides by n - 1 unless told otherwise, so a trained model changes"
        )  # fmt: skip
    root = node.right
    is_root = isinstance(root, ast.Call) and bool(root.args) and source.qualified_name(root.func) == "torch.sqrt"
    inside = _without_eps(root.args[0] if isinstance(root, ast.Call) and is_root else None)
    variance = _value_of_name(source, inside)
    spread = _reduction_operand(source, variance, "var")
    squares = _square_operand(source, _reduction_operand(source, variance, "mean"))
    if spread is not None and _is_same(spread, top.left) and isinstance(variance, ast.Call):
        unbiased = {k.arg: constant(source, k.value) for k in variance.keywords}
        if unbiased.get("unbiased") is False or unbiased.get("correction") == 0:
            return _equal_norm(source, node, top, root)
        return _norm(
            source, node, "compute it in one operator, torch.nn.LayerNorm; not equal: this variance divides by n - 1"
        )  # fmt: skip
    if squares is not None and ast.dump(squares) == ast.dump(top):
        return _equal_norm(source, node, top, root)
    return None


def _equal_norm(source: Source, node: ast.BinOp, top: ast.BinOp, root: ast.expr) -> Seen:
    """A LayerNorm that the library's operator computes; with edits where the text settles that nothing else is meant."""
    assert isinstance(root, ast.Call) and isinstance(root.args[0], ast.BinOp), "a root of what eps is added to"
    spread, eps = root.args[0].left, root.args[0].right
    statements = _statements_of(source, node, [each for each in (top.right, spread) if isinstance(each, ast.Name)])
    if node.left is not top or len(root.args) != 1 or statements is None or not _is_number(source, eps):
        return _norm(source, node, "compute it in one operator, torch.nn.LayerNorm with the same eps")
    function, imported = edit.name_for(source, "torch.nn.functional.layer_norm")
    x = source.text_of(top.left)
    call = f"{function}({x}, {x}.shape[-1:], eps={source.text_of(eps)})"
    removed = (edit.delete_statement(source, each) for each in statements)
    edits = edit.together(edit.replace(source, node, call), imported, *removed)
    return _norm(source, node, f"compute it in one operator, `{function}`", edits if "\n" not in call else None)


def _statements_of(source: Source, node: ast.expr, names: list[ast.Name]) -> list[ast.stmt] | None:
    """Those that give these names what they stand for, right before the node's and read nowhere else; None for others.

    Nothing comes between them that could change what is read.
    """
    end, function = source.statement(node), source.enclosing(node, *FUNCTIONS)
    found = [source.statement(source.lookup(name)[0]) for name in names]
    block = source.block(end)
    at = next((number for number, each in enumerate(block) if each is end), 0)
    before = block[max(0, at - len(found)) : at]
    if function is None or hasattr(end, "body") or {id(each) for each in before} != {id(each) for each in found}:
        return None
    inside = {id(part) for each in (*before, end) for part in ast.walk(each)}
    bound = {name.id for name in names}
    uses = [each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id in bound]
    later = {id(part) for part in ast.walk(end)} - {id(part) for part in ast.walk(node)}
    is_only_here = all(id(each) in inside and id(each) not in later for each in uses)
    return before if is_only_here and all(_is_plain(each) for each in before) else None


def _is_plain(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)
    )


def _is_number(source: Source, node: ast.expr) -> bool:
    """A number, or what the constructor keeps of one: the operator takes no tensor."""
    if isinstance(constant(source, node), float):
        return True
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.value.id != "self":
        return False
    values = own_values(source, node, node.attr)
    return bool(values) and all(value is not None and _is_number_given(source, value) for value in values)


def _is_number_given(source: Source, value: ast.expr) -> bool:
    if isinstance(constant(source, value), float):
        return True
    function = source.enclosing(value, ast.FunctionDef)
    if not isinstance(value, ast.Name) or function is None:
        return False
    arguments = [*function.args.posonlyargs, *function.args.args]
    given = dict(zip([each.arg for each in reversed(arguments)], reversed(function.args.defaults), strict=False))
    given |= {
        each.arg: default
        for each, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if default
    }
    default = given.get(value.id)
    return default is not None and isinstance(constant(source, default), float) and len(source.lookup(value)) == 1


def _norm(source: Source, node: ast.BinOp, cure: str, edits: edit.Edits | None = None) -> Seen:
    return Seen(
        node,
        f"LayerNorm is written out: `{source.brief(node)}`; each operator reads and writes the whole tensor",
        Proposal(cure, edits),
        hot=runs_every_step(source, node),
    )
