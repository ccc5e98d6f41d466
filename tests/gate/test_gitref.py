"""A ref beside the code: the right commit, all its files, and nothing left behind, however the gate ends."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from git_repository import Repository, settled

from perfaudit.errors import NothingMeasured, UserError
from perfaudit.gate import git as running
from perfaudit.gate import worktree
from perfaudit.gate.gitref import NoCommitYet, checked_out, link_paths, linkable
from perfaudit.gate.worktree import PREFIX, RECORD, sweep, temporary_worktree


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settled(monkeypatch, tmp_path / "temporary")
    return tmp_path / "temporary"


@pytest.fixture
def repository(tmp_path: Path, temporary: Path) -> Repository:
    return Repository(tmp_path / "project")


def test_the_ref_stands_beside_the_code_and_goes_away(repository: Repository, temporary: Path) -> None:
    first = repository.commit(**{"sub/train.py": "old"})
    repository.commit(**{"sub/train.py": "new", "later/a.py": ""})
    with checked_out("HEAD~1", repository.folder / "sub") as reference:
        assert (reference.name, reference.commit, reference.head_root) == ("HEAD~1", first, repository.folder)
        assert reference.folder == reference.root / "sub"
        assert reference.root.name == "project"  # the name of a package, where the repository is one
        assert (reference.folder / "train.py").read_text() == "old"
        assert (repository.folder / "sub" / "train.py").read_text() == "new"
        assert (reference.notes, reference.missing) == ((), ())
        assert repository.worktrees() == [str(repository.folder), str(reference.root)]
        (reference.root / "made_by_training.bin").write_text("x")
    assert list(temporary.iterdir()) == []
    assert repository.worktrees() == [str(repository.folder)]
    with checked_out("HEAD~1", repository.folder / "later") as reference:
        assert not reference.folder.exists()  # a result: everything in it is new


@pytest.mark.parametrize("how", [ValueError, KeyboardInterrupt, SystemExit])
def test_it_goes_away_however_the_gate_ends(repository: Repository, temporary: Path, how: type[BaseException]) -> None:
    repository.commit(**{"a.py": ""})
    with pytest.raises(how), checked_out("HEAD", repository.folder):
        raise how
    assert list(temporary.iterdir()) == []
    assert len(repository.worktrees()) == 1


def test_a_moving_branch_does_not_blame_this_one(repository: Repository) -> None:
    left = repository.commit(**{"a.py": "1"})
    repository.git("checkout", "--quiet", "-b", "mine")
    repository.commit(**{"b.py": ""})
    repository.git("checkout", "--quiet", "main")
    for text in "23":
        repository.commit(**{"a.py": text})
    repository.git("checkout", "--quiet", "mine")
    with checked_out("main", repository.folder) as reference:
        assert (reference.root / "a.py").read_text() == "1"
        assert reference.notes == (f"main is 2 commits ahead of where this branch left it: compared with {left[:12]}",)


def test_branches_without_common_history(repository: Repository) -> None:
    tip = repository.commit(**{"a.py": "1"})
    repository.git("checkout", "--quiet", "--orphan", "other")
    repository.commit(**{"a.py": "2"})
    with checked_out("main", repository.folder) as reference:
        why = "they have no common history"
        assert reference.notes == (
            f"where this branch left main is not known ({why}): compared with its tip {tip[:12]}",
        )
        assert (reference.root / "a.py").read_text() == "1"


def test_a_dirty_worktree_is_said(repository: Repository) -> None:
    repository.commit(**{"a.py": "1", "c.py": "", "d.py": "", "notes.txt": ""})
    repository.write(**{"a.py": "2", "new/b.py": "", "notes.txt": "changed"})
    repository.git("mv", "d.py", "e.py")  # two changes: one file went, one came
    with checked_out("HEAD", repository.folder) as reference:
        note = "not committed: 4 changed files and 1 untracked Python file; the code is judged as it is here"
        assert reference.notes == (note,)
        assert (reference.root / "a.py").read_text() == "1"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "the reference is this very commit: nothing differs"),
        # Git knows nothing of untracked data.
        ({"photo.png": ""}, "the reference is this very commit: nothing differs"),
        ({"conf.yaml": "b"}, "not committed: 1 changed file; the code is judged as it is here"),
        ({"x.py": "", "y.ipynb": ""}, "not committed: 2 untracked Python files; the code is judged as it is here"),
    ],
)
def test_a_commit_and_itself(repository: Repository, files: dict[str, str], said: str) -> None:
    repository.commit(**{"a.py": "1", "conf.yaml": "a"})
    repository.write(**files)
    for ref in ("HEAD", "main"):
        with checked_out(ref, repository.folder) as reference:
            assert reference.notes == (said,)
    repository.commit()
    with checked_out("HEAD~1", repository.folder) as reference:
        assert reference.notes == ()


# ---- where it lies ---------------------------------------------------------------------------------------------------


def test_it_lies_on_the_file_system_of_the_code(
    repository: Repository, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(**{"a.py": "1"})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    near = {repository.folder, tmp_path}

    def device(folder: Path) -> int:  # whose temporary folders are in memory
        return 1 if folder in near else 2

    monkeypatch.setattr(worktree, "_device", device)
    killed = tmp_path / "cache" / "perfaudit" / f"{PREFIX}1-killed"
    with checked_out("HEAD", repository.folder) as reference:
        assert reference.root.parents[1] == killed.parent
        assert not any("file system" in note for note in reference.notes)
        killed.mkdir()
        (killed / RECORD).write_text("")
    near.add(temporary)
    with checked_out("HEAD", repository.folder) as reference:
        assert reference.root.parents[1] == temporary
        assert not killed.exists()  # it is looked for in all of these places
    near -= {tmp_path, temporary}
    with checked_out("HEAD", repository.folder) as reference:
        assert reference.root.parents[1] == temporary  # nothing is near
        assert any(
            note.startswith(f"the reference lies in {temporary}, on another file system than this code")
            for note in reference.notes
        )


def test_it_does_not_lie_in_the_repository(
    repository: Repository, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where home is a repository its cache is no place: training that looks for files would find them twice."""
    repository.commit(**{"a.py": "1", ".gitignore": ".cache\n"})
    monkeypatch.setenv("XDG_CACHE_HOME", str(repository.folder / ".cache"))
    monkeypatch.setattr(worktree, "_device", lambda folder: 1 if folder == repository.folder else 2)
    with checked_out("HEAD", repository.folder) as reference:
        assert reference.root.parents[1] == temporary


# ---- refs that are not there -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "problem"),
    [
        ("mian", "--against mian: no such commit in .*/project; near to it are: main"),
        ("origin/x", r"--against origin/x: no such commit .* git fetch origin \+x:refs/remotes/origin/x"),
        ("a.py", "--against a.py: a file, not a commit; a file is compared with by --baseline FILE"),
        ("HEAD:a.py", r"--against HEAD:a.py: no commit; name one of .*/project: a branch, a tag or a hash"),
        ("--upload-pack=touch x", "--against '--upload-pack=touch x': no name of a commit"),
        ("^main", r"--against '\^main': no name of a commit"),
        ("main..main", r"--against main..main: no commit; name one"),
        ("-h", "--against '-h': no name of a commit"),
        ("", "--against '': no name of a commit"),
        ("a\nb", r"--against 'a\\nb': no name of a commit"),
    ],
)
def test_a_ref_that_is_none(repository: Repository, temporary: Path, ref: str, problem: str) -> None:
    repository.commit(**{"a.py": "1"})
    repository.git("remote", "add", "origin", "../elsewhere")
    with pytest.raises(UserError, match=problem) as raised, checked_out(ref, repository.folder):
        pass
    assert raised.value.exit_code == 2
    assert list(temporary.iterdir()) == []


def test_a_shallow_clone(repository: Repository, tmp_path: Path) -> None:
    repository.commit(**{"a.py": "1"})
    repository.git("checkout", "--quiet", "-b", "mine")
    repository.commit(**{"a.py": "2"})
    repository.git("clone", "--quiet", "--depth=1", f"file://{repository.folder}", str(tmp_path / "clone"))
    words = r"shallow; fetch it: (git fetch --depth=1 origin \+main:refs/remotes/origin/main) .*`fetch-depth: 0`"
    with pytest.raises(UserError, match=words) as raised, checked_out("origin/main", tmp_path / "clone"):
        pass
    short = repository.git("rev-parse", "--short=12", "HEAD~1")
    with pytest.raises(UserError, match="name all 40 digits"), checked_out(short, tmp_path / "clone"):
        pass  # no server gives a commit by a part of its hash
    found = re.search(words, str(raised.value))
    assert found is not None
    subprocess.run(found[1].split(), cwd=tmp_path / "clone", check=True, capture_output=True)  # as it says
    with checked_out("origin/main", tmp_path / "clone") as reference:
        assert (reference.root / "a.py").read_text() == "1"
        assert reference.notes[0].startswith("where this branch left origin/main is not known (this clone is shallow)")


def test_where_there_is_nothing_to_compare_with(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoCommitYet, match="no commit yet"), checked_out("main", repository.folder):
        pass
    (tmp_path / "plain").mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with pytest.raises(UserError, match="plain: not in a git repository"), checked_out("main", tmp_path / "plain"):
        pass
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path / "bare"], check=True)
    with (
        pytest.raises(UserError, match="bare: a repository without working files"),
        checked_out("x", tmp_path / "bare"),
    ):
        pass
    monkeypatch.setenv("PATH", str(tmp_path / "plain"))
    with pytest.raises(UserError, match="git is not installed"), checked_out("main", repository.folder):
        pass


# ---- where git would be led astray -----------------------------------------------------------------------------------


def test_the_environment_of_a_hook_and_hooks_of_the_user(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(**{"a.py": "1"})
    hook = repository.folder / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/hook_ran'\n")
    hook.chmod(0o755)
    index = repository.folder / ".git" / "index"
    before = index.read_bytes()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere.git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(index))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    monkeypatch.setenv("GIT_TRACE", "1")
    with checked_out("HEAD", repository.folder) as reference:
        assert (reference.root / "a.py").read_text() == "1"
    assert index.read_bytes() == before
    assert not (tmp_path / "hook_ran").exists()


@pytest.mark.parametrize("name", ["with space", "ümlaut", "quo'te", "do$lar;semi", "-dash", "per%cent"])
def test_odd_folders(tmp_path: Path, temporary: Path, name: str) -> None:
    odd = Repository(tmp_path / name)
    odd.commit(**{f"sub {name}/a.py": "1"})
    with checked_out("main", odd.folder / f"sub {name}") as reference:
        assert (reference.folder / "a.py").read_text() == "1"
    assert len(odd.worktrees()) == 1


def test_a_linked_worktree_as_the_head(repository: Repository, tmp_path: Path) -> None:
    repository.commit(**{"a.py": "1"})
    repository.git("worktree", "add", "--quiet", "-b", "mine", str(tmp_path / "linked"))
    with checked_out("main", tmp_path / "linked") as reference:
        assert reference.head_root == tmp_path / "linked"
        assert (reference.root / "a.py").read_text() == "1"
    assert repository.worktrees() == [str(repository.folder), str(tmp_path / "linked")]


def test_a_sparse_checkout_still_has_all_files_beside_it(repository: Repository) -> None:
    repository.commit(**{"a.py": "1", "far/b.py": "2"})
    repository.git("sparse-checkout", "set", "near")
    assert not (repository.folder / "far").exists()
    with checked_out("main", repository.folder) as reference:
        assert (reference.root / "far" / "b.py").read_text() == "2"
    assert not (repository.folder / "far").exists()


def test_a_repository_in_which_no_worktree_can_be_made(repository: Repository, temporary: Path) -> None:
    repository.commit(**{"a.py": "1", "kept.py": "", ".gitattributes": "kept.py export-ignore\n"})
    (repository.folder / ".git" / "worktrees").write_text("no folder")
    with checked_out("HEAD", repository.folder / ".") as reference:
        assert reference.notes[-1].startswith("git could not add a worktree (")
        assert (reference.root / "a.py").read_text() == "1"
        assert (reference.root / "kept.py").exists()
    assert list(temporary.iterdir()) == []


def test_a_repository_that_git_cannot_read(repository: Repository) -> None:
    repository.commit(**{"a.py": "1"})
    commit = repository.commit(**{"a.py": "2"})
    repository.git("branch", "other", "HEAD~1")
    (repository.folder / ".git" / "objects" / commit[:2] / commit[2:]).unlink()
    with (
        pytest.raises(UserError, match="git cannot tell what to compare with: "),
        checked_out("other", repository.folder),
    ):
        pass


def test_files_that_cannot_be_written_are_no_pass(
    repository: Repository, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository.commit(**{"a.py": "1"})
    blob = repository.git("rev-parse", "HEAD:a.py")
    (repository.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(NothingMeasured, match=f"the files of {commit[:12]} cannot be checked out: "):  # noqa: SIM117
        with checked_out("HEAD", repository.folder):
            pass
    assert list(temporary.iterdir()) == []


def test_no_folder_for_temporary_files_is_no_traceback(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    repository.commit(**{"a.py": "1"})
    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    with pytest.raises(NothingMeasured, match=r"cannot be checked out: .*No usable temporary"):  # noqa: SIM117
        with checked_out("HEAD", repository.folder):
            pass


def test_a_disk_that_is_full(repository: Repository, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(checkout: object, *where: object) -> None:
        raise OSError(28, "No space left on device")

    repository.commit(**{"a.py": "1"})
    monkeypatch.setattr(worktree, "_fill", full)
    with pytest.raises(NothingMeasured, match="No space left on device"), checked_out("HEAD", repository.folder):
        pass
    assert list(temporary.iterdir()) == []


def test_an_error_of_what_runs_inside_stays_itself(repository: Repository) -> None:
    repository.commit(**{"a.py": "1"})
    with pytest.raises(OSError, match="mine"), checked_out("HEAD", repository.folder):
        raise OSError("mine")


def test_a_file_system_without_locks(repository: Repository, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(file: object, how: int) -> None:
        raise OSError(37, "No locks available")

    repository.commit(**{"a.py": "1"})
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with checked_out("HEAD", repository.folder) as reference:
        assert (reference.root / "a.py").read_text() == "1"
        with checked_out("HEAD", repository.folder):
            assert reference.root.exists()  # another gate may live in it
    assert list(temporary.iterdir()) == []


# ---- links -----------------------------------------------------------------------------------------------------------


def test_links_lead_to_the_data_and_leave_it_alone(repository: Repository) -> None:
    repository.commit(**{".gitignore": "data/\n", "a.py": "1", "here.txt": "old"})
    repository.write(**{"data/images/1.txt": "pixels", "here.txt": "new"})
    with checked_out("HEAD", repository.folder) as reference:
        notes = link_paths(linkable(["data/images", "here.txt", "./none"]), reference.head_root, reference.root)
        assert (reference.root / "data" / "images" / "1.txt").read_text() == "pixels"
        assert (reference.root / "here.txt").read_text() == "old"  # git has it
        assert notes == [f"--link none: there is none in {repository.folder}"]
    assert (repository.folder / "data" / "images" / "1.txt").read_text() == "pixels"


def test_a_link_where_the_reference_has_a_file_is_said(repository: Repository) -> None:
    repository.commit(**{"data": "a file", "a.py": "1"})
    (repository.folder / "data").unlink()
    repository.write(**{"data/images/1.txt": "pixels"})
    with checked_out("HEAD", repository.folder) as reference:
        (note,) = link_paths(linkable(["data/images"]), reference.head_root, reference.root)
        assert note == "--link data/images: not linked in the reference: file exists"
        assert (reference.root / "data").read_text() == "a file"


@pytest.mark.parametrize("link", ["../x", "/etc", "a/../../x", "", ".", ".git/hooks"])
def test_links_stay_in_the_repository(link: str) -> None:
    with pytest.raises(UserError, match="--link "):
        linkable(["data", link])


# ---- submodules ------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_submodules(repository: Repository, tmp_path: Path) -> Repository:
    """A submodule "lib" that has a submodule "deep"; the last commit moved "lib" on."""
    deep = Repository(tmp_path / "deep source")
    deep.commit(**{"d.py": "deep"})
    lib = Repository(tmp_path / "lib source")
    lib.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(deep.folder), "deep")
    lib.commit(**{"l.py": "1"})
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet")
    repository.git(*add, "add", str(lib.folder), "lib")
    repository.git(*add, "update", "--init", "--recursive")
    repository.commit(**{"a.py": "1"})
    lib.commit(**{"l.py": "2"})
    inside = repository.folder / "lib"
    subprocess.run(["git", "pull", "--quiet", "origin", "main"], cwd=inside, check=True, capture_output=True)
    repository.commit(**{"a.py": "2"})
    return repository


def test_submodules_are_those_of_the_ref(with_submodules: Repository) -> None:
    repository = with_submodules
    with checked_out("HEAD~1", repository.folder) as reference:
        assert (reference.root / "lib" / "l.py").read_text() == "1"
        assert (reference.root / "lib" / "deep" / "d.py").read_text() == "deep"
        assert (reference.notes, reference.missing) == ((), ())
    for place in ("", "lib", "lib/deep"):
        said = subprocess.run(
            ["git", "worktree", "list"], cwd=repository.folder / place, capture_output=True, text=True, check=True
        )
        assert len(said.stdout.splitlines()) == 1, said.stdout
    assert repository.git("status", "--porcelain") == ""


def test_a_submodule_whose_commit_is_not_here(with_submodules: Repository) -> None:
    repository = with_submodules
    repository.git("update-index", "--cacheinfo", f"160000,{'1' * 40},lib")
    repository.git("commit", "--quiet", "-m", "a commit that nobody has")
    with checked_out("HEAD", repository.folder) as reference:
        assert reference.missing == ("lib",)
        assert reference.notes[0] == "not committed: 1 changed file; the code is judged as it is here"  # the submodule
        assert f"fetch it: git -C lib fetch origin {'1' * 40}" in reference.notes[1]


def test_a_submodule_that_nobody_has_checked_out_is_the_same_on_both_sides(with_submodules: Repository) -> None:
    repository = with_submodules
    repository.git("submodule", "--quiet", "deinit", "--force", "--all")
    with checked_out("HEAD~1", repository.folder) as reference:
        assert (reference.notes, reference.missing) == ((), ())


# ---- others at the same time, and those that were killed -------------------------------------------------------------

GATE = """
import sys, pathlib, tempfile
tempfile.tempdir = sys.argv[2]
from perfaudit.gate.gitref import checked_out
with checked_out("HEAD", pathlib.Path(sys.argv[1])) as reference:
    print(reference.root, flush=True)
    sys.stdin.read()
"""


def gate(repository: Repository, temporary: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", GATE, str(repository.folder), str(temporary)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_two_gates_at_once(repository: Repository, temporary: Path) -> None:
    repository.commit(**{"a.py": "1"})
    gates = [gate(repository, temporary) for _ in range(3)]
    places = {first_line(process) for process in gates}
    assert len(places) == 3
    with checked_out("HEAD", repository.folder):
        assert all(Path(place, "a.py").exists() for place in places)
    assert [process.communicate()[0] for process in gates] == [""] * 3
    assert [process.returncode for process in gates] == [0] * 3
    assert (len(repository.worktrees()), list(temporary.iterdir())) == (1, [])


def test_what_a_killed_gate_left_is_removed_by_the_next(repository: Repository, temporary: Path) -> None:
    repository.commit(**{"a.py": "1"})
    killed, alive = gate(repository, temporary), gate(repository, temporary)
    place, other = Path(first_line(killed)), Path(first_line(alive))
    assert place.parent.name.startswith(f"{PREFIX}{killed.pid}-")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert place.exists()
    with checked_out("HEAD", repository.folder) as reference:
        assert set(repository.worktrees()) == {str(repository.folder), str(other), str(reference.root)}
        assert not place.parent.exists()
    alive.communicate()
    assert (len(repository.worktrees()), list(temporary.iterdir())) == (1, [])


@pytest.mark.parametrize(
    ("name", "is_old", "goes"),
    [("{dead}-x", True, True), ("{dead}-x", False, False), ("{alive}-x", True, False), ("of-the-user", True, False)],
)
def test_folders_of_gates_that_were_killed_before_they_signed_or_while_they_removed(
    repository: Repository, temporary: Path, name: str, is_old: bool, goes: bool
) -> None:
    repository.commit(**{"a.py": "1"})
    dead = subprocess.Popen(["true"])
    dead.wait()
    folder = temporary / f"{PREFIX}{name.format(dead=dead.pid, alive=os.getpid())}"
    (folder / "project").mkdir(parents=True)
    if is_old:
        os.utime(folder, (0, 0))
    with checked_out("HEAD", repository.folder):
        assert folder.exists() != goes


def test_what_was_killed_while_git_worked_is_removed_too(repository: Repository, temporary: Path) -> None:
    repository.commit(**{"a.py": "1"})
    folder = temporary / f"{PREFIX}1-half"
    folder.mkdir()
    repository.git("worktree", "add", "--quiet", "--detach", "--lock", str(folder / "project"))
    (folder / "project" / ".git").unlink()
    outside = temporary.parent / "precious"
    outside.mkdir()
    record = [[str(repository.folder / ".git"), str(folder / "project")], [str(outside), str(outside)]]
    (folder / RECORD).write_text("".join(json.dumps(line) + "\n" for line in record))
    with (folder / RECORD).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with checked_out("HEAD", repository.folder):
            assert folder.exists()  # somebody lives there
    with checked_out("HEAD", repository.folder):
        assert not folder.exists()
    assert outside.exists()
    assert len(repository.worktrees()) == 1


def test_worktrees_of_the_user_on_a_disk_that_is_away_are_not_forgotten(repository: Repository, tmp_path: Path) -> None:
    repository.commit(**{"a.py": "1"})
    repository.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "usb"))
    shutil.rmtree(tmp_path / "usb")
    with checked_out("HEAD", repository.folder):
        pass
    assert str(tmp_path / "usb") in repository.worktrees()


def test_folders_that_training_made_read_only(repository: Repository, temporary: Path) -> None:
    repository.commit(**{"a.py": "1"})
    with checked_out("HEAD", repository.folder) as reference:
        sealed = reference.root / "cache"
        sealed.mkdir()
        (sealed / "x").write_text("")
        sealed.chmod(0o500)
    assert list(temporary.iterdir()) == []


def test_a_lock_of_another_git_is_waited_for(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    lock = repository.folder / ".git" / "config.lock"

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            lock.unlink()

    monkeypatch.setattr(running, "sleep", wait)
    lock.write_text("")
    running.git_unless_locked(repository.folder, "config", "a.b", "c", seconds=60)
    assert waited == [0.1, 0.2]
    lock.write_text("")
    with pytest.raises(running.GitFailed, match="lock"):
        running.git_unless_locked(repository.folder, "config", "a.b", "d", seconds=60)
    assert len(waited) == 2 + running.LOCK_TRIES - 1


def test_a_git_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(running.GitFailed, match="git config took longer than 0 s") as raised:
        running.git(tmp_path, "status", seconds=0.05)
    assert raised.value.timed_out


# ---- trees that were made to lead elsewhere ------------------------------------------------------------------------------


def snapshot(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else f"{path.is_dir() or path.read_bytes()!r}"
        for path in folder.rglob("*")
    }


def tree_with(repository: Repository, *entries: str) -> str:
    """A commit whose tree has these entries, written without git's look at their names."""
    lines = "".join(f"{entry}\n" for entry in entries)
    made = subprocess.run(
        ["git", "mktree", "--missing"], cwd=repository.folder, input=lines, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return repository.git("commit-tree", made.stdout.strip(), "-m", "by hand")


@pytest.mark.parametrize("way", ["a .git file", "a link", "a link above", "two dots"])
def test_a_submodule_that_leads_to_another_repository(repository: Repository, tmp_path: Path, way: str) -> None:
    """Making a worktree of it would write there, and removing that delete there."""
    repository.commit(**{"a.py": "1"})
    name = {"a link above": "way/lib", "two dots": "../other"}.get(way, "lib")
    other = Repository((tmp_path / "other" / "lib") if way == "a link above" else repository.folder.parent / "other")
    wanted = other.commit(**{"precious.txt": "precious"})
    before = snapshot(other.folder)
    place = repository.folder / name
    link = f"160000 commit {wanted}\t"
    if way == "two dots":
        inner = subprocess.run(
            ["git", "mktree", "--missing"],
            cwd=repository.folder,
            input=f"{link}other\n",
            capture_output=True,
            text=True,
        )
        commit = tree_with(repository, f"040000 tree {inner.stdout.strip()}\t..")
    elif way == "a link above":
        inner = subprocess.run(
            ["git", "mktree", "--missing"], cwd=repository.folder, input=f"{link}lib\n", capture_output=True, text=True
        )
        commit = tree_with(repository, f"040000 tree {inner.stdout.strip()}\tway")
        (repository.folder / "way").symlink_to(tmp_path / "other")
    else:
        commit = tree_with(repository, f"{link}lib")
        if way == "a link":
            place.symlink_to(other.folder)
        else:
            place.mkdir()
            (place / ".git").write_text(f"gitdir: {other.folder / '.git'}\n")
    if way == "two dots":
        with pytest.raises(NothingMeasured, match="invalid path"), temporary_worktree(repository.folder, commit):
            pytest.fail("git checks out no such name")
    else:
        with temporary_worktree(repository.folder, commit) as checkout:
            assert snapshot(other.folder) == before
            assert not (checkout.root / "lib" / "precious.txt").exists()
    assert snapshot(other.folder) == before


def test_links_of_the_reference_are_removed_and_not_followed(
    repository: Repository, tmp_path: Path, temporary: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "precious.txt").write_text("precious")
    for name in ("data", "worktrees", "index", "unlocked"):
        (repository.folder / name).symlink_to(mine)
    (repository.folder / "file").symlink_to(mine / "precious.txt")
    commit = repository.commit(**{"a.py": "1"})
    with temporary_worktree(repository.folder, commit) as checkout:
        assert (checkout.root / "data").is_symlink()
        (checkout.root / "later").symlink_to(mine)
    assert [path.name for path in mine.iterdir()] == ["precious.txt"]
    assert list(temporary.iterdir()) == []


def test_a_record_that_names_other_places_removes_nothing(
    repository: Repository, tmp_path: Path, temporary: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    folder = temporary / "perfaudit-gate-1-x"
    folder.mkdir()
    (folder / "way").symlink_to(mine.parent)
    places = [str(mine), f"{folder}/../../mine", f"{folder}/way/mine", str(folder.parent)]
    (folder / "worktrees").write_text("".join(json.dumps([str(repository.folder), place]) + "\n" for place in places))
    sweep()
    assert (mine.is_dir(), folder.exists()) == (True, False)
