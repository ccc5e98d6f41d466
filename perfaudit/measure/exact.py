"""The first steps of a training where every float is a double, as numbers to compare with another process's. Child only.

In doubles there is no TF32, autocast leaves them alone, and sums in another order, those of atomics too, hardly ever turn a ReLU.
A rounding is 1e-16 of what it rounds; two steps amplify it (`tune.exact` says how far). What is left is what the two compute.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Iterator
from typing import Any

from perfaudit.measure import gradients
from perfaudit.target.accelerator import accelerator_of

Reply = dict[str, Any]  # JSON

# A tensor of any size is told by its norm and by its products with so many rows of random signs. Such a product of a difference
# of norm d has the mean square d² (Johnson & Lindenstrauss), so that two processes compare tensors neither has to keep.
SIGNS = 4
AT_ONCE = 2**18  # elements; with their signs as doubles 10 MiB

_WRITES = {"__set__", "__delete__", "__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"}


class NotInDoubles(Exception):
    """A training that cannot be made in double precision, and why."""


def first_steps(training: Any, steps: int, seed: int, nudge: float = 0.0) -> Reply:
    """Losses of the first steps in double precision, and of what they leave: gradients of the first, updates, buffers.

    nudge: move the parameters by this share first. "rows" holds, by what it is and whose, the number of elements, the norm,
    and SIGNS products with random signs; floats are hexadecimal. The training is of no other use afterwards.
    Raises NotInDoubles where the training has floats that no cast reaches.
    """
    import torch

    from perfaudit.target.random_streams import seed_all
    from perfaudit.training import parameters as given

    model = training.model
    if not accelerator_of(training.device).has_doubles:
        raise NotInDoubles(f"{training.device.type} has no float64")
    if any(value.is_complex() for value in (*model.parameters(), *model.buffers())):
        raise NotInDoubles("it has complex parameters")
    training.ema = None  # kept in single precision; it follows the parameters, and the losses before have looked at it
    model.double()
    for state in training.optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim:
                state[name] = value.double()
    if nudge:
        given.nudge(model, nudge)
    parameters = {gradients.plain_name(name): p for name, p in model.named_parameters()}
    buffers = {gradients.plain_name(name): b for name, b in model.named_buffers() if b.is_floating_point()}
    before = {name: value.detach().clone() for name, value in {**parameters, **buffers}.items()}
    rows: dict[str, list[str]] = {}

    def look() -> None:
        rows.update((f"gradient of {name}", _row(name, p.grad)) for name, p in parameters.items())

    losses: list[float] = []
    with everything_double(), gradients.after_first_backward(training, look):
        seed_all(seed)
        for _ in range(steps):
            loss = training.step(training.to_device(training.next_batch()))
            losses.append(float(loss.detach()))
    after = {**parameters, **buffers}
    for name, value in before.items():
        what = "update" if name in parameters else "buffer"
        rows[f"{what} of {name}"] = _row(name, after[name].detach() - value)
    if not all(map(math.isfinite, losses)):
        raise NotInDoubles("its losses become NaN or infinite there")
    return {"losses": [loss.hex() for loss in losses], "rows": rows}


def _row(name: str, value: Any) -> list[str]:
    """Elements, norm and products of a tensor; of none that of zeros."""
    import torch

    if value is None:
        return ["0", *[(0.0).hex()] * (1 + SIGNS)]
    flat = gradients.flat(value.detach())
    dice = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    squares, products = 0.0, torch.zeros(SIGNS, dtype=torch.float64)
    for part in flat.split(AT_ONCE):
        signs = 2.0 * torch.randint(0, 2, (SIGNS, len(part)), generator=dice, dtype=torch.float64) - 1.0
        products += signs @ part.double()
        squares += float(part.double().square().sum())
    return [str(flat.numel()), math.sqrt(squares).hex(), *(value.hex() for value in products.tolist())]


@contextlib.contextmanager
def everything_double() -> Iterator[None]:
    """Inside, floats are doubles: new tensors, those that are cast to another float, and operands that are none yet.

    Compiled functions run as they are written. Raises NotInDoubles where this torch cannot do that.
    """
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_map

    floats = {torch.float32, torch.float16, torch.bfloat16}
    casts = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}

    def as_double(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.double() if value.dtype in floats and not value.is_sparse else value
        return torch.float64 if isinstance(value, torch.dtype) and value in floats else value

    class Doubles(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(function, "__name__", "")
            kwargs = kwargs or {}
            if function in casts:
                function = torch.Tensor.double
            if not (name in _WRITES or "out" in kwargs or (name.endswith("_") and not name.endswith("__"))):
                args, kwargs = tree_map(as_double, (args, kwargs))
            return function(*args, **kwargs)

    stance = getattr(torch.compiler, "set_stance", None)
    if stance is None:
        raise NotInDoubles("this version of torch cannot run compiled code uncompiled (2.6 can)")
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Doubles(), stance("force_eager"):
            yield
    finally:
        torch.set_default_dtype(default)
