"""Code that trains or evaluates, as a flag or an argument says which."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.checks.eval_without_no_grad.eval_mode import ends_eval_mode, in_eval_mode
from perfaudit.static.checks.eval_without_no_grad.evaluations import (
    loops_behind,
    names_given,
    outermost_loops,
    own_names,
)
from perfaudit.static.checks.eval_without_no_grad.model_runs import records_graph, runs_model
from perfaudit.static.checks.eval_without_no_grad.surroundings import plain_decorators, plain_surroundings
from perfaudit.static.registry import Proposal, Seen
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import called_function, callers
from perfaudit.static.understanding.names import dotted_name
from perfaudit.static.understanding.values import resolve


def trained_or_evaluated(source: Source, statement: ast.stmt, model: str) -> Iterator[tuple[Loop | Function, Seen]]:
    """Code that trains or evaluates, as a flag says that also chose the mode: `if train: model.train() else: model.eval()`.

    A loop, or a function that makes one step and is called in a loop.
    """
    choice = source.parent(statement)
    if not isinstance(choice, ast.If) or not choice.orelse:
        return
    other = choice.body if any(item is statement for item in choice.orelse) else choice.orelse
    is_train = any(f"{model}.train" == dotted_name(n.func) for s in other for n in walk(s) if isinstance(n, ast.Call))
    if not is_train or _never_evaluates(source, choice, other is choice.body):
        return
    test = source.text_of(choice.test)
    flag = test if other is choice.body else f"not ({test})"
    around = source.parent(choice)
    each = (around,) if isinstance(around, LOOPS) else ()  # each turn chooses anew
    for loop in (*each, *loops_behind(source, choice, model), *_step_around(source, choice)):
        calls = [node for node in walk(loop) if isinstance(node, ast.Call)]
        runs = [call for call in calls if runs_model(source, call, model)]
        steps = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "backward"]
        if not runs or not steps or not all(records_graph(source, run) for run in runs):
            continue
        if not all(_is_under(source, step, choice.test, other is choice.body) for step in steps):
            continue
        if not any(_is_under(source, run, choice.test, other is choice.body) for run in runs):
            first = min(runs, key=lambda run: (run.lineno, run.col_offset))
            message = f"`{source.brief(first)}` also evaluates, in eval mode, and records a graph then"
            advice = f"run the forward pass and the loss under `torch.set_grad_enabled({flag})`"
            yield loop, Seen(first, f"{message}, which no backward pass uses", Proposal(advice))


def _never_evaluates(source: Source, choice: ast.If, trains_if_true: bool) -> bool:
    """Whether a choice by `phase == "train"` is made for written phases, `for phase in ["train"]`, none of which evaluates."""
    test = choice.test
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], (ast.Eq, ast.NotEq)) or len(test.ops) > 1:
        return False
    loop = source.enclosing(choice, ast.For)
    while isinstance(loop, ast.For) and dotted_name(loop.target) != dotted_name(test.left):
        loop = source.enclosing(loop, ast.For)
    phases = resolve(source, loop.iter) if isinstance(loop, ast.For) else None
    wanted = test.comparators[0]
    if not isinstance(phases, (ast.List, ast.Tuple)) or not isinstance(wanted, ast.Constant):
        return False
    if not all(isinstance(phase, ast.Constant) for phase in phases.elts):
        return False
    trains = isinstance(test.ops[0], ast.Eq) is trains_if_true
    return all((ast.dump(phase) == ast.dump(wanted)) is trains for phase in phases.elts)


def _step_around(source: Source, choice: ast.If) -> Iterator[Function]:
    """The function whose body a choice of the mode stands in, if a loop calls it and no backward pass of it is in a loop."""
    function = source.parent(choice)
    if not isinstance(function, FUNCTIONS):
        return
    is_in_loop = any(source.enclosing(call, *LOOPS) is not None for call in callers(source, function))
    own = [call for call in backward_calls(source) if source.enclosing(call, *FUNCTIONS) is function]
    if is_in_loop and own and all(source.enclosing(call, *LOOPS, within=function) is None for call in own):
        yield function


def evaluated_by_arguments(source: Source, statement: ast.stmt, model: str) -> Iterator[tuple[Loop, Seen]]:
    """Loops that train or evaluate, called behind a statement with arguments that leave the backward pass out."""
    for item in in_eval_mode(source, statement, model):
        for call in (node for node in walk(item) if isinstance(node, ast.Call)):
            function = called_function(source, call)
            if function is None or not plain_decorators(function) or not plain_surroundings(source, call):
                continue
            for name in names_given(call, function, {model}) | own_names(call, model):
                yield from _loops_that_train_too(source, function, call, name)


def _loops_that_train_too(
    source: Source, function: Function, call: ast.Call, model: str
) -> Iterator[tuple[Loop, Seen]]:
    if any(ends_eval_mode(source, node, model) for node in walk(function)):
        return
    for loop in (loop for item in function.body for loop in outermost_loops(item)):
        calls = [node for node in walk(loop) if isinstance(node, ast.Call)]
        runs = [run for run in calls if runs_model(source, run, model)]
        steps = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "backward"]
        if not runs or not steps:
            continue
        # Imported here: few loops do both.
        from perfaudit.static.checks.eval_without_no_grad.chosen_by_call import test_that_leaves_out

        tests = {test_that_leaves_out(source, step, function, call) for step in steps}
        if len(tests) != 1 or "" in tests or not all(records_graph(source, run) for run in runs):
            continue
        first = min(runs, key=lambda run: (run.lineno, run.col_offset))
        if any(test_that_leaves_out(source, run, function, call) for run in runs):
            continue
        message = f"`{source.brief(first)}` also evaluates, in eval mode, and records a graph then"
        test = tests.pop()
        is_truth = test.startswith("not ") or any(f" {op} " in test for op in ("is", "==", "!="))
        flag = test if is_truth else f"bool({test})"
        advice = f"run the forward pass and the loss under `torch.set_grad_enabled({flag})`"
        yield loop, Seen(first, f"{message}, which no backward pass uses", Proposal(advice))


def _is_under(source: Source, node: ast.AST, test: ast.expr, in_body: bool) -> bool:
    """Whether a condition with the same words decides that the node runs, with the same answer."""
    child = node
    for ancestor in source.ancestors(node):
        same, turned = (
            (_positive(ancestor.test), _positive(test)) if isinstance(ancestor, ast.If) else (("", False),) * 2
        )
        if isinstance(ancestor, ast.If) and same[0] == turned[0]:
            branch = ancestor.body if in_body is (same[1] is turned[1]) else ancestor.orelse
            return any(child is item for item in branch)
        if isinstance(ancestor, FUNCTIONS):
            return False
        child = ancestor
    return False


def _positive(test: ast.expr) -> tuple[str, bool]:
    """The words of a test without a negation, and whether it had one: `x is None` of `x is not None`, `x` of `not x`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        words, is_negated = _positive(test.operand)
        return words, not is_negated
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.IsNot, ast.NotEq)) and len(test.ops) == 1:
        positive = ast.Is() if isinstance(test.ops[0], ast.IsNot) else ast.Eq()
        return ast.dump(ast.Compare(test.left, [positive], test.comparators)), True
    return ast.dump(test), False
