"""What the first step of a script begins with, made alike in processes that are compared. Child only.

Random streams are seeded wherever an optimizer was built or a loader is begun, up to the first update: a patch that draws fewer
numbers for its parameters would else have its batches in another order. Where the streams stood before is noted each time, as a
patch that says nothing of random numbers must draw the same ones. Parameters are written, or taken, when a loader is first begun
behind an optimizer, and again when a module that is trained is first called with gradients: by then all of them are there. A
teacher may be called between the two.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from perfaudit.target.random_streams import digest_of_streams, seed_all
from perfaudit.training.parameters import take_state
from perfaudit.training.trained_models import Models, find_models

UNCALLED = "its first step calls no module that an optimizer trains"


@dataclass(frozen=True, slots=True)
class Start:
    """What to do with the parameters: write them to a file, or take them from one."""

    save: str = ""
    load: str = ""


class ScriptStart:
    """The start of one script.

    why: what kept the parameters from being written or taken, "" once they were. stood: digests of the random streams each time
    before they were seeded. streams: their digest behind the first step, "" before its end.
    """

    def __init__(self, asked: Start, seed: int) -> None:
        self._asked, self._seed = asked, seed
        self._thread = threading.get_ident()
        self._carried = 0
        self._optimizers: list[Any] = []
        self._hook: Any = None
        self.why = UNCALLED
        self.stood: list[str] = []
        self.streams = ""

    def begin_loader(self) -> None:
        """A loader is begun: its batches come in the same order, and may be the first that are trained on."""
        if self._hook is not None and not self._carried and threading.get_ident() == self._thread:
            self._carry()
        self._seed_streams()

    def _seed_streams(self) -> None:
        """Seed all random streams, each time otherwise."""
        if threading.get_ident() == self._thread:
            self.stood.append(digest_of_streams())
            seed_all(self._seed + len(self.stood))

    def add_optimizer(self, optimizer: Any) -> None:
        """An optimizer was built: what comes now draws the same numbers, and the next call may be the one that trains."""
        import torch

        self._optimizers.append(optimizer)
        if (self._asked.save or self._asked.load) and self._hook is None and self.why:
            self._hook = torch.nn.modules.module.register_module_forward_pre_hook(self._before_call)
        self._seed_streams()

    def end(self) -> None:
        """The first update has come: no call is waited for any more."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def end_step(self) -> None:
        """The first step is over."""
        self.streams = digest_of_streams()

    def _before_call(self, module: Any, arguments: Any) -> None:
        import torch

        if threading.get_ident() != self._thread or not torch.is_grad_enabled():
            return
        own = {id(parameter) for parameter in module.parameters()}
        if not any(id(p) in own for each in self._optimizers for group in each.param_groups for p in group["params"]):
            return
        self.end()
        self._carry()

    def _carry(self) -> None:
        """Do what is asked, each time with another file."""
        suffix, self._carried = f".{self._carried}", self._carried + 1
        own = Start(self._asked.save and self._asked.save + suffix, self._asked.load and self._asked.load + suffix)
        try:
            self.why = _carry(find_models(self._optimizers), own)
        except Exception as error:  # states of a kind that does not pickle, or a full disk: then nothing was carried
            self.why = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"


def _carry(models: Models, asked: Start) -> str:
    """Do what is asked with the parameters; why not all of those that are trained could be taken, "" if they could."""
    import torch

    kinds = Counter(_kind(each) for each in models.others)
    others = {_kind(each): each for each in models.others if kinds[_kind(each)] == 1}  # a teacher, a target network
    if asked.save:
        states = [each.state_dict() for each in models.trained]
        torch.save(
            {"trained": states, "others": {name: each.state_dict() for name, each in others.items()}}, asked.save
        )
    if asked.load:
        # The file was written by our own child a moment ago; weights_only all the same.
        kept = torch.load(asked.load, weights_only=True, map_location="cpu")
        if len(kept["trained"]) != len(models.trained):
            return f"it trains {len(models.trained)} models, your code {len(kept['trained'])}"
        for model, state in zip(models.trained, kept["trained"], strict=True):
            if why := take_state(model, state):
                return f"the patch changes which parameters there are, {why}"
        for name, model in others.items():
            take_state(model, kept["others"].get(name, {}))
    return ""


def _kind(module: Any) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"
