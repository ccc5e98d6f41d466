"""Functions of torch and of the script's models, each with one of ours around it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]  # Any: of torch, or one of ours in its place


def replace(owner: Any, name: str, watch: Callable[[Function], Function]) -> None:
    """Put a function in the place of an attribute. watch: makes it of the original."""
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(watch(original)))
