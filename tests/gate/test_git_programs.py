"""Programs that a repository's own settings name: git runs none of them for the gate."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_repository import Repository, settled

from perfaudit.errors import NothingMeasured
from perfaudit.gate import gitref
from perfaudit.gate.git import git
from perfaudit.gate.gitref import NoRepository, checked_out, copy_of_code
from perfaudit.measure.environment import host


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Where a program that has run leaves a file of its name."""
    folder = tmp_path / "ran"
    folder.mkdir()
    return folder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    settled(monkeypatch, tmp_path / "temporary")
    made = Repository(tmp_path / "project")
    made.commit(**{"a.py": "1\n"})
    made.commit(**{"a.py": "2\n", ".gitattributes": "*.py filter=odd=name\n"})
    return made


def program(ran: Path, name: str) -> str:
    return f"sh -c 'touch {ran / name}; cat'"


def use_filters(repository: Path, ran: Path) -> str:
    """Settings with a filter for `*.py`, and files for which git asks it."""
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "attributes").write_text("*.py filter=odd=name\n")
    for file in repository.glob("*.py"):
        file.touch()
    kinds = "".join(f'{kind} = "{program(ran, kind)}"\n' for kind in ("clean", "smudge"))
    return f'[filter "odd=name"]\n{kinds}required = true\n'


def configure(repository: Path, text: str) -> None:
    with (repository / ".git" / "config").open("a") as config:
        config.write(text)


def test_filters(repository: Repository, ran: Path) -> None:
    configure(repository.folder, use_filters(repository.folder, ran))
    with checked_out("HEAD~1", repository.folder) as reference:
        assert (reference.root / "a.py").read_text() == "1\n"
        gitref.renamed_files(reference)
        assert "are not run: odd=name" in reference.notes[-1]
    with copy_of_code(repository.folder) as copy:
        assert (copy.root / "a.py").read_text() == "2\n"
    assert not list(ran.iterdir())


def test_filters_that_hold_in_worktrees_only(repository: Repository, ran: Path) -> None:
    (repository.folder / ".git" / "more").write_text(use_filters(repository.folder, ran))
    configure(repository.folder, '[includeIf "gitdir:**/worktrees/**"]\npath = more\n')
    with checked_out("HEAD~1", repository.folder) as reference:
        assert (reference.root / "a.py").read_text() == "1\n"
    assert not list(ran.iterdir())


def test_filters_of_a_submodule(repository: Repository, ran: Path, tmp_path: Path) -> None:
    lib = Repository(tmp_path / "lib source")
    lib.commit(**{"l.py": "1\n"})
    repository.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib.folder), "lib")
    repository.commit()
    inside = repository.folder / "lib"
    configured = Path(repository.git("-C", "lib", "rev-parse", "--absolute-git-dir"))
    (configured / "config").open("a").write(f'[filter "x"]\nclean = "{program(ran, "clean")}"\n')
    (configured / "info").mkdir(exist_ok=True)
    (configured / "info" / "attributes").write_text("*.py filter=x\n")
    (inside / "l.py").write_text("2\n")  # of the same size: git has to read it
    with checked_out("HEAD", repository.folder) as reference:
        assert reference.notes[0].startswith("not committed: 1 changed file;")
        assert (reference.root / "lib" / "l.py").read_text() == "1\n"
        gitref.renamed_files(reference)
    with copy_of_code(repository.folder) as copy:
        assert (copy.root / "lib" / "l.py").read_text() == "2\n"
    assert not list(ran.iterdir())


def lacks_a_file(repository: Repository) -> None:
    """Have git fetch a file of the commit before, as in a partial clone."""
    blob = repository.git("rev-parse", "HEAD~1:a.py")
    (repository.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    repository.git("remote", "add", "origin", str(repository.folder))
    repository.git("config", "remote.origin.promisor", "true")
    repository.git("config", "extensions.partialClone", "origin")


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ('[remote "origin"]\nuploadpack = "touch {ran}/it;"\n', "."),
        ("[protocol]\nallow = always\n", "ext::touch {ran}/it"),
        ('[core]\nsshCommand = "touch {ran}/it;"\n', "ssh://nobody@localhost:1/x"),
        ('[core]\ngitProxy = "{ran}/../proxy"\n', "git://localhost:1/x"),
    ],
)
def test_what_a_fetch_would_run(repository: Repository, ran: Path, tmp_path: Path, settings: str, url: str) -> None:
    (tmp_path / "proxy").write_text(f"#!/bin/sh\ntouch {ran}/it\n")
    (tmp_path / "proxy").chmod(0o755)
    lacks_a_file(repository)
    repository.git("config", "remote.origin.url", url.format(ran=ran))
    configure(repository.folder, settings.format(ran=ran))
    with pytest.raises(NothingMeasured) as refused, checked_out("HEAD~1", repository.folder):
        pass
    assert not list(ran.iterdir())
    assert ("PERFAUDIT_SAFE_DIRECTORY=" in str(refused.value)) == ("ssh" not in url)


HOOKS = """[hook "odd=name"]
command = "touch {ran}/hook"
event = post-checkout
event = reference-transaction
event = post-index-change
enabled = true
[gc]
auto = 1
recentObjectsHook = "touch {ran}/gc"
[maintenance]
auto = true
"""


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("hook.odd=name.enabled", "false"),
        ("maintenance.auto", "false"),
        ("gc.auto", "0"),
    ],
)
def test_hooks_that_are_settings(
    repository: Repository, ran: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, accepted: bool
) -> None:
    """Since git 2.54 a hook may be a setting; older ones pass over it, so what they are told is looked at as well."""
    configure(repository.folder, HOOKS.format(ran=ran))
    if accepted:
        monkeypatch.setenv("PERFAUDIT_SAFE_DIRECTORY", str(repository.folder))
    with checked_out("HEAD~1", repository.folder) as reference:
        for folder in (repository.folder, reference.root):
            assert git(folder, "config", "--get", setting, of=repository.folder) == value
    assert not list(ran.iterdir())


def test_filters_of_the_user_run(
    repository: Repository, ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = use_filters(repository.folder, tmp_path)
    (tmp_path / "gitconfig").write_text(own.replace(program(tmp_path, "smudge"), "sed s/1/one/"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    configure(repository.folder, use_filters(repository.folder, ran))  # in its place
    with checked_out("HEAD~1", repository.folder) as reference:
        assert (reference.root / "a.py").read_text() == "one\n"
        assert not any("filters" in note for note in reference.notes)
    assert not list(ran.iterdir())


def test_filters_of_a_repository_that_the_user_accepts(
    repository: Repository, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(repository.folder, use_filters(repository.folder, ran))
    monkeypatch.setenv("PERFAUDIT_SAFE_DIRECTORY", str(repository.folder))
    with checked_out("HEAD~1", repository.folder) as reference:
        assert not any("filters" in note for note in reference.notes)
    assert (ran / "smudge").exists()


def test_settings_that_variables_give_stay(repository: Repository, ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(repository.folder, use_filters(repository.folder, ran) + "[credential]\nhelper = x\n")
    for key, value in {"COUNT": "1", "KEY_0": "filter.odd=name.smudge", "VALUE_0": "sed s/1/one/"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{key}", value)
    with checked_out("HEAD~1", repository.folder) as reference:
        assert (reference.root / "a.py").read_text() == "one\n"
    assert not list(ran.iterdir())


@pytest.mark.parametrize("more", ["", "\\ngit-lfs clean -- %f"])
def test_the_commit_of_a_record(repository: Repository, ran: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    monkeypatch.chdir(repository.folder)
    head = repository.git("rev-parse", "--short=12", "HEAD")
    (repository.folder / "a.py").touch()
    assert host().commit == head
    configure(repository.folder, use_filters(repository.folder, ran).replace("clean; cat'\"", f"clean; cat'{more}\""))
    assert host().commit == f"{head}+"  # cannot be told without the filter
    assert not list(ran.iterdir())


def test_working_files_that_lie_elsewhere(repository: Repository, ran: Path) -> None:
    configure(repository.folder, f"[core]\nworktree = {ran}\n")
    with pytest.raises(NoRepository, match=r"core\.worktree"), checked_out("HEAD", repository.folder):
        pass
