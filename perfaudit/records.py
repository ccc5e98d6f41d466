"""Dataclasses that are made in a fifth of the time: a scan of one file imports some thirty of them.

`dataclasses.replace`, `asdict`, `fields` and `is_dataclass`, `pprint` and a type checker take them for dataclasses, and one may
derive from them. Where `dataclasses` writes and compiles each method of each class, all share one here, but for `__init__`. What
a record cannot have is refused when its class is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["field", "record", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
    from dataclasses import field, replace
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


def _options(value: Any) -> dict[str, Any]:  # Any: a default, or what `field` made
    return value.said if type(value) is field else {"default": value}


def _init(said: dict[str, dict[str, Any]]) -> Callable[..., None]:  # Any: what is said of a field
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
    exec("\n".join([f"def __init__(self, {', '.join(parameters)}):", *lines]), known)  # names of fields, nothing else
    made: Callable[..., None] = known["__init__"]
    return made


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
