"""The first steps of a training where every float is a double, as numbers to compare with another process's. Child only.

In doubles there is no TF32, autocast leaves them alone, and sums in another order, those of atomics too, hardly ever turn a ReLU.
A rounding is 1e-16 of what it rounds; two steps amplify it (`tune.exact` says how far). What is left is what the two compute.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

from perfaudit.measure import gradients
from perfaudit.target.accelerator import accelerator_of
from perfaudit.training.in_doubles import NotInDoubles, everything_double

Reply = dict[str, Any]  # JSON

# A tensor of any size is told by its norm and by its products with so many rows of random signs. Such a product of a difference
# of norm d has the mean square d² (Johnson & Lindenstrauss), so that two processes compare tensors neither has to keep.
SIGNS = 4
AT_ONCE = 2**18  # elements; with their signs as doubles 10 MiB


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
        raise NotInDoubles("its losses are no numbers there")
    return {"losses": [loss.hex() for loss in losses], "rows": rows}


def first_of_script(training: Any, file: str) -> Reply:  # Any: training.script_training.ScriptTraining
    """The same of a script whose first update was made in doubles: the loss before it, the gradients, and what they moved.

    With them "drawn", which tells apart how many random numbers that has taken, and "own": how far these gradients
    lie from those in a file, which are of the same step in the types that the script has. Raises NotInDoubles.
    """
    first = training.first_gradients
    if why := training.start.why_not_in_doubles:
        raise NotInDoubles(why)
    if not first:
        raise NotInDoubles("its first gradients were not kept")
    rows: dict[str, list[str]] = {}
    for what, values in (("gradient", first), ("update", training.first_updates)):
        rows.update((f"{what} of {gradients.plain_name(name)}", _row(name, value)) for name, value in values.items())
    loss = float(training.first_loss)
    if not math.isfinite(loss):
        raise NotInDoubles("its losses are no numbers there")
    found: Reply = {"losses": [loss.hex()], "rows": rows, "drawn": training.start.drawn}
    if file:
        kept = gradients.KeptGradients(training.model, first)
        found["own"] = gradients.compare_with_file(training, training.first_batch, file, kept)
    return found


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
