"""What an option, a setting or a parameter of loaders is by default, as the other files of the program say it."""

from __future__ import annotations

import ast

from perfaudit.static.project.loader_marks import declares, sets
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.built_by_settings import is_given_by_settings
from perfaudit.static.understanding.calls_by_name import calls_by_derived, calls_in_sight
from perfaudit.static.understanding.configured_values import configured_value, given_by_settings
from perfaudit.static.understanding.defaults import Default, default, default_expression, destination, is_of_options
from perfaudit.static.understanding.loaders import given_to
from perfaudit.static.understanding.members import is_own
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, Argument, argument, assigned_value, constant

_FOLLOW = 4  # names and calls followed to an option
_METHODS = {"staticmethod", "classmethod"}


def default_in_program(source: Source, node: Argument, depth: int = _FOLLOW) -> Default | None:
    """What an expression is unless somebody says otherwise, where other files say so; None where that cannot be told.

    Of an option that a file of the program declares for the command line; of a field of a class of settings; of what its
    configuration says; of a parameter, where every call in sight leaves it out or hands such a thing on, all of one value. There
    is no literal to edit.
    """
    if not isinstance(node, ast.expr) or not depth:
        return None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and len(node.args) == 1:
        return default_in_program(source, node.args[0], depth)
    if isinstance(node, ast.Attribute):
        if (parameter := _hyperparameter(source, node)) is not None:
            return _parameter_given(source, parameter, depth)
        found = (
            _declared_option(source, node) or _field_of_class(source, node, depth) or _constant_of_module(source, node)
        )
        return found or _attribute_of_object(source, node, depth) or configured_value(source, node)
    if isinstance(node, (ast.Subscript, ast.Call)):
        return configured_value(source, node)
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    if not bindings:
        return _constant_of_module(source, node)
    if len(bindings) != 1:
        return None
    if isinstance(bindings[0], ast.arg):
        return _parameter_given(source, bindings[0], depth)
    value = assigned_value(source, bindings[0])
    return default_in_program(source, value, depth - 1) if value is not None else None


def _declared_option(source: Source, node: ast.Attribute) -> Default | None:
    """`opt.workers`, which a file of the program declares: `parser.add_argument("--workers", default=0)`."""
    if not is_of_options(source, node.value) or _is_set(source, node.attr):
        return None
    declaring = [source] if _declarations(source, node.attr) else []
    if source.neighbours is not None:
        if source.neighbours.program_carries(sets(node.attr)):
            return None
        declaring = declaring or source.neighbours.program_sources(declares(node.attr))
    found = [_default_of_option(there, _declarations(there, node.attr)) for there in declaring]
    value = found[0] if found else UNKNOWN
    if value is UNKNOWN or any(other is UNKNOWN or other != value for other in found):
        return None
    return Default(value, "the command line says otherwise")


def _is_set(source: Source, name: str) -> bool:
    """Whether the file assigns to an attribute of this name, of an object other than `self`."""
    stores = [a for a in source.nodes(ast.Attribute) if a.attr == name and not isinstance(a.ctx, ast.Load)]
    return any(not (isinstance(a.value, ast.Name) and a.value.id == "self") for a in stores)


def _may_be_set(source: Source, name: str) -> bool:
    """The same, or whether another file of the program may."""
    return _is_set(source, name) or (source.neighbours is not None and source.neighbours.program_carries(sets(name)))


def _declarations(source: Source, name: str) -> list[ast.Call]:
    return [call for call in source.calls(".add_argument") if destination(call) == name]


def _default_of_option(source: Source, declared: list[ast.Call]) -> object:
    """The default of an option that is declared once; of a flag `action="store_true"` it is False."""
    preset = {k.arg for call in source.calls(".set_defaults") for k in call.keywords}
    if len(declared) != 1 or None in preset or destination(declared[0]) in preset:
        return UNKNOWN
    action = constant(source, argument(source, declared[0], "action"))
    written = argument(source, declared[0], "default")
    if written is ABSENT and argument(source, declared[0], "action") is not ABSENT:
        return {"store_true": False, "store_false": True}.get(str(action), UNKNOWN)
    return constant(source, written)


def _field_of_class(source: Source, node: ast.Attribute, depth: int) -> Default | None:
    """`config.num_workers` where `config` is a class of settings of another file, or an object of it: `num_workers = 0`."""
    if source.neighbours is None or _may_be_set(source, node.attr):
        return None
    named = _class_named(source, node.value, depth)
    found = source.neighbours.definition_of(named) if named else None
    if found is None or not isinstance(found[1], ast.ClassDef):
        return None
    there, definition = found
    fields = there.bound_in(definition).get(node.attr, [])
    value = assigned_value(there, fields[0]) if len(fields) == 1 else None
    written = constant(there, value) if value is not None else UNKNOWN
    return Default(written, "the configuration says otherwise") if written is not UNKNOWN else None


def _attribute_of_object(source: Source, node: ast.Attribute, depth: int) -> Default | None:
    """`self.num_workers`, which the class sets once, to what its constructor is handed: `self.num_workers = num_workers`."""
    if not isinstance(node.value, ast.Name) or node.value.id != "self":
        return None
    stores = [a for a in source.nodes(ast.Attribute) if a.attr == node.attr and isinstance(a.ctx, ast.Store)]
    is_own = len(stores) == 1 and source.enclosing(stores[0], ast.ClassDef) is source.enclosing(node, ast.ClassDef)
    value = assigned_value(source, stores[0]) if is_own else None
    return default_in_program(source, value, depth - 1) if value is not None else None


def _hyperparameter(source: Source, node: ast.Attribute) -> ast.arg | None:
    """The parameter behind `self.hparams.num_workers` of a class of Lightning whose constructor saves what it is given."""
    owner = source.enclosing(node, ast.ClassDef)
    if not is_own(node.value) or last_name(node.value) != "hparams" or not isinstance(owner, ast.ClassDef):
        return None
    constructor = next((f for f in owner.body if isinstance(f, FUNCTIONS) and f.name == "__init__"), None)
    if constructor is None or not any(
        last_name(call.func) == "save_hyperparameters" for call in ast.walk(constructor) if isinstance(call, ast.Call)
    ):
        return None
    parameters = [*constructor.args.args, *constructor.args.kwonlyargs]
    return next((each for each in parameters if each.arg == node.attr), None)


def _parameter_given(source: Source, parameter: ast.arg, depth: int) -> Default | None:
    """The value of a parameter: by the settings files that build its class, or else by the calls in sight."""
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if isinstance(function, FUNCTIONS) and is_given_by_settings(source, function, parameter.arg):
        return given_by_settings(source, function, parameter)
    return _handed_in(source, parameter, depth)


def _constant_of_module(source: Source, node: ast.expr) -> Default | None:
    """`num_workers` of `from config import num_workers`, or `config.num_workers`, which that module sets once."""
    dotted, neighbours = source.qualified_name(node), source.neighbours
    if neighbours is None or (isinstance(node, ast.Attribute) and _may_be_set(source, node.attr)):
        return None
    found = neighbours.definition_of(dotted) if dotted else None
    if not dotted and isinstance(node, ast.Name):  # `from config import *`
        bound = neighbours.bound_by_star(node.id, source)
        found = (bound[0], bound[1][0]) if bound is not None and len(bound[1]) == 1 else None
    value = assigned_value(*found) if found is not None else None
    written = constant(found[0], value) if found is not None and value is not None else UNKNOWN
    return Default(written, "the configuration says otherwise") if written is not UNKNOWN else None


def _class_named(source: Source, node: ast.expr, depth: int) -> str:
    """The imported name of the class that an expression is, or is an object of that is built without arguments; "" if none."""
    if isinstance(node, ast.Call) and not node.args and not node.keywords:
        node = node.func
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    if not bindings:
        return source.qualified_name(node) or ""
    if len(bindings) != 1 or not depth:
        return ""
    if isinstance(bindings[0], ast.arg):
        values = given_to(source, bindings[0]) or []
    else:
        values = [value] if (value := assigned_value(source, bindings[0])) is not None else []
    names = {_class_named(source, value, depth - 1) for value in values}
    return names.pop() if len(names) == 1 else ""


def _handed_in(source: Source, parameter: ast.arg, depth: int) -> Default | None:
    """The one value that a parameter has by every call in sight, which leaves it out or hands a default on."""
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS) or not _METHODS.issuperset(last_name(d) for d in function.decorator_list):
        return None
    name, place = name_and_place(source, function, parameter)
    called = {id(call.func) for call in source.nodes(ast.Call) if last_name(call.func) == name}
    called |= {id(a) for call in source.nodes(ast.Call) if last_name(call.func) == "super" for a in call.args}
    if any(
        use.id == name and id(use) not in called and isinstance(use.ctx, ast.Load) for use in source.nodes(ast.Name)
    ):
        return None
    if source.neighbours is None and "__main__" not in source.text:  # who imports it is not in sight
        return None
    written = default_expression(function, parameter)
    calls = calls_in_sight(source, name)
    found = [_value_passed(there, call, parameter.arg, place, written, depth) for there, call in calls]
    if not calls and function.name == "__init__":
        derived = calls_by_derived(source, name)
        found = [_value_passed_on(source, there, call, parameter.arg, place) for there, call in derived]
    values = [item for item in found if item is not None]
    if not values or len(values) < len(found) or any(item.value != values[0].value for item in values):
        return None
    said = next((item.unless for item in values if item.unless), "a caller says otherwise")
    return Default(values[0].value, said, place=next((item.place for item in values if item.place), ""))


def name_and_place(source: Source, function: Function, parameter: ast.arg) -> tuple[str, int | None]:
    """By what last name a function is called, and which positional argument of the call a parameter is."""
    owner = source.parent(function)
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(owner, ast.ClassDef) and "staticmethod" not in map(last_name, function.decorator_list):
        names = names[1:]
    is_constructor = isinstance(owner, ast.ClassDef) and function.name == "__init__"
    name = owner.name if is_constructor and isinstance(owner, ast.ClassDef) else function.name
    return name, names.index(parameter.arg) if parameter.arg in names else None


def _value_passed_on(source: Source, there: Source, call: ast.Call, name: str, place: int | None) -> Default | None:
    """What the constructor of a derived class hands on of what settings files give it: `super().__init__(images, workers)`."""
    passed = argument(there, call, name, place)
    value = constant(there, passed)
    if value is not UNKNOWN:
        return Default(value, "")
    bindings = there.lookup(passed) if isinstance(passed, ast.Name) else []
    constructor = there.enclosing(call, *FUNCTIONS)
    if len(bindings) != 1 or not isinstance(bindings[0], ast.arg) or not isinstance(constructor, FUNCTIONS):
        return None
    return given_by_settings(there, constructor, bindings[0], source)


def _value_passed(
    source: Source, call: ast.Call, name: str, place: int | None, written: ast.expr | None, depth: int
) -> Default | None:
    """What a call passes for a parameter, or what this is by its definition."""
    passed = argument(source, call, name, place)
    given = passed if passed is not ABSENT else written
    if not isinstance(given, ast.expr):
        return None
    value = constant(source, given)
    if value is not UNKNOWN:
        return Default(value, "")
    return default(source, given) or default_in_program(source, given, depth - 1)
