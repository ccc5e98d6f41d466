"""The child's side of a migration: builds the target, loads the old file, folds, checks, writes. The user's code runs here."""

from __future__ import annotations

import os
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfaudit.checkpoints.check import fold_and_compare
from perfaudit.checkpoints.fold import Copy, Loaded, Refused, copies, refuse_lists_of_parameters
from perfaudit.checkpoints.observed_model import observe_model, old_layouts
from perfaudit.checkpoints.optimizer_state import Dropped, drop, optimizer_states
from perfaudit.target.names import Target
from perfaudit.target.working_folder import full_path
from perfaudit.training.factory_training import FactoryTraining

Json = dict[str, Any]


def migrate(target: Json, device: str, old: str, new: str) -> Json:
    """Fold the checkpoint `old` for the target as its source is now and save it as `new` (nothing is saved for "").

    Replies with what was folded, where, and how well old and new agree; with "refused" and a reason instead where the
    file is not understood.
    """
    import torch

    training = FactoryTraining(Target(target["file"], target["names"]), device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # old and new are compared
    try:
        wanted = observe_model(training)
        data = _load(full_path(old))
        found = copies(data, wanted)
        folds = found[0].folds
        layouts, shapes = old_layouts(training, folds)
        refuse_lists_of_parameters(data, list(shapes.values()))
        removed = {key for each in folds for key in each.biases}
        dropped = [drop(place, state, layouts, shapes, removed) for place, state in optimizer_states(data)]
        agreement = fold_and_compare(training, found, wanted)
        _try_optimizers(training, data)
        if new:
            _save(data, full_path(new))
    except Refused as refused:
        return {"refused": str(refused)}
    return {**_migration_json(found, dropped), "agreement": asdict(agreement)}


def _migration_json(found: list[Copy], dropped: list[Dropped]) -> Json:
    return {
        "folds": [
            {"layer": f.layer, "norm": f.norm, "norm_kind": f.norm_kind, "width": f.width, "folded": bool(f.means)}
            for f in found[0].folds
        ],
        "copies": [copy.name for copy in found],
        "optimizers": [asdict(each) for each in dropped],
    }


def _load(path: str) -> Loaded:
    """The file's content on the CPU. Raises Refused for what `weights_only` does not load, naming what is inside."""
    import torch

    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError) as error:
        classes = _classes_in(path)
        if classes:
            raise Refused(
                f"it holds objects that torch.load refuses with weights_only=True ({', '.join(classes[:6])}); save it again "
                "as state dicts, numbers and text"
            ) from error
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise Refused(f"torch.load cannot read it with weights_only=True: {first[:200]}") from error


def _classes_in(path: str) -> list[str]:
    """Names of classes and functions in a file that `weights_only` does not allow; [] if that cannot be told."""
    import torch

    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:  # what cannot be read has no list; the caller says why it cannot be read
        return []


def _try_optimizers(training: FactoryTraining, data: Loaded) -> None:
    """Raise Refused if the target's own optimizer does not take the migrated state."""
    if not training.builds_own_optimizer:
        return
    for place, state in optimizer_states(data):
        try:
            training.optimizer.load_state_dict(state)
        except (ValueError, KeyError, RuntimeError) as error:
            raise Refused(f"{place}: the target's optimizer does not take the migrated state: {error}") from error


def _save(data: Loaded, path: str) -> None:
    import torch

    with Path(path).open("wb") as file:
        torch.save(data, file)
        file.flush()
        os.fsync(file.fileno())
