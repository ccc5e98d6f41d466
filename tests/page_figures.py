"""What each figure of the README and of `docs/` rests on: its words, made anew from records and constants.

A tie is a piece of some page as it must read, built from its source. On the pages that tell what was measured (`COVERED`) a
number that no tie and no exemption covers is tied to nothing, and `problems` names it.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfaudit import errors
from perfaudit.gate.settings import GateSettings
from perfaudit.knobs import all_knobs
from perfaudit.measure import nursery, quads, stats
from perfaudit.rules import STABLE_BY_DECISION, all_rules
from perfaudit.tune import tolerance

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import demonstration  # noqa: E402  # they stand in that folder
import machine_states  # noqa: E402
import script_demonstration  # noqa: E402

Json = dict[str, Any]
Pages = Mapping[str, str]  # texts by name, such as docs/scan.md

# Pages on which each number is tied to its source, or exempt.
COVERED = ("README.md", "docs/results.md", "docs/tutorial.md", "docs/howto/read-a-trace.md")

# Words that are numbers; "one" and "two" stand in too many sentences that count nothing.
IN_WORDS = {
    3: "three",
    4: "four",
    5: "five",
    6: "six",
    7: "seven",
    8: "eight",
    9: "nine",
    10: "ten",
    12: "twelve",
    16: "sixteen",
    18: "eighteen",
    19: "nineteen",
}
NUMBER = re.compile(rf"\d(?:[\d,.]*\d)?|\b(?:{'|'.join(IN_WORDS.values())})\b", re.IGNORECASE)

EXEMPT = {
    r"PA\d{1,3}\b": "identities of rules and areas; a test of its own looks that they exist",
    r"\b(?:b?float16|TF32|tf32)\b": "names of types",
    r"Apache-2\.0": "name of the licence",
    r"`mean:5%`": "name of another program's setting",
    r"(?:in )?about 3 minutes": "what a person waits: installing, and the run that the demonstration has timed",
    r"ten minutes": "what a person needs for the tutorial, most of which the demonstration has timed",
    r"(?m)^\d\. |^## \d\. ": "numbers of steps and headings",
    r"schedule\(wait=5, warmup=3, active=4, repeat=1\)|one trace, of four steps": "code in an example",
    r"takes five minutes": "the default of `tune --budget`, which the demonstration has timed",
    r"runs the script for 20 seconds": "what docs/run.md says of `run`",
    r"exits with 1:": "an exit code of the command below it, which tests/docs/test_blocks.py runs",
    r"has one of five bases": "the table below it",
    r"those that exclude 1 are red|three kinds of gate": "words about pictures, which tests/test_pages.py draws anew",
    r"Its ratio should be 1\b": "what a ratio of two equal times is",
    r"A ratio below 1 is faster": "what a ratio is",
    r"(?s)```console\n\$ perfaudit (?:scan|gate) [^\n]*\n(?!…).*?```": "what tests/docs/test_blocks.py runs",
}


def pages() -> dict[str, str]:
    """Every page that people wrote, by its name in the repository."""
    written = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in written
        if path.parent.name != "rules" and path.name not in ("rules.md", "commands.md")
    }


def problems(pages: Pages) -> list[str]:
    """What is wrong with the figures of pages: ties that none of them holds, idle exemptions, numbers without a tie."""
    spans: dict[str, list[tuple[int, int]]] = {name: [] for name in pages}
    found = []
    exempt = [
        (pattern, f"nothing reads {pattern} any more ({why}): take it out of EXEMPT") for pattern, why in EXEMPT.items()
    ]
    for pattern, problem in [*((pattern_of(words), _broken(words, source)) for words, source in ties()), *exempt]:
        places = [(name, match.span()) for name, text in pages.items() for match in re.finditer(pattern, text)]
        found += [] if places else [problem]
        for name, span in places:
            spans[name].append(span)
    for name in COVERED:
        text = pages[name]
        for match in NUMBER.finditer(text):
            if not any(start <= match.start() and match.end() <= end for start, end in spans[name]):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{name}:{line}: {match[0]} is tied to no record: add a tie to tests/page_figures.py")
    return found


def broken_ties(pages: Pages, pieces: Iterable[tuple[str, str]]) -> list[str]:
    """Of these ties, those that no page holds."""
    return [
        _broken(words, source)
        for words, source in pieces
        if not any(re.search(pattern_of(words), text) for text in pages.values())
    ]


def _broken(words: str, source: str) -> str:
    return f"{source} says: {words}"


def pattern_of(words: str) -> str:
    """The words, broken into lines anywhere."""
    return r"\s+".join(map(re.escape, words.split()))


def ties() -> Iterator[tuple[str, str]]:
    """Each piece of a page that has figures, as its source has it, and the name of the source."""
    for part in (
        _script,
        _demonstration,
        _scan,
        _rules,
        _tiers,
        _method,
        _climb,
        _calibration,
        _search,
        _memory,
        _gate,
        _programs,
        _trace,
        _codes,
    ):
        source, pieces = part()
        yield from ((words, source) for words in pieces)


def _record(name: str) -> Any:  # Any: nested JSON
    return json.loads((BENCHMARKS / name).read_text(encoding="utf-8"))


def _found(name: str, pattern: str) -> tuple[str, ...]:
    """What a pattern finds in a page of benchmarks/, its spaces taken for any white space."""
    text = (BENCHMARKS / name).read_text(encoding="utf-8")
    match = re.search(pattern.replace(" ", r"\s+"), text)
    assert match is not None, f"benchmarks/{name} does not say: {pattern}"
    return match.groups()


def _all_found(name: str, pattern: str) -> list[tuple[str, ...]]:
    """The same of every place that it finds, from the first to the last."""
    text = (BENCHMARKS / name).read_text(encoding="utf-8")
    found = [match.groups() for match in re.finditer(pattern.replace(" ", r"\s+"), text)]
    assert found, f"benchmarks/{name} does not say: {pattern}"
    return found


def _row(name: str, *first: str) -> list[str]:
    """The cells of the row of a table that begins with these."""
    for line in (BENCHMARKS / name).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[: len(first)] == list(first):
            return cells
    raise AssertionError(f"benchmarks/{name} has no row {first}")


def _row_under(name: str, heading: str, *first: str) -> list[str]:
    """The same of the first such row below a heading that has these words."""
    page = (BENCHMARKS / name).read_text(encoding="utf-8")
    below = page[page.index(heading) :]
    for line in below.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[: len(first)] == list(first):
            return cells
    raise AssertionError(f"benchmarks/{name} has no row {first} below {heading!r}")


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _script() -> tuple[str, list[str]]:
    record = _record("script_demonstration.json")
    took = " and ".join(f"{one['seconds']} s" for one in record["printed"])
    return "benchmarks/script_demonstration.json", [
        *script_demonstration.blocks(record),
        f"two commands printed on a {record['device']} without GPU ({record['versions']}), in {took}",
    ]


def _demonstration() -> tuple[str, list[str]]:
    return "benchmarks/demonstration.json", [demonstration.block(_record("demonstration.json"))]


def _scan() -> tuple[str, list[str]]:
    speed = _record("scan_speed.json")
    row = max(speed["folders"], key=lambda folder: int(folder["files"]))
    many = next(folder for folder in speed["folders"] if "examples" in folder["folder"])["ratio_to_ast_parse"]
    trains = next(folder for folder in speed["folders"] if folder["folder"].startswith("speechbrain"))
    one = speed["small"]["scan of one file"]
    seconds = {name: f"{tool['cpu_s']:.1f} s" for name, tool in row["tools"].items()}
    times = {name: f"{ratio:.1f} times" for name, ratio in row["ratio_to_ast_parse"].items()}
    return "benchmarks/scan_speed.json", [
        f"Scanning the installed torch package ({row['files']:,} files) in one process takes "
        f"{times['perfaudit cold, 1 process']} the processor time of parsing the same files and nothing else "
        f"({seconds['perfaudit cold, 1 process']} and {seconds['ast.parse']}), and {times['perfaudit warm']} with the cache of "
        "an earlier scan",
        f"speechbrain/speechbrain ({trains['files']} files) takes "
        f"{trains['ratio_to_ast_parse']['perfaudit cold, 1 process']:.1f} times, and "
        f"{trains['ratio_to_ast_parse']['perfaudit warm']:.1f} times with the cache",
        f"in pytorch/examples, where most have one, it is {many['perfaudit cold, 1 process']:.1f} times, and "
        f"{many['perfaudit warm']:.1f} times with the cache",
        f"A scan of one file takes {one['cpu_ms']:.0f} ms. All of it on {speed['cores']} cores, load {speed['load'][0]} before "
        f"and {speed['load'][1]} after",
    ]


def _rules() -> tuple[str, list[str]]:
    areas = ["input", "model", "backend and precision", "optimizer and averaging", "debugging left on", "host and device",
             "distributed", "evaluation and memory"]  # fmt: skip
    rules = {id_ for id_, rule in all_rules().items() if rule.found_in == "code"}
    counts = [sum(id_.startswith(f"PA{number}") for id_ in rules) for number in range(1, len(areas) + 1)]
    pieces = [f"{len(rules)} rules read code"]
    pieces += [
        f"| PA{n} {area} | {count} |" for n, (area, count) in enumerate(zip(areas, counts, strict=True), start=1)
    ]
    page = "scan_quality.md"
    reports, right, arguable, wrong = _found(
        page, r"\*\*Of (\d+) reports, (\d+) are right, (\d+) arguable and (\d+) wrong"
    )
    (repositories,) = _found(page, r"(\d+) public training repositories were set aside")
    others, findings, read = _found(page, r"(\d+) other public repositories .* Of ([\d,]+) findings (\d+) were read")
    (safe,) = _found(page, r"No safe patch was wrong, among (\d+)")
    shares = [_row(page, name)[1] for name in ("right", "true, but hardly worth saying", "wrong")]
    first = " | ".join(_percent(int(n) / int(reports)) for n in (right, arguable, wrong))
    fourth, fifth, sixth = (_reading(f"scan_reading{which}.md") for which in ("", "_fifth", "_sixth"))
    later = _all_found(
        page,
        r"\*\*Of (\d+) findings in (\d+) repositories (\d+) are right \((\d+ %)\), (\d+) true but hardly worth saying "
        r"\((\d+ %)\) and (\d+) wrong \((\d+ %)\)",
    )
    of_some = _all_found(
        page,
        r"\*\*Of the (\d+) findings of (\w+ rules?) in (\d+) repositories \d+ are right \((\d+ %)\), \d+ true but hardly "
        r"worth saying \((\d+ %)\) and \d+ wrong \((\d+ %)\)",
    )
    (kinds,) = _found(page, r"only PA801 and PA603, whose last reading missed the 90 %\. (\d+) public repositories")
    row = r"\| %s \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| \d+ \| \d+(?: \(\d+ %%\))? \| \d+ \| 0 \|"
    evaluations, losses = ([int(cell) for cell in _found(page, row % rule)] for rule in ("PA801", "PA603"))
    of_two, *judged_of_two = map(sum, zip(evaluations, losses, strict=True))
    in_all, *judged = (sum(int(found[place]) for found in later[-2:]) for place in (0, 2, 4, 6))
    newest = [_percent(each / in_all) for each in judged]
    assert fourth[-2:] == fifth[-2:] == sixth[-2:], "one aim"
    aim, most_wrong = sixth[-2:]
    return f"rules/, benchmarks/{page} and benchmarks/scan_reading*.md", [
        *pieces,
        f"The aim is that {aim} are right and at most {most_wrong} wrong.",
        f"The aim is that {aim} of the reports are right and at most {most_wrong} wrong, and readers who wrote none",
        f"found it missed: {fifth[2]} of {fifth[0]} reports right, {fifth[3]} true but hardly worth a change, "
        f"and {fifth[4]} wrong",
        f"The two newest of all rules found {newest[0]}, {newest[1]} and {newest[2]} of {in_all}",
        *(
            f"{found[1]} repositories | one who fixes rules, so it is not independent | {found[0]} | "
            f"{found[3]} | {found[5]} | {found[7]} |"
            for found in later
        ),
        *(
            f"{found[2]} repositories, {found[1]} alone | one who fixes rules, so it is not independent | {found[0]} | "
            f"{' | '.join(found[3:])} |"
            for found in of_some
        ),
        f"{kinds} repositories, PA603 and PA801 alone | one who fixes rules, so it is not independent | {of_two} | "
        f"{' | '.join(_percent(each / of_two) for each in judged_of_two)} |",
        f"{repositories} repositories | one who wrote no rule | all {reports} | {first} |",
        f"{others} others, later | one who wrote no rule | {read} of {findings}, weighted | {' | '.join(shares)} |",
        *(
            f"{found[1]} repositories | {by} | {found[0]} | {' | '.join(found[2:5])} |"
            for found, by in (
                (fourth, "four who wrote no rule"),
                (fifth, "two who wrote no rule"),
                (sixth, "one who fixes rules, so it is not independent"),
            )
        ),
        f"In the second reading no safe patch among {safe} was wrong",
    ]


def _tiers() -> tuple[str, list[str]]:
    """What is said of the rules that are stable by decision: how much of their findings was right, and what would be preview."""
    rules = [all_rules()[id_] for id_ in sorted(STABLE_BY_DECISION)]
    readings = [rule.reading for rule in rules if rule.reading is not None]
    right = _in_words([f"{reading.right} of {reading.read}" for reading in readings])
    assert len(readings) == len(rules), "the words below name each with its reading"
    assert not any(reading.is_mostly_right for reading in readings), "it says that they would be preview"
    wrong = sum(reading.wrong for reading in readings)
    assert all(reading.wrong <= reading.mended for reading in readings), "it says that what was wrong is mended"
    return "rules/ and benchmarks/scan_quality.md", [
        f"{_in_words([rule.id for rule in rules])} are the exception, by decision. In the readings that their rule files name, "
        f"{right} of their findings were right, and by these figures they would be `preview`",
        f"Of the findings that were not right {wrong} was wrong, and is mended",
    ]


def _in_words(parts: list[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _reading(page: str) -> tuple[str, ...]:
    """Of a reading: findings, repositories, shares that are right, arguable and wrong; the aim, and how many may be wrong."""
    return _found(
        page,
        r"\*\*(\d+) findings in (\d+) repositories .*?: (\d+ %) right, (\d+ %) arguable, (\d+ %) wrong\.\*\* "
        r"The aim was (\d+ %) right and at most (\d+ %) wrong",
    )


def _method() -> tuple[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    all_looks = (stats.LOOKS, quads.LOOKS, quads.PAIR_LOOKS)
    looks, quad_looks, pair_looks = ([str(look.generations) for look in each] for each in all_looks)
    assert (tolerance.COMPARING_SECONDS, tolerance.SHARE_OF_SPREAD, tolerance.STREAMS) == (2, 0.5, 2), (
        "two, half, twice"
    )
    gate = GateSettings()
    return "the code", [
        f"Python {project['requires-python'].removeprefix('>=')} or newer",
        f"(with a {_percent(1 - stats.ERROR)} interval)",
        f"holds the true ratio in {_percent(1 - stats.ERROR)} of comparisons",
        f"{IN_WORDS[len(all_knobs())].capitalize()} knobs:",
        f"{IN_WORDS[len(all_knobs())]} knobs pay together",
        f"judged after {', '.join(pair_looks[:-1])} and {pair_looks[-1]} pairs of blocks, or {', '.join(quad_looks[:-1])} and "
        f"{quad_looks[-1]} comparisons in turn, in the one training, after "
        f"{', '.join(looks[:-1])} and {looks[-1]} generations in fresh processes, with {_percent(stats.ERROR)} error in all",
        f"`GOMP_SPINCOUNT={nursery.SPIN_COUNT}`",
        f"(as many as fit into two seconds, {tolerance.FEWEST_STEPS} to {tolerance.MOST_STEPS})",
        f"stay within {tolerance.SPREAD_OF_NUDGES:.0f} times what your own training does when its parameters are moved by "
        f"{tolerance.NUDGE:.0f} roundings of the type, and within half of what another seed does",
        "may differ by twice what another stream of your own code does",
        f"If the first {IN_WORDS[tolerance.STEPS_SURE]} losses differ by {_percent(tolerance.SMALL_NOISE)} or more",
        f"**regressed**: the whole interval lies beyond `--tolerate` ({_percent(gate.tolerate)})",
        f"**pass**: the whole interval lies below `--max-regression` ({_percent(gate.max_regression)})",
        f"The error of {_percent(stats.ERROR)} is promised by a calculation",
    ]


def _climb() -> tuple[str, list[str]]:
    page = (BENCHMARKS / "climb_speed.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    all_runs = [row for row in rows if row[2] in machine_states.STATES]
    runs = [row for row in all_runs if row[1] == "sample_models"]
    of_others = [row for row in all_runs if row not in runs]
    (cores,) = set(re.findall(r", (\d+) of \d+ cores", page))
    (version,) = set(re.findall(r"torch [\d.]+\d", page))
    commands = re.findall(r"python benchmarks/climb_speed\.py .*", page)
    records = [json.loads(line) for line in (BENCHMARKS / "climb_speed.jsonl").read_text(encoding="utf-8").splitlines()]
    calm = [record["others"] for record in records if record["state"] == "calm"]
    assert max(calm) <= 0.3, "it says that this was calm"  # loader workers of its own are in the load
    (said,) = (
        r["ladder"]["said"] for r in records if (r["program"], r["state"], r["budget"]) == ("char_gpt", "calm", 120.0)
    )
    of_mingpt = [r["ladder"] for r in records if r["program"] == "mingpt_chars"]
    others, sets = [found["said"] for found in of_mingpt], {tuple(sorted(found["patches"])) for found in of_mingpt}
    first, second = (each for each in others if each[3] == "measured")
    assert (said[3], len(others)) == ("measured", 4)
    minutes = [r for r in records if (r["commit"], r["state"], r["budget"]) == ("sample_models", "calm", 60.0)]
    long = [r for r in records if (r["program"], r["state"], r["budget"]) == ("photo_resnet", "calm", 120.0)]
    assert sum("not handed over" in r["applied"] for r in long) == 3
    assert all(r["ladder"]["patches"] and not r["ladder"]["trouble"] for r in minutes), (
        "it says that each hands one over"
    )
    assert sum(row[8].startswith("no patch") for row in of_others) == 2
    return "benchmarks/climb_speed.md", [
        f"Samples climbed ({version}, {cores} cores without GPU), each as often as its row says",
        *commands,
        f"a *loaded* machine runs {IN_WORDS[machine_states.BUSY]} busy processes beside the climb",
        f"Other programs held {max(calm):.2f} of a core at most when a calm climb began",
        "measured {:.3f} [{:.3f}, {:.3f}] of the step".format(*said[:3]),
        *(
            f"| `{row[0]}` | {row[2]}, {row[3]} | {row[4]}, {row[5]} | {row[10]} | {row[7]} | {row[8]} | {row[9]} |"
            for row in runs
        ),
        *(
            f"| {row[1]} `{row[0]}` | {row[2]}, {row[3]} | {row[4]}, {row[5]} | {row[10]} | {row[7]} | {row[8]} |"
            for row in of_others
        ),
        f"Models and losses of {IN_WORDS[len({row[0] for row in of_others})]} programs by other people",
        "Of two of them the longer climb finds nothing",
        f"{IN_WORDS[len(others)].capitalize()} climbs of a minute",
        f"handed over {IN_WORDS[len(sets)]} sets of patches",
        f"Three of the {IN_WORDS[len(long)]} climbs of two minutes of calm `photo_resnet` handed nothing over",
        "{:.3f} [{:.3f}, {:.3f}] of the step, where the bare loops behind it found no gain".format(*first[:3]),
        "and {:.3f} [{:.3f}, {:.3f}]; the two others".format(*second[:3]),
    ]


def _calibration() -> tuple[str, list[str]]:
    page = "calibration.md"
    (version,) = _found(page, r"One thread, (torch [\d.]+), on a machine that others used")
    rows = []
    for name in ("none", "3 %", "5 %", "10 %"):
        cells = _row(page, "none (A/A)" if name == "none" else name, "wall")
        rate, low, high = (float(number) for number in re.findall(r"[\d.]+", cells[5]))
        digits = 1 if name == "none" else 0
        called = f"{rate:.{digits}f} % [{low:.{digits}f}, {high:.{digits}f}]"
        rows.append(f"| {name} | {cells[2]} | {called} | {cells[7]} % |")
    same = _row(page, "none (A/A)", "wall")
    alike = [float(cell) for cell in _row("simulated_calibration.md", "the quads (violates what we assume)", "0.3")[3:]]
    counted = _row("engine_calibration.md", "all", "calm")
    excluded, pays = (cell.partition(" (")[0] for cell in counted[6:8])
    beside, pays_beside = (cell.partition(" (")[0] for cell in _row("engine_calibration.md", "all", "loaded")[6:8])
    halves = _row_under("engine_calibration.md", "half of the candidates in place at a time", "all", "all")
    (load,) = {_row_under("engine_calibration.md", "half of the candidates in place", "all", "shared")[3]}
    excluded_halves, pays_halves = (cell.partition(" (")[0] for cell in halves[6:8])
    return f"benchmarks/{page}", [
        f"calm and beside others' work (load {load}): {excluded_halves} excluded 1, and {pays_halves} would have been taken",
        f"Calm: {excluded} comparisons of identical code excluded 1, and {pays} would have been taken for a gain",
        f"beside three busy processes {beside}, and {pays_beside}",
        f"{same[2]} pairs of identical real trainings",
        f"others used it (load {float(same[11]):.0f}, {version}, one thread,",
        *rows,
        "If neighbouring comparisons had a correlation of 0.3 (the machine alone does not cause that), identical code would be "
        f"called different in {min(alike):.0f} to {max(alike):.0f} % of comparisons",
    ]


def _search() -> tuple[str, list[str]]:
    runs = {run["regime"]: run for run in _record("search_quality.json")["runs"]}
    (settings,) = {len(run["sweep"]) for run in runs.values()}
    named = {
        "decode, real step": "decoding images, real",
        "memory, real step": "memory, real",
        "fast io, sleeping step": "a fast disk, sleeping",
        "slow io, sleeping step": "a slow disk, sleeping",
        "jitter, sleeping step": "a disk that jitters, sleeping",
    }
    rows = []
    for regime, words in named.items():
        run = runs[regime]
        ours, best = (_workers(run[key]["num_workers"]) for key in ("ours", "best"))
        low_high = "{:.0f} % [{:+.0f}, {:+.0f}]".format(*(round(100 * value) for value in run["regret"]))
        regret = "none: the same" if run["ours"] == run["best"] else low_high
        took = f"{run['seconds']:.0f} / {run['sweep_seconds']:.0f}"
        rows.append(f"| {words} | {ours} | {best} | {regret} | {took} |")
    return "benchmarks/search_quality.json", [f"against a sweep of {settings} settings in the same run", *rows]


def _workers(number: int) -> str:
    return {0: "no workers", 1: "1 worker"}.get(number, f"{number} workers")


def _memory() -> tuple[str, list[str]]:
    runs = {run["regime"]: run for run in _record("search_quality_batch.json")["runs"]}
    (version,) = {run[name]["version"] for run in runs.values() for name in ("power", "binsearch")}
    named = {
        "ResNet-10 of width 16, 48 x 48": "ResNet-10",
        "GPT, 3 blocks": "GPT",
        "MLP, 30,000 hidden": "MLP with 30,000 hidden",
    }
    rows = []
    for regime, words in named.items():
        run = runs[regime]
        power, binsearch = run["power"], run["binsearch"]
        assert run["ours"]["confirming_seconds"] > 0, "it says that a real step confirmed it"
        events = f"{'' if rows else 'out of memory '}{power['events']} and {binsearch['events']} times"
        cells = [
            f"{words}, {run['budget'] // 2**20} MiB",
            run["true"]["limit"],
            run["ours"]["limit"],
            run["ours"]["events"],
        ]
        rows.append(f"| {' | '.join(map(str, cells))} | {power['limit']}, {binsearch['limit']}; {events} |")
    return "benchmarks/search_quality_batch.json", [f"Lightning {version} power, binsearch", *rows]


def _gate() -> tuple[str, list[str]]:
    page = "gate_power.md"

    def cell(text: str) -> str:
        """ "0 of 120 (0.0 %, 0.0 to 3.0)" as the README has it, without the share."""
        count, low, high = re.findall(r"(\d+ of \d+) \([\d.]+ %, ([\d.]+) to ([\d.]+)\)", text)[0]
        return f"{count} ({re.sub(r'[.]0$', '', low) if float(low) == 0 else low} to {'100' if high == '100.0' else high} %)"

    rows = {
        name: _row(page, "all", name) for name in ("perfaudit gate", "stored mean, > 5 %", "pytest-benchmark, mean:5%")
    }
    ours, stored, rival = rows.values()
    steps = [_row(page, target, "aa")[3].removesuffix(" ms") for target in ("char_gpt", "digits_cnn")]
    verdicts = [_row(page, target, "aa")[4] for target in ("char_gpt", "digits_cnn")]
    inconclusive = sum(int(n) for text in verdicts for n in re.findall(r"(\d+) inconclusive", text))
    (same,) = re.findall(r"of (\d+)", ours[2])
    (level,) = _found("gate_power.py", r"def clopper_pearson\(hits: int, of: int, level: float = ([\d.]+)\)")
    (pinned,) = _found(page, r"(taskset -c 0 nice -n -10) python benchmarks/gate_power.py")
    assert {"caught at +5 %", "caught at +10 %"} <= set(_row(page, "target", "method"))
    assert ours[2].startswith("0 of ") and len({*re.findall(r"\d+", ours[3].partition("(")[0])}) == 1, "none, and all"
    (slowed,) = re.findall(r"of (\d+)", ours[3])
    return f"benchmarks/{page}", [
        f"on steps of {steps[0]} and {steps[1]} ms, one core each |",
        "| 5 % slower, caught | 10 % slower, caught |",
        f"| `perfaudit gate`, interleaved pairs | {' | '.join(map(cell, ours[2:5]))} |",
        f"| mean against a stored mean, > 5 % | {' | '.join(map(cell, stored[2:5]))} |",
        f"| `pytest-benchmark`, `mean:5%` | {' | '.join(map(cell, rival[2:5]))} |",
        f"In brackets exact {_percent(float(level))} intervals; a gate took {ours[5]} s (median), "
        f"its rivals {stored[5]} and {rival[5]} s",
        f"{inconclusive} of the {same} gates of identical code were inconclusive",
        f"{inconclusive} of the {same} were inconclusive",
        f"`{pinned}`",
        f"Of {same} gates of identical code none was called slower; of {slowed} changes that were 5 % slower all were caught",
    ]


def _programs() -> tuple[str, list[str]]:
    """What `tune` did with scripts by other people: how many got a patch, and what it saved."""
    page = "scripts.md"
    text = (BENCHMARKS / page).read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    programs = [row for row in rows if len(row) == 16 and row[0] not in ("program", "---")]
    tuned = [row for row in programs if row[10] != "–" or row[13] != "–"]
    patched = [row for row in tuned if row[11] != "–"]
    none = [row for row in tuned if row[10] == "none"]
    assert {row[15] for row in tuned} == {"0"}, "no file of theirs changed"
    (cores,) = _found(page, r"of (\d+) cores")
    (longest,) = _found(page, r"each climb had (?:\d+ s / )*(\d+) s")
    failed = len(tuned) - len(patched) - len(none)
    ended = f"{len(patched)} got a patch, {len(none)} got none, and {failed} could not"
    named = {
        "nanogpt": "karpathy/nanoGPT `train.py`",
        "adder": "karpathy/minGPT `projects/adder/adder.py`",
        "chargpt": "karpathy/minGPT `projects/chargpt/chargpt.py`",
        "mnist_rnn": "pytorch/examples `mnist_rnn`",
        "vae": "pytorch/examples `vae`",
        "dcgan": "pytorch/examples `dcgan`",
        "words_adam": "pytorch/examples `word_language_model`, Transformer",
        "gan": "eriklindernoren/PyTorch-GAN `gan`",
        "two_layers": "jcjohnson/pytorch-examples `two_layer_net_optim.py`",
    }
    assert {row[0] for row in patched} == set(named)
    return f"benchmarks/{page}", [
        f"at most {longest} s each",
        f"Of {len(tuned)} that were tuned, {ended}",
        f"Of {len(tuned)} [training scripts by other people]",
        f"tuned as they are on {cores} cores, {ended}",
        f"The {len(none)} without a patch: in a few minutes on {cores} cores",
        *(f"| {named[row[0]]} | {row[10]} | {row[11]} | {row[12]} |" for row in patched),
        *(f"| {named[row[0]].partition(',')[0]} | {row[10]} | {row[11]} {row[12]} |" for row in patched),
    ]


def _trace() -> tuple[str, list[str]]:
    """The report of a trace by other people, as the command has printed it, and how many traces were looked at."""
    printed = (BENCHMARKS / "trace_demonstration.txt").read_text(encoding="utf-8")
    traces = tomllib.loads((BENCHMARKS / "trace_quality.toml").read_text(encoding="utf-8"))["trace"]
    (shown,) = [one for one in traces if one["path"].endswith("dlrm_kineto.tar.gz")]
    ranks = len(re.findall(r"^  rank \d+ cuda", printed, re.MULTILINE))
    (late,) = shown["stragglers"]
    (refused,) = [one for one in traces if one["largest"] == "not read"]
    assert "its events overlap" in refused["why"]
    return "benchmarks/trace_demonstration.txt", [
        printed.partition("\n  3  at most")[0],
        f"{IN_WORDS[ranks]} ranks that somebody else traced ({shown['repository']} at {shown['commit'][:10]},",
        f"Rank {late} communicates least",
        f"what it says of {len(traces)} traces by other people",
        f"Of [{len(traces)} traces by other people](benchmarks/trace_quality.md) one, of a device whose events overlap,",
        f"[{IN_WORDS[ranks]} ranks wait for the one that looks busiest]",
    ]


def _codes() -> tuple[str, list[str]]:
    return "perfaudit/errors.py", [
        f"{errors.OK} nothing to report, or the gate passed",
        f"{errors.FOUND} findings, something faster was found",
        f"{errors.WRONG_USE} wrong use",
        f"| {errors.NOTHING_MEASURED} | it could not be measured",
        f"{errors.NOTHING_MEASURED} nothing could be looked at or measured",
        f"{errors.INTERRUPTED} interrupted",
    ]
