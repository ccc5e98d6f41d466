"""Whether an evaluation speaks of gradients or training: then they may be wanted."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.checks.eval_without_no_grad.eval_mode import handed_name, is_train_false
from perfaudit.static.source import Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.members import is_own
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.no_grad import NO_GRAD
from perfaudit.static.understanding.same_memory import VARIABLE
from perfaudit.static.understanding.values import argument, assigned_value, enclosing_function, is_false, resolve

GRADIENT = regex(
    r"grad(?!_fn)|backward|optim|attack|adversar|perturb|fgsm|pgd|saliency|explain|captum|(^|_)shap(ley)?($|_)|(^|_)cam($|_)|jacobian|hessian|"
    r"forces?$|energy|potential|stress|langevin|pinn|pde($|_)|influence",  # models that differentiate in `forward`
    words="grad|backward|optim|attack|adversar|perturb|fgsm|pgd|saliency|explain|captum|shap|cam|jacobian|hessian|force|energy"
    "|potential|stress|langevin|pinn|pde|influence",
)
SCORES = regex(r"energ(y|ies)$|potentials?$|stress(es)?$")
ENVIRONMENT = regex(r"(.*\.)?\w*env(s|ironments?)?\.step", words="env")  # it acts, and trains nothing
_ASKS = {
    "isinstance",
    "issubclass",
    "hasattr",
    "callable",
    "type",
    "id",
    "print",
}  # builtins that run nothing of a model
EVALUATION = regex(r"_?(test|eval|evaluate|evaluation|validate|validation)(_(epoch|one_epoch|loop|model|set))?")
_EVALUATES = regex(r"(^|_)(test|eval|valid|predict|infer)[a-z]*(_|$)")


def needs_gradients(source: Source, loop: Loop | Function, model: str) -> bool:
    """Whether something in the loop, or in a function of this file that it calls, speaks of gradients or training."""
    calls = [node for node in walk(loop) if isinstance(node, ast.Call)]
    if any(_hands_model_out(source, call, model) for call in calls):
        return True
    functions = [function for call in calls if (function := called_function(source, call))]
    own_steps = [c for c in calls if last_name(c.func) == "step" and called_function(source, c) in functions]
    around = enclosing_function(source, loop)
    is_evaluation = around is not None and bool(_EVALUATES.search(around.name.lower()))
    if any(isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)) for node in walk(loop)):
        return True  # the caller would run under no_grad in between
    learnt = (_optimizers(source) | _asked_for_gradients(source, around)) - {model}
    for node in [n for root in (loop, *functions) for n in walk(root)]:
        if isinstance(node, (ast.Name, ast.Attribute)) and (
            GRADIENT.search(last_name(node).lower()) or dotted_name(node) in learnt
        ):
            is_habit = is_evaluation and _is_only_set_to_zero(source, node)  # nothing fills them there
            # `torch.autograd` of its `Variable`
            is_habit = is_habit or source.qualified_name(source.parent(node)) == VARIABLE
            if not is_habit and not _is_list_of_scores(source, node) and source.qualified_name(node) not in NO_GRAD:
                return True
        if isinstance(node, ast.keyword) and GRADIENT.search(node.arg or "") and not is_false(source, node.value):
            return True
        is_switch = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not is_train_false(node)
        is_switch = is_switch and not ENVIRONMENT.fullmatch(dotted_name(getattr(node, "func", node)))
        if is_switch and last_name(getattr(node, "func", node)) in ("train", "step") and node not in own_steps:
            return True
    return False


@remember
def _optimizers(source: Source) -> frozenset[str]:
    """The names that a file gives to optimizers of torch's, under whatever words: `opt = torch.optim.Adam([x])`."""
    return frozenset(
        dotted_name(target)
        for statement in source.nodes(ast.Assign)
        if isinstance(statement.value, ast.Call)
        and (source.qualified_name(statement.value.func) or "").startswith("torch.optim.")
        and "lr_scheduler" not in source.text_of(statement.value.func)
        for target in statement.targets
        if dotted_name(target)
    )


def _asked_for_gradients(source: Source, function: Function | None) -> frozenset[str]:
    """What a function asks gradients of, or an object anywhere: `x.requires_grad = True`, `self.image.requires_grad_()`."""
    asked = _asked_by_function(source)
    return asked.get(function, frozenset()) | asked.get("self", frozenset())


@remember
def _asked_by_function(source: Source) -> dict[Function | str | None, frozenset[str]]:
    """The names that gradients are asked of, by the function in which they are; under "self" what objects keep."""
    stores = [n for n in source.nodes(ast.Attribute) if n.attr == "requires_grad" and isinstance(n.ctx, ast.Store)]
    asked = [(node.value, assigned_value(source, node)) for node in stores]
    for call in source.calls(".requires_grad_"):
        if isinstance(call.func, ast.Attribute):
            given = argument(source, call, "requires_grad", 0)
            asked.append((call.func.value, given if isinstance(given, ast.expr) else None))
    for keyword in (node for node in source.nodes(ast.keyword) if node.arg == "requires_grad"):
        made = source.statement(keyword)
        asked += [(target, keyword.value) for target in (made.targets if isinstance(made, ast.Assign) else ())]
    found: dict[Function | str | None, frozenset[str]] = {}
    for node, value in asked:
        if (name := dotted_name(node)) and (value is None or not is_false(source, value)):
            owner = "self" if is_own(node) else enclosing_function(source, node)
            found[owner] = found.get(owner, frozenset()) | {name}
    return found


def _is_only_set_to_zero(source: Source, node: ast.AST) -> bool:
    """Whether a name stands in the statement `optimizer.zero_grad()`: out of habit, where nothing else speaks of gradients."""
    statement = source.statement(node)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(call, ast.Call) and last_name(call.func) == "zero_grad" and any(n is node for n in walk(call.func))
    )


def _is_list_of_scores(source: Source, node: ast.AST) -> bool:
    """Whether a name is a list that scores are collected in, `energies.append(score)`: nobody differentiates a list."""
    parent = source.parent(node)
    is_grown = isinstance(parent, ast.Attribute) and parent.attr in ("append", "extend")
    is_new = isinstance(parent, ast.Assign) and isinstance(parent.value, ast.List) and not parent.value.elts
    return isinstance(node, ast.Name) and (is_grown or is_new) and bool(SCORES.search(node.id.lower()))


def _hands_model_out(source: Source, call: ast.Call, model: str) -> bool:
    """Whether a call lets code that is not in this file work on the model: `attack(model, x)`, `Attack(model)(x)`."""
    if called_function(source, call) is None and gets(call, model) and not _asks(source, call):
        return True
    root: ast.AST = call.func
    while isinstance(root, (ast.Attribute, ast.Call)):
        root = root.value if isinstance(root, ast.Attribute) else root.func
    if not isinstance(root, ast.Name) or root.id == model:
        return False
    made = resolve(source, root)
    return isinstance(made, ast.Call) and called_function(source, made) is None and gets(made, model)


def _asks(source: Source, call: ast.Call) -> bool:
    """Whether a call only asks what a model is: `isinstance(model, Twins)`."""
    return isinstance(call.func, ast.Name) and call.func.id in _ASKS and not source.lookup(call.func)


def gets(call: ast.Call, model: str) -> bool:
    return any(handed_name(argument) == model for argument in (*call.args, *(k.value for k in call.keywords)))
