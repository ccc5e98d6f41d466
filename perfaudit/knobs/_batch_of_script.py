"""The batch size of a script: where its text or its arguments set it, and what its own steps take with more samples."""

from __future__ import annotations

import ast
import time
from collections.abc import Sequence
from typing import Any

from perfaudit.errors import TargetError
from perfaudit.knobs import Bench, Refused, Reply, Survey, Unanswered
from perfaudit.knobs._code import Code, Patch, built_at
from perfaudit.knobs._trainers import words_of_options
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.static.where_set import WhereSet, given_as, where_set

POSITION = 1  # of batch_size in DataLoader.__init__
OF_TRAINER = "per_device_train_batch_size"  # of transformers.TrainingArguments, on one device
LIMITS = "a script makes its steps itself"  # why they are not predicted


def patch_of_script(code: Code, settings: Settings) -> Patch | None:
    """The number where the script sets it: in the call of the loader, a constant, a field, or the default of an argument."""
    script, found = code.survey.facts.script, _set_at(code)
    if code.survey.facts.loader.prefix and not code.survey.facts.loader.owner:
        return _patch_trainer(code, settings)
    if found is None or script is None:
        return None
    source, call, at = found
    size = str(settings["batch_size"])
    if isinstance(at, WhereSet):
        if at.literal is None or given_as(at.options, script.arguments):
            return None
        return code.patch(at.source, at.literal, edit.replace(at.source, at.literal, size))
    return code.patch(source, call, edit.set_keyword(source, call, "batch_size", size)) if at else None


def _patch_trainer(code: Code, settings: Settings) -> Patch | None:
    """The argument of a trainer that builds the loader, where it stands there as a number or not at all."""
    found = code.call(code.survey.facts.loader.site)
    if found is None or any(keyword.arg is None for keyword in found[1].keywords):
        return None
    source, call = found
    own = edit.keyword(call, OF_TRAINER)
    is_number = own is None or isinstance(own.value, ast.Constant)
    return (
        code.patch(source, call, edit.set_keyword(source, call, OF_TRAINER, str(settings["batch_size"])))
        if is_number
        else None
    )


def why_by_hand(survey: Survey) -> str:
    """Why no other batch size is a patch of a script, "" where it is one."""
    code, script = Code("", survey), survey.facts.script
    if patch_of_script(code, {"batch_size": 2 * (survey.facts.loader.batch_size or 1)}) is not None:
        return ""
    if survey.facts.loader.prefix and words_of_options(survey, [(OF_TRAINER, "")]):
        return f"the argument --{OF_TRAINER} sets it, which is no line to patch"
    found = _set_at(code)
    options = found[2].options if found is not None and isinstance(found[2], WhereSet) else ()
    if script is not None and (option := given_as(options, script.arguments)):
        return f"the argument {option} sets it, which is no line to patch"
    return f"no single line was found that sets it as a number{built_at(survey.facts.loader.site)}"


def handed_over_of_script(survey: Survey, settings: Settings) -> str:
    """How a script gets another batch size where its text is not changed: the argument to give, or the place to look at."""
    code, script = Code("", survey), survey.facts.script
    of_trainer = [(OF_TRAINER, str(settings["batch_size"]))]
    if survey.facts.loader.prefix and (by_command_line := words_of_options(survey, of_trainer)):
        return by_command_line
    found, place = _set_at(code), built_at(survey.facts.loader.site)
    at = found[2] if found is not None else None
    if isinstance(at, WhereSet) and script is not None and at.options:
        option = given_as(at.options, script.arguments) or at.options[0]
        return f"give the script {option} {settings['batch_size']}"
    return f"set it by hand where the loader gets it{place}" if place else ""


_Place = WhereSet | bool | None


def _set_at(code: Code) -> tuple[Source, ast.Call, _Place] | None:
    """The file and the call of the loader, and where its batch size is set: True for nowhere, where torch's own holds."""
    loader = code.survey.facts.loader
    found = code.call(loader.site) if not loader.prefix else None  # a trainer's arguments have other names
    if found is None:
        return None
    source, call = found
    own = edit.keyword(call, "batch_size")
    if any(keyword.arg is None for keyword in call.keywords) and own is None:  # `**options` may hold it
        return source, call, None
    if own is None and len(call.args) <= POSITION:
        return source, call, True
    size, now = own.value if own is not None else call.args[POSITION], code.survey.facts.loader.batch_size
    others = [code.source(path) for path in code.survey.facts.project_files]
    beside = [each for each in others if each is not None and each.path != source.path]
    at = where_set(source, size) or where_set(source, size, beside)
    is_it = at is not None and (at.options or (at.literal is not None and at.literal.value == now))
    return source, call, at if is_it else None


# ---- what fits -----------------------------------------------------------------------------------------------------


def limit_of_script(bench: Bench, current: Settings, sizes: Sequence[int]) -> int:
    """The largest of these sizes that is expected to fit, by real steps of the script; 0 where none could be made.

    sizes: in rising order, the current one first. Raises Refused where its loader cannot be exchanged.
    """
    now = int(str(current["batch_size"]))
    try:
        seen = bench.ask(
            current, "real_sizes", sizes=list(sizes), room=bench.memory_budget, seconds=bench.seconds_left()
        )
    except Unanswered as error:
        if "plain DataLoader" in str(error):
            raise Refused(
                "its batches do not come from a plain DataLoader, in whose place another can be put"
            ) from error
        seen = {"fit": [], "failed": str(error)}
    peaks = {int(size): int(tensors) for size, tensors, _ in seen["fit"]}
    bench.kept.update(budget=bench.memory_budget, outside=0, current=now, peaks=peaks)
    bench.kept.update(limit=max(peaks, default=0), cannot=LIMITS, failed=seen.get("failed", ""))
    return max(peaks, default=0)


def answer_real_sizes(training: Any, sizes: Sequence[int], room: int, seconds: float) -> Reply:
    """Under "fit", sizes with the peak of a step in bytes, of tensors and of all that it takes, up to where `room` may not do.

    At k times the batch a step takes at most k times as much, so none that is tried is expected to fail; where one raises all the
    same, "failed" says what. Once `seconds` have passed, no further one is tried.
    """
    from perfaudit.measure.memory import memory_of_script, peak_resident_bytes
    from perfaudit.training.code_change import NotSwappable
    from perfaudit.training.loader_variant import LoaderVariant

    fit: list[tuple[int, int, int]] = []
    ends = time.monotonic() + seconds
    for size in sizes:
        if fit and time.monotonic() > ends:
            break
        if fit and fit[-1][2] * size / fit[-1][0] > room:
            break
        variant = LoaderVariant(training, {"batch_size": size})
        try:
            variant.enter()
            seen = memory_of_script(training)
        except NotSwappable as error:
            raise TargetError(str(error)) from error
        except Exception as error:  # whatever a step raises that is made for another size
            return {"fit": fit, "failed": f"{type(error).__name__}: {error}"[:300]}
        finally:
            variant.close()
        most = seen.bytes_on_device if seen.bytes_on_device is not None else max(seen.tensors, peak_resident_bytes())
        fit.append((size, seen.tensors, most))
    return {"fit": fit}
