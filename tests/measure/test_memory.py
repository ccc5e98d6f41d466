"""A peak that is predicted is the peak that is counted, and predicting it leaves no trace."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from perfaudit.measure import memory
from perfaudit.measure.memory import StepMemory, memory_of_step, refuse_without_room
from perfaudit.measure.memory_prediction import CannotPredict, largest_batch, predicting
from perfaudit.training.code_change import NotSwappable

MIB = 2**20


def predicted_peak(training: Any, batch_size: int) -> int:
    with predicting(training) as peak_at:
        return peak_at(batch_size)


class Training:
    """What a prediction needs of a training, no more."""

    def __init__(
        self,
        model: nn.Module,
        batch_of: Callable[[int], Any],
        loss: Callable[[nn.Module, Any], Tensor],
        optimizer: str = "AdamW",
        bfloat16: bool = False,
        device: str = "cpu",
        **settings: Any,
    ) -> None:
        self.model, self.batch_of, self._loss, self.bfloat16 = model.to(device), batch_of, loss, bfloat16
        self.optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-2, **settings)
        self.device = torch.device(device)
        self.optimizers = [self.optimizer]
        self.ema: Any = None
        self.losses: list[Tensor] = []

    def fixed_batch(self) -> Any:
        batch = self.batch_of(4)
        return batch.to(self.device) if isinstance(batch, Tensor) else tuple(t.to(self.device) for t in batch)

    def loss(self, batch: Any) -> Tensor:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bfloat16):
            return self._loss(self.model, batch)

    def step(self, batch: Any) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        if self.ema is not None:
            self.ema()
        self.losses.append(loss.detach())
        return loss


class Blocks(nn.Module):
    """Attention and dropout on words, each block recomputed if asked for; then there are two of them."""

    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.embed, self.head = nn.Embedding(50, 32), nn.Linear(32, 50)
        count = 2 if checkpointed else 1
        layers = [nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True) for _ in range(count)]
        self.layers = nn.ModuleList(layers)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.head(x)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(True), nn.Conv2d(16, 32, 3, 2), nn.BatchNorm2d(32),
        nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 20_000), nn.ReLU(), nn.Dropout(0.1), nn.Linear(20_000, 10))


def images(size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 3, 20, 20), torch.randint(0, 10, (size,))


def vectors(size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 16), torch.randint(0, 10, (size,))


def words(size: int) -> Tensor:
    return torch.randint(0, 50, (size, 17))


def classes(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def next_words(model: nn.Module, batch: Tensor) -> Tensor:
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


TRAININGS: list[tuple[str, Callable[..., Training]]] = [
    ("convolutions", lambda **more: Training(convolutions(), images, classes, **more)),
    ("words", lambda **more: Training(Blocks(), words, next_words, **more)),
    ("words, checkpointed", lambda **more: Training(Blocks(True), words, next_words, **more)),
    ("wide", lambda **more: Training(wide(), vectors, classes, **more)),
    ("wide, SGD", lambda **more: Training(wide(), vectors, classes, optimizer="SGD", momentum=0.9, **more)),
    ("wide, foreach", lambda **more: Training(wide(), vectors, classes, foreach=True, **more)),
    ("wide, fused", lambda **more: Training(wide(), vectors, classes, fused=True, **more)),
]


@pytest.mark.parametrize("bfloat16", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("build", [build for _, build in TRAININGS], ids=[name for name, _ in TRAININGS])
def test_the_prediction_is_what_is_counted(build: Callable[..., Training], bfloat16: bool) -> None:
    training = build(bfloat16=bfloat16)
    with predicting(training) as peak_at:
        predicted = {size: peak_at(size) for size in (2, 9)}
    for size, peak in predicted.items():
        assert peak == pytest.approx(memory_of_step(training, training.batch_of(size)).tensors, abs=0.1 * MIB)
    assert predicted_peak(training, 9) == pytest.approx(predicted[9], abs=64)  # with the optimizer's state there
    assert predicted[9] > predicted[2]


def test_a_peak_that_no_line_through_small_batches_tells() -> None:
    training = Training(wide(), vectors, classes)
    with predicting(training) as peak_at:
        two, four, large = peak_at(2), peak_at(4), peak_at(512)
    assert large == pytest.approx(memory_of_step(training, vectors(512)).tensors, abs=0.1 * MIB)
    assert two + (four - two) * 255 < 0.5 * large


def state_of(training: Training) -> list[Any]:
    tensors = [*training.model.parameters(), *training.model.buffers(), *(p.grad for p in training.model.parameters())]
    for state in training.optimizer.state.values():
        tensors += state.values()
    return [t.clone() if isinstance(t, Tensor) else t for t in tensors]


@pytest.mark.parametrize("steps", [0, 2])
def test_nothing_is_left_behind(steps: int) -> None:
    training = Training(convolutions(), images, classes)
    for _ in range(steps):
        training.step(images(4))
    before, losses = state_of(training), list(training.losses)
    objects = [id(p) for p in training.model.parameters()] + [id(p.grad) for p in training.model.parameters()]
    streams = torch.get_rng_state(), random.getstate()
    batch = training.fixed_batch()
    training.fixed_batch = lambda: batch  # type: ignore[method-assign]
    torch.set_rng_state(streams[0])
    assert predicted_peak(training, 16) > 0
    assert torch.equal(torch.get_rng_state(), streams[0]) and random.getstate() == streams[1]
    assert training.losses == losses
    assert objects == [id(p) for p in training.model.parameters()] + [id(p.grad) for p in training.model.parameters()]
    after = state_of(training)
    assert len(after) == len(before)
    for old, new in zip(before, after, strict=True):
        assert type(old) is type(new) and (old is None or torch.equal(old, new))
    assert torch.is_grad_enabled() and type(torch.ones(1) + 1) is Tensor
    assert training.step(images(4)).item() > 0


def test_a_training_goes_on_as_if_nothing_had_been_predicted() -> None:
    losses = []
    for predicts in (False, True):
        torch.manual_seed(0)
        training = Training(Blocks(), words, next_words)
        batch = training.fixed_batch()
        training.fixed_batch = lambda batch=batch: batch  # type: ignore[method-assign,misc]
        for _ in range(3):
            training.step(batch)
            if predicts:
                predicted_peak(training, 8)
        losses.append([loss.item() for loss in training.losses])
    assert losses[0] == losses[1]


def test_an_average_that_counts_its_updates() -> None:
    training = Training(wide(), vectors, classes)
    average = torch.optim.swa_utils.AveragedModel(training.model)
    training.ema = lambda: average.update_parameters(training.model)
    training.step(vectors(4))
    before = [t.clone() for t in average.state_dict().values()]
    predicted = predicted_peak(training, 8)
    assert all(map(torch.equal, before, average.state_dict().values()))
    assert predicted == pytest.approx(memory_of_step(training, vectors(8)).tensors, abs=0.1 * MIB)


def test_a_scaled_loss() -> None:
    training = Training(wide(), vectors, classes)
    scaler = torch.amp.GradScaler("cpu")

    def step(batch: Any) -> Tensor:
        training.optimizer.zero_grad()
        loss = training.loss(batch)
        scaler.scale(loss).backward()
        scaler.step(training.optimizer)
        scaler.update()
        return loss

    training.step = step  # type: ignore[method-assign]
    step(vectors(4))
    before = scaler.state_dict()
    assert predicted_peak(training, 8) == pytest.approx(memory_of_step(training, vectors(8)).tensors, abs=0.1 * MIB)
    assert before["scale"] == 65536.0


def test_memory_format_of_the_batch_is_kept() -> None:
    def last(size: int) -> tuple[Tensor, Tensor]:
        pixels, labels = images(size)
        return pixels.contiguous(memory_format=torch.channels_last), labels

    training = Training(convolutions().to(memory_format=torch.channels_last), last, classes)
    assert predicted_peak(training, 16) == pytest.approx(memory_of_step(training, last(16)).tensors, abs=0.1 * MIB)


def reads_the_loss(model: nn.Module, batch: Any) -> Tensor:
    loss = classes(model, batch)
    return loss if loss.item() < 1e9 else loss * 2


def sums_into_a_number(model: nn.Module, batch: Any) -> Tensor:
    total = torch.zeros(())
    loss = classes(model, batch)
    total += loss.detach()
    return loss * float(total)


def asks_numpy(model: nn.Module, batch: Any) -> Tensor:
    return classes(model, batch) * float(batch[0].numpy().mean())


def picks_rows(model: nn.Module, batch: Any) -> Tensor:
    keep = batch[1] > 3
    return F.cross_entropy(model(batch[0][keep]), batch[1][keep])


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (reads_the_loss, "the step reads a value out of a tensor"),
        (sums_into_a_number, "the step reads a value out of a tensor"),
        (asks_numpy, "numpy"),
        (picks_rows, "size depends on data"),
    ],
)
def test_a_step_that_depends_on_data_is_refused(loss: Callable[..., Tensor], reason: str) -> None:
    training = Training(wide(), vectors, loss)
    with pytest.raises(CannotPredict, match=reason) as refused:
        predicted_peak(training, 8)
    assert "\n" not in str(refused.value)
    assert not training.optimizer.state and all(type(p.data) is Tensor for p in training.model.parameters())


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ((torch.randn(4, 16), torch.randint(0, 10, (5,))), r"no common first dimension: \(4, 16\), \(5,\)"),
        ((torch.tensor(1.0), "a name"), "holds no tensor with a dimension"),
        ((torch.eye(4).to_sparse(), torch.zeros(4)), "layout torch.sparse_coo"),
    ],
)
def test_a_batch_that_has_no_size_is_refused(batch: Any, reason: str) -> None:
    training = Training(wide(), lambda _: batch, classes)
    training.fixed_batch = lambda: batch  # type: ignore[method-assign]
    with pytest.raises(CannotPredict, match=reason):
        predicted_peak(training, 8)


def test_a_compiled_model_is_refused() -> None:
    model = wide()
    model.compile()
    with pytest.raises(CannotPredict, match="is compiled"):
        predicted_peak(Training(model, vectors, classes), 8)


@pytest.mark.gpu
@pytest.mark.parametrize("bfloat16", [False, True], ids=["float32", "bfloat16"])
def test_on_an_accelerator_the_allocator_agrees(bfloat16: bool) -> None:
    training = Training(convolutions(), images, classes, bfloat16=bfloat16, device="cuda")
    predicted = predicted_peak(training, 256)
    counted = memory_of_step(training, tuple(t.cuda() for t in images(256))).tensors
    assert predicted == pytest.approx(counted, rel=0.15, abs=16 * MIB)  # workspaces of cuDNN, and rounding


@pytest.mark.parametrize(
    ("peak_at", "budget", "start", "limit", "largest", "most_calls"),
    [
        (lambda n: 100 + 10 * n, 1000, 8, 10_000, 90, 7),  # a line: doubling, one guess, one to confirm
        (lambda n: 100 + 10 * n, 4095, 4, 10_000, 399, 10),
        (lambda n: 100 + 10 * n, 1005, 8, 10_000, 90, 7),
        (lambda n: max(5_000, 7 * n, 100 * n - 40_000), 26_000, 8, 100_000, 660, 16),  # a maximum over phases
        (lambda n: 5_000, 5_000, 8, 64, 64, 4),  # never more
        (lambda n: 5_000, 4_999, 8, 64, 0, 4),  # not even one
        (lambda n: 100 * n, 100, 64, 64, 1, 8),  # start is far too large
        (lambda n: 100 * n, 699, 1, 1, 1, 1),
        (lambda n: 100 * n * n, 640_000, 4, 10_000, 80, 12),
    ],
)
def test_largest_batch(
    peak_at: Callable[[int], int], budget: int, start: int, limit: int, largest: int, most_calls: int
) -> None:
    found, asked = largest_batch(peak_at, budget, start, limit)
    assert found == largest
    assert len(asked) <= most_calls and len({size for size, _ in asked}) == len(asked)
    assert all(peak == peak_at(size) and 1 <= size <= limit for size, peak in asked)


def test_largest_batch_is_right_wherever_the_budget_and_the_bend_lie() -> None:
    draw = random.Random(0)
    for _ in range(500):
        lines = [(draw.randrange(5_000), draw.randrange(1, 90)) for _ in range(3)]
        limit, start, budget = draw.randrange(1, 600), draw.randrange(1, 50), draw.randrange(30_000)

        def peak_at(size: int, lines: list[tuple[int, int]] = lines) -> int:
            return max(base + slope * size for base, slope in lines)

        found, asked = largest_batch(peak_at, budget, start, limit)
        assert found == max((n for n in range(1, limit + 1) if peak_at(n) <= budget), default=0)
        assert len(asked) <= 20


def test_the_memory_of_a_step_is_asked_of_the_trainings_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A described device, whose driver gives 2 MiB past the allocator in the first step."""
    from types import SimpleNamespace

    from perfaudit.measure import memory

    asked: list[object] = []
    says: dict[str, Any] = {
        "mem_get_info": iter([(80 * MIB, 100 * MIB), (50 * MIB, 100 * MIB)]),
        "memory_reserved": iter([8 * MIB, 36 * MIB]),
        "max_memory_reserved": iter([40 * MIB, 36 * MIB]),
        "max_memory_allocated": iter([0, 30 * MIB]),
    }

    def answer(name: str) -> Callable[[object], Any]:
        def said(device: object) -> Any:
            asked.append(device)
            return next(says[name]) if name in says else None

        return said

    for name in (*says, "synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, answer(name))
    device = SimpleNamespace(type="cuda", index=1)
    training = SimpleNamespace(
        device=device, step=lambda batch: None, optimizer=SimpleNamespace(zero_grad=lambda: None)
    )
    assert memory.memory_of_step(training, None) == StepMemory(30 * MIB, 40 * MIB, 2 * MIB)
    assert all(each is device for each in asked)


@pytest.mark.parametrize(
    ("free", "taken", "refused"),
    [
        (300 << 20, 299 << 20, ""),
        (300 << 20, 300 << 20, ""),
        (
            300 << 20,
            301 << 20,
            "memory does not hold a second training beside the first: 300 MiB are free, and this one has taken 301 MiB",
        ),
        (None, 300 << 20, ""),  # a device that does not tell is tried
        (300 << 20, None, ""),
        (
            0,
            1 << 20,
            "memory does not hold a second training beside the first: 0 MiB are free, and this one has taken 1 MiB",
        ),
    ],
)
def test_a_second_training_is_refused_where_memory_does_not_hold_it(
    monkeypatch: pytest.MonkeyPatch, free: int | None, taken: int | None, refused: str
) -> None:
    asked = []
    monkeypatch.setattr(memory, "room", lambda device: asked.append(device) or {"free": free, "taken": taken})
    device = torch.device("cpu")
    if refused:
        with pytest.raises(NotSwappable) as caught:
            refuse_without_room(device)
        assert str(caught.value) == refused
    else:
        refuse_without_room(device)
    assert asked == [device]
