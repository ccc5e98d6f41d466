"""PA801 where a context of the program is around an evaluation, and where a call hands on a model in eval mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.test_evaluations_called_elsewhere import EVALUATION
from tests.static.test_programs_of_several_files import findings_in, write

CLOCK = """
import time
from contextlib import contextmanager

@contextmanager
def trace(title):
    began = time.time()
    yield
    print(title, time.time() - began)
"""
TRACED = "from clock import trace\n" + EVALUATION + "\nwith trace('test'):\n    validate(model, loader)\n"


def test_found_where_the_call_stands_in_a_context_of_another_file_that_takes_the_time(tmp_path: Path) -> None:
    folder = write(tmp_path, {"clock.py": CLOCK, "test.py": TRACED})
    (finding,) = findings_in(folder, "test.py", {"PA801"})
    assert finding.message.endswith("which no backward pass uses")


@pytest.mark.parametrize(
    "clock",
    [
        CLOCK.replace("    yield\n", "    with torch.no_grad():\n        yield\n"),
        CLOCK.replace("    yield\n", "    quiet()\n    yield\n") + "\ndef quiet():\n    pass\n",
        CLOCK.replace("    yield\n", "    Quiet().begin()\n    yield\n") + "\nclass Quiet:\n    pass\n",
        CLOCK.replace("@contextmanager", "@managed"),
    ],
)
def test_silent_where_that_context_may_switch_gradients_off(tmp_path: Path, clock: str) -> None:
    folder = write(tmp_path, {"clock.py": clock, "test.py": TRACED})
    assert findings_in(folder, "test.py", {"PA801"}) == []


HANDED = "import torch\nfrom evaluation import accuracy\n\n"
ACCURACY = """
import torch

def accuracy(net, loader):
    right = 0
    for x, y in loader:
        right += (net(x).argmax(1) == y).sum().item()
    return right
"""


def test_a_model_that_is_put_into_eval_mode_as_a_function_elsewhere_gets_it(tmp_path: Path) -> None:
    script = HANDED + "print(accuracy(model.eval(), loader))\n"
    folder = write(tmp_path, {"evaluation.py": ACCURACY, "test.py": script})
    (finding,) = findings_in(folder, "test.py", {"PA801"})
    assert finding.location is not None and finding.location.line == 4
    assert "evaluation.py line 7" in finding.message


@pytest.mark.parametrize(
    "call",
    [
        "with torch.no_grad():\n    print(accuracy(model.eval(), loader))\n",
        "print(accuracy(model, loader), model.eval())\n",  # behind the call
    ],
)
def test_silent_where_it_is_handed_on_without_gradients_or_put_into_eval_mode_later(tmp_path: Path, call: str) -> None:
    folder = write(tmp_path, {"evaluation.py": ACCURACY, "test.py": HANDED + call})
    assert findings_in(folder, "test.py", {"PA801"}) == []
