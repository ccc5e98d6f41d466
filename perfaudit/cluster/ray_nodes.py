"""The nodes of a Ray cluster. Ray starts the processes, reserves the machines and notices when one is lost.

Each node has one process of ours, which has reserved all of its cores and accelerators, so that one set of processes is
measured there at a time and Ray puts nothing beside it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfaudit.cluster.folder_archive import pack
from perfaudit.cluster.kind import Kind, differs, kind_here, most_common
from perfaudit.cluster.node import Answer, UserPlace, answer, enter, is_there, remove, unpack
from perfaudit.errors import NothingMeasured, UserError, refusal
from perfaudit.machine.limits import usable_cores
from perfaudit.measure.elsewhere import Lost, Work

WAIT_SECONDS = 60.0  # for a node to be free, and for its first answer
SHARE_SECONDS = 300.0  # for a node to have a folder: half a GiB at most, over a network
REACH_SECONDS = 5.0  # for the first word of a cluster
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_OF_TRANSPORT = re.compile(
    r"[\s:;,(]*(RpcError|RPC Error|rpc_code|grpc_status|ipv[46]:)"
)  # where text for nobody begins

Say = Callable[[str], object]


@dataclass(slots=True)
class _Node:
    """A node that is ours. ticket: of its work, with the reference to the answer; None while it has none."""

    id: str
    name: str
    process: Any  # Ray's handle of an actor, which has no type
    ticket: int | None = None
    pending: Any = None  # Ray's reference of an object


@dataclass(slots=True)
class RayNodes:
    """See `measure.elsewhere.Nodes`. is_ours: the cluster was started for this run and ends with it."""

    ray: Any  # the module
    nodes: list[_Node]
    kind: Kind
    is_ours: bool
    say: Say
    shared: list[tuple[str, str]] = field(default_factory=list)  # node's id and a folder that was unpacked there
    _tickets: int = 0

    @property
    def width(self) -> int:
        return len(self.nodes)

    @property
    def kind_as_json(self) -> dict[str, Any]:
        return self.kind.as_json()

    @property
    def words(self) -> str:
        return f"{self.width} node{'s' if self.width != 1 else ''} of Ray: {self.kind}"

    @property
    def free(self) -> int:
        return sum(node.ticket is None for node in self.nodes)

    def send(self, work: Work) -> int:
        node = next(node for node in self.nodes if node.ticket is None)
        self._tickets += 1
        node.ticket, node.pending = self._tickets, node.process.do.remote(work)
        return self._tickets

    def next(self) -> tuple[int, Any | Lost]:
        busy = {node.pending: node for node in self.nodes if node.ticket is not None}
        (first, *_), _ = self.ray.wait(list(busy), num_returns=1)
        node = busy[first]
        ticket, node.ticket, node.pending = node.ticket, None, None
        assert ticket is not None
        try:
            found: Answer = self.ray.get(first)
        except self.ray.exceptions.RayTaskError:
            raise  # the work has raised something that is not the user's: a fault of ours
        except self.ray.exceptions.RayError as error:
            lost = self._lose(node, f"was lost ({_first_line(error)})")
            self.say(f"{lost.reason}; what was measured there at that moment is measured again on another node")
            return ticket, lost
        return ticket, found.value()

    def share(self, folder: str) -> None:
        """See `measure.elsewhere.Nodes`. Raises NothingMeasured where no node is left, or one cannot write it."""
        absent = [node for node, there in self._ask(self.nodes, is_there, folder) if not there]
        if not absent:
            return
        data = self.ray.put(pack(Path(folder)))
        for node in absent:
            self.shared.append((node.id, folder))
        self._ask(absent, unpack, folder, data)

    def _ask(self, nodes: Sequence[_Node], ask: Callable[..., Any], *arguments: object) -> list[tuple[_Node, Any]]:
        """What these nodes answer. One that is lost, or does not answer in time, is left out from then on."""
        pending = [(node, node.process.do_with.remote(ask, *arguments)) for node in nodes]
        end, found = time.monotonic() + SHARE_SECONDS, []
        for node, reference in pending:
            try:
                answered: Answer = self.ray.get(reference, timeout=max(0.0, end - time.monotonic()))
            except self.ray.exceptions.RayTaskError:  # a fault of ours
                raise
            except self.ray.exceptions.GetTimeoutError:
                lost = self._lose(node, f"has not answered in {SHARE_SECONDS:.0f} s")
            except self.ray.exceptions.RayError as error:
                lost = self._lose(node, f"was lost ({_first_line(error)})")
            else:
                found.append((node, answered.value()))
                continue
            self.say(f"{lost.reason}; it is left out")
            if not self.nodes:
                raise NothingMeasured(f"no node is left: {lost.reason}")
        return found

    def _lose(self, node: _Node, how: str) -> Lost:
        """Have nothing more to do with a node."""
        self.nodes.remove(node)
        with contextlib.suppress(Exception):  # of whatever kind: it is gone
            self.ray.kill(node.process)
        return Lost(f"{node.name} {how}")

    def close(self) -> None:
        """End our processes on all nodes, and the cluster where it is ours."""
        for node in self.nodes:
            with contextlib.suppress(Exception):  # of whatever kind: the others must end as well
                self.ray.kill(node.process)
        for id_, folder in self.shared:
            with contextlib.suppress(Exception):
                self.ray.get(_on(self.ray, id_, remove).remote(folder), timeout=10)
        with contextlib.suppress(Exception):
            self.ray.shutdown()


def load() -> Any:  # the module, which has no types where it is not installed
    """Ray, which prints nothing of its own from here on. Raises ImportError."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    return ray


@contextlib.contextmanager
def ray_nodes(place: UserPlace, say: Say, like: Kind | None = None) -> Iterator[RayNodes]:
    """Nodes of one kind of the cluster that Ray finds (RAY_ADDRESS, or one on this machine), else of a local one.

    like: the kind they must be of; None for that of most nodes. Raises UserError without Ray, and where the cluster has
    another version; NothingMeasured where it cannot be joined or no node is free.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError(
            "--on ray needs Ray, which this Python lacks: pip install 'perfaudit[ray]', or '.[ray]' in a clone"
        )
    ray = load()
    is_ours = _connect(ray, say)
    nodes = None
    try:
        nodes = _choose_nodes(ray, place, say, like, is_ours)
        yield nodes
    finally:
        if nodes is not None:
            nodes.close()
        else:
            ray.shutdown()


def _connect(ray: Any, say: Say) -> bool:  # Any: the module
    """Join the cluster there is, or start one on this machine; whether it was started."""
    from ray.exceptions import RayError

    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": False}
    logging.getLogger("ray").setLevel(logging.ERROR)
    _print_no_logs_of_nodes(ray)
    ensure_reachable()
    if gone := _cluster_that_is_gone():
        say(
            f"the Ray cluster at {gone}, which Ray remembers on this machine, does not answer: another is started here alone"
        )
        _start_here(ray, options)
        return True
    try:
        ray.init(address="auto", **options)
    except ConnectionError as error:
        if os.environ.get("RAY_ADDRESS"):
            raise NothingMeasured(
                f"{_cluster_words()} cannot be joined: {_first_line(error)}{_token_words()}"
            ) from error
        say("no Ray cluster was found (RAY_ADDRESS names none, none runs here): one is started on this machine alone")
        _start_here(ray, options)
        return True
    except (RuntimeError, ValueError, RayError) as error:  # the last one where the cluster asks for a token
        if "ersion mismatch" in str(error):
            raise UserError(
                f"the Ray cluster has another version of Ray or Python than this one (Ray {ray.__version__}): "
                f"install the same on both; {_first_line(error)}"
            ) from error
        raise NothingMeasured(f"{_cluster_words()} cannot be joined: {_first_line(error)}{_token_words()}") from error
    return False


def _start_here(ray: Any, options: dict[str, Any]) -> None:
    try:
        ray.init(address="local", num_cpus=usable_cores(), include_dashboard=False, **options)
    except (RuntimeError, OSError, ValueError) as failure:
        raise NothingMeasured(f"no Ray cluster can be started on this machine: {_first_line(failure)}") from failure


def _cluster_that_is_gone() -> str:
    """The address of the cluster that Ray would join without RAY_ADDRESS, where nothing listens there; "" otherwise.

    A head that was killed leaves its address in a file, and Ray tries it for minutes. What it would join is private to Ray; where
    that cannot be asked, it is left to Ray.
    """
    if os.environ.get("RAY_ADDRESS"):
        return ""
    try:
        from ray._private.services import get_ray_address_from_environment

        address = str(get_ray_address_from_environment("auto", None) or "")
    except (ImportError, TypeError, OSError):  # the last one where Ray knows of no cluster
        return ""
    return address if _why_silent(address) is not None else ""


def _print_no_logs_of_nodes(ray: Any) -> None:
    """Of a node that is lost, Ray prints the last lines of its log, twenty, before its error can be caught; ours is one sentence.

    `log_to_driver` does not keep it from that; the switch is private to Ray, and one that is not there changes nothing.
    """
    with contextlib.suppress(AttributeError):
        ray._private.worker._worker_logs_enabled = False


def _token_words() -> str:
    """What to try where a cluster may ask for a token, as one of `ray start` does from Ray 2.60 on; its errors do not say so."""
    if os.environ.get("RAY_AUTH_MODE"):
        return ""
    return "; a cluster that asks for a token is joined with RAY_AUTH_MODE=token"


def _cluster_words() -> str:
    address = os.environ.get("RAY_ADDRESS")
    return f"the Ray cluster at {address} (RAY_ADDRESS)" if address else "the Ray cluster"


def ensure_reachable() -> None:
    """Raise NothingMeasured where RAY_ADDRESS is HOST:PORT and nothing listens there.

    Ray itself tries for minutes, and prints each try.
    """
    if (error := _why_silent(os.environ.get("RAY_ADDRESS", ""))) is not None:
        raise NothingMeasured(f"{_cluster_words()} does not answer: {refusal(error)}") from error


def _why_silent(address: str) -> OSError | None:
    """The error of a connection to HOST:PORT; None where something listens there, and for other addresses."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return None
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
    except OSError as error:
        return error
    return None


def _choose_nodes(ray: Any, place: UserPlace, say: Say, like: Kind | None, is_ours: bool) -> RayNodes:
    """Our process on every node that is free now, of one kind."""
    alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if not alive:
        raise NothingMeasured("the Ray cluster has no node with a CPU")
    process = _process(ray)
    started = []
    for node in alive:
        resources = node["Resources"]
        name = f"node {node['NodeManagerAddress']} ({node['NodeID'][:8]})"
        handle = process.options(
            num_cpus=resources["CPU"], num_gpus=resources.get("GPU", 0), scheduling_strategy=_there(node["NodeID"])
        ).remote(place)
        started.append(_Node(node["NodeID"], name, handle, pending=handle.do_with.remote(kind_here)))
    try:
        kinds, troubles = _first_answers(ray, started)
        if not kinds and troubles:
            raise NothingMeasured(f"no node of the Ray cluster can measure: {troubles[0]}")
        if not kinds:
            raise NothingMeasured(
                f"no node of the Ray cluster is free: other work holds all {len(alive)} (waited {WAIT_SECONDS:.0f} s)"
            )
        kind = like or most_common([kind for _, kind in kinds], kind_here())
        nodes = [node for node, found in kinds if found == kind]
        others = [(node, found) for node, found in kinds if found != kind]
        for node, found in others:
            say(f"{node.name} is left out, because it is of another kind: {differs(found, kind)}")
        busy = len(started) - len(kinds)
        if busy:
            say(f"{busy} of {len(started)} nodes are left out, because other work holds them")
        if not nodes:
            raise NothingMeasured(f"no node of the Ray cluster is of the kind that is wanted: {kind}")
    except BaseException:
        for one in started:
            ray.kill(one.process)
        raise
    for one in started:
        one.pending = None
        if one not in nodes:
            ray.kill(one.process)
    found_nodes = RayNodes(ray, nodes, kind, is_ours, say)
    say(f"measuring on {found_nodes.words}")
    return found_nodes


def _first_answers(ray: Any, started: Sequence[_Node]) -> tuple[list[tuple[_Node, Kind]], list[str]]:
    """The kinds of the nodes that have answered, all or those that have when the time is over; and why others cannot."""
    waiting = {node.pending: node for node in started}
    found: list[tuple[_Node, Kind]] = []
    troubles: list[str] = []
    end = time.monotonic() + WAIT_SECONDS
    while waiting and (left := end - time.monotonic()) > 0:
        # Where one is there, others that are free come within seconds; those that are not may take hours.
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=min(left, 15.0) if found else left)
        if not ready:
            break
        node = waiting.pop(ready[0])
        try:
            found.append((node, ray.get(ready[0]).value()))
        except ray.exceptions.RayError as error:  # perfaudit is not installed there, for one
            troubles.append(f"{node.name}: {str(error).strip().splitlines()[-1].strip()}")
    order = [one.id for one in started]
    return sorted(found, key=lambda pair: order.index(pair[0].id)), troubles


def _process(ray: Any) -> Any:
    """The class of our process on a node, as Ray has it. A lost node stays lost: its work goes to another."""

    class Measuring:
        def __init__(self, place: UserPlace) -> None:
            self.trouble = enter(place)

        def do(self, work: Work) -> Answer:
            return answer(work, self.trouble)

        def do_with(self, ask: Callable[..., Any], *arguments: object) -> Answer:
            return answer(lambda: ask(*arguments), "" if ask is kind_here else self.trouble)

    return ray.remote(max_restarts=0, max_task_retries=0)(Measuring)


def _on(ray: Any, node: str, function: Callable[..., Any]) -> Any:
    """A task of Ray that runs on this node, beside whatever it does."""
    return ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=_there(node))(function)


def _there(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def _first_line(error: BaseException) -> str:
    """The first line of what an error says, without what its transport says of itself."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0] if lines else ""
    found = _OF_TRANSPORT.search(line)
    return (line[: found.start()] if found else line).rstrip(".") or type(error).__name__
