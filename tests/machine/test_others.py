"""How many cores others hold, from a /proc/stat that is written for it, and what children are told then."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.machine import others
from perfaudit.measure import nursery


def stat(folder: Path, busy: int, idle: int, cores: int) -> None:
    (folder / "proc").mkdir(exist_ok=True)
    lines = [f"cpu {busy} 0 0 {idle} 0 0 0 0 0 0", *(f"cpu{n} 0 0 0 0 0 0 0 0 0 0" for n in range(cores)), "intr 1"]
    (folder / "proc/stat").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("busy", "idle", "cores", "usable", "missing"),
    [
        (0, 40, 2, 2, 0.0),
        (40, 0, 2, 2, 2.0),
        (20, 20, 2, 2, 1.0),
        (320, 960, 64, 8, 0.0),  # 16 of 64 are held, and 48 are free
        (1200, 80, 64, 8, 4.0),  # 4 are free
    ],
)
def test_cores_that_are_not_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: int, idle: int, cores: int, usable: int, missing: float
) -> None:
    stat(tmp_path, 1000, 5000, cores)
    monkeypatch.setattr(others.time, "sleep", lambda seconds: stat(tmp_path, 1000 + busy, 5000 + idle, cores))
    assert others.cores_missing(usable, tmp_path) == pytest.approx(missing)


def test_where_nothing_tells_all_cores_are_free(tmp_path: Path) -> None:
    assert others.cores_missing(2, tmp_path) == 0.0


@pytest.mark.parametrize(
    ("held", "said", "expected"),
    [(0.0, {}, None), (0.4, {}, None), (0.6, {}, "5000"), (2.0, {"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_threads_wait_as_the_user_has_it_where_cores_are_free(
    monkeypatch: pytest.MonkeyPatch, held: float, said: dict[str, str], expected: str | None
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(nursery, "usable_cores", lambda: 2)
    monkeypatch.setattr(nursery, "cores_missing", lambda usable: held)
    nursery._others_hold_cores.cache_clear()
    try:
        assert nursery.child_environment().get("GOMP_SPINCOUNT") == expected
    finally:
        nursery._others_hold_cores.cache_clear()
