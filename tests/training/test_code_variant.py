"""A patch put into a running process and taken out again: who holds its functions runs the patched code, and then the old."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perfaudit.training.code_change import NotSwappable, code_change
from perfaudit.training.code_variant import CodeVariant, prepare

pytestmark = pytest.mark.usefixtures("nothing_compiled")

Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Import a text as a module of its own: `load(text).f`."""
    names: list[str] = []

    def loaded(text: str, name: str = "user_module") -> types.ModuleType:
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        names.append(name)
        spec.loader.exec_module(module)
        return module

    yield loaded
    for name in names:
        sys.modules.pop(name, None)


def variant(module: Any, *replaced: tuple[str, str], imports: str = "") -> CodeVariant:
    """The patch of a module's file that replaces these texts and adds these imports."""
    before = Path(module.__file__).read_text()
    after = before
    for old, new in replaced:
        assert old in after
        after = after.replace(old, new)
    return prepare([code_change(module.__file__, before, imports + after)])


@contextlib.contextmanager
def entered(found: CodeVariant) -> Iterator[None]:
    found.enter()
    try:
        yield
    finally:
        found.leave()


def test_a_function_and_everyone_who_holds_it(load: Load) -> None:
    module = load("def f(x, y=1):\n    return x + y\n")
    held = module.f
    part = functools.partial(module.f, 1, y=10)
    registry = {"f": module.f}
    found = variant(module, ("x + y", "x * y + 100"))
    with entered(found):
        assert (held(2, 3), part(), registry["f"](2), module.f is held) == (106, 110, 102, True)
    assert (held(2, 3), part(), registry["f"](2)) == (5, 11, 3)


def test_methods_of_objects_that_exist(load: Load) -> None:
    module = load("""
        class Base:
            def forward(self, x):
                return x + 1
        class Net(Base):
            def forward(self, x):
                return super().forward(x) * 2
            @property
            def size(self):
                return 1
            @staticmethod
            def s(x):
                return x
            @classmethod
            def c(cls, x):
                return cls.__name__, x
    """)
    net = module.Net()
    bound = net.forward
    found = variant(
        module, ("super().forward(x) * 2", "super().forward(x) * 3"), ("return 1", "return 11"),
        ("        return x\n", "        return x + 5\n"), ("cls.__name__, x", "cls.__name__, -x"),
    )  # fmt: skip
    with entered(found):
        assert (bound(1), net.size, net.s(1), net.c(1)) == (6, 11, 6, ("Net", -1))
    assert (bound(1), net.size, net.s(1), net.c(1)) == (4, 1, 1, ("Net", 1))


def test_decorated_functions_keep_their_decorators(load: Load) -> None:
    module = load("""
        import functools
        calls = []
        def noted(f):
            @functools.wraps(f)
            def wrapper(*a):
                calls.append(f.__name__)
                return f(*a)
            return wrapper
        @noted
        def g(x):
            return x
    """)
    with entered(variant(module, ("return x", "return -x"))):
        assert module.g(1) == -1
    assert module.g(1) == 1
    assert module.calls == ["g", "g"]


def test_closures_made_before_and_meanwhile(load: Load) -> None:
    module = load("""
        def scale(a):
            def by(x):
                return x * a
            return by
    """)
    twice, thrice = module.scale(2), module.scale(3)
    found = variant(module, ("x * a", "x * a + 1"))
    with entered(found):
        assert (twice(1), thrice(1), module.scale(4)(1)) == (3, 4, 5)
        late = module.scale(5)
    assert (twice(1), thrice(1), module.scale(4)(1)) == (2, 3, 4)
    assert late(1) == 6  # what was made inside is the patch's own


def test_an_import_is_there_while_the_variant_is(load: Load) -> None:
    module = load("def f(x):\n    return x\n")
    found = variant(module, ("return x", "return math.floor(x)"), imports="import math\n")
    with entered(found):
        assert module.f(1.5) == 1
    assert module.f(1.5) == 1.5
    assert not hasattr(module, "math")


def test_a_name_that_stands_for_something_else_is_refused(load: Load) -> None:
    module = load("def math():\n    pass\ndef f(x):\n    return x\n")
    with pytest.raises(NotSwappable, match="the patch imports math, which is something else"):
        variant(module, ("return x", "return math.floor(x)"), imports="import math\n")


def test_an_import_that_fails_is_refused(load: Load) -> None:
    module = load("def f(x):\n    return x\n")
    with pytest.raises(NotSwappable, match="ModuleNotFoundError"):
        variant(module, ("return x", "return 2"), imports="import no_such_module_anywhere\n")


def test_everything_is_as_it_was_afterwards(load: Load) -> None:
    module = load("""
        def f(x, y=[1], *, z=2):
            return x
        f.note = 1
    """)
    state = (
        module.f.__code__,
        module.f.__defaults__,
        module.f.__kwdefaults__,
        dict(vars(module.f)),
        dict(vars(module)),
    )
    found = variant(module, ("return x", "return x + z"), imports="import math\n")
    with entered(found):
        assert module.f.__code__ is not state[0]
        assert module.f(1) == 3
    after = (
        module.f.__code__,
        module.f.__defaults__,
        module.f.__kwdefaults__,
        dict(vars(module.f)),
        dict(vars(module)),
    )
    assert after == state
    assert after[0] is state[0]


def test_leaving_undoes_what_was_entered_in_part(load: Load) -> None:
    module = load("def f(x):\n    return x\ndef g(x):\n    return x\n")
    found = variant(module, ("return x", "return x + 1"))
    before = module.f.__code__, module.g.__code__
    found.swaps[1].after = None  # type: ignore[assignment]  # assigning it fails
    with pytest.raises(TypeError):
        found.enter()
    found.leave()
    assert (module.f.__code__, module.g.__code__) == before


def test_the_same_file_imported_twice(load: Load) -> None:
    text = "def f(x):\n    return x\n"
    first = load(text)
    spec = importlib.util.spec_from_file_location("again", first.__file__)
    assert spec is not None and spec.loader is not None
    second = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(second)
    with entered(variant(first, ("return x", "return math.ceil(x)"), imports="import math\n")):
        assert (first.f(0.5), second.f(0.5)) == (1, 1)
    assert (first.f(0.5), second.f(0.5)) == (0.5, 0.5)


def test_functions_frozen_out_of_the_garbage_collector(load: Load) -> None:
    module = load("class A:\n    @staticmethod\n    def f(x):\n        return x\n")
    gc.freeze()
    try:
        found = variant(module, ("return x", "return -x"))
    finally:
        gc.unfreeze()
    with entered(found):
        assert module.A.f(1) == -1
    gc.freeze()  # as it was: see `pytest_runtest_setup`


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_a_frame_that_is_running(load: Load) -> None:
    module = load("def loop(work):\n    work()\n    return 1\n")
    reasons: list[str] = []

    def work() -> None:
        try:
            variant(module, ("return 1", "return 2"))
        except NotSwappable as why:
            reasons.append(str(why))

    module.loop(work)
    assert reasons == ["loop is running: its frame keeps the code that it began with"]


def test_a_frame_of_another_thread(load: Load) -> None:
    module = load("def loop(begun, end):\n    begun.set()\n    end.wait(10)\n    return 1\n")
    begun, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=module.loop, args=(begun, end))
    thread.start()
    begun.wait(10)
    try:
        with pytest.raises(NotSwappable, match="loop is running"):
            variant(module, ("return 1", "return 2"))
    finally:
        end.set()
        thread.join()
    variant(module, ("return 1", "return 2"))


def test_a_generator_that_is_not_exhausted(load: Load) -> None:
    module = load("def batches():\n    for x in range(3):\n        yield x\n")
    alive = module.batches()
    next(alive)
    with pytest.raises(NotSwappable, match="batches is a generator that is running"):
        variant(module, ("yield x", "yield -x"))
    alive.close()
    with entered(variant(module, ("yield x", "yield -x"))):
        assert list(module.batches()) == [0, -1, -2]


def test_a_coroutine_that_waits(load: Load) -> None:
    module = load("async def f(x):\n    return x\n")
    waiting = module.f(1)
    with pytest.raises(NotSwappable, match="f is a coroutine that is running"):
        variant(module, ("return x", "return -x"))
    waiting.close()
    variant(module, ("return x", "return -x"))


def test_results_that_are_kept(load: Load) -> None:
    module = load("import functools\n@functools.lru_cache\ndef f(x):\n    return x\n")
    with pytest.raises(NotSwappable, match=r"f is behind functools\.lru_cache"):
        variant(module, ("return x", "return -x"))


def test_a_function_that_was_replaced(load: Load) -> None:
    module = load("def f(x):\n    return x\ndef g(x):\n    return 1\n")
    del module.f
    gc.collect()
    with pytest.raises(NotSwappable, match=r"f of .* is nowhere in this process"):
        variant(module, ("return x", "return -x"))


def test_a_file_that_is_no_longer_what_was_imported(load: Load) -> None:
    module = load("def f(x):\n    return x\n")
    Path(module.__file__).write_text("def f(x):\n    return x + 1\n")
    with pytest.raises(NotSwappable, match="f does not run the code that"):
        variant(module, ("x + 1", "x + 2"))


def test_a_lambda_in_use_that_the_patch_removes(load: Load) -> None:
    module = load("def make():\n    return lambda x: x + 1\n")
    held = module.make()
    with pytest.raises(NotSwappable, match="<lambda> is in use, and the patched text has it no longer"):
        variant(module, ("lambda x: x + 1", "int"))
    assert held(1) == 2


@pytest.mark.slow
def test_what_torch_compiled_or_scripted(load: Load) -> None:
    import torch

    module = load("def f(x):\n    return x + 1\n")
    scripted = torch.jit.script(module.f)
    with pytest.raises(NotSwappable, match=r"compiled by torch\.jit\.script"):
        variant(module, ("x + 1", "x + 2"))
    del scripted
    other = load("def f(x):\n    return x + 1\n", "other_module")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    variant(other, ("x + 1", "x + 2"))
    torch.compile(other.f, backend="eager")(torch.zeros(2))
    try:
        with pytest.raises(NotSwappable, match=r"torch\.compile has compiled code"):
            variant(other, ("x + 1", "x + 2"))
    finally:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()


# ---- what ran --------------------------------------------------------------------------------------------------------


def test_functions_that_the_work_did_not_call(load: Load) -> None:
    module = load("def f(x):\n    return x\ndef g(x):\n    return x\n")
    found = variant(module, ("return x", "return -x"))
    with entered(found):
        assert found.parts_not_run(lambda: module.f(1)) == ["g"]
        assert found.parts_not_run(lambda: (module.f(1), module.g(1))) == []
    assert sys.getprofile() is None


def test_functions_called_in_a_thread_of_the_work(load: Load) -> None:
    module = load("def f(x):\n    return x\n")
    found = variant(module, ("return x", "return -x"))

    def work() -> None:
        thread = threading.Thread(target=module.f, args=(1,))
        thread.start()
        thread.join()

    with entered(found):
        assert found.parts_not_run(work) == []


def test_a_copy_of_the_own_code_changes_nothing(load: Load) -> None:
    module = load("def f(x):\n    return x\n")
    before = Path(module.__file__).read_text()
    control = prepare([code_change(module.__file__, before, before.replace("return x", "return -x")).with_own_code()])
    mine = module.f.__code__
    with entered(control):
        assert module.f(1) == 1
        assert module.f.__code__ is not mine
        assert control.parts_not_run(lambda: module.f(1)) == []
    assert module.f.__code__ is mine
