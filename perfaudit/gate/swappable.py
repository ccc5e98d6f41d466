"""Whether all that a change does can be put in place of one running training, as far as its text says. Runs nothing.

It can where the bodies of functions changed and nothing else: not what a file does on import, not what may last beyond a step, no
data, no requirements. Whatever this cannot tell goes to pairs of processes, which see everything.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath

from perfaudit.errors import UserError
from perfaudit.files import is_own_output, is_own_report
from perfaudit.gate.checkout import Checkout
from perfaudit.gate.git import GitFailed
from perfaudit.gate.gitref import Reference
from perfaudit.gate.settings import BASELINE
from perfaudit.gate.working_files import differing
from perfaudit.static.source import Unreadable, read_text
from perfaudit.training.code_change import NotSwappable, code_change

IN_PLACE = "with the reference's functions in place"
# What the engine says of a patch, and what is said of a change that somebody made, in this order.
_OF_A_PATCH = (
    (", which the patch changes", ", where the change is"),
    ("the patch changes", "the change is in"),
    ("the patched text has it no longer", "the other version has no such function"),
    ("the patch", "the change"),
)
_BEGINNINGS = (
    ("with it, ", f"{IN_PLACE}, "),
    ("after a step with it, ", f"after a step {IN_PLACE}, "),
    ("after a step with it ", f"after a step {IN_PLACE}, "),
)

# By path, relative to the working directory: the text here, and that of the reference.
Texts = dict[str, tuple[str, str]]

_READ_BY_PEOPLE = (".md", ".rst")
# Where and under which names people look for such files. Any other one may be what a training reads: prompts, say, or a corpus.
_FOLDERS_OF_PEOPLE = {"docs", "doc", ".github"}
_NAMES_OF_PEOPLE = {
    "readme", "changelog", "changes", "history", "news", "contributing", "contributors", "authors", "maintainers", "license",
    "notice", "security", "code_of_conduct", "roadmap", "todo",
}  # fmt: skip
_OF_TOOLS = {".gitignore", ".gitattributes", ".pre-commit-config.yaml", BASELINE}
# Calls whose result nobody takes, and which change nothing that a later step meets.
_PATCHES = {".patch", ".diff"}  # as `tune --out` writes one
_HARMLESS = {"print", "item", "tolist", "cpu", "numpy", "synchronize", "sleep", "debug", "info"}
_SETTING = ("set_", "setattr", "setdefault", "delattr", "register_", "enable", "disable", "use_", "manual_seed", "pop")


class NotInOneTraining(Exception):
    """Why both versions cannot be compared in one training. The message is told with the verdict."""


def texts_to_swap(base: Checkout | None) -> Texts:
    """What differs between the code as it is and the reference: files of which functions can be swapped, {} for none.

    Raises NotInOneTraining for any other difference. Files that no training runs do not count: documents by their name or
    folder, tests, what tools read, and what perfaudit has written.
    """
    if not isinstance(base, Reference):
        raise NotInOneTraining("there is no commit that says which files differ")
    try:
        names = differing(base.head_root, base.commit)
    except (GitFailed, UserError) as failure:
        raise NotInOneTraining(f"git does not say which files differ: {failure}") from failure
    texts: Texts = {}
    for name in names:
        here, there = base.head_root / name, base.root / name
        if _is_not_run(PurePath(name)) or _is_same(here, there) or _is_of_perfaudit(PurePath(name), here, there):
            continue
        shown = base.from_working(here)
        if not here.is_file() or not there.is_file():
            raise NotInOneTraining(f"{shown} is a file in one version only, which a training may read")
        if here.suffix != ".py":
            raise NotInOneTraining(f"{shown} differs, and is no Python")
        try:
            texts[shown] = read_text(here)[0], read_text(there)[0]
        except Unreadable as error:
            raise NotInOneTraining(f"{shown} differs, and cannot be read: {error}") from error
        _check(shown, *texts[shown])
    return texts


def _is_not_run(name: PurePath) -> bool:
    is_test = bool({"tests", "test"} & set(name.parts)) or name.name.startswith("test_") or name.name == "conftest.py"
    is_code_of_tests = is_test and name.suffix == ".py"
    return (
        is_code_of_tests
        or name.name in _OF_TOOLS
        or name.suffix in _PATCHES
        or (name.suffix in _READ_BY_PEOPLE and _is_read_by_people(name))
    )


def _is_of_perfaudit(name: PurePath, here: Path, there: Path) -> bool:
    """Whether a run of perfaudit has left the file: an export, a journal, a report; in both versions, where both have it."""
    if is_own_output(name):
        return True
    return all(is_own_report(path) for path in (here, there) if path.exists() or path.is_symlink())


def _is_read_by_people(name: PurePath) -> bool:
    return name.stem.lower() in _NAMES_OF_PEOPLE or name.parts[0] in _FOLDERS_OF_PEOPLE


def _is_same(here: Path, there: Path) -> bool:
    """Whether both are the same file by their bytes, or neither is there any more."""
    if here.is_symlink() or there.is_symlink():
        return here.is_symlink() and there.is_symlink() and here.readlink() == there.readlink()
    if here.is_file() and there.is_file():
        return here.read_bytes() == there.read_bytes()
    return not here.exists() and not there.exists()


def _check(path: str, here: str, there: str) -> None:
    """Raise NotInOneTraining where a swap of functions would miss some of what makes these texts differ."""
    try:
        forth, back = code_change(path, there, here), code_change(path, here, there)
    except NotSwappable as refusal:
        raise NotInOneTraining(f"{path}: {as_of_a_change(str(refusal))}") from refusal
    if forth.imports or back.imports:
        raise NotInOneTraining(f"{path}: the change adds or removes an import, which is done once for a process")
    before, after = _lasting(ast.parse(there)), _lasting(ast.parse(here))
    if changed := [*(after - before), *(before - after)]:
        raise NotInOneTraining(f"{path}: the change is about what may last beyond a step: {changed[0]}")


def as_of_a_change(refusal: str) -> str:
    """What the engine says of a patch, for a change that somebody made."""
    for of_a_patch, of_a_change in _OF_A_PATCH:
        refusal = refusal.replace(of_a_patch, of_a_change)
    for of_a_patch, of_a_change in _BEGINNINGS:
        if refusal.startswith(of_a_patch):
            return of_a_change + refusal.removeprefix(of_a_patch)
    return refusal


def _lasting(tree: ast.Module) -> Counter[str]:
    """The statements and calls of functions that may leave something behind for a later step, and how often they stand there.

    Both versions run in the same objects: what one of them keeps, the other one would find. So the two must keep the same.
    """
    kept = {name for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    return Counter(_words(node) for node in ast.walk(tree) if _lasts(node, kept))


def _lasts(node: ast.AST, kept: set[str]) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await)):
        return not isinstance(node.value, ast.Call) or _name_of_call(node.value) not in _HARMLESS
    if isinstance(node, ast.Call):
        return _name_of_call(node).startswith(_SETTING)
    return any(_outlives(target, kept) for target in _targets(node))


def _targets(node: ast.AST) -> Iterator[ast.AST]:
    """What a statement stores into, or deletes."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        yield from node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For, ast.AsyncFor, ast.NamedExpr, ast.comprehension)):
        yield node.target
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars


def _outlives(target: ast.AST, kept: set[str]) -> bool:
    """Whether a target is more than a local variable: an attribute, an item, or a name that is declared global."""
    for part in ast.walk(target):
        if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, (ast.Store, ast.Del)):
            return True
        if isinstance(part, ast.Name) and part.id in kept:
            return True
    return False


def _name_of_call(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _words(node: ast.AST) -> str:
    """A statement as text; of a loop only its target."""
    return ast.unparse(node if not isinstance(node, (ast.For, ast.AsyncFor)) else node.target)
