"""Whether the bytes of a file may update weights, without parsing: asked of few files, as it takes longer than a mark."""

from __future__ import annotations

from perfaudit.expressions import regex

_CALL = regex(rb"(?:backward|\.step)\s{0,8}\(")
# `update(self.optim, loss)`: any name that `names.is_like_an_optimizer` takes for one, before a comma; `Optional`, which most
# files import, is none.
_HANDED_OPTIMIZER = regex(rb"(?i:opt(?!ion)|scaler|adam|sgd|solver)\w{0,30}\s{0,8},")


def may_update_weights(data: bytes) -> bool:
    """Whether a text runs a backward pass, makes a step, or hands on what is named as an optimizer is."""
    return _CALL.search(data) is not None or _HANDED_OPTIMIZER.search(data) is not None
