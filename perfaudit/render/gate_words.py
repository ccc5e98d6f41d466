"""Words on a gate that every format shares: its verdict in one sentence, and what each layer says."""

from __future__ import annotations

from perfaudit.render.counter_words import both_ways, counter_name, difference_sentence, in_order, is_blamed
from perfaudit.render.time_words import at_most, slower
from perfaudit.render.words import count
from perfaudit.verdicts import CounterChange, CountersVerdict, FindingsVerdict, Gate, GateVerdict, TimeVerdict

# What the first sentence tells of, by the verdict of the whole: a regression is not buried below what went well.
_TOLD: dict[GateVerdict, tuple[GateVerdict, ...]] = {
    "regressed": ("regressed", "failed", "inconclusive"),
    "failed": ("failed", "inconclusive"),
    "inconclusive": ("inconclusive", "improved", "accepted", "pass", "not_judged"),
    "improved": ("improved", "accepted", "pass", "not_judged"),
    "pass": ("accepted", "pass", "not_judged"),
    "accepted": ("accepted", "pass", "not_judged"),
    "not_judged": ("not_judged", "inconclusive"),
}


def headline(gate: Gate) -> str:
    """The verdict in one sentence, with what decided it."""
    if gate.kind == "self_test":
        return f"gate: self-test on identical code: {_self_tested(gate)}"
    told = _TOLD[gate.verdict]
    said = [(verdict, text) for verdict, text in _phrases(gate) if verdict in told]
    said.sort(key=lambda item: told.index(item[0]))
    texts = list(dict.fromkeys(text for _, text in said))
    return f"gate: {_in_words(gate)} against {_reference(gate)}" + (f": {', '.join(texts)}" if texts else "")


def _in_words(gate: Gate) -> str:
    if gate.verdict == "inconclusive":
        return f"inconclusive, which {'fails' if gate.fails else 'does not fail'} the build,"
    return {"failed": "could not measure everything", "not_judged": "nothing was judged"}.get(
        gate.verdict, word(gate.verdict)
    )


def _reference(gate: Gate) -> str:
    return f"what is stored in {gate.against}" if gate.kind == "baseline" else gate.against


def _self_tested(gate: Gate) -> str:
    said = [text for verdict, text in _phrases(gate) if verdict == "failed"]
    if not gate.self_tests:
        aside = sum(len(counted.set_aside) for counted in gate.counters)
        return ", ".join([*said, f"{count(aside, 'counter')} not reproducible"])
    runs = sum(test.runs for test in gate.self_tests.values())
    alarms = sum(test.false_alarms for test in gate.self_tests.values())
    undecided = sum(test.undecided for test in gate.self_tests.values())
    return ", ".join([f"{count(alarms, 'false alarm')} in {count(runs, 'gate')}, {undecided} could not tell", *said])


def word(verdict: GateVerdict) -> str:
    """The verdict as it is written: "not judged"."""
    return verdict.replace("_", " ")


def _phrases(gate: Gate) -> list[tuple[GateVerdict, str]]:
    found: list[tuple[GateVerdict, str]] = []
    if gate.findings is not None:
        found.append((gate.findings.verdict, findings_phrase(gate.findings)))
    several = len(gate.counters) > 1
    for counted in gate.counters:
        of = f" in {counted.target}" if several and counted.verdict in ("regressed", "improved", "accepted") else ""
        found.append((counted.verdict, counters_phrase(counted) + of))
    return found + [(timed.verdict, time_phrase(timed)) for timed in gate.times]


def findings_phrase(found: FindingsVerdict) -> str:
    """Layer 1 in a few words."""
    if found.verdict == "not_judged":
        return "findings not judged"
    if found.verdict in ("failed", "inconclusive"):
        return "findings could not be compared"
    if found.verdict == "accepted":
        return f"{count(found.accepted, 'new finding')} accepted"
    return count(found.new, "new finding") if found.new else "no new finding"


def findings_counts(found: FindingsVerdict) -> str:
    """How many findings there are on which side: "1 new, 2 new but accepted, 12 known, 0 gone"; "" where none were compared."""
    if found.verdict in ("not_judged", "failed"):
        return ""
    accepted = f"{found.accepted} new but accepted, " if found.accepted else ""
    return f"{found.new} new, {accepted}{found.known} known, {found.gone} gone"


def counters_phrase(counted: CountersVerdict) -> str:
    """Layer 2 of one target in a few words: the first counter that decided, and how many others did."""
    if counted.verdict == "not_judged":
        return f"counters of {counted.target} not judged"
    if counted.verdict in ("failed", "inconclusive"):
        return f"counters of {counted.target} could not be {'measured' if counted.verdict == 'failed' else 'told'}"
    if counted.verdict == "pass":
        said = "no counter grew" if not any(change.grew for change in counted.changes) else "counters grew as allowed"
        hidden = [f"{counter_name(c.counter)}: {both_ways(c)}" for c in in_order(counted.changes) if both_ways(c)]
        return f"{said} ({hidden[0]})" if hidden else said
    changes = [change for change in in_order(counted.changes) if _is_decisive(counted, change)]
    if not changes:
        return f"counters of {counted.target} {word(counted.verdict)}"
    others = len(changes) - 1
    verb = "shrank" if counted.verdict == "improved" else "grew"
    more = f" and {count(others, 'more counter')} {verb}" if others else ""
    return difference_sentence(changes[0]) + more + (" (accepted)" if counted.verdict == "accepted" else "")


def _is_decisive(counted: CountersVerdict, change: CounterChange) -> bool:
    if counted.verdict == "improved":
        return not change.grew
    if counted.verdict == "accepted":
        return bool(change.accepted)
    return is_blamed(change)


def time_phrase(timed: TimeVerdict) -> str:
    """Layer 3 of one target in a few words."""
    if timed.verdict == "failed":
        return f"time of {timed.target} could not be measured"
    if timed.verdict == "inconclusive":
        return f"could not tell whether {timed.target} is slower"
    if timed.verdict == "not_judged" or timed.ratio is None:
        return f"time of {timed.target} {word(timed.verdict)}"
    if timed.verdict == "pass":
        return f"{timed.target} is {at_most(timed)}"
    return f"{timed.target} is {slower(timed.ratio)}" + (" (accepted)" if timed.verdict == "accepted" else "")
