"""What a run says of findings: which of them it saw in its phases, and which cannot matter where it ran."""

from __future__ import annotations

from dataclasses import replace

import pytest
from surveys import found

from perfaudit.findings import Location
from perfaudit.rules import all_rules
from perfaudit.runs import NEVER_BUILT, RankRun, Run
from perfaudit.script.advice import (
    ALONE,
    BESIDE_USE_CPU,
    ELSEWHERE,
    FUSED_ON_CPU,
    NEVER_CALLED,
    NEVER_READ,
    NEVER_UPDATES,
    NEVER_WRAPPED,
    ON_FEW_PROCESSORS,
    order_findings,
)
from perfaudit.script.never_called import optimizers_never_used
from perfaudit.static.scan import scan_bytes

PHASES = {"data_wait": 0.5, "host_to_device": 0.0, "forward": 0.3, "backward": 0.19, "optimizer": 0.01, "average": 0.0}
ONLY = {rule.id for rule in all_rules().values() if rule.accelerator_only}

TRAINER = """\
from transformers import Trainer, TrainingArguments
trainer = Trainer(model=model, args=TrainingArguments(output_dir="out", num_train_epochs=3), train_dataset=data)
trainer.train()
"""


def run(device: str = "cpu") -> Run:
    return Run("train.py", "enough", steps=20, counted=17, phases=PHASES, device=device)


def test_what_was_seen_to_take_much_comes_first_and_what_took_nothing_last() -> None:
    given = [found("PA403"), found("PA204"), found("PA101")]
    ordered = order_findings(given, run())
    assert [finding.rule for finding in ordered] == ["PA101", "PA204", "PA403"]
    assert ordered[0].note == "observed: waiting for data takes 50.0 % of a step here"


def test_on_a_cpu_what_costs_time_on_accelerators_comes_last_and_says_so() -> None:
    given = [found("PA601"), found("PA102"), found("PA701"), found("PA403")]  # without a GPU, DataParallel does nothing
    ordered = order_findings(given, run(), ONLY)
    assert [(finding.rule, finding.note == ELSEWHERE) for finding in ordered] == [
        ("PA403", False),
        ("PA601", True),
        ("PA102", True),
        ("PA701", True),
    ]
    there = order_findings(given, run("cuda"), ONLY)
    assert [finding.rule for finding in there] == ["PA601", "PA701", "PA102", "PA403"]
    assert there[2].note == "observed: copies from host to device takes 0.0 % of a step here"  # not of waiting for data


def test_on_a_cpu_it_is_said_that_bfloat16_pays_on_some_processors_only() -> None:
    """Its message is about tensor cores."""
    notes = {device: order_findings([found("PA304")], run(device), ONLY)[0].note for device in ("cpu", "cuda")}
    assert notes == {"cpu": ON_FEW_PROCESSORS, "cuda": ""}


def test_what_the_trainer_asks_for_beside_bfloat16_on_a_cpu_is_said() -> None:
    """Without it `tune` has no patch to measure."""
    report, _ = scan_bytes(TRAINER.encode(), "train.py")
    (seen,) = [each for each in report.findings if each.rule == "PA304"]
    notes = {device: order_findings([seen], run(device), ONLY)[0].note for device in ("cpu", "cuda")}
    assert notes == {"cpu": BESIDE_USE_CPU, "cuda": ""}


def test_without_phases_nothing_is_said() -> None:
    given = (found("PA601"), found("PA101"))
    assert order_findings(given, Run("train.py", "failed", device="cpu"), ONLY) == given


def test_a_loader_that_no_step_has_read_comes_last_and_says_so() -> None:
    given = [found("PA101").with_(location=Location("train.py", line, 1, line, 9)) for line in (4, 9)]
    ordered = order_findings(given, run(), never_read=[("train.py", 3, 5)])
    assert [each.location and each.location.line for each in ordered] == [9, 4]
    assert [each.note for each in ordered] == [
        "observed: waiting for data takes 50.0 % of a step here",
        NEVER_READ,
    ]


def test_a_function_that_no_step_calls_comes_last_and_says_so() -> None:
    given = [found(rule).with_(location=Location("train.py", 4, 1, 4, 9)) for rule in ("PA404", "PA201")]
    ordered = order_findings(given, run(), never_called=[("train.py", 4, 4)])
    assert [(each.rule, each.note) for each in ordered] == [("PA201", ""), ("PA404", NEVER_CALLED)]


def test_what_a_step_was_seen_to_run_comes_before_what_only_the_text_says() -> None:
    given = [
        found(rule).with_(location=Location("train.py", line, 1, line, 9))
        for rule, line in (("PA201", 2), ("PA404", 4), ("PA204", 6))
    ]
    ordered = order_findings(given, run(), called=[("train.py", 6, 6), ("train.py", 2, 2)])
    assert [each.rule for each in ordered] == ["PA204", "PA201", "PA404"]


def test_an_optimizer_that_updates_nothing_comes_last_and_says_so() -> None:
    given = [found("PA402").with_(message=f"`torch.optim.{name}` without `fused` runs") for name in ("Adam", "SGD")]
    ordered = order_findings(given, replace(run("cuda"), optimizer_names=("SGD",)))
    assert [each.note == NEVER_UPDATES for each in ordered] == [False, True]
    assert ordered[1].message.startswith("`torch.optim.Adam`")
    assert all(each.note != NEVER_UPDATES for each in order_findings(given, run("cuda")))  # no name is known


def test_what_does_not_build_an_optimizer_is_not_said_to_be_one_that_updates_nothing() -> None:
    """A line that sets gradients to zero, and the arguments of a library that builds an optimizer."""
    given = [
        found(rule).with_(message=message, location=Location("train.py", 9, 1, 9, 9))
        for rule, message in (
            ("PA401", "`SGD` fills"),
            ("PA402", '`TrainingArguments` with `optim="adamw_torch"` runs'),
        )
    ]
    never_used = optimizers_never_used(given, [("library.py", 8, 11)])
    seen = replace(run("cuda"), optimizer_names=("AdamW",))
    assert all(NEVER_UPDATES not in each.note for each in order_findings(given, seen, never_used=never_used))


def test_on_a_cpu_an_optimizer_that_is_not_fused_is_told_to_be_measured_and_left_out_where_it_takes_little() -> None:
    given = [found("PA402")]
    long = replace(run(), phases={**PHASES, "optimizer": 0.3})
    (told,) = order_findings(given, long)
    assert told.note == f"observed: optimizer takes 30.0 % of a step here; {FUSED_ON_CPU}"
    assert order_findings(given, run()) == ()
    assert [each.note for each in order_findings(given, run("cuda"))] == [
        "observed: optimizer takes 1.0 % of a step here"
    ]
    assert FUSED_ON_CPU not in order_findings(given, replace(long, device="cuda"))[0].note


def test_a_call_whose_optimizer_updates_nothing_comes_last_and_says_so() -> None:
    """As the models of other files that a script imports, and does not build."""
    phases = {**PHASES, "optimizer": 0.3}
    given = [found("PA402").with_(location=Location(file, 9, 1, 9, 9)) for file in ("other.py", "mine.py")]
    never_used = optimizers_never_used([*given, found("PA204")], [("mine.py", 8, 11)])
    ordered = order_findings(given, replace(run(), phases=phases), never_used=never_used)
    assert [each.location and each.location.path for each in ordered] == ["mine.py", "other.py"]
    assert [each.note for each in ordered] == [
        f"observed: optimizer takes 30.0 % of a step here; {FUSED_ON_CPU}",
        NEVER_UPDATES,
    ]
    assert optimizers_never_used(given, []) == []  # which calls built them is not known


@pytest.mark.parametrize("rule", ["PA704", "PA708", "PA709"])
def test_what_costs_time_among_several_processes_comes_last_in_one(rule: str) -> None:
    given = [found(rule), found("PA204")]
    assert [(each.rule, each.note == ALONE) for each in order_findings(given, run())] == [
        ("PA204", False),
        (rule, True),
    ]
    assert order_findings(given, replace(run(), ranks=2))[0].rule == rule


def test_what_is_in_a_model_that_was_not_built_comes_last_and_says_so() -> None:
    given = [found("PA203").with_(location=Location("models.py", line, 1, line, 9)) for line in (4, 9)]
    ordered = order_findings(given, run(), never_built=[("models.py", 3, 5)])
    assert [each.location and each.location.line for each in ordered] == [9, 4]
    assert [each.note == NEVER_BUILT for each in ordered] == [False, True]


@pytest.mark.parametrize("rule", ["PA103", "PA106", "PA404"])
def test_what_waiting_for_batches_does_not_come_from_has_no_share_of_it(rule: str) -> None:
    """Workers that start with each epoch, which is counted apart; tensors that a model builds. An average of the script's own."""
    assert not order_findings([found(rule)], run())[0].note


def test_a_hint_is_said_only_where_its_phase_takes_much() -> None:
    hints = [found(rule).with_(severity="hint") for rule in ("PA101", "PA402", "PA204")]
    assert [finding.rule for finding in order_findings(hints, run())] == ["PA101"]
    assert order_findings(hints, Run("train.py", "failed", device="cpu")) == ()


def test_a_phase_is_that_of_the_rank_which_it_takes_longest() -> None:
    ranks = (RankRun(0, "enough", phases=PHASES), RankRun(1, "enough", phases={**PHASES, "data_wait": 0.7}))
    (told,) = order_findings([found("PA101")], replace(run(), ranks=2, by_rank=ranks))
    assert told.note == "observed: waiting for data takes 70.0 % of a step on rank 1"
    (told,) = order_findings([found("PA101")], replace(run(), ranks=2, by_rank=ranks[:1]))
    assert told.note == "observed: waiting for data takes 50.0 % of a step here"


@pytest.mark.parametrize(
    ("models", "notes"),
    [
        (None, [""]),
        ([("train.py", 5, True, 6 << 20)], ["observed: gradients of 6 MiB, which the buckets hold a second time"]),
        ([("train.py", 5, False, 6 << 20)], []),  # built and never called
        ([("train.py", 5, False, 9 << 20), ("train.py", 6, True, 3 << 19)],
         ["observed: gradients of 1.5 MiB, which the buckets hold a second time"]),
        ([("train.py", 5, True, 0)], [""]),  # of a class that tells no parameters
        ([("train.py", 7, True, 6 << 20), ("other.py", 5, True, 6 << 20)], [NEVER_WRAPPED]),
        ([], [NEVER_WRAPPED]),
    ],
)  # fmt: skip
def test_a_copy_of_gradients_is_told_with_what_was_wrapped_and_not_of_a_model_that_is_never_called(
    models: list[tuple[str, int, bool, int]] | None, notes: list[str]
) -> None:
    copies = found("PA704").with_(location=Location("train.py", 5, 1, 6, 9))
    names = ("file", "line", "is_called", "gradient_bytes")
    wrapped = None if models is None else [dict(zip(names, each, strict=True)) for each in models]
    ordered = order_findings([copies, found("PA204")], replace(run(), ranks=2), wrapped=wrapped)
    assert [each.note for each in ordered if each.rule == "PA704"] == notes
    assert [each.rule for each in ordered][-1] == ("PA704" if notes == [NEVER_WRAPPED] else "PA204")
