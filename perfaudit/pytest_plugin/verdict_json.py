"""The verdicts in a gate's JSON report, as the types they were."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from perfaudit.verdicts import CounterChange, CountersVerdict, FindingsVerdict, Gate, Place, TimeVerdict

Json = dict[str, Any]  # Any: nested JSON
_T = TypeVar("_T")


def gate_of(report: Json) -> Gate:
    """What a report's key "gate" holds. Raises KeyError, TypeError or AttributeError for one that is no gate's."""
    data = report["gate"]
    return _make(
        Gate,
        data,
        findings=_make(FindingsVerdict, data["findings"]) if data["findings"] else None,
        counters=tuple(_counters(item) for item in data["counters"]),
        times=tuple(_time(item) for item in data["times"]),
        self_tests={},
        notes=tuple(data["notes"]),
    )


def _counters(data: Json) -> CountersVerdict:
    return _make(CountersVerdict, data, changes=tuple(_change(item) for item in data["changes"]))


def _change(data: Json) -> CounterChange:
    return _make(CounterChange, data, places=tuple(_make(Place, item) for item in data["places"]))


def _time(data: Json) -> TimeVerdict:
    unknown = {"low": 0.0, "high": float("inf")} if data["high"] is None else {}  # JSON has no infinity
    control = {"control": tuple(data["control"])} if data.get("control") else {}
    return _make(TimeVerdict, data, **unknown, **control)


def _make(kind: type[_T], data: Json, **parts: object) -> _T:
    """The dataclass of these values; a value that a newer report adds is passed over."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # each kind is a dataclass
    return kind(**{name: value for name, value in data.items() if name in known} | parts)
