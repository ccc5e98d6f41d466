"""The server with the SDK's own client: in memory, and over stdin and stdout. `make mcp` has the SDK."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done

if importlib.util.find_spec("mcp_types") is None:
    pytest.skip("the SDK is not installed; `make mcp` has it", allow_module_level=True)

from mcp import Client, StdioServerParameters

from perfaudit.mcp.server import server_for

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_models"
READING = ["scan", "explain", "rules", "doctor", "trace"]


def asked(server: Any, *calls: tuple[str, dict[str, Any]]) -> tuple[Any, list[Any]]:
    """The tools of a server, and the results of these calls."""

    async def ask() -> tuple[Any, list[Any]]:
        async with Client(server) as client:
            return (await client.list_tools()).tools, [await client.call_tool(name, given) for name, given in calls]

    return asyncio.run(ask())


def test_only_what_reads_is_offered() -> None:
    tools, _ = asked(server_for(SAMPLES, may_run=False))
    assert [tool.name for tool in tools] == READING
    assert all(tool.annotations.read_only_hint for tool in tools)
    tools, _ = asked(server_for(SAMPLES, may_run=True))
    assert [tool.name for tool in tools] == [*READING, "run", "tune"]
    assert [tool.annotations.read_only_hint for tool in tools] == [True] * 5 + [False] * 2


def test_a_tool_returns_what_the_command_prints(
    perfaudit: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SAMPLES)
    calls = [("scan", {"paths": ["digits_cnn.py"]}), ("explain", {"rule": "PA101"}), ("rules", {})]
    _, (scan, explain, rules) = asked(server_for(SAMPLES, may_run=False), *calls)
    printed = json.loads(perfaudit("scan", "digits_cnn.py", "--format", "json").out)
    assert scan.structured_content == printed == json.loads(scan.content[0].text) and printed["findings"]
    assert explain.structured_content == json.loads(perfaudit("explain", "PA101", "--format", "json").out)
    assert rules.structured_content["result"] == json.loads(perfaudit("rules", "--format", "json").out)


def test_what_cannot_be_done_is_an_error_in_words() -> None:
    calls = [("scan", {"paths": ["../README.md"]}), ("explain", {"rule": "PA999"}), ("trace", {"paths": ["none.json"]})]
    _, results = asked(server_for(SAMPLES, may_run=False), *calls, ("run", {"script": "digits_cnn.py"}))
    assert all(result.is_error for result in results)
    words = [result.content[0].text for result in results]
    for said, expected in zip(words, ["is outside of", "no rule is called", "no such file", "run"], strict=True):
        assert expected in said


@pytest.mark.slow
def test_a_script_is_run_over_stdin_and_stdout(tmp_path: Path) -> None:
    """What it prints, and what it writes, goes neither into the protocol nor into the folder."""
    (tmp_path / "train.py").write_text(
        "import os, sys, torch\nprint('a line')\nopen('out.txt', 'w').write('x')\nassert sys.argv[1:] == ['--fast']\n"
        "model = torch.nn.Linear(8, 8)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(40):\n    model(torch.randn(4, 8)).sum().backward()\n    optimizer.step()\n"
    )
    typed = ["-m", "perfaudit", "mcp", "--root", str(tmp_path), "--allow-run"]
    _, (result,) = asked(
        StdioServerParameters(command=sys.executable, args=typed, cwd=str(ROOT)),
        ("run", {"script": "train.py", "arguments": ["--fast"], "steps": 30}),
    )
    assert not result.is_error, result.content
    assert result.structured_content["run"]["steps"] >= 30
    assert not (tmp_path / "out.txt").exists()
