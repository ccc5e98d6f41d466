"""A patch as a second training beside the first: built from the patched text in the same process. Child only.

For patches of what no step runs again: arguments of a loader, an optimizer or a layer, what a file does on import. The project's
modules are imported anew for it, with the patched text, and are in place only while the twin's steps run; so are switches of
torch that building it has set, and the patched text for what a step imports or a worker is started with. The random streams, the
working directory and everything of the first training stay.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfaudit.target import overlay
from perfaudit.target.flags import Flags, flags, put_back, set_flags, settable
from perfaudit.target.random_streams import same_random_streams
from perfaudit.target.working_folder import full_path, present_folder
from perfaudit.training.code_change import NotSwappable
from perfaudit.training.factory_training import FactoryTraining


@dataclass(slots=True)
class TwinVariant:
    """A second training. While it is entered, its own modules and switches are in force, and `training` makes the steps.

    installed: the texts that its files are imported with.
    """

    training: Any
    modules: dict[str, types.ModuleType]
    switches: Flags
    installed: overlay.Installed
    _installed_before: overlay.Installed = field(init=False)
    _displaced: dict[str, types.ModuleType] = field(default_factory=dict)
    _before: Flags = field(default_factory=dict)
    _entered: bool = False

    def enter(self) -> None:
        """Put the twin's modules and switches in force."""
        self._entered = True
        self._displaced = overlay.project_modules()
        _replace_modules(self._displaced, self.modules)
        self._installed_before = overlay.in_force()
        overlay.put_in_force(self.installed)
        now = flags()
        self._before = {name: now[name] for name in self.switches}
        set_flags(self.switches)

    def leave(self) -> None:
        """Put back those of the first training. Modules that the twin has imported meanwhile stay its own."""
        if not self._entered:
            return
        self._entered = False
        self.modules = overlay.project_modules()
        _replace_modules(self.modules, self._displaced)
        overlay.put_in_force(self._installed_before)
        set_flags(self._before)

    def parts_not_run(self, work: Callable[[], object]) -> list[str]:
        """Nothing: the twin is built from the patched text. `work` runs all the same."""
        work()
        return []

    def close(self) -> None:
        """Let go of the twin."""
        self.training.close()


def build_twin(training: Any, texts: Mapping[str, str]) -> TwinVariant:
    """Build a training like this one from files with these texts, by path. Raises NotSwappable with the reason."""
    before = flags()
    reals = {os.path.realpath(full_path(path)): path for path in texts}
    with (
        same_random_streams(),
        folder_kept(training.folder),
        _first_modules_kept(),
        overlay.imported_instead(texts) as ran,
    ):
        try:
            twin = FactoryTraining(training.target, str(training.device), seed=training.seed)
            modules, installed = overlay.project_modules(), overlay.in_force()
        except Exception as error:
            raise NotSwappable(f"a second training could not be built beside the first: {error}") from error
        finally:
            after = flags()
            put_back(before)
    changed = [name for name in after if after[name] != before[name]]
    if fixed := [name for name in changed if name not in settable() or "" in (before[name], after[name])]:
        twin.close()
        raise NotSwappable(f"building it changes {', '.join(fixed)} for the whole process")
    if missing := [path for real, path in reals.items() if real not in ran]:
        twin.close()
        raise NotSwappable(f"{', '.join(missing)} is not imported as a module, so the patch is not what runs")
    return TwinVariant(twin, modules, {name: after[name] for name in changed}, installed)


@contextlib.contextmanager
def _first_modules_kept() -> Iterator[None]:
    """Inside, nothing of the project has been imported; afterwards, what had been."""
    first = overlay.project_modules()
    _replace_modules(first, {})
    try:
        yield
    finally:
        _replace_modules(overlay.project_modules(), first)


def _replace_modules(old: Mapping[str, types.ModuleType], new: Mapping[str, types.ModuleType]) -> None:
    for name in old:
        sys.modules.pop(name, None)
    sys.modules.update(new)


@contextlib.contextmanager
def folder_kept(there: str) -> Iterator[None]:
    """Inside, the working directory is that in which the first factories were called; afterwards what it has become."""
    here = present_folder()
    if there:
        os.chdir(there)
    try:
        yield
    finally:
        if here:
            os.chdir(here)
