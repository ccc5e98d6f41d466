"""Layer 1 without a repository: findings of now and of before, what is new of them, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.config import Config
from perfaudit.errors import UserError
from perfaudit.findings import Finding, Location
from perfaudit.gate.gitref import Reference
from perfaudit.gate.new_findings import Before, Judged, _judge, _no_rule, against_known, against_ref
from perfaudit.report import Report, RulesLeftOut, Skipped
from perfaudit.static.baseline import Known
from perfaudit.static.plan import OwnRules, ScanPlan, plan_of
from perfaudit.verdicts import FindingsVerdict

Project = Callable[..., Path]
RULES = plan_of(Config(), OwnRules())


def finding(path: str, digest: str, message: str = "", rule: str = "PA501") -> Finding:
    place = Location(path, 3, 1, 3, 9) if path else None
    return Finding(rule, "name", "warning", message or f"says {digest}", place, text_digest=digest)


def known(path: str, digest: str, message: str = "", rule: str = "PA501") -> Known:
    return Known(path, rule, digest, message or f"says {digest}")


def judged(
    now: list[Finding], before: Before, *skipped: Skipped, files: int = 1, rules: ScanPlan = RULES, **more: int
) -> Judged:
    return _judge(Report("scan", tuple(now), skipped, files, **more), before, ["."], rules)  # type: ignore[arg-type]  # counts


@pytest.mark.parametrize(
    ("now", "before", "new", "counts"),
    [
        ([], [], [], (0, 0, 0)),
        ([finding("a.py", "1")], [], ["1"], (1, 0, 0)),
        ([finding("a.py", "1")], [known("a.py", "1")], [], (0, 1, 0)),
        ([], [known("a.py", "1"), known("a.py", "2")], [], (0, 0, 2)),
        ([finding("a.py", "1"), finding("a.py", "1")], [known("a.py", "1")], ["1"], (1, 1, 0)),  # one more of the same
        # a statement that moved to another file, which was there and is gone from the first
        ([finding("b.py", "1")], [known("a.py", "1")], [], (0, 1, 0)),
        ([finding("b.py", "1")], [known("gone.py", "1")], [], (0, 1, 0)),
        ([finding("a.py", "1"), finding("b.py", "1")], [known("a.py", "1")], ["1"], (1, 1, 0)),  # a copy
        ([finding("b.py", "1", rule="PA601")], [known("a.py", "1")], ["1"], (1, 0, 1)),
        ([finding("b.py", "1"), finding("b.py", "1")], [known("a.py", "1")], ["1"], (1, 1, 0)),  # it moved once
        # a statement that was edited says the same of the same file
        ([finding("a.py", "2", "slow")], [known("a.py", "1", "slow")], [], (0, 1, 0)),
        ([finding("a.py", "2", "slow")], [known("a.py", "1", "fast")], ["2"], (1, 0, 1)),
        ([finding("b.py", "2", "slow")], [known("a.py", "1", "slow")], ["2"], (1, 0, 1)),
        ([finding("a.py", "2", "slow", "PA601")], [known("a.py", "1", "slow")], ["2"], (1, 0, 1)),
        ([finding("a.py", "2", "slow"), finding("a.py", "2", "slow")], [known("a.py", "1", "slow")], ["2"], (1, 1, 0)),
        # of no file
        ([finding("", "1")], [], ["1"], (1, 0, 0)),
        ([finding("", "1")], [known("", "1")], [], (0, 1, 0)),
        # moved before edited: that with the same statement is the one that moved
        ([finding("a.py", "2", "slow"), finding("b.py", "1", "slow")], [known("a.py", "1", "slow")], ["2"], (1, 1, 0)),
    ],
)  # fmt: skip
def test_what_is_new(
    project: Project, now: list[Finding], before: list[Known], new: list[str], counts: tuple[int, int, int]
) -> None:
    project(**{"a.py": "", "b.py": ""})
    verdict, seen, report = judged(now, Before(tuple(before)))
    assert [found.text_digest for found in seen] == new
    assert verdict == FindingsVerdict("regressed" if new else "pass", "", *counts)
    assert (report.command, report.findings, report.notes) == ("gate", seen, ())
    assert (report.known, report.gone) == (verdict.known, verdict.gone)


def test_only_what_the_scan_looked_at_is_gone(project: Project) -> None:
    project(**{"a.py": "", "sub/b.py": ""})
    report, before = Report("scan", (), (), 1), Before((known("a.py", "1"), known("sub/b.py", "2")))
    assert _judge(report, before, ["sub"], RULES)[0] == FindingsVerdict("pass", gone=1)
    moved = Report("scan", (finding("sub/b.py", "1"),), (), 1)
    assert _judge(moved, before, ["sub"], RULES)[0] == FindingsVerdict("regressed", new=1, gone=1)


BROKEN = Skipped("a.py", "no Python")
UNREAD = "the reference's could not be audited (no Python)"


def test_a_file_that_cannot_be_read_now_is_no_pass(project: Project) -> None:
    project(**{"a.py": "", "b.py": ""})
    held = (known("a.py", "1"),)
    assert judged([], Before(held, seen=frozenset(["a.py"])), BROKEN)[0] == FindingsVerdict(
        "failed", "could be audited before: a.py (no Python)", lost="could be audited before: a.py (no Python)"
    )
    assert judged([], Before(()), BROKEN)[0] == FindingsVerdict("pass", "not audited: a.py (no Python)")
    assert judged([], Before(()), BROKEN, files=0)[0] == FindingsVerdict("failed", "not audited: a.py (no Python)")
    worse, _, _ = judged([finding("b.py", "2")], Before(held, seen=frozenset(["a.py"])), BROKEN)
    assert worse == FindingsVerdict(
        "regressed", "not audited: a.py (no Python)", new=1, lost="could be audited before: a.py (no Python)"
    )
    partly, _, _ = judged([finding("a.py", "1")], Before(held, seen=frozenset(["a.py"])), BROKEN)
    assert partly == FindingsVerdict("pass", known=1)  # something is known of it


def test_a_file_that_could_not_be_read_before_is_not_all_new(project: Project) -> None:
    project(**{"a.py": "", "lib/b.py": "", "c.py": ""})
    before = Before((), {"a.py": UNREAD, "lib": "the reference's submodule is not here"})
    now = [finding("lib/b.py", "1"), finding("a.py", "2"), finding("a.py", "3")]
    words = (
        f"a.py: 2 findings are not judged: {UNREAD}",
        "lib/b.py: 1 finding is not judged: the reference's submodule is not here",
    )
    verdict, seen, report = judged(now, before)
    assert (seen, report.notes) == ((), ())  # the reason of the verdict says it
    assert verdict == FindingsVerdict("inconclusive", "; ".join(words), unjudged="; ".join(words))
    verdict, seen, report = judged([*now, finding("c.py", "4")], before, Skipped("d.py", "binary"))
    assert ([found.text_digest for found in seen], report.notes) == (["4"], words)
    assert verdict == FindingsVerdict("regressed", "not audited: d.py (binary)", new=1, unjudged="; ".join(words))
    verdict, _, _ = judged(now[:1], before, Skipped("d.py", "binary"))
    assert verdict.reason == f"not audited: d.py (binary); {words[1]}"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (3, "not audited: 0.py (x); 1.py (x); 2.py (x)"),
        (5, "not audited: 0.py (x); 1.py (x); 2.py (x); and 2 more"),
    ],
)
def test_three_files_are_named(number: int, said: str) -> None:
    skipped = [Skipped(f"{n}.py", "x") for n in reversed(range(number))]
    assert judged([], Before(()), *skipped)[0].reason == said


def test_without_a_file_nothing_is_judged() -> None:
    assert judged([], Before(()), files=0)[0] == FindingsVerdict("not_judged", "no Python files in .")
    for tests, said in [(1, "1 test"), (2, "2 tests")]:
        verdict, _, _ = judged([], Before(()), files=0, tests_left_out=tests)
        assert verdict.reason == f"no Python files in . besides {said}"


def test_rules_that_are_not_run_are_said(project: Project) -> None:
    folder = project(**{"a.py": ""})
    own = OwnRules(left_out={folder / "mine": "nobody trusts them"})
    note, item = "rules of mine/ are not run: nobody trusts them", RulesLeftOut("mine", "nobody trusts them")
    _, _, report = judged([], Before(()), rules=plan_of(Config(), own))
    assert (report.notes, report.rules_left_out) == ((note,), (item,))
    verdict, new, report = _no_rule(ScanPlan(Config(), None, own))
    assert (verdict, new) == (FindingsVerdict("not_judged", f"no rule is left: {note}"), ())
    assert report == Report("gate", rules_left_out=(item,))


def test_a_file_that_held_a_finding_could_be_read(project: Project) -> None:
    project(**{"a.py": "import torch\ndef (:\n", "b.py": "import torch\n"})
    verdict, _, _ = against_known([known("a.py", "1")], [], Config())
    assert verdict.verdict == "failed" and verdict.lost.startswith("could be audited before: a.py (")
    verdict, _, _ = against_known([], [], Config())
    assert verdict.verdict == "pass" and verdict.reason.startswith("not audited: a.py (")


ANOMALY = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"
PLAIN = "import torch\n"


def test_against_a_reference_paths_are_those_of_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is a folder here, as a worktree is; git is not asked."""
    here, there = tmp_path / "here", tmp_path / "there"
    for place, name, text in (
        (here, "src/same.py", ANOMALY),
        (there, "src/same.py", ANOMALY),
        (here, "src/came.py", ANOMALY),  # from outside the paths
        (there, "old/came.py", ANOMALY),
        (here, "other/new.py", ANOMALY),
        (there, "other/stays.py", ANOMALY),
        (here, "other/stays.py", PLAIN),
        (here, "src/lib/missing.py", ANOMALY),
        (here, "src/mended.py", ANOMALY),
        (there, "src/mended.py", "def (:\n" + PLAIN),
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    monkeypatch.chdir(here / "src")
    reference = Reference(there, here, here / "src", "main", "0" * 40, missing=("src/lib",))
    verdict, new, report = against_ref(reference, [], Config())
    assert (verdict.verdict, verdict.new, verdict.known, verdict.gone, new) == ("inconclusive", 0, 2, 0, ())
    assert (
        verdict.unjudged.split("; ")[0]
        == "lib/missing.py: 1 finding is not judged: the reference's submodule is not here"
    )
    assert verdict.unjudged.split("; ")[1].startswith(
        "mended.py: 1 finding is not judged: the reference's could not be audited (does not parse"
    )
    assert (report.files, Path.cwd()) == (4, here / "src")
    verdict, new, _ = against_ref(reference, ["..", str(here / "other" / "new.py")], Config())
    assert (new, verdict.known) == ((), 3)  # with what moved out of a file that stays
    (here / "other" / "stays.py").write_text(ANOMALY)
    _, new, _ = against_ref(reference, ["..", str(here / "other" / "new.py")], Config())
    assert [found.rule for found in new] == ["PA501"]  # one of both is a copy now
    with pytest.raises(UserError, match=r"^/: outside the repository .*, of which alone there is a main$"):
        against_ref(reference, ["/"], Config())
