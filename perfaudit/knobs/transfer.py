"""Copies of batches to an accelerator: from page-locked memory or not, with the host waiting or not."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from typing import Any

from perfaudit.findings import Edit
from perfaudit.knobs import Bench, Facts, Knob, Setup, Told
from perfaudit.knobs._code import Code, Patch, places_of
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.source import Source

_POSITION = 7  # of pin_memory in DataLoader.__init__


class Transfer(Knob):
    """Judged by the whole step: a copy that the host does not wait for runs beside other work, and no part shows that.

    The step that is measured copies batches itself; where the user's loop waits is read from findings.
    """

    name = "transfer"
    title = "pin_memory × non_blocking of the copies to the accelerator"
    rules = ("PA102", "PA104")
    phases = ()
    base_is_applied = True
    in_process = False  # a thread of the loader pins what its workers deliver
    fixed_batch = False

    def not_applicable(self, facts: Facts) -> str:
        if facts["device"] == "cpu":
            return "nothing is copied to a device: this training runs on cpu"
        if facts["device"] == "mps":  # https://github.com/pytorch/pytorch/issues/139550
            return (
                "the CPU and this device (mps) share their memory, and copies that are not waited for lose data there"
            )
        return ""

    def current(self, facts: Facts) -> Settings:
        """From pageable memory the host waits in any case; from pinned memory, where a finding says so."""
        pinned = bool(facts["loader"]["pin_memory"])
        return {"pin_memory": pinned, "non_blocking": pinned and not places_of(facts, "PA104")}

    def candidates(self, bench: Bench) -> list[Settings]:
        now = self.current(bench.facts)
        tried: list[Settings] = [{"pin_memory": p, "non_blocking": n} for p in (True, False) for n in (True, False)]
        return [settings for settings in tried if settings != now]

    def size(self, settings: Settings) -> tuple[bool, bool]:
        """Page-locked memory is not available to others."""
        return bool(settings["pin_memory"]), bool(settings["non_blocking"])

    def setup(self, settings: Settings) -> Setup:
        return Setup(
            loader_overrides={"pin_memory": bool(settings["pin_memory"])},
            applied=lambda training: _applied(training, bool(settings["non_blocking"])),
            fixed_batch=False,
        )

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        """The loader's argument, where that is all that changes. The copies stand in the user's loop, which is not run here.

        The step that is measured waits for no copy of a loader that pins: so patched source is raced for pinned memory only
        where the user's copies do not wait either, and for pageable memory, from which every copy is waited for.
        """
        found = code.call(code.facts["loader_site"])
        pinned = bool(settings["pin_memory"])
        if found is None or settings["non_blocking"] != pinned or (pinned and not _copies_without_waiting(code)):
            return None
        return code.patch(*found, _edits(*found, repr(pinned)))

    def words(self, settings: Settings, facts: Facts) -> str:
        now = self.current(facts)
        said = []
        if settings["pin_memory"] != now["pin_memory"]:
            said.append(f"build the training DataLoader with pin_memory={settings['pin_memory']}{_at(facts, 'PA102')}")
        if settings["non_blocking"] and not now["non_blocking"]:
            said.append(f"copy batches with .to(device, non_blocking=True){_at(facts, 'PA104')}")
        if now["non_blocking"] and not settings["non_blocking"]:
            said.append("copy batches without non_blocking=True")
        return " and ".join(said) or "copy batches as they are copied now"

    def remarks(self, told: Told) -> list[str]:
        if told.facts["loader"]["num_workers"]:
            return []
        return [
            "the loader has no workers, so that the training process pins the batches itself; with workers a thread does"
        ]


@contextlib.contextmanager
def _applied(training: Any, non_blocking: bool) -> Iterator[None]:
    training.non_blocking = non_blocking
    yield


def _copies_without_waiting(code: Code) -> bool:
    """Whether the target's file has copies with non_blocking=True, and no finding about one without."""
    source = code.entry()
    if source is None or places_of(code.facts, "PA104"):
        return False
    given = [edit.keyword(call, "non_blocking") for name in (".to", ".cuda") for call in source.calls(name)]
    return any(isinstance(k.value, ast.Constant) and k.value.value is True for k in given if k is not None)


def _edits(source: Source, call: ast.Call, value: str) -> tuple[Edit, ...] | None:
    if len(call.args) > _POSITION:
        return edit.replace(source, call.args[_POSITION], value)
    return edit.set_keyword(source, call, "pin_memory", value)


def _at(facts: Facts, rule: str) -> str:
    places = places_of(facts, rule)
    return f" ({', '.join(places)})" if places else ""


KNOB = Transfer()
