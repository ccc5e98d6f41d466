"""How far the averages of its weights move that a script keeps by itself, found among the objects of its process. Child only."""

from __future__ import annotations

import gc
import math
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

# A tensor of any size is told by its sums and by its products with so many rows of random signs: averages that moved as far in
# another direction have other products.
SIGNS = 2
AT_ONCE = 2**18  # elements
HALF = 0.5  # of an optimizer's tensors: a list that is shaped as less of the model may be anything
_HOLDERS = (dict, OrderedDict, defaultdict, list)  # exactly: a subclass may load, or raise, when it is read

Tensors = dict[str, Any]  # by name: torch.Tensor
Read = Callable[[], Tensors]


@dataclass(frozen=True, slots=True)
class _Row:
    """What holds tensors shaped as trained weights, and what they were at first, on the host.

    trained: those of them that stand for a parameter which an optimizer moves.
    """

    tensors: Read
    before: Tensors
    trained: frozenset[str]


class Averages:
    """Everything that holds tensors shaped as the trained weights, and is neither those nor their gradients, as it was once.

    That is a module, as an `AveragedModel`, wherever it belongs, or a dict or a list of tensors. Target networks and the best
    weights so far are among them: where two trainings are alike, these are alike, too. Nothing is copied on the device.
    """

    def __init__(self, training: Any) -> None:
        self._rows = _rows(training)

    def take_movements(self, steps: int) -> list[list[Any]]:
        """Of each floating tensor, how far it has moved since then, in an order that does not depend on the process.

        Each is [name, whether an optimizer moves what it stands for and the average has moved, Σ|Δ|, √ΣΔ², what `steps`
        roundings of it make of the two, and SIGNS products of Δ with random signs]. The copies are let go of.
        """
        rows, self._rows = self._rows, []
        found = []
        for row in rows:
            now = _safely(row.tensors) or {}
            told = dict.fromkeys(row.trained, [0.0] * (4 + SIGNS))  # what cannot be read is not seen to move
            for name, then in row.before.items():
                if each := _safely(_movement, name, then, now.get(name), steps):
                    told[name] = each
            has_moved = any(told[name][0] for name in row.trained)
            found += [[name, has_moved and name in row.trained, *each] for name, each in told.items()]
        return sorted(found)


def _movement(name: str, then: Any, now: Any, steps: int) -> list[float] | None:
    import torch

    if now is None or now.shape != then.shape:
        return None
    rounding = steps * torch.finfo(then.dtype).eps
    dice = torch.Generator("cpu").manual_seed(zlib.crc32(name.encode()))
    sums = [0.0] * (4 + SIGNS)
    new = now.detach().cpu()
    for before, part in zip(then.flatten().split(AT_ONCE), new.flatten().split(AT_ONCE), strict=True):
        old = before.cpu().double()
        apart = part.cpu().double() - old
        heads = torch.randint(0, 2, (SIGNS, len(apart)), generator=dice, dtype=torch.int8, device="cpu")
        # This is no product of matrices, which autocast or `measure.rounding` may round.
        products = ((1 - 2 * heads) * apart).sum(dim=1)
        added = (apart.abs().sum(), apart.square().sum(), old.abs().sum(), old.square().sum(), *products)
        sums = [a + float(b) for a, b in zip(sums, added, strict=True)]
    return [sums[0], math.sqrt(sums[1]), rounding * sums[2], rounding * math.sqrt(sums[3]), *sums[4:]]


def _rows(training: Any) -> list[_Row]:
    import torch

    everything = gc.get_objects()
    own = _own(training.optimizers)
    taken = _places([*own.values(), *(p.grad for p in own.values()), *training.first_gradients.values()])
    modules = [each for each in everything if issubclass(type(each), torch.nn.Module)]
    shapes = _shapes_of_trained(modules, own, training.optimizers)
    lengths = {len(each) for each in shapes.most}
    holders = [each for each in everything if type(each) in _HOLDERS and len(each) in lengths]
    rows = [_safely(_row, each, shapes, taken) for each in [*modules, *holders]]
    return _each_tensor_once([row for row in rows if row is not None])


def _own(optimizers: Sequence[Any]) -> dict[int, Any]:
    """What the optimizers move, by identity. An average that was handed to one with the rest has neither gradient nor state."""
    found = {}
    for optimizer in optimizers:
        state = getattr(optimizer, "state", {})
        given = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        moved = [p for p in given if p.grad is not None or p in state]
        found.update({id(p): p for p in moved or given})
    return found


@dataclass(slots=True)
class _Shapes:
    """For the shapes of tensors in their order, their names, and whether an optimizer moves each.

    all: of each module that has trained parameters. most: of those that have more than HALF of an optimizer's, and of their
    states.
    """

    all: dict[Any, dict[str, bool]] = field(default_factory=dict)
    most: dict[Any, dict[str, bool]] = field(default_factory=dict)


def _shapes_of_trained(modules: Sequence[Any], own: dict[int, Any], optimizers: Sequence[Any]) -> _Shapes:
    of = [{id(p) for group in each.param_groups for p in group["params"]} & own.keys() for each in optimizers]
    found = _Shapes()
    for module in modules:
        named = _safely(_parameters, module) or {}
        held = own.keys() & {id(p) for p in named.values()}
        if not held:
            continue
        has_most = any(each and len(held & each) > HALF * len(each) for each in of)
        ways = [
            named,
            {n: p for n, p in named.items() if p.requires_grad},
            {n: p for n, p in named.items() if id(p) in held},
        ]
        for tensors in [*ways, _safely(_state, module) or {}] if has_most else ways:
            names = {name: id(value) in held for name, value in tensors.items()}
            for known in (found.all, found.most) if has_most else (found.all,):
                known[_shape(tensors)] = _first_of(known.get(_shape(tensors)), names)
    return found


def _first_of(known: dict[str, bool] | None, names: dict[str, bool]) -> dict[str, bool]:
    """Of two modules so shaped, the names that come first: objects are found in another order in each process."""
    if known is None:
        return names
    are_trained = [a or b for a, b in zip(known.values(), names.values(), strict=True)]
    return dict(zip(min(list(known), list(names)), are_trained, strict=True))


def _row(value: Any, shapes: _Shapes, taken: set[Any]) -> _Row | None:
    """A module, a dict or a list as a row, None for one that is not shaped as trained weights or is those."""
    if type(value) in _HOLDERS:
        return _row_of(partial(_tensors_held, value), shapes.most, taken, is_named=type(value) is not list)
    if _parameters(value):
        return _row_of(partial(_parameters, value), shapes.all, taken, beside=partial(_buffers, value))
    return _row_of(partial(_buffers, value), shapes.most, taken)


def _row_of(
    read: Read, shapes: dict[Any, dict[str, bool]], taken: set[Any], is_named: bool = True, beside: Read = dict
) -> _Row | None:
    """is_named: else the tensors get the names of what they stand for. beside: further tensors, which nothing trained has."""
    weights = read()
    names = shapes.get(_shape(weights)) if weights else None
    if names is None or _places(weights.values()) & taken:
        return None
    called = dict(zip(weights, weights if is_named else names, strict=True))
    trained = {called[name] for name, is_trained in zip(weights, names.values(), strict=True) if is_trained}

    def tensors() -> Tensors:
        return {called.get(name, name): each for name, each in read().items()} | {
            f"buffer {name}": each for name, each in beside().items()
        }

    copies = {name: _safely(_copy, each) for name, each in tensors().items() if each.is_floating_point()}
    before = {name: each for name, each in copies.items() if each is not None}
    return _Row(tensors, before, frozenset(trained)) if before else None


def _copy(tensor: Any) -> Any:
    """On the host. Raises NotImplementedError for a tensor without numbers, on the device "meta"."""
    return tensor.detach().to("cpu", copy=True)


def _tensors_held(value: Any) -> Tensors:
    """What a dict or a list holds; {} where anything of it is no tensor."""
    import torch

    items = enumerate(value) if type(value) is list else value.items()
    found = {str(name): each for name, each in items}
    return found if all(issubclass(type(each), torch.Tensor) for each in found.values()) else {}


def _parameters(module: Any) -> Tensors:
    return dict(module.named_parameters())


def _buffers(module: Any) -> Tensors:
    """Those that are no single numbers: a module that keeps its average in buffers has its decay and a count beside it."""
    return {name: each for name, each in module.named_buffers() if each.dim()}


def _state(module: Any) -> Tensors:
    """What `state_dict` has, in its order, without running anybody's hooks."""
    found: Tensors = {}
    for prefix, part in module.named_modules():
        buffers = {n: b for n, b in part._buffers.items() if n not in part._non_persistent_buffers_set}
        for name, value in [*part._parameters.items(), *buffers.items()]:
            if value is not None:
                found[f"{prefix}.{name}" if prefix else name] = value
    return found


def _each_tensor_once(rows: list[_Row]) -> list[_Row]:
    """The rows without what a larger one holds as well, as the parts of a module and lists of its parameters."""
    seen: set[Any] = set()
    found = []
    for row in sorted(rows, key=lambda row: (-len(row.before), sorted(row.before))):
        now = _safely(row.tensors) or {}
        new = {name: then for name, then in row.before.items() if not _places([now.get(name)]) & seen}
        seen |= _places(now.values())
        if new:
            found.append(_Row(row.tensors, new, row.trained - (row.before.keys() - new.keys())))
    return found


def _places(tensors: Iterable[Any]) -> set[Any]:
    """What tells tensors apart that have numbers of their own: `p.data` is at the place of `p`."""
    return {_safely(_place, each) or id(each) for each in tensors if each is not None}


def _place(tensor: Any) -> Any:
    at = tensor.data_ptr()
    return (at, tensor.numel(), tensor.device) if at else None


def _shape(tensors: Tensors) -> tuple[Any, ...]:
    return tuple(tensor.shape for tensor in tensors.values())


def _safely(ask: Callable[..., Any], *given: Any) -> Any:
    """What it gives; None where an object of somebody else's raises: it is no average that can be compared."""
    try:
        return ask(*given)
    except Exception:
        return None
