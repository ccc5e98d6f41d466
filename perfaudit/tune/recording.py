"""What a run finds out, kept as it goes, and taken from there where an earlier session had finished something."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perfaudit import __version__
from perfaudit.measure.journal import SETTINGS, Journal, Json, Kept, file_digest
from perfaudit.measure.journal import begin as open_journal
from perfaudit.measure.ledger import from_json, to_json
from perfaudit.measurements import Comparison, Trial, Winner
from perfaudit.report import comparison_json
from perfaudit.target.names import Target
from perfaudit.tune.profile import Profile


class Record(Kept):
    """What earlier runs found out, and where this one notes it: in a journal on disk, or nowhere."""

    def __init__(self, journal: Journal | None = None) -> None:
        super().__init__(journal or Journal.none(), to_json, from_json)
        self._answers: dict[str, deque[Json]] = {}

    def earlier_answer(self, key: str) -> Json | None:
        """The reply that an earlier run got to this question; None where it got none.

        Replies to one key are handed out in the order in which they were given: a search asks in the same order again.
        """
        if key not in self._answers:
            self._answers[key] = deque(line["data"] for line in self.journal.take_earlier_records("answer", key))
        return self._answers[key].popleft() if self._answers[key] else None

    def note(self, kind: str, key: str, data: Json) -> None:
        """Keep something, such as the answer to a question."""
        self.journal.append(kind, key=key, data=data)

    def notes(self, kind: str, key: str) -> list[Json]:
        """What earlier runs have kept under this key, the oldest first."""
        return [line["data"] for line in self.journal.take_earlier_records(kind, key)]

    def keep_comparisons(self, found: Sequence[Comparison]) -> None:
        """Keep how comparisons stand; a later word on the same two settings counts."""
        for each in found:
            self.journal.append("comparison", **comparison_json(each))

    def keep_results(self, trials: Sequence[Trial], comparisons: Sequence[Comparison], winner: Winner) -> None:
        """Keep what a knob's search has found, in the keys of the report."""
        for trial in trials:
            self.journal.append("trial", **dataclasses.asdict(trial))
        self.keep_comparisons(comparisons)
        self.journal.append("winner", **{**dataclasses.asdict(winner), "fix": None, "location": None})

    def end(self, status: str, report: Json | None = None) -> None:
        """Keep how the run ended: "finished", "interrupted", "out of time" or "failed"."""
        self.journal.append("end", status=status, report=report)


Begin = Callable[[Json], Record]  # from the start line of a run to where it is kept


def begin(folder: Path, resume: bool) -> Begin:
    """A function that opens the record of a run, see `measure.journal.begin`."""
    return lambda start: Record(open_journal(folder, resume)(start))


def start_line(
    target: Target,
    profile: Profile,
    knobs: list[str],
    budget: float,
    memory: int,
    allow: frozenset[str] | None = None,
    command: str = "tune",
    on: str = "",
) -> Json:
    """What a run measures, with what, for its journal: enough to tell whether another would measure the same."""
    machine = profile.environment
    versions = {"torch": machine.torch, "device": machine.device, "cores": machine.cores, "threads": machine.threads}
    files = {*profile.survey.facts.project_files, target.file, *files_of_settings(target)}
    allowed = sorted(allow) if allow is not None else None  # None: no climb
    script: Json = {"script": target.to_json()} if target.is_script else {}
    elsewhere: Json = {"on": on} if on else {}
    return {
        "command": command,
        "target": str(target),
        "knobs": list(knobs),
        "options": {"budget": budget, "memory": memory, "names": target.names, "allow": allowed, **script, **elsewhere},
        "files": {path: file_digest(path) for path in sorted(files)},
        "environment": {**versions, "perfaudit": __version__},
    }


def files_of_settings(target: Target) -> list[str]:
    """Files of settings that a script is given, such as config.yaml and --config=config.yaml."""
    named = [argument.partition("=")[2] or argument for argument in target.arguments or ()]
    return [name for name in named if name.endswith(SETTINGS) and Path(name).is_file()]


def changed_files(digests: Mapping[str, str]) -> list[str]:
    """Files of the project that are no longer what they were when the run began. digests: of its start line, by path."""
    return [path for path, digest in digests.items() if file_digest(path) != digest]
