"""PA201: a convolution with a bias that the norm behind it subtracts again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from perfaudit.static import edit
from perfaudit.static.flow import Layer, Link, attributes, branches, links
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.values import ABSENT, Argument, argument, constant, is_false, resolve

BIAS = 7  # position of the parameter in every convolution, plain or transposed, of every torch since 1.0

CONVOLUTIONS = {f"torch.nn.Conv{t}{n}d": n for t in ("", "Transpose") for n in (1, 2, 3)}
NORMS: dict[str, int | None] = {f"torch.nn.{kind}Norm{n}d": n for kind in ("Batch", "Instance") for n in (1, 2, 3)}
NORMS["torch.nn.SyncBatchNorm"] = None  # takes any number of dimensions

_NO_LAYERS = {"self", "cls", "args", "opt", "cfg", "config", "hparams"}  # their `.bias` is no convolution's
_NORM_NAME = re.compile(r"norm|bn", re.IGNORECASE)
_INITIALISER = re.compile(
    r"init.*(weight|param|module|layer|net|model|conv|bias)|(weight|param|kaiming|xavier|normal|module)s?_init"
)


@check("PA201", ast.Module)
def conv_bias_before_norm(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not any(source.calls(name) for name in CONVOLUTIONS) or _freezes_norms(source):
        return
    for link in links(source):
        convolution, norm = link.first.call, link.second.call
        dimensions = CONVOLUTIONS.get(_kind(source, convolution))
        if dimensions is None or NORMS.get(_kind(source, norm), 0) not in (dimensions, None):
            continue
        if constant(source, argument(source, norm, "momentum", 2)) == 0:  # the running mean never takes the bias up
            continue
        bias = argument(source, convolution, "bias", BIAS)
        if bias is not ABSENT and not _is_written_true(source, bias, convolution):
            continue
        if _needs_bias(source, link.first):
            continue
        yield Seen(convolution, _message(source, link), _proposal(source, link, bias))


def _is_written_true(source: Source, bias: Argument, convolution: ast.Call) -> bool:
    """Whether the call itself says True; a dict that says so may serve other calls."""
    is_true = isinstance(bias, ast.Constant) and bias.value is True
    return is_true and source.enclosing(bias, ast.Call) is convolution  # type: ignore[arg-type]  # a constant


def _message(source: Source, link: Link) -> str:
    under = "" if link.flag is None else f" where `{source.text_of(link.flag)}` is true"
    first, second = (_as_written(source, layer) for layer in (link.first, link.second))
    again = f"the bias of `{first}` is subtracted again by `{second}`{under}"
    return f"{again}: it costs memory traffic and changes nothing"


def _proposal(source: Source, link: Link, bias: Argument) -> Proposal:
    value = "False" if link.flag is None else f"not {source.text_of(link.flag)}"
    initialiser = _unseen_initialiser(source)
    if initialiser is not None:
        return Proposal(f"pass `bias={value}`, if `{initialiser}` leaves a missing bias alone")
    if isinstance(bias, ast.expr):
        return Proposal(f"pass `bias={value}`", edit.replace(source, bias, value))
    return Proposal(f"pass `bias={value}`", edit.add_keyword(source, link.first.call, "bias", value))


def _as_written(source: Source, layer: Layer) -> str:
    statement = source.parent(layer.call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return source.text_of(target) if target is not None else source.brief(layer.call)


def _kind(source: Source, call: ast.Call) -> str:
    """The documented name of what a call builds, through one local alias (`norm = nn.BatchNorm2d`)."""
    return source.qualified(call.func) or source.qualified(resolve(source, call.func)) or ""


# ---- code that needs the bias ----------------------------------------------------------------------------------------


def _needs_bias(source: Source, convolution: Layer) -> bool:
    """Whether code of this file reads or sets the bias of this convolution, or of some layer that may be this one.

    Code that first asks whether there is a bias does not need it.
    """
    key = rf"(^|\.){re.escape(convolution.name)}\.bias$" if convolution.name else r"\d\.bias$"
    reads, keys = _bias_reads(source)
    return any(re.search(key, text) for text in keys) or any(
        _may_be(source, owner, convolution) and not _is_about_others(source, read, owner, convolution)
        for read, owner in reads
    )


@lru_cache(maxsize=2)
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


def _may_be(source: Source, owner: ast.expr, convolution: Layer) -> bool:
    """Whether `owner.bias` may be the bias of this convolution."""
    if isinstance(owner, ast.Attribute):
        return owner.attr == convolution.name
    if isinstance(owner, ast.Name):
        if owner.id in _NO_LAYERS or _NORM_NAME.search(owner.id):
            return False
        built = resolve(source, owner)
        if isinstance(built, ast.Call) and (source.qualified(built.func) or "").startswith("torch.nn."):
            return built is convolution.call
    return True


def _asks_for_bias(source: Source, read: ast.expr, owner: ast.expr) -> bool:
    """Whether the read is itself the question, or stands where the answer is that there is a bias."""
    parent = source.parent(read)
    if isinstance(parent, ast.Compare) and isinstance(parent.comparators[0], ast.Constant):
        return parent.comparators[0].value is None
    if isinstance(parent, (ast.If, ast.IfExp)) and parent.test is read:
        return True
    if isinstance(parent, ast.Call) and source.text_of(parent.func) == "isinstance":
        return True
    text = re.escape(source.text_of(owner))
    bias = rf"(getattr\({text}, ?['\"]bias['\"], ?None\)|{text}\.bias)"
    there_is = rf"({bias}( is not None| != None)?|isinstance\({bias}, .*\))$"
    if any(re.match(there_is, source.text_of(part)) for part in _conditions(source, read)):
        return True
    there_is_none = rf"(not {text}\.bias|{text}\.bias is None)$"
    return any(re.match(there_is_none, source.text_of(test)) for test in _ruled_out(source, read))


def _is_about_others(source: Source, read: ast.expr, owner: ast.expr, convolution: Layer) -> bool:
    """Whether a condition around the read keeps it from this kind of convolution: `isinstance(m, nn.Linear)`."""
    kind = _kind(source, convolution.call)
    return any(_excludes(source, part, source.text_of(owner), kind) for part in _conditions(source, read))


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
    """Whether an expression names classes of torch, and the convolution is of none of them."""
    items = classes.elts if isinstance(classes, (ast.Tuple, ast.List, ast.Set)) else [classes]
    names = [source.qualified(item) or "" for item in items]
    return all(
        name.startswith("torch.nn.") and name not in (kind, "torch.nn.Module") and "_ConvNd" not in name
        for name in names
    )


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


def _freezes_norms(source: Source) -> bool:
    """Whether norms alone are put into evaluation mode: then they subtract an old mean, and the bias counts."""
    calls = [*source.calls(".eval"), *(c for c in source.calls(".train") if c.args and is_false(source, c.args[0]))]
    for call in calls:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else call
        if any(_NORM_NAME.search(source.text_of(part)) for part in (owner, *_conditions(source, call))):
            return True
    return False


@lru_cache(maxsize=2)
def _unseen_initialiser(source: Source) -> str | None:
    """A function of another module that initialises layers here; what it does with a missing bias is not seen."""
    here = {function.name for function in source.nodes(ast.FunctionDef)}
    here |= {name for name, nodes in attributes(source).items() if any(isinstance(n.ctx, ast.Store) for n in nodes)}
    for call in source.nodes(ast.Call):
        is_applied = re.search(r"(^|[._])[a-z]\w*(\(\))?\.apply$", source.text_of(call.func)) and len(call.args) == 1
        function = call.args[0] if is_applied else call.func  # of a module, not of a `Function.apply(x)`
        module, _, name = (source.qualified(function) or source.text_of(function)).rpartition(".")
        if module.partition(".")[0] == "torch" or name in here or not isinstance(function, (ast.Name, ast.Attribute)):
            continue
        if _INITIALISER.search(name.lower()) or is_applied:
            return source.text_of(function)
    return None
