"""What journals hold, as rows and tables: runs, and the trials and comparisons of one. Never runs or imports user code."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from perfaudit.errors import UserError
from perfaudit.measure.journal import Json, Run
from perfaudit.measurements import settings_text

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "perfaudit.history/1"

# Columns of the tables, with the type that keeps what is missing missing; memory is bytes, medians are in the metric's unit.
RUN_COLUMNS = {
    "id": "object",
    "began": "object",
    "command": "object",
    "target": "object",
    "knobs": "object",
    "trials": "Int64",
    "status": "object",
    "seconds": "Float64",
    "best_saving": "object",
}
TRIAL_COLUMNS = {
    "knob": "object",
    "settings": "object",
    "status": "object",
    "metric": "object",
    "median": "Float64",
    "low": "Float64",
    "high": "Float64",
    "n": "Int64",
    "peak_memory_bytes": "Int64",
    "reason": "object",
}
COMPARISON_COLUMNS = {
    "knob": "object",
    "baseline": "object",
    "candidate": "object",
    "ratio": "Float64",
    "low": "Float64",
    "high": "Float64",
    "verdict": "object",
    "n": "Int64",
    "clock": "object",
    "basis": "object",
}


def run_row(run: Run) -> Json:
    """One run on a line; began is local time, trials counts those that gave a number, seconds is the time spent."""
    return {
        "id": run.id,
        "began": _local(run.start.get("at")),
        "command": str(run.start.get("command") or ""),
        "target": str(run.start.get("target") or ""),
        "knobs": [str(name) for name in _list(run.start.get("knobs"))],
        "trials": sum(trial["status"] == "ok" for trial in trials(run)),
        "status": run.status,
        "seconds": None if run.problem else _seconds(run),
        "best_saving": _best_saving(run),
    }


def trials(run: Run) -> list[Json]:
    """The trials of a run, one a configuration: a session that was resumed wrote some again, and the last one counts."""
    rows: list[Json] = [
        {
            "knob": str(trial.get("knob", "")),
            "settings": _dict(trial.get("settings")),
            "status": str(trial.get("status", "")),
            "metric": str(trial.get("metric", "")),
            "median": _number(trial.get("median")),
            "low": _number(trial.get("low")),
            "high": _number(trial.get("high")),
            "n": _count(trial.get("n")),
            "peak_memory_bytes": _count(trial.get("peak_memory_bytes")),
            "reason": str(trial.get("reason") or ""),
        }
        for trial in _records_of_kind(run, "trial", "trials")
    ]
    return list({(row["knob"], settings_text(row["settings"])): row for row in rows}.values())


def comparisons(run: Run) -> list[Json]:
    """The comparisons of a run, one a pair; ratio is time of the candidate over that of the baseline.

    n: rounds of a comparison in fresh processes, quads of one whose basis is "screened".
    """
    rows: list[Json] = [
        {
            "knob": str(comparison.get("knob", "")),
            "baseline": _dict(comparison.get("baseline")),
            "candidate": _dict(comparison.get("candidate")),
            "ratio": _number(comparison.get("ratio")),
            "low": _number(comparison.get("low")) if _number(comparison.get("high")) is not None else None,
            "high": _number(comparison.get("high")),
            "verdict": str(comparison.get("verdict", "")),
            "n": _count(comparison.get("n")),
            "clock": str(comparison.get("clock", "")),
            "basis": str(comparison.get("basis") or "measured"),
        }
        for comparison in _records_of_kind(run, "comparison", "comparisons")
    ]
    return list(
        {(row["knob"], settings_text(row["baseline"]), settings_text(row["candidate"])): row for row in rows}.values()
    )


def pairs(run: Run) -> dict[str, int]:
    """How many pairs of processes a gate has kept, by target."""
    kept = [str(record.get("key")) for record in run.records if record["kind"] == "generation"]
    return dict(Counter(kept)) if run.start.get("command") == "gate" else {}


def winners(run: Run) -> list[Json]:
    """What the run recommends, the last word for each knob: knob, words, keeps_current, and saving (low, high) or None."""
    found = {}
    for winner in _records_of_kind(run, "winner", "winners"):
        saving = _dict(winner.get("saving"))
        low, high = _number(saving.get("low")), _number(saving.get("high"))
        found[str(winner.get("knob", ""))] = {
            "knob": str(winner.get("knob", "")),
            "words": str(winner.get("words") or ""),
            "keeps_current": bool(winner.get("keeps_current")),
            "saving": None if low is None or high is None else {"low": low, "high": high},
        }
    return list(found.values())


def as_json(run: Run) -> Json:
    """The report that the run left, or what its journal holds where it left none; without infinite numbers, as JSON wants it."""
    kept = run.report
    if kept is None:
        lists = {"trials": trials(run), "comparisons": comparisons(run), "winners": winners(run)}
        kept = {**run.start, "run": run.id, "status": run.status, "seconds": _seconds(run), **lists}
    found: Json = _finite(kept)
    return found


def runs_table(runs: list[Run]) -> pd.DataFrame:
    """RUN_COLUMNS, a row a run. Raises UserError where pandas is lacking, as all tables do."""
    rows = [run_row(run) for run in runs]
    return _table([{**row, "knobs": ", ".join(row["knobs"])} for row in rows], RUN_COLUMNS)


def trials_table(run: Run) -> pd.DataFrame:
    """TRIAL_COLUMNS, a row a trial; settings are words."""
    return _table([{**row, "settings": settings_text(row["settings"])} for row in trials(run)], TRIAL_COLUMNS)


def comparisons_table(run: Run) -> pd.DataFrame:
    """COMPARISON_COLUMNS, a row a comparison; settings are words."""
    rows = [
        {**row, "baseline": settings_text(row["baseline"]), "candidate": settings_text(row["candidate"])}
        for row in comparisons(run)
    ]
    return _table(rows, COMPARISON_COLUMNS)


def _table(rows: list[Json], columns: dict[str, str]) -> pd.DataFrame:
    try:
        import pandas as pd
    except ImportError as error:
        raise UserError(
            "`perfaudit history` makes its tables with pandas, which this Python lacks: "
            "pip install 'perfaudit[torch]', or use --format json"
        ) from error
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=kind) for name, kind in columns.items()})


def _records_of_kind(run: Run, kind: str, of_report: str) -> list[Json]:
    """Records of a kind, and behind them what the report says: the last word counts."""
    records = [record for record in run.records if record["kind"] == kind]
    return records + [item for item in _list((run.report or {}).get(of_report)) if isinstance(item, dict)]


def _seconds(run: Run) -> float:
    """Time of all sessions, each from its first line to its last: the pauses between them do not count."""
    spent = 0.0
    for session in run.sessions():
        times = [at for record in session if (at := _number(record.get("at"))) is not None]
        spent += max(times) - min(times) if times else 0.0
    return round(spent, 3)


def _best_saving(run: Run) -> str:
    """ "dataloader 12 to 15 %": the largest lower bound that was measured, of a winner or, in a scan, of a finding.

    "ladder 22 to 43 %" of a climb that handed over a patch: all of it together. "(screened)" behind it where no race of fresh
    processes has decided.
    """
    ladder = _dict((run.report or {}).get("ladder"))
    low, high = _number(ladder.get("low")), _number(ladder.get("high"))
    if _list(ladder.get("files")) and low is not None and high is not None:
        basis = " (screened)" if ladder.get("basis") == "screened" else ""
        return f"ladder {100 * (1 - high):.0f} to {100 * (1 - low):.0f} %{basis}"
    ends = [(w["saving"], w["knob"]) for w in winners(run) if w["saving"] and not w["keeps_current"]]
    for finding in _list((run.report or {}).get("findings")):
        saving = _dict(_dict(finding).get("saving"))
        is_timed = saving.get("basis") in ("measured", "screened")
        if is_timed and None not in (_number(saving.get("low")), _number(saving.get("high"))):
            ends.append((saving, str(finding.get("rule", ""))))
    shown = [(saving["low"], saving["high"], name, saving.get("basis")) for saving, name in ends if saving["low"] > 0]
    if not shown:
        return ""
    low, high, name, basis = max(shown, key=lambda each: each[:3])
    return f"{name} {100 * low:.0f} to {100 * high:.0f} %{' (screened)' if basis == 'screened' else ''}"


def _local(at: object) -> str:
    """Seconds since 1970 as local time, "" for what is none."""
    number = _number(at)
    try:
        return "" if number is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(number))
    except (OverflowError, ValueError, OSError):
        return ""


def _number(value: object) -> float | None:
    """A finite number, else None: the file may hold anything."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond every float
        return None


def _count(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and abs(number) < 2**63 else None


def _list(value: object) -> list[Json]:
    return value if isinstance(value, list) else []


def _dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _finite(value: Any) -> Any:  # Any: JSON
    """The same with None for infinite numbers and those that are none."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
