"""Peak bytes of a training step that is not run: the step is made with tensors that have a shape and no data. Child only.

`predicting` counts as `memory.memory_of_step` does on the CPU. `largest_batch` knows nothing of tensors.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perfaudit.measure.gather_facts import is_filled
from perfaudit.measure.memory import held_tensors, live_bytes
from perfaudit.target.accelerator import same_random_numbers
from perfaudit.target.batches import tensors_in, with_tensors

PeakAt = Callable[[int], int]  # batch size: peak bytes


class CannotPredict(Exception):
    """A step whose peak cannot be told without running it; the message is one line. Probe with real steps instead."""


@contextmanager
def predicting(training: Any) -> Iterator[PeakAt]:
    """Yields the function from batch size to the peak bytes of one step, as `memory.memory_of_step` counts on the CPU.

    Nothing is computed and the training is left as it was: parameters, gradients, optimizer state, random streams and
    what the objects that hang on it have in attributes, lists and dicts. Globals of the user's file are not put back.
    Costs about as much time as a few steps of a tiny batch, whatever the size.

    The tensors stand for ones on the training's device, and operators are chosen for it. On an accelerator the answer
    is the bytes asked for at once: the caching allocator rounds each request up (512 bytes), keeps what is fragmented,
    and cuBLAS and cuDNN take workspaces, so `max_memory_allocated` is somewhat above and what is reserved more so:
    leave room, and confirm with a real step.

    Raises CannotPredict when the step depends on data (`.item()`, `nonzero`, numpy), when the batch has no first
    dimension common to all its tensors, for layouts without a storage, and for compiled models.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    batch = training.fixed_batch()
    samples = _samples(training, batch)
    for module in training.model.modules():
        if isinstance(module, torch.jit.ScriptModule) or getattr(module, "_compiled_call_impl", None) is not None:
            raise CannotPredict(f"{type(module).__name__} is compiled, and what it allocates is decided when it runs")
    if any(type(module).__name__ == "OptimizedModule" for module in training.model.modules()):
        raise CannotPredict("the model is compiled, and what it allocates is decided when it runs")
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    stand_ins = _StandIns(fake_mode)
    with _put_back(training):
        for parameter in training.model.parameters():
            parameter.grad = None

        def step(batch_size: int) -> int:
            # anomaly detection reads every gradient, of which there is none to read
            quiet = torch.autograd.set_detect_anomaly(False)
            with _errors_as_refusal(), quiet, fake_mode, live_bytes(stand_ins.run) as live:
                fake_batch = _resize_batch(batch, batch_size)
                for tensor in [*held_tensors(training), *tensors_in(fake_batch)]:
                    live.see(stand_ins.of(tensor))
                training.step(fake_batch)
                training.optimizer.zero_grad()
                return int(live.peak)

        @functools.cache
        def peak_at(batch_size: int) -> int:
            if not training.optimizer.state:
                step(samples)  # makes the optimizer's state
            return step(batch_size)

        yield peak_at


def largest_batch(peak_at: PeakAt, budget_bytes: int, start: int, limit: int) -> tuple[int, list[tuple[int, int]]]:
    """The largest batch size up to `limit` whose peak stays within the budget, and what was asked: (size, bytes) pairs.

    peak_at must not fall with the size. Doubles from `start` until the budget is passed, then narrows the bracket
    with straight lines through its ends; after two lines that did not halve it comes its middle, so that bends cost at
    most three times what bisection does. Returns 0 if not even one sample fits.
    """
    asked: dict[int, int] = {}

    def fits(size: int) -> bool:
        asked[size] = peak_at(size)
        return asked[size] <= budget_bytes

    low, high = 0, limit + 1  # low fits (nothing does), high does not (or is not allowed)
    size = max(1, min(start, limit))
    while low < limit and high > limit:
        if fits(size):
            low = size
            size = min(2 * size, limit)
        else:
            high = size
    lines = 0  # in a row that did not halve the bracket; the second confirms what an exact first one has found
    while high - low > 1:
        guess = _between(asked, budget_bytes, low, high) if lines < 2 else (low + high) // 2
        width = high - low
        if fits(guess):
            low = guess
        else:
            high = guess
        lines = 0 if (high - low) * 2 <= width + 1 else lines + 1
    return low, list(asked.items())


def _between(asked: dict[int, int], budget_bytes: int, low: int, high: int) -> int:
    """Where the line through both ends of the bracket meets the budget, inside the bracket; its middle without ends."""
    if low not in asked or high not in asked:
        return (low + high) // 2
    rise = asked[high] - asked[low]  # above 0: the budget lies between them
    guess = low + (high - low) * (budget_bytes - asked[low]) // rise
    return min(max(guess, low + 1), high - 1)


class _StandIns:
    """Fake tensors in place of real ones, the same for the same, so that no operator reads or writes real data.

    Exempt are operators that see nothing but single numbers which never depended on a batch: optimizers and averages
    count their steps in such tensors and read them. They run, on copies.
    """

    def __init__(self, fake_mode: Any) -> None:
        self._fake_mode = fake_mode
        self._known: dict[int, tuple[Any, Any]] = {}  # id: (the tensor, which keeps the id taken, its stand-in)

    def of(self, tensor: Any) -> Any:
        from torch._subclasses.fake_tensor import FakeTensor
        from torch.utils._python_dispatch import _disable_current_modes

        if isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in self._known:
            with _disable_current_modes():
                if _is_number(tensor):
                    stand_in = tensor.detach().clone()
                    self._known[id(stand_in)] = (stand_in, stand_in)
                else:
                    stand_in = self._fake_mode.from_tensor(tensor)
            self._known[id(tensor)] = (tensor, stand_in)
        return self._known[id(tensor)][1]

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        import torch
        from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
        from torch.utils._pytree import tree_iter, tree_map_only

        given = [t for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)]
        args, kwargs = tree_map_only(torch.Tensor, self.of, (args, kwargs))
        stand_ins = [self.of(t) for t in given]
        if given and not any(isinstance(t, FakeTensor) for t in stand_ins):
            with unset_fake_temporarily():
                return self._numbers(func(*args, **kwargs))
        if func._schema.is_mutable and func.__name__ != _SCAN_FOR_INF:
            self._forget(func, args, kwargs)
            args, kwargs = tree_map_only(torch.Tensor, self.of, (args, kwargs))
        result = func(*args, **kwargs)
        if not given and isinstance(result, torch.Tensor) and _is_number(result):
            with unset_fake_temporarily():
                return self._numbers(func(*args, **kwargs))
        return result

    def _numbers(self, result: Any) -> Any:
        """The result, known as its own stand-in where it is a number; a larger one without data."""
        import torch
        from torch.utils._pytree import tree_map_only

        def stand_in_for(tensor: Any) -> Any:
            if not _is_number(tensor):
                return self.of(tensor)
            self._known.setdefault(id(tensor), (tensor, tensor))
            return tensor

        return tree_map_only(torch.Tensor, stand_in_for, result)

    def _forget(self, func: Any, args: Any, kwargs: Any) -> None:
        """Numbers that an operator with a batch in it writes to are unknown from now on."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensor
        from torch.utils._pytree import tree_iter

        named = zip(func._schema.arguments, args, strict=False)
        written = [value for argument, value in named if argument.alias_info and argument.alias_info.is_write]
        written += [
            kwargs[argument.name]
            for argument in func._schema.arguments
            if argument.name in kwargs and argument.alias_info and argument.alias_info.is_write
        ]
        lost = {id(t) for t in tree_iter(written) if isinstance(t, torch.Tensor) and not isinstance(t, FakeTensor)}
        for key, (tensor, stand_in) in list(self._known.items()):
            if id(stand_in) in lost:
                self._known[key] = (tensor, self._fake_mode.from_tensor(stand_in))


# Of a GradScaler: writes whether a gradient is infinite, which is then read. Left at "no", the step is a common one.
_SCAN_FOR_INF = "_amp_foreach_non_finite_check_and_unscale_.default"


def _is_number(tensor: Any) -> bool:
    return bool(tensor.numel() == 1 and not tensor.requires_grad)


def _samples(training: Any, batch: Any) -> int:
    """Samples in the batch. Raises CannotPredict unless all its tensors with dimensions have that many rows."""
    import torch

    tensors = [t for t in tensors_in(batch) if t.ndim]
    if not tensors:
        raise CannotPredict(f"the batch, a {type(batch).__name__}, holds no tensor with a dimension of samples")
    for tensor in tensors:
        if tensor.layout != torch.strided or tensor.is_nested:
            raise CannotPredict(f"the batch holds a tensor of layout {tensor.layout}, whose size is in its data")
    samples = int(tensors[0].shape[0])
    if any(tensor.shape[0] != samples for tensor in tensors):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors[:4])
        raise CannotPredict(f"the batch's tensors have no common first dimension: {shapes}")
    expected = getattr(getattr(training, "loader", None), "batch_size", None)
    if expected is not None and samples > expected:
        raise CannotPredict(f"the batch's first dimension is {samples}, and the loader's batch size {expected}")
    return samples


def _resize_batch(batch: Any, size: int) -> Any:
    """The batch with `size` samples, of tensors without data; what is not a tensor stays. In a fake mode only."""
    import torch

    def resize(tensor: Any) -> Any:
        shape = (size, *tensor.shape[1:]) if tensor.ndim else ()
        strides = tensor.stride()
        order = sorted(range(tensor.ndim), key=lambda d: (-strides[d], d))  # keeps channels_last
        empty = torch.empty_permuted(shape, order, dtype=tensor.dtype, device=tensor.device)
        return empty.requires_grad_(tensor.requires_grad)

    return with_tensors(batch, resize)


@contextmanager
def _errors_as_refusal() -> Iterator[None]:
    """Whatever the step raises without data becomes CannotPredict: the same step may well run with data."""
    from torch._subclasses import fake_tensor

    try:
        yield
    except fake_tensor.DataDependentOutputException as error:
        raise CannotPredict(f"the step reads a value out of a tensor ({error.func})") from error
    except fake_tensor.DynamicOutputShapeException as error:
        raise CannotPredict(f"the step makes a tensor whose size depends on data ({error.func})") from error
    except Exception as error:  # the user's code, and any operator that torch cannot make without data
        first = (str(error).strip() or "no message").splitlines()[0]
        raise CannotPredict(f"the step does not run without data: {type(error).__name__}: {first}") from error


@contextmanager
def _put_back(training: Any) -> Iterator[None]:
    """Afterwards everything that hangs on the training has the attributes, items and gradients it had before."""
    import torch

    gradients = [(p, p.grad) for p in training.model.parameters()]
    contents = list(_contents(training))
    numpy = sys.modules.get("numpy")
    streams = random.getstate(), numpy.random.get_state() if numpy else None
    grad, autocast = torch.is_grad_enabled(), torch.is_autocast_cache_enabled()
    try:
        with same_random_numbers():
            yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_autocast_cache_enabled(autocast)
        for put_back in contents:
            put_back()
        for parameter, gradient in gradients:
            parameter.grad = gradient
        random.setstate(streams[0])
        if numpy:
            numpy.random.set_state(streams[1])


def _contents(root: Any) -> Iterator[Callable[[], None]]:
    """For each dict, list, set, deque and object with attributes reachable from the root: what fills it again.

    Tensors, classes, modules of Python and loaders are not entered: a step does not write to the latter, and what
    the former hold is never touched.
    """
    import torch

    closed = (torch.Tensor, torch.utils.data.DataLoader, torch.utils.data.Dataset, type, types.ModuleType, str, bytes)
    queue, seen = [root], set()
    while queue:
        value = queue.pop()
        if isinstance(value, closed) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            queue += [cell.cell_contents for cell in value.__closure__ or () if is_filled(cell)]
            queue += value.__defaults__ or ()
        elif isinstance(value, types.MethodType):
            queue.append(value.__self__)
        elif isinstance(value, functools.partial):
            queue += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, dict):
            yield functools.partial(_refill_dict, value, dict(value))
            queue += value.values()
        elif isinstance(value, list):
            yield functools.partial(value.__setitem__, slice(None), list(value))
            queue += value
        elif isinstance(value, (tuple, frozenset)):
            queue += value
        elif isinstance(value, (set, deque)):
            yield functools.partial(_refill, value, list(value))
            queue += value
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            queue.append(attributes)


def _refill_dict(value: dict[Any, Any], items: dict[Any, Any]) -> None:
    value.clear()
    value.update(items)


def _refill(value: set[Any] | deque[Any], items: list[Any]) -> None:
    value.clear()
    if isinstance(value, deque):
        value.extend(items)
    else:
        value.update(items)
