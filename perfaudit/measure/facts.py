"""What a built training is: device, loader, optimizer, layers, switches, places. A child gathers it, and sends it as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from perfaudit.records import NamedTuple
from perfaudit.target.blocks import Repeated
from perfaudit.target.flags import Flags
from perfaudit.training.held_names import Held

VERSION = 4  # of the JSON


class CallSite(NamedTuple):
    """A call in the user's code, by absolute path; lines from 1, columns from 0 in UTF-8 bytes."""

    path: str
    line: int
    end_line: int
    column: int
    end_column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What the training computes on.

    type: as torch has it. name: in words. driver: versions, "" where there is nothing to tell. capability: of a CUDA device.
    room: bytes of it that this training may have, None where it does not tell. phases_by_waiting: it has no clock that torch
    can read, so a phase is timed with a wait behind it.
    """

    type: str
    name: str
    driver: str
    capability: tuple[int, int] | None
    room: int | None
    phases_by_waiting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The process that runs the training. torch: its version. threads: of an operator. cores: that it may use.

    cxx: the C++ compiler that torch.compile would use for the CPU, None without one. glibc: memory is taken from it.
    keeps_memory: it was told to keep what is freed. memory_variable: of the environment, that says how; "" for none.
    """

    torch: str
    threads: int
    cores: int
    physical_cores: int
    cxx: str | None
    glibc: bool
    keeps_memory: bool
    memory_variable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """The loader of the training batches, as built. site: the call that built it, None outside of the user's code.

    is_there: False for a script that makes its batches itself. prefix: before the names that its arguments have in that call,
    where a trainer, or another object of a library, builds it from arguments of its own. owner: the class of that other object,
    "" for none. library_line: the line of a library that built it, "" for none; called_at: the user's call under way then.
    batch_sampler: the class of what makes its batches, where it has no batch_size; "" for none.
    """

    num_workers: int
    pin_memory: bool
    prefetch_factor: int | None
    persistent_workers: bool
    batch_size: int | None
    iterable: bool
    epoch_batches: int | None
    dataset_length: int | None
    site: CallSite | None
    prefix: str = ""
    is_there: bool = True
    owner: str = ""
    library_line: str = ""
    called_at: CallSite | None = None
    batch_sampler: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOn:
    """Arguments that an object or a function of a library hands on to the optimizer that it builds.

    owner: the object's class, or the function. site: the user's call that built or called it. path: names of the dicts that hold
    these arguments, the first of them an argument of that call; () where they are arguments of that call, behind `prefix`. kept:
    what the library gives in this way where the user's call gives nothing, as texts of the values. is_given: the user's call
    gives some.
    """

    owner: str
    site: CallSite
    path: tuple[str, ...]
    prefix: str
    kept: Mapping[str, str]
    is_given: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """The optimizer as built. takes: which of "fused" and "foreach" its class knows. fused_devices: where torch has fused ones.

    site: the call that built it, None where that is not the user's. library_line: the line of a library that did. handed_on: how
    that gets arguments of the user's, None where that is not known. options: its other ones, as texts of their values.
    """

    name: str
    module: str
    fused: bool | None
    foreach: bool | None
    takes: tuple[str, ...]
    fused_devices: tuple[str, ...]
    site: CallSite | None
    library_line: str = ""
    handed_on: HandedOn | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Numbers of layers by kind, and of parameters.

    planes: convolutions of images. kernels: weights whose strides tell the layout. recomputes: it checkpoints activations
    itself. compiled_sites: calls that compiled parts of it, by name.
    """

    parameters: int
    dtypes: tuple[str, ...]
    convolutions: int
    planes: int
    kernels: int
    channels_last: bool
    compiled: bool
    compiled_sites: Mapping[str, CallSite]
    dropouts: int
    repeated: Repeated | None
    recomputes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """The trainer of a library that makes a script's steps.

    precision: that it computes in, in the knob's word where that has one. optimizer: the name by which it was asked for one, ""
    where the script builds it. site: the call that gave it its arguments. refuses_bf16: why it does not take that argument.
    options: names of its arguments that the command line sets instead; option_prefix: what is before them there.
    """

    library: str
    precision: str
    optimizer: str
    site: CallSite | None
    refuses_bf16: str = ""
    options: tuple[str, ...] = ()
    option_prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward:
    """A script's call behind a backward pass.

    forwards: lines of the function with this call at which modules that are trained were called, since the backward pass before.
    others: lines of it at which functions were called with a backward pass of their own.
    """

    site: CallSite
    forwards: tuple[int, ...] = ()
    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What is known of a script, whose loop is its own.

    models: under which names functions that run hold each of its models, the innermost first. backward: the backward passes of
    an update. autocasts: types that it enters autocast with; autocasts_off: where it switches that off on its device.
    arguments: that it was given. optimizers: those that a step updates beside the one of the facts, as in a GAN.
    """

    models: tuple[tuple[Held, ...], ...] = ()
    backward: tuple[Backward, ...] = ()
    autocasts: tuple[str, ...] = ()
    autocasts_off: tuple[CallSite, ...] = ()
    arguments: tuple[str, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that a child says of the training it built.

    step_autocast: the type that a decorator has the step's matmuls run in, "" without one. factories: names of the target's
    functions by role, factory_files: where they are. project_files: modules loaded from below the folder of the command.
    script: None for factories, whose loop is ours. digests: SHA-256 of what was imported unpatched, by real path. strays: see
    `relocate.strays`. trainer: that makes the steps of a script, None where its own loop does.
    """

    device: Device
    host: Host
    flags: Flags
    loader: Loader
    optimizer: Optimizer
    model: Model
    non_blocking: bool
    has_ema: bool
    ema_site: CallSite | None
    step_autocast: str
    factories: Mapping[str, str]
    factory_files: Mapping[str, str | None]
    project_files: tuple[str, ...]
    digests: Mapping[str, str]
    strays: tuple[str, ...]
    trainer: Trainer | None = None
    script: Script | None = None

    @property
    def is_script(self) -> bool:
        """Whether its loop is its own."""
        return self.script is not None


def to_json(facts: Facts) -> dict[str, Any]:  # Any: nested JSON
    """The facts for the pipe between child and parent."""
    return {"version": VERSION, **asdict(facts)}


def from_json(data: Mapping[str, Any]) -> Facts:
    """What `to_json` gave. Raises ValueError for another version."""
    if data.get("version") != VERSION:
        raise ValueError(f"facts of version {data.get('version')!r}; this perfaudit reads {VERSION}")
    facts: Facts = _value(Facts, data)
    return facts


def _value(kind: Any, data: Any) -> Any:  # Any: a type, and JSON of it
    """JSON, in which tuples are lists, as a value of this type."""
    if get_origin(kind) is UnionType:
        return None if data is None else _value(get_args(kind)[0], data)
    if is_dataclass(kind):
        return kind(**{name: _value(hint, data[name]) for name, hint in get_type_hints(kind).items()})  # type: ignore[operator]  # a class
    if kind is CallSite:
        return CallSite(*data)
    if get_origin(kind) is tuple:
        return tuple(_value(get_args(kind)[0], each) for each in data)
    if get_origin(kind) is Mapping:
        return {name: _value(get_args(kind)[1], value) for name, value in data.items()}
    return data
