"""Functions that take the place of those of tensors, and of `zero_grad`: reads on the host, copies to a device. Child only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from perfaudit.script.noted_events import MOST_NOTED, STRETCH_ENDS, ZEROED
from perfaudit.script.notes import Notes
from perfaudit.script.replaced_functions import Function


class WatchedTensors:
    """Makes these functions. nodes: how many graphs of this thread have had. note_read: called with them where one was read."""

    def __init__(
        self, notes: Notes, nodes: Callable[[], int], note_read: Callable[[int], None] = lambda nodes: None
    ) -> None:
        self._notes, self._nodes, self._note_read = notes, nodes, note_read

    def watch_reads(self, original: Function) -> Function:
        """A number is read for which the device is waited for."""
        notes, in_phase, nodes, thread_now = (
            self._notes,
            self._notes.in_phase("host_reads", original),
            self._nodes,
            threading.get_ident,
        )
        note, clock, note_read = notes.note, notes.clock, self._note_read

        def read(*args: Any, **kwargs: Any) -> Any:
            if thread_now() != notes.here:
                return original(*args, **kwargs)
            result = in_phase(*args, **kwargs)
            number = nodes()
            note((STRETCH_ENDS, clock(), number))
            if not notes.depth:
                note_read(number)
            notes.add_up_many()
            return result

        return read

    def watch_reads_on_host(self, original: Function) -> Function:
        """A number is read for which nothing is waited: it takes no time worth a phase, and a policy has many in a step.

        An Adam without `fused` reads two for each parameter, and what is read inside a phase ends nothing.
        """
        notes, nodes, thread_now, note_read = self._notes, self._nodes, threading.get_ident, self._note_read
        events, note, clock = notes.events, notes.note, notes.clock

        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            here = notes.here
            if not here or notes.depth or thread_now() != here:
                return original(tensor, *args, **kwargs)
            result = original(tensor, *args, **kwargs)
            number = nodes()
            note((STRETCH_ENDS, clock(), number))
            note_read(number)
            if len(events) > MOST_NOTED:
                notes.add_up()
            return result

        return read

    def watch_items_on_host(self, original: Function) -> Function:
        """The same for a function of nothing but the tensor, which costs less: `item` is called most of all."""
        notes, nodes, thread_now, note_read = self._notes, self._nodes, threading.get_ident, self._note_read
        events, note, clock = notes.events, notes.note, notes.clock

        def item(tensor: Any) -> Any:
            here = notes.here
            if not here or notes.depth or thread_now() != here:
                return original(tensor)
            result = original(tensor)
            number = nodes()
            note((STRETCH_ENDS, clock(), number))
            note_read(number)
            if len(events) > MOST_NOTED:
                notes.add_up()
            return result

        return item

    def watch_reads_by_device(self, original: Function) -> Function:
        """Of a tensor on the host nothing is waited for, whatever device there is."""
        waiting, at_once = self.watch_reads(original), self.watch_reads_on_host(original)

        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            return (at_once if tensor.is_cpu else waiting)(tensor, *args, **kwargs)

        return read

    def watch_zero_grad(self, original: Function) -> Function:
        """Gradients are set to zero."""
        notes, in_phase, nodes = self._notes, self._notes.in_phase("optimizer", original), self._nodes
        note, clock, thread_now = notes.note, notes.clock, threading.get_ident

        def zero_grad(*args: Any, **kwargs: Any) -> Any:
            here = notes.here
            if not here or thread_now() != here:
                return original(*args, **kwargs)
            result = in_phase(*args, **kwargs)
            if not notes.depth:
                note((ZEROED, clock(), nodes()))
            return result

        return zero_grad

    def watch_copies(self, original: Function) -> Function:
        """A tensor goes to a device."""
        notes, copy = self._notes, self._notes.in_phase("host_to_device", original)

        def copy_to_device(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not notes.here or not tensor.is_cpu:
                return original(tensor, *args, **kwargs)
            return copy(tensor, *args, **kwargs)

        return copy_to_device
