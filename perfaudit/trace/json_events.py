"""The events of a trace file as its bytes come: pieces of the list are decoded, so that memory does not grow with the file."""

from __future__ import annotations

import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import msgspec

from perfaudit.trace.trace_files import NotReadable

PIECE = 4 << 20  # bytes that are decoded at once
MAX_HEAD = 64 << 20  # bytes before the first event; device properties take some kilobytes
MAX_EVENT = 32 << 20  # bytes of one event; call stacks take some kilobytes
# How a text begins of which each letter has two bytes: with the mark of their order, or with a bracket and a zero.
_UTF_16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"[\0", b"\0{", b"\0[")
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_LONGEST_MARK = 1024  # bytes that the name of the list may take with the spaces behind it
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_LIST_END = re.compile(rb"\}\s*,?\s*\]")
_BYTE = re.compile(
    r"\(byte (\d+)\)"
)  # in what msgspec says of malformed text; of text that ends too early it says none
MOST_TRIES = 20  # ends of the list, or of its last whole event, that are tried
MOST_ENDS = 2000  # the same of a short text
MOST_DAMAGED = 1000  # events of one piece; a file with more is no trace any more
_TAIL = 1 << 16  # bytes at the end of a piece in which the end of an event is looked for first
DEEPEST = 64  # levels of nesting that are kept; profilers write about five, and decoders fail at a thousand


class Arguments(msgspec.Struct):
    """`args` of an event: those that are used. Any: old and foreign profilers write numbers as texts, and the other way round."""

    correlation: Any = None
    external_id: Any = msgspec.field(default=None, name="External id")
    stream: Any = None
    device: Any = None
    bytes: Any = None
    bytes_new: Any = msgspec.field(default=None, name="Bytes")
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements: Any = msgspec.field(default=None, name="In msg nelems")
    dtype: Any = None
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    name: Any = None
    grid: Any = None


class Event(msgspec.Struct):
    """One event of the Chrome trace format: the fields that are used."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Arguments | None = None


_DECODER = msgspec.json.Decoder(list[Event])


class EventReader:
    """Reads one stream. `head` and `notes` are complete when `pieces` has come to its end.

    head: what stands beside the events, as plain data. notes: "truncated" where the file ends in the middle, "damaged-text" for
    bytes that are no UTF-8, "odd-events" where the list holds what is no event, "deep-nesting" where values were too deep for
    the decoders.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._buffer = b""
        self._has_ended = False
        self._needs_end = False  # a list that stands in an object; one by itself may lack its end, as the format says
        self.bytes_read = 0
        self.head: dict[str, Any] = {}  # Any: JSON
        self.notes: set[str] = set()

    def pieces(self) -> Iterator[list[Event]]:
        """Lists of events in the order of the file. Raises NotReadable for what is no trace."""
        self._find_events()
        while True:
            while len(self._buffer) < PIECE and self._read_more():
                pass
            if self._has_ended:
                yield self._shallow_piece(self._last_piece)
                return
            yield self._shallow_piece(self._next_piece)

    def _shallow_piece(self, piece: Callable[[], list[Event]]) -> list[Event]:
        """A piece; where values in it are nested too deep for the decoders, these are left out first."""
        try:
            return piece()
        except RecursionError:
            self._leave_out_deep_values()
        try:
            return piece()
        except RecursionError as error:
            raise NotReadable("no trace: its values are nested too deep") from error

    def _leave_out_deep_values(self) -> None:
        """Null in the buffer for what lies below DEEPEST levels. One that goes on behind the buffer is read up to its end."""
        self.notes.add("deep-nesting")
        while True:
            self._buffer, begin = _without_deep_values(self._buffer)
            if begin < 0:
                return
            if len(self._buffer) > MAX_EVENT:
                raise NotReadable(f"damaged: no event ends in {MAX_EVENT >> 20} MiB")
            if not self._read_more():
                self._buffer = self._buffer[:begin]
                return

    def _read_more(self) -> bool:
        """Whether there was more; a file that is cut off inside its compression ends there."""
        if self._has_ended:
            return False
        try:
            data = self._stream.read(PIECE)
        except (EOFError, zlib.error, OSError) as error:  # `gzip.BadGzipFile` is an OSError
            if not self.bytes_read:
                raise NotReadable(f"cannot be decompressed: {error}") from error
            self.notes.add("truncated")
            data = b""
        self._has_ended = not data
        self.bytes_read += len(data)
        self._buffer += data
        return bool(data)

    def _find_events(self) -> None:
        """Read up to the first event; what stands before it is the head."""
        searched = 0
        while True:
            more = self._read_more()
            start = self._buffer.lstrip(b"\xef\xbb\xbf \t\r\n")
            if start[:1] == b"[" and start[:2] not in _UTF_16:
                self._buffer = start[1:]
                return
            if start.startswith(b"version https://git-lfs"):
                raise NotReadable("no trace: a pointer of Git LFS to the file; get it with `git lfs pull`")
            if start[:2] in _UTF_16:
                raise NotReadable("no trace: its text is UTF-16; write it as UTF-8, as `iconv -f UTF-16 -t UTF-8` does")
            if start and start[:1] != b"{":
                raise NotReadable("no trace: neither a JSON object nor a list")
            if found := _EVENTS.search(start, max(0, searched - _LONGEST_MARK)):
                self._needs_end = True
                self._take_head(start[: found.start()] + b'"":0}')
                self._buffer = start[found.end() :]
                return
            if not more:
                raise NotReadable(_why_no_events(start))
            if len(start) > MAX_HEAD:
                raise NotReadable(f"no trace: no list of events in its first {MAX_HEAD >> 20} MiB")
            searched = len(start)

    def _take_head(self, text: bytes) -> None:
        words = text.decode("utf-8", "replace")
        try:
            value = json.loads(words, strict=False)
        except RecursionError:
            self.notes.add("deep-nesting")
            value = _shallow_json(text)
        except ValueError:
            return
        if isinstance(value, dict):
            self.head.update({key: item for key, item in value.items() if key})

    def _next_piece(self) -> list[Event]:
        """Events up to the last one that ends in the buffer; more is read where none does. Raises RecursionError."""
        tail = _TAIL
        while True:
            start = max(0, len(self._buffer) - tail)
            ends = list(_BETWEEN.finditer(self._buffer, start))[-MOST_TRIES:]
            for found in reversed(ends):
                events = self._decode(self._buffer[: found.start() + 1])
                if events is not None:
                    self._buffer = self._buffer[found.end() :]
                    return events
            if start:
                tail *= 16
            elif (
                len(ends) == MOST_TRIES
            ):  # none of so many ends is the end of an event: this piece is no list of events
                self.notes.add("odd-events")
                self._buffer = self._buffer[ends[-1].end() :]
                return []
            elif len(self._buffer) > MAX_EVENT:
                raise NotReadable(f"damaged: no event ends in {MAX_EVENT >> 20} MiB")
            elif not self._read_more():
                return []

    def _last_piece(self) -> list[Event]:
        """What is left when the stream has ended: the last events; the end of the list and what stands behind it are taken.

        Raises RecursionError.
        """
        text = self._buffer.strip()
        if text.startswith(b"]"):  # a list without events
            self._take_head(b'{"":0' + text[1:].lstrip())
            return []
        ends = {found.end() - 1 for found in list(_LIST_END.finditer(text))[-MOST_TRIES:]} | {text.rfind(b"]")}
        in_order = sorted(ends - {-1}, reverse=True)
        # What stands behind the list may hold lists of objects too, so that nothing is left out before all ends were tried.
        # Then the first end that serves: what is left out must not hold the end of the list.
        for may_leave_out in (False, True):
            # The brackets are counted only where many lists end behind the events: it takes long, and damage misleads it.
            tries = reversed(in_order) if may_leave_out else itertools.chain(in_order, _end_of_list(text))
            for end in tries:
                events = self._decode(text[:end].rstrip().rstrip(b","), may_leave_out)
                if events is not None:
                    self._take_head(b'{"":0' + text[end + 1 :].lstrip())
                    return events
        # A list that stands by itself may lack its end. One in an object is cut off, be it between two events.
        text = text.rstrip(b",")
        events = self._decode(text)
        if events is None or self._needs_end:
            self.notes.add("truncated")
        return self._up_to_last_whole(text) if events is None else events

    def _up_to_last_whole(self, text: bytes) -> list[Event]:
        most = max(MOST_TRIES, min(MOST_ENDS, MAX_EVENT // max(1, len(text))))  # an event may hold many objects
        for found in reversed(list(_BETWEEN.finditer(text))[-most:]):
            events = self._decode(text[: found.start() + 1])
            if events is not None:
                return events
        return []

    def _decode(self, text: bytes, may_leave_out: bool = True) -> list[Event] | None:
        """The events of a piece of the list; None where it ends inside one, or is no list of events.

        may_leave_out: whether events that are damaged are left out. Raises RecursionError.
        """
        try:
            return _DECODER.decode(b"[" + text + b"]")
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        text, is_damaged = _repair(text)
        events: list[Event] = []
        left_out = 0
        while True:
            found, damaged = self._decode_repaired(b"[" + text + b"]")
            if found is not None:
                self.notes |= {"damaged-text"} if is_damaged else set()
                self.notes |= {"odd-events"} if left_out else set()
                return events + found
            around = _around(text, damaged - 1) if damaged >= 0 and may_leave_out else None
            if around is None or left_out == MOST_DAMAGED:
                return None
            # What stands before the damaged event is whole, and what follows is decoded by itself: each byte once more.
            events += self._decode_repaired(b"[" + text[: around[0]].rstrip().rstrip(b",") + b"]")[0] or []
            text = text[around[1] :]
            left_out += 1

    def _decode_repaired(self, listed: bytes) -> tuple[list[Event] | None, int]:
        """The events of a list; else None, with the byte at which it is damaged, -1 where it only ends too early."""
        try:
            return _DECODER.decode(listed), -1
        except msgspec.ValidationError:
            return self._decode_slowly(
                listed
            )  # an event with a list for arguments, or no object: what is usable of it is taken
        except msgspec.DecodeError as error:
            place = _BYTE.search(str(error))
            return None, int(place[1]) if place else -1

    def _decode_slowly(self, listed: bytes) -> tuple[list[Event] | None, int]:
        """The same with the decoder of the standard library, which takes values of any kind."""
        words = listed.decode("utf-8", "replace")
        try:
            values = json.loads(words)
        except json.JSONDecodeError as error:
            is_end = error.pos >= len(words) - 1
            return None, -1 if is_end else len(words[: error.pos].encode())
        except ValueError:
            return None, -1
        events = [event for value in values if (event := _event_of(value)) is not None]
        if len(events) < len(values):
            self.notes.add("odd-events")
        return events, -1


def _repair(text: bytes) -> tuple[bytes, bool]:
    """The text as JSON that every decoder takes, and whether some of its letters could not be kept.

    Bytes that are no UTF-8 and halves of characters become the sign for that; control characters become spaces, and NaN and
    Infinity null: an event with such a time is left out.
    """
    is_damaged = False
    try:
        text.decode()
    except UnicodeDecodeError:
        text, is_damaged = text.decode("utf-8", "replace").encode(), True
    if _HALF_CHARACTER.search(text):
        text, is_damaged = _HALF_CHARACTER.sub(rb"\\ufffd", text), True
    text = _NO_NUMBER.sub(b"null", text)
    return _CONTROL.sub(b" ", text), is_damaged


def _around(text: bytes, position: int) -> tuple[int, int] | None:
    """Where the event at a position begins, and where the one behind it does; None where no whole event follows it."""
    before = list(_BETWEEN.finditer(text, max(0, position - (1 << 20)), position))
    after = _BETWEEN.search(text, position)
    return None if after is None else (before[-1].end() if before else 0, after.end())


_CONTROL = re.compile(rb"[\x00-\x1f]")
# A first half without a second, or a second without a first, as names that were cut have them.
_HALF_CHARACTER = re.compile(
    rb"(?<!\\)\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\)(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_NO_NUMBER = re.compile(rb'(?<=":)\s*-?(?:NaN|Infinity)(?=\s*[,}\]])')
_FIELDS = {field.encode_name: field.name for field in msgspec.structs.fields(Arguments)}


def _event_of(value: Any) -> Event | None:  # Any: JSON
    if not isinstance(value, dict):
        return None
    given = value.get("args")
    named = {_FIELDS[key]: item for key, item in given.items() if key in _FIELDS} if isinstance(given, dict) else {}
    known = {key: value.get(key) for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur")}
    return Event(**known, args=Arguments(**named))


def _without_deep_values(text: bytes) -> tuple[bytes, int]:
    """The text with null for each value below DEEPEST levels, and where in it one begins that does not end, -1 for nowhere."""
    parts = []
    depth = kept = begin = 0
    for token in _TOKENS.finditer(text):
        character = token[0][:1]
        if character in b"[{":
            depth += 1
            if depth == DEEPEST + 1:
                begin = token.start()
        elif character in b"]}":
            if depth == DEEPEST + 1:
                parts += [text[kept:begin], b"null"]
                kept = token.end()
            depth = max(0, depth - 1)
    at = sum(map(len, parts)) + begin - kept if depth > DEEPEST else -1
    return b"".join([*parts, text[kept:]]), at


def _end_of_list(text: bytes) -> Iterator[int]:
    """Where the list whose first bracket stands before the text ends, if it does."""
    depth = 0
    for token in _TOKENS.finditer(text):
        character = token[0][:1]
        depth += (character in b"[{") - (character in b"]}")
        if depth < 0:
            yield token.start()
            return


_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def _shallow_json(text: bytes) -> Any:  # Any: JSON
    """The value without what is nested too deep; None where it is no JSON."""
    try:
        return json.loads(_without_deep_values(text)[0].decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None


def _why_no_events(text: bytes) -> str:
    if not text:
        return "no trace: the file is empty"
    try:
        json.loads(text.decode("utf-8", "replace"), strict=False)
    except ValueError:
        return "no trace: not JSON, or cut off before its first event"
    except RecursionError:
        return "no trace: its values are nested too deep"
    return "no trace: JSON without traceEvents"
