"""PA209: a forward pass that leaves torch for NumPy, and so waits for the device and loses the gradient."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.no_grad import in_no_grad

FORWARD = {"forward", "training_step"}
FROM_NUMPY = {"torch.from_numpy"}
COPIES = {"torch.tensor", "torch.as_tensor", "torch.Tensor", "torch.FloatTensor", "torch.LongTensor"}
SIZES = {"shape", "size", "ndim", "dtype", "device", "dim", "numel"}
LOOKS = {  # at a type or a size only: nothing is computed or copied
    f"numpy.{name}"
    for name in (
        *("isscalar", "ndim", "shape", "size", "iscomplexobj", "isrealobj", "issubdtype", "result_type"),
        *("can_cast", "dtype", "iterable", "isfortran"),
    )
}
AFTERWARDS = regex(  # what follows the model
    r"post_?process|visuali|export|metric|evaluat", re.IGNORECASE, words="process|visuali|export|metric|evaluat"
)


@check("PA209", ast.ClassDef)
def numpy_in_forward(source: Source, definition: ast.ClassDef) -> Iterator[Seen]:
    if not source.mentions("numpy") or not source.imports_torch:
        return
    if not _is_module(source, definition) or AFTERWARDS.search(definition.name):
        return
    for function in definition.body:
        if not isinstance(function, FUNCTIONS) or function.name not in FORWARD:
            continue
        places = [call for call in _calls(function) if _goes_through_numpy(source, function, call)]
        if places:
            yield Seen(
                places[0],
                f"`{source.brief(places[0])}` in `{function.name}` computes on the host: on every step the device is "
                "waited for, or what was made is copied to it",
                Proposal("write it with torch functions on the device of the input, or do it once in `__init__`"),
                tuple(places[1:]),
                hot=True,
            )


def _is_module(source: Source, definition: ast.ClassDef) -> bool:
    """Whether a class is a network by what it says it derives from; an autograd function and a data set are none."""
    names = [source.qualified_name(base) or last_name(base) for base in definition.bases]
    return any(name.startswith("torch.nn.") or name.endswith("Module") for name in names)


def _calls(function: Function) -> list[ast.Call]:
    calls = [node for node in walk(function) if isinstance(node, ast.Call)]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def _goes_through_numpy(source: Source, function: Function, call: ast.Call) -> bool:
    name = source.qualified_name(call.func)
    if name in FROM_NUMPY:
        found = bool(call.args) and any(_is_array(source, part) for part in walk(call.args[0]))
    elif name in COPIES:
        found = bool(call.args) and _is_array(source, call.args[0])
    elif name is None and isinstance(call.func, ast.Attribute) and call.func.attr == "numpy":
        found = not call.args and not _feeds_another_library(source, call)
    else:
        found = name is not None and name.startswith("numpy.") and name not in LOOKS and _takes_input(function, call)
    return found and not in_no_grad(source, call) and not _is_conditional(source, function, call)


def _is_array(source: Source, node: ast.AST) -> bool:
    """Whether an expression is an array that NumPy makes there: `np.random.randn(4)`, not the number `np.sqrt(2)`."""
    if not isinstance(node, ast.Call):
        return False
    name = source.qualified_name(node.func) or ""
    return name.startswith("numpy.random.") or name in {
        f"numpy.{n}" for n in ("array", "arange", "zeros", "ones", "stack", "eye", "linspace", "full")
    }


def _takes_input(function: Function, call: ast.Call) -> bool:
    """Whether NumPy gets a whole argument of `forward` that is used as a tensor elsewhere, not its size."""
    parameters = {a.arg for a in function.args.args[1:]}
    given = {a.id for a in call.args if isinstance(a, ast.Name)} & parameters
    attributes = (n for n in walk(function) if isinstance(n, ast.Attribute) and n.attr in SIZES)
    return bool(given & {n.value.id for n in attributes if isinstance(n.value, ast.Name)})


def _feeds_another_library(source: Source, call: ast.Call) -> bool:
    """Whether the array goes straight into a call that may have no other form: neither NumPy's nor of this file."""
    around = source.enclosing(call, ast.Call)
    if around is None or any(part is call for part in walk(around.func)):
        return False
    name = source.qualified_name(around.func) or ""
    return not name.startswith(("numpy.", "torch.")) and called_function(source, around) is None


def _is_conditional(source: Source, function: Function, call: ast.Call) -> bool:
    """Whether a condition may keep the place out of training: `if not self.training`, a backend, a plot."""
    return source.enclosing(call, ast.If, ast.IfExp, ast.ExceptHandler, ast.BoolOp, within=function) is not None
