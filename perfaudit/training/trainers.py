"""The trainer of a library that makes a script's steps: which one, the call that gave it its arguments, and what it computes in.

Child only. Hugging Face builds loader, optimizer and precision from `TrainingArguments`, Lightning the precision from arguments
of its `Trainer`, Accelerate from those of `Accelerator`. Their constructors are watched, and nothing of them is imported here.
Arguments may come from the command line: Hugging Face's by way of `HfArgumentParser`, Lightning's by way of `LightningCLI`, which
are watched, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from perfaudit.target.construction import Built, constructors_observed
from perfaudit.target.frame_names import names_in
from perfaudit.target.provenance import Site, first_argument

TRANSFORMERS, LIGHTNING, ACCELERATE = "transformers", "lightning", "accelerate"

# By module: the library, its class that takes the arguments, and the method that each of them, a subclass's too, goes through.
_TAKE_ARGUMENTS = {
    "transformers.training_args": (TRANSFORMERS, "TrainingArguments", "__post_init__"),
    "lightning.pytorch.trainer.trainer": (LIGHTNING, "Trainer", "__init__"),
    "pytorch_lightning.trainer.trainer": (LIGHTNING, "Trainer", "__init__"),
    "accelerate.accelerator": (ACCELERATE, "Accelerator", "__init__"),
}
_MAKE_STEPS = {  # modules with a class `Trainer` whose methods run for as long as it trains
    "transformers.trainer": TRANSFORMERS,
    "lightning.pytorch.trainer.trainer": LIGHTNING,
    "pytorch_lightning.trainer.trainer": LIGHTNING,
}
_PARSER = "transformers.hf_argparser"
_COMMAND_LINES = ("lightning.pytorch.cli", "pytorch_lightning.cli")
OF_TRAINER = "trainer."  # before the names of the Trainer's arguments, as a `LightningCLI` takes them
_LIGHTNING_PRECISIONS = {"32-true": "float32", "bf16-mixed": "bf16", "16-mixed": "fp16"}
_ACCELERATE_PRECISIONS = {"no": "float32", "bf16": "bf16", "fp16": "fp16"}


@dataclass(frozen=True, slots=True)
class Trainer:
    """The trainer that makes the steps. site: of the user's call that gave its arguments, None where none did, or several.

    its: Hugging Face's or Lightning's Trainer, or the Accelerator. options: names of its arguments that the command line sets,
    and nothing behind it; option_prefix: what is before them there.
    """

    library: str
    its: Any
    site: Site | None
    options: tuple[str, ...] = ()
    option_prefix: str = ""

    @property
    def precision(self) -> str:
        """What its steps compute in, as the knob has it; the library's own word where the knob has none."""
        if self.library == LIGHTNING:
            return _LIGHTNING_PRECISIONS.get(self.its.precision, str(self.its.precision))
        own = _ACCELERATE_PRECISIONS.get(self.accelerator.mixed_precision, str(self.accelerator.mixed_precision))
        is_tf32 = self.library == TRANSFORMERS and own == "float32" and self.its.args.tf32
        return "tf32" if is_tf32 else own

    @property
    def accelerator(self) -> Any:
        """The Accelerator that prepared its models; Hugging Face's Trainer has one of its own. None with Lightning."""
        return {TRANSFORMERS: getattr(self.its, "accelerator", None), ACCELERATE: self.its}.get(self.library)

    @property
    def refuses_bf16(self) -> str:
        """Why it does not take the argument for bfloat16 on a CPU; "" where it does, and on another device."""
        is_on_cpu = self.library == TRANSFORMERS and self.its.args.device.type == "cpu"
        if not is_on_cpu or getattr(self.its.args, "use_cpu", False) or getattr(self.its.args, "no_cuda", False):
            return ""
        return "on a CPU TrainingArguments takes bf16=True only beside use_cpu=True"

    @property
    def optimizer(self) -> str:
        """The name by which it was asked for an optimizer; "" where the script builds its own."""
        if self.library != TRANSFORMERS or getattr(self.its, "optimizer_cls_and_kwargs", None) is not None:
            return ""
        name = self.its.args.optim
        return str(getattr(name, "value", name))


class Trainers:
    """The trainers that a script builds, from `watch` on."""

    def __init__(self) -> None:
        self._built: dict[str, list[Built]] = {}
        self._open = contextlib.ExitStack()
        # What came from the command line, as objects with their values then and the names of options.
        self._parsed: list[tuple[object, dict[str, object], frozenset[str]]] = []
        self._of_command_line: list[object] = []  # each `LightningCLI` that has read it
        self._made_by_it: list[tuple[object, tuple[str, ...]]] = []  # trainers, with names of options

    def watch(self, after_import: Callable[[str, Callable[[], None]], None]) -> None:
        """Observe the constructors of each of them as soon as its module has been imported."""
        for module in _TAKE_ARGUMENTS:
            after_import(module, partial(self._is_there, module))
        after_import(_PARSER, self._watch_parser)
        for module in _COMMAND_LINES:
            after_import(module, partial(self._watch_command_line, module))

    def _is_there(self, module: str) -> None:
        library, name, method = _TAKE_ARGUMENTS[module]
        kind = vars(sys.modules[module]).get(name)
        if kind is not None and method in vars(kind):
            built = self._open.enter_context(constructors_observed([kind], lambda _: None, method))
            self._built.setdefault(library, []).append(built)

    def _watch_parser(self) -> None:
        parser = vars(sys.modules[_PARSER]).get("HfArgumentParser")
        original = getattr(parser, "parse_args_into_dataclasses", None)
        if original is None:
            return

        @functools.wraps(original)
        def parse(own: Any, args: Any = None, *more: Any, **named: Any) -> Any:  # Any: as the library has it
            parsed = original(own, args, *more, **named)
            if args is None or list(args) == sys.argv[1:]:
                options = frozenset(getattr(own, "_option_string_actions", ()))
                self._parsed += [(each, dict(vars(each)), options) for each in parsed if dataclasses.is_dataclass(each)]
            return parsed

        parser.parse_args_into_dataclasses = parse  # type: ignore[union-attr]  # for the life of this process

    def _watch_command_line(self, module: str) -> None:
        kind = vars(sys.modules[module]).get("LightningCLI")
        parse, make = (getattr(kind, name, None) for name in ("parse_arguments", "instantiate_trainer"))
        if kind is None or parse is None or make is None:
            return

        @functools.wraps(parse)
        def parse_arguments(own: Any, parser: Any, args: Any = None) -> Any:  # Any: as the library has it
            if args is None or (isinstance(args, list) and args == sys.argv[1:]):
                self._of_command_line.append(own)
            return parse(own, parser, args)

        @functools.wraps(make)
        def instantiate_trainer(own: Any, **given: Any) -> Any:
            trainer = make(own, **given)
            if any(each is own for each in self._of_command_line):
                self._made_by_it.append((trainer, tuple(sorted(_names_of_trainer(own) - given.keys()))))
            return trainer

        kind.parse_arguments, kind.instantiate_trainer = parse_arguments, instantiate_trainer  # for this process

    def _options_of(self, given: object) -> tuple[str, ...]:
        """Names of arguments that the command line has set, and that are as it set them."""
        for parsed, values, options in self._parsed:
            if parsed is given:
                now = vars(given)
                return tuple(
                    name for name in values if f"--{name}" in options and _is_same(values[name], now.get(name))
                )
        return ()

    def running(self, frame: types.FrameType | None) -> Trainer | None:
        """The trainer one of whose methods runs in this frame or around it; else the script's only Accelerator; None without."""
        module, its = _outermost(frame)
        if library := _MAKE_STEPS.get(module):
            given = its.args if library == TRANSFORMERS else its
            site = next((site for built in self._built.get(library, ()) if (site := built(given)) is not None), None)
            if library == TRANSFORMERS and (options := self._options_of(given)):
                return Trainer(library, its, None, options)
            if made := next((names for trainer, names in self._made_by_it if trainer is its), ()):
                return Trainer(library, its, None, made, OF_TRAINER)
            return Trainer(library, its, _call_of_arguments(site, given) if library == TRANSFORMERS else site)
        everything = [pair for built in self._built.get(ACCELERATE, ()) for pair in built.everything()]
        accelerators = [(each, site) for each, site in everything if site is not None]
        return Trainer(ACCELERATE, *accelerators[0]) if len(accelerators) == 1 else None


def _outermost(frame: types.FrameType | None) -> tuple[str, Any]:
    """The outermost method of a trainer that runs: the module that defines it, and the trainer; ("", None) without one."""
    found = None
    while frame is not None:
        if frame.f_globals.get("__name__") in _MAKE_STEPS and frame.f_code.co_argcount:
            found = frame
        frame = frame.f_back
    if found is None:
        return "", None
    with names_in(found):  # emptied behind it
        its = first_argument(found)
    return str(found.f_globals["__name__"]), its


def _names_of_trainer(command_line: Any) -> set[str]:
    """Names of the Trainer's arguments that a `LightningCLI` has read; none where it keeps them otherwise than is known."""
    with contextlib.suppress(Exception):  # its subclasses are the user's, and its parser is a library's
        config = command_line.config_init
        inside = config.get(str(command_line.subcommand), config).get("trainer", {})
        return {name for name in {**inside} if isinstance(name, str)}
    return set()


def _is_same(before: object, now: object) -> bool:
    """Whether a value of an argument is what it was; what cannot be compared is another one."""
    return before is now or (type(before) is type(now) and isinstance(now, (str, int, float)) and before == now)


def _call_of_arguments(site: Site | None, args: object) -> Site | None:
    """The call that gives a dataclass its fields; None where its class has a constructor written out, which may give others."""
    written_out = getattr(type(args).__init__, "__code__", None)
    if site is None or (written_out is not None and not written_out.co_filename.startswith("<")):
        return None
    return replace(site, through=())
