"""What is shipped: the wheel holds the rule files and the type marker, and installs a command; what stands around it fits."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from perfaudit import __version__

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))


def test_the_wheel_holds_rules_and_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "perfaudit = perfaudit.cli:main" in archive.read(entry).decode()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
        assert {name.split("/")[0] for name in names} == {"perfaudit", f"perfaudit-{__version__}.dist-info"}
        shipped = {Path(name).name for name in names if name.startswith("perfaudit/rule_files/")}
        assert "perfaudit/py.typed" in names
        assert not any(name.startswith(("tests", "sample_models")) for name in names)
        archive.extractall(tmp_path / "site")
    assert set(re.findall(r"^Provides-Extra: (\S+)$", metadata, re.MULTILINE)) == set(PROJECT["optional-dependencies"])
    needed = [line for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE) if "extra ==" not in line]
    assert not any("torch" in line for line in needed)  # a linter in CI does not pull gigabytes
    assert shipped == {path.name for path in (ROOT / "rules").glob("*.toml")}
    code = "from perfaudit.rules import all_rules, rules_folder; print(rules_folder().name, len(all_rules()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "site", capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["rule_files", str(len(shipped))]


@pytest.mark.skipif(not (ROOT / "Dockerfile").exists(), reason="not in this distribution")
def test_the_image_has_what_it_copies_and_runs_the_command() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    stages = {line[3] for line in words if line[0] == "FROM" and len(line) == 4}
    assert {line[1].removeprefix("--from=") for line in words if line[:1] == ["COPY"] and "--from" in line[1]} == stages
    (entry,) = (line[1] for line in words if line[0] == "ENTRYPOINT")
    assert yaml.safe_load(entry)[0] in PROJECT["scripts"]
    (argument,) = re.findall(r"EXTRAS=\[(\w+)\]", "\n".join(lines))
    assert argument in PROJECT["optional-dependencies"]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert not set(ignored) & {"perfaudit", "rules", "pyproject.toml", "README.md", "LICENSE"}


@pytest.mark.skipif(not (ROOT / "CITATION.cff").exists(), reason="not in this distribution")
def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (__version__, PROJECT["license"])
    assert citation["cff-version"] == "1.2.0"
    assert citation["authors"] and citation["title"] == PROJECT["name"]


def test_the_changelog_has_this_version() -> None:
    heads = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heads[0].split(",")[0] == __version__
    assert all(re.fullmatch(r"\d+\.\d+\.\d+, (unreleased|\d{4}-\d{2}-\d{2})", head) for head in heads)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_of_an_issue_is_one_that_github_takes(path: Path) -> None:
    """https://docs.github.com/en/communities/using-templates-to-encourage-useful-issues-and-pull-requests/syntax-for-issue-forms"""
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert form.keys() <= {"name", "description", "body", "labels", "title", "assignees"}
    assert form["name"] and form["description"] and form["body"]
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    for field in form["body"]:
        assert field["type"] in ("input", "textarea", "dropdown", "checkboxes")
        assert field["attributes"]["label"]
        assert field["attributes"].keys() <= {"label", "description", "placeholder", "value", "render"}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_the_repository_holds_no_built_package_and_no_large_file() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    kept = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert not [path.name for path in kept if path.suffix in {".whl", ".gz", ".zip"} or ".tar" in path.suffixes]
    large = {path.name for path in kept if path.is_file() and path.stat().st_size > 1 << 20}
    assert large <= {"gate_power_aa.jsonl.xz"}  # the raw figures of a study
