"""The report as JSON, schema `perfaudit.report/1`."""

from __future__ import annotations

import json

from perfaudit.report import Report, to_json


def render(report: Report) -> str:
    """One JSON document, keys in the order of the contract, with a final line end; ASCII, so that every stream takes it."""
    return json.dumps(to_json(report), indent=2, allow_nan=False) + "\n"
