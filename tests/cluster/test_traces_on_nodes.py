"""Traces that nodes read: the report is that of this machine, whoever has read which file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from conftest import Done
from fake_nodes import FakeNodes
from made_traces import Job, step_of_training

from perfaudit.cli.trace_nodes import read_here, read_on
from perfaudit.errors import NothingMeasured
from perfaudit.trace.trace_files import find_traces

RANKS = 11


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a trace of each rank, and a file that is none."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "traces"
    folder.mkdir()
    job = Job.of(RANKS)
    for _ in range(4):
        for host in job.ranks:
            with host.step():
                step_of_training(host, layers=3)
                host.catch_up()
    job.write(folder)
    (folder / "rank5_broken.json").write_text("{")
    return folder


@pytest.mark.parametrize("newest", [False, True])
def test_what_nodes_read_is_what_this_machine_reads_in_the_same_order(traces: Path, newest: bool) -> None:
    files, told = find_traces([traces]), list[tuple[int, int, str]]()
    nodes = FakeNodes(2, newest=newest)
    found = read_on(nodes, files, (1, 2), 1, lambda *seen: told.append(seen))
    assert found == read_here(files, (1, 2), 1)
    assert [each.file for each in found] == [file.name for file in files]
    assert (nodes.most_out, nodes._sent) == (2, RANKS // 2 + 1)  # two files each
    assert told[-1] == (RANKS + 1, RANKS + 1, files[-1].name)


def test_what_a_lost_node_had_is_read_by_another(traces: Path) -> None:
    files = find_traces([traces])
    found = read_on(FakeNodes(2, lose=(1,)), files, None, 1, lambda *seen: None)
    assert [each.file for each in found] == [file.name for file in files]


def test_without_a_node_that_is_left_nothing_is_said_of_a_resumed_run(traces: Path) -> None:
    with pytest.raises(NothingMeasured) as refused:
        read_on(FakeNodes(1, lose=(2,)), find_traces([traces]), None, 1, lambda *seen: None)
    assert str(refused.value) == "no node is left: node 2 was lost"


def test_the_command_reads_on_the_nodes_that_on_names(
    traces: Path, perfaudit: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, nodes = perfaudit("trace", "traces"), FakeNodes(2)
    monkeypatch.setattr("perfaudit.cli.nodes.opener", lambda on: lambda like: nullcontext(nodes))
    there = perfaudit("trace", "traces", "--on", "ray")
    assert (there.code, there.out) == (here.code, here.out)
    assert "not read: traces/rank5_broken.json" in there.out
    assert nodes._sent > 1


def test_a_cluster_that_there_is_none_of_is_wrong_use(traces: Path, perfaudit: Callable[..., Done]) -> None:
    done = perfaudit("trace", "traces", "--on", "kubernetes")
    assert (done.code, done.out) == (2, "")
    assert "--on kubernetes: it is one of ray, slurm" in done.err
