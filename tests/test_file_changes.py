"""Files and folders are made, written, moved and deleted in `perfaudit.files` alone, but for what is listed here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "perfaudit"

# Attributes whose call changes what is on disk, or opens what may be changed; `a.b` only on the module of that name.
CHANGES = {
    *("unlink", "rmdir", "mkdir", "touch", "write_text", "write_bytes", "symlink_to", "hardlink_to", "chmod", "lchmod"),
    *(
        "rename",
        "os.open",
        "os.remove",
        "os.removedirs",
        "os.renames",
        "os.makedirs",
        "os.link",
        "os.symlink",
        "os.truncate",
    ),
    *("os.chown", "os.mkfifo", "os.mknod", "os.utime", "os.replace", "sqlite3.connect", "shutil.rmtree", "shutil.move"),
    *("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copymode", "shutil.copystat", "shutil.copytree"),
    *("shutil.chown", "shutil.unpack_archive", "shutil.make_archive", "tempfile.mkstemp", "tempfile.mkdtemp"),
    *("tempfile.NamedTemporaryFile", "tempfile.TemporaryDirectory", "tempfile.TemporaryFile", "torch.save"),
}
WRITING = re.compile(r"[rbt]*[wax+][rbt+]*")

TEMPORARY = "a folder of its own among the system's temporary files, made with mkdtemp for this user alone"
ELSEWHERE = {
    ("measure/gradients.py", "torch.save"): f"in a child, into {TEMPORARY}",
    ("measure/gradients.py", "unlink"): f"in a child, from {TEMPORARY}",
    ("measure/verbs/first_losses.py", "torch.save"): f"in a child, into {TEMPORARY}",
    ("measure/child.py", "tempfile.TemporaryFile"): "a file without a name",
    ("measure/nursery.py", "tempfile.TemporaryFile"): "a file without a name",
    ("machine/checks/disk.py", "tempfile.TemporaryFile"): "a file without a name, to be read",
    ("checkpoints/inside.py", "open"): "in a child, into the empty file that `files.create_file` has made",
    ("checkpoints/inside.py", "torch.save"): "the same",
    ("reading.py", "os.open"): "for reading only",
    ("script/waiting.py", "os.open"): "for reading only",
    ("script/core_queue.py", "os.open"): "for reading only",
    ("target/queue_time.py", "os.open"): "for reading only",
    ("static/rule_folder.py", "os.open"): "for reading only",
    ("cli/output.py", "os.open"): "/dev/null in the place of a stdout that went away",
    **{("cli/__init__.py", name): "/dev/null in the place of a stream that is closed" for name in ("os.open", "open")},
    (
        "measure/verbs/racing.py",
        "os.open",
    ): "in a child: the marker that measure/engine.py has made, at the path that the parent names",
    (
        "measure/engine.py",
        "tempfile.NamedTemporaryFile",
    ): "the marker, an empty file for this user alone, gone with its engine",
    ("cli/ranks_child.py", "tempfile.NamedTemporaryFile"): "the marker of a set of ranks, the same",
    ("tune/verify.py", "tempfile.TemporaryDirectory"): TEMPORARY,
    ("tune/questions.py", "tempfile.TemporaryDirectory"): TEMPORARY,
    ("cluster/node.py", "mkdir"): "on a node of a cluster: the gate's checkout, at the path that it has here, made new",
    ("cluster/node.py", "shutil.rmtree"): "the same",
    **{("cluster/slurm.py", name): "what submitit wrote for this run's jobs" for name in ("shutil.rmtree", "rmdir")},
    ("cluster/folder_archive.py", "open"): "an archive in memory",
    ("cli/run.py", "tempfile.TemporaryFile"): "a file without a name",
    ("cli/rank_sets.py", "tempfile.TemporaryFile"): "a file without a name",
    ("script/observe.py", "tempfile.TemporaryFile"): "a file without a name, for where a script stands",
    **{("script/scratch_folders.py", name): TEMPORARY for name in ("tempfile.mkdtemp", "shutil.rmtree", "chmod")},
    ("script/scratch_folders.py", "os.open"): "a folder, to be locked, and for nothing else",
    ("script/step_profile.py", "tempfile.TemporaryDirectory"): f"in a child, {TEMPORARY}",
    ("script/step_profile.py", "os.open"): "in a child: /dev/null in the place of stderr for a moment",
    ("script/trackers.py", "mkdir"): f"in a child, in {TEMPORARY}",
    ("script/kept_away.py", "mkdir"): f"in a child, in {TEMPORARY}",
    ("measure/of_script.py", "torch.save"): f"in a child, into {TEMPORARY}",
    ("training/script_start.py", "torch.save"): f"in a child, into {TEMPORARY}",
    ("measure/verbs/building.py", "tempfile.mkdtemp"): f"in a child, in {TEMPORARY}",
    **{("measure/scratch.py", name): TEMPORARY for name in ("tempfile.mkdtemp", "mkdir")},
    ("script/landlock.py", "os.open"): "a folder, to be named in a rule, and for nothing else",
    ("script/overlay_mounts.py", "os.open"): "a folder, to be mounted, and for nothing else",
    ("script/overlay_mounts.py", "mkdir"): f"in a child, in {TEMPORARY}",
    ("script/overlay_mounts.py", "write_text"): "in a child: who it is in its own namespace, in /proc",
    ("script/redirected_writes.py", "shutil.copyfile"): f"in a child, of what the script writes, in {TEMPORARY}",
    ("pytest_plugin/gate_run.py", "tempfile.TemporaryDirectory"): TEMPORARY,
    ("pytest_plugin/gate_run.py", "os.open"): "the user's own folder, to be locked, and for nothing else",
    ("gate/store.py", "sqlite3.connect"): "a private copy",
    **{("gate/worktree.py", name): TEMPORARY for name in ("tempfile.mkdtemp", "mkdir", "open", "rename", "unlink")},
    **{("gate/worktree.py", name): f"{TEMPORARY}; never followed" for name in ("shutil.rmtree", "chmod")},
    **{
        ("gate/working_files.py", name): f"the checkout in {TEMPORARY}, where its parents are no links"
        for name in ("shutil.rmtree", "unlink", "mkdir", "symlink_to", "shutil.copytree", "shutil.copy2")
    },
    **{
        ("gate/gitref.py", name): f"the checkout in {TEMPORARY}, where its parents are no links"
        for name in ("mkdir", "symlink_to")
    },
}


def changes(tree: ast.AST) -> set[str]:
    """Calls of a module that may change what is on disk, as `CHANGES` names them."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil", "tempfile", "sqlite3"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} & CHANGES
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            found |= {"open"} if writes(node, 1) else set()
        if isinstance(node.func, ast.Attribute):
            name, on = node.func.attr, node.func.value
            whole = f"{on.id}.{name}" if isinstance(on, ast.Name) else name
            found |= {whole, name} & CHANGES
            if name == "open" and whole != "os.open" and writes(node, 0):
                found.add("open")
            if name == "replace" and len(node.args) == 1 and not node.keywords and whole != "os.replace":
                found.add("replace")  # of a path: that of a text takes two
    return found


def writes(call: ast.Call, position: int) -> bool:
    modes = [*call.args[position : position + 1], *(word.value for word in call.keywords if word.arg == "mode")]
    return any(isinstance(mode, ast.Constant) and WRITING.fullmatch(str(mode.value)) for mode in modes)


def test_files_are_changed_in_one_place() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith("files/"):
            listed = {call for file, call in ELSEWHERE if file == name}
            assert changes(ast.parse(path.read_text())) == listed, name


def test_every_file_that_is_listed_is_there() -> None:
    assert {name for name, _ in ELSEWHERE} <= {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("open(x, 'w')", {"open"}),
        ("path.open('ab')", {"open"}),
        ("path.open(mode='r+')", {"open"}),
        ("path.open(); open(x); open(x, 'rb'); text.replace('a', 'b'); replace(a, b=1)", set()),
        ("folder.open('measuring.lock', flags)", set()),
        ("temporary.replace(path)", {"replace"}),
        ("from shutil import rmtree", {"shutil.rmtree"}),
        ("Path(x).unlink(); os.open(x, 0); os.unlink(y)", {"unlink", "os.open"}),
    ],
)
def test_what_counts_as_a_change(code: str, found: set[str]) -> None:
    assert changes(ast.parse(code)) == found
