"""What a text of YAML, JSON or TOML sets, by the keys that lead to it.

YAML is read line by line, as a parser of it need not be installed: mappings by indentation, lists of them, and what stands in
braces. What that does not settle is UNREAD: aliases, tags, braces in braces, interpolations. Nothing of a text is ever run.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.reading import json_of, toml_of
from perfaudit.records import NamedTuple, field, record

YAML, JSON, TOML = (".yaml", ".yml"), (".json",), (".toml",)
SUFFIXES = (*YAML, *JSON, *TOML, ".YAML", ".YML", ".JSON")
# Kinds that are not read: a setting that such a file names may be anything, as by `python train.py data.num_workers=8`.
OTHERS = (
    *(".jsonnet", ".libsonnet", ".json5", ".jsonc", ".hjson", ".ini", ".conf", ".gin", ".j2"),
    *(".sh", ".slurm", ".sbatch", ".ps1", ".bat", ".mk", "Makefile", "makefile", "justfile", "Justfile"),
)

CLASS_KEYS = ("_target_", "class_path", "target")  # hydra, Lightning's command line, and others name a class by them
# The section beside `class_path`, `target` or, for the last, `type` with what the class is given.
_ARGUMENTS = ("init_args", "params", "args")
# `${paths.package}.data.Images`: its last name is known.
_CLASS_BELOW_FILLED_IN = regex(r"\$\{[\w.]+\}[\w.]*\.[A-Za-z_]\w*")
_WORDS: dict[str, object] = {  # as YAML 1.1 has them, which PyYAML reads
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
    **dict.fromkeys(("", "~", "null"), None),
}
_BLOCK = regex(r"(?:[!&]\S*\s+)*[|>][-+\d]*")  # begins a text of several lines
_MOST_DASHES = 9  # of a list in a list in a line
_INTEGER = regex(r"[-+]?\d[\d_]*")
_IN_BRACES = regex(r"""(?<![\w.-])["']?([A-Za-z_][\w.-]*+)["']?\s*+:\s++([^,{}\[\]\n]*)""")


class Unread(enum.Enum):
    """That a setting is there, and that its value is not known."""

    UNREAD = "unread"


UNREAD = Unread.UNREAD


class Setting(NamedTuple):
    """One value of a settings file. line: from 1, 0 where it is not known.

    keys: the sections around it, outermost first, and its own name; () where they are not known.
    """

    keys: tuple[str, ...]
    value: object
    line: int


@record(slots=True)
class Section:
    """A mapping of a settings file. is_whole: whether all its keys are in sight, which a merge with another one may add to."""

    keys: tuple[str, ...] = ()
    settings: list[Setting] = field(default_factory=list)
    is_whole: bool = True
    above: Section | None = None

    @property
    def class_made(self) -> str:
        """The class that the section gives its arguments, as it is named there: "data.Images"; "" where it names none."""
        own = self.keys[-1] if self.keys else ""
        beside = self.above if own in _ARGUMENTS else None
        for section, names in ((self, CLASS_KEYS), (beside, ("type",) if own == "args" else CLASS_KEYS)):
            for setting in section.settings if section is not None else ():
                if setting.keys[-1] in names and isinstance(setting.value, str):
                    return setting.value
        return ""


def sections_of(text: str, suffix: str) -> list[Section] | None:
    """The sections of a settings file, the outermost first; None for a text that is none of its kind."""
    if suffix in YAML:
        return list(_of_lines(text))
    try:
        tree = toml_of(text) if suffix in TOML else json_of(text)
    except ValueError:
        return None
    return list(_of_tree(tree))


def values_by_lines(text: str, name: str) -> Iterator[tuple[object, int]]:
    """What a text that cannot be read as its kind (JSON with comments) seems to give a name, and in which lines."""
    named = re.compile(rf"""(["']?)\b{re.escape(name)}\1\s*[:=]\s*([^,{{}}\[\]]*)""")
    for number, line in enumerate(text.splitlines(), 1):
        for match in named.finditer(line):
            yield _scalar(_without_comment(match[2].partition("//")[0])), number


def _of_tree(tree: object) -> Iterator[Section]:
    waiting: list[tuple[Section, object]] = [(Section(), tree)]
    while waiting:
        section, value = waiting.pop()
        if isinstance(value, list):
            waiting += [(Section(section.keys, above=section.above), item) for item in reversed(value)]
        elif isinstance(value, dict):
            yield section
            inner = []
            for key, item in value.items():
                keys = (*section.keys, str(key))
                if isinstance(item, (dict, list)):
                    inner.append((Section(keys, above=section), item))
                else:
                    section.settings.append(Setting(keys, item, 0))
            waiting += reversed(inner)


def _of_lines(text: str) -> Iterator[Section]:
    """The sections of a text of YAML."""
    top = Section()
    found = [top]
    around: list[tuple[int, bool, Section]] = [(-1, False, top)]  # indentation, whether an item of a list, section
    lines = iter(enumerate(text.splitlines(), 1))
    skipped_below = -1  # indentation of a key whose text in several lines is passed over
    for number, line in lines:
        rest = line.lstrip(" ")
        indent = len(line) - len(rest)
        if not rest or rest.startswith(("#", "---", "...", "%")):
            continue
        if 0 <= skipped_below < indent:
            continue
        skipped_below = -1
        for _ in range(_MOST_DASHES if rest == "-" or rest.startswith("- ") else 0):
            while around[-1][0] > indent or (around[-1][0] == indent and around[-1][1]):
                around.pop()
            item = Section(around[-1][2].keys, above=around[-1][2].above)
            found.append(item)
            around.append((indent, True, item))
            inner = rest[1:].lstrip(" ")
            indent, rest = indent + len(rest) - len(inner), inner
            if rest != "-" and not rest.startswith("- "):
                break
        key, value = _key_and_value(rest)
        if key is None:
            skipped_below = around[-1][0] if _BLOCK.fullmatch(_without_comment(rest)) else skipped_below
            continue
        while around[-1][0] >= indent:
            around.pop()
        section = around[-1][2]
        if key == "<<":
            section.is_whole = False
            continue
        keys = (*section.keys, key)
        value = _without_anchor(value)
        if _BLOCK.fullmatch(value):
            skipped_below = indent
        elif value[:1] in ("'", '"') and value.count(value[0]) == 1:  # which goes on in the next lines
            section.settings.append(Setting(keys, UNREAD, number))
            next((None for _, text in lines if value[0] in text), None)
        elif value.startswith(("{", "[")):
            found.append(inside := Section(keys, above=section))
            inside.settings += _in_braces(keys, value, number, lines)
            inside.is_whole = False
        elif value:
            is_class = key in CLASS_KEYS and _CLASS_BELOW_FILLED_IN.fullmatch(value)
            section.settings.append(Setting(keys, value if is_class else _scalar(value), number))
        else:
            found.append(inner_section := Section(keys, above=section))
            around.append((indent, False, inner_section))
    yield from found


def _key_and_value(rest: str) -> tuple[str | None, str]:
    """The key of a line and what stands behind its colon, without a comment; no key where the line has none."""
    if rest[:1] in ("'", '"'):
        end = rest.find(rest[0], 1)
        key, behind = rest[1:end], rest[end + 1 :].lstrip(" ")
        if end < 0 or not behind.startswith(":"):
            return None, ""
        return key, _without_comment(behind[1:])
    key, colon, behind = rest.rstrip(" \t").partition(": ")
    if not colon and key.endswith(":"):
        key, colon = key[:-1], ":"
    key = key.rstrip(" ")
    if not colon or not key or key[0] in "{[" or "#" in key:
        return None, ""
    return key, _without_comment(behind)


def _without_comment(text: str) -> str:
    text = text.strip(" \t")
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[: end + 1] if end > 0 else text
    return "" if text.startswith("#") else text.partition(" #")[0].rstrip(" \t")


def _without_anchor(value: str) -> str:
    return value.partition(" ")[2].lstrip(" ") if value.startswith("&") else value


def _in_braces(keys: tuple[str, ...], value: str, number: int, lines: Iterator[tuple[int, str]]) -> Iterator[Setting]:
    """What braces set, which may go on in the next lines; its values are not known where they hold braces themselves."""
    parts = [(number, value)]
    depth = _depth(value)
    while depth > 0 and (following := next(lines, None)) is not None:
        said = "" if following[1].lstrip().startswith("#") else following[1].partition(" #")[0]
        parts.append((following[0], said))
        depth += _depth(said)
    whole = "".join(text for _, text in parts)
    is_plain = whole.count("{") == 1 and "[" not in whole
    for line, text in parts:
        for match in _IN_BRACES.finditer(text):
            yield Setting((*keys, match[1]), _scalar(_without_comment(match[2])) if is_plain else UNREAD, line)


def _depth(text: str) -> int:
    return sum(text.count(one) for one in "{[") - sum(text.count(one) for one in "}]")


def _scalar(text: str) -> object:
    """A number, a switch, nothing, or a text; UNREAD for an alias, a tag, and what is filled in later (`${workers}`)."""
    if text[:1] in ("'", '"'):
        return text[1:-1]
    if text[:1] in ("*", "!", "$") or "${" in text or "{{" in text:
        return UNREAD
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if len(text) < 20 and _INTEGER.fullmatch(text):
        return int(text)
    return text
