"""Where one training step makes the host wait for the device, on the user's own lines. Child only."""

from __future__ import annotations

import os
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

from perfaudit.target.batches import tensors_in
from perfaudit.target.observed.same_state import Unobservable, without_compilation
from perfaudit.target.provenance import is_users
from perfaudit.target.working_folder import shown_path

Seen = dict[str, Any]  # JSON: what, of, path, line, count

BATCH, PARAMETERS = 1, 2  # bits: what a value derives from
ON_HOST = 4  # of a batch that was not moved yet: on a CPU it is where it would be on an accelerator's host

_READS = {  # methods that bring a value to the host; on a CPU most of them run no operator that could be seen
    "item": "item",
    "tolist": "tolist",
    "cpu": "cpu",
    "numpy": "numpy",
    "__array__": "numpy",
    "__bool__": "bool",
    "__float__": "float",
    "__complex__": "float",
    "__int__": "int",
    "__index__": "int",
    "__repr__": "print",
    "__format__": "print",
}
_OPERATORS = {  # those that wait because the shape of what they return, or a number, depends on values
    "_local_scalar_dense": "item",
    "nonzero": "nonzero",
    "masked_select": "masked_select",
    "_unique": "unique",
    "_unique2": "unique",
    "unique_dim": "unique",
    "unique_consecutive": "unique",
    "unique_dim_consecutive": "unique",
    "equal": "equal",
    "allclose": "equal",
    "bincount": "bincount",
}


def syncs(training: Any) -> list[Seen]:  # Any: training.factory_training.FactoryTraining
    """The host syncs of one training step after a warm one: what waits, for what, on which line, how often a step.

    On a CPU nothing waits: what is listed there is what would make the host wait if the training ran on an accelerator.

    Only values that derive from the model or the batch count, so that counters which optimizers keep on the host do not.
    `of` is "batch" for what derives from the batch alone, which could be read before it is sent to the device, and
    "parameters" for all that parameters, buffers or gradients have a part in. Only syncs under a line of the user's own
    count: `line` is the innermost one, `path` is as seen from the working directory. What a backward pass does in threads
    of the device has no such line and is left out, as is loading. In order of path and line.

    The training goes on from where the two steps leave it. Compiled code is run as it is written.
    Raises Unobservable for a step that fails under observation.
    """
    return syncs_of_steps(training, 1)[0]


def syncs_of_steps(
    training: Any, steps: int, before_each: Callable[[], None] = lambda: None, warm: bool = False
) -> list[list[Seen]]:
    """As `syncs`, of so many steps in a row. before_each: called before each of them, to choose their batches.

    warm: whether the training has just made a step; else one is made first.
    """
    found = []
    try:
        with without_compilation(training.model):
            if not warm:
                training.whole_step()
            for _ in range(steps):
                before_each()
                found.append(_watched_step(training, training.batch()))
        training.synchronize()
        training.phases.take()  # steps under observation are no times to go by
    except Unobservable:
        raise
    except Exception as error:  # whatever the user's code raises when every operator is watched
        first = (str(error).splitlines() or [""])[0]
        raise Unobservable(f"a step under observation failed: {type(error).__name__}: {first}"[:300]) from error
    return [
        [
            {"what": what, "of": of, "path": path, "line": line, "count": count}
            for (path, line, what, of), count in sorted(seen.items())
        ]
        for seen in found
    ]


def _watched_step(training: Any, batch: Any) -> Counter[tuple[str, int, str, str]]:
    """Make a step under observation: how often each kind of sync happened on each line."""
    watch = SyncWatch(training.device.type)
    watch.taint(list(tensors_in(batch)), BATCH)
    watch.taint_model(training.model)
    functions, operators = modes(watch)
    with operators, functions:
        training.step(batch)
    return watch.seen


class SyncWatch:
    """What is known while a step runs: which tensors of the device derive from what, and which reads were seen.

    moves: the step moves its batch to the device itself.
    """

    def __init__(self, device_type: str, moves: bool = False) -> None:
        from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

        self.device_type, self.moves = device_type, moves
        self.seen: Counter[tuple[str, int, str, str]] = Counter()
        self.quiet = 0  # inside a read that was seen already, whose operators are not told again
        # By identity and without keeping anything alive; an entry goes when its tensor goes, so that no id is taken over.
        self._bits: WeakIdKeyDictionary = WeakTensorKeyDictionary()
        self._top = sys._getframe().f_back  # the caller's own stack is none of the step's

    def taint_model(self, model: Any) -> None:  # torch.nn.Module
        """The parameters, buffers and gradients of a model are what they are."""
        self.taint([*model.parameters(), *model.buffers()], PARAMETERS)
        self.taint([p.grad for p in model.parameters() if p.grad is not None], PARAMETERS)

    def taint(self, tensors: list[Any], bits: int) -> None:
        """These tensors, as far as they lie on the device, derive from this; so do those that they are views of."""
        for tensor in tensors if bits else ():
            if tensor.device.type == self.device_type:
                self._bits[tensor] = self._bits.get(tensor, 0) | bits
                base = tensor._base
                if base is not None:
                    self._bits[base] = self._bits.get(base, 0) | bits

    def bits(self, tensors: list[Any]) -> int:
        """What any of these tensors derives from."""
        found = 0
        for tensor in tensors:
            found |= self._bits.get(tensor, 0)
        return found

    def clear(self, tensor: Any) -> None:
        """From here on this tensor is on the host."""
        self._bits.pop(tensor, None)

    def read(self, what: str, bits: int) -> None:
        """A value that derives from this was waited for, if under a line of the user's."""
        if not bits & (BATCH | PARAMETERS) or self.quiet:
            return
        frame = self._users_frame()
        if frame is not None:
            of = "parameters" if bits & PARAMETERS else "batch"
            path = shown_path(os.path.realpath(frame.f_code.co_filename))
            self.seen[(path, frame.f_lineno, what, of)] += 1

    def _users_frame(self) -> types.FrameType | None:
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None and frame is not self._top:
            if is_users(frame):
                return frame
            frame = frame.f_back
        return None


def modes(watch: SyncWatch) -> tuple[Any, Any]:
    """A mode that sees the functions which Python code calls, and one that sees the operators which run."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            bits = watch.bits(_tensors([args, kwargs]))
            name = getattr(func, "__name__", "")
            what = _READS.get(name, "") if getattr(torch.Tensor, name, None) is func else ""
            if what:
                watch.read(what, bits)
            hushed = bool(bits and what) or _checks_on_cpu(func, watch.device_type, args, kwargs)
            watch.quiet += hushed
            try:
                result = func(*args, **kwargs)
            finally:
                watch.quiet -= hushed
            if what == "cpu" and isinstance(result, torch.Tensor):
                watch.clear(result)  # on a CPU the same tensor again; what is read of it now waits no more
            else:
                if watch.moves and _moves(name, args, kwargs):
                    bits |= BATCH
                watch.taint(_on_device(name, result), bits)
            return result

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            what, waited_for = _wait_of(func, args, kwargs, watch.device_type)
            if what:
                watch.read(what, watch.bits(waited_for))
            bits = watch.bits(_tensors([args, kwargs]))
            result = func(*args, **kwargs)
            watch.taint(_on_device(_name(func), result) + _tensors(_written_arguments(func, args, kwargs)), bits)
            return result

    return Functions(), Operators()  # type: ignore[no-untyped-call]  # torch's


def _moves(name: str, args: Any, kwargs: Any) -> bool:
    """Whether a function of a tensor moves it to a device that is named, also where it is there already."""
    import torch

    named = [*args[1:2], kwargs.get("device")]
    return name == "cuda" or (name == "to" and any(isinstance(each, (torch.device, str, int)) for each in named))


def _checks_on_cpu(func: Any, device_type: str, args: Any, kwargs: Any) -> bool:
    """Whether a function reads values on a CPU only: `one_hot` looks there whether the classes are in range."""
    import torch

    if func is not torch.nn.functional.one_hot or device_type != "cpu":
        return False
    classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
    return bool(classes != -1)


def _wait_of(func: Any, args: Any, kwargs: Any, device_type: str) -> tuple[str, list[Any]]:
    """What the host waits for in an operator, and which tensors it needs the values of; "" for one that does not wait."""
    name = _name(func)
    if name in _OPERATORS:
        if name == "nonzero" or name == "_local_scalar_dense":
            return _OPERATORS[name], _tensors(args[:1])
        return _OPERATORS[name], _tensors(args)
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        # Where a mask says which elements one number goes to, torch fills them in without counting them.
        fills = name != "index" and args[2].numel() == 1
        return ("", []) if fills else ("mask", [t for t in _tensors(args[1]) if str(t.dtype) in _MASKS])
    if name == "repeat_interleave" and kwargs.get("output_size") is None:
        return "repeat_interleave", _tensors(args[1:2] or args[:1])
    if device_type != "cpu" and name in ("_to_copy", "copy_", "copy"):
        return _copy_to_host(name, args, kwargs)
    return "", []


_MASKS = ("torch.bool", "torch.uint8")


def _name(func: Any) -> str:
    return str(func._schema.name).removeprefix("aten::")


def _on_device(name: str, result: Any) -> list[Any]:
    """The tensors of a result that would lie on the accelerator; the sizes of packed sequences stay on the host."""
    return _tensors(result[0] if name == "_pack_padded_sequence" else result)


def _copy_to_host(name: str, args: Any, kwargs: Any) -> tuple[str, list[Any]]:
    """A copy to a tensor on the host that the host waits for."""
    if name == "_to_copy":
        target, waits = kwargs.get("device"), not kwargs.get("non_blocking")
        return ("copy", _tensors(args[:1])) if waits and target is not None and target.type == "cpu" else ("", [])
    waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
    return ("copy", _tensors(args[1:2])) if waits and args[0].device.type == "cpu" else ("", [])


def _written_arguments(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The arguments that an operator writes into, as its schema says."""
    found = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.append(args[number] if number < len(args) else kwargs.get(argument.name))
    return found


def _tensors(value: Any) -> list[Any]:
    """The tensors among the arguments or results of a function."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in inside for tensor in _tensors(item)]
