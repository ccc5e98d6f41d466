"""The user's own folders and the secret in one of them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from perfaudit.user_folder import NoUserFolder, cache_folder, config_folder, secret


def there(folder: Path) -> list[str]:
    """Names of what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("XDG_CACHE_HOME")
    return tmp_path


def test_a_secret_is_made_once_and_nobody_else_reads_it(home: Path) -> None:
    first = secret()
    assert (len(first), secret()) == (32, first)
    place = home / ".config" / "perfaudit"
    assert [stat.S_IMODE(p.stat().st_mode) for p in (place, place / "secret")] == [0o700, 0o600]
    assert there(place) == ["secret"]


def test_first_runs_at_the_same_time_have_one_secret(home: Path) -> None:
    command = [sys.executable, "-c", "from perfaudit.user_folder import secret; print(secret().hex())"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ}) for _ in range(4)]
    assert len({process.communicate()[0] for process in running}) == 1


@pytest.mark.parametrize("harm", ["short", "open", "link"])
def test_a_secret_that_may_be_known_is_none(home: Path, harm: str) -> None:
    first = secret()
    file = home / ".config" / "perfaudit" / "secret"
    if harm == "short":
        file.write_bytes(b"x")
    elif harm == "open":
        file.chmod(0o644)
    else:
        file.rename(home / "known")
        file.symlink_to(home / "known")
        with pytest.raises(NoUserFolder, match="no regular file"):
            secret()
        return
    assert len(second := secret()) == 32
    assert second != first
    assert secret() == second


def test_environment_variables(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "etc" / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification: as if it were not set
    with config_folder() as config, cache_folder() as cache:
        assert (config.path, cache.path) == (home / "etc" / "mine" / "perfaudit", home / ".cache" / "perfaudit")
        assert (config.mode, cache.mode) == (0o700, 0o700)


def test_a_folder_that_others_may_read_is_closed(home: Path) -> None:
    (home / ".config" / "perfaudit").mkdir(parents=True, mode=0o755)
    with config_folder() as folder:
        assert folder.mode == 0o700


def test_no_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home / "none"))
    with pytest.raises(NoUserFolder, match="no home directory"):
        secret()
    assert not (home / "none").exists()


def test_a_home_in_which_nothing_can_be_made(home: Path) -> None:
    (home / ".config").write_text("a file")
    with pytest.raises(NoUserFolder, match=r"\.config: "):
        secret()


def test_a_folder_behind_a_link_or_of_another_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "elsewhere").mkdir()
    (home / ".config").mkdir()
    (home / ".config" / "perfaudit").symlink_to(home / "elsewhere")
    with pytest.raises(NoUserFolder, match="a link, not a folder"):
        secret()
    assert there(home / "elsewhere") == []
    (home / ".config" / "perfaudit").unlink()
    secret()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(NoUserFolder, match="belongs to another user"):
        secret()
