"""PA605: the weights are written to disk in every training step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.epochs import counts_epochs
from perfaudit.static.understanding.names import dotted_name
from perfaudit.static.understanding.step_code import step_code
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import resolve

_SAVES = ("torch.save", "safetensors.torch.save_file", "safetensors.torch.save_model")
# Not the outputs of each batch, which have to be kept somewhere.
_MODEL = regex(
    r"(^|[._])(model|net|netG|netD|checkpoint|ckpt|generator|discriminator|encoder|decoder|unet|policy|actor)$"
)
# Steps that are long, as an episode is, or the whole training of something: then a file after each is a choice.
_LONG = regex(
    r"epoch|episode|fold|round|trial|task|client|stage|seed",
    re.IGNORECASE,
    words="epoch|episode|fold|round|trial|task|client|stage|seed",
)


@check("PA605", ast.Module)
def checkpoint_saved_every_step(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not source.mentions("save"):
        return
    for step in step_loops(source):
        if not _is_over_batches(step.loop):
            continue
        for part in step_code(source, step):
            for call in walk(part.root):
                if not isinstance(call, ast.Call) or source.qualified_name(call.func) not in _SAVES:
                    continue
                if is_test(source, call) or not _has_weights(source, call):
                    continue
                if runs_each_time(source, call, part.root):
                    yield Seen(
                        call,
                        f"`{source.brief(call)}` on every step{part.way} copies the weights to the host and writes them to disk "
                        "before the next step begins",
                        Proposal("save every so many steps, by `if step % n == 0`, or once an epoch"),
                        hot=True,
                    )


def _is_over_batches(loop: Loop) -> bool:
    """Whether a loop goes over many short steps, and not over epochs, episodes or whole trainings."""
    if not isinstance(loop, ast.For) or counts_epochs(loop):
        return False
    names = [dotted_name(n) for part in (loop.target, loop.iter) for n in walk(part)]
    return not any(_LONG.search(name) for name in names)


def _has_weights(source: Source, call: ast.Call) -> bool:
    saved = call.args[0] if call.args else None
    if saved is None:
        return False
    made = resolve(source, saved)
    has_states = any("state_dict" in source.text_of(node) for node in (saved, made) if node is not None)
    return has_states or bool(_MODEL.search(dotted_name(saved)))
