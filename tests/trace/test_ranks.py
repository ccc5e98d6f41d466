"""Ranks of one job: who is late, and that nobody is named where all come at the same time."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from made_traces import ALL_REDUCE, GEMM, Host, Job

from perfaudit.report import Report
from perfaudit.rules import rule_heads
from perfaudit.trace.analyse import analyse
from perfaudit.trace.file_result import FileResult
from perfaudit.trace.perfetto import trimmed_trace
from perfaudit.trace.report import are_two_jobs, compare_jobs, read_all, report_of
from perfaudit.trace.trace_files import TraceFile, find_traces
from perfaudit.traces import RankTrace, Traces

Extra = Callable[[int, int], float]  # microseconds that a rank computes longer in a step


def job_of(extra: Extra, ranks: int = 4, steps: int = 5, idle: Extra = lambda rank, step: 0.0) -> Job:
    job = Job.of(ranks)
    for step in range(steps):
        with ExitStack() as stack:
            for host in job.ranks:
                stack.enter_context(host.step())
            for rank, host in enumerate(job.ranks):
                host.python(idle(rank, step))
                for _ in range(20):
                    host.kernel(GEMM, 500 + extra(rank, step) / 20)
            job.all_reduce()
            for host in job.ranks:
                host.kernel(GEMM, 200)
            job.all_reduce()
            for host in job.ranks:
                host.catch_up()
    return job


def report_of_job(job: Job, folder: Path) -> Report:
    return report_of([analyse(file) for file in find_traces([job.write(folder)])], rule_heads())


def traces_of(report: Report) -> Traces:
    assert report.traces is not None
    return report.traces


def test_a_straggler_is_named_though_all_steps_take_as_long(tmp_path: Path) -> None:
    report = report_of_job(job_of(lambda rank, _: 5_000 if rank == 1 else 0), tmp_path)
    (straggler,) = traces_of(report).stragglers
    assert (straggler.rank, straggler.last, straggler.of) == (1, 5, 10)
    times = [rank.seconds_per_step for rank in traces_of(report).ranks]
    assert max(times) == pytest.approx(min(times), rel=0.01)  # type: ignore[type-var]  # all have steps
    (finding,) = [finding for finding in report.findings if finding.rule == "PA904"]
    assert "rank 1 comes last to 5 of 10 collectives: before these it computes 1.5" in finding.message


def test_a_rank_whose_host_is_late(tmp_path: Path) -> None:
    report = report_of_job(job_of(lambda *_: 0, idle=lambda rank, _: 6_000 if rank == 2 else 0), tmp_path)
    assert [one.rank for one in traces_of(report).stragglers] == [2]
    (finding,) = [finding for finding in report.findings if finding.rule == "PA904"]
    assert "its host, a copy or an exchange" in finding.message


def test_each_rank_is_late_in_turn(tmp_path: Path) -> None:
    report = report_of_job(job_of(lambda rank, step: 5_000 if step % 4 == rank else 0, steps=8), tmp_path)
    assert traces_of(report).stragglers == ()
    assert "PA905" in [finding.rule for finding in report.findings]
    assert "PA904" not in [finding.rule for finding in report.findings]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ranks", [2, 8])
def test_nobody_is_named_in_a_balanced_job(seed: int, ranks: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    report = report_of_job(job_of(lambda *_: chance.gauss(0, 60), ranks=ranks), tmp_path)
    assert traces_of(report).stragglers == ()
    assert not {"PA904", "PA905"} & {finding.rule for finding in report.findings}


def test_waiting_for_others_is_no_communication_that_could_be_hidden(tmp_path: Path) -> None:
    report = report_of_job(job_of(lambda rank, _: 5_000 if rank == 1 else 0), tmp_path)
    waiting = next(one.saving.high for one in report.findings if one.rule == "PA904" and one.saving)
    exposed = next(one.saving.high for one in report.findings if one.rule == "PA903" and one.saving)
    assert waiting > 0.2
    assert exposed < 0.1
    for one in report.findings:  # the same part of a step, whatever it is a share of
        if one.saving is not None and one.saving.seconds_per_step is not None:
            step = traces_of(report).ranks[0].seconds_per_step or 0.0
            assert one.saving.seconds_per_step == pytest.approx(one.saving.high * step, rel=0.02)


def test_ranks_are_read_in_children_in_the_order_of_their_files(tmp_path: Path) -> None:
    files = find_traces([job_of(lambda *_: 0, ranks=3, steps=2).write(tmp_path)])
    results = read_all(files, None, 2)
    assert [one.rank for one in results] == [0, 1, 2]
    assert results == [analyse(file) for file in files]


def other(result: FileResult, **changes: object) -> FileResult:
    return replace(result, **changes)  # type: ignore[arg-type]  # fields of a row


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    results = [analyse(file) for file in find_traces([job_of(lambda *_: 0, ranks=3, steps=2).write(tmp_path)])]
    again = other(results[1], file="again.json")
    renamed = other(results[2], file="a.json", export_of=results[2].file)
    foreign = other(results[0], file="foreign.json", rank=7, world_size=16, job="backend=nccl world_size=16")
    broken = FileResult("broken.json", problem="no trace: the file is empty")
    report = report_of([renamed, *results, again, foreign, broken], rule_heads())
    assert [one.rank for one in traces_of(report).ranks] == [0, 1, 2]
    reasons = {item.path: item.reason for item in report.skipped}
    assert reasons["again.json"] == f"of rank 1 too, which is read from {results[1].file}"
    assert (
        reasons["a.json"]
        == f"one step that --export cut out of {results[2].file}; rank 2 is read from {results[2].file}"
    )
    assert (
        reasons["foreign.json"]
        == "of another job: backend=nccl world_size=16; most files are of backend=nccl world_size=3"
    )
    assert reasons["broken.json"] == "no trace: the file is empty"
    devices = tuple(replace(one, notes=("truncated",)) for one in results[1].devices)
    cut = other(results[1], file="a_cut.json", devices=devices)
    (left_out,) = report_of([cut, *results], rule_heads()).skipped
    assert (left_out.path, left_out.reason) == ("a_cut.json", f"of rank 1 too, which is read from {results[1].file}")


def test_some_ranks_of_a_job(tmp_path: Path) -> None:
    results = [analyse(file) for file in find_traces([job_of(lambda *_: 0).write(tmp_path)])]
    assert report_of(results[:2], rule_heads()).notes == (
        "2 of the 4 ranks of the job were read; who is late is judged among these.",
    )
    assert report_of(results, rule_heads()).notes == ()
    only = report_of(results, rule_heads(), rank=2)
    assert [one.rank for one in traces_of(only).ranks] == [2]


def test_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    before = report_of_job(job_of(lambda rank, _: 5_000 if rank == 1 else 0), tmp_path / "a")
    after = report_of_job(job_of(lambda *_: 0), tmp_path / "b")
    change = traces_of(compare_jobs(before, after, ("a", "b"))).compared
    assert change is not None
    assert change.seconds_per_step_before is not None and change.seconds_per_step_after is not None
    assert change.seconds_per_step_after < change.seconds_per_step_before
    assert sum(change.shares.values()) == pytest.approx(0, abs=1e-9)
    assert compare_jobs(before, after, ("a", "b")).notes == ()
    other_device = after.with_(
        traces=replace(
            traces_of(after), ranks=tuple(replace(one, device_name="NVIDIA T4") for one in traces_of(after).ranks)
        )
    )
    assert (
        compare_jobs(before, other_device, ("a", "b"))
        .notes[0]
        .startswith("The traces are of different devices (NVIDIA A100")
    )
    gone = [one for one in change.findings if one.rule == "PA904"]
    assert gone[0].before is not None and gone[0].after is None


def test_two_files_are_ranks_or_two_traces_of_one(tmp_path: Path) -> None:
    results = [analyse(file) for file in find_traces([job_of(lambda *_: 0, ranks=2, steps=2).write(tmp_path)])]
    paths = [Path(one.file) for one in results]
    assert not are_two_jobs(results, paths)
    assert are_two_jobs([results[0], results[0]], paths)
    assert are_two_jobs([results[0], other(results[1], world_size=8)], paths)
    assert not are_two_jobs([results[0], FileResult("b.json", problem="no trace")], paths)
    assert not are_two_jobs([results[0], other(results[1], world_size=None)], paths)


def test_what_can_be_read_of_two_is_reported(tmp_path: Path) -> None:
    result = analyse(find_traces([job_of(lambda *_: 0, ranks=2, steps=2).write(tmp_path)])[0])
    good = report_of([result], rule_heads())
    bad = report_of([FileResult("b.json", problem="no trace")], rule_heads())
    for pair in ((good, bad), (bad, good)):
        both = compare_jobs(*pair, ("a", "b"))
        assert both.traces is not None
        assert [item.path for item in both.skipped] == ["b.json"]
        assert both.notes[0].startswith("Nothing is compared, because ")


def results_of(job: Job, folder: Path) -> list[FileResult]:
    return [analyse(file) for file in find_traces([job.write(folder)])]


def late_second() -> Job:
    return job_of(lambda rank, _: 5_000 if rank == 1 else 0)


def notes_without_comparison(results: list[FileResult]) -> tuple[str, ...]:
    report = report_of(results, rule_heads())
    assert traces_of(report).stragglers == ()
    assert not {"PA904", "PA905"} & {finding.rule for finding in report.findings}
    return report.notes


def test_ranks_of_other_times_are_not_compared(tmp_path: Path) -> None:
    results = results_of(late_second(), tmp_path)
    began = [other(one, began=1.7e9 + 7200 * (one.rank == 2)) for one in results]
    assert notes_without_comparison(began) == (
        "Rank 2 was recorded 2.0 hours after rank 0: which rank is late cannot be judged.",
    )
    assert traces_of(report_of([other(one, began=1.7e9) for one in results], rule_heads())).stragglers


def test_ranks_of_other_steps_are_not_compared(tmp_path: Path) -> None:
    results = results_of(late_second(), tmp_path)
    moved = [other(one, steps=(20, 24)) if one.rank == 2 else one for one in results]
    assert notes_without_comparison(moved) == (
        "The ranks were recorded in different steps: which rank is late cannot be judged.",
    )


def test_a_sample_of_events_tells_nobody_late(tmp_path: Path) -> None:
    results = results_of(late_second(), tmp_path)
    sampled = [other(one, devices=(other_device(one.devices[0], notes=("sampled",)),)) for one in results]
    assert notes_without_comparison(sampled) == ()


def test_of_ranks_without_a_device_another_command_tells_who_is_late(tmp_path: Path) -> None:
    results = results_of(late_second(), tmp_path)
    hosts = [
        other(one, collectives=(), devices=(other_device(one.devices[0], notes=("no-device",)),)) for one in results
    ]
    (note,) = notes_without_comparison(hosts)
    assert "`perfaudit run`" in note
    assert not any("perfaudit run" in each for each in notes_without_comparison(hosts[:1]))


def other_device(device: RankTrace, **changes: object) -> RankTrace:
    return replace(device, **changes)  # type: ignore[arg-type]  # fields of a row


def test_collectives_that_do_not_match_are_said(tmp_path: Path) -> None:
    results = results_of(late_second(), tmp_path)
    short = [other(one, collectives=one.collectives[:-1]) if one.rank == 3 else one for one in results]
    report = report_of(short, rule_heads())
    (note,) = report.notes
    assert note.startswith("In one step, rank 0 has 2 collectives of the kind all_reduce and rank 3 has 1.")
    (straggler,) = traces_of(report).stragglers  # in the other steps
    assert (straggler.rank, straggler.of) == (1, 8)


def test_collectives_of_other_sizes_do_not_match(tmp_path: Path) -> None:
    results = results_of(late_second(), tmp_path)
    sizes = [
        other(one, collectives=tuple(replace(row, elements=100 + (one.rank == 0)) for row in one.collectives))
        for one in results
    ]
    (note,) = notes_without_comparison(sizes)
    assert note.startswith("10 collectives are left out of the comparison of ranks: the size of what they reduce")


def test_one_rank_knows_how_long_it_waits_for_others(tmp_path: Path) -> None:
    results = results_of(late_second(), tmp_path)
    whole, alone = report_of(results, rule_heads()), report_of(results, rule_heads(), rank=0)
    assert [one.rank for one in traces_of(alone).ranks] == [0]
    assert alone.skipped == ()
    exposed = traces_of(alone).ranks[0].shares["communication_exposed"]
    bounds = traces_of(alone).upper_bounds
    assert bounds.get("PA903", 0.0) < exposed / 2  # the rest is waiting for rank 1
    assert "PA904" in traces_of(whole).upper_bounds and "PA904" not in bounds


def test_collectives_of_an_earlier_step_are_not_counted(tmp_path: Path) -> None:
    """What was launched before the first step and runs in it is there on a rank whose device lags, and not on others."""
    job = Job.of(2)
    for host in job.ranks:
        host.kernel(GEMM, 3_000 if host.rank else 10)
    job.all_reduce()
    for _ in range(6):
        with ExitStack() as stack:
            for host in job.ranks:
                stack.enter_context(host.step())
                host.kernel(GEMM, 1_000)
            job.all_reduce()
            for host in job.ranks:
                host.catch_up()
    assert [len(one.collectives) for one in results_of(job, tmp_path)] == [6, 6]


def test_waiting_that_computing_hides_is_no_loss(tmp_path: Path) -> None:
    """The usual layout: all-reduces on a stream of their own, under the backward pass."""
    job = Job.of(4)
    for _ in range(6):
        with ExitStack() as stack:
            for host in job.ranks:
                stack.enter_context(host.step())
                for _ in range(20):
                    host.kernel(GEMM, 1_000)
                start = host.now
                late = 8_000 if host.rank == 1 else 0
                host._launch("cudaLaunchKernel", "kernel", ALL_REDUCE, 14_000 - late, 13, 5 + late, {})
                host.now = start + 5
            for host in job.ranks:
                host.catch_up()
    report = report_of_job(job, tmp_path)
    assert traces_of(report).ranks[0].shares["compute"] > 0.98
    assert not {"PA904", "PA905"} & {finding.rule for finding in report.findings}


def test_who_waits_in_groups_is_not_added_up(tmp_path: Path) -> None:
    """Four pairs, in each of which the second comes late: each rank waits at most once at a time."""
    job = Job.of(8)
    for _ in range(6):
        with ExitStack() as stack:
            for host in job.ranks:
                stack.enter_context(host.step())
                host.kernel(GEMM, 10_000 if (host.rank or 0) % 2 else 2_000)
            for pair in range(4):
                Job(job.ranks[2 * pair : 2 * pair + 2]).all_reduce(group=f"pair {pair}")
            for host in job.ranks:
                host.catch_up()
    report = report_of_job(job, tmp_path)
    bounds = traces_of(report).upper_bounds
    assert all(0 < share <= 1 for share in bounds.values())
    assert bounds["PA904"] == pytest.approx(8.0 / 10.5, rel=0.05)  # what the first of a pair waits for the second
    assert {one.rank for one in traces_of(report).stragglers} == {1, 3, 5, 7}
    (finding,) = [one for one in report.findings if one.rule == "PA904"]
    assert "comes last to 6 of 6 collectives of its group" in finding.message
    assert re.search(r"; in other groups so do ranks \d, \d and \d$", finding.message)


def in_groups(extra: Extra, steps: int = 5) -> Job:
    """Four ranks that split layers over (0, 1) and (2, 3), and average gradients over (0, 2) and (1, 3)."""
    job = Job.of(4)
    for step in range(steps):
        with ExitStack() as stack:
            for host in job.ranks:
                stack.enter_context(host.step())
            for _ in range(3):
                for rank, host in enumerate(job.ranks):
                    host.kernel(GEMM, 3_000 + extra(rank, step))
                for pair in ((0, 1), (2, 3)):
                    Job([job.ranks[rank] for rank in pair]).all_reduce(group="split", ranks=str(list(pair)))
            for pair in ((0, 2), (1, 3)):
                Job([job.ranks[rank] for rank in pair]).all_reduce(group="average", ranks=str(list(pair)))
            for host in job.ranks:
                host.catch_up()
    return job


def test_groups_of_one_name_are_told_apart_by_their_ranks(tmp_path: Path) -> None:
    """Each rank meets one other at a time: who is in no group with a slow rank does not wait for it there."""
    report = report_of_job(in_groups(lambda rank, _: 2_000 if rank == 3 else 0), tmp_path)
    assert report.notes == ()
    assert [one.rank for one in traces_of(report).stragglers] == [3]  # rank 2 is late to rank 0 because of rank 3
    (finding,) = [one for one in report.findings if one.rule == "PA904"]
    assert "comes last to 20 of 20 collectives of its group" in finding.message
    assert "Ranks 1 and 2 wait for it" in finding.message
    assert finding.saving is not None
    assert finding.saving.high == pytest.approx(6 / (15 + 2), rel=0.05)


def test_collectives_of_a_warm_up_are_not_compared(tmp_path: Path) -> None:
    job = Job.of(2)
    for step in range(8):
        with ExitStack() as stack:
            for rank, host in enumerate(job.ranks):
                stack.enter_context(host.step())
                for _ in range(8 if step < 2 else 0):
                    host.allocate(4_000 + 3_000 * rank)
                for _ in range(5):
                    host.kernel(GEMM, 1_000)
            job.all_reduce()
            for host in job.ranks:
                host.catch_up()
    results = results_of(job, tmp_path)
    assert [len(one.collectives) for one in results] == [6, 6]
    assert not {"PA904", "PA905"} & {finding.rule for finding in report_of(results, rule_heads()).findings}


def test_imbalance_is_told_of_the_group_that_has_it(tmp_path: Path) -> None:
    def late_in_turn(rank: int, step: int) -> float:
        return 3_000 if rank in (2, 3) and rank % 2 == step % 2 else 0

    job = Job.of(4)
    for step in range(8):
        with ExitStack() as stack:
            for rank, host in enumerate(job.ranks):
                stack.enter_context(host.step())
                host.kernel(GEMM, 6_000 + late_in_turn(rank, step))
            for pair in ((0, 1), (2, 3)):
                Job([job.ranks[rank] for rank in pair]).all_reduce(group=f"pair {pair[0]}")
            for host in job.ranks:
                host.catch_up()
    report = report_of_job(job, tmp_path)
    assert traces_of(report).stragglers == ()
    (finding,) = [one for one in report.findings if one.rule == "PA905"]
    assert finding.message.startswith("ranks 2 and 3 come to 8 of 8 collectives at different times")
    assert finding.saving is not None
    assert finding.saving.high == pytest.approx(3 / 9.5, rel=0.1)


def test_waiting_at_few_collectives_is_said(tmp_path: Path) -> None:
    """Of two collectives nobody can be named, but what was waited is known."""
    job = Job.of(2)
    with ExitStack() as stack:
        for rank, host in enumerate(job.ranks):
            stack.enter_context(host.step())
            host.kernel(GEMM, 5_000 + 1_200 * rank)
        job.all_reduce(2_000)
        for rank, host in enumerate(job.ranks):
            host.kernel(GEMM, 5_000 + 1_200 * rank)
        job.all_reduce(2_000)
        for host in job.ranks:
            host.catch_up()
    report = report_of_job(job, tmp_path)
    assert traces_of(report).stragglers == ()
    assert report.notes == (
        "Ranks wait for each other at 2 of 2 collectives, for 38 % of their time and 15 % of all time; rank 1 comes last to 2. "
        "So few do not tell which rank is late.",
    )


def test_steps_that_only_some_ranks_have_are_not_compared(tmp_path: Path) -> None:
    job = job_of(lambda rank, step: 8_000.0 if rank == 1 else 0.0, ranks=3, steps=10)
    path = job.write(tmp_path)
    windows = ((1, 8), (3, 10), (3, 8))
    results = [analyse(file, window) for file, window in zip(find_traces([path]), windows, strict=True)]
    (straggler,) = traces_of(report_of(results, rule_heads())).stragglers
    assert (straggler.rank, straggler.of) == (1, 12)  # two in each of the six steps that all have


def test_one_file_without_a_rank_is_looked_at_without_a_remark(tmp_path: Path) -> None:
    host = Host()
    with host.step():
        host.kernel(GEMM, 1_000)
    assert report_of([analyse(TraceFile(str(host.write(tmp_path / "trace.json"))))], rule_heads()).notes == ()


def test_two_files_whose_names_seem_to_have_one_rank(tmp_path: Path) -> None:
    host = Host()
    with host.step():
        host.kernel(GEMM, 1_000)
    for process in (1000, 1001):
        host.write(tmp_path / f"gpu01_{process}.1679055439000.pt.trace.json")
    host.write(tmp_path / "rank1_a.json")
    host.write(tmp_path / "rank1_b.json")
    report = report_of([analyse(file) for file in find_traces([tmp_path])], rule_heads())
    assert [one.rank for one in traces_of(report).ranks] == [1, None, None, None]
    assert report.skipped == ()
    first, second = tmp_path / "rank1_a.json", tmp_path / "rank1_b.json"
    assert report.notes == (
        f"{second} is named like rank 1, and so is {first}: the first is analysed by itself.",
        "2 files do not say of which rank: each is analysed by itself, not as part of the job.",
    )
    assert traces_of(report).verdict.startswith("4 traces, not known to be of one job")


def test_a_file_that_nobody_foresaw_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = find_traces([job_of(lambda *_: 0, ranks=3).write(tmp_path)])
    really = analyse

    def fails(file: TraceFile, window: tuple[int, int] | None = None) -> FileResult:
        if "rank1" in file.path:
            raise OverflowError("int too large to convert to float")
        return really(file, window)

    monkeypatch.setattr("perfaudit.trace.report.analyse", fails)
    results = read_all(files, None, 1)
    assert [one.problem for one in results] == [
        "",
        "cannot be analysed: OverflowError: int too large to convert to float",
        "",
    ]


def test_one_hiccup_is_no_straggler(tmp_path: Path) -> None:
    report = report_of_job(job_of(lambda rank, step: 20_000 if (rank, step) == (1, 2) else 0), tmp_path)
    assert traces_of(report).stragglers == ()
    assert not {"PA904", "PA905"} & {finding.rule for finding in report.findings}


def test_a_rank_that_a_file_tells_beats_one_that_is_in_a_name(tmp_path: Path) -> None:
    named, told = Host(), Host(rank=1, world_size=2)
    for host in (named, told):
        with host.step():
            host.kernel(GEMM, 1_000)
    named.write(tmp_path / "a_rank1.json")
    told.write(tmp_path / "b.json")
    report = report_of([analyse(file) for file in find_traces([tmp_path])], rule_heads())
    assert [(one.rank, Path(one.file).name) for one in traces_of(report).ranks] == [
        (1, "b.json"),
        (None, "a_rank1.json"),
    ]
    (note,) = report.notes
    assert note.startswith(
        f"{tmp_path}/a_rank1.json is named like rank 1, but {tmp_path}/b.json says that it is rank 1"
    )


def test_of_jobs_with_as_many_files_that_of_the_first_file_is_reported(tmp_path: Path) -> None:
    results = results_of(job_of(lambda *_: 0, ranks=4, steps=2), tmp_path)
    foreign = [other(one, file=f"other{one.rank}.json", job="backend=nccl world_size=9") for one in results[2:]]
    for mixed, usual in (([*results[:2], *foreign], [0, 1]), ([*foreign, *results[:2]], [2, 3])):
        report = report_of(mixed, rule_heads())
        assert [one.rank for one in traces_of(report).ranks] == usual
        assert report.notes[0] == (
            "The files are of 2 jobs, and no job has most of them. This is the report of the job of the first file, "
            f"{mixed[0].file}. Name the files of another job to read that."
        )
        assert [item.path for item in report.skipped] == [one.file for one in mixed[2:]]
        assert (
            report.skipped[0].reason
            == f"of another job: {mixed[2].job}; {mixed[0].file}, the first file, is of {mixed[0].job}"
        )


def test_an_export_displaces_no_rank_whatever_it_is_called(tmp_path: Path) -> None:
    job_of(lambda *_: 0, ranks=2).write(tmp_path)
    cut = trimmed_trace(find_traces([tmp_path])[1])
    assert cut is not None
    (tmp_path / "copy.json").write_text(cut.text)
    results = [analyse(file) for file in find_traces([tmp_path])]
    report = report_of(results, rule_heads())
    assert [Path(one.file).name for one in traces_of(report).ranks] == ["rank0.json", "rank1.json"]
    (skipped,) = report.skipped
    whole = tmp_path / "rank1.json"
    assert skipped.reason == f"one step that --export cut out of {whole}; rank 1 is read from {whole}"
    assert not are_two_jobs([results[0], results[2]], [tmp_path / "copy.json", whole])
    alone = report_of([results[0], results[1]], rule_heads())  # the trace that it was cut out of is not there
    assert [one.rank for one in traces_of(alone).ranks] == [0, 1]
    assert "export" in traces_of(alone).ranks[1].notes
