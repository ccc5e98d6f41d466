"""Every block of code on the pages: what is printed is what is shown, and the rest is what its language and its program take."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Done

ROOT = Path(__file__).parents[2]
if not (ROOT / "benchmarks").exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)
sys.path.insert(0, str(ROOT / "tests"))

import page_figures  # noqa: E402  # it lies there

Run = Callable[..., Done]


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    record: str  # the program that wrote the block, "" where people did

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


FENCE = re.compile(r"^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
WRITTEN = re.compile(r"<!-- written by (\S+?\.py)[^\n]*-->\n.*?<!-- until here", re.DOTALL)


def blocks(page: str, text: str) -> list[Block]:
    written = [(match.span(), match[1]) for match in WRITTEN.finditer(text)]
    return [
        Block(
            page,
            text.count("\n", 0, match.start()) + 1,
            match["language"].strip(),
            match["text"],
            next((name for (start, end), name in written if start < match.start() < end), ""),
        )
        for match in FENCE.finditer(text)
    ]


BLOCKS = [block for page, text in page_figures.pages().items() for block in blocks(page, text)]
SHOWN = [block for block in BLOCKS if block.language == "console" and not block.record]


def matches(printed: str, shown: str) -> bool:
    """Whether a text is what was printed; `…` on a line of its own stands for some lines, within a line for some characters."""
    lines = [line.rstrip() for line in shown.strip().splitlines()]
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == "…" else re.escape(line).replace("…", r"[^\n]*") + r"\n" for line in lines
    )
    return bool(re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())))


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("a\nb\n", "a\nb", True),
        ("a\nb\n", "a", False),
        ("a\nb\nc\n", "a\n…", True),
        ("a\nb\nc\n", "…\nc", True),
        ("a\nb\nc\n", "a\n…\nd", False),
        ("at 3b7f: red", "at …: red", True),
        ("at 3b7f: red", "at …: green", False),
    ],
)
def test_what_matches(printed: str, shown: str, same: bool) -> None:
    assert matches(printed, shown) == same


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a reader of the tutorial has: the samples in a repository, the patch of `tune` committed, and its mistake made."""
    shutil.copytree(ROOT / "sample_models", tmp_path / "sample_models", ignore=shutil.ignore_patterns("__pycache__"))
    script = tmp_path / "sample_models" / "denoise_patches.py"
    text = script.read_text()
    script.write_text(text.replace("set_detect_anomaly(True)", "set_detect_anomaly(False)"))
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "patched"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words], cwd=tmp_path, check=True)
    script.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# What is shown of commands that take minutes, and the file where the same command has left it.
RECORDED = {"$ perfaudit trace dlrm_kineto.tar.gz": "benchmarks/trace_demonstration.txt"}


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_what_is_shown_is_printed(block: Block, perfaudit: Run, clone: Path) -> None:
    command, _, shown = block.text.partition("\n")
    if (record := RECORDED.get(command)) is not None:
        assert matches((ROOT / record).read_text(encoding="utf-8"), shown)
        return
    done = perfaudit(*command.removeprefix("$ perfaudit ").split())
    errors = [line for line in done.err.splitlines(keepends=True) if not line.startswith("[")]
    assert matches("".join([done.out, *errors]), shown), "".join([done.out, *errors])
    assert done.code == 1
