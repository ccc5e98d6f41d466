"""What else than the call of DistributedDataParallel is tried on ranks, and why some of it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.findings import CHANGES
from perfaudit.tune.ranks.candidates import Choice, candidates_of
from perfaudit.tune.ranks.patches import RankPatch, SeenRanks

ROOT = Path(__file__).parents[3]
HEAD = """\
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

"""
ACCUMULATING = """\
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for i, x in enumerate(loader):
    y = x.cos()
    loss = model(y).mean()  # of one pass
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
LAST = "        optimizer.zero_grad()\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def choice(text: str, allow: frozenset[str] = frozenset(CHANGES), ranks: SeenRanks | None = None) -> Choice:
    Path("train.py").write_text(HEAD + text)
    return candidates_of(["train.py"], allow, ranks or SeenRanks())


def of(found: Choice, key: str) -> RankPatch | None:
    return next((each for each in found.candidates if each.key == key), None)


def patched(found: Choice, key: str) -> str:
    candidate = of(found, key)
    assert candidate is not None, [each.key for each in found.candidates] + found.left
    return candidate.text


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
    assert (
        "model is run by the name" in choice(text + other).left[0]
    )  # a net that has another name than the wrapped one
    named = (text + other).replace("net", "model")
    assert "or not isinstance(model, DDP) else model.no_sync():" in patched(choice(named), "no_sync=True")


def patched_line(found: Choice) -> str:
    return next(line.strip() for line in patched(found, "no_sync=True").splitlines() if "no_sync" in line)


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


def test_a_condition_of_what_is_counted_up_behind_the_pass_is_asked_for_the_count_it_will_have() -> None:
    """`step += 1` between the pass and `if step % 4 == 0`: as three trainings of microsoft/CodeBERT have it."""
    text = ACCUMULATING.replace("(i + 1) % 4 == 0", "steps % args.passes == 0 or steps == last")
    found = choice(text.replace("    loss.backward()\n", "    steps += 1\n    loss.backward()\n"))
    said = "(steps + 1) % args.passes == 0 or steps + 1 == last"
    assert patched_line(found) == f"with contextlib.nullcontext() if {said} else model.no_sync():"


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


CONDITION = "if (i + 1) % 4 == 0:"
BACKWARD = "    loss.backward()\n"


@pytest.mark.parametrize(
    ("condition", "behind", "before", "is_tried"),
    [
        ("state.step % 4 == 0", "state.step += 1", "", False),
        ("state['step'] % 4 == 0", "state['step'] += 1", "", False),
        ("state.step % 4 == 0", "state.count()", "", False),
        ("bar.n % 4 == 0", "bar.update(1)", "", False),  # of a library, which no file of the project sets
        ("len(losses) % 4 == 0", "losses.append(1)", "", False),
        ("len(losses) % 4 == 0", "record(losses)", "", False),
        ("steps % 4 == 0", "steps.add_(1)", "", False),  # a tensor
        ("steps % 4 == 0", "count()", "def count():\n    global steps\n    steps += 1\n", False),
        ("(i := i + 1) % 4 == 0", "", "", False),
        ("(i + 1) % args.passes == 0", "args.passes = 2", "", False),
        ("(i + 1) % args.passes == 0", "", "def grow(it):\n    it.passes *= 2\n", False),
        ("(i + 1) % cfg['passes'] == 0", "", "cfg['passes'] = 2\n", False),
        ("(i + 1) % trainer.passes == 0", "", "", False),
        ("(i + 1) % args.passes == 0", "print(i)", "", True),
        ("(i + 1) % cfg['passes'] == 0", "", "", True),
        ("(i + 1) % opts.passes == 0", "", "", True),
        ("(i + 1) % opt.passes == 0", "", "opt = parser.parse_args()\n", True),
        ("(i + 1) % opt.passes == 0", "", "opt, _ = parser.parse_known_args()\n", True),
        ("(i + 1) % opt.passes == 0", "", "opt = parser.parse_args()\nopt, schedule = make(opt)\n", False),
        ("(i + 1) % opt.passes == 0", "", "opt = Trainer(4)\n", False),  # an optimizer, for all that its name says
        ("(i + 1) % opt.passes == 0", "", "opt = parser.parse_args()\nopt = Trainer(opt)\n", False),
        ("(i + 1) % opt.passes == 0", "", "", False),
        ("(i + 1) % 4 == 0 or i + 1 == len(loader)", "print(i)", "", True),
    ],
)
def test_the_condition_must_say_the_same_in_front_of_the_pass(
    condition: str, behind: str, before: str, is_tried: bool
) -> None:
    text = ACCUMULATING.replace(CONDITION, f"if {condition}:").replace(BACKWARD, f"{BACKWARD}    {behind}\n")
    found = choice(before + text)
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left
    assert is_tried or any("no_sync is not tried: the condition of train.py:" in each for each in found.left)


def test_gradients_of_the_model_by_its_name_before_it_was_wrapped_must_be_left_alone() -> None:
    start = ACCUMULATING.replace("model = DDP(nn.Linear(2, 2))", "net = nn.Linear(2, 2)\nmodel = DDP(net)")
    assert of(choice(start), "no_sync=True")
    found = choice(start.replace(BACKWARD, f"{BACKWARD}    adaptive_clip(net)\n"))
    assert of(found, "no_sync=True") is None


@pytest.mark.parametrize(
    ("behind", "before", "is_tried"),
    [
        ("adaptive_clip(model)", "", False),
        ("adaptive_clip(params)", "params = list(model.parameters())\n", False),
        ("adaptive_clip(weights)", "params = model.parameters()\nweights = [p for p in params]\n", False),
        ("adaptive_clip(weights)", "weights, rest = list(model.parameters()), 1\n", False),
        ("adaptive_clip(weights)", "(weights, *others), rest = unpack(model)\n", False),
        ("adaptive_clip(rest)", "weights, rest = list(model.parameters()), 1\n", True),
        ("adaptive_clip(weights)", "weights: list = list(model.parameters())\n", False),
        ("adaptive_clip(weights)", "print(weights := list(model.parameters()))\n", False),
        ("adaptive_clip(inner)", "with unwrap(model) as inner:\n    pass\n", False),
        ("adaptive_clip(self.kept)", "self.kept = model\n", False),
        ("adaptive_clip(get().kept)", "self.kept = model\n", False),
        ("adaptive_clip(self.kept)", "kept = model\n", True),  # another thing of the same name
        ("adaptive_clip(optimizer)", "", False),
        ("adaptive_clip(optimizer.param_groups)", "", False),
        ("adaptive_clip(model.module)", "", False),
        ("adaptive_clip(of=model.parameters())", "", False),
        ("adaptive_clip(model.weight)", "", False),
        ("adaptive_clip([model])", "", False),
        ("adaptive_clip(x.pin(model))", "", False),
        ("adaptive_clip()", "def adaptive_clip():\n    nn.utils.clip_grad_norm_(params, 1.0)\n", False),
        ("for p in model.parameters(): shrink(p)", "", False),
        ("if i % 100 == 0: evaluate(model)", "", False),
        ("", "model.register_comm_hook(None, hook)\n", False),
        ("", "_apply_optimizer_in_backward(SGD, model.parameters(), {})\n", False),
        ("record()", "def record():\n    norms()\ndef norms():\n    return [p.grad for p in params]\n", False),
        ("record(getattr(p, 'grad'))", "", False),
        ("look(model)", "def look(net):\n    shrink(net)\n", False),
        ("look(model)", "def look(net):\n    return net\n", False),
        ("look(model)", "def look(net):\n    net.weight.requires_grad_(False)\n", False),
        ("look(model)", "def look(net):\n    for p in net.parameters(): p.mul_(2)\n", False),
        ("look(model)", "def look(net):\n    box.net = net\n", False),
        ("box.look(model)", "def look(net):\n    return net(x)\n", False),  # of what is made elsewhere
        ("look(model)", "from lib import look\nclass A:\n    def look(net):\n        return net(x)\n", False),
        ("look(m=model)", "def look(**o):\n    shrink(o['m'])\n", False),
        ("look(*[model])", "def look(net):\n    return net(x)\n", False),
        ("look(model)", "def look(net):\n    look(net)\n", False),
        ("look(look_again(model))", "def look_again(net):\n    return net\ndef look(net):\n    shrink(net)\n", False),
        (
            "look(model)",
            "def look(net):\n    net.eval()\n    with torch.no_grad():\n        return net(x).mean()\n",
            True,
        ),
        (
            "seen = look(net=model)\n    record(seen)",
            "def look(net):\n    return deeper(net)\ndef deeper(m):\n    return m(x)\n",
            True,
        ),
        ("record(optimizer.param_groups[0]['lr'])", "", True),
        ("x = x.to(device)", "device = next(model.parameters()).device\n", True),
        ("x = x.to(model.weight)", "", False),
        ("record(f\"{optimizer.param_groups[0]['lr']:.2g}\")", "", True),
        ("record(optimizer.param_groups[0]['params'])", "", False),
        ("for group in optimizer.param_groups: group['lr'] = 0.1 * group['lr']", "", True),
        ("for group in optimizer.param_groups: shrink(group['params'])", "", False),
        ("for group in optimizer.param_groups: shrink(group)", "", False),
        ("for group in optimizer.param_groups: group[i] = 2", "", False),
        (
            "adjust(optimizer, i)",
            "def adjust(o, i):\n    for g in o.param_groups:\n        g['lr'] = i\n    return i\n",
            True,
        ),
        ("loss = loss + sum(p.norm() for p in model.parameters())", "", True),
        ("loss = loss + sum(p.norm() for p in model.parameters())\n    record(loss.item())", "", True),
        ("clip.apply()", "clip = AGC(model)\n", False),
        ("self.clip.apply()", "self.clip = AGC(model)\n", False),
        ("clip(i)", "clip = AGC(optimizer)\n", False),
        ("f()", "f = partial(adaptive_clip, model)\n", False),
        ("f()", "f = lambda: adaptive_clip(model)\n", False),
        ("run(f)", "f = partial(adaptive_clip, model)\ndef run(g):\n    g()\n", False),
        ("fs[0]()", "fs = [partial(adaptive_clip, model)]\n", False),
        ("fs['a'].apply()", "fs = {}\nfs['a'] = AGC(model)\n", False),
        ("kept['model'] = model", "", False),
        ("adaptive_clip(kept)", "kept = []\nkept.append(model)\n", False),
        ("adaptive_clip(self.kept)", "self.kept.extend(model.parameters())\n", False),
        ("record(kept)", "kept.append(loss)\n", True),
        ("clip()", "def clip():\n    adaptive_clip(model)\n", False),
        ("clip()", "def clip():\n    deeper()\ndef deeper():\n    optimizer.average()\n", False),
        ("x = more(i)", "def more(i):\n    return model(i) + model.module(i)\n", True),
        ("x = more(i)", "def more(model):\n    return clip(model)\n", True),  # another thing of the same name
        ("kept.model = model", "", False),
        ("model.module.clip_my_gradients()", "", False),
        ("model.clip_my_gradients()", "", False),
        ("model.weight.clip_()", "", False),
        ("optimizer.average()", "", False),
        ("look(model)", "def look(net):\n    net.clip_my_gradients()\n", False),
        ("z = model(x) + model.module(x) + net(x)", "net = model.module\n", True),
        ("z = net(x)", "net = torch.compile(model)\n", True),
        ("z = net(x)", "net = model.module if hasattr(model, 'module') else model\n", True),
        ("z = net(x)", "net = model.to(device)\n", True),
        ("adaptive_clip(net)", "net = model.to(device)\n", False),
        ("adaptive_clip(net)", "net = model.get_base()\n", False),
        ("record(states)", "states = optimizer.state_dict()\n", True),
        ("z = scaler.scale(loss)", "scaler.update()\n", True),
        ("record(scheduler.get_last_lr())", "scheduler = Schedule(optimizer)\n", True),
        ("record(model.state_dict())", "", True),
        ("if any(is_broken(p) for p in model.parameters()): continue", "", False),
        ("norms = [adaptive_clip(p) for p in model.parameters()]", "", False),
        ("print({n: adaptive_clip(p) for n, p in model.named_parameters()})", "", False),
        ("print([p.norm() for p in model.parameters() if adaptive_clip(p)])", "", False),
        ("print(sum(adaptive_clip(p) for m in model.modules() for p in m.parameters()))", "", False),
        ("print(len([p for p in params]))", "params = list(model.parameters())\n", False),
        ("print([m.norm() for m in model.modules()])", "", False),  # of a module, which may be anything
        ("loss = loss + sum(weights)", "weights = list(model.parameters())\n", False),
        ("print([group['lr'] for group in optimizer.param_groups])", "", True),
        ("print([adaptive_clip(group) for group in optimizer.param_groups])", "", False),
        ("model.train()", "def train():\n    nn.utils.clip_grad_norm_(params, 1.0)\n", True),
        ("print(loss, model)", "", True),
        ("record(loss)", "", True),
        ("lr_scheduler.step()", "lr_scheduler = Schedule(optimizer)\n", True),
        ("model.train()", "", True),
    ],
)
def test_gradients_of_each_pass_must_be_left_alone(behind: str, before: str, is_tried: bool) -> None:
    start, loop = ACCUMULATING.split("for i, x", 1)
    for text in (f"    {behind}\n{BACKWARD}", f"{BACKWARD}    {behind}\n"):
        found = choice(start + before + "for i, x" + loop.replace(BACKWARD, text))
        assert (of(found, "no_sync=True") is not None) == is_tried, found.left
        assert is_tried or any("each pass" in each for each in found.left), found.left


def test_what_a_function_gives_that_trains_a_model_is_not_the_model() -> None:
    """`loss = train(model, loader)` in `main`, beside `scaler.scale(loss)` in the loop of `train`."""
    body = "".join(
        f"    {line}\n" for line in ACCUMULATING.replace("loss.back", "scaler.scale(loss).back").splitlines()[2:]
    )
    text = (
        f"def train(model, loader, optimizer):\n    total = 0\n{body}        total += loss.item()\n    return total\n"
    )
    main = "model = DDP(nn.Linear(2, 2))\nloss = train(model, data, optimizer)\n"
    assert "model.no_sync():" in patched(choice(text + main), "no_sync=True")
    gives = (text + main).replace("return total", "return model, total").replace("loss = train", "loss, total = train")
    assert of(choice(gives), "no_sync=True") is None


def test_gradients_must_be_left_alone_in_all_of_the_loop_and_behind_its_last_pass() -> None:
    head, body = ACCUMULATING.split("    y = x.cos()\n")
    nested = head + "    with timer:\n" + "".join(f"    {line}\n" for line in body.splitlines())
    assert of(choice(nested), "no_sync=True")
    for behind in ("    shrink(model.weight.grad)\n", "    shrink(model)\n"):
        found = choice(nested + behind)
        assert any("each pass" in each for each in found.left), found.left
    start, loop = ACCUMULATING.split("for i, x", 1)
    epochs = start + "for epoch in range(9):\n" + "".join(f"    {line}\n" for line in f"for i, x{loop}".splitlines())
    assert of(choice(epochs + "    save(model)\n"), "no_sync=True")
    found = choice(epochs + "    record(model.weight.grad)\n")
    assert any("behind the last one, by train.py:17" in each for each in found.left), found.left


@pytest.mark.parametrize(
    ("name", "parser", "is_tried"),
    [
        ("opts", "argparse.ArgumentParser().parse_args()", True),
        ("opt", "argparse.ArgumentParser().parse_args()", True),
        ("opt", "torch.optim.SGD([torch.ones(1)], lr=0.1)", False),
        ("kit", "argparse.ArgumentParser().parse_args()", False),
    ],
)
def test_options_that_a_constructor_keeps_stay(name: str, parser: str, is_tried: bool) -> None:
    start = f"class Trainer:\n    def __init__(self, {name}):\n        self.{name} = {name}\n"
    body = ACCUMULATING.replace("% 4", f"% self.{name}.accum")
    fit = "    def fit(self, loader):\n" + "".join(f"        {line}\n" for line in body.splitlines())
    found = choice(f"import argparse\n{start}{fit}{name} = {parser}\nTrainer({name}).fit(loader)\n")
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left


@pytest.mark.parametrize(
    ("method", "is_tried"),
    [("", True), ("    def more(self):\n        self.passes += 1\n", False)],
)
def test_what_a_constructor_alone_sets_stays(method: str, is_tried: bool) -> None:
    start = "class Trainer:\n    def __init__(self):\n        self.passes = 4\n"
    body = ACCUMULATING.replace("% 4", "% self.passes")
    fit = "    def fit(self, loader):\n" + "".join(f"        {line}\n" for line in body.splitlines())
    assert (of(choice(start + method + fit), "no_sync=True") is not None) == is_tried


def test_a_step_for_the_rest_in_another_file_keeps_gradients_summed_in_each_pass() -> None:
    Path("rest.py").write_text("def finish(optimizer):\n    optimizer.step()\n")
    Path("train.py").write_text(HEAD + ACCUMULATING)
    found = candidates_of(["train.py", "rest.py"], frozenset(CHANGES), SeenRanks())
    assert of(found, "no_sync=True") is None
    assert any("an optimizer steps at rest.py:2, too" in each for each in found.left), found.left


@pytest.mark.parametrize("name", ["warmup_optimizer", "prof_opt", "lr_opt", "self.warm_up_adam"])
def test_an_optimizer_that_has_the_name_of_a_schedule_as_well_is_one(name: str) -> None:
    found = choice(f"{ACCUMULATING}{name}.step()\n")
    assert of(found, "no_sync=True") is None
    assert any("an optimizer steps at train.py:16, too" in each for each in found.left), found.left


@pytest.mark.parametrize(
    ("behind", "before", "is_tried"),
    [
        ("flush(optimizer)", "", False),
        ("flush([model, optimizer])", "", False),
        ("flush(of=kept)", "kept = optimizer\n", False),
        ("finish(optimizer)", "def finish(o):\n    flush(o)\n", False),
        ("finish(*[optimizer])", "def finish(o):\n    pass\n", False),
        ("finish(optimizer)", "def finish(o):\n    print(o)\n    for g in o.param_groups: g['lr'] = 0.1\n", True),
        ("torch.save(optimizer.state_dict(), 'last.pt')", "", True),
        ("schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)", "", True),
        ("record(optimizer.param_groups[0]['lr'])", "", True),
        ("save(model)", "", True),
        ("", "model, optimizer = prepare(model, optimizer)\n", True),
    ],
)
def test_nobody_else_gets_the_optimizer_behind_the_loop(behind: str, before: str, is_tried: bool) -> None:
    start, loop = ACCUMULATING.split("for i, x", 1)
    once = f"for i, x{loop}"
    epochs = "for epoch in range(9):\n" + "".join(f"    {line}\n" for line in once.splitlines())
    for text in (f"{once}{behind}\n", f"{epochs}    {behind}\n", epochs.replace("9):\n", f"9):\n    {behind}\n")):
        found = choice(start + before + text)
        assert (of(found, "no_sync=True") is not None) == is_tried, found.left
        assert is_tried or any("gets the optimizer behind passes" in each for each in found.left), found.left
    body = "".join(f"    {line}\n" for line in once.splitlines()).replace("optimizer.", "opt.")
    main = f"{start}{before}train(model, loader, optimizer)\n{behind}\n"
    called = choice(f"def train(model, loader, opt):\n{body}{main}")
    assert (of(called, "no_sync=True") is not None) == is_tried, called.left


def test_what_steps_and_moves_no_weights_does_not_keep_gradients_summed_in_each_pass() -> None:
    text = ACCUMULATING.replace("    y = x.cos()\n", "    y = x.cos()\n    profiler.step()\n") + "lr_scheduler.step()\n"
    assert "model.no_sync():" in patched(choice(text), "no_sync=True")


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


def test_a_line_that_cannot_be_edited_is_named_with_the_patch_it_was_for() -> None:
    found = choice(
        "model = DDP(net)\nloader = DataLoader(a, num_workers=N)\nN = 4\n",
        ranks=SeenRanks(4, loaders_read=[["train.py", 8, 8]]),
    )
    assert "num_workers=1 is not tried: train.py:8 cannot be edited without a doubt" in found.left
    spread = ACCUMULATING.replace("if (i + 1) % 4 == 0:", "if (\n        (i + 1)\n        % 4 == 0\n    ):")
    left = choice(spread).left
    assert "no_sync=True is not tried: train.py:12 cannot be edited without a doubt" in left, left


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


def test_the_search_for_unused_parameters_is_left_out_where_nothing_says_that_it_is_needed() -> None:
    text = "model = DDP(nn.Linear(2, 2), find_unused_parameters=True)\n"
    key = "find_unused_parameters=False"
    assert patched(choice(text), key) == HEAD + "model = DDP(nn.Linear(2, 2))\n"
    frozen = choice(text + "model.module.freeze_backbone()\n")
    assert of(frozen, key) is None
    assert any("parts are frozen" in each for each in frozen.left)
    assert of(choice(text.replace("True", "flag")), key) is None
    candidate = of(choice(text), key)
    assert candidate is not None and candidate.fix.safety == "unsafe"  # a later step may leave one unused
    Path("parts.py").write_text("def start(net):\n    net.body.requires_grad_(False)\n")
    elsewhere = candidates_of(["train.py", "parts.py"], frozenset(CHANGES), SeenRanks())
    assert of(elsewhere, key) is None


def test_compressed_communication_is_a_hook_behind_the_wrapping_and_has_to_be_allowed() -> None:
    text = "model = DDP(nn.Linear(2, 2))\nrun(model)\n"
    found = choice(text)
    line = "model = DDP(nn.Linear(2, 2))\nmodel.register_comm_hook(None, fp16_compress_hook)\nrun(model)\n"
    assert patched(found, "comm_hook='fp16_compress_hook'").endswith(line)
    assert of(found, "comm_hook='bf16_compress_hook'") is None  # torch refuses it on gloo
    assert of(choice(text, ranks=SeenRanks(backend="nccl")), "comm_hook='bf16_compress_hook'")
    safe = choice(text, frozenset({"rounding"}))
    assert of(safe, "comm_hook='fp16_compress_hook'") is None
    assert any("--allow precision tries it" in each for each in safe.left)
    own = choice(text + "model.register_comm_hook(None, hook)\n")
    assert any("one of its own" in each for each in own.left)
    assert any("no name" in each for each in choice("run(DDP(nn.Linear(2, 2)))\n").left)


def test_an_optimizer_is_spread_over_the_ranks() -> None:
    text = "model = DDP(nn.Linear(2, 2))\noptimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
    key = "optimizer='ZeroRedundancyOptimizer'"
    assert "ZeroRedundancyOptimizer(model.parameters(), lr=0.1, optimizer_class=torch.optim.AdamW)" in patched(
        choice(text), key
    )
    by_place = choice(text.replace("lr=0.1", "0.1"))
    assert any("by position" in each for each in by_place.left)
    two = choice(text + text.splitlines()[1].replace("optimizer =", "other ="))
    assert any("makes 2 optimizers" in each for each in two.left)


@pytest.mark.parametrize(
    ("behind", "line"),
    [
        ("torch.save(optimizer.state_dict(), 'last.pt')\n", 9),
        ("torch.save({'optimizer': optimizer}, 'last.pt')\n", 9),
        ("optimizer.load_state_dict(torch.load('last.pt'))\n", 9),
        ("save_all(model, optimizer)\n", 9),
        ("states = [each.state_dict() for each in (model, optimizer)]\n", 9),
        ("other = optimizer\n", 9),
        ("def save(o):\n    torch.save(o.state_dict(), 'last.pt')\nsave(optimizer)\n", 10),
        ("def save(o):\n    torch.save(o.state_dict(), 'last.pt')\nsave(o=optimizer)\n", 10),
        ("def save(*, o):\n    torch.save(o.state_dict(), 'last.pt')\nsave(o=optimizer)\n", 10),
        ("def save(**o):\n    torch.save(o['a'].state_dict(), 'last.pt')\nsave(a=optimizer)\n", 11),
        ("def save(*o):\n    torch.save(o[0].state_dict(), 'last.pt')\nsave(optimizer)\n", 11),
        ("def train(o):\n    o.step()\n    keep(o)\ntrain(optimizer)\n", 11),
        ("trainer.optimizer.state_dict()\n", 9),
        ("def train(o):\n    o.step()\ntrain(optimizer)\n", 0),
        ("schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)\nschedule.state_dict()\n", 0),
        ("from transformers import get_scheduler\nget_scheduler('linear', optimizer=optimizer)\n", 0),
        ("from transformers import get_linear_schedule_with_warmup as warm\nwarm(optimizer, 1, 2)\n", 0),
        ("from transformers import Trainer\nTrainer(optimizer)\n", 10),
        ("scaler.unscale_(optimizer)\nscaler.step(optimizer)\noptimizer.zero_grad()\n", 0),
        ("optimizer.param_groups[0]['lr'] = 0.1\nmodel.state_dict()\n", 0),
    ],
)
def test_an_optimizer_whose_state_is_asked_for_is_not_spread_over_the_ranks(behind: str, line: int) -> None:
    text = "model = DDP(nn.Linear(2, 2))\noptimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
    found = choice(text + behind)
    assert (of(found, "optimizer='ZeroRedundancyOptimizer'") is None) == bool(line), found.left
    assert not line or any(f"train.py:{line} reads the optimizer's state" in each for each in found.left), found.left


@pytest.mark.parametrize(
    ("body", "is_tried"), [("o.param_groups[0]['lr'] = 0.1", True), ("torch.save(o.state_dict(), 'last.pt')", False)]
)
@pytest.mark.parametrize(
    "call", ["from lib import rate\nrate.adjust(optimizer)\n", "from lib.rate import adjust\nadjust(o=optimizer)\n"]
)
def test_an_optimizer_is_followed_into_the_function_of_another_file(call: str, body: str, is_tried: bool) -> None:
    Path("lib").mkdir()
    Path("lib/rate.py").write_text(f"import torch\ndef adjust(o):\n    {body}\n")
    text = "model = DDP(nn.Linear(2, 2))\noptimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
    Path("train.py").write_text(HEAD + text + call)
    for files in (["train.py", "lib/rate.py"], ["train.py"]):
        found = candidates_of(files, frozenset(CHANGES), SeenRanks())
        assert bool(of(found, "optimizer='ZeroRedundancyOptimizer'")) == (is_tried and len(files) == 2), found.left


def test_an_optimizer_without_a_name_and_one_that_another_file_saves_are_not_spread_over_the_ranks() -> None:
    key, head = "optimizer='ZeroRedundancyOptimizer'", "model = DDP(nn.Linear(2, 2))\n"
    assert of(choice(head + "run(torch.optim.AdamW(model.parameters()))\n"), key) is None
    Path("save.py").write_text("def save(trainer):\n    return trainer.optimizer.state_dict()\n")
    Path("train.py").write_text(HEAD + head + "optimizer = torch.optim.AdamW(model.parameters())\n")
    assert of(candidates_of(["train.py"], frozenset(CHANGES), SeenRanks()), key)
    assert of(candidates_of(["train.py", "save.py"], frozenset(CHANGES), SeenRanks()), key) is None


@pytest.mark.parametrize(
    ("argument", "cores", "numbers"),
    [
        ("", 1, [1]),
        (", num_workers=0", 4, [1, 4]),
        (", num_workers=8", 2, [0, 1, 2]),
        (", num_workers=8, persistent_workers=True", 2, [1, 2]),
        (", num_workers=2", 2, [1]),
        (", num_workers=args.workers", 2, []),
    ],
)
def test_workers_of_all_ranks_share_the_cores(argument: str, cores: int, numbers: list[int]) -> None:
    text = f"model = DDP(net)\nloader = DataLoader(data, sampler=DistributedSampler(data){argument})\n"
    found = choice(text + "other = DataLoader(held_out)\n", ranks=SeenRanks(cores, loaders_read=[["train.py", 8, 8]]))
    tried = [each for each in found.candidates if "num_workers" in each.settings]
    assert [each.settings["num_workers"] for each in tried] == numbers
    assert {(each.fix.safety, each.fix.changes) for each in tried} <= {("unsafe", ("rng",))}  # as the dataloader knob's
    assert bool(numbers) or any("no number in the text" in each for each in found.left)


def test_workers_that_would_each_read_all_of_an_iterable_dataset_are_not_tried() -> None:
    text = "model = DDP(net)\nloader = DataLoader(stream)\n"
    found = choice(text, ranks=SeenRanks(2, loaders_read=[["train.py", 8, 8]], reads_iterable=True))
    assert not [each for each in found.candidates if "num_workers" in each.settings]
    assert any("gives the same samples again" in each for each in found.left), found.left


def test_workers_are_told_in_numbers_of_one_and_of_more() -> None:
    text, read = "model = DDP(net)\nloader = DataLoader(data)\n", [["train.py", 8, 8]]
    words = [each.words for each in choice(text, ranks=SeenRanks(1, loaders_read=read)).candidates]
    assert "load with 1 worker on each rank; this node has 1 core for each" in words
    words = [each.words for each in choice(text, ranks=SeenRanks(4, loaders_read=read)).candidates]
    assert "load with 4 workers on each rank; this node has 4 cores for each" in words


@pytest.mark.parametrize(
    ("read", "line", "why"),
    [
        ([8], 8, ""),
        ([9], 9, ""),  # of the other one, although it shares nothing out
        ([8, 9], 0, "steps read 2 loaders: train.py:8, train.py:9"),
        ([], 0, "steps have read none of the 2 loaders that the files make by name"),
    ],
)
def test_the_loader_is_the_one_that_steps_have_read(read: list[int], line: int, why: str) -> None:
    text = "model = DDP(net)\nfirst = DataLoader(a, sampler=DistributedSampler(a))\nsecond = DataLoader(b)\n"
    found = choice(text, ranks=SeenRanks(2, loaders_read=[["train.py", each, each] for each in read]))
    assert {each.location.line for each in found.candidates if "num_workers" in each.settings} == ({line} - {0})
    assert not why or any(why in each for each in found.left), found.left


def test_parameters_that_are_sharded_may_stay_gathered() -> None:
    text = "from torch.distributed.fsdp import fully_shard\nfor layer in layers:\n    fully_shard(layer)\nfully_shard(net)\n"
    found = choice(text)
    assert patched(found, "reshard_after_forward=False").count(", reshard_after_forward=False)") == 2
    own = choice(text.replace("fully_shard(net)", "fully_shard(net, reshard_after_forward=True)"))
    assert of(own, "reshard_after_forward=False") is None
    assert any("sets it itself" in each for each in own.left)


def test_each_gradient_is_moved_by_its_last_bit_where_the_wrapped_model_has_a_name() -> None:
    moved = choice("model = DDP(nn.Linear(2, 2))\nrun(model)\n").moved
    assert moved is not None
    assert moved.path == "train.py"
    assert moved.nudged.splitlines()[-2].endswith("for _n, _w in enumerate(model.parameters()) if _w.requires_grad]")
    assert [
        text.count(f"grad * (1 + {share} * ") for text, share in zip(moved[1:], ("2**-23", "1.0"), strict=True)
    ] == [1, 1]
    assert choice("run(DDP(nn.Linear(2, 2)))\n").moved is None
    own = choice("class A:\n    def __init__(self):\n        self.model = DDP(nn.Linear(2, 2))\n").moved
    assert own is not None and "enumerate(self.model.parameters())" in own.spoiled


def test_batch_norm_over_ranks_is_only_named() -> None:
    found = choice("model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net))\n")
    assert any("SyncBatchNorm is left as it is" in each for each in found.left)
