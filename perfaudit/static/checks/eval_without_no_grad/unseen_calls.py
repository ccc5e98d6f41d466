"""Calls in an evaluation that may differentiate in code which the file does not show."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.checks.eval_without_no_grad.eval_mode import handed_name, is_train_false, model_name
from perfaudit.static.checks.eval_without_no_grad.evaluations import names_given
from perfaudit.static.checks.eval_without_no_grad.kept_models import may_be_made_elsewhere
from perfaudit.static.checks.eval_without_no_grad.library_objects import MODEL, is_of_library
from perfaudit.static.checks.eval_without_no_grad.model_runs import LAYER
from perfaudit.static.checks.eval_without_no_grad.wanted_gradients import GRADIENT
from perfaudit.static.source import Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.elsewhere import called_elsewhere
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.opaque import is_opaque, made_of, reports

MODEL_METHODS = {
    "eval",
    "generate",
    "predict",
    "encode",
    "decode",
    "parameters",
    "named_parameters",
    "state_dict",
    "modules",
    "zero_grad",
}
_OF_MODELS = (".eval", ".load_state_dict")  # what a model is asked for, and hardly anything else that is called
_LOADERS = regex(r"(train|val|test|predict)_dataloader")
_OF_DATA_MODULE = regex(r"(train|val|test|predict)_dataloader|setup|prepare_data|teardown|batch_size|num_workers")


def unseen_call(
    source: Source, loop: Loop, runs: list[ast.Call], model: str, ways: frozenset[str] = frozenset()
) -> ast.Call | None:
    """A call in the loop that may differentiate in code this file does not show; the model's own call if it may.

    One that gives data only where there is no other. ways: methods of the model's class, which do not.
    """
    of_data: ast.Call | None = None
    if any(_wraps_a_model(source, made) for run in runs for made in made_of(source, run.func)):
        return runs[0]
    if any(may_be_made_elsewhere(source, run.func) for run in runs):
        return runs[0]
    models = {model} | _models_asked(source)
    holders = _holders(source, frozenset(models))
    pending: list[tuple[ast.AST, set[str]]] = [(loop, models)]
    known: set[int] = set()
    while pending:
        root, run_here = pending.pop()
        known.add(id(root))
        for call in (node for node in walk(root) if isinstance(node, ast.Call)):
            function = called_function(source, call)
            if function is not None and id(function) not in known:
                pending.append((function, models | names_given(call, function, run_here)))
            is_model = model_name(call.func).removesuffix(".forward").removesuffix(".module") in run_here - {""}
            called = last_name(call.func)
            is_model = is_model or (call in runs and (called in ways or LAYER.fullmatch(called) is not None))
            if is_model or _is_method_of(call, run_here) or is_train_false(call) or called == "zero_grad":
                continue
            is_held = bool(_root(call.func) & holders) and not reports(call)
            if root is loop and not is_held and _gives_batches(loop, call, models):
                continue
            if is_held or (
                is_opaque(source, call)
                and not (is_of_library(source, call, run_here) or _is_plain_elsewhere(source, call))
            ):
                if not gives_data(source, call):
                    return call
                of_data = of_data or call
    return of_data


@remember  # asked for each loop
def _models_asked(source: Source) -> frozenset[str]:
    """The names of what is put into eval mode or gets weights."""
    asked = (c for name in _OF_MODELS for c in source.calls(name))
    return frozenset(model_name(c.func.value) for c in asked if isinstance(c.func, ast.Attribute))


def _gives_batches(loop: Loop, call: ast.Call, models: set[str]) -> bool:
    """Whether a call is what the loop goes through, and gets no model: `for x, y in batches(data, size)`."""
    if (
        not isinstance(loop, (ast.For, ast.AsyncFor))
        or loop.iter is not call
        or not isinstance(call.func, (ast.Name, ast.Attribute))
    ):
        return False
    names = {dotted_name(node) for node in walk(call) if isinstance(node, (ast.Name, ast.Attribute))}
    return not names & models and not any(GRADIENT.search(name.lower()) for name in names)


def gives_data(source: Source, call: ast.Call) -> bool:
    """Whether a call makes a data module of Lightning's, `Data(folder=...)`, or asks one for its loaders.

    Told by what the file asks of the object: a loader, and nothing but what a data module is asked for. Nobody calls it.
    """
    func = call.func
    if isinstance(func, ast.Attribute) and _OF_DATA_MODULE.fullmatch(func.attr):
        return any(map(_is_class_call, (func.value, *made_of(source, func.value))))
    if not _is_class_call(call):
        return False
    parent = source.parent(call)
    if isinstance(parent, ast.Attribute):
        return _LOADERS.fullmatch(parent.attr) is not None
    target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
    if not isinstance(target, ast.Name):
        return False
    names = [n for n in source.nodes(ast.Name) if n.id == target.id and isinstance(n.ctx, ast.Load)]
    uses = [name for name in names if source.scope(name) is source.scope(call)]
    around = [source.parent(use) for use in uses]
    asked = [parent.attr for parent in around if isinstance(parent, ast.Attribute)]
    is_of_data = len(asked) == len(uses) and all(map(_OF_DATA_MODULE.fullmatch, asked))
    return is_of_data and any(map(_LOADERS.fullmatch, asked))


def _is_class_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func)[:1].isupper()


def _is_plain_elsewhere(source: Source, call: ast.Call) -> bool:
    """Whether a call runs a function of another file that is in sight, and runs nothing that is not: `to_torch(array)`."""
    there = called_elsewhere(source, call)
    if there is None or there.source is source:
        return False
    nodes = list(walk(there.function))
    if any(GRADIENT.search(last_name(node)) for node in nodes if isinstance(node, (ast.Name, ast.Attribute))):
        return False
    return not any(is_opaque(there.source, inner) for inner in nodes if isinstance(inner, ast.Call))


def _wraps_a_model(source: Source, made: ast.expr) -> bool:
    """Whether a model is what code that is not in this file makes of another one: `Tent(model)`."""
    if not isinstance(made, ast.Call) or source.qualified_name(made.func) or called_function(source, made):
        return False
    return any(MODEL.search(last_name(argument)) for argument in (*made.args, *(k.value for k in made.keywords)))


@remember  # asked for each loop
def _holders(source: Source, models: frozenset[str]) -> set[str]:
    """Names of what the model was handed to: of `craft` for `craft.bind(model)` and for `craft = Craft(model)`."""
    found: set[str] = set()
    for call in (call for model in models - {""} for call in _calls_that_get(source).get(model, ())):
        if not (source.qualified_name(call.func) or "").startswith("torch."):
            statement = source.statement(call)
            found |= _root(call.func) if isinstance(call.func, ast.Attribute) else set()
            is_result = called_function(source, call) is not None  # `loss = compute_loss(model, batch)` holds no model
            for target in statement.targets if isinstance(statement, ast.Assign) and not is_result else ():
                found.add(dotted_name(target))
    return found - models - {"", "self"}


@remember
def _calls_that_get(source: Source) -> dict[str, list[ast.Call]]:
    """The calls of a file by the names of what they are handed."""
    found: dict[str, list[ast.Call]] = {}
    for call in source.nodes(ast.Call):
        for name in {handed_name(argument) for argument in (*call.args, *(k.value for k in call.keywords))}:
            found.setdefault(name, []).append(call)
    return found


def _root(node: ast.expr) -> set[str]:
    """Every name that a chain begins with: `self`, `self.a` and `self.a.run` of `self.a.run`."""
    names: set[str] = set()
    inner: ast.AST = node
    while isinstance(inner, (ast.Attribute, ast.Call, ast.Subscript)):
        names.add(dotted_name(inner))
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    return (names | {dotted_name(inner)}) - {""}


def _is_method_of(call: ast.Call, models: set[str]) -> bool:
    """Whether a call is one that models are known by: `model.eval()`, `model.generate(x)`."""
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr in MODEL_METHODS and model_name(func.value) in models
