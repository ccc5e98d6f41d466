"""What `perfaudit doctor` tells of a machine: `doctor` of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "warning", "unknown"]


@dataclass(frozen=True, slots=True)
class MachineFact:
    """One thing about this machine or this process.

    area: under which it is shown. value: a number in `unit`, or words; None where it is not known. state: "note" for what is
    worth knowing, "warning" for what slows a training or spoils a measurement. advice: what to do, "" for nothing. basis: where
    it was read.
    """

    area: str
    name: str
    value: float | int | str | None
    unit: str = ""
    state: State = "ok"
    advice: str = ""
    basis: str = ""
