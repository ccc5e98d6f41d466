"""Whether the loaders in the text of a file pin their batches, and collate in a way of their own. Reads bytes, parses nothing."""

from __future__ import annotations

import re

from perfaudit.expressions import regex
from perfaudit.static.project.given_in_code import marks_of_given

ASKED_TO_PIN = "loaders that are told whether to pin"
PINNED_BY_PARAMETER = "loaders pinned by a parameter"
PINNING_ON, PINNING_OFF, SURELY_PAGEABLE = (
    "pinning on by a setting",
    "pinning off by a setting",
    "surely pageable loaders",
)
_DEEPEST = 5  # brackets in those of a loader: a data set, its transforms, one of them, and what that is given


def _in_brackets(levels: int) -> bytes:
    return rb"\([^()]*+\)" if levels < 2 else rb"\((?:[^()]++|" + _in_brackets(levels - 1) + rb")*+\)"


# The arguments of a loader, with brackets in brackets; what lies deeper is not read.
_LOADER_CALL = regex(rb"DataLoader\(((?:[^()]++|" + _in_brackets(_DEEPEST) + rb")*+)\)")
_PINS = regex(
    rb"pin_memory\s*=\s*\(?(?:True\b|torch\.cuda\.is_available\(\)|((?:\w+\.){0,3})((?:use_|is_)?(?:cuda|gpu))\b"
    rb"|(?:self\.|args\.)?device(?:\.type)?\s*(?:!=\s*[\"']cpu|==\s*[\"']cuda)[\"'])"
)
# What sets such a flag, also as a default or for a call.
_FLAG_SET = regex(rb"\b((?:use_|is_)?(?:cuda|gpu))\s*(?::\s*bool\s*)?=(?!=)\s*([^\n]*)")
_OFF = regex(rb"\(?(?:False|None|0)\b")
_GIVEN_WHETHER = regex(rb"pin_memory\s*=\s*pin_memory\b")  # in `def make_loader(images, pin_memory=True):`
_GIVEN_VALUE = regex(
    rb"(?<![\w.\"'])pin_memory\s*=\s*(torch\.cuda\.is_available\(\)|[^\s,)]+)"
)  # what that name is bound to
# A call of torch that makes a tensor or its storage; there, `pin_memory` is about this tensor alone.
_TENSOR_CALL = regex(
    rb"(?:\btorch\.(?:nested\.)?\w+|\.new_\w+|\b\w*Storage"
    rb"|\b(?:empty|zeros|ones|full|rand|randn|randint|randperm|arange|linspace|logspace|eye|tensor)(?:_like|_strided)?)"
    rb"\((?:[^()]++|\((?:[^()]++|\((?:[^()]++|\([^()]*+\))*+\))*+\))*+\)"
)
_CLASS_OF_LOADERS = regex(rb"\bclass\s+\w*DataLoader\([^()\n]*\)")  # its header makes no loader
_LEAVES_PAGEABLE = regex(rb"pin_memory\s*=\s*False\b")
_PINS_BY_KEY = regex(rb"[\"']pin_memory[\"']\s*(?::|\]\s*=)\s*(\w+)")
# An option or a constant by that name, and its value where it is written: `PIN_MEMORY = True`, `"--pin_memory", default=False`,
# `kwargs.get("pin_memory", True)`.
_PIN_SETTING = regex(
    rb"(?:pin_mem(?:ory)?|PIN_MEM(?:ORY)?)[\"']?\]?\s*(?::\s*bool\s*=|=|:|,[^\n]{0,80}?default\s*=|(?<=[\"']),)\s*(True|False)\b"
)
# An option of the command line that says how many workers there are or whether to pin, and what sets such a thing in code.
_DECLARED = regex(
    rb"add_argument\(\s*(?:[\"']-\w+[\"']\s*,\s*)?[\"']--?([\w-]{0,60}(?:worker|thread|pin[-_]mem)[\w-]{0,60})[\"']"
)
_SET = regex(rb"(?<!self)\.(\w{0,60}(?:worker|thread|pin_mem|WORKER|PIN_MEM)\w{0,60})\s*=(?!=)")
_MAIN_GUARD = regex(rb"^if[ \t]+__name__[ \t]*==[ \t]*[\"']__main__[\"']", re.MULTILINE)
_COMMENTS = regex(rb"^[ \t]*#[^\n]*", re.MULTILINE)  # lines of their own: a loader that was taken out pins nothing
_RUNS_A_PROGRAM = (b"optim", b"model", b"train(", b"main(", b"fit(", b"run(")


def marks_of_loaders(data: bytes) -> set[str]:
    """Whether loaders pin their batches, surely leave some pageable or may do so, and collate in a way of their own.

    And whether a setting of whoever runs the program pins them, where it is written.
    """
    has_loader, has_pinning = b"DataLoader(" in data, b"pin_mem" in data or b"PIN_MEM" in data
    if has_loader or has_pinning:
        data = _COMMENTS.sub(b"", data)
    marks = _marks_of_calls(_without_trial(data)) if has_loader and b"DataLoader(" in data else set()
    if has_pinning:
        values = set(_PIN_SETTING.findall(_without_calls(data)))
        marks |= {PINNING_ON} if b"True" in values and not _pins_tensors_only(data) else set()
        marks |= {PINNING_OFF} if b"False" in values else set()
    if has_pinning or any(word in data for word in (b"worker", b"thread", b"pin-mem", b"WORKER")):
        if b"add_argument(" in data:
            marks |= {declares(match[1].decode().replace("-", "_")) for match in _DECLARED.finditer(data)}
        marks |= {sets(match[1].decode()) for match in _SET.finditer(data)}
        marks |= marks_of_given(_without_calls(data))
    return marks


def declares(option: str) -> str:
    """The mark of a file that declares an option of loaders for the command line."""
    return f"declares {option}"


def sets(option: str) -> str:
    """The mark of a file that sets an attribute by the name of such an option, of an object other than `self`."""
    return f"sets {option}"


def _without_calls(data: bytes) -> bytes:
    """The text without the calls that make loaders or tensors: what it says of pinning there is a setting of nobody else."""
    return _TENSOR_CALL.sub(b"", _LOADER_CALL.sub(b"", data))


def _pins_tensors_only(data: bytes) -> bool:
    """Whether a file tells torch to pin tensors and speaks of no loader: `def buffer(shape, pin_memory=True)`."""
    return b"loader" not in data.lower() and any(b"pin_memory" in call for call in _TENSOR_CALL.findall(data))


def _marks_of_calls(data: bytes) -> set[str]:
    data = _CLASS_OF_LOADERS.sub(b"", data)
    calls = [match[1] for match in _LOADER_CALL.finditer(data)]
    values = _PINS_BY_KEY.findall(data) if b"pin_memory" in data else []
    by_key = bool(values) and set(values) == {b"True"}
    pinned = [call for call in calls if (_pins(call, data) if b"pin_memory" in call else by_key and b"**" in call)]
    marks = {"pinned loaders"} if pinned else set()
    given = [call for call in calls if _GIVEN_WHETHER.search(call)] if b"pin_memory" in data else []
    if given and set(_PIN_SETTING.findall(_without_calls(data))) == {b"True"}:
        marks |= {"pinned loaders", PINNED_BY_PARAMETER}
        pinned += given
    elif given and set(_GIVEN_VALUE.findall(_without_calls(data))) == {b"torch.cuda.is_available()"}:
        marks.add("pinned loaders")
        pinned += given
    if len(pinned) < data.count(b"DataLoader("):
        marks.add("pageable loaders")
    if any(b"collate_fn" in call for call in calls):
        marks.add("collating loaders")
    asks = [call for call in calls if b"pin_memory" in call or b"**" in call]
    if asks:
        marks.add(ASKED_TO_PIN)
    if len(asks) < data.count(b"DataLoader(") or any(_LEAVES_PAGEABLE.search(call) for call in asks):
        marks.add(SURELY_PAGEABLE)
    return marks


def _pins(call: bytes, data: bytes) -> bool:
    """Whether a loader is told to pin, or by a flag of the GPU that nothing in the file turns off.

    A flag by itself, other than `args.cuda`, only where the file asks for the GPU to set it: a parameter is what callers pass.
    """
    match = _PINS.search(call)
    if match is None or not match[2]:
        return match is not None
    values = [found[2] for found in _FLAG_SET.finditer(data) if found[1] == match[2]]
    if any(_OFF.match(value) for value in values):
        return False
    return bool(match[1]) or (bool(values) and all(b"cuda" in value or b"gpu" in value for value in values))


def _without_trial(data: bytes) -> bytes:
    """A module of datasets without the block under its main guard that tries them out: no program runs that loader."""
    guard = _MAIN_GUARD.search(data) if b"__main__" in data and b"Dataset" in data else None
    if guard is None or b"Dataset" not in data[: guard.start()]:
        return data
    block = data[guard.end() :].removeprefix(b":")
    is_program = any(word in block for word in _RUNS_A_PROGRAM)
    return data if is_program else data[: guard.start()]
