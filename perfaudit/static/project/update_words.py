"""Whether the bytes of a file may update weights, without parsing: asked of few files, as it takes longer than a mark."""

from __future__ import annotations

from perfaudit.expressions import regex

_CALLS = tuple(regex(word + rb"\s{0,8}\(") for word in (rb"backward", rb"\.step"))
# `update(self.optim, loss)`: any name that `names.is_like_an_optimizer` takes for one, before a comma; `Optional`, which most
# files import, is none. One expression for each word, as each begins with letters that stand for themselves.
_HANDED_OPTIMIZERS = tuple(
    regex(word + rb"\w{0,30}\s{0,8},") for word in (rb"opt(?!ion)", rb"scaler", rb"adam", rb"sgd", rb"solver")
)


def may_update_weights(data: bytes) -> bool:
    """Whether a text runs a backward pass, makes a step, or hands on what is named as an optimizer is."""
    if any(call.search(data) for call in _CALLS):
        return True
    text = data.lower()
    return any(handed.search(text) for handed in _HANDED_OPTIMIZERS)
