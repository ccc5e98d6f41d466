"""Which settings files count for a file of a scan, and that no project can make them cost much."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.static.project import Project, settings_files
from perfaudit.static.project.settings_text import UNREAD

Folder = Callable[..., Path]
SAYS = "num_workers: 0\n"


def places(folder: Path, scanned: str = ".", file: str = "train.py", name: str = "num_workers") -> list[str] | None:
    project = Project(sorted(folder.rglob("*.py")), folders=[folder / scanned] if scanned else [])
    found = project.settings.settings(os.path.realpath(folder / file), name)
    return None if found is None else [each.place for each in found]


def settings_of(folder: Path) -> settings_files.SettingsFiles:
    return Project(sorted(folder.rglob("*.py")), folders=[folder]).settings


def unread(folder: Path) -> list[str]:
    found = settings_of(folder).settings(os.path.realpath(folder / "train.py"), "num_workers")
    return [each.file for each in found or () if each.setting.value is UNREAD]


def lacks(folder: Path) -> bool:
    path = os.path.realpath(folder / "train.py")
    found = settings_of(folder).settings(path, "num_workers")
    return settings_of(folder).is_lacking_beside(path, found or ())


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


def test_of_a_part_of_a_project_nothing_is_known(project: Folder) -> None:
    folder = project(**{"src/train.py": "", "src/conf/a.yaml": SAYS, "b.yaml": SAYS, "setup.py": ""})
    assert places(folder, scanned="", file="src/train.py") is None
    assert places(folder, scanned="src", file="src/train.py") is None
    assert places(folder, file="src/train.py") == ["b.yaml:1", "src/conf/a.yaml:1"]
    assert places(folder, scanned="", file="setup.py") == ["b.yaml:1", "src/conf/a.yaml:1"]


def test_projects_of_one_scan_know_nothing_of_each_other(project: Folder) -> None:
    folder = project(
        **{"one/train.py": "", "one/setup.py": "", "one/a.yaml": SAYS, "two/setup.py": "", "two/b.yaml": SAYS}
    )
    assert places(folder, file="one/train.py") == ["one/a.yaml:1"]


def test_links_are_not_followed(project: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    away = tmp_path_factory.mktemp("away")
    (away / "a.yaml").write_text(SAYS)
    folder = project(**{"train.py": ""})
    (folder / "conf").symlink_to(away)
    (folder / "b.yaml").symlink_to(away / "a.yaml")
    assert unread(folder) == ["b.yaml"]


@pytest.mark.parametrize(
    ("most", "needed"), [("MAX_FILES", 5), ("MAX_FOLDERS", 5), ("MAX_ENTRIES", 11), ("MAX_ALL_BYTES", 5 * len(SAYS))]
)
def test_too_many_say_nothing(project: Folder, monkeypatch: pytest.MonkeyPatch, most: str, needed: int) -> None:
    folder = project(**{"train.py": "", **{f"conf{n}/a.yaml": SAYS for n in range(5)}})
    monkeypatch.setattr(settings_files, most, needed)
    assert places(folder) == [f"conf{n}/a.yaml:1" for n in range(5)]
    monkeypatch.setattr(settings_files, most, needed - 1)
    assert places(folder) is None


def test_large_json_is_a_result_and_what_cannot_be_read_is_unknown(
    project: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"a.json": f'{{"num_workers": 0, "x": "{"y" * 99}"}}', "d.yaml": f"{SAYS}x: {'y' * 99}\n"}
    folder = project(**{"train.py": "", "b.json": '{"num_workers": 4} // ours', "e.yaml": "", **large})
    (folder / "c.yaml").write_bytes(b"num_workers: 0 # \xff")
    (folder / "f.yaml").write_bytes(SAYS.encode("utf-16"))
    assert places(folder) == ["a.json:1", "b.json:1", "c.yaml", "d.yaml:1", "f.yaml"]
    assert unread(folder) == ["c.yaml", "f.yaml"]
    monkeypatch.setattr(settings_files, "MAX_BYTES", 99)
    assert places(folder) == ["b.json:1", "c.yaml", "d.yaml", "f.yaml"]
    assert unread(folder) == ["c.yaml", "d.yaml", "f.yaml"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.yaml", "data.num_workers: 8\n"),
        ("a.yaml", "opts:\n  - data.num_workers=8\n"),
        ("a.yaml", "{num_workers: 4}\n"),
        ("a.yaml", "loader:\n  {num_workers: 4}\n"),
        ("a.yaml", "<<: {num_workers: 4}\n"),
        ("a.yaml", "? num_workers\n: 4\n"),
        ("a.yaml", "num_workers: [4, 0]\n"),
        ("a.yaml", "loader: !x {num_workers: 4}\n"),
        ("a.json", '{"num_workers": [4, 0]}'),
        ("a.json", '{"opts": ["data.num_workers", 8]}'),
        ("a.toml", "opts = ['num_workers=8']\n"),
    ],
)
def test_a_name_that_is_not_clearly_set_is_unknown(project: Folder, file: str, text: str) -> None:
    folder = project(**{"train.py": "", file: text})
    assert set(unread(folder)) == {file}


@pytest.mark.parametrize(
    "text",
    [
        "# num_workers: 4\n",
        "a: 1  # num_workers\n",
        "workers: ${num_workers}\n",
        "my_num_workers: 4\n",
    ],
)
def test_a_name_that_is_only_mentioned_is_not_set(project: Folder, text: str) -> None:
    assert places(project(**{"train.py": "", "a.yaml": text})) == []


def test_files_beside_that_look_alike_and_lack_a_setting(project: Folder) -> None:
    own = {
        "train.py": "",
        "conf/a.yaml": "lr: 1\nepochs: 2\nnum_workers: 0\n",
        "conf/x.yaml": "name: env\nchannels: []\n",
    }
    folder = project(**own, **{"b.yaml": "lr: 1\nepochs: 3\n"})
    assert not lacks(folder)
    (folder / "conf" / "b.yaml").write_text("lr: 1\nepochs: 3\n")
    assert lacks(folder)


def test_empty_lines_are_not_gone_through_again_and_again(project: Folder) -> None:
    """From each to the end would be ten billion of them."""
    folder = project(**{"train.py": "", "a.yaml": "a: 1@2\n" + "\n" * 200_000 + "b: 1\n"})
    assert not settings_of(folder).moves_sections(os.path.realpath(folder / "train.py"))


@pytest.mark.parametrize(
    ("file", "text", "moves"),
    [
        ("a.yaml", "# @package data\n", True),
        ("conf/data/a.yaml", "# @package data\n", False),
        ("conf/a/data/a.yaml", "# @package a.data\n", False),
        ("conf/mydata/a.yaml", "# @package data\n", True),
        ("conf/data/a.yaml", "# @package data.loader\n", True),
        ("conf/data/a.yaml", "# @package _group_\n", False),
        ("a.yaml", "defaults:\n  - speed@data: large\n", True),
        ("a.yaml", "# @package _global_\n", False),
        ("a.yaml", "# @package _global_.data\n", True),
        ("a.yaml", "to: me@home\n", False),
    ],
)
def test_sections_that_hydra_moves(project: Folder, file: str, text: str, *, moves: bool) -> None:
    folder = project(**{"train.py": "", file: text})
    assert bool(settings_of(folder).moves_sections(os.path.realpath(folder / "train.py"))) == moves


def test_digests_change_with_what_a_name_stands_for(project: Folder) -> None:
    folder = project(**{"train.py": "", "a.yaml": SAYS, "b.yaml": "seed: 1\n"})

    def digest() -> str:
        return settings_of(folder).digest(os.path.realpath(folder / "train.py"), "num_workers")

    before = digest()
    (folder / "b.yaml").write_text("seed: 2\n")
    assert digest() == before
    (folder / "b.yaml").write_text(SAYS)
    assert digest() != before


def test_kinds_that_are_not_read_have_a_setting_that_they_name(project: Folder) -> None:
    said = {
        "a.jsonnet": "{num_workers: 0}",
        "b.ini": "[data]\nnum_workers = 0\n",
        "c.yaml.j2": "num_workers: {{ n }}\n",
    }
    folder = project(**{"train.py": "import torch\n", **said, "d.conf": "workers = 0\n", "e.yaml": SAYS})
    (folder / "desktop.ini").write_text("num_workers", encoding="utf-16")
    assert unread(folder) == ["a.jsonnet", "b.ini", "c.yaml.j2"]
    assert places(folder)[-1:] == ["e.yaml:1"]
