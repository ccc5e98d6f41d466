"""Whether a loader yields the same samples with workers as without, so that another number of them changes only the time."""

from __future__ import annotations

import ast
import math
from types import FunctionType
from typing import Any

from perfaudit.knobs import Bench, Refused, Reply, Survey, Unanswered
from perfaudit.knobs._code import Code
from perfaudit.knobs._loader_arguments import call_of_loader
from perfaudit.measurements import Settings

MAP_SECONDS = 0.3  # of a pass that compares samples, where torch draws the indices itself,
ALIKE_SECONDS = 1.0  # and at most, where that pass tells whether anything random is in them
# Collators of transformers that draw nothing (data/data_collator.py of 5.24); those that mask words do.
_DRAW_NOTHING = {
    "default_data_collator",
    "torch_default_data_collator",
    "DefaultDataCollator",
    "DataCollatorWithPadding",
    "DataCollatorForTokenClassification",
    "DataCollatorForMultipleChoice",
    "DataCollatorForSeq2Seq",
}
ALIKE_SAMPLES, ALIKE_BATCHES = 64, 2  # at least, to say so; rare augmentation would still be missed in fewer


def may_load_alike(survey: Survey) -> bool:
    """Whether workers may change nothing but the time: batches of a script keep their order where it draws their indices.

    So does transformers' Trainer, which draws them in the training process as torch does.
    """
    return survey.facts.is_script and not survey.facts.loader.iterable


def draws_nothing(collate: Any) -> bool:
    """Whether a function that puts samples together is known to draw no random numbers: torch's own, or one of transformers'."""
    from torch.utils.data import default_collate, default_convert

    if type(collate).__name__ == "RemoveColumnsCollator" and _is_of_transformers(type(collate)):
        collate = collate.data_collator  # the Trainer's, around that of the user
    if collate in (default_collate, default_convert):
        return True
    kind = collate if isinstance(collate, FunctionType) else type(collate)
    if not _is_of_transformers(kind):
        return False
    is_causal = kind.__name__ == "DataCollatorForLanguageModeling" and collate.mlm is False
    return is_causal or kind.__name__ in _DRAW_NOTHING


def _is_of_transformers(kind: type | FunctionType) -> bool:
    return (kind.__module__ or "").partition(".")[0] == "transformers"


def are_alike(found: Reply) -> bool:
    """Whether enough samples were compared, and were the same with other random numbers and in workers."""
    is_same = found.get("is_plain") and "" in found["compared"] and not found["random"] and not found["differing"]
    is_enough = found["whole"] or found["samples"] >= ALIKE_SAMPLES
    return bool(is_same and is_enough and found.get("batches", 0) >= ALIKE_BATCHES)


def changes_its_dataset(survey: Survey) -> bool:
    """Whether the file that builds the loader changes its dataset; no where no line of the user's builds it."""
    from perfaudit.static.checks.dataloader_workers_not_persistent import dataset_changes

    code, loader = Code("", survey), survey.facts.loader
    if loader.site is None and (called := call_of_loader(code)) is not None:
        given = [called[1].func, *called[1].args, *(keyword.value for keyword in called[1].keywords)]
        return dataset_changes(
            *called, {node.id for each in given for node in ast.walk(each) if isinstance(node, ast.Name)}
        )
    found = code.call(loader.site)
    return found is not None and dataset_changes(*found)


def counts_alike(bench: Bench, alone: Settings, counts: list[int], seen: Reply | None) -> list[int]:
    """Those numbers of workers that yield the samples that none do; what was compared is kept for the remarks.

    Raises Refused where workers fail, where an iterable dataset does not share its samples out, or where that cannot be told.
    """
    iterable = bool(bench.survey.facts.loader.iterable)
    asked = sorted({n for n in counts if n} | ({2} if iterable else set()))
    most = _most_batches(seen, bench.survey) if seen else 1
    try:
        found = bench.kept["samples"] = bench.ask(alone, "samples", counts=asked, most=most)
    except Unanswered as failure:
        raise Refused(f"loading with workers was tried and failed: {failure}") from None
    if why := found.get("failed"):
        raise Refused(f"loading with a worker was tried and failed: {why}")
    if iterable and (why := _why_refused(found)):
        yours = int(bench.survey.facts.loader.num_workers)
        twice = f"; with your num_workers={yours} a training sees each sample {yours} times an epoch"
        raise Refused(why + (twice if yours > 1 and found["repeats"] else ""))
    return [n for n in counts if n not in found["differing"]]


def _most_batches(seen: Reply, survey: Survey) -> int:
    """Batches to compare: as many as load in a moment, or as it takes to say that nothing random is in them."""
    fetch = max(float(seen["fetch"]), 1e-6)
    enough = max(ALIKE_BATCHES, math.ceil(ALIKE_SAMPLES / max(1, int(seen["samples"] or 0))))
    is_worth = may_load_alike(survey) and not changes_its_dataset(survey) and enough * fetch <= ALIKE_SECONDS
    return max(1, math.floor(MAP_SECONDS / fetch), enough if is_worth else 1)


def _why_refused(found: Reply) -> str:
    if found["repeats"]:
        n, with_workers, without = found["repeats"]
        return (
            f"each of {n} workers yields every sample again: {with_workers} samples with {n} workers, {without} with none; "
            "the dataset does not share its samples out (torch.utils.data.get_worker_info() in __iter__)"
        )
    if not found["whole"]:
        return (
            f"the iterable dataset does not end within {found['samples']} samples, "
            "so whether workers would repeat samples cannot be told"
        )
    if not found["compared"]:
        return "the iterable dataset yields other samples on every pass, so whether workers repeat some cannot be told"
    if found["differing"]:
        n = found["differing"][0]
        return f"with {n} workers the iterable dataset yields other samples than with none"
    return ""


def said_of_samples(found: Reply | None) -> list[str]:
    """What comparing them has shown, in sentences."""
    if found is None:
        return []
    which = "all samples of an epoch" if found["whole"] else f"the first {found['samples']} samples of an epoch"
    if found["differing"]:
        counts = " and ".join(map(str, found["differing"]))
        return [
            f"not tried: with {counts} worker{'s' if found['differing'] != [1] else ''} {which} differ from those without"
        ]
    if found["random"]:
        return [f"{which} were compared with and without workers: the same, but for what is random in them"]
    return [f"{which} were compared with and without workers: the same"]
