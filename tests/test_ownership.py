"""Settings come from the user's own project: not from above its repository, and from no file that another user owns."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from perfaudit import ownership
from perfaudit.config import find_config
from perfaudit.ownership import folders_above, is_ours

Project = Callable[..., Path]
Run = Callable[..., Done]
OTHER = 12345  # a user that nobody here is
IGNORE = '[tool.perfaudit]\nignore = ["PA501"]\n'
ANOMALY = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def given_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make a file or folder another user's, as far as perfaudit can see."""
    theirs: set[str] = set()
    owner = ownership._owner
    monkeypatch.setattr(ownership, "_owner", lambda path: OTHER if str(path) in theirs else owner(path))
    return lambda path: theirs.add(str(path))


@pytest.fixture
def repository(project: Project) -> Path:
    """A repository below a folder with settings that hide what its one file is found for."""
    folder = project(**{"pyproject.toml": IGNORE, "repo/.git/HEAD": "", "repo/src/train.py": ANOMALY})
    return folder / "repo"


def rules(done: Done) -> list[str]:
    return [line.split()[1] for line in done.out.splitlines()]


# ---- not above the repository ----------------------------------------------------------------------------------------


def test_settings_above_the_repository_are_not_taken(repository: Path, perfaudit: Run) -> None:
    done = perfaudit("scan", "repo/src/train.py", "--format", "concise", "--no-cache")
    assert (done.code, rules(done), done.err) == (1, ["PA501"], "")
    assert find_config(repository / "src").path is None
    assert find_config(repository.parent).ignore == ("PA501",)
    (repository / "pyproject.toml").write_text(IGNORE)
    assert perfaudit("scan", "repo/src/train.py", "--no-cache").code == 0


def test_a_worktree_is_a_repository(project: Project) -> None:
    folder = project(**{"pyproject.toml": IGNORE, "tree/.git": "gitdir: elsewhere\n", "tree/a.py": ""})
    assert find_config(folder / "tree").path is None


def test_outside_of_a_repository(
    project: Project, monkeypatch: pytest.MonkeyPatch, given_away: Callable[[Path], None]
) -> None:
    folder = project(**{"open/home/a/b/c.py": ""})
    start = folder / "open" / "home" / "a" / "b"
    monkeypatch.setenv("HOME", str(folder / "nowhere"))
    assert folders_above(start)[:4] == (start, *start.parents[:3])
    (folder / "open").chmod(0o777)  # as /tmp is
    assert folders_above(start) == (start, start.parent, start.parent.parent)
    assert folders_above(folder / "open")[0] == folder / "open"  # where one works, one may
    monkeypatch.setenv("HOME", str(start.parent.parent))
    assert folders_above(start) == (start, start.parent)
    assert folders_above(start.parent.parent) == (start.parent.parent,)
    given_away(start.parent)
    assert folders_above(start) == (start,)


def test_a_project_file_in_a_folder_open_to_all(project: Project) -> None:
    """Anybody may leave one in /tmp: it sets nothing for /tmp/x."""
    folder = project(**{"pyproject.toml": IGNORE, "x/a.py": ANOMALY})
    assert find_config(folder / "x").ignore == ("PA501",)
    folder.chmod(0o1777)
    assert find_config(folder / "x").path is None


# ---- of this user ----------------------------------------------------------------------------------------------------

SAID = (
    "pyproject.toml: not used, because another user owns it or the folder; to use it all the same, set "
    "PERFAUDIT_SAFE_DIRECTORY="
)


@pytest.mark.parametrize("which", ["repo/pyproject.toml", "repo"])
def test_settings_of_another_user(
    repository: Path,
    perfaudit: Run,
    given_away: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    which: str,
) -> None:
    (repository / "pyproject.toml").write_text(IGNORE)
    given_away(repository.parent / which)
    done = perfaudit("scan", "repo/src/train.py", "--format", "concise", "--no-cache")
    assert (done.code, rules(done)) == (1, ["PA501"])
    assert done.err == f"perfaudit: {repository}: {SAID}{repository}\n"
    assert perfaudit("scan", "repo/src", "--no-cache", "--isolated").err == ""
    monkeypatch.setenv(ownership.SAFE, f"relative{os.pathsep}{repository}")
    done = perfaudit("scan", "repo/src/train.py", "--no-cache")
    assert (done.code, done.err) == (0, "")
    monkeypatch.setenv(ownership.SAFE, f"relative{os.pathsep}{repository / 'src'}")
    assert perfaudit("scan", "repo/src/train.py", "--no-cache").code == 1


def test_a_link_to_a_file_of_another_user(
    repository: Path, perfaudit: Run, given_away: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repository may be the user's, and its project file a link that leads out of it."""
    (repository / "pyproject.toml").symlink_to(repository.parent / "pyproject.toml")
    assert find_config(repository).ignore == ("PA501",)
    given_away(repository.parent / "pyproject.toml")
    assert find_config(repository).path is None
    monkeypatch.setenv(ownership.SAFE, str(repository))
    assert find_config(repository).path is None


def test_settings_farther_up_count_where_nearer_ones_are_another_users(
    repository: Path, given_away: Callable[[Path], None]
) -> None:
    (repository / "pyproject.toml").write_text('[tool.perfaudit]\nselect = ["PA5"]\n')
    (repository / "src" / "pyproject.toml").write_text(IGNORE)
    given_away(repository / "src" / "pyproject.toml")
    config = find_config(repository / "src")
    assert (config.path, config.select) == (repository / "pyproject.toml", ("PA5",))
    (note,) = config.notes
    assert SAID in note


def test_ignore_files_of_another_user(repository: Path, perfaudit: Run, given_away: Callable[[Path], None]) -> None:
    (repository / ".gitignore").write_text("src/data/\n")
    data = repository / "src" / "data"
    data.mkdir()
    (data / "more.py").write_text(ANOMALY)
    arguments = ("scan", "repo/src", "--format", "concise", "--no-cache")
    assert len(rules(perfaudit(*arguments))) == 1
    given_away(repository / ".gitignore")
    done = perfaudit(*arguments)
    assert (len(rules(done)), ".gitignore: not used, because another user owns it" in done.err) == (2, True)


def test_an_ignore_file_of_another_user_in_a_folder_that_is_scanned(
    repository: Path, perfaudit: Run, given_away: Callable[[Path], None]
) -> None:
    data = repository / "src" / "data"
    data.mkdir()
    (data / "more.py").write_text(ANOMALY)
    (data / ".gitignore").write_text("*.py\n")
    arguments = ("scan", "repo/src", "--format", "concise", "--no-cache")
    assert len(rules(perfaudit(*arguments))) == 1
    given_away(data / ".gitignore")
    done = perfaudit(*arguments)
    assert done.out.count("PA501") == 2
    assert "src/data/.gitignore: not audited: not used, because another user owns it" in done.out + done.err


@as_root
def test_really_another_users(repository: Path, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "pyproject.toml").write_text(IGNORE)
    os.chown(repository / "pyproject.toml", OTHER, -1)
    done = perfaudit("scan", "repo/src/train.py", "--no-cache")
    assert (done.code, SAID in done.err) == (1, True)
    monkeypatch.setenv("SUDO_UID", str(OTHER))  # root on behalf of the owner, as git takes it
    assert perfaudit("scan", "repo/src/train.py", "--no-cache").code == 0
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    monkeypatch.setenv("SUDO_UID", "0")
    assert is_ours(repository / "pyproject.toml")  # the file is this user's, the folder root's
    os.chown(repository / "pyproject.toml", OTHER + 1, -1)
    monkeypatch.setenv("SUDO_UID", str(OTHER + 1))
    assert not is_ours(repository / "pyproject.toml")  # only root acts on behalf of another


def test_a_system_without_users(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "geteuid")
    assert is_ours(repository)


# ---- every command ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("scan", "--no-cache"),
        ("scan", "-", "--stdin-filename", "train.py"),
        ("rules",),
        ("explain", "PA501"),
        ("gate", "--against", "HEAD", "--layers", "findings"),
        ("tune", "nothing.py", "--cudnn"),
    ],
)
def test_every_command_says_it_once(
    repository: Path,
    perfaudit: Run,
    given_away: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    (repository / "pyproject.toml").write_text(IGNORE)
    given_away(repository / "pyproject.toml")
    monkeypatch.chdir(repository / "src")
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115, PTH123
    assert perfaudit(*arguments).err.count(SAID) == 1
