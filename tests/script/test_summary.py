"""What is said of a run: what limits it, its setup, its profile, its scalars."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from surveys import found

from perfaudit.measurements import Environment
from perfaudit.render.paint import plain
from perfaudit.render.run import STEPS_TO_COMPARE, figures, headline, next_command, run_block, run_page, seen_besides
from perfaudit.report import Report
from perfaudit.runs import NEVER_BUILT, ProfileRow, RankRun, Run
from perfaudit.script import waiting
from perfaudit.script.advice import order_findings
from perfaudit.script.observe import Seen
from perfaudit.script.scalars import scalars
from perfaudit.script.spans import PHASES
from perfaudit.script.step_profile import OUTSIDE, rows
from perfaudit.script.summary import summarize
from perfaudit.script.waiting import FIRST, Waiting
from perfaudit.tune import first_steps


def seen_of(facts: dict[str, Any], seconds: float = 1.0, ended: str = "finished", **phases: float) -> Seen:
    spent = [seconds * phases.get(name, 0.0) for name in PHASES]
    update = {
        "optimizer": 0, "seconds": seconds, "phases": spent, "batches": 1, "samples": 4, "epochs": 0, "without_gradients": 0,
        "backwards": 1, "backwards_in_update": 0, "gradients": 0, "zeroed": 0,
    }  # fmt: skip
    return Seen(100.0, [update] * 8, facts, ended)


@pytest.mark.parametrize(
    ("facts", "phases", "limit"),
    [
        ({"device": "cpu"}, {"data_wait": 0.4}, "data"),
        ({"device": "cpu", "blocked": 0.4}, {"data_wait": 0.4}, "data"),
        ({"device": "cpu", "blocked": 0.05}, {"forward": 0.9}, "compute"),
        ({"device": "cpu", "blocked": 0.7}, {"data_wait": 0.25}, "compute"),  # 0.45 besides data: not clear enough
        ({"device": "cpu", "blocked": 0.9}, {"data_wait": 0.1}, "host"),
        ({"device": "cuda", "behind": 0.9}, {"forward": 0.9}, "device"),
        ({"device": "cuda", "behind": 0.0}, {"forward": 0.9}, "host"),
        ({"device": "cuda", "behind": 0.0}, {"host_reads": 0.3}, "device"),
        ({"device": "cuda", "behind": 0.9}, {"data_wait": 0.5}, "data"),
        ({"device": "mps"}, {"forward": 0.9}, "host"),
    ],
)
def test_what_limits_a_step(facts: dict[str, Any], phases: dict[str, float], limit: str) -> None:
    assert summarize(seen_of(facts, **phases), "train.py").limited_by == limit


class Device:
    """An accelerator that comes to a mark after so many others were set."""

    def __init__(self, late: int) -> None:
        self.late, self.marks = late, 0

    def mark(self) -> int:
        self.marks += 1
        return self.marks

    def has_passed(self, mark: int) -> bool:
        return self.marks - mark >= self.late


@pytest.mark.parametrize(("late", "behind"), [(0, 0.0), (2, 1.0)])
def test_a_device_is_behind_where_it_has_not_done_the_update_before(
    late: int, behind: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "device_in_use", lambda: "cpu")
    monkeypatch.setattr(waiting, "accelerator_of", lambda device: Device(late))
    monkeypatch.setitem(waiting.sys.modules, "torch", __import__("types").SimpleNamespace(device=str))
    watched = Waiting()
    for _ in range(FIRST + 5):
        watched.end_update()
    assert watched.facts()["behind"] == behind


def test_a_thread_that_neither_runs_nor_queues_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = iter([(0.0, 0.0, 0.0, 0.0)] * FIRST + [(10.0, 2.0 + 3.0, 0.0, 3.0)])
    monkeypatch.setattr(Waiting, "_read", lambda self: next(clocks))
    monkeypatch.setattr(waiting, "device_in_use", lambda: "")
    watched = Waiting()
    for _ in range(FIRST + 1):
        watched.end_update()
    assert watched.facts() == {"blocked": 0.5, "queued": 0.3}


def test_setup_has_parts_and_advice_where_it_takes_longest() -> None:
    facts = {"device": "cpu", "torch_at": 102.0, "loader_at": 130.0, "first_batch_at": 131.0}
    run = summarize(seen_of(facts, forward=1.0), "train.py")
    assert (run.setup_seconds, run.setup) == (31.0, {"until_torch": 2.0, "until_loader": 28.0, "until_batch": 1.0})
    assert run.setup_share == pytest.approx(31 / 39)
    text = " ".join(run_block(run, plain, 100).split())
    assert (
        "Setup took 31.0 s: 2.0 s until torch was imported, 28.0 s until the loader was read, 1.0 s until the first"
        in text
    )
    assert "Setup takes longer than the training. Other imports lie there" in text
    long = summarize(seen_of(facts, seconds=10.0, forward=1.0), "train.py")
    assert "Setup takes longer" not in run_block(long, plain, 100)


def said_of(run: Run, **more: Any) -> str:
    """The report of a run on one line. more: of the report."""
    return " ".join(run_page(Report("run", run=run, **more), run, plain, 100).split())


def test_the_command_with_patches_shows_hints_where_the_run_does() -> None:
    """A scan leaves them out: it would say that nothing is found."""
    run, shown = summarize(seen_of({"device": "cpu"}, forward=1.0), "train.py"), found("PA402")
    assert "With patches: perfaudit scan train.py" in said_of(run, findings=(shown,))
    hint = shown.with_(severity="hint")
    assert "With patches: perfaudit scan --severity hint train.py" in said_of(run, findings=(shown, hint))
    unbuilt = hint.with_(note=f"{NEVER_BUILT}: x")
    assert "With patches: perfaudit scan train.py" in said_of(run, findings=(shown, unbuilt))


def test_setup_without_a_loader_has_no_workers() -> None:
    facts = {"device": "cpu", "torch_at": 102.0, "first_batch_at": 131.0}
    text = said_of(summarize(seen_of(facts, forward=1.0), "train.py"))
    assert "29.0 s until the first backward pass." in text
    assert (
        "It lies between the import of torch and the first backward pass: other imports, data, the model, and" in text
    )
    assert "such as the first episodes of an agent." in text
    assert "worker" not in text
    assert "The step computes, and waits for no DataLoader." in text


def test_without_a_loader_data_do_not_come_in_time() -> None:
    """Batches that the loop makes by itself are in other phases."""
    read = {"device": "cpu", "torch_at": 102.0, "loader_at": 103.0, "first_batch_at": 131.0}
    for facts, is_said in ((read, True), ({key: at for key, at in read.items() if key != "loader_at"}, False)):
        text = said_of(summarize(seen_of(facts, forward=1.0), "train.py"))
        assert ("data come in time" in text) == is_said


@pytest.mark.parametrize(("load", "is_said"), [(None, False), (2.0, False), (2.5, False), (13.0, True)])
def test_a_busy_machine_is_said(load: float | None, is_said: bool) -> None:
    machine = Environment("cpu", "3.11", "Linux", 2, 1 << 30, load=load)
    text = said_of(summarize(seen_of({"device": "cpu"}, forward=1.0), "train.py"), environment=machine)
    busy = "The machine was busy before the script started (load 13 on 2 cores): alone, a step may take less."
    assert (busy in text) == is_said == ("busy" in text)


@pytest.mark.parametrize(("ended", "is_said"), [("late", True), ("finished", False)])
def test_a_busy_machine_is_said_where_no_step_came_in_time(ended: str, is_said: bool) -> None:
    machine = Environment("cpu", "3.11", "Linux", 2, 1 << 30, load=10.2)
    text = said_of(summarize(Seen(0.0, [], {"device": "cpu"}, ended), "train.py"), environment=machine)
    busy = "before the script started (load 10.2 on 2 cores): alone, it may come to its first step sooner."
    assert (busy in text) == is_said == ("busy" in text)


def test_waiting_for_data_that_limits_nothing_is_said_with_what_shortens_it() -> None:
    run = summarize(seen_of({"device": "cpu"}, forward=0.81, data_wait=0.19), "train.py")
    assert run.limited_by == "compute"
    finding = found("PA101")
    findings = order_findings([found("PA402"), finding], run)
    text = said_of(run, findings=findings)
    sentence = "The step computes more than it waits: waiting for data takes 19 % of a step."
    assert f"{sentence} PA101 ({finding.location}) may shorten it." in text
    assert sentence in said_of(run)
    little = summarize(seen_of({"device": "cpu"}, forward=0.96, data_wait=0.04), "train.py")
    assert "The step computes: data come in time." in said_of(little)


def test_optimizers_one_behind_the_other_are_one_of_a_step() -> None:
    """A new one for each fold. In a round, as of a GAN, all of them count."""
    seen = seen_of({"device": "cpu"}, forward=1.0)
    folds = [seen.updates[0] | {"optimizer": number // 40} for number in range(320)]
    run = summarize(Seen(0.0, folds, {"device": "cpu"}, "finished"), "folds.py")
    assert (run.steps, run.updates_per_step, run.optimizers) == (320, 1, 1)
    assert "A step is" not in said_of(run)
    rounds = [seen.updates[0] | {"optimizer": number % 2} for number in range(32)]
    gan = summarize(Seen(0.0, rounds, {"device": "cpu"}, "finished"), "gan.py")
    assert gan.optimizers == 2
    assert "A step is 2 updates of 2 optimizers." in said_of(gan)
    (finding,) = order_findings([found("PA403")], gan)
    assert finding.note is not None
    assert finding.note.endswith("of a step here, all optimizers together")


def test_passes_of_a_closure_are_no_accumulation() -> None:
    updates = [each | {"backwards": 10, "backwards_in_update": 10} for each in seen_of({}, forward=1.0).updates]
    text = said_of(summarize(Seen(0.0, updates, {"device": "cpu"}, "finished"), "lbfgs.py"))
    assert "A step has 10 backward passes: the update of the optimizer calls its closure" in text


@pytest.mark.parametrize(("seconds", "share"), [(4.0, "44 %"), (1.25, "20 %"), (0.5, "")])
def test_a_rollout_that_takes_much_of_the_time_says_how_much(seconds: float, share: str) -> None:
    """Fifteen updates, and one behind actions of a policy."""
    usual, *_ = seen_of({}).updates
    rollout = usual | {"seconds": seconds, "without_gradients": 128}
    updates = [usual] * 3 + [usual | {"seconds": 0.333333}] * 15 + [rollout]
    text = said_of(summarize(Seen(0.0, updates, {"device": "cpu"}, "finished"), "ppo.py"))
    assert f"1 step with something besides (an evaluation, the beginning of an epoch) took {seconds:.1f} s" in text
    assert (f", {share} of the time of all, and is not counted" in text) == bool(share)
    assert ("of the time of all" in text) == bool(share)


def test_steps_that_are_not_counted_never_take_no_time() -> None:
    usual = seen_of({}).updates[0] | {"seconds": 0.002}
    updates = [usual] * 18 + [usual | {"seconds": 0.0042, "epochs": 1}]
    text = said_of(summarize(Seen(0.0, updates, {"device": "cpu"}, "finished"), "train.py"))
    assert "1 step with something besides (an evaluation, the beginning of an epoch) took 4.2 ms" in text


def test_rollouts_that_take_most_of_the_time_stand_behind_the_first_line() -> None:
    usual, *_ = seen_of({}).updates
    updates = [usual] * 3 + [usual | {"seconds": 0.333333}] * 15 + [usual | {"seconds": 45.0, "without_gradients": 128}]
    lines = said_of(summarize(Seen(0.0, updates, {"device": "cpu"}, "finished"), "ppo.py"))
    besides = "(an evaluation, the beginning of an epoch, the episodes that an agent plays) took 45.0 s, 90 % of the time of all"
    assert 0 < lines.index(besides) < lines.index("The step ")
    assert "With it, a step takes 3.12 s on average, which is what `tune` compares." in lines  # 50.0 s of 16 steps
    assert lines.count("not counted") == 1


@pytest.mark.parametrize(("backwards", "zeroed", "is_accumulation"), [(2, 1, False), (4, 2, True), (2, 0, True)])
def test_passes_whose_gradients_are_set_to_zero_are_no_accumulation(
    backwards: int, zeroed: int, is_accumulation: bool
) -> None:
    updates = [each | {"backwards": backwards, "zeroed": zeroed} for each in seen_of({}, forward=1.0).updates]
    text = said_of(summarize(Seen(0.0, updates, {"device": "cpu"}, "finished"), "sharpness.py"))
    assert ("gradients are accumulated" in text) == is_accumulation
    assert (
        f"A step has {backwards} backward passes: gradients are set to zero between them" in text
    ) != is_accumulation


@pytest.mark.parametrize(
    ("backwards", "gradients", "accumulates", "times"),
    [
        (2, 1, None, "once"),
        (3, 2, None, "2 times"),
        (6, 2, "4 backward passes: gradients are accumulated", "2 times"),
        (1, 1, None, None),
    ],
)
def test_gradients_of_a_penalty_are_no_accumulation(
    backwards: int, gradients: int, accumulates: str | None, times: str | None
) -> None:
    more = {"backwards": backwards, "gradients": gradients}
    updates = [each | more for each in seen_of({}, forward=1.0).updates]
    text = said_of(summarize(Seen(0.0, updates, {"device": "cpu"}, "finished"), "wgan_gp.py"))
    assert ("accumulated" in text) == (accumulates is not None)
    assert (accumulates or "") in text
    assert ("torch.autograd.grad" in text) == (times is not None)
    assert times is None or f"A step also calls `torch.autograd.grad` {times}" in text


@pytest.mark.parametrize(
    ("ended", "steps", "is_advised"),
    [
        ("enough", 8, True),
        ("finished", 8, False),
        ("finished", 40, True),
        ("failed", 40, False),
        ("interrupted", 8, True),
    ],
)
def test_tune_is_advised_where_it_can_measure(ended: str, steps: int, is_advised: bool) -> None:
    seen = seen_of({"device": "cpu"}, ended=ended, forward=1.0)
    seen.updates *= steps // 8
    text = said_of(summarize(seen, "train.py"))
    assert ("To have patches tried and measured: perfaudit tune train.py" in text) == is_advised


def test_a_file_of_this_folder_is_called_as_it_is_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen = seen_of({"device": "cpu"}, forward=1.0)
    seen.redirected = (str(tmp_path / "out" / "last.pt"), "/elsewhere/log")
    assert "were kept away: out/last.pt, /elsewhere/log" in said_of(summarize(seen, "train.py"))


@pytest.mark.parametrize(("files", "shown"), [("abcd", "a, b, c, d"), ("abcde", "a, b, c and 2 more")])
def test_files_that_were_kept_away(files: str, shown: str) -> None:
    seen = seen_of({"device": "cpu"}, forward=1.0)
    seen.redirected = tuple(files)
    assert f"{len(files)} files the script wrote were kept away: {shown}" in said_of(summarize(seen, "train.py"))


def test_a_single_step_is_called_one() -> None:
    seen = seen_of({"device": "cpu"}, forward=1.0)
    seen.updates = seen.updates[:2]
    assert "A single step was counted, which tells little" in said_of(summarize(seen, "train.py"))


def test_calls_of_a_closure_that_are_steps_are_told() -> None:
    run = summarize(seen_of({"device": "cpu", "has_long_updates": True}, forward=1.0), "train.py")
    assert run.has_long_updates
    assert "calls its closure many times: a step is one of these calls." in " ".join(run_block(run, plain, 100).split())


def test_a_script_that_is_traced_says_so() -> None:
    text = run_block(summarize(seen_of({"device": "cpu", "is_traced": True}, forward=1.0), "train.py"), plain, 100)
    assert "A debugger or a tracer follows the script" in text


def test_a_busy_machine_is_told() -> None:
    for queued, is_told in ((0.5, True), (0.1, False)):
        seen = seen_of({"device": "cpu", "queued": queued}, forward=1.0)
        said = said_of(summarize(seen, "train.py"))
        assert ("threads of the training waited for them for 50 % of its time, all threads together" in said) is is_told


def test_rows_of_a_profile_are_shares_of_all_of_it() -> None:
    found = rows([("mm", 3.0), ("add", 1.0), ("mm", 3.0)], 2, outside=1.0)
    assert found == [
        {"name": "mm", "share": 0.75, "calls": 1.0},
        {"name": OUTSIDE, "share": 0.125, "calls": 0.0},
        {"name": "add", "share": 0.125, "calls": 0.5},
    ]
    seen = seen_of({})
    seen.profile = {"steps": 2, "operators": found, "kernels": []}
    profile = summarize(seen, "train.py").profile
    assert profile is not None
    assert profile.operators[0] == ProfileRow("mm", 0.75, 1.0)


def test_scalars_of_steps() -> None:
    base = {"phases": [0.25] + [0.0] * (len(PHASES) - 1)}
    updates = [
        base | {"optimizer": number % 2, "seconds": 1.0, "loss": float(number), "gradient_norm": number / 2}
        for number in range(4)
    ]
    assert [each for each in scalars(updates, ["Adam", "SGD"]) if each[2] == 2] == [
        ("step/seconds", 2.0, 2, 3.0),
        ("step/seconds waiting for data", 0.5, 2, 3.0),
        ("training/loss", 3.0, 2, 3.0),
        ("training/gradient norm 1 Adam", 1.0, 2, 3.0),
        ("training/gradient norm 2 SGD", 1.5, 2, 3.0),
    ]


def test_scalars_of_an_optimizer_whose_class_is_not_told() -> None:
    """Of a script that builds one for each task, the first ones are named."""
    base = {"phases": [0.0] * len(PHASES), "seconds": 1.0, "gradient_norm": 2.0}
    tags = [tag for tag, *_ in scalars([base | {"optimizer": number} for number in range(9)], ["Adam", "SGD"])]
    assert [tag for tag in tags if "norm" in tag][:3] == [
        "training/gradient norm 1 Adam",
        "training/gradient norm 2 SGD",
        "training/gradient norm 3",
    ]


def test_a_mean_far_above_the_median_is_said() -> None:
    seen = seen_of({"device": "cpu"}, forward=1.0)
    seen.updates = [{**each, "seconds": 9.0} if number == 6 else each for number, each in enumerate(seen.updates)]
    assert "On average a step takes 2.33 s" in said_of(summarize(seen, "train.py"))
    assert "On average" not in said_of(summarize(seen_of({"device": "cpu"}, forward=1.0), "train.py"))


@pytest.mark.parametrize(
    ("mean", "rate", "line"),
    [
        (0.105, 95.2, "100 ms a step (quartiles 90 ms to 120 ms), 95.2 samples/s; 97 steps of 100 counted"),
        (
            0.314, 31.8,
            "100 ms a step (median; quartiles 90 ms to 120 ms); on average 314 ms, 31.8 samples/s; 97 steps of 100 counted",
        ),
        (0.314, None, "100 ms a step (median; quartiles 90 ms to 120 ms); on average 314 ms; 97 steps of 100 counted"),
        (0.08, None, "100 ms a step (median; quartiles 90 ms to 120 ms); on average 80 ms; 97 steps of 100 counted"),
        (None, None, "100 ms a step (quartiles 90 ms to 120 ms); 97 steps of 100 counted"),
    ],
)  # fmt: skip
def test_the_first_line_has_the_mean_where_what_is_of_all_steps_does_not_fit_the_median(
    mean: float | None, rate: float | None, line: str
) -> None:
    run = Run(
        "train.py", "enough", steps=100, counted=97, seconds_per_step=0.1, quartiles=(0.09, 0.12),
        mean_seconds_per_step=mean, samples_per_second=rate,
    )  # fmt: skip
    assert headline(run) == line


@pytest.mark.parametrize(
    ("mean", "lines"),
    [
        (0.105, ["  forward pass and loss        75.0 %     75 ms", "  other                        25.0 %     25 ms"]),
        (
            0.2,
            [
                "  Of a step on average, 200 ms:",
                "  forward pass and loss        75.0 %    150 ms",
                "  other                        25.0 %     50 ms",
            ],
        ),
    ],
)
def test_times_of_phases_are_of_the_mean_where_the_median_does_not_fit(mean: float, lines: list[str]) -> None:
    """A share of all steps times the median is a time that no step took."""
    run = Run(
        "train.py", "enough", steps=100, counted=97, seconds_per_step=0.1, quartiles=(0.09, 0.12),
        mean_seconds_per_step=mean, phases={"forward": 0.75, "other": 0.25},
    )  # fmt: skip
    shown = run_block(run, plain, 100).partition("\n\n")[2].partition("\n\n")[0]
    assert [line.partition("  █")[0] for line in shown.splitlines()] == lines


@pytest.mark.parametrize(
    ("mean", "watched", "said"),
    [
        (0.1, 97, None),
        (0.1, 40, "Phases were timed in 40 of 97 steps, the first and others chosen at random."),
        (
            0.13, 40,
            "Phases were timed in 40 of 97 steps, the first and others chosen at random: rare long steps "
            "(evaluations, plots) among these move the shares.",
        ),
    ],
)  # fmt: skip
def test_shares_of_a_part_of_the_steps_are_said_to_be_moved_by_rare_long_ones(
    mean: float, watched: int, said: str | None
) -> None:
    run = Run(
        "train.py", "enough", steps=100, counted=97, seconds_per_step=0.1, quartiles=(0.09, 0.12),
        mean_seconds_per_step=mean, steps_watched=watched,
    )  # fmt: skip
    assert [each for each in seen_besides(run) if each.startswith("Phases")] == ([said] if said else [])


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0.0159, "0.0159"), (58.2, "58.2"), (999.7, "1,000"), (8284.0, "8,280"), (1.08e5, "108,000"), (1e-7, "0")],
)
def test_numbers_have_no_exponent(number: float, shown: str) -> None:
    assert figures(number) == shown


def test_findings_in_models_that_were_not_built_are_counted_and_not_shown() -> None:
    run = summarize(seen_of({"device": "cpu"}, forward=1.0), "train.py")
    report = Report("run").with_(findings=(found("PA204"), found("PA203").with_(note=NEVER_BUILT)))
    text = run_page(report, run, plain, 100)
    assert "PA204" in text
    assert "PA203" not in text
    assert "1 finding in models that the script has not built: see --format json" in text


def test_a_step_that_is_mostly_no_phase_says_so() -> None:
    assert "60 % of it is neither model nor optimizer" in said_of(
        summarize(seen_of({"device": "cpu"}, forward=0.4), "train.py")
    )
    assert "neither model" not in said_of(summarize(seen_of({"device": "cpu"}, forward=0.6), "train.py"))


def test_of_ranks_what_holds_for_the_first_one_is_not_said_of_all() -> None:
    run = summarize(seen_of({"device": "cpu"}, forward=0.4), "train.py")
    own = replace(run, ranks=2, communication_exposed=0.54)
    assert "neither model nor optimizer; communication that nothing hides takes 54 % of it." in said_of(own)
    ranks = tuple(RankRun(rank, "enough", phases={"data_wait": share}) for rank, share in ((0, 0.01), (1, 0.28)))
    assert "Rank 1 waits for data for 28 % of a step" in said_of(replace(run, ranks=2, by_rank=ranks))
    assert "Rank" not in said_of(replace(run, ranks=2, by_rank=ranks[:1])).partition("Milliseconds")[0]


@pytest.mark.parametrize(
    ("seconds", "queued", "option"), [(2.0, None, ""), (6.0, None, "--budget 12m "), (6.0, 2.0, "")]
)
def test_long_steps_are_tuned_with_a_longer_budget(seconds: float, queued: float | None, option: str) -> None:
    run = Run("train.py", "enough", steps=5, counted=4, seconds_per_step=seconds, queued=queued)
    assert next_command(run) == f"perfaudit tune {option}train.py"


def test_a_comparison_takes_as_many_steps_as_tune_says() -> None:
    assert STEPS_TO_COMPARE == first_steps.STEPS_TO_COMPARE
