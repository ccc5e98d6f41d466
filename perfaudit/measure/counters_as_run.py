"""What is counted of a training that runs unobserved: graph breaks, recompilations, kernels, graph replays. Child only."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

Reply = dict[str, Any]  # JSON

STEPS = 5  # of which what is compiled is counted; the first ones compile, and later ones where something changes

_LAUNCHES = ("LaunchKernel", "LaunchCooperativeKernel")  # cudaLaunchKernelExC, cuLaunchKernel, hipModuleLaunchKernel
_REPLAYS = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
_RUNTIMES = ("cuda", "cu", "hip")
OF_LAUNCHES = ("kernels_launched", "graphs_replayed")


def compiles(training: Any) -> bool:  # Any: training.factory_training.FactoryTraining
    """Whether something of the program is compiled by torch.compile: the model, parts of it, or any function."""
    if training.compiled_sites or any(getattr(m, "_compiled_call_impl", None) for m in training.model.modules()):
        return True
    frames = sys.modules.get("torch._dynamo.eval_frame")
    context = getattr(frames, "OptimizeContext", None)  # what the wrapper of each compiled function holds
    return context is not None and any(type(thing) is context for thing in gc.get_objects())


def counters_as_run(training: Any) -> Reply:
    """Counters of the first steps of a training as it is, as JSON: values, by_name and absent as in `counters`.

    graph_breaks, by reason, and recompilations: of all steps together, where something is compiled. kernels_launched and
    graphs_replayed: of the last step, on CUDA and ROCm; absent where the profiler is shown a kernel and does not see it,
    because a 0 would then be no count.
    """
    found: Reply = {"values": {}, "by_name": {}, "places": {}, "unsteady": {}, "absent": {}}
    compiled = compiles(training)
    if compiled:
        from torch._dynamo import utils

        utils.counters.clear()
        getattr(utils, "clear_compilation_metrics", lambda: None)()
    for _ in range(STEPS):
        training.whole_step()
    training.synchronize()
    if compiled:
        _count_compiled(found)
    if training.device.type == "cuda":
        _count_launches(training, found)
    training.phases.take()
    return found


def _count_compiled(found: Reply) -> None:
    from torch._dynamo import utils

    breaks: Counter[str] = Counter()
    for reason, count in utils.counters["graph_break"].items():
        breaks[first_line(reason)] += count
    found["values"]["graph_breaks"], found["by_name"]["graph_breaks"] = breaks.total(), dict(breaks)
    metrics = getattr(utils, "get_compilation_metrics", None)
    if metrics is None:
        found["absent"]["recompilations"] = "this torch does not say what it compiled"
        return
    found["values"]["recompilations"] = recompilations(
        (one.co_filename, one.co_firstlineno, one.co_name) for one in metrics() if one.co_name is not None
    )


def recompilations(compiled: Iterable[tuple[object, ...]]) -> int:
    """How many of the compilations were of a function, told by file, line and name, that had been compiled before."""
    times = Counter(compiled)
    return times.total() - len(times)


def first_line(reason: str) -> str:
    return (reason.strip().splitlines() or [""])[0].strip()[:120]


def _count_launches(training: Any, found: Reply) -> None:
    """Kernels and graphs of one step, where the profiler sees those of a step that is known to launch one."""

    def step() -> None:
        training.whole_step()
        training.synchronize()

    def small() -> None:
        torch.zeros(1, device=training.device).add_(1)  # filling alone may be no kernel
        training.synchronize()

    import torch

    if why := why_uncounted(names_of, small):
        found["absent"].update(dict.fromkeys(OF_LAUNCHES, why))
    else:
        found["values"].update(zip(OF_LAUNCHES, launches(names_of(step)), strict=True))


def why_uncounted(seen_of: Callable[[Callable[[], None]], Iterable[str]], small: Callable[[], None]) -> str:
    """Why launches cannot be counted here, "" where they can. seen_of: events of what it runs; small: launches one kernel."""
    try:
        seen = launches(seen_of(small))
    except RuntimeError as error:  # CUPTI refused: not permitted, or held by another profiler
        return f"torch's profiler does not run here: {first_line(str(error))}"
    if seen[0]:
        return ""
    return (
        "torch's profiler does not see a kernel that was launched, so CUPTI is missing, not permitted, or held by another "
        "profiler"
    )


def names_of(run: Callable[[], None]) -> list[str]:
    """Names of the events that the profiler sees while this runs."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        run()
    return [event.name for event in seen.events()]


def launches(names: Iterable[str]) -> tuple[int, int]:
    """Kernels launched and graphs replayed, from the names of a profile's events: calls of the runtime's interface."""
    calls = [name for name in names if name.startswith(_RUNTIMES)]
    replays = sum(name.startswith(_REPLAYS) for name in calls)
    return sum(any(part in name for part in _LAUNCHES) for name in calls), replays
