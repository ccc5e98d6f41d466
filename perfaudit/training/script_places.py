"""Where what a script trains with was built: by which of its calls, and by libraries from arguments of those. Child only."""

from __future__ import annotations

from typing import Any

from greenlet import greenlet

from perfaudit.script.read_loaders import takes_the_same
from perfaudit.target.construction import Origins
from perfaudit.target.provenance import Site
from perfaudit.training.forward_lines import Lines
from perfaudit.training.held_names import Held, held_names
from perfaudit.training.library_owners import LibraryOwners, Origin, Owner
from perfaudit.training.optimizers_anew import OptimizersAnew
from perfaudit.training.script_loading import ScriptLoading
from perfaudit.training.script_watch import ScriptWatch
from perfaudit.training.step_rhythm import StepRhythm
from perfaudit.training.trainers import TRANSFORMERS, Trainer

NO_OPTIMIZER = -1  # in the record of a step that ends with a backward pass, as the script has built no optimizer
TRAINER_PREFIX = "dataloader_"  # before DataLoader's own names among Hugging Face's `TrainingArguments`


class ScriptPlaces(ScriptLoading):
    """The part of a script's training that knows the calls which built its models, optimizers and loader.

    trainer: of a library, from the first update on. optimizers_anew: those that are built behind it.
    """

    model: Any  # torch.nn.Module
    optimizer: Any  # torch.optim.Optimizer
    _models: list[Any]
    _rhythm: StepRhythm
    _watch: ScriptWatch
    _script: greenlet

    def __init__(self) -> None:
        super().__init__()
        self.trainer: Trainer | None = None
        self.optimizers_anew = OptimizersAnew()
        self._origins = Origins()
        self._site_of: list[Any] = []  # of loaders and of optimizers: `construction.Built`
        self._owners = LibraryOwners()

    @property
    def backward_sites(self) -> dict[Site, Lines]:
        """The script's calls behind the backward passes of its first steps, with where their functions called modules before;
        {} where one of them is no call of its own.
        """
        sites = self._watch.forward_lines.sites
        return {site: lines for site, lines in sites.items() if site is not None} if None not in sites else {}

    @property
    def model_names(self) -> list[list[Held]]:
        """For each model, the names under which functions that run hold it."""
        return [held_names(model, self._script.gr_frame) for model in self._models]

    def module_site(self, module: Any) -> Site | None:
        """The call that built a module; None for one that was copied, or built by a library."""
        return self._origins.of_module(module)

    def _built_at(self, thing: object) -> Site | None:
        return next((site for site_of in self._site_of if (site := site_of(thing)) is not None), None)

    @property
    def loader_site(self) -> Site | None:
        """The script's call that built the loader, or the trainer's arguments; None where neither call is the script's."""
        owner = self._loader_owner
        handed_on = owner.site if owner is not None else None
        return (self._own_loader_site or self._trainer_site or handed_on) if self._own is not None else None

    @property
    def loader_prefix(self) -> str:
        """What is before the names of the loader's arguments in the call at `loader_site`, or on the command line."""
        if self._own is None or self._own_loader_site:
            return ""
        if self._trainer_site is None and (owner := self._loader_owner) is not None and owner.site is not None:
            return owner.loader_prefix
        is_its_own = self.trainer is not None and self.trainer.library == TRANSFORMERS  # its arguments are the loader's
        has_options = is_its_own and self.trainer is not None and bool(self.trainer.options)
        return TRAINER_PREFIX if has_options or self._trainer_site is not None else ""

    @property
    def loader_owner(self) -> str:
        """The class of the library's object that builds the loader from arguments of its own; "" where none is known to do so."""
        owner = self._loader_owner if self.loader_prefix else None
        return owner.name if owner is not None and owner.site is self.loader_site else ""

    @property
    def loader_library(self) -> tuple[str, Site | None]:
        """The line of a library that built the loader, "" for none, and the script's call that was under way."""
        return self._owners.behind_loader(self._own.loader) if self._own is not None else ("", None)

    @property
    def _loader_owner(self) -> Owner | None:
        return self._owners.of_loader(self._own.loader) if self._own is not None else None

    @property
    def _own_loader_site(self) -> Site | None:
        """The script's call that built the loader, or the one of which `Accelerator.prepare` has made it."""
        own = self._own.loader if self._own is not None else None
        return self._built_at(own) or self._site_of[0].of_one_that(lambda each: takes_the_same(each, own))

    @property
    def _trainer_site(self) -> Site | None:
        """The script's call that gives arguments to a trainer that builds its loader from them; None without one."""
        return self.trainer.site if self.trainer is not None and self.trainer.library == TRANSFORMERS else None

    @property
    def optimizer_site(self) -> Site | None:
        """The script's call that built the optimizer; None where a library did."""
        return self._built_at(self.optimizer)

    def optimizer_origin(self, optimizer: Any) -> Origin | None:
        """How a library has built an optimizer; None where a call of the script's did."""
        return self._owners.origin(optimizer)

    @property
    def other_optimizers(self) -> list[tuple[Any, Site | None]]:
        """Those that a step updates beside `optimizer`, each with the script's call that built it."""
        numbers = (number for number in self._rhythm.last_step if number != NO_OPTIMIZER)
        stepped = [self._watch.optimizer(number) for number in numbers]
        return [(each, self._built_at(each)) for each in stepped if each is not None and each is not self.optimizer]

    def note_optimizer(self, optimizer: Any) -> None:
        """Take note of one that was built behind the first update."""
        of_a_step = {self._call_behind(each) for each in (self.optimizer, *(each for each, _ in self.other_optimizers))}
        self.optimizers_anew.note(optimizer, self._call_behind(optimizer), of_a_step)

    def _call_behind(self, optimizer: Any) -> Site | None:
        """The script's call that built an optimizer, or the object of a library that did."""
        origin = self._owners.origin(optimizer)
        owner = origin.owner if origin is not None else None
        return self._built_at(optimizer) or (owner.site if owner is not None else None)

    @property
    def compiled_sites(self) -> dict[str, Site]:
        """The calls that compiled the model, or parts of it, by qualified name."""
        named = {f"model.{name}" if name else "model": module for name, module in self.model.named_modules()}
        found = {name: self._origins.of_compiling(module) for name, module in named.items()}
        return {name: site for name, site in found.items() if site is not None}
