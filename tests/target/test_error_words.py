"""An error of the user's code in one line."""

from __future__ import annotations

import bdb
import sys
from types import SimpleNamespace

import pytest

from perfaudit.errors import TargetError
from perfaudit.target.load import MOST_SAID, faults_named, is_out_of_memory, missing_for, words_of_error


def test_of_a_long_error_the_beginning_is_shown() -> None:
    assert words_of_error(ValueError("no file\n  at a")) == "no file at a"
    shown = words_of_error(ValueError("no file, " + "x" * 5000))
    assert shown.startswith("no file, x") and shown.endswith(" …") and len(shown) == MOST_SAID + 2


def test_what_onednn_does_not_have_is_no_lack_of_memory() -> None:
    assert is_out_of_memory(RuntimeError("could not create a primitive"))
    assert not is_out_of_memory(
        RuntimeError("could not create a primitive descriptor for the LSTM forward propagation primitive")
    )


def test_a_debugger_that_gets_no_answer() -> None:
    closed = ", and its standard input is closed here; take it out, or set PYTHONBREAKPOINT=0"
    assert words_of_error(bdb.BdbQuit()).startswith(f"it stops at a breakpoint{closed}")
    assert words_of_error(bdb.BdbQuit("train.py:3")).startswith(f"it stops at a breakpoint at train.py:3{closed}")


def test_the_error_of_a_debugger_has_one_place() -> None:
    def raised(error: Exception) -> str:
        with pytest.raises(TargetError) as found, faults_named("loading train.py"):
            raise error
        return str(found.value)

    said = raised(bdb.BdbQuit("train.py:3"))
    assert said.startswith("loading train.py: it stops at a breakpoint at train.py:3") and said.endswith("breakpoint()")
    assert "(tests/target/test_error_words.py:" in raised(bdb.BdbQuit()).replace("\\", "/")


@pytest.mark.parametrize(("said", "needs"), [
    ("No supported gpu backend found!", True),  # of Lightning, as the next two
    ("`CUDAAccelerator` can not run on your system since the accelerator is not available.", True),
    ("You requested gpu: [0]\n But your machine only has: []", True),
    ("You requested gpu: [0, 1]\n But your machine only has: [0]", False),
    ("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are …", True),
    ("ProcessGroupNCCL is only supported with GPUs, no GPUs found!", True),
    ("fp16 mixed precision requires a GPU (not 'cpu').", True),  # of Accelerate
    ("fp16 mixed precision requires a device in ['cuda'] (not 'cpu').", True),
    ("CUDA out of memory", False),
])  # fmt: skip
def test_what_needs_a_gpu(said: str, needs: bool) -> None:
    missing = "it needs a GPU, and none can be used here"
    assert missing_for(RuntimeError(said)) == (missing if needs else "")


def test_words_and_what_is_missing_are_one_sentence() -> None:
    assert (
        words_of_error(RuntimeError("No supported gpu backend found!"))
        == "No supported gpu backend found: it needs a GPU, and none can be used here"
    )


@pytest.mark.parametrize("has_gpu", [False, True])
def test_a_line_that_asserts_a_gpu(monkeypatch: pytest.MonkeyPatch, has_gpu: bool) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    with pytest.raises(AssertionError) as raised:
        assert torch.cuda.is_available()
    torch.cuda.is_available = lambda: has_gpu
    assert bool(missing_for(raised.value)) is not has_gpu
    with pytest.raises(AssertionError) as other:
        assert not len("a GPU")
    assert missing_for(other.value) == ""
