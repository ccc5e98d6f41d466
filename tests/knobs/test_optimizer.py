"""Updates of torch's optimizers: what a class takes on a device, and the argument written at the user's own call."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard

import pytest
import torch
from surveys import USUAL, survey_of

from perfaudit.knobs import Bench, Probe, Survey, Told, optimizer
from perfaudit.knobs._code import Code
from perfaudit.measure.facts import CallSite, Optimizer, Script
from perfaudit.measure.gather_facts import _optimizer

KNOB = optimizer.KNOB


def survey(device: str = "cpu", dtypes: tuple[str, ...] = ("float32",), **optimizer: object) -> Survey:
    return survey_of(device={"type": device}, model={"dtypes": dtypes}, optimizer=optimizer)


def tried(given: Survey) -> list[object]:
    return [s["update"] for s in KNOB.candidates(Bench(given, 2, 1, lambda s: Probe(s), lambda *a, **k: {}))]


@pytest.mark.parametrize(
    ("given", "now", "others"),
    [
        (survey(), "for-loop", ["foreach", "fused"]),
        (survey("cuda"), "foreach", ["for-loop", "fused"]),
        (survey("cuda", foreach=False), "for-loop", ["foreach", "fused"]),
        (survey("cuda", fused=True), "fused", ["for-loop", "foreach"]),
        (survey(foreach=True), "foreach", ["for-loop", "fused"]),
        (survey(takes=("foreach",), name="RMSprop"), "for-loop", ["foreach"]),
        (survey("privateuseone"), "for-loop", ["foreach"]),
        (survey(dtypes=("complex64", "float32")), "for-loop", ["foreach"]),
    ],
)
def test_what_is_tried(given: Survey, now: str, others: list[str]) -> None:
    assert (KNOB.current(given), tried(given)) == ({"update": now}, others)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (survey(), ""),
        (
            survey(name="Lion", module="project.optim"),
            "project.optim.Lion is no optimizer of torch.optim, whose updates can be chosen by an argument",
        ),
        (
            survey(name="AdamW", module="transformers.optimization"),
            "transformers.optimization.AdamW is no optimizer of torch.optim, whose updates can be chosen by an argument; "
            "torch.optim.AdamW has a fused update, and defaults of its own",
        ),
        (
            survey(name="LBFGS", module="torch.optim.lbfgs", takes=()),
            "torch.optim.LBFGS takes neither foreach nor fused",
        ),
    ],
)
def test_where_it_cannot_matter(given: Survey, reason: str) -> None:
    assert KNOB.not_applicable(given) == reason


@pytest.mark.parametrize("name", ["for-loop", "foreach", "fused"])
@pytest.mark.parametrize("kind", ["AdamW", "SGD", "Adam", "Adagrad"])
@pytest.mark.parametrize("given", [{}, {"foreach": True}, {"fused": True}])
def test_a_real_optimizer_is_built_so(name: str, kind: str, given: dict[str, bool]) -> None:
    """With the overrides of the setting, whatever the user passes, torch accepts it and it is what was meant."""
    import torch

    from perfaudit.target.built_otherwise import optimizers_built

    parameter = torch.nn.Parameter(torch.ones(2))
    with optimizers_built(KNOB.setup({"update": name}).optimizer_overrides):
        built = getattr(torch.optim, kind)([parameter], lr=0.1, **given)
    assert KNOB.holds(Survey(replace(USUAL, optimizer=_optimizer(built, None))), {"update": name})
    parameter.sum().backward()
    built.step()
    assert float(parameter.detach()[0]) < 1


CASES = [
    ("AdamW(p)", "fused", "AdamW(p, fused=True)"),
    ("AdamW(p, lr=1e-3)", "for-loop", "AdamW(p, lr=1e-3, foreach=False)"),
    ("AdamW(p, foreach=False, lr=1)", "fused", "AdamW(p, fused=True, lr=1)"),
    ("AdamW(p, fused=True)", "foreach", "AdamW(p, foreach=True)"),
    ("AdamW(p, fused=False)", "fused", "AdamW(p, fused=True)"),
    ("AdamW(p, foreach=True, fused=False)", "fused", "AdamW(p, foreach=False, fused=True)"),
    ("torch.optim.AdamW(p)", "foreach", "torch.optim.AdamW(p, foreach=True)"),
    ("Opt(p)", "fused", "Opt(p, fused=True)"),
    ("AdamW(p, **options)", "fused", 'AdamW(p, **{**options, "fused": True})'),  # may hold it already
    ("AdamW(p, **(a or b))", "fused", 'AdamW(p, **({**(a or b), "fused": True}))'),
    ("AdamW(p, foreach=True, **options)", "fused", 'AdamW(p, foreach=False, **{**options, "fused": True})'),
    ("AdamW(p, **a, **b.c,)", "fused", 'AdamW(p, **{**a, **b.c, "fused": True},)'),  # which have no name in common
    ("AdamW(p, **a, lr=1, **b)", "fused", None),
    ("AdamW(p, **(a or b), **c)", "fused", None),
    ("create(p)", "fused", None),  # may not pass it on
    ("args.create(p)", "fused", None),
    ('getattr(torch.optim, "AdamW")(p)', "fused", 'getattr(torch.optim, "AdamW")(p, fused=True)'),
    (
        "getattr(torch.optim, args.opt)(p, lr=1)",
        "fused",
        'getattr(torch.optim, args.opt)(p, lr=1, **({"fused": True} if args.opt == "AdamW" else {}))',
    ),
    (
        "torch.optim.__dict__[c['opt']](p, **c)",
        "foreach",
        "torch.optim.__dict__[c['opt']](p, **{**c, **({\"foreach\": True} if c['opt'] == \"AdamW\" else {})})",
    ),
    ("getattr(torch.optim, name())(p)", "fused", None),  # what it gives a second time may be something else
    ("getattr(owner, args.opt)(p)", "fused", None),
    (
        '{"w": torch.optim.AdamW, "s": torch.optim.SGD}[args.opt](p)',
        "fused",
        '{"w": torch.optim.AdamW, "s": torch.optim.SGD}[args.opt](p, fused=True)',
    ),
    (
        '{"w": torch.optim.AdamW, "r": torch.optim.RMSprop}[args.opt](p)',
        "fused",
        '{"w": torch.optim.AdamW, "r": torch.optim.RMSprop}[args.opt](p, **({"fused": True} if args.opt == "w" else {}))',
    ),
    (
        "TABLE[args.opt](p)",
        "fused",
        'TABLE[args.opt](p, **({"fused": True} if args.opt == "w" else {}))',
    ),  # which may have more by then
    ("one(p)", "fused", "one(p, fused=True)"),  # SGD or AdamW
    ("kind(p)", "fused", 'kind(p, **({"fused": True} if kind is Opt else {}))'),  # AdamW, or what is imported
    ("other(p)", "fused", 'other(p, **({"fused": True} if other is Opt else {}))'),  # RMSprop or AdamW
    ("other(p, foreach=True)", "fused", None),
]


@pytest.mark.parametrize(("call", "name", "patched"), CASES)
def test_the_patch(call: str, name: str, patched: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    top = (
        "import torch\nfrom torch.optim import AdamW\nfrom torch.optim import AdamW as Opt\n"
        "TABLE = {'w': AdamW, 's': torch.optim.SGD}\nkind = AdamW\nif args.lion:\n    from lion import Lion as kind\n"
        "one = torch.optim.SGD if args.sgd else AdamW\nother = torch.optim.RMSprop if args.rms else AdamW\noptimizer = "
    )
    Path("train.py").write_text(f"{top}{call}\n")
    node = ast.parse(f"{top}{call}\n").body[-1].value  # type: ignore[attr-defined]  # an assignment
    site = CallSite("train.py", node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
    patch = KNOB.patch(Code("train.py", survey(site=site)), {"update": name})
    assert (patch and patch.after) == (patched and f"{top}{patched}\n")


@pytest.mark.parametrize("argument", ["fused", "foreach"])
def test_classes_that_are_said_to_take_an_argument_take_it(argument: str) -> None:
    for name in optimizer._TAKE[argument]:
        kind = getattr(torch.optim, name.rpartition(".")[2])
        assert argument in inspect.signature(kind).parameters


GAN = "from torch.optim import Adam\na = Adam(p, lr=1)\nb = Adam(q)\n"


@pytest.mark.parametrize(
    ("lines", "patched"),
    [
        ((2, 3), "from torch.optim import Adam\na = Adam(p, lr=1, fused=True)\nb = Adam(q, fused=True)\n"),
        ((3, 3), "from torch.optim import Adam\na = Adam(p, lr=1)\nb = Adam(q, fused=True)\n"),  # one call builds both
        ((2, None), None),  # a library builds the other one
    ],
)
def test_all_optimizers_of_a_step_are_patched_together(
    lines: tuple[int, int | None], patched: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(GAN)
    calls = {node.lineno: node.value for node in ast.parse(GAN).body if isinstance(node, ast.Assign)}
    first, other = (_adam(calls[line] if line is not None else None) for line in lines)
    given = Survey(replace(USUAL, optimizer=first, script=Script(optimizers=(other,))))
    patch = KNOB.patch(Code("train.py", given), {"update": "fused"})
    assert (patch and patch.after) == patched
    assert KNOB.words({"update": "fused"}, given) == "build the 2 optimizers of a step (Adam) with fused=True"
    fused = replace(USUAL, optimizer=replace(first, fused=True), script=Script(optimizers=(other,)))
    assert not KNOB.holds(Survey(fused), {"update": "fused"})
    assert KNOB.by_hand(given) == ("" if patched else "no line of your files builds the Adam")
    assert KNOB.not_applicable(given) == "" and "update differently" in KNOB.not_applicable(Survey(fused))


def test_optimizers_built_in_two_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(GAN)
    Path("more.py").write_text(GAN)
    first, other = (_adam(node.value) for node in ast.parse(GAN).body if isinstance(node, ast.Assign))
    assert other.site is not None
    other = replace(other, site=other.site._replace(path="more.py"))
    given = Survey(replace(USUAL, optimizer=first, script=Script(optimizers=(other,))))
    assert KNOB.patch(Code("train.py", given), {"update": "fused"}) is None
    assert KNOB.by_hand(given) == (
        "the optimizers of a step are built in several files, Adam (train.py:2) and Adam (more.py:3), and a patch changes one"
    )


@pytest.mark.parametrize("foreach", [(True, None), (None, True)])
def test_what_options_hold_for_one_of_several_optimizers_is_switched_off(
    foreach: tuple[bool | None, bool | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "from torch.optim import Adam\na = Adam(p, **options)\n"
    Path("train.py").write_text(text)
    built = _adam(ast.parse(text).body[-1].value)  # type: ignore[attr-defined]  # an assignment
    first, other = (replace(built, foreach=each) for each in foreach)
    given = Survey(replace(USUAL, optimizer=first, script=Script(optimizers=(other,))))
    patch = KNOB.patch(Code("train.py", given), {"update": "fused"})
    assert patch is not None and '{**options, "fused": True, "foreach": False}' in patch.after


AGAIN = """from torch.optim import Adam
a = Adam(p)
for step in range(100):
    if step == 50:
        a = Adam(p, lr=1e-4)
"""


@pytest.mark.parametrize(
    ("of_a_step", "said"),
    [
        ((0,), "; train.py:5 builds another one later, which no step had here and which stays as it is"),
        ((1,), ""),
        ((0, 1), ""),
    ],
)
def test_an_optimizer_that_is_built_anew_later_is_named(
    of_a_step: tuple[int, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(AGAIN)
    calls = sorted((node for node in ast.walk(ast.parse(AGAIN)) if _is_adam(node)), key=lambda call: call.lineno)
    first, *others = (_adam(calls[number]) for number in of_a_step)
    given = Survey(replace(USUAL, optimizer=first, script=Script(optimizers=tuple(others))))
    assert KNOB.words({"update": "fused"}, given).partition(" with fused=True")[2] == said
    patch = KNOB.patch(Code("train.py", given), {"update": "fused"})
    assert patch is not None and patch.after.count("fused=True") == len(of_a_step)


def _is_adam(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "Adam"


def _adam(call: ast.expr | None) -> Optimizer:
    site = call and CallSite("train.py", call.lineno, call.end_lineno, call.col_offset, call.end_col_offset)
    return replace(USUAL.optimizer, name="Adam", module="torch.optim.adam", site=site)


def test_our_own_optimizer_is_words_only() -> None:
    given = survey_of(factories={})
    assert KNOB.patch(Code("train.py", given), {"update": "fused"}) is None
    assert KNOB.words({"update": "fused"}, given) == (
        "build AdamW with fused=True, if that is your optimizer: the target has no build_optimizer, so this was measured with "
        "perfaudit's AdamW"
    )
    assert KNOB.words({"update": "for-loop"}, survey()) == "build AdamW with foreach=False"


def test_lists_cost_memory_and_are_taken_last() -> None:
    assert min([{"update": "foreach"}, {"update": "fused"}], key=KNOB.size) == {"update": "fused"}
    assert "memory" in KNOB.remarks(Told(survey(), (), (), {}, {"update": "foreach"}))[0]
    assert KNOB.remarks(Told(survey(), (), (), {}, {"update": "fused"})) == []
