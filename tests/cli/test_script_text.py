"""Scripts of which it is known before anything runs that they are none, or that Python cannot read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from perfaudit.cli.script_text import check_text

pytestmark = pytest.mark.usefixtures("in_this_process")

Run = Callable[..., Done]


@pytest.mark.parametrize(
    ("command", "file", "text", "said"),
    [
        (("tune",), "train.py", "x = 1\nfor x in\n", "train.py: SyntaxError: invalid syntax (train.py:2)"),
        (
            ("tune",),
            "train.py",
            "if x:\npass\n",
            "train.py: IndentationError: expected an indented block after 'if' statement",
        ),
        (
            ("scan", "--measure"),
            "conf.json",
            '{"lr": 0.1}\n',
            "conf.json: is no Python file; name the script, and behind -- what it is given",
        ),
    ],
)
def test_before_torch_is_imported(
    perfaudit: Run, command: tuple[str, ...], file: str, text: str, said: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path(file).write_text(text)
    done = perfaudit(*command, file)
    assert (done.code, f"perfaudit: {said}" in done.err, "importing torch" in done.err) == (2, True, False)


@pytest.mark.parametrize("text", ['# coding: latin-1\nname = "\xe9"\n', 'pattern = "\\d"\nassert (1, "always")\n'])
def test_what_python_reads(tmp_path: Path, text: str, recwarn: pytest.WarningsRecorder) -> None:
    """In its own encoding, and where it only warns."""
    file = tmp_path / "train"  # which needs no ending
    file.write_bytes(text.encode("latin-1"))
    check_text(str(file))
    assert not recwarn.list
