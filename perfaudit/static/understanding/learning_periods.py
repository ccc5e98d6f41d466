"""Conditions by which a training makes a step every few turns of its loop: `if step % learn_every == 0: agent.learn()`."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.rarely import is_rare_part, rare_when, skip_before
from perfaudit.static.understanding.values import constant

FEW_TURNS = 16  # of a game, behind which an agent learns
_PERIOD = regex(
    r"^\w+_(period|every|freq|frequency|interval|delay)$|^steps_per_(update|learn)|(^|_)critics?(_iters?)?$"
)
_OF_SOMETHING_ELSE = regex(
    r"log|eval|valid|test|save|sav|show|print|display|plot|vis|image|sample|check_?point|ckpt|target|epoch|report|write|sync|"
    r"summar|snapshot|dump|debug|lr_|decay"
)


def is_in_learning_period(source: Source, node: ast.AST, within: ast.AST, few_turns: int = FEW_TURNS) -> bool:
    """Whether only a count makes a node rare, one of few turns or, by its name, the period of something that learns.

    As far as the node learns: a copy to a target network has its period too. few_turns: what a number may be.
    """
    child = node
    for ancestor in source.ancestors(node):
        skip = skip_before(source, child) if isinstance(child, ast.stmt) else None
        if is_rare_part(source, ancestor, child) and not _is_period(
            source, ancestor.test if isinstance(ancestor, ast.If) else None, few_turns
        ):
            return False
        if skip is not None and not _is_period(source, skip.test, few_turns):
            return False
        if ancestor is within:
            return True
        child = ancestor
    return False


def _is_period(source: Source, test: ast.expr | None, few_turns: int) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        rare = [part for part in test.values if rare_when(part) is not None]
        return bool(rare) and all(_is_period(source, part, few_turns) for part in rare)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    counted = test.left if isinstance(test, ast.Compare) else test
    if not isinstance(counted, ast.BinOp) or not isinstance(counted.op, ast.Mod):
        return False
    return _is_short(source, counted.right, few_turns)


def _is_short(source: Source, period: ast.expr, few_turns: int) -> bool:
    """Whether a period is of few turns, or one of learning by its name, as far as its length is not known."""
    length = constant(source, period)
    if isinstance(length, int):
        return length <= few_turns
    key = period.slice if isinstance(period, ast.Subscript) else None
    name = (str(key.value) if isinstance(key, ast.Constant) else last_name(period)).lower()
    return _PERIOD.search(name) is not None and _OF_SOMETHING_ELSE.search(name) is None
