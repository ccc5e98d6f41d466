"""Accumulations whose gradients are summed over the ranks once a step, and why others keep summing in each pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_choices import ACCUMULATING, BACKWARD, HEAD, LAST, choice, of, patched, patched_line

from perfaudit.findings import CHANGES
from perfaudit.tune.ranks.candidates import candidates_of
from perfaudit.tune.ranks.patches import SeenRanks

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_accumulated_gradients_are_summed_once_a_step() -> None:
    found = choice(ACCUMULATING)
    assert """\
    y = x.cos()
    with contextlib.nullcontext() if (i + 1) % 4 == 0 else model.no_sync():
        loss = model(y).mean()  # of one pass
        loss.backward()
    if (i + 1) % 4 == 0:
""" in patched(found, "no_sync=True")
    candidate = of(found, "no_sync=True")
    assert candidate is not None
    assert (candidate.fix.changes, found.now["no_sync"]) == (("rounding",), False)
    assert candidate.text.startswith("import contextlib\n")


def test_the_wrapped_model_is_followed_into_the_function_that_trains() -> None:
    body = "".join(f"    {line}\n" for line in ACCUMULATING.splitlines()[2:])
    text = f"def train(net, loader, optimizer):\n{body}".replace("model(y)", "net(y)")
    whole = "\ndef main():\n    model = DDP(nn.Linear(2, 2))\n    train(model, loader, optimizer)\n\nmain()\n"
    assert "else net.no_sync():" in patched(choice(text + whole), "no_sync=True")
    other = whole.replace("    train(model", "    train(nn.Linear(2, 2), loader, optimizer)\n    train(model")
    assert "or not isinstance(net, DDP) else net.no_sync():" in patched(choice(text + other), "no_sync=True")
    unknown = (text + whole).replace("    train(model", "    run(model")
    assert any("model is run by the name" in each for each in choice(unknown).left)
    named = (text + other).replace("net", "model")
    assert "or not isinstance(model, DDP) else model.no_sync():" in patched(choice(named), "no_sync=True")


def test_a_model_that_is_wrapped_under_a_condition_or_elsewhere_is_asked_whether_it_is() -> None:
    """Of the four ways in which trainings are mostly written."""
    ask = "with contextlib.nullcontext() if (i + 1) % 4 == 0 or not isinstance({0}, {1}) else {0}.no_sync():"
    question = ACCUMULATING.replace("model = DDP(nn.Linear(2, 2))", "if ranks > 1:\n    model = DDP(model)")
    assert patched_line(choice(question)) == ask.format("model", "DDP")
    body = "".join(f"        {line}\n" for line in ACCUMULATING.replace("model", "self.model").splitlines()[1:])
    start = "class Trainer:\n    def __init__(self, model):\n        self.model = DDP(model) if ranks > 1 else model\n"
    trainer = start.replace(" if ranks > 1 else model", "") + f"    def fit(self, loader):\n{body}"
    assert patched_line(choice(trainer)) == ask.format("self.model", "DDP")
    engine = "".join(f"    {line}\n" for line in ACCUMULATING.splitlines()[2:])
    Path("engine.py").write_text(f"import torch\ndef train(model, loader, optimizer):\n{engine}")
    Path("train.py").write_text(HEAD + "from engine import train\nmodel = DDP(nn.Linear(2, 2))\ntrain(model, a, b)\n")
    found = candidates_of(["train.py", "engine.py"], frozenset(CHANGES), SeenRanks())
    assert patched_line(found) == ask.format("model", "torch.nn.parallel.DistributedDataParallel")
    assert [each.path for each in found.candidates if each.key == "no_sync=True"] == ["engine.py"]


IN_BRANCHES = """\
    if scaler is not None:
        scaler.scale(loss).backward()
    else:
        loss.backward()
"""


@pytest.mark.parametrize(
    ("passes", "why"),
    [
        (IN_BRANCHES, ""),
        ("    with timer:\n        loss.backward()\n", ""),
        ("    if x.isfinite().all():\n        loss.backward()\n", "may be left out"),
        (IN_BRANCHES.partition("    else")[0], "may be left out"),
        ("    with timer:\n        if ok:\n            loss.backward()\n", "may be left out"),
        ("    with contextlib.suppress(RuntimeError):\n        loss.backward()\n", "may be left out"),
        ("    ok and loss.backward()\n", "may be left out"),
        ("    loss.backward(retain_graph=True)\n    other.backward()\n", "several passes follow each other"),
    ],
)
def test_the_last_pass_must_be_made_wherever_its_step_is(passes: str, why: str) -> None:
    found = choice(ACCUMULATING.replace(BACKWARD, passes))
    assert (of(found, "no_sync=True") is None) == bool(why), found.left
    assert not why or any(why in each for each in found.left), found.left


def test_a_step_where_the_condition_does_not_hold_needs_summed_gradients() -> None:
    found = choice(ACCUMULATING + "    else:\n        critic_optimizer.step()\n")
    assert of(found, "no_sync=True") is None
    later = choice(ACCUMULATING + "    elif i > 9:\n        finish(optimizer.step)\n")
    assert any("an optimizer steps at train.py:17, too" in each for each in later.left), later.left


def test_statistics_of_batch_norm_reach_other_ranks_once_a_step_and_the_patch_says_so() -> None:
    plain, tracked = (
        of(choice(ACCUMULATING, ranks=SeenRanks(tracks_statistics=each)), "no_sync=True") for each in (False, True)
    )
    assert plain is not None and tracked is not None
    assert "batch norm" not in plain.words
    assert "running statistics of batch norm reach the other ranks once a step" in tracked.words


def test_buffers_that_steps_change_are_sent_behind_summed_passes_only() -> None:
    found = choice(ACCUMULATING, ranks=SeenRanks(changed_buffers=["codebook"]))
    assert of(found, "no_sync=True") is None
    assert any("steps change buffers of the model (codebook)" in each for each in found.left)


@pytest.mark.parametrize(
    ("text", "is_tried"),
    [
        ("DDP(nn.Linear(2, 2), static_graph=False)", True),
        ("DDP(nn.Linear(2, 2), static_graph=True)", False),
        ("DDP(nn.Linear(2, 2), **options)", False),
        ("DDP(nn.Linear(2, 2))\nmodel._set_static_graph()", False),
    ],
)
def test_a_static_graph_is_learned_from_a_pass_that_is_summed(text: str, is_tried: bool) -> None:
    found = choice(ACCUMULATING.replace("DDP(nn.Linear(2, 2))", text))
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left


@pytest.mark.parametrize("line", ["with model.join():", "with Join([model, optimizer]):"])
def test_ranks_that_make_different_numbers_of_passes_sum_each(line: str) -> None:
    start, loop = ACCUMULATING.split("for i, x", 1)
    body = "".join(f"    {each}\n" for each in f"for i, x{loop}".splitlines())
    found = choice(f"{start}{line}\n{body}")
    assert of(found, "no_sync=True") is None
    assert any("train.py:9 lets ranks make different numbers of passes" in each for each in found.left), found.left
    assert of(choice(f"{start}with timer(', '.join(names)):\n{body}"), "no_sync=True")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("    loss.backward()\n", "    loss.backward()\n    print(net.weight.grad)\n", "gradients are looked at"),
        (
            "    loss.backward()\n",
            "    loss.backward()\n    nn.utils.clip_grad_norm_(ps, 1.0)\n",
            "gradients are looked at",
        ),
        ("    loss.backward()\n", "    loss.backward()\n    i -= 1\n", "is known behind the pass only"),
        ("    loss.backward()\n", "    loss.backward()\n    i += len(x)\n", "is known behind the pass only"),
        ("    loss.backward()\n", "    loss.backward()\n    i += 1\n    i += 1\n", "is known behind the pass only"),
        (
            "    loss.backward()\n",
            "    loss.backward()\n    if x.any():\n        i += 1\n",
            "is known behind the pass only",
        ),
        ("    loss.backward()\n", "    loss.backward()\n    i += 1\n    i = i * 2\n", "is known behind the pass only"),
        ("    loss.backward()\n", "    loss.backward()\n    i += 1.5\n", "is known behind the pass only"),
        ("if (i + 1) % 4 == 0:", "if (i + 1) % steps() == 0:", "calls something"),
        ("model(y)", "run(y)", "no model is run by the name of one that was wrapped"),
        (LAST, LAST + "if len(loader) % 4:\n    optimizer.step()\n", "an optimizer steps at train.py:17, too"),
        (LAST, LAST + "optimizer.step()\n", "an optimizer steps at train.py:16, too"),
        (LAST, LAST + "scaler.step(optimizer)\n", "an optimizer steps at train.py:16, too"),
        (LAST, LAST + "finish = optimizer.step\nfinish()\n", "an optimizer steps at train.py:16, too"),
    ],
)
def test_why_gradients_are_summed_in_each_pass(old: str, new: str, why: str) -> None:
    found = choice(ACCUMULATING.replace(old, new))
    assert of(found, "no_sync=True") is None
    assert any(why in each for each in found.left), found.left


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mode = 'no_sync'\n" + ACCUMULATING, "train.py says `no_sync`"),
        ("model = DDP(nn.Linear(2, 2))\nwith model.no_sync():\n    run(model)\n", "train.py says `no_sync`"),
        ("from accelerate import Accelerator\n" + ACCUMULATING, "train.py says `accelerat`"),
        (
            ACCUMULATING.replace(BACKWARD, f"    with sync_if(model, last):\n    {BACKWARD}"),
            "train.py:13 stands under a `with` of the project's own",
        ),
        ("model = DDP(nn.Linear(2, 2))\nfrom accelerate import Accelerator\n", ""),
        ("# no_sync saves time\nmodel = DDP(nn.Linear(2, 2))\n", ""),
    ],
)
def test_what_may_decide_itself_when_gradients_are_summed_is_said(text: str, why: str) -> None:
    found = choice(text)
    assert of(found, "no_sync=True") is None
    said = [each for each in found.left if "may be decided already" in each]
    assert len(said) == bool(why)
    assert not why or said[0].endswith(f": {why}"), found.left


def test_the_demonstration_of_accumulation_is_raced_with_gradients_summed_once_a_step() -> None:
    program = ROOT / "benchmarks" / "rank_programs" / "accumulating_ranks.py"
    if not program.exists():
        pytest.skip("the benchmarks are not in this distribution")
    Path("train.py").write_text(program.read_text(encoding="utf-8"))
    found = candidates_of(["train.py"], frozenset({"rounding"}), SeenRanks())
    assert {"no_sync=True", "static_graph=True"} <= {each.key for each in found.candidates}, found.left


def test_several_accumulations_are_named() -> None:
    twice = ACCUMULATING + ACCUMULATING.partition("lr=0.1)\n")[2]
    assert any("in several places: train.py:13, train.py:20" in each for each in choice(twice).left), choice(twice).left


COUNTED = """\
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for batch in loader:
    optimizer.zero_grad()
    for number in range(args.passes):
        x = batch[number]
        loss = model(x).mean() / args.passes
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", "number == args.passes - 1"),
        ("range(args.passes)", "range(size // 8)", "number == (size // 8) - 1"),
        ("range(args.passes)", "range(8)", "number == 8 - 1"),
        ("range(args.passes)", "range(1, 9)", ""),
        ("range(args.passes)", "range(count())", ""),
        ("        loss.backward()\n", "        loss.backward()\n        args.passes = 3\n", ""),
        ("        x = batch[number]\n", "        if not number:\n            continue\n", ""),
        ("        x = batch[number]\n", "        number = order[number]\n        x = batch[number]\n", ""),
        ("        x = batch[number]\n", "        x = batch[number]\n        args.passes += 1\n", ""),
        ("        x = batch[number]\n", "        if number == 9:\n            break\n", ""),
        ("        loss.backward()\n", "        loss.backward()\n        optimizer.step()\n", ""),
        ("        loss.backward()\n", "        loss.backward()\n        clip_grad_norm_(ps, 1.0)\n", ""),
        ("        loss.backward()\n", "        if number:\n            loss.backward()\n", ""),
        ("    optimizer.step()\n", "    optimizer.step()\noptimizer.step()\n", ""),
        ("    optimizer.step()\n", "    run()\n", ""),
    ],
)
def test_the_last_turn_of_a_counted_loop_sums_the_gradients_of_all(old: str, new: str, said: str) -> None:
    found = choice(COUNTED.replace(old, new))
    if not said:
        assert of(found, "no_sync=True") is None
        return
    assert f"""\
        x = batch[number]
        with contextlib.nullcontext() if {said} else model.no_sync():
            loss = model(x).mean() / args.passes
            loss.backward()
    nn.utils""" in patched(found, "no_sync=True")


def test_a_pass_over_parts_of_a_batch_has_no_condition_that_tells_the_last() -> None:
    text = """\
model = DDP(nn.Linear(2, 2))
for batch in loader:
    for micro in batch.split(8):
        model(micro).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    assert any("which pass is the last" in each for each in choice(text).left)
    without = text.replace("    for micro in batch.split(8):\n        model(micro)", "    model(batch)")
    assert not any("no_sync" in each for each in choice(without).left)


def test_the_name_of_the_model_is_followed_through_files_and_functions() -> None:
    """A parameter of another name, what a function gives that wraps it, and an attribute that a method runs."""
    start, loop = ACCUMULATING.split("for i, x", 1)
    body = "".join(f"    {line}\n" for line in f"for i, x{loop}".replace("model(", "net(").splitlines())
    Path("engine.py").write_text(f"import torch\ndef train(net, loader, optimizer):\n{body}")
    Path("train.py").write_text(f"{HEAD}from engine import train\n{start}train(model, loader, optimizer)\n")
    ask = "or not isinstance({0}, torch.nn.parallel.DistributedDataParallel) else {0}.no_sync():"
    assert ask.format("net") in patched_line(candidates_of(["train.py", "engine.py"], frozenset(CHANGES)))
    making = "def wrap(net):\n    return DDP(net), 1\nbody, _ = wrap(nn.Linear(2, 2))\nkept = body\n"
    made = making + ACCUMULATING.replace("model = DDP(nn.Linear(2, 2))\n", "").replace("model", "kept")
    assert "or not isinstance(kept, DDP) else kept.no_sync():" in patched_line(choice(made))
    trainer = "class Trainer:\n    def __init__(self):\n        self.model = DDP(nn.Linear(2, 2))\n"
    trainer += "    def loss(self, y):\n        return self.model(y).mean()\n    def fit(self, loader, optimizer):\n"
    trainer += "".join(
        f"        {line}\n" for line in f"for i, x{loop}".replace("model(y).mean()", "self.loss(y)").splitlines()
    )
    assert "or not isinstance(self.model, DDP) else self.model.no_sync():" in patched_line(choice(trainer))


APART = """\
def train(model, loader, optimizer):
{first}def distill({name}, loader, optimizer, teacher):
{second}
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for epoch in range(9):
    train(model, loader, optimizer)
    distill(model, loader, optimizer, teacher)
"""


@pytest.mark.parametrize(
    ("name", "old", "new", "why"),
    [
        ("model", "", "", ""),
        ("other", "model", "other", "gradients of several models add up: train.py:12, train.py:20"),
        (
            "model",
            BACKWARD,
            f"{BACKWARD}    flush(optimizer)\n",
            "`flush` of train.py:20 gets the model or the optimizer",
        ),
        ("model", " == 0:", " == 0 and rank:", "the condition of train.py:20 asks which rank it is"),
        ("model", LAST, f"{LAST}optimizer.step()\n", "an optimizer steps at train.py:23, too"),
    ],
)
def test_accumulations_in_functions_of_their_own_are_patched_together(name: str, old: str, new: str, why: str) -> None:
    """A training and one that distills, of which a run may have either."""
    loop = "".join(f"{line}\n" for line in ACCUMULATING.splitlines()[2:])
    first, second = ("".join(f"    {line}\n" for line in text.splitlines()) for text in (loop, loop.replace(old, new)))
    found = choice(APART.format(first=first, second=second, name=name))
    assert (of(found, "no_sync=True") is None) == bool(why), found.left
    assert not why or any(why in each for each in found.left), found.left
    if not why:
        assert patched(found, "no_sync=True").count("else model.no_sync():") == 2
        assert patched(found, "no_sync=True").count("import contextlib\n") == 1
