"""Biases in front of norms, taken out of a loaded checkpoint: what the file holds, what is folded where. No user code.

A norm gives weight * (x + bias - running_mean) / sqrt(running_var + eps) + shift in evaluation: with running_mean - bias as
running mean the bias is gone and the result stays. Only the difference of the two matters, so each copy of the model in
a file is folded with its own bias: exact for averages that average the buffers too, and for those that copy them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perfaudit.errors import UserError

Loaded = Any  # what torch.load gives: nested dicts and lists of tensors and plain values
Tensor = Any  # torch.Tensor, which is imported inside functions

_SHOWN = 4  # names in a message


class Refused(UserError):
    """A checkpoint that is not migrated; the message says what in it is not understood."""


@dataclass(frozen=True, slots=True)
class Fold:
    """One layer whose bias goes, and the norm behind it.

    biases: keys of the bias, several where the layer is registered under several names. means: keys of the running mean
    it is folded into; none where the norm keeps no running statistics and always subtracts the mean of its input.
    """

    layer: str
    norm: str
    norm_kind: str
    width: int
    biases: tuple[str, ...]
    means: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """The state dict of the model as its source is now, and the biases it had before.

    shapes: by key, None for what is no tensor. unfoldable: keys of biases that layers may have, with why they cannot go.
    """

    shapes: dict[str, tuple[int, ...] | None]
    buffers: frozenset[str]
    folds: tuple[Fold, ...]
    unfoldable: dict[str, str]

    @property
    def biases(self) -> dict[str, Fold]:
        return {key: fold for fold in self.folds for key in fold.biases}


@dataclass(frozen=True, slots=True)
class Copy:
    """One state dict of the model in a file: its place there, and what stands before each key (`module.`)."""

    place: str
    prefix: str
    state: dict[str, Any]
    folds: tuple[Fold, ...]

    @property
    def name(self) -> str:
        shown = ".".join(part for part in (self.place, self.prefix.rstrip(".")) if part)
        return shown or "the whole file"

    def as_it_was(self, expected: Expected) -> dict[str, Any]:
        """Its tensors under the model's own keys, the biases among them."""
        keys = [*expected.shapes, *(bias for fold in self.folds for bias in fold.biases)]
        return {key: self.state[self.prefix + key] for key in keys if self.prefix + key in self.state}


def copies(data: Loaded, expected: Expected) -> list[Copy]:
    """Every state dict of the model in a loaded file, each once. Raises Refused for anything that only resembles one."""
    found: list[Copy] = []
    for place, value in mappings(data):
        prefixes = _prefixes(place, value, expected)
        found += [Copy(place, prefix, value, _folds_of_copy(place, prefix, value, expected)) for prefix in prefixes]
        _refuse_unknown(place, value, prefixes, expected)
    if not found:
        raise Refused("it holds no state dict of this model: no dict in it has the keys of the model")
    if not any(copy.folds for copy in found):
        raise Refused("nothing to fold: it holds no bias that the model lacks, use it as it is")
    for copy in found[1:]:
        if copy.folds != found[0].folds:
            raise Refused(
                f"{copy.name} and {found[0].name} hold biases of different layers, "
                f"as if only one of them had been migrated ({_name_list(_difference(copy, found[0]))})"
            )
    return found


def _difference(one: Copy, other: Copy) -> list[str]:
    return sorted({fold.layer for fold in one.folds} ^ {fold.layer for fold in other.folds})


def fold(copy: Copy) -> None:
    """Take the biases out of one copy, in place: new running means under the old keys, nothing else changes.

    The difference is taken in float64 and rounded once to the type of the running mean.
    """
    for each in copy.folds:
        bias = copy.state[copy.prefix + each.biases[0]]
        for key in each.means:
            mean = copy.state[copy.prefix + key]
            folded = mean.detach().cpu().double() - bias.detach().cpu().double()  # MPS has no float64
            copy.state[copy.prefix + key] = folded.to(mean.device, mean.dtype)
        for key in each.biases:
            copy.state.pop(copy.prefix + key, None)


def refuse_lists_of_parameters(data: Loaded, shapes: list[tuple[int, ...]]) -> None:
    """Raise Refused for a list of tensors shaped like the parameters of the old model, as some moving averages keep.

    They evaluate with the running means of the model, from which their own bias is not subtracted.
    """
    for place, value in _walk(data, "", set()):
        if isinstance(value, (list, tuple)) and [getattr(item, "shape", None) for item in value] == shapes:
            raise Refused(
                f"{place} lists parameters without names and without running means, so there is nothing to fold its "
                "biases into"
            )


def mappings(data: Loaded) -> Iterator[tuple[str, dict[str, Any]]]:
    """The dicts with text keys in a loaded file, outermost first, each once, with their places as `ema.module`."""
    for place, value in _walk(data, "", set()):
        if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
            yield place, value


def _walk(value: Loaded, place: str, seen: set[int]) -> Iterator[tuple[str, Loaded]]:
    if not isinstance(value, (Mapping, list, tuple)) or id(value) in seen:
        return
    seen.add(id(value))
    yield place, value
    named = isinstance(value, Mapping)
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        inner = f"{place}.{key}" if named and place else str(key) if named else f"{place}[{key}]"
        yield from _walk(item, inner, seen)


def _prefixes(place: str, state: dict[str, Any], expected: Expected) -> list[str]:
    """What stands before the model's keys in a dict, for each full set of them. Raises Refused where keys are missing."""
    votes: dict[str, int] = {}
    for key, value in state.items():
        if not is_tensor(value):
            continue
        parts = key.split(".")
        for start in range(len(parts)):
            if ".".join(parts[start:]) in expected.shapes:
                prefix = "".join(part + "." for part in parts[:start])
                votes[prefix] = votes.get(prefix, 0) + 1
    complete = [prefix for prefix in votes if all(prefix + key in state for key in expected.shapes)]
    if votes and not complete:
        prefix = max(votes, key=lambda each: votes[each])
        _refuse_missing(place, [key for key in expected.shapes if prefix + key not in state], expected)
    return complete


def _refuse_missing(place: str, missing: list[str], expected: Expected) -> None:
    where = place or "the file"
    if set(missing) <= expected.buffers:
        raise Refused(
            f"{where} has the model's parameters but not its running means and variances ({_name_list(missing)}), so there is "
            "nothing to fold its biases into"
        )
    raise Refused(f"{where} lacks {_name_list(missing)} of the model as its source is now")


def _folds_of_copy(place: str, prefix: str, state: dict[str, Any], expected: Expected) -> tuple[Fold, ...]:
    """The folds whose biases a copy holds. Raises Refused for wrong shapes and tensors that are no plain ones."""
    where = f"{place}: " if place else ""
    present = {key: fold for key, fold in expected.biases.items() if prefix + key in state}
    wanted = {**expected.shapes, **{key: (fold.width,) for key, fold in present.items()}}
    for key, shape in wanted.items():
        value = state[prefix + key]
        if shape is None:
            continue
        if not _is_plain(value):
            raise Refused(f"{where}{prefix}{key} is {_kind(value)}, not a plain tensor (a sharded checkpoint?)")
        if tuple(value.shape) != shape:
            raise Refused(f"{where}{prefix}{key} has the shape {tuple(value.shape)}, the model needs {shape}")
    return tuple(fold for fold in expected.folds if fold in present.values())


def _refuse_unknown(place: str, state: dict[str, Any], prefixes: list[str], expected: Expected) -> None:
    """Raise Refused for tensors beside a copy that are neither the model's nor a bias, and for another model's."""
    known = {prefix + key for prefix in prefixes for key in (*expected.shapes, *expected.biases)}
    unknown = [key for key, value in state.items() if key not in known and is_tensor(value) and _has_name(key, value)]
    if not unknown:
        return
    where = place or "the file"
    for prefix in prefixes:
        for key in unknown:
            if key.removeprefix(prefix) in expected.unfoldable:
                raise Refused(f"{where} has {key}, {expected.unfoldable[key.removeprefix(prefix)]}")
    if prefixes:
        raise Refused(
            f"{where} has keys that the model lacks and that are no bias before a norm: {_name_list(unknown)}"
        )
    if any("." in key and state[key].numel() > 1 for key in unknown):  # not measured values such as `val.accuracy`
        raise Refused(
            f"{where} holds tensors of another model ({_name_list(unknown)}); only files of one model are migrated"
        )


def _has_name(key: str, value: Tensor) -> bool:
    """Whether a tensor is part of a model, not a count or a flag that a wrapper keeps beside it (`n_averaged`)."""
    return "." in key or value.numel() > 1


def is_tensor(value: Loaded) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_plain(value: Tensor) -> bool:
    import torch

    return type(value) in (torch.Tensor, torch.nn.Parameter) and not value.is_quantized and not value.is_sparse


def _kind(value: object) -> str:
    return f"a {type(value).__name__}" if not is_tensor(value) else f"a {type(value).__name__} of another layout"


def _name_list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
