"""What is said of the file of a script before anything runs, in the same words whatever is to be done with it."""

from __future__ import annotations

import warnings
from pathlib import Path

from perfaudit.errors import UserError

# Ends of names of files that hold no program. Others may hold one: a script needs no `.py`.
_NO_PYTHON = (
    ".json", ".jsonl", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".csv", ".tsv", ".txt", ".md", ".rst", ".sh",
    ".ipynb", ".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".npy", ".npz", ".zip",
)  # fmt: skip


def check_script(script: str, is_module: bool) -> None:
    """Raise UserError for a script that is not there, or whose name says that it is none."""
    if is_module:
        return
    path = Path(script)
    if not path.exists():
        hint = "; for a module, type -m" if "/" not in script and not script.endswith(".py") else ""
        raise UserError(f"{script}: no such file{hint}")
    if path.is_dir():
        raise UserError(f"{script}: is a folder; name the script in it")
    if path.suffix.lower() in _NO_PYTHON:
        raise UserError(f"{script}: is no Python file; name the script, and behind -- what it is given")


def check_text(script: str) -> None:
    """Raise UserError for a script whose name says that it is none, or which Python cannot read: torch takes long to import."""
    check_script(script, False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a text that Python reads: it says so itself when the script runs
            compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)
    except SyntaxError as error:
        place = f" ({script}:{error.lineno})" if error.lineno else ""
        raise UserError(f"{script}: {type(error).__name__}: {error.msg}{place}") from error
    except (OSError, ValueError, RecursionError, MemoryError):
        return  # whoever runs it says what is wrong
