"""Targets and factories by name, read from the text alone: nothing is imported here."""

from __future__ import annotations

import ast
import importlib.util
import shlex
import symtable
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfaudit.errors import NoTarget, TargetError
from perfaudit.reading import MAX_FILE_BYTES, read_bytes

ROLES = {
    "model": ("build_model", "make_model", "get_model", "create_model"),
    "dataloader": (
        "build_dataloader",
        "make_dataloader",
        "get_dataloader",
        "create_dataloader",
        "build_loader",
        "train_dataloader",
    ),
    "optimizer": ("build_optimizer", "make_optimizer", "configure_optimizer"),
    "step": ("training_step", "compute_loss"),
    "ema": ("build_ema",),
}
# What reading and parsing a file may raise.
_UNREADABLE = (OSError, SyntaxError, ValueError, RecursionError, MemoryError)
_RETURNS = {"Module": "model", "DataLoader": "dataloader", "Optimizer": "optimizer"}  # last part of a return annotation


@dataclass(frozen=True, slots=True)
class Target:
    """What is measured: a file with factories, or a script that trains in its own loop.

    names: of factories, by role, where one is not found by itself; a name may be "other.py:name" to take one from another file.
    arguments: that the script is given, None for a file with factories. module: the script's dotted name where it is run as
    `python -m`, "" for a file. name: of a script in the project file, "" for one that is typed. in_place: it writes its own
    files, where it is counted and timed for the gate.
    """

    file: str
    names: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] | None = None
    module: str = ""
    name: str = ""
    in_place: bool = False

    def __str__(self) -> str:
        """A file with factories by its path, a script as it is typed after `python`."""
        if self.arguments is None:
            return self.file
        return shlex.join([*(["-m", self.module] if self.module else [self.file]), *self.arguments])

    @property
    def is_script(self) -> bool:
        """Whether it trains in its own loop, and is run whole."""
        return self.arguments is not None

    @property
    def label(self) -> str:
        """What reports and baselines call it: a file with factories by its path, a script by its name or as it is typed."""
        return self.name if self.is_script and self.name else str(self)

    def to_json(self) -> dict[str, Any]:
        """For a child."""
        return {"file": self.file, "names": self.names, "arguments": self.arguments, "module": self.module}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Target:
        """What `to_json` gave; what is missing is as in a file with factories."""
        arguments = data.get("arguments")
        return cls(
            data["file"], data["names"], tuple(arguments) if arguments is not None else None, data.get("module", "")
        )


def parse(text: str, names: dict[str, str] | None = None, folder: Path = Path()) -> Target:
    """A target as the user writes it: `model.py`, `package.module`, or either with `:name` for one factory.

    The role of `name` is told by its name or return annotation; the model where neither tells. folder: that relative paths
    are relative to, the target's file too. Raises TargetError when there is no such file or module.
    """
    place, colon, name = text.rpartition(":") if ":" in text and not (folder / text).exists() else (text, "", "")
    file = _file_of(place, folder)
    roles = dict(names or {})
    if colon:
        role = next((r for r, found in factories(str(folder / file)).items() if found == name), None)
        role = role or next((r for r, known in ROLES.items() if name in known), "model")
        roles.setdefault(role, name)
    return Target(file, roles)


@dataclass(frozen=True, slots=True)
class Typed:
    """A target word by word: a path or, where it is run as a module, a dotted name, and what a script is given.

    name: by which the project file knows it, "" for none.
    """

    text: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    name: str = ""

    def script(self, folder: Path = Path()) -> Target | None:
        """The script that is meant, None for factories: see `script_target`."""
        found = script_target(self.text, self.arguments, self.is_module, folder)
        return replace(found, name=self.name) if found is not None else None


def split_target(text: str, name: str = "") -> Typed:
    """The words of a target that is one text: `train.py --epochs 1`, `-m package.train`, `model.py:factory`.

    `train.py -- --epochs 1` is the first of these: a `--` before the arguments belongs to the command line of perfaudit.
    Raises TargetError for what is no command line.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"{text!r} cannot be read as the words of a command line: {error}") from error
    is_module = words[:1] == ["-m"]
    words = words[1:] if is_module else words
    if not words:
        raise TargetError(f'{text!r} names no target; write it as after `python`: "train.py --epochs 1"')
    arguments = words[2:] if words[1:2] == ["--"] else words[1:]
    return Typed(words[0], tuple(arguments), is_module, name)


def script_target(text: str, arguments: Sequence[str], is_module: bool, folder: Path = Path()) -> Target | None:
    """The script that somebody names, with its arguments; None for a file that defines factories, or that is not there.

    A file that defines not both a model and a loader factory, or that is given arguments, is a script: many import a function
    of such a name. is_module: text is a dotted name, of a package with `__main__.py` too. Raises TargetError where there is no
    such module.
    """
    if is_module:
        return Target(_file_of_module(text, folder), {}, tuple(arguments), text)
    path = folder / text
    if not path.is_file() or (not arguments and factories(str(path)).keys() >= {"model", "dataloader"}):
        return None
    return Target(text, {}, tuple(arguments))


def _file_of(place: str, folder: Path) -> str:
    path = folder / place
    if path.is_file():
        return place
    if path.is_dir():
        raise TargetError(
            f"{place} is a folder; name the file that defines the factories, e.g. {place.rstrip('/')}/train.py"
        )
    if place.endswith(".py") or "/" in place:
        raise TargetError(f"{place}: no such file")
    if (file := next(_files_of_module(place, folder), None)) is not None:
        return file
    raise TargetError(f"{place}: neither a file nor a module that can be found from here")


def _file_of_module(name: str, folder: Path) -> str:
    """What `python -m` runs under a dotted name. Raises TargetError where it runs nothing."""
    files = list(_files_of_module(name, folder, ("__main__.py", "__init__.py")))
    if not files or files[0].endswith("__init__.py"):
        raise TargetError(no_module(name, bool(files) or (folder / Path(*name.split("."))).is_dir()))
    return files[0]


def no_module(name: str, is_package: bool = False) -> str:
    """What is said of a dotted name under which `python -m` runs nothing. is_package: there is one, without `__main__.py`."""
    why = "is a package without __main__.py" if is_package else "no such module"
    return f"{name}: {why}{'; a file is run without -m' if name.endswith('.py') else ''}"


def _files_of_module(name: str, folder: Path, in_package: Sequence[str] = ("__init__.py",)) -> Iterator[str]:
    """The files that may be meant by a dotted name, those of the folder first. in_package: names of files of a package."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return
    below = Path(*parts)
    for candidate in (*(below / file for file in in_package), below.with_suffix(".py")):
        if (folder / candidate).is_file():
            yield candidate.as_posix()
    try:
        spec = importlib.util.find_spec(parts[0])  # the top-level name only: finding a submodule would import it
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.submodule_search_locations is None and len(parts) == 1:
        yield from [spec.origin] if (spec.origin or "").endswith(".py") and spec.origin else []
    for package in (spec.submodule_search_locations or []) if spec else []:
        base = Path(package).joinpath(*parts[1:])
        for installed in (*(base / file for file in in_package), base.with_suffix(".py")):
            if installed.is_file():
                yield str(installed)


def factories(file: str) -> dict[str, str]:
    """The factory of each role that a file defines or imports at its top level, by role; {} if it cannot be read."""
    functions: dict[str, ast.FunctionDef] = {}
    imported: set[str] = set()
    for node in _top_level(_parse_statements(file)):
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = node
        elif isinstance(node, ast.ImportFrom):
            imported.update(alias.asname or alias.name for alias in node.names)
    found: dict[str, str] = {}
    for role, names in ROLES.items():
        name = next((n for n in names if n in functions or n in imported), None)
        if name is None:
            name = next((n for n, f in functions.items() if _annotated_role(f) == role), None)
        if name is not None:
            found[role] = name
    return found


def defines(file: str, name: str) -> bool:
    """Whether a file may have a top-level name; False only where its text settles that it has none."""
    try:
        text: Any = read_bytes(file, MAX_FILE_BYTES)  # Any: it takes bytes as compile() does, and typeshed says text
        symbols = symtable.symtable(text, file, "exec").get_symbols()
    except _UNREADABLE:
        return True
    bound = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    star = any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in _top_level(_parse_statements(file)))
    return star or bool(bound & {name, "__getattr__"})


def check_names(target: Target) -> Target:
    """The target. Raises TargetError where a file settles that it has no function of a name that it is to have.

    Asked before it is imported: to import a script is to run all of its training.
    """
    for role, named in target.names.items():
        file, _, name = named.rpartition(":")
        file = file or target.file
        if not defines(file, name.partition(".")[0]):
            there = ", ".join(defined_names(file)) or "none"
            raise TargetError(f"{file}: no function {name!r} for the {role} (it has: {there})")
    return target


def parses(file: str) -> bool:
    """Whether the text of a file can be read as Python."""
    try:
        ast.parse(read_bytes(file, MAX_FILE_BYTES))
    except _UNREADABLE:
        return False
    return True


def imported_modules(file: str) -> list[str]:
    """Dotted names of the modules a file imports at its top level; [] if it cannot be read."""
    names: list[str] = []
    for node in _top_level(_parse_statements(file)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return names


def defined_names(file: str) -> list[str]:
    """Names of the top-level functions and classes of a file, for messages."""
    return [
        node.name for node in _top_level(_parse_statements(file)) if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    ]


def _parse_statements(file: str) -> list[ast.stmt]:
    """The top-level statements of a file, [] if it cannot be read: the import in the child will say why."""
    try:
        return ast.parse(read_bytes(file, MAX_FILE_BYTES)).body
    except _UNREADABLE:
        return []


def _top_level(body: list[ast.stmt]) -> Iterable[ast.stmt]:
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody"):
            if isinstance(statement, (ast.If, ast.Try)):
                yield from _top_level(getattr(statement, name, []))


def _annotated_role(function: ast.FunctionDef) -> str | None:
    """The role a return annotation tells, for a function that can be called without arguments (or with the model)."""
    annotation = function.returns
    if isinstance(annotation, ast.Subscript):  # DataLoader[int]
        annotation = annotation.value
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation) if annotation else ""
    role = _RETURNS.get(str(text).rpartition(".")[2].partition("[")[0])
    required = len(function.args.args) - len(function.args.defaults)
    return role if role is not None and required == (1 if role == "optimizer" else 0) else None


def choose_target(paths: list[str], folder: Path, configured: dict[str, str] | None = None) -> Target:
    """The one target meant: the file named, else the configured one, else the one file that defines factories.

    Looks in the given files, then in the given folders, or in `folder` without any of both. Raises TargetError that lists
    what there is.
    """
    names = {role: name for role, name in (configured or {}).items() if role != "file"}
    files = [path for path in paths if not Path(path).is_dir()]
    if len(files) == 1 and len(paths) == 1:
        return parse(files[0], names)
    if not paths and configured and "file" in configured:
        return parse(configured["file"], names)
    with_factories = _with_factories(files)
    if not with_factories:
        folders = [p for p in paths if Path(p).is_dir()] or ([] if files else [str(folder)])
        with_factories = _with_factories(
            _relative_path(file) for path in folders for file in sorted(Path(path).glob("*.py"))
        )
    if len(with_factories) == 1:
        return parse(with_factories[0], names)
    if not with_factories:
        where = ", ".join(paths) or "the working directory"
        raise NoTarget(
            f"no file in {where} defines factories ({how_to_define()}); to run a script as it is, name it alone"
        )
    raise TargetError(f"several files define factories: {', '.join(with_factories)}; name one of them")


def _with_factories(files: Iterable[str]) -> list[str]:
    """Those of the files that define a factory, each once."""
    by_path = {Path(file).resolve(): file for file in files}
    return [file for file in by_path.values() if factories(file).keys() & {"model", "dataloader"}]


def how_to_define() -> str:
    """What a target must offer, in one line, for messages."""
    return "a function build_model() -> nn.Module and build_dataloader() -> DataLoader; see `perfaudit tune --help`"


def _relative_path(path: Path) -> str:
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)
