"""Which conditions make a training step every few turns, and which do something else now and then."""

from __future__ import annotations

import ast

import pytest

from perfaudit.static.source import Source
from perfaudit.static.understanding.learning_periods import is_in_learning_period


@pytest.mark.parametrize(
    ("test", "is_period"),
    [
        ("step % learn_every == 0", True),
        ("step % self.args.train_freq == 0", True),
        ("step % config['update_interval'] == 0", True),
        ("step > start and step % aux_update_freq == 0", True),
        ("not step % policy_delay", True),
        ("step % n_critic == 0", True),
        ("step % 4 == 0", True),
        ("step % 500 == 0", False),
        ("step % log_interval == 0", False),
        ("step % target_update_freq == 0", False),
        ("step % interval == 0", False),
        ("step % learn_every == 0 and verbose", False),
        ("debug", False),
    ],
)
def test_a_period_of_learning(test: str, is_period: bool) -> None:
    source = Source("train.py", f"for step in steps:\n    if {test}:\n        agent.learn()\n")
    (call,) = source.calls(".learn")
    assert is_in_learning_period(source, call, source.tree.body[0]) == is_period


def test_a_number_counts_only_where_it_may() -> None:
    source = Source("train.py", "for step in steps:\n    if step % 4 == 0:\n        agent.learn()\n")
    (call,) = source.calls(".learn")
    loop = source.tree.body[0]
    assert isinstance(loop, ast.For) and not is_in_learning_period(source, call, loop, few_turns=0)
