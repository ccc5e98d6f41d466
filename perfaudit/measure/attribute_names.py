"""What another part does in a child: its parent, which imports that part, names it as module:attribute.

So no part of the child's side imports one that it must not know, and the import that allows it stands in the parent, where
`tests/test_architecture.py` sees it.
"""

from __future__ import annotations

import importlib
from operator import attrgetter
from typing import Any


def name_of(function: Any) -> str:  # Any: a function of a module
    """How a parent names a function of a module for a child."""
    return f"{function.__module__}:{function.__qualname__}"


def find_named(name: str) -> Any:  # Any: whatever the parent named
    """What a parent has named so. Raises ImportError or AttributeError for what is not there."""
    module, _, attribute = name.partition(":")
    return attrgetter(attribute)(importlib.import_module(module))
