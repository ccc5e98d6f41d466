"""A file with very many findings: the work for each one does not grow with the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit import forked_work as workers
from perfaudit.findings import Edit, Span
from perfaudit.static import audit, edit, unified_diff
from perfaudit.static.fix import patches
from perfaudit.static.registry import DIFFS_PER_TEXT, MAX_DIFFS, MAX_SNIPPET
from perfaudit.static.scan import Options, scan

LOOP = """\
import torch

model = torch.nn.Linear(3, 3).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for step in range(10):
    loss = model(torch.zeros(3, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FOUND = "    x = torch.zeros(3).cuda()\n"


def test_the_diff_of_a_finding_looks_at_the_lines_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workers, "can_fork", lambda: False)  # what is counted is in this process
    compared: list[int] = []
    original = unified_diff.diff

    def diff(path: str, before: str, after: str, above: int = 0) -> str:
        compared.append(len(before) + len(after))
        return original(path, before, after, above)

    monkeypatch.setattr(unified_diff, "diff", diff)
    Path("train.py").write_text(LOOP + FOUND * 300)
    report = scan(["train.py"], Options(selected=frozenset({"PA105"})))
    (done,) = patches(report.findings, unsafe=False)
    assert len(report.findings) == len(done.applied) == 300
    assert len(compared) == 300
    assert max(compared) < 4 * len(LOOP)


def test_what_a_file_is_with_each_of_its_fixes_is_not_asked_of_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(LOOP + FOUND * 30)
    for most, known in ((audit.MAX_REHASHED, True), (len(LOOP + FOUND * 30) * 30 - 1, False)):
        monkeypatch.setattr(audit, "MAX_REHASHED", most)
        fixes = [
            f.fix for f in scan(["train.py"], Options(selected=frozenset({"PA105"}))).findings if f.fix is not None
        ]
        assert len(fixes) == 30
        assert all(fix.before for fix in fixes)
        assert {bool(fix.after) for fix in fixes} == {known}


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", "\f\n"])
@pytest.mark.parametrize("last", ["", "end"])
def test_the_diff_of_edits_is_that_of_the_whole_text(newline: str, last: str) -> None:
    text = "".join(f"line {n}{newline}" for n in range(40)) + last
    for start in range(0, len(text) + 1, 5):
        for length in (0, 1, 9):
            for word in ("", "new", f"new{newline}", f"{newline}new"):
                edits = (Edit(Span(start, min(start + length, len(text))), word),)
                assert unified_diff.diff_of("a.py", text, edits) == unified_diff.diff(
                    "a.py", text, edit.apply(text, edits)
                )


def test_edits_that_lie_apart_are_one_diff() -> None:
    text = "".join(f"line {n}\n" for n in range(100))
    edits = (Edit(Span(0, 4), "row"), Edit(Span(len(text) - 5, len(text)), ""))
    whole = unified_diff.diff("a.py", text, edit.apply(text, edits))
    assert unified_diff.diff_of("a.py", text, edits) == whole
    assert whole.count("@@ -") == 2


def test_the_patches_of_a_file_are_not_far_longer_than_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A diff shows its line twice, and each finding of a line has one: ten files of 1.5 MB took 10 GB."""
    monkeypatch.chdir(tmp_path)
    line = ";".join(["torch.autograd.set_detect_anomaly(True)"] * 40) + f";x='{'a' * 100_000}'"
    Path("train.py").write_text(f"import torch\n{line}\n")
    report = scan(["train.py"], Options(selected=frozenset({"PA501"})))
    fixes = [finding.fix for finding in report.findings if finding.fix is not None]
    patched = [fix for fix in fixes if fix.diff]
    size = len(line) + len("import torch\n\n")
    assert len(fixes) == 40
    assert patched == fixes[: len(patched)]
    room = MAX_DIFFS + DIFFS_PER_TEXT * size
    assert room - 3 * size < sum(len(fix.diff) for fix in patched) <= room
    assert {(fix.safety, fix.edits) for fix in fixes[len(patched) :]} == {("manual", ())}
    assert "far longer than it is: change it by hand" in report.findings[-1].note
    assert [len(finding.snippet) for finding in report.findings] == [MAX_SNIPPET] * 40
