"""The code as it is, a second time in a worktree: what is not committed is there as well."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from git_repository import Repository, settled

from perfaudit.errors import NothingMeasured, UserError
from perfaudit.gate import working_files
from perfaudit.gate.git import NoRepository
from perfaudit.gate.gitref import NoCommitYet, copy_of_code


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    settled(monkeypatch, tmp_path / "temporary")
    return Repository(tmp_path / "project")


def files(folder: Path) -> dict[str, str]:
    """Texts of all files but git's and what is ignored, and where links lead."""
    paths = [
        path for path in folder.rglob("*") if ".git" not in path.relative_to(folder).parts and "data" not in path.parts
    ]
    return {
        path.relative_to(folder).as_posix(): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in paths
        if path.is_symlink() or path.is_file()
    }


def test_what_is_changed_removed_staged_and_untracked(repository: Repository) -> None:
    repository.commit(
        **{
            ".gitignore": "data\n",
            "a.py": "1",
            "gone.py": "",
            "run.sh": "",
            "was_file": "",
            "was_folder/b.py": "",
            "same.py": "",
        }
    )
    here = repository.folder
    (here / "was_link").symlink_to("a.py")
    repository.commit()
    repository.write(
        **{"a.py": "2", "new/c d.py": "new", "staged.py": "staged", "data/x.bin": "ignored", "ümlaut.py": ""}
    )
    repository.git("add", "staged.py")
    for name in ("gone.py", "was_file", "was_folder/b.py", "was_link"):
        (here / name).unlink()
    (here / "was_folder").rmdir()
    repository.write(**{"was_file/now.py": "folder", "was_folder": "file", "was_link": "a text"})
    (here / "a_link").symlink_to("new")
    (here / "run.sh").chmod(0o755)
    with copy_of_code(here / "new") as copy:
        assert files(copy.root) == files(here)
        assert os.access(copy.root / "run.sh", os.X_OK)
        assert not (copy.root / "data").exists()
        assert (copy.folder, copy.head_root, copy.notes) == (copy.root / "new", here, ())
    assert (here / "data" / "x.bin").read_text() == "ignored"
    assert len(repository.worktrees()) == 1


def test_links_lead_to_the_users_files_and_leave_them_alone(repository: Repository) -> None:
    repository.commit(**{"a.py": "1"})
    repository.write(**{"pictures/1.txt": "pixels"})  # untracked, and not ignored
    with copy_of_code(repository.folder, ["pictures", "none"]) as copy:
        assert (copy.root / "pictures").readlink() == repository.folder / "pictures"
        assert copy.notes == (f"--link none: there is none in {repository.folder}",)
    assert (repository.folder / "pictures" / "1.txt").read_text() == "pixels"
    with pytest.raises(UserError, match="--link "), copy_of_code(repository.folder, ["../x"]):
        pass


def test_large_files_are_data_and_not_copied(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_files, "COPIED", 3)
    repository.commit(**{"a.py": "1"})
    repository.write(**{"large.bin": "1234", "small.bin": "123"})
    with copy_of_code(repository.folder) as copy:
        assert (copy.root / "large.bin").readlink() == repository.folder / "large.bin"
        assert not (copy.root / "small.bin").is_symlink()


def test_submodules_as_they_lie_here(repository: Repository, tmp_path: Path) -> None:
    lib = Repository(tmp_path / "lib source")
    lib.commit(**{"l.py": "1", "m.py": "1"})
    repository.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib.folder), "lib")
    repository.commit(**{"a.py": "1"})
    inside = Repository(repository.folder / "lib")
    inside.commit(**{"l.py": "2"})  # moved on, and not recorded
    inside.write(**{"m.py": "3", "n.py": "new"})
    with copy_of_code(repository.folder) as copy:
        assert files(copy.root / "lib") == {"l.py": "2", "m.py": "3", "n.py": "new"}
    assert repository.git("-C", "lib", "status", "--porcelain") == "M m.py\n?? n.py"


def test_what_cannot_be_copied(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoCommitYet), copy_of_code(repository.folder):
        pass
    (tmp_path / "plain").mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with pytest.raises(NoRepository, match="not in a git repository"), copy_of_code(tmp_path / "plain"):
        pass

    def full(source: Path, place: Path) -> None:
        raise OSError(28, "No space left on device")

    repository.commit(**{"a.py": "1"})
    repository.write(**{"a.py": "2"})
    monkeypatch.setattr(working_files, "_copy", full)
    with (
        pytest.raises(NothingMeasured, match=r"the working files cannot be copied: .*No space"),
        copy_of_code(repository.folder),
    ):
        pass
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_folder_that_is_a_repository_of_its_own_comes_without_its_history(tmp_path: Path) -> None:
    source, place = tmp_path / "source", tmp_path / "new" / "below" / "place"
    for name, text in {"a.py": "1", "sub/b.py": "2", ".git/config": "secret", "sub/.git": "gitdir: x"}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    (source / "link").symlink_to("sub")
    for _ in range(2):  # a folder that is there is replaced
        working_files._put(source, place)
        there = sorted(path.relative_to(place).as_posix() for path in place.rglob("*"))
        assert (there, (place / "link").readlink()) == (["a.py", "link", "sub", "sub/b.py"], Path("sub"))
        (place / "old.py").touch()
    working_files._put(tmp_path / "none", place)
    assert not place.exists()
