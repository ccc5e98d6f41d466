"""Whether code needs the bias of a layer: reads it, sets it, or keeps the norm behind it from subtracting it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache

from perfaudit.expressions import regex
from perfaudit.static.checks.conv_bias_before_norm.flow import Layer
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.branches import branches
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.members import attributes
from perfaudit.static.understanding.values import is_false, resolve

_NO_LAYERS = {"self", "cls", "args", "opt", "cfg", "config", "hparams"}  # their `.bias` is no layer's
_NORM_NAME = regex(r"norm|bn", re.IGNORECASE)
_NORM_CLASS = regex(r"Norm(alization)?(\d?d)?$")
_INITIALISER = regex(
    r"init.*(weight|param|module|layer|net|model|conv|bias)|(weight|param|kaiming|xavier|normal|module)s?_init"
)
_FIRST_VALUES = {"zero_", "fill_", "normal_", "uniform_"}

ANY_LAYER = Layer(ast.Call(ast.Name(""), [], []))  # one that another file builds


def needs_bias(source: Source, layer: Layer, kind: str) -> bool:
    """Whether code of this file reads or sets the bias of this layer, or of some layer that may be this one.

    kind: the documented class of the layer.

    Code that first asks whether there is a bias does not need it.
    """
    return _is_named(source, layer) or bool(_reads_of(source, layer, kind))


def uses_bias(source: Source, layer: Layer, kind: str) -> bool:
    """As `needs_bias`, but for what only gives the bias its first value, which can go with it."""
    return _is_named(source, layer) or not all(
        _gives_first_value(source, read) for read in _reads_of(source, layer, kind)
    )


def _is_named(source: Source, layer: Layer) -> bool:
    """Whether a text of this file may be the key of the bias: "conv1.bias"."""
    key = rf"(^|\.){re.escape(layer.name)}\.bias$" if layer.name else r"\d\.bias$"
    return any(re.search(key, text) for text in _bias_reads(source)[1])


def first_value_of_bias(source: Source, layer: Layer, kind: str) -> ast.stmt | None:
    """The statement that gives the bias of this layer its first value as if it were there: `m.bias.data.zero_()`."""
    return next((source.statement(read) for read in _reads_of(source, layer, kind)), None)


def _reads_of(source: Source, layer: Layer, kind: str) -> list[ast.expr]:
    return [
        read
        for read, owner in _bias_reads(source)[0]
        if _may_be(source, owner, layer) and not _is_about_others(source, read, owner, kind)
    ]


def _gives_first_value(source: Source, read: ast.expr) -> bool:
    """Whether a read of `m.bias` is all of a statement such as `m.bias.data.zero_()` or `nn.init.constant_(m.bias, 0)`."""
    statement = source.statement(read)
    if not isinstance(statement, ast.Expr) or not isinstance(call := statement.value, ast.Call):
        return False
    if (source.qualified_name(call.func) or "").startswith("torch.nn.init."):
        given = call.args[0] if call.args else None
    elif isinstance(call.func, ast.Attribute) and call.func.attr in _FIRST_VALUES:
        given = call.func.value
    else:
        return False
    return (given.value if isinstance(given, ast.Attribute) and given.attr == "data" else given) is read


@remember
def _bias_reads(source: Source) -> tuple[list[tuple[ast.expr, ast.expr]], list[str]]:
    """Where some layer's bias is used as if it were there, each with the layer; and texts such as "conv1.bias"."""
    reads: list[tuple[ast.expr, ast.expr]] = [(node, node.value) for node in attributes(source).get("bias", [])]
    keys = []
    for text in source.nodes(ast.Constant):
        call = source.parent(text)
        if text.value == "bias" and isinstance(call, ast.Call) and source.text_of(call.func) == "getattr":
            reads.append((call, call.args[0]))
        elif isinstance(text.value, str) and text.value.endswith(".bias"):
            keys.append(text.value)
    return [(read, owner) for read, owner in reads if not _asks_for_bias(source, read, owner)], keys


def _may_be(source: Source, owner: ast.expr, layer: Layer) -> bool:
    """Whether `owner.bias` may be the bias of this layer."""
    if isinstance(owner, ast.Attribute):
        return owner.attr == layer.name
    if isinstance(owner, ast.Name):
        if owner.id in _NO_LAYERS or _NORM_NAME.search(owner.id):
            return False
        if (given := _always_given(source, owner)) is not None:
            return any(_may_be(source, layer_given, layer) for layer_given in given)
        built = resolve(source, owner)
        if isinstance(built, ast.Call) and (source.qualified_name(built.func) or "").startswith("torch.nn."):
            return built is layer.call
        # Imported here: few owners are variables.
        from perfaudit.static.checks.conv_bias_before_norm.holders import class_gone_through, may_hold

        gone_through = class_gone_through(source, owner)
        if layer is not ANY_LAYER and gone_through is not None:
            return may_hold(source, gone_through, layer.call)
    return True


def _always_given(source: Source, owner: ast.Name) -> list[ast.Attribute] | None:
    """The attributes that a parameter stands for, where every use of its function in this file is a call that gives one."""
    bindings = source.lookup(owner)
    parameter = bindings[0] if len(bindings) == 1 else None
    function = source.enclosing(owner, *FUNCTIONS)
    if not isinstance(parameter, ast.arg) or not isinstance(function, FUNCTIONS) or parameter.arg == "self":
        return None
    if source.parent(source.parent(parameter) or parameter) is not function:
        return None
    uses = attributes(source).get(function.name, []) + source.uses_of(function, function.name)
    calls = [call for use in uses if isinstance(call := source.parent(use), ast.Call) and call.func is use]
    given = [dict(arguments_of(call, function)).get(parameter.arg) for call in calls]
    found = [value for value in given if isinstance(value, ast.Attribute)]
    return found if found and len(found) == len(uses) else None


def _asks_for_bias(source: Source, read: ast.expr, owner: ast.expr) -> bool:
    """Whether the read is itself the question, or stands where the answer is that there is a bias.

    Not where more than the bias hangs on the answer: a layer without one is then initialised otherwise.
    """
    if _decides_more(source, read, owner):
        return False
    parent = source.parent(read)
    if isinstance(parent, ast.Compare) and isinstance(parent.comparators[0], ast.Constant):
        return parent.comparators[0].value is None
    if isinstance(parent, (ast.If, ast.IfExp)) and parent.test is read:
        return True
    if isinstance(parent, ast.Call) and source.text_of(parent.func) in ("isinstance", "hasattr"):
        return True
    text = re.escape(source.text_of(owner))
    bias = rf"(getattr\({text}, ?['\"]bias['\"], ?None\)|{text}\.bias)"
    there_is = rf"({bias}( is not None| != None)?|(isinstance|hasattr)\({bias}, .*\)|len\(list\({text}\.parameters\(\)\)\) > 1)$"
    if any(re.match(there_is, source.text_of(part)) for part in _conditions(source, read)):
        return True
    there_is_none = rf"(not {text}\.bias|{text}\.bias is None)$"
    return any(re.match(there_is_none, source.text_of(test)) for test in _ruled_out(source, read))


def _decides_more(source: Source, read: ast.expr, owner: ast.expr) -> bool:
    """Whether a test for the bias decides what is done with the layer's weights: `if m.bias is not None: init(m.weight)`."""
    asked = next((a for a in source.ancestors(read) if isinstance(a, (ast.stmt, ast.IfExp))), None)
    if not isinstance(asked, ast.If) or not any(node is read for node in ast.walk(asked.test)):
        return False
    text = source.text_of(owner)
    return any(
        isinstance(node, ast.Attribute) and node.attr == "weight" and source.text_of(node.value) == text
        for statement in (*asked.body, *asked.orelse)
        for node in ast.walk(statement)
    )


def _is_about_others(source: Source, read: ast.expr, owner: ast.expr, kind: str) -> bool:
    """Whether a condition around the read keeps it from this kind of layer: `isinstance(m, nn.ConvTranspose2d)`."""
    text = source.text_of(owner)
    if any(_excludes(source, part, text, kind) for part in _conditions(source, read)):
        return True
    return any(_includes(source, test, text, kind) for test in _failed_tests(source, read))


def _failed_tests(source: Source, node: ast.expr) -> Iterator[ast.expr]:
    """Every test that failed where the node is evaluated: it stands in the `else` or `elif` of it."""
    for condition, side in branches(source, node):
        if side is False and isinstance(condition, (ast.If, ast.IfExp)):
            yield condition.test


def _includes(source: Source, test: ast.expr, owner: str, kind: str) -> bool:
    """Whether a test is `isinstance(owner, …)` with this kind of layer among the classes, and nothing else."""
    if not (isinstance(test, ast.Call) and source.text_of(test.func) == "isinstance" and len(test.args) == 2):
        return False
    classes = test.args[1]
    items = classes.elts if isinstance(classes, (ast.Tuple, ast.List, ast.Set)) else [classes]
    names = {source.qualified_name(item) or "" for item in items}
    return source.text_of(test.args[0]) == owner and bool(names & {kind, "torch.nn.Module"})


def _excludes(source: Source, test: ast.expr, owner: str, kind: str) -> bool:
    if isinstance(test, ast.BoolOp):
        each = [_excludes(source, part, owner, kind) for part in test.values]
        return any(each) if isinstance(test.op, ast.And) else all(each)
    if (
        isinstance(test, ast.Call)
        and isinstance(test.func, ast.Name)
        and test.func.id == "isinstance"
        and len(test.args) == 2
    ):
        return source.text_of(test.args[0]) == owner and _are_others(source, test.args[1], kind)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    left, right, operator = test.left, test.comparators[0], test.ops[0]
    if source.text_of(left) == f"type({owner})" and isinstance(operator, (ast.Eq, ast.Is, ast.In)):
        return _are_others(source, right, kind)
    class_name = kind.rpartition(".")[2]
    if isinstance(operator, (ast.In, ast.Eq)):  # "BatchNorm" in classname, classname == "Linear"
        texts = [c.value for c in (left, right) if isinstance(c, ast.Constant) and isinstance(c.value, str)]
        names_class = re.search("class|__name__", source.text_of(test))  # not a path in the model, such as "fc.bias"
        return len(texts) == 1 and names_class is not None and texts[0] not in class_name
    if isinstance(left, ast.Call) and isinstance(left.func, ast.Attribute) and left.func.attr == "find" and left.args:
        sought = left.args[0]  # classname.find("BatchNorm") != -1
        is_there = source.text_of(test).endswith(("!= -1", ">= 0", "> -1"))
        names_class = re.search("class|__name__", source.text_of(left.func))
        if not is_there or names_class is None or not isinstance(sought, ast.Constant):
            return False
        return str(sought.value) not in class_name
    return False


def _are_others(source: Source, classes: ast.expr, kind: str) -> bool:
    """Whether an expression names classes of torch, or of norms by their names, and the layer is of none of them."""
    items = classes.elts if isinstance(classes, (ast.Tuple, ast.List, ast.Set)) else [classes]
    for item in items:
        name = source.qualified_name(item) or ""
        written = source.text_of(item).rpartition(".")[2]
        if not name.startswith("torch.nn."):
            if not _NORM_CLASS.search(written) or re.search("conv|linear|block|layer$", written, re.IGNORECASE):
                return False
        elif name in (kind, "torch.nn.Module") or "_ConvNd" in name:
            return False
    return True


def _conditions(source: Source, node: ast.expr) -> Iterator[ast.expr]:
    """Everything that is true where the node is evaluated: tests around it, split at `and`."""
    for condition, side in branches(source, node):
        if side and isinstance(condition, (ast.If, ast.IfExp)):
            yield from _parts(condition.test)
    child: ast.AST = node
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return
        if isinstance(ancestor, ast.BoolOp) and isinstance(ancestor.op, ast.And):
            for operand in ancestor.values:
                if operand is child:
                    break
                yield operand
        elif isinstance(ancestor, (ast.ListComp, ast.SetComp, ast.GeneratorExp)) and child is ancestor.elt:
            for generator in ancestor.generators:
                for test in generator.ifs:
                    yield from _parts(test)
        child = ancestor


def _ruled_out(source: Source, node: ast.expr) -> Iterator[ast.expr]:
    """Everything that is false where the node is evaluated, because an earlier `if …: continue` left for it."""
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, FUNCTIONS):
            return
        for earlier in source.block(ancestor) if isinstance(ancestor, ast.stmt) else ():
            if earlier is ancestor:
                break
            if isinstance(earlier, ast.If) and isinstance(earlier.body[-1], (ast.Return, ast.Continue)):
                yield earlier.test


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for value in test.values:
            yield from _parts(value)
    else:
        yield test


def freezes_norms(source: Source) -> bool:
    """Whether norms alone are put into evaluation mode: then they subtract an old mean, and the bias counts."""
    calls = [*source.calls(".eval"), *(c for c in source.calls(".train") if c.args and is_false(source, c.args[0]))]
    for call in calls:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else call
        if any(_NORM_NAME.search(source.text_of(part)) for part in (owner, *_conditions(source, call))):
            return True
    return False


def unseen_initialiser(source: Source, layer: ast.Call | None = None) -> str | None:
    """A function of another module that initialises layers here; what it does with a missing bias is not seen.

    layer: the call that builds the layer; then not one that is only given parts of an object that cannot hold it.
    """
    for name, call in _unseen_initialisers(source):
        from perfaudit.static.checks.conv_bias_before_norm.holders import may_hold

        definition = source.enclosing(call, ast.ClassDef)
        is_own = isinstance(definition, ast.ClassDef) and _is_given_own(call)
        if layer is None or not is_own or may_hold(source, definition, layer):  # type: ignore[arg-type]  # is_own says so
            return name
    return None


def _is_given_own(call: ast.Call) -> bool:
    """Whether a call is given `self` or parts of it and nothing else that has layers, or is a method of one: `self.apply(f)`."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if isinstance(call.func, ast.Attribute) and call.func.attr == "apply":
        return _is_part_of_self(call.func.value)
    return bool(given) and all(_is_part_of_self(value) or isinstance(value, ast.Constant) for value in given)


def _is_part_of_self(node: ast.expr) -> bool:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "self"


@remember
def _unseen_initialisers(source: Source) -> tuple[tuple[str, ast.Call], ...]:
    found = []
    here = {function.name for function in source.nodes(ast.FunctionDef)}
    here |= {name for name, nodes in attributes(source).items() if any(isinstance(n.ctx, ast.Store) for n in nodes)}
    for call in source.nodes(ast.Call):
        is_applied = re.search(r"(^|[._])[a-z]\w*(\(\))?\.apply$", source.text_of(call.func)) and len(call.args) == 1
        function = call.args[0] if is_applied else call.func  # of a module, not of a `Function.apply(x)`
        module, _, name = (source.qualified_name(function) or source.text_of(function)).rpartition(".")
        if module.partition(".")[0] == "torch" or name in here or not isinstance(function, (ast.Name, ast.Attribute)):
            continue
        if _INITIALISER.search(name.lower()) or is_applied:
            found.append((source.text_of(function), call))
    return tuple(found)


@cache  # one per question; the same function again, by which the project keeps its answers
def sets_biases_of(kind: str, of_own: bool | None = None) -> Callable[[Source], bool]:
    """Whether a file sets the biases of layers it did not build, of this kind among them, without asking for one.

    of_own: True for a class that goes through its own layers alone, which may be those of a class of another file; False
    for what may be given any model; None for both.
    """

    def holds(source: Source) -> bool:
        return _sets_biases(source, kind, of_own)

    holds.__qualname__ = f"sets_biases_of({kind}, {of_own})"
    return holds


def sets_biases(source: Source) -> bool:
    """Whether a file sets the biases of layers of any kind that it did not build: it does wherever `sets_biases_of` holds."""
    return any(
        isinstance(owner, ast.Name)
        and _may_be(source, owner, ANY_LAYER)
        and (_is_set(source, read) or _decides_more(source, read, owner))
        for read, owner in _bias_reads(source)[0]
    )


def reads_its_command_line(source: Source) -> bool:
    """Whether a file reads the arguments of the command line as it is run, so that it is a script and no module of others."""
    return any(
        all(
            isinstance(around, (ast.Assign, ast.Expr, ast.Call, ast.Attribute, ast.Module))
            for around in source.ancestors(call)
        )
        for call in source.calls(".parse_args")
        if not call.args and not call.keywords
    )


def _sets_biases(source: Source, kind: str, of_own: bool | None) -> bool:
    return any(
        isinstance(owner, ast.Name)
        and _may_be(source, owner, ANY_LAYER)
        and (of_own is None or of_own is _is_met_alone(source, owner))
        and not _is_about_others(source, read, owner, kind)
        and (_is_set(source, read) or _decides_more(source, read, owner))
        for read, owner in _bias_reads(source)[0]
    )


def _is_met_alone(source: Source, owner: ast.Name) -> bool:
    """Whether the variable stands for layers of one class only, which holds none that somebody hands it."""
    from perfaudit.static.checks.conv_bias_before_norm.holders import class_gone_through, is_closed

    definition = class_gone_through(source, owner)
    return definition is not None and is_closed(source, definition)


def _is_set(source: Source, read: ast.expr) -> bool:
    """`m.bias.data.zero_()`, `m.bias.fill_(0)`, `init.zeros_(m.bias)`, `m.bias.data = …`."""
    around = [node for node, _ in zip(source.ancestors(read), range(3), strict=False)]
    names = {node.attr for node in around if isinstance(node, ast.Attribute)}
    names |= {source.text_of(node.func).rpartition(".")[2] for node in around if isinstance(node, ast.Call)}
    return "data" in names or any(name.endswith("_") for name in names)
