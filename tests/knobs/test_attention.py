"""Attention as patched source: when it is tried, what the patch writes, what is said where there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from surveys import found, survey_of

from perfaudit.errors import TargetError
from perfaudit.knobs import Bench, Probe, Survey, Told
from perfaudit.knobs._code import Code
from perfaudit.knobs.attention import KNOB
from perfaudit.static.scan import scan

HEAD = """
import math
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.attend = nn.MultiheadAttention(width, 4)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
"""
WRITTEN = """\
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1)
        return weights @ v
"""
FUSED = "        return F.scaled_dot_product_attention(q, k, v)\n"


def survey(
    patched: tuple[str, ...] = (),
    by_hand: tuple[tuple[str, str], ...] = (),
    files: tuple[str, ...] = ("model.py",),
    **more: Any,
) -> Survey:
    """By rules whose findings have a patch, and places by hand."""
    findings = [*(found(rule) for rule in patched), *(found(rule, place, by_hand=True) for rule, place in by_hand)]
    return survey_of(findings, project_files=files, **more)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"patched": ("PA203",)}, ""),
        ({"patched": ("PA208", "PA208"), "by_hand": (("PA203", "model.py:90"),)}, ""),
        (
            {},
            "no hand-written attention, and no MultiheadAttention whose weights are dropped, was found in model.py",
        ),
        (
            {"files": ("a.py", "b.py", "c.py", "d.py", "e.py")},
            "no hand-written attention, and no MultiheadAttention whose weights are dropped, was found in "
            "a.py, b.py, c.py and 2 more",
        ),
        (
            {"by_hand": (("PA203", "model.py:90"), ("PA203", "model.py:120"))},
            "PA203 at model.py:90, model.py:120 must be changed by hand, so there is nothing to measure it against",
        ),
    ],
)
def test_it_matters_where_a_finding_has_a_patch(given: dict[str, Any], reason: str) -> None:
    assert KNOB.not_applicable(survey(**given)) == reason


def test_a_finding_without_a_patch_is_named_below_the_table() -> None:
    told = Told(survey(("PA203",), (("PA208", "m.py:7"),)), (), (), {}, None)
    assert KNOB.remarks(told) == ["PA208 at m.py:7 must be changed by hand and was measured as it is"]


def test_the_patch_is_that_of_the_finding(project: Callable[..., Path]) -> None:
    project(**{"model.py": HEAD + WRITTEN})
    code = Code("model.py", survey_of(scan(["model.py"]).findings))
    [fused] = KNOB.candidates(Bench(survey(), 2, 0, lambda settings: Probe(settings), lambda *_: {}))
    patch = KNOB.patch(code, fused)
    assert patch is not None
    assert patch.changes == ("rounding",)
    assert patch.after == (HEAD + FUSED).lstrip("\n")
    assert KNOB.patch(code, KNOB.current(survey())) is None


def test_what_exists_only_as_source_is_never_measured_without_it() -> None:
    """A setting whose patch could not be made would otherwise be timed as the user's own code."""
    with KNOB.setup({"attention": "as written"}).applied(None):
        pass
    with pytest.raises(TargetError, match="could not be written"), KNOB.setup({"attention": "fused"}).applied(None):
        pass


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (("PA203",), "compute attention with F.scaled_dot_product_attention"),
        (("PA208",), "call MultiheadAttention with need_weights=False"),
        (
            ("PA203", "PA208"),
            "compute attention with F.scaled_dot_product_attention and call MultiheadAttention with need_weights=False",
        ),
    ],
)
def test_the_words_name_what_the_patch_does(rules: tuple[str, ...], words: str) -> None:
    assert KNOB.words({"attention": "fused"}, survey(rules)) == words


def test_it_can_gain_what_forward_and_backward_take() -> None:
    assert KNOB.share(survey(profile={"loading": 5.0, "forward": 2.0, "backward": 3.0})) == 0.5
