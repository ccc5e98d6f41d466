"""Whether the host may still write into, or hand on, the memory of a batch after its copy to a device has begun."""

from __future__ import annotations

import ast
from collections.abc import Callable
from math import inf

from perfaudit.static.checks.transfer_blocks_host.batch_iterators import iterator_asked
from perfaudit.static.checks.transfer_blocks_host.batch_parts import Part
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.loaders import argument_for
from perfaudit.static.understanding.reaching import reaching
from perfaudit.static.understanding.same_memory import VARIABLE, viewed_tensor, without_variable
from perfaudit.static.understanding.values import assigned_value

_FORM = {"shape", "dtype", "device", "ndim", "is_cuda", "layout"}
_READS = {
    *("size", "dim", "ndimension", "numel", "nelement", "item", "tolist", "keys", "is_pinned", "stride"),
    *("clone", "sum", "mean", "max", "min", "argmax", "argmin", "any", "all"),  # hand out memory of their own
}
_COUNTS = {"print", "isinstance", "len", "str", "repr", "type", "id", "format", "int", "float", "hasattr"}
_KEEP_MEMORY = {  # return the same memory, or may
    *("view", "view_as", "reshape", "squeeze", "unsqueeze", "flatten", "permute", "transpose", "t", "detach", "expand"),
    *("narrow", "contiguous", "float", "double", "half", "long", "int", "bool", "byte", "type", "to", "cpu"),
}
Moves = Callable[[ast.Call], bool]


def host_may_write(source: Source, copy: ast.Call, part: Part, moves: Moves) -> bool:
    """Whether anything but a plain read may happen to what is copied, on the host, behind the copy.

    copy: `x.to(device)` of this part of a batch. moves: whether a call copies to the device, so that the name it is
    given to is no host memory any longer. Everything that is not known to read only counts as a write.
    """
    moved = _names_of_copies(source, copy)
    along = _moved_along(source, copy, moves)
    own = {name: _key_of(source, copy, name) for name in part.names}
    repeats = _repeats(source, copy, part)
    first_use = 0.0 if repeats else source.span(copy).end
    pending = [(name, inf if name in moved else first_use) for name in own]  # what is moved counts under other names
    seen = set(own)
    while pending:
        name, behind = pending.pop()
        bindings = _bindings(source, copy, name)
        if any(isinstance(source.parent(b), ast.AugAssign) and source.span(b).start >= behind for b in bindings):
            return True
        for use in source.uses_of(bindings[0], name) if bindings else ():
            if _is_of_another_batch(source, use, part) or _is_on_device(source, use, moves):
                continue
            if _is_other_element(source, use, own.get(name)) or (not repeats and _is_instead(source, use, copy)):
                continue
            if name in moved and source.span(use).start > source.span(copy).start:
                continue
            if source.span(use).start > along.get(name, inf):
                continue
            aliases = _aliases(source, use, moves)
            if aliases is None and source.span(use).start >= behind and not _only_reads(source, use, moves):
                return True
            if aliases and not aliases.isdisjoint(own) and _is_taken_apart(source, use):
                aliases &= set(own)  # the other elements are other tensors
            for alias in (aliases or set()) - seen - moved:
                seen.add(alias)
                pending.append((alias, 0.0))
    return False


def _names_of_copies(source: Source, copy: ast.Call) -> set[str]:
    """Names that stand for the copies behind the statement: `x` of `x = x.to(device)`, `batch` of `batch[k] = ...`."""
    statement = source.statement(copy)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    plain = [n for t in targets for n in (t.elts if isinstance(t, (ast.Tuple, ast.List)) else [t])]
    entries = {t.value.id for t in plain if isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name)}
    is_whole = isinstance(statement, ast.Assign) and statement.value is copy
    return {n.id for n in plain if isinstance(n, ast.Name)} | (
        entries if is_whole and _is_same_entry(source, copy) else set()
    )


def _moved_along(source: Source, copy: ast.Call, moves: Moves) -> dict[str, int]:
    """Names to which a statement beside the copy gives what it moved itself, and where: in one branch, as `if cuda:`."""
    found = {}
    for statement in source.block(source.statement(copy)):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        for name in (n for target in targets for n in _plain(target) if isinstance(n, ast.Name)):
            if _is_move(source, name, moves):
                found[name.id] = source.span(statement).end
    return found


def _is_same_entry(source: Source, copy: ast.Call) -> bool:
    """Whether `batch[k]` is given the copy of itself, or of `v` in a loop over `batch.items()`."""
    statement = source.statement(copy)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Subscript) or not isinstance(copy.func, ast.Attribute):
        return False
    if ast.dump(copy.func.value) == ast.dump(target).replace("Store()", "Load()"):
        return True
    loop = source.enclosing(copy, ast.For)
    if loop is None or not isinstance(loop.target, ast.Tuple) or not isinstance(loop.iter, ast.Call):
        return False
    items = isinstance(loop.iter.func, ast.Attribute) and loop.iter.func.attr == "items" and not loop.iter.args
    names = [element.id for element in loop.target.elts if isinstance(element, ast.Name)]
    given = [node.id for node in (target.slice, copy.func.value) if isinstance(node, ast.Name)]
    return items and len(names) == 2 and names == given


def _repeats(source: Source, copy: ast.Call, part: Part) -> bool:
    """Whether code before the copy may run behind it, on the same batch: a loop between, or one around `next(batches)`."""
    if not isinstance(part.taken, (ast.For, ast.AsyncFor)):
        return True
    return source.enclosing(copy, *LOOPS, within=part.taken) is not None


def _is_instead(source: Source, use: ast.AST, copy: ast.AST) -> bool:
    """Whether a use stands in the other branch of a choice than the copy: `x.cuda() if cuda else show(x)`."""
    around = {id(ancestor): _branch_taken(ancestor, child) for ancestor, child in source.way_out(copy)}
    for ancestor, child in source.way_out(use):
        if id(ancestor) in around:
            return {around[id(ancestor)], _branch_taken(ancestor, child)} == {"body", "orelse"}
    return False


def _branch_taken(choice: ast.AST, child: ast.AST) -> str:
    """Which part of a choice a child is: its test, what it does where that holds, or else."""
    if isinstance(choice, ast.IfExp):
        return "body" if child is choice.body else "orelse" if child is choice.orelse else "test"
    if isinstance(choice, ast.If):
        is_in = {"body": choice.body, "orelse": choice.orelse}
        return next((name for name, block in is_in.items() if any(part is child for part in block)), "test")
    return ""


def _bindings(source: Source, node: ast.AST, name: str) -> list[ast.AST]:
    for scope in source.ancestors(node):
        if isinstance(scope, (*FUNCTIONS, ast.Lambda, ast.Module)) and (bound := source.bound_in(scope).get(name)):
            return bound
    return []


def _is_on_device(source: Source, use: ast.Name, moves: Moves) -> bool:
    """Whether the name surely stands for a copy on the device where it is read."""
    bindings = reaching(source, use)
    return bool(bindings) and all(_is_move(source, binding, moves) for binding in bindings)


def _is_of_another_batch(source: Source, use: ast.Name, part: Part) -> bool:
    """Whether the name surely has its value from elsewhere than the loop over the batches, or from another `next(batches)`."""
    bindings = reaching(source, use)
    if not isinstance(part.taken, (ast.For, ast.AsyncFor)):
        return bool(bindings) and all(_is_other_take(source, binding, part) for binding in bindings)
    return bool(bindings) and not any(a is part.taken for binding in bindings for a in source.ancestors(binding))


def _is_other_take(source: Source, binding: ast.Name, part: Part) -> bool:
    statement = source.statement(binding)
    value = statement.value if isinstance(statement, ast.Assign) and statement is not part.taken else None
    return isinstance(value, ast.Call) and iterator_asked(value) is not None


def _is_move(source: Source, binding: ast.Name, moves: Moves) -> bool:
    value = assigned_value(source, binding)
    parent = source.parent(binding)
    statement = source.parent(parent) if isinstance(parent, ast.Tuple) else None
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple) and isinstance(parent, ast.Tuple):
        pairs = zip(parent.elts, statement.value.elts, strict=False)
        value = next((given for element, given in pairs if element is binding), None)
    if isinstance(value, ast.IfExp):  # `x.cuda() if cuda else x`, where nothing is copied without cuda
        return any(_moves_value(source, part, moves) for part in (value.body, value.orelse))
    return _moves_value(source, value, moves)


def _moves_value(source: Source, value: ast.expr | None, moves: Moves) -> bool:
    value = _each(value)
    while isinstance(value, ast.Call):
        if moves(value):
            return True
        inner = without_variable(source, value)
        if inner is value and not isinstance(value.func, ast.Attribute):
            return False
        value = value.func.value if inner is value and isinstance(value.func, ast.Attribute) else inner
    return False


def _each(value: ast.expr | None) -> ast.expr | None:
    """What each element of a collection is that a comprehension makes: `t.cuda()` of `tuple(t.cuda() for t in batch)`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("list", "tuple"):
        value = value.args[0] if len(value.args) == 1 else None
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return value.elt
    return value.value if isinstance(value, ast.DictComp) else value


def _key_of(source: Source, copy: ast.Call, name: str) -> object:
    """The constant by which the copied part was taken out of what the name holds, else None."""
    taken: ast.AST | None = copy.func
    while isinstance(taken, (ast.Attribute, ast.Call)):
        inner = without_variable(source, taken)
        taken = inner if inner is not taken else taken.func if isinstance(taken, ast.Call) else taken.value
    if isinstance(taken, ast.Name):
        bindings = reaching(source, taken)
        taken = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
    if isinstance(taken, ast.Subscript) and isinstance(taken.value, ast.Name) and taken.value.id == name:
        return taken.slice.value if isinstance(taken.slice, ast.Constant) else None
    return None


def _is_other_element(source: Source, use: ast.Name, key: object) -> bool:
    """Whether a read takes another element of the batch than the copied one: `batch["label"]` beside `batch["image"]`."""
    parent = source.parent(use)
    if key is None or not isinstance(parent, ast.Subscript) or parent.value is not use:
        return False
    return isinstance(parent.slice, ast.Constant) and parent.slice.value != key


def _aliases(source: Source, use: ast.Name, moves: Moves) -> set[str] | None:
    """The names under which a read makes the memory known, none for a plain read; None for what may write or keep it."""
    outer: ast.AST = use
    while True:
        parent = source.parent(outer)
        match parent:
            case ast.Subscript() if parent.slice is outer:
                return set()
            case ast.Subscript() if isinstance(parent.ctx, ast.Load):
                outer = parent
            case ast.Subscript():
                return set() if _is_entry(source, parent, moves) else None
            case ast.Attribute() if parent.attr in _FORM:
                return set()
            case ast.Attribute() if isinstance(method := source.parent(parent), ast.Call) and method.func is parent:
                if parent.attr in _READS or moves(method):
                    return set()
                if parent.attr in ("items", "values") and _is_iterated(source, method):
                    return _targets(source, method)
                if parent.attr.endswith("_") or parent.attr not in _KEEP_MEMORY:
                    return None
                outer = method
            case ast.Call() if parent.args[:1] == [outer] and source.qualified_name(parent.func) == VARIABLE:
                outer = parent
            case ast.Call() if viewed_tensor(source, parent) is outer:
                outer = parent
            case ast.Call() if isinstance(parent.func, ast.Name) and parent.func.id in _COUNTS:
                return None if source.lookup(parent.func) or parent.func.id in source.aliases else set()
            case ast.Assign() if parent.value is outer:
                names = [n for target in parent.targets for n in _plain(target)]
                return {n.id for n in names if isinstance(n, ast.Name)} if _are_names(names) else None
            case ast.Tuple() if (
                isinstance(statement := source.parent(parent), ast.Assign) and statement.value is parent
            ):
                target = statement.targets[0]
                if len(statement.targets) > 1 or not isinstance(target, ast.Tuple) or not _are_names(target.elts):
                    return None
                return {n.id for n in target.elts if isinstance(n, ast.Name)}
            case ast.For() | ast.AsyncFor() | ast.comprehension() if parent.iter is outer:
                return _targets(source, outer)
            case ast.Compare() | ast.FormattedValue() | ast.Expr():
                return set()
            case _:
                return None


def _only_reads(source: Source, use: ast.Name, moves: Moves) -> bool:
    """Whether a name is handed to a function of this file that does nothing but read it, as one that draws it."""
    call = source.parent(use)
    call = source.parent(call) if isinstance(call, ast.keyword) else call
    function = called_function(source, call) if isinstance(call, ast.Call) and call.func is not use else None
    if function is None or not isinstance(call, ast.Call):
        return False
    parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    taken = [parameter for parameter in parameters if argument_for(source, call, function, parameter) is use]
    return len(taken) == 1 and all(
        _aliases(source, read, moves) == set() for read in source.uses_of(taken[0], taken[0].arg)
    )


def _is_taken_apart(source: Source, use: ast.Name) -> bool:
    """Whether a name is all that an assignment takes apart: `images, labels = batch`."""
    parent = source.parent(use)
    return isinstance(parent, ast.Assign) and all(
        isinstance(target, (ast.Tuple, ast.List)) for target in parent.targets
    )


def _plain(target: ast.expr) -> list[ast.expr]:
    return list(target.elts) if isinstance(target, (ast.Tuple, ast.List)) else [target]


def _are_names(nodes: list[ast.expr]) -> bool:
    return all(isinstance(node, ast.Name) for node in nodes)


def _is_entry(source: Source, target: ast.Subscript, moves: Moves) -> bool:
    """Whether a store replaces an entry of a dict or list, and writes no tensor: by a text key, or by its own copy."""
    if not isinstance(target.ctx, ast.Store) or isinstance(source.parent(target), ast.AugAssign):
        return False
    if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
        return True
    statement = source.parent(target)
    value = statement.value if isinstance(statement, ast.Assign) else None
    return isinstance(value, ast.Call) and moves(value) and _is_same_entry(source, value)


def _is_iterated(source: Source, call: ast.Call) -> bool:
    parent = source.parent(call)
    return isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)) and parent.iter is call


def _targets(source: Source, over: ast.AST) -> set[str]:
    """The names that a loop over an expression binds."""
    parent = source.parent(over)
    if not isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)):
        return set()
    return {n.id for n in ast.walk(parent.target) if isinstance(n, ast.Name)}
