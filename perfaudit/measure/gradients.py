"""How far the gradients of a first step lie from those of another training, parameter by parameter. Child only."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perfaudit.target.batches import tensors_in

Reply = dict[str, Any]  # JSON
Gradients = dict[str, Any]  # torch.Tensor or None by the parameter's name; torch is imported inside functions only

# A bias before a norm has no gradient but what rounding leaves of sums that cancel. Its norm is no measure; what its layer's
# weight has per element is, and for whatever stands alone this share of the whole model's root mean square. A gradient that
# is truly as small still shows: lost, it makes a gap of its size over these.
SMALL_SHARE = 0.1
BESIDE = 8.0  # times the weight's; channels_last left 1e-4 of it in a bias before a norm, and a bias feels what its weight feels
NUDGES = 4  # a single one may just not turn any ReLU
AT_ONCE = 2**22  # elements compared at a time, so that doubles of a huge layer do not fill the memory


@contextlib.contextmanager
def after_first_backward(training: Any, look: Callable[[], None]) -> Iterator[None]:
    """Call `look` once inside, when a step's gradients are there and its optimizer has not touched them yet."""
    backward = training._backward  # the step's own seam between gradients and update

    def backward_and_look(loss: Any) -> None:
        backward(loss)
        vars(training).pop("_backward", None)
        look()

    training._backward = backward_and_look
    try:
        yield
    finally:
        vars(training).pop("_backward", None)


def save(training: Any, batch: Any, file: str) -> None:
    """Write the gradients as they are, what they are scaled with, and the tensors of their batch; nothing where that fails."""
    write({plain_name(name): _bare(p.grad) for name, p in training.model.named_parameters()}, training, batch, file)


def write(found: Gradients, training: Any, batch: Any, file: str) -> None:
    """Write these gradients of a training as `save` does."""
    import torch

    try:
        torch.save({"gradients": found, "scale": _scale(training), "batch": _on_host(batch)}, file)
    except Exception:  # tensors of a kind that does not pickle, or a full disk: the losses are compared still
        Path(file).unlink(missing_ok=True)


def compare_with_file(training: Any, batch: Any, file: str, model: Any = None, may_lack: bool = False) -> Reply:
    """The largest gap to the gradients in a file, as `gap_to` has it, and whether they are of the same batch.

    model: that has the gradients, the training's without it. may_lack: see `gap_to`. Under "why" what kept them from being
    compared.
    """
    import torch

    if not Path(file).exists():
        return {"why": "those of the unpatched code could not be kept"}
    try:
        # Written by our own child a moment ago; weights_only all the same. Mapped: a layer at a time is in memory.
        saved = torch.load(file, weights_only=True, map_location="cpu", mmap=True)
        found = gap_to(model or training.model, saved["gradients"], saved["scale"] / _scale(training), may_lack)
    except Exception as error:  # tensors of a kind we do not know: the losses are compared still
        return {"why": f"they cannot be compared: {type(error).__name__}: {str(error).splitlines()[0][:200]}"}
    return {**found, "same_batch": _equal(_on_host(batch), saved["batch"])}


class KeptGradients:
    """The gradients of a model as they were, by parameter, in the form in which `gap_to` takes a model."""

    def __init__(self, model: Any, found: Gradients) -> None:
        self._found = [(name, _KeptGradient(p, found[name])) for name, p in model.named_parameters() if name in found]

    def named_parameters(self, remove_duplicate: bool = True) -> list[tuple[str, _KeptGradient]]:
        """Each parameter's shape, with the gradient that it had."""
        return self._found


class _KeptGradient:
    def __init__(self, parameter: Any, gradient: Any) -> None:
        self.shape, self.ndim, self.grad = parameter.shape, parameter.ndim, gradient

    def numel(self) -> int:
        """How many elements the parameter has."""
        return int(self.shape.numel())


def gap_to(model: Any, before: Gradients, factor: float = 1.0, may_lack: bool = False) -> Reply:
    """The largest gap of a model's gradients to those `before`, the parameter that has it, and how many were compared.

    gap = |g - g₀| / max(|g₀|, SMALL_SHARE · r · √n, BESIDE · w · √n) for each parameter of n elements that both have by
    name and shape, with norms over its elements, r = √(Σ|g₀|² / Σn) over all of them, and for a bias or another row of
    numbers w = |g₀| / √n of the same module's weight, 0 without one. No gradient counts as zeros. factor: times the model's.
    may_lack: a parameter that the model has no more counts as zeros too, as what is left out must not have had a gradient;
    "lost" is the largest gap of those, and whose it is.
    The gap is a hexadecimal float, inf where a gradient of the model is not finite. "why" where nothing was compared.
    """
    mine = {plain_name(name): p for name, p in model.named_parameters(remove_duplicate=False)}
    rows = []
    for name, theirs in before.items():
        parameter = mine.get(name)
        if parameter is not None and (theirs is None or theirs.shape == parameter.shape):
            rows.append((name, parameter.numel(), *_squares(_bare(parameter.grad), theirs, factor)))
    if rows and may_lack:
        lacking = {name: theirs for name, theirs in before.items() if name not in mine and theirs is not None}
        rows += [(name, theirs.numel(), *_squares(None, theirs, factor)) for name, theirs in lacking.items()]
    total, elements = sum(row[3] for row in rows), sum(row[1] for row in rows)
    if not rows or not math.isfinite(total):
        return {"why": "those of the unpatched code are not finite" if rows else "no parameter has its name in both"}
    usual = SMALL_SHARE * math.sqrt(total / max(elements, 1))

    def is_row(name: str) -> bool:
        return bool((mine[name] if name in mine else before[name]).ndim <= 1)

    weights: dict[str, float] = {}  # per element, by the module's name
    for name, n, _, own in rows:
        if not is_row(name):
            module = name.rpartition(".")[0]
            weights[module] = max(weights.get(module, 0.0), math.sqrt(own / max(n, 1)))
    gaps = []
    for name, n, apart, own in rows:
        beside = weights.get(name.rpartition(".")[0], 0.0) if is_row(name) else 0.0
        gaps.append((_gap(apart, own, max(usual, BESIDE * beside) * math.sqrt(n)), name))
    gap, name = max(gaps, key=lambda item: item[0])
    lost = max(((gap, name) for gap, name in gaps if name not in mine), default=None)
    more = {"lost": [lost[0].hex(), lost[1]]} if lost else {}
    return {"gap": gap.hex(), "name": name, "compared": len(rows), **more}


def sensitivity(
    training: Any,
    seed: int,
    other_seed: int,
    nudge: Callable[[int], contextlib.AbstractContextManager[None]],
    seed_all: Callable[[int], None],
) -> Reply:
    """Gaps of the first gradients of a training to its own: again from the same seed, from another, and when it is nudged.

    nudge: called with 0, 1, … to move the parameters, or for a context that moves what is computed; of NUDGES ways the largest
    gap counts. All from one batch. Makes no
    update; buffers are put back in between.
    """
    import torch

    seed_all(seed)
    batch = training.to_device(training.next_batch())
    model = training.model
    buffers = [buffer.clone() for buffer in model.buffers()]

    def gradients(stream: int) -> None:
        with torch.no_grad():
            for buffer, kept in zip(model.buffers(), buffers, strict=False):
                buffer.copy_(kept)
        seed_all(stream)
        model.zero_grad(set_to_none=True)
        with training.around_loss():
            loss = training.loss(copy.deepcopy(batch))  # steps that change their batch in place
        training._backward(loss)

    gradients(seed)
    first = {plain_name(name): _copy_to_host(p.grad) for name, p in model.named_parameters()}

    def gap(stream: int) -> float:
        gradients(stream)
        return float.fromhex(gap_to(model, first).get("gap", "inf"))

    again, stream, nudged = gap(seed), gap(other_seed), 0.0
    for draw in range(NUDGES):
        with nudge(draw):
            nudged = max(nudged, gap(seed))
    return {"again": again.hex(), "stream": stream.hex(), "nudged": nudged.hex()}


def _gap(apart: float, own: float, least: float) -> float:
    if apart == 0:
        return 0.0
    norm = max(math.sqrt(own), least)
    gap = math.sqrt(apart) / norm if norm and math.isfinite(apart) else math.inf
    return gap if math.isfinite(gap) else math.inf


def _squares(mine: Any, theirs: Any, factor: float) -> tuple[float, float]:
    """Σ|mine · factor - theirs|² and Σ|theirs|², in double precision."""
    if mine is not None and theirs is not None and (mine.is_sparse or theirs.is_sparse):
        mine, theirs = mine.cpu().double(), theirs.cpu().double()
        mine, theirs = (mine, theirs) if mine.is_sparse and theirs.is_sparse else (mine.to_dense(), theirs.to_dense())
        return _sum_of_squares(mine * factor - theirs), _sum_of_squares(theirs)
    if mine is None or theirs is None:
        own = 0.0 if theirs is None else _sum_of_squares(theirs)
        return own if mine is None else factor**2 * _sum_of_squares(mine), own
    apart = own = 0.0
    for a, b in zip(flat(mine).split(AT_ONCE), flat(theirs).split(AT_ONCE), strict=True):
        b = b.double()
        apart += float((a.double() * factor - b).square().sum())
        own += float(b.square().sum())
    return apart, own


def _sum_of_squares(value: Any) -> float:
    return sum(float(part.double().square().sum()) for part in flat(value).split(AT_ONCE))


def flat(value: Any) -> Any:
    """The elements in a row on the host, whatever the layout; of complex ones both parts, of sparse ones what is stored."""
    import torch

    value = value.coalesce().values() if value.is_sparse else value.to_dense()
    value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    return value.cpu().reshape(-1)


def plain_name(name: str) -> str:
    """A parameter's name without what torch.compile and DataParallel put before parts of it."""
    return name.replace("_orig_mod.", "").removeprefix("module.")


def _bare(gradient: Any) -> Any:
    return None if gradient is None else gradient.detach()


def _copy_to_host(gradient: Any) -> Any:
    return None if gradient is None else gradient.detach().to("cpu", copy=True)


def _scale(training: Any) -> float:
    return 1.0 if training.scaler is None else float(training.scaler.get_scale())


def _on_host(batch: Any) -> list[Any]:
    """The tensors of a batch in a fixed order, on the host."""
    return [tensor.detach().cpu() for tensor in tensors_in(batch)]


def _equal(one: list[Any], other: list[Any]) -> bool:
    import torch

    return len(one) == len(other) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )
