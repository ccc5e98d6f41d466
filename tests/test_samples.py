"""The sample models: what their headers promise is what the scanner finds, and patched they still train."""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path

import pytest
from forked_programs import Ended, run_code, run_programs

from perfaudit.static.fix import patches
from perfaudit.static.scan import scan

ROOT = Path(__file__).parent.parent
SLOW = sorted((ROOT / "sample_models").glob("*.py"))
FAST = sorted((ROOT / "sample_models" / "fast").glob("*.py"))


@pytest.mark.parametrize("path", SLOW, ids=lambda path: path.stem)
def test_the_header_says_what_is_found(path: Path) -> None:
    header = set(re.findall(r"^- (PA\d+):", path.read_text(), flags=re.MULTILINE))
    assert header
    found = scan([str(path)]).findings
    assert {rule for finding in found for rule in (finding.rule, *finding.also)} == header


@pytest.mark.parametrize("path", FAST, ids=lambda path: path.stem)
def test_the_fast_twin_is_silent(path: Path) -> None:
    assert scan([str(path)]).findings == ()


def test_every_sample_has_a_twin() -> None:
    assert [path.name for path in SLOW] == [path.name for path in FAST]


# What a sample evaluates with, and less: most of a run of a few steps is that.
SHORTER = {
    "char_gpt": ("VAL_CHARACTERS = 40_000", "VAL_CHARACTERS = 1_000"),
    "photo_resnet": ("VAL_SAMPLES = 512, 256", "VAL_SAMPLES = 512, 32"),
}


def shortened(path: Path) -> str:
    """The text of a sample, which evaluates on fewer of its data."""
    text = path.read_text()
    old, new = SHORTER.get(path.stem, ("", ""))
    assert not old or text.count(old) == 1
    return text.replace(old, new)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Ended]:
    """Every sample as it is, with its safe fixes and with all that patch, by its name and which of these it is."""
    top = tmp_path_factory.mktemp("samples")
    programs: dict[tuple[str, str], Path] = {}
    for path in SLOW:
        for which in ("before", "safe", "all"):
            programs[path.stem, which] = top / which / path.name
            (top / which).mkdir(exist_ok=True)
            programs[path.stem, which].write_text(shortened(path))
        with contextlib.chdir(top / "safe"):
            for patched in patches(scan([path.name]).findings, unsafe=False):
                Path(path.name).write_text(patched.after)
        with contextlib.chdir(top / "all"):
            (patched,) = patches(scan([path.name]).findings, unsafe=True)
            assert patched.waiting == ()
            Path("patch").write_text(patched.diff)
            subprocess.run(["git", "apply", "patch"], check=True)
            assert Path(path.name).read_text() == patched.after
    ended = run_programs({path: ["--epochs", "1", "--steps", "2"] for path in programs.values()})
    return {key: ended[path] for key, path in programs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("path", SLOW, ids=lambda path: path.stem)
def test_all_fixes_together_still_train(path: Path, runs: dict[tuple[str, str], Ended]) -> None:
    done = runs[path.stem, "all"]
    assert done.code == 0, done.err[-2000:]
    assert re.search(r"loss \d", done.out)


@pytest.mark.slow
@pytest.mark.parametrize("path", SLOW, ids=lambda path: path.stem)
def test_safe_fixes_leave_the_losses_as_they_are(path: Path, runs: dict[tuple[str, str], Ended]) -> None:
    """The same seed prints the same lines, to the last digit, before and after."""
    before, after = runs[path.stem, "before"], runs[path.stem, "safe"]
    assert before.code == after.code == 0, before.err[-2000:] + after.err[-2000:]
    assert re.search(r"loss \d", before.out)
    assert after.out == before.out


HANGS_ONCE = """
import pathlib, threading
if not pathlib.Path("ran").exists():
    pathlib.Path("ran").touch()
    threading.Event().wait()
print("ended")
"""


def test_a_program_that_hangs_is_run_again_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"once\.py hung for 1 s and was run again:\s+Timeout"):
        ended = run_code(HANGS_ONCE, "once.py", [], tmp_path, seconds=1.0)
    assert ended == Ended(0, "ended\n", "")
