"""A training assembled from factories: model, loader, optimizer, step and average, run one step at a time. Child only."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import re
import sys
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

from perfaudit.errors import NoBatches, TargetError
from perfaudit.target.accelerator import accelerator_of, make_current, pick_device
from perfaudit.target.batches import on_device, samples_in
from perfaudit.target.built_otherwise import loaders_built, optimizers_built
from perfaudit.target.construction import Origins, modules_built
from perfaudit.target.copies import copies_without_waiting
from perfaudit.target.load import faults_named, load, missing
from perfaudit.target.loading import Batch, Empty, Loading
from perfaudit.target.names import Target
from perfaudit.target.phases import Phases
from perfaudit.target.provenance import Site
from perfaudit.target.random_streams import seed_all
from perfaudit.target.working_folder import full_path, present_folder
from perfaudit.training.factory_calls import FactoryCalls, kind
from perfaudit.training.shallow_stack import call_at_bottom

# What torch says of tensors on different devices, in its several ways.
_WRONG_DEVICE = re.compile(r"same device|should be the same|[Ee]xpected \w+ of device type|MPS device|is on cpu")


class FactoryTraining:
    """What a user's training does between two batches, built by the factories and run by us.

    device: "auto", or a torch device name. A model whose parameters are all on the CPU is moved to the device.
    loader_overrides, optimizer_overrides: arguments that every DataLoader or optimizer of the factories is built with
    instead of the user's.
    Raises TargetError for anything the factories do wrong.

    Where the user's code built its parts is known afterwards: `loader_site`, `optimizer_site`, `ema_site` (None for what has
    no line of the user's), `module_sites` by qualified name, `compiled_sites`.

    folder: the working directory in which the factories were called, "" where there is none; they may have changed it.

    is_script: the loop is ours.

    A knob may change, after building: `model`, `set_to_none` (None: the optimizer's default), `around_loss` (a context in
    which the loss is computed), `scaler` (a torch.amp.GradScaler), `non_blocking`, and the average by `keep_average`.
    """

    is_script = False
    loader_prefix = loader_owner = ""
    loader_library = ("", None)
    has_ended = False
    trainer = None

    def __init__(
        self,
        target: Target,
        device: str = "auto",
        loader_overrides: dict[str, Any] | None = None,
        seed: int = 0,
        optimizer_overrides: dict[str, Any] | None = None,
    ) -> None:
        self.target = target
        self.seed = seed
        seed_all(seed)
        with modules_built() as origins:
            self._build(origins, device, loader_overrides or {}, optimizer_overrides or {})
        self.module_sites, self.compiled_sites = self._sites(origins)
        self.other_module_sites = origins.of_others(self.model)  # of modules that are no part of the model
        self.set_to_none: bool | None = None
        self.around_loss: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        self.scaler: Any = None
        self.non_blocking = self._copies_without_waiting()
        self.phases = Phases(self.accelerator)
        self.last_loss: Any = None  # of the last whole step, without its graph
        self._update_before_step = False
        self._fixed: Batch | None = None
        self._kept_loss: Any = None  # of the last step, with its graph: as long as a variable of a loop keeps it
        self._kept_batch: Batch | None = None  # of the last whole step, likewise
        self._left_behind: frozenset[str] = frozenset()  # types of what a batch holds that does not move to the device

    def _build(
        self, origins: Origins, device: str, loader_overrides: dict[str, Any], optimizer_overrides: dict[str, Any]
    ) -> None:
        target, seed = self.target, self.seed
        make_current(device)
        with contextlib.ExitStack() as importing:  # scripts build loaders and optimizers at their top level
            seen = [importing.enter_context(loaders_built(loader_overrides))] if "torch" in sys.modules else []
            seen += [importing.enter_context(optimizers_built(optimizer_overrides))] if seen else []
            self.factories = load(target)  # before torch, so that variables the user's file sets for it take effect
        calls = self._calls = FactoryCalls(target.file, self.factories)
        self.folder = present_folder()
        origins.watch()
        import torch

        for role in ("model", "dataloader"):
            if role not in self.factories:
                raise missing(target, role)
        self.device = pick_device(device)
        seed_all(seed)
        self.model = calls.call("model", torch.nn.Module)
        self._place_model(device)
        self.accelerator = accelerator_of(self.device)
        self.model.train()
        seed_all(seed)
        self.loading, site_of = self._loading(loader_overrides)
        self.loader_site = _first_site([site_of, *seen], self.loader)
        with optimizers_built(optimizer_overrides) as site_of_optimizer:
            self.optimizer = calls.optimizer(self.model)
        self.optimizer_site = _first_site([site_of_optimizer, *seen], self.optimizer)
        groups = self.optimizer.param_groups
        calls.refuse_without("optimizer", groups[0] if groups else {}, optimizer_overrides, ("fused", "foreach"))
        self._ema_object, update, self.ema_site = calls.average(self.model)
        self.ema: Any = None if update is None else lambda: update(self.model)  # a knob may exchange the model

    def _place_model(self, asked: str) -> None:
        """Move a model that is on the CPU to the device; where one is on a single other device, that is the training's.

        Raises TargetError where the user asked for another one: what is waited for would not be what works.
        """
        there = {p.device for p in self.model.parameters()}
        if all(device.type == "cpu" for device in there):
            if self.device.type != "cpu":
                with faults_named(f"{self.target.file}: the model does not move to {self.device}"):
                    self.model.to(self.device)
            return
        if len(there) > 1 or "meta" in {device.type for device in there}:  # spread over devices, or without data yet
            return
        (own,) = there
        if (own.type, own.index or 0) == (self.device.type, self.device.index or 0):
            return
        if asked != "auto":
            name = getattr(self.factories["model"], "__name__", "the model factory")
            raise TargetError(
                f"{self.target.file}: {name}() puts the model on {own}, and --device says {asked}; leave --device out, or "
                'let the factory leave the model on the CPU, or use `.cuda()` or `.to("cuda")` without a number'
            )
        self.device = own

    def _sites(self, origins: Origins) -> tuple[dict[str, Site], dict[str, Site]]:
        """The calls that built the model's modules, by qualified name; those that compiled the model, parts of it, or the step.

        Keys of the latter are "step", "model" and names like "model.blocks.0".
        """
        modules = dict(self.model.named_modules())
        built = {name: origins.of_module(module) for name, module in modules.items()}
        things = {f"model.{name}" if name else "model": module for name, module in modules.items()}
        compiled = {
            name: origins.of_compiling(thing) for name, thing in {**things, "step": self.factories.get("step")}.items()
        }
        return ({k: v for k, v in built.items() if v is not None}, {k: v for k, v in compiled.items() if v is not None})

    @property
    def optimizers(self) -> list[Any]:
        """All optimizers that its steps update."""
        return [self.optimizer]

    @property
    def builds_own_optimizer(self) -> bool:
        """Whether the user's factory built the optimizer; else it is our AdamW, which is not theirs to patch."""
        return "optimizer" in self.factories

    # ---- batches ---------------------------------------------------------------------------------------------------

    def _loading(self, overrides: dict[str, Any]) -> tuple[Loading, Callable[[Any], Site | None]]:
        """A loader of the user's factory, built with these arguments instead of theirs, and where loaders were built."""
        import torch

        with loaders_built(overrides) as site_of:
            loader = self._calls.call("dataloader", torch.utils.data.DataLoader)
        self._calls.refuse_without("DataLoader", vars(loader), overrides, ("num_workers", "batch_size"))
        return Loading(loader), site_of

    def other_loading(self, overrides: dict[str, Any]) -> Loading:
        """Another loader of the factory, from the seed of this training, built with these arguments instead of the user's.

        Raises TargetError where the factory fails, or gives the loader that is there already. Draws from the random streams.
        """
        seed_all(self.seed)
        loading, _ = self._loading(overrides)
        if loading.loader is self.loader:
            raise TargetError(f"{self.target.file}: the dataloader factory gives the same loader each time")
        return loading

    def exchange_loading(self, loading: Loading) -> Loading:
        """Take the next batches from there; the loading that had been in place, which goes on where it stopped when put back."""
        before, self.loading = self.loading, loading
        return before

    @property
    def loader(self) -> Any:
        """The DataLoader from which batches are taken."""
        return self.loading.loader

    @property
    def epoch_batches(self) -> int | None:
        """Batches of an epoch, None where that is not known yet."""
        return self.loading.epoch_batches

    @property
    def restart_seconds(self) -> list[float]:
        """Seconds that beginning each epoch took: see `Loading`."""
        return self.loading.restart_seconds

    def next_batch(self) -> Batch:
        """The next batch, from one epoch to the next without end; restarts are timed apart (see `restart_seconds`)."""
        with faults_named(f"{self.target.file}: the dataloader failed"):
            try:
                return self.loading.next_batch()
            except Empty:
                raise NoBatches(f"{self.target.file}: the dataloader is empty (it yields no batch)") from None

    def restart_per_step(self) -> float:
        """Seconds that beginning an epoch takes, shared out among its steps: see `Loading`."""
        return self.loading.restart_per_step()

    def fixed_batch(self) -> Batch:
        """The loader's first batch on the device, the same one each time: for what does not depend on loading."""
        if self._fixed is None:
            self._fixed = self.to_device(self.next_batch())
        return self._fixed

    def _copies_without_waiting(self) -> bool:
        """Whether the user's own step or loop does, as far as its text says; patched text where that is what runs.

        The file of the step decides, that of the target where the other copies nothing; `.to(device)` waits.
        """
        step: Any = inspect.unwrap(self.factories["step"]) if "step" in self.factories else None
        files = [getattr(getattr(step, "__code__", None), "co_filename", ""), full_path(self.target.file)]
        texts = ["".join(linecache.getlines(file)) for file in dict.fromkeys(filter(None, files))]
        said = (copies_without_waiting(text, getattr(step, "__name__", "")) for text in texts)
        return next((answer for answer in said if answer is not None), False)

    def to_device(self, batch: Batch) -> Batch:
        """The batch on the training's device. Raises TargetError where a part of it refuses to move."""
        with faults_named(f"{self.target.file}: the batch does not move to {self.device}"):
            batch, self._left_behind = on_device(batch, self.device, self.non_blocking)
        return batch

    # ---- steps -----------------------------------------------------------------------------------------------------

    def loss(self, batch: Batch) -> Any:
        """The loss tensor of a batch that is on the device. Raises TargetError when no step can be made of it."""
        try:
            return call_at_bottom(self._loss, batch)
        except RuntimeError as error:
            if not self._left_behind or not _WRONG_DEVICE.search(str(error)):
                raise
            what = ", ".join(sorted(self._left_behind))
            raise TargetError(
                f"{self.target.file}: the batch holds tensors in a {what} that stayed on the host, as it has no way to move: "
                f"give it a method `to(device)` that returns it with its tensors on the device, or move them in the step"
            ) from error

    def _loss(self, batch: Batch) -> Any:
        import torch

        if "step" in self.factories:
            loss = self.factories["step"](self.model, batch)
            if not isinstance(loss, torch.Tensor):
                name = getattr(self.factories["step"], "__name__", "training_step")
                raise TargetError(f"{self.target.file}: {name}() returned {kind(loss)}, not a loss tensor")
            return loss
        if not (
            isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(b, torch.Tensor) for b in batch)
        ):
            raise TargetError(
                f"{self.target.file}: no loss is known for batches of {kind(batch)}; define "
                "`def training_step(model, batch): ...` that returns the loss"
            )
        inputs, targets = batch
        output = self.model(inputs)
        if not isinstance(output, torch.Tensor):
            raise TargetError(
                f"{self.target.file}: no loss is known for a model that returns {kind(output)}; define "
                "`def training_step(model, batch): ...` that returns the loss"
            )
        if targets.is_floating_point():
            return torch.nn.functional.mse_loss(output.reshape(targets.shape), targets)
        return torch.nn.functional.cross_entropy(output, targets)

    def step(self, batch: Batch) -> Any:
        """One training step on a batch that is on the device: gradients, update, average. Returns the loss tensor.

        In a loop a variable keeps the loss, and with it the graph, until the next one is there, and so does this. Where the graph
        is let go at the end of its step, the allocator returns memory that the next step asks for again, in page faults.
        """
        mark = self.phases
        mark.begin()
        if self.set_to_none is None:
            self.optimizer.zero_grad()
        else:
            self.optimizer.zero_grad(set_to_none=self.set_to_none)
        mark.end("zero_grad")
        with self.around_loss():
            loss = self.loss(batch)
        self._kept_loss = None
        mark.end("forward")
        self._backward(loss)
        mark.end("backward")
        if self.ema is not None and self._update_before_step:
            self.ema()
            mark.end("average")
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        mark.end("optimizer")
        if self.ema is not None and not self._update_before_step:
            self.ema()
            mark.end("average")
        self._kept_loss = loss
        return loss

    def _backward(self, loss: Any) -> None:
        """The gradients of a loss. Raises TargetError for one without a graph, or whose graph the user's step has used up."""
        name = getattr(self.factories.get("step"), "__name__", "the model")
        advice = "return the loss and leave backward() and the optimizer to perfaudit"
        if not loss.requires_grad:
            raise TargetError(f"{self.target.file}: the loss that {name}() returned has no gradient; {advice}")
        try:
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        except RuntimeError as error:
            if "through the graph a second time" not in str(error):
                raise
            raise TargetError(f"{self.target.file}: {name}() has called backward() already; {advice}") from error

    def whole_step(self, fixed: bool = False) -> Batch:
        """Load a batch, bring it to the device and make a step; of the fixed batch, only the step. Returns the batch."""
        batch = self.batch(fixed)
        self._kept_batch = None  # a step that raises for want of memory is tried again without it
        self.last_loss = self.step(batch).detach()
        self._kept_batch = batch
        return batch

    def samples_in(self, batch: Batch) -> int:
        """How many samples a batch has that `whole_step` gave."""
        return samples_in(batch)

    def batch(self, fixed: bool = False) -> Batch:
        """A batch on the device: the next one, loading and transfer timed, or the fixed one."""
        if fixed:
            return self.fixed_batch()
        started = time.perf_counter()
        restarts = len(self.restart_seconds)
        loaded = self.next_batch()
        waited = time.perf_counter() - started - sum(self.restart_seconds[restarts:])
        self.phases.add("loading", max(0.0, waited))
        self.phases.begin()
        batch = self.to_device(loaded)
        self.phases.end("transfer")
        return batch

    def average_sums(self) -> list[float]:
        """Two sums over all floating tensors the user's average holds, [] without one; to compare two runs.

        Of |t| and of |t + 1|: far from zero, so that relative gaps mean something, and the second feels signs.
        """
        import torch

        tensors, queue, seen = [], [self._ema_object], set()
        while queue:
            value = queue.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, torch.Tensor):
                tensors.append(value.detach())
            elif isinstance(value, torch.nn.Module):
                queue += value.state_dict().values()
            elif isinstance(value, dict):
                queue += value.values()
            elif isinstance(value, (list, tuple)):
                queue += value
            elif hasattr(value, "__dict__") and not callable(value):
                queue += vars(value).values()
        floats = [t.cpu().double() for t in tensors if t.is_floating_point()]  # MPS has no float64
        if not floats:
            return []
        return [float(sum(t.abs().sum() for t in floats)), float(sum((t + 1).abs().sum() for t in floats))]

    @property
    def average_kept(self) -> tuple[Any, bool]:
        """What `keep_average` was told last: the update of the user's own average, or of another one, and when it is called."""
        return self.ema, self._update_before_step

    def keep_average(self, update: Any, before_step: bool = False) -> None:
        """Use another average than the user's: `update()` is called each step, before or after the optimizer's; None for none."""
        self.ema = update
        self._update_before_step = before_step

    def step_functions(self) -> list[types.FunctionType]:
        """The user's step and the forward of their model, as far as those are plain functions of Python."""
        step: Any = inspect.unwrap(self.factories["step"]) if "step" in self.factories else None
        return [each for each in (step, type(self.model).forward) if isinstance(each, types.FunctionType)]

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        self.accelerator.synchronize()

    def close(self) -> None:
        """Let go of the loader's workers, and of the last step."""
        self._kept_loss = self._kept_batch = None
        self.loading.close()


def _first_site(sources: Sequence[Callable[[Any], Site | None]], built: object) -> Site | None:
    return next((site for site_of in sources if (site := site_of(built)) is not None), None)
