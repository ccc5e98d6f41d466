"""Phases of a script's steps, timed by marks put into its text: what those of `perfaudit run` are held against.

    python benchmarks/marked_phases.py STEPS MARKS PROGRAM [ARGUMENTS]

MARKS is JSON: "files", those whose text is marked, besides the program; "phases", a regular expression for each phase, matched
with the first line of a statement; "step", the expression of the statement that ends a step, "" where each update of an optimizer
ends one. A statement that matches is run between two readings of the clock, as somebody would write them into the script by hand;
of a `for` loop, the call for its next item. What runs inside another mark counts for the inner one, and what has no mark for
"other". Nothing of torch is replaced, and nothing of perfaudit is used. The last line printed, or the file that
MARKED_PHASES_FILE names, is JSON: of each step its seconds, those by phase, and the number of updates.
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import json
import os
import re
import sys
import tempfile
import time
import types
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

NAME: Final = "__marked_phases__"
FILE: Final = "MARKED_PHASES_FILE"  # of the environment: what is told goes there


class Clock:
    """Adds up seconds by phase, and keeps them at the end of each step."""

    def __init__(self, steps: int) -> None:
        self.steps: list[dict[str, Any]] = []
        self._wanted = steps
        self._stack = ["other"]
        self._seconds: dict[str, float] = {}
        self.updates = 0
        self._began = self._mark = time.perf_counter()

    def _charge(self) -> None:
        now = time.perf_counter()
        phase = self._stack[-1]
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._mark
        self._mark = now

    def begin(self, phase: str) -> None:
        self._charge()
        self._stack.append(phase)

    def end(self) -> None:
        self._charge()
        self._stack.pop()

    def end_step(self) -> None:
        self._charge()
        now = time.perf_counter()
        self.steps.append({"seconds": now - self._began, "phases": self._seconds, "updates": self.updates})
        self._seconds, self._began, self.updates = {}, now, 0
        if len(self.steps) == self._wanted:
            self.tell()
            os._exit(0)
        self._began = self._mark = time.perf_counter()

    def tell(self) -> None:
        if file := os.environ.get(FILE):
            Path(file).write_text(json.dumps(self.steps))
        else:
            print("\n" + json.dumps(self.steps), flush=True)


class Mark:
    """A phase around a statement. A step ends behind the statement that ends it."""

    def __init__(self, clock: Clock, phase: str) -> None:
        self._clock, self._phase = clock, phase

    def __enter__(self) -> None:
        self._clock.begin(self._phase)

    def __exit__(self, *_: object) -> None:
        self._clock.end()

    def items(self, values: Iterable[Any]) -> Iterator[Any]:
        """What a loop goes through, with the time that each item takes, and that of the start."""
        with self:
            items = iter(values)
        while True:
            with self:
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item


class EndOfStep:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._clock.end_step()


class _Marking(ast.NodeTransformer):
    """Puts marks around the statements that match. A compound statement is only marked where it is a loop."""

    def __init__(self, lines: Sequence[str], phases: dict[str, re.Pattern[str]], step: re.Pattern[str]) -> None:
        self._lines, self._phases, self._step = lines, phases, step

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        if not isinstance(node, ast.stmt) or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return node
        line = self._lines[node.lineno - 1].strip()
        phase = next((name for name, pattern in self._phases.items() if pattern.search(line)), None)
        if isinstance(node, ast.For):
            if phase is not None:
                asked = f"{NAME}[{phase!r}].items"
                node.iter = ast.Call(ast.parse(asked, mode="eval").body, [node.iter], [])
            return node
        is_simple = not hasattr(node, "body")
        marked: Any = node
        if phase is not None and is_simple:
            marked = self._inside(f"{NAME}[{phase!r}]", marked)
        if self._step.search(line):
            marked = self._inside(f"{NAME}['step']", marked)
        return marked

    @staticmethod
    def _inside(what: str, node: ast.stmt) -> ast.With:
        return ast.With([ast.withitem(ast.parse(what, mode="eval").body)], [node])


def marked_code(text: bytes, path: str, phases: dict[str, re.Pattern[str]], step: re.Pattern[str]) -> types.CodeType:
    """The code of a text with its marks."""
    tree = ast.parse(text, path)
    lines = text.decode("utf-8", "replace").splitlines()
    tree = ast.fix_missing_locations(_Marking(lines, phases, step).visit(tree))
    return compile(tree, path, "exec", dont_inherit=True)


def main() -> None:
    steps, marks, program = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
    clock = Clock(steps)
    phases = {phase: re.compile(pattern) for phase, pattern in marks["phases"].items()}
    step = re.compile(marks["step"] or "$.")  # the latter matches nothing
    table: dict[str, object] = {phase: Mark(clock, phase) for phase in phases}
    setattr(builtins, NAME, table | {"step": EndOfStep(clock)})
    files = {str(Path(name).resolve()) for name in marks.get("files", ())}
    original = importlib.machinery.SourceFileLoader.source_to_code

    def source_to_code(self: Any, data: Any, path: Any, **rest: Any) -> Any:
        if os.path.realpath(os.fspath(path)) in files:
            return marked_code(bytes(data), str(path), phases, step)
        return original(self, data, path, **rest)

    importlib.machinery.SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign,assignment]  # marks
    sys.pycache_prefix = tempfile.mkdtemp()  # nothing compiled before is used
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def count(*_: object) -> None:
        clock.updates += 1
        if not marks["step"]:
            clock.end_step()

    register_optimizer_step_post_hook(count)
    path = str(Path(program).absolute())
    sys.argv[:] = sys.argv[3:]
    sys.path[0] = str(Path(path).parent)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = module
    code = marked_code(Path(path).read_bytes(), path, phases, step)
    try:
        exec(code, module.__dict__)
    finally:
        clock.tell()


if __name__ == "__main__":
    main()
