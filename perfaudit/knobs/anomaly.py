"""What autograd's anomaly detection costs where it was left on."""

from __future__ import annotations

from perfaudit.knobs import Bench, Facts, Knob, Setup
from perfaudit.knobs._code import Code, Patch, places_of
from perfaudit.measurements import Settings
from perfaudit.target.flags import flags_set


class Anomaly(Knob):
    """The user's setting is applied too: where they switch it on inside their own loop, ours runs without it."""

    name = "anomaly"
    title = "autograd's anomaly detection on and off"
    way = "setting"
    rules = ("PA501",)
    base_is_applied = True

    def not_applicable(self, facts: Facts) -> str:
        is_on = facts["flags"]["anomaly"] or places_of(facts, "PA501")
        return "" if is_on else "autograd's anomaly detection is off"

    def current(self, facts: Facts) -> Settings:
        """On, wherever that was done. `holds` asks the process itself."""
        return {"anomaly": bool(facts["flags"]["anomaly"] or places_of(facts, "PA501"))}

    def candidates(self, bench: Bench) -> list[Settings]:
        return [{"anomaly": False}]

    def setup(self, settings: Settings) -> Setup:
        return Setup(applied=lambda training: flags_set({"anomaly": bool(settings["anomaly"])}))

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        """The findings' fix, where what is measured runs the line that it changes: on import, or in the step factory."""
        return code.fixes(self.rules) if code.facts["flags"]["anomaly"] or _stands_in_step(code) else None

    def holds(self, facts: Facts, settings: Settings) -> bool:
        return bool(facts["flags"]["anomaly"] == settings["anomaly"])

    def words(self, settings: Settings, facts: Facts) -> str:
        places = places_of(facts, "PA501")
        where = f" ({', '.join(places)})" if places else ""
        return f"switch anomaly detection {'on' if settings['anomaly'] else 'off'}{where}; a NaN then shows in the loss"


def _stands_in_step(code: Code) -> bool:
    found = code.factory("step")
    if found is None:
        return False
    source, function = found
    lines = range(function.lineno, (function.end_lineno or function.lineno) + 1)
    places = [f.location for f in code.findings if f.rule == "PA501" and f.location is not None]
    return any(place.path == source.path and place.line in lines for place in places)


KNOB = Anomaly()
