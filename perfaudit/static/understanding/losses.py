"""What a training loop calls `backward` on, under which names, and what these are made from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls, losses_handed_over
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import resolve

_LOSS_NAME = regex(r"loss|err|cost|nll|elbo|energy|objective", re.IGNORECASE)
_COEFFICIENT = regex(r"(^|_)(coef\w*|lambda\w*|alpha|beta|weight|scale|factor)(_|$)", re.IGNORECASE)
_VIEWS = {"view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "contiguous", "float"}
_ITEMS = {"values", "items"}
_BACKWARD_TAKES_LOSS = regex(r"accelerator|fabric|engine|strategy|plugin|trainer|model|net|amp|^self$", re.I)


def backpropagated_names(source: Source, root: Loop | Function) -> frozenset[str]:
    """Names whose gradient is computed in a loop or function: `loss` of `(loss / n).backward()`, and its summands."""
    return frozenset(name for name, is_loss in loss_names(source, root).items() if is_loss)


def loss_names(source: Source, root: Loop | Function, given_back: Iterable[ast.expr] = ()) -> Mapping[str, bool]:
    """Names in a loop or function that are tensors because of a backward pass, as `key` writes them.

    True for what is sure: `backward` is called on it, on a sum with it, or it is the first argument of the criterion.
    False for what may be one: the other names that go into the call that makes the loss. given_back: what the function
    returns to a caller that runs the backward pass on it.
    """
    return _find_loss_names(source, root, tuple(given_back))


@remember  # functions that many loops call are asked for as often
def _find_loss_names(source: Source, root: Loop | Function, given_back: tuple[ast.expr, ...]) -> Mapping[str, bool]:
    assigned: dict[str, list[ast.expr]] = {}
    added: dict[str, list[ast.expr]] = {}
    for node in walk(root):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            assigned.setdefault(key(target), []).append(node.value)
            for element in target.elts if isinstance(target, (ast.Tuple, ast.List)) else ():
                assigned.setdefault(key(element), [])
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            added.setdefault(key(node.target), []).append(node.value)
        elif isinstance(node, ast.With):
            for scaled, loss in _scaled_by_apex(node):
                assigned.setdefault(key(scaled), []).append(loss)
    pending = [(backward_operand(source, call), False) for call in _own_backward_calls(source, root)]
    pending += [(argument, False) for argument in (*_handed_to_backward(source, root), *given_back)]
    losses: set[str] = set()
    inputs: dict[str, bool] = {}
    while pending:
        operand, is_term = pending.pop()
        terms = list(summands(source, operand))
        for term in terms:
            name = key(term)
            if (is_term or len(terms) > 1) and name not in assigned:  # `loss + self.weight_decay`
                continue
            if not name or name in losses:
                continue
            losses.add(name)
            pending += [(value, False) for value in assigned.get(name, ())]
            pending += [(value, True) for value in added.get(name, ())]
            for holder in _summed_holders(source, assigned.get(name, ()), assigned):
                inputs.setdefault(holder, False)
            for value in (*assigned.get(name, ()), *added.get(name, ())):
                inputs |= _inputs(source, value)
    holders = {name.partition("[")[0]: False for name in losses if "[" in name}  # `losses` of `losses["total"]`
    return inputs | holders | dict.fromkeys(losses, True)


def _scaled_by_apex(statement: ast.With) -> Iterator[tuple[ast.expr, ast.expr]]:
    """`scaled` and `loss` of `with amp.scale_loss(loss, optimizer) as scaled:`."""
    for item in statement.items:
        made = item.context_expr
        if isinstance(made, ast.Call) and last_name(made.func) == "scale_loss" and made.args and item.optional_vars:
            yield item.optional_vars, made.args[0]


def _summed_holders(source: Source, values: Iterable[ast.expr], assigned: dict[str, list[ast.expr]]) -> Iterator[str]:
    """What holds the losses of a sum: `losses` of `sum(losses.values())`, also where a list is made of them before."""
    for value in values:
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or value.func.id != "sum":
            continue
        if not value.args or source.lookup(value.func):
            continue
        operands = value.args
        listed = assigned.get(key(operands[0]), [])
        for part in [operands[0], *listed]:
            if isinstance(part, (ast.GeneratorExp, ast.ListComp)) and len(part.generators) == 1:
                part = part.generators[0].iter
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _ITEMS:
                part = part.func.value
            if name := key(part):
                yield name


def losses_returned(source: Source, function: Function, place: tuple[int, int] | None) -> list[ast.expr]:
    """What a function returns, or the element at `place` of the tuple of that length; nothing where one return differs."""
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and source.scope(n) is function]
    if place is None:
        return [value for value in returned if value is not None]
    rows = [value.elts for value in returned if isinstance(value, ast.Tuple) and len(value.elts) == place[1]]
    return [row[place[0]] for row in rows] if len(rows) == len(returned) else []


def _own_backward_calls(source: Source, root: Loop | Function) -> Iterator[ast.Call]:
    own = root if isinstance(root, FUNCTIONS) else source.enclosing(root, *FUNCTIONS)
    for call in _backward_calls_by_function(source).get(own, ()):
        if own is root or any(ancestor is root for ancestor in source.ancestors(call)):
            yield call


@remember
def _backward_calls_by_function(source: Source) -> dict[ast.AST | None, list[ast.Call]]:
    """The calls that run a backward pass, by the innermost function that they stand in."""
    table: dict[ast.AST | None, list[ast.Call]] = {}
    for call in backward_calls(source):
        table.setdefault(source.enclosing(call, *FUNCTIONS), []).append(call)
    return table


def _handed_to_backward(source: Source, root: Loop | Function) -> Iterator[ast.expr]:
    """Arguments of calls in a loop or function that the called function of this file runs a backward pass on."""
    own = root if isinstance(root, FUNCTIONS) else source.enclosing(root, *FUNCTIONS)
    given = _names_given_to_backward(source)
    for node in walk(root) if given else ():
        function = called_function(source, node) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and function is not None and function is not own and function in given:
            for name, argument in arguments_of(node, function):
                if name in given[function]:
                    yield argument


@remember
def _names_given_to_backward(source: Source) -> dict[ast.AST, set[str]]:
    """What the functions of a file run backward passes on, by function, as `key` writes it."""
    given: dict[ast.AST, set[str]] = {}
    for function, calls in _backward_calls_by_function(source).items():
        if function is not None:
            operands = [backward_operand(source, call) for call in calls]
            given[function] = {key(term) for operand in operands for term in summands(source, operand)}
    return given


def arguments_of(call: ast.Call, function: Function) -> Iterator[tuple[str, ast.expr]]:
    """The parameters of a function that a call passes by position or name, each with what it passes."""
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(call.func, ast.Attribute) and parameters[:1] in (["self"], ["cls"]):
        parameters = parameters[1:]
    if not any(isinstance(argument, ast.Starred) for argument in call.args):
        yield from zip(parameters, call.args, strict=False)
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg, keyword.value


def _inputs(source: Source, value: ast.expr) -> dict[str, bool]:
    if not isinstance(value, ast.Call):
        return {}
    is_criterion = makes_loss(source, value)
    found: dict[str, bool] = {}
    for position, argument in enumerate(value.args):
        viewed, is_whole = _viewed_tensor(argument)
        if name := key(viewed):
            found[name] = found.get(name, False) or (is_criterion and position == 0 and is_whole)
    return found


def _viewed_tensor(node: ast.expr) -> tuple[ast.expr, bool]:
    """`x` of `x.view(-1, n)` and of `x[mask]`, and whether x is surely a tensor if the whole is: a list has items too."""
    is_whole = True
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
            node = node.func.value
        elif isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            node, is_whole = node.value, False
        else:
            return node, is_whole


def makes_loss(source: Source, call: ast.Call) -> bool:
    """Whether a call is a criterion of torch: `F.cross_entropy(...)`, or a name bound to `nn.CrossEntropyLoss()`."""
    name = source.qualified_name(call.func) or ""
    if name.startswith("torch.nn.functional."):
        return True
    made = resolve(source, call.func)
    made_by = source.qualified_name(made.func) if isinstance(made, ast.Call) else None
    return bool(made_by and made_by.startswith("torch.nn.") and made_by.endswith("Loss"))


def backward_operand(source: Source, call: ast.Call) -> ast.expr:
    """The tensor that a backward pass starts from: `x` of `x.backward()` and of `accelerator.backward(x)`."""
    if id(call) in losses_handed_over(source):
        return losses_handed_over(source)[id(call)][1]
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("backward", "manual_backward"):
        return call.args[0]
    takes_loss = call.func.attr == "manual_backward" or source.qualified_name(call.func) == "torch.autograd.backward"
    if call.args and (takes_loss or _BACKWARD_TAKES_LOSS.search(last_name(call.func.value))):
        return call.args[0]
    return call.func.value


def summands(source: Source, node: ast.expr) -> Iterator[ast.expr]:
    """The tensors a loss is put together from: the terms of a sum, the left of a quotient, `x` of `scaler.scale(x)`."""
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        yield node
    elif isinstance(node, ast.NamedExpr):
        yield node.target
    elif isinstance(node, (ast.Tuple, ast.List)):
        for element in node.elts:
            yield from summands(source, element)
    elif isinstance(node, ast.UnaryOp):
        yield from summands(source, node.operand)
    elif isinstance(node, ast.BinOp):
        if isinstance(node.op, (ast.Add, ast.Sub, ast.Div)):
            yield from summands(source, node.left)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            yield from summands(source, node.right)
        if isinstance(node.op, ast.Mult):
            for side, other in ((node.left, node.right), (node.right, node.left)):
                if not isinstance(other, ast.Constant) and _COEFFICIENT.search(last_name(side)):  # `loss * loss_scale`
                    continue
                is_number = isinstance(other, ast.Constant) or _COEFFICIENT.search(last_name(other))
                if is_number or _LOSS_NAME.search(key(side).rpartition(".")[2]):
                    yield from summands(source, side)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "scale" and len(node.args) == 1:
            yield from summands(source, node.args[0])
        elif node.func.attr in ("mean", "sum", "div", "mul", "clone", "squeeze") and not source.qualified_name(
            node.func
        ):
            yield from summands(source, node.func.value)


def key(node: ast.AST) -> str:
    """A name for what can be assigned and read again: `loss`, `self.loss`, `losses['total']`; "" for anything else."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        base = dotted_name(node.value)
        return f"{base}[{node.slice.value!r}]" if base else ""
    return dotted_name(node)
