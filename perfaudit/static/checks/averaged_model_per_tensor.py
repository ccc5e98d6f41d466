"""PA406: an AveragedModel that averages one tensor after the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.averages import Values, may_mix_types, mixture
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import ABSENT, argument, constant, resolve

AVG_FN = 2  # position of the parameter in AveragedModel.__init__, the same in every torch
SWA_UTILS = "torch.optim.swa_utils."
OVER_LISTS = {"get_ema_avg_fn": "get_ema_multi_avg_fn", "get_swa_avg_fn": "get_swa_multi_avg_fn"}
ADVICE = "average lists of tensors: `multi_avg_fn=get_ema_multi_avg_fn(decay)`, or a function of two lists of your own"


@check("PA406", call=f"{SWA_UTILS}AveragedModel")
def averaged_model_per_tensor(source: Source, call: ast.Call) -> Iterator[Seen]:
    average = argument(source, call, "avg_fn", AVG_FN)
    if not isinstance(average, ast.expr) or argument(source, call, "multi_avg_fn", AVG_FN + 1) is not ABSENT:
        return
    function = _function(source, average)
    if function is None:  # a variable that may be None
        return
    model = source.brief(call.args[0], 30) if call.args else "the model"
    yield Seen(
        call,
        f"`{source.brief(average)}` averages `{model}` one tensor at a time: every parameter takes kernels of its own",
        _over_lists(source, call, average, function) or Proposal(ADVICE),
    )


def _function(source: Source, average: ast.expr) -> ast.Lambda | Function | ast.Call | None:
    """The lambda or function of this file that is passed, or the call of torch that makes it."""
    if isinstance(average, ast.Name):
        bindings = source.lookup(average)
        if len(bindings) == 1 and isinstance(bindings[0], FUNCTIONS):
            return bindings[0]
    value = resolve(source, average)
    if isinstance(value, ast.Lambda):
        return value
    if isinstance(value, ast.Call) and _made_by(source, value) in OVER_LISTS:
        return value
    return None


def _made_by(source: Source, call: ast.Call) -> str:
    name = source.qualified_name(call.func) or ""
    return last_name(call.func) if name.startswith(SWA_UTILS) else ""


def _over_lists(
    source: Source, call: ast.Call, average: ast.expr, function: ast.Lambda | Function | ast.Call
) -> Proposal | None:
    """The same average by torch's function over lists, where its decay can be read and the types agree; else None."""
    keyword = edit.keyword(call, "avg_fn")
    if keyword is None or keyword.value is not average or may_mix_types(source):
        return None
    if isinstance(function, ast.Call):
        if function is not average:  # made elsewhere, perhaps for others too
            return None
        maker, decay = OVER_LISTS[_made_by(source, function)], "".join(_arguments(source, function))
    else:
        maker, weight = "get_ema_multi_avg_fn", _decay(source, function)
        if weight is None:
            return None
        decay = f"{weight:.12g}"
    name, imported = edit.name_for(source, SWA_UTILS + maker)
    edits = edit.together(edit.replace(source, keyword, f"multi_avg_fn={name}({decay})"), imported)
    return Proposal("average lists of tensors, with a few kernels in all", edits) if edits else None


def _arguments(source: Source, call: ast.Call) -> Iterator[str]:
    """What stands in the brackets of a call, which passes one value at most."""
    if call.args or call.keywords:
        yield source.text_of([*call.args, *call.keywords][0])


def _decay(source: Source, function: ast.Lambda | Function) -> float | None:
    """`d` of a function that returns d · average + (1 - d) · new, where d is a number; None for any other."""
    arguments = [a.arg for a in function.args.args]
    if len(arguments) != 3:
        return None
    values = Values(source)
    value = values.of(function.body) if isinstance(function, ast.Lambda) else values.at_end(function)
    if isinstance(function, FUNCTIONS) and len(function.body) > 1:  # a branch may end it sooner
        return None
    if value is None:
        return None
    mixed = mixture(value, arguments[0])
    if mixed is None or mixed[0] != arguments[1]:
        return None
    if not mixed[2]:
        return value[(arguments[0],)]
    weight = constant(source, values.operands[mixed[2][0]])
    if not isinstance(weight, float) or not 0 < weight < 1:
        return None
    return 1 - weight if mixed[1] == mixed[2][0] else weight
