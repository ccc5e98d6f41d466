"""The arguments that give a loader its setting, in the call that builds it."""

from __future__ import annotations

import ast

from perfaudit.findings import Edit
from perfaudit.knobs import _handed_on
from perfaudit.knobs._code import Code
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.given_arguments import give, hands_on_options
from perfaudit.static.source import Source

PREFETCH = 2  # torch's default; in steady state it is inside the noise
_BY_DEFAULT = {"num_workers": 0, "pin_memory": False, "prefetch_factor": PREFETCH, "persistent_workers": False}
_POSITIONS = {"num_workers": 5, "pin_memory": 7}
_TIMEOUT = 9  # its position


def edits(source: Source, call: ast.Call, now: Settings, settings: Settings, prefix: str) -> tuple[Edit, ...] | None:
    """The call with the settings that differ from what it builds now; None where an argument cannot be set in place.

    prefix: what stands before DataLoader's own names in this call.
    """
    changed = {name: settings[name] for name in now if settings[name] != now[name]}
    found: list[Edit] = []
    given: dict[str, str] = {}
    may_hold = hands_on_options(call)
    for plain, value in changed.items():
        name = prefix + plain
        position = _POSITIONS.get(name)
        own = edit.keyword(call, name)
        if is_default(plain, value) and plain in ("prefetch_factor", "persistent_workers"):
            if own is None and may_hold and not is_default(plain, now[plain]):
                given[name] = repr(value)
            part = edit.remove_keyword(source, call, name) if own else ()
        elif position is not None and position < len(call.args):
            part = edit.replace(source, call.args[position], repr(value))
        else:
            given[name] = repr(value)
            part = ()
        if part is None:
            return None
        found += part
    written = give(source, call, given)
    if written is None:
        return None
    found += written
    if not settings["num_workers"] and not prefix:
        for name in ("persistent_workers", "multiprocessing_context", "timeout"):  # torch refuses them without workers
            if name in changed or not edit.keyword(call, name):
                continue
            part = edit.remove_keyword(source, call, name)
            if part is None:
                return None
            found += part
        if len(call.args) > _TIMEOUT:
            part = edit.replace(source, call.args[_TIMEOUT], "0")
            if part is None:
                return None
            found += part
    return tuple(found)


def call_of_loader(code: Code) -> tuple[Source, ast.Call] | None:
    """The call whose arguments are the loader's: see `call_at_site`, or one of a library's function that builds it meanwhile.

    The latter only where it names the number of workers. That the library hands this on is seen once the patched source has run.
    """
    loader = code.survey.facts.loader
    if loader.site is not None:
        return call_at_site(code)
    found = code.call(loader.called_at)
    is_it = (
        found is not None and edit.keyword(found[1], "num_workers") and len(found[1].args) <= _POSITIONS["num_workers"]
    )
    return found if is_it else None


def call_at_site(code: Code) -> tuple[Source, ast.Call] | None:
    """The call that builds the loader, or the object of a library that does; None where it does not name that one's class."""
    loader = code.survey.facts.loader
    found = code.call(loader.site)
    names_it = found is not None and (not loader.owner or _handed_on.builds(*found, loader.owner))
    return found if names_it else None


def is_default(name: str, value: object) -> bool:
    """Whether a value is what DataLoader takes without the argument."""
    return value == _BY_DEFAULT[name] or (name == "prefetch_factor" and value is None)
