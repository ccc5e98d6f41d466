"""benchmarks/engine_calibration.py, fidelity.py and climb_speed.py: texts, true ratios, judging and tables. Nothing is timed."""

from __future__ import annotations

import dis
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forked_programs import run_code

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import climb_speed  # noqa: E402  # these stand in that folder
import engine_calibration  # noqa: E402
import fidelity  # noqa: E402
import machine_states  # noqa: E402
import own_processes  # noqa: E402
from records import read  # noqa: E402

from perfaudit.training.code_change import code_change  # noqa: E402

pytestmark = pytest.mark.slow

Json = dict[str, Any]


# ---- the machine ---------------------------------------------------------------------------------------------------


def children() -> int:
    """Living children of this process."""
    return len(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


@pytest.mark.skipif(not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="needs Linux")
@pytest.mark.parametrize(("state", "busy"), [("calm", 0), ("loaded", 3)])
def test_a_loaded_machine_has_busy_processes_that_end_with_it(state: str, busy: int) -> None:
    before = children()
    with machine_states.machine_in(state):
        assert children() == before + busy
    assert children() == before


@pytest.mark.parametrize(
    ("before", "after", "busy"),
    [
        ("cpu  10 0 10 100 0 0 0 0 0 0", "cpu  110 0 110 100 0 0 0 0 0 0", 2.0),
        ("cpu  10 0 10 100 0 0 0 0 0 0", "cpu  60 0 10 150 0 0 0 0 0 0", 1.0),
        ("cpu  10 0 10 100 0 0 0 0 0 0", "cpu  10 0 10 150 50 0 0 0 0 0", 0.0),  # waiting for a disk is not busy
        ("cpu  10 0 10 100 0 0 0 0 0 0", "cpu  10 0 10 100 0 0 0 0 0 0", 0.0),
    ],
)
def test_busy_cores_are_those_that_are_not_idle(
    before: str, after: str, busy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = iter([before, after])
    monkeypatch.setattr(machine_states.Path, "exists", lambda _: True)
    monkeypatch.setattr(machine_states.Path, "read_text", lambda _: next(texts))
    monkeypatch.setattr(machine_states.os, "cpu_count", lambda: 2)
    assert machine_states.busy_cores(0.0) == busy


def test_there_is_no_third_state() -> None:
    with (
        pytest.raises(ValueError, match="a machine is one of calm, loaded, not 'busy'"),
        machine_states.machine_in("busy"),
    ):
        pass


# ---- calibration: what is raced ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", engine_calibration.SAMPLES)
def test_candidates_differ_from_the_base_in_the_step_alone(sample: str) -> None:
    text = engine_calibration.text_of(sample, longer=False)
    base, entrants = engine_calibration.entrants_of("effects", "train.py", text)
    assert 'spend("base", 0.12)' in base
    assert [entrant["key"] for entrant in entrants] == ["-10%", "-5%", "-3%", "-2%", "+2%", "+3%", "+5%", "+10%"]
    for entrant, share in zip(entrants, engine_calibration.EFFECTS, strict=True):
        before, after = entrant["code"]["train.py"]
        assert before == base
        assert after == entrant["whole"]["train.py"]
        change = code_change("train.py", before, after)  # raises where it could not be swapped
        assert ([function.name for function in change.functions], change.imports) == (["training_step"], ())
        assert f'spend("{entrant["key"]}", {0.12 + share!r})' in after


@pytest.mark.parametrize(
    ("sample", "functions"),
    [
        ("char_gpt", ["Block.forward", "CausalSelfAttention.forward", "GPT.forward", "gelu", "training_step"]),
        ("photo_resnet", ["BasicBlock.forward", "ResNet.forward", "training_step"]),
        ("digits_cnn", ["Gelu.forward", "training_step"]),
    ],
)
def test_identical_code_comes_in_as_patches_and_as_controls_do(sample: str, functions: list[str]) -> None:
    text = engine_calibration.text_of(sample, longer=False)
    base, entrants = engine_calibration.entrants_of("identical", "train.py", text)
    assert base == text
    assert len({entrant["key"] for entrant in entrants}) == engine_calibration.COPIES
    assert [entrant["way"] for entrant in entrants] == ["in place", "control"] * 5
    change = code_change("train.py", *entrants[0]["code"]["train.py"])
    assert sorted(function.name for function in change.functions) == functions
    for function in change.functions:
        before, after = list(dis.get_instructions(function.before)), list(dis.get_instructions(function.after))
        work = [[(one.opname, one.argrepr) for one in code if one.opname != "NOP"] for code in (before, after)]
        assert work[0] == work[1]


def test_a_longer_step_has_more_samples() -> None:
    assert "BATCH_SIZE = 28\n" in engine_calibration.text_of("char_gpt", longer=True)


def test_the_work_besides_is_a_share_of_the_step_once_that_was_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "products_besides.py"
    work.write_text(engine_calibration.WORK.lstrip())
    monkeypatch.syspath_prepend(str(tmp_path))
    import products_besides  # type: ignore[import-not-found]  # written above

    products: list[int] = []
    monkeypatch.setattr(products_besides, "one_product", lambda: 0.001)
    monkeypatch.setattr(products_besides.torch, "mm", lambda *_, out: products.append(1))
    products_besides.spend("base", 0.12)  # not timed yet: none
    (tmp_path / "step_seconds").write_text("0.1")
    products_besides.spend("base", 0.12)
    products_besides.spend("-10%", 0.12 - 0.10)
    assert len(products) == 12 + 2
    logged = engine_calibration.read_log(tmp_path / "besides.log")
    assert [(call.key, call.products) for call in logged] == [("base", 0), ("base", 12), ("-10%", 2)]
    assert all(0 <= call.thread_seconds <= call.thread_began for call in logged)
    assert logged[0].thread_began <= logged[-1].thread_began


def test_the_true_ratio_is_what_the_run_wrote_down() -> None:
    """Steps of 100 ms of which 12 are products, 1 ms each; a candidate with 2 of them has 90 of 100. One step hung."""
    call, began, calls = engine_calibration.Call, 0.0, []
    for key, products in [("base", 0), ("base", 12), ("-10%", 2), ("-10%", 2), ("base", 12), ("+5%", 17), ("base", 12)]:
        calls.append(call(key, began, 0.001 * products + (0.5 if len(calls) == 4 else 0.0), products))
        began += calls[-1].seconds + 0.088
    assert engine_calibration.true_ratios(calls) == {"-10%": 0.9, "+5%": 1.05}
    # Beside other programs the wall tells nothing of a step; the thread's own seconds do.
    busy = [
        replace(
            one, began=3.0 * one.began, seconds=7.0 * one.seconds, thread_began=one.began, thread_seconds=one.seconds
        )
        for one in calls
    ]
    assert engine_calibration.true_ratios(busy, by_thread=True) == {"-10%": 0.9, "+5%": 1.05}
    assert engine_calibration.true_ratios(calls[:1]) == {}
    assert engine_calibration.true_ratios([]) == {}


# ---- calibration: judging ------------------------------------------------------------------------------------------


def raced(interval: Sequence[float] | None, left: str = "", called: float | None = None) -> Json:
    return {
        "interval": interval, "quads": 32, "left": left, "called": called, "decided": called, "log_ratios": [0.0] * 32,
    }  # fmt: skip


def run_of(kind: str, entrants: dict[str, Json], state: str = "calm", **more: Any) -> Json:
    return {
        "kind": kind, "sample": "char_gpt", "state": state, "longer": False, "seconds": 120.0, "seed": 1, "at": 0,
        "load": [1.0, 2.0], "machine": "a machine", "step": 0.12, "true": {}, "prepared": 1.0, "took": 60.0, "block": 1,
        "entrants": entrants, "refused": {}, **more,
    }  # fmt: skip


def test_false_calls_are_those_of_copies_and_controls_are_told_apart() -> None:
    run = run_of(
        "identical",
        {
            "copy 1": raced([0.99, 0.98, 1.01]),
            "copy 2": raced([0.96, 0.94, 0.98]),  # excludes 1, and pays by 2 %
            "copy 3": raced([0.99, 0.985, 0.995]),  # excludes 1, and pays by half a percent
            "copy 4": raced(None),  # open, with too few quads: nothing is known of it
            "copy 5": raced(None, "looked no faster"),  # it can exclude nothing
            "copy 6": raced(None, "with it, a step raises ValueError"),
            "control": raced([1.02, 1.01, 1.03]),
        },
    )
    table = engine_calibration.identical_table([run])
    assert table[2] == (
        "| char_gpt | calm | 120 | 2.0 | 1 | 1 of 4 | 2 of 3 (66.7 %, 9.4 to 99.2) | 1 of 3 (33.3 %, 0.8 to 90.6) | 1.5 % "
        "| 1 of 1 (100.0 %, 2.5 to 100.0) |"
    )
    assert [line.split(" | ")[:2] for line in table[3:]] == [["| all", "calm"], ["| all", "all"]]


def test_effects_are_found_settled_or_missed() -> None:
    key = "-10%"
    runs = [
        run_of("effects", {key: raced([0.91, 0.88, 0.94], "decided", 12.0)}, true={key: 0.90}),
        run_of("effects", {key: raced([0.99, 0.97, 1.01])}, true={key: 0.91}),  # open, and misses the true ratio
        run_of("effects", {key: raced([1.0, 0.995, 1.005], "decided")}, true={key: 0.92}),
    ]
    assert engine_calibration.effects_table(runs)[2:] == [
        "| -10 % | calm | 2.0 | 0.910 (0.900 to 0.920) | 1 of 3 (33.3 %, 0.8 to 90.6) | 1 of 3 (33.3 %, 0.8 to 90.6) "
        "| 2 of 3 (66.7 %, 9.4 to 99.2) | 1.087 |"
    ]


def test_seconds_until_a_call_are_a_median_that_counts_those_never_called() -> None:
    calls = [9.0, 14.0, 30.0, None]
    runs = [run_of("single", {"-10%": raced([0.9, 0.88, 0.92], "", call)}) for call in calls]
    row = "| char_gpt | calm | 2.0 | 0 | 120 | 4 | 3 of 4 (75.0 %, 19.4 to 99.4) | 22 | not called |"
    assert engine_calibration.seconds_table(runs)[2:] == [row]
    assert "| 14 | 30 |" in engine_calibration.seconds_table(runs[:3])[2]
    assert "| not called | not called |" in engine_calibration.seconds_table(runs[3:])[2]


def test_log_ratios_on_record_are_judged_by_the_rule_as_it_is() -> None:
    noise = [0.001, -0.001] * 64
    runs = {"saves": [math.log(0.9) + n for n in noise], "same": [0.2 * n * 50 for n in noise], "short": noise[:3]}
    run = run_of("effects", {key: {**raced(None), "log_ratios": found} for key, found in runs.items()})
    run["entrants"]["no faster"] = {**raced(None, "looked no faster"), "log_ratios": noise[:4]}
    again = engine_calibration.judged_again(run)
    found = again["entrants"]
    assert (found["no faster"]["left"], found["no faster"]["interval"]) == ("looked no faster", None)
    counted = [[one["key"] for one in engine_calibration.candidates([each])] for each in (run, again)]
    assert "no faster" in counted[0] and "no faster" in counted[1]  # a miss counts as one however it is judged
    assert found["saves"]["left"] == "decided"
    assert found["saves"]["interval"][0] == pytest.approx(0.9, abs=2e-3)
    assert found["saves"]["quads"] < 128  # it left at the look that decided
    assert found["short"]["interval"] is None
    control = run_of("effects", {"control": {**raced(None), "log_ratios": runs["saves"]}})
    assert engine_calibration.judged_again(control)["entrants"]["control"]["quads"] == 128  # a control never leaves


def test_the_cell_with_the_fewest_runs_is_next() -> None:
    cells = [("identical", "char_gpt", "calm", False), ("identical", "char_gpt", "loaded", False)]
    runs = [run_of("identical", {})]
    assert engine_calibration.missing(runs, cells, 1) == (cells[1], 1)
    assert engine_calibration.missing([*runs, run_of("identical", {}, "loaded")], cells, 1) is None


# ---- fidelity and climbs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "low", "high"),
    [
        (2, 1.0, 2.0),  # 2 * 0.5 ** 5 is above 5 %: the whole range
        (5, 1.0, 5.0),
        (6, 1.0, 6.0),  # 2 * 0.5 ** 6
        (8, 1.0, 8.0),
        (9, 2.0, 8.0),  # 2 * 10 * 0.5 ** 9 = 3.9 %, a table of the sign test
        (20, 6.0, 15.0),
    ],
)
def test_intervals_of_a_median_go_by_ranks(rounds: int, low: float, high: float) -> None:
    ratios = [float(number) for number in range(1, rounds + 1)]
    found = own_processes.median_ratio(ratios, [1.0] * rounds)
    assert found == ((rounds + 1) / 2, low, high)


def test_a_round_that_noise_turned_around_has_no_ratio() -> None:
    assert own_processes.median_ratio([1.0, 1.0, 3.0], [1.0, -0.1, 1.0]) == (2.0, 1.0, 3.0)
    assert own_processes.median_ratio([1.0, 1.0], [1.0, -0.1]) is None


def test_fidelity_is_the_step_of_a_race_and_of_a_training_over_each_other_way() -> None:
    seconds = {
        "race": [0.101, 0.1111, 0.1212], "training": [0.10, 0.11, 0.12], "bare": [0.10, 0.11, 0.12],
        "whole": [0.05, 0.055, -0.01],
    }  # fmt: skip
    record = {
        "program": "char_gpt", "state": "calm", "commit": "sample_models", "load": [1.0, 2.0], "machine": "a machine",
        "seconds": seconds,
    }  # fmt: skip
    assert fidelity.ratio(record, "training", "whole") == (pytest.approx(2.0), pytest.approx(2.0), pytest.approx(2.0))
    assert fidelity.ratio(record, "race", "training") == (pytest.approx(1.01), pytest.approx(1.01), pytest.approx(1.01))
    first = "| char_gpt | sample_models | calm | 2.0 |"
    rows = [
        f"{first} 111.1 | 1.010 [1.010, 1.010] | 1.010 [1.010, 1.010] | – | 2.020 [2.020, 2.020] |",
        f"{first} 110.0 | 1.000 [1.000, 1.000] | – | 2.000 [2.000, 2.000] |",
    ]
    later = {**record, "seconds": {**seconds, "training": [0.10, 0.11, 0.12]}}
    page = fidelity.page([{**record, "seconds": {**seconds, "training": [1.0, 1.0, 1.0]}}, later])
    assert [line for line in page.splitlines() if line.startswith("| char_gpt")] == rows  # the last one
    command = "    python benchmarks/fidelity.py --rounds 3 --sources SOURCES --states calm --write"
    assert page.splitlines()[2] == command  # nothing was run beside other processes


def test_a_script_is_held_against_its_own_loop_alone() -> None:
    seconds = {"training": [0.2, 0.2], "bare": [0.1, 0.1], "script": [0.3, 0.33], "own": [0.3, 0.3]}
    record = {
        "program": "char_gpt", "state": "calm", "commit": "sample_models", "load": [1.0, 2.0], "machine": "a machine",
        "seconds": seconds,
    }  # fmt: skip
    found = fidelity.page([record])
    assert "## The base's step in a race" not in found
    script = found.partition("## The same program as a script, in its own loop\n\n")[2].splitlines()
    assert [script[0], script[2]] == [
        "| program | from | machine | load | step, ms | ratio to its own loop | ratio to whole runs, long less short |",
        "| char_gpt | sample_models | calm | 2.0 | 315.0 | 1.050 [1.000, 1.100] | – |",
    ]


def test_the_base_of_a_race_is_what_its_quads_were_compared_with() -> None:
    """Steps of the control of 99 and 120 ms, in quads whose blocks of the base took 100 and 100 on average."""
    control = {"seconds": [0.099, 0.120], "log_ratios": [math.log(0.99), math.log(1.2)]}
    assert fidelity.base_seconds(control) == pytest.approx([0.1, 0.1])


def climbed(number: int, ms: float, patches: list[str], trouble: str = "") -> Json:
    seconds = {"program": [0.2, 0.2], "climbed": [ms / 1e3] * 2, "goal": [0.1, 0.1]}
    ladder = {"patches": patches, "words": patches, "dropped": [], "undecided": ["compile"], "trouble": trouble}
    ladder |= {"left": {"ema": "the training keeps no average", "threads": "not measured"}, "late": ["threads"]}
    return {
        "program": "char_gpt", "state": "calm", "budget": 60.0, "number": number, "commit": "sample_models",
        "load": [1.0, 2.0], "machine": "a machine", "took": 61.0, "ladder": ladder, "race": {"seconds": seconds, "load": 1.0},
    }  # fmt: skip


def test_a_row_of_climbs_has_the_median_share_and_the_patches_most_agree_on() -> None:
    both = ["attention", "optimizer"]
    runs = [
        climbed(0, 110, both),
        climbed(1, 150, ["optimizer"]),
        climbed(2, 100, both),
        climbed(3, 200, both, "refused"),
    ]
    assert " | ".join(climb_speed.cells_of(runs)) == (
        "char_gpt | sample_models | calm | 2.0 | 60 s | 61 s | 200 | 0.650 | 0.500 | 70 % (0 to 100), 4 of 4 runs "
        "| 2 of 4: attention, optimizer | 1 | 1"
    )


def test_a_goal_that_saves_nothing_gives_no_share() -> None:
    record = climbed(0, 150, [])
    record["race"]["seconds"]["goal"] = [0.19, 0.21]
    assert climb_speed.share_of(record) is None
    assert "| – 0 of 1 runs |" in climb_speed.page([record])
    assert "| 50 % (50 to 50), 1 of 2 runs |" in climb_speed.page([record, climbed(1, 150, [])])  # said, not dropped


def test_the_command_of_a_page_is_that_of_its_records() -> None:
    runs = [climbed(0, 150, []), climbed(1, 150, [])]
    assert climb_speed.commands_of(runs) == ["    python benchmarks/climb_speed.py --runs 2 --rounds 2 --write"]
    longer = climbed(2, 150, [])
    longer["race"]["seconds"] = {name: [0.1] * 5 for name in longer["race"]["seconds"]}
    longer["program"] = "mingpt_chars"
    assert climb_speed.commands_of([*runs, longer]) == [
        "    python benchmarks/climb_speed.py --runs 2 --rounds 2 --sources SOURCES --goals GOALS --write",
        "    python benchmarks/climb_speed.py --runs 1 --rounds 5 --sources SOURCES --goals GOALS --write",
    ]


def test_a_climb_without_a_report_is_told() -> None:
    record = {**climbed(0, 200, []), "ladder": None}
    assert climb_speed.patches_of(record) == ()
    assert "- char_gpt, calm, 60 s: 1 climbs ended without a report" in climb_speed.page([record])


def test_a_summary_keeps_no_text_of_the_program() -> None:
    rung = {"knob": "attention", "words": "fused attention", "dropped": "", "patch": "- secret\n+ text"}
    gone = {"knob": "fusion", "words": "GELU", "dropped": "gains nothing beside the rest"}
    left = [{"knob": "ema", "reason": "no average"}, {"knob": "compile", "reason": "it needs 90 s", "late": True}]
    ladder = {"rungs": [rung, gone], "ratio": 0.8, "files": [{"before": "secret", "after": "text"}], "left": left}
    found = climb_speed.summary_of(ladder)
    assert (found["patches"], found["dropped"]) == (["attention"], ["GELU"])
    assert (found["left"], found["late"]) == ({"ema": "no average", "compile": "it needs 90 s"}, ["compile"])
    assert "secret" not in json.dumps(found)


def test_programs_by_other_people_are_named_with_a_whole_commit() -> None:
    for program, other in own_processes.OTHERS.items():
        assert re.fullmatch(r"[0-9a-f]{40}", other.commit)
        assert other.commit[:7] in own_processes.commit_of(program)
        text = (BENCHMARKS / "programs" / f"{program}.py").read_text()
        for factory in ("build_model", "build_dataloader", "build_optimizer", "training_step"):
            assert f"def {factory}(" in text


def test_a_program_without_its_sources_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--sources has no clone of karpathy/minGPT"):
        own_processes.put("mingpt_chars", tmp_path, tmp_path)


LOOP = """
import argparse
import torch
from torch import nn

def build_model():
    return nn.Linear(2, 1)

def build_dataloader():
    return torch.utils.data.DataLoader([(torch.ones(2), torch.ones(1))] * 3)

def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)

def training_step(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])

def main():
    model = build_model()
    optimizer = build_optimizer(model)
    while True:
        for batch in build_dataloader():
            optimizer.zero_grad()
            training_step(model, batch).backward()
            optimizer.step()
            open("updates", "a").write(".")

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are forks of a process with torch imported: that each imports it anew is Python's own."""

    def run(command: list[str], cwd: Path, **_: Any) -> subprocess.CompletedProcess[str]:
        _, flag, code, *arguments = command
        done = run_code(code, flag, arguments, cwd)
        return subprocess.CompletedProcess(command, done.code, done.out, done.err)

    monkeypatch.setattr(own_processes, "subprocess", SimpleNamespace(run=run))


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(("loop", "updates"), [(own_processes.BARE, 0), (own_processes.OWN, own_processes.UNTIMED + 5)])
def test_programs_run_by_themselves_and_stop(loop: str, updates: int, tmp_path: Path) -> None:
    """In its own loop, the last update is the one at which it is stopped; a bare loop never enters it."""
    file = tmp_path / "train.py"
    file.write_text(LOOP)
    assert own_processes.seconds_per_step(loop, file, 5) > 0
    done = tmp_path / "updates"
    assert (len(done.read_text()) if done.exists() else 0) == updates


def test_the_step_of_a_race_is_that_of_a_child_as_tune_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "train.py"
    file.write_text(LOOP)
    monkeypatch.setattr(fidelity, "SLICE", 0.05)
    assert fidelity.race_seconds(file) > 0
    assert not (tmp_path / "updates").exists()  # which its own loop would write


@pytest.mark.usefixtures("forks")
def test_a_program_is_timed_as_a_script_in_its_own_loop(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(LOOP)
    assert fidelity.script_seconds(file) > 0
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == [
        "train.py"
    ]  # what it writes is kept away


@pytest.mark.usefixtures("forks")
def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("raise RuntimeError('no data here')")
    with pytest.raises(SystemExit, match=r"train.py by itself ended with 1:[\s\S]*no data here"):
        own_processes.seconds_per_step(own_processes.OWN, file, 5)


# ---- what is committed ---------------------------------------------------------------------------------------------

PAGES: list[tuple[Any, Callable[[list[Json]], str]]] = [
    (engine_calibration, engine_calibration.page),
    (fidelity, fidelity.page),
    (climb_speed, climb_speed.page),
]


@pytest.mark.parametrize(("benchmark", "page"), PAGES, ids=["calibration", "fidelity", "climbs"])
def test_the_committed_tables_are_those_of_the_committed_records(
    benchmark: Any, page: Callable[[list[Json]], str]
) -> None:
    records = read(benchmark.RECORDS)
    assert benchmark.PAGE.exists() == bool(records)
    if records:
        assert benchmark.PAGE.read_text() == page(records)
