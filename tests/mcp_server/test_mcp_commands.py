"""What tools for agents type, what they refuse, and the process that they start. The SDK is not needed for any of it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done

from perfaudit.errors import UserError, last_words
from perfaudit.mcp import command_process
from perfaudit.mcp.command_process import json_of
from perfaudit.mcp.commands import Commands

Typed = Callable[[Commands], list[str]]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    root = tmp_path / "project"
    (root / "models").mkdir(parents=True)
    (root / "train.py").touch()
    (root / "--fix.py").touch()
    (root / "out").symlink_to(tmp_path)
    return Commands(root)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (lambda c: c.scan(), "scan --severity info --exit-zero ."),
        (
            lambda c: c.scan(["train.py", "models"], ["PA1", "conv-bias-before-norm"], ["PA101"], "warning", True),
            "scan --severity warning --exit-zero --tests --select PA1 --select conv-bias-before-norm --ignore PA101 "
            "train.py models",
        ),
        (lambda c: c.scan([str(c.root / "train.py")]), "scan --severity info --exit-zero train.py"),
        (lambda c: c.scan(["--fix.py"]), "scan --severity info --exit-zero ./--fix.py"),
        (lambda c: c.scan(["models/../train.py"]), "scan --severity info --exit-zero train.py"),
        (lambda c: c.explain("PA101"), "explain PA101"),
        (lambda c: c.rules(), "rules list"),
        (lambda c: c.doctor(), "doctor --exit-zero --no-bandwidth"),
        (lambda c: c.trace(["a.json"], 3, "2:4", True), "trace --exit-zero --rank 3 --window 2:4 --compare a.json"),
        (lambda c: c.run("train.py"), "run --quiet --seconds 20 train.py"),
        (lambda c: c.run("train.py", ["--lr", "1"], steps=5), "run --quiet --steps 5 train.py -- --lr 1"),
        (lambda c: c.run("package.train", module=True), "run --quiet --seconds 20 -m package.train"),
        (lambda c: c.tune("train.py"), "tune --exit-zero --budget 3m --all --allow rounding train.py"),
        (
            lambda c: c.tune("train.py", ["x"], knobs=["zero_grad", "dataloader"], budget="90s"),
            "tune --exit-zero --budget 90s --zero-grad --dataloader train.py -- x",
        ),
    ],
)  # fmt: skip
def test_what_is_typed(commands: Commands, typed: Typed, words: str) -> None:
    assert typed(commands) == words.split()


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        (lambda c: c.scan(["../other.py"]), "is outside of"),
        (lambda c: c.scan(["/etc/passwd"]), "is outside of"),
        (lambda c: c.scan(["out/other.py"]), "is outside of"),  # behind a link
        (lambda c: c.trace(["out"]), "is outside of"),
        (lambda c: c.run("../train.py"), "is outside of"),
        (lambda c: c.tune("~/../../train.py"), "is outside of"),
        (lambda c: c.scan(["a\0b"]), "cannot be looked up"),
        (lambda c: c.scan([]), "no path is given"),
        (lambda c: c.scan(severity="--fix"), "severity '--fix' is none of"),
        (lambda c: c.scan(select=["--fix"]), "'--fix' is no id or name of a rule"),
        (lambda c: c.explain("--rules=x"), "is no id or name of a rule"),
        (lambda c: c.trace(["a"], window="--jobs"), "give the first and the last step"),
        (lambda c: c.trace(["a"], rank=-1), "ranks count from 0"),
        (lambda c: c.run("-c", module=True), "is no name of a module"),
        (lambda c: c.run("train.py", seconds=1e9), "seconds lie between"),
        (lambda c: c.tune("train.py", knobs=["apply"]), "knobs: no apply; there are"),
        (lambda c: c.tune("train.py", allow=["all"]), "allow: no all; there are"),
        (lambda c: c.tune("train.py", budget="2h"), "budget 2h: at most 3600 s"),
    ],
)
def test_what_is_refused(commands: Commands, typed: Typed, why: str) -> None:
    with pytest.raises(UserError, match=why):
        typed(commands)


async def silent(seconds: float) -> None:
    """A client that wants no signs."""


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("perfaudit: a.py: does not exist\n", "a.py: does not exist"),
        ("[    0 s] importing torch\nperfaudit: the budget\nwas over\n", "the budget\nwas over"),
        ("perfaudit: a note\n[    1 s] loading\nperfaudit: no such knob\n", "no such knob"),
        ("Usage: perfaudit\n\nError: --budget\n", "Usage: perfaudit\n\nError: --budget"),
        ("", ""),
    ],
)
def test_what_is_wrong_is_said_without_the_progress_before_it(said: str, wrong: str) -> None:
    assert last_words(said) == wrong


def test_a_tool_returns_the_json_of_its_command(perfaudit: Callable[..., Done], commands: Commands) -> None:
    found = asyncio.run(json_of(commands.explain("PA101"), commands.root, silent))
    assert found == json.loads(perfaudit("explain", "PA101", "--format", "json").out)


def test_what_a_command_refuses_is_said_in_its_words(commands: Commands) -> None:
    with pytest.raises(UserError, match=r"^no rule is called 'PA999'; did you mean"):
        asyncio.run(json_of(commands.explain("PA999"), commands.root, silent))


def test_a_command_that_is_cancelled_leaves_no_process(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not heed Ctrl-C; signs of life come meanwhile."""
    program = (
        "import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "open('pid.new', 'w').write(str(os.getpid())), os.rename('pid.new', 'pid')\ntime.sleep(600)\n"
    )
    for name, value in {"_START": program, "TELL_SECONDS": 0.05, "END_SECONDS": 0.1}.items():
        monkeypatch.setattr(command_process, name, value)
    signs: list[float] = []
    file = commands.root / "pid"

    async def cancelled() -> None:
        async def tell(seconds: float) -> None:
            signs.append(seconds)
            if file.exists():
                work.cancel()

        work = asyncio.ensure_future(json_of(["rules"], commands.root, tell))
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(cancelled())
    assert signs
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def test_without_the_sdk_it_says_what_to_install(
    perfaudit: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("mcp", "mcp.server.mcpserver"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "perfaudit.mcp.server", raising=False)
    done: Any = perfaudit("mcp", "--root", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert done.err == "perfaudit: `perfaudit mcp` needs the SDK of the protocol: pip install 'perfaudit[mcp]'\n"
    assert perfaudit("mcp", "--root", "nowhere").err == "perfaudit: --root nowhere: no such folder\n"
