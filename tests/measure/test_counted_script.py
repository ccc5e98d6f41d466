"""Steps of a script's own loop, counted: what most of them share is the counter, what they do not is told."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import pytest

from perfaudit.errors import NoBatches, TargetError
from perfaudit.measure import counted_step
from perfaudit.measure.counted_script import FEWEST, STEPS, count_script
from perfaudit.measure.flop_formulas import formulas

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack, _pop_mode  # noqa: E402

from perfaudit.measure.memory import live_bytes  # noqa: E402

Step = Callable[["Script", int, Any, Any], object]


class Script:
    """A training whose loop makes a plain step and what a test adds to it. ends_after: steps."""

    def __init__(self, more: Step = lambda *_: None, ends_after: int = 100) -> None:
        self.model = torch.nn.Linear(4, 3)
        self.optimizers = [torch.optim.SGD(self.model.parameters(), lr=0.1)]
        self.device = torch.device("cpu")
        self.unseen: Any = contextlib.nullcontext
        self.on_batch: Callable[[Any], object] = lambda batch: None
        self.more, self.ends_after, self.made = more, ends_after, 0

    def whole_step(self) -> int:
        self.made += 1
        if self.made > self.ends_after:
            raise NoBatches("train.py: the script ended after some updates")
        with self.unseen():
            x = torch.cat([torch.arange(8.0).reshape(2, 4), torch.zeros(6, 4)])
        self.on_batch(x)
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizers[0].step()
        self.optimizers[0].zero_grad()
        self.more(self, self.made, x, loss)
        return len(x)

    def synchronize(self) -> None: ...


def counted(more: Step = lambda *_: None, enough: float = 60.0, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"values": {}, "by_name": {}, "places": {}, "unsteady": {}, "steps": {}, "absent": {}}
    count_script(Script(more, **options), found, enough)
    return found


@functools.cache
def plain() -> dict[str, Any]:
    return counted()


def test_a_plain_step() -> None:
    values, by_name = plain()["values"], plain()["by_name"]["operators"]
    assert (values["host_syncs"], values["samples"], plain()["unsteady"]) == (0, 8, {})
    assert "aten::cat" not in by_name  # loading is no part of a step
    assert by_name["aten::addmm"] == 1
    lines = {line[2]: line for line in plain()["places"]["operators"]}
    assert "loss = self.model(x).square().mean()" in lines
    assert "loss.backward()" not in lines  # what follows from the model is to blame on no line of the loop


def test_what_every_step_does_more_is_counted_with_its_line() -> None:
    found = counted(lambda script, step, x, loss: loss.item())
    assert found["values"]["host_syncs"] == 1
    assert found["values"]["operators"] == plain()["values"]["operators"] + 1
    ((path, _, text, what, times),) = found["places"]["host_syncs"]
    assert (path.endswith("test_counted_script.py"), "loss.item()" in text, what, times) == (True, True, "item", 1)


def test_a_line_of_the_log_in_some_steps_changes_nothing() -> None:
    found = counted(lambda script, step, x, loss: loss.item() if step % 3 == 0 else None)
    assert (found["values"], found["unsteady"]) == (plain()["values"], {})


def test_what_differs_in_half_of_the_steps_is_told() -> None:
    found = counted(lambda script, step, x, loss: loss.item() if step % 2 else None)
    assert found["steps"]["host_syncs"] in ([0, 1] * (STEPS // 2), [1, 0] * (STEPS // 2))
    assert found["unsteady"]["host_syncs"] == f"between 0 and 1 in {STEPS} steps"
    assert found["values"]["host_syncs"] == 1


def test_few_steps_are_counted_where_time_is_short() -> None:
    found = counted(lambda script, step, x, loss: loss.item() if step % 2 else None, enough=0.0)
    assert found["unsteady"]["host_syncs"] == f"between 0 and 1 in {FEWEST} steps"


@pytest.mark.parametrize(
    ("read", "syncs"),
    [
        (lambda x: x.sum().item(), 0),  # on the host, also where the training runs on an accelerator
        (lambda x: x.to("cpu").sum().item(), 1),
        (lambda x: x.to(torch.float64).sum().item(), 0),
    ],
)
def test_a_batch_is_read_from_the_device_once_it_was_moved(read: Callable[[Any], object], syncs: int) -> None:
    assert counted(lambda script, step, x, loss: read(x))["values"]["host_syncs"] == syncs


def test_a_script_that_ends_is_counted_by_what_it_had() -> None:
    assert counted(ends_after=6)["values"] == plain()["values"]
    with pytest.raises(TargetError, match=r"ended after some updates; counters need 6 steps: let it train longer"):
        counted(ends_after=4)


def test_a_step_that_ends_inside_a_mode_of_its_own() -> None:
    live_bytes().__enter__()  # as a script has it around its update

    def leave(script: Script, step: int, x: Any, loss: Any) -> None:
        if step == 4:
            _pop_mode()  # what `__exit__` does, whatever is on top

    with pytest.raises(TargetError, match="a step ends inside a mode of torch's dispatcher"):
        counted(leave)
    assert not _get_current_dispatch_mode_stack()


def test_a_step_that_fails_while_it_is_watched() -> None:
    def fail(script: Script, step: int, x: Any, loss: Any) -> None:
        raise RuntimeError("no such operator")

    with pytest.raises(TargetError, match="a step under observation failed: RuntimeError: no such operator"):
        counted(fail)


def test_a_script_that_leaves_with_a_fault_is_not_counted_by_what_it_had() -> None:
    def leave(script: Script, step: int, x: Any, loss: Any) -> None:
        if step > 6:
            raise TargetError("train.py: the script left with code 1 after 6 updates of its optimizers")

    with pytest.raises(TargetError, match=r"^train\.py: the script left with code 1 after 6 updates"):
        counted(leave)


@pytest.mark.parametrize(("every", "is_kept"), [(5, True), (2, False), (1, False)])
def test_steps_whose_operations_cannot_be_counted_share_no_value(
    every: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def formula(left: Any, right: Any, out_val: Any) -> int:
        if left.shape[0] == 7:
            raise ValueError("an odd layout")
        return 100

    known = {**formulas(), torch.ops.aten.mm: formula}
    monkeypatch.setattr(counted_step, "formulas", lambda: known)
    plain = counted()["values"]["flops"]

    def evaluate(script: Script, step: int, x: Any, loss: Any) -> None:
        if step % every == 0:
            torch.zeros(7, 4).mm(torch.zeros(4, 3))

    found = counted(evaluate)
    assert found["values"].get("flops") == (plain if is_kept else None)
    assert ("flops" in found["absent"], "flops" in found["unsteady"]) == (not is_kept, False)
    assert is_kept or found["absent"]["flops"].endswith("aten::mm cannot be counted: ValueError: an odd layout")
