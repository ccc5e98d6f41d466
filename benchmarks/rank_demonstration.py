"""What the commands of docs/distributed.md print: `python benchmarks/rank_demonstration.py [NAME ...]` runs and keeps them.

Each is started by torchrun on two ranks of gloo in benchmarks/rank_programs; its lines stay in rank_demonstration.json, beside
the load before it. Without names, all are run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from gate_power import machine

HERE = Path(__file__).resolve().parent
RECORD = HERE / "rank_demonstration.json"
COMMANDS = {
    "straggler": "run text_ranks.py --steps 60 -- straggler",
    "raise": "run failing_ranks.py --steps 60 -- raise",
    "hang": "run failing_ranks.py --steps 60 --timeout 60s -- hang",
    "variant": "tune failing_ranks.py --budget 5m --allow safe -- variant-raise",
    "tune": "tune tunable_ranks.py --budget 10m",
    "sampler": "tune padded_ranks.py --budget 15m --sampler",
}


def main() -> None:
    kept = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in sys.argv[1:] or COMMANDS:
        load = os.getloadavg()[0]
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "perfaudit",
             *COMMANDS[name].split()],
            cwd=HERE / "rank_programs", capture_output=True, text=True, check=False,
        )  # fmt: skip
        lines = done.stdout.replace(f"{HERE / 'rank_programs'}/", "").splitlines()
        kept[name] = {
            "command": f"torchrun --nproc-per-node 2 -m perfaudit {COMMANDS[name]}",
            "code": done.returncode,
            "load": load,
            "machine": machine(),
            "lines": lines,
        }
        print("\n".join([f"$ {kept[name]['command']}", *lines]))
        RECORD.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
