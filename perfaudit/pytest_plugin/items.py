"""The tests that `pytest --perfaudit` adds: one for the findings, one for each target and layer that runs code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perfaudit.pytest_plugin.gate_request import Asked
from perfaudit.pytest_plugin.gate_run import NotJudged, gate_command, run_gate, session_gate
from perfaudit.pytest_plugin.words import Said, said_of


class GateTests(pytest.Collector):
    """The tests of the gate; their ids are "perfaudit::findings", "perfaudit::counters[train.py]" and so on."""

    def __init__(self, *, asked: Asked, **node: Any) -> None:  # Any: as pytest has it
        super().__init__(**node)
        self.asked = asked

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        return [
            GateTest.from_parent(self, name=f"{layer}[{target}]" if target else layer, layer=layer, target=target)
            for layer in self.asked.layers
            for target in (self.asked.targets if layer != "findings" else [""])
        ]


class GateTest(pytest.Item):
    """One layer of the gate, of one target where the layer runs code.

    Set-up fails, as an error, where the gate could not measure; the test itself fails where it measured a loss.
    """

    parent: GateTests

    def __init__(self, *, layer: str, target: str, **node: Any) -> None:  # Any: as pytest has it
        super().__init__(**node)
        self.asked, self.layer, self.target = self.parent.asked, layer, target
        self._said: list[Said] = []

    def setup(self) -> None:
        problem = ""
        try:
            ran = session_gate(self.config, lambda: run_gate(self._command(), self.asked.project.folder))
            self._said = said_of(ran, self.layer, self.target)
        except NotJudged as error:
            problem = str(error)
        if problem:  # not from inside the handler: pytest would show both
            pytest.fail(problem, pytrace=False)
        for said in self._said:
            if said.verdict == "failed":
                pytest.fail(said.words, pytrace=False)

    def runtest(self) -> None:
        for said in self._said:
            if said.verdict == "regressed" or (said.verdict == "inconclusive" and self._undecided_fails):
                pytest.fail(said.words, pytrace=False)
        for said in self._said:
            if said.verdict in ("not_judged", "inconclusive"):
                pytest.skip(said.line)
            self.add_report_section("call", "perfaudit", said.words)  # shown by -rP

    def reportinfo(self) -> tuple[Any, int | None, str]:  # Any: as pytest has it
        return self.path, None, f"perfaudit gate: {self.name}"

    @property
    def _undecided_fails(self) -> bool:
        return self.asked.project.settings.inconclusive == "fail"

    def _command(self) -> list[str]:
        """The gate of all those tests that were not deselected: `-k findings` runs no code."""
        chosen = [item for item in self.session.items if isinstance(item, GateTest)]
        layers = [layer for layer in self.asked.layers if any(item.layer == layer for item in chosen)]
        texts = {self.asked.targets[item.target]: None for item in chosen if item.target}
        return gate_command(self.asked.project, layers, texts)


def gate_items(session: pytest.Session, asked: Asked) -> Iterator[pytest.Item]:
    """The tests of the gate, collected as pytest collects others, so that its counts are right."""
    tests: GateTests = GateTests.from_parent(session, name="perfaudit", nodeid="perfaudit", asked=asked)
    return iter(session.genitems(tests))
