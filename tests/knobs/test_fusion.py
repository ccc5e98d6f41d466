"""Written-out activations: the library's function and the compiled one as patches, and when each is tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from surveys import found, survey_of

from perfaudit.knobs import Bench, Probe, Survey
from perfaudit.knobs._code import Code
from perfaudit.knobs.fusion import KNOB
from perfaudit.static.scan import scan

LIBRARY, COMPILED = {"pointwise": "library"}, {"pointwise": "compiled"}
FORMULA = "0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))"


def survey(
    by_hand: bool = False,
    rules: tuple[str, ...] = ("PA204",),
    device: str = "cpu",
    cxx: str | None = "/usr/bin/g++",
    compiled: bool = False,
) -> Survey:
    """By rules whose findings have a patch. by_hand: there is one of PA205 that has none, and no other."""
    findings = [found("PA205", "model.py:3", by_hand=True)] if by_hand else map(found, rules)
    host, model = {"cxx": cxx}, {"compiled": compiled}
    return survey_of(findings, device={"type": device}, host=host, model=model, project_files=("model.py",))


def bench(given: Survey, seconds: float) -> Bench:
    return Bench(given, 2, 0, lambda settings: Probe(settings), lambda *_: {}, {}, seconds=seconds)


@pytest.mark.parametrize(
    ("given", "seconds", "tried"),
    [
        (survey(), 200.0, [LIBRARY, COMPILED]),
        (survey(), 100.0, [LIBRARY]),  # each generation compiles again
        (survey(cxx=None), 200.0, [LIBRARY]),
        (survey(cxx=None, device="cuda"), 200.0, [LIBRARY, COMPILED]),
        (survey(compiled=True), 200.0, [LIBRARY]),
        (survey(by_hand=True), 200.0, [COMPILED]),
    ],
)
def test_the_compiled_function_is_tried_where_it_can_be_afforded(
    given: Survey, seconds: float, tried: list[dict[str, str]]
) -> None:
    assert KNOB.candidates(bench(given, seconds)) == tried


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (survey(), ""),
        (survey(rules=()), "no hand-written activation or norm was found in model.py"),
        (survey(by_hand=True), ""),  # the library has none, but it can be compiled
        (
            survey(by_hand=True, cxx=None),
            "PA205 at model.py:3 must be changed by hand, so there is nothing to measure it against",
        ),
    ],
)
def test_where_it_cannot_matter(given: Survey, reason: str) -> None:
    assert KNOB.not_applicable(given) == reason


@pytest.mark.parametrize(
    ("before", "library", "compiled"),
    [
        pytest.param(
            f"import math\nimport torch\n\n\ndef gelu(x):\n    return {FORMULA}\n",
            'import math\nimport torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x, approximate="tanh")\n',
            f"import math\nimport torch\n\n\n@torch.compile\ndef gelu(x):\n    return {FORMULA}\n",
            id="a function",
        ),
        pytest.param(
            "from torch import nn, sigmoid\n\n\nclass Swish(nn.Module):\n    def forward(self, x):\n"
            "        return x * sigmoid(x)\n",
            "from torch import nn, sigmoid\n\n\nclass Swish(nn.Module):\n    def forward(self, x):\n"
            "        return nn.functional.silu(x)\n",
            "import torch\nfrom torch import nn, sigmoid\n\n\nclass Swish(nn.Module):\n    @torch.compile\n"
            "    def forward(self, x):\n        return x * sigmoid(x)\n",
            id="a forward, torch not imported",
        ),
        pytest.param(
            "import torch\n\n\n@torch.jit.script\ndef swish(x):\n    return x * torch.sigmoid(x)\n",
            None,
            None,
            id="decorated already",
        ),
        pytest.param(
            "import torch\n\n\ndef made():\n    def swish(x):\n        return x * torch.sigmoid(x)\n    return swish\n",
            "import torch\n\n\ndef made():\n    def swish(x):\n        return torch.nn.functional.silu(x)\n"
            "    return swish\n",
            None,
            id="a closure would be compiled each time it is made",
        ),
    ],
)
def test_the_patches(project: Callable[..., Path], before: str, library: str | None, compiled: str | None) -> None:
    project(**{"model.py": before})
    code = Code("model.py", survey_of(scan(["model.py"]).findings))
    patches = [KNOB.patch(code, LIBRARY), KNOB.patch(code, COMPILED)]
    assert [patch and patch.after for patch in patches] == [library, compiled]


def test_dropout_in_the_compiled_function_draws_other_numbers(project: Callable[..., Path]) -> None:
    text = "import torch\n\n\ndef act(x):\n    x = x * torch.sigmoid(x)\n    return torch.dropout(x, 0.1, True)\n"
    project(**{"model.py": text})
    patch = KNOB.patch(Code("model.py", survey_of(scan(["model.py"]).findings)), COMPILED)
    assert patch is not None and patch.changes == ("rounding", "rng")


def test_of_two_as_fast_the_library_is_taken() -> None:
    assert KNOB.size(LIBRARY) < KNOB.size(COMPILED)
