"""The static scan: files found, read, checked, with a fault of one file as a result. Never runs what it reads."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from perfaudit.expressions import regex
from perfaudit.findings import Finding
from perfaudit.forked_work import Lost, in_children
from perfaudit.reading import read_bytes
from perfaudit.records import record
from perfaudit.report import Report, Skipped, UnusedSuppression
from perfaudit.rules import Rule
from perfaudit.static import discover
from perfaudit.static.audit import Audited, audit, audit_file
from perfaudit.static.document import Document, document, is_notebook
from perfaudit.static.project import Project
from perfaudit.static.registry import all_checks, catalogue
from perfaudit.static.rule_folder import RuleFolder
from perfaudit.static.source import Unreadable, decode_source

STRAY_LINK = "a link, whose target is left as it is; name this very file to patch it"
POOL_BYTES = 1_500_000  # of Python text; below it two processes took longer than one (93 files against 497)
MAX_PROCESSES = 8
_TEST_NAME = regex(r"(^|/)(tests?/.*|testing/.*|test_[^/]*|[^/]*_test|conftest)\.(py|ipynb)$")
# What tests are written with: nobody trains it, whatever its text imports.
_TEST_HELPER = regex(r"(^|/)(test(ing)?_?(utils?|helpers?|common)|mocks?|mock_[^/]*|[^/]*_mocks?)(\.py$|/)")
_TEST_FOLDER = regex(r"(^|/)tests/")
# A `test_model` in another function evaluates: pytest runs functions of the module, and methods.
_TEST_TEXT = regex(
    rb"^[ \t]*(?:import|from)[ \t]+(?:unittest|pytest)\b|TestCase\b"
    rb"|^(?:async[ \t]+)?def test_|^[ \t]+(?:async[ \t]+)?def test_\w*\(\s*(?:self|cls)\b",
    re.MULTILINE,
)


@record(frozen=True, slots=True)
class Options:
    """How a scan is made.

    selected: rule ids, None for all. exclude: patterns as in `.gitignore`, relative to `base`, the working directory if it
    is None. seen_from: the folder that shown paths are relative to, the working directory if it is None. tests: also test
    files below a folder. exclude_named: a file that is named is left out as one that is found. cache: whether results of
    earlier scans are taken and kept. processes: at most so many, 0 for as many as pay. rule_folders: of the user's own rules.
    """

    selected: frozenset[str] | None = None
    exclude: tuple[str, ...] = ()
    exclude_named: bool = False
    base: Path | None = None
    seen_from: Path | None = None
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
    paths = tuple(paths)
    found = discover.python_files(paths, options.exclude, options.base, options.exclude_named, options.seen_from)
    readable = [file.path for file in found if not file.problem]
    project = Project(
        (path for path in readable if not is_notebook(path)),
        (path for path in readable if is_notebook(path)),
        (Path(path) for path in paths if os.path.isdir(path)),  # noqa: PTH112  # Path("") is "."
    )
    cache = None
    if options.cache:
        from perfaudit.static.cache import open_cache

        cache = open_cache(selected, known.digest)
    files = [file for file in found if options.tests or not _is_test(file, options.exclude_named)]
    if len(files) > 1:
        import hashlib  # noqa: F401  # the digests of many files are made faster with it, see `reading.digest`
    results: dict[discover.File, Audited] = {}
    waiting: list[discover.File] = []
    for file in files:
        if file.problem:
            results[file] = Audited(skipped=(Skipped(file.shown_as, file.problem),), looked_at=False)
        elif _cannot_matter(file, project):
            results[file] = Audited()
        elif cache and (earlier := cache.get(project.absolute(file.path), file.shown_as, project)):
            results[file] = earlier
        else:
            waiting.append(file)
    if progress is not None:
        progress(len(results), len(files))
    for file, result in _audit_files(waiting, project, known.rules, selected, options):
        results[file] = result
        if cache:
            cache.put(project.absolute(file.path), file.shown_as, project, result)
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
    shown = discover.shown_path(path)
    project = Project([path])

    def work(data: bytes) -> tuple[Audited, Document | None]:
        try:
            text, encoding = decode_source(data)
            found = document(text, path, encoding)
            return audit(found, path, shown, known.rules, selected, project), found
        except Unreadable as problem:
            return Audited(skipped=(Skipped(shown, str(problem)),), looked_at=False), None

    ((_, done),) = in_children(work, [data])
    if isinstance(done, Lost):
        done = Audited(skipped=(Skipped(shown, done.reason),), looked_at=False), None
    result, found = done
    return _report([(discover.File(path, shown, named=True), result)], 0), found


def _report(results: list[tuple[discover.File, Audited]], left_out: int) -> Report:
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    unused: list[UnusedSuppression] = []
    for file, result in results:
        findings += _without_fixes(result.findings) if file.is_stray_link else result.findings
        skipped += result.skipped
        unused += result.unused
    looked_at = sum(result.looked_at for _, result in results)
    return Report(
        "scan",
        tuple(findings),
        tuple(skipped),
        looked_at,
        named_unread=sum(file.named and not result.looked_at for file, result in results),
        tests_left_out=left_out,
        unused_suppressions=tuple(unused),
    )


def _without_fixes(findings: Iterable[Finding]) -> list[Finding]:
    from perfaudit.static.fix import with_fix_as_advice

    return [with_fix_as_advice(finding, STRAY_LINK) for finding in findings]


def _is_test(file: discover.File, named_too: bool) -> bool:
    """Whether a file found below a folder is a test: in `tests/`, or named as one and written for pytest or unittest.

    The text decides for the names, because `test_net.py` evaluates a network in many a repository.
    """
    inside = file.inside or (file.shown_as if named_too else "")
    if not inside:
        return False
    if not file.problem and _TEST_HELPER.search(inside):
        return True
    if file.problem or not _TEST_NAME.search(inside):
        return False
    if _TEST_FOLDER.search(inside):
        return True
    try:
        return bool(_TEST_TEXT.search(read_bytes(file.path)))
    except OSError:
        return False


def _cannot_matter(file: discover.File, project: Project) -> bool:
    """Whether a file neither says "torch" nor imports a file of the project that does, so that it need not be parsed.

    One that goes through weights or runs a backward pass is of torch too where a file that says so imports it, and so is one
    that gives a trainer of transformers its arguments.
    """
    if file.named or is_notebook(file.path):
        return False
    seen = project.glance(project.absolute(file.path))
    if seen is None or {"torch", "trainer"} & seen.marks:
        return False
    neighbours = project.seen_from(file.path)
    if "weights" in seen.marks and neighbours.is_imported_by_a_marked_file("torch"):
        return False
    return not neighbours.imports_a_marked_file("torch", seen.imports)


# ---- one process or several ------------------------------------------------------------------------------------------


def _audit_files(
    files: list[discover.File], project: Project, rules: Mapping[str, Rule], selected: frozenset[str], options: Options
) -> Iterator[tuple[discover.File, Audited]]:
    """Each file with its result, as they come; why there is none where its audit ended the process it ran in."""
    sizes = {file: seen.size for file in files if (seen := project.glance(project.absolute(file.path)))}
    processes = min(options.processes or _cores(), MAX_PROCESSES, len(files))
    if options.processes <= 1 and sum(sizes.values()) < POOL_BYTES:
        processes = 1
    if processes > 1:
        all_checks()  # imported before the processes part, so that each has them
        # The largest first, so that none is left with one at the end.
        files = sorted(files, key=lambda file: -sizes.get(file, 0))

    def work(file: discover.File) -> Audited:
        return audit_file(file.path, file.shown_as, rules, selected, project)

    for file, result in in_children(work, files, processes):
        if isinstance(result, Lost):
            result = Audited(skipped=(Skipped(file.shown_as, result.reason),), looked_at=False)
        yield file, result


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
