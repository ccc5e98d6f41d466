"""The report as JSON, schema `perfaudit.report/1`."""

from __future__ import annotations

from perfaudit.render.words import json_text
from perfaudit.report import Report, to_json


def render(report: Report) -> str:
    """One JSON document, keys in the order of the contract, with a final line end; ASCII, so that every stream takes it."""
    return json_text(to_json(report))
