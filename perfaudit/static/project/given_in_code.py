"""Which values the text of a Python file gives a setting of loaders, as marks. Reads bytes, parses nothing.

Read generously: a keyword, a field with a value, a key of a dict, an option of the command line, an override in a text. The
arguments of a DataLoader are none of these: they take the setting, or are about this loader alone.
"""

from __future__ import annotations

from perfaudit.expressions import regex

OFF, ON, SOME = "off", "on", "some"  # 0 or False; a positive number or True; what cannot be told
_WORDS = regex(rb"(?i)worker|thread|pin_mem")
_PART = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_OFF = regex(rb"(?:False|0|None)(?![\w.(\[])")
_ON = regex(rb"(?:True|[1-9]\d{0,6})(?![\w.(\[])")
_ANNOTATION = regex(rb":[ \t]*[\w.]{1,40}(?:\[[\w., |]{0,40}\])?(?:[ \t]*\|[ \t]*\w{1,40}){0,3}[ \t]*=(?!=)[ \t]*")
_OPTION = regex(rb"[\"']--?([\w-]{1,80})\Z")
# Before and behind a setting that is handed on as it is: `int(cfg["data"].get("` and `"))`.
_BEFORE_HANDED = regex(rb"(?:int\(|bool\()?[ \t]*(?:[\w.\[\]\"']*(?:get\([\"']|[.\"']))?")
_BEHIND_HANDED = regex(rb"[\"'\])} \t\\]*(?:if\b.{0,80}\belse (?:False|0|None)\b)?[\])} \t\\]*(?:#.*)?")
# The parameters of a constructor, with brackets in brackets in brackets: what one of them is by default.
_CONSTRUCTOR = regex(rb"\bdef[ \t]+__init__[ \t]*\((?:[^()]++|\((?:[^()]++|\((?:[^()]++|\([^()]*+\))*+\))*+\))*+\)")
# The arguments of hydra's function, which go before what files say.
_INSTANTIATES = regex(rb"\binstantiate\((?:[^()]++|\([^()]*+\))*+\Z")
_EVALUATES = (b"no_grad", b".eval()", b"inference_mode")
_TRAINS = (
    b"backward(",
    b".fit(",
    b".step(",
    b"optim",
    b"rainer",
    b"training_step",
    b"LightningModule",
    b"LightningData",
)
_LONGEST = 120  # bytes that are looked at behind a name
_QUOTES = (b'"', b"'")


def gives(name: str, kind: str) -> str:
    """The mark of a file that gives a setting a value of a kind."""
    return f"gives {name} {kind}"


def gives_elsewhere(name: str, kind: str) -> str:
    """The mark of a file that gives a value to something else than what settings files build with theirs.

    A constructor has it for a parameter by default, or a script that only evaluates passes it to its own loader.
    """
    return f"gives {name} {kind} elsewhere"


def marks_of_given(data: bytes) -> set[str]:
    """The marks of a text without comments and the arguments of loaders."""
    marks: set[str] = set()
    constructors = [match.span() for match in _CONSTRUCTOR.finditer(data)] if b"__init__" in data else []
    evaluates = (
        b"__main__" in data and any(word in data for word in _EVALUATES) and not any(word in data for word in _TRAINS)
    )
    end = 0
    for match in _WORDS.finditer(data):
        if match.start() < end:
            continue
        start, end = match.span()
        while start and data[start - 1] in _PART:
            start -= 1
        while end < len(data) and data[end] in _PART:
            end += 1
        kind = _kind_given(data, start, end)
        if kind and end - start <= _LONGEST:
            # An option `--num-workers` is kept as `num_workers`.
            whole = _OPTION.search(data[max(0, start - _LONGEST) : end])
            name = whole[1].replace(b"-", b"_") if whole and data[end : end + 1] in _QUOTES else data[start:end]
            is_elsewhere = any(first < start < last for first, last in constructors)
            is_elsewhere = is_elsewhere or (evaluates and _is_passed(data, start, end))
            marks.add((gives_elsewhere if is_elsewhere else gives)(name.decode(), kind))
    return marks


def _is_passed(data: bytes, start: int, end: int) -> bool:
    """Whether the name at a place is a keyword of a call, and not one of hydra's, which builds what settings files say."""
    before = data[max(0, start - _LONGEST) : start].rstrip()
    return before.endswith((b"(", b",")) and data[end : end + 1] == b"=" and not _INSTANTIATES.search(before)


def _kind_given(data: bytes, start: int, end: int) -> str:
    """Which kind of value the name at a place is given there, "" for none."""
    name, before, after = data[start:end], data[max(0, start - _LONGEST) : start], data[end : end + _LONGEST]
    if after[:1] in _QUOTES:
        return _kind_in_text(name, before, after[1:].lstrip(b" \t"))
    behind = after.lstrip(b" \t")
    if before.endswith(b"def ") and behind[:1] == b"(":  # a property
        return SOME
    if behind[:1] == b"=" and behind[:2] != b"==":
        return SOME if _INSTANTIATES.search(before) else _kind_of_value(name, behind[1:])
    if behind[1:2] == b"=" and behind[:1] in (b"+", b"-", b"*", b"|", b":"):
        return SOME
    if behind[:1] == b":":
        annotated = _ANNOTATION.match(behind)
        value = behind[annotated.end() :] if annotated else behind[1:].lstrip(b" \t")
        return _kind_of_value(name, value) if annotated or _OFF.match(value) or _ON.match(value) else ""
    line = before.rpartition(b"\n")[2]
    is_target = before.endswith(b".") and behind[:1] == b"," and not set(line) & set(b"(=[")
    return SOME if is_target and b"=" in behind.partition(b"\n")[0] else ""


def _kind_in_text(name: bytes, before: bytes, behind: bytes) -> str:
    """The same of a name at the end of a text in quotes. behind: what follows the quote."""
    if before[-1:] not in _QUOTES:
        return SOME if before[-1:] in (b"-", b".", b"/", b"+") else ""
    around = before[:-1].rstrip(b" \t\n")
    if behind[:1] == b":":
        return _kind_of_value(name, behind[1:])
    if behind[:1] == b"]":
        set_to = behind[1:].lstrip(b" \t")
        if set_to[1:2] == b"=" and set_to[:1] in (b"+", b"-", b"*", b"|"):
            return SOME
        return _kind_of_value(name, set_to[1:]) if set_to[:1] == b"=" and set_to[:2] != b"==" else ""
    if around.endswith((b"get(", b"[")) or behind.startswith((b"in ", b"not in ")):
        return SOME if around.endswith(b"[") else ""  # `["num_workers", 8]`
    return SOME


def _kind_of_value(name: bytes, text: bytes) -> str:
    value = text.lstrip(b" \t")
    before, is_named, behind = value.partition(b"\n")[0].rstrip().partition(b",")[0].partition(name)
    if is_named:  # `num_workers=cfg.num_workers` hands it on, `num_workers=cfg.num_workers or 4` does not
        return "" if _BEFORE_HANDED.fullmatch(before) and _BEHIND_HANDED.fullmatch(behind) else SOME
    return OFF if _OFF.match(value) else ON if _ON.match(value) else SOME
