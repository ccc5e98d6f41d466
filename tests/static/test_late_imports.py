"""What few files need is imported for those alone: the scan of one file is typed all day, and most of its time are imports."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).parent.parent.parent / "sample_models" / "digits_cnn.py"
CHECKS = "perfaudit.static.checks"
# Of which none has something to do in a plain training script, whose checks are imported all the same.
FOR_FEW_FILES = (
    "perfaudit.patterns",
    "perfaudit.static.hoist",
    "perfaudit.static.module_names",
    "perfaudit.static.project.settings_files",
    "perfaudit.static.project.settings_text",
    "perfaudit.static.understanding.configured_trainers",
    "perfaudit.static.understanding.configured_values",
    "perfaudit.static.understanding.learning_periods",
    "perfaudit.static.understanding.program_settings",
    f"{CHECKS}.conv_bias_before_norm.holders",
    f"{CHECKS}.dataloader_no_workers.long_evaluations",
    f"{CHECKS}.dataloader_no_workers.sent_to_workers",
    f"{CHECKS}.ema_per_parameter_loop.patch",
    f"{CHECKS}.ema_per_parameter_loop.updated_average",
    f"{CHECKS}.eval_without_no_grad.chosen_by_call",
    f"{CHECKS}.eval_without_no_grad.loaded_models",
    f"{CHECKS}.eval_without_no_grad.no_eval_mode",
    f"{CHECKS}.eval_without_no_grad.objects",
    f"{CHECKS}.eval_without_no_grad.tested_by_method",
    f"{CHECKS}.host_sync_in_training_loop.conditions_elsewhere",
    f"{CHECKS}.host_sync_in_training_loop.turns",
    f"{CHECKS}.host_sync_in_training_loop.values_elsewhere",
    f"{CHECKS}.loss_accumulates_graph.readers",
    f"{CHECKS}.transfer_blocks_host.batch_parts",
    f"{CHECKS}.transfer_blocks_host.copies_elsewhere",
    f"{CHECKS}.transfer_blocks_host.evaluations",
    f"{CHECKS}.transfer_blocks_host.host_writes",
    f"{CHECKS}.transfer_blocks_host.loaders_elsewhere",
    f"{CHECKS}.transfer_blocks_host.option_of_gpu",
)


def test_a_plain_training_script_imports_nothing_that_few_files_need() -> None:
    assert [name for name in FOR_FEW_FILES if importlib.util.find_spec(name) is None] == []
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from perfaudit.rules import rule_heads\n"
        "from perfaudit.static.audit import audit_file\n"
        "from perfaudit.static.project import Project\n"
        f"path = Path({str(SAMPLE)!r})\n"
        "rules = rule_heads()\n"
        "done = audit_file(path, 'digits_cnn.py', rules, frozenset(rules), Project([path]))\n"
        "print(len(done.findings))\n"
        f"print([name for name in {FOR_FEW_FILES} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, late = done.stdout.splitlines()
    assert int(found) > 4
    assert late == "[]"
