"""What a child holds: one training of the user's, and what was made for it. Verbs work on it (`measure.verbs`)."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfaudit.measure.agreement import Alone
    from perfaudit.measure.imported_libraries import ImportsNoted
    from perfaudit.measure.screening import Screening
    from perfaudit.measure.twins import Twins
    from perfaudit.training.loader_variant import LoaderVariants


class Holder:
    """The one training of this process and what belongs to it. Nothing is built yet.

    replies: the descriptor of replies, for what is said while a command is under way; -1 without one.
    """

    def __init__(self, replies: int = -1) -> None:
        self.replies = replies
        self.doing = "starting"  # for messages: what the user's code is run for
        self.built = False  # faults from here on are those of a step
        self.training: Any = None  # Any: a FactoryTraining once it is built, of which verbs need not ask
        self.on_fixed_batch = False
        self.in_force = contextlib.ExitStack()  # what a knob's setting has changed
        self.relocated: list[str] | None = None  # a folder from which nothing may be imported, and what takes its place
        self.scratch = ""  # the folder below which this process has one of its own for what a script writes
        self.imports: ImportsNoted | None = None  # of a script
        self.padding: list[bytearray] = []  # kept for where it lies
        self.screening: Screening | None = None
        self.twins: Twins | None = None
        self.loaders: LoaderVariants | None = None
        self.agreement: Alone | None = None  # with the other ranks of the training

    def refuse(self, why: str) -> None:
        """Reply that the target cannot be measured, from any thread or fork, while the command waits for the user's code."""
        if self.replies >= 0:
            os.write(self.replies, json.dumps(refusal(why)).encode() + b"\n")

    def close(self) -> None:
        """Put back what a setting has changed, and end twins, loaders and the training."""
        self.in_force.close()
        for held in (self.twins, self.loaders, self.training):
            if held is not None:
                held.close()


def refusal(why: str) -> dict[str, str]:
    """The reply that says why a target cannot be measured."""
    return {"fault": "target", "message": why}
