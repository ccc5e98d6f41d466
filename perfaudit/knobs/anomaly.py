"""What autograd's anomaly detection costs where it was left on."""

from __future__ import annotations

from perfaudit.knobs import Bench, Knob, Setup, Survey
from perfaudit.knobs._code import Code, Patch
from perfaudit.measurements import Settings
from perfaudit.target.flags import flags_set


class Anomaly(Knob):
    """The user's setting is applied too: where they switch it on inside their own loop, ours runs without it."""

    name = "anomaly"
    title = "autograd's anomaly detection on and off"
    tries = "Try training without autograd's anomaly detection."
    usual_gain = 0.5
    way = "setting"
    rules = ("PA501",)
    base_is_applied = True

    def not_applicable(self, survey: Survey) -> str:
        is_on = survey.facts.flags["anomaly"] or survey.places("PA501")
        return "" if is_on else "autograd's anomaly detection is off"

    def current(self, survey: Survey) -> Settings:
        """On, wherever that was done. `holds` asks the process itself."""
        return {"anomaly": bool(survey.facts.flags["anomaly"] or survey.places("PA501"))}

    def candidates(self, bench: Bench) -> list[Settings]:
        return [{"anomaly": False}]

    def setup(self, settings: Settings) -> Setup:
        return Setup(applied=lambda training: flags_set({"anomaly": bool(settings["anomaly"])}))

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        """The findings' fix, where what is measured runs the line that it changes: on import, or in the step factory."""
        return code.fixes(self.rules) if code.survey.facts.flags["anomaly"] or _stands_in_step(code) else None

    def holds(self, survey: Survey, settings: Settings) -> bool:
        return bool(survey.facts.flags["anomaly"] == settings["anomaly"])

    def words(self, settings: Settings, survey: Survey) -> str:
        places = survey.places("PA501")
        where = f" ({', '.join(places)})" if places else ""
        return f"switch anomaly detection {'on' if settings['anomaly'] else 'off'}{where}; a NaN then shows in the loss"


def _stands_in_step(code: Code) -> bool:
    found = code.factory("step")
    if found is None:
        return False
    source, function = found
    lines = range(function.lineno, (function.end_lineno or function.lineno) + 1)
    places = [f.location for f in code.survey.findings if f.rule == "PA501" and f.location is not None]
    return any(place.path == source.path and place.line in lines for place in places)


KNOB = Anomaly()
