"""Trainers of Lightning whose arguments stand in settings files: `Trainer(**cfg.trainer)`, `instantiate(cfg.trainer)`."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple
from perfaudit.static.checks.mixed_precision_missing.trainers_of_lightning import (
    BUILDS,
    TRAINERS,
    TRIES_OUT,
    fits,
    is_dry_run,
)
from perfaudit.static.project.settings_files import Found
from perfaudit.static.project.settings_text import UNREAD, sections_of
from perfaudit.static.source import Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.built_by_settings import chosen_of_group, group_of, stem_of
from perfaudit.static.understanding.configured_trainers import is_put_on_gpu
from perfaudit.static.understanding.configured_values import is_configured_by_files, keys_taken, leads_to
from perfaudit.static.understanding.demonstrations import is_test

_TAKE_GPU = "lightning."  # the package whose trainers take a GPU by themselves; the older one had the CPU by default
_DEVICES = ("accelerator", "gpus", "devices")
_LIMIT = "limit_train_batches"
_TRIALS = (*sorted(TRIES_OUT), "fast_dev_run", _LIMIT)
_EVALUATES = regex(r"(^|_)(test|eval|evaluate|evaluation|predict|infer|inference)(_\w*)?\.py$")  # the name of a file
_NO_TRIAL = (None, False, 0, "0", "0.0")
_FEW_BATCHES = 10  # of a trial, as `entry.FEW_TURNS`


class SettingsOfTrainer(NamedTuple):
    """A call that hands a part of a configuration to a trainer of Lightning, that part, and the keys that lead to it."""

    source: Source
    call: ast.Call
    part: ast.expr
    keys: tuple[str, ...]

    @property
    def part_text(self) -> str:
        """The part as it stands in the call: `cfg.trainer`, `**cfg.trainer`."""
        return f"{'' if self.call.args else '**'}{self.source.brief(self.part)}"

    def settings_by(self, name: str) -> list[Found] | None:
        """What the settings files of the project give the trainer under a name; None where that cannot be told.

        Of files that nothing chooses, too: somebody wrote them for this trainer.
        """
        assert self.source.neighbours is not None
        found = self.source.neighbours.settings(name)
        is_given = any(keyword.arg == name for keyword in self.call.keywords)
        if found is None or is_given or any(not each.setting.keys for each in found):
            return None
        own = [each for each in found if leads_to((*self.keys, name), each)]
        return None if any(each.setting.value is UNREAD for each in own) else own

    def leaves(self, name: str, *values: object) -> bool:
        """Whether no settings file gives the trainer anything else under a name than None or one of these values."""
        found = self.settings_by(name)
        return found is not None and all(each.setting.value in (None, *values) for each in found)


def settings_of_trainer(source: Source, call: ast.Call) -> SettingsOfTrainer | None:
    """The settings of a trainer that fits a model on a GPU, where all of them stand in settings files or in the call.

    None for any other call, for a trainer that tries a model out on a few batches, and in a file that evaluates by its name: a
    template's `test.py` may be a copy of its `train.py`.
    """
    if source.neighbours is None or is_test(source, call) or _EVALUATES.search(source.path.rpartition("/")[2]):
        return None
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    is_built = source.qualified_name(call.func) in BUILDS
    handed = call.args if is_built else unpacked
    if len(handed) != 1 or len(call.args) + len(unpacked) != 1:
        return None
    keys = keys_taken(source, handed[0])
    if not keys or not is_configured_by_files(source) or not fits(source, call):
        return None
    if _is_tried_out(source, call) or not _is_in_sight(source, keys):
        return None
    made = _classes_made(source, keys) if is_built else [source.qualified_name(call.func) or ""]
    if not any(name in TRAINERS for name in made):
        return None
    trainer = SettingsOfTrainer(source, call, handed[0], keys)
    takes_gpu = any(name.startswith(_TAKE_GPU) for name in made) and all(
        trainer.settings_by(name) == [] for name in _DEVICES
    )
    is_tried = any(_is_chosen(source, each) for name in _TRIALS for each in _trials(trainer, name))
    return trainer if (takes_gpu or is_put_on_gpu(source)) and not is_tried else None


def _classes_made(source: Source, keys: tuple[str, ...]) -> list[str]:
    """The classes by the name of a trainer that a section under these keys names."""
    assert source.neighbours is not None
    found = source.neighbours.sections_for("Trainer") or []
    paths = [((*file.split("/")[:-1], *section.keys), section) for section, file in found]
    return [section.class_made for path, section in paths if path[-len(keys) :] == keys]


def _is_tried_out(source: Source, call: ast.Call) -> bool:
    """Whether the call itself says that a few batches are run: `Trainer(fast_dev_run=True, **cfg.trainer)`."""
    return bool({*TRIES_OUT, _LIMIT} & {keyword.arg for keyword in call.keywords}) or is_dry_run(source, call)


@remember  # two rules ask for the same trainer
def _is_in_sight(source: Source, keys: tuple[str, ...]) -> bool:
    """Whether settings files have the part under these keys, and all of it where it stands.

    Not `trainer: ${common}`, nor a section with `<<: *common`.
    """
    neighbours = source.neighbours
    found = neighbours.settings(keys[-1]) if neighbours is not None else None
    if neighbours is None or found is None:
        return False
    own = [each for each in found if leads_to(keys, each) and each.setting.keys[-2:-1] != ("defaults",)]
    if any(each.setting.line and each.setting.value is not None for each in own):
        return False
    parts = [
        (section, text)
        for file, text in neighbours.texts_of_settings()
        if keys[-1] in text or keys[-1] in file
        for section in sections_of(text, PurePosixPath(file).suffix.lower()) or ()
        if (*file.split("/")[:-1], *section.keys)[-len(keys) :] == keys
    ]
    is_merged = any(not section.is_whole and "<<" in text for section, text in parts)
    return any(section.settings for section, _ in parts) and not is_merged


def _trials(trainer: SettingsOfTrainer, name: str) -> list[Found]:
    """The settings by which a trainer runs a few batches only."""
    assert trainer.source.neighbours is not None
    found = trainer.source.neighbours.settings(name) or []
    own = [each for each in found if leads_to((*trainer.keys, name), each)]
    return [each for each in own if _is_trial(name, each.setting.value)]


def _is_trial(name: str, value: object) -> bool:
    """Whether a setting has a trainer run a few batches: a number of them, or `true`; a share of all is none."""
    if name == _LIMIT:
        return value is UNREAD or (type(value) is int and 0 < value <= _FEW_BATCHES)
    return value not in _NO_TRIAL


def _is_chosen(source: Source, found: Found) -> bool:
    """Whether a setting stands in a file that a list of hydra's defaults chooses, or for which there is no such list."""
    chosen = chosen_of_group(source, group_of(found.file))
    return not chosen or stem_of(found.file) in chosen
