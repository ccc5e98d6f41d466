"""Copies of batches to an accelerator: from page-locked memory or not, with the host waiting or not."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from typing import Any

from perfaudit.findings import Edit
from perfaudit.knobs import Bench, Knob, Setup, Survey, Told, Way
from perfaudit.knobs._code import Code, Patch
from perfaudit.knobs._loader_arguments import call_at_site
from perfaudit.knobs._trainers import words_of_options
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.given_arguments import give
from perfaudit.static.source import Source

_POSITION = 7  # of pin_memory in DataLoader.__init__


class Transfer(Knob):
    """Judged by the whole step: a copy that the host does not wait for runs beside other work, and no part shows that.

    With factories the step that is measured copies batches itself, and waits for that where the user's own text does
    (`target.copies`). A script copies them itself.
    """

    name = "transfer"
    title = "pin_memory × non_blocking of the copies to the accelerator"
    tries = "Try pinned memory and asynchronous copies to the accelerator."
    usual_gain = 0.3
    way = "loader"
    rules = ("PA102", "PA104")
    phases = ()
    base_is_applied = True
    in_process = False  # a thread of the loader pins what its workers deliver
    fixed_batch = False

    def not_applicable(self, survey: Survey) -> str:
        if survey.facts.device.type == "cpu":
            return "nothing is copied to a device: this training runs on cpu"
        if survey.facts.device.type == "mps":  # https://github.com/pytorch/pytorch/issues/139550
            return (
                "the CPU and this device (mps) share their memory, and copies that are not waited for lose data there"
            )
        return ""

    def current(self, survey: Survey) -> Settings:
        return {"pin_memory": survey.facts.loader.pin_memory, "non_blocking": survey.facts.non_blocking}

    def candidates(self, bench: Bench) -> list[Settings]:
        now = self.current(bench.survey)
        if bench.survey.facts.is_script:
            pinned: Settings = {**now, "pin_memory": not now["pin_memory"]}
            waited: Settings = {**now, "non_blocking": True}
            return [pinned, waited] if bench.survey.patchable("PA104") else [pinned]
        tried: list[Settings] = [{"pin_memory": p, "non_blocking": n} for p in (True, False) for n in (True, False)]
        return [settings for settings in tried if settings != now]

    def size(self, settings: Settings) -> tuple[bool, bool]:
        """Page-locked memory is not available to others."""
        return bool(settings["pin_memory"]), bool(settings["non_blocking"])

    def setup(self, settings: Settings) -> Setup:
        return Setup(
            loader_overrides={"pin_memory": bool(settings["pin_memory"])},
            applied=lambda training: _apply(training, bool(settings["non_blocking"])),
            fixed_batch=False,
        )

    def way_on(self, survey: Survey, settings: Settings) -> Way:
        """On a script another loader, or the script's own lines."""
        is_pinned_alike = settings["pin_memory"] == self.current(survey)["pin_memory"]
        return "code" if survey.facts.is_script and is_pinned_alike else self.way

    def holds(self, survey: Survey, settings: Settings) -> bool:
        """Of a script's own copies nothing is known but its text."""
        now = self.current(survey)
        return now["pin_memory"] == settings["pin_memory"] if survey.facts.is_script else now == settings

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        """The loader's argument where that is all that changes; the copies of the user's loop where a finding knows their lines.

        The loop itself is not run here, but its text says how the step that is measured copies.
        """
        now = self.current(code.survey)
        if settings["pin_memory"] == now["pin_memory"]:
            return code.fixes(("PA104",)) if settings["non_blocking"] and not now["non_blocking"] else None
        found = call_at_site(code)
        if found is None or settings["non_blocking"] != now["non_blocking"]:
            return None
        return code.patch(*found, _edits(*found, repr(bool(settings["pin_memory"])), code.survey.facts.loader.prefix))

    def words(self, settings: Settings, survey: Survey) -> str:
        now = self.current(survey)
        said = []
        if settings["pin_memory"] != now["pin_memory"]:
            prefix = survey.facts.loader.prefix
            given = [(f"{prefix}pin_memory", repr(bool(settings["pin_memory"])))]
            whose = survey.facts.loader.owner or "the trainer's arguments"
            what = f"give {whose}" if prefix else "build the training DataLoader with"
            said.append(
                (words_of_options(survey, given) if prefix else "")
                or f"{what} {prefix}pin_memory={settings['pin_memory']}{_at(survey, 'PA102')}"
            )
        if settings["non_blocking"] and not now["non_blocking"]:
            said.append(f"copy batches with .to(device, non_blocking=True){_at(survey, 'PA104')}")
        if now["non_blocking"] and not settings["non_blocking"]:
            said.append("copy batches without non_blocking=True")
        return " and ".join(said) or "copy batches as they are copied now"

    def remarks(self, told: Told) -> list[str]:
        said = [
            "your loop copies batches with non_blocking=True, and so do the steps that are measured"
            if told.survey.facts.non_blocking
            else "your loop waits for its copies, as far as its text says, and so do the steps that are measured"
        ]
        if told.survey.facts.is_script:
            said.clear()
        if not told.survey.facts.loader.num_workers:
            said.append(
                "the loader has no workers, so that the training process pins the batches itself; with workers a thread does"
            )
        return said


@contextlib.contextmanager
def _apply(training: Any, non_blocking: bool) -> Iterator[None]:
    if training.is_script:  # its own lines say so
        yield
        return
    before, training.non_blocking = training.non_blocking, non_blocking
    try:
        yield
    finally:
        training.non_blocking = before


def _edits(source: Source, call: ast.Call, value: str, prefix: str) -> tuple[Edit, ...] | None:
    if len(call.args) > _POSITION and not prefix:
        return edit.replace(source, call.args[_POSITION], value)
    return give(source, call, {f"{prefix}pin_memory": value})


def _at(survey: Survey, rule: str) -> str:
    places = survey.places(rule)
    return f" ({', '.join(places)})" if places else ""


KNOB = Transfer()
