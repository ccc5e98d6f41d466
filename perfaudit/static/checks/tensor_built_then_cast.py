"""PA106: a tensor that is filled in one dtype and then converted to another."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check, hint_if
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.how_often import runs_every_step, runs_often
from perfaudit.static.understanding.values import ABSENT, argument, constant

FLOATS = {
    "half": "torch.float16",
    "bfloat16": "torch.bfloat16",
    "float": "torch.float32",
    "double": "torch.float64",
}
INTEGERS = {"long": "torch.int64", "int": "torch.int32", "short": "torch.int16", "bool": "torch.bool"}
SYNONYMS = {"torch.half": "torch.float16", "torch.float": "torch.float32", "torch.double": "torch.float64"} | {
    f"torch.{name}": dtype for name, dtype in INTEGERS.items()
}
CASTS = FLOATS | INTEGERS
IN_DEFAULT_DTYPE = {"torch.zeros", "torch.ones", "torch.empty", "torch.eye"}
# The copy lacks what these give the first tensor.
KEEPS_BOTH = ("dtype", "out", "pin_memory", "requires_grad", "layout", "names")
EXACT = 256  # integers up to here are exact in every floating type, bfloat16 included


@check("PA106", call=(*(f".{name}" for name in CASTS), ".to", ".type"))
def tensor_built_then_cast(source: Source, call: ast.Call) -> Iterator[Seen]:
    built = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(built, ast.Call) or (dtype := _target(source, call)) is None:
        return
    name = source.qualified_name(built.func)
    if name is None or not _is_converted(source, built, name, SYNONYMS.get(dtype, dtype)):
        return
    if any(argument(source, built, option) is not ABSENT for option in KEEPS_BOTH):
        return
    if _changes_default(source) or not runs_often(source, call) or _fills_cache(source, call):
        return
    hot = runs_every_step(source, call)
    often = ", on every step" if hot else ""
    yield Seen(
        call,
        f"`{source.brief(built)}` is filled in one dtype and converted by a second kernel{often}",
        Proposal(f"build it with `dtype={dtype}`", _edits(source, call, built, dtype)),
        hot=hot,
        severity=hint_if(not hot),
    )


def _target(source: Source, call: ast.Call) -> str | None:
    """The documented name of the dtype that a call converts to and that is all it does; else None."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name in CASTS:
        return CASTS[name] if not call.args and not call.keywords else None
    values = [*call.args, *(k.value for k in call.keywords if k.arg == "dtype")]
    if len(values) != 1 or len(call.args) + len(call.keywords) != 1:
        return None
    dtype = source.qualified_name(values[0])
    return dtype if dtype in {*CASTS.values(), *SYNONYMS} else None


def _is_converted(source: Source, built: ast.Call, name: str, dtype: str) -> bool:
    """Whether the conversion makes a copy, and building in `dtype` at once gives the same values."""
    if name in IN_DEFAULT_DTYPE:
        is_empty = any(isinstance(a, ast.Constant) and a.value == 0 for a in built.args)
        return dtype != "torch.float32" and not is_empty
    if name == "torch.full":
        return _fills_exactly(source, built, dtype)
    if name == "torch.arange":  # in half precision long ranges differ: 70,000 numbers did, 3,000 did not
        return dtype in ("torch.float32", "torch.float64") and _counts_in_integers(source, built)
    return False


def _fills_exactly(source: Source, built: ast.Call, dtype: str) -> bool:
    value = constant(source, argument(source, built, "fill_value", 1))
    if type(value) is bool:
        return dtype != "torch.bool"
    if type(value) is int:
        return abs(value) <= EXACT and dtype != "torch.int64"
    return type(value) is float and value.is_integer() and abs(value) <= EXACT and dtype != "torch.float32"


def _counts_in_integers(source: Source, built: ast.Call) -> bool:
    """Whether `arange` counts in integers: start and step are literals, and nothing in the end says that it is a float."""
    if any(k.arg in ("start", "end", "step", None) for k in built.keywords) or not 1 <= len(built.args) <= 3:
        return False
    place = min(1, len(built.args) - 1)
    end = built.args[place]
    if any(isinstance(part, ast.Div) or isinstance(getattr(part, "value", None), float) for part in ast.walk(end)):
        return False
    return all(type(constant(source, a)) is int for n, a in enumerate(built.args) if n != place)


def _changes_default(source: Source) -> bool:
    return any(source.calls(f"torch.set_default_{what}") for what in ("dtype", "tensor_type"))


def _fills_cache(source: Source, call: ast.Call) -> bool:
    """Whether it runs only until something is there: under `if self.x is None`, or behind a return where it is."""
    for ancestor in source.ancestors(call):
        if isinstance(ancestor, (ast.If, ast.IfExp)) and _asks_for_none(ancestor.test):
            return True
        if isinstance(ancestor, FUNCTIONS):
            early = [s for s in ancestor.body if isinstance(s, ast.If) and s.lineno < call.lineno]
            return any(isinstance(s.body[-1], ast.Return) and _asks_for_none(s.test) for s in early)
    return False


def _asks_for_none(test: ast.expr) -> bool:
    """Whether a test asks if an attribute is there."""
    return any(
        isinstance(part, ast.Compare)
        and isinstance(part.left, ast.Attribute)
        and isinstance(part.ops[0], (ast.Is, ast.IsNot))
        for part in ast.walk(test)
    )


def _edits(source: Source, call: ast.Call, built: ast.Call, dtype: str) -> edit.Edits | None:
    """`dtype=` into the constructor and the call behind it out; None where a comment or a bracket stands between."""
    behind = Span(source.span(built).end, source.span(call).end)
    text = source.text[behind.start : behind.end]
    if "#" in text or not text.lstrip("\\ \t\r\n").startswith("."):
        return None
    name, imported = edit.name_for(source, dtype)
    return edit.together(edit.add_keyword(source, built, "dtype", name), (Edit(behind, ""),), imported)
