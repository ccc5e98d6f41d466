"""Devices as programs name them: whether a file uses an accelerator, and which expressions move something to one."""

from __future__ import annotations

import ast
import re

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.called_functions import assigned_once
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import resolve

_ACCELERATORS = {"cuda", "mps", "xpu", "npu", "hpu"}
_DEVICES = _ACCELERATORS | {"xla", "cpu"}
_DEVICE_NAME = regex(r"(^|_)(device|dev|accelerator|fabric|local_?rank|rank|gpu)(_?(ids?|num|index))?$", re.IGNORECASE)
_OTHER_DEVICES = regex(r"(?i)cuda|gpu")
_LAUNCHERS = {"accelerate.Accelerator", "lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric"}
_TRAINERS_ON_GPU = {"lightning.Trainer", "lightning.pytorch.Trainer", "lightning.pytorch.trainer.Trainer"}
_GPU_CALLS = {  # not `is_available` and `manual_seed_all`, which programs for the CPU call as well
    f"torch.cuda.{name}"
    for name in ("set_device", "synchronize", "empty_cache", "max_memory_allocated", "reset_peak_memory_stats", "Event")
} | {"torch.cuda.amp.autocast", "torch.cuda.amp.GradScaler", "torch.nn.DataParallel", "deepspeed.initialize"}


@remember  # several rules ask for the same file
def uses_accelerator(source: Source) -> bool:
    """Whether the program, as far as this file shows, moves something to an accelerator."""
    if any(call.func.attr == "cuda" for call in source.calls(".cuda") if isinstance(call.func, ast.Attribute)):
        return True
    if any(isinstance(c.value, str) and _is_accelerator(c.value) for c in source.nodes(ast.Constant)):
        return True
    if calls_what_needs_gpu(source):
        return True
    keywords = [k for call in source.nodes(ast.Call) for k in call.keywords if k.arg in ("device", "device_map")]
    devices = [k.value for k in keywords if k.arg == "device"]
    devices += [argument for call in source.calls(".to") for argument in call.args]
    if any(names_accelerator(source, device) and not _is_given_cpu(source, device) for device in devices):
        return True
    if any(k.arg == "device_map" and device_text(k.value) != "cpu" for k in keywords):
        return True
    copies = (k.value for call in source.nodes(ast.Call) for k in call.keywords if k.arg == "device_ids")
    return any(not isinstance(value, ast.Constant) for value in copies)  # some other `DataParallel`


def calls_what_needs_gpu(source: Source) -> bool:
    """Whether the file calls what needs a GPU or moves things to one without being told: an `Accelerator`, `DataParallel`."""
    if _LAUNCHERS & set(source.aliases.values()):
        return True
    return any(source.calls(name) for name in _GPU_CALLS | _LAUNCHERS)


def names_cpu(source: Source, node: ast.expr) -> bool:
    """Whether an expression is provably the host as a device: "cpu", `torch.device("cpu")`, a name bound once to it."""
    value = resolve(source, node)
    if isinstance(value, ast.Call) and source.qualified_name(value.func) == "torch.device" and value.args:
        value = value.args[0]
    return device_text(value) == "cpu"


def _is_given_cpu(source: Source, node: ast.expr) -> bool:
    """Whether an expression is a parameter whose name is elsewhere in the file the CPU's, and nothing else's."""
    if not isinstance(node, ast.Name) or not any(isinstance(b, ast.arg) for b in source.lookup(node)):
        return False
    stores = [n for n in source.nodes(ast.Name) if n.id == node.id and isinstance(n.ctx, ast.Store)]
    return bool(stores) and not any(names_accelerator(source, store) for store in stores)


@remember  # several rules ask for the same file
def uses_cuda(source: Source) -> bool:
    """Whether the program uses an accelerator that, as far as this file shows, may be a CUDA one.

    False where the file names devices and "cuda" is not among them, and where it uses none.
    """
    if not uses_accelerator(source):
        return False
    if source.calls(".cuda") or source.calls("torch.accelerator.current_accelerator"):
        return True
    named = _devices_named(source)
    return not named or "cuda" in named or any(_is_chosen_where_cuda(source, c) for c in source.calls("torch.device"))


def is_on_cpu(source: Source) -> bool:
    """Whether a file sets its device to the CPU, `device = "cpu"`, and neither it nor a file of its program speaks of another.

    What an option or a parameter is by default sets none.
    """
    if _devices_named(source) != {"cpu"} or _OTHER_DEVICES.search(source.text):
        return False
    values = [node.value for node in source.nodes(ast.Assign) if _names_a_device(node.targets[0])]
    made = [
        value.args[0]
        if isinstance(value, ast.Call) and value.args and source.qualified_name(value.func) == "torch.device"
        else value
        for value in values
    ]
    is_set = bool(made) and all(device_text(value) == "cpu" for value in made)
    return is_set and source.neighbours is not None and not source.neighbours.program_carries("cuda")


def _devices_named(source: Source) -> set[str]:
    """The kinds of devices that the literals of a file name, but for where a checkpoint is loaded to."""
    return {text for c in source.nodes(ast.Constant) if (text := device_text(c)) and not _is_of_a_file(source, c)}


def _is_chosen_where_cuda(source: Source, made: ast.Call) -> bool:
    """Whether a device is what a setting says where there is CUDA: `args.gpu if torch.cuda.is_available() else "cpu"`."""
    chosen = made.args[0] if made.args else None
    if not isinstance(chosen, ast.IfExp) or device_text(chosen.body) or isinstance(chosen.body, ast.Constant):
        return False
    return any(asks_for_gpu(source, node) for node in ast.walk(chosen.test) if isinstance(node, ast.expr))


def _is_of_a_file(source: Source, node: ast.Constant) -> bool:
    """Whether a device is where a checkpoint is loaded to: `torch.load(path, map_location="cpu")`."""
    parent = source.parent(node)
    if isinstance(parent, ast.keyword):
        return parent.arg == "map_location"
    return isinstance(parent, ast.Call) and source.qualified_name(parent.func) == "torch.load"


def device_text(node: ast.AST | None) -> str:
    """The kind of device that a text literal names: "cuda" for "cuda:1" and f"cuda:{rank}"; "" if it names none."""
    if isinstance(node, ast.JoinedStr):
        node = node.values[0] if node.values else None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        kind = node.value.partition(":")[0]
        return kind if kind in _DEVICES else ""
    return ""


def _is_accelerator(text: str) -> bool:
    """Whether a text is "cuda", "cuda:1" or the like, or the backend of processes that each have one."""
    kind, _, number = text.partition(":")
    return text == "nccl" or (kind in _ACCELERATORS and (number.isdecimal() or not number))


def names_accelerator(source: Source, node: ast.expr) -> bool:
    """Whether an expression is recognisably a device that may be an accelerator: `device`, `x.device`, "cuda:0".

    False for "cpu", written there or in the one place that binds the name.
    """
    value = assigned_once(source, node) if isinstance(node, ast.Name) else node
    if isinstance(value, ast.Call) and source.qualified_name(value.func) == "torch.device":
        if not value.args:
            return False
        value = value.args[0]
        if device_text(value) == "":
            return True
    if (kind := device_text(value)) != "":
        return kind != "cpu"
    return _names_a_device(node)


def _names_a_device(node: ast.expr) -> bool:
    return bool(_DEVICE_NAME.search(last_name(node.func if isinstance(node, ast.Call) else node)))


def moves_to_device(source: Source, call: ast.Call) -> bool:
    """Whether a call moves a tensor or model to another device, or may: `.cuda()`, `.to(x)` unless x is a dtype."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("cuda", "to"):
        return False
    if call.func.attr == "cuda":
        return True
    targets = [*call.args, *(k.value for k in call.keywords if k.arg in ("device", None))]
    return any(not _is_dtype_or_cpu(source, target) for target in targets)


def _is_dtype_or_cpu(source: Source, node: ast.expr) -> bool:
    name = source.qualified_name(node) or ""
    is_dtype = name.startswith("torch.") or (isinstance(node, ast.Attribute) and node.attr == "dtype")
    return is_dtype or device_text(node) == "cpu"


def changes_default_device(source: Source) -> bool:
    """Whether the file changes where tensors land by default: set_default_device, `with torch.device(...)`."""
    if source.calls("torch.set_default_device") or source.calls("torch.set_default_tensor_type"):
        return True
    return any(isinstance(source.parent(call), ast.withitem) for call in source.calls("torch.device"))


def has_trainer_given_gpus(source: Source) -> bool:
    """Whether a trainer of this file is told to use the GPU: `Trainer(accelerator="gpu")`, `Trainer(gpus=1)`.

    `accelerator="cuda"` names a device, which `uses_cuda` sees.
    """
    return any(_is_given_gpus(source, call) for call in _trainers(source))


def has_trainer_that_takes_gpu(source: Source) -> bool:
    """Whether a trainer of this file uses the GPU where there is one, told or not."""
    return any(takes_gpu(source, call) for call in _trainers(source))


def takes_gpu(source: Source, trainer: ast.Call) -> bool:
    """Whether a trainer uses the GPU where there is one: also by `accelerator="auto"`, which Lightning has by default.

    Its older package, `pytorch_lightning`, had the CPU by default.
    """
    if _is_given_gpus(source, trainer):
        return True
    told = _keywords(trainer).get("accelerator")
    if isinstance(told, ast.Constant):
        return told.value in ("auto", "cuda")
    is_alone = not {"accelerator", "", "gpus"} & _keywords(trainer).keys()
    return is_alone and source.qualified_name(trainer.func) in _TRAINERS_ON_GPU


def _is_given_gpus(source: Source, call: ast.Call) -> bool:
    given = _keywords(call)
    gpus, told = given.get("gpus"), given.get("accelerator")
    if isinstance(told, ast.IfExp) and asks_for_gpu(source, told.test):
        told = told.body
    if isinstance(told, ast.Constant) and told.value == "gpu":
        return True
    return gpus is not None and not (isinstance(gpus, ast.Constant) and gpus.value in (0, None, ""))


def _trainers(source: Source) -> list[ast.Call]:
    return [call for call in source.nodes(ast.Call) if last_name(call.func) == "Trainer"]


def _keywords(call: ast.Call) -> dict[str, ast.expr]:
    """What a call is given by name; `**options` as ""."""
    return {keyword.arg or "": keyword.value for keyword in call.keywords}


def asks_for_gpu(source: Source, test: ast.expr) -> bool:
    """Whether a condition is `torch.cuda.is_available()`."""
    return isinstance(test, ast.Call) and source.qualified_name(test.func) == "torch.cuda.is_available"
