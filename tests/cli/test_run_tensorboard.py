"""The steps of a run as files: scalars, with the package that writes them, and what is said of a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.cli.run_export import Export, check_export, write_steps
from perfaudit.errors import UserError
from perfaudit.files.own_outputs import PROFILE, SCALARS, TRACE
from perfaudit.script.observe import Seen
from perfaudit.script.spans import PHASES

STEP = {"optimizer": 0, "seconds": 0.5, "loss": 3.0, "gradient_norm": 2.0, "phases": [0.25] + [0.0] * (len(PHASES) - 1)}


def test_scalars_are_what_tensorboard_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    seen = Seen(0.0, facts={"optimizers": ["Adam"]}, kept=[STEP, STEP | {"loss": 1.0}], number=2, trained_at=1e9)
    check_export(Export.tensorboard)
    with (tmp_path / "trace").open("w+b") as trace:
        write_steps(Export.tensorboard, seen, "train.py", trace)
    read = EventAccumulator(str(tmp_path / SCALARS))
    read.Reload()
    found = {tag: [(each.step, each.value) for each in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
    assert found == {
        "step/seconds": [(1, 0.5), (2, 0.5)],
        "step/seconds waiting for data": [(1, 0.25), (2, 0.25)],
        "training/loss": [(1, 3.0), (2, 1.0)],
        "training/gradient norm": [(1, 2.0), (2, 2.0)],
    }
    assert [each.wall_time for each in read.Scalars("training/loss")] == [1e9, 1e9 + 0.5]


def test_a_file_that_is_overwritten_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    anew = "written anew, in the place of the file that was there"
    for told in (0, 2):
        with (tmp_path / "trace").open("w+b") as trace:
            trace.write(b"{}")
            write_steps(
                Export.chrome, Seen(0.0, kept=[STEP | {"batches": 1, "samples": 4}], number=1), "train.py", trace
            )
        said = capsys.readouterr().err
        assert (said.count(anew), said.count(f"{TRACE}: written"), said.count(f"{PROFILE}: written")) == (told, 1, 1)


def test_without_the_package_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="which this Python lacks: pip install tensorboard"):
        check_export(Export.tensorboard)
