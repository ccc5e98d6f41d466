"""Options of a script that are typed without `--` before them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from perfaudit.cli.app import application


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("run argp.py --seconds 3s --name x", "run argp.py --seconds 3s -- --name x"),
        ("tune argp.py --name=x", "tune argp.py -- --name=x"),
        ("run -m argp --name x", "run -m argp -- --name x"),
        ("scan argp.py --measure --name x", "scan argp.py --measure -- --name x"),
        ("scan argp.py --name x", None),
        ("run --name x argp.py", None),  # no script before it
        ("run argp.py --secondes 3s", None),  # a typo
    ],
)
def test_an_option_of_the_script(typed: str, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner(env={"TERMINAL_WIDTH": "300"}).invoke(application(), typed.split(), prog_name="perfaudit")
    text = " ".join(done.output.replace("│", " ").split())
    assert done.exit_code == 2
    assert "No such option: --" in text
    hint = "Arguments of the script come after --: perfaudit "
    assert (hint + said in text) if said else hint not in text
    assert ("--seconds" in text) == (typed.endswith("--secondes 3s") or "--seconds" in typed)


@pytest.mark.parametrize("typed", ["run --json train.py", "tune train.py --json", "scan --json ."])
def test_json_is_a_format(typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner(env={"TERMINAL_WIDTH": "300"}).invoke(application(), typed.split(), prog_name="perfaudit")
    text = " ".join(done.output.replace("│", " ").split())
    assert "No such option: --json. A report as JSON is printed by --format json." in text
    assert ("tune train.py -- --json" in text) == typed.startswith("tune")
    assert "Possible" not in text
