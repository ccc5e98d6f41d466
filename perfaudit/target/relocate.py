"""Has a child load the project from another checkout than the one that is installed. Imported before the user's code."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from perfaudit.errors import TargetError
from perfaudit.target import overlay
from perfaudit.target.installed_copies import copies, is_below, is_installed, is_installed_below
from perfaudit.target.overlay import PACKAGE, Carried
from perfaudit.target.provenance import OURS, is_library
from perfaudit.target.real_paths import real_path

_own_root = ""  # where the project comes from in this process, once something took its place

_IN_SPAWNED = """
import sys
sys.path.append({package!r})
import perfaudit.target.relocate as relocate
sys.path.remove({package!r})
relocate.take_the_place({head!r}, {base!r})
"""


def take_the_place(head_root: str, base_root: str) -> None:
    """From now on, imports of what lies below `head_root` find the same below `base_root`, here and in spawned processes.

    Concerned are `sys.path`, PYTHONPATH, and what editable installs map names to. Virtual environments and installed
    packages inside the repository stay. For a process that has not imported the project yet; `strays` says what else of
    it came from `head_root` all the same. The code as it is takes its own place, so that both do the same before they load.
    """
    global _own_root
    head, base = os.path.realpath(head_root), os.path.realpath(base_root)
    replaced = [_counterpart(entry, head, base) for entry in sys.path if _moves(entry, head, base)]
    sys.path[:] = [_counterpart(entry, head, base) for entry in sys.path]
    _in_environment(replaced, head, base)
    for table in _tables():
        _remap(table, head, base)
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    if not _own_root:
        _carry_to_spawned(head, base)
    _own_root = base
    overlay.belongs_to_project(base)


def strays(head_root: str, base_root: str) -> tuple[str, ...]:
    """Files from which modules were imported although something else was to take their place, in order: those below
    `head_root`, and the project's own in site-packages that `base_root` has otherwise.

    If there are any, the reference is partly the same code as what it is compared with. Not counted: installed packages
    of others, perfaudit itself, and what the other checkout holds as a link, because the user asked for it. In the code as
    it is, which took its own place, nothing counts. It looks at every module all the same, as the reference does: the side
    that alone had looked at them took steps some 2 % faster from then on (benchmarks/gate_power_biased.jsonl.xz, char_gpt),
    probably for where its memory lay afterwards. So what counts is asked last.
    """
    head, base = os.path.realpath(head_root), os.path.realpath(base_root)
    tree: dict[str, str] = {}  # real paths of the project's files, by how they were imported
    installed: dict[str, str] = {}
    for file in _files_of_modules():
        real = real_path(file)
        around = next((root for root in (base, head) if is_below(real, root)), "")
        if around and not is_library(real) and not is_installed_below(real, around):
            tree[file] = real
        elif is_installed(file) and not real.startswith(OURS):
            installed[file] = real
    copied = copies(installed, head, base)
    found = [(file, real, real) for file, real in tree.items()]
    found += [(file, installed[file], file) for file in copied]
    return tuple(sorted({told for file, real, told in found if not _is_own(file) and not _is_own(real)}))


def _files_of_modules() -> list[str]:
    """Files of all modules so far, as they were imported."""
    files = [getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values())]
    # By way of __dict__: lazy modules import when they are asked for an attribute.
    return [os.path.normpath(file) for file in files if isinstance(file, str) and os.path.isabs(file)]  # noqa: PTH117


def _is_own(path: str) -> bool:
    return is_below(path, _own_root)


def refuse(found: Sequence[str]) -> None:
    """Raise TargetError where a reference imports these files, which are `strays`."""
    if words := refusal(found):
        raise TargetError(words)


def refusal(found: Sequence[str]) -> str:
    """Why a reference that imports these files, which are `strays`, is not judged; "" where it imports none."""
    installed = [file for file in found if is_installed(file)]
    tree = [file for file in found if not is_installed(file)]
    said = [
        f"it imports {_files_in_words(files)} {where}, so both sides would run the same code; {cure}"
        for files, where, cure in (
            (tree, "from the working tree", "import it by its place in the project rather than by an absolute path"),
            (installed, "from a copy of the project in site-packages", "install it editable: pip install -e ."),
        )
        if files
    ]
    return "; ".join(said)


def _files_in_words(files: Sequence[str]) -> str:
    return ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")


def _counterpart(entry: str, head: str, base: str) -> str:
    """The counterpart of a path below head; the path as it is where it lies elsewhere or in an environment."""
    if not _moves(entry, head, base):
        return entry
    return os.path.normpath(os.path.join(base, os.path.relpath(os.path.realpath(entry), head)))  # noqa: PTH118


def _moves(entry: str, head: str, base: str) -> bool:
    """Whether a path lies in the project in head. A head that takes its own place is asked for as one that moves."""
    if not entry or not os.path.isabs(entry):  # noqa: PTH117  # relative to a working directory in the other checkout
        return False
    real = os.path.realpath(entry)
    if not is_below(real, head) or (base != head and is_below(real, base)) or is_library(real):
        return False
    return not is_installed_below(real, head)


def _in_environment(replaced: list[str], head: str, base: str) -> None:
    """PYTHONPATH for new interpreters: moved, and with what `.pth` files of editable installs would name again."""
    before = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    after = dict.fromkeys([*(_counterpart(entry, head, base) for entry in before), *replaced])
    if after:
        os.environ["PYTHONPATH"] = os.pathsep.join(after)


def _tables() -> Iterator[dict[str, Any]]:  # Any: a path or a list of paths
    """What the finders of editable installs map names to.

    setuptools writes a module `__editable___NAME_finder` with MAPPING and NAMESPACES; the `editables` package, which hatch
    and others use, has a class with `_redirections`. Finders of other builders are seen by `strays` only.
    """
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("__editable___")]
    for module in modules:
        yield from _dictionaries(module, "MAPPING", "NAMESPACES")
    for finder in sys.meta_path:
        yield from _dictionaries(finder, "_redirections")


def _dictionaries(holder: object, *names: str) -> Iterator[dict[str, Any]]:  # Any: as above
    for name in names:
        value = getattr(holder, "__dict__", {}).get(name)
        if isinstance(value, dict):
            yield value


def _remap(table: dict[str, Any], head: str, base: str) -> None:  # Any: as above
    for name, value in table.items():
        if isinstance(value, str):
            table[name] = _counterpart(value, head, base)
        elif isinstance(value, (list, tuple)):
            table[name] = [_counterpart(path, head, base) if isinstance(path, str) else path for path in value]


def _carry_to_spawned(head: str, base: str) -> None:
    """Let what `multiprocessing` tells a new process first move its editable installs too, as `overlay` does with texts."""
    import multiprocessing.spawn as spawn

    original = spawn.get_preparation_data

    @functools.wraps(original)
    def preparation_data(name: str) -> dict[str, Any]:  # Any: as multiprocessing has it
        text = _IN_SPAWNED.format(package=PACKAGE, head=head, base=base)
        return {"relocated by perfaudit": Carried(text), **original(name)}

    spawn.get_preparation_data = preparation_data
