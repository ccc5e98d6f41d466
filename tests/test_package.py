"""What is shipped: the wheel holds the rule files and the type marker, and installs a command."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_rules_and_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "perfaudit = perfaudit.cli:main" in archive.read(entry).decode()
        shipped = {Path(name).name for name in names if name.startswith("perfaudit/rule_files/")}
        assert "perfaudit/py.typed" in names
        assert not any(name.startswith(("tests", "sample_models")) for name in names)
        archive.extractall(tmp_path / "site")
    assert shipped == {path.name for path in (ROOT / "rules").glob("*.toml")}
    code = "from perfaudit.rules import all_rules, rules_folder; print(rules_folder().name, len(all_rules()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "site", capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["rule_files", str(len(shipped))]
