"""Ways to keep an average: all keep the same one, and each is told against a step without any."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from surveys import found, survey_of

from perfaudit.knobs import Bench, Probe, Survey, Told, ema
from perfaudit.measure.facts import CallSite, Script
from perfaudit.measurements import Comparison, Settings, Trial

KNOB = ema.KNOB


def survey(has_ema: bool = False, *rules: str, device: str = "cpu") -> Survey:
    return survey_of(map(found, rules), has_ema=has_ema, device={"type": device})


def bench(given: Survey) -> Bench:
    return Bench(given, 2, 1 << 30, lambda settings: Probe(settings, 1, 1), lambda *a, **k: {})


def test_every_way_of_averaging_keeps_the_same_average() -> None:
    """After three updates all ways agree with the formula; only the order of roundings differs."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    expected = [p.detach().clone() for p in model.parameters()]
    kept = {way: ema.average_of(way, model) for way in ema.WAYS}
    for _ in range(3):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        expected = [
            ema.DECAY * e + (1 - ema.DECAY) * p.detach() for e, p in zip(expected, model.parameters(), strict=True)
        ]
        for average in kept.values():
            average.update()
    for way, average in kept.items():
        if way.startswith("averaged_model"):
            continue  # its first update copies, as its documentation says
        for ours, theirs in zip(average.tensors(), expected, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_the_users_own_average_is_the_setting_to_beat() -> None:
    assert KNOB.current(survey(True)) == {"average": "yours", "when": "after step"}
    tried = KNOB.candidates(bench(survey(True, "PA404")))
    assert ema.NONE in tried
    assert {"average": "yours, patched", "when": "after step"} in tried
    assert {"average": "yours, patched", "when": "after step"} not in KNOB.candidates(bench(survey(True)))


def test_who_keeps_no_average_is_told_the_cheapest_way_and_no_saving() -> None:
    assert KNOB.current(survey()) == ema.NONE
    assert ema.NONE not in KNOB.candidates(bench(survey()))
    way: Settings = {"average": "foreach_lerp", "when": "after step"}
    compared = [Comparison("ema", ema.NONE, way, 1.1, 1.0, 1.2, "slower")]
    told = Told(survey(), [], compared, {}, None)
    assert KNOB.kept_words(told).startswith("your target keeps no average (no build_ema); the cheapest way")
    assert KNOB.kept_words(Told(survey(True), [], compared, {}, None)) == ""
    assert KNOB.kept_words(Told(survey(), [], [], {}, None)) == ""


ALIKE = "no difference could be seen between lerp_per_parameter, foreach_lerp; simplest: foreach_lerp, torch._foreach_lerp_("


@pytest.mark.parametrize(
    ("low", "high", "given_up", "said"),
    [
        (1.11, 1.3, False, "the cheapest way to keep one here: average.lerp_("),
        (1.09, 1.3, False, ALIKE),
        (0.0, math.inf, False, ALIKE),  # too few rounds
        (0.0, math.inf, True, "the cheapest way to keep one here: average.lerp_("),
    ],
)
def test_only_a_way_that_is_told_apart_is_called_the_cheapest(
    low: float, high: float, given_up: bool, said: str
) -> None:
    lerp: Settings = {"average": "lerp_per_parameter", "when": "after step"}
    compared = [
        Comparison("ema", ema.NONE, ema.SIMPLEST, 1.2, low, high, "slower", of="average", given_up=given_up),
        Comparison("ema", ema.NONE, lerp, 1.05, 1.0, 1.1, "slower", of="average"),
        Comparison("ema", ema.NONE, lerp, 1.3, 0.9, 1.9, "undecided"),  # the whole step, which drowns the update
    ]
    words = KNOB.kept_words(Told(survey(), [], compared, {}, None))
    assert words.startswith(f"your target keeps no average (no build_ema); {said}")


def test_of_ways_that_are_alike_one_of_them_is_recommended() -> None:
    ways: list[Settings] = [
        {"average": way, "when": "before step"} for way in ("mul_add_per_parameter", "foreach_lerp")
    ]
    compared = [
        Comparison("ema", ema.NONE, way, 1.1 + n / 100, 1.0, 1.2, "slower", of="average") for n, way in enumerate(ways)
    ]
    compared.append(Comparison("ema", ema.NONE, ema.SIMPLEST, 1.5, 1.4, 1.6, "slower", of="average"))
    assert "simplest: mul_add_per_parameter before step, average.mul_(" in KNOB.kept_words(
        Told(survey(), [], compared, {}, None)
    )


@pytest.mark.parametrize("when", ["after step", "before step"])
def test_before_the_step_is_another_algorithm(when: str) -> None:
    changes = KNOB.changes({"average": "foreach_lerp", "when": when})
    assert changes == (("rounding",) if when == "after step" else ("algorithm",))


def test_on_a_device_the_hosts_own_time_is_told() -> None:
    trials = [Trial("ema", {"average": way, "when": "after step"}, "ok") for way in ("foreach_lerp", "none")]
    times = {"foreach_lerp": 0.000042}
    told = Told(survey(True), trials, [], {}, None, lambda settings, phase: times.get(str(settings["average"])))
    assert KNOB.remarks(told) == ["the host's own time for the update: foreach_lerp after step: 42 µs"]
    assert KNOB.remarks(Told(survey(True), trials, [], {}, None)) == []


def test_a_side_stream_is_tried_on_cuda_and_judged_by_the_whole_step() -> None:
    on_cuda = survey(True, device="cuda")
    side: Settings = {"average": ema.SIDE_STREAM, "when": "after step"}
    assert side in KNOB.candidates(bench(on_cuda))
    assert side not in KNOB.candidates(bench(survey(True)))
    assert (KNOB.phases_for(side), KNOB.phases_for({"average": "foreach_lerp"})) == ((), ("average",))


def test_without_a_patch_the_line_that_built_the_average_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    survey = survey_of(ema_site=CallSite(str(tmp_path / "train.py"), 12, 12, 4, 20))
    assert KNOB.handed_over({}, survey) == "change it by hand in the class of your average (train.py:12)"
    assert KNOB.handed_over({}, survey_of()) == ""
    assert KNOB.handed_over({}, survey_of(ema_site=CallSite("/nowhere/lib.py", 1, 1, 0, 1))) == ""


def test_of_a_script_it_patches_an_average_that_is_updated_by_hand() -> None:
    script = survey_of([found("PA404")], script=Script())
    assert KNOB.why_not(script) == ""
    assert (KNOB.current(script)["average"], KNOB.way_on(script, {}), KNOB.share(script)) == ("yours", "code", 1.0)
    assert [each["average"] for each in KNOB.candidates(bench(script))] == ["yours, patched"]
    assert "none was found" in KNOB.why_not(survey_of(script=Script()))
