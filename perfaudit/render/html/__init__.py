"""The format `html`: one file that can be passed on. Its modules are imported when a page is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perfaudit.report import Report

if TYPE_CHECKING:
    from perfaudit.findings import Location
    from perfaudit.render.html.code import Excerpt


def render(report: Report, code: Mapping[Location, Excerpt] | None = None) -> str:
    """The page of a report, `page.LIMIT` bytes at most. code: lines around places of findings that have no patch."""
    from perfaudit.render.html.page import report_page

    return report_page(report, code or {})
