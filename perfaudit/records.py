"""Dataclasses and named tuples that are made in a fraction of the time: a scan of one file imports some thirty of each.

`dataclasses.replace`, `asdict`, `fields` and `is_dataclass`, `pprint` and a type checker take them for dataclasses, and one may
derive from them. Where `dataclasses` writes and compiles each method of each class, all share one here, but for `__init__`. What
a record cannot have is refused when its class is made. `typing` makes a named tuple by way of `collections`, and compiles the
type of each field; those here are compiled when the first is made.
"""

from __future__ import annotations

from collections import _tuplegetter  # type: ignore[attr-defined]  # what its own named tuples have
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple", "as_json", "field", "record", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
    from dataclasses import field, replace
    from typing import NamedTuple
else:

    def record(frozen=False, slots=False, order=False, eq=True, repr=True):
        """What `dataclasses.dataclass` makes of a class with these arguments."""
        return lambda cls: _make(cls, frozen, slots, order, eq, repr)

    class field:
        """What `dataclasses.field` says of a field with these arguments."""

        def __init__(self, **said: object) -> None:
            self.said = said

    def replace(value, /, **changes):
        """What `dataclasses.replace` returns."""
        return type(value)(**{name: getattr(value, name) for name in value.__match_args__} | changes)

    class _NamedTupleMaker(type):
        def __new__(cls, name, bases, body):
            return _make_named_tuple(name, body) if bases else super().__new__(cls, name, bases, body)

    class NamedTuple(metaclass=_NamedTupleMaker):
        """What derives from this is what it is as a `typing.NamedTuple`."""


_NOT_GIVEN: Any = object()


def _make(cls: Any, frozen: bool, slots: bool, order: bool, compares: bool, shows: bool) -> Any:  # Any: classes
    own = vars(cls)
    names = tuple(cls.__annotations__)
    written = ("__post_init__", "__init__", *(("__eq__", "__hash__") * compares), *(("__repr__",) * shows))
    _refuse_what_is_no_record(cls, names, written)
    said = {name: _options(own[name]) if name in own else {} for name in names}
    body = {key: value for key, value in own.items() if key not in (*names, "__dict__", "__weakref__")}
    body |= {
        "__annotations__": cls.__annotations__,
        "__match_args__": names,
        "__init__": _init(said),
        "__reduce__": _reduce,
        "__replace__": replace,
        "__dataclass_fields__": _AsDataclass("__dataclass_fields__", said, frozen, order, compares, shows),
        "__dataclass_params__": _AsDataclass("__dataclass_params__", said, frozen, order, compares, shows),
    }
    body["_compared"] = tuple(name for name in names if said[name].get("compare", True))
    body["_shown"] = tuple(name for name in names if said[name].get("repr", True))
    if compares:
        body |= {"__eq__": _equal, "__hash__": _hash if frozen else None}
    if slots:
        body["__slots__"] = names
    if frozen:
        body |= {"__setattr__": _refuse, "__delattr__": _refuse}
    if shows:
        body["__repr__"] = _repr
    if order:
        body |= {"__lt__": _less, "__le__": _less_or_equal, "__gt__": _greater, "__ge__": _greater_or_equal}
    return type(cls)(cls.__name__, cls.__bases__, body)


def _make_named_tuple(name: str, body: dict[str, Any]) -> type:  # Any: what stands in a class
    fields = tuple(body["__annotations__"])
    defaults = {field: body[field] for field in fields if field in body}
    known: dict[str, Any] = {
        "_tuple_new": tuple.__new__,
        **{f"_of_{field}": value for field, value in defaults.items()},
    }
    parameters = [f"{field}=_of_{field}" if field in defaults else field for field in fields]
    code = f"def __new__(_cls, {', '.join(parameters)}):\n return _tuple_new(_cls, ({', '.join(fields)},))"
    return type(
        name,
        (tuple,),
        {
            **_OF_NAMED_TUPLES,
            **{field: _tuplegetter(place, None) for place, field in enumerate(fields)},
            **{key: value for key, value in body.items() if key not in defaults},
            "__slots__": (),
            "__new__": _Late("__new__", code, known),
            "__match_args__": fields,
            "_fields": fields,
            "_field_defaults": defaults,
        },
    )


def _options(value: Any) -> dict[str, Any]:  # Any: a default, or what `field` made
    return value.said if type(value) is field else {"default": value}


def as_json(value: Any) -> Any:
    """What `dataclasses.asdict` makes of a record, with lists for tuples: as it stands in JSON."""
    if isinstance(value, (tuple, list)):
        return [as_json(part) for part in value]
    if isinstance(value, dict):
        return {key: as_json(part) for key, part in value.items()}
    if getattr(value, "_compared", None) is None:
        return value
    return {name: as_json(getattr(value, name)) for name in value.__match_args__}


class _Late:
    """A function of a class that is compiled when it is asked for, with the first object: of many a class a scan makes none."""

    def __init__(self, name: str, code: str, known: dict[str, Any]) -> None:  # Any: what the code names
        self._name, self._code, self._known = name, code, known

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner

    def __get__(self, instance: object, owner: type) -> Any:  # Any: what a function gives there
        exec(self._code, self._known)  # names of fields, nothing else
        made = self._known[self._name]
        type.__setattr__(self._owner, self._name, staticmethod(made) if self._name == "__new__" else made)
        return made if self._name == "__new__" else made.__get__(instance, owner)


def _init(said: dict[str, dict[str, Any]]) -> _Late:  # Any: what is said of a field
    known: dict[str, Any] = {"_set": object.__setattr__, "_not_given": _NOT_GIVEN}
    parameters, lines = [], []
    for name, of in said.items():
        default, value = "", name
        if "default" in of:
            known[f"_of_{name}"] = of["default"]
            default = f"=_of_{name}"
        elif "default_factory" in of:
            known[f"_of_{name}"] = of["default_factory"]
            default, value = "=_not_given", f"_of_{name}() if {name} is _not_given else {name}"
        parameters.append(name + default)
        lines.append(f" _set(self, {name!r}, {value})")
    return _Late("__init__", "\n".join([f"def __init__(self, {', '.join(parameters)}):", *lines]), known)


def _refuse_what_is_no_record(cls: Any, names: tuple[str, ...], written: tuple[str, ...]) -> None:  # Any: a class
    """Raise TypeError for a class that a dataclass could be and a record cannot. written: methods that it gets here."""
    own = vars(cls)
    if by_hand := [name for name in written if own.get(name) is not None]:
        raise TypeError(f"{cls.__name__} is no record, because it has its own {by_hand[0]}: make it a dataclass")
    if any(hasattr(base, "__dataclass_fields__") for base in cls.__bases__):
        raise TypeError(f"{cls.__name__} is no record, because its base has fields: make it a dataclass")
    for name in names:
        if "ClassVar" in str(cls.__annotations__[name]) or isinstance(own.get(name), (list, dict, set)):
            raise TypeError(f"{cls.__name__} is no record, because of {name}: make it a dataclass")


class _AsDataclass:
    """What `dataclasses` keeps in a class under this name, from the first time on that somebody asks."""

    def __init__(self, name: str, said: dict[str, dict[str, Any]], *options: bool) -> None:  # Any: options of a field
        self._name, self._said = name, said
        self._options: dict[str, Any] = dict(zip(("frozen", "order", "eq", "repr"), options, strict=True))

    def __get__(self, instance: object, owner: Any) -> Any:
        import dataclasses

        kinds = owner.__annotations__
        fields = [(name, kinds[name], dataclasses.field(**of)) for name, of in self._said.items()]
        made = vars(dataclasses.make_dataclass(owner.__name__, fields, **self._options))[self._name]
        setattr(owner, self._name, made)
        return made


# ---- what all share; Any: a record --------------------------------------------------------------------------------------


def _values(self: Any) -> tuple[object, ...]:
    return tuple([getattr(self, name) for name in self._compared])


def _equal(self: Any, other: Any) -> Any:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _less(self: Any, other: Any) -> Any:
    return _values(self) < _values(other) if other.__class__ is self.__class__ else NotImplemented


def _less_or_equal(self: Any, other: Any) -> Any:
    return _values(self) <= _values(other) if other.__class__ is self.__class__ else NotImplemented


def _greater(self: Any, other: Any) -> Any:
    return _values(self) > _values(other) if other.__class__ is self.__class__ else NotImplemented


def _greater_or_equal(self: Any, other: Any) -> Any:
    return _values(self) >= _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._shown)})"


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), tuple([getattr(self, name) for name in self.__match_args__])


def _refuse(self: Any, name: str, *_: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


# ---- what named tuples share; Any: one of them, and what it holds ---------------------------------------------------------


def _tuple_of(cls: Any, values: Iterable[Any]) -> Any:
    made: Any = tuple.__new__(cls, values)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _tuple_with(self: Any, /, **changes: Any) -> Any:
    made = self._make(map(changes.pop, self._fields, self))
    if changes:
        raise ValueError(f"Got unexpected field names: {list(changes)!r}")
    return made


def _tuple_as_dict(self: Any) -> dict[str, Any]:
    return dict(zip(self._fields, self, strict=True))


def _tuple_repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"


_OF_NAMED_TUPLES = {
    "_make": classmethod(_tuple_of),
    "_replace": _tuple_with,
    "_asdict": _tuple_as_dict,
    "__repr__": _tuple_repr,
    "__getnewargs__": lambda self: tuple(self),
}
