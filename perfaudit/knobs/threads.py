"""Threads that share the work of one operator on the CPU."""

from __future__ import annotations

from perfaudit.knobs import Bench, Knob, Setup, Survey, Told
from perfaudit.knobs._code import Code, Patch
from perfaudit.measurements import Settings
from perfaudit.target.flags import threads_set


class Threads(Knob):
    """How many threads compute one operator."""

    name = "threads"
    title = "torch.set_num_threads from one to all cores"
    tries = "Try other numbers of threads (torch.set_num_threads)."
    usual_gain = 0.03
    way = "setting"
    is_judged_on_a_busy_machine = False  # fewer threads wait less for cores that others hold
    min_gain = 0.03  # as for the loader: what else runs on the machine moves this more than any other setting
    # More threads spend more processor time to be done earlier, so that only the clock on the wall can tell.
    in_process = False
    fixed_batch = False  # loading runs on the same cores
    changes_always = ("rounding",)  # sums are split differently

    def not_applicable(self, survey: Survey) -> str:
        if survey.facts.device.type != "cpu":
            return f"it is about training on the CPU, and this training runs on {survey.facts.device.type}"
        if not _others(survey):
            return "this process may use one core, and torch uses one thread"
        return ""

    def current(self, survey: Survey) -> Settings:
        return {"threads": survey.facts.host.threads}

    def candidates(self, bench: Bench) -> list[Settings]:
        return [{"threads": n} for n in _others(bench.survey)]

    def size(self, settings: Settings) -> int:
        return int(str(settings["threads"]))

    def order(self, settings: Settings) -> int:
        return self.size(settings)

    def setup(self, settings: Settings) -> Setup:
        return Setup(applied=lambda training: threads_set(self.size(settings)), fixed_batch=False)

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        from perfaudit.static.process_settings import set_or_replace_call

        source = code.entry()
        if source is None:
            return None
        edits = set_or_replace_call(source, "torch.set_num_threads", str(settings["threads"]))
        return code.patch(source, None, edits)

    def words(self, settings: Settings, survey: Survey) -> str:
        return f"call torch.set_num_threads({settings['threads']}) once before training"

    def remarks(self, told: Told) -> list[str]:
        workers = told.survey.facts.loader.num_workers
        if workers:
            noun = "worker shares" if workers == 1 else "workers share"
            return [
                f"your {workers} loader {noun} these cores with the threads: another number of them may want another"
            ]
        if told.winner is None:
            return []
        beside = "measured beside whatever else ran here: on a machine that is free another number may win"
        if told.winner["threads"] == 1:
            return [beside]
        return [beside, "loader workers would share these cores with the threads: where you add some, search both"]


def _others(survey: Survey) -> list[int]:
    """One thread, half the cores, all of them, and one for each physical core; without the number that is used now."""
    cores = survey.facts.host.cores
    return sorted({1, max(1, cores // 2), survey.facts.host.physical_cores, cores} - {survey.facts.host.threads})


KNOB = Threads()
