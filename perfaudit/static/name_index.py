"""Which files of a scan name what others define: read from their texts, without comments, without a tree of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from perfaudit.expressions import regex
from perfaudit.reading import read_bytes
from perfaudit.records import record

MAX_BYTES = 4 << 20  # of a text that is read for its names; a notebook with more is taken to name everything

_DEFINED = regex(rb"\b(?:def|class)[ \t]+([A-Za-z_]\w*)")
_WORD = regex(rb"[A-Za-z_]\w*")
# Begins where a word begins, or between words: a picture in a notebook is one word of megabytes, tried from each of its letters.
_DOTTED = regex(rb"(?<!\w)(\w*+)[ \t]{0,100}+\.[ \t]{0,100}+(?=([A-Za-z_]\w*))")
_ESCAPED = regex(rb"\\+[nrt]")  # in a notebook, where a text holds the code
# Comments and long texts go, short ones are kept apart: a name in quotes may be what `getattr` or a table is asked for.
_COMMENT = regex(
    rb"#[^\n]*+"
    rb'|"""[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*+"""'
    rb"|'''[^'\\]*+(?:(?:\\.|'(?!''))[^'\\]*+)*+'''"
    rb'|("[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
    rb"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+')",
    re.DOTALL,
)
_OF_TORCH = regex(rb"import torch\.nn as nn\b|from torch import nn\b")
# What looks names up that no text spells: none of them can be called unused then.
_ANYWHERE_WORDS = (b"import_module", b"__import__", b"hydra", b"_target_", b"__subclasses__", b"pydoc", b"gin.")
_ANYWHERE = regex(rb"import_module|__import__|\bhydra\b|[\"']_target_[\"']|__subclasses__|\bpydoc\b|\bgin\.")
# From here on each begins with letters that stand for themselves, and looks back from behind them: it is looked for ten times as
# fast as a choice of several. Those took longer together than to parse the texts.
_IN_MODULE = tuple(
    map(
        regex,
        (
            *(rb"globals\(\)", rb"locals\(\)", rb"vars\(\)(?<=\bvars\(\))", rb"dir\((?<=\bdir\()"),
            rb"__dict__(?<!self\.__dict__)(?<!args\.__dict__)(?<!opt\.__dict__)\s*(?:\[|\.get|\.items)",
            rb"getattr\((?<=\bgetattr\()"
            rb"\s*(?!self\b|args?\b|opts?\b|cfg\b|config\b|hparams\b|torch\b|nn\b|F\b|np\b|super\b)[\w.]+\s*,\s*(?![\"'])",
        ),
    )
)
_EVAL = regex(rb"eval\((?<![\w.]eval\()\s*(f?[\"'][^\"'\n]*\.)?")
_FIRE = regex(rb"fire\.Fire\((?<=\bfire\.Fire\()")
_ASKS_BY_TEXT = tuple(
    map(regex, (rb"__all__", rb"entry_points", rb"getattr\((?<=\bgetattr\()", rb"attrgetter\((?<=\battrgetter\()"))
)
_LOOP_AT_TOP = regex(rb"^(?:for|while)\b", re.MULTILINE)


@record(frozen=True, slots=True)
class Names:
    """What one text says of names that other files may define.

    `words` are the names in its code, `dotted` those behind a dot, each with the word before the dot, `quoted` the words of
    short texts where something asks for names by texts. `lookups` says how it looks names up that it does not spell:
    "anywhere" (any name of the project), "modules" (names of modules that it imports), "own" (names that it binds itself).
    """

    words: frozenset[bytes] = frozenset()
    dotted: frozenset[tuple[bytes, bytes]] = frozenset()
    quoted: frozenset[bytes] = frozenset()
    defined: frozenset[bytes] = frozenset()
    lookups: frozenset[str] = frozenset()
    is_script: bool = False


UNREAD = Names(lookups=frozenset({"anywhere"}))


def names_in(data: bytes, is_notebook: bool = False) -> Names:
    """The names of a text."""
    texts: list[bytes] = []
    code = code_of(data, is_notebook, texts)
    lookups = set()
    if _looks_up_anything(data):
        lookups.add("anywhere")
    if finds(_IN_MODULE, code):
        lookups.add("modules")
    searched = code if is_notebook else data
    evaluated = [match[1] for match in _EVAL.finditer(searched)]
    if evaluated or _FIRE.search(searched):
        lookups |= {"own"} | ({"modules"} if any(evaluated) else set())
    quoted = {word for text in texts for word in _WORD.findall(text)} if finds(_ASKS_BY_TEXT, data) else set()
    known = {b"torch", b"np", b"F"} | ({b"nn"} if _OF_TORCH.search(data) else set())
    dotted = {(before, name) for before, name in _DOTTED.findall(code) if before not in known}
    return Names(
        words=frozenset(_WORD.findall(_DEFINED.sub(b"", code))),
        dotted=frozenset(dotted),
        quoted=frozenset(quoted),
        defined=frozenset(_DEFINED.findall(code)),
        lookups=frozenset(lookups),
        is_script=is_script(data, code),
    )


def finds(choice: Iterable[re.Pattern[bytes]], text: bytes) -> bool:
    """Whether one of several expressions is found in a text."""
    return any(each.search(text) for each in choice)


def is_script(data: bytes, code: bytes) -> bool:
    """Whether a text is there to be run: it has a main guard, reads a command line, or has a loop at its top."""
    if b"__main__" in data or b".parse_args(" in code:
        return True
    return _begins_a_line_with_a_loop(code) and _LOOP_AT_TOP.search(code) is not None


def _begins_a_line_with_a_loop(text: bytes) -> bool:
    """Whether one may; found ten times as fast."""
    return b"\nfor" in text or b"\nwhile" in text or text.startswith((b"for", b"while"))


def _is_script(file: str) -> bool:
    data = _data_of(file)
    if data is None:
        return False
    if file.endswith(".ipynb"):
        return is_script(data, code_of(data, is_notebook=True))
    may_be = b"__main__" in data or b".parse_args(" in data or _begins_a_line_with_a_loop(data)
    return may_be and is_script(data, code_of(data))


def code_of(data: bytes, is_notebook: bool = False, texts: list[bytes] | None = None) -> bytes:
    """A text without comments, and with every text in it empty; of a notebook its JSON, lines apart.

    texts: takes the short ones.
    """

    def without(match: re.Match[bytes]) -> bytes:
        if match[1] and texts is not None:
            texts.append(match[1])
        return b"''" if match[1] else b""

    return _ESCAPED.sub(b"\n", data) if is_notebook else _COMMENT.sub(without, data)


class NameIndex:
    """The names of all texts of a scan, read once when the first question that needs them comes."""

    def __init__(self, files: Iterable[str]) -> None:
        self._files = tuple(files)

    @cached_property
    def names(self) -> dict[str, Names]:
        return {file: _names_of(file) for file in self._files}

    @cached_property
    def is_open(self) -> bool:
        """Whether a text looks up names of the whole project.

        Asked first, and answered by the first such text: a library of models has one, and its names are not read then.
        """
        return any(data is None or _looks_up_anything(data) for data in map(_data_of, self._files))

    @cached_property
    def has_script(self) -> bool:
        """Whether a text is there to be run; asked before any names are read, because a library of models has none."""
        return any(map(_is_script, self._files))

    def spelling(self, name: str) -> list[str]:
        """The files in whose code, or in whose texts that may be names, a name stands otherwise than where it is defined."""
        word = name.encode()
        return [file for file, one in self.names.items() if word in one.words or word in one.quoted]

    @cached_property
    def methods(self) -> frozenset[bytes]:
        """The names that stand behind a dot, or in a text where something asks for names by texts, in any file."""
        dotted = (name for one in self.names.values() for _, name in one.dotted)
        return frozenset(dotted).union(*(one.quoted for one in self.names.values()))


def _looks_up_anything(data: bytes) -> bool:
    """Whether a text looks names up that no text spells. Most have none of the words, which are found ten times as fast."""
    return any(word in data for word in _ANYWHERE_WORDS) and _ANYWHERE.search(data) is not None


def _names_of(file: str) -> Names:
    data = _data_of(file)
    return UNREAD if data is None else names_in(data, file.endswith(".ipynb"))


def _data_of(file: str) -> bytes | None:
    """The bytes of a file; None where they cannot be read or are too many."""
    try:
        data = read_bytes(file)
    except OSError:
        return None
    return data if len(data) <= MAX_BYTES else None
