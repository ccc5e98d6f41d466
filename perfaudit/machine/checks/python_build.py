"""The Python that runs this, and what slows it."""

from __future__ import annotations

import platform
import sys
import sysconfig
from collections.abc import Iterator

from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact

AREA = "python"


def look(place: Place) -> Iterator[MachineFact]:
    yield MachineFact(AREA, "version", platform.python_version(), basis="sys")
    if sysconfig.get_config_var("Py_DEBUG"):
        yield MachineFact(
            AREA, "build", "debug", "", "warning", "a debug build runs several times as slowly", "sysconfig"
        )
    if sys.flags.dev_mode:
        yield MachineFact(
            AREA, "mode", "development", "", "warning", "unset PYTHONDEVMODE, leave `-X dev` out", "sys.flags"
        )
    if place.environment.get("COVERAGE_PROCESS_START") or place.environment.get("COVERAGE_RUN"):
        yield MachineFact(
            AREA,
            "coverage",
            "on",
            "",
            "warning",
            "lines are traced: Python code takes several times as long",
            "variables",
        )
