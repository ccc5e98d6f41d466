"""Loops that demonstrate a model: on a screen, which sets their pace, or on a few samples that the program writes out."""

from __future__ import annotations

import ast
import math

from perfaudit.static.checks.eval_without_no_grad.eval_mode import model_name
from perfaudit.static.source import LOOPS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function, callers
from perfaudit.static.understanding.loaders import COMPREHENSIONS
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import enclosing_function, resolve

# A window that is opened, drawn, or waited at for a key: of OpenCV and Open3D.
_ON_SCREEN = {"waitKey", "waitKeyEx", "create_window", "draw_geometries"}
_REPEATS = (*LOOPS, *COMPREHENSIONS)
_COUNTS = {"range", "xrange", "trange"}
_JOINS = {"cat", "concat", "concatenate"}
_FEW = 16  # samples that are written out one by one


def demonstrates(source: Source, loop: Loop | Function) -> bool:
    """Whether a loop shows each result in a window, or goes through a few samples that are written out: little is to be saved."""
    if any(isinstance(node, ast.Call) and last_name(node.func) in _ON_SCREEN for node in walk(loop)):
        return True
    if isinstance(loop, LOOPS) and _draws_one_sample(source, loop):
        return True
    if isinstance(loop, ast.For) and (_is_for_one_turn(loop) or _only_warms_up(source, loop)):
        return True
    if not isinstance(loop, ast.For):
        return False
    is_counted = _is_counted(loop.iter, _FEW) and enclosing_function(source, loop) is None  # else it may be run often
    if not is_counted and not _are_few(source, loop.iter):
        return False
    inner = (node for node in walk(loop) if isinstance(node, _REPEATS) and node is not loop)
    called = (called_function(source, node) for node in walk(loop) if isinstance(node, ast.Call))
    own = [node for function in called if function is not None for node in walk(function) if isinstance(node, _REPEATS)]
    return not own and all(isinstance(one, ast.For) and _is_counted(one.iter) for one in inner)


def _only_warms_up(source: Source, loop: ast.For) -> bool:
    """Whether a loop of a few turns drops what its model gives: `for _ in range(3): model(zeros)`."""
    if not _is_counted(loop.iter, _FEW):
        return False
    asked = {model_name(c.func.value) for c in source.calls(".eval") if isinstance(c.func, ast.Attribute)} - {""}
    runs = [node for node in walk(loop) if isinstance(node, ast.Call) and model_name(node.func) in asked]
    dropped = [value for item in loop.body if (value := _dropped_value(item)) is not None]
    binds = [item for item in loop.body if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name)]
    is_all = len(binds) + sum(isinstance(item, ast.Expr) for item in loop.body) == len(loop.body)
    return is_all and len(runs) == 1 and dropped == runs


def _dropped_value(item: ast.stmt) -> ast.expr | None:
    """The value of a statement that nobody gets: of `model(x)` and of `_ = model(x)`."""
    if isinstance(item, ast.Expr):
        return item.value
    is_kept = not isinstance(item, ast.Assign) or not isinstance(item.targets[0], ast.Name) or item.targets[0].id != "_"
    return item.value if isinstance(item, ast.Assign) and not is_kept else None


def _is_for_one_turn(loop: ast.For) -> bool:
    """Whether all of a loop stands under the number of one turn: `for n, x in enumerate(loader): if n == 0: ...`."""
    if len(loop.body) != 1 or not isinstance(loop.body[0], ast.If) or loop.body[0].orelse:
        return False
    match loop.body[0].test:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[ast.Constant(value=int() as turn)]):
            return not isinstance(turn, bool) and name == _number_of_turn(loop)
    return False


def _number_of_turn(loop: ast.For) -> str:
    """The name that counts the turns of a loop: of `for n, x in enumerate(loader)`, and of `for n in range(9)`; else ""."""
    over = loop.iter
    while isinstance(over, ast.Call) and last_name(over.func) == "tqdm" and over.args:
        over = over.args[0]
    called = last_name(over.func) if isinstance(over, ast.Call) else ""
    target: ast.expr | None = loop.target if called in _COUNTS else None
    if called == "enumerate" and isinstance(loop.target, (ast.Tuple, ast.List)):
        target = loop.target.elts[0]
    return target.id if isinstance(target, ast.Name) else ""


def _draws_one_sample(source: Source, loop: Loop) -> bool:
    """Whether a loop runs a model on what it gave the turn before, as one that writes a text, and no loop runs that again."""
    if isinstance(loop, (ast.For, ast.AsyncFor)) and last_name(getattr(loop.iter, "func", loop.iter)) not in _COUNTS:
        return False
    function = enclosing_function(source, loop)
    if function is not None and any(source.enclosing(use, *LOOPS) is not None for use in callers(source, function)):
        return False
    made: dict[str, set[str]] = {}  # by each name that the loop binds, what it is made of
    for node in walk(loop):
        if isinstance(node, ast.Assign):
            read = {n.id for n in walk(node.value) if isinstance(n, ast.Name)}
            for name in (n.id for target in node.targets for n in walk(target) if isinstance(n, ast.Name)):
                made.setdefault(name, set()).update(read)
    if any(isinstance(node, _REPEATS) and node is not loop for node in walk(loop)):
        return False
    grown = _given_to_calls(loop) & _names_that_grow(loop)
    return any(name in _all_behind(name, made) for name in made if name in grown)


def _all_behind(name: str, made: dict[str, set[str]]) -> set[str]:
    """The names that a name is made of, through others."""
    found: set[str] = set()
    pending = [name]
    while pending:
        for further in made.get(pending.pop(), set()) - found:
            found.add(further)
            pending.append(further)
    return found


def _given_to_calls(loop: Loop) -> set[str]:
    return {a.id for c in walk(loop) if isinstance(c, ast.Call) for a in c.args if isinstance(a, ast.Name)}


def _names_that_grow(loop: Loop) -> set[str]:
    """The names behind whose value a loop puts something: `tokens = torch.cat([tokens, next])`."""
    found: set[str] = set()
    for node in walk(loop):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and last_name(node.value.func) in _JOINS:
            read = {n.id for n in walk(node.value) if isinstance(n, ast.Name)}
            found |= read & {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _are_few(source: Source, over: ast.expr) -> bool:
    """Whether a loop goes through a list or tuple of a few elements that nothing grows."""
    while isinstance(over, ast.Call) and last_name(over.func) in ("enumerate", "tqdm") and over.args:
        over = over.args[0]
    listed = resolve(source, over)
    if not isinstance(listed, (ast.List, ast.Tuple)) or any(isinstance(e, ast.Starred) for e in listed.elts):
        return False
    grown = (a.value for a in source.nodes(ast.Attribute) if a.attr in ("append", "extend", "insert"))
    is_grown = isinstance(over, ast.Name) and any(isinstance(v, ast.Name) and v.id == over.id for v in grown)
    return 0 < len(listed.elts) <= _FEW and not is_grown


def _is_counted(over: ast.expr, most: float = math.inf) -> bool:
    """`range(5)`, with nothing but numbers, none of which is larger than this."""
    if not isinstance(over, ast.Call) or last_name(over.func) != "range":
        return False
    return all(isinstance(a, ast.Constant) and isinstance(a.value, int) and a.value <= most for a in over.args)
