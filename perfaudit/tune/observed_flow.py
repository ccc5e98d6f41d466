"""What a run says of findings on the whole model: parameters without a gradient, memory layout, precision."""

from __future__ import annotations

from collections.abc import Callable

from perfaudit.findings import Finding
from perfaudit.tune.observed_biases import Json, append_note

MOSTLY = 0.5  # of the elements that the layers put out
NAMES_SHOWN = 3
_LOW = ("bfloat16", "float16")


def judge_by_flow(finding: Finding, seen: Json) -> tuple[Finding, bool]:
    """The finding with what was observed as its note, and whether that contradicts it; as it is where nothing was."""
    judge = _JUDGES.get(finding.rule)
    said = judge(seen) if judge is not None else None
    if said is None:
        return finding, False
    words, contradicts = said
    if contradicts:
        return finding.with_(fix=None, note=f"observed: {words}"), True
    return append_note(finding, f"observed: {words}"), False


def _unused_parameters(seen: Json) -> tuple[str, bool] | None:
    if any(problem.startswith("unused_parameters") for problem in seen.get("problems", ())):
        return None
    found = seen.get("unused_parameters")
    if found is None:
        return None
    if not found:
        return "every parameter got a gradient in the steps that were watched", False
    names = ", ".join(f"`{entry['name']}`" for entry in found[:NAMES_SHOWN])
    more = f" and {len(found) - NAMES_SHOWN} more" if len(found) > NAMES_SHOWN else ""
    return f"{names}{more} got no gradient, so the option is needed", True


def _layout(seen: Json) -> tuple[str, bool] | None:
    layouts = seen.get("layouts")
    if not layouts:
        return None
    last = layouts.get("channels_last", 0.0)
    if last > MOSTLY:
        return f"{100 * last:.0f} % of what the layers put out is channels-last already", True
    return f"{100 * layouts.get('contiguous', 0.0):.0f} % of what the layers put out is in the default layout", False


def _precision(seen: Json) -> tuple[str, bool] | None:
    dtypes = seen.get("dtypes")
    if not dtypes:
        return None
    low = sum(dtypes.get(name, 0.0) for name in _LOW)
    if low > MOSTLY:
        return f"{100 * low:.0f} % of what the layers put out has 16 bits already", True
    return f"{100 * dtypes.get('float32', 0.0):.0f} % of what the layers put out is float32", False


_JUDGES: dict[str, Callable[[Json], tuple[str, bool] | None]] = {
    "PA702": _unused_parameters,
    "PA211": _layout,
    "PA304": _precision,
}
