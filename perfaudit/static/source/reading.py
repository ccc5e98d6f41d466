"""The text of a Python file, or in words why it cannot be audited."""

from __future__ import annotations

import codecs
import sys
from pathlib import Path

from perfaudit.errors import refusal
from perfaudit.expressions import regex
from perfaudit.reading import TooLarge, read_bytes

MAX_BYTES = 4 << 20  # a generated 13 MB list costs ast.parse 6 s and 1.8 GB; no hand-written file comes near 4 MiB
# Codecs of packages that read UTF-8 and let older Pythons run newer syntax, which the parser of this one knows.
_NEWER_SYNTAX = regex(rb"[ \t\f]*#.*?coding[:=][ \t]*future[-_](?:fstrings|annotations)\b")
SLOW_CODECS = {"punycode", "idna"}  # 200 kB in the first take 14 s, four times as long for twice as much


def why_not_parsed(error: SyntaxError) -> str:
    """What the parser says of a text, and which Python's parser it is: a file may be written for a newer one, or for Python 2."""
    line = f" at line {error.lineno}" if error.lineno else ""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"does not parse{line}: {error.msg} (read as Python {version}, with which perfaudit runs)"


class Unreadable(Exception):
    """A file that cannot be audited; the message is the reason, in the user's words."""


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
    return decode_source(data)


def decode_source(data: bytes) -> tuple[str, str]:
    """Text and encoding of the bytes of a Python file. Raises Unreadable with the reason."""
    if b"\0" in data:
        raise Unreadable("binary: it holds null bytes")
    try:
        if b"coding" not in b"".join(data.split(b"\n", 2)[:2]) and not data.startswith(codecs.BOM_UTF8):  # most files
            return data.decode("utf-8"), "utf-8"
        if any(_NEWER_SYNTAX.match(line) for line in data[:500].splitlines()[:2]):
            return data.decode("utf-8"), "utf-8"
        import io
        import tokenize

        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if codecs.lookup(encoding).name in SLOW_CODECS:
            raise Unreadable(f"in {encoding}, an encoding for names of domains and no text of a program")
        return data.decode(encoding), encoding
    except (SyntaxError, UnicodeError, LookupError) as error:
        detail = f" (byte {error.start})" if isinstance(error, UnicodeDecodeError) else ""
        raise Unreadable(f"not valid text in its encoding, UTF-8 unless it declares another{detail}") from error
