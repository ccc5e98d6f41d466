"""The first steps of a script's training, for comparing two of them. Child only.

Building the training has made the first step already, from the script's own seed: its gradients were kept. What is to be the same
in two trainings (parameters, the random stream) is made so at the end of that step, and losses count from there on.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from perfaudit.errors import NoBatches
from perfaudit.measure import gradients
from perfaudit.measure.memory import memory_of_script
from perfaudit.target.autocasts import autocasts
from perfaudit.target.load import is_out_of_memory
from perfaudit.target.random_streams import seed_all
from perfaudit.training.parameters import nudge, take_parameters
from perfaudit.training.script_average import Averages

Reply = dict[str, Any]  # JSON


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the first steps of a training.

    save_state / load_state: a file to keep the initial parameters in, or to take them from (only keys that this model has; where
    the file lacks one, nothing is taken and "why" names it). save_gradients / load_gradients: a file to keep the gradients of the
    first step in, or to compare them with ("gradients": see `measure.gradients`). may_lack: a parameter that the model lacks had
    no gradient, or it counts as a gap. nudge: move each parameter by this share of itself, up or down by chance. observe: say
    under "dtypes" which types autocast was entered with. memory: the peak of one more step too, as the verb `memory` has it.
    """

    steps: int
    seed: int
    save_state: str = ""
    load_state: str = ""
    save_gradients: str = ""
    load_gradients: str = ""
    may_lack: bool = False
    nudge: float = 0.0
    observe: bool = False
    memory: bool = False


def first_losses(training: Any, asked: Request) -> Reply:  # Any: training.script_training.ScriptTraining
    """The losses of the steps behind the first one, as `verbs.first_losses.losses` has them; of each step, its last loss.

    With them, under "start" why the first step did not begin as was asked ("" if it did), under "streams" what tells apart how
    many random numbers the first step has drawn, and under "stood" the same of what was drawn before it. Parameters of the
    asked state are taken only where it did not. Under "averages" is how far averages of its weights have moved behind that
    step: see `training.script_average`.
    """
    import torch

    if asked.save_state:
        torch.save(training.model.state_dict(), asked.save_state)
    why = ""
    found: Reply = {"start": training.start.why, "streams": training.start.streams, "stood": training.start.stood}
    if asked.load_state and training.start.why:
        why = take_parameters(training.model, asked.load_state)
    if asked.nudge:
        nudge(training.model, asked.nudge)
    first = training.first_gradients
    if asked.save_gradients:
        named = {gradients.plain_name(name): gradient for name, gradient in first.items()}
        gradients.write(named, training, training.first_batch, asked.save_gradients)
    if asked.load_gradients:
        kept = gradients.KeptGradients(training.model, first)
        found["gradients"] = gradients.compare_with_file(
            training, training.first_batch, asked.load_gradients, kept, asked.may_lack
        )
    seed_all(asked.seed)
    losses, averages = [], Averages(training)
    with autocasts() if asked.observe else contextlib.nullcontext(set[str]()) as dtypes:
        for _ in range(asked.steps):
            training.whole_step()
            losses.append(float(training.last_loss).hex())
    found["averages"] = [
        [name, is_trained, *(x.hex() for x in each)] for name, is_trained, *each in averages.take_movements(asked.steps)
    ]
    if asked.memory:
        found["memory"] = _memory(training)
    return {"losses": losses, "why": why, "dtypes": sorted(dtypes), **found}


def _memory(training: Any) -> Reply | None:  # Any: training.script_training.ScriptTraining
    """The peak of one more step, as the verb `memory` has it; None where the script has none, or ends in it by an error of its
    own, as far as can be told: the check asks a process of its own then. Raises what another one raises.
    """
    try:
        seen = memory_of_script(training)
    except NoBatches:
        return None
    except Exception as error:
        if not training.has_ended or is_out_of_memory(error):
            raise
        return None
    return {"peak_bytes": seen.tensors, "taken_bytes": seen.bytes_on_device}
