"""JSON that is committed: written so that a diff shows one thing a line, read so that nothing in it can mean two things."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any

from perfaudit.reading import check_json_parts

LARGEST = 2**63 - 1  # bytes, operations or whatever is counted; also what SQLite can keep
_CONFLICT = re.compile(r"^(<{7}|\|{7}|={7}|>{7})(?: .*)?$", re.MULTILINE)  # as git writes them


def parse_json(data: bytes) -> Any:
    """The content. Raises ValueError that says what is wrong, and where as far as that is known.

    Wrong besides what is no JSON: a merge conflict, a key that stands twice in one object, a number that is none (NaN), and
    a whole one that nothing here can be.
    """
    text = data.decode("utf-8-sig")
    if conflict := _CONFLICT.search(text):
        line = text.count("\n", 0, conflict.start()) + 1
        raise ValueError(f"line {line}: a merge conflict is not resolved ({conflict[1]})")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for key, times in Counter(key for key, _ in pairs).items():
            if times > 1:
                lines = [n for n, line in enumerate(text.splitlines(), 1) if f"{json.dumps(key)}:" in line]
                raise ValueError(f"{key!r} stands {times} times in one object{_on_lines(lines)}")
        return dict(pairs)

    def number(digits: str) -> float:
        if not math.isfinite(value := float(digits)):
            raise ValueError(f"{digits} is not a finite number")
        return value

    def whole(digits: str) -> int:
        if len(digits.lstrip("-")) > len(str(LARGEST)) or abs(value := int(digits)) > LARGEST:
            raise ValueError(f"{digits[:20]}… is too large a number")
        return value

    check_json_parts(text)
    return json.loads(text, object_pairs_hook=once, parse_float=number, parse_constant=number, parse_int=whole)


def _on_lines(lines: list[int]) -> str:
    return f" (lines {', '.join(map(str, lines))})" if 0 < len(lines) <= 4 else ""


def json_text(content: dict[str, Any]) -> str:
    """The text: keys in order, those of the whole as they come, one entry a line; the same content gives the same text.

    An object of plain values that stands in a list, as a finding does, is one line. Raises ValueError for NaN.
    """
    return "{\n" + ",\n".join(f" {_line(key)}: {_lines(value, 1)}" for key, value in content.items()) + "\n}\n"


def _lines(value: Any, depth: int, in_list: bool = False) -> str:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not parts or (in_list and not any(isinstance(part, (dict, list)) for part in parts)):
        return _line(value)
    if isinstance(value, dict):
        entries = [f"{_line(key)}: {_lines(part, depth + 1)}" for key, part in sorted(value.items())]
        opening, closing = "{", "}"
    else:
        entries = [_lines(part, depth + 1, in_list=True) for part in value]
        opening, closing = "[", "]"
    inner = ",\n".join(" " * (depth + 1) + entry for entry in entries)
    return f"{opening}\n{inner}\n{' ' * depth}{closing}"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)
