"""What somebody wants run: a script or a module with its arguments, and how much of it."""

from __future__ import annotations

import dataclasses
import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Script:
    """A script, by path, or a module, by its dotted name, with the arguments it is given."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    def __str__(self) -> str:
        """As it is typed after `python`."""
        return shlex.join([*(["-m"] if self.is_module else []), self.name, *self.arguments])


@dataclass(frozen=True, slots=True)
class Request:
    """A script, and when it is ended: after so many steps, or seconds of training, whichever is first; 0 for never.

    scratch: the folder that takes what the script writes; None where its files are its own. mounts: by overlay mounts, where
    the machine allows them. profile: whether a few more steps are profiled at the end. values: whether losses and norms of
    gradients are read. is_live: whether memory, and how far the script has come, are told as it runs. is_whole: whether phases
    are timed in each step, and not in some of them. is_rank: whether it is one of several
    processes of a launcher, so that what it waits for in collectives is timed. texts: files that run with
    another text. seed: of all random streams, when torch has been imported; None for as the script leaves them. reads_samples:
    whether some samples are read behind the last step, to tell their lengths.
    """

    script: Script
    steps: int = 0
    seconds: float = 0.0
    scratch: Path | None = None
    mounts: bool = True
    profile: bool = False
    values: bool = False
    is_live: bool = False
    is_whole: bool = False
    is_rank: bool = False
    texts: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    reads_samples: bool = False

    def to_json(self, pipe: int, trace: int = -1, stands: int = -1) -> str:
        """For the child, which tells what it sees on a descriptor, and writes the trace of a profile to another one.

        stands: a descriptor of a file for where it stands, see `stands`.
        """
        return json.dumps(
            dataclasses.asdict(self.script)
            | {
                "steps": self.steps,
                "seconds": self.seconds,
                "scratch": str(self.scratch) if self.scratch else "",
                "mounts": self.mounts,
                "pipe": pipe,
                "profile": self.profile,
                "values": self.values,
                "is_live": self.is_live,
                "is_whole": self.is_whole,
                "is_rank": self.is_rank,
                "texts": self.texts,
                "seed": self.seed,
                "reads_samples": self.reads_samples,
                "trace": trace,
                "stands": stands,
            }
        )
