"""Every fix on a program that runs: what it prints before and after is what the fix's safety promises.

The first line of each file in `programs/` says what is compared: `# after the fix: equal`, `close 1e-4` (relative), `runs`.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from forked_programs import run_programs

from perfaudit.rules import all_rules
from perfaudit.static.fix import patch
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("PA*.py"))
PROMISE = re.compile(r"# after the fix: (equal|runs|close (?P<tolerance>[\d.e-]+))$")


def rule_of(path: Path) -> str:
    return path.name.partition("_")[0]


def fixed(path: Path) -> str:
    """The program after every fix of its rule."""
    source = Source(path.name, path.read_text())
    findings = run_checks(source, all_rules(), frozenset([rule_of(path)]))
    assert findings, f"{path.name}: the rule does not see it"
    patched = patch(path.name, source.text, [f for f in findings if f.fix and f.fix.edits])
    assert patched.applied, f"{path.name}: nothing was fixed"
    return patched.after


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """What each program prints before and after, by its name; both ran to their end."""
    folder = tmp_path_factory.mktemp("programs")
    for path in PROGRAMS:
        (folder / f"before_{path.name}").write_text(path.read_text())
        (folder / f"after_{path.name}").write_text(fixed(path))
    ended = run_programs({path: [] for path in sorted(folder.glob("*.py"))})
    for path, done in ended.items():
        assert done.code == 0, f"{path}: {done.err[-2000:]}"
    return {
        path.name: (ended[folder / f"before_{path.name}"].out, ended[folder / f"after_{path.name}"].out)
        for path in PROGRAMS
    }


@pytest.mark.slow
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_what_a_fix_promises(path: Path, printed: dict[str, tuple[str, str]]) -> None:
    promise = PROMISE.match(path.read_text().splitlines()[0])
    assert promise, f"{path.name}: the first line says what is compared"
    before, after = printed[path.name]
    assert before.strip(), f"{path.name}: it prints nothing, so nothing could differ"
    if promise[1] == "equal":
        assert after == before
    elif promise["tolerance"]:
        numbers = [[float(number) for number in text.split()] for text in (before, after)]
        assert len(numbers[0]) == len(numbers[1])
        for old, new in zip(*numbers, strict=True):
            assert math.isclose(old, new, rel_tol=float(promise["tolerance"])), (before, after)


def test_every_safe_fix_is_proven_by_a_program() -> None:
    """A rule whose fix may be safe has a program that prints the same; the others that patch have one that runs."""
    equal = {rule_of(path) for path in PROGRAMS if path.read_text().startswith("# after the fix: equal")}
    patching = {rule.id for rule in all_rules().values() if any(e.fixed is not None for e in rule.examples)}
    safe = {rule.id for rule in all_rules().values() if rule.fix == "safe"} & patching
    assert safe - equal == set()
    assert patching - {rule_of(path) for path in PROGRAMS} == set()
