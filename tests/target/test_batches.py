"""Each kind of batch goes to a device as it is pinned, comes out as its own type, and is read alike by whoever looks in."""

from __future__ import annotations

import collections
import dataclasses
import types
from collections import UserDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from fake_device import DEVICE, Elsewhere, FakeDevice
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from perfaudit.errors import TargetError
from perfaudit.knobs._dataloader_look import _bytes_in
from perfaudit.knobs.batch_size import _repeat_samples
from perfaudit.measure.memory_prediction import _resize_batch
from perfaudit.target import sampling
from perfaudit.target.accelerator import Accelerator
from perfaudit.target.batches import on_device, samples_in, tensors_in, with_tensors
from perfaudit.target.names import Target
from perfaudit.training.factory_training import FactoryTraining


class Point(NamedTuple):
    x: Any
    y: Any


class Strict(NamedTuple("Strict", [("x", Any)])):  # as users write it
    """A named tuple that takes something else than its fields."""

    def __new__(cls, x: Any, *, scale: float) -> Strict:
        return super().__new__(cls, x * scale)


@dataclasses.dataclass
class Pair:
    image: Any
    label: Any
    name: str = "cat"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    image: Any


class Words(list):  # type: ignore[type-arg]
    pass


class Attributes(dict):  # type: ignore[type-arg]
    """A dict that takes no dict to be made of."""

    def __init__(self, **items: Any) -> None:
        super().__init__(items)


class Encoding(UserDict):  # type: ignore[type-arg]
    """As `transformers.BatchEncoding`: a mapping that moves itself and returns itself."""

    def to(self, device: Any, *, non_blocking: bool = False) -> Encoding:
        self.data = {key: value.to(device, non_blocking=non_blocking) for key, value in self.data.items()}
        self.told = non_blocking
        return self


class Output(collections.OrderedDict):  # type: ignore[type-arg]
    """As `transformers.ModelOutput`, which forbids `update`."""

    def update(self, *_: Any, **__: Any) -> None:
        raise Exception("you cannot use update here")


class Shared(collections.abc.MutableMapping):  # type: ignore[type-arg]
    """A mapping whose copies store into the same dict."""

    def __init__(self, items: dict[str, Any]) -> None:
        self.items_ = items

    def __getitem__(self, key: str) -> Any:
        return self.items_[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.items_[key] = value

    def __delitem__(self, key: str) -> None:
        del self.items_[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def __len__(self) -> int:
        return len(self.items_)


class Items(Sequence):  # type: ignore[type-arg]
    def __init__(self, items: Any) -> None:
        self._items = list(items)

    def __getitem__(self, number: Any) -> Any:
        return self._items[number]

    def __len__(self) -> int:
        return len(self._items)


class Movable:
    """Moves itself in place and returns nothing."""

    def __init__(self, x: Any) -> None:
        self.x, self.moves = x, 0

    def to(self, device: Any) -> None:
        self.x, self.moves = self.x.to(device), self.moves + 1


class Pinnable:
    """The batch of torch's documentation: it pins itself, and the user's loop moves its attributes."""

    def __init__(self, inp: Any, tgt: Any) -> None:
        self.inp, self.tgt = inp, tgt

    def pin_memory(self) -> Pinnable:
        return self


class Graph:
    """Neither of them; with a way back to itself."""

    def __init__(self, x: Any) -> None:
        self.x, self.me = x, self


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(3, 2)


def y() -> torch.Tensor:
    return torch.tensor([0, 1, 2])


KINDS: dict[str, Callable[[], Any]] = {
    "a tensor": x,
    "a tuple": lambda: (x(), y()),
    "a list": lambda: [x(), y()],
    "a subclass of list": lambda: Words([x(), y()]),
    "a named tuple": lambda: Point(x(), y()),
    "a named tuple with its own constructor": lambda: Strict(x(), scale=2.0),
    "a dict": lambda: {"x": x(), "name": "cat"},
    "an ordered dict": lambda: collections.OrderedDict(x=x()),
    "a defaultdict": lambda: defaultdict(list, {"x": x()}),
    "a dict that takes keywords": lambda: Attributes(x=x()),
    "a dict that forbids update": lambda: Output(x=x(), y=y()),
    "a user dict": lambda: UserDict({"x": x()}),
    "an encoding": lambda: Encoding({"ids": x(), "mask": y()}),
    "a dataclass": lambda: Pair(x(), y()),
    "a frozen dataclass with slots": lambda: Frozen(x()),
    "a packed sequence": lambda: pack_sequence([torch.ones(4, 2), torch.ones(3, 2), torch.ones(1, 2)]),
    "an object that moves itself": lambda: Movable(x()),
    "an object that pins itself": lambda: Pinnable(x(), y()),
    "a sequence of the user's": lambda: Items([x(), y()]),
    "all of it nested": lambda: {"a": [Point(x(), Pair(y(), Encoding({"ids": x()})))], "b": (b"raw", None, 3)},
    "a deque": lambda: collections.deque([x(), y()]),
    "what torch.max returns": lambda: x().max(dim=1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_moves_and_stays_what_it_is(kind: str) -> None:
    batch = KINDS[kind]()
    before = [t.clone() for t in tensors_in(batch)]
    with FakeDevice():
        moved, left = on_device(batch, DEVICE, non_blocking=False)
    assert left == frozenset() and (type(moved) is type(batch) or kind == "a tensor")
    there = list(tensors_in(moved))
    on_host = 1 if kind == "a packed sequence" else 0  # its sizes of batches belong there
    assert sum(not isinstance(t, Elsewhere) for t in there) == on_host
    for one, other in zip(there, before, strict=True):
        assert torch.equal(one.values if isinstance(one, Elsewhere) else one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_counted_in_every_kind(kind: str) -> None:
    assert samples_in(KINDS[kind]()) == 3


@pytest.mark.parametrize(
    ("batch", "samples"),
    [("words", 1), ([], 1), ({"text": ["a", "b"], "x": torch.ones(4, 2)}, 4), ((torch.tensor(1.0), torch.ones(5)), 5)],
)
def test_samples_of_what_is_no_tensor_at_first(batch: Any, samples: int) -> None:
    assert samples_in(batch) == samples


def test_what_cannot_be_rebuilt_becomes_a_dict_or_a_list() -> None:
    proxy = types.MappingProxyType({"x": x()})
    shared = Shared({"x": x()})
    for batch in (proxy, shared):
        doubled = with_tensors(batch, lambda tensor: tensor.double())
        assert isinstance(doubled, Mapping) and doubled["x"].dtype == torch.float64
        assert batch["x"].dtype == torch.float32  # the user's own is as it was

    class Odd(Items):
        def __init__(self, items: Any, more: int) -> None:
            super().__init__(items)

    assert type(with_tensors(Odd([x()], 1), lambda tensor: tensor + 1)) is list


def test_what_holds_no_tensor_is_the_same_object() -> None:
    for value in ("text", b"raw", [1, 2], {"a": "b"}, Pair("a", "b"), Graph("a"), Items(["a"]), print, Graph):
        assert on_device(value, DEVICE, True) == (value, frozenset())
        assert with_tensors(value, lambda tensor: tensor) is value


def test_an_object_is_told_not_to_wait_where_it_takes_the_word() -> None:
    for non_blocking in (True, False):
        with FakeDevice():
            (encoding, movable), _ = on_device([Encoding({"x": x()}), Movable(x())], DEVICE, non_blocking)
        assert (encoding.told, movable.moves) == (non_blocking, 1)


def test_an_object_without_a_way_is_left_and_named() -> None:
    with FakeDevice():
        (graph, there), left = on_device((Graph(x()), y()), DEVICE, False)
    assert not isinstance(graph.x, Elsewhere) and isinstance(there, Elsewhere)
    assert left == {"Graph"}
    with FakeDevice():
        assert on_device(Graph(Elsewhere(x())), DEVICE, False)[1] == frozenset()  # it is there already


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_looks_into_a_batch_sees_the_same(kind: str) -> None:
    batch = KINDS[kind]()
    tensors = list(tensors_in(batch))
    assert tensors
    assert _bytes_in(batch) == sum(t.nbytes for t in tensors)
    doubled = with_tensors(batch, lambda tensor: tensor.double())
    assert type(doubled) is type(batch)
    assert {t.dtype for t in tensors_in(doubled)} == {torch.float64}
    assert [t.dtype for t in tensors_in(batch)] == [t.dtype for t in tensors]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "a packed sequence"])
def test_a_batch_of_another_size_is_of_the_same_kind(kind: str) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        larger = _resize_batch(KINDS[kind](), 7)
    repeated = _repeat_samples(KINDS[kind](), 3, 7)
    for other in (larger, repeated):
        assert type(other) is type(KINDS[kind]()) or kind == "a tensor"
        assert {t.shape[0] for t in tensors_in(other)} == {7}


def test_parts_of_a_sample_are_told_apart_by_their_place() -> None:
    sample = UserDict({"image": Pair(x(), 3), "words": ("a", "b")})
    places = {"image.image", "image.label", "image.name", "words.0", "words.1", sampling.WHOLE}
    assert set(sampling.leaves_of(sample)) == places


TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader


class Graph:
    def __init__(self, rows):
        self.x = torch.stack(rows)
{more}

def build_model():
    return nn.Linear(8, 1)


def build_dataloader():
    return DataLoader(torch.randn(64, 8), batch_size=8, collate_fn=Graph)


def training_step(model, batch):
    return model(batch.x).square().mean()
"""
TO = """
    def to(self, device):
        self.x = self.x.{how}(device)
        return self
"""


@pytest.fixture
def fake_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("perfaudit.training.factory_training.accelerator_of", Accelerator)
    with FakeDevice():
        yield


@pytest.mark.usefixtures("fake_device")
def test_a_training_whose_batch_moves_itself(project: Callable[..., Path]) -> None:
    project(**{"train.py": TRAIN.format(more=TO.format(how="to"))})
    training = FactoryTraining(Target("train.py"), str(DEVICE))
    loss = training.step(training.batch())
    assert (loss.device.type, training.whole_step().x.device.type) == (DEVICE.type, DEVICE.type)


@pytest.mark.usefixtures("fake_device")
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", "train.py: the batch holds tensors in a Graph that stayed on the host, as it has no way to move: give it"),
        (TO.format(how="no_such"), "train.py: the batch does not move to meta: AttributeError: 'Tensor' object has no"),
    ],
)
def test_a_batch_that_does_not_move_is_said(project: Callable[..., Path], more: str, words: str) -> None:
    project(**{"train.py": TRAIN.format(more=more)})
    training = FactoryTraining(Target("train.py"), str(DEVICE))
    with pytest.raises(TargetError, match=words):
        training.whole_step()


def test_packed_sequences_are_still_packed() -> None:
    packed = pack_sequence([torch.ones(4, 2), torch.ones(3, 2)])
    halved = with_tensors(packed, lambda tensor: tensor.clone())
    assert isinstance(halved, PackedSequence) and torch.equal(halved.data, packed.data)
