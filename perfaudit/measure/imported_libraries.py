"""Which libraries a script imports, and importing them in the process that its next children are forked from.

A trainer and what it brings along take most of the start of a script. A child notes what its script imports (`ImportsNoted`). The
nursery imports the same (`import_as_noted`), with the variables that the script had set by then. It is forked from only if that
brought nothing but what is in the child, too.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfaudit.target.installed_copies import is_installed

Json = dict[str, Any]  # Any: nested JSON
Variables = dict[str, str | None]  # None for one that is gone

# Libraries that take long to import and do nothing else then. What they import is imported with them.
_LARGE = """
    accelerate datasets diffusers evaluate gymnasium huggingface_hub ignite jsonargparse kornia lightning lightning_fabric
    monai peft pytorch_lightning sentence_transformers timm torch_geometric torchmetrics transformers trl
    numpy pandas PIL pyarrow scipy sklearn tokenizers torchaudio torchvision
"""
LARGE = frozenset(_LARGE.split())
# Of torch itself what most programs never import; what it compiles with reads where its cache is.
_OF_TORCH = ("torch.distributed.", "torch.testing.", "torch.utils.", "torch.fx.", "torch.onnx.")
# They begin to record, or put functions of their own in place of others, when they are imported.
_RECORDERS = {"aim", "clearml", "comet_ml", "dvclive", "mlflow", "neptune", "swanlab", "wandb"}


class ImportsNoted(importlib.abc.MetaPathFinder):
    """Notes in which environment each library is imported; finds nothing itself. To be put in place before the script runs.

    before: the environment in which this process was started.
    """

    def __init__(self, before: Mapping[str, str]) -> None:
        self._before = dict(before)
        self._environments: list[Variables] = []
        self._noted: dict[str, int] = {}  # the number of the environment in which a module was first looked for
        self._number = 0  # of the import that is under way
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None) -> None:
        if name in self._noted or not _is_large(name):
            return
        if not self._noted or not _is_within_import(sys._getframe(1)):
            now = changes(self._before, os.environ)
            if now not in self._environments:
                self._environments.append(now)
            self._number = self._environments.index(now)
        self._noted[name] = self._number

    def end(self) -> Json:
        """What was imported, and note no more.

        Under "libraries" the modules, each with the number of its environment; under "environments" the variables in which each
        of these differs from that at the start; under "modules" the file of each module of this process.
        """
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        files = _files()
        libraries = [[name, number] for name, number in self._noted.items() if is_installed(files.get(name) or "")]
        return {"libraries": libraries, "environments": self._environments, "modules": files}


def import_as_noted(noted: Json, spoilt: Callable[[], str] = str) -> tuple[str, Variables]:
    """Import these libraries in this process: why it may not be forked from any more, "" if it may, and variables that they set.

    noted: what `ImportsNoted.end` gave in a child of this process. spoilt: why it may not be forked from for another reason, ""
    for none. The first library behind which it may not be is the last one. The environment is as before afterwards.
    """
    kept, why = dict(os.environ), spoilt()
    first: Variables = {}
    try:
        for at, (name, number) in enumerate(noted["libraries"]):
            wanted: Variables = noted["environments"][number]
            if not at:
                first = wanted
                _change(first)
            if name not in sys.modules and changes(kept, os.environ) == wanted:
                there = {*sys.modules}
                with contextlib.suppress(Exception):  # a child that wants it says why it cannot be imported
                    importlib.import_module(name)
                if why := _other_than(noted["modules"], {*sys.modules} - there) or spoilt():
                    break
        of_them = {name: value for name, value in changes(kept, os.environ).items() if first.get(name, "") != value}
    finally:
        os.environ.clear()
        os.environ.update(kept)
    return why, of_them


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> Variables:
    """The variables that are not as they were."""
    return {name: now.get(name) for name in sorted({*before, *now}) if before.get(name) != now.get(name)}


def _change(variables: Variables) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _other_than(modules: Mapping[str, str | None], imported: set[str]) -> str:
    """Which of these modules is another one in the child, or begins to record; "" for none."""
    files = _files()
    for name in sorted(imported):
        if name.partition(".")[0] in _RECORDERS:
            return f"{name} was imported with it"
        here, in_child = files.get(name), modules.get(name, "")
        # Compiled modules of one name, each in its own package (`_cyutility`), take each other's place.
        if here != in_child and not (is_installed(here or "") and is_installed(in_child or "")):
            return f"{name} is another module there"
    return ""


def _files() -> dict[str, str | None]:
    """The file of each module of this process, None for one without."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")  # a lazy module imports what it is asked for
        found[name] = file if isinstance(file, str) else None
    return found


def _is_large(name: str) -> bool:
    return name.partition(".")[0] in LARGE or name.startswith(_OF_TORCH)


def _is_within_import(frame: types.FrameType | None) -> bool:
    """Whether one of these libraries is being imported in this frame or around it."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and _is_large(str(frame.f_globals.get("__name__"))):
            return True
        frame = frame.f_back
    return False
