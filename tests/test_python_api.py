"""What a program imports of perfaudit: functions that return reports, also once the packages of their names are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import perfaudit
from perfaudit.errors import UserError

sys.path.insert(0, str(Path(__file__).parent / "trace"))

from made_traces import Host, step_of_training  # lies beside the tests of traces


def made_trace(path: Path) -> str:
    host = Host()
    for _ in range(4):
        with host.step():
            host.next_batch(12_000, workers=False)
            step_of_training(host)
            host.catch_up()
    return str(host.write(path))


def test_traces_are_read(tmp_path: Path) -> None:
    path = made_trace(tmp_path / "a.json")
    for _ in range(2):  # the first call has imported `perfaudit.trace`
        report = perfaudit.trace([path])
        assert [finding.rule for finding in report.findings] == ["PA101"]
    assert report.traces is not None
    assert perfaudit.trace([path], window=(2, 3)).traces.ranks[0].steps == 2  # type: ignore[union-attr]  # it was read
    with pytest.raises(UserError, match="no such file"):
        perfaudit.trace([str(tmp_path / "b.json")])


def test_the_machine_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfaudit.machine.checks.look_at", lambda place: [place.has_bandwidth])
    assert perfaudit.doctor(bandwidth=False).machine == (False,)


@pytest.mark.parametrize("name", sorted(perfaudit.FUNCTIONS))
def test_a_function_is_called_whether_or_not_its_package_was_imported(name: str) -> None:
    program = (
        f"import perfaudit\nperfaudit.FUNCTIONS[{name!r}] = lambda *args, **kwargs: (args, kwargs)\n"
        f"import perfaudit.{name}\nassert perfaudit.{name}(1, b=2) == ((1,), {{'b': 2}})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_importing_perfaudit_imports_nothing_else() -> None:
    program = "import sys, perfaudit\nassert not [name for name in sys.modules if name.startswith('perfaudit.')]"
    subprocess.run([sys.executable, "-c", program], check=True)
