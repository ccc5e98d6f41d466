"""What a module binds at its top level that may lead to torch: imports, star imports, classes with one base.

Read from its bare code, statement by statement, because only the few that import or define are worth a tree. Where the text
does not settle where statements begin, the whole file is parsed.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator

from perfaudit.expressions import regex
from perfaudit.static.bare_code import bare_code
from perfaudit.static.source.lines import NEWLINE
from perfaudit.static.source.plain_subclass import CHANGES_ARGUMENTS, same_signature

_BEGINS = regex(r"^[^\s)\]}'\\]", re.MULTILINE)  # at a statement, a decorator or a further branch of one
_GOES_ON = regex(r"(?:elif|else|except|finally)\b")
_IS_FUNCTION = regex(r"(?:@[^\0]*\n)?(?:async[ \t]+)?def\b")
_CLASS = regex(r"(?:@[^\0]*\n)?class[ \t]+(\w+)")
_HEAD = regex(r"class[ \t]+\w+[ \t]*\([ \t]*([\w.]+)[ \t]*\)[ \t]*:")
_CHANGES = regex(rf"\bdef[ \t\\\n]+(?:{'|'.join(sorted(CHANGES_ARGUMENTS))})\b")
_FIRST_STATEMENT = regex(r"[ \t]*\n\s*?^([ \t]+)(?=\S)", re.MULTILINE)
_IMPORTS = ("import ", "from ")
_MAY_BIND = regex(r"\b(?:import|class)\b")


class ModuleNames:
    """Names that a module binds at its top level: what it imports, and the classes that it derives from one other.

    imports: what each imported name stands for. stars: modules from which everything is imported.
    Raises what parsing raises, for a text that does not parse where names may be bound.
    """

    def __init__(self, text: str) -> None:
        self.imports: dict[str, str] = {}
        self.stars: list[str] = []
        self._classes: dict[str, list[str | ast.ClassDef]] = {}
        self._bases: dict[tuple[str, bool], str] = {}
        bare = bare_code(NEWLINE.sub("\n", text) if "\r" in text else text)
        try:
            if not bare.is_sure:
                raise SyntaxError
            self._add_statements(_statements(bare.code))
        except SyntaxError:  # a statement that goes on where another seemed to begin
            self.imports.clear()
            self.stars.clear()
            self._classes.clear()
            self._add_all(_parse(text))

    def base_of(self, name: str, *, plain: bool) -> str:
        """The one base of a class, as written; plain: of one that takes its base's arguments and leaves them as they are.

        "" where the module has no such class.
        """
        if (name, plain) not in self._bases:
            self._bases[name, plain] = self._base_of(name, plain)
        return self._bases[name, plain]

    def _base_of(self, name: str, plain: bool) -> str:
        for written in reversed(self._classes.get(name, ())):
            if plain and isinstance(written, str) and written.startswith("@"):
                continue  # a decorator may change anything
            if isinstance(written, str) and (head := _HEAD.match(written)):
                if not plain or not _CHANGES.search(written):
                    return head[1]
                if _changes_surely(written[head.end() :]):
                    continue
            definition = written if isinstance(written, ast.ClassDef) else _class_in(written)
            if definition is not None and len(definition.bases) == 1 and (not plain or same_signature(definition)):
                return ast.unparse(definition.bases[0])
        return ""

    def _add_statements(self, texts: Iterable[str]) -> None:
        imports: list[str] = []  # one behind the other, which are parsed together
        for text in texts:
            if text.startswith(_IMPORTS):
                imports.append(text)
            elif not _IS_FUNCTION.match(text) and _MAY_BIND.search(text):
                if match := _CLASS.match(text):
                    self._classes.setdefault(match[1], []).append(text)
                else:
                    self._add_all(_parse("".join([*imports, text])))
                    imports.clear()
        self._add_all(_parse("".join(imports)))

    def _add_all(self, body: Iterable[ast.stmt]) -> None:
        waiting = list(body)[::-1]
        while waiting:
            statement = waiting.pop()
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self.imports[name] = alias.name if alias.asname else name
            elif isinstance(statement, ast.ImportFrom):
                module = "." * statement.level + (statement.module or "")
                joined = module if module.endswith(".") else module + "."
                for alias in statement.names:
                    if alias.name == "*":
                        self.stars.append(module)
                    else:
                        self.imports[alias.asname or alias.name] = joined + alias.name
            elif isinstance(statement, ast.ClassDef):
                self._classes.setdefault(statement.name, []).append(statement)
            elif isinstance(statement, (ast.If, ast.Try)):
                inner = [*statement.body, *(s for h in getattr(statement, "handlers", []) for s in h.body)]
                waiting += reversed([*inner, *statement.orelse])


def _statements(code: str) -> Iterator[str]:
    """The text of each statement at the top, decorators and branches with it."""
    starts = [match.start() for match in _BEGINS.finditer(code)]
    begin: int | None = None
    decorated = False
    for start in starts:
        if begin is not None and not decorated and not _GOES_ON.match(code, start):
            yield code[begin:start]
            begin = None
        begin = start if begin is None else begin
        decorated = code[start] == "@"
    if begin is not None:
        yield code[begin:]


def _changes_surely(body: str) -> bool:
    """Whether a class in bare code, from behind its head, surely defines what changes its base, without a tree of it.

    A function at the indentation of the first statement is the class's own. A constructor may hand on all that it is given.
    """
    first = _FIRST_STATEMENT.match(body)
    if first is None:
        return False
    own = re.finditer(rf"^{first[1]}(?:async[ \t]+)?def[ \t]+(\w+)[ \t]*\(([^()]*\))?", body, re.MULTILINE)
    names = {match[1] for match in own if match[1] != "__init__" or (match[2] and "**" not in match[2])}
    return not names.isdisjoint(CHANGES_ARGUMENTS)


def _class_in(text: str) -> ast.ClassDef | None:
    try:
        statement = next(iter(_parse(text)), None)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return statement if isinstance(statement, ast.ClassDef) else None


def _parse(text: str) -> list[ast.stmt]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text).body
