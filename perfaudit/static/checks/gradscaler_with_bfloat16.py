"""PA305: a gradient scaler around a forward pass in bfloat16, which needs none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.values import ABSENT, Argument, argument, constant, resolve

AUTOCASTS = {"torch.autocast": 1, "torch.amp.autocast": 1, "torch.cuda.amp.autocast": 1}  # position of `dtype`
AUTOCASTS |= {"torch.amp.autocast_mode.autocast": 1, "torch.cuda.amp.autocast_mode.autocast": 1}
ENABLED = {"torch.cuda.amp.GradScaler": 4, "torch.amp.GradScaler": 5}  # position of `enabled`
OTHERS = ("float16", "half(", "fp16", "apex")  # something runs in half precision, which does need a scaler


@check("PA305", call=ENABLED)
def gradscaler_with_bfloat16(source: Source, call: ast.Call) -> Iterator[Seen]:
    enabled = argument(source, call, "enabled", ENABLED[source.qualified_name(call.func) or ""])
    if enabled is not ABSENT and constant(source, enabled) is not True:
        return
    casts = [(c, place) for name, place in AUTOCASTS.items() for c in source.calls(name)]
    if not casts or not all(_is_bfloat16(source, argument(source, c, "dtype", place)) for c, place in casts):
        return
    if any(name in source.text.replace("bfloat16", "") for name in OTHERS):
        return
    yield Seen(
        call,
        f"`{source.brief(call)}` scales a loss whose forward pass runs in bfloat16: each step multiplies all gradients"
        " and makes the host wait to look for overflow",
        Proposal("call `loss.backward()` and `optimizer.step()` without the scaler: bfloat16 has float32's range"),
    )


def _is_bfloat16(source: Source, dtype: Argument) -> bool:
    if not isinstance(dtype, ast.expr):
        return False
    return source.qualified_name(resolve(source, dtype) or dtype) == "torch.bfloat16"
