"""Files of a script that runs where no overlay can be mounted: each program writes in its own way, and reads what it wrote."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfaudit.script.landlock import write_only_below
from perfaudit.script.observe import Seen, observe
from perfaudit.script.request import Request, Script

PYTHON = """
import bz2, os, pathlib, shutil, tarfile, tempfile, sys
def gone(path):
    try:
        open(path)
    except FileNotFoundError:
        return not os.path.exists(path)
open("new.txt", "w").write("1"); assert open("new.txt").read() == "1"
open("old.txt", "a").write(" more"); assert open("old.txt").read() == "old more"
pathlib.Path("deep/er").mkdir(parents=True); pathlib.Path("deep/er/x").write_text("2"); assert os.listdir("deep/er") == ["x"]
os.replace("new.txt", "last.txt"); assert gone("new.txt") and open("last.txt").read() == "1"
os.remove("gone.txt"); assert gone("gone.txt") and "gone.txt" not in os.listdir(".")
shutil.rmtree("folder"); assert gone("folder/inside.txt") and not os.path.isdir("folder")
os.makedirs("folder", exist_ok=True); assert os.listdir("folder") == []
shutil.copytree("data", "copy"); assert sorted(each.name for each in os.scandir("copy")) == ["a", "b"]
os.rename("data", "moved"); assert open("moved/a").read() == "a" and gone("data/a")
shutil.move("copy", "elsewhere"); assert pathlib.Path("elsewhere/b").exists()
with tempfile.NamedTemporaryFile("w") as file: file.write("3")
file = os.open("low.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC); os.write(file, b"4"); os.close(file)
os.symlink("low.txt", "link"); assert open("link").read() == "4"
os.utime("old.txt", (1, 1)); os.chmod("old.txt", 0o600)
try:
    open("missing/x", "w"); sys.exit("a folder that is not there")
except FileNotFoundError:
    pass
try:
    open("old.txt", "x"); sys.exit("a file that is there")
except FileExistsError:
    pass
with bz2.open("packed.bz2", "wb") as file: file.write(b"7")  # a module that has taken `open` over as it was imported
with tarfile.open("packed.tar", "w") as file: file.add("low.txt")
os.makedirs("runs/1"); os.chdir("runs/1"); assert os.getcwd() == str(pathlib.Path.cwd()) == BEGAN + "/runs/1"
open("log", "w").write("5"); assert open("log").read() == "5" and os.listdir(".") == ["log"]
assert open("../../old.txt").read() == "old more" and open("../../moved/b").read() == "b" and gone("../../gone.txt")
assert {each.name for each in os.scandir("../../moved")} == {"a", "b"} and os.path.isfile(b"../../other.txt")
open("../../other.txt", "a").write("6"); os.chmod("../..", 0o700); os.remove("../../other.txt"); assert gone("../../other.txt")
assert os.getcwdb() == os.fsencode(BEGAN + "/runs/1") and os.path.abspath(b"log") == os.fsencode(BEGAN + "/runs/1/log")
made, real = os.open(".", os.O_RDONLY), os.open("../../moved/..", os.O_RDONLY)
os.fchdir(real); assert os.getcwd() == BEGAN and open("old.txt").read() == "old more"
for go in (os.fchdir, os.chdir): go(made); assert os.getcwd() == BEGAN + "/runs/1" and open("log").read() == "5"
os.fchdir(os.open("/usr", os.O_RDONLY)); assert os.getcwd() == "/usr" and os.path.exists("bin"); os.chdir(BEGAN + "/runs/1")
os.chdir("../.."); assert os.getcwd() == BEGAN and os.listdir("runs/1") == ["log"]
os.chdir("/"); open(BEGAN + "/later.txt", "w").close()
"""
TORCH = """
import torch
torch.save({"a": torch.ones(2)}, "checkpoint.pt"); assert torch.load("checkpoint.pt")["a"].sum() == 2
import numpy
numpy.save("array", numpy.ones(3)); assert numpy.load("array.npy").sum() == 3
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index):
        open(f"row{index}", "w").close()
        return torch.ones(1)
assert len(list(torch.utils.data.DataLoader(Rows(), num_workers=2))) == 4
"""


def has_landlock() -> bool:
    code = "from perfaudit.script.landlock import write_only_below as f; raise SystemExit(not f(['/dev']))"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


pytestmark = pytest.mark.skipif(not has_landlock(), reason="the kernel has no Landlock")


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder of a short name: sockets of loader workers lie in it, and the kernel takes 107 characters for those."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def run(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Seen]:
    project = tmp_path / "project"
    for folder in (project, project / "folder", project / "data"):
        folder.mkdir()
    for name, text in {
        "old.txt": "old",
        "gone.txt": "g",
        "other.txt": "o",
        "folder/inside.txt": "i",
        "data/a": "a",
        "data/b": "b",
    }.items():
        (project / name).write_text(text)
    monkeypatch.chdir(project)

    def of(text: str) -> Seen:
        (project / "train.py").write_text(f"BEGAN = {str(project)!r}\n{text}")
        before = snapshot(project)
        with (tmp_path / "output").open("w") as output:
            seen = observe(Request(Script("train.py"), scratch=scratch, mounts=False), 60.0, output=output)
        assert snapshot(project) == before
        assert list(scratch.iterdir()) == []
        return seen

    return of


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Time stamp, mode and content of every file below a folder."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


def test_every_way_of_pythons(run: Callable[[str], Seen], tmp_path: Path) -> None:
    seen = run(PYTHON)
    assert (seen.ended, seen.message) == ("finished", ""), (tmp_path / "output").read_text()
    names = {str(Path(file).relative_to(tmp_path / "project")) for file in seen.redirected}
    assert names == {
        "last.txt", "old.txt", "deep/er/x", "moved/a", "moved/b", "elsewhere/a", "elsewhere/b", "low.txt", "link", "later.txt",
        "runs/1/log", "packed.bz2", "packed.tar",
    }  # fmt: skip


def test_torch_and_loader_workers(run: Callable[[str], Seen], tmp_path: Path) -> None:
    seen = run(TORCH)
    assert (seen.ended, seen.message) == ("finished", ""), (tmp_path / "output").read_text()
    assert {Path(file).name for file in seen.redirected} >= {"checkpoint.pt", "array.npy", "row0", "row3"}


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess; raise SystemExit(subprocess.run('echo new > old.txt', shell=True).returncode != 0)",
        "import ctypes, os\nc = ctypes.CDLL(None)\nraise SystemExit(c.open(b'old.txt', os.O_WRONLY | os.O_TRUNC) < 0)",
    ],
)
def test_what_is_not_redirected_is_refused(run: Callable[[str], Seen], text: str) -> None:
    seen = run(text)
    assert (seen.ended, seen.code) == ("failed", 1)


def test_the_kernel_is_asked_for_nothing_where_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not write_only_below([os.sep])
