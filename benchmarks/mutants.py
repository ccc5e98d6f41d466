"""Mutation test: changes the package in one place at a time and reports the changes that no test notices.

    make mutants MODULES=perfaudit/measure/judge.py SAMPLE=50
    python benchmarks/mutants.py perfaudit/render perfaudit/gate/decision.py --sample 60 --seed 1

Tests of a module are those in `tests/<part>` that reach the changed line, quickest first. They run in a forked child of a
process that has everything imported, with the changed function put in the place of the old one, so a mutant costs
hundredths of a second; what is changed outside functions is imported anew. Left out: tests marked `slow`, tests that start
Python processes (those would read the files, which stay as they are), and tests that take over `TEST_SECONDS`.
Not changed, because no test should hold it: annotations, docstrings, prose outside `render`, messages of what is raised,
and the keywords in `KEPT_KEYWORDS`. Survivors are written to the journal, from where a next run takes what was killed;
survivors are tried again. `mutants_equivalent.toml` lists the changes that change nothing, each with its reason.
"""

from __future__ import annotations

import _posixsubprocess
import argparse
import ast
import contextlib
import copy
import gc
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
import tomllib
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).resolve().parent.parent
JOURNAL = ROOT / "build" / "mutants.jsonl"
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.toml")
AROUND = 40  # characters shown beside a difference
TEST_SECONDS = 2.0  # of processor time; a longer test would be run for many mutants
CPU_SECONDS = 4  # of one mutant, above ten times what its tests take: it loops
MEMORY = 3 << 30  # bytes that a mutant may take beyond what is there: it collects without end
OUTSIDE_TESTS = 300  # tests that judge a change outside functions: those that reach most of the module
# Keywords whose effect shows on other input or other machines only.
KEPT_KEYWORDS = {"strict", "encoding", "frozen", "slots", "stacklevel", "maxsize"}
OPERATORS: dict[type, list[type]] = {
    ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt], ast.Gt: [ast.GtE, ast.LtE], ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.Is: [ast.IsNot], ast.IsNot: [ast.Is], ast.In: [ast.NotIn],
    ast.NotIn: [ast.In], ast.And: [ast.Or], ast.Or: [ast.And], ast.Add: [ast.Sub], ast.Sub: [ast.Add],
    ast.Mult: [ast.Div], ast.Div: [ast.Mult], ast.FloorDiv: [ast.Mult], ast.Mod: [ast.Mult], ast.Pow: [ast.Mult],
    ast.BitOr: [ast.BitAnd], ast.BitAnd: [ast.BitOr], ast.BitXor: [ast.BitOr],
}  # fmt: skip
PAIRS = [
    ("min", "max"),
    ("any", "all"),
    ("low", "high"),
    ("startswith", "endswith"),
    ("first", "last"),
    ("wall", "cpu"),
]
TWINS = dict(PAIRS) | {b: a for a, b in PAIRS}


@dataclass(frozen=True)
class Mutant:
    """One change: `new` in place of what `field` of `parent` holds."""

    path: str
    tree: ast.Module
    number: int
    parent: ast.AST
    field: str
    index: int | None
    new: ast.AST
    lines: tuple[int, int]
    statement: ast.stmt
    function: str  # in whose body it is; empty outside functions

    def swap(self) -> None:
        """Puts the change in, and the next time out again."""
        held = getattr(self.parent, self.field)
        if self.index is None:
            setattr(self.parent, self.field, self.new)
            object.__setattr__(self, "new", held)
        else:
            held[self.index], new = self.new, held[self.index]
            object.__setattr__(self, "new", new)

    def compiled(self) -> types.CodeType:
        self.swap()
        try:
            return compile(self.tree, str(ROOT / self.path), "exec", dont_inherit=True)
        finally:
            self.swap()

    def diff(self) -> tuple[str, str]:
        """What stood and what stands, as `ast.unparse` writes it, with a little on both sides of the difference."""
        new = self.new if isinstance(self.new, ast.stmt) else self.statement
        before = ast.unparse(self.statement)
        self.swap()
        after = ast.unparse(new)
        self.swap()
        start = shared(before, after)
        end = min(shared(before[::-1], after[::-1]), min(len(before), len(after)) - start)
        cut = max(0, start - AROUND)
        was, now = (text[cut : len(text) - max(0, end - AROUND)] for text in (before, after))
        return was, now


def shared(one: str, other: str) -> int:
    """How many characters two texts have in common from their beginning."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def replacements(node: ast.AST, prose: bool) -> Iterator[ast.AST]:
    """What may stand in place of a node."""

    def other(**fields: Any) -> ast.AST:
        new = copy.copy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                for swapped in OPERATORS[type(op)]:
                    yield other(ops=[*ops[:i], swapped(), *ops[i + 1 :]])
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op):
            for swapped in OPERATORS.get(type(op), []):
                yield other(op=swapped())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield other(value=not value)
        case ast.Constant(value=int() | float() as value):
            yield other(value=value + 1)
        case ast.Constant(value=str(text)) if prose or (text and " " not in text):
            yield other(value=f"XX{text}")
        case ast.IfExp(body=body, orelse=orelse):
            yield other(body=orelse, orelse=body)
        case ast.If(test=test) | ast.While(test=test):
            if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant)):
                yield other(test=ast.UnaryOp(ast.Not(), test))
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield other(value=ast.Constant(None))
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield ast.Pass()
        case ast.Call(keywords=keywords):
            for i, keyword in enumerate(keywords):
                if keyword.arg not in {None, *KEPT_KEYWORDS}:
                    yield other(keywords=[*keywords[:i], *keywords[i + 1 :]])
        case ast.comprehension(ifs=ifs):
            for i in range(len(ifs)):
                yield other(ifs=[*ifs[:i], *ifs[i + 1 :]])
        case ast.Name(id=name) if (
            name in TWINS and isinstance(node.ctx, ast.Load) and TWINS[name] in {"min", "max", "any", "all"}
        ):
            yield other(id=TWINS[name])
        case ast.Attribute(attr=name) if name in TWINS and isinstance(node.ctx, ast.Load):
            yield other(attr=TWINS[name])


def is_left_alone(node: ast.AST, field: str, prose: bool) -> bool:
    """Whether what a field holds is not changed: see the top of this file."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assert():
            return True
        case ast.Raise():
            return field == "exc"
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Subscript(value=ast.Name(id="Literal")):
            return True
        case ast.Call(func=ast.Name(id="cast" | "dataclass" | "TypeVar")):
            return True
        case ast.keyword(arg=name) if name in KEPT_KEYWORDS:
            return True
        case ast.FormattedValue():
            return field == "format_spec"
        case ast.JoinedStr():
            return not prose and all(isinstance(part, ast.Constant) for part in node.values)
    return field in {"annotation", "returns", "decorator_list", "type_params"}


def mutants_of(path: str, tree: ast.Module) -> list[Mutant]:
    """Every change of a module, in the order of its text."""
    prose, found = "/render/" in path, list[Mutant]()

    def visit(node: ast.AST, statement: ast.stmt | None, function: str) -> None:
        for field, value in ast.iter_fields(node):
            if is_left_alone(node, field, prose):
                continue
            inside = function
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and field == "body":
                inside = f"{function}.{node.name}".lstrip(".")
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(child, ast.AST):
                    continue
                owner = child if isinstance(child, ast.stmt) else statement
                if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant) and not prose):
                    for new in replacements(child, prose):
                        ast.fix_missing_locations(ast.copy_location(new, child))
                        assert owner is not None
                        found.append(
                            Mutant(path, tree, len(found), node, field, index, new, reach(owner), owner, inside)
                        )  # fmt: skip
                visit(child, owner, inside)

    visit(tree, None, "")
    return found


def reach(statement: ast.stmt) -> tuple[int, int]:
    """First and last line of a statement without the statements in it."""
    inner = [line.lineno for line in ast.walk(statement) if isinstance(line, ast.stmt) and line is not statement]
    last = statement.end_lineno or statement.lineno
    return statement.lineno, max(statement.lineno, min([last, *(line - 1 for line in inner)]))


def guard(inside: str) -> None:
    """Nothing is written outside a folder, no Python is started and none but own children are ended, whatever a mutant does."""
    os.environ["GIT_CEILING_DIRECTORIES"] = inside
    os.chdir(inside)

    def is_outside(path: Any) -> bool:
        named = isinstance(path, (str, bytes, os.PathLike))
        return named and not os.path.realpath(os.fsdecode(path)).startswith((inside, "/dev/"))

    def is_child(pid: int) -> bool:  # as those that audit files in a scan
        try:
            return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()
        except OSError:
            return False

    def watch(event: str, values: tuple[Any, ...]) -> None:
        if event == "open":
            writes = any(c in (values[1] or "") for c in "wax+") or (values[2] or 0) & (os.O_WRONLY | os.O_RDWR)
            if writes and is_outside(values[0]):
                raise PermissionError(f"a mutant may not write {values[0]!r}")
        elif event in {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.symlink", "os.chmod", "shutil.rmtree"}:
            paths = values[:2] if event == "os.rename" else values[1:2] if event == "os.symlink" else values[:1]
            if values[-1] in (-1, None) and any(map(is_outside, paths)):  # else it is below an open folder
                raise PermissionError(f"a mutant may not touch {paths!r}")
        elif event in {"os.kill", "os.killpg"} and not is_child(values[0]):
            raise PermissionError("a mutant may not end processes")
        elif event in {"subprocess.Popen", "os.posix_spawn", "os.exec"}:
            at = (values[2] if event == "subprocess.Popen" else None) or "."
            if "python" in os.fsdecode(values[0]) or is_outside(at):
                os._exit(3)

    sys.addaudithook(watch)
    vars(_posixsubprocess)["fork_exec"] = lambda *_: os._exit(3)  # as multiprocessing calls it, without an event


def in_a_child(
    work: Callable[[Callable[[Any], None]], None], seconds: float, silence: float, folder: str
) -> tuple[bool, list[Any]]:
    """Whether a function ended in a forked child within so many processor seconds, and what it told, never silent for long."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.close(read)
            for number in (0, 1, 2) if "MUTANTS_LOUD" not in os.environ else (0,):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
            held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
            sys.dont_write_bytecode = True
            guard(folder)
            work(lambda value: os.write(write, json.dumps(value).encode() + b"\n") and None)
            os.write(write, b'"ended"\n')
        finally:
            os._exit(0)
    os.close(write)
    told = b""
    while select.select([read], [], [], silence)[0] and (part := os.read(read, 1 << 16)):
        told += part
    os.close(read)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    lines = [json.loads(line) for line in told.split(b"\n")[:-1]]
    ended = lines[-1:] == ["ended"]
    return ended, lines[:-1] if ended else lines


class Session:
    """A pytest session that collects tests and then does with them what it is told."""

    def __init__(self, then: Callable[[list[pytest.Item]], None]) -> None:
        self.then = then

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.then(session.items)
        return True


def with_tests(names: list[str], then: Callable[[list[pytest.Item]], None]) -> None:
    """Collect tests here and hand them to a function."""
    # Not pytest's own hook for assertions: it would import the package by itself, which is one of its plugins.
    options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "-m", "not slow"]
    pytest.main([*options, "--rootdir", str(ROOT), *names], plugins=[Session(then)])


def passes(item: pytest.Item) -> bool:
    item.config._tmp_path_factory._basetemp = Path(tempfile.mkdtemp())  # type: ignore[attr-defined]
    return all(report.passed or report.skipped for report in runtestprotocol(item, log=False, nextitem=None))


def reached_lines(
    items: list[pytest.Item], files: set[str], folder: str
) -> tuple[dict[str, float], dict[str, set[int]]]:
    """Processor seconds of each test that serves, and by `file:line` the numbers of the tests that reach it."""
    seconds, at, start = dict[str, float](), defaultdict[str, set[int]](set), 0

    def look(tell: Callable[[Any], None]) -> None:
        for number, item in enumerate(items[start:], start):
            seen: set[str] = set()

            def line(frame: types.FrameType, event: str, _: Any, seen: set[str] = seen) -> Any:
                seen.add(f"{frame.f_code.co_filename}:{frame.f_lineno}")
                return line

            tell(["begins", number])
            began = time.process_time()
            sys.settrace(lambda frame, event, _, line=line: line if frame.f_code.co_filename in files else None)
            ok = passes(item)
            sys.settrace(None)
            tell(["ends", number, ok, time.process_time() - began, sorted(seen)])

    while start < len(items):
        _, lines = in_a_child(look, 600, 6 * TEST_SECONDS, folder)
        for ended in (line for line in lines if line[0] == "ends" and line[2] and line[3] < TEST_SECONDS):
            seconds[items[ended[1]].nodeid] = ended[3]
            for place in ended[4]:
                at[place].add(ended[1])
        start = 1 + max((line[1] for line in lines), default=start)
    return seconds, at


def functions_of(files: set[str]) -> dict[tuple[str, str, int], list[types.FunctionType]]:
    found = defaultdict(list)
    for thing in gc.get_objects():
        if isinstance(thing, types.FunctionType) and (code := thing.__code__).co_filename in files:
            found[code.co_filename, code.co_qualname, code.co_firstlineno].append(thing)
    return found


def put_in(code: types.CodeType, functions: dict[tuple[str, str, int], list[types.FunctionType]]) -> None:
    """Give every function that was defined by a module the code that it has in another text of it."""
    for inner in (const for const in code.co_consts if isinstance(const, types.CodeType)):
        for function in functions.get((inner.co_filename, inner.co_qualname, inner.co_firstlineno), []):
            if function.__code__ != inner:
                function.__code__ = inner
        put_in(inner, functions)


class Changed(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Imports one module from a code object."""

    def __init__(self, name: str, path: str, code: types.CodeType) -> None:
        super().__init__(name, path)
        self.code = code

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, name: str) -> types.CodeType:
        return self.code


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_ours(name: str, module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None) or ""
    return name != "__main__" and file.startswith((f"{ROOT}/perfaudit/", f"{ROOT}/simulated/", f"{ROOT}/tests/"))


def judge_part(tests: list[str], chosen: list[Mutant], folder: str, tell: Callable[[Mutant, str, int], None]) -> None:
    """Tells of every mutant of one part of the package what its tests say: killed, survived, or not reached by any."""
    files = {str(ROOT / mutant.path) for mutant in chosen}

    def judge(items: list[pytest.Item]) -> None:
        seconds, at = reached_lines(items, files, folder)
        by_speed = sorted(range(len(items)), key=lambda n: (seconds.get(items[n].nodeid, 0.0), n))
        for path in {mutant.path for mutant in chosen}:
            importlib.import_module(module_of(path))  # some are imported late, by a test
        functions = functions_of(files)
        gc.freeze()  # pages that are not written stay shared with the children
        most = {file: Counter(n for place in at if place.startswith(f"{file}:") for n in at[place]) for file in files}
        sound: dict[str, bool] = {}

        def run(work: Callable[[Callable[[Any], None]], None], picked: list[int]) -> bool:
            limit = 10 * sum(seconds[items[n].nodeid] for n in picked) + CPU_SECONDS
            return in_a_child(work, limit, 4 * limit + 20, folder) == (True, [True])

        def in_place(code: types.CodeType, picked: list[int]) -> bool:
            def work(say: Callable[[Any], None]) -> None:
                put_in(code, functions)
                say(all(passes(items[n]) for n in picked))

            return run(work, picked)

        def anew(code: types.CodeType, path: str, picked: list[int]) -> bool:
            def work(say: Callable[[Any], None]) -> None:
                for known in [name for name, module in sys.modules.items() if is_ours(name, module)]:
                    del sys.modules[known]
                sys.meta_path.insert(0, Changed(module_of(path), str(ROOT / path), code))
                names = [f"{ROOT}/{items[n].nodeid}" for n in picked]
                with_tests(names, lambda again: say(len(again) == len(names) and all(map(passes, again))))

            return run(work, picked)

        for mutant in chosen:
            file = str(ROOT / mutant.path)
            lines = (f"{file}:{line}" for line in range(mutant.lines[0], mutant.lines[1] + 1))
            reaching = {n for line in lines for n in at.get(line, ())} if mutant.function else set()
            picked = [n for n in by_speed if n in (reaching or most[file])]
            code = mutant.compiled()
            if reaching:
                survived = in_place(code, picked)
            else:
                picked = sorted(picked, key=lambda n: -most[file][n])[:OUTSIDE_TESTS]
                if mutant.path not in sound:
                    sound[mutant.path] = anew(compile(Path(file).read_text(), file, "exec"), mutant.path, picked)
                survived = not (picked and sound[mutant.path]) or anew(code, mutant.path, picked)
            tell(mutant, ("survived" if picked else "not reached") if survived else "killed", len(picked))

    with_tests(tests, judge)


def digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", type=Path, help="files or folders of the package")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants of each module; all without it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--journal", type=Path, default=JOURNAL)
    parser.add_argument("--table", type=Path, help="write the scores there, as Markdown")
    parser.add_argument("--tests", nargs="+", help="tests to judge by; all of the module's part without it")
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # a pool of threads does not outlive a fork
    paths = [
        p.resolve() for given in asked.modules for p in (sorted(given.rglob("*.py")) if given.is_dir() else [given])
    ]
    same = {
        (row["path"], row["function"], row["was"], row["now"])
        for row in tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])
    }
    asked.journal.parent.mkdir(exist_ok=True)
    known = {}
    for line in asked.journal.read_text().splitlines() if asked.journal.exists() else []:
        row = json.loads(line)
        known[row["path"], row["text"], row["number"]] = row
    by_part = defaultdict(list)
    rows: list[dict[str, Any]] = []
    for path in paths:
        name, text = path.relative_to(ROOT).as_posix(), digest(path)
        part = Path(name).parts[1]
        mutants = mutants_of(name, ast.parse(path.read_text()))
        if asked.sample:
            mutants = random.Random(f"{asked.seed}:{name}").sample(mutants, min(asked.sample, len(mutants)))
        tests = digest(*sorted((ROOT / "tests" / part).rglob("*.py")))
        for mutant in sorted(mutants, key=lambda mutant: mutant.number):
            was, now = mutant.diff()
            row = {"path": name, "text": text, "number": mutant.number, "function": mutant.function,
                   "line": mutant.lines[0], "was": was, "now": now, "tests": tests}  # fmt: skip
            rows.append(row)
            before = known.get((name, text, mutant.number), {})
            if (name, mutant.function, was, now) in same:
                row["word"] = "equivalent"
            elif before.get("word") == "killed" or before.get("tests") == tests:
                row["word"] = before["word"]
            else:
                by_part[part].append((mutant, row))
    with tempfile.TemporaryDirectory() as folder, asked.journal.open("a") as journal:
        folder = tempfile.tempdir = os.environ["TMPDIR"] = os.path.realpath(folder)
        for part, pairs in by_part.items():
            row_of = {id(mutant): row for mutant, row in pairs}

            def tell(mutant: Mutant, word: str, n: int, row_of: dict[int, dict[str, Any]] = row_of) -> None:
                row = row_of[id(mutant)] | {"word": word, "n": n}
                row_of[id(mutant)]["word"] = word
                print(json.dumps(row), file=journal, flush=True)
                if word != "killed":
                    print(f"{row['path']}:{row['line']}: {word} ({n} tests, {row['function'] or 'outside functions'})",
                          f"- {row['was']}", f"+ {row['now']}", sep="\n  ", flush=True)  # fmt: skip

            judge_part(asked.tests or [str(ROOT / "tests" / part)], [mutant for mutant, _ in pairs], folder, tell)
    table = scores(rows)
    print(table)
    if asked.table:
        asked.table.write_text(f"`python benchmarks/mutants.py {' '.join(sys.argv[1:])}`\n\n{table}\n")


def scores(rows: list[dict[str, Any]]) -> str:
    """A table of modules and parts; the score is killed of those that are not equivalent."""
    groups = defaultdict(list)
    for row in rows:
        word = row.get("word", "not run")
        groups[row["path"]].append(word)
        groups[str(Path(*Path(row["path"]).parts[:2]))].append(word)
    lines = ["| module | mutants | killed | survived | equivalent | score |", "|---|---:|---:|---:|---:|---:|"]
    for name, words in sorted(groups.items()):
        killed, same = words.count("killed"), words.count("equivalent")
        counted = len(words) - same
        score = f"{100 * killed / counted:.1f} %" if counted else ""
        lines.append(f"| {name} | {len(words)} | {killed} | {counted - killed} | {same} | {score} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
