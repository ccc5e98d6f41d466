"""How messages of trace findings say times, shares and rates."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perfaudit.trace.device_view import DeviceView


def milliseconds(microseconds: float) -> str:
    """12.3 ms, 850 µs, 2.1 s."""
    if microseconds >= 1e6:
        return f"{_three_digits(microseconds / 1e6)} s"
    if microseconds >= 1000:
        return f"{_three_digits(microseconds / 1000)} ms"
    return f"{_three_digits(microseconds)} µs"


def _three_digits(value: float) -> str:
    """Three digits that count, or all before the point: "0.0123", "12.3", "1,234"; never "1.23e+03"."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def a_step(view: DeviceView, microseconds: float) -> str:
    """A time of the window as one of a step, where steps are known: "12.3 ms a step", else "1.2 s in all"."""
    each = view.step_times.in_one(microseconds)
    return f"{milliseconds(microseconds)} in all" if each is None else f"{milliseconds(each)} a step"


def launched_a_step(view: DeviceView, rows: Collection[int]) -> str:
    """How often such work is launched: "3 times a step", "12 times"."""
    return times_a_step(view, len(rows), view.step_times.launched_in_one(rows))


def called_a_step(view: DeviceView, rows: Collection[int]) -> str:
    """How often the host makes such calls: "3 times a step", "12 times"."""
    return times_a_step(view, len(rows), view.step_times.called_in_one(rows))


def times_a_step(view: DeviceView, number: int, rate: float) -> str:
    """How often something happens. number: in all, which is said where no steps are known. rate: in a step."""
    if not view.steps:
        return "once" if number == 1 else f"{number:,} times"
    if rate < 0.95:
        seen = max(1, round(rate * view.step_times.number))
        return f"{'once' if seen == 1 else f'{seen:,} times'} in {view.step_times.number} steps"
    if rate <= 1.05:
        return "once a step"
    return f"{rate:,.0f} times a step" if rate >= 100 else f"{rate:.3g} times a step"


def percent(view: DeviceView, microseconds: float) -> str:
    """A time as a share of what findings are of: "12 %"."""
    share = 100 * microseconds / view.shares_are_of
    return f"{share:.0f} %" if share >= 9.5 else f"{share:.1f} %"


def size_in_words(size: float) -> str:
    """Bytes: "200 bytes", "1.5 KiB", "25 MiB", "2.2 GiB"."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{_three_digits(size / factor)} {unit}"
    return f"{size:.0f} bytes"


def short_name(name: str, longest: int = 60) -> str:
    """A kernel's name without its parameters, cut where it is long."""
    head = name.removeprefix("void ").partition("(")[0]
    return head if len(head) <= longest else f"{head[: longest - 3]}..."


def ranks_in_words(ranks: Sequence[int]) -> str:
    """ "ranks 0 to 7", "ranks 1, 3 and 5" """
    if list(ranks) == list(range(ranks[0], ranks[-1] + 1)) and len(ranks) > 2:
        return f"ranks {ranks[0]} to {ranks[-1]}"
    words = [str(rank) for rank in ranks]
    return f"ranks {', '.join(words[:-1])} and {words[-1]}" if len(words) < 9 else f"{len(words)} ranks"
