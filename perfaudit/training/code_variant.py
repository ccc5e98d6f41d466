"""A patch put into a running process: the code of its functions is swapped, and swapped back. Child only.

What a function is stays: its identity, default values, closure and decorators, and with them everyone who holds it (hooks,
`functools.partial`, registries, methods bound to objects). A text whose functions are held by something that keeps another
form of them (`torch.compile`, TorchScript, a cache of results, a frame that is still running) is refused with the reason.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import os
import sys
import threading
import types
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfaudit.target.real_paths import real_path
from perfaudit.training.code_change import CodeChange, NotSwappable, is_gone


@dataclass(slots=True)
class _Swap:
    """A function of the process with both codes."""

    function: types.FunctionType
    before: types.CodeType
    after: types.CodeType


@dataclass(slots=True)
class CodeVariant:
    """The functions of a process as patched texts have them, while the variant is entered.

    `prepare` makes one. A variant is entered and left at a step boundary, when none of its functions runs.
    """

    swaps: list[_Swap]
    names: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)  # globals, and what they lack
    entered: bool = False

    def enter(self) -> None:
        """Put the patched code in place."""
        assert not self.entered, "a variant is entered once"
        for namespace, new in self.names:
            namespace.update(new)
        for swap in self.swaps:
            swap.function.__code__ = swap.after
        self.entered = True

    def leave(self) -> None:
        """Put back what was there, also where it was entered only in part."""
        for swap in self.swaps:
            swap.function.__code__ = swap.before
        for namespace, new in self.names:
            for name in new:
                namespace.pop(name, None)
        self.entered = False

    def parts_not_run(self, work: Callable[[], object]) -> list[str]:
        """Names of functions whose patched code `work` does not run while the variant is entered; work is not timed."""
        waiting = {id(swap.after): swap.after.co_qualname for swap in self.swaps}
        with _calls(lambda code: waiting.pop(id(code), None)):
            work()
        return sorted(set(waiting.values()))


def own_code(functions: Sequence[types.FunctionType]) -> CodeVariant:
    """The variant that gives these functions a copy of the code that they have."""
    return CodeVariant([_Swap(each, each.__code__, each.__code__.replace()) for each in functions])


def prepare(changes: Sequence[CodeChange], others: Sequence[types.ModuleType] = ()) -> CodeVariant:
    """The variant that puts these changes into this process. Raises NotSwappable with the reason.

    others: modules of another training in this process, imported from the same files; their functions stay as they are.
    """
    refuse_compiled()
    variant = CodeVariant([])
    apart = {id(vars(module)) for module in others}
    for change in changes:
        _refuse_running(change, apart)
        functions = _functions_of(change, apart)
        for item in change.functions:
            found = functions.get(item.before.co_qualname, {}).get(item.before.co_firstlineno, [])
            outer = "<locals>" not in item.name
            if outer and not found:
                raise NotSwappable(
                    f"{item.name} of {change.path} is nowhere in this process: it was replaced or never imported"
                )
            for function in found:
                if is_gone(item):
                    raise NotSwappable(f"{item.name} is in use, and the patched text has it no longer")
                _refuse_other_code(function, item.before, change.path)
                _refuse_cached(function)
                variant.swaps.append(_Swap(function, function.__code__, item.after))
        for namespace in _namespaces(variant.swaps):
            new = imported_by(change, namespace)
            if new:
                variant.names.append((namespace, new))
    return variant


# ---- finding functions -----------------------------------------------------------------------------------------------


def _functions_of(change: CodeChange, apart: Container[int]) -> dict[str, dict[int, list[types.FunctionType]]]:
    """The functions of this process that a file defines, by qualified name and first line.

    apart: ids of the globals of functions that are left out. The garbage collector knows every function; those that were
    frozen out of it (`gc.freeze`) are found through modules.
    """
    real = os.path.realpath(change.path)
    wanted = {item.before.co_qualname for item in change.functions}
    found: dict[str, dict[int, list[types.FunctionType]]] = {}
    seen: set[int] = set()
    same: dict[str, bool] = {}
    for function in (*_collectable_functions(), *_functions_of_modules(real)):
        code = function.__code__
        if code.co_qualname not in wanted or id(function) in seen or id(function.__globals__) in apart:
            continue
        if code.co_filename not in same:
            same[code.co_filename] = os.path.realpath(code.co_filename) == real
        if same[code.co_filename]:
            seen.add(id(function))
            found.setdefault(code.co_qualname, {}).setdefault(code.co_firstlineno, []).append(function)
    return found


def _collectable_functions() -> Iterator[types.FunctionType]:
    return (thing for thing in gc.get_objects() if type(thing) is types.FunctionType)


_real_path = functools.cache(real_path)  # of modules, thousands of them


def _functions_of_modules(real: str) -> Iterator[types.FunctionType]:
    """Functions and methods at the top level of the modules of a file.

    Asked for whether or not any were frozen: telling that counts all objects that were, which takes longer than this.
    """
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not isinstance(name, str) or _real_path(name) != real:
            continue
        waiting = list(vars(module).values())
        seen: set[int] = set()
        while waiting:
            thing = waiting.pop()
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            if isinstance(thing, types.FunctionType):
                yield thing
                waiting.append(getattr(thing, "__wrapped__", None))
            elif isinstance(thing, (staticmethod, classmethod)):
                waiting.append(thing.__func__)
            elif isinstance(thing, property):
                waiting += [thing.fget, thing.fset, thing.fdel]
            elif isinstance(thing, type):
                waiting += list(vars(thing).values())


# ---- what is refused -------------------------------------------------------------------------------------------------


def refuse_compiled() -> None:
    """Raise NotSwappable where torch.compile has compiled anything in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and dynamo.counters["stats"]["unique_graphs"]:
        raise NotSwappable(
            "torch.compile has compiled code of this process, and what it took into a graph is not swapped"
        )


def _refuse_running(change: CodeChange, apart: Container[int]) -> None:
    """Raise NotSwappable where a frame of one of the functions is alive: it goes on with the code that it began with."""
    names = {item.name: item.before for item in change.functions}

    def is_ours(code: types.CodeType, frame: types.FrameType) -> bool:
        return code.co_qualname in names and code == names[code.co_qualname] and id(frame.f_globals) not in apart

    for at in stacks():
        if is_ours(at.f_code, at):
            raise NotSwappable(f"{at.f_code.co_qualname} is running: its frame keeps the code that it began with")
    for thing in gc.get_objects():
        kind = type(thing)
        if kind is types.GeneratorType and thing.gi_frame is not None and is_ours(thing.gi_code, thing.gi_frame):
            raise NotSwappable(f"{thing.gi_code.co_qualname} is a generator that is running")
        if kind is types.CoroutineType and thing.cr_frame is not None and is_ours(thing.cr_code, thing.cr_frame):
            raise NotSwappable(f"{thing.cr_code.co_qualname} is a coroutine that is running")


def stacks() -> Iterator[types.FrameType]:
    """All frames that are alive: of threads, and of stacks that wait for their turn."""
    for frame in (*sys._current_frames().values(), *_waiting_stacks()):
        at: types.FrameType | None = frame
        while at is not None:
            yield at
            at = at.f_back


def _waiting_stacks() -> Iterator[types.FrameType]:
    """The innermost frames of stacks that wait for their turn in this thread: a script's, between two of its steps."""
    module = sys.modules.get("greenlet")
    if module is not None:
        stacks = (thing for thing in gc.get_objects() if issubclass(type(thing), module.greenlet))
        yield from (stack.gr_frame for stack in stacks if stack.gr_frame is not None)


def _refuse_other_code(function: types.FunctionType, before: types.CodeType, path: str) -> None:
    """Raise NotSwappable where a function does not run what its file says: a tool has rewritten it, or the file changed."""
    if function.__code__ != before:
        raise NotSwappable(f"{before.co_qualname} does not run the code that {path} gives it")


def _refuse_cached(function: types.FunctionType) -> None:
    """Raise NotSwappable for a function whose earlier results are handed out without calling it, or that TorchScript took."""
    for holder in gc.get_referrers(function):
        if isinstance(holder, functools._lru_cache_wrapper):
            raise NotSwappable(
                f"{function.__qualname__} is behind functools.lru_cache, which keeps results of the code before"
            )
    script = sys.modules.get("torch.jit._state")
    if script is not None and script._try_get_jit_cached_function(function) is not None:
        raise NotSwappable(f"{function.__qualname__} was compiled by torch.jit.script")


def _namespaces(swaps: Sequence[_Swap]) -> list[dict[str, Any]]:
    return list({id(swap.function.__globals__): swap.function.__globals__ for swap in swaps}.values())


def imported_by(change: CodeChange, namespace: dict[str, Any]) -> dict[str, Any]:
    """What the imports of a patch add to these globals. Raises NotSwappable where a name stands for something else there."""
    if not change.imports or namespace.get("__file__") is None or not _is_file(namespace["__file__"], change.path):
        return {}
    scratch: dict[str, Any] = {
        name: namespace[name] for name in ("__name__", "__package__", "__spec__") if name in namespace
    }
    given = set(scratch)
    text = compile(ast.Module(list(change.imports), []), change.path, "exec", dont_inherit=True)
    try:
        exec(text, scratch)  # imports of the patch, in the user's own process
    except Exception as error:
        raise NotSwappable(f"an import of the patch failed: {type(error).__name__}: {error}") from error
    new = {name: value for name, value in scratch.items() if name not in given and name != "__builtins__"}
    for name, value in new.items():
        if name in namespace and namespace[name] is not value:
            raise NotSwappable(f"the patch imports {name}, which is something else in {change.path}")
    return {name: value for name, value in new.items() if name not in namespace}


def _is_file(name: str, path: str) -> bool:
    return os.path.realpath(name) == os.path.realpath(path)


# ---- what ran --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _calls(seen: Callable[[types.CodeType], object]) -> Iterator[None]:
    """Inside, every call of a Python function in this thread, and in those that begin meanwhile, tells its code."""

    def profile(frame: types.FrameType, event: str, argument: object) -> None:
        if event == "call":
            seen(frame.f_code)

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
