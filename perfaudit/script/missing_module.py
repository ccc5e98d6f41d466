"""Which Python runs a script that imports what is not installed there: perfaudit may be in another environment. Pure."""

from __future__ import annotations

import sys


def python_without(error: BaseException) -> str:
    """ ". It runs with /venv/bin/python, which has no `einops`"; "" of other errors, and of a part of a package that is there."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or "." in error.name:
        return ""
    return f". It runs with {sys.executable}, which has no `{error.name}`"
