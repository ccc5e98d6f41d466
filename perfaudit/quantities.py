"""Durations, sizes and shares as people write them. Standard library only."""

from __future__ import annotations

import math
import re

from perfaudit.errors import UserError

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def seconds_of(text: str) -> float:
    """Seconds of "90", "90s", "5m" or "1h". Raises UserError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if not match or float(match[1]) <= 0:
        raise UserError(f"{text!r} is no duration; write e.g. 90s, 5m or 1h")
    return float(match[1]) * _SECONDS[match[2]]


def bytes_of(text: str) -> int:
    """Bytes of "8GiB", "8G", "500M" or "1000000". Raises UserError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if not match or float(match[1]) <= 0:
        raise UserError(f"{text!r} is no amount of memory; write e.g. 8GiB or 500MiB")
    return math.floor(float(match[1]) * _BYTES[match[2]])


def share_of(text: str) -> float:
    """The share that "5%" or "0.5 %" names: 0.05, 0.005. Raises UserError, for a bare number too: it could mean both."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if not match:
        raise UserError(f"{text!r} is no percentage; write e.g. 5%")
    return float(match[1]) / 100


def percent(share: float) -> str:
    """A share with one digit, and none where it is whole: 0.05 is "5 %"."""
    return f"{100 * share:.1f} %".replace(".0 %", " %")
