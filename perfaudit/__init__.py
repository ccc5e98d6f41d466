"""perfaudit: why PyTorch training is slow, with proof and a patch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "doctor", "fix", "gate", "run", "scan", "trace", "tune"]

if TYPE_CHECKING:
    from os import PathLike

    from perfaudit.findings import Severity
    from perfaudit.report import Report

    Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


def scan(paths: Paths, severity: Severity = "info") -> Report:
    """The findings of files and folders of this severity or a worse one, ranked; nothing of them is imported or run.

    Settings of [tool.perfaudit] count. Raises `perfaudit.errors.UserError` for a path that does not exist.
    """
    from perfaudit.functions import scan

    return scan(_texts(paths), severity)


def fix(paths: Paths, severity: Severity = "info", unsafe: bool = False, allow: Sequence[str] = ()) -> Report:
    """What is left once fixes are **written into the files**; `notes` say how many. Nothing of the files is imported or run.

    Without more, only fixes that change nothing but speed. unsafe: all others too. allow: those that change no more than this
    ("rounding", "rng", …). Raises `perfaudit.errors.UserError` for files that cannot be read or written.
    """
    from perfaudit.functions import fix

    return fix(lambda: scan(paths, severity), unsafe, allow)


def run(
    script: str | PathLike[str],
    arguments: Sequence[str] = (),
    *,
    module: bool = False,
    steps: int = 0,
    seconds: float | None = None,
    timeout: float = 600.0,
    in_place: bool = False,
) -> Report:
    """Where the steps of a script go, in `run` of the report. It runs in a process of its own, as `python script arguments` does.

    It is ended after 20 seconds of training, or after so many `steps` or `seconds`. module: `script` is a module, as
    `python -m` has it. timeout: seconds until the first step, and between two. in_place: the script writes its files, which
    otherwise go to a scratch folder. What it prints is not shown. Raises `perfaudit.errors.UserError` where nothing can be run.
    """
    from perfaudit.functions import run

    return run(_texts(script)[0], arguments, module, steps, seconds, timeout, in_place)


def trace(paths: Paths, window: tuple[int, int] | None = None, rank: int | None = None) -> Report:
    """What traces of one job say, of files and folders: shares by cause, and findings with upper bounds. Nothing is run.

    window: numbers of the first and the last step to look at. rank: the only one to look at. Files that cannot be read are in
    `skipped`. Raises `perfaudit.errors.UserError` for a path that does not exist.
    """
    from pathlib import Path

    from perfaudit.rules import rule_heads
    from perfaudit.trace.report import read_all, report_of
    from perfaudit.trace.trace_files import find_traces

    files = find_traces([Path(path) for path in _texts(paths)])
    return report_of(read_all(files, window, processes=1), rule_heads(), rank)


def tune(
    target: str | PathLike[str],
    knobs: Sequence[str] = (),
    budget: float = 300.0,
    *,
    arguments: Sequence[str] = (),
    module: bool = False,
    allow: Sequence[str] | None = None,
    in_place: bool = False,
) -> Report:
    """What makes a training faster: a script with its arguments, or a file that defines factories. It runs in child processes.

    Without `knobs` it climbs: all patches are tried, and what pays together is in `ladder`, with its patch. With knobs
    ("dataloader", "optimizer", …) each is searched by itself, and `winners` has what each recommends; with `allow` too, they
    climb.

    budget: seconds for all of it. allow: what besides speed a climb may change (("rounding",) where it is None; ("safe",) for
    nothing). in_place: the script writes its files, which otherwise go to a scratch folder. No patch is written. Raises
    `perfaudit.errors.UserError` for a target that does not load.
    """
    from perfaudit.functions import tune

    return tune(_texts(target)[0], knobs, budget, arguments, module, allow, in_place)


def gate(
    targets: str | Sequence[str] = (),
    against: str = "",
    *,
    baseline: str | PathLike[str] = "",
    layers: Sequence[str] = (),
    budget: float | None = None,
    max_regression: float | None = None,
    paths: Sequence[str] = (),
    in_place: bool = False,
) -> Report:
    """Whether this code is slower than a commit or a baseline file: `gate` of the report, whose `fails` is the answer.

    targets: scripts ("train.py --epochs 1"), names of [tool.perfaudit.targets], or files that define factories. against: a git
    reference. layers: of "findings", "counters" and "time"; all that the reference allows where none is named. budget: seconds
    for the time layer. max_regression: the slowdown that a pass excludes, as a share (0.05). paths: what is scanned. What is not
    given is that of [tool.perfaudit.gate]. `perfaudit history` does not have this gate. Raises `perfaudit.errors.UserError` for a
    reference, a file or a target that is not there.
    """
    from perfaudit.functions import gate

    named = [targets] if isinstance(targets, str) else targets
    file = _texts(baseline)[0] if baseline else ""
    return gate(named, against, file, layers, budget, max_regression, paths, in_place)


def doctor(bandwidth: bool = True) -> Report:
    """What this machine gives a training, in `machine` of the report. bandwidth: reads and copies may be timed, for seconds."""
    from perfaudit.machine.checks import look_at
    from perfaudit.machine.place import Place
    from perfaudit.report import Report

    return Report("doctor", machine=tuple(look_at(Place(has_bandwidth=bandwidth))))


def _texts(paths: Paths) -> list[str]:
    """Paths as texts; one path is one, not its characters."""
    import os

    return [os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]


FUNCTIONS: dict[str, Callable[..., Report]] = {"gate": gate, "trace": trace, "tune": tune}


class CallablePackage(ModuleType):
    # A package named as a function above: once it is imported, Python has it in the function's place. So it can be called, and
    # `help` and editors show the function's arguments.

    def __call__(self, *args: Any, **kwargs: Any) -> Report:  # Any: as the function has them
        """What the function of that name returns."""
        return self._function(*args, **kwargs)

    @property
    def _function(self) -> Callable[..., Report]:
        return FUNCTIONS[self.__name__.rpartition(".")[2]]

    @property
    def __signature__(self) -> Any:  # Any: inspect's, which `scan` does not import
        import inspect

        return inspect.signature(self._function)

    @property
    def __doc__(self) -> str:  # type: ignore[override]  # a text at each access
        return f"{self._function.__name__}{self.__signature__}\n\n{self._function.__doc__}"
