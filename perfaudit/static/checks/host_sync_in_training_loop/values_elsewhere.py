"""Which expressions of a function in another file are tensors on the device, for what one call passes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from perfaudit.static.understanding.code_reader import CodeReader
from perfaudit.static.understanding.elsewhere import Elsewhere
from perfaudit.static.understanding.kinds import Kind, holder_kind
from perfaudit.static.understanding.loss_seeds import loss_seeds
from perfaudit.static.understanding.step_code import StepCode
from perfaudit.static.understanding.taint import Region, device_attributes


def values_elsewhere(
    there: Elsewhere, kind_of: Callable[[ast.expr], Kind], given_back: Iterable[ast.expr] = ()
) -> Region:
    """A function of another file, with the kinds of its expressions for what this call passes.

    given_back: what it returns to a caller that runs the backward pass on it.
    """
    kinds: dict[int, Kind] = {}
    reader = CodeReader(there.source, kinds, loss_seeds(there.source, there.function, given_back), (there.function,))
    if there.owner is not None:
        reader.names = device_attributes(there.source, there.owner)
    reader.names.update({name: kind_of(argument) for name, argument in there.named_arguments})
    if there.function.args.kwarg is not None:
        rest = [kind_of(argument) for argument in there.rest]
        reader.names[there.function.args.kwarg.arg] = holder_kind(max(rest, default=Kind.HOST))
    reader.block(there.function.body)
    return Region(StepCode(there.function, ()), kinds)  # the call is in this file, whose nodes the other does not know
