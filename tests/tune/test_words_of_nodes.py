"""What the report of `tune --on ray` says of nodes."""

from __future__ import annotations

import pytest

from perfaudit.tune.report import words_of_nodes

NODES = "2 nodes of Ray: a processor"


@pytest.mark.parametrize(
    ("climbs", "sent", "said"),
    [
        (
            True,
            [(3, NODES)],
            f"3 generations of the race in fresh processes measured on {NODES}; the rest on this machine",
        ),
        (
            True,
            [(0, NODES), (1, NODES)],
            f"1 generation of the race in fresh processes measured on {NODES}; the rest on this machine",
        ),
        (
            True,
            [],
            "--on ray: no work was sent to nodes, because no patch came to the race in fresh processes, which is what "
            "nodes measure",
        ),
        (
            True,
            [(0, NODES)],
            "--on ray: no work was sent to nodes, because the race of the patched source ended with its first generation, which "
            "is measured on this machine",
        ),
        (
            False,
            [],
            "--on ray: no work was sent to nodes, because nodes measure the final race of all knobs together (--all), and named "
            "knobs are searched on this machine",
        ),
    ],
)
def test_what_nodes_have_measured_is_told_or_why_nothing(climbs: bool, sent: list[tuple[int, str]], said: str) -> None:
    assert words_of_nodes("ray", climbs, sent) == said
