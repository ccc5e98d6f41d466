"""What a value is unless somebody says otherwise: defaults of parameters, options of the command line, and fields."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterable

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple, record
from perfaudit.static.call_index import shape_of
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.built_by_settings import OF_LOADERS, is_given_by_settings
from perfaudit.static.understanding.calls_by_name import calls_by_last_name
from perfaudit.static.understanding.demonstrations import is_main_guard, is_test
from perfaudit.static.understanding.members import attributes
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, Argument, Known, argument, assigned_value, constant

_OPTIONS = regex(r"(^|\.|_)(args?|opts?|options|hparams|hps|cfg|conf|config|params|flags)$", re.IGNORECASE)


class Default(NamedTuple):
    """What a value is unless somebody says otherwise.

    unless: who may, in words for a message. node: the literal in this file, None where it is not one or reached by a
    detour. uses: every expression of this file that reads it. place: where a configuration says it, in words for a message.
    """

    value: object
    unless: str
    node: ast.expr | None = None
    uses: tuple[ast.expr, ...] = ()
    place: str = ""

    @property
    def words(self) -> str:
        """The value, where it comes from, and who may say otherwise: "0 by `configs/train.yaml:7` unless …"."""
        return (
            f"{self.value} by {self.place} unless {self.unless}" if self.place else f"{self.value} unless {self.unless}"
        )


def default(source: Source, node: Argument, depth: int = 4) -> Default | None:
    """What an expression is by a plain default that nothing visible overrides; None where that cannot be told.

    Of a parameter of the function around it that no call passes, in this file or in those that import it; of an
    option of `argparse` or `click` that this file declares once; of a field that a class of options gives a literal.
    """
    if isinstance(node, Known) or not depth:
        return None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and len(node.args) == 1:
        return default(source, node.args[0], depth)
    if isinstance(node, ast.Attribute):
        return _option(source, node) or _field(source, node, depth)
    if not isinstance(node, ast.Name):
        return None
    bindings = source.lookup(node)
    if len(bindings) != 1:
        return None
    if isinstance(bindings[0], ast.arg):
        return _parameter(source, bindings[0], depth)
    value = assigned_value(source, bindings[0])
    found = default(source, value, depth - 1) if value is not None else None
    return found and Default(found.value, found.unless)


def default_in_sight(source: Source, node: Argument) -> Default | None:
    """The same, or what the other files of the program say where this one says nothing.

    None where settings files of the project give a setting of loaders another value: what reads them may hand it on.
    """
    found = default(source, node)
    if found is None:
        from perfaudit.static.understanding.program_settings import default_in_program  # most files say it themselves

        found = default_in_program(source, node)
    return None if found is not None and not found.place and is_another_in_files(source, node, found.value) else found


def is_another_in_files(source: Source, node: Argument, value: object) -> bool:
    """Whether settings files of the project give the setting that an expression reads, by its last name, another value."""
    return any(said != value for said in values_in_files(source, node))


def values_in_files(source: Source, node: Argument) -> list[object]:
    """What settings files of the project give the setting of loaders that an expression reads, by its last name; also UNREAD."""
    while isinstance(node, ast.Call) and last_name(node.func) == "int" and node.args:
        node = node.args[0]
    name = last_name(node) if isinstance(node, ast.expr) else ""
    if source.neighbours is None or not OF_LOADERS.search(name):
        return []
    from perfaudit.static.project.settings_text import UNREAD  # few settings are those of loaders

    said = [each.setting for each in source.neighbours.settings(name) or ()]
    # A file that cannot be read would have all settings.
    return [each.value for each in said if each.value is not UNREAD or each.keys]


def _parameter(source: Source, parameter: ast.arg, depth: int) -> Default | None:
    """The default of a parameter that no visible call passes."""
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS):
        return None
    if function.decorator_list and not _is_method_only(function):
        return _command_option(source, function, parameter)
    written = default_expression(function, parameter)
    if written is None or _is_overridden(source, function, parameter):
        return None
    if is_given_by_settings(source, function, parameter.arg):  # what calls there are may only try the class out
        return None
    value = constant(source, written)
    if value is UNKNOWN:
        return default(source, written, depth - 1)
    literal = written if isinstance(written, ast.Constant) else None
    return Default(value, "a caller says otherwise", literal, tuple(source.uses_of(parameter, parameter.arg)))


def is_false_at_calls(source: Source, node: ast.expr) -> bool:
    """Whether an expression is a parameter that is False by default, and of which each call in sight says the same or nothing."""
    parameter, function = _parameter_meant(source, node)
    written = default_expression(function, parameter) if function is not None and parameter is not None else None
    if function is None or parameter is None or written is None or constant(source, written) is not False:
        return False

    def passes_another(call: ast.Call, place: int | None) -> bool:
        passed = argument(source, call, parameter.arg, place)
        return passed is not ABSENT and (isinstance(passed, Known) or constant(source, passed) is not False)

    return not _is_overridden(source, function, parameter, needs_call=True, passes_another=passes_another)


def default_class(source: Source, node: ast.expr) -> ast.expr | None:
    """What the definition gives the parameter that an expression is, if some call is in sight and none says otherwise."""
    parameter, function = _parameter_meant(source, node)
    if function is None or parameter is None:
        return None
    written = default_expression(function, parameter)
    if written is None or _is_another_passed(source, function, parameter, source.qualified_name(written), {}):
        return None
    return written


def _is_another_passed(
    source: Source, function: Function, parameter: ast.arg, kind: str | None, known: dict[int, bool]
) -> bool:
    """Whether a call may pass a parameter something else than its default class.

    A call that hands on another parameter passes what that one is, `**options` of the function around it what is not seen.
    known: the answer for each parameter by id, also for those that are being asked about.
    """
    if id(parameter) in known:
        return known[id(parameter)]
    known[id(parameter)] = False

    def passes_another(call: ast.Call, place: int | None) -> bool:
        passed = argument(source, call, parameter.arg, place)
        if passed is ABSENT:
            return False
        if isinstance(passed, Known):
            return not _hands_on_options(source, call)
        handed, around = _parameter_meant(source, passed)
        if handed is None or around is None:
            return kind is None or source.qualified_name(passed) != kind
        written = default_expression(around, handed)
        if written is None or source.qualified_name(written) != kind:
            return True
        return _is_another_passed(source, around, handed, kind, known)

    known[id(parameter)] = _is_overridden(source, function, parameter, needs_call=True, passes_another=passes_another)
    return known[id(parameter)]


def _hands_on_options(source: Source, call: ast.Call) -> bool:
    """Whether all that a call unpacks are the options of the function around it: `**kwargs`."""
    function = source.enclosing(call, *FUNCTIONS)
    own = function.args.kwarg.arg if isinstance(function, FUNCTIONS) and function.args.kwarg is not None else None
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    return (
        own is not None
        and bool(unpacked)
        and not any(isinstance(item, ast.Starred) for item in call.args)
        and all(isinstance(value, ast.Name) and value.id == own for value in unpacked)
    )


def leaves_out(source: Source, call: ast.Call, name: str) -> bool:
    """Whether all that a call unpacks are the options of the function around it, `**kwargs`, and no caller has one of this name.

    Some call must be in sight, other than a test's or one by which a module tries itself out, and the function may only
    hand its options on. Nothing may name it but to call it: `partial(load, pin_memory=True)` passes options as well.
    """
    function = source.enclosing(call, *FUNCTIONS)
    options = function.args.kwarg if isinstance(function, FUNCTIONS) else None
    if not isinstance(function, FUNCTIONS) or options is None or function.decorator_list:
        return False
    if not _hands_on_options(source, call) or any(keyword.arg == name for keyword in call.keywords):
        return False
    parents = [source.parent(use) for use in source.uses_of(options, options.arg)]
    if not all(isinstance(parent, ast.keyword) and parent.arg is None for parent in parents):
        return False
    if _is_bound_again(source, function, options):
        return False
    if _is_overridden(source, function, ast.arg(name), needs_call=True) or not _is_used(source, function):
        return False
    names_it = _NamesOtherwise(_name_called(source, function))
    if names_it(source):
        return False
    return source.neighbours is None or not source.neighbours.some_importer(
        names_it, lambda text: names_it.name in text
    )


def _is_bound_again(source: Source, function: Function, parameter: ast.arg) -> bool:
    """Whether a function may bind its parameter to something else, in any way: `kwargs |= more`, `except E as kwargs`."""
    if source.bound_in(function).get(parameter.arg, []) != [parameter]:
        return True
    return any(
        parameter.arg in (getattr(node, field, None) for field in ("name", "asname", "rest"))
        for node in ast.walk(function)
    )


@record(frozen=True, slots=True)
class _NamesOtherwise:
    """Whether a file names something, by the last name, that it does not call there; `super(Loader, self)` is none.

    By an import under another name, its calls would not be seen.
    """

    name: str

    def __call__(self, source: Source) -> bool:
        reads = [*source.reads_of(self.name), *attributes(source).get(self.name, ())]
        imports: list[ast.Import | ast.ImportFrom] = [*source.nodes(ast.ImportFrom), *source.nodes(ast.Import)]
        return not all(self._is_called(source, read) for read in reads) or any(
            alias.name.rpartition(".")[2] == self.name and alias.asname not in (None, self.name)
            for statement in imports
            for alias in statement.names
        )

    def _is_called(self, source: Source, node: ast.expr) -> bool:
        call = source.parent(node)
        return isinstance(call, ast.Call) and (call.func is node or last_name(call.func) == "super")


def _name_called(source: Source, function: Function) -> str:
    """The name by which a function is called: of a constructor that of its class."""
    owner = source.parent(function)
    return owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name


def _is_used(source: Source, function: Function) -> bool:
    """Whether a call of a function, or of the class whose constructor it is, belongs to a program: to no test and no trial."""
    name = _name_called(source, function)
    for call in calls_by_last_name(source).get(name, ()):
        is_tried = any(is_main_guard(a) for a in source.ancestors(call)) and not backward_calls(source)
        if not is_tried and not is_test(source, call):
            return True
    there = source.neighbours.importers_calling(name) if source.neighbours is not None else ()
    return any(
        last_name(call.func) == name and not is_test(other, call) for other in there for call in other.nodes(ast.Call)
    )


def written_default(source: Source, node: ast.expr) -> ast.expr | None:
    """What the definition gives the parameter that an expression is; calls may pass something else."""
    parameter, function = _parameter_meant(source, node)
    return default_expression(function, parameter) if function is not None and parameter is not None else None


def _parameter_meant(source: Source, node: ast.expr) -> tuple[ast.arg | None, Function | None]:
    """The parameter that a name is, and its function, if that is not decorated."""
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    parameter = bindings[0] if len(bindings) == 1 else None
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda) if isinstance(parameter, ast.arg) else None
    if not isinstance(function, FUNCTIONS) or not isinstance(parameter, ast.arg) or function.decorator_list:
        return None, None
    return parameter, function


def _is_method_only(function: Function) -> bool:
    return all(isinstance(d, ast.Name) and d.id in ("staticmethod", "classmethod") for d in function.decorator_list)


def default_expression(function: Function, parameter: ast.arg) -> ast.expr | None:
    """The expression behind `=` in the definition."""
    positional = [*function.args.posonlyargs, *function.args.args]
    with_default = positional[len(positional) - len(function.args.defaults) :]
    pairs: Iterable[tuple[ast.arg, ast.expr | None]] = [
        *zip(with_default, function.args.defaults, strict=True),
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
    ]
    return next((value for item, value in pairs if item is parameter), None)


def _is_overridden(
    source: Source,
    function: Function,
    parameter: ast.arg,
    *,
    needs_call: bool = False,
    passes_another: Callable[[ast.Call, int | None], bool] | None = None,
) -> bool:
    """Whether a call may pass the parameter: one does, one unpacks, or the function is used otherwise than called.

    Calls are told by the last name. A class must be built somewhere in sight: its caller is often a configuration.
    needs_call: a function must be called somewhere too. passes_another: whether a call of this file matters, which has the
    place of the parameter; any that may pass it does where nothing is said.
    """
    name, skipped = function.name, 0
    owner = source.parent(function)
    if isinstance(owner, ast.ClassDef):
        static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
        name, skipped = (owner.name if name == "__init__" else name), int(not static)
        if function.name == "__init__" and any(
            isinstance(base, ast.Name) and base.id == owner.name
            for other in source.nodes(ast.ClassDef)
            for base in other.bases
        ):
            return True
    calls = calls_by_last_name(source).get(name, [])
    called = {id(call.func) for call in calls}
    called |= {id(call.args[0]) for call in calls_by_last_name(source).get("super", ()) if call.args}
    elsewhere = source.neighbours.calls_by_importers(name) if source.neighbours is not None else []
    is_constructor = isinstance(owner, ast.ClassDef) and function.name == "__init__"
    if (is_constructor or needs_call) and not calls and not elsewhere:
        return True
    if any(id(use) not in called for use in source.reads_of(name)):
        return True
    positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][skipped:]
    place = positional.index(parameter.arg) if parameter.arg in positional else None
    if passes_another is None:
        passes_another = lambda call, place: shape_of(call).may_pass(parameter.arg, place)  # noqa: E731  # a default
    if any(passes_another(call, place) for call in calls):
        return True
    return any(shape.may_pass(parameter.arg, place) for shape in elsewhere)


def _option(source: Source, node: ast.Attribute) -> Default | None:
    """The default of `args.workers`, by the one `add_argument("--workers", default=...)` of this file."""
    if not is_of_options(source, node.value) or _is_set(source, node.attr):
        return None
    declared = [call for call in source.calls(".add_argument") if destination(call) == node.attr]
    preset = any(k.arg in (node.attr, None) for call in source.calls(".set_defaults") for k in call.keywords)
    uses = tuple(a for a in source.nodes(ast.Attribute) if a.attr == node.attr)
    return None if preset or len(declared) != 1 else _declared_default(source, declared[0], uses)


def is_of_options(source: Source, node: ast.expr) -> bool:
    """Whether an expression is what a parser returned, or is named as such things are: `args`, `self.opt`."""
    if isinstance(node, ast.Name):
        values = [assigned_value(source, binding) for binding in source.lookup(node)]
        parsed = [v for v in values if isinstance(v, ast.Call) and last_name(v.func).startswith("parse_")]
        if parsed and len(parsed) == len(values):
            return True
    return bool(_OPTIONS.search(last_name(node)))


def _is_set(source: Source, attribute: str) -> bool:
    """Whether anything in the file assigns to an attribute of this name."""
    return any(a.attr == attribute and not isinstance(a.ctx, ast.Load) for a in source.nodes(ast.Attribute))


def _declared_default(source: Source, call: ast.Call, uses: tuple[ast.expr, ...]) -> Default | None:
    """The default that the declaration of a command-line option gives it."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if None in given or "action" in given or "default" not in given:
        return None
    written = given["default"]
    value = constant(source, written)
    if value is UNKNOWN:
        return None
    literal = written if isinstance(written, ast.Constant) else None
    return Default(value, "the command line says otherwise", literal, uses)


def destination(call: ast.Call) -> str:
    """The attribute under which `parse_args` returns an option."""
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    for keyword in call.keywords:
        if keyword.arg == "dest":
            return str(keyword.value.value) if isinstance(keyword.value, ast.Constant) else ""
    long = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else "")
    return long.lstrip("-").replace("-", "_")


def _command_option(source: Source, function: Function, parameter: ast.arg) -> Default | None:
    """The default of a parameter that `@click.option("--workers", default=...)` fills."""
    options = [d for d in function.decorator_list if isinstance(d, ast.Call) and last_name(d.func) == "option"]
    declared = [option for option in options if parameter.arg in _click_names(option)]
    uses = tuple(source.uses_of(parameter, parameter.arg))
    return _declared_default(source, declared[0], uses) if len(declared) == 1 else None


def _click_names(option: ast.Call) -> set[str]:
    flags = [a.value for a in option.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return {flag.lstrip("-").replace("-", "_") for flag in flags}


@functools.lru_cache(maxsize=2)
def _fields(source: Source) -> dict[str, list[tuple[ast.ClassDef, ast.Name]]]:
    """What the classes of a file bind in their bodies, by name."""
    table: dict[str, list[tuple[ast.ClassDef, ast.Name]]] = {}
    for definition in source.nodes(ast.ClassDef):
        for name, bindings in source.bound_in(definition).items():
            table.setdefault(name, []).extend((definition, one) for one in bindings if isinstance(one, ast.Name))
    return table


def _field(source: Source, node: ast.Attribute, depth: int) -> Default | None:
    """What an attribute is by the one place in the file that gives it a value.

    `num_workers: int = 0` in a class of options, or `self.num_workers = num_workers` in a constructor.
    """
    stores = [a for a in attributes(source).get(node.attr, ()) if not isinstance(a.ctx, ast.Load)]
    fields = _fields(source).get(node.attr, ())
    if len(stores) == 1 and not fields and isinstance(node.value, ast.Name) and node.value.id == "self":
        same = source.enclosing(stores[0], ast.ClassDef) is source.enclosing(node, ast.ClassDef)
        value = assigned_value(source, stores[0]) if same else None
        if value is None or not (isinstance(stores[0].value, ast.Name) and stores[0].value.id == "self"):
            return None
        found = default(source, value, depth - 1)
        return found and Default(found.value, found.unless)
    if stores or len(fields) != 1 or not is_of_options(source, node.value):
        return None
    written = assigned_value(source, fields[0][1])
    given = constant(source, written) if written is not None else UNKNOWN
    built = calls_by_last_name(source).get(fields[0][0].name, ())
    if given is UNKNOWN or not built or any(shape_of(call).may_pass(node.attr, 0) for call in built):
        return None
    return Default(given, "the configuration says otherwise")
