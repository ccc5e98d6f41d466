"""The child's side: holds one training, answers commands. Everything of the user's runs here and nowhere else."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfaudit.measure import first_steps
from perfaudit.measure.queued import queued_seconds
from perfaudit.target.working_folder import begin, full_path

if TYPE_CHECKING:
    import socket

Reply = dict[str, Any]  # JSON

WAITED_STEPS = 2  # after each block, where the parts of a step can only be told by waiting; as few as a block has

_PR_SET_PDEATHSIG = 1


def serve(commands: int, replies: int, parent: int) -> None:
    """Answer JSON lines from one descriptor on another until they end. Faults of the user's code are replies too."""
    _die_with(parent)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Loader workers may stand still when we die, and then only a signal from the kernel ends them.
    os.register_at_fork(after_in_child=_end_with_parent)
    os.set_inheritable(commands, False)
    os.set_inheritable(replies, False)
    begin()
    holder = Holder()
    with os.fdopen(commands) as lines:
        for line in lines:
            command = json.loads(line)
            reply = _answer(holder, command)
            os.write(replies, json.dumps(reply).encode() + b"\n")
    with contextlib.suppress(Exception):
        holder.close()
    os._exit(0)  # threads of the user's code must not keep the process


def nurse(channel: int, parent: int) -> None:
    """Import torch, then fork a worker for each request on a socket, and tell how workers ended."""
    import array
    import socket

    from perfaudit.measure import fork_safety

    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threads = fork_safety.thread_count()
    # A library that asks for a device on import then initialises none.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    with contextlib.suppress(ImportError):
        import torch
        import torch._dynamo  # noqa: F401  # the first optimizer imports it, which takes another second
    requests = socket.socket(fileno=channel)
    ended: dict[int, int] = {}
    size = array.array("i").itemsize
    while True:
        data, ancillary, _, _ = requests.recvmsg(1 << 20, socket.CMSG_SPACE(3 * size))
        if not data:
            os._exit(0)
        request = json.loads(data)
        if request["do"] == "preload":
            for name in request["modules"]:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
            requests.sendall(b"-")
            continue
        if request["do"] == "poll":
            requests.sendall(_exit_code(request["pid"], ended).encode())
            continue
        descriptors = array.array("i")
        descriptors.frombytes(ancillary[0][2][: 3 * size])
        answer = forked(request, requests, descriptors, threads)
        for descriptor in descriptors:
            os.close(descriptor)
        requests.sendall(answer.encode())


def forked(request: Reply, requests: socket.socket, descriptors: Sequence[int], threads: int) -> str:
    """The pid of a new worker on these descriptors (commands, replies, output), or "!" and why none may be forked.

    threads: of this process, before it imported anything.
    """
    from perfaudit.measure import fork_safety

    if why := fork_safety.reason_not_to_fork(threads):
        return f"!{why}"
    commands, replies, output = descriptors
    here = os.getpid()
    pid = os.fork()
    if pid == 0:
        requests.close()
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        try:
            serve(commands, replies, here)
        finally:
            os._exit(1)
    return str(pid)


def _exit_code(pid: int, ended: dict[int, int]) -> str:
    """The exit code of a child, minus the signal if one ended it; "-" while it runs."""
    if pid not in ended:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            done, status = pid, 0
        if done:
            ended[pid] = os.waitstatus_to_exitcode(status)
    return str(ended[pid]) if pid in ended else "-"


def _answer(holder: Holder, command: Reply) -> Reply:
    from perfaudit.errors import TargetError

    try:
        handler = getattr(holder, "do_" + command.pop("do"))
        return handler(**command) or {}
    except TargetError as error:
        return {"fault": "step" if holder.built else "target", "message": str(error)}
    except (KeyboardInterrupt, SystemExit) as error:
        from perfaudit.target.load import where

        how = f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else "raised KeyboardInterrupt"
        return {"fault": "step" if holder.built else "target", "message": f"{holder.doing}: it {how}{where(error)}"}
    except BaseException as error:
        return _fault(holder, error)


def _fault(holder: Holder, error: BaseException) -> Reply:
    from perfaudit.target.load import is_out_of_memory, said, where

    traceback.print_exc()
    text = said(error)[:500]
    if is_out_of_memory(error):
        return {"fault": "oom", "message": f"out of memory: {text}" if text else "out of memory"}
    kind = "step" if holder.built else "target"
    return {"fault": kind, "message": f"{holder.doing}: {type(error).__name__}: {text}{where(error)}"}


def _marks_in(path: str) -> Callable[[str], None]:
    """A function that leaves a line of text in a file, whatever becomes of this process."""
    file = os.open(path, os.O_WRONLY)

    def mark(text: str) -> None:
        os.pwrite(file, text.encode() + b"\n", 0)

    return mark


def _knob(name: str) -> Any:  # perfaudit.knobs.Knob, which this folder must not know
    return importlib.import_module(f"perfaudit.knobs.{name}").KNOB


def _attribute(name: str) -> Any:  # what is named is not known here
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _die_with(parent: int) -> None:
    """Ask the kernel to end this process when its parent dies (Linux), and leave if that has happened already."""
    _end_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def _end_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Holder:
    """The one training of this process and what can be asked of it; each `do_…` is a command, its result the reply."""

    def __init__(self) -> None:
        self.doing = "starting"
        self.built = False  # faults from here on are those of a step
        self.training: Any = None  # target.training.Training, imported when it is asked for
        self.on_fixed_batch = False
        self.in_force = contextlib.ExitStack()  # what a knob's setting has changed
        self.relocated: list[str] | None = None  # a folder from which nothing may be imported, and what takes its place
        self.padding: list[bytearray] = []  # kept for where it lies
        self.screening: Any = None  # measure.screening.Screening, once it was asked for
        self.twins: Any = None  # the same's Twins
        self.loaders: Any = None  # training.loader_variant.LoaderVariants

    def close(self) -> None:
        self.in_force.close()
        if self.twins is not None:
            self.twins.close()
        if self.loaders is not None:
            self.loaders.close()
        if self.training is not None:
            self.training.close()

    def do_build(
        self,
        target: Reply,
        overlay: dict[str, str],
        knob: str,
        settings: Reply,
        device: str,
        seed: int = 0,
        fixed_batch: bool = False,
        relocated: list[str] | None = None,
        in_place: bool = False,
        scattered: bool = False,
    ) -> Reply:
        """Build the training as the target's factories say, with patched texts and the settings of one knob.

        Replies with device, versions, length of an epoch, switches, and where loader and optimizer were built.
        relocated: a folder, and the copy of it from which everything is to be imported instead. in_place: from the folder
        all the same, after doing what it takes to import it from the copy. scattered: see `measure.layout`.
        """
        from perfaudit.measure.facts import facts_of
        from perfaudit.target import overlay as patched
        from perfaudit.target.names import Target
        from perfaudit.target.training import Training

        self.doing = f"building {target['file']}"
        if relocated is not None:
            from perfaudit.target.relocate import take_the_place

            take_the_place(relocated[0], relocated[0] if in_place else relocated[1])
        if scattered:
            from perfaudit.measure import layout

            self.padding = layout.scattered()
        # As `python file.py` has it: the file's folder first.
        patched.install(overlay)
        setup = _knob(knob).setup(settings) if knob else None
        loader, optimizer = (setup.loader_overrides, setup.optimizer_overrides) if setup else ({}, {})
        self.training = Training(Target(target["file"], target["names"]), device, loader, seed, optimizer)
        self.on_fixed_batch = fixed_batch
        if setup is not None:
            self.doing = f"applying {knob} {settings}"
            self.in_force.enter_context(setup.applied(self.training))
            self.on_fixed_batch = setup.fixed_batch
        self.doing = f"{target['file']}: one training step"
        self.built = True
        self.relocated = relocated
        return {**facts_of(self.training), **self.do_strays()}

    def do_strays(self) -> Reply:
        """Under "strays", files that were imported so far from the folder that a copy takes the place of: see `do_build`."""
        from perfaudit.target import relocate

        return {"strays": relocate.strays(*self.relocated) if self.relocated is not None else []}

    def do_ask(self, knob: str, question: str, arguments: Reply) -> Reply:
        """What a knob wants to know of the training that was built: its method `answer_<question>`."""
        self.doing = f"{knob}: {question}"
        reply: Reply = getattr(_knob(knob), f"answer_{question}")(self.training, **arguments)
        return reply

    def do_losses(
        self,
        steps: int,
        seed: int,
        save_state: str = "",
        load_state: str = "",
        save_gradients: str = "",
        load_gradients: str = "",
        build_seed: int | None = None,
        nudge: float = 0.0,
        observe: bool = False,
        run: int = 1,
        rounded: str = "",
    ) -> Reply:
        """Losses of the first steps from one seed, as exact hexadecimal floats; the training goes on afterwards.

        With them, sums over the user's moving average after those steps, so that a patch of it is checked too.

        save_state / load_state: a file to keep the initial parameters in, or to take them from (only keys that this
        model has; where the file lacks one, nothing is taken and "why" names it). save_gradients / load_gradients: a file
        to keep the gradients of the first step in, or to compare them with ("gradients": see `measure.gradients`).
        build_seed: build the training again from this seed first. nudge: move each parameter by this share of itself, up
        or down by chance. observe: say under "dtypes" which types autocast was entered with. run: tells apart questions
        that are the same. rounded: compute as in this type, one way for each run (see `measure.rounded`).
        """
        import torch

        from perfaudit.measure import gradients
        from perfaudit.target.training import Training, seed_all

        self.doing = "the first steps"
        if build_seed is not None:
            self.training.close()
            if self.training.folder:  # its factories begin where they did the first time
                os.chdir(self.training.folder)
            self.training = Training(self.training.target, str(self.training.device), seed=build_seed)
        training = self.training
        if save_state:
            torch.save(training.model.state_dict(), save_state)
        why = first_steps.take_parameters(training.model, load_state) if load_state else ""
        if nudge:
            first_steps.nudge(training.model, nudge)
        losses: list[str] = []
        found: Reply = {}
        batch: Any = None

        def look() -> None:
            if save_gradients:
                gradients.save(training, batch, save_gradients)
            if load_gradients:
                found["gradients"] = gradients.compare_with_file(training, batch, load_gradients)

        seed_all(seed)
        with (
            first_steps.autocasts() if observe else contextlib.nullcontext(set[str]()) as dtypes,
            gradients.after_first_backward(training, look),
            self._in_type(rounded, run),
        ):
            for _ in range(steps):
                batch = training.to_device(training.next_batch())
                losses.append(float(training.step(batch).detach()).hex())
        average = [value.hex() for value in training.average_sums()]
        return {"losses": losses, "average": average, "why": why, "dtypes": sorted(dtypes), **found}

    def _in_type(self, rounded: str, draw: int) -> contextlib.AbstractContextManager[None]:
        from perfaudit.measure.rounded import rounded_to

        return rounded_to(rounded, draw) if rounded else contextlib.nullcontext()

    def do_sensitivity(self, seed: int, other_seed: int, nudge: float, rounded: str = "") -> Reply:
        """How far the first gradients move by themselves, from another random stream, and when parameters are nudged.

        rounded: compute as in this type instead of nudging (see `measure.rounded`).
        """
        from perfaudit.measure import gradients
        from perfaudit.target.training import seed_all

        self.doing = "the gradients of the first step"
        model = self.training.model

        if rounded:
            return {"sensitivity": gradients.sensitivity(
                self.training, seed, other_seed, lambda draw: self._in_type(rounded, draw), seed_all
            )}  # fmt: skip

        def moved(draw: int) -> contextlib.AbstractContextManager[None]:
            if draw:
                first_steps.nudge(model, -nudge, draw - 1)  # back, but for roundings and the square of the nudge
            first_steps.nudge(model, nudge, draw)
            return contextlib.nullcontext()

        return {"sensitivity": gradients.sensitivity(self.training, seed, other_seed, moved, seed_all)}

    def do_exact(self, steps: int, seed: int, nudge: float = 0.0) -> Reply:
        """The first steps with every float a double: see `measure.exact`. "why" where that cannot be.

        A child that was asked this is never timed, nor asked for anything else.
        """
        from perfaudit.measure import exact

        self.doing = "the first steps in double precision"
        try:
            return exact.first_steps(self.training, steps, seed, nudge)
        except Exception as error:  # kernels without doubles, casts that nobody sees: then nothing is known of it
            said = str(error).splitlines()[0][:200] if str(error) else ""
            return {"why": said if isinstance(error, exact.NotInDoubles) else f"{type(error).__name__}: {said}"}

    def do_block(self, steps: int) -> Reply:
        """Run one step that is not timed, then `steps` timed ones, waiting for the device once at the end.

        Replies with the fields of `ledger.Block`. The mean cost of an epoch's restart per step (starting workers, waiting
        for the first batch) is left out of the wall seconds and told apart.
        """
        from perfaudit.target.batches import samples_in

        training = self.training
        loss = training.step(training.batch(self.on_fixed_batch))
        training.synchronize()
        finite = math.isfinite(loss.detach().sum().item())
        del loss
        training.phases.take()
        restarts = len(training.restart_seconds)
        samples = 0
        queued, cpu, wall = queued_seconds(), time.process_time(), time.perf_counter()
        for _ in range(steps):
            samples += samples_in(training.whole_step(self.on_fixed_batch))
        training.synchronize()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        queued = max(0.0, queued_seconds() - queued)  # a thread that ended takes its share with it
        wall -= sum(training.restart_seconds[restarts:])
        phases = training.phases.take()
        restart_per_step = 0.0 if self.on_fixed_batch else training.restart_per_step()
        if training.phases.needs_waits:
            phases = {**self._phases_by_waiting(steps), **phases}
        return {
            "steps": steps,
            "wall": wall,
            "cpu": cpu,
            "samples": samples,
            "restart_per_step": restart_per_step,
            "queued": queued,
            "phases": phases,
            "finite": finite,
        }

    def _phases_by_waiting(self, steps: int) -> dict[str, float]:
        """Of a device without a clock: seconds of each part of further steps, with a wait after each, as of so many steps."""
        training = self.training
        with training.phases.waiting():
            for _ in range(WAITED_STEPS):
                training.whole_step(self.on_fixed_batch)
        return {name: seconds * steps / WAITED_STEPS for name, seconds in training.phases.take().items()}

    def do_steps(self, steps: int, untimed: int = 1) -> Reply:
        """Run `untimed` steps, then time `steps` of them one by one: "seconds" and "samples" are lists.

        With them, as `do_block` has them: seconds of all together on the wall clock, of the process and of waiting for a
        core, and the mean cost of an epoch's restart per step, which is left out of the seconds.
        """
        from perfaudit.measure.step_times import step_seconds
        from perfaudit.target.batches import samples_in

        training = self.training
        for _ in range(untimed):
            training.whole_step(self.on_fixed_batch)
        training.synchronize()
        queued, cpu, wall = queued_seconds(), time.process_time(), time.perf_counter()
        seconds, samples, with_restarts = step_seconds(training, steps, samples_in, self.on_fixed_batch)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        queued = max(0.0, queued_seconds() - queued)  # a thread that ended takes its share with it
        training.phases.take()
        per_step = 0.0 if with_restarts or self.on_fixed_batch else training.restart_per_step()
        return {
            "seconds": seconds,
            "samples": samples,
            "restart_per_step": per_step,
            "wall": wall,
            "cpu": cpu,
            "queued": queued,
        }

    def do_screen(
        self, entrants: list[Reply], least: float, seed: int, base: str = "", marker: str = "", rivals: bool = False
    ) -> Reply:
        """Be ready to race candidates in this very training: see `measure.screening`. Under "refused", those that cannot.

        entrants: "key", "code" (by path, the text as imported and as patched), "settings" (pairs of a knob as
        module:attribute and one of its settings), "loader" (such a pair, whose setting another loader has), "whole" (patched
        text by path, for a twin) and "way". least: the share of
        the step to be gained. base: the key of that with which the others are compared, "" for the training as it is. marker: a
        file that always has the key of what is in place, for those who find this process dead. rivals: see `race.Race`.
        """
        from perfaudit.measure import screening
        from perfaudit.measure.memory import refuse_without_room
        from perfaudit.measure.race import BASE
        from perfaudit.training.twin import build_twin

        self.doing = "screening candidates"
        training = self.training

        def build(texts: Mapping[str, str]) -> screening.Twin:
            refuse_without_room(training.device)
            return build_twin(training, texts)

        self.twins = self.twins or screening.Twins(build)
        candidates = [
            screening.Candidate(
                item["key"], item.get("code", {}), [self._in_place(*pair) for pair in item.get("settings", ())],
                self._other_loader(*item["loader"]) if item.get("loader") else None,
                item.get("whole", {}), item.get("way", "in place"),
            )
            for item in entrants
        ]  # fmt: skip
        self.screening = screening.prepare_screening(
            training, candidates, least, seed, self.twins, not training.accelerator.is_host, base or BASE,
            _marks_in(marker) if marker else lambda key: None, rivals,
        )  # fmt: skip
        return {"refused": self.screening.refused, "ways": self.screening.ways}

    def _in_place(self, knob: str, settings: Reply) -> Any:
        """A setting of a knob, named as module:attribute, as a variant."""
        from perfaudit.training.setting_variant import SettingVariant

        found, training = _attribute(knob), self.training
        return SettingVariant(lambda: found.in_place(training, settings))

    def _other_loader(self, knob: str, settings: Reply) -> Any:
        """The loader that a setting of a knob, named as module:attribute, asks for, as a variant."""
        from perfaudit.training.loader_variant import LoaderVariants

        self.loaders = self.loaders or LoaderVariants(self.training)
        return self.loaders.of(_attribute(knob).setup(settings).loader_overrides)

    def do_race(self, seconds: float, last: bool = False) -> Reply:
        """Go on with the race for so long, and say how it stands: see `measure.screening.Screening.state`."""
        reply: Reply = self.screening.run(seconds, last)
        return reply

    def do_memory(self) -> Reply:
        """Peak bytes of tensors in one step, the process' own, and what it takes of its device: see `memory.StepMemory`."""
        from perfaudit.measure.memory import memory_of_step, resident_bytes

        seen = memory_of_step(self.training, self.training.fixed_batch())
        return {"peak_bytes": seen.tensors, "resident_bytes": resident_bytes(), "taken_bytes": seen.taken}

    def do_room(self) -> Reply:
        """What is free for another copy of this training, and what this one takes: see `memory.room`."""
        from perfaudit.measure.memory import room

        return room(self.training.device)

    def do_migrate(self, target: Reply, device: str, old: str, new: str) -> Reply:
        """Fold the checkpoint `old` for the target as it is now and save it as `new`: see `checkpoints.inside`."""
        self.doing = f"migrating {old}"
        inside = importlib.import_module("perfaudit.checkpoints.inside")  # a part that this one must not know
        reply: Reply = inside.migrate(target, device, full_path(old), full_path(new) if new else "")
        return reply

    def do_observe(self) -> Reply:
        """What the training does when it runs: see `target.observed`. A child that was observed is never timed."""
        from perfaudit.target.observed import observe

        self.doing = "observing a training step"
        return observe(self.training)

    def do_count(self, as_run: bool = False) -> Reply:
        """What one training step consists of: see `measure.counters`, and `counters_as_run` for what only a training that
        is not observed shows. A child that was observed is never timed, nor asked for the other."""
        from perfaudit.measure.counters import counters
        from perfaudit.measure.counters_as_run import counters_as_run

        self.doing = f"{self.training.target.file}: counting one training step"
        return counters_as_run(self.training) if as_run else counters(self.training)

    def do_trace(self, target: Reply, files: list[str], device: str) -> Reply:
        """Lines of the given files that run when the training is built and makes two steps, by path as given.

        With them, seconds of one more step that is not traced.
        """
        wanted = {os.path.realpath(path): path for path in files}
        lines: dict[str, set[int]] = {path: set() for path in files}
        by_name: dict[str, str | None] = {}

        def trace(frame: Any, event: str, argument: object) -> Any:
            name = frame.f_code.co_filename
            if name not in by_name:
                by_name[name] = wanted.get(os.path.realpath(name))
            path = by_name[name]
            if path is None:
                return None
            lines[path].add(frame.f_lineno)
            return trace

        sys.settrace(trace)
        try:
            facts = self.do_build(target, {}, "", {}, device)
            for _ in range(2):
                self.training.whole_step(self.on_fixed_batch)
        finally:
            sys.settrace(None)
        started = time.perf_counter()
        self.training.whole_step(self.on_fixed_batch)
        self.training.synchronize()
        seconds = time.perf_counter() - started
        return {**facts, "seconds_per_step": seconds, "lines": {path: sorted(found) for path, found in lines.items()}}
