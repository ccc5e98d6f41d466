"""Comparing first steps in double precision: tensors told by products with random signs, and what may differ."""

from __future__ import annotations

import math

import pytest
import torch
from surveys import profile_of, survey_of
from test_search import Kept

from perfaudit.measure import exact as inside
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.ledger import Variant
from perfaudit.measure.runner import TrialFailed
from perfaudit.tune.exact import FLOOR, SPREAD, Exact, exact_of, gaps, said_of_exact
from perfaudit.tune.questions import Questions


def steps(losses: tuple[float, ...] = (1.0, 0.5), **rows: tuple[float, ...]) -> Exact:
    """Rows by name, `_` for the spaces: elements, norm, products."""
    return Exact(losses, {name.replace("_", " "): row for name, row in rows.items()})


ROW = (4.0, 2.0, 2.0, 0.0, -2.0, 0.0)
BASE = steps(gradient_of_a=ROW)


@pytest.mark.parametrize(
    ("mine", "found"),
    [
        (BASE, {"losses": 0.0, "gradient of a": 0.0}),
        (steps((1.0, 0.505), gradient_of_a=ROW), {"losses": 0.01, "gradient of a": 0.0}),
        (steps((1.0,), gradient_of_a=ROW), {"losses": math.inf, "gradient of a": 0.0}),
        # each product is 0.02 off, so the difference has a norm of 0.02, a hundredth of the row's
        (steps(gradient_of_a=(4, 2.0, 2.02, 0.02, -1.98, -0.02)), {"losses": 0.0, "gradient of a": 0.01}),
        (steps(gradient_of_a=(9, 2.0, 2.0, 0.0, -2.0, 0.0)), {"losses": 0.0, "gradient of a": math.inf}),
        (steps(), {"losses": 0.0, "gradient of a": math.inf}),  # it has no such parameter
        (steps(gradient_of_a=ROW, update_of_b=ROW), {"losses": 0.0, "gradient of a": 0.0, "update of b": math.inf}),
        (steps(gradient_of_a=ROW, buffer_of_mask=ROW), {"losses": 0.0, "gradient of a": 0.0}),
    ],
)
def test_gaps(mine: Exact, found: dict[str, float]) -> None:
    assert gaps(mine, BASE) == pytest.approx(found)


def test_what_is_next_to_nothing_is_measured_by_the_usual_of_its_kind() -> None:
    noise, other = (4.0, 1e-17, 1e-17, 0.0, 0.0, 0.0), (4.0, 1e-17, -1e-17, 0.0, 0.0, 0.0)
    found = gaps(steps(gradient_of_a=ROW, gradient_of_b=other), steps(gradient_of_a=ROW, gradient_of_b=noise))
    usual = math.sqrt(2.0**2 / 8)  # of an element, over both
    assert found["gradient of b"] == pytest.approx(1e-17 / (0.1 * usual * 2))


def test_a_difference_beyond_what_single_precision_could_tell_is_refused() -> None:
    never = pytest.fail
    near = steps((1.0, 0.5 * (1 + FLOOR / 2)), gradient_of_a=ROW)
    assert "agree within 4.8e-07" in said_of_exact(near, BASE, never)  # type: ignore[arg-type]  # is not asked
    with pytest.raises(
        TrialFailed, match=r"in double precision, where rounding cannot explain it, the losses differ by 1.0e-05"
    ):
        said_of_exact(steps((1.0, 0.500005), gradient_of_a=ROW), BASE, lambda: BASE)
    with pytest.raises(TrialFailed, match="the gradient of a differs by inf"):
        said_of_exact(steps(), BASE, lambda: BASE)


def test_what_the_users_own_code_amplifies_is_measured_and_excused_for_that_row_alone() -> None:
    """The update of b takes the sign of a gradient that is 0."""
    one, other = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0), (1.0, 1.0, -1.0, -1.0, -1.0, -1.0)
    base = steps(update_of_a=ROW, update_of_b=one)
    mine, moved = steps(update_of_a=ROW, update_of_b=other), steps(update_of_a=ROW, update_of_b=other)
    assert SPREAD * gaps(moved, base)["update of b"] >= gaps(mine, base)["update of b"]
    assert "agree within" in said_of_exact(mine, base, lambda: moved)
    wrong = steps(update_of_a=(4.0, 2.0, 2.1, 0.1, -1.9, 0.1), update_of_b=other)
    with pytest.raises(TrialFailed, match=r"the update of a differs by 5\.0e-02"):
        said_of_exact(wrong, base, lambda: moved)


def test_what_could_not_be_made_in_doubles_is_said() -> None:
    for mine, base in ((exact_of({"why": "no kernel"}), BASE), (BASE, exact_of({"why": "no kernel"}))):
        assert said_of_exact(mine, base, lambda: BASE) == "; not compared in double precision: no kernel"
    assert exact_of(None).why
    assert exact_of({}).why


# ---- in the child ------------------------------------------------------------------------------------------------------


def test_products_tell_the_norm_of_a_difference() -> None:
    torch.manual_seed(0)
    one, apart = torch.randn(300, 1000, dtype=torch.float64), 1e-9 * torch.randn(300, 1000, dtype=torch.float64)
    rows = {
        name: tuple(map(float.fromhex, inside._row("w", value)[1:]))
        for name, value in {"a": one, "b": one + apart}.items()
    }
    found = gaps(steps(update_of_w=(1.0, *rows["b"])), steps(update_of_w=(1.0, *rows["a"])))["update of w"]
    assert rows["a"][0] == pytest.approx(float(one.norm()))
    assert 0.2e-9 < found < 3e-9
    turned = inside._row("w", one.T.contiguous().T)  # in another layout
    assert tuple(map(float.fromhex, turned[1:])) == pytest.approx(rows["a"])


def test_inside_floats_are_doubles_and_behind_all_is_as_before() -> None:
    single, weight = torch.ones(3), torch.full((3,), 0.1, dtype=torch.float64)
    with inside.everything_double():
        assert torch.zeros(2).dtype == torch.float64
        assert (single * weight).float().dtype == weight.half().dtype == torch.float64
        assert torch.softmax(single, -1, dtype=torch.float32).dtype == torch.float64
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.nn.functional.linear(single, weight[None]).dtype == torch.float64
        single[0] = 5.0
        single += weight
        single.mul_(2)
    assert single.dtype == torch.float32
    assert single.tolist() == pytest.approx([10.2, 2.2, 2.2])
    assert torch.zeros(2).dtype == torch.float32


class Workshop:
    """Says how much memory a step takes, and keeps what it was asked."""

    def __init__(self, peak: int) -> None:
        self.peak, self.asked = peak, list[str]()

    def ask(self, variant: Variant, *commands: dict[str, object]) -> list[dict[str, object]]:
        (command,) = commands
        self.asked.append(str(command["do"]))
        if command["do"] == "memory":
            return [{}, {"peak_bytes": self.peak}]
        if variant.key == "broken":
            raise ChildFailed("step", "no")
        return [{}, {"losses": [(1.0).hex()], "rows": {}}]


@pytest.mark.parametrize(("peak", "asked"), [(1 << 20, ["memory", "exact"]), (1 << 30, ["memory"])])
def test_no_step_in_doubles_is_made_that_memory_does_not_hold(peak: int, asked: list[str]) -> None:
    shop = Workshop(peak)
    known = survey_of(device={"room": 2 << 30})
    reference = Questions(shop, Kept()).reference(profile_of(known))  # type: ignore[arg-type]  # a stand-in
    found = [reference.exact(Variant("base", "", {})) for _ in range(2)]
    assert shop.asked == asked
    assert found[0].why == ("" if peak == 1 << 20 else "the step would take 3.0 GiB, more than 50 % of what is free")
    if not found[0].why:
        assert reference.exact(Variant("broken", "", {})).why == "it could not be run so"
