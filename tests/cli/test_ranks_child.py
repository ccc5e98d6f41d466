"""Patches screened in one running set of two gloo ranks, and what becomes of one with which a rank fails or hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served_nursery import USE

from perfaudit.cli.ranks_child import Gone, RanksChild, cause_of, free_port
from perfaudit.cli.run_ranks import LEAVE_SECONDS
from perfaudit.distributed.launch import RankPlace
from perfaudit.processes import descendants, started_at

FUSED = 'optimizer {"update": "fused"}'
FOREACH = 'optimizer {"update": "foreach"}'
TRAIN = """
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(20))

    def forward(self, features):
        for layer in self.layers:
            features = torch.relu(layer(features))
        return features


def fail(how):
    if how == "raise":
        raise ValueError("no fused update here")
    threading.Event().wait()


def main(mode):
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(20000):
        loss = (model(torch.randn(8, 16)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if mode and dist.get_rank() == 1 and optimizer.param_groups[0]["fused"]:
            fail(mode)
        optimizer.step()


main(sys.argv[1] if len(sys.argv) > 1 else "")
"""
# What `perfaudit tune` does on each rank, for a few quads, and with no race of fresh sets behind it.
RANK = """
import json, os, sys
from dataclasses import replace
from perfaudit.cli.rank_sets import rank_sets
from perfaudit.cli.ranks_child import Gone
from perfaudit.cli.run_ranks import together
from perfaudit.distributed.launch import place_of
from perfaudit.script.request import Script
from perfaudit.target.names import Target
from perfaudit.tune.ranks.candidates import candidates_of
from perfaudit.tune.ranks.screened_patches import Screened
from perfaudit.tune.screening import Screen

race = Screen.race
Screen.race = lambda screen, label, lineup, *rest: race(screen, label, replace(lineup, most_quads=3), *rest)
mode, seconds, timeout = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
arguments = (mode,) if mode else ()
target, script, screened = Target("train.py", arguments=arguments), Script("train.py", arguments), Screened()
with together(place_of(os.environ), script, 0, None) as ranks, rank_sets(ranks, script, target, timeout, False) as sets:
    if not ranks.is_first:
        sets.follow()
        ranks.wait_for_report()
    else:
        gone = ""
        try:
            allow = frozenset({"rounding"})
            sets.screen(target, allow, seconds, screened, candidates_of(["train.py"], allow).candidates)
        except Gone as why:
            gone = str(why)
        sets.end()
        ranks.tell_reported()
        raced = screened.raced
        print(json.dumps({"gone": gone, "out": raced.out, "quads": {key: seen.quads for key, seen in raced.entrants.items()},
            "ways": raced.ways, "notes": screened.notes(), "left": screened.left}))
"""


def screened_on_two_ranks(
    folder: Path, mode: str, seconds: float, timeout: float, kills: bool = False
) -> dict[str, Any]:
    """What a race of `TRAIN` has shown on two ranks; no process of theirs is left.

    kills: the second rank, which then has a nursery of its own, is killed once it has a process of the script's.
    """
    (folder / "train.py").write_text(TRAIN)
    common = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1",
              "MASTER_PORT": str(free_port()), "TORCHELASTIC_RUN_ID": folder.name, "TMPDIR": str(folder)}  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK if kills and rank else USE + RANK, mode, str(seconds), str(timeout)],
            cwd=folder, stdout=subprocess.PIPE, text=True,
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        if kills:
            while len(descendants(ranks[1].pid)) < 2 and ranks[1].poll() is None:  # the nursery, and the script's
                time.sleep(0.05)
            family = descendants(ranks[1].pid)
            ranks[1].kill()
        said, _ = ranks[0].communicate(timeout=400)
        assert ranks[1].wait(60) == (-signal.SIGKILL if kills else 0)
        assert not (kills and any(started_at(pid) is not None for pid in family))
    finally:
        left = [pid for each in ranks for pid in descendants(each.pid)]
        for each in ranks:
            each.kill()
            each.wait()
    assert not left
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


@pytest.mark.slow
def test_candidates_are_raced_on_both_ranks_beside_identical_code(tmp_path: Path) -> None:
    found = screened_on_two_ranks(tmp_path, "", 120, 60)
    assert found["out"] == {}
    assert found["ways"][FUSED] == found["ways"][FOREACH] == "setting"
    assert min(found["quads"][FUSED], found["quads"]["control"]) > 0
    for each in ("gradient_as_bucket_view=True", "static_graph=True", "bucket_cap_mb=5"):
        assert (found["ways"][each], found["quads"][each] > 0) == ("setting", True)
    assert found["left"] == []


@pytest.mark.slow
def test_a_rank_that_raises_with_a_candidate_takes_it_out_on_all_ranks_and_the_others_are_raced(tmp_path: Path) -> None:
    found = screened_on_two_ranks(tmp_path, "raise", 120, 60)
    assert list(found["out"]) == [FUSED]
    assert "ValueError: no fused update here (train.py:" in found["out"][FUSED]
    assert "on rank 1" in found["out"][FUSED]
    assert found["quads"][FOREACH] > 0


@pytest.mark.slow
def test_a_rank_that_hangs_with_a_candidate_is_ended_in_time_with_its_name(tmp_path: Path) -> None:
    found = screened_on_two_ranks(tmp_path, "hang", 300, 6)
    assert list(found["out"]) == [FUSED]
    assert "rank 1: no answer within 12 s (last seen at train.py:" in found["out"][FUSED]
    assert found["quads"][FOREACH] > 0


@pytest.mark.slow
def test_where_the_process_of_a_rank_is_gone_the_others_end(tmp_path: Path) -> None:
    found = screened_on_two_ranks(tmp_path, "", 120, 60, kills=True)
    assert found["gone"] == "rank 1 is gone"


OWN = {"rank": 1, "failed": "step", "message": "ValueError: no"}
LOST = {"rank": 0, "failed": "step", "message": "RuntimeError: Connection closed by peer [127.0.0.1]:9"}
TROUBLE = {"rank": 1, "reply": {"trouble": "a step raises ValueError: no"}}
FINE = {"rank": 0, "reply": {"trouble": ""}}
LATE = {"rank": 0, "failed": "timeout", "message": "no answer within 9 s (last seen at a.py:1 in f)"}
LATER = {"rank": 1, "failed": "timeout", "message": "no answer within 9 s"}


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ([FINE, {**FINE, "rank": 1}], FINE),
        ([LOST, OWN], OWN),
        ([LOST, TROUBLE], TROUBLE),
        ([FINE, TROUBLE], TROUBLE),
        ([LATE, OWN], OWN),
        ([LATE, LATER], {**LATE, "message": f"rank 0: {LATE['message']}; rank 1: {LATER['message']}"}),
        ([LOST, {**LOST, "rank": 1}], LOST),  # nobody knows better
    ],
)
def test_the_cause_is_the_rank_that_failed_for_itself(told: list[dict[str, Any]], cause: dict[str, Any]) -> None:
    assert cause_of(told) == cause


class Silent:
    """Two ranks of which the other one says nothing, or is gone."""

    place, numbers = RankPlace(0, 2), range(2)

    def __init__(self, gone: int | None) -> None:
        self.gone, self.waited, self.is_told = gone, list[float](), True

    def begin(self) -> None: ...

    def tell_order(self, order: dict[str, Any]) -> None: ...

    def replies(self, seconds: float) -> list[dict[str, Any] | None]:
        self.waited.append(seconds)
        return [{}] if self.is_told else [None]

    def first_gone(self) -> int | None:
        return None if self.is_told else self.gone


class Own:
    """This rank's child, which comes further until 2 s before it answers."""

    child = None

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock

    def open(self, port: int) -> None: ...

    def close(self) -> None: ...

    def ask(self, command: dict[str, Any], timeout: float, progress: Callable[[], object]) -> dict[str, Any]:
        for self.clock[0] in (100.0, 200.0):
            progress()
        self.clock[0] = 202.0
        return {"rank": 0, "reply": {"trouble": ""}}


@pytest.mark.parametrize(("gone", "said"), [(None, "rank 1 did not answer within 80 s"), (1, "rank 1 is gone")])
def test_a_rank_that_does_not_answer_is_waited_for_as_long_as_this_one_and_named(
    monkeypatch: pytest.MonkeyPatch, gone: int | None, said: str
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    ranks = Silent(gone)
    with RanksChild(ranks, Own(clock)) as child:  # type: ignore[arg-type]  # as far as they are asked
        ranks.is_told = False
        with pytest.raises(Gone) as found:
            child.ask({"do": "screen"}, 60.0, lambda: clock[0])
        assert str(found.value) == said
    assert ranks.waited[1] == 58.0 + LEAVE_SECONDS
