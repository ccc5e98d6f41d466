"""Values of a JSON or TOML text that somebody else wrote, taken apart by type. What is wrong names the path of its key.

findings[3].fix.edits[0].start must be a whole number of at least 0, it is -1
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeVar

from perfaudit.expressions import regex
from perfaudit.reading import json_of, toml_of, value_in_words
from perfaudit.records import record

T = TypeVar("T", bound=str)

LARGEST = sys.float_info.max
_MISSING = object()
_TABLE = "a table"  # of TOML; JSON has objects
_PLAIN = regex(r"[\w-]+")
_DIGEST = regex(r"[0-9a-f]{64}")


class Damaged(ValueError):
    """A value that is missing or of another kind. The message begins with the path of its key; key: the last one of that."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


@record(frozen=True, slots=True)
class Value:
    """A value with the path of the key that it stands at: `findings[3].fix`, "" for the whole text.

    Every method that takes it apart raises Damaged for what it is not. A key that is null counts as one that is not there.
    """

    raw: Any  # nested JSON or TOML
    path: str = ""
    key: str = ""  # the last of the path
    table: str = "an object"  # what the language calls one

    @classmethod
    def of_json(cls, data: str | bytes) -> Value:
        """The whole of a JSON text. Raises ValueError, as `reading.json_of` does."""
        return cls(json_of(data))

    @classmethod
    def of_toml(cls, text: str) -> Value:
        """The whole of a TOML text. Raises ValueError, as `reading.toml_of` does."""
        return cls(toml_of(text), table=_TABLE)

    def damage_error(self, problem: str) -> Damaged:
        """The error that this value `problem`, as in "must be a date"."""
        return Damaged(f"{self.path or 'the file'} {problem}", self.key)

    def must(self, holds: bool, be: str) -> None:
        """Raises Damaged, that the value must be so and what it is instead, unless that holds."""
        if not holds:
            raise self._no(be)

    def _no(self, what: str) -> Damaged:
        is_there = self.raw is not _MISSING
        return self.damage_error(f"must be {what}, it is {value_in_words(self.raw)}" if is_there else "is missing")

    @property
    def _table_words(self) -> str:
        return f"{self.table} ([{self.path}])" if self.table == _TABLE and self.path else self.table

    def at(self, key: str) -> Value:
        """The value of a key; that it is missing is said when it is taken apart."""
        self.must(isinstance(self.raw, dict), self._table_words)
        return self._below(key, self.raw.get(key, _MISSING))

    def maybe(self, key: str) -> Value | None:
        """The value of a key, None where it is missing or null."""
        value = self.at(key)
        return None if value.raw is None or value.raw is _MISSING else value

    def _below(self, key: str, value: Any) -> Value:
        path = f".{key}" if _PLAIN.fullmatch(key) else f"[{value_in_words(key)}]"
        return Value(value, f"{self.path}{path}".removeprefix("."), key, self.table)

    def keys(self, needed: Collection[str], optional: Collection[str] = ()) -> Value:
        """The object itself, which has these keys and no others: one that is misspelt must not count as missing."""
        self.must(isinstance(self.raw, dict), self._table_words)
        for key in sorted(self.raw.keys() - set(needed) - set(optional)):
            has = ", ".join(sorted({*needed, *optional}))
            raise Damaged(f"{self.path or 'the file'} has no key {value_in_words(key)} (it has: {has})", key)
        for key in sorted(set(needed) - self.raw.keys()):
            raise self.damage_error(f"lacks {key!r}")
        return self

    def fields(self) -> Iterator[tuple[str, Value]]:
        """Each key of an object with its value."""
        self.must(isinstance(self.raw, dict), self._table_words)
        for key, value in self.raw.items():
            yield key, self._below(key, value)

    def items(self, most: int = sys.maxsize) -> list[Value]:
        """The entries of a list of at most so many."""
        self.must(isinstance(self.raw, list), "a list")
        if len(self.raw) > most:
            raise self.damage_error(f"has {len(self.raw):,} entries, and at most {most:,} are read")
        return [Value(value, f"{self.path}[{number}]", self.key, self.table) for number, value in enumerate(self.raw)]

    def text(self) -> str:
        self.must(isinstance(self.raw, str), "a string")
        return str(self.raw)

    def texts(self) -> tuple[str, ...]:
        example = f", such as [{value_in_words(self.raw)}]" if isinstance(self.raw, str) else ""
        self.must(isinstance(self.raw, list), f"a list of strings{example}")
        return tuple(item.text() for item in self.items())

    def one_of(self, names: Iterable[T]) -> T:
        """The one of these texts that it is."""
        known = tuple(names)
        for name in known:
            if name == self.raw:
                return name
        raise self._no(f"one of {', '.join(known)}")

    def digest(self) -> str:
        """A SHA-256 in hexadecimal."""
        self.must(isinstance(self.raw, str) and _DIGEST.fullmatch(self.raw) is not None, "a SHA-256 in hexadecimal")
        return str(self.raw)

    def is_true(self) -> bool:
        self.must(isinstance(self.raw, bool), "true or false")
        return bool(self.raw)

    def whole(self, least: int = 0) -> int:
        self.must(type(self.raw) is int and self.raw >= least, f"a whole number of at least {least}")
        return int(self.raw)

    def number(self, least: float = -LARGEST, most: float = LARGEST) -> float:
        """A finite number within these bounds."""
        is_number = isinstance(self.raw, (int, float)) and not isinstance(self.raw, bool)
        bounds = [f"at least {least:g}"] * (least > -LARGEST) + [f"at most {most:g}"] * (most < LARGEST)
        self.must(
            is_number and least <= self.raw <= most, f"a number of {' and '.join(bounds)}" if bounds else "a number"
        )
        return float(self.raw)
