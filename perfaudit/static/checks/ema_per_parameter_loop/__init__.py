"""PA404: an average of the weights that is updated parameter by parameter."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.ema_per_parameter_loop.walks import is_of_optimizer, walks_parameters
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.members import attributes, is_own
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.rarely import runs_rarely
from perfaudit.static.understanding.values import assigned_value, constant

IN_TRAINING = regex(
    r"ema|averag|avg|moving|moment|teacher|target|shadow|update|slow|mean|polyak|soft|key|train|step|optimi[sz]e",
    re.IGNORECASE,
)
MIXES = regex(r"\*|lerp|mul|(averag|update|ema|mean|mix|fn)\w*\(")
FEW_STEPS = 4  # a delayed policy update comes every second step, and its average counts; one every thousand does not
DELAYED = regex(r"^(policy|actor)_(delay|freq|frequency|interval|period)$|^(update_)?delay(_steps?)?$")  # as in TD3
ADVICE = (
    "average all parameters at once: `torch._foreach_lerp_(averages, parameters, 1 - decay)` on two lists of floating "
    "tensors, or on an accelerator `AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))`"
)


@check("PA404", ast.For)
def ema_per_parameter_loop(source: Source, loop: ast.For) -> Iterator[Seen]:
    if not _may_use_torch(source) or not walks_parameters(source, loop.iter) or not MIXES.search(source.text_of(loop)):
        return
    if not _belongs_to_training(source, loop):
        return
    # Imported here: few loops over parameters may be an average.
    from perfaudit.static.checks.ema_per_parameter_loop.updated_average import is_kept_beside, updated_average

    average = updated_average(source, loop)
    if average is not None and is_of_optimizer(source, loop.iter) and not is_kept_beside(loop, average):
        return  # the optimizer's own steps
    if average is None or _has_foreach_path(source, loop):
        return
    if runs_rarely(source, loop, source.tree) and not _runs_every_few_steps(source, loop):
        return
    from perfaudit.static.checks.ema_per_parameter_loop.patch import one_call

    yield Seen(
        loop,
        f"`{source.brief(average.average)}` follows `{source.brief(average.new)}` in a Python loop: every parameter "
        "takes kernels of its own, and most are shorter than their launch",
        one_call(source, loop, average) or Proposal(ADVICE),
        hot=runs_every_step(source, loop),
    )


def _may_use_torch(source: Source) -> bool:
    """Whether the file imports torch, or everything from a module of its own package, which may, or is of those that do."""
    if source.imports_torch or any(n.level and n.names[0].name == "*" for n in source.nodes(ast.ImportFrom)):
        return True
    return source.neighbours is not None and source.neighbours.is_imported_by_a_marked_file("torch")


def _belongs_to_training(source: Source, loop: ast.For) -> bool:
    """Not a test, nor the one-off mixing of two checkpoints, as far as names tell."""
    around = [getattr(ancestor, "name", "") or "" for ancestor in source.ancestors(loop)]
    if any(name.startswith("test") for name in around):
        return False
    return bool(IN_TRAINING.search(" ".join([*around, source.text_of(loop)])))


def _runs_every_few_steps(source: Source, loop: ast.For) -> bool:
    """Whether what makes the loop rare is `step % n == 0` with an n that is small by its default in this file.

    Where the file says nothing of it, the name does: `policy_delay` is two steps, as a rule.
    """
    for condition in source.ancestors(loop):
        if isinstance(condition, ast.If) and (period := _period(condition.test)) is not None:
            few = [isinstance(n, int) and n <= FEW_STEPS for n in _values(source, period)]
            is_short = all(few) if few else DELAYED.search(last_name(period)) is not None
            return is_short and not runs_rarely(source, condition, source.tree)
    return False


def _period(test: ast.expr) -> ast.expr | None:
    """`n` of `step % n == 0`."""
    left = test.left if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) else None
    return left.right if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod) else None


def _values(source: Source, node: ast.expr) -> list[object]:
    """The number itself, or what this file gives its name: the default of a parameter or an option, a number it is set to."""
    if isinstance(node, ast.Constant):
        return [node.value]
    name, found = last_name(node), []
    for function in source.nodes(ast.FunctionDef):
        arguments = [*function.args.posonlyargs, *function.args.args]
        given = zip(reversed(arguments), reversed(function.args.defaults), strict=False)
        found += [default for argument, default in given if argument.arg == name]
        optional = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        found += [default for argument, default in optional if argument.arg == name and default is not None]
    for call in source.calls(".add_argument"):
        options = [ast.unparse(a).strip("'\"-").replace("-", "_") for a in call.args]
        found += [k.value for k in call.keywords if k.arg == "default" and name in options]
    declared = [n for n in source.nodes(ast.AnnAssign) if isinstance(source.parent(n), ast.ClassDef)]
    found += [n.value for n in declared if n.value is not None and last_name(n.target) == name]
    found += _numbers_set(source, node)
    return [constant(source, value) for value in found]


def _numbers_set(source: Source, node: ast.expr) -> list[ast.expr]:
    """What the class around sets its own attribute to, `self.policy_freq = 2`, where all that it sets it to are numbers."""
    own = source.enclosing(node, ast.ClassDef)
    if own is None or not is_own(node):
        return []
    stores = [n for n in attributes(source).get(last_name(node), []) if isinstance(n.ctx, ast.Store)]
    values = [assigned_value(source, store) for store in stores if source.enclosing(store, ast.ClassDef) is own]
    numbers = [value for value in values if isinstance(value, ast.Constant)]
    return [*numbers] if len(numbers) == len(values) else []


def _has_foreach_path(source: Source, loop: ast.For) -> bool:
    """Whether the function does it with lists as well: then the loop is the fallback."""
    function = source.enclosing(loop, *FUNCTIONS) or source.tree
    names = (dotted_name(n) for n in walk(function) if isinstance(n, (ast.Name, ast.Attribute)))
    return any("foreach" in name for name in names)
