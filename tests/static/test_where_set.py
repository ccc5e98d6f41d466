"""Where a batch size is set, and under which name a command line gives another one."""

from __future__ import annotations

import re

import pytest

from perfaudit.static.source import Source
from perfaudit.static.where_set import given_as, where_set

LOADER = re.compile("DataLoader")
PARSER = """
parser.add_argument("-b", "--batch-size", type=int, default=16)
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("text", "value", "line", "options"),
    [
        ("DataLoader(data, 16)", "16", 1, ()),
        ("SIZE = 16\nDataLoader(data, SIZE)", "SIZE", 1, ()),
        (PARSER + "DataLoader(data, args.batch_size)", "args.batch_size", 2, ("-b", "--batch-size")),
        ("class Config:\n    bs: int = 16\nDataLoader(data, config.bs)", "config.bs", 2, ()),
        ("def load(n, size=16):\n    return DataLoader(data, size)\nload(2)", "size", 1, ()),
        ("def load(size):\n    return DataLoader(data, size)\nB = 16\nload(B)", "size", 3, ()),
    ],
)
def test_where_a_number_is_set(text: str, value: str, line: int, options: tuple[str, ...]) -> None:
    source = Source("train.py", text)
    [call] = source.calls_named(LOADER)
    found = where_set(source, call.args[1])
    assert found is not None and found.literal is not None
    assert (found.literal.value, found.literal.lineno, found.options) == (16, line, options)


@pytest.mark.parametrize(
    ("text", "other", "line"),
    [
        ("from config import SIZE\nDataLoader(data, SIZE)", "SIZE = 16", 1),
        ("import config\nDataLoader(data, config.SIZE)", "import os\nSIZE: int = 16", 2),
        ("DataLoader(data, cfg.bs)", "class Config:\n    bs = 16", 2),
        ("DataLoader(data, c['bs'])", "CONFIG = {'lr': 1, 'bs': 16}", 1),
        ("DataLoader(data, c['train']['bs'])", "CONFIG = {\n    'train': dict(lr=1, bs=16)}", 2),
        (
            "def load(size):\n    return DataLoader(data, size)",
            "import train\nB = 16\ntorch.load(path)\ntrain.load(size=B)",
            2,
        ),
        ("def load(size):\n    return DataLoader(data, size)", f"{PARSER}load(args.batch_size)", 2),
        ("from config import SIZE\nDataLoader(data, SIZE)", "SIZE = 16\nSIZE = 32", 0),
        ("DataLoader(data, c['bs'])", "CONFIG = {'bs': 16}\nCONFIG['bs'] = 8", 0),
        ("DataLoader(data, c['bs'])", "CONFIG = {'bs': 16}\nOTHER = {'bs': size}", 0),
        ("def load(size):\n    return DataLoader(data, size)", "load(16)\nload(16)", 0),
    ],
)
def test_where_another_file_sets_a_number(text: str, other: str, line: int) -> None:
    source, beside = Source("train.py", text), Source("other.py", other)
    [call] = source.calls_named(LOADER)
    found = where_set(source, call.args[1], [beside])
    seen = (found.source.path, found.literal.lineno) if found is not None and found.literal is not None else ("", 0)
    assert seen == ("other.py" if line else "", line)
    assert where_set(source, call.args[1]) is None


@pytest.mark.parametrize(
    "text",
    [
        "DataLoader(data, size // 2)",
        "SIZE = 16\nSIZE = 32\nDataLoader(data, SIZE)",
        "def load(size):\n    return DataLoader(data, size)\nload(1)\nload(2)",
        "for size in (16, 32):\n    DataLoader(data, size)",
    ],
)
def test_what_is_not_settled_is_no_place(text: str) -> None:
    source = Source("train.py", text)
    [call] = source.calls_named(LOADER)
    assert where_set(source, call.args[1]) is None


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("--batch-size", "8"), "--batch-size"),
        (("--batch-size=8",), "--batch-size"),
        (("-b8",), "-b"),
        (("--batch", "8"), "--batch-size"),
        (("--epochs", "8"), ""),
    ],
)
def test_an_argument_that_was_given(arguments: tuple[str, ...], option: str) -> None:
    assert given_as(("-b", "--batch-size"), arguments) == option
