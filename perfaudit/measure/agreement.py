"""What the ranks of one training tell each other between two of its steps: one small collective of our own, over gloo.

Child only.

Each rank runs the same race on the same numbers, so all of them come to the same order. What a rank sees for itself (a time, a
loss, an error) is told to all before anything is made of it; of clocks, that of the first rank counts.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

from perfaudit.errors import TargetError
from perfaudit.training.code_change import NotSwappable

T = TypeVar("T")
OUT_OF_STEP = "the ranks do not agree on what runs next"


class Alone:
    """The agreement of a training in one process: whatever it sees holds.

    here: " on rank 1" for messages, "" where there is only one.
    """

    here = ""

    def gather(self, value: float) -> list[float]:
        """The values of all ranks, in their order."""
        return [value]

    def gather_words(self, words: str) -> list[str]:
        """The words of all ranks, in their order."""
        return [words]

    def slowest(self, seconds: float) -> float:
        """The longest time of all ranks; NaN where one has none."""
        times = self.gather(seconds)
        return math.nan if any(map(math.isnan, times)) else max(times)

    def any(self, is_so: bool) -> bool:
        """Whether it is so on any rank."""
        return any(self.gather(float(is_so)))

    def refusal(self, why: str) -> str:
        """The first words that a rank has; "" where none has any."""
        return next(filter(None, self.gather_words(why)), "") if self.any(bool(why)) else ""

    def goes_on(self, following: str, has_time: bool) -> bool:
        """Whether the first rank has time. Raises TargetError where a rank would run something else than this."""
        number = float(zlib.crc32(following.encode()))
        if len(set(self.gather(number))) > 1:
            raise TargetError(OUT_OF_STEP)
        return bool(self.gather(float(has_time))[0])

    def on_all(self, work: Callable[[], T]) -> T:
        """What `work` gives. Raises NotSwappable where it does so on any rank, so that all of them leave it."""
        mine: NotSwappable | None = None
        try:
            found = work()
        except NotSwappable as refusal:
            mine = refusal
        why = self.refusal(f"{mine}{self.here}" if mine is not None else "")
        if mine is not None:
            raise mine
        if why:
            raise NotSwappable(why)
        return found


class OverGloo(Alone):
    """The agreement of ranks that the script has brought together; all of them make it at the same boundary of steps.

    Raises TargetError where the script has not brought them together.
    """

    def __init__(self) -> None:
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            raise TargetError(
                "the script calls no torch.distributed.init_process_group, so that its ranks train on their own"
            )
        self._group: Any = dist.new_group(backend="gloo")
        self.here = f" on rank {dist.get_rank()}"

    def gather(self, value: float) -> list[float]:
        import torch
        import torch.distributed as dist

        mine = torch.tensor([value], dtype=torch.float64, device="cpu")
        all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(all_of_them, mine, self._group)
        return [float(each) for each in all_of_them]

    def gather_words(self, words: str) -> list[str]:
        import torch.distributed as dist

        found: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(found, words, self._group)
        return [str(each) for each in found]


ALONE = Alone()
