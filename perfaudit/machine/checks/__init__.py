"""Checks of the machine: each module has `AREA` and `look(place)`; it is found by its file's name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Protocol, cast

from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact


class Check(Protocol):
    """A module of this folder."""

    AREA: str

    def look(self, place: Place) -> Iterable[MachineFact]: ...


# How areas follow each other in a report; within one, checks are in the order of their names.
AREAS = ("processor", "memory", "storage", "python", "torch", "devices", "variables")


def all_checks() -> list[Check]:
    """Every check, in the order of areas."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    checks = [cast(Check, importlib.import_module(f"{__name__}.{name}")) for name in names]
    return sorted(checks, key=lambda check: AREAS.index(check.AREA))


def look_at(place: Place) -> list[MachineFact]:
    """What all checks say. A check that fails is a fact whose value is not known, with the reason."""
    found: list[MachineFact] = []
    for check in all_checks():
        try:
            found += check.look(place)
        except Exception as error:  # a file of the system in a form that nobody has seen: the other facts still count
            name = getattr(check, "__name__", "").rpartition(".")[2].replace("_", " ")
            reason = f"not told: {type(error).__name__}: {error}"
            found.append(MachineFact(check.AREA, name, None, state="unknown", advice=reason))
    return found
