"""Whether a run that is to go on measures what it measured: what differs between the start lines of two journals."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]  # Any: nested JSON

# Options of the command line that a start line holds, by their name there.
_OPTIONS = {"memory": "--memory", "allow": "--allow", "names": "--factory", "on": "--on"}
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def difference(then: Json, now: Json) -> str:
    """What differs between two start lines so that resuming would mix measurements; one line, "" if nothing does.

    The budget may differ: it decides how much is measured, not what.
    """
    then, now = _as_read(then), _as_read(now)
    for name in ("command", "target"):
        if then.get(name) != now.get(name):
            return f"the {name} was {then.get(name)}, now it is {now.get(name)}"
    if sorted(then.get("knobs") or ()) != sorted(now.get("knobs") or ()):
        return f"the knobs were {_names_in_words(then.get('knobs'))}, now they are {_names_in_words(now.get('knobs'))}"
    if changed := _changed_files(then.get("files") or {}, now.get("files") or {}):
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        return changed[0] + more
    for part, left_out in (("environment", ()), ("options", ("budget",))):
        before, after = then.get(part) or {}, now.get(part) or {}
        for name in sorted(before.keys() | after.keys()):
            if name not in left_out and before.get(name) != after.get(name):
                if part == "options" and name in _OPTIONS:
                    return _option_words(name, before.get(name), after.get(name))
                return f"{name} was {before.get(name)}, now it is {after.get(name)}"
    return ""


def _option_words(name: str, then: object, now: object) -> str:
    """That an option of the command line is another one: as it is typed, then and now."""
    before, after = _as_typed(name, then), _as_typed(name, now)
    if not before:
        return f"it was started without {_OPTIONS[name]}, and now with {after}"
    return f"it was started with {before}, and now {f'with {after}' if after else 'without it'}"


def _as_typed(name: str, value: Any) -> str:  # Any: what JSON holds
    """An option of a start line as it is typed, "" where it was not given."""
    option = _OPTIONS[name]
    if value is None or value in (0, "", {}):
        return ""
    if name == "memory":
        size, unit = next(((size, unit) for size, unit in _SIZES if not value % size), (1, ""))
        return f"{option} {value // size}{unit}"
    if name == "names":
        return " ".join(f"{option} {role}={factory}" for role, factory in value.items())
    return f"{option} {','.join(value) or 'safe'}" if name == "allow" else f"{option} {value}"


def _changed_files(then: Json, now: Json) -> list[str]:
    words = []
    for path in sorted(then.keys() | now.keys()):
        if path not in now:
            words.append(f"{path} was read then and is not now")
        elif path not in then:
            words.append(f"{path} was not read then and is now")
        elif then[path] != now[path]:
            words.append(f"{path} has changed")
    return words


def _as_read(start: Json) -> Json:
    """The start line as a file gives it back: tuples are lists there."""
    read: Json = json.loads(json.dumps(start))
    return read


def _names_in_words(names: object) -> str:
    return ", ".join(map(str, names)) if isinstance(names, list) and names else "none"
