"""The format `html`: one file that can be passed on. Its modules are imported when a page is asked for."""

from __future__ import annotations

from perfaudit.report import Report


def render(report: Report) -> str:
    """The page of a report, `page.LIMIT` bytes at most."""
    from perfaudit.render.html.page import report_page

    return report_page(report)
