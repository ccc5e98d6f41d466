"""The files from which a script takes its settings, as far as its text and its arguments name them, and what they say.

They are read and never run: YAML, TOML and JSON line by line, as a parser of YAML need not be installed.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfaudit.reading import MAX_SETTINGS_BYTES
from perfaudit.static.source import Unreadable, read_text

ALWAYS = (
    ".yaml",
    ".yml",
    ".toml",
)  # hold settings and hardly anything else; of JSON or Python, that is seen by what they say
SUFFIXES = (*ALWAYS, ".json")
PYTHON = ".py"  # which a script runs, or imports, for its settings
_MODULES = (
    "yaml",
    "ruamel",
    "toml",
    "tomllib",
    "tomli",
    "OmegaConf",
    "hydra",
    "jsonargparse",
    "configargparse",
    "pyrallis",
)
_READERS = ("parse_yaml_file", "LightningCLI")  # transformers, lightning
# "max_epochs: 3  # of ten", `"epochs": 3,` and "epochs = 3", alone on a line. Blanks are read once: a line may hold a megabyte.
_LINE = re.compile(r"""\s*+(?:-\s++)?((["']?)([A-Za-z_][\w.-]*)\2\s*+[:=]\s*+\d[\d_]*+)\s*+(?:,\s*+)?(?:#.*)?""")

Said = tuple[str, str, int]  # a name without the sections above it, the words that set it, and the line


def has_settings_of_files(tree: ast.Module) -> bool:
    """Whether a script may take its settings from a file: it uses a library that reads some, or says so itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(each.name.partition(".")[0] in _MODULES for each in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (
            (node.module or "").partition(".")[0] in _MODULES or any(each.name in _MODULES for each in node.names)
        ):
            return True
        if isinstance(node, (ast.Attribute, ast.Name)):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name in _READERS:
                return True
    return False


def settings_files(text: str, file: str, arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Names and texts of those that are there: those among the arguments first, then those that the script's text names."""
    named = [word.rpartition("=")[2] for word in arguments]
    names = [name for name in named if name.endswith((*SUFFIXES, PYTHON))]
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        names += _names_in(ast.parse(text), file, arguments)
    found: dict[str, str] = {}
    for name in names:
        with contextlib.suppress(Unreadable, ValueError):
            found.setdefault(name, read_text(Path(name), MAX_SETTINGS_BYTES)[0])
    return [*found.items()]


def numbers_said(text: str) -> Iterator[Said]:
    """Whole numbers that a file of YAML, TOML or JSON gives a name on a line of its own."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := _LINE.fullmatch(line):
            yield found[3].rpartition(".")[2], found[1], number


def _names_in(tree: ast.Module, file: str, arguments: Sequence[str]) -> Iterator[str]:
    """Files of settings that a script's text names, seen from the working directory or from the folder of the script.

    None of JSON, which may be what an earlier run has written: its results, with the epoch of each.
    """
    folder = Path(file).parent
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(ALWAYS):
            yield from dict.fromkeys((node.value, str(folder / node.value)))
        elif isinstance(node, ast.Call):
            given = {each.arg: each.value for each in node.keywords}
            is_hydras = bool({"config_name", "config_path"} & given.keys())  # `@hydra.main(config_path="conf", …)`
            if is_hydras and (name := _choice(arguments) or _text(given.get("config_name"))):
                yield os.path.normpath(folder / _text(given.get("config_path")) / f"{name.removesuffix('.yaml')}.yaml")


def _choice(arguments: Sequence[str]) -> str:
    """The configuration that a command line of hydra chooses, "" for none."""
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in ("--config-name", "-cn"):
            return value if equals else next(iter(arguments[at + 1 : at + 2]), "")
    return ""


def _text(value: ast.expr | None) -> str:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
