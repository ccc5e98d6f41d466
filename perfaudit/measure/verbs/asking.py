"""Questions of other parts: a knob's about the training that was built, and work in a process of its own."""

from __future__ import annotations

from typing import Any

from perfaudit.measure.attribute_names import find_named
from perfaudit.measure.holder import Holder

Reply = dict[str, Any]  # JSON


def ask(holder: Holder, knob: str, question: str, arguments: Reply) -> Reply:
    """What a knob, named as module:attribute, wants to know of the training: its method `answer_<question>`."""
    found = find_named(knob)
    holder.doing = f"{found.name}: {question}"
    reply: Reply = getattr(found, f"answer_{question}")(holder.training, **arguments)
    return reply


def call(holder: Holder, function: str, doing: str, arguments: Reply) -> Reply:
    """What a function, named as module:attribute, replies; it builds what it needs. doing: for messages of faults."""
    holder.doing = doing
    reply: Reply = find_named(function)(**arguments)
    return reply
