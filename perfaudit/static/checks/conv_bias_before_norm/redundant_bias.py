"""Layers with a bias that the norm behind them subtracts again; for convolutions and linear layers alike."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from perfaudit.records import NamedTuple
from perfaudit.static import edit
from perfaudit.static.checks.conv_bias_before_norm.bias_uses import (
    first_value_of_bias,
    freezes_norms,
    reads_its_command_line,
    sets_biases,
    sets_biases_of,
    unseen_initialiser,
    uses_bias,
)
from perfaudit.static.checks.conv_bias_before_norm.flow import Layer, Link, links
from perfaudit.static.checks.conv_bias_before_norm.wrapped_layers import wrapper_built
from perfaudit.static.registry import Proposal, Seen, hint_if
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.branches import Where, is_steady, text_where_all, text_where_none
from perfaudit.static.understanding.defaults import default, default_class, is_false_at_calls, written_default
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import (
    ABSENT,
    UNKNOWN,
    Argument,
    argument,
    assigned_value,
    constant,
    is_false,
    resolve,
)

_NORMS = {f"torch.nn.{kind}Norm{n}d" for kind in ("Batch", "Instance") for n in (1, 2, 3)} | {"torch.nn.SyncBatchNorm"}

Fits = Callable[[str, ast.Call, str, ast.Call], bool]  # kind and call of the layer, kind and call of the norm

Doubt = Callable[[Source, ast.Call], str]  # the layer's call


class _Biased(NamedTuple):
    """A call that gives a layer its bias: the layer's own, or that of a function of this file that hands it on.

    `value` is the literal True, or ABSENT, or a parameter that is True by default, or a variable that is true where a
    parameter is an InstanceNorm, of which `only_for` has the kind and the parameter. `uses`: how many calls the one place
    serves. `is_shared`: other files may call it too.
    """

    call: ast.Call
    kind: str
    layer: ast.Call
    value: Argument
    uses: int = 1
    is_shared: bool = False
    only_for: tuple[str, ast.AST] | None = None


def biases_before_norm(
    source: Source, positions: Mapping[str, int], fits: Fits, doubt: Doubt | None = None
) -> Iterator[Seen]:
    """Every place that gives a layer a bias in vain.

    positions: the kinds of layers, by documented name, with the place of the parameter `bias`. doubt: the condition
    under which the bias of a layer is in vain, in words, where the file does not show it; "" where it does.
    """
    found: dict[int, tuple[_Biased, list[Link]]] = {}
    for link in links(source, _norms_built(source)):
        biased = _layer_with_bias(source, link.first.call, positions)
        if biased is None:
            continue
        norm_kind = kind_of(source, link.second.call) or _default_kind(source, link.second.call)
        if biased.only_for is not None:
            norm_kind, parameter = biased.only_for
            if not isinstance(norm := link.second.call.func, ast.Name) or source.lookup(norm) != [parameter]:
                continue
        if not fits(biased.kind, biased.layer, norm_kind, link.second.call):
            continue
        if constant(source, argument(source, link.second.call, "momentum", 2)) == 0:  # the mean never takes it up
            continue
        found.setdefault(id(biased.call), (biased, []))[1].append(link)
    if not found or freezes_norms(source):
        return
    for biased, joined in found.values():
        sites = {id(link.first.call) for link in joined}
        if len(sites) < biased.uses or any(uses_bias(source, link.first, biased.kind) for link in joined):
            continue
        alternatives: list[Where] = [link.where for link in joined]
        if biased.uses > 1 and any(alternatives):
            continue
        proposal = _proposal(source, biased, joined, alternatives)
        condition = doubt(source, biased.layer) if doubt is not None else ""
        if condition and proposal.edits:
            proposal = Proposal(f"{proposal.title}, if {condition}")
        is_hint = all(_never_holds(source, where) for where in alternatives)
        yield Seen(biased.call, _message(source, biased, joined), proposal, severity=hint_if(is_hint))


def _never_holds(source: Source, where: Where) -> bool:
    """Whether a condition asks for a parameter that is False by default, and that no call in sight makes anything else."""
    for test, side in where:
        if side and is_false_at_calls(source, test):
            return True
        found = default(source, test) if side and isinstance(test, ast.Name) else None
        if found is not None and found.value is False and _is_called(source, test):
            return True
    return False


def _is_called(source: Source, parameter: ast.expr) -> bool:
    """Whether a call of the function of a parameter, or of the class that it initialises, is in sight."""
    bound = source.lookup(parameter) if isinstance(parameter, ast.Name) else []
    function = source.enclosing(bound[0], *FUNCTIONS) if len(bound) == 1 and isinstance(bound[0], ast.arg) else None
    if not isinstance(function, FUNCTIONS):
        return False
    owner = source.parent(function)
    name = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
    if any(last_name(call.func) == name for call in source.nodes(ast.Call)):
        return True
    return source.neighbours is not None and source.neighbours.is_called_by_importers(name)


def kind_of(source: Source, call: ast.Call) -> str:
    """The documented name of what a call builds, through one local alias (`norm = nn.BatchNorm2d`)."""
    return source.qualified_name(call.func) or source.qualified_name(resolve(source, call.func)) or ""


def _default_kind(source: Source, call: ast.Call) -> str:
    """The documented name of what a call builds by the default of a parameter: `def __init__(…, norm=nn.BatchNorm2d)`."""
    default = default_class(source, call.func)
    return (source.qualified_name(default) or "") if default is not None else ""


@remember
def _norms_built(source: Source) -> frozenset[int]:
    """Ids of the calls that may build a norm that subtracts a mean over the batch or the positions."""
    named = {id(call) for kind in _NORMS for call in source.calls(kind)}
    bound = source.names_stored | {node.arg for node in source.nodes(ast.arg)}
    others = (call for call in source.nodes(ast.Call) if isinstance(call.func, ast.Name) and call.func.id in bound)
    return frozenset(named | {id(call) for call in others if _may_be_norm(source, call)})


def _may_be_norm(source: Source, call: ast.Call) -> bool:
    """Whether a variable or parameter that is called stands for such a norm, a parameter by its default."""
    kind = kind_of(source, call)
    if not kind and (default := written_default(source, call.func)) is not None:
        kind = source.qualified_name(default) or ""
    return kind in _NORMS


# ---- where a layer gets its bias --------------------------------------------------------------------------------------


def _layer_with_bias(source: Source, call: ast.Call, positions: Mapping[str, int]) -> _Biased | None:
    kind = kind_of(source, call)
    if kind in positions:
        value = true_or_absent(source, call, positions[kind])
        if value is None:
            place = positions[kind]
            return _for_instance_norm(source, call, kind, place) or _true_by_default(source, call, kind, place)
        return _Biased(call, kind, call, value)
    wrapper = wrapper_built(source, call, positions)
    if wrapper is not None:
        value = _asked_for(source, call, wrapper.constructor, wrapper.bias, wrapper.source)
        return _Biased(call, wrapper.kind, call, value) if value is not None else None
    if not isinstance(call.func, ast.Name):
        return None
    bindings = source.lookup(call.func)
    definition = bindings[0] if len(bindings) == 1 else None
    if isinstance(definition, ast.ClassDef):
        return _subclass(source, call, definition, positions)
    return _handed_on(source, call, definition, positions) if isinstance(definition, FUNCTIONS) else None


def true_or_absent(source: Source, call: ast.Call, position: int) -> Argument | None:
    """The bias that a call asks for by leaving it out or saying True; None where it is not sure to get one.

    A dict that says True may serve other calls.
    """
    bias = argument(source, call, "bias", position)
    if bias is ABSENT:
        return bias
    is_true = isinstance(bias, ast.Constant) and bias.value is True
    return bias if is_true and source.enclosing(bias, ast.Call) is call else None  # type: ignore[arg-type]  # a constant


def _for_instance_norm(source: Source, call: ast.Call, kind: str, position: int) -> _Biased | None:
    """A layer whose bias is there where a parameter is an InstanceNorm: `bias=use_bias`, `use_bias = norm == nn.InstanceNorm2d`.

    `norm.func` is the same of one that `functools.partial` has wrapped.
    """
    bias = argument(source, call, "bias", position)
    if not isinstance(bias, ast.Name) or source.enclosing(bias, ast.Call) is not call:
        return None
    kinds: set[str] = set()
    parameters: list[ast.AST] = []
    for binding in source.lookup(bias):
        value = assigned_value(source, binding)
        if not isinstance(value, ast.Compare) or len(value.ops) != 1 or not isinstance(value.ops[0], ast.Eq):
            return None
        norm = value.left.value if isinstance(value.left, ast.Attribute) and value.left.attr == "func" else value.left
        if not isinstance(norm, ast.Name):
            return None
        kinds.add(source.qualified_name(value.comparators[0]) or "")
        parameters += source.lookup(norm)
    if len(kinds) != 1 or not (only := next(iter(kinds))).startswith("torch.nn.InstanceNorm"):
        return None
    if not isinstance(parameters[0], ast.arg) or any(other is not parameters[0] for other in parameters):
        return None
    return _Biased(call, kind, call, bias, only_for=(only, parameters[0]))


def _true_by_default(source: Source, call: ast.Call, kind: str, position: int) -> _Biased | None:
    """A layer whose bias is a parameter around it that is True by default, and that no call in sight passes."""
    bias = argument(source, call, "bias", position)
    if not isinstance(bias, ast.Name) or source.enclosing(bias, ast.Call) is not call:
        return None
    found = default(source, bias)
    return _Biased(call, kind, call, bias) if found is not None and found.value is True else None


def _subclass(source: Source, call: ast.Call, definition: ast.ClassDef, positions: Mapping[str, int]) -> _Biased | None:
    """A layer of a class of this file that changes how torch's layer is built or run, but not what its bias does."""
    kind = source.qualified_name(definition.bases[0]) if len(definition.bases) == 1 else None
    methods = {item.name: item for item in definition.body if isinstance(item, FUNCTIONS)}
    if kind is None or kind not in positions or set(methods) - {"forward", "reset_parameters", "extra_repr"}:
        return None
    if "forward" in methods and not all(
        _adds_bias_last(source, node) for node in _return_values(source, methods["forward"])
    ):
        return None
    value = true_or_absent(source, call, positions[kind])
    return _Biased(call, kind, call, value) if value is not None else None


def _adds_bias_last(source: Source, value: ast.expr | None) -> bool:
    """`return super().forward(x)` or `return F.conv2d(x, weight, self.bias)`."""
    if not isinstance(value, ast.Call):
        return False
    name = source.qualified_name(value.func) or source.text_of(value.func)
    known = name.startswith(("torch.nn.functional.conv", "torch.nn.functional.linear"))
    return known or name in ("super().forward", "self._conv_forward")


def _handed_on(source: Source, site: ast.Call, function: Function, positions: Mapping[str, int]) -> _Biased | None:
    """The layer that a function of this file does nothing but build: `return nn.Conv2d(…)`."""
    returned = _return_values(source, function)
    layer = returned[0] if len(returned) == 1 else None
    if not isinstance(layer, ast.Call) or function.decorator_list:
        return None
    kind = kind_of(source, layer)
    if kind not in positions or source.parent(layer) is not function.body[-1]:
        return None
    bias = argument(source, layer, "bias", positions[kind])
    if isinstance(bias, ast.Name):
        value = _asked_for(source, site, function, bias.id)
        return _Biased(site, kind, layer, value) if value is not None else None
    value = true_or_absent(source, layer, positions[kind])
    if value is None:
        return None
    is_method = isinstance(source.parent(function), ast.ClassDef)
    if is_method:
        return None
    uses = source.uses_of(function, function.name)
    return _Biased(layer, kind, layer, value, len(uses), is_shared=source.parent(function) is source.tree)


def _asked_for(
    source: Source, site: ast.Call, function: Function, name: str, of_class_in: Source | None = None
) -> Argument | None:
    """The bias that a call of a function asks for: ABSENT where the parameter is True by itself.

    of_class_in: the file of a class whose constructor the function is, where it is one.
    """
    positional = [*function.args.posonlyargs, *function.args.args]
    names = [a.arg for a in positional]
    defaults: dict[str, ast.expr | None] = {}
    defaults.update(zip(reversed(names), reversed(function.args.defaults), strict=False))
    defaults.update({a.arg: d for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)})
    bindings = (of_class_in or source).bound_in(function).get(name, [])
    if name not in defaults or len(bindings) != 1:
        return None
    place = names.index(name) - (of_class_in is not None) if name in names else None  # a constructor's first is `self`
    passed = argument(source, site, name, place)
    if passed is UNKNOWN:
        return None
    asked = defaults[name] if passed is ABSENT else passed
    if not (isinstance(asked, ast.Constant) and asked.value is True):
        return None
    return passed


def _return_values(source: Source, function: Function) -> list[ast.expr | None]:
    return [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and source.scope(n) is function]


# ---- what is said of it ----------------------------------------------------------------------------------------------


def _message(source: Source, biased: _Biased, joined: list[Link]) -> str:
    link = joined[0]
    conditions = [link.where for link in joined]
    under = ""
    if joined and biased.only_for is not None:
        under = f", which is `nn.{biased.only_for[0].rpartition('.')[2]}` wherever there is a bias"
    elif text_where_none(source, conditions) != "False":
        under = f" where `{' or '.join(text_where_all(source, where) for where in conditions)}`"
    elif by_default := _by_default(source, joined):
        under = f" where {by_default}"
    elif isinstance(biased.value, ast.Name):
        under = f" where `{biased.value.id}` is True, its default"
    first = _as_written(source, link.first) if biased.uses == 1 else source.brief(biased.call)
    norms = " and ".join(dict.fromkeys(f"`{_as_written(source, link.second)}`" for link in joined[:3]))
    return f"the bias of `{first}` is subtracted again by {norms}{under}: it costs memory traffic and changes nothing"


def _by_default(source: Source, joined: list[Link]) -> str:
    """`norm` is `nn.BatchNorm2d`, in words: what the norm is unless a caller that is not seen passes another; "" if sure."""
    for link in joined:
        call = link.second.call
        if not kind_of(source, call) and (default := default_class(source, call.func)) is not None:
            return f"`{source.text_of(call.func)}` is `{source.text_of(default)}`, its default"
    return ""


def _proposal(source: Source, biased: _Biased, joined: list[Link], alternatives: list[Where]) -> Proposal:
    value = text_where_none(source, alternatives)
    title = f"pass `bias={value}`"
    if biased.only_for is not None and value != "False":
        return Proposal("pass `bias=False` where the norm follows")
    if (by_default := _by_default(source, joined)) and biased.only_for is None:
        return Proposal(f"pass `bias=False` where {by_default}; another norm may need the bias")
    if not all(is_steady(source, test, biased.call) for where in alternatives for test, _ in where):
        return Proposal("pass `bias=False` where the norm follows")
    for setting in filter(None, (first_value_of_bias(source, link.first, biased.kind) for link in joined)):
        return Proposal(f"{title}, and leave the bias out where `{source.brief(setting)}` sets it")
    initialiser = unseen_initialiser(source, biased.layer)
    if initialiser is not None:
        return Proposal(f"{title}, if `{initialiser}` leaves a missing bias alone")
    elsewhere = _initialised_elsewhere(source, biased.kind)
    if elsewhere:
        return Proposal(
            f"{title}, if what `{elsewhere.rpartition('/')[2]}` does with biases leaves a missing one alone"
        )
    if loads := _loads_published_weights(source):
        return Proposal(
            f"{title}, with the biases of what `{loads}` brings folded into the norms: as it is, loading it fails"
        )
    if biased.is_shared:
        return Proposal(f"{title}, if every other file that calls this function puts a norm behind it too")
    if "\n" in value:
        return Proposal("pass `bias=False` where the norm follows")
    if isinstance(biased.value, ast.expr):
        return Proposal(title, edit.replace(source, biased.value, value))
    return Proposal(title, edit.add_keyword(source, biased.call, "bias", value))


def _loads_published_weights(source: Source) -> str:
    """How the file of a model downloads weights for it, or a model loads its own when it is built, as a call; "" if none does,
    or takes them as far as they fit.
    """
    strict = [
        call for call in source.calls(".load_state_dict") if not is_false(source, argument(source, call, "strict", 1))
    ]
    downloads = [*source.calls("torch.hub.load_state_dict_from_url"), *source.calls("torch.utils.model_zoo.load_url")]
    when_built = [call for call in strict if _is_own_in_init(source, call)]
    found = downloads if downloads and strict else when_built
    return source.brief(found[0]) if found else ""


def _is_own_in_init(source: Source, call: ast.Call) -> bool:
    """`self.load_state_dict(torch.load(path))` in `__init__`."""
    function = source.enclosing(call, *FUNCTIONS)
    is_own = isinstance(call.func, ast.Attribute) and source.text_of(call.func.value) == "self"
    return is_own and isinstance(function, FUNCTIONS) and function.name == "__init__"


def _initialised_elsewhere(source: Source, kind: str) -> str:
    """Another file that sets the bias of layers and may meet this one; "" if none.

    A class that goes through its own layers meets those of files that it imports, or of a class derived from it. A script that
    nobody imports meets those of the files that it imports.
    """
    if source.neighbours is None:
        return ""
    any_model = source.neighbours.some_file(
        "bias", sets_biases_of(kind, of_own=False), sets_biases, apart=reads_its_command_line
    )
    return any_model or source.neighbours.some_relative("bias", sets_biases_of(kind, of_own=True), sets_biases)


def _as_written(source: Source, layer: Layer) -> str:
    statement = source.parent(layer.call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return source.text_of(target) if target is not None else source.brief(layer.call)
