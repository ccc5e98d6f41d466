"""What is known of the training of this process, as JSON. Child only."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path
from typing import Any

from perfaudit.script.own_files import OwnFiles
from perfaudit.script.watch import Watch

Json = dict[str, Any]  # Any: nested JSON
READING_SECONDS = 1.0  # for the lengths of samples, of which only the place and the range are wanted
MOST_NAMED = 64  # optimizers; a script may build a new one for each task


def facts_of(watch: Watch, files: OwnFiles) -> Json:
    """What the training consists of, as far as it was seen."""
    from perfaudit.target.accelerator import accelerator_of, device_in_use

    facts: Json = {
        "torch_at": watch.counts.torch_at,
        "loader_at": watch.counts.loader_at,
        "first_batch_at": watch.counts.first_batch_at,
        "first_update_at": watch.counts.first_update_at,
        "optimizers": watch.kinds_of_optimizers[:MOST_NAMED],
        "optimizer_calls": watch.calls_of_optimizers(),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        * (1 if sys.platform == "darwin" else 1024),
        "device": "cpu",
        "files": files.names(),
        "loaders_read": watch.loaders.were_read(),
        "loaders_never_read": watch.loaders.never_read(),
        "has_long_updates": watch.has_long_updates,
        "is_traced": sys.gettrace() is not None,
        "torch": getattr(sys.modules.get("torch"), "__version__", ""),
        "threads": sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 0,
    }
    if "torch" in sys.modules and (device := device_in_use()):
        peak = accelerator_of(sys.modules["torch"].device(device)).peak_bytes()
        facts |= {"device": device, "peak_memory_bytes": peak}
    if watch.of_rank is not None and "torch" in sys.modules:
        facts["collectives"] = watch.of_rank.collectives.facts()
        facts["wrapped"] = watch.of_rank.collectives.wrapped_models()
        facts["reads_iterable"] = _reads_iterable(watch)
    return facts


def _reads_iterable(watch: Watch) -> bool:
    """Whether the loader that gave the last batch has a dataset that gives samples in an order of its own."""
    from torch.utils.data import IterableDataset

    return isinstance(getattr(watch.loaders.last_read(), "dataset", None), IterableDataset)


def sample_lengths(watch: Watch) -> Json:
    """What in a sample has the length that batches are padded to, see `told_lengths`; {} where the loader puts none together."""
    from torch.utils.data import IterableDataset, default_collate, default_convert

    from perfaudit.target.sample_lengths import told_lengths

    loader = watch.loaders.last_read()
    if loader is None or loader.batch_size is None or isinstance(loader.dataset, IterableDataset):
        return {}
    if loader.collate_fn in (default_collate, default_convert):
        return {}
    return told_lengths(loader, READING_SECONDS)[1]


def bytes_in_use() -> int:
    """Of the device where one is used, else of this process; 0 where the system does not tell."""
    from perfaudit.target.accelerator import accelerator_of, device_in_use

    if "torch" in sys.modules and (device := device_in_use()):
        return accelerator_of(sys.modules["torch"].device(device)).reserved_bytes() or 0
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return 0
