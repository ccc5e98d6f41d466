"""What a step takes without what others on the machine take away: on paper, and of a thread that sleeps."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from perfaudit.measure.holder import Holder
from perfaudit.measure.own_time import Spent, asleep_share, cores_of_process
from perfaudit.measure.verbs.timing import asleep


@pytest.mark.parametrize(
    ("spent", "own"),
    [
        (Spent(wall=1.0, thread=1.0, process=2.0, queued=0.0), 1.0),  # nobody else: the clock on the wall
        (Spent(wall=3.0, thread=1.0, process=2.0, queued=2.0), 1.0),  # one thread waited
        (Spent(wall=3.0, thread=1.0, process=2.0, queued=4.0), 1.0),  # both at once, which is counted twice
        (Spent(wall=3.0, thread=0.5, process=2.0, queued=4.0), 1.0),  # the other thread computes more than this one
        (Spent(wall=3.0, thread=1.4, process=1.5, queued=4.0), 1.4),  # this one computes nearly alone
        (Spent(wall=1.0, thread=1.1, process=3.0, queued=0.0), 1.0),  # clocks that are not quite together
    ],
)
def test_what_is_left_of_a_step(spent: Spent, own: float) -> None:
    assert spent.own(cores=2) == pytest.approx(own)


def test_steps_that_sleep_are_told_from_steps_that_compute() -> None:
    torch = pytest.importorskip("torch")
    threads, inside = torch.get_num_threads(), []

    def sleep() -> None:
        inside.append(torch.get_num_threads())
        time.sleep(0.2)  # long beside what a busy machine adds to it

    def compute() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass

    assert asleep_share(sleep, 2) > 0.8 and inside == [1, 1]
    assert asleep_share(compute, 2) < 0.5  # not nearly 0: reading the clocks may be interrupted
    assert torch.get_num_threads() == threads
    assert 1 <= cores_of_process() <= threads


@pytest.mark.parametrize(
    ("is_host", "step", "is_told"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_where_it_cannot_be_told_what_was_timed_before_stands(is_host: bool, step: bool, is_told: bool) -> None:
    """A training that ends in these steps, or runs on an accelerator."""
    pytest.importorskip("torch")

    def make_step() -> None:
        if not step:
            raise SystemExit(0)

    training = SimpleNamespace(accelerator=SimpleNamespace(is_host=is_host), whole_step=make_step)
    holder = Holder()
    holder.training = training
    assert (asleep(holder, 2)["share"] is not None) is is_told


def test_a_step_that_raises_leaves_as_many_threads() -> None:
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()

    def raises() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        asleep_share(raises, 1)
    assert torch.get_num_threads() == threads
