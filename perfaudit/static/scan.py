"""The static scan: files found, read, checked, with a fault of one file as a result. Never runs what it reads."""

from __future__ import annotations

import contextlib
import gc
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perfaudit.findings import Finding
from perfaudit.report import Report, Skipped, UnusedSuppression
from perfaudit.rules import Rule
from perfaudit.static import discover
from perfaudit.static.audit import Audited, audit, audit_file
from perfaudit.static.cache import open_cache
from perfaudit.static.document import Document, document, is_notebook
from perfaudit.static.fix import unfixed
from perfaudit.static.project import Project, absolute
from perfaudit.static.registry import catalogue
from perfaudit.static.rule_folder import RuleFolder
from perfaudit.static.source import Unreadable, decoded
from perfaudit.static.texts import bytes_of

STRAY_LINK = "a link, whose target is left as it is; name this very file to patch it"
POOL_BYTES = 1_500_000  # of Python text; below it two processes took longer than one (93 files against 497)
MAX_PROCESSES = 8
_TEST_NAME = re.compile(r"(^|/)(tests?/.*|test_[^/]*|[^/]*_test|conftest)\.(py|ipynb)$")
_TEST_FOLDER = re.compile(r"(^|/)tests/")
_TEST_TEXT = re.compile(rb"^[ \t]*(?:(?:import|from)[ \t]+(?:unittest|pytest)\b|def test_)|TestCase\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Options:
    """How a scan is made.

    selected: rule ids, None for all. exclude: patterns as in `.gitignore`, relative to `base`, the working directory if it
    is None. tests: also test files below a folder. exclude_named: a file that is named is left out as one that is found.
    cache: whether results of earlier scans are taken and kept. processes: at most so many, 0
    for as many as pay. rule_folders: of the user's own rules.
    """

    selected: frozenset[str] | None = None
    exclude: tuple[str, ...] = ()
    exclude_named: bool = False
    base: Path | None = None
    tests: bool = False
    cache: bool = False
    processes: int = 0
    rule_folders: tuple[RuleFolder, ...] = ()


def scan(
    paths: Iterable[str], options: Options | None = None, progress: Callable[[int, int], None] | None = None
) -> Report:
    """The findings of files and folders, in order of path and place.

    progress: called with (files done, files in all). Raises UserError for a path that does not exist.
    """
    options = options or Options()
    known = catalogue(options.rule_folders)
    selected = frozenset(known.rules) if options.selected is None else options.selected
    found = discover.python_files(paths, options.exclude, options.base, options.exclude_named)
    project = Project(file.path for file in found if not file.problem and not is_notebook(file.path))
    cache = open_cache(selected, known.digest) if options.cache else None
    files = [file for file in found if options.tests or not _is_test(file, options.exclude_named)]
    results: dict[discover.File, Audited] = {}
    waiting: list[discover.File] = []
    for file in files:
        if file.problem:
            results[file] = Audited(skipped=(Skipped(file.shown_as, file.problem),), looked_at=False)
        elif _cannot_matter(file, project):
            results[file] = Audited()
        elif cache and (earlier := cache.get(absolute(file.path), file.shown_as, project)):
            results[file] = earlier
        else:
            waiting.append(file)
    if progress is not None:
        progress(len(results), len(files))
    for file, result in _audited(waiting, project, known.rules, selected, options):
        results[file] = result
        if cache:
            cache.put(absolute(file.path), file.shown_as, project, result)
        if progress is not None:
            progress(len(results), len(files))
    if cache:
        cache.close()
    return _report([(file, results[file]) for file in files], len(found) - len(files))


def scan_bytes(data: bytes, name: str, options: Options | None = None) -> tuple[Report, Document | None]:
    """The findings in the bytes of a file that may not exist, as an editor holds it, and the document in them.

    name: the path it has or would have; neighbours are looked for beside it. Bytes that cannot be audited are a result.
    """
    options = options or Options()
    known = catalogue(options.rule_folders)
    selected = frozenset(known.rules) if options.selected is None else options.selected
    path = Path(name)
    shown = discover.shown(path)
    found = None
    try:
        text, encoding = decoded(data)
        found = document(text, path, encoding)
        result = audit(found, path, shown, known.rules, selected, Project([path]))
    except Unreadable as problem:
        result = Audited(skipped=(Skipped(shown, str(problem)),), looked_at=False)
    return _report([(discover.File(path, shown, named=True), result)], 0), found


def _report(results: list[tuple[discover.File, Audited]], left_out: int) -> Report:
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    unused: list[UnusedSuppression] = []
    for file, result in results:
        stray = file.is_stray_link
        findings += [unfixed(f, STRAY_LINK) for f in result.findings] if stray else result.findings
        skipped += result.skipped
        unused += result.unused
    looked_at = sum(result.looked_at for _, result in results)
    return Report(
        "scan", tuple(findings), tuple(skipped), looked_at, tests_left_out=left_out, unused_suppressions=tuple(unused)
    )


def _is_test(file: discover.File, named_too: bool) -> bool:
    """Whether a file found below a folder is a test: in `tests/`, or named as one and written for pytest or unittest.

    The text decides for the names, because `test_net.py` evaluates a network in many a repository.
    """
    inside = file.inside or (file.shown_as if named_too else "")
    if file.problem or not _TEST_NAME.search(inside):
        return False
    if _TEST_FOLDER.search(inside):
        return True
    try:
        return bool(_TEST_TEXT.search(bytes_of(file.path)))
    except OSError:
        return False


def _cannot_matter(file: discover.File, project: Project) -> bool:
    """Whether a file neither says "torch" nor imports a file of the project that does, so that it need not be parsed."""
    if file.named or is_notebook(file.path):
        return False
    seen = project.glance(absolute(file.path))
    if seen is None or "torch" in seen.marks:
        return False
    return not project.seen_from(file.path).imports_a_marked_file("torch", seen.imports)


# ---- one process or several ------------------------------------------------------------------------------------------

_shared: tuple[Project, dict[str, Rule], frozenset[str]]  # what a process of the pool needs besides its files


def _share(project: Project, folders: tuple[RuleFolder, ...], selected: frozenset[str]) -> None:
    global _shared
    _shared = (project, catalogue(folders).rules, selected)
    gc.disable()
    gc.freeze()


def _audit_some(files: list[discover.File]) -> list[Audited]:
    project, rules, selected = _shared
    results = [audit_file(file.path, file.shown_as, rules, selected, project) for file in files]
    gc.collect()
    return results


def _audited(
    files: list[discover.File], project: Project, rules: dict[str, Rule], selected: frozenset[str], options: Options
) -> Iterator[tuple[discover.File, Audited]]:
    """Each file with its result, as they come."""
    sizes = {file: seen.size for file in files if (seen := project.glance(absolute(file.path)))}
    processes = min(options.processes or _cores(), MAX_PROCESSES, len(files))
    if processes > 1 and (options.processes > 1 or sum(sizes.values()) >= POOL_BYTES):
        catalogue(options.rule_folders)  # before the processes part, so that each has it
        yield from _in_processes(files, sizes, processes, project, selected, options)
        return
    with _collecting_seldom() as collect:
        for number, file in enumerate(files):
            yield file, audit_file(file.path, file.shown_as, rules, selected, project)
            if number % 100 == 99:
                collect()


def _in_processes(
    files: list[discover.File],
    sizes: dict[discover.File, int],
    processes: int,
    project: Project,
    selected: frozenset[str],
    options: Options,
) -> Iterator[tuple[discover.File, Audited]]:
    from concurrent.futures import ProcessPoolExecutor, as_completed  # 6 ms that most scans need not spend
    from concurrent.futures.process import BrokenProcessPool

    shared = (project, options.rule_folders, selected)
    chunks = _chunks(files, sizes, processes)
    left = dict.fromkeys(files)
    with contextlib.suppress(BrokenProcessPool), ProcessPoolExecutor(processes, None, _share, shared) as pool:
        waiting = {pool.submit(_audit_some, chunk): chunk for chunk in chunks}
        try:
            for done in as_completed(waiting):
                chunk = waiting.pop(done)
                for file, result in zip(chunk, done.result(), strict=True):
                    del left[file]
                    yield file, result
        finally:
            for future in waiting:
                future.cancel()
    for file in left:  # a process died; each file that is left gets its own, so that one of them is named
        with ProcessPoolExecutor(1, None, _share, shared) as pool:
            try:
                yield file, pool.submit(_audit_some, [file]).result()[0]
            except BrokenProcessPool:
                reason = "the process that audited it died; a file that does that deserves a bug report"
                yield file, Audited(skipped=(Skipped(file.shown_as, reason),), looked_at=False)


def _chunks(files: list[discover.File], sizes: dict[discover.File, int], processes: int) -> list[list[discover.File]]:
    """Files in groups of about equal size, the largest files first, several groups per process."""
    goal = max(1, sum(sizes.values()) // (processes * 8))
    chunks: list[list[discover.File]] = []
    filled = goal
    for file in sorted(files, key=lambda file: -sizes.get(file, 0)):
        if filled >= goal or len(chunks[-1]) >= 50:
            chunks.append([])
            filled = 0
        chunks[-1].append(file)
        filled += sizes.get(file, 0)
    return chunks


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _collecting_seldom() -> Iterator[Callable[[], object]]:
    """Without automatic garbage collection, which took two thirds of the time of parsing 2,000 files."""
    was_on = gc.isenabled()
    gc.disable()
    gc.freeze()  # what is there already is not looked through again and again
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()
