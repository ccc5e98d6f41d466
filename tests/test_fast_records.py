"""A record is to everybody what the dataclass with the same fields is, and so are named tuples; they are only made faster."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
import pprint
import re
import typing
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from perfaudit import records
from perfaudit.records import NamedTuple, as_json, field, record, replace


@record(frozen=True, slots=True, order=True)
class Place:
    """Where something is."""

    path: str
    line: int = 1
    remark: str | None = field(default=None, compare=False)

    @property
    def shown(self) -> str:
        return f"{self.path}:{self.line}"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Plain:
    """The same as a dataclass."""

    path: str
    line: int = 1
    remark: str | None = dataclasses.field(default=None, compare=False)


@record(slots=True)
class Noted:
    names: set[str] = field(default_factory=set)
    inside: tuple[Place, ...] = ()


@record(frozen=True)
class Kept:
    name: str
    data: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def length(self) -> int:
        return len(self.name)


PLACES: list[dict[str, Any]] = [  # Any: values of several types
    {"path": "a.py"},
    {"path": "a.py", "line": 2},
    {"path": "a.py", "line": 2, "remark": "x"},
    {"path": "b.py"},
]


@pytest.mark.parametrize("values", PLACES)
def test_a_record_does_what_the_dataclass_does(values: dict[str, Any]) -> None:
    one, other = Place(**values), Plain(**values)
    assert repr(one) == repr(other).replace("Plain", "Place")
    assert dataclasses.asdict(one) == dataclasses.asdict(other)
    assert [f.name for f in dataclasses.fields(one)] == [f.name for f in dataclasses.fields(other)]
    assert dataclasses.is_dataclass(one)
    assert Place.__match_args__ == Plain.__match_args__
    for more in PLACES:
        assert (one == Place(**more), one < Place(**more), one >= Place(**more)) == (
            other == Plain(**more),
            other < Plain(**more),
            other >= Plain(**more),
        )
        assert (hash(one) == hash(Place(**more))) == (hash(other) == hash(Plain(**more)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_are_equal(copied: Any) -> None:
    for it in (Place("a.py", 3, "x"), Noted({"a"}, (Place("b"),)), Kept("a", {"b": 1})):
        assert copied(it) == it
        assert repr(copied(it)) == repr(it)


def test_as_json_is_what_asdict_writes_there() -> None:
    it = Noted({"a"}, (Place("b", 2, "x"), Place("c")))
    whole = {**dataclasses.asdict(it), "names": ["a"]}
    assert as_json(Noted(["a"], it.inside)) == json.loads(json.dumps(whole))  # type: ignore[arg-type]  # JSON has no sets


def test_replace_is_that_of_dataclasses() -> None:
    place = Place("a.py", 3, "x")
    assert replace(place, line=4).shown == dataclasses.replace(place, line=4).shown == "a.py:4"
    assert replace(Plain("a.py"), line=4) == Plain("a.py", 4)
    with pytest.raises(TypeError, match="column"):
        replace(place, column=4)


def test_what_is_frozen_stays() -> None:
    place = Place("a.py")
    for change in (lambda: setattr(place, "line", 2), lambda: delattr(place, "line"), lambda: setattr(place, "x", 2)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert place == Place("a.py")


def test_what_is_not_frozen_has_defaults_of_its_own_and_no_hash() -> None:
    one, other = Noted(), Noted()
    one.names.add("a")
    one.inside = (Place("b"),)
    assert (other.names, other.inside) == (set(), ())
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_a_record_without_slots_keeps_what_it_computes() -> None:
    kept = Kept("name")
    assert (kept.length, "length" in vars(kept)) == (4, True)
    assert repr(kept) == "Kept(name='name')"
    assert Kept("a", {"x": 1}) == Kept("a")


def test_who_prints_or_derives_from_a_record_takes_it_for_a_dataclass() -> None:
    assert "line=2" in pprint.pformat(Place("a.py", 2), width=10)

    @dataclasses.dataclass(frozen=True)
    class Longer(Place):
        end: int = 0

    assert Longer("a.py", 2, None, 3) == Longer("a.py", 2, end=3) != Longer("a.py", 2)
    assert Place("a.py").__replace__(line=5) == Place("a.py", 5)  # what `copy.replace` calls


@pytest.mark.parametrize(
    ("body", "base"),
    [
        ({"__annotations__": {"a": "int"}, "__post_init__": lambda self: None}, object),
        ({"__annotations__": {"a": "int"}, "__repr__": lambda self: "a"}, object),
        ({"__annotations__": {"a": "ClassVar[int]"}, "a": 1}, object),
        ({"__annotations__": {"a": "list[int]"}, "a": []}, object),
        ({"__annotations__": {"a": "int"}}, Place),
    ],
)
def test_what_a_record_would_pass_over_is_refused(body: dict[str, Any], base: type) -> None:
    with pytest.raises(TypeError, match="make it a dataclass"):
        record(frozen=True)(type("Odd", (base,), body))


@pytest.mark.parametrize("given", [(), ("a", 1, None, 2)])
def test_wrong_arguments_are_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"__init__\(\)"):
        Place(*given)


def test_an_init_is_made_with_the_first_object_and_once() -> None:
    @record(frozen=True, slots=True)
    class Late:
        name: str
        size: int = 0

    class Derived(Late):
        pass

    assert "function" not in type(vars(Late)["__init__"]).__name__
    assert Derived("a", 2).size == 2
    made = vars(Late)["__init__"]
    assert "function" in type(made).__name__
    assert Late("a") == Late("a", 0) and vars(Late)["__init__"] is made
    assert list(inspect.signature(Late).parameters) == ["name", "size"]


class Seen(NamedTuple):
    """Where something was seen."""

    path: str
    line: int = 1
    places: tuple[int, ...] = ()

    @property
    def shown(self) -> str:
        return f"{self.path}:{self.line}"

    def moved(self, lines: int) -> Seen:
        return self._replace(line=self.line + lines)


class PlainSeen(typing.NamedTuple):
    """Where something was seen."""

    path: str
    line: int = 1
    places: tuple[int, ...] = ()


def test_a_named_tuple_is_what_typing_makes_of_it() -> None:
    one, other = Seen("a.py", places=(2, 3)), PlainSeen("a.py", places=(2, 3))
    assert one == other == ("a.py", 1, (2, 3))
    assert repr(one) == repr(other).replace("PlainSeen", "Seen")
    assert (one._asdict(), Seen._fields, Seen._field_defaults) == (
        other._asdict(),
        PlainSeen._fields,
        PlainSeen._field_defaults,
    )
    assert (Seen.__doc__, Seen.__match_args__, Seen.__bases__) == (
        PlainSeen.__doc__,
        PlainSeen.__match_args__,
        PlainSeen.__bases__,
    )
    assert typing.get_type_hints(Seen) == typing.get_type_hints(PlainSeen)
    assert inspect.signature(Seen).parameters.keys() == inspect.signature(PlainSeen).parameters.keys()
    assert (Seen.__module__, Seen.__qualname__, one.moved(2).shown) == (__name__, "Seen", "a.py:3")
    assert pickle.loads(pickle.dumps(one)) == one and type(copy.deepcopy(one)) is Seen
    assert not hasattr(one, "__dict__")
    assert Seen._make(["a.py", 2, ()]) == PlainSeen._make(["a.py", 2, ()])
    for wrong in (lambda cls: cls(), lambda cls: cls("a", 1, (), 2), lambda cls: cls._make(["a"])):
        for cls in (Seen, PlainSeen):
            with pytest.raises(TypeError):
                wrong(cls)
    for it in (one, other):
        with pytest.raises(ValueError, match=r"unexpected field names: \['column'\]"):
            it._replace(column=4)


def test_the_package_has_no_others() -> None:
    """Those of `typing` took eight times as long to make."""
    package = Path(records.__file__).parent
    taken = re.compile(r"^from typing import .*\bNamedTuple\b", re.MULTILINE)
    assert [path.name for path in package.rglob("*.py") if taken.search(path.read_text())] == []
