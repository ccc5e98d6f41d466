"""Runs of a benchmark, kept as JSON lines as they end, and the page that is made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def read(path: Path) -> list[Json]:
    """The runs of a file, in their order; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def keep(path: Path, record: Json) -> None:
    """Add a run to a file."""
    with path.open("a") as out:
        out.write(json.dumps(record) + "\n")


def tell(text: str, page: Path, write: bool) -> None:
    """Print a page, and write it where it was asked for."""
    print(text)
    if write:
        page.write_text(text, encoding="utf-8")
