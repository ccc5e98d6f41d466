"""Edits by which a setting of the whole process becomes source text: a statement behind the imports, or another value of one.

As in `static.edit`, each verb returns the edits, or None: it cannot be done without a doubt, or it stands there already.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.edit import Edits
from perfaudit.static.source import FUNCTIONS, Source

_IMPORTS = (ast.Import, ast.ImportFrom)
_CHANGES_ENVIRONMENT = (
    *(f"os.environ.{verb}" for verb in ("update", "setdefault", "pop", "clear")),
    *("os.putenv", "os.unsetenv"),
)


def set_at_start(source: Source, statement_text: str) -> Edits | None:
    """Put a call or the assignment of an attribute behind the imports at the start of the file.

    Names are documented ones (`torch.backends.cudnn.benchmark = True`) and are written as the file imports them, with the
    import if it lacks one. None if the file calls the function or sets the attribute anywhere, and where that import would
    come before the file sets environment variables, which a library reads when it is imported (OMP_NUM_THREADS).
    """
    body = ast.parse(statement_text).body
    statement = body[0] if len(body) == 1 else None
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        dotted = _dotted_name(statement.value.func)
        exists = dotted is not None and bool(source.calls(dotted))
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        dotted = _dotted_name(statement.targets[0])
        exists = dotted is not None and bool(_settings_of(source, dotted))
    else:
        return None
    if statement is None or dotted is None or "." not in dotted or exists:
        return None
    written, imports, names = _as_imported(source, statement, statement_text)
    placed = behind_imports(source, written, names)
    if placed is None or (imports and _sets_environment_first(source)):
        return None
    return (*imports, *placed)


def run_at_start(source: Source, lines: Sequence[str], *dotted: str) -> Edits | None:
    """Put a statement of several lines behind the imports at the start of the file, with the imports that it takes.

    lines: with `{}` in the place of each of these names, which are written as the file imports them. None where a line of the
    file would have to be parted for it.
    """
    written, imports, names = list[str](), list[Edit](), list[str]()
    for name in dotted:
        as_imported, needed = edit.name_for(source, name)
        written.append(as_imported)
        imports += needed
        names += [] if needed else [as_imported.partition(".")[0]]
    placed = behind_imports(source, source.newline.join(lines).format(*written), names)
    if placed is None or any(";" in item.text for item in placed):
        return None
    return (*dict.fromkeys(imports), *placed)


def set_or_replace_call(source: Source, dotted: str, argument_text: str) -> Edits | None:
    """Have `dotted(argument_text)` run when the file is imported: its one call gets the argument, or it is put in.

    None if it is called several times, in a function, under a condition, or with anything but one literal.
    """
    calls = source.calls(dotted)
    if not calls:
        return set_at_start(source, f"{dotted}({argument_text})")
    call = calls[0]
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    if len(calls) > 1 or len(arguments) != 1 or not isinstance(statement := source.parent(call), ast.Expr):
        return None
    return _replace_literal(source, statement, arguments[0], argument_text)


def set_or_replace_attribute(source: Source, dotted: str, value_text: str) -> Edits | None:
    """Have `dotted = value_text` run when the file is imported: its one assignment gets the value, or it is put in.

    None if it is assigned several times, in a function, under a condition, or anything but a literal.
    """
    settings = _settings_of(source, dotted)
    if not settings:
        return set_at_start(source, f"{dotted} = {value_text}")
    statement = source.parent(settings[0])
    if len(settings) > 1 or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    return _replace_literal(source, statement, statement.value, value_text)


def _settings_of(source: Source, dotted: str) -> list[ast.Attribute]:
    attributes = source.nodes(ast.Attribute)
    return [a for a in attributes if not isinstance(a.ctx, ast.Load) and source.qualified_name(a) == dotted]


def _replace_literal(source: Source, statement: ast.stmt, value: ast.expr, text: str) -> Edits | None:
    """Another literal in a statement that runs whenever the file is imported; None if it is the same or no literal."""
    try:
        same = repr(ast.literal_eval(value)) == repr(ast.literal_eval(text))  # 1 is not True
    except (ValueError, SyntaxError):
        return None
    if same or not _runs_on_import(source, statement):
        return None
    return edit.replace(source, value, text)


def _runs_on_import(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement stands at the top level, or there under a question for a device that the setting is about."""
    around = source.parent(statement)
    if isinstance(around, ast.If) and any(item is statement for item in around.body):
        asks_for_device = isinstance(around.test, ast.Call) and (_dotted_name(around.test.func) or "").endswith(
            "is_available"
        )
        around = source.parent(around) if asks_for_device else around
    return around is source.tree


def _dotted_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _dotted_name(node.value)):
        return f"{owner}.{node.attr}"
    return None


def _as_imported(source: Source, statement: ast.stmt, text: str) -> tuple[str, Edits, list[str]]:
    """A statement with its dotted names as the file imports them, the imports it takes, and the names it relies on.

    What is assigned keeps its last attribute: the module is what is set, not a name imported from it.
    """
    chains = [n for n in ast.walk(statement) if isinstance(n, ast.Attribute) and _dotted_name(n)]
    inner = {id(chain.value) for chain in chains}
    edits: list[Edit] = []
    imports: list[Edit] = []
    names: list[str] = []
    data = text.encode()  # positions count bytes
    for chain in chains:
        node = chain.value if isinstance(chain.ctx, ast.Store) else chain
        if id(chain) in inner or (root := str(_dotted_name(node))).partition(".")[0] in vars(builtins):
            continue
        name, needed = edit.name_for(source, root)
        name = name.rstrip(".")
        imports += needed
        names += [] if needed else [name.partition(".")[0]]
        begin, end = len(data[: node.col_offset].decode()), len(data[: node.end_col_offset].decode())
        edits.append(Edit(Span(begin, end), name))
    return edit.apply(text, edits), tuple(dict.fromkeys(imports)), names


def _sets_environment_first(source: Source) -> bool:
    """Whether importing the file changes variables of the environment before it imports torch by name."""
    changed = [n.value for n in source.nodes(ast.Subscript) if not isinstance(n.ctx, ast.Load)]
    changed += [n.target for n in source.nodes(ast.AugAssign)]  # `os.environ |= {…}`
    nodes = [n for n in changed if source.qualified_name(n) == "os.environ"]
    nodes += [call for name in _CHANGES_ENVIRONMENT for call in source.calls(name)]
    own = [source.span(s).start for s in source.tree.body if isinstance(s, _IMPORTS) and _imports_torch(s)]
    first = min(own, default=len(source.text))
    return any(
        source.span(node).start < first and source.enclosing(node, *FUNCTIONS, ast.Lambda) is None for node in nodes
    )


def _imports_torch(statement: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        names = [statement.module or ""] if not statement.level else []
    return any(name.partition(".")[0] == "torch" for name in names)


def behind_imports(source: Source, text: str, names: list[str]) -> Edits | None:
    """Put a line behind the first run of imports, or behind the later one that binds the last of these names."""
    body = source.tree.body
    place = _run_of_imports(source, int(bool(body) and _is_preamble(body[0])))
    for name in names:
        first = next((n for n, s in enumerate(body) if _is_import_block(source, s) and name in _bound_by(s)), None)
        if first is None:
            return None
        if first >= place:
            place = _run_of_imports(source, first)
    imports_something = any(not _is_preamble(s) for s in body[:place])
    if place < len(body) and not imports_something:  # where `edit.insert_import` puts an import
        start = source.span(body[place]).start
        return edit.insert_before(source, body[place], text) or (Edit(Span(start, start), f"{text}; "),)
    if not body:
        ends_open = source.lines[-1] != ""
        end = Span(len(source.text), len(source.text))
        return (Edit(end, (source.newline if ends_open else "") + text + source.newline),)
    anchor = source.span(body[place - 1]).end
    if not edit._ends_line(source, body[place - 1]):
        return (Edit(Span(anchor, anchor), f"; {text}"),)
    line = source.line_at(anchor)
    closed = source.text[line.start : line.end].endswith(("\n", "\r"))
    return (Edit(Span(line.end, line.end), text + source.newline if closed else source.newline + text),)


def _is_preamble(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring or an import from `__future__`: no import can stand before it."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _run_of_imports(source: Source, start: int) -> int:
    """The index of the first top-level statement from `start` that is no block of imports."""
    body = source.tree.body
    return next((n for n in range(start, len(body)) if not _is_import_block(source, body[n])), len(body))


def _is_import_block(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement does nothing but import: also with a fallback, by version, or for types only."""
    if isinstance(statement, ast.If):
        imports = all(_is_import_block(source, item) for item in (*statement.body, *statement.orelse))
        return imports or "TYPE_CHECKING" in source.text_of(statement.test)
    if isinstance(statement, ast.Try):
        flags = (ast.Assign, ast.Pass)  # `HAS_APEX = True`
        rest = [item for item in statement.body if not _is_import_block(source, item)]
        return len(rest) < len(statement.body) and all(isinstance(item, flags) for item in rest)
    return isinstance(statement, _IMPORTS)


def _bound_by(statement: ast.stmt) -> set[str]:
    imports = [node for node in ast.walk(statement) if isinstance(node, _IMPORTS)]
    return {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}
