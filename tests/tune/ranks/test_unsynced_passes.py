"""What uses gradients between the passes of an accumulation, so that no pass may leave them unsummed."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_choices import ACCUMULATING, BACKWARD, HEAD, choice, of, patched

from perfaudit.findings import CHANGES
from perfaudit.tune.ranks.candidates import candidates_of
from perfaudit.tune.ranks.patches import SeenRanks


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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
        # weights that are kept one by one
        ("shrink(ps)", "ps = []\nfor p in model.parameters():\n    if p.requires_grad:\n        ps.append(p)\n", False),
        (
            "shrink(ps)",
            "ps = []\nfor g in optimizer.param_groups:\n    for p in g['params']:\n        ps.append(p)\n",
            False,
        ),
        ("shrink(ps)", "ps = {}\nfor name, p in model.named_parameters():\n    ps[name] = p\n", False),
        ("shrink(ps)", "ps = []\nfor p in model.parameters():\n    ps += [p]\n", False),
        ("shrink(ps)", "ps = []\nps += model.parameters()\n", False),
        ("shrink(ps)", "ps = list(model.parameters()) + list(net.parameters())\n", False),
        ("shrink(ps)", "ps = set(model.parameters()) - set(net.parameters())\n", False),
        ("shrink(ps)", "ps = {p: 0 for p in model.parameters()}\n", False),
        ("record(n)", "n = 0\nfor p in model.parameters():\n    n += p.numel()\n", True),
        (
            "record(p)",
            "for p in model.parameters():\n    p.requires_grad = True\n",
            True,
        ),  # another thing of the same name
        # numbers, answers and texts of a model
        ("x = x.to(data)", "data = build(max(int(model.stride.max()), 32))\n", True),
        ("x = run(use)", "use = optimizer is not None\n", True),
        ("x = run(use)", "use = 1 if model else 2\n", True),
        ("record(words)", "words = f'{model}'\n", True),
        ("record(sizes)", "sizes = [p.numel() for p in model.parameters()]\n", True),
        ("record(few)", "few = 0.5 * model.config.width\n", True),
        # who got the model in a statement
        ("lib.clip(1)", "import lib\nlib.register(model)\n", False),
        ("clip(1)", "from lib import clip, register\nregister(model)\n", False),
        ("run()", "import lib\nlib.register(model)\ndef run():\n    lib.clip(1)\n", False),
        ("lib.clip(1)", "import lib\nlib.start(1)\n", True),
        ("clip.apply()", "clip.attach(model)\n", False),
        ("clip.apply()", "clip.attach(to=optimizer)\n", False),
        ("clip.apply()", "clip.model = model\n", False),
        ("clip.apply()", "setattr(clip, 'model', model)\n", False),
        ("clip.apply()", "clip.width = 3\n", True),
        ("x = x.to(args.device)", "args.groups = optimizer.param_groups\n", True),
        ("lib.clip(1)", "import lib\nlib.model = model\n", False),
        (
            "wandb.log({'loss': loss})",
            "import wandb\nwandb.watch(model)\n",
            True,
        ),  # by hooks, before anything is summed
        ("log.info(loss)", "log.info(model)\n", True),
        ("hooks.run()", "hooks.add_model(model)\n", False),
        ("shrink(two)", "two = [model] * 2\n", False),
        ("writer.add_scalar('loss', loss)", "writer.add_graph(model, x)\n", True),
        ("apply()", "def attach(n):\n    box.n = n\ndef apply():\n    shrink(box.n)\nattach(model)\n", False),
        ("apply()", "def attach(n):\n    global N\n    N = n\ndef apply():\n    shrink(N)\nattach(model)\n", False),
        # hooks that see what has added up
        ("", "def hook(g):\n    return g + w.grad\nw.register_hook(hook)\n", False),
        ("", "w.register_hook(lambda g: g + w.grad)\n", False),
        ("", "def make(p):\n    return lambda g: g + p.grad\nw.register_hook(make(w))\n", False),
        ("", "w.register_hook(lambda g: 2 * g)\n", True),
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
        ("for j, group in enumerate(optimizer.param_groups): group['lr'] = group.get('scale', 1) * 0.1", "", True),
        ("for group in optimizer.param_groups: group['lr'] = 0.9 if 'momentum' in group else 0.1", "", True),
        ("for j, group in enumerate(optimizer.param_groups): shrink(group)", "", False),
        ("for j, group in enumerate(optimizer.param_groups): shrink(group.get('params'))", "", False),
        ("for j, p in enumerate(model.parameters()): shrink(p)", "", False),
        ("record(list(model.parameters()))", "", False),
        ("z = model.module.generate(x)\n    record(z)", "", True),
        ("record(look(model))", "def look(net):\n    found = net.generate(x)\n    return list(found.cpu())\n", True),
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
        ("optimizer.second_step()", "", False),
        ("optimizer.zero_grad()", "", True),
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


MOVED = "".join(f"def {a}(x):\n    return {b}(x)\n" for a, b in ("ab", "bc", "cd", ("d", "print"), ("moved", "a")))
IN_TRAINER = """\
class Trainer(Base):
    def __init__(self, model):
        self.model = DDP(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.calls, self.meter, self.loss = calls.Calls(self), Meter(), nn.MSELoss()
    def shown(self):
        lib.clip(self.model)
    def behind(self):
        self.unseen()
    def telling(self):
        fire(self)
    def moving(self, x):
        return moved(x)
    def fit(self, loader):
"""


@pytest.mark.parametrize(
    ("behind", "is_tried"),
    [
        ("self.unseen()", False),  # of a class that no file has
        ("super().unseen()", False),
        ("self.of_base()", False),
        ("self.shown()", False),
        ("self.behind()", False),
        ("self.telling()", False),
        ("x = self.moving(x)", True),
        ("self.quiet()", True),
        ("fire(self)", False),
        ("fire('end', trainer=self)", False),
        ("self.calls.end()", False),
        ("self.log('loss', loss)", True),
        ("self.log_gradients()", False),
        ("self.meter.update(loss)", True),
        ("z = self.loss(y, x)", True),
        ("super(Trainer, self).train()", True),
    ],
)
def test_methods_of_the_object_with_the_model_are_looked_at_in_whichever_file(behind: str, is_tried: bool) -> None:
    Path("base.py").write_text(
        "import lib\nclass Base(lib.Trainer):\n    def of_base(self):\n        lib.clip(self.model)\n"
        "    def quiet(self):\n        return self.model(x)\n"
    )
    body = "".join(f"        {line}\n" for line in ACCUMULATING.splitlines()[2:])
    body = body.replace("model(", "self.model(").replace("optimizer.", "self.optimizer.")
    body = body.replace("loss.backward()\n", f"loss.backward()\n            {behind}\n")
    Path("train.py").write_text(f"{HEAD}import calls\nimport lib\nfrom base import Base\n{MOVED}{IN_TRAINER}{body}")
    found = candidates_of(["train.py", "base.py"], frozenset(CHANGES), SeenRanks())
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left


@pytest.mark.parametrize(
    ("made", "given", "is_tried"),
    [
        ("clip = AGC(model)", "clip", False),
        ("agc = AGC(model)", "agc", False),
        ("agc = AGC(model.parameters())", "clip=agc", False),
        ("clip = AGC(0.1)", "clip", True),
    ],
)
def test_what_the_function_of_the_loop_gets_from_another_file_may_have_the_model(
    made: str, given: str, is_tried: bool
) -> None:
    start, loop = ACCUMULATING.split("for i, x", 1)
    body = f"for i, x{loop}".replace(BACKWARD, f"{BACKWARD}    clip.apply()\n")
    Path("engine.py").write_text(
        "import torch\ndef train(model, loader, optimizer, clip):\n"
        + "".join(f"    {line}\n" for line in body.splitlines())
    )
    main = "".join(f"    {line}\n" for line in [*start.splitlines(), made, f"train(model, loader, optimizer, {given})"])
    Path("train.py").write_text(f"{HEAD}from engine import train\ndef main():\n{main}main()\n")
    found = candidates_of(["train.py", "engine.py"], frozenset(CHANGES), SeenRanks())
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left


def test_a_model_of_another_file_is_had_by_functions_that_import_it() -> None:
    start, loop = ACCUMULATING.split("for i, x", 1)
    body = "".join(
        f"    {line}\n" for line in f"for i, x{loop}".replace(BACKWARD, f"{BACKWARD}    more.run()\n").splitlines()
    )
    fit = f"def fit(model, loader, optimizer):\n{body}fit(model, loader, optimizer)\n"
    Path("net.py").write_text(HEAD + start)
    Path("train.py").write_text(f"{HEAD}from net import model, optimizer\nimport more\n{fit}")
    for run, is_tried in (("lib.clip(model)", False), ("return model(1)", True)):
        Path("more.py").write_text(f"import lib\nfrom net import model\ndef run():\n    {run}\n")
        found = candidates_of(["train.py", "net.py", "more.py"], frozenset(CHANGES), SeenRanks())
        assert (of(found, "no_sync=True") is not None) == is_tried, found.left


OWN_PASS = """\
for x in held_out:
    optimizer.zero_grad()
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("old", "new", "is_tried"),
    [
        ("", "", True),
        (
            "    optimizer.step()",
            "    if scaler:\n        scaler.step(optimizer)\n    else:\n        optimizer.step()",
            True,
        ),
        ("    optimizer.zero_grad()\n", "", False),
        ("optimizer.zero_grad()", "other.zero_grad()", False),
        ("    loss.backward()", "    if ok:\n        loss.backward()", False),
        ("    loss.backward()\n", "", False),
        ("    optimizer.step()", "    optimizer.zero_grad()\noptimizer.step()", False),
    ],
)
def test_a_step_with_a_pass_of_its_own_has_no_other_gradients(old: str, new: str, is_tried: bool) -> None:
    found = choice(ACCUMULATING + OWN_PASS.replace(old, new))
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left


@pytest.mark.parametrize(
    ("behind", "is_tried"),
    [
        ("state.after_pass()", False),
        ("record(state)", False),
        ("state.log(loss)", True),
        ("state.meter.update(loss)", True),
    ],
)
def test_an_object_that_has_the_model_need_not_be_called_self(behind: str, is_tried: bool) -> None:
    start, loop = ACCUMULATING.split("for i, x", 1)
    body = f"for i, x{loop}".replace("model(", "state.model(").replace("optimizer.", "state.optimizer.")
    body = "".join(f"    {line}\n" for line in body.replace(BACKWARD, f"{BACKWARD}    {behind}\n").splitlines())
    found = choice(f"{start}def train(state, loader):\n{body}train(State(model, optimizer), loader)\n")
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left


@pytest.mark.parametrize(
    ("body", "is_tried"), [("return model(x).mean()", True), ("lib.clip(model)", False), ("lib.clip(self.kept)", False)]
)
@pytest.mark.parametrize("call", ["self.loss_of(model, y)", "self.loss_of(y, model)", "self.loss_of(y)"])
def test_what_a_subclass_does_in_the_place_of_a_method_counts(call: str, body: str, is_tried: bool) -> None:
    taken = call.partition("(")[2].replace("y", "x").rstrip(")")
    start, loop = ACCUMULATING.split("for i, x", 1)
    base = "class Base:\n    def __init__(self, model):\n        self.kept = model\n"
    base += f"    def loss_of(self, {taken}):\n        raise NotImplementedError\n    def fit(self, loader, model, optimizer):\n"
    base += "".join(
        f"        {line}\n" for line in f"for i, x{loop}".replace("model(y)", f"model(y) + {call}").splitlines()
    )
    Path("base.py").write_text(base)
    Path("train.py").write_text(
        f"{HEAD}import lib\nfrom base import Base\n{start}class Net(Base):\n    def loss_of(self, {taken}):\n        {body}\n"
        "Net(model).fit(loader, model, optimizer)\n"
    )
    found = candidates_of(["train.py", "base.py"], frozenset(CHANGES), SeenRanks())
    assert (of(found, "no_sync=True") is not None) == is_tried, found.left
