"""The mutation test itself: what it changes, what it says of a change that a test notices and of one that none does."""

from __future__ import annotations

import ast
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import mutants  # noqa: E402  # lies outside the package


def changes(text: str, path: str = "perfaudit/measure/x.py") -> list[tuple[str, str]]:
    return [mutant.diff() for mutant in mutants.mutants_of(path, ast.parse(text))]


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("a < b", ["a <= b", "a >= b"]),
        ("a + 1", ["a - 1", "a + 2"]),
        ("not a", ["a"]),
        ("a and b", ["a or b"]),
        ("x = a if b else c", ["x = c if b else a"]),
        ("f(a, b=c)", ["pass", "f(a)"]),
        ("f(strict=c)", ["pass"]),  # what only other inputs show
        ("f(strict=True)", ["pass"]),
        ("raise E('why', n + 1)", ["pass"]),
        ("x = [a for a in b if a]", ["x = [a for a in b]"]),
        ("x = min(a.low)", ["x = max(a.low)", "x = min(a.high)"]),
        ("x: int = 'key'", ["x: int = 'XXkey'"]),
        ("'docstring'", []),
        ("x = 'said to a user'", []),
        ("x = f'{a}: said'", []),
        ("@dataclass(frozen=True)\nclass C: pass", []),
    ],
)
def test_what_is_changed(text: str, becomes: list[str]) -> None:
    assert [now for _, now in changes(text)] == becomes


def test_prose_is_changed_where_it_is_the_product() -> None:
    assert [now for _, now in changes("x = f'{a}: said'", "perfaudit/render/x.py")] == ["x = f'{a}XX: said'"]


def test_a_change_is_put_in_and_out_again() -> None:
    tree = ast.parse("def f(a):\n    if a < 1:\n        return a\n")
    first, *_ = mutants.mutants_of("perfaudit/measure/x.py", tree)
    assert (first.lines, first.function) == ((2, 2), "f")
    before = ast.unparse(tree)
    functions: dict[str, types.FunctionType] = {}
    exec(first.compiled(), functions)
    assert functions["f"](1) == 1
    assert ast.unparse(tree) == before


def test_scores_leave_equivalent_changes_out() -> None:
    words = ["killed", "killed", "survived", "not reached", "equivalent"]
    rows = [{"path": "perfaudit/tune/plan.py", "word": word} for word in words]
    assert mutants.scores(rows).splitlines()[2:] == [
        "| perfaudit/tune | 5 | 2 | 2 | 1 | 50.0 % |",
        "| perfaudit/tune/plan.py | 5 | 2 | 2 | 1 | 50.0 % |",
    ]


def test_a_child_ends_when_it_loops_and_touches_nothing_outside(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    inside.mkdir()

    def work(tell: object) -> None:
        assert callable(tell)
        (inside / "x").write_text("")
        for act in (lambda: outside.write_text(""), outside.mkdir, inside.rmdir):
            try:
                act()
            except OSError as error:
                tell(type(error).__name__)
        while True:
            pass

    ended, told = mutants.in_a_child(work, 1, 30, str(inside))
    assert not ended
    assert told == ["PermissionError", "PermissionError", "OSError"]
    assert not outside.exists()


def test_a_module_is_judged_by_its_tests_and_a_second_run_resumes(tmp_path: Path) -> None:
    command = [
        sys.executable, "benchmarks/mutants.py", "perfaudit/measure/judge.py", "--sample", "8", "--seed", "3",
        "--tests", "tests/measure/test_judge.py", "--journal", str(tmp_path / "journal"),
    ]  # fmt: skip
    first, second = (subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True) for _ in range(2))
    row = next(line for line in first.stdout.splitlines() if line.startswith("| perfaudit/measure/judge.py"))
    assert row in second.stdout
    killed, equivalent = (int(row.split("|")[column]) for column in (3, 5))
    assert killed >= 5  # of eight
    assert len((tmp_path / "journal").read_text().splitlines()) == 8 - equivalent  # which no test can tell
