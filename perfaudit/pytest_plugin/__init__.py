"""pytest's side of the gate: `pytest --perfaudit` and the fixture `perf_step`. Without either, nothing else is imported.

Hooks and the fixture only; what they do is in the modules beside this one, which are imported when they are needed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perfaudit.pytest_plugin.gate_request import Asked
    from perfaudit.pytest_plugin.steps import Steps

_asked: pytest.StashKey[Asked] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("perfaudit", "perfaudit: does a training step stay as fast as it was?")
    group.addoption(
        "--perfaudit", action="store_true", help="Add the gate of [tool.perfaudit.gate] to the tests (docs/pytest.md)."
    )
    group.addoption("--perfaudit-against", metavar="REF", default="", help="Compare with this git reference.")
    group.addoption("--perfaudit-baseline", metavar="FILE", default="", help="Compare with this file.")
    group.addoption(
        "--perfaudit-layers",
        metavar="LAYERS",
        default="findings,counters",
        help="findings,counters,time (default: %(default)s; time takes minutes and needs a reference of git).",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("perfaudit"):
        from perfaudit.pytest_plugin.gate_request import asked_of

        config.stash[_asked] = asked_of(config)


def pytest_report_header(config: pytest.Config) -> str | None:
    return f"perfaudit: {config.stash[_asked]}" if _asked in config.stash else None


@pytest.hookimpl(tryfirst=True)  # before -k, --last-failed and the like choose among the tests
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if _asked in config.stash:
        from perfaudit.pytest_plugin.items import gate_items

        items.extend(gate_items(session, config.stash[_asked]))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # Any: of pytest-xdist, which need not be there
    """Tell each worker of pytest-xdist where the one gate of this session is kept."""
    if _asked in node.config.stash:
        from perfaudit.pytest_plugin.gate_run import shared_folder

        node.workerinput["perfaudit_folder"] = shared_folder(node.config)


def pytest_assertrepr_compare(left: object, right: object, op: str) -> list[str] | None:
    """A counter of `perf_step` in a failed assertion says where in the code it comes from."""
    if (steps := sys.modules.get("perfaudit.pytest_plugin.steps")) is None:  # no test has asked for one
        return None
    counts = [value for value in (left, right) if isinstance(value, steps.Count)]
    return [f"{left!r} {op} {right!r}", *counts[0].places] if counts else None


@pytest.fixture(scope="session")
def perf_step(pytestconfig: pytest.Config) -> Steps:
    """perfaudit: what one training step of a target does, counted: `perf_step("train.py").host_syncs == 0`.

    The target is run in processes of its own, once a session. docs/gate.md has the names of the counters.
    """
    from perfaudit.pytest_plugin.gate_request import project_of
    from perfaudit.pytest_plugin.steps import Steps

    return Steps(project_of(pytestconfig))
