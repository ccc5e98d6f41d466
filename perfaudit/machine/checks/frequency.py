"""Whether the processor's clock changes while something is measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact

AREA = "processor"


def look(place: Place) -> Iterator[MachineFact]:
    folder = place.root / "sys/devices/system/cpu"
    names = [path.read_text().strip() for path in sorted(folder.glob("cpu[0-9]*/cpufreq/scaling_governor"))]
    if not names:
        yield MachineFact(AREA, "governor", None, state="unknown", basis="cpufreq")
        return
    name, _ = Counter(names).most_common(1)[0]
    slow = name in ("powersave", "conservative", "ondemand") and not (folder / "intel_pstate").is_dir()
    advice = (
        "the clock rises after work has come: `cpupower frequency-set -g performance` while measuring" if slow else ""
    )
    yield MachineFact(AREA, "governor", name, "", "note" if slow else "ok", advice, "cpufreq")
