"""Which settings files count for a file of a scan, and that no project can make them cost much."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.static.project import Project, settings_files

Folder = Callable[..., Path]
SAYS = "num_workers: 0\n"


def places(folder: Path, scanned: str = ".", file: str = "train.py", name: str = "num_workers") -> list[str] | None:
    project = Project(sorted(folder.rglob("*.py")), folders=[folder / scanned] if scanned else [])
    found = project.settings.settings(os.path.realpath(folder / file), name)
    return None if found is None else [each.place for each in found]


def test_files_of_the_project_and_no_records_of_runs(project: Folder) -> None:
    folder = project(
        **{
            "train.py": "",
            "conf/a.yaml": SAYS,
            "b.json": '{"data": {"num_workers": 0}}',
            "c.toml": "num_workers = 0\n",
            "d.yml": "workers: 0\n",
            "outputs/today/e.yaml": SAYS,
            "wandb/run/f.yaml": SAYS,
            ".hydra/g.yaml": SAYS,
            "tests/h.yaml": SAYS,
            "ignored/i.yaml": SAYS,
            ".gitignore": "ignored/\n",
            "j.txt": SAYS,
        }
    )
    assert places(folder) == ["b.json:1", "c.toml:1", "conf/a.yaml:1"]
    assert places(folder, name="workers") == ["d.yml:1"]


def test_files_beside_a_file_that_is_scanned_alone(project: Folder) -> None:
    folder = project(**{"src/train.py": "", "src/conf/a.yaml": SAYS, "b.yaml": SAYS})
    assert places(folder, scanned="", file="src/train.py") == ["conf/a.yaml:1"]
    assert places(folder, scanned="src", file="src/train.py") == ["conf/a.yaml:1"]
    assert places(folder, file="src/train.py") == ["b.yaml:1", "src/conf/a.yaml:1"]


def test_projects_of_one_scan_know_nothing_of_each_other(project: Folder) -> None:
    folder = project(
        **{"one/train.py": "", "one/setup.py": "", "one/a.yaml": SAYS, "two/setup.py": "", "two/b.yaml": SAYS}
    )
    assert places(folder, file="one/train.py") == ["a.yaml:1"]


def test_links_are_not_followed(project: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    away = tmp_path_factory.mktemp("away")
    (away / "a.yaml").write_text(SAYS)
    folder = project(**{"train.py": ""})
    (folder / "conf").symlink_to(away)
    (folder / "b.yaml").symlink_to(away / "a.yaml")
    assert places(folder) == []


@pytest.mark.parametrize("most", ["MAX_FILES", "MAX_FOLDERS"])
def test_too_many_say_nothing(project: Folder, monkeypatch: pytest.MonkeyPatch, most: str) -> None:
    folder = project(**{"train.py": "", **{f"conf{n}/a.yaml": SAYS for n in range(5)}})
    monkeypatch.setattr(settings_files, most, 5)
    assert places(folder) == [f"conf{n}/a.yaml:1" for n in range(5)]
    monkeypatch.setattr(settings_files, most, 4)
    assert places(folder) is None


def test_large_files_are_results_and_what_cannot_be_read_is_unknown(
    project: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(
        **{"train.py": "", "a.json": f'{{"num_workers": 0, "x": "{"y" * 99}"}}', "b.json": "{num_workers: 0}"}
    )
    (folder / "c.yaml").write_bytes(b"num_workers: 0 # \xff")
    assert places(folder) == ["a.json:1", "b.json:1", "c.yaml"]
    monkeypatch.setattr(settings_files, "MAX_JSON_BYTES", 99)
    assert places(folder) == ["b.json:1", "c.yaml"]


def test_digests_change_with_what_a_name_stands_for(project: Folder) -> None:
    folder = project(**{"train.py": "", "a.yaml": SAYS, "b.yaml": "seed: 1\n"})

    def digest() -> str:
        return Project([folder / "train.py"], folders=[folder]).settings.digest(
            os.path.realpath(folder / "train.py"), "num_workers"
        )

    before = digest()
    (folder / "b.yaml").write_text("seed: 2\n")
    assert digest() == before
    (folder / "b.yaml").write_text(SAYS)
    assert digest() != before
