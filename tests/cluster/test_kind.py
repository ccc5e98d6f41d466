"""Which machines are alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfaudit.cluster.kind import Kind, differs, kind_here, most_common

KIND = Kind("EPYC", 64, 500.0, ("H100", "H100"), "Linux x86_64", "3.11.7", "2.13.0", "1.0")


def test_this_machine_is_like_itself_and_survives_the_journal() -> None:
    here = kind_here()
    assert (here, Kind.from_json(here.as_json())) == (kind_here(), here)


def test_accelerators_and_processor_are_read_from_files(tmp_path: Path) -> None:
    for number in "01":
        file = tmp_path / f"proc/driver/nvidia/gpus/{number}/information"
        file.parent.mkdir(parents=True)
        file.write_text("Model: \t NVIDIA H100\nIRQ: 5\n")
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nmodel name\t: AMD EPYC 9B14\n")
    here = kind_here(tmp_path)
    assert (here.processor, here.accelerators) == ("AMD EPYC 9B14", ("NVIDIA H100", "NVIDIA H100"))
    assert "2 x NVIDIA H100" in str(here)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"cores": 32}, "cores 32 instead of 64"),
        ({"accelerators": ()}, "accelerators none instead of H100, H100"),
        ({"torch": "2.4.0", "memory": 250.0}, "memory 250.0 instead of 500.0, torch 2.4.0 instead of 2.13.0"),
    ],
)
def test_what_two_kinds_differ_in(change: dict[str, object], said: str) -> None:
    assert differs(replace(KIND, **change), KIND) == said  # type: ignore[arg-type]  # by name


def test_the_kind_of_most_nodes_is_taken_and_of_several_that_of_this_machine() -> None:
    other = replace(KIND, cores=8)
    assert most_common([other, KIND, KIND], other) == KIND
    assert most_common([KIND, other], other) == other
    assert most_common([KIND, other], replace(KIND, cores=1)) == KIND
