"""`perfaudit run` as it is typed: scripts that train, and scripts that do not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked_programs import Ended, run_code, run_perfaudit, run_perfaudit_on_ranks

TRAINS = """
import argparse, os, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--code", type=int, default=0)
    options = parser.parse_args()
    model = nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=8)
    step = 0
    try:
        while step < options.steps:
            for x, y in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                step += 1
                if step % 10 == 0:
                    print("step", step, loss.item())
                    torch.save(model.state_dict(), "checkpoints/last.pt")
                if step == options.steps:
                    break
    except BaseException:
        open("caught.txt", "w").close()
    sys.exit(options.code)

if __name__ == "__main__":
    main()
"""


def run(folder: Path, *arguments: str) -> Ended:
    """`perfaudit run` in an interpreter of its own, and the script in another."""
    done = subprocess.run(
        [sys.executable, "-m", "perfaudit", "run", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


def run_forked(folder: Path, *arguments: str, **variables: str) -> Ended:
    """The same in forks of a process that has torch imported, for what does not depend on who imports it."""
    return run_perfaudit(folder, "run", *arguments, variables=variables)


def result(done: Ended) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.out)["run"]
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "checkpoints").mkdir()
    checkpoint = tmp_path / "checkpoints" / "last.pt"
    checkpoint.write_bytes(b"three weeks of training")
    os.utime(checkpoint, ns=(1_000_000_000, 2_000_000_000))
    return tmp_path


def test_steps_of_a_script_whose_files_stay_as_they_are(project: Path) -> None:
    done = run(project, "train.py", "--steps", "25", "--format", "json", "--html", "run.html")
    page = project / "run.html"
    assert "<h1>perfaudit run: train.py</h1>" in page.read_text()
    page.unlink()
    assert done.code == 0, done.err
    seen = result(done)
    assert (seen["ended"], seen["steps"], seen["optimizers"]) == ("enough", 25, 1)
    assert seen["seconds_per_step"] > 0
    assert seen["samples_per_second"] > 0
    assert seen["setup_seconds"] > 0
    assert seen["peak_memory_bytes"] > 1 << 20
    assert sum(seen["phases"].values()) == pytest.approx(1)
    assert list(seen["phases"]) == [
        "data_wait", "host_to_device", "forward", "backward", "optimizer", "average", "host_reads", "other",
    ]  # fmt: skip
    checkpoint = project / "checkpoints" / "last.pt"
    assert checkpoint.read_bytes() == b"three weeks of training"
    assert checkpoint.stat().st_mtime_ns == 2_000_000_000
    assert seen["redirected"] == [str(checkpoint)]
    assert sorted(path.name for path in project.iterdir()) == ["checkpoints", "train.py"]
    assert "step 20" in done.err  # what the script prints is no part of the report
    assert [finding["rule"] for finding in json.loads(done.out)["findings"]][:1] == ["PA402"]
    machine = json.loads(done.out)["environment"]
    assert (machine["device"], bool(machine["torch"]), machine["threads"] > 0) == ("cpu", True, True)


def test_a_script_that_ends_before_the_profile_is_told_so(project: Path) -> None:
    done = run_forked(project, "train.py", "--steps", "500", "--profile", "--", "--steps", "12")
    assert "--profile: nothing was profiled, because the script ended within the timed steps" in done.err


def test_a_few_more_steps_are_profiled(project: Path) -> None:
    done = run_forked(project, "train.py", "--steps", "8", "--profile", "--export", "chrome", "--format", "json")
    seen = result(done)
    assert (seen["steps"], seen["profile"]["steps"], done.code) == (8, 4, 0), done.err
    rows = {row["name"]: row for row in seen["profile"]["operators"]}
    assert rows["Optimizer.step#AdamW.step"]["calls"] in (0.75, 1.0, 1.25)
    assert sum(row["share"] for row in rows.values()) <= 1.001
    trace = json.loads((project / "perfaudit.profile.json").read_text())
    assert any(event["name"].startswith("aten::") for event in trace["traceEvents"])
    marks = [event["name"] for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep")]
    assert marks == [f"ProfilerStep#{number}" for number in (1, 2, 3, 4)]  # `perfaudit trace` has figures per step
    assert not any(name.startswith("ProfilerStep") for name in rows)
    events = json.loads((project / "perfaudit.trace.json").read_text())["traceEvents"]
    setup, *steps = [each for each in events if each["tid"] == 1 and each["ph"] == "X"]
    assert (setup["name"], len(steps), steps[0]["ts"]) == ("setup", 8, setup["dur"])
    assert setup["dur"] == pytest.approx(1e6 * seen["setup_seconds"], rel=1e-3)


def test_what_is_found_alike_at_several_optimizers_is_one_finding_with_its_places(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "models = [torch.nn.Linear(8, 8) for _ in range(2)]\n"
        "one = torch.optim.SGD(models[0].parameters(), lr=0.1, momentum=0.9)\n"
        "other = torch.optim.Adam(models[1].parameters())\n"
        "for _ in range(12):\n"
        "    for model, optimizer in zip(models, (one, other)):\n"
        "        model(torch.randn(4, 8)).sum().backward()\n"
        "        optimizer.step()\n"
    )
    done = run_forked(tmp_path, "train.py")
    assert done.out.count("PA402") == 1
    said = " ".join(done.out.split())
    assert "the same goes for others in 1 more place of this file lines 3, 4 observed: optimizer takes" in said
    assert "this run was on the CPU: a fused update pays in some trainings there" in said


def test_the_code_of_a_script_that_ends_by_itself_is_kept(project: Path) -> None:
    done = run_forked(project, "train.py", "--quiet", "--", "--steps", "12", "--code", "7")
    assert done.code == 7
    assert re.search(r" a step \((median; )?quartiles ", done.out)
    assert "The script failed: it left with code 7" in done.out
    assert done.err.startswith("train.py said last:\nstep 10")


def test_a_script_that_raises_after_some_steps_is_told_with_its_steps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nweight = torch.zeros(4, requires_grad=True)\noptimizer = torch.optim.SGD([weight], lr=0.1)\n"
        "for step in range(9):\n    weight.sum().backward()\n    optimizer.step()\nraise ValueError('too far')\n"
    )
    done = run_forked(tmp_path, "train.py", "--format", "json")
    seen = result(done)
    assert (seen["ended"], seen["steps"], done.code) == ("failed", 9, 1)
    assert seen["message"] == "ValueError: too far (train.py:7 in <module>)"


def test_the_place_of_an_error_is_a_line_of_a_file(tmp_path: Path) -> None:
    """As of a dataclass of a library, whose `__init__` is compiled from a text."""
    (tmp_path / "train.py").write_text("import torch\nexec(\"raise ValueError('no')\")\n")
    assert (
        result(run_forked(tmp_path, "train.py", "--format", "json"))["message"]
        == "ValueError: no (train.py:2 in <module>)"
    )


@pytest.mark.slow
def test_an_error_in_a_loader_worker_is_told_in_its_own_words_and_with_its_own_line(tmp_path: Path) -> None:
    """torch raises it again with a traceback of a page as its text."""
    (tmp_path / "train.py").write_text(
        "from torch.utils.data import DataLoader\nclass Rows:\n    def __len__(self): return 8\n"
        "    def __getitem__(self, n): raise ValueError('no such row')\n"
        "for batch in DataLoader(Rows(), num_workers=1): print(batch)\n"
    )
    message = result(run_forked(tmp_path, "train.py", "--format", "json"))["message"]
    assert message == "ValueError: in a loader worker: no such row (train.py:4 in __getitem__)"


RANKS = """
import sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10_000):
    if dist.get_rank() == 1:
        time.sleep(0.05)
        if step == int(sys.argv[1]):
            raise ValueError("no such row")
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_behind_a_launcher_all_ranks_end_at_one_step_and_the_first_reports_for_all(tmp_path: Path) -> None:
    """With torchrun itself, which starts interpreters; the second rank takes longer."""
    (tmp_path / "train.py").write_text(RANKS)
    done = run_code(
        "from torch.distributed.run import main\nmain()\n", "torchrun",
        ["--nproc-per-node", "2", "--standalone",
         "-m", "perfaudit", "run", "--steps", "30", "train.py", "--format", "json", "--", "-1"],
        tmp_path, 120.0,
    )  # fmt: skip
    assert done.code == 0, done.err
    seen = result(done)
    assert (seen["steps"], seen["ended"]) == (30, "enough")
    assert [(each["rank"], each["ended"]) for each in seen["by_rank"]] == [(0, "enough"), (1, "enough")]
    (late,) = seen["stragglers"]
    assert (late["rank"], late["low"] > 0.02) == (1, True)
    assert json.loads(done.out)["findings"][0]["rule"] == "PA904"


@pytest.mark.slow
def test_a_rank_that_fails_is_named_with_its_last_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    done = run_perfaudit_on_ranks(tmp_path, 2, "run", "--steps", "30", "train.py", "--format", "json", "--", "12")
    assert done.code == 1, done.err
    first, second = result(done)["by_rank"]
    assert (second["ended"], second["steps"]) == ("failed", 12)
    assert second["message"] == "ValueError: no such row (train.py:14 in <module>)"
    assert first["ended"] in ("failed", "stopped")  # it lost the connection


@pytest.mark.slow
def test_ranks_are_tuned_together_and_without_time_nothing_is_claimed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    done = run_perfaudit_on_ranks(tmp_path, 2, "tune", "--budget", "1s", "train.py", "--format", "json", "--", "-1")
    report = json.loads(done.out)
    assert done.code == 1, done.err  # the launcher's, of the first rank's 3
    assert [trial["status"] for trial in report["trials"]] == [
        "not_measured"
    ] * 2  # your code, and the one that is tried first
    (left,) = [note for note in report["notes"] if "not raced in fresh sets" in note]
    assert left.count("=") >= 4  # each of the others is named
    assert (report["comparisons"], report["winners"][0]["keeps_current"]) == ([], True)
    assert any("too few generations" in note for note in report["notes"])


def test_a_module_in_place(project: Path) -> None:
    (project / "package").mkdir()
    (project / "package" / "train.py").write_text(TRAINS)
    done = run_forked(
        project, "-m", "package.train", "--to-end", "--in-place", "--format", "json", "--", "--steps", "10"
    )
    assert done.code == 0, done.err
    seen = result(done)
    assert (seen["ended"], seen["steps"], seen["redirected"], seen["in_place"]) == ("finished", 10, [], True)
    assert (project / "checkpoints" / "last.pt").read_bytes() != b"three weeks of training"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("raise ValueError('no data')", 2, "ValueError: no data (bad.py:1 in <module>)"),
        ("x = (", 2, "SyntaxError: '(' was never closed (bad.py:1)"),
        ("import os; os._exit(5)", 2, "at once with code 5, by os._exit"),
        ("import os; os._exit(0)", 3, "ended without a step that could be timed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 2, "by signal SIGKILL"),
        ("import sys; sys.exit('needs a GPU')", 2, "needs a GPU"),
        ("import sys; sys.exit(4)", 2, "it left with code 4"),
        ("input()", 2, "EOFError"),
        ("breakpoint()\nweight = 1", 2, "it stops at a breakpoint at bad.py:1, and its standard input is closed here"),
        ("import pdb\npdb.set_trace()\nx = 1", 2, "it stops at a breakpoint at bad.py:2, and its standard input"),
        ("pass", 3, "ended without a step that could be timed"),
        ("import os; os.chdir('/'); raise ValueError('elsewhere')", 2, "ValueError: elsewhere"),
    ],
)
def test_scripts_that_do_not_train(tmp_path: Path, text: str, code: int, said: str) -> None:
    (tmp_path / "bad.py").write_text(text)
    done = run_forked(tmp_path, "bad.py")
    assert said in done.out
    assert done.code == code
    assert "Traceback" not in done.out
    assert "BdbQuit" not in done.out + done.err


def test_a_script_that_is_asked_for_its_help_is_not_said_to_lack_steps(tmp_path: Path) -> None:
    text = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()\n"
    (tmp_path / "train.py").write_text(text)
    done = run_forked(tmp_path, "train.py", "--", "--help")
    assert (done.code, done.out) == (3, "The script printed its help and ended.\n")
    assert "ended without a step" in run_forked(tmp_path, "train.py", "--", "--lr", "1").out


SWEEPS = """
import wandb
sweep = wandb.sweep({"method": "random"})
open("sent.txt", "w").close()
"""


def test_what_cannot_be_kept_away_from_a_server_ends_the_script_before_it_is_done(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SWEEPS)
    (tmp_path / "wandb.py").write_text("def init(): pass\ndef sweep(sweep):\n    raise AssertionError('sent')\n")
    done = run_forked(tmp_path, "train.py")
    what = "wandb.sweep() makes a sweep on the server (train.py:3)"
    said = "that cannot be kept away, and was not done; --in-place runs it all the same"
    assert done.err.splitlines()[-1] == f"perfaudit: train.py: {what}: {said}"
    assert (done.code, done.out, "sent" in done.err) == (2, "", False)
    assert "AssertionError: sent" in run_forked(tmp_path, "train.py", "--in-place").out


PUSHES = """
import torch, wandb
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range({steps}):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
wandb.agent()
"""


def test_steps_before_what_cannot_be_kept_away_are_reported_and_written(tmp_path: Path) -> None:
    """As before `push_to_hub` at the end of a training: a report of an older run must not be read as this one's."""
    (tmp_path / "train.py").write_text(PUSHES.format(steps=12))
    (tmp_path / "wandb.py").write_text("def agent():\n    raise AssertionError('sent')\n")
    (tmp_path / "run.json").write_text("older")
    said = (
        "wandb.agent() asks the server for the runs of a sweep (train.py:8): that cannot be kept away, and was not done"
    )
    told = run_forked(tmp_path, "train.py", "--format", "json", "-o", "run.json")
    seen = json.loads((tmp_path / "run.json").read_text())["run"]
    assert (told.code, seen["ended"], seen["steps"], seen["counted"]) == (2, "failed", 12, 9)
    assert seen["message"] == f"{said}; --in-place runs it all the same"
    assert seen["seconds_per_step"] > 0
    assert seen["device"] == "cpu"  # of the facts that are told last
    assert told.err.splitlines()[-1] == f"train.py: {seen['message']}"
    shown = run_forked(tmp_path, "train.py")
    assert (shown.code, " a step (" in shown.out, "sent" in shown.err) == (2, True, False)
    assert f"The script was ended early: {said}" in " ".join(shown.out.split())
    enough = run_forked(tmp_path, "train.py", "--steps", "12", "--format", "json")
    assert (enough.code, result(enough)["ended"], result(enough)["message"]) == (0, "enough", "")


def test_one_step_before_what_cannot_be_kept_away_is_said_to_be_too_few(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PUSHES.format(steps=1))
    (tmp_path / "wandb.py").write_text("def agent():\n    raise AssertionError('sent')\n")
    done = run_forked(tmp_path, "train.py")
    assert (done.code, done.out.startswith("The script was ended before a step could be timed: wandb.agent()")) == (
        2,
        True,
    )


AT_ONCE = """
import os, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for _ in range(12):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    os._exit({code})
finally:
    print("never")
"""


@pytest.mark.parametrize(
    ("code", "ended", "said"), [(0, "finished", ""), (7, "failed", "at once with code 7, by os._exit")]
)
def test_a_script_that_leaves_at_once_has_told_all_its_steps(tmp_path: Path, code: int, ended: str, said: str) -> None:
    (tmp_path / "train.py").write_text(AT_ONCE.format(code=code))
    done = run_forked(tmp_path, "train.py", "--to-end", "--format", "json")
    seen = result(done)
    assert (done.code, seen["ended"], seen["steps"]) == (code, ended, 12)
    assert said in seen["message"] and "never" not in done.err


def test_a_script_that_closes_what_its_steps_are_told_by_is_not_said_to_have_none(tmp_path: Path) -> None:
    closed = AT_ONCE.replace("import os, torch\n", "import os, torch\nos.closerange(3, 256)\n").format(code=0)
    (tmp_path / "train.py").write_text(closed)
    done = run_forked(tmp_path, "train.py", "--format", "json")
    assert (done.code, result(done)["ended"]) == (3, "finished")
    assert "so not all of its steps may have been seen" in result(done)["message"]


IN_PROCESSES = """
import multiprocessing, sys
import torch

def work():
    weight = torch.zeros(8, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    while True:
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

if __name__ == "__main__":
    processes = [multiprocessing.get_context(sys.argv[1]).Process(target=work) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_script_that_trains_in_processes_is_watched_in_one_of_them(tmp_path: Path, way: str) -> None:
    (tmp_path / "train.py").write_text(IN_PROCESSES)
    done = run_forked(tmp_path, "train.py", "--steps", "20", "--format", "json", "--", way)
    seen = result(done)
    assert (seen["ended"], seen["steps"], seen["in_started"], done.code) == ("enough", 20, True, 0), done.err


def test_processes_in_which_nothing_is_seen_to_train_are_named(tmp_path: Path) -> None:
    (tmp_path / "launch.py").write_text("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'])\n")
    done = run(tmp_path, "launch.py")
    assert "it started 1 process (python), and training in them was not seen" in " ".join(done.out.split())
    assert done.code == 3


def test_processes_that_have_ended_while_the_script_waits_for_them_are_said_to_have(tmp_path: Path) -> None:
    (tmp_path / "launch.py").write_text(
        "import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', 'raise SystemExit(1)'])\ntime.sleep(600)\n"
    )
    done = run(tmp_path, "launch.py", "--timeout", "3s")
    said = "it started 1 process (python), which has ended, and training in them was not seen"
    assert said in " ".join(done.out.split())


def test_what_a_script_prints_takes_little_room_and_its_end_is_shown(tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text("for n in range(100_000): print('line', n)\nraise ValueError('no')\n")
    done = run(tmp_path, "prints.py", "--quiet")
    assert "line 99999" in done.err
    assert (len(done.err) < 5000, done.code) == (True, 2)


def test_a_script_that_hangs_before_its_first_step_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], start_new_session=True)\n"
        "print('pid', one.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    done = run(tmp_path, "hangs.py", "--timeout", "3s")
    assert done.code == 3
    assert "No step was seen in time" in done.out
    pid = int(done.err.split("pid ")[1].split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_evaluation_behind_the_first_step_is_named_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nmodel = torch.nn.Linear(8, 8)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "model(torch.ones(4, 8)).sum().backward()\noptimizer.step()\n"
        "with torch.no_grad():\n    while True:\n        model(torch.ones(4, 8))\n"
    )
    done = run_forked(tmp_path, "train.py", "--seconds", "1s", "--timeout", "100s", "--format", "json")
    seen = result(done)
    assert (seen["ended"], seen["steps"], done.code) == ("enough", 1, 3)
    assert (
        seen["message"] == "When the time was up, it was in an evaluation behind 1 update. --seconds gives it longer."
    )


def test_functions_that_no_step_calls_are_known_of_a_script_that_ends_by_itself(tmp_path: Path) -> None:
    activation = "return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))"
    (tmp_path / "train.py").write_text(
        f"import math\nimport torch\ndef other(x):\n    {activation}\ndef act(x):\n    {activation}\n"
        "def train(steps):\n    model = torch.nn.Linear(8, 8)\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    for _ in range(steps):\n        act(model(torch.ones(4, 8))).sum().backward()\n        optimizer.step()\n"
        "train(9)\nif torch.rand(()) > 2:\n    other(torch.ones(1))\n"
    )
    done = run_forked(tmp_path, "train.py", "--format", "json")
    found = [(each["line"], each["note"] or "") for each in json.loads(done.out)["findings"] if each["rule"] == "PA204"]
    assert [line for line, _ in found] == [6, 4], done.out
    assert "did not come to this function" in found[1][1]


def test_a_script_that_hangs_after_some_steps_is_ended_too(project: Path) -> None:
    text = TRAINS.replace(
        "step += 1\n", "step += 1\n                import time; time.sleep(1000 if step == 12 else 0)\n"
    )
    assert text != TRAINS
    (project / "hangs.py").write_text(text)
    done = run_forked(project, "hangs.py", "--steps", "50", "--timeout", "3s", "--format", "json")
    seen = result(done)
    assert seen["ended"] == "late"
    assert 8 <= seen["steps"] <= 12  # the last of such short ones had not been told
    assert seen["message"].startswith("In 3 s after its last step there was none.")
    assert done.code == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_a_command_that_is_ended_ends_the_script(tmp_path: Path, number: int, code: int) -> None:
    (tmp_path / "long.py").write_text("import os, time; print('pid', os.getpid(), flush=True); time.sleep(1000)")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "perfaudit", "run", "long.py"]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    ) as process:
        assert process.stderr is not None
        pid = int(next(line for line in process.stderr if line.startswith("pid ")).split()[1])
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == code
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    if number != signal.SIGKILL:  # of which nobody is told
        assert list(scratch.iterdir()) == []


def wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.py"], "missing.py: no such file"),
        (["."], ".: is a folder; name the script in it"),
        (["conf.json"], "perfaudit: conf.json: is no Python file; name the script, and behind -- what it is given\n"),
        (["package.train"], "for a module, type -m"),
        (["-m", "nopkg.train", "--steps", "3"], "perfaudit: nopkg.train: no such module\n"),
        (["train.py", "--to-end", "--steps", "3"], "--to-end lets the script end by itself"),
        (["train.py", "--to-end", "--profile"], "--profile is for steps behind the timed ones"),
        (["train.py", "--seconds", "3"], "2 processes of a launcher are to end at the same step"),
    ],
)
def test_wrong_use(project: Path, arguments: list[str], said: str) -> None:
    (project / "conf.json").write_text('{"lr": 0.1}')
    alone = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}  # on its machine: no other says it first
    done = run_forked(project, *arguments, RANK="1", WORLD_SIZE="2", **alone)
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize(
    ("behind", "steps"),
    [
        ("os._exit(4)", 9),
        ("sys.exit(5)", 9),
        ("raise ValueError('behind')", 9),
        ("time.sleep(600)", 9),
        ("os._exit(4)", 10),
    ],
)
def test_what_a_script_does_behind_the_steps_that_were_asked_for_does_not_count(
    behind: str, steps: int, tmp_path: Path
) -> None:
    """It makes some steps more, of which the functions are looked at, and may have none."""
    (tmp_path / "train.py").write_text(
        "import os, sys, time, torch\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(10):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.ones(1, 2)).sum().backward()\n"
        "    optimizer.step()\n"
        f"{behind}\n"
    )
    done = run_forked(tmp_path, "--quiet", "--steps", str(steps), "--format", "json", "train.py")
    assert (done.code, result(done)["ended"], result(done)["steps"]) == (0, "enough", steps), done.err
