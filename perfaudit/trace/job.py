"""Which rank of which job a trace is of, and which devices it has: from its head, else from the name of its file."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from perfaudit.trace.recording import Recording

_RANK_IN_NAME = re.compile(r"(?:rank|worker|gpu|proc|process)[-_.]?(\d{1,5})(?!\d)", re.IGNORECASE)
# What torch.profiler's tensorboard_trace_handler calls a file: host, process, time.
_OF_HANDLER = re.compile(r"_\d+\.\d{8,}\.pt\.trace\.json", re.IGNORECASE)
_ONLY_NUMBER = re.compile(r"^(\d{1,5})(?:[-_.]trace)?(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$", re.IGNORECASE)
EXPORT_OF = "perfauditExportOf"  # in the head of what `--export` writes: the file that the step was cut out of
LONGEST_VALUE = 40  # letters of what a file says of its job


def take_head(recording: Recording) -> None:
    """Rank, size of the job, names and capabilities of the devices."""
    head = recording.head
    info = head.get("distributedInfo")
    if isinstance(info, dict):
        recording.rank = _number(info.get("rank"))
        if recording.rank is not None and recording.rank < 0:
            recording.rank = None
        recording.world_size = _number(info.get("world_size"))
        recording.job = _job_of(info)
    if recording.rank is None:
        recording.rank = _number(head.get("rank"))
    if recording.rank is None:
        recording.rank = rank_in_name(recording.file)
    if isinstance(whole := head.get(EXPORT_OF), str):
        recording.export_of = whole
        recording.notes.add("export")
    properties = head.get("deviceProperties")
    for number, item in enumerate(properties if isinstance(properties, list) else []):
        if isinstance(item, dict):
            _take_device(recording, _number(item.get("id")), number, item)


def rank_in_name(name: str) -> int | None:
    """The rank that a file's name tells: of `rank3.json.gz`, `rank-3.json`, `trace_rank_3.json`,
    `worker3.pt.trace.json`, `3.json`.
    """
    stem = PurePosixPath(name.replace("\\", "/").replace(":", "/")).name
    if _OF_HANDLER.search(stem):
        return None  # host and process, whatever the host is called
    for pattern in (_RANK_IN_NAME, _ONLY_NUMBER):
        if found := pattern.search(stem):
            return int(next(group for group in found.groups() if group is not None))
    folder = PurePosixPath(name).parent.name
    found = re.fullmatch(r"rank[-_.]?(\d{1,5})", folder, re.IGNORECASE)
    return int(found[1]) if found else None


def _take_device(recording: Recording, given: int | None, number: int, item: dict[str, Any]) -> None:  # Any: JSON
    device = number if given is None else given
    name = item.get("name")
    if isinstance(name, str):
        recording.device_names[device] = name.strip().encode("utf-8", "replace").decode()
    major, minor = _number(item.get("computeMajor")), _number(item.get("computeMinor"))
    if major is not None:
        recording.capabilities[device] = (major, minor or 0)


def _job_of(info: dict[str, Any]) -> str:  # Any: JSON
    """What all ranks of a job have in common in `distributedInfo`."""
    common = [(key, info.get(key)) for key in ("backend", "world_size", "nccl_version")]
    return " ".join(f"{key}={str(value)[:LONGEST_VALUE]}" for key, value in common if isinstance(value, str | int))


def _number(value: Any) -> int | None:  # Any: JSON
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if abs(value) < 1 << 31 else None
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
        return int(value)
    return None
