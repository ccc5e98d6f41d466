"""How far losses and norms of gradients move under a right `no_sync`, and a wrong one: `python benchmarks/rank_norms.py --write`.

    --starts N   of each program (3)
    --write      put the table into rank_norms.md

The programs are texts of rank_programs/accumulating_ranks.py, run by two ranks of gloo as `perfaudit tune` runs them, from one
seed. The largest relative difference to the text as it is, of the first ten updates of both ranks, is what `tune.ranks.race`
compares with its limits (MAY_BE, NORM_MAY_BE).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gate_power import machine
from records import Json, tell

HERE = Path(__file__).resolve().parent
PAGE = HERE / "rank_norms.md"
PROGRAM = "accumulating_ranks.py"
STEPS = 14  # of a set, of which ten updates are compared
LAST, ANOTHER = (
    "(number + 1) % PASSES == 0 else",
    "number % PASSES == 0 else",
)  # of the line that decides which pass is summed
SAME = "the same text"


def texts() -> dict[str, str]:
    """The texts of the program, by what is done with it. Runs in the program's folder."""
    from perfaudit.tune.ranks.candidates import candidates_of
    from perfaudit.tune.ranks.patches import SeenRanks

    choice = candidates_of([PROGRAM], frozenset({"rounding"}), SeenRanks())
    (right,) = (each.text for each in choice.candidates if each.key == "no_sync=True")
    assert choice.moved is not None and LAST in right
    return {
        SAME: Path(PROGRAM).read_text(encoding="utf-8"),
        "each gradient moved by its last bit": choice.moved.nudged,
        "each number of each gradient left, doubled or left out by chance": choice.moved.spoiled,
        "`no_sync` but for the last pass": right,
        "`no_sync` but for the first pass, which is wrong": right.replace(LAST, ANOTHER),
    }


def run_as_rank(starts: int) -> None:
    """What each rank does; the first one prints how far each text is from the program as it is, as JSON."""
    from perfaudit.cli.rank_sets import rank_sets
    from perfaudit.cli.run_ranks import together
    from perfaudit.distributed.launch import place_of
    from perfaudit.script.request import Script
    from perfaudit.target.names import Target
    from perfaudit.tune.ranks.race import gap

    place = place_of(os.environ)
    assert place is not None
    script, target, rows = Script(PROGRAM, ()), Target(PROGRAM), list[Json]()
    with together(place, script, 0, None) as ranks, rank_sets(ranks, script, target, 600.0, False) as sets:
        if not ranks.is_first:
            sets.follow()
            ranks.wait_for_report()
            return
        for _ in range(starts):
            base = sets.run({}, STEPS)
            for what, text in texts().items():
                found = sets.run({PROGRAM: text}, STEPS)
                assert not found.why, found.why
                rows.append(
                    {"what": what, "losses": gap(base.losses, found.losses), "norms": gap(base.norms, found.norms)}
                )
        sets.end()
        ranks.tell_reported()
    print(json.dumps(rows))


def measure(starts: int) -> list[Json]:
    """The rows of all starts."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE / "rank_programs" / PROGRAM, folder)
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
        done = subprocess.run(
            [*launcher, __file__, "--as-rank", "--starts", str(starts)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    rows: list[Json] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[{")))
    return rows


def page(rows: list[Json], starts: int) -> str:
    lines = [
        "# How far two ranks move under `no_sync`",
        "",
        "Printed by `python benchmarks/rank_norms.py --write`. Two ranks of gloo train rank_programs/accumulating_ranks.py,",
        f"whose gradients come from four passes, {starts} times from one seed. The largest relative difference to the program as",
        "it is, of the first ten updates of both ranks; the limits are those of `tune.ranks.race` for a patch that changes the",
        "rounding.",
        "",
        "| what is run | losses | norms of gradients |",
        "|---|---:|---:|",
    ]
    for what in dict.fromkeys(row["what"] for row in rows):
        largest = [max(row[of] for row in rows if row["what"] == what) for of in ("losses", "norms")]
        lines.append(f"| {what} | {largest[0]:.1e} | {largest[1]:.1e} |")
    from perfaudit.tune.ranks.race import MAY_BE, NORM_MAY_BE

    lines += [f"| limit | {MAY_BE['rounding']:.1e} | {NORM_MAY_BE['rounding']:.1e} |", "", f"Machine: {machine()}", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        run_as_rank(options.starts)
    else:
        tell(page(measure(options.starts), options.starts), PAGE, options.write)


if __name__ == "__main__":
    main()
