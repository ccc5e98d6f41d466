"""PA404: an average of the weights that is updated parameter by parameter."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple
from perfaudit.static import edit
from perfaudit.static.checks.ema_per_parameter_loop.plain_numbers import is_plain_number
from perfaudit.static.checks.ema_per_parameter_loop.same_structure import have_same_structure
from perfaudit.static.checks.ema_per_parameter_loop.walks import WALKS, is_of_optimizer, walks_parameters
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.averages import SAME_VALUE, Polynomial, Values, may_mix_types, mixture, same_value
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.members import attributes, is_own
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.rarely import runs_rarely
from perfaudit.static.understanding.values import assigned_value, constant

IN_TRAINING = regex(
    r"ema|averag|avg|moving|moment|teacher|target|shadow|update|slow|mean|polyak|soft|key|train|step|optimi[sz]e",
    re.IGNORECASE,
)
NO_WEIGHTS = regex(r"grad|exp_avg|square|momentum_buf|velocity")  # an optimizer's own averages
MIXES = regex(r"\*|lerp|mul|(averag|update|ema|mean|mix|fn)\w*\(")
FEW_STEPS = 4  # a delayed policy update comes every second step, and its average counts; one every thousand does not
DELAYED = regex(r"^(policy|actor)_(delay|freq|frequency|interval|period)$|^(update_)?delay(_steps?)?$")  # as in TD3
ADVICE = (
    "average all parameters at once: `torch._foreach_lerp_(averages, parameters, 1 - decay)` on two lists of floating "
    "tensors, or on an accelerator `AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))`"
)
LONGEST_LINE = 100


class Average(NamedTuple):
    """An update in a loop: `average` becomes (1 - weight) · average + weight · `new`.

    whole_body: the loop does nothing else, and a number is the weight. rebinds: the average is a new tensor afterwards,
    not the old one changed.
    """

    average: ast.expr
    new: ast.expr
    weight: str
    rates: tuple[ast.expr, ...]  # what stands in the weight besides literals
    whole_body: bool
    rebinds: bool


@check("PA404", ast.For)
def ema_per_parameter_loop(source: Source, loop: ast.For) -> Iterator[Seen]:
    if not _may_use_torch(source) or not walks_parameters(source, loop.iter) or not MIXES.search(source.text_of(loop)):
        return
    average = _Body(source, loop).average()
    if average is not None and is_of_optimizer(source, loop.iter) and not _is_kept_beside(loop, average):
        return  # the optimizer's own steps
    if average is None or not _belongs_to_training(source, loop) or _has_foreach_path(source, loop):
        return
    if runs_rarely(source, loop, source.tree) and not _runs_every_few_steps(source, loop):
        return
    yield Seen(
        loop,
        f"`{source.brief(average.average)}` follows `{source.brief(average.new)}` in a Python loop: every parameter "
        "takes kernels of its own, and most are shorter than their launch",
        _fix(source, loop, average) or Proposal(ADVICE),
        hot=runs_every_step(source, loop),
    )


def _may_use_torch(source: Source) -> bool:
    """Whether the file imports torch, or everything from a module of its own package, which may, or is of those that do."""
    if source.imports_torch or any(n.level and n.names[0].name == "*" for n in source.nodes(ast.ImportFrom)):
        return True
    return source.neighbours is not None and source.neighbours.is_imported_by_a_marked_file("torch")


def _is_kept_beside(loop: ast.For, average: Average) -> bool:
    """Whether an average is kept in a mapping, of the very parameter that the loop is at."""
    return isinstance(average.average, ast.Subscript) and dotted_name(same_value(average.new)) == dotted_name(
        loop.target
    )


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


class _Body:
    """Follows the statements of a loop and keeps what each tensor has become, as a polynomial in what it was before."""

    def __init__(self, source: Source, loop: ast.For) -> None:
        self.source = source
        self.values = Values(source)
        self.written: dict[str, bool] = {}  # averages in question: whether they are rebound
        self.whole_body = not loop.orelse
        self.loop = loop
        nodes = [n for part in (loop.target, *loop.body) for n in walk(part)]
        self.bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def average(self) -> Average | None:
        """The first average that a path through the body updates."""
        return self._run(self.loop.body)

    def _run(self, statements: list[ast.stmt]) -> Average | None:
        for statement in statements:
            if isinstance(statement, (ast.If, ast.With)):
                self.whole_body = False
                before = dict(self.values.known)
                for block in (statement.body, getattr(statement, "orelse", [])):
                    if (found := self._run(block)) is not None:
                        return found
                    self.values.known = dict(before)
            else:
                self._follow(statement)
        return next((found for key in self.written if (found := self._as_average(key)) is not None), None)

    def _follow(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            target = _changed_in_place(statement.value)
            if target is None:
                self.whole_body = False
            else:
                self._write(target, self.values.of(statement.value), rebinds=False)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            for target, value in _pairs(statement.targets[0], statement.value):
                self._write(target, self.values.of(value), rebinds=True)
        elif isinstance(statement, ast.AugAssign):
            changed = ast.BinOp(statement.target, statement.op, statement.value)
            self._write(statement.target, self.values.of(changed), rebinds=False)
        else:
            self.whole_body = False

    def _write(self, target: ast.expr, value: Polynomial | None, rebinds: bool) -> None:
        key = self.values.key(target)
        if rebinds and isinstance(target, ast.Name):  # a name for a part, not an update of a tensor
            self.whole_body = False
        else:
            stands_for = list(self.values.known.get(key, {}).items())
            if len(stands_for) == 1 and len(stands_for[0][0]) == 1 and stands_for[0][1] == 1.0:
                key = stands_for[0][0][0]  # `average = self.state[name]`, and then `average.copy_(...)`
            self.written[key] = rebinds or self.written.get(key, False)
            self.values.operands[key] = target  # as written, not as read: a leaf may be changed by its `.data` only
        self.values.known[key] = value if value is not None else {(f"?{key}",): 1.0}  # unknown, and no other one

    def _as_average(self, key: str) -> Average | None:
        operands = self.values.operands
        # What another branch wrote is not in the values of this one.
        value = self.values.known.get(key, {})
        mixed, is_replaced = mixture(value, key), False
        if mixed is None and key in operands and _is_loaded_into_what_is_walked(self.source, self.loop, operands[key]):
            items = {n.id for n in walk(self.loop.target) if isinstance(n, ast.Name)}  # of the state that is replaced
            key = next((o for term in value for o in term if o in items), key)
            mixed = mixture(value, key)
            is_replaced = True
        if mixed is None:
            return None
        new, weight, names = mixed
        if NO_WEIGHTS.search(key) or NO_WEIGHTS.search(new) or not (self._varies(key) and self._varies(new)):
            return None
        if any(name in operands and self._varies(name) for name in names):
            return None
        weights = [operands[name] for name in names if name in operands]
        is_number = [ast.unparse(node) for node in weights] == [*names]  # not `d.data`, nor what a function computes
        is_number = is_number and not any(isinstance(node, ast.Call) for node in weights)  # nor called once for all
        whole_body = self.whole_body and is_number and len(self.written) == 1 and not self.values.inlined
        rebinds = is_replaced or self.written[key]
        return Average(operands[key], operands[new], weight, tuple(weights), whole_body and not is_replaced, rebinds)

    def _varies(self, key: str) -> bool:
        """Whether an operand is another one in each round of the loop."""
        operand = self.values.operands.get(key)
        return any(isinstance(n, ast.Name) and n.id in self.bound for n in walk(operand)) if operand else False


def _is_loaded_into_what_is_walked(source: Source, loop: ast.For, target: ast.expr) -> bool:
    """Whether new values go into a dict that the module whose state the loop walks is given: `teacher.load_state_dict(new)`."""
    new = dotted_name(target.value) if isinstance(target, ast.Subscript) else ""
    function = source.enclosing(loop, *FUNCTIONS)
    if not new or function is None or "load_state_dict" not in source.text:
        return False
    walked = {dotted_name(n.value) for n in walk(loop.iter) if isinstance(n, ast.Attribute) and n.attr in WALKS}
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "load_state_dict"
        and dotted_name(call.func.value) in walked - {""}
        and any(dotted_name(argument) == new for argument in call.args)
        and any(ancestor is function for ancestor in source.ancestors(call))
        for call in source.nodes(ast.Call)
    )


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The single assignments of `a, b = x, y`."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def _changed_in_place(call: ast.Call) -> ast.expr | None:
    """`e.data` of `e.data.mul_(d).add_(p)` and of `torch.add(a, b, out=e.data)`, None for a call that changes no value."""
    out = next((k.value for k in call.keywords if k.arg == "out"), None)
    if out is not None:
        return out
    receiver: ast.expr = call
    while (
        isinstance(receiver, ast.Call)
        and isinstance(receiver.func, ast.Attribute)
        and receiver.func.attr.endswith("_")
        and receiver.func.attr.rstrip("_") not in SAME_VALUE
    ):
        receiver = receiver.func.value
    return None if receiver is call else receiver


# ---- the fix -------------------------------------------------------------------------------------------------------


def _fix(source: Source, loop: ast.For, average: Average) -> Proposal | None:
    """One call over two lists in place of the loop; None if they may not be plain floating tensors of one dtype."""
    pairs = _parameters_of_two_modules(loop)
    old, new = _root(average.average), _root(average.new)
    if pairs is None or not average.whole_body or old is None or new is None or {old, new} != set(pairs):
        return None
    if any(isinstance(node, (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)) for node in walk(loop)):
        return None  # none of them may stand in the lists
    if may_mix_types(source) or _read_elsewhere(source, loop) or not _pair_up(source, loop, pairs):
        return None
    if not all(is_plain_number(source, rate) for rate in average.rates):  # the operator takes no tensor as weight
        return None
    if source.neighbours is not None and source.neighbours.program_carries("mixed types"):
        return None
    if isinstance(average.new, ast.Name) and not in_no_grad(source, loop):  # the average would get a graph
        return None
    lists = [_list(source, node, name, pairs[name]) for node, name in ((average.average, old), (average.new, new))]
    function, imported = edit.name_for(source, "torch._foreach_lerp_")
    arguments = [*lists, average.weight]
    text = f"{function}({', '.join(arguments)})"
    indent = source.indent_of(loop)
    if len(indent) + len(text) > LONGEST_LINE:
        step = "\t" if "\t" in indent else "    "
        lines = "".join(f"{source.newline}{indent}{step}{argument}," for argument in arguments)
        text = f"{function}({lines}{source.newline}{indent})"
    edits = edit.together(edit.replace(source, loop, text), imported)
    if edits is None:
        return None
    changes = ("rounding", "aliasing") if average.rebinds else None
    return Proposal("average all parameters in one call, with a few kernels in all", edits, changes=changes)


def _parameters_of_two_modules(loop: ast.For) -> dict[str, ast.Call] | None:
    """The two loop variables with what they go over, for `for a, b in zip(x.parameters(), y.parameters())`."""
    zipped, target = loop.iter, loop.target
    if not (isinstance(zipped, ast.Call) and isinstance(zipped.func, ast.Name) and zipped.func.id == "zip"):
        return None
    only_strict = all(k.arg == "strict" for k in zipped.keywords)  # lists of unequal length raise in the patch as well
    if not only_strict or len(zipped.args) != 2 or not isinstance(target, ast.Tuple) or len(target.elts) != 2:
        return None
    pairs: dict[str, ast.Call] = {}
    for name, call in zip(target.elts, zipped.args, strict=True):
        is_parameters = (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "parameters"
        )
        if (
            not (isinstance(name, ast.Name) and isinstance(call, ast.Call) and is_parameters)
            or call.args
            or call.keywords
        ):
            return None
        pairs[name.id] = call
    return pairs if len(pairs) == 2 else None


def _root(node: ast.expr) -> str | None:
    """`p` of `p`, `p.data`, `p.detach()` and `p.data.detach()`; None for everything else."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach":
            node = node.func.value
        else:
            return None
    return node.id


def _list(source: Source, node: ast.expr, name: str, iterable: ast.Call) -> str:
    over = source.text_of(iterable)
    return f"list({over})" if isinstance(node, ast.Name) else f"[{source.text_of(node)} for {name} in {over}]"


def _pair_up(source: Source, loop: ast.For, pairs: dict[str, ast.Call]) -> bool:
    """Whether both lists are provably of one length; where they are not, `zip` drops the rest and the patch would raise."""
    strict = [k.value for k in loop.iter.keywords] if isinstance(loop.iter, ast.Call) else []
    if any(constant(source, value) is True for value in strict):
        return True
    modules = [call.func.value for call in pairs.values() if isinstance(call.func, ast.Attribute)]
    return len(modules) == 2 and have_same_structure(source, modules[0], modules[1])


def _read_elsewhere(source: Source, loop: ast.For) -> bool:
    """Whether a loop variable is read outside the loop, other than where another loop binds it."""
    for target in [n for n in walk(loop.target) if isinstance(n, ast.Name)]:
        for use in source.uses_of(target, target.id):
            if not any(a is loop or _binds(a, use.id) for a in source.ancestors(use)):
                return True
    return False


def _binds(node: ast.AST, name: str) -> bool:
    targets = [node.target] if isinstance(node, (ast.For, ast.comprehension)) else []
    targets += [generator.target for generator in getattr(node, "generators", [])]
    return any(isinstance(n, ast.Name) and n.id == name for target in targets for n in walk(target))
