"""Versions of the baseline file: what makes this one of an older one, and the words for a newer one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfaudit.errors import ConfigError

SCHEMA = "perfaudit.gate/1"

Json = dict[str, Any]  # Any: nested JSON


def _of_a_scan(data: Json) -> Json:
    """The file that `perfaudit scan --baseline` keeps: findings only."""
    return {**data, "schema": SCHEMA, "accepted": [], "targets": {}}


# What makes the next version of an older one. For perfaudit.gate/2: change SCHEMA, and add a row "perfaudit.gate/1" whose
# function returns the keys of version 2; rows are followed until SCHEMA is reached.
_MIGRATIONS: dict[str, Callable[[Json], Json]] = {"perfaudit.baseline/1": _of_a_scan}


def in_this_version(data: Any, path: Path) -> Json:
    """The content with the keys of this version. Raises ConfigError for a newer one and for what is no baseline."""
    while True:
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema == SCHEMA:
            return dict(data)
        migrate = _MIGRATIONS.get(schema) if isinstance(schema, str) else None
        if migrate is None:
            break
        data = migrate(data)
    if isinstance(schema, str) and re.fullmatch(r"perfaudit\.(gate|baseline)/[1-9]\d{,5}", schema):
        raise ConfigError(f"{path}: made by a newer perfaudit ({schema}); this one reads {SCHEMA}: upgrade it")
    raise ConfigError(f"{path}: not a baseline of `perfaudit gate`; this one reads {SCHEMA}")
