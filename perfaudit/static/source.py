"""One Python file as checks see it: text, tree, positions, parents, names. Must not import torch, pandas or rich."""

from __future__ import annotations

import ast
import bisect
import codecs
import functools
import io
import re
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from perfaudit.errors import refusal
from perfaudit.expressions import regex
from perfaudit.findings import Location, Span
from perfaudit.reading import TooLarge, read_bytes

if TYPE_CHECKING:
    from perfaudit.static.project import Neighbours

N = TypeVar("N", bound=ast.AST)

MAX_BYTES = 4 << 20  # a generated 13 MB list costs ast.parse 6 s and 1.8 GB; no hand-written file comes near 4 MiB

SLOW_CODECS = {"punycode", "idna"}  # 200 kB in the first take 14 s, four times as long for twice as much

NEWLINE = regex(r"\r\n|\r|\n")
# Fields that hold texts, numbers and marks; what is asked of operators is asked of the node that has them.
_NOT_CHILDREN = {
    *(
        "arg",
        "attr",
        "conversion",
        "ctx",
        "id",
        "is_async",
        "kind",
        "kwd_attrs",
        "level",
        "module",
        "op",
        "ops",
        "rest",
    ),
    *("simple", "str", "type_comment", "type_ignores"),
}
_CHILD_FIELDS: dict[type, tuple[str, ...]] = {
    **dict.fromkeys((ast.Constant, ast.Name, ast.alias, ast.Global, ast.Nonlocal, ast.MatchSingleton), ())
}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = {ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef}
LOOPS = (ast.For, ast.AsyncFor, ast.While)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While

# Where torch defines a name against where it is documented; the second is the one rules use.
_CANONICAL = (
    (regex(r"^torch\.nn\.modules(?:\.[a-z_]+)?\.(?=[A-Z])"), "torch.nn."),
    (regex(r"^torch\.utils\.data\.(?:dataloader|dataset|sampler|distributed)\.(?=[A-Z])"), "torch.utils.data."),
    (regex(r"^torch\.optim\.(?!lr_scheduler|swa_utils|_multi_tensor)[a-z_0-9]+\.(?=[A-Z])"), "torch.optim."),
    (regex(r"^torch\.nn\.parallel\.data_parallel\.(?=D)"), "torch.nn.parallel."),
    (regex(r"^torch\.nn\.parallel\.distributed\.(?=D)"), "torch.nn.parallel."),
    (regex(r"^torch\.autograd\.anomaly_mode\."), "torch.autograd."),
    # It takes the arguments of DataLoader, in the same places, and keeps its position between runs besides.
    (
        regex(r"^torchdata\.stateful_dataloader(?:\.stateful_dataloader)?\.StatefulDataLoader$"),
        "torch.utils.data.DataLoader",
    ),
)
_LAST_NAMES = {"StatefulDataLoader": "DataLoader"}  # as written, and of what it stands for


# A subclass of one of these that takes the same arguments and computes the same is one of them to the rules.
PLAIN_BASES = frozenset(
    {"torch.utils.data.DataLoader", "torch.nn.Linear", "torch.nn.SyncBatchNorm"}
    | {f"torch.nn.Conv{way}{n}d" for way in ("", "Transpose") for n in (1, 2, 3)}
    | {f"torch.nn.{kind}Norm{n}d" for kind in ("Batch", "Instance") for n in (1, 2, 3)}
)
_OF_NORMS = {"eps", "momentum"}  # arguments of norms alone; a momentum of 0 would keep the first mean
CHANGES_ARGUMENTS = {"__init__", "__new__", "__call__", "forward", "_conv_forward"}


class Unreadable(Exception):
    """A file that cannot be audited; the message is the reason, in the user's words."""


class Source:
    """The text and tree of one file, with everything checks ask about places and names.

    path: as it is reported, relative to the working directory, with '/'. neighbours: what the other files of the
    project say; without it every name of theirs is unknown.
    Raises Unreadable when the text does not parse.
    """

    def __init__(self, path: str, text: str, neighbours: Neighbours | None = None) -> None:
        self.path = path
        self.text = text
        self.neighbours = neighbours
        try:
            with warnings.catch_warnings():  # of the code that is read ("invalid escape sequence"): not our subject
                warnings.simplefilter("ignore")
                self.tree = ast.parse(text)
        except SyntaxError as error:
            line = f" at line {error.lineno}" if error.lineno else ""
            raise Unreadable(f"does not parse{line}: {error.msg}") from error
        except ValueError as error:  # null bytes before Python 3.12
            raise Unreadable(f"does not parse: {error}") from error
        except (RecursionError, MemoryError) as error:
            raise Unreadable("nested too deeply to parse") from error
        self._by_type: dict[type, list[ast.AST]] = {}
        self._parents: dict[int, ast.AST] = {}  # by id; attributes of the nodes would make cycles of every tree
        self._mentioned: dict[str, bool] = {}  # by word, which some ask for at every node
        self._called: dict[str, list[ast.Call]] = {}  # by documented name, which several checks ask for
        self._variables: dict[str, list[tuple[list[ast.AST], list[ast.Name]]]] = {}  # by name: what binds it, its reads
        self._index()

    def _index(self) -> None:
        """One walk in document order: every node by type, and the parent of each. A fifth of a scan: mind each line."""
        parents = self._parents
        known: dict[type, tuple[Callable[[ast.AST], None], tuple[str, ...]]] = {}  # where a kind is noted; its fields
        stack: list[ast.AST] = [self.tree]
        take, put = stack.pop, stack.append
        while stack:
            node = take()
            kind = node.__class__
            try:
                note, names = known[kind]
            except KeyError:
                bucket = self._by_type[kind] = []
                if kind not in _CHILD_FIELDS:
                    fields = (name for name in reversed(kind._fields) if name not in _NOT_CHILDREN)
                    _CHILD_FIELDS[kind] = tuple(fields)
                note, names = known[kind] = bucket.append, _CHILD_FIELDS[kind]
            note(node)
            for name in names:
                value = getattr(node, name)
                if value.__class__ is list:
                    for child in value[::-1]:
                        if child is not None:
                            parents[id(child)] = node
                            put(child)
                elif isinstance(value, ast.AST):  # a name is a text
                    parents[id(value)] = node
                    put(value)

    # ---- tree ------------------------------------------------------------------------------------------------------

    def nodes(self, *kinds: type[N]) -> list[N]:
        """Every node of these exact types, in document order within each type."""
        if len(kinds) == 1:
            return self._by_type.get(kinds[0], [])[:]  # type: ignore[return-value]  # of the type by which it is kept
        return [node for kind in kinds for node in self._by_type.get(kind, ())]  # type: ignore[misc]

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(id(node))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """From the parent outwards to the module."""
        parents = self._parents
        current = parents.get(id(node))
        while current is not None:
            yield current
            current = parents.get(id(current))

    def enclosing(self, node: ast.AST, *kinds: type[N], within: ast.AST | None = None) -> N | None:
        """The nearest ancestor of one of these types, or None; looks no further out than `within` (exclusive)."""
        parents = self._parents
        ancestor = parents.get(id(node))
        while ancestor is not None and ancestor is not within:
            if isinstance(ancestor, kinds):
                return ancestor
            ancestor = parents.get(id(ancestor))
        return None

    def scope(self, node: ast.AST) -> ast.AST:
        """The function, lambda, class or module in which the node stands."""
        parents = self._parents
        ancestor = parents.get(id(node))
        while ancestor is not None and ancestor.__class__ not in _SCOPES:
            ancestor = parents.get(id(ancestor))
        return ancestor or self.tree

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds the node (the node itself if it is one)."""
        while not isinstance(node, ast.stmt):
            node = self._parents[id(node)]
        return node

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that this one is an element of."""
        parent = self.parent(statement)
        for name in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and any(item is statement for item in block):
                return block
        return [statement]

    def before(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements of its block that stand before this one."""
        block = self.block(statement)
        return block[: next((n for n, item in enumerate(block) if item is statement), 0)]

    @cached_property
    def _calls_by_last_name(self) -> dict[str, list[ast.Call]]:
        """Calls by the last part of what is called, as written, and of what it stands for where it is an alias."""
        table: dict[str, list[ast.Call]] = {}
        for call in self.nodes(ast.Call):
            if isinstance(call.func, ast.Attribute):
                table.setdefault(self._last_name_meant(call.func), []).append(call)
            elif isinstance(call.func, ast.Name):
                name = call.func.id
                target = self.aliases.get(name) or self.subclasses.get(name) or self._starred(name)
                target = target or self._assigned_aliases.get(name) or name
                table.setdefault(target.rpartition(".")[2], []).append(call)
        return table

    def _last_name_meant(self, function: ast.Attribute) -> str:
        """The last name of an attribute, of what it stands for where it is that of another file of the project."""
        owner = function.value
        if self.neighbours is None or not isinstance(owner, ast.Name) or owner.id not in self.aliases:
            return _LAST_NAMES.get(function.attr, function.attr)
        is_torchs = self.aliases[owner.id].partition(".")[0] == "torch"
        return function.attr if is_torchs else (self._imported(function) or function.attr).rpartition(".")[2]

    def mentions(self, word: str) -> bool:
        """Whether a word stands in the text, or in a name of torch's for which another one stands here.

        The cheapest question about a file; other files of the project may lend it names of torch's that it never spells.
        """
        if word not in self._mentioned:
            self._mentioned[word] = word in self.text or (self.neighbours is not None and word in self._names_meant)
        return self._mentioned[word]

    @cached_property
    def _names_meant(self) -> str:
        """What imported names stand for, and the last names of what is called, one a line."""
        return "\n".join([*self.aliases.values(), *self._calls_by_last_name])

    def calls_named(self, pattern: re.Pattern[str]) -> list[ast.Call]:
        """Calls whose last name, as in `_calls_by_last_name`, the pattern finds; each name is searched once."""
        return [call for name, calls in self._calls_by_last_name.items() if pattern.search(name) for call in calls]

    def calls(self, name: str) -> list[ast.Call]:
        """Calls of a documented dotted name ("torch.nn.Conv2d"), or of any method of a name (".item")."""
        candidates = self._calls_by_last_name.get(name.rpartition(".")[2])
        if candidates is None:
            candidates = []
            if name not in PLAIN_BASES:
                return candidates
        if name.startswith("."):
            return [call for call in candidates if isinstance(call.func, ast.Attribute)]
        if name not in self._called:
            found = [call for call in candidates if self.qualified(call.func) == name]
            if name in PLAIN_BASES:
                found += self._super_inits.get(name, [])
                found += [call for call, made in self._partials.values() if self.qualified(made.args[0]) == name]
            self._called[name] = found
        return self._called[name][:]

    def partial_behind(self, call: ast.Call) -> ast.Call | None:
        """The `functools.partial(DataLoader, ...)` for whose name a call stands, None for any other call."""
        return self._partials.get(id(call), (call, None))[1]

    @cached_property
    def _partials(self) -> dict[int, tuple[ast.Call, ast.Call]]:
        """By id each call of a name that is once bound, to a loader with some of its arguments; beside that binding."""
        found = {}
        for made in self._calls_by_last_name.get("partial", []):
            statement = self.parent(made)
            if not isinstance(statement, ast.Assign) or not isinstance(name := statement.targets[0], ast.Name):
                continue
            if self.qualified(made.func) != "functools.partial" or not made.args or len(self.lookup(name)) != 1:
                continue
            if self.qualified(made.args[0]) != "torch.utils.data.DataLoader" or len(statement.targets) != 1:
                continue
            for use in self.uses_of(name, name.id):
                call = self.parent(use)
                if isinstance(call, ast.Call) and call.func is use:
                    found[id(call)] = call, made
        return found

    @cached_property
    def _super_inits(self) -> dict[str, list[ast.Call]]:
        """Calls of `super().__init__(...)` in direct subclasses of a loader: they hand its arguments over, by its base."""
        found: dict[str, list[ast.Call]] = {}
        for call in self._calls_by_last_name.get("__init__", []):
            func = call.func
            if not (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call)):
                continue
            if not (isinstance(func.value.func, ast.Name) and func.value.func.id == "super"):
                continue
            around = self.enclosing(call, ast.ClassDef)
            if around is not None and len(around.bases) == 1 and not around.keywords:
                base = self.qualified(around.bases[0])
                if base == "torch.utils.data.DataLoader":
                    found.setdefault(base, []).append(call)
        return found

    @cached_property
    def code(self) -> str:
        """The text with comments and docstrings blanked: same length, same lines."""
        blank = [self.span(node) for node in self.nodes(ast.Expr) if isinstance(node.value, ast.Constant)]
        try:
            for token in tokenize.generate_tokens(io.StringIO(self.text, newline="").readline):
                if token.type == tokenize.COMMENT:
                    begin = self._line_starts[token.start[0] - 1] + token.start[1]
                    blank.append(Span(begin, begin + len(token.string)))
        except (tokenize.TokenError, SyntaxError, IndexError):
            return self.text
        parts, done = [], 0
        for span in sorted(blank, key=lambda span: span.start):
            if span.start >= done:
                parts += [self.text[done : span.start], re.sub(r"[^\r\n]", " ", self.text[span.start : span.end])]
                done = span.end
        return "".join([*parts, self.text[done:]])

    def says(self, pattern: re.Pattern[str]) -> bool:
        """Whether the pattern is found in the code, comments and docstrings left aside; cheap where it is nowhere."""
        return pattern.search(self.text) is not None and pattern.search(self.code) is not None

    # ---- positions -------------------------------------------------------------------------------------------------

    @cached_property
    def _line_starts(self) -> list[int]:
        return line_starts(self.text)

    @cached_property
    def lines(self) -> list[str]:
        """Lines without their ends; index 0 is line 1."""
        return self.text.split("\n") if "\r" not in self.text else NEWLINE.split(self.text)

    @property
    def newline(self) -> str:
        """The line end this file uses (its first one)."""
        match = NEWLINE.search(self.text)
        return match.group() if match else "\n"

    def offset(self, line: int, byte_column: int) -> int:
        """Character offset of a position as `ast` gives it: 1-based line, 0-based column in UTF-8 bytes."""
        start = self._line_starts[line - 1]
        if self.text.isascii():
            return start + byte_column
        return start + len(self.lines[line - 1].encode()[:byte_column].decode(errors="ignore"))

    def line_number(self, offset: int) -> int:
        """The 1-based number of the line in which a character stands."""
        return bisect.bisect_right(self._line_starts, offset)

    def line_at(self, offset: int) -> Span:
        """The whole line in which a character stands, its line end included."""
        number = self.line_number(offset)
        starts = self._line_starts
        return Span(starts[number - 1], starts[number] if number < len(starts) else len(self.text))

    def span(self, node: ast.AST) -> Span:
        """Where the node stands. A decorated function begins at its `def`, as in `ast`."""
        return Span(
            self.offset(node.lineno, node.col_offset),  # type: ignore[attr-defined]  # expressions and statements
            self.offset(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def text_of(self, node: ast.AST) -> str:
        """The node's own text, as written."""
        span = self.span(node)
        return self.text[span.start : span.end]

    def brief(self, node: ast.AST, limit: int = 60) -> str:
        """The node's text on one line, cut at `limit` characters; for messages."""
        text = " ".join(self.text_of(node).split())
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def location(self, node: ast.AST) -> Location:
        span = self.span(node)
        line, end_line = node.lineno, node.end_lineno  # type: ignore[attr-defined]  # expressions and statements
        starts = self._line_starts
        return Location(
            self.path, line, span.start - starts[line - 1] + 1, end_line, span.end - starts[end_line - 1] + 1
        )

    def indent_of(self, statement: ast.stmt) -> str:
        """The white space before the statement's first line (its decorators' line, if any, has the same)."""
        line = self.lines[statement.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def tokens(self, span: Span) -> list[tuple[tokenize.TokenInfo, Span]]:
        """The tokens of an expression that begins and ends at this span, each with its place in the file.

        The text between is tokenised alone, so it must be one whole expression, argument list or bracket.
        """
        text = self.text[span.start : span.end]
        starts = [0, *(match.end() for match in NEWLINE.finditer(text))]
        found = []
        # A bracket around it makes line breaks inside insignificant, so that no INDENT or NEWLINE appears.
        for token in tokenize.generate_tokens(io.StringIO("(" + text + ")", newline="").readline):
            if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
                continue
            begin = starts[token.start[0] - 1] + token.start[1] - (token.start[0] == 1)
            end = starts[token.end[0] - 1] + token.end[1] - (token.end[0] == 1)
            if begin >= 0 and end <= len(text):
                found.append((token, Span(span.start + begin, span.start + end)))
        return found

    # ---- names -----------------------------------------------------------------------------------------------------

    @cached_property
    def aliases(self) -> dict[str, str]:
        """What each imported name stands for; a name that is also defined otherwise, or twice differently, is left out."""
        found: dict[str, set[str]] = {}
        for statement in self.nodes(ast.Import):
            for alias in statement.names:
                name = alias.asname or alias.name.partition(".")[0]
                found.setdefault(name, set()).add(alias.name if alias.asname else name)
        for from_ in self.nodes(ast.ImportFrom):
            module = "." * from_.level + (from_.module or "")
            for alias in from_.names:
                if alias.name != "*":
                    joined = module if module.endswith(".") else module + "."
                    found.setdefault(alias.asname or alias.name, set()).add(canonical(joined + alias.name))
        for definition in self.definitions:
            if self.parent(definition) is self.tree and definition.name in found:
                found[definition.name].add("")
        return {name: self._torch_name(next(iter(targets))) for name, targets in found.items() if len(targets) == 1}

    def _torch_name(self, dotted: str) -> str:
        """The documented name behind an imported one where other files of the project lead to torch, else the name itself."""
        if self.neighbours is None or dotted.startswith("torch."):
            return dotted
        return self.neighbours.torch_name(dotted) or dotted

    @cached_property
    def subclasses(self) -> dict[str, str]:
        """Classes of this module that take the arguments of their one base and compute the same, by the base's name."""
        found: dict[str, str] = {}
        for definition in self.nodes(ast.ClassDef):
            if len(definition.bases) != 1 or definition.keywords or self.parent(definition) is not self.tree:
                continue
            base = definition.bases[0]
            meant = found.get(base.id) if isinstance(base, ast.Name) else None
            meant = meant or self._imported(base)
            if meant in PLAIN_BASES and same_signature(definition) and self._binders[definition.name] == 1:
                found[definition.name] = meant
        return found

    @cached_property
    def _assigned_aliases(self) -> dict[str, str]:
        """Names bound once, at the top of the module, to something of torch's: `Loader = torch.utils.data.DataLoader`."""
        found: dict[str, str] = {}
        for statement in self.tree.body:
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                continue
            target, value = statement.targets[0], statement.value
            if not isinstance(target, ast.Name) or not isinstance(value, (ast.Name, ast.Attribute)):
                continue
            parts = []
            while isinstance(value, ast.Attribute):
                parts.append(value.attr)
                value = value.value
            if not isinstance(value, ast.Name) or self._binders[target.id] != 1 or target.id in self.aliases:
                continue
            is_taken = value.id in self.assigned_names and self._shadowed(value)
            root = found.get(value.id) or (None if is_taken else self.aliases.get(value.id))
            if root and root.partition(".")[0] == "torch":
                found[target.id] = canonical(".".join([root, *reversed(parts)]))
        return found

    @cached_property
    def _names_bound(self) -> list[ast.Name]:
        """Names that are assigned, deleted or looped over, in document order."""
        return [node for node in self.nodes(ast.Name) if node.ctx.__class__ is not ast.Load]

    @cached_property
    def names_stored(self) -> frozenset[str]:
        """Names that are assigned or looped over somewhere in the file."""
        return frozenset(node.id for node in self._names_bound if isinstance(node.ctx, ast.Store))

    @cached_property
    def _binders(self) -> Counter[str]:
        """How often each name is bound in the file, by something else than an import."""
        found = Counter(node.id for node in self._names_bound)
        found.update(argument.arg for argument in self.nodes(ast.arg))
        found.update(definition.name for definition in self.definitions)
        return found

    @cached_property
    def _project_stars(self) -> tuple[str, ...]:
        """Modules of the project from which everything is imported, the last one first."""
        if self.neighbours is None:
            return ()
        found = []
        for statement in self.nodes(ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            if statement.names[0].name == "*" and module.partition(".")[0] != "torch":
                found.append(module if module.endswith(".") else module + ".")
        return tuple(reversed(found))

    def _starred(self, name: str) -> str:
        """What a name stands for that only a star import of the project can have bound, "" if that does not lead to torch."""
        if not self._project_stars or self.neighbours is None or name in self.assigned_names:
            return ""
        return next((found for star in self._project_stars if (found := self.neighbours.torch_name(star + name))), "")

    @cached_property
    def module_imports(self) -> frozenset[str]:
        """Names that imports bind for the whole file: not inside a function or class, not for type checkers only."""
        names: set[str] = set()
        imports: list[ast.Import | ast.ImportFrom] = [*self.nodes(ast.Import), *self.nodes(ast.ImportFrom)]
        for statement in imports:
            around = list(self.ancestors(statement))
            hidden = any(isinstance(a, ast.If) and "TYPE_CHECKING" in self.text_of(a.test) for a in around)
            if not hidden and not any(isinstance(a, (*FUNCTIONS, ast.ClassDef)) for a in around):
                names.update(alias.asname or alias.name.partition(".")[0] for alias in statement.names)
        return frozenset(names)

    @cached_property
    def star_modules(self) -> tuple[str, ...]:
        """Modules of torch from which everything is imported."""
        modules = [n.module or "" for n in self.nodes(ast.ImportFrom) if not n.level and n.names[0].name == "*"]
        return tuple(module for module in modules if module.partition(".")[0] == "torch")

    @cached_property
    def imports_torch(self) -> bool:
        """Whether the file imports torch, or a file of the project that does."""
        if any(name.partition(".")[0] == "torch" for name in self.aliases.values()) or self.star_modules:
            return True
        return self.neighbours is not None and self.neighbours.imports_a_marked_file("torch", self._imported_modules)

    @property
    def _imported_modules(self) -> Iterator[str]:
        for statement in self.nodes(ast.Import):
            yield from (alias.name for alias in statement.names)
        for from_ in self.nodes(ast.ImportFrom):
            module = "." * from_.level + (from_.module or "")
            joined = module if module.endswith(".") else module + "."
            yield from (module, *(joined + alias.name for alias in from_.names))

    def qualified(self, node: ast.AST | None) -> str | None:
        """The documented dotted name an expression refers to through imports, or None.

        `nn.Conv2d` is "torch.nn.Conv2d" after `from torch import nn`. A name that is bound as a parameter or assigned
        in the function around it is that variable, and None here.
        """
        if isinstance(node, ast.Name) and node.id in self.subclasses:
            return self.subclasses[node.id]
        return self._imported(node)

    def _imported(self, node: ast.AST | None) -> str | None:
        if isinstance(node, ast.Attribute):
            value = self._imported(node.value)
            if not value:
                return None
            dotted = f"{value}.{node.attr}"
            return canonical(dotted) if value.startswith("torch") else self._torch_name(dotted)
        if not isinstance(node, ast.Name):
            return None
        target = self.aliases.get(node.id)
        if target is None:
            if isinstance(node.ctx, ast.Load) and (meant := self._assigned_aliases.get(node.id)):
                return meant
            if found := self._starred(node.id):
                return found
            if self.star_modules and node.id not in self.assigned_names:
                return canonical(f"{self.star_modules[-1]}.{node.id}")
            return None
        return None if node.id in self.assigned_names and self._shadowed(node) else target

    @cached_property
    def definitions(self) -> list[Function | ast.ClassDef]:
        """Every function and class of the file, nested ones too."""
        return [*self.nodes(ast.FunctionDef), *self.nodes(ast.AsyncFunctionDef), *self.nodes(ast.ClassDef)]

    @cached_property
    def assigned_names(self) -> frozenset[str]:
        """Every name bound in the file by something else than an import: assigned, looped over, a parameter, defined."""
        names = {node.id for node in self._names_bound}
        names.update(argument.arg for argument in self.nodes(ast.arg))
        names.update(definition.name for definition in self.definitions)
        return frozenset(names)

    def _shadowed(self, name: ast.Name) -> bool:
        for scope in (name, *self.ancestors(name)):
            if isinstance(scope, (*FUNCTIONS, ast.Lambda)) and name.id in self.bound_in(scope):
                return True
        bound = self.bound_in(self.tree).get(name.id, ())
        return not all(self._replaces_import(node) or self._is_bound_later(node, name) for node in bound)

    def _is_bound_later(self, binding: ast.AST, name: ast.Name) -> bool:
        """Whether a name of the module is read before it is bound, in no loop with that: `for i, data in enumerate(...)`.

        Then it still is what was imported: `from torch.utils import data`, of which the loop before took its loader.
        """
        if not isinstance(binding, ast.Name) or self.scope(name) is not self.tree:
            return False
        if not self.span(name).end <= self.span(binding).start:
            return False
        around = {id(ancestor) for ancestor in self.ancestors(name) if isinstance(ancestor, LOOPS)}
        return not any(id(ancestor) in around for ancestor in self.ancestors(binding))

    def _replaces_import(self, binding: ast.AST) -> bool:
        """Whether a name is bound to None where its import failed: `except ImportError: torch = None`."""
        statement = self.parent(binding)
        around = self.parent(statement) if isinstance(statement, ast.Assign) else None
        attempt = self.parent(around) if isinstance(around, ast.ExceptHandler) else None
        if (
            not isinstance(statement, ast.Assign)
            or not isinstance(attempt, ast.Try)
            or not isinstance(binding, ast.Name)
        ):
            return False
        if not isinstance(statement.value, ast.Constant) or statement.value.value is not None:
            return False
        imported = [item for item in attempt.body if isinstance(item, (ast.Import, ast.ImportFrom))]
        names = [alias.asname or alias.name.partition(".")[0] for item in imported for alias in item.names]
        return binding.id in names

    def bound_in(self, scope: ast.AST) -> dict[str, list[ast.AST]]:
        """Names bound in one function, class or module (not in nested ones), each with the nodes that bind it.

        A binding node is the target `ast.Name`, the `ast.arg`, or the definition. Imports are not in it.
        """
        return self._bindings.get(id(scope), {})

    @cached_property
    def _bindings(self) -> dict[int, dict[str, list[ast.AST]]]:
        table: dict[int, dict[str, list[ast.AST]]] = {}
        elsewhere: dict[tuple[int, str], ast.AST] = {}  # names that a function binds further out
        declared: list[ast.Global | ast.Nonlocal] = [*self.nodes(ast.Global), *self.nodes(ast.Nonlocal)]
        for statement in declared:
            scope = self.scope(statement)
            outer = self.enclosing(scope, *FUNCTIONS) if isinstance(statement, ast.Nonlocal) else None
            elsewhere.update(((id(scope), name), outer or self.tree) for name in statement.names)

        def bind(scope: ast.AST, name: str, node: ast.AST) -> None:
            owner = elsewhere.get((id(scope), name), scope) if elsewhere else scope
            table.setdefault(id(owner), {}).setdefault(name, []).append(node)

        for name in self._names_bound:
            bind(self.scope(name), name.id, name)
        for argument in self.nodes(ast.arg):
            bind(self.scope(argument), argument.arg, argument)
        for definition in self.definitions:
            bind(self.scope(definition), definition.name, definition)
        return table

    def lookup(self, name: ast.Name) -> list[ast.AST]:
        """The nodes that bind this name in the nearest scope that binds it (classes are skipped, as Python does)."""
        if name.id not in self.assigned_names:
            return []
        for scope in self.ancestors(name):
            if isinstance(scope, (*FUNCTIONS, ast.Lambda, ast.Module)):
                bound = self.bound_in(scope).get(name.id)
                if bound:
                    return bound
        return []

    @cached_property
    def _loads(self) -> dict[str, list[ast.Name]]:
        table: dict[str, list[ast.Name]] = {}
        for name in self.nodes(ast.Name):
            if name.ctx.__class__ is ast.Load:
                table.setdefault(name.id, []).append(name)
        return table

    def uses_of(self, binding: ast.AST, name: str) -> list[ast.Name]:
        """Every read of the variable that this node binds, in its scope and the functions nested in it."""
        if name not in self._variables:
            by_variable: dict[int, tuple[list[ast.AST], list[ast.Name]]] = {}
            for use in self._loads.get(name, []):
                bound = self.lookup(use)
                by_variable.setdefault(id(bound), (bound, []))[1].append(use)
            self._variables[name] = list(by_variable.values())
        return [u for bound, uses in self._variables[name] if any(node is binding for node in bound) for u in uses]


def same_signature(definition: ast.ClassDef) -> bool:
    """Whether a subclass takes its base's arguments as they are and leaves alone what is computed with them.

    It defines no constructor, or one that only hands everything on: `def __init__(self, *args, **kwargs)` with
    `super().__init__(*args, **kwargs)`; it is not decorated.
    """
    if definition.decorator_list:
        return False
    changing = [s for s in definition.body if isinstance(s, FUNCTIONS) and s.name in CHANGES_ARGUMENTS]
    return all(function.name == "__init__" and _hands_everything_on(function) for function in changing)


def _hands_everything_on(function: Function) -> bool:
    """Whether a constructor hands on what it is given as it is; beside it at most constants of a norm: `eps=1e-6`."""
    taken = function.args
    if taken.posonlyargs or taken.kwonlyargs or taken.defaults or taken.vararg is None or taken.kwarg is None:
        return False
    handed = [n for n in ast.walk(function) if isinstance(n, ast.Call) and _is_super_init(n)]
    if len(handed) != 1:
        return False
    own = [parameter.arg for parameter in taken.args[1:]]
    given = [ast.unparse(a) for a in handed[0].args] + [ast.unparse(k.value) for k in handed[0].keywords if not k.arg]
    fixed = [keyword for keyword in handed[0].keywords if keyword.arg]
    names = {*own, taken.vararg.arg, taken.kwarg.arg}
    inside = [node for statement in function.body for node in ast.walk(statement)]
    changed = any(isinstance(n, ast.Name) and n.id in names for s in function.body for n in _stores_into(s))
    changed = changed or any(isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Store) for n in inside)
    if given != [*own, f"*{taken.vararg.arg}", taken.kwarg.arg] or changed:
        return False
    return all(k.arg in _OF_NORMS and isinstance(k.value, ast.Constant) and k.value.value for k in fixed)


def _is_super_init(call: ast.Call) -> bool:
    """Whether a call is `super().__init__(...)` or `super(Loader, self).__init__(...)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "__init__":
        return False
    above = call.func.value
    return isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id == "super"


def _stores_into(statement: ast.stmt) -> Iterator[ast.AST]:
    """Names whose items or methods a statement may change: `kwargs["x"] = 1`, `kwargs.setdefault("x", 1)`."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.Subscript, ast.Attribute)):
            yield node.value


def canonical(name: str) -> str:
    """The documented name of something in torch that can be reached under several."""
    if name.startswith(("torch.", "torchdata.")):
        for pattern, replacement in _CANONICAL:
            name = pattern.sub(replacement, name)
    return name


def read_source(path: Path, shown_as: str) -> Source:
    """The file as a Source. Raises Unreadable with the reason, in words, when it cannot be audited."""
    return Source(shown_as, read_text(path)[0])


@functools.lru_cache(maxsize=1)  # asked for by each edit of a file
def line_starts(text: str) -> list[int]:
    """Where the lines of a text begin."""
    if "\r" not in text:
        return [0, *accumulate(len(line) + 1 for line in text.split("\n")[:-1])]
    return [0, *(match.end() for match in NEWLINE.finditer(text))]


def location(path: str, text: str, span: Span) -> Location:
    """Where a span of a text is, by line and column."""
    starts = line_starts(text)
    line, end_line = bisect.bisect_right(starts, span.start), bisect.bisect_right(starts, span.end)
    return Location(path, line, span.start - starts[line - 1] + 1, end_line, span.end - starts[end_line - 1] + 1)


def read_text(path: Path, limit: int = MAX_BYTES) -> tuple[str, str]:
    """Text and encoding of a Python file, line ends as they are. Raises Unreadable with the reason, also above the limit.

    The encoding is what `tokenize.detect_encoding` says (byte-order mark, PEP 263 comment, else UTF-8).
    """
    try:
        data = read_bytes(path, limit)
    except TooLarge as error:
        raise Unreadable(f"larger than {limit >> 20} MiB, probably generated") from error
    except OSError as error:
        raise Unreadable(refusal(error)) from error
    return decoded(data)


def decoded(data: bytes) -> tuple[str, str]:
    """Text and encoding of the bytes of a Python file. Raises Unreadable with the reason."""
    if b"\0" in data:
        raise Unreadable("binary: it holds null bytes")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if codecs.lookup(encoding).name in SLOW_CODECS:
            raise Unreadable(f"in {encoding}, an encoding for names of domains and no text of a program")
        return data.decode(encoding), encoding
    except (SyntaxError, UnicodeError, LookupError) as error:
        detail = f" (byte {error.start})" if isinstance(error, UnicodeDecodeError) else ""
        raise Unreadable(f"not valid text in its encoding, UTF-8 unless it declares another{detail}") from error
