"""Nothing is written, replaced or deleted through a link that a project brought, nor in a folder of git."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit import files
from perfaudit.files import (
    Folder,
    Refused,
    append_only,
    create_file,
    destination,
    replace_file,
    replace_source,
    source_place,
    sweep,
    temporary,
    user_files,
)

Project = Callable[..., Path]


def there(folder: Path) -> list[str]:
    """Names of what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, which is the working directory; beside it lies a folder of the user's."""
    (tmp_path / "clone" / ".git").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("precious")
    monkeypatch.chdir(tmp_path / "clone")
    return tmp_path / "clone"


# ---- folders of perfaudit's own ----------------------------------------------------------------------------------------


def test_a_folder_of_ours(clone: Path) -> None:
    with Folder.open_at(clone, ".ours", "runs", make=True) as folder:
        folder.create("a.json", b"1")
        with pytest.raises(FileExistsError):
            folder.create("a.json", b"2")
        folder.write("b.json", b"old")
        folder.write("b.json", b"new")
        folder.append("b.json", b"er\n")
        folder.cut("b.json", 3)
        with pytest.raises(FileExistsError):
            folder.move("a.json", "b.json")
        folder.move("a.json", "c.json")
        assert (folder.names(), folder.read("b.json"), folder.read("c.json")) == (["b.json", "c.json"], b"new", b"1")
        folder.remove("c.json")
        folder.remove("c.json")
    assert there(clone / ".ours" / "runs") == ["b.json"]  # and no temporary file


@pytest.mark.parametrize("link", [".ours", ".ours/runs"])
def test_a_folder_behind_a_link_is_not_ours(clone: Path, link: str) -> None:
    (clone / link).parent.mkdir(exist_ok=True)
    (clone / link).symlink_to(clone.parent / "mine")
    with pytest.raises(Refused, match=f"{link} is a link, not a folder of perfaudit's own"):
        Folder.open_at(clone, ".ours", "runs", make=True)
    assert there(clone.parent / "mine") == ["precious.txt"]


def test_what_has_the_name_of_our_folder_stays(clone: Path) -> None:
    (clone / ".ours").write_text("theirs")
    with pytest.raises(Refused, match="something else"):
        Folder.open_at(clone, ".ours", make=True)
    os.mkfifo(clone / ".pipe")
    with pytest.raises(Refused):
        Folder.open_at(clone, ".pipe", make=True)


def test_a_folder_of_another_user_is_not_ours(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Folder.open_at(clone, ".ours", make=True).__exit__()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(Refused, match="belongs to another user"):
        Folder.open_at(clone, ".ours")


@pytest.mark.parametrize("what", ["link", "dangling", "second name", "pipe", "folder"])
def test_files_in_our_folder_that_are_none(clone: Path, what: str) -> None:
    """Whatever stands there: it is not read into, written, cut, locked or deleted."""
    precious = clone.parent / "mine" / "precious.txt"
    with Folder.open_at(clone, ".ours", make=True) as folder:
        place = clone / ".ours" / "x"
        if what == "link":
            place.symlink_to(precious)
        elif what == "dangling":
            place.symlink_to(precious.with_name("new"))
        elif what == "second name":
            place.hardlink_to(precious)
        elif what == "pipe":
            os.mkfifo(place)
        else:
            place.mkdir()
        for change in (
            lambda: folder.append("x", b"!"),
            lambda: folder.cut("x", 0),
            lambda: folder.lock("x").__enter__(),
        ):
            with pytest.raises(OSError):
                change()
        if what == "second name":
            folder.write("x", b"ours")  # a new file takes the name
        else:
            with pytest.raises(OSError):
                folder.write("x", b"ours")
            folder.remove("x")
            assert os.path.lexists(place)
        with pytest.raises(FileExistsError):
            folder.create("x")
    assert there(precious.parent) == ["precious.txt"]
    assert precious.read_text() == "precious"


def test_a_folder_that_is_swapped_for_a_link_meanwhile(clone: Path) -> None:
    with Folder.open_at(clone, ".ours", make=True) as folder:
        (clone / ".ours").rename(clone / "elsewhere")
        (clone / ".ours").symlink_to(clone.parent / "mine")
        folder.write("x", b"1")
        folder.remove("precious.txt")
    assert there(clone / "elsewhere") == ["x"]
    assert there(clone.parent / "mine") == ["precious.txt"]


def test_a_lock_that_another_holds(clone: Path) -> None:
    times = iter([0.0, 1.0, 11.0])
    with Folder.open_at(clone, ".ours", make=True) as folder, folder.lock("lock"):
        other = folder.lock("lock", lambda: next(times))
        with pytest.raises(TimeoutError):
            other.__enter__()
    with Folder.open_at(clone, ".ours") as folder, folder.lock("lock"):
        pass


# ---- files that the user names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out/report.json", "report.json", "new.json", "out/../report.json"])
def test_a_file_that_is_named_is_not_reached_through_a_link_of_the_project(clone: Path, name: str) -> None:
    mine = clone.parent / "mine"
    (clone / "out").symlink_to(mine)
    (clone / "report.json").symlink_to(mine / "precious.txt")
    (clone / "new.json").symlink_to(mine / "new.json")
    with pytest.raises(Refused, match="is a link, and nothing is written through a link inside a project; name"):
        replace_file(Path(name), b"gone")
    assert (there(mine), (mine / "precious.txt").read_text()) == (["precious.txt"], "precious")


def test_links_outside_of_projects_are_followed(clone: Path) -> None:
    mine = clone.parent / "mine"
    (clone.parent / "link").symlink_to(mine)
    (clone.parent / "report.json").symlink_to("mine/report.json")
    replace_file(clone.parent / "link" / "a.json", b"1")
    replace_file(clone.parent / "report.json", b"2")
    assert there(mine) == ["a.json", "precious.txt", "report.json"]
    (clone.parent / "way").symlink_to(clone)  # to the project, and there one of its links
    (clone / "out").symlink_to(mine)
    with pytest.raises(Refused):
        destination(Path("../way/out/b.json"))
    assert destination(Path("../way/b.json")) == clone / "b.json"


def test_links_in_a_circle(clone: Path) -> None:
    (clone / "a").symlink_to("b")
    (clone / "b").symlink_to("a")
    with pytest.raises(OSError) as error:
        destination(Path("a/x"))
    assert error.value.errno == errno.ELOOP


def test_a_link_that_comes_between_is_not_followed(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is read, then the folder is swapped for a link, then it is opened."""
    (clone / "out").mkdir()
    real = user_files.destination

    def swapped(path: Path) -> Path:
        found = real(path)
        (clone / "out").rmdir()
        (clone / "out").symlink_to(clone.parent / "mine")
        return found

    monkeypatch.setattr(user_files, "destination", swapped)
    with pytest.raises(OSError):
        replace_file(Path("out/precious.txt"), b"gone")
    assert (clone.parent / "mine" / "precious.txt").read_text() == "precious"


def test_streams_and_pipes_that_the_user_names(clone: Path) -> None:
    code = (
        "from pathlib import Path; from perfaudit.files import replace_file; replace_file(Path('/dev/stdout'), b'text')"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"text"
    with (clone.parent / "mine" / "out.txt").open("w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (clone.parent / "mine" / "out.txt").read_text() == "text"
    replace_file(Path("/dev/null"), b"text")
    (clone / "null").symlink_to("/dev/null")
    with pytest.raises(Refused):
        replace_file(Path("null"), b"text")
    with pytest.raises(IsADirectoryError):
        replace_file(clone, b"text")


def test_mode_stays_and_a_new_file_has_the_usual_one(clone: Path) -> None:
    (clone / "a.py").write_text("1")
    (clone / "a.py").chmod(0o750)
    replace_source(Path("a.py"), b"2")
    replace_file(Path("b.py"), b"2")
    umask = os.umask(0)
    os.umask(umask)
    assert [stat.S_IMODE((clone / name).stat().st_mode) for name in ("a.py", "b.py")] == [0o750, 0o666 & ~umask]
    assert there(clone) == [".git", "a.py", "b.py"]


@pytest.mark.parametrize("links", [True, False], ids=["", "no hard links"])
def test_a_new_file_takes_no_name_that_is_taken(clone: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError("not on this file system")

    def fill(name: str) -> None:
        Path(name).write_text("data")

    def taken_meanwhile(name: str) -> None:
        fill(name)
        (clone / "taken").write_text("theirs")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    (clone / "old").write_text("old")
    (clone / "old").chmod(0o640)
    assert create_file(Path("new"), fill, clone / "old") == 4
    assert ((clone / "new").read_text(), stat.S_IMODE((clone / "new").stat().st_mode)) == ("data", 0o640)
    for name, write in (("new", fill), ("taken", taken_meanwhile)):
        with pytest.raises(FileExistsError):
            create_file(Path(name), write, clone / "old")
    (clone / "out").symlink_to("../mine")
    with pytest.raises(Refused):
        create_file(Path("out/x"), fill, clone / "old")
    assert there(clone) == [".git", "new", "old", "out", "taken"]
    assert (clone / "taken").read_text() == "theirs"


# ---- sources -------------------------------------------------------------------------------------------------------------


def test_a_source_behind_a_link(clone: Path) -> None:
    (clone / "src").mkdir()
    (clone / "src" / "a.py").write_text("1")
    (clone / "a.py").symlink_to("src/a.py")
    replace_source(Path("a.py"), b"2")
    assert (clone / "a.py").is_symlink()
    assert (clone / "src" / "a.py").read_text() == "2"
    (clone.parent / "mine" / "b.py").write_text("1")
    (clone / "b.py").symlink_to("../mine/b.py")
    (clone / "out").symlink_to("../mine")
    for name in ("b.py", "out/b.py"):
        with pytest.raises(Refused, match="a link that leads out of the project"):
            replace_source(Path(name), b"2")
    assert (clone.parent / "mine" / "b.py").read_text() == "1"
    replace_source(clone.parent / "mine" / "b.py", b"3")  # named itself


@pytest.mark.parametrize(
    "folder",
    [
        ".git/hooks",
        ".GIT",
        "sub/.Git/x",
        ".git/../.git/hooks",
        "bare",
        "way",
        "git~1",
        ".g\u200cit",
        ".git. ",
        "GIT~1:x",
    ],
)
def test_nothing_is_written_in_a_folder_of_git(clone: Path, folder: str) -> None:
    (clone / ".git" / "hooks").mkdir()
    (clone / "way").symlink_to(".git/hooks")
    (clone / folder).mkdir(parents=True, exist_ok=True)
    for name in ("bare/objects", "bare/refs"):
        (clone / name).mkdir(parents=True, exist_ok=True)
    (clone / "bare" / "HEAD").touch()
    (clone / folder / "x.py").write_text("1")
    with pytest.raises(Refused, match="a folder of git, where perfaudit writes nothing"):
        source_place(Path(folder, "x.py"))
    with pytest.raises(Refused):
        destination(Path(folder, "x.py"))


def test_a_name_that_git_uses_elsewhere(clone: Path) -> None:
    for name in (".gitignore", ".github/x.py", "git/x.py", "x.git/y.py"):
        assert destination(Path(name)) == clone / name


# ---- what a killed process leaves ----------------------------------------------------------------------------------------

KILLED = """
import os, signal
from pathlib import Path
from perfaudit import files
real = os.replace
calls = []
def replace(*arguments, **more):
    calls.append(arguments)
    if len(calls) > {before}:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*arguments, **more)
os.replace = replace
kept = [files.keep(Path(name)) for name in ("a.py", "b.py")] if {keeps} else []
for name in ("a.py", "b.py"):
    files.replace_source(Path(name), b"new")
"""


def killed(clone: Path, before: int, keeps: bool = False) -> list[str]:
    """Names of what a process leaves that is killed when it replaces a file for the first or a later time."""
    for name in ("a.py", "b.py"):
        (clone / name).write_text("old")
    code = KILLED.format(before=before, keeps=keeps)
    assert subprocess.run([sys.executable, "-c", code], cwd=clone).returncode == -signal.SIGKILL
    return sorted(set(there(clone)) - {".git", "a.py", "b.py"})


def test_the_next_run_removes_what_a_killed_one_left(clone: Path) -> None:
    assert len(killed(clone, before=0)) == 1
    assert sweep(clone) == []
    assert there(clone) == [".git", "a.py", "b.py"]


def test_so_does_the_next_write_in_the_folder(clone: Path) -> None:
    assert len(killed(clone, before=0)) == 1
    temporary._swept.discard(clone)
    replace_source(Path("a.py"), b"new")
    assert there(clone) == [".git", "a.py", "b.py"]


def test_what_a_file_held_before_a_patch_that_was_cut_off_is_kept_and_named(clone: Path) -> None:
    assert len(killed(clone, before=1, keeps=True)) == 3  # two second names, and the new text of b.py
    (said,) = sweep(clone)
    (kept,) = set(there(clone)) - {".git", "a.py", "b.py"}
    assert said == f"{clone / 'a.py'}: a patch was cut off; what the file held before is kept as {clone / kept}"
    assert [(clone / name).read_text() for name in ("a.py", "b.py", kept)] == ["new", "old", "old"]
    assert sweep(clone) == []  # said once


def test_what_is_larger_than_any_source_is_not_read(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone may bring along a file of a terabyte, most of it holes, and a second one with a name as perfaudit gives it."""
    monkeypatch.setattr(temporary, "LARGEST_SOURCE", 3)
    word = "0123456789ab"
    for name, text in (("x.py", "same"), ("y.py", "one")):
        (clone / name).write_text(text)
        (clone / f".{name}.perfaudit-old-{word}-{temporary._sign('old', name, word)}").write_text(text)
    (said,) = sweep(clone)
    assert said.endswith(f"what the file held before is kept as {clone}/x.py.before-perfaudit-{word}")
    assert there(clone) == [".git", "x.py", f"x.py.before-perfaudit-{word}", "y.py"]


def test_what_a_living_process_writes_stays(clone: Path) -> None:
    (clone / "a.py").write_text("old")
    kept = files.keep(Path("a.py"))
    replace_source(Path("a.py"), b"new")
    assert sweep(clone) == []
    files.put_back(kept)
    files.forget(kept)
    assert (clone / "a.py").read_text() == "old"
    assert there(clone) == [".git", "a.py"]


def test_only_what_bears_our_sign_is_swept(clone: Path) -> None:
    word = "0123456789ab"
    ours = f".x.py.perfaudit-new-{word}-{temporary._sign('new', 'x.py', word)}"
    theirs = [
        f".x.py.perfaudit-new-{word}-{temporary._sign('new', 'y.py', word)}",
        f".x.py.perfaudit-new-{word}-000000000000",
        ".x.py.tmp",
    ]
    for name in (ours, *theirs):
        (clone / name).touch()
    link = f".x.py.perfaudit-new-{word[::-1]}-{temporary._sign('new', 'x.py', word[::-1])}"
    (clone / link).symlink_to("../mine/precious.txt")
    sweep(clone)
    assert there(clone) == sorted([".git", link, *theirs])
    assert (clone.parent / "mine" / "precious.txt").exists()


def test_a_name_of_full_length(clone: Path) -> None:
    name = "ä" * 126 + ".py"
    replace_file(Path(name), b"1")
    replace_file(Path(name), b"2")
    assert (clone / name).read_text() == "2"


def test_what_another_process_writes_goes_on_at_the_new_end_of_a_file_that_was_emptied() -> None:
    with tempfile.TemporaryFile() as file:
        append_only(file.fileno())
        child = [sys.executable, "-c", "import sys; print('old', flush=True); sys.stdin.read(); print('new')"]
        with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=file) as process:
            while not os.fstat(file.fileno()).st_size:
                time.sleep(0.01)
            os.ftruncate(file.fileno(), 0)
            process.communicate()
        file.seek(0)
        assert file.read() == b"new\n"
