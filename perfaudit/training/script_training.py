"""A script that trains in its own loop, run one step at a time. Child only.

The script and whoever races its variants take turns in one thread: each runs on a stack of its own (a greenlet), and the script
is left where the update of an optimizer ends a step. So its loop stays its own, and between two steps its objects are at hand.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

from greenlet import greenlet

from perfaudit.errors import TargetError
from perfaudit.script import as_main
from perfaudit.script.after_import import after_import
from perfaudit.script.missing_module import where_to_find
from perfaudit.script.started_processes import watch_started
from perfaudit.script.tally import samples_of
from perfaudit.script.unseeded_streams import seed_unseeded
from perfaudit.target import overlay
from perfaudit.target.accelerator import accelerator_of
from perfaudit.target.autocasts import autocasts
from perfaudit.target.built_otherwise import loaders_built, optimizers_built
from perfaudit.target.load import as_module, where, words_of_error
from perfaudit.target.names import Target
from perfaudit.target.provenance import Site
from perfaudit.target.random_streams import seed_all
from perfaudit.target.working_folder import full_path, present_folder
from perfaudit.training.around_forward import AroundForward
from perfaudit.training.script_end import ScriptEnd
from perfaudit.training.script_places import NO_OPTIMIZER, ScriptPlaces
from perfaudit.training.script_start import ScriptStart, Start
from perfaudit.training.script_watch import ScriptPhases, ScriptWatch
from perfaudit.training.step_rhythm import StepRhythm
from perfaudit.training.trained_models import find_models
from perfaudit.training.trainers import Trainers
from perfaudit.training.updated_by_hand import UpdatedByHand

Json = dict[str, Any]  # Any: nested JSON


class ScriptTraining(ScriptPlaces):
    """The training of a script. Building it runs the script up to the end of its first step.

    loader_overrides, optimizer_overrides: arguments that every DataLoader or optimizer is built with instead of the script's.
    Raises TargetError where the script ends, or raises, before that, or where no step can be told.

    on_first_update: called when the script first updates an optimizer in this process.

    most_gradients: bytes that a copy of the first gradients may take of the host's memory. refuse: called with why the script
    cannot be left between two steps, from the thread or process in which it trains; what builds this waits and waits.

    start: what is done with the parameters that the first step begins with.

    first_gradients: of the first update, by parameter, on the host; {} where there are none or memory does not hold them.
    """

    is_script = True
    builds_own_optimizer = True
    ema = None
    ema_site = None
    scaler = None
    non_blocking = False

    def __init__(
        self,
        target: Target,
        loader_overrides: dict[str, Any] | None = None,
        seed: int = 0,
        optimizer_overrides: dict[str, Any] | None = None,
        most_gradients: float = math.inf,
        refuse: Callable[[str], None] = lambda why: None,
        on_first_update: Callable[[], None] = lambda: None,
        start: Start = Start(),  # noqa: B008  # frozen
    ) -> None:
        super().__init__()
        self.target, self.seed = target, seed
        self._refuse, self._on_first_update = refuse, on_first_update
        self.factories: dict[str, Any] = {}
        self.folder = present_folder()
        self.start = ScriptStart(start, seed)
        self._most_gradients = most_gradients
        self.is_known = False  # what there is to train: from the first update on that no GradScaler has skipped
        self.last_loss: Any = None
        self.first_batch: Any = None  # of the first update, None where the script has no loader
        self.updates = 0  # all of them
        self.first_gradients: dict[str, Any] = {}
        self._backwards_before: int | None = None  # the first update, during that update
        self.phases = ScriptPhases()
        self.around_forward = AroundForward()
        self.autocasts: set[str] = set()  # types that the script entered autocast with, up to its first update
        self.autocasts_off: set[tuple[str, Site]] = set()  # where it switched that off until then, by type of device
        self._records: list[Json] = []  # of updates since the last step
        self._rhythm = StepRhythm()
        self._trainers = Trainers()
        self._open, self._first_step = contextlib.ExitStack(), contextlib.ExitStack()
        self._loader_overrides, self._overrides_in_force = loader_overrides or {}, dict(loader_overrides or {})
        self._optimizer_overrides = optimizer_overrides or {}
        self._thread, self._pid = threading.get_ident(), os.getpid()
        self._started: list[str] = []  # what the processes are for that the script has started
        self._watch = ScriptWatch(self)
        self._asking = greenlet.getcurrent()
        self._script = greenlet(self._run)
        self._end = ScriptEnd()
        _LEFT.append(self._script)
        self._begin()

    def _begin(self) -> None:
        after_import("torch", self._torch_is_there)
        after_import("numpy.random", self._numpy_is_there)
        seed_all(self.seed)
        seed_unseeded(self.seed)
        self._trainers.watch(after_import)
        self._owners.watch(after_import)
        watch_started(self._started.append)
        self._watch.wait_for_torch()
        self._go_on()
        while not self.is_known or not self._rhythm.find(self._watch.optimizers_built, self.target):
            self._go_on()
        for _ in range(self._rhythm.updates_to_end):
            self._go_on()
        self.start.end_step()
        self._watch.forward_lines.end()
        self._records.clear()
        self.phases.take()

    def _numpy_is_there(self) -> None:
        sys.modules["numpy.random"].seed(self.seed)

    def _torch_is_there(self) -> None:
        seed_all(self.seed)
        self._origins.watch()
        self.autocasts = self._first_step.enter_context(autocasts(self.autocasts_off))
        self._site_of = [
            self._open.enter_context(loaders_built(self._overrides_in_force, self._owners.note_loader)),
            self._open.enter_context(optimizers_built(self._optimizer_overrides, self._owners.note_optimizer)),
        ]

    def _leave_at_once(self, code: int) -> None:
        """In the place of `os._exit` in the script: it goes on no more, and neither does a `finally` of it run."""
        if greenlet.getcurrent() is not self._script:
            return
        self._end.leave_at_once(code)
        while True:
            _use((None, None))
            self._asking.switch()

    def _run(self, tools: _Tools) -> None:
        _use(tools)
        as_main.before_leaving_at_once(self._leave_at_once)
        name, arguments = self.target.module or self.target.file, self.target.arguments or ()
        if self.target.module:
            as_main.run_module(name, arguments)
        else:
            file = full_path(self.target.file)
            as_main.run_file(name, arguments, overlay.bytes_of_main(file), overlay.code_of_main(file))

    # ---- taking turns ------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Let the script run to the end of its next update. Raises what it raises, and `_end_error` where it has ended."""
        if not self.has_ended:
            seen = len(self._rhythm.updates)
            self._overrides_in_force |= self._loader_overrides
            tools = sys.getprofile(), sys.gettrace()
            try:
                self._script.switch(tools)
            except SystemExit as leaving:
                self._end.leave(leaving)
                raise self._end_error() from leaving
            except Exception as error:
                if self._rhythm.updates:
                    raise
                kind = f"{type(error).__name__}: {words_of_error(error)}"
                name = "" if self.target.module else as_module(error, self.target.file)
                hint = (
                    f". It imports from its package: name it as a module, `-m {name}`" if name else where_to_find(error)
                )
                raise TargetError(
                    f"{self.target}: it raised {kind}{where(error)}, before its first step{hint}"
                ) from error
            finally:
                self._overrides_in_force.clear()  # loaders that are built by others are none of the script's
                _use(tools)
            if len(self._rhythm.updates) > seen:
                return
        raise self._end_error()

    def _end_error(self) -> TargetError:
        """That the script has no further step: NoStep before its first one, NoBatches behind it, but for a code of a failure."""
        if self._rhythm.updates:
            return self._end.behind(self.target, self.updates)
        return self._end.before_first_step(self.target, self._watch.counts, self._started)

    def update_ends(self, optimizer: int) -> None:
        """An update of the script has ended: whoever asked goes on, until the next one is asked for.

        optimizer: its number, NO_OPTIMIZER for none.
        """
        records = self._watch.take_records()
        if threading.get_ident() != self._thread or os.getpid() != self._pid:  # a stack goes on in its own thread only
            if not self.updates and self._watch.counts.updates == 1:
                self._refuse(cannot_be_left(self.target, "thread" if os.getpid() == self._pid else "process"))
            return
        if optimizer == NO_OPTIMIZER and not self.is_known:
            self.before_first_update(UpdatedByHand())
        self.around_forward.end()
        if self._backwards_before is not None:
            self._keep_gradients_of_closure(self._watch.counts.backwards - self._backwards_before)
        self.updates += 1
        self._rhythm.updates.append(optimizer)
        self._records += records
        for record in records:
            self.phases.add(record["phases"])
        _use((None, None))
        _use(self._asking.switch())

    def whole_step(self, fixed: bool = False) -> int:
        """Let the script make a step; how many samples it had. fixed: of no effect, the script loads as it does."""
        self._records.clear()
        for _ in range(self._rhythm.per_step):
            self._go_on()
        return samples_of(self._records, self._rhythm.optimizers)

    def samples_in(self, step: int) -> int:
        """How many samples a step had, as `whole_step` gave it."""
        return step

    @property
    def has_ended(self) -> bool:
        """Whether its loop is over, or has raised."""
        return bool(self._script.dead) or self._end.is_at_once

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        self.accelerator.synchronize()

    def close(self) -> None:
        """Nothing: the script ends with its process, without running what it would do at its end."""

    # ---- what is seen on the way -------------------------------------------------------------------------------------

    def note_loss(self, roots: Any) -> None:
        """Keep what a backward pass of the script begins with; of more than a number, the sum."""
        first = roots if hasattr(roots, "detach") else next(iter(roots), None)
        if first is not None:
            with self.unseen():
                self.last_loss = first.detach() if first.numel() == 1 else first.detach().sum()

    def before_first_update(self, optimizer: Any) -> None:
        """Find the model and the device, and keep the gradients."""
        import torch

        self._first_step.close()
        self.start.end()
        self._on_first_update()
        _, built = self._site_of
        self.optimizer = optimizer
        self.optimizers = [each for each, _ in built.everything()] or [optimizer]
        parameters = [p for each in self.optimizers for group in each.param_groups for p in group["params"]]
        models = find_models(self.optimizers).trained
        self.model = models[0] if len(models) == 1 else torch.nn.ModuleList(models)
        self._models = models
        self.device = parameters[0].device if parameters else getattr(self.last_loss, "device", torch.device("cpu"))
        self.accelerator = accelerator_of(self.device)
        self.first_gradients = self._gradients(getattr(optimizer, "grad_scale", None))
        self._backwards_before = self._watch.counts.backwards
        self.first_batch = self._watch.batch
        self.trainer = self._trainers.running(sys._getframe(1))
        self.is_known = True
        self.begin_loading(self._watch.loader)

    def _gradients(self, scale: Any) -> dict[str, Any]:
        """The gradients as they are, on the host; {} before there are any, as where a closure makes them, or without room.

        scale: that a GradScaler leaves to a fused update to divide by, None where it has done so itself.
        """
        named = dict(self.model.named_parameters())
        size = sum(p.grad.numel() * p.grad.element_size() for p in named.values() if p.grad is not None)
        if not size or size > self._most_gradients:
            return {}
        found = {name: None if p.grad is None else p.grad.detach().to("cpu", copy=True) for name, p in named.items()}
        for gradient in found.values():
            if scale is not None and gradient is not None:
                gradient.div_(scale.to("cpu"))
        return found

    def _keep_gradients_of_closure(self, backwards: int) -> None:
        """Keep the gradients that the first update has made itself, where it made them once, as Lightning's closure does."""
        self._backwards_before = None
        if backwards == 1 and not self.first_gradients:
            self.first_gradients = self._gradients(None)

    def is_own(self, loader: Any) -> bool:
        """Whether a loader is the one whose place another can take: also one that was built anew by the same call."""
        if self._own is None or loader is None:
            return False
        if loader is self._own.loader:
            return True
        site = self._built_at(loader)
        return site is not None and site == self._built_at(self._own.loader)

    @property
    def knows_its_steps(self) -> bool:
        """Whether a step has been made: of several optimizers, not before their order is known."""
        return self.is_known and bool(self._rhythm.per_step)

    def step_functions(self) -> list[FunctionType]:
        """The forward passes of the script's models, as far as those are plain functions of Python."""
        # A compiled class has none to show.
        forwards = {getattr(type(model), "forward", None) for model in self._models}
        return [each for each in forwards if isinstance(each, FunctionType)]

    def loader_workers(self) -> set[int]:
        """Processes that load batches of the script's loader, or of one in its place."""
        return self._watch.loader_workers()

    @property
    def models(self) -> list[Any]:
        """The script's models: modules that are no part of another one and whose parameters are trained."""
        return self._models


def cannot_be_left(target: Target, where: str) -> str:
    """Why the steps of a script that trains in another thread or process cannot be taken one at a time."""
    return (
        f"{target}: it trains in a {where} that it starts, and only what trains in the script's own thread can be left between "
        "two steps; `perfaudit run` reads its steps"
    )


_LEFT: list[greenlet] = []  # scripts: one that nobody refers to is ended, and its `finally` blocks would run
_Tools = tuple[Any, Any]  # what `sys.setprofile` and `sys.settrace` take


def _use(tools: _Tools) -> None:
    """Have the stack that runs profiled and traced by these, None for by nothing: each stack has to be told."""
    if tools != (sys.getprofile(), sys.gettrace()):
        sys.setprofile(tools[0])
        sys.settrace(tools[1])
