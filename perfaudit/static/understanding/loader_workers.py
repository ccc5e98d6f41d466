"""Whether a DataLoader has worker processes, as far as the text says, and how they are kept between epochs."""

from __future__ import annotations

import ast

from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.static.understanding.defaults import Default, default, values_in_files
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, argument, constant, resolve

NUM_WORKERS = 5  # position of the parameter in DataLoader.__init__ of every torch since 1.0
KEPT = "keep the workers between epochs"
_CORES = {"os.cpu_count", "multiprocessing.cpu_count", "torch.multiprocessing.cpu_count"}


def has_workers(source: Source, call: ast.Call) -> bool:
    """Whether a DataLoader call asks for workers: by a number, the number of cores, or an option's default."""
    workers = argument(source, call, "num_workers", NUM_WORKERS)
    if not isinstance(workers, ast.expr):
        return False
    return is_positive(source, workers) or _is_positive_default(source, workers, default(source, workers))


def is_positive(source: Source, workers: ast.expr) -> bool:
    """Whether there are workers: a positive number, the number of cores, or an option whose default is positive.

    Not by a default where settings files of the project may give the option none.
    """
    value = constant(source, workers)
    if value is not UNKNOWN:
        return type(value) is int and value > 0
    if counts_cores(source, workers):
        return True
    option = resolve(source, workers)
    if isinstance(option, ast.Call) and last_name(option.func) == "int" and len(option.args) == 1:
        option = option.args[0]
    if isinstance(option, ast.Attribute) and _default_of(source, option) > 0:
        return not _may_be_none_by_files(source, option)
    from perfaudit.static.understanding.program_settings import default_in_program  # most files say it themselves

    return _is_positive_default(source, workers, default_in_program(source, workers))


def counts_cores(source: Source, workers: ast.expr) -> bool:
    """Whether an expression is the number of cores, by one of the functions that count them."""
    value = resolve(source, workers)
    return isinstance(value, ast.Call) and source.qualified_name(value.func) in _CORES


def _is_positive_default(source: Source, workers: ast.expr, found: Default | None) -> bool:
    if found is None or type(found.value) is not int or found.value <= 0:
        return False
    return bool(found.place) or not _may_be_none_by_files(source, workers)


def _may_be_none_by_files(source: Source, workers: ast.expr) -> bool:
    """Whether settings files give the option that an expression reads no worker, or what cannot be told."""
    return any(type(value) is not int or value <= 0 for value in values_in_files(source, workers))


def _default_of(source: Source, option: ast.Attribute) -> int:
    """The default of the command-line option that `args.workers` reads; 0 where there is none, or several."""
    found: list[int] = []
    for call in source.calls(".add_argument"):
        texts = [a.value.lstrip("-") for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if option.attr in [text.replace("-", "_") for text in texts]:
            value = constant(source, argument(source, call, "default"))
            found.append(value if type(value) is int else 0)
    return found[0] if len(found) == 1 and isinstance(option.value, ast.Name) else 0


def keep_workers(source: Source, call: ast.Call, workers: ast.expr) -> edit.Edits | None:
    """`persistent_workers=` in the call; without workers it would raise, so a number that may be 0 is asked."""
    is_sure = type(constant(source, workers)) is int or counts_cores(source, workers)
    value = "True" if is_sure else f"{source.text_of(workers)} > 0"
    own = edit.keyword(call, "persistent_workers")
    if own is None and argument(source, call, "persistent_workers") is not ABSENT:
        return None
    if "\n" in value or (own is not None and not isinstance(own.value, ast.Constant)):
        return None
    if not any(ancestor is call for ancestor in source.ancestors(workers)) and value != "True":
        return None  # from a dict elsewhere: its names may not be known here
    return edit.set_keyword(source, call, "persistent_workers", value)
