"""Who imports whom, and through whom."""

from __future__ import annotations

import pytest

from perfaudit.static.import_graph import MAX_HOPS, ImportGraph, numbers_in

IMPORTS = {
    "train": ["data", "net", "outside"],
    "data": ["tools"],
    "net": ["tools", "net"],
    "tools": ["data"],  # in a circle
    "alone": [],
}
FILES = tuple(IMPORTS)


def names(files: int) -> list[str]:
    return [FILES[number] for number in numbers_in(files)]


@pytest.mark.parametrize(
    ("path", "importers", "program"),
    [
        ("train", [], ["data", "net", "tools"]),
        ("data", ["train", "net", "tools"], ["train", "net", "tools"]),
        ("net", ["train"], ["train", "data", "tools"]),
        ("alone", [], []),
        ("outside", [], []),  # no file of the scan
    ],
)
def test_importers_and_programs(path: str, importers: list[str], program: list[str]) -> None:
    graph = ImportGraph(FILES, lambda file: IMPORTS[file])
    assert names(graph.importers(path)) == importers
    assert names(graph.program(path)) == program
    assert sorted(FILES[number] for number in graph.nearest_importers(path)) == sorted(importers)


def test_the_nearest_importers_come_first() -> None:
    graph = ImportGraph(FILES, lambda file: IMPORTS[file])
    assert [FILES[number] for number in graph.nearest_importers("tools")] == ["data", "net", "train"]


def test_only_so_many_imports_are_followed() -> None:
    files = [f"{number}" for number in range(MAX_HOPS + 3)]
    graph = ImportGraph(files, lambda file: [str(int(file) + 1)])
    assert numbers_in(graph.importers(files[-1])) == list(range(2, MAX_HOPS + 2))
    assert numbers_in(graph.program(files[0])) == list(range(1, MAX_HOPS + 1))
