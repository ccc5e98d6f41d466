"""A checkout on a node that does not see the machine that made it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfaudit.cluster import folder_archive
from perfaudit.cluster.folder_archive import pack
from perfaudit.cluster.node import DECIDING, UserPlace, answer, enter, is_there, remove, unpack
from perfaudit.errors import NothingMeasured, TargetError


def test_files_and_links_come_as_they_were_and_without_git(tmp_path: Path) -> None:
    root, data, there = tmp_path / "root", tmp_path / "data", tmp_path / "far" / "root"
    (root / "package").mkdir(parents=True)
    (root / ".git").write_text("gitdir: elsewhere\n")
    (root / "package" / "model.py").write_text("x = 1\n")
    data.mkdir()
    (root / "data").symlink_to(data)
    assert not is_there(str(there))
    unpack(str(there), pack(root))
    assert (there / "package" / "model.py").read_text() == "x = 1\n"
    assert (there / "data").resolve() == data and not (there / ".git").exists()
    remove(str(there))
    assert not is_there(str(there)) and data.is_dir()


def test_a_checkout_that_is_too_large_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large.bin").write_bytes(bytes(5000))
    monkeypatch.setattr(folder_archive, "MOST_BYTES", 4000)
    with pytest.raises(NothingMeasured, match="set TMPDIR to a folder that all nodes share"):
        pack(tmp_path)


@pytest.fixture
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(DECIDING)]:
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("_no_variables")
def test_a_node_without_the_folder_says_so(tmp_path: Path) -> None:
    trouble = enter(UserPlace(str(tmp_path / "gone"), ()))
    assert trouble.endswith("is not there on every node: run the command in a folder that all nodes share")
    with pytest.raises(NothingMeasured, match="is not there on every node"):
        answer(int, trouble).value()


def test_an_error_of_the_user_crosses_machines_as_what_it_is() -> None:
    def fail() -> None:
        raise TargetError("train.py defines no model")

    with pytest.raises(TargetError, match=r"train\.py defines no model"):
        answer(fail).value()


@pytest.mark.usefixtures("_no_variables")
def test_a_node_computes_as_the_machine_that_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = {"MKL_NUM_THREADS": "3", "NVIDIA_TF32_OVERRIDE": "0", "TORCH_HOME": "/mine", "CUDA_VISIBLE_DEVICES": "0"}
    for name, value in here.items():
        monkeypatch.setenv(name, value)
    place = UserPlace.here()
    assert dict(place.environment) == {"MKL_NUM_THREADS": "3", "NVIDIA_TF32_OVERRIDE": "0"}
    there = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCH_HOME": "/theirs"}  # the first two as Ray sets them
    for name, value in there.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    assert enter(place) == ""
    assert "OMP_NUM_THREADS" not in os.environ
    now = {name: os.environ[name] for name in ("MKL_NUM_THREADS", "NVIDIA_TF32_OVERRIDE", "TORCH_HOME")}
    assert now == {"MKL_NUM_THREADS": "3", "NVIDIA_TF32_OVERRIDE": "0", "TORCH_HOME": "/theirs"}
