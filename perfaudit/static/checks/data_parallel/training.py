"""Whether a training stays the same where each process makes its steps on a share of the batch: model, loss, decisions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.data_parallel.program import MOVES, Program, Refused, function_called, without_moves
from perfaudit.static.checks.data_parallel.saves import refuse_saves
from perfaudit.static.checks.data_parallel.steady import Steady
from perfaudit.static.checks.data_parallel.surroundings import is_in_class
from perfaudit.static.checks.data_parallel.variables import all_uses, bindings_in_turn
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.distributed import DATA_PARALLEL
from perfaudit.static.understanding.loaders import passes
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.values import assigned_value

# Losses that are the mean over samples or elements as long as nobody says otherwise.
_MEANS = {"CrossEntropy", "NLL", "MSE", "L1", "SmoothL1", "Huber", "BCE", "BCEWithLogits", "SoftMargin"}
_MEAN_CLASSES = {f"torch.nn.{name}Loss" for name in _MEANS}
_MEAN_FUNCTIONS = {
    f"torch.nn.functional.{name}"
    for name in (
        *("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"),
        *("binary_cross_entropy", "binary_cross_entropy_with_logits"),
    )
}
_LEFT_OUT = 100  # its negative is what losses of classes leave out unless they are told otherwise
_SETTINGS_OF_LOSS = {"label_smoothing", "beta", "delta"}
_MOVED = MOVES | {
    "float",
    "double",
    "half",
    "long",
    "int",
    "contiguous",
    "squeeze",
    "unsqueeze",
    "view",
    "reshape",
    "flatten",
}
_PLAIN_OUTPUT = {"float", "contiguous", "squeeze", "view", "reshape", "flatten"}
_ASKS_MODEL = {"print", "str", "repr", "len", "type", "hasattr", "isinstance"}
_OPTIMIZER = regex(r"^torch\.optim\.(?!LBFGS)[A-Z]\w*$")
_WITH = regex(r"no_grad|inference_mode|autocast|set_grad_enabled|tqdm|open$")
_HARMLESS = {
    *("print", "len", "int", "float", "round", "min", "max", "abs", "str", "format", "item", "append", "state_dict"),
    *("join", "save", "makedirs", "sum", "mean", "write", "time", "dict", "zip", "list"),
}


def refuse_training(program: Program) -> None:
    """Raises Refused where a process with a share of the batch would train something else, or another process would wait."""
    steady = Steady(program.source)
    if not steady.is_reached_steadily(program.steps):
        raise Refused("the training loop runs under a condition that processes may answer differently")
    uses = all_uses(program.source, program.wrapped)
    bare = all_uses(program.source, program.bare) if program.bare is not None else []
    run = _refuse_uses_of_model(program, steady, uses, bare)
    _refuse_uses_of_loader(program)
    _refuse_optimizer(program, {id(use) for use in (*uses, *bare)})
    _refuse_loss(program, run)
    _refuse_decisions(program, steady, {id(use) for use in (*uses, *bare)})
    refuse_saves(program, steady, {id(use) for use in (*uses, *bare)})


def type_checks(program: Program) -> Iterator[ast.expr]:
    """The other places that name DataParallel: `isinstance(model, nn.DataParallel)`. Raises Refused for any other use."""
    source = program.source
    for node in (*source.nodes(ast.Name), *source.nodes(ast.Attribute)):
        if node is program.wrapping.func or source.qualified_name(node) not in DATA_PARALLEL:
            continue
        parent = source.parent(node)
        parent = source.parent(parent) if isinstance(parent, ast.Tuple) else parent
        if not (isinstance(parent, ast.Call) and last_name(parent.func) == "isinstance"):
            raise Refused("`DataParallel` is used for more than to wrap the model")
        yield node


# ---- the model -------------------------------------------------------------------------------------------------------


def _refuse_uses_of_model(program: Program, steady: Steady, uses: list[ast.Name], bare: list[ast.Name]) -> ast.Call:
    """The one forward pass of a step. Raises Refused for what goes around DistributedDataParallel, or may not reach it."""
    source, runs = program.source, list[ast.Call]()
    for use in (*uses, *bare):
        if _is_before_wrapping(program, use):
            continue
        parent = source.parent(use)
        if isinstance(parent, ast.Call) and parent.func is use:
            if any(use is item for item in bare):
                raise Refused(f"`{use.id}` is run without what wraps it")
            if any(around is program.steps for around in source.ancestors(parent)):
                runs.append(parent)
            elif not in_no_grad(source, parent) and not _is_called_in_no_grad(source, parent):
                raise Refused(
                    f"`{source.brief(parent, 40)}` runs the model outside of the training loop with gradients"
                )
            _refuse_run(program, steady, parent)
        elif isinstance(parent, ast.Attribute):
            _refuse_attribute(program, parent)
        elif isinstance(parent, ast.Call):
            if not (isinstance(parent.func, ast.Name) and parent.func.id in _ASKS_MODEL):
                raise Refused(f"`{source.brief(parent, 40)}` gets the model")
        elif not isinstance(parent, ast.FormattedValue):
            raise Refused(f"`{source.brief(source.statement(use), 40)}` takes the model elsewhere")
    if len(runs) != 1:
        raise Refused("a step does not run the model exactly once")
    if in_no_grad(source, runs[0]):
        raise Refused("the step runs the model without gradients")
    return runs[0]


def _is_before_wrapping(program: Program, use: ast.Name) -> bool:
    """Whether a model is used as it is built, wrapped and moved: DistributedDataParallel takes it from there."""
    source = program.source
    if source.scope(use) is not source.scope(program.wrapping):
        return False
    statement = source.statement(use)
    if source.span(use).end <= source.span(program.wrapping).end:
        return True
    moved = without_moves(statement.value) if isinstance(statement, (ast.Assign, ast.Expr)) else None
    return moved is use and source.enclosing(use, *LOOPS) is None


def _is_called_in_no_grad(source: Source, node: ast.AST) -> bool:
    function = source.enclosing(node, *FUNCTIONS)
    calls = callers(source, function) if isinstance(function, FUNCTIONS) else ()
    return bool(calls) and all(in_no_grad(source, call) for call in calls)


def _refuse_run(program: Program, steady: Steady, run: ast.Call) -> None:
    source = program.source
    if not steady.is_reached_steadily(run):
        raise Refused(f"`{source.brief(run, 40)}` runs under a condition that processes may answer differently")
    known = {id(item.loop) for item in passes(source)}
    for around in source.ancestors(run):
        is_known = id(around) in known or (isinstance(around, ast.For) and steady.is_steady(around.iter))
        if isinstance(around, LOOPS) and not is_known:
            raise Refused(f"how often `{source.brief(run, 40)}` runs may differ between processes")


def _refuse_attribute(program: Program, attribute: ast.Attribute) -> None:
    """Raises Refused for attributes of the model that say something else behind DistributedDataParallel, or change it."""
    source = program.source
    if attribute.attr == "module":
        outer = source.parent(attribute)
        if not isinstance(outer, ast.Attribute) or outer.attr not in ("state_dict", "parameters", "train", "eval"):
            raise Refused(f"`{source.brief(outer or attribute, 40)}` goes around what wraps the model")
        attribute = outer
    if attribute.attr in ("train", "eval", "state_dict", "zero_grad", "training"):
        return
    call = source.parent(attribute)
    if attribute.attr not in ("parameters", "named_parameters") or not isinstance(call, ast.Call):
        raise Refused(f"`{source.brief(attribute, 40)}` is asked of the model")
    user = source.parent(call)
    if isinstance(user, ast.Call) and _takes_parameters(source, user):
        return
    if isinstance(user, ast.comprehension) and not isinstance(user.target, ast.Tuple):
        counted = [last_name(n.func) for n in ast.walk(source.parent(user) or user) if isinstance(n, ast.Call)]
        if set(counted) <= {"numel", "nelement", "parameters"}:
            return
    raise Refused(f"`{source.brief(source.statement(call), 40)}` takes the parameters")


def _takes_parameters(source: Source, call: ast.Call) -> bool:
    name = source.qualified_name(call.func) or ""
    if name.startswith("torch.nn.utils.clip_grad_") or _OPTIMIZER.search(name):
        return True
    around = source.parent(call)
    is_filter = isinstance(call.func, ast.Name) and call.func.id == "filter"
    return (
        is_filter and isinstance(around, ast.Call) and bool(_OPTIMIZER.search(source.qualified_name(around.func) or ""))
    )


def _refuse_optimizer(program: Program, models: set[int]) -> None:
    """Raises Refused unless one optimizer updates the model's own parameters, and nothing else."""
    source = program.source
    named = [(call, source.qualified_name(call.func) or "") for call in source.nodes(ast.Call)]
    made = [(call, name) for call, name in named if name.startswith("torch.optim.") and name.count(".") == 2]
    if len(made) != 1 or not _OPTIMIZER.search(made[0][1]):
        raise Refused("the script does not have exactly one optimizer of `torch.optim`")
    call = made[0][0]
    taken = call.args[0] if call.args else None
    if (
        isinstance(taken, ast.Call)
        and isinstance(taken.func, ast.Name)
        and taken.func.id == "filter"
        and len(taken.args) == 2
    ):
        taken = taken.args[1]
    owner = taken.func.value if isinstance(taken, ast.Call) and isinstance(taken.func, ast.Attribute) else None
    owner = owner.value if isinstance(owner, ast.Attribute) and owner.attr == "module" else owner
    is_parameters = isinstance(taken, ast.Call) and last_name(taken.func) == "parameters" and not taken.args
    if not is_parameters or owner is None or id(owner) not in models:
        raise Refused("the optimizer does not simply take the parameters of the model")
    if source.enclosing(call, *LOOPS) is not None:
        raise Refused("the optimizer is built inside a loop")


# ---- the loader ------------------------------------------------------------------------------------------------------


def _refuse_uses_of_loader(program: Program) -> None:
    """Raises Refused where the loader is read elsewhere than in the training loop: each process would see a share."""
    source = program.source
    statement = source.statement(program.loader)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if (
        not isinstance(target, ast.Name)
        or not isinstance(statement, ast.Assign)
        or statement.value is not program.loader
    ):
        raise Refused("the loader is not simply assigned to a variable")
    if len(source.lookup(target)) != 1:
        raise Refused(f"`{target.id}` is bound more than once")
    for use in all_uses(source, target):
        parent = source.parent(use)
        if isinstance(parent, ast.Attribute) and parent.attr == "dataset":
            continue
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "len":
            continue
        if any(around is program.steps.iter for around in (use, *source.ancestors(use))):
            continue
        raise Refused(
            f"`{source.brief(source.statement(use), 40)}` reads the training loader, of which a process has a share"
        )


# ---- the loss --------------------------------------------------------------------------------------------------------


def _refuse_loss(program: Program, run: ast.Call) -> None:
    """Raises Refused unless the loss is the mean over a batch of what the model says, so that shares of it average to it."""
    source, steps = program.source, program.steps
    if not run.args or not all(_is_share(program, value) for value in _argument_values(run)):
        raise Refused(f"`{source.brief(run, 40)}` takes more than parts of the batch")
    backward = next(call for call in source.calls(".backward") if any(a is steps for a in source.ancestors(call)))
    loss: ast.expr | None = backward.func.value if isinstance(backward.func, ast.Attribute) else None
    if backward.args or backward.keywords or loss is None:
        raise Refused(f"`{source.brief(backward, 40)}` is more than a backward pass")
    if isinstance(loss, ast.Call) and last_name(loss.func) == "scale" and len(loss.args) == 1:
        loss = loss.args[0]
    if isinstance(loss, ast.Name):
        bound = [b for b in source.lookup(loss) if any(a is steps for a in source.ancestors(b))]
        loss = assigned_value(source, bound[0]) if len(bound) == 1 else None
    if not isinstance(loss, ast.Call) or not _is_mean(source, loss):
        raise Refused("the loss is not known to be the mean over the batch")
    negative = (n.operand for n in source.nodes(ast.UnaryOp) if isinstance(n.op, ast.USub))
    if any(isinstance(number, ast.Constant) and number.value == _LEFT_OUT for number in negative):
        raise Refused("targets of -100 are left out of the loss, and shares may hold more of them or fewer")
    handed = _argument_values(loss, _SETTINGS_OF_LOSS)
    outputs = [value for value in handed if _is_output(program, value, run)]
    shares = [value for value in handed if _is_share(program, value)]
    if len(handed) != 2 or len(outputs) != 1 or len(shares) != 1:
        raise Refused(f"`{source.brief(loss, 40)}` takes more than the output and a part of the batch")


def _argument_values(call: ast.Call, left_out: set[str] | None = None) -> list[ast.expr]:
    return [*call.args, *(k.value for k in call.keywords if k.arg not in (left_out or ()))]


def _is_mean(source: Source, call: ast.Call) -> bool:
    if (source.qualified_name(call.func) or "") in _MEAN_FUNCTIONS:
        return all(k.arg in _SETTINGS_OF_LOSS for k in call.keywords)
    steady = Steady(source)
    made: ast.expr | None = call.func
    for _ in range(4):
        bound = source.lookup(made) if isinstance(made, ast.Name) else []
        if len(bound) != 1:
            break
        if isinstance(bound[0], ast.arg):
            passed = steady.arguments_for(bound[0])
            made = passed[0] if len(passed) == 1 else None
        else:
            made = assigned_value(source, bound[0])
    made = without_moves(made) if made is not None else None
    if not isinstance(made, ast.Call) or source.qualified_name(made.func) not in _MEAN_CLASSES:
        return False
    return not made.args and all(k.arg in _SETTINGS_OF_LOSS for k in made.keywords) and not call.keywords


def _is_share(program: Program, node: ast.expr, known: frozenset[int] = frozenset()) -> bool:
    """Whether an expression is a part of the batch, of each sample on its own. known: bindings on the way here."""
    source = program.source
    match node:
        case ast.Name():
            bound = bindings_in_turn(source, node, program.steps)
            new = [binding for binding in bound if id(binding) not in known]
            return bool(bound) and all(_is_bound_to_share(program, b, known | {id(b)}) for b in new)
        case ast.Subscript(slice=ast.Constant()):
            return _is_share(program, node.value, known) and not isinstance(source.parent(node), ast.Subscript)
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in _MOVED:
            return _is_share(program, inner, known) and _keeps_samples(node)
    return False


def _is_bound_to_share(program: Program, binding: ast.AST, known: frozenset[int]) -> bool:
    source = program.source
    if any(binding is part for part in ast.walk(program.batch)):
        return True
    if not any(around is program.steps for around in source.ancestors(binding)):
        return False
    value = assigned_value(source, binding)
    if value is not None:
        return _is_share(program, value, known)
    group = source.parent(binding)
    statement = source.parent(group) if isinstance(group, (ast.Tuple, ast.List)) else None
    if (
        not isinstance(statement, ast.Assign)
        or not isinstance(group, (ast.Tuple, ast.List))
        or len(statement.targets) != 1
    ):
        return False
    if isinstance(statement.value, ast.Tuple) and len(statement.value.elts) == len(group.elts):
        place = next(n for n, element in enumerate(group.elts) if element is binding)
        return _is_share(program, statement.value.elts[place], known)
    return isinstance(program.batch, ast.Name) and _is_share(program, statement.value, known)


def _is_output(program: Program, node: ast.expr, run: ast.Call, depth: int = 6) -> bool:
    """Whether an expression is what the model returned, each sample on its own."""
    if node is run or not depth:
        return node is run
    match node:
        case ast.Name():
            bound = bindings_in_turn(program.source, node, program.steps)
            value = assigned_value(program.source, bound[0]) if len(bound) == 1 else None
            return value is not None and _is_output(program, value, run, depth - 1)
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in _PLAIN_OUTPUT:
            return _keeps_samples(node) and _is_output(program, inner, run, depth - 1)
        case ast.Call(args=[inner], keywords=[]):
            return program.source.qualified_name(node.func) == "torch.sigmoid" and _is_output(
                program, inner, run, depth - 1
            )
    return False


def _keeps_samples(call: ast.Call) -> bool:
    """Whether the arguments of a view name sizes only: `x.view(x.size(0), -1)`, not `x.view(64, -1)`, which a share has not."""
    if last_name(call.func) in ("view", "reshape") and call.args:
        first = call.args[0].elts[0] if isinstance(call.args[0], ast.Tuple) and call.args[0].elts else call.args[0]
        if isinstance(first, (ast.Constant, ast.Name)):
            return False
    return all(
        last_name(n.func) in ("size", "len")
        for a in _argument_values(call)
        for n in ast.walk(a)
        if isinstance(n, ast.Call)
    )


# ---- decisions -------------------------------------------------------------------------------------------------------


def _refuse_decisions(program: Program, steady: Steady, models: set[int]) -> None:
    """Raises Refused where processes may decide differently, and one would wait for the other or train something else."""
    source = program.source
    for node in source.nodes(ast.While, ast.Try, ast.TryStar, ast.Match, ast.Yield, ast.AsyncFor, ast.AsyncWith):
        if not is_in_class(source, node):
            raise Refused("the script has a `while`, a `try` or another block in which processes may part")
    for node in source.nodes(ast.With):
        if not is_in_class(source, node) and not all(_WITH.search(_name_of(item.context_expr)) for item in node.items):
            raise Refused(
                f"what `{source.brief(node.items[0].context_expr, 40)}` does in several processes is not known"
            )
    for jump in source.nodes(ast.Break, ast.Continue, ast.Return, ast.Raise):
        if not is_in_class(source, jump) and not steady.runs_steadily(jump):
            raise Refused(f"`{source.brief(jump, 40)}` runs under a condition that processes may answer differently")
    for test in source.nodes(ast.If):
        if not is_in_class(source, test) and not steady.is_steady(test.test):
            for statement in (*test.body, *test.orelse):
                _refuse_in_branch(source, statement)
    for call in source.calls(".step"):
        if not is_in_class(source, call):
            _refuse_step(source, steady, call)
    stores: list[ast.Attribute | ast.Subscript] = [*source.nodes(ast.Attribute), *source.nodes(ast.Subscript)]
    for store in stores:
        if isinstance(store.ctx, ast.Store) and not is_in_class(source, store):
            _refuse_store(program, steady, store, models)


def _name_of(node: ast.expr) -> str:
    return last_name(node.func if isinstance(node, ast.Call) else node)


def _refuse_in_branch(source: Source, statement: ast.stmt, depth: int = 4) -> None:
    """Raises Refused for what must not run in one process alone."""
    allowed = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Pass, ast.If, ast.Global)
    for node in ast.walk(statement):
        is_wrong = isinstance(node, ast.stmt) and not isinstance(node, allowed)
        if isinstance(node, ast.Call) and last_name(node.func) not in _HARMLESS:
            function = function_called(source, node)
            if function is None or not depth:
                is_wrong = True
            else:
                for inner in function.body:
                    if not isinstance(inner, ast.Return):
                        _refuse_in_branch(source, inner, depth - 1)
        if is_wrong:
            said = source.brief(node if isinstance(node, ast.Call) else statement, 40)
            raise Refused(f"`{said}` runs under a condition that processes may answer differently")


def _refuse_step(source: Source, steady: Steady, call: ast.Call) -> None:
    for value in _argument_values(call):
        bound = source.lookup(value) if isinstance(value, ast.Name) else []
        values = [assigned_value(source, one) for one in bound]
        is_optimizer = any(_OPTIMIZER.search(_qualified_call(source, v)) for v in values)
        is_parameter = bool(bound) and isinstance(bound[0], ast.arg) and "optim" in last_name(value)
        if is_optimizer or is_parameter:
            continue
        if any(isinstance(one, FUNCTIONS) for one in bound) or not steady.is_steady(value):
            raise Refused(f"`{source.brief(call, 40)}` takes what may differ between processes")
    if not steady.is_reached_steadily(call):
        raise Refused(f"`{source.brief(call, 40)}` runs under a condition that processes may answer differently")


def _qualified_call(source: Source, node: ast.expr | None) -> str:
    return (source.qualified_name(node.func) if isinstance(node, ast.Call) else None) or ""


def _refuse_store(program: Program, steady: Steady, store: ast.Attribute | ast.Subscript, models: set[int]) -> None:
    """Raises Refused where something that may differ is kept in more than a dict or list of the script."""
    source, owner = program.source, store.value
    while isinstance(owner, (ast.Attribute, ast.Subscript)):
        owner = owner.value
    bound = source.lookup(owner) if isinstance(owner, ast.Name) else []
    kept = [assigned_value(source, one) for one in bound]
    if kept and all(isinstance(value, (ast.Dict, ast.List)) for value in kept):
        return
    statement = source.statement(store)
    value = statement.value if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)) else None
    is_layer = isinstance(value, ast.Call) and (source.qualified_name(value.func) or "").startswith("torch.nn.")
    if is_layer and isinstance(owner, ast.Name) and id(owner) in models and _is_before_wrapping(program, owner):
        return  # `model.fc = nn.Linear(model.fc.in_features, 10)`
    if value is None or not steady.is_steady(value):
        raise Refused(f"`{source.brief(statement, 40)}` keeps what may differ between processes")
