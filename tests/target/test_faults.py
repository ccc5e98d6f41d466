"""What users get when their code does something wrong: one message that says what and where, and no process left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.measure.child import Child, ChildFailed

Project = Callable[..., Path]

MODEL = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def build_model():
    return nn.Linear(4, 3)

def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8)
"""


def build(child: Child, file: str = "train.py", **more: object) -> dict[str, object]:
    command = {
        "do": "build",
        "target": {"file": file, "names": {}},
        "overlay": {},
        "knob": "",
        "settings": {},
        "device": "cpu",
    }
    return child.ask({**command, **more}, timeout=60)


def fault(project_file: str, **more: object) -> ChildFailed:
    with Child() as child, pytest.raises(ChildFailed) as caught:
        build(child, project_file, **more)
        child.ask({"do": "block", "steps": 1}, timeout=60)
    return caught.value


def test_a_training_is_built_and_steps(project: Project) -> None:
    project(**{"train.py": MODEL})
    with Child() as child:
        facts = build(child)
        assert facts["loader"]["epoch_batches"] == 8
        assert facts["loader"]["site"][1:3] == [9, 9]
        block = child.ask({"do": "block", "steps": 20}, timeout=60)
        assert (block["steps"], block["samples"]) == (20, 160)
        told = child.ask({"do": "losses", "steps": 2, "seed": 1, "memory": True}, timeout=60)["memory"]
        assert told["taken_bytes"] is None  # tensors alone on the CPU
        assert told["peak_bytes"] == child.ask({"do": "memory"}, timeout=60)["peak_bytes"] > 8 * 4 * 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("def build_model():", "def net():"),
            "train.py defines no model factory (looked for build_model, make_model, get_model, "
            "create_model; it has: net, build_dataloader)",
        ),
        (
            ("return nn.Linear(4, 3)", "return [nn.Linear(4, 3)]"),
            "train.py: build_model() returned a list (Linear), not a torch Module",
        ),
        (
            ("return nn.Linear(4, 3)", "raise ValueError('no weights here')"),
            "train.py: build_model() failed: ValueError: no weights here (train.py:6 in build_model)",
        ),
        (("def build_model():", "def build_model(width):"), "train.py: build_model(width) takes arguments"),
        (
            ("import torch\n", "import torch\nimport no_such_module\n"),
            "train.py does not import: ModuleNotFoundError: No module named 'no_such_module' (train.py:2 in <module>)",
        ),
        (
            ("import torch\n", "import torch\nimport sys; sys.exit(0)\n"),
            "train.py does not import: it called sys.exit(0)",
        ),
        (
            (
                "TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))",
                "TensorDataset(torch.randn(0, 4), torch.randint(0, 3, (0,)))",
            ),
            "train.py: the dataloader is empty (it yields no batch)",
        ),
        (
            ("nn.Linear(4, 3)", "nn.Linear(5, 3)"),
            "train.py: one training step: RuntimeError: mat1 and mat2 shapes cannot be multiplied",
        ),
        (
            ("torch.randint(0, 3, (64,))", "torch.randn(64), torch.randn(64)"),
            "train.py: no loss is known for batches of a list "
            "(Tensor, Tensor, Tensor); define `def training_step(model, batch): ...` that returns the loss",
        ),
    ],
    ids=[
        "no factory",
        "wrong type",
        "raises",
        "takes arguments",
        "import fails",
        "exits",
        "empty loader",
        "step fails",
        "no loss",
    ],
)
def test_one_clear_message(project: Project, change: tuple[str, str], message: str) -> None:
    text = MODEL.lstrip("\n").replace(*change)
    assert text != MODEL.lstrip("\n")
    project(**{"train.py": text})
    failure = fault("train.py")
    assert failure.kind in ("target", "step", "ended")
    assert str(failure).startswith(message)


def test_a_factory_that_hangs_is_named_with_its_line(project: Project) -> None:
    project(
        **{
            "train.py": MODEL.lstrip("\n").replace(
                "return nn.Linear(4, 3)", "import time\n    while True: time.sleep(0.1)"
            )
        }
    )
    with Child() as child:
        pid = child.pid
        with pytest.raises(ChildFailed) as caught:
            child.ask(
                {
                    "do": "build",
                    "target": {"file": "train.py", "names": {}},
                    "overlay": {},
                    "knob": "",
                    "settings": {},
                    "device": "cpu",
                },
                timeout=4,
            )
    assert caught.value.kind == "timeout"
    assert str(caught.value) == "no answer within 4 s (last seen at train.py:7 in build_model)"
    assert not alive(pid)


def test_a_worker_that_dies_is_a_fault_and_leaves_nothing_behind(project: Project) -> None:
    text = (
        MODEL.lstrip("\n")
        .replace("DataLoader(TensorDataset", "DataLoader(Dying")
        .replace(", batch_size=8", ", batch_size=8, num_workers=2")
    )
    dying = """
class Dying(TensorDataset):
    def __getitem__(self, index):
        import os, signal
        if index == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)

def build_model"""
    project(**{"train.py": text.replace("\ndef build_model", dying, 1)})
    failure = fault("train.py")
    assert failure.kind == "step"
    assert "RuntimeError: DataLoader worker" in str(failure)  # raised from a signal handler, at whatever line runs then


def test_an_error_in_a_worker_is_told_in_the_workers_words(project: Project) -> None:
    text = (
        MODEL.lstrip("\n")
        .replace("DataLoader(TensorDataset", "DataLoader(Broken")
        .replace("batch_size=8", "batch_size=8, num_workers=1")
    )
    broken = """
class Broken(TensorDataset):
    def __getitem__(self, index):
        raise OSError("corrupt image 17")

def build_model"""
    project(**{"train.py": text.replace("\ndef build_model", broken, 1)})
    assert str(fault("train.py")).startswith(
        "train.py: the dataloader failed: OSError: in a loader worker: OSError: corrupt image 17"
    )


def test_a_crash_names_the_users_line(project: Project) -> None:
    project(**{"train.py": MODEL.replace("return nn.Linear(4, 3)", "import ctypes; ctypes.string_at(0)")})
    assert str(fault("train.py")) == "the process ended by signal SIGSEGV (last seen at train.py:6 in build_model)"


def test_running_out_of_memory_is_told_apart(project: Project) -> None:
    project(**{"train.py": MODEL.replace("return nn.Linear(4, 3)", "return nn.Linear(1 << 40, 1 << 10)")})
    assert fault("train.py").kind == "oom"


def test_a_process_that_is_ended_from_inside_says_how(project: Project) -> None:
    project(**{"train.py": MODEL.replace("return nn.Linear(4, 3)", "import os; print('so long'); os._exit(7)")})
    failure = fault("train.py")
    assert failure.kind == "crash"
    assert str(failure) == "the process ended with code 7; it said last:\n    so long"


def test_everything_a_child_started_ends_with_it(project: Project) -> None:
    """Also a process that made a session of its own."""
    started = (
        "import subprocess\n"
        "P = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "open('pid', 'w').write(str(P.pid))\n"
    )
    folder = project(**{"train.py": started + MODEL})
    with Child() as child:
        build(child)
    assert not alive(int((folder / "pid").read_text()))


def test_a_paused_child_goes_on_where_it_was(project: Project) -> None:
    project(**{"train.py": MODEL})
    with Child() as child:
        build(child)
        child.pause()
        assert child.ask({"do": "block", "steps": 2}, timeout=60)["steps"] == 2


def test_a_fresh_interpreter_sees_variables_before_torch(project: Project) -> None:
    text = "import os\nos.environ['OMP_NUM_THREADS'] = '1'\n" + MODEL
    project(**{"train.py": text})
    with Child(fresh=True) as child:
        assert build(child)["host"]["threads"] == 1


def test_package_with_relative_imports(project: Project) -> None:
    project(
        **{
            "pkg/__init__.py": "",
            "pkg/nets.py": "from torch import nn\n\ndef net():\n    return nn.Linear(4, 3)\n",
            "pkg/train.py": MODEL.replace("return nn.Linear(4, 3)", "from .nets import net\n    return net()"),
        }
    )
    with Child() as child:
        assert build(child, "pkg/train.py")["loader"]["epoch_batches"] == 8


def test_patched_text_is_what_runs(project: Project) -> None:
    folder = project(**{"train.py": MODEL})
    patched = MODEL.lstrip("\n").replace("batch_size=8", "batch_size=16")
    with Child() as child:
        assert build(child, overlay={"train.py": patched})["loader"]["epoch_batches"] == 4
    assert "batch_size=8" in (folder / "train.py").read_text()


def alive(pid: int) -> bool:
    for _ in range(50):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except OSError:
            return False
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return True


def test_a_child_that_gets_on_has_its_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that puts a candidate in place after another; 0.3 seconds are over before the second look."""
    child = object.__new__(Child)
    child._replies, replies = os.pipe()
    child._buffer, child._process = b"", type("Process", (), {"poll": staticmethod(lambda: None)})()
    monkeypatch.setattr(Child, "_forget_output", lambda self: None)
    monkeypatch.setattr(Child, "_overdue", lambda self, timeout: ChildFailed("timeout", "no answer"))
    looks: list[int] = []

    def reached(last: int) -> int:
        looks.append(1)
        if len(looks) == 5:
            os.write(replies, b'{"done": true}\n')
        return min(len(looks), last)

    assert child.receive(0.3, lambda: reached(5)) == {"done": True}
    looks.clear()
    with pytest.raises(ChildFailed, match="no answer"):
        child.receive(0.3, lambda: reached(1))
    os.close(replies)
    os.close(child._replies)
