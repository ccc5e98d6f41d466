"""Whether a folded checkpoint evaluates as before: the model with its biases and the old tensors, and the new one. Child only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfaudit.checkpoints.fold import Copy, Expected, Fold, Refused, fold
from perfaudit.checkpoints.observed_model import biases_given_back, unwrap
from perfaudit.target.random_streams import seed_all
from perfaudit.training.factory_training import FactoryTraining

Module = Any  # torch.nn.Module, which is imported inside functions
Values = list[Any]  # tensors: outputs of the norms, and the loss

# Largest gap of outputs after folding, of their largest value: roundings of one addition, amplified by later layers.
# Without folding the gap is about that of the bias over the standard deviation, 0.17 in one model measured.
TOLERANCE = 1e-4
TOLERANCE_HALF = 5e-2  # for outputs in 16 bits


@dataclass(frozen=True, slots=True)
class Agreement:
    """Largest gap of the folded copies from the old ones, of the largest value, and what it had been without folding."""

    gap: float
    without: float
    mode: str  # "evaluation mode", or "norms in evaluation mode" where the model does not run in it


def fold_and_compare(training: FactoryTraining, copies: list[Copy], expected: Expected) -> Agreement:
    """Fold every copy in place; each loads strictly, and gives what the old one gave. Raises Refused where it does not."""
    worst = Agreement(0.0, 0.0, "")
    for copy in copies:
        now = _fold_and_compare(training, copy, expected)
        worst = Agreement(max(worst.gap, now.gap), max(worst.without, now.without), worst.mode or now.mode)
    return worst


def _fold_and_compare(training: FactoryTraining, copy: Copy, expected: Expected) -> Agreement:
    model = unwrap(training.model)
    old = copy.as_it_was(expected)
    biases = {key for each in copy.folds for key in each.biases}
    with biases_given_back(model, copy.folds):
        mode, before = _outputs_in_a_mode(training, old, copy.folds)
    if not all(bool(value.isfinite().all()) for value in before):
        raise Refused(f"{copy.name}: it gives values that are not finite as it is, so what is folded cannot be checked")
    _, careless = _outputs(training, {k: v for k, v in old.items() if k not in biases}, copy.folds, mode)
    fold(copy)
    _, after = _outputs(training, copy.as_it_was(expected), copy.folds, mode)
    gap = _gap(before, after)
    tolerance = TOLERANCE_HALF if _in_16_bits(before, copy) else TOLERANCE
    if not gap <= tolerance:
        raise Refused(
            f"{copy.name}: folded, it does not evaluate as before: outputs are up to {gap:.2g} of their largest value "
            f"apart ({tolerance:g} allowed). Either a norm or a bias has a use that was not seen, or a running mean is so "
            "large against its variance that it cannot be kept exactly"
        )
    return Agreement(gap, _gap(before, careless), mode)


def _outputs_in_a_mode(training: FactoryTraining, state: dict[str, Any], folds: tuple[Fold, ...]) -> tuple[str, Values]:
    """Outputs in evaluation mode; where the user's step fails in it (other results there), of norms alone in that mode."""
    try:
        return _outputs(training, state, folds, "evaluation mode")
    except Refused:
        raise
    except Exception:  # the user's step, made for training
        try:
            return _outputs(training, state, folds, "training with the norms in evaluation mode")
        except Exception as error:
            raise Refused(
                f"the model cannot be evaluated on a batch, so what was folded cannot be checked: {type(error).__name__}: "
                f"{str(error).splitlines()[0] if str(error) else ''}"
            ) from error


def _outputs(
    training: FactoryTraining, state: dict[str, Any], folds: tuple[Fold, ...], mode: str
) -> tuple[str, Values]:
    """The mode, outputs of the norms in the order of calls, and the loss, on the training's first batch."""
    import torch

    model = unwrap(training.model)
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise Refused(f"it does not load: {' '.join(str(error).split())[:300]}") from error
    seen: Values = []
    batch = training.fixed_batch()
    with torch.no_grad(), _mode(model, folds, mode), _norm_hooks(model, folds, seen):
        seed_all(training.seed)
        seen.append(training.loss(batch).detach())
    return mode, seen


@contextlib.contextmanager
def _mode(model: Module, folds: tuple[Fold, ...], mode: str) -> Iterator[None]:
    """The model or its norms are in evaluation mode, compiled functions run as they are written; the model trains again after."""
    import torch

    was = {id(module): module.training for module in model.modules()}
    for module in [model] if mode == "evaluation mode" else [model.get_submodule(each.norm) for each in folds]:
        module.eval()
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        for module in model.modules():
            module.training = was[id(module)]


@contextlib.contextmanager
def _norm_hooks(model: Module, folds: tuple[Fold, ...], seen: Values) -> Iterator[None]:
    with contextlib.ExitStack() as hooks:
        for name in {each.norm: None for each in folds}:
            norm = model.get_submodule(name)
            handle = norm.register_forward_hook(lambda _, __, output: seen.append(output.detach().clone()))
            hooks.callback(handle.remove)
        yield


def _in_16_bits(values: Values, copy: Copy) -> bool:
    """Whether outputs or running means are kept in 16 bits, whose rounding is far larger than that of the fold."""
    import torch

    means = [copy.state[copy.prefix + key] for each in copy.folds for key in each.means]
    return any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in (*values, *means))


def _gap(before: Values, after: Values) -> float:
    """The largest gap of two runs, each of the largest value of its tensor; infinite if they cannot be compared."""
    if [value.shape for value in before] != [value.shape for value in after]:
        return float("inf")
    worst = 0.0
    for one, other in zip(before, after, strict=True):
        if not one.numel():
            continue
        one, other = one.cpu().double(), other.cpu().double()  # MPS has no float64
        largest = float(one.abs().max())
        gap = float((one - other).abs().max())
        if not gap < float("inf"):  # NaN too
            return float("inf")
        worst = max(worst, gap / largest if largest else gap)
    return worst
