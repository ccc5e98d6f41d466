"""A first look at the bytes of a file, without parsing: a digest, marks, what it imports, classes that may be torch's."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import islice

from perfaudit.expressions import matches_at_lines_with, regex
from perfaudit.reading import digest
from perfaudit.records import record
from perfaudit.static.project.marks import marks_of_bytes
from perfaudit.static.source.plain_subclass import PLAIN_BASES

MAX_GLANCED = 10_000  # imports, and classes, of one file that a first look takes in; 250 characters a module
MAX_CONTINUED = 50  # lines of one import that end with a backslash
MAX_PICKED = 100  # texts of one file that may name a package
# No two repetitions that meet may take the same characters: of 80 kB of dots, `\.*[\w.]*` tried every split for minutes,
# and a first look has no limit of time.
_IMPORT = regex(rb"[ \t]*(?:from[ \t]+([\w.]{1,250})[ \t]+import[ \t]+([^\n#]*)|import[ \t]+([\w., \t]+))")
_CONTINUED = regex(rb"\\\r?\n[\w., \t]*")
_NAME = regex(rb"[\w.]+|\*")
_SUBCLASS = regex(rb"class[ \t]+(\w+)[ \t]*\([ \t]*([\w.]+)[ \t]*\)")
_NOT_PLAIN = {
    *("Module", "object", "ABC", "Exception", "Enum", "NamedTuple", "Protocol", "TypedDict", "Function", "Dataset"),
}
PLAIN_LAST_NAMES = {name.rpartition(".")[2] for name in PLAIN_BASES}
_SEARCH_PATH = regex(rb"sys\.path\.(?:append\(|insert\(\s*\d+\s*,)\s*[\"']([\w./-]+)[\"']\s*\)")
# `lib_path = osp.join(this_dir, "..", "lib")` and `add_path(lib_path)` in a file of one's own for it, `_init_paths.py` as a rule.
_PARTS = rb"((?:\s*,\s*[\"'][\w./-]+[\"']){1,4})\s*\)"
_JOINED_PATH = regex(
    rb"path\.join\(\s*(?:\w*dir\w*|os\.path\.dirname\(__file__\))" + _PARTS + rb"|"
    rb"osp\.join\(\s*(?:\w*dir\w*|osp\.dirname\(__file__\))" + _PARTS
)
_PART = regex(rb"[\w./-]+")
# `import_module("models." + name)`, `"models.{}".format(name)`, `f"models.{name}"`: the package of whatever is imported.
_PICKED = regex(rb"[\"'](\w[\w.]{0,100})\.(?:[\"']\s{0,8}\+|\{[\w.\[\]]{0,60}\}|%s)")
_ADDS_A_NAME = regex(rb"sys\.path\.(?:append|insert)\((?:\s*\d+\s*,)?\s*\w+\s*\)")


@record(frozen=True)
class Glance:
    """What the bytes of one file show without parsing: a digest, marks, imported modules as written ("a.*" for all of one),
    and classes with one base that may be one of torch's.
    """

    digest: str
    size: int
    marks: frozenset[str]
    imports: tuple[str, ...]
    subclasses: dict[str, str]
    search_path: tuple[str, ...] = ()  # what it adds to `sys.path` as it is written
    picked: tuple[str, ...] = ()  # packages of which it imports a module by a name that it makes up

    def may_bind(self, name: str, bases: Collection[str] = PLAIN_LAST_NAMES, hops: int = 4) -> bool:
        """Whether the module may bind a name to something of torch's, so that it is worth parsing.

        bases: the last names of the classes of torch's from which one of the module may be derived.
        """
        if base := self.subclasses.get(name):
            return base in bases or (hops > 0 and base != name and self.may_bind(base, bases, hops - 1))
        return name in self.last_imported or "*" in self.last_imported

    def takes_from_torch(self, name: str) -> bool:
        """Whether the module imports this name from torch."""
        return name in self._last_from_torch

    @cached_property
    def bound_names(self) -> frozenset[str]:
        """Names that the module may bind to something of torch's; "*" where it imports everything from another."""
        return self.last_imported | self.subclasses.keys()

    @cached_property
    def last_imported(self) -> frozenset[str]:
        return frozenset(imported.rpartition(".")[2] for imported in self.imports)

    @cached_property
    def _last_from_torch(self) -> frozenset[str]:
        return frozenset(name.rpartition(".")[2] for name in self.imports if name.startswith("torch."))


def glance(data: bytes) -> Glance:
    """A first look at the bytes of a file; `from a import b` counts as "a" and "a.b", `as c` as "a.c" as well."""
    headers = islice(matches_at_lines_with(b"class ", _SUBCLASS, data), MAX_GLANCED)
    classes = ((match[1].decode(), match[2].decode().rpartition(".")[2]) for match in headers)
    subclasses = {name: base for name, base in classes if base not in _NOT_PLAIN}
    imports = tuple(islice(dict.fromkeys(islice(_imported_names(data), 2 * MAX_GLANCED)), MAX_GLANCED))
    added = tuple(_search_path(data)) if b"sys.path" in data else ()
    picked = tuple(_picked_packages(data)) if b"import_module(" in data else ()
    return Glance(digest(data)[:32], len(data), marks_of_bytes(data), imports, subclasses, added, picked)


def _picked_packages(data: bytes) -> Iterator[str]:
    """Packages that a text puts before a name, as it does for `import_module`; of paths and the like there is no package."""
    yield from dict.fromkeys(match[1].decode() for match in islice(_PICKED.finditer(data), MAX_PICKED))


def _search_path(data: bytes) -> Iterator[str]:
    """What a file adds to `sys.path`, as it is written: a text, or one that is joined to the file's own folder."""
    yield from (match[1].decode() for match in _SEARCH_PATH.finditer(data))
    if _ADDS_A_NAME.search(data):
        for match in _JOINED_PATH.finditer(data):
            yield "/".join(part.decode() for part in _PART.findall(match[1] or match[2]))


def _end_of_continued(data: bytes, end: int) -> int:
    """Where an import ends whose line is continued by a backslash, as often as it is."""
    at = end - data.startswith(b"\r", end - 1)
    at -= data.startswith(b"\\", at - 1)
    for _ in range(MAX_CONTINUED):
        if (continued := _CONTINUED.match(data, at)) is None:
            break
        at = end = continued.end()
    return end


def _imported_names(data: bytes) -> Iterator[str]:
    """Modules and names as `glance` counts them, in order of the text."""
    last_bracket = data.rfind(b")")
    for match in matches_at_lines_with(b"import", _IMPORT, data):
        module, names, plain = match.groups()
        end = _end_of_continued(data, match.end())
        if plain is not None:
            yield from (name[0].decode() for name in _NAME.finditer(data, match.start(3), end) if name[0] != b"as")
            continue
        if names.startswith(b"(") and match.start(2) < last_bracket:
            end = data.find(b")", match.start(2))
        prefix = module.decode()
        yield prefix
        joined = prefix if prefix.endswith(".") else prefix + "."
        yield from (joined + name[0].decode() for name in _NAME.finditer(data, match.start(2), end) if name[0] != b"as")
