"""Text, positions and names of one file."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import pytest

from perfaudit.static.source import Source, Unreadable, canonical, read_text


def call_of(source: Source, name: str = "call") -> ast.Call:
    return next(c for c in source.nodes(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == name)


# ---- positions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("call()", (1, 1, 1, 7)),
        ("x = 'größer'; call()", (1, 15, 1, 21)),
        ("x = '训练'; call('é')", (1, 11, 1, 20)),
        ("x = '𝒳'; call()", (1, 10, 1, 16)),
        ("\n\n  \ncall(\n  1,\n)", (4, 1, 6, 2)),
        ("a = 1\r\ncall(\r\n)", (2, 1, 3, 2)),
        ("a = 1\rcall()", (2, 1, 2, 7)),
        ("a = '\x0c'\ncall()", (2, 1, 2, 7)),
        ("a = '\u2028'\ncall()", (2, 1, 2, 7)),
        ("\tif x:\n\t\tcall()".replace("\tif", "if").replace("\t\t", "\t"), (2, 2, 2, 8)),
    ],
)
def test_location_counts_characters_from_one(text: str, place: tuple[int, ...]) -> None:
    source = Source("a.py", text)
    call = call_of(source)
    found = source.location(call)
    assert (found.path, found.line, found.column, found.end_line, found.end_column) == ("a.py", *place)
    assert source.text_of(call).startswith("call(")
    assert source.text_of(call).endswith(")")


def test_lines_and_newline() -> None:
    assert Source("a.py", "a\r\nb\n").lines == ["a", "b", ""]
    assert [Source("a.py", text).newline for text in ("", "a", "a\r\nb\n", "a\n", "a\rb")] == [
        "\n",
        "\n",
        "\r\n",
        "\n",
        "\r",
    ]


def test_brief_is_one_line_of_bounded_length() -> None:
    source = Source("a.py", "call(\n    1,\n    2)\n")
    assert source.brief(call_of(source)) == "call( 1, 2)"
    assert source.brief(call_of(source), limit=6) == "call(…"


# ---- what does not parse -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = (", "does not parse at line 1: '(' was never closed"),
        ("a\n  b", "does not parse at line 2: unexpected indent"),
        ("x = " + "(" * 2000, "does not parse at line 1: too many nested parentheses"),
        ("x = " + "-" * 200_000 + "1", "nested too deeply to parse"),
    ],
)
def test_unreadable(text: str, reason: str) -> None:
    with pytest.raises(Unreadable) as caught:
        Source("a.py", text)
    assert str(caught.value) == reason


def test_warnings_about_the_code_are_not_ours() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Source("a.py", "x = '\\d'\ny = 1if x else 2\n")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ("", "utf-8")),
        ("é\r\n".encode(), ("é\r\n", "utf-8")),
        (b"\xef\xbb\xbfx", ("x", "utf-8-sig")),
        (b"# coding: latin-1\n\xe9", ("# coding: latin-1\né", "iso-8859-1")),
        (b"\n# vim: set fileencoding=cp1252 :\n\x80", ("\n# vim: set fileencoding=cp1252 :\n€", "cp1252")),
    ],
)
def test_read_text(tmp_path: Path, data: bytes, expected: tuple[str, str]) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(data)
    assert read_text(path) == expected


@pytest.mark.parametrize(
    "data",
    [b"\n\n\xff", b"\xff", b"# coding: rot13\n", b"# coding: undefined\n", b"\xef\xbb\xbf# coding: latin-1\n", b"a\0b"],
)
def test_read_text_that_is_none(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(data)
    with pytest.raises(Unreadable):
        read_text(path)
    with pytest.raises(Unreadable, match="no such file"):
        read_text(tmp_path / "b.py")


# ---- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import torch\ncall(torch.nn.Conv2d)", "torch.nn.Conv2d"),
        ("from torch import nn\ncall(nn.Conv2d)", "torch.nn.Conv2d"),
        ("import torch.nn as layers\ncall(layers.Conv2d)", "torch.nn.Conv2d"),
        ("import torch.nn\ncall(torch.nn.Conv2d)", "torch.nn.Conv2d"),
        ("from torch.nn import Conv2d as C\ncall(C)", "torch.nn.Conv2d"),
        ("from torch.nn.modules.conv import Conv2d\ncall(Conv2d)", "torch.nn.Conv2d"),
        ("from torch.nn import *\ncall(Conv2d)", "torch.nn.Conv2d"),
        ("def f():\n    from torch import nn\n    call(nn.Conv2d)", "torch.nn.Conv2d"),
        ("from . import nn\ncall(nn.Conv2d)", ".nn.Conv2d"),
        ("import torch\ndef f(torch):\n    call(torch.nn)", None),
        ("import torch\ntorch = fake()\ncall(torch.nn)", None),
        ("import torch\ndef f():\n    torch = fake()\n    call(torch.nn)", None),
        ("import torch\ndef f():\n    torch = fake()\ncall(torch.nn)", "torch.nn"),
        ("import torch\ndef f():\n    global torch\n    torch = fake()\ncall(torch.nn)", None),
        ("try:\n    from torch import nn\nexcept ImportError:\n    from fake import nn\ncall(nn.Conv2d)", None),
        ("call(nn.Conv2d)", None),
        ("call(f().x)", None),
    ],
)
def test_qualified(code: str, name: str | None) -> None:
    source = Source("a.py", code)
    assert source.qualified(call_of(source).args[0]) == name


@pytest.mark.parametrize(
    ("name", "documented"),
    [
        ("torch.nn.modules.conv.Conv2d", "torch.nn.Conv2d"),
        ("torch.utils.data.dataloader.DataLoader", "torch.utils.data.DataLoader"),
        ("torch.optim.adam.Adam", "torch.optim.Adam"),
        ("torch.optim.lr_scheduler.StepLR", "torch.optim.lr_scheduler.StepLR"),
        ("mytorch.optim.adam.Adam", "mytorch.optim.adam.Adam"),
    ],
)
def test_canonical(name: str, documented: str) -> None:
    assert canonical(name) == documented


@pytest.mark.parametrize(
    ("code", "bindings"),
    [
        ("x = 1\ncall(x)", 1),
        ("x = 1\nx = 2\ncall(x)", 2),
        ("x = 1\ndef f():\n    x = 2\n    call(x)", 1),
        ("x = 1\ndef f(x):\n    call(x)", 1),
        ("x = 1\nclass A:\n    x = 2\n    def f(self):\n        call(x)", 1),
        ("x = 1\ndef f():\n    global x\n    x = 2\ncall(x)", 2),
        ("x = 1\ndef f():\n    global x\n    x = 2\n    call(x)", 2),
        ("def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2\n    call(x)", 2),
        ("for x in y:\n    call(x)", 1),
        ("x += 1\ncall(x)", 1),
        ("import x\ncall(x)", 0),
        ("call(x)", 0),
    ],
)
def test_lookup(code: str, bindings: int) -> None:
    source = Source("a.py", code)
    name = call_of(source).args[0]
    assert isinstance(name, ast.Name)
    assert len(source.lookup(name)) == bindings


def test_module_imports() -> None:
    code = "import a.b\nfrom c import d as e\nif TYPE_CHECKING:\n    import f\ndef g():\n    import h\n"
    assert Source("a.py", code).module_imports == {"a", "e"}


def test_code_without_comments_and_docstrings() -> None:
    text = 'def f():\r\n    """fp16"""\r\n    x = "# ü"  # fp16\r\n    return x\r\n'
    code = Source("a.py", text).code
    assert code == text.replace('"""fp16"""', " " * 10).replace("# fp16", " " * 6)
