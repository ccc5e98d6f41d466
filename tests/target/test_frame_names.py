"""The names of a running function, looked at without changing what it sees."""

from __future__ import annotations

import gc
import sys
import weakref

from perfaudit.target.frame_names import names_in


class Thing:
    pass


def test_what_a_function_has_is_read_and_not_kept_alive() -> None:
    def train() -> tuple[bool, weakref.ref[Thing]]:  # without an assert, which pytest would have look at all names
        thing = Thing()
        with names_in(sys._getframe()) as names:
            is_read = names["thing"] is thing
        seen = weakref.ref(thing)
        del thing
        gc.collect()
        return is_read, seen

    is_read, seen = train()
    assert is_read
    assert seen() is None


def test_a_function_that_keeps_its_names_finds_them_as_they_were() -> None:
    def train() -> dict[str, object]:
        rate = 0.1
        config = locals()
        batch = 3
        with names_in(sys._getframe()):
            pass
        return {**config, "own": (rate, batch)}

    assert train() == {"rate": 0.1, "own": (0.1, 3)}


def test_a_method_of_that_name_looks_at_nothing() -> None:
    def train(model: type[Thing]) -> bool:
        with names_in(sys._getframe()) as names:
            is_read = "model" in names
        model.eval()  # type: ignore[attr-defined]
        return is_read

    def look() -> bool:
        with names_in(sys._getframe()) as names:
            is_read = "names" in names
        eval("0")
        return is_read

    Thing.eval = lambda: None  # type: ignore[attr-defined]
    assert train(Thing)
    assert not look()


def test_what_looks_at_its_argument_looks_at_no_names() -> None:
    """`vars(args)` stands in many functions that train; `vars()` is `locals()`."""

    def train(args: Thing) -> bool:
        with names_in(sys._getframe()) as names:
            is_read = "args" in names
        return is_read and vars(args) == {} and "__doc__" in dir(args)

    def look() -> bool:
        with names_in(sys._getframe()) as names:
            is_read = "names" in names
        vars()
        return is_read

    def hand_on(args: Thing) -> bool:
        with names_in(sys._getframe()) as names:
            is_read = "names" in names
        list(map(vars, [args]))
        return is_read

    def spread(args: list[Thing]) -> bool:
        with names_in(sys._getframe()) as names:
            is_read = "names" in names
        dir(*args)
        return is_read

    is_new = sys.version_info >= (3, 13)  # where a look from outside changes nothing
    assert train(Thing())
    assert [look(), hand_on(Thing()), spread([])] == [is_new] * 3


def test_of_a_module_they_are_its_globals() -> None:
    space: dict[str, object] = {"look": lambda: names_in(sys._getframe(1))}
    exec("with look() as names:\n    found = 'look' in names\n", space)
    assert space["found"] is True
    assert "look" in space
