"""Results of earlier scans, by what they depend on. Safe under concurrent runs, ignored when damaged, never needed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from perfaudit import __version__
from perfaudit.findings import Edit, Finding, Fix, Location, Saving, Span
from perfaudit.report import Skipped, UnusedSuppression
from perfaudit.rules import rules_folder
from perfaudit.static.audit import Audited
from perfaudit.static.project import Project

FOLDER = ".perfaudit_cache"
KEEP_SECONDS = 30 * 24 * 3600  # entries that no scan has written for this long go
_SWEEP_MARK = "swept"

Json = dict[str, Any]  # Any: nested JSON


class Cache:
    """One folder of entries, each a JSON file named by a digest of what it depends on.

    An entry holds when the file's bytes, the rules that ran, this very program, and what the findings asked about other
    files (`depends`) are the same. Where the folder cannot be written nothing is kept and nothing is said.
    """

    def __init__(self, folder: Path, selected: frozenset[str], rule_files: str) -> None:
        self._folder = folder / FOLDER
        own = (__version__, sys.version_info[:3], _program_digest(), sorted(selected), rule_files)
        self._salt = hashlib.sha256(repr(own).encode()).hexdigest()
        self._made: set[Path] = set()

    def get(self, path: str, shown_as: str, project: Project) -> Audited | None:
        """The result of an earlier scan of this file, None if there is none that still holds."""
        entry = self._entry(path, shown_as, project)
        if entry is None:
            return None
        try:
            data = json.loads(entry.read_bytes())
            if data["depends"] != _depends(data["asked"], project):
                return None
            return _decoded(data)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def put(self, path: str, shown_as: str, project: Project, result: Audited) -> None:
        """Keep a result; not that of a file that could not be audited, which may have had a passing reason."""
        entry = self._entry(path, shown_as, project) if result.looked_at else None
        if entry is None:
            return
        asked = {
            "files": sorted(result.asked.files),
            "marks": sorted(result.asked.marks),
            "imports": result.asked.imports,
            "modules": [[folder, name] for folder, name in sorted(result.asked.modules)],
        }
        data = json.dumps({"asked": asked, "depends": _depends(asked, project), **_encoded(result)})
        with contextlib.suppress(OSError):
            self._make(entry.parent)
            handle, name = tempfile.mkstemp(dir=entry.parent, prefix=".")
            try:
                with os.fdopen(handle, "w", encoding="utf-8", errors="surrogatepass") as file:
                    file.write(data)
                Path(name).replace(entry)
            except BaseException:  # a full disk
                Path(name).unlink(missing_ok=True)
                raise

    def _entry(self, path: str, shown_as: str, project: Project) -> Path | None:
        seen = project.glance(path)
        if seen is None:
            return None
        key = hashlib.sha256(
            f"{self._salt}\0{seen.digest}\0{path}\0{shown_as}".encode("utf-8", "surrogatepass")
        ).hexdigest()
        return self._folder / key[:2] / f"{key[2:40]}.json"

    def _make(self, folder: Path) -> None:
        if folder in self._made:
            return
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / ".gitignore").write_text("*\n", encoding="utf-8")
            (self._folder / "CACHEDIR.TAG").write_text(
                "Signature: 8a477f597d28d172789f06886806bc55\n# made by perfaudit; may be deleted at any time\n",
                encoding="utf-8",
            )
        folder.mkdir(exist_ok=True)
        self._made.add(folder)

    def sweep(self) -> None:
        """Delete entries that were written long ago; looks once a day at most."""
        mark = self._folder / _SWEEP_MARK
        now = time.time()
        with contextlib.suppress(OSError):
            if not self._folder.is_dir() or (mark.exists() and now - mark.stat().st_mtime < 24 * 3600):
                return
            mark.touch()
            for entry in self._folder.glob("??/*"):
                if now - entry.stat().st_mtime > KEEP_SECONDS:
                    entry.unlink(missing_ok=True)


@functools.cache
def _program_digest() -> str:
    """Changes when a file of the scanner or a rule file does, so that no stale result survives an update."""
    package = Path(__file__).parent
    folders = [package, package / "understanding", package / "checks", package.parent, rules_folder()]
    parts = []
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".toml")):
                    status = entry.stat()
                    parts.append((entry.name, status.st_size, status.st_mtime_ns))
    return _digest(sorted(parts))


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _depends(asked: Json, project: Project) -> Json:
    """Digests of everything besides its own file that a result was made from."""
    depends: Json = {path: (seen.digest if (seen := project.glance(path)) else "") for path in asked["files"]}
    depends |= {f"mark {mark}": project.digest_of_marked(mark) for mark in asked["marks"]}
    if asked["imports"]:
        depends["imports"] = project.imports_digest
    depends["modules"] = _digest([project.module_file(folder, name) for folder, name in asked["modules"]])
    return depends


def _encoded(result: Audited) -> Json:
    return {
        "findings": [dataclasses.asdict(finding) for finding in result.findings],
        "skipped": [dataclasses.asdict(item) for item in result.skipped],
        "unused": [dataclasses.asdict(item) for item in result.unused],
        "looked_at": result.looked_at,
    }


def _decoded(data: Json) -> Audited:
    return Audited(
        tuple(_finding(item) for item in data["findings"]),
        tuple(Skipped(**item) for item in data["skipped"]),
        tuple(
            UnusedSuppression(**{**item, "rules": tuple(item["rules"]), "unknown": tuple(item["unknown"])})
            for item in data["unused"]
        ),
        bool(data["looked_at"]),
    )


def _finding(item: Json) -> Finding:
    fix = item["fix"]
    made = {
        "location": Location(**item["location"]) if item["location"] else None,
        "saving": Saving(**item["saving"]) if item["saving"] else None,
        "fix": _fix(fix) if fix else None,
        "places": tuple(Location(**place) for place in item["places"]),
    }
    return Finding(**{**item, **made})


def _fix(item: Json) -> Fix:
    edits = tuple(Edit(Span(**part["span"]), part["text"]) for part in item["edits"])
    return Fix(item["title"], item["safety"], tuple(item["changes"]), edits, item["diff"], item["before"])
