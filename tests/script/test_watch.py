"""Steps and phases of training loops of every rhythm, each a program of its own in a fork of one process.

The clock stands still but where a program says that something takes time, so that shares are exact.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from forked_programs import run_programs

from perfaudit.script.observe import Seen
from perfaudit.script.samples import count_samples
from perfaudit.script.summary import summarize

pytestmark = pytest.mark.slow

HEAD = """
import json, sys, time
from perfaudit.script.watch import Watch
NOW = [0.0]
def take(seconds):
    NOW[0] += seconds
class Slow(Watch):
    def _time_models(self):
        take(100.0)  # ours, and no part of a step
        super()._time_models()
WATCH = Slow(lambda optimizer: None, lambda: NOW[0])
WATCH.wait_for_torch()
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)

class Rows(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, index):
        take(0.25)
        return torch.randn(8), torch.randn(1)

class Forward(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 1))
    def forward(self, x):
        take(2.0)
        return self.layers(x)

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        take(3.0)
        return grad

def mean(output):
    take(1.0)
    return Slow.apply(output.mean())

def small():
    return Forward()
"""
TAIL = """
print(json.dumps({"updates": WATCH.take_records(), "backwards": WATCH.counts.backwards}))
"""
PROGRAMS = {
    "plain": """
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in DataLoader(Rows(), batch_size=4):
        optimizer.zero_grad()
        loss = mean(model(x) - y)
        loss.backward()
        optimizer.step()
        take(1.0)
""",
    "debugged": """
import bdb
class Debugger(bdb.Bdb):
    def user_line(self, frame):
        take(100.0)
        self.set_continue()
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(8):
    loss = mean(model(torch.randn(4, 8)))
    if number % 2:
        Debugger().set_trace()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    take(1.0)
""",
    "recomputed": """
class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, model):
        ctx.model, ctx.x = model, x
        with torch.no_grad():
            return model(x)
    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            x = ctx.x.detach().requires_grad_()
            return torch.autograd.grad(model(x), x, grad)[0], None
model = small()
first = nn.Linear(8, 8)
optimizer = torch.optim.SGD([*first.parameters(), *model.parameters()], lr=0.1)
for _ in range(8):
    x = first(torch.randn(4, 8))
    loss = mean(Adjoint.apply(x, model))
    loss.backward()
    take(1.0)
    optimizer.step()
    optimizer.zero_grad()
""",
    "gan": """
d, g = small(), small()
first, second = (torch.optim.Adam(each.parameters()) for each in (d, g))
for x, y in DataLoader(Rows(), batch_size=4):
    first.zero_grad(); d(x).mean().backward(); first.step()
    second.zero_grad(); g(x).mean().backward(); second.step()
""",
    "critic": """
d, g = small(), small()
first, second = (torch.optim.Adam(each.parameters()) for each in (d, g))
for number in range(18):
    x = torch.randn(4, 8)
    first.zero_grad(); d(x).mean().backward(); first.step()
    if number % 3 == 2:
        second.zero_grad(); g(x).mean().backward(); second.step()
""",
    "accumulation": """
model = small()
optimizer = torch.optim.AdamW(model.parameters())
for number, (x, y) in enumerate(DataLoader(Rows(), batch_size=2)):
    (model(x).mean() / 4).backward()
    if number % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
""",
    "closure": """
model = small()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
x, y = torch.randn(4, 8), torch.randn(4, 1)
def closure():
    optimizer.zero_grad()
    loss = mean((model(x) - y) ** 2)
    loss.backward()
    return loss
for _ in range(6):
    optimizer.step(closure)
""",
    "long_update": """
model = small()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=100, max_eval=80, tolerance_grad=0, tolerance_change=0)
x, y = torch.randn(4, 8), torch.randn(4, 1)
def closure():
    optimizer.zero_grad()
    loss = mean((model(x) - y) ** 2) + torch.rand(())
    loss.backward()
    return loss
optimizer.step(closure)
""",
    "told_to_make_many": """
model = small()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=10, max_eval=1000, tolerance_grad=0, tolerance_change=0)
x, y = torch.randn(4, 8), torch.randn(4, 1)
def closure():
    optimizer.zero_grad()
    loss = mean((model(x) - y) ** 2) + torch.rand(())
    loss.backward()
    return loss
optimizer.step(closure)
optimizer.step(closure=closure)
""",
    "skipping_scaler": """
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 127, growth_interval=1000)
for x, y in DataLoader(Rows(), batch_size=4):
    optimizer.zero_grad()
    scaler.scale(((model(x) - y) ** 2).mean()).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "scaler_that_skips_at_first": """
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 127, growth_interval=1000)
for _ in range(12):
    optimizer.zero_grad()
    scaler.scale(1000 * (model(torch.randn(4, 8)) ** 2 + 1).mean()).backward()
    scaler.step(optimizer)
    scaler.update()
assert scaler.get_scale() < 2.0 ** 121  # more than six were skipped
""",
    "no_optimizer": """
model = small()
for _ in range(6):
    loss = model(torch.randn(4, 8)).mean()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
            p.grad = None
""",
    "unused_optimizer": """
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2006):
    loss = model(torch.randn(4, 8)).mean()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
            p.grad = None
""",
    "functions": """
weight = torch.randn(8, 1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(6):
    x = torch.randn(4, 8)
    optimizer.zero_grad()
    take(2.0)
    mean(x @ weight).backward()
    optimizer.step()
""",
    "zeroed_last": """
weight = torch.randn(8, 1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(6):
    x = torch.randn(4, 8)
    take(2.0)
    loss = mean(x @ weight)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "autograd_grad": """
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Rows(), batch_size=4):
    grads = torch.autograd.grad(model(x).mean(), list(model.parameters()))
    for p, g in zip(model.parameters(), grads):
        p.grad = g
    optimizer.step()
""",
    "sharpness": """
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Rows(), batch_size=4):
    for is_second in (False, True):
        optimizer.zero_grad()
        model(x).mean().backward()
    optimizer.step()
""",
    "penalty": """
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Rows(), batch_size=4):
    x = x.requires_grad_()
    loss = model(x).mean()
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    optimizer.zero_grad()
    (loss + slope.pow(2).sum()).backward()
    optimizer.step()
""",
    "evaluation": """
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in DataLoader(Rows(), batch_size=4):
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    with torch.no_grad():
        for x, y in DataLoader(Rows(), batch_size=4):
            model(x)
""",
    "average": """
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda a, b, n: (take(1.0), a)[1])
for x, y in DataLoader(Rows(), batch_size=4):
    optimizer.zero_grad()
    loss = mean(model(x))
    loss.backward()
    optimizer.step()
    average.update_parameters(model)
    loss.item()
""",
    "transforms": """
class Scale(nn.Module):
    def forward(self, x):
        take(0.5)
        return x * x.max().item()
class Scaled(Rows):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return scale(x), y
scale, model = Scale(), small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Scaled(), batch_size=4):
    optimizer.zero_grad()
    mean(model(x) - y).backward()
    optimizer.step()
""",
    "policy": """
policy = small()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
for _ in range(6):
    kept = []
    for _ in range(3):
        kept.append(policy(torch.randn(1, 8)))
        kept[-1].item()
        take(5.0)  # the environment
    optimizer.zero_grad()
    mean(torch.cat(kept)).backward()
    optimizer.step()
""",
    "actions": """
policy = small()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
for number in range(14):
    for _ in range(number % 7):
        policy(torch.randn(1, 8)).detach().numpy()
    loss = mean(policy(torch.randn(16, 8)))
    loss.item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "last_value": """
policy = small()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
for _ in range(6):
    kept = []
    for _ in range(5):
        kept.append(policy(torch.randn(4, 8)))
        kept[-1].mean().item()
    mean(torch.cat([*kept, policy(torch.randn(4, 8))])).backward()
    optimizer.step()
""",
    "episode": """
policy = small()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
for _ in range(6):
    kept = [policy(torch.randn(1, 8)) for _ in range(10)]
    mean(torch.cat(kept)).backward()
    optimizer.step()
""",
    "replay": """
value, policy = small(), small()
of_value, of_policy = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (value, policy))
for number in range(16):
    rows = torch.randn(4, 8)  # from a buffer
    mean(value(rows)).backward()
    of_value.step()
    if number % 2:
        mean(policy(rows)).backward()
        of_policy.step()
""",
    "gan_without_loader": """
generator, judge = small(), nn.Linear(1, 1)
of_generator, of_judge = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (generator, judge))
for _ in range(8):
    paintings = generator(torch.randn(4, 8))
    mean(judge(paintings)).backward()
    of_generator.step()
    mean(judge(torch.randn(4, 1)) - judge(paintings.detach())).backward()
    of_judge.step()
""",
    "whole_set": """
model, rows = small(), torch.randn(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    mean(model(rows)).backward()
    optimizer.step()
""",
    **{
        f"sequence_{name}": f"""
class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = {layer}
    def forward(self, x):
        return self.inside{call}
model = Sequences()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    mean(model(torch.randn(6, 3, 8))).backward()
    optimizer.step()
assert not any(module._forward_pre_hooks for module in model.modules())
"""
        for name, layer, call in (
            ("with_state", "nn.LSTM(8, 8)", "(x, (torch.zeros(1, 3, 8), torch.zeros(1, 3, 8)))[0]"),
            ("packed", "nn.GRU(8, 8)", "(nn.utils.rnn.pack_padded_sequence(x, [6, 5, 4]))[0].data"),
            ("masked", "nn.TransformerEncoderLayer(8, 2, 8)", "(x, src_mask=torch.zeros(6, 6))"),
            ("first", "nn.LSTM(8, 8, batch_first=True)", "(x)[0]"),
            ("turned", "nn.LSTM(8, 8)", "(x.transpose(0, 1))[0]"),
            ("by_default", "nn.LSTM(8, 8)", "(x)[0]"),
            ("unmasked", "nn.TransformerEncoderLayer(8, 2, 8)", "(x)"),
            ("without", "nn.Linear(8, 8)", "(x)"),
        )
    },
    "listed": """
class Lists(Dataset):
    def __len__(self):
        return 30
    def __getitem__(self, index):
        return torch.randn(3, 8, 8)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images in DataLoader(Lists(), batch_size=4, collate_fn=tuple):
    mean(model(torch.stack(images))).backward()
    optimizer.step()
""",
    "time_first": """
class Texts(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, index):
        return torch.randn(5 + index % 3, 8)
model = nn.LSTM(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for texts in DataLoader(Texts(), batch_size=4, collate_fn=nn.utils.rnn.pad_sequence):
    mean(model(texts)[0]).backward()
    optimizer.step()
""",
    "by_name": """
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    loss = mean(model.forward(torch.randn(4, 8)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    take(1.0)
""",
    "parts": """
class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Forward()
    def training_step(self, x):
        return mean(self.part(x))
model = Whole()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def closure():
    loss = model.training_step(torch.randn(4, 8))
    optimizer.zero_grad()
    loss.backward()
    return loss
for _ in range(12):
    optimizer.step(closure)
""",
    "copied": """
layer = nn.TransformerEncoderLayer(8, 2, 8)
model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    model(torch.randn(2, 3, 8)).mean().backward()
    optimizer.step()
timed = [kind.__name__ for kind in (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.Linear) if "__call__" in vars(kind)]
assert timed == ["TransformerEncoder"], timed
""",
    "sampled": """
WATCH.on_update = lambda optimizer: WATCH.watch_next(WATCH.counts.updates % 3 == 2)
model, other = small(), small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, (x, y) in enumerate(DataLoader(Rows(), batch_size=2)):
    optimizer.zero_grad()
    loss = mean(model(x) - y)
    loss.backward()
    optimizer.step()
    take(1.0)
    loss.item()
    if number in (6, 7, 8):
        with torch.no_grad():
            model(x), model(x)
""",
    "raising": """
class Raising(torch.optim.SGD):
    calls = 0
    @torch.no_grad()
    def step(self, closure=None):
        Raising.calls += 1
        if Raising.calls % 3 == 2:
            take(5.0)
            raise ValueError
        return super().step(closure)
model = small()
optimizer = Raising(model.parameters(), lr=0.1)
for _ in range(3):
    for x, y in DataLoader(Rows(), batch_size=8):
        try:
            mean(model(x)).backward()
            optimizer.step()
        except ValueError:
            pass
""",
    "values": """
from perfaudit.script.values import ValuesWatch, read_values
OWN = []
OTHER = ValuesWatch(lambda optimizer: None)
OTHER.put_in_place()
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for x, y in DataLoader(Rows(), batch_size=4):
    optimizer.zero_grad()
    loss = mean(model(x) - y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    OWN.append((loss.item(), torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9).item()))
VALUES = OTHER.take_records()
read_values(VALUES)
for (loss, norm), record in zip(OWN, VALUES, strict=True):
    assert abs(loss - record["loss"]) < 1e-6 and abs(norm - record["gradient_norm"]) < 1e-6 and norm > 0
""",
    "compiled_around": """
import torch._dynamo.trace_rules as rules
assert rules.check(WATCH._updates.before) and rules.check(torch.Tensor.item) and not rules.check(small)
""",
    "copies": """
import copy, io, pickle
model = small()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Rows(), batch_size=4):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
    other = copy.deepcopy(model)
    torch.save({"model": model, "optimizer": optimizer.state_dict()}, io.BytesIO())
    pickle.loads(pickle.dumps(model))
""",
}


@pytest.fixture(scope="module")
def seen_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Seen]:
    folder = tmp_path_factory.mktemp("programs")
    paths = {name: folder / f"{name}.py" for name in PROGRAMS}
    for name, text in PROGRAMS.items():
        paths[name].write_text(HEAD + text + TAIL)
    ended = run_programs({path: [] for path in paths.values()})

    def seen(name: str) -> Seen:
        result = ended[paths[name]]
        assert result.code == 0, result.err
        told: dict[str, Any] = json.loads(result.out.splitlines()[-1])
        return Seen(0.0, told["updates"], {"optimizers": [], "device": "cpu"}, "finished")

    return seen


@pytest.mark.parametrize(
    ("name", "steps", "updates", "backwards", "optimizers"),
    [
        ("plain", 16, 1, 1, 1),
        ("gan", 8, 2, 2, 2),
        ("critic", 6, 4, 4, 2),
        ("accumulation", 4, 1, 4, 1),
        ("skipping_scaler", 8, 1, 1, 1),
        ("no_optimizer", 6, 1, 1, 0),
        ("unused_optimizer", 7, 1, 1, 0),
        ("functions", 6, 1, 1, 1),
        ("autograd_grad", 8, 1, 1, 1),
        ("penalty", 8, 1, 2, 1),
        ("sharpness", 8, 1, 2, 1),
        ("evaluation", 24, 1, 1, 1),
        ("copies", 8, 1, 1, 1),
        ("raising", 8, 1, 1.25, 1),
        ("recomputed", 8, 1, 1, 1),
        ("values", 8, 1, 1, 1),
    ],
)
def test_a_step_is_what_the_loop_repeats(
    seen_of: Callable[[str], Seen], name: str, steps: int, updates: int, backwards: float, optimizers: int
) -> None:
    run = summarize(seen_of(name), name)
    assert (run.steps, run.updates_per_step, run.backwards_per_step) == (
        steps,
        updates,
        pytest.approx(backwards, abs=0.1),
    )
    assert (run.optimizers, run.is_regular) == (optimizers, True)
    assert sum(run.phases.values()) == pytest.approx(1)


def test_phases_of_a_plain_loop_are_exact(seen_of: Callable[[str], Seen]) -> None:
    """Four rows of 0.25 s, 2 s in the model and 1 s for the loss, 3 s backward, 1 s at the end of the loop's body."""
    run = summarize(seen_of("plain"), "plain")
    assert run.seconds_per_step == 8.0
    seconds = {name: 8 * share for name, share in run.phases.items() if share}
    assert seconds == pytest.approx({"data_wait": 1.0, "forward": 3.0, "backward": 3.0, "other": 1.0})
    assert (run.samples_per_second, run.limited_by) == (0.5, "compute")


def test_what_a_debugger_takes_where_it_stops_is_in_no_step(seen_of: Callable[[str], Seen]) -> None:
    run = summarize(seen_of("debugged"), "debugged")
    assert (run.seconds_per_step, run.mean_seconds_per_step, run.uneven) == (7.0, 7.0, 0)
    assert run.phases["forward"] == pytest.approx(3 / 7)


def test_a_model_that_the_backward_pass_calls_counts_for_it(seen_of: Callable[[str], Seen]) -> None:
    run = summarize(seen_of("recomputed"), "recomputed")
    seconds = {name: 9 * share for name, share in run.phases.items() if share}
    assert seconds == pytest.approx({"forward": 3.0, "backward": 5.0, "other": 1.0})


def test_gradients_that_are_only_taken_are_counted_apart(seen_of: Callable[[str], Seen]) -> None:
    assert summarize(seen_of("penalty"), "penalty").gradients_per_step == 1
    assert summarize(seen_of("autograd_grad"), "autograd_grad").gradients_per_step == 1
    assert summarize(seen_of("accumulation"), "accumulation").gradients_per_step == 0


@pytest.mark.parametrize(
    ("name", "number"), [("sharpness", 1), ("accumulation", 0), ("penalty", 0), ("plain", 0), ("gan", 0)]
)
def test_passes_whose_gradients_are_set_to_zero_are_counted_apart(
    seen_of: Callable[[str], Seen], name: str, number: int
) -> None:
    assert summarize(seen_of(name), name).backwards_zeroed == number


def test_a_closure_is_called_inside_the_update(seen_of: Callable[[str], Seen]) -> None:
    run = summarize(seen_of("closure"), "closure")
    assert run.steps == 6
    assert run.backwards_per_step > 1
    assert run.backwards_in_update == run.backwards_per_step
    assert run.samples_per_second is not None
    assert run.seconds_per_step is not None
    assert round(run.samples_per_second * run.seconds_per_step) == 4  # the same rows in each pass
    assert run.phases["forward"] == pytest.approx(0.5)
    assert run.phases["backward"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("long_update", 16),  # the 65th to the 80th
        ("told_to_make_many", 7 + 10),
    ],
)
def test_each_evaluation_is_a_step_where_an_update_makes_many(
    seen_of: Callable[[str], Seen], name: str, steps: int
) -> None:
    run = summarize(seen_of(name), name)
    assert (run.steps, run.updates_per_step, run.backwards_per_step) == (steps, 1, 1)
    assert run.samples_per_second is not None and run.seconds_per_step is not None
    assert round(run.samples_per_second * run.seconds_per_step) == 4
    assert run.phases["forward"] == pytest.approx(0.5)
    assert run.phases["backward"] == pytest.approx(0.5)


def test_forward_is_timed_where_it_is_called_by_its_name(seen_of: Callable[[str], Seen]) -> None:
    run = summarize(seen_of("by_name"), "by_name")
    seconds = {name: 7 * share for name, share in run.phases.items() if share}
    assert seconds == pytest.approx({"forward": 3.0, "backward": 3.0, "other": 1.0})


def test_what_loading_a_batch_calls_and_reads_is_waiting_for_it(seen_of: Callable[[str], Seen]) -> None:
    """Four rows, each 0.25 s to read and 0.5 s in a transform that is a module; then 2 s in the model, 1 s for the loss."""
    run = summarize(seen_of("transforms"), "transforms")
    seconds = {name: 9 * share for name, share in run.phases.items() if share}
    assert seconds == pytest.approx({"data_wait": 3.0, "forward": 3.0, "backward": 3.0})


def test_between_an_action_and_the_next_call_is_the_environment(seen_of: Callable[[str], Seen]) -> None:
    run = summarize(seen_of("policy"), "policy")
    seconds = {name: 25 * share for name, share in run.phases.items() if share}
    assert seconds == pytest.approx({"forward": 7.0, "backward": 3.0, "other": 15.0})


def test_samples_are_told_where_a_scaler_skips_the_first_steps(seen_of: Callable[[str], Seen]) -> None:
    """Models are looked for when an optimizer's update begins, and none begins in such a step."""
    assert [update["samples"] for update in seen_of("scaler_that_skips_at_first").updates[2:]] == [4] * 10


def test_an_action_chosen_with_gradients_is_no_sample_of_the_step(seen_of: Callable[[str], Seen]) -> None:
    """Whose loss is made of the batch alone. The first two updates are over when the models are watched."""
    assert [update["samples"] for update in seen_of("actions").updates[2:]] == [16] * 12


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("no_optimizer", 4), ("episode", None), ("last_value", None), ("policy", None), ("replay", 8), ("whole_set", 4),
        ("gan_without_loader", 4),
    ],
)  # fmt: skip
def test_samples_without_a_loader_are_those_of_the_models_inputs(
    seen_of: Callable[[str], Seen], name: str, samples: int | None
) -> None:
    """Of an episode with an action after the other it is not known. What several optimizers train on is counted once."""
    run = summarize(seen_of(name), name)
    rate = run.samples_per_second
    assert (rate and run.seconds_per_step and round(rate * run.seconds_per_step)) == samples


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("with_state", 3),
        ("packed", 3),
        ("masked", 3),
        ("first", 6),
        ("turned", 6),
        ("by_default", None),  # six samples by mistake, or six times: nothing tells
        ("unmasked", None),
        ("without", 6),
    ],
)
def test_layers_for_sequences_tell_which_dimension_has_the_samples(
    seen_of: Callable[[str], Seen], name: str, samples: int | None
) -> None:
    run = summarize(seen_of(f"sequence_{name}"), name)
    rate = run.samples_per_second
    assert (rate and run.seconds_per_step and round(rate * run.seconds_per_step)) == samples


@pytest.mark.parametrize("name", ["listed", "time_first"])
def test_samples_of_a_loader_are_those_that_its_sampler_chose(seen_of: Callable[[str], Seen], name: str) -> None:
    """Lists of images begin with one of three channels, padded sequences with the longest one."""
    sizes = [update["samples"] for update in seen_of(name).updates]
    assert sizes == {"listed": [4] * 7 + [2], "time_first": [4] * 8}[name]


class Tensor:
    """Has `values`, as every tensor has, which only a sparse one takes."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def values(self) -> None:
        raise RuntimeError("values expected sparse tensor layout but got Strided")


@pytest.mark.parametrize(
    ("batch", "dimensions", "samples"),
    [
        ([Tensor(4, 8), Tensor(3)], 1, 4),
        ({"scale": Tensor(), "x": (Tensor(5),)}, 1, 5),
        ([Tensor(4), Tensor(2, 3)], 2, 2),
        ([Tensor(4), 7], 2, 0),
        (None, 1, 0),
    ],
)
def test_samples_of_a_batch(batch: object, dimensions: int, samples: int) -> None:
    assert count_samples(batch, dimensions) == samples


def test_a_part_is_called_where_the_whole_is_not(seen_of: Callable[[str], Seen]) -> None:
    """As Lightning does it: inside the update, and gradients are set to zero behind the forward pass."""
    run = summarize(seen_of("parts"), "parts")
    assert run.phases["forward"] == pytest.approx(0.5)
    assert run.phases["backward"] == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["functions", "zeroed_last"])
def test_what_functions_compute_before_the_backward_pass_is_the_forward_pass(
    seen_of: Callable[[str], Seen], name: str
) -> None:
    run = summarize(seen_of(name), name)
    assert run.phases["forward"] == pytest.approx(0.5)
    assert run.phases["backward"] == pytest.approx(0.5)


def test_an_evaluation_between_epochs_is_left_out(seen_of: Callable[[str], Seen]) -> None:
    """Eight batches, each 1 s to load and 2 s in the model; a step takes as long."""
    run = summarize(seen_of("evaluation"), "evaluation")
    assert (run.uneven, run.uneven_seconds) == (2, 54.0)
    assert run.seconds_per_step == 3.0


def test_a_layer_that_was_copied_into_a_model_is_called_by_that(seen_of: Callable[[str], Seen]) -> None:
    assert len(seen_of("copied").updates) == 6  # more is held against what is expected in its process


def test_steps_that_are_only_counted_take_as_long_and_have_no_phases(seen_of: Callable[[str], Seen]) -> None:
    """Two rows of 0.25 s, then as in "plain"; behind the seventh, eighth and ninth step, evaluations of 4 s."""
    seen = seen_of("sampled")
    assert [bool(update["phases"]) for update in seen.updates] == [True] + [number % 3 == 2 for number in range(1, 16)]
    assert [update["without_gradients"] for update in seen.updates] == [0] * 7 + [2, 2, 2] + [0] * 6
    run = summarize(seen, "sampled")
    assert (run.steps, run.counted, run.steps_watched, run.uneven, run.uneven_seconds) == (16, 10, 3, 3, 34.5)
    assert (run.seconds_per_step, run.backwards_per_step, run.samples_per_second) == (7.5, 1.0, pytest.approx(2 / 7.5))
    seconds = {name: 7.5 * share for name, share in run.phases.items() if share}
    assert seconds == pytest.approx({"data_wait": 0.5, "forward": 3.0, "backward": 3.0, "other": 1.0})


def test_nothing_of_the_watch_is_compiled_with_what_it_watches(seen_of: Callable[[str], Seen]) -> None:
    assert seen_of("compiled_around").updates == []


def test_the_average_of_the_weights_is_a_phase(seen_of: Callable[[str], Seen]) -> None:
    run = summarize(seen_of("average"), "average")
    assert run.phases["average"] == pytest.approx(4 / 11)  # each of four tensors takes 1 s, and so does the loss
