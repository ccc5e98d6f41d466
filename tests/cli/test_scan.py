"""`perfaudit scan` as it is typed: exit codes, streams, selection, patches, and every kind of file it can meet."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from perfaudit.static.source.reading import MAX_BYTES

pytestmark = pytest.mark.usefixtures("in_this_process")

Run = Callable[..., Done]
Project = Callable[..., Path]

ANOMALY = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"  # PA501, error, safe fix
LOADER = "from torch.utils.data import DataLoader\nloader = DataLoader(dataset)\n"  # PA101, warning, unsafe fix (rng)
PARALLEL = "import torch\nmodel = torch.nn.DataParallel(net)\n"  # PA701, warning, advice
TENSOR = "import torch\nx = torch.zeros(3).cuda()\n"  # PA105, warning, safe fix
CLEAN = "import torch\nprint(torch.__version__)\n"
ALL = {"anomaly.py": ANOMALY, "loader.py": LOADER, "parallel.py": PARALLEL}
ROOT = os.geteuid() == 0
PARSER = f" (read as Python {sys.version_info.major}.{sys.version_info.minor}, with which perfaudit runs)"


def rules(done: Done) -> list[str]:
    """The rules of a JSON report, in its order."""
    return [finding["rule"] for finding in json.loads(done.out)["findings"]]


def test_a_cited_figure_puts_no_finding_first(project: Project, perfaudit: Run) -> None:
    """PA601 alone of the three has a figure that somebody else reports; all three are warnings that run on every step."""
    lines = [
        "import torch",
        "from torch.utils.data import DataLoader",
        "def train(model, dataset, optimizer):",
        "    for x in DataLoader(dataset, num_workers=4, pin_memory=True):",
        "        x = x.cuda()",
        "        loss = model(x + torch.randn(64, 10).cuda()).sum()",
        "        loss.backward()",
        "        optimizer.step()",
        "        print(loss.item())",
    ]
    project(**{"a.py": "\n".join(lines) + "\n"})
    done = perfaudit("scan", "a.py", "--format", "json", "--select", "PA104,PA105,PA601")
    assert rules(done) == ["PA104", "PA105", "PA601"]


# ---- exit codes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["clean.py"], 0),
        (["anomaly.py"], 1),
        (["anomaly.py", "--exit-zero"], 0),
        (["loader.py", "--severity", "error"], 0),
        (["loader.py", "--severity", "warning"], 1),
        (["anomaly.py", "clean.py"], 1),
        (["plain.py"], 0),
        (["missing.py"], 2),
        (["anomaly.py", "missing.py"], 2),
        ([""], 2),
        (["a" * 5000], 2),
        (["anomaly.py", "--frobnicate"], 2),
        (["anomaly.py", "--severity", "catastrophe"], 2),
        (["anomaly.py", "--select", "PA999"], 2),
        (["anomaly.py", "--ignore", "nonsense"], 2),
        (["anomaly.py", "--select", "PA501", "--ignore", "PA5"], 2),
        (["anomaly.py", "--fix", "--allow", "everything"], 2),
        (["anomaly.py", "--fix", "--diff"], 2),
        (["anomaly.py", "--unsafe-fixes"], 2),
        (["anomaly.py", "--allow", "rng"], 2),
        (["anomaly.py", "--diff", "--format", "json"], 2),
        (["anomaly.py", "--diff", "--measure"], 2),
        (["anomaly.py", "--output", "missing/report.txt"], 2),
        (["anomaly.py", "--output", "empty"], 2),
        (["empty"], 3),
        (["broken.py"], 3),
        (["broken.py", "--exit-zero"], 3),
        (["notebook.ipynb"], 3),
    ],
)
def test_exit_codes(project: Project, perfaudit: Run, arguments: list[str], code: int) -> None:
    folder = project(**ALL, **{"clean.py": CLEAN, "plain.py": "print(1)\n", "broken.py": "def torch(:\n"})
    (folder / "empty").mkdir()
    (folder / "notebook.ipynb").write_text('{"cells": ["import torch"]}')
    done = perfaudit("scan", *arguments)
    assert done.code == code
    if code >= 2:
        assert done.out == ""
        assert done.err.strip()
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["missing.py"],
            "perfaudit: missing.py: does not exist; name a Python file or a folder, e.g. `perfaudit scan .`\n",
        ),
        (["link.py"], "perfaudit: link.py: leads nowhere; name a Python file or a folder, e.g. `perfaudit scan .`\n"),
        (
            ["loop.py"],
            "perfaudit: loop.py: cannot be read (too many levels of symbolic links); "
            "name a Python file or a folder, e.g. `perfaudit scan .`\n",
        ),
        (
            ["pipe.py"],
            "perfaudit: pipe.py: is neither a file nor a folder; name a Python file or a folder, e.g. `perfaudit scan .`\n",
        ),
        (["empty"], "perfaudit: no Python files in empty\n"),
        (
            ["a.py", "--select", "PA999"],
            "perfaudit: --select: no rule is called 'PA999'; `perfaudit rules` lists them\n",
        ),
        (
            ["a.py", "--fix", "--allow", "sleep"],
            "perfaudit: --allow sleep: no fix changes that; "
            "fixes change rounding, precision, rng, checkpoint, order, algorithm, aliasing\n",
        ),
        (["a.py", "-o", "empty/no/r.txt"], "perfaudit: empty/no/r.txt: not written: no such file or directory\n"),
    ],
)
def test_wrong_use_is_one_line(project: Project, perfaudit: Run, arguments: list[str], message: str) -> None:
    folder = project(**{"a.py": ANOMALY})
    (folder / "empty").mkdir()
    (folder / "link.py").symlink_to("nowhere.py")
    (folder / "loop.py").symlink_to("loop.py")
    os.mkfifo(folder / "pipe.py")
    assert perfaudit("scan", *arguments).err == message


# ---- files that cannot be audited ----------------------------------------------------------------------------------

UNREADABLE = {
    "syntax.py": (b"import torch\ndef (:\n", f"does not parse at line 2: invalid syntax{PARSER}"),
    "utf8.py": (
        b"import torch\n\n# \xff\n",
        "not valid text in its encoding, UTF-8 unless it declares another (byte 16)",
    ),
    "codec.py": (
        b"# coding: nonsense\nimport torch\n",
        "not valid text in its encoding, UTF-8 unless it declares another",
    ),
    "punycode.py": (
        b"# coding: punycode\nimport torch\n",
        "in punycode, an encoding for names of domains and no text of a program",
    ),
    "binary.py": (b"torch\0\1\2", "binary: it holds null bytes"),
    "utf16.py": ("import torch".encode("utf-16"), "binary: it holds null bytes"),
    "brackets.py": (
        b"torch = " + b"(" * 2000 + b")" * 2000,
        f"does not parse at line 1: too many nested parentheses{PARSER}",
    ),
    "minus.py": (b"import torch\nx = " + b"-" * 200_000 + b"1\n", "nested too deeply to parse"),
    "large.py": (b"import torch\n" + b"#" * MAX_BYTES, "larger than 4 MiB, probably generated"),
}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["."], 0),
        (["clean.py", "broken.py"], 3),
        (["broken.py", "clean.py"], 3),
        (["broken.py", "clean.py", "--exit-zero"], 3),
        (["broken.py", "anomaly.txt.py"], 1),
        (["broken.py", "anomaly.txt.py", "--exit-zero"], 0),
        ([".", "other/plain.py"], 3),
    ],
)
def test_a_file_that_is_named_has_to_be_read(project: Project, perfaudit: Run, arguments: list[str], code: int) -> None:
    """As for `ruff check`; below a folder there may be files for Python 2, and templates."""
    folder = project(**{"clean.py": CLEAN, "broken.py": "import torch\nprint 1\n"})
    (folder / "other").mkdir()
    (folder / "other" / "plain.py").write_text("print 1\n")  # says no "torch"
    if "anomaly.txt.py" in arguments:
        (folder / "anomaly.txt.py").write_text(ANOMALY)
    done = perfaudit("scan", *arguments)
    assert done.code == code
    assert "broken.py: not audited: does not parse at line 2: Missing parentheses" in done.out
    assert "\nnothing is known of what was not audited; the line" in done.out
    assert ("other/plain.py: not audited: does not parse at line 1" in done.out) is ("other/plain.py" in arguments)


@pytest.mark.parametrize(("name", "code"), [("broken.py", 3), (".", 0)])
def test_a_baseline_of_a_file_that_cannot_be_read(project: Project, perfaudit: Run, name: str, code: int) -> None:
    project(**{"anomaly.py": ANOMALY, "broken.py": "import torch\nprint 1\n"})
    done = perfaudit("scan", "anomaly.py", name, "--baseline", "known.json", "--update-baseline")
    assert (done.code, "1 finding accepted" in done.err) == (code, True)
    assert ("broken.py: not audited: does not parse" in done.err) is (code == 3)


@pytest.mark.parametrize("name", UNREADABLE)
def test_one_bad_file_among_good_ones(project: Project, perfaudit: Run, name: str) -> None:
    content, reason = UNREADABLE[name]
    (project(**ALL) / name).write_bytes(content)
    done = perfaudit("scan", ".", "--format", "json")
    assert done.code == 1
    assert rules(done) == ["PA501", "PA101", "PA701"]
    assert json.loads(done.out)["skipped"] == [{"path": name, "reason": reason}]
    assert done.err == ""
    alone = perfaudit("scan", name)
    assert (alone.code, alone.out, alone.err) == (3, "", f"perfaudit: {name}: not audited: {reason}\n")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", 0),
        (b"\n\n", 0),
        (b"\xef\xbb\xbf" + ANOMALY.encode(), 1),
        (b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + ANOMALY.encode(), 1),
        (ANOMALY.replace("\n", "\r\n").encode(), 1),
        (ANOMALY.replace("\n", "\r").encode(), 1),
        (ANOMALY.rstrip().encode(), 1),
        (b"\x0c" + ANOMALY.encode(), 1),
        (b"import torch\n" + b"x = " + b"+".join([b"1"] * 900) + b"\n" + ANOMALY.encode(), 1),
        (b"x = '\\d'\n" + ANOMALY.encode(), 1),
        (b"# torch\nprint(1)\n", 0),
        (b"torch.autograd.set_detect_anomaly(True)\n", 0),
    ],
)
def test_files_that_can_be_audited(project: Project, perfaudit: Run, content: bytes, found: int) -> None:
    (project() / "a.py").write_bytes(content)
    done = perfaudit("scan", "a.py", "--format", "json")
    assert (len(rules(done)), done.code, done.err) == (found, int(found > 0), "")
    assert json.loads(done.out)["files"] == 1


@pytest.mark.skipif(ROOT, reason="root may read everything")
def test_what_may_not_be_read(project: Project, perfaudit: Run) -> None:
    folder = project(**{"a.py": ANOMALY, "secret.py": ANOMALY, "closed/b.py": ANOMALY})
    (folder / "secret.py").chmod(0)
    (folder / "closed").chmod(0)
    try:
        done = perfaudit("scan", ".", "--format", "json")
        named = perfaudit("scan", "closed/b.py")
    finally:
        (folder / "closed").chmod(0o755)
    assert json.loads(done.out)["skipped"] == [
        {"path": "closed", "reason": "folder not read: permission denied"},
        {"path": "secret.py", "reason": "permission denied"},
    ]
    assert named.code == 2
    assert named.err.startswith("perfaudit: closed/b.py: cannot be read (permission denied)")


def test_the_file_is_not_executed(project: Project, perfaudit: Run) -> None:
    folder = project(
        **{
            "train.py": ANOMALY + "open('ran', 'w').close()\n",
            "conftest.py": "1 / 0",
            "torch.py": "",
        }
    )
    assert perfaudit("scan", ".").code == 1
    assert perfaudit("scan", ".", "--fix", "--unsafe-fixes").code == 0
    assert not (folder / "ran").exists()


def test_the_same_file_is_scanned_once(project: Project, perfaudit: Run) -> None:
    folder = project(**{"a.py": ANOMALY, "sub/b.py": CLEAN})
    (folder / "same.py").symlink_to("a.py")
    (folder / "again").symlink_to("sub")
    done = perfaudit("scan", "a.py", "./a.py", "sub/../a.py", str(folder / "a.py"), "same.py", ".", "--format", "json")
    assert rules(done) == ["PA501"]
    assert json.loads(done.out)["files"] == 2


def test_a_name_that_is_no_utf8(project: Project, perfaudit: Run) -> None:
    folder = project()
    try:
        (folder / os.fsdecode(b"caf\xe9.py")).write_text(ANOMALY)
    except OSError:
        pytest.skip("this file system wants UTF-8")
    assert json.loads(perfaudit("scan", ".", "--format", "json").out)["findings"][0]["path"] == "caf\udce9.py"
    assert "caf\ufffd.py:2:1" in perfaudit("scan", ".").out
    assert perfaudit("scan", ".", "-o", "report.txt").code == 1


# ---- which rules ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["PA501", "PA101", "PA701"]),
        (["--select", "PA101"], ["PA101"]),
        (["--select", "pa1"], ["PA101"]),
        (["--select", "PA1,PA5"], ["PA501", "PA101"]),
        (["--select", "PA1", "--select", "PA5"], ["PA501", "PA101"]),
        (["--select", "data-parallel"], ["PA701"]),
        (["--ignore", "PA101, PA701"], ["PA501"]),
        (["--ignore", "anomaly-detection-enabled"], ["PA101", "PA701"]),
        (["--select", "PA1,PA7", "--ignore", "PA1"], ["PA701"]),
        (["--severity", "error"], ["PA501"]),
        (["--severity", "warning", "--ignore", "PA5"], ["PA101", "PA701"]),
    ],
)
def test_which_rules(project: Project, perfaudit: Run, arguments: list[str], expected: list[str]) -> None:
    project(**ALL)
    assert rules(perfaudit("scan", "--format", "json", *arguments)) == expected


@pytest.mark.parametrize(
    ("settings", "arguments", "expected"),
    [
        ('select = ["PA1", "PA5"]', [], ["PA501", "PA101"]),
        ('ignore = ["PA1"]', [], ["PA501", "PA701"]),
        ('select = ["PA1"]', ["--select", "PA7"], ["PA701"]),
        ('ignore = ["PA1"]', ["--ignore", "PA7"], ["PA501"]),
        ('ignore = ["PA1"]', ["--select", "PA1,PA7"], ["PA701"]),
        ('exclude = ["loader.py", "par*"]', [], ["PA501"]),
        ('exclude = ["/loader.py"]', [], ["PA501", "PA701"]),
        ('exclude = ["*.py"]', ["loader.py"], ["PA101"]),  # named
    ],
)
def test_configuration(
    project: Project, perfaudit: Run, settings: str, arguments: list[str], expected: list[str]
) -> None:
    project(**ALL, **{"pyproject.toml": f"[tool.perfaudit]\n{settings}\n"})
    assert rules(perfaudit("scan", "--format", "json", *arguments)) == expected


def test_exclude_is_relative_to_the_file_that_says_it(
    project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(
        **{
            "pyproject.toml": '[tool.perfaudit]\nexclude = ["/src/old", "/new.py"]\n',
            "src/old/a.py": ANOMALY,
            "src/new.py": LOADER,
        }
    )
    monkeypatch.chdir(folder / "src")
    assert rules(perfaudit("scan", "--format", "json")) == ["PA101"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("[tool.perfaudit\n", "not valid TOML: Expected"),
        (
            "[tool.perfaudit]\ncolour = 1\n",
            "tool.perfaudit has no key 'colour' (it has: exclude, gate, ignore, per-file-ignores, rules, select,",
        ),
        (
            "[tool.perfaudit]\nselect = 'PA1'\n",
            "tool.perfaudit.select must be a list of strings, such as ['PA1'], it is 'PA1'",
        ),
        ("[tool.perfaudit]\nselect = ['PA999']\n", "[tool.perfaudit] select: no rule is called 'PA999'"),
        ("[tool.perfaudit]\nignore = ['']\n", "[tool.perfaudit] ignore: no rule is called ''"),
        ("[tool.perfaudit]\nexclude = ['!']\n", "tool.perfaudit.exclude has '!', which is no pattern of .gitignore"),
    ],
)
def test_configuration_errors(project: Project, perfaudit: Run, settings: str, message: str) -> None:
    folder = project(**ALL, **{"pyproject.toml": settings})
    done = perfaudit("scan", ".")
    assert (done.code, done.out) == (2, "")
    said = re.sub(r"\.toml:\d+: ", ".toml: ", done.err)  # which line: tests/cli/test_bad_input.py
    assert said.startswith(f"perfaudit: {folder / 'pyproject.toml'}: {message}")
    assert done.err.count("\n") == 1


# ---- suppression comments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("loader = DataLoader(dataset)  # perfaudit: ignore[PA101] measured: slower", 0),
        ("loader = DataLoader(dataset)  # perfaudit: ignore[dataloader-no-workers]", 0),
        ("loader = DataLoader(dataset)  # perfaudit: ignore[PA501,PA101]", 0),
        ("loader = DataLoader(dataset)  # perfaudit:ignore [ pa101 , PA501 ]", 0),
        ("loader = DataLoader(dataset)  # perfaudit: ignore", 0),
        ("loader = DataLoader(dataset)  # noqa # perfaudit: ignore[PA101]", 0),
        ("loader = DataLoader(dataset)  # perfaudit: ignore[PA501]", 1),
        ("loader = DataLoader(dataset)  # perfaudit: ignored once", 1),
        ("loader = DataLoader(dataset)  # perfaudit: ignore[PA101", 1),
        ("loader = DataLoader(dataset), '# perfaudit: ignore[PA101]'", 1),
        ("# perfaudit: ignore[PA101]\nloader = DataLoader(dataset)", 1),
        ("loader = DataLoader(  # perfaudit: ignore[PA101]\n    dataset,\n)", 0),
        ("loader = DataLoader(\n    dataset,\n)  # perfaudit: ignore[PA101]", 0),
        ("loader = DataLoader(\n    dataset,  # perfaudit: ignore[PA101]\n)", 1),
        ("a = [\n    DataLoader(x),  # perfaudit: ignore[PA101]\n    DataLoader(y),\n]", 1),
    ],
)
def test_suppression(project: Project, perfaudit: Run, code: str, found: int) -> None:
    project(**{"a.py": f"from torch.utils.data import DataLoader\n{code}\n"})
    assert len(rules(perfaudit("scan", "a.py", "--format", "json"))) == found


# ---- patches -------------------------------------------------------------------------------------------------------

CONTENTS = {
    "plain": ANOMALY.encode(),
    "several lines": b"import torch\n\n\n\n\n" + ANOMALY.encode() + b"\n\n\n\n\n\n\n\n" + ANOMALY.encode(),
    "crlf": ANOMALY.replace("\n", "\r\n").encode(),
    "mixed line ends": b"import torch\r\ntorch.autograd.set_detect_anomaly(True)\nx = 1\r\n",
    "no line end": ANOMALY.rstrip().encode(),
    "byte-order mark": b"\xef\xbb\xbf" + ANOMALY.encode(),
    "latin-1": b"# coding: latin-1\n# caf\xe9\n" + ANOMALY.encode(),
    "not ascii": "# größer, 训练\n".encode() + ANOMALY.encode() + "x = 'größer'\n".encode(),
    "line separators": "x = 'a\u2028b\x0cc'\n".encode() + ANOMALY.encode(),
}


@pytest.mark.parametrize("tool", ["git apply", "patch -p1 --quiet"])
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_diff_applies_and_is_what_fix_writes(project: Project, perfaudit: Run, content: bytes, tool: str) -> None:
    if shutil.which(tool.split()[0]) is None:
        pytest.skip(f"no {tool}")
    folder = project()
    paths = [folder / "train.py", folder / "sub dir" / "größe.py"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    assert perfaudit("scan", ".", "--diff", "-o", "fix.patch").code == 1
    assert [path.read_bytes() for path in paths] == [content, content]
    patch = (folder / "fix.patch").read_bytes()
    subprocess.run(tool.split(), input=patch, check=True, cwd=folder)
    applied = [path.read_bytes() for path in paths]
    for path in paths:
        path.write_bytes(content)
    assert perfaudit("scan", ".", "--fix").code == 0
    assert [path.read_bytes() for path in paths] == applied == [content.replace(b"True", b"False")] * 2


def test_diff_on_stdout_is_a_patch_from_a_folder_of_the_repository(project: Project) -> None:
    folder = project(**{"src/train.py": ANOMALY})
    subprocess.run(["git", "init", "--quiet", "."], check=True, cwd=folder)
    command = [sys.executable, "-m", "perfaudit", "scan", "train.py", "--diff"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    (folder / "src" / "train.py").write_text("# größer\n" + ANOMALY)
    done = subprocess.run(command, cwd=folder / "src", capture_output=True, env=ascii_only, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
    subprocess.run(["git", "apply"], input=done.stdout, check=True, cwd=folder / "src")
    assert (folder / "src" / "train.py").read_text() == "# größer\n" + ANOMALY.replace("True", "False")


@pytest.mark.parametrize(
    ("file", "arguments", "said"),
    [
        ("anomaly.py", [], ""),
        (
            "loader.py",
            [],
            "no patch: no fix for the 1 finding is safe; --unsafe-fixes takes 1 that changes results too",
        ),
        (
            "loader.py",
            ["--allow", "rounding"],
            "no patch: no fix for the 1 finding is allowed; --unsafe-fixes takes 1 that changes results too",
        ),
        ("loader.py", ["--unsafe-fixes"], ""),
        ("parallel.py", ["--unsafe-fixes"], "no patch: there is no fix for the 1 finding"),
        ("clean.py", [], "nothing found, so there is no patch"),
    ],
)
def test_an_empty_patch_says_why(project: Project, perfaudit: Run, file: str, arguments: list[str], said: str) -> None:
    project(**ALL, **{"clean.py": CLEAN})
    done = perfaudit("scan", file, "--diff", *arguments)
    assert (done.err, not done.out) == (f"perfaudit: {said}\n" if said else "", bool(said))


@pytest.mark.parametrize(
    ("arguments", "fixed"),
    [
        (["--fix"], {"anomaly.py"}),
        (["--fix", "--unsafe-fixes"], {"anomaly.py", "loader.py"}),
        (["--fix", "--allow", "rng"], {"anomaly.py", "loader.py"}),
        (["--fix", "--allow", "checkpoint,rng"], {"anomaly.py", "loader.py"}),
        (["--fix", "--allow", "rng", "--allow", "rounding"], {"anomaly.py", "loader.py"}),
        (["--fix", "--allow", "rounding"], {"anomaly.py"}),
        (["--fix", "--select", "PA1"], set()),
        (["--fix", "--severity", "error"], {"anomaly.py"}),
        (["--diff"], set()),
        ([], set()),
    ],
)
def test_which_fixes_are_written(project: Project, perfaudit: Run, arguments: list[str], fixed: set[str]) -> None:
    folder = project(**ALL)
    perfaudit("scan", ".", *arguments)
    assert {name for name, text in ALL.items() if (folder / name).read_text() != text} == fixed


def test_fix_reports_what_is_left(project: Project, perfaudit: Run) -> None:
    project(**ALL)
    done = perfaudit("scan", ".", "--fix", "--format", "json")
    assert (done.code, done.err, rules(done)) == (1, "anomaly.py: 1 fixed\n", ["PA101", "PA701"])
    done = perfaudit("scan", ".", "--fix", "--select", "PA5")
    assert (done.code, done.err, done.out) == (0, "nothing to fix\n", "nothing found in 3 files\n")


def test_fix_says_how_a_program_of_several_processes_is_started(project: Project, perfaudit: Run) -> None:
    program = Path(__file__).parents[2] / "benchmarks" / "rank_programs" / "data_parallel.py"
    project(**{"train.py": program.read_text()})
    done = perfaudit("scan", "train.py", "--select", "PA701", "--unsafe-fixes", "--fix")
    assert (
        done.err.startswith("train.py: 1 fixed; ")
        and "started by `torchrun --nproc-per-node=gpu train.py ...`" in done.err
    )


def test_fixes_that_overlap_wait(project: Project, perfaudit: Run) -> None:
    folder = project(**{"a.py": "import torch\nx = torch.zeros(int(torch.zeros(2).cuda()[0])).cuda()\n"})
    first = perfaudit("scan", "a.py", "--fix", "--select", "PA105")
    assert first.err in ("a.py: 2 fixed\n", "a.py: 1 fixed\n1 more touches the same lines: run again for it\n")
    perfaudit("scan", "a.py", "--fix", "--select", "PA105")
    assert (folder / "a.py").read_text() == (
        'import torch\nx = torch.zeros(int(torch.zeros(2, device="cuda")[0]), device="cuda")\n'
    )


def test_fix_keeps_the_mode(project: Project, perfaudit: Run) -> None:
    path = project(**{"a.py": ANOMALY}) / "a.py"
    path.chmod(0o754)
    perfaudit("scan", "a.py", "--fix")
    assert stat.S_IMODE(path.stat().st_mode) == 0o754


def test_fix_goes_through_a_link(project: Project, perfaudit: Run) -> None:
    folder = project(**{"real/a.py": ANOMALY})
    (folder / "link.py").symlink_to("real/a.py")
    perfaudit("scan", "link.py", "--fix")
    assert (folder / "link.py").is_symlink()
    assert (folder / "real" / "a.py").read_text() == ANOMALY.replace("True", "False")


def test_fix_leaves_the_target_of_a_link_it_came_across(project: Project, perfaudit: Run) -> None:
    folder = project(**{"outside/lib.py": ANOMALY, "proj/real.py": ANOMALY})
    (folder / "proj" / "lib.py").symlink_to("../outside/lib.py")
    (folder / "proj" / "alias.py").symlink_to("real.py")
    done = perfaudit("scan", "proj", "--fix")
    assert (folder / "outside" / "lib.py").read_text() == ANOMALY
    assert done.err == "proj/real.py: 1 fixed\n"
    assert "name this very file" in done.out
    perfaudit("scan", "proj", "proj/lib.py", "--fix")
    assert (folder / "outside" / "lib.py").read_text() == ANOMALY.replace("True", "False")


@pytest.mark.skipif(ROOT, reason="root may write everywhere")
@pytest.mark.parametrize("protected", ["folder", "file"])
def test_fix_where_nothing_may_be_written(project: Project, perfaudit: Run, protected: str) -> None:
    folder = project(**{"sub/a.py": ANOMALY}) / "sub"
    (folder if protected == "folder" else folder / "a.py").chmod(0o555)
    try:
        done = perfaudit("scan", "sub", "--fix")
    finally:
        folder.chmod(0o755)
    assert (done.code, done.out, done.err) == (2, "", "perfaudit: sub/a.py: not written: permission denied\n")
    assert (folder / "a.py").read_text() == ANOMALY
    assert [path.name for path in folder.iterdir()] == ["a.py"]


# ---- where the report goes -----------------------------------------------------------------------------------------


def test_output_to_a_file(project: Project, perfaudit: Run) -> None:
    folder = project(**{"a.py": ANOMALY})
    on_stdout = perfaudit("scan", "a.py")
    done = perfaudit("scan", "a.py", "--output", "report.txt")
    assert (done.code, done.out, done.err) == (1, "", "")
    assert (folder / "report.txt").read_text() == on_stdout.out
    assert stat.S_IMODE((folder / "report.txt").stat().st_mode) == stat.S_IMODE((folder / "a.py").stat().st_mode)
    assert perfaudit("scan", "a.py", "--format", "json", "-o", "report.txt").code == 1
    assert json.loads((folder / "report.txt").read_text())["command"] == "scan"


def test_output_to_what_is_no_file(project: Project, perfaudit: Run) -> None:
    project(**{"a.py": ANOMALY})
    assert perfaudit("scan", "a.py", "-o", "/dev/null").code == 1
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_nothing_looked_at_is_said_in_the_report_too(project: Project, perfaudit: Run) -> None:
    folder = project(**{"a.py": "def torch(:\n"})
    done = perfaudit("scan", "a.py", "--format", "json")
    assert done.code == 3
    assert json.loads(done.out)["files"] == 0
    assert perfaudit("scan", "a.py", "-o", "report.txt").code == 3
    assert (folder / "report.txt").read_text() == (
        f"a.py: not audited: does not parse at line 1: invalid syntax{PARSER}\n\nnothing found in 0 files, 1 not audited\n"
        "nothing is known of what was not audited; the line above says why\n"
    )


@pytest.mark.parametrize("arguments", [[], ["-o", "report.txt"], ["--format", "json"], ["--diff"]])
def test_no_colour_where_no_terminal_is(
    project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    folder = project(**ALL)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    done = perfaudit("scan", ".", *arguments)
    written = folder / "report.txt"
    assert "\x1b" not in done.out + done.err + (written.read_text() if written.exists() else "")


def test_a_terminal_opens_the_file_of_a_finding(
    project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the place at the head of a finding is a link; an escape that makes one in the code is shown as signs."""
    folder = project(**{"a b.py": f"{ANOMALY[:-1]}  # \x1b]8;;file:///etc/passwd\x1b\\a b.py:2:1\n", "c.py": LOADER})
    plain = perfaudit("scan", ".").out
    monkeypatch.setattr("perfaudit.cli.output.is_terminal", lambda stream: True)
    painted = perfaudit("scan", ".").out
    links = re.findall("\x1b\\]8;;([^\x1b]+)\x1b\\\\\x1b\\[1m([^\x1b]*)\x1b\\[0m\x1b\\]8;;\x1b\\\\", painted)
    assert [uri for uri, _ in links] == [(folder / name).as_uri() for name in ("a b.py", "c.py")]
    assert [place for _, place in links] == re.findall(r"^ +\d+  (.*?\.py:\d+:\d+)", plain, re.MULTILINE)
    assert re.sub("\x1b\\]8;;[^\x1b]*\x1b\\\\|\x1b\\[[0-9;]*m", "", painted) == plain
    assert "\x1b]8" not in perfaudit("scan", ".", "-o", "report.txt").out + (folder / "report.txt").read_text()


def subprocess_scan(folder: Path, shell: str) -> subprocess.CompletedProcess[str]:
    command = shell.replace("perfaudit", f"{sys.executable} -m perfaudit")
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("shell", "code", "err"),
    [
        ("set -o pipefail; perfaudit scan . | head -1", 1, ""),
        ("perfaudit scan . | true; exit ${PIPESTATUS[0]}", 1, ""),
        ("perfaudit scan . >&-", 1, ""),
        ("perfaudit scan missing.py", 2, "perfaudit: missing.py: does not exist; name a Python file or a folder, "),
        ("perfaudit scan . --severity error --exit-zero", 0, ""),
        ("PYTHONIOENCODING=ascii perfaudit scan .", 1, ""),
        ("perfaudit --version", 0, ""),
    ],
)
def test_as_a_process(project: Project, shell: str, code: int, err: str) -> None:
    folder = project(**{f"file_{number}.py": ANOMALY * 20 for number in range(20)}, **ALL)
    done = subprocess_scan(folder, shell)
    assert done.returncode == code
    assert done.stderr.startswith(err)
    assert bool(done.stderr) == bool(err)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_no_finding(project: Project) -> None:
    done = subprocess_scan(project(**ALL), "perfaudit scan . >/dev/full")
    assert (done.returncode, done.stderr) == (2, "perfaudit: stdout: not written: no space left on device\n")


# ---- fingerprints --------------------------------------------------------------------------------------------------


def fingerprints(project: Project, perfaudit: Run, text: str) -> list[str]:
    project(**{"a.py": text})
    found = json.loads(perfaudit("scan", "a.py", "--format", "json", "--select", "PA501").out)["findings"]
    return [one for finding in found for one in finding["fingerprints"]]


CALL = "torch.autograd.set_detect_anomaly(True)"
STATEMENTS = f"import torch\n{CALL}\nx = 1\n{CALL}\ndef main():\n    {CALL}\n"


@pytest.mark.parametrize(
    "after",
    [
        "# a comment\n\n\n" + STATEMENTS,
        STATEMENTS.replace("x = 1", "x = 1\ny = 2\n"),
        STATEMENTS.replace("def main():", "def main():\n    z = 3"),
        STATEMENTS.replace("(True)", "( True )"),
    ],
)
def test_fingerprints_stay(project: Project, perfaudit: Run, after: str) -> None:
    before = fingerprints(project, perfaudit, STATEMENTS)
    assert len(set(before)) == len(before) == 3
    assert fingerprints(project, perfaudit, after) == before


def test_a_comment_on_one_statement_leaves_the_fingerprint_of_its_equal(project: Project, perfaudit: Run) -> None:
    before = fingerprints(project, perfaudit, STATEMENTS)
    silenced = STATEMENTS.replace(CALL, f"{CALL}  # perfaudit: ignore", 1)
    assert fingerprints(project, perfaudit, silenced) == before[1:]


def test_fingerprints_in_a_match_statement(project: Project, perfaudit: Run) -> None:
    text = f"import torch\nmatch mode:\n    case 1:\n        {CALL}\n    case 2:\n        pass\n"
    assert fingerprints(project, perfaudit, text) == fingerprints(project, perfaudit, text + "        y = 1\n")
