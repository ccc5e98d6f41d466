"""A gate in SARIF: counters that grew and slower steps as results of rules of their own, the rest as notifications."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from perfaudit.render.complaints import COUNTER_GREW, STEP_SLOWER, Complaint, complaints
from perfaudit.render.gate_words import headline
from perfaudit.report import Json
from perfaudit.verdicts import Gate

_TEXTS = {
    COUNTER_GREW: (
        "counter-grew",
        "A training step does more than before.",
        "One training step dispatches more operators, waits for the device more often, or moves or holds more bytes than in "
        "the version it was compared with. These are counts of one observed step, not times: they are the same on every "
        "run, or they are set aside. A wanted change is accepted with `perfaudit gate update --accept`.",
    ),
    STEP_SLOWER: (
        "step-slower",
        "A training step takes longer than before.",
        "Both versions were measured in turn on one machine, and the whole interval of the ratio of "
        "their times per step lies above the slowdown that is tolerated. A wanted change is accepted with `perfaudit gate "
        "update --accept`.",
    ),
}
_LEVEL = {"error": "error", "warning": "warning", "notice": "note"}


def rules() -> dict[str, Json]:
    """Descriptors of what a gate can complain of, by id."""
    return {id_: _rule(id_, *texts) for id_, texts in _TEXTS.items()}


def _rule(id_: str, name: str, title: str, why: str) -> Json:
    return {
        "id": id_,
        "name": name,
        "shortDescription": {"text": title},
        "fullDescription": {"text": why},
        "help": {"text": why, "markdown": f"{why}\n"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["performance", "gate"], "problem.severity": "error"},
    }


def results(gate: Gate, shown: Gate, index: dict[str, int], artifact: Callable[[str], Json]) -> list[Json]:
    """The results of counters and times; `shown` is the gate with signs in its words, while paths stay exact."""
    pairs = zip(complaints(gate), complaints(shown), strict=True)
    return [_result(exact, seen, index, artifact) for exact, seen in pairs if exact.check in _TEXTS]


def _result(exact: Complaint, seen: Complaint, index: dict[str, int], artifact: Callable[[str], Json]) -> Json:
    key = hashlib.sha256("\0".join([exact.check, exact.target, exact.counter]).encode(errors="surrogatepass"))
    places: list[Json] = [
        {
            "physicalLocation": {"artifactLocation": artifact(place.path), "region": {"startLine": place.line}},
            "message": {"text": f"{words.what}, {place.count:,} more" if words.what else f"{place.count:,} more"},
        }
        for place, words in zip(exact.places, seen.places, strict=True)
    ] or [{"physicalLocation": {"artifactLocation": artifact(exact.place.path), "region": {"startLine": 1}}}]
    result: Json = {
        "ruleId": exact.check,
        "ruleIndex": index[exact.check],
        "level": "error",
        "message": {"text": seen.message},
        "locations": places[:1],
        "partialFingerprints": {"perfaudit/v1": key.hexdigest()[:20]},
    }
    return {**result, "relatedLocations": places[1:]} if places[1:] else result


def notifications(shown: Gate) -> list[Json]:
    """The verdict, and everything that is no result: what could not be told, measured or judged, and what was accepted."""
    told = [(_LEVEL[c.level], c.message) for c in complaints(shown) if c.check not in _TEXTS]
    verdict = "error" if shown.verdict in ("failed", "not_judged") else "note"
    return [{"level": level, "message": {"text": text}} for level, text in [(verdict, headline(shown)), *told]]
