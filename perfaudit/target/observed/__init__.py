"""What a built training does when it runs, observed in a child that is never timed: each part a file of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

BATCHES = 3  # that a parameter must be unused in: models drop whole layers by chance


def observe(training: Any) -> Json:  # Any: training.factory_training.FactoryTraining
    """Layer-norm pairs, all layers, syncs, unused parameters, unaligned sizes, types and layouts of a training, as JSON.

    A part that fails is a line of "problems" and leaves its value empty. The training goes on afterwards, some steps
    further: the syncs are those of a real step. Its times mean nothing from here on.
    """
    seen: Json = {
        "pairs": [],
        "layers": [],
        "syncs": [],
        "unused_parameters": [],
        "unaligned": [],
        "dtypes": {},
        "layouts": {},
        "problems": [],
    }
    parts: dict[str, Callable[[Any], Json]] = {
        "pairs": _pairs,
        "layers": _layers,
        "unused_parameters": _find_unused_parameters,
        "unaligned": _find_unaligned_layers,
        "layouts": _layouts,
        "syncs": _syncs,  # the last, as it makes steps
    }
    for name, part in parts.items():
        try:
            seen.update(part(training))
        except (Exception, SystemExit) as error:  # whatever the user's code raises when it is watched
            seen["problems"].append(f"{name}: {_words(error)}")
    return seen


def _words(error: BaseException) -> str:
    from perfaudit.errors import TargetError
    from perfaudit.target.load import where, words_of_error
    from perfaudit.target.observed.same_state import Unobservable

    text = words_of_error(error)[:300]
    if isinstance(error, (TargetError, Unobservable)):
        return text
    return f"{type(error).__name__}: {text}{where(error)}"


def _forward(training: Any) -> Callable[[], Any]:
    batch = training.fixed_batch()
    return lambda: _loss(training, batch)


def _loss(training: Any, batch: Any) -> Any:
    with training.around_loss():
        return training.loss(batch)


def _pairs(training: Any) -> Json:
    from perfaudit.target.observed.adjacency import pairs

    return {"pairs": pairs(training.model, _forward(training), training.module_sites)}


def _layers(training: Any) -> Json:
    from perfaudit.target.observed.layers import layers

    return {"layers": layers(training, _forward(training))}


def _find_unused_parameters(training: Any) -> Json:
    from perfaudit.target.observed.unused_parameters import unused_parameters

    batches = [training.fixed_batch(), *(training.to_device(training.next_batch()) for _ in range(BATCHES - 1))]
    losses = (lambda batch=batch: _loss(training, batch) for batch in batches)
    return {"unused_parameters": unused_parameters(training.model, losses, training.module_sites)}


def _find_unaligned_layers(training: Any) -> Json:
    from perfaudit.target.observed.alignment import unaligned_layers

    return {"unaligned": unaligned_layers(training.model, _forward(training), training.module_sites)}


def _layouts(training: Any) -> Json:
    from perfaudit.target.observed.layout import flowing

    dtypes, layouts = flowing(training.model, _forward(training))
    return {"dtypes": dtypes, "layouts": layouts}


def _syncs(training: Any) -> Json:
    from perfaudit.target.observed.syncs import syncs

    return {"syncs": syncs(training)}
