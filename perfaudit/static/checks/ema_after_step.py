"""PA405: an average of the weights that is updated behind the step, when the device may have nothing else to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check, hint_if
from perfaudit.static.source import Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.devices import uses_accelerator
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.rarely import rare_when, runs_rarely
from perfaudit.static.understanding.step_code import step_code
from perfaudit.static.understanding.step_loops import step_loops

_MENTIONED = regex(r"ema|averag|accumulate", re.IGNORECASE, words="ema|averag|accumulate")
_AVERAGE = regex(r"(^|_)ema(_|$|\d)|EMA|ema$|averaged?_?model|(^|_)swa_model|shadow")
_UPDATE = regex(r"^(update|step|update_parameters|update_ema|update_average|update_moving_average|__call__)$")
_FUNCTION = regex(r"(update|step|apply).*(ema|averag)|ema.*(update|step)|^accumulate$", re.IGNORECASE)
_NO_WEIGHTS = regex(r"loss|acc(?!um)|meter|metric|grad|time|score|target|reward|err|(^|_)lr(_|$)|sched", re.IGNORECASE)
_WAITS = regex(r"\.item\(|\.cpu\(|\.tolist\(|\bfloat\(|isnan|isfinite|isinf|synchronize|\bprint\(")
_OPTIMIZER = regex(r"opt|adam|sgd|solver", re.IGNORECASE)


@check("PA405", ast.Module)
def ema_after_step(source: Source, _: ast.Module) -> Iterator[Seen]:
    if not source.calls(".step") or not step_loops(source) or not _MENTIONED.search(source.text):
        return
    if not uses_accelerator(source):  # on CPU there is nothing to overlap
        return
    for loop in step_loops(source):
        for code in step_code(source, loop):
            inside = {id(node) for node in walk(code.root)}
            steps = [call for call in source.calls(".step") if id(call) in inside and _is_plain_step(source, call)]
            for call in steps:
                if runs_rarely(source, call, code.root):
                    continue
                step = source.statement(call)
                statements = source.block(step)
                behind = statements[statements.index(step) + 1 :]
                other = {id(source.statement(other)) for other in steps}
                until = next((n for n, s in enumerate(behind) if id(s) in other), len(behind))
                update = next((u for s in behind[:until] if (u := _update_of_average(source, s)) is not None), None)
                if update is None:
                    continue
                yield Seen(
                    update,
                    f"`{source.brief(update)}`{code.way} runs behind `{source.brief(call)}`: where the host has waited for the "
                    "gradients there, the device idles until the average is launched",
                    _before_step(source, step, behind[0], update),
                    hot=True,
                    severity=hint_if(not _waits_before(source, statements[: statements.index(step)], call)),
                )


def _waits_before(source: Source, before: list[ast.stmt], step: ast.Call) -> bool:
    """Whether the host waits for the gradients: a scaler asks whether they are finite, or a value is read behind `backward`."""
    if step.args:
        return True
    texts = [source.text_of(statement) for statement in before]
    last = max((n for n, text in enumerate(texts) if ".backward(" in text), default=0)
    return any(_WAITS.search(text) for text in texts[last:])


def _is_plain_step(source: Source, call: ast.Call) -> bool:
    """`optimizer.step()` or `scaler.step(optimizer)`, as a statement; a closure computes the gradients inside."""
    if not isinstance(source.parent(call), ast.Expr) or not isinstance(call.func, ast.Attribute) or call.keywords:
        return False
    receiver = last_name(call.func.value)
    if "sched" in receiver.lower():
        return False
    if call.args:
        return "scaler" in receiver and len(call.args) == 1 and bool(_OPTIMIZER.search(last_name(call.args[0])))
    return bool(_OPTIMIZER.search(receiver))


def _update_of_average(source: Source, statement: ast.stmt) -> ast.Call | None:
    """The call that updates an average, in the statement or under its `if`, unless that is seldom met."""
    if isinstance(statement, ast.If) and rare_when(statement.test) is None and len(statement.body) == 1:
        return _update_of_average(source, statement.body[0])
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    call = statement.value
    owner = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    by_object = bool(_AVERAGE.search(owner) and _UPDATE.search(last_name(call.func)))
    if not (by_object or _FUNCTION.search(last_name(call.func))):
        return None
    if last_name(call.func) == "accumulate" and len(call.args) < 2:  # of an iterator, of an evaluator
        return None
    values = [*call.args, *(k.value for k in call.keywords)]
    named = [owner, last_name(call.func), *(last_name(n) for value in values for n in walk(value))]
    return None if any(_NO_WEIGHTS.search(name) for name in named) else call


def _before_step(source: Source, step: ast.stmt, behind: ast.stmt, update: ast.Call) -> Proposal:
    """The two statements exchanged, where they are neighbours; advice where anything may stand between them."""
    title = "update the average between backward and step (it lags one step; update it once more behind the loop)"
    is_neighbour = isinstance(behind, ast.Expr) and behind.value is update
    is_optimizer = isinstance(step, ast.Expr) and isinstance(step.value, ast.Call) and not step.value.args
    if not is_neighbour or not is_optimizer or _reads_optimizer(source, step, update):
        return Proposal(title)
    if _may_do_more(source, update):
        return Proposal(title)
    lines = source.lines[max(step.lineno - 2, 0) : behind.end_lineno]  # a comment above may speak of the step
    if any("#" in line or ";" in line for line in lines):
        return Proposal(title)
    return Proposal(
        title,
        edit.together(
            edit.replace(source, step, source.text_of(behind)), edit.replace(source, behind, source.text_of(step))
        ),
    )


def _reads_optimizer(source: Source, step: ast.stmt, update: ast.Call) -> bool:
    """Whether the update is given the optimizer, or an object that holds it: it would find it in another state."""
    function = step.value.func if isinstance(step, ast.Expr) and isinstance(step.value, ast.Call) else None
    optimizer = dotted_name(function.value) if isinstance(function, ast.Attribute) else ""
    names = [n for n in walk(update) if isinstance(n, (ast.Name, ast.Attribute)) and n is not update.func]
    whole = [n for n in names if not isinstance(source.parent(n), ast.Attribute) or source.parent(n) is update.func]
    read = [dotted_name(n) for n in whole]
    if not optimizer or any(_OPTIMIZER.search(last_name(n)) for n in names):
        return True
    return any(not name or f"{optimizer}.".startswith(f"{name}.") or name.startswith(f"{optimizer}.") for name in read)


def _may_do_more(source: Source, update: ast.Call) -> bool:
    """Whether the update is a method of the trainer itself that this file does not show: it may do other things."""
    is_own = isinstance(update.func, ast.Attribute) and last_name(update.func.value) == "self"
    return is_own and called_function(source, update) is None
