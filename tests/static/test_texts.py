"""Files that read as if they had been written already."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.static.project import Project, absolute
from perfaudit.static.scan import Options, scan
from perfaudit.static.source import read_text
from perfaudit.static.texts import bytes_of, patched

LOADER = "from torch.utils.data import DataLoader\n\n\ndef f(data):\n    return DataLoader(data, {})\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_patched_file_reads_as_meant_and_the_disk_stays(folder: Path) -> None:
    Path("a.py").write_text("a = 1\n")
    with patched({"a.py": "a = 22\n"}):
        assert bytes_of("a.py") == b"a = 22\n"
        with patched({str(folder / "b.py"): "b\n"}):
            assert (bytes_of("b.py"), bytes_of("a.py")) == (b"b\n", b"a = 22\n")
    assert bytes_of("a.py") == b"a = 1\n" == Path("a.py").read_bytes()


def test_it_keeps_the_encoding_of_the_file() -> None:
    text = "# -*- coding: latin-1 -*-\nname = 'é'\n"
    Path("a.py").write_bytes(text.encode("latin-1"))
    with patched({"a.py": text.replace("é", "ü")}):
        assert read_text(Path("a.py")) == (text.replace("é", "ü"), "iso-8859-1")


def test_the_scanner_sees_patched_files_and_their_neighbours() -> None:
    Path("a.py").write_text(LOADER.format("num_workers=2"))
    options = Options(processes=1)
    assert scan(["a.py"], options).findings == ()
    with patched({"a.py": LOADER.format("num_workers=0")}):
        assert [f.rule for f in scan(["a.py"], options).findings] == ["PA101"]
        seen = Project([Path("a.py")]).glance(absolute(Path("a.py")))
        assert seen is not None
        assert seen.size == len(LOADER.format("num_workers=0"))
    assert scan(["a.py"], options).findings == ()
