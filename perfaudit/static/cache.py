"""Results of earlier scans, by what they depend on. Safe under concurrent runs, ignored when damaged, never needed.

They lie in the user's own cache folder, not in the project, whose author could put links and entries of their own there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from perfaudit import __version__, files
from perfaudit.expressions import regex
from perfaudit.files import Folder
from perfaudit.findings import Finding, Fix, Location, Saving
from perfaudit.records import as_json
from perfaudit.report import Skipped, UnusedSuppression
from perfaudit.rules import rules_folder
from perfaudit.static.audit import Audited
from perfaudit.static.project import Project
from perfaudit.user_folder import NoUserFolder, cache_folder, secret

FOLDER = "scan"  # in the user's cache folder of perfaudit
KEEP_SECONDS = 30 * 24 * 3600  # entries that no scan has written for this long go
_SWEEP_MARK = "swept"
_ENTRY = regex(r"[0-9a-f]{40}\.json")
_SEAL_BYTES = hashlib.sha256().digest_size

Json = dict[str, Any]  # Any: nested JSON


def open_cache(selected: frozenset[str], rule_files: str) -> Cache | None:
    """The cache of a scan with these rules; None where the user has no folder for it, and nothing is said."""
    try:
        key = secret()
        with cache_folder() as own:
            folder = own.below(FOLDER, make=True, mode=0o700)
    except (NoUserFolder, OSError):
        return None
    return Cache(folder, key, selected, rule_files)


class Cache:
    """One folder of entries, each a JSON file named by a digest of what it depends on, and sealed with the user's secret.

    An entry holds when the file's bytes and path, the rules that ran, this very program, and what the findings asked about
    other files (`depends`) are the same. It never holds the text of a fix: a file for which there is one is audited anew.
    """

    def __init__(self, folder: Folder, key: bytes, selected: frozenset[str], rule_files: str) -> None:
        self._folder = folder
        self._key = key
        own = (__version__, sys.version_info[:3], _program_digest(), sorted(selected), rule_files)
        self._salt = hashlib.sha256(repr(own).encode()).hexdigest()

    def get(self, path: str, shown_as: str, project: Project) -> Audited | None:
        """The result of an earlier scan of this file, None if there is none that still holds."""
        entry = self._entry(path, shown_as, project)
        if entry is None:
            return None
        try:
            sealed = self._folder.read(entry, private=True)
            text = sealed[_SEAL_BYTES:]
            if not hmac.compare_digest(sealed[:_SEAL_BYTES], self._seal(entry, text)):
                return None
            data = json.loads(text)
            if data["depends"] != _depends(data["asked"], path, project):
                return None
            if not _uses_hold(data, path, project):
                return None
            return _decode(data)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def put(self, path: str, shown_as: str, project: Project, result: Audited) -> None:
        """Keep a result; not that of a file that could not be audited, which may have had a passing reason, and none with
        the text of a fix, which is only ever taken from the file itself."""
        entry = self._entry(path, shown_as, project) if result.looked_at and not _has_fix(result) else None
        if entry is None:
            return
        asked = {
            "files": sorted(result.asked.files),
            "marks": sorted(result.asked.marks),
            "imports": result.asked.imports,
            "importers": result.asked.importers,
            "program": result.asked.program,
            "uses": sorted(result.asked.uses),
            "settings": sorted(result.asked.settings),
            "modules": [[folder, name] for folder, name in sorted(result.asked.modules)],
        }
        kept = {"depends": _depends(asked, path, project), "uses": _uses(asked, path, project)}
        data = json.dumps({"asked": asked, **kept, **_encode(result)})
        text = data.encode("utf-8", "surrogatepass")
        with contextlib.suppress(OSError):  # a full disk
            self._folder.write(entry, self._seal(entry, text) + text, 0o600, sync=False)

    def _entry(self, path: str, shown_as: str, project: Project) -> str | None:
        seen = project.glance(path)
        if seen is None:
            return None
        name = f"{self._salt}\0{seen.digest}\0{path}\0{shown_as}".encode("utf-8", "surrogatepass")
        return f"{hmac.digest(self._key, name, 'sha256').hex()[:40]}.json"

    def _seal(self, entry: str, text: bytes) -> bytes:
        return hmac.digest(self._key, entry.encode() + b"\0" + text, "sha256")

    def close(self) -> None:
        """Delete entries that were written long ago, once a day at most, and let go of the folder."""
        with self._folder:
            self._sweep()

    def _sweep(self) -> None:
        now = time.time()
        with contextlib.suppress(OSError):
            mark = self._folder.status(_SWEEP_MARK)
            if mark is not None and now - mark.st_mtime < 24 * 3600:
                return
            self._folder.write(_SWEEP_MARK, b"", 0o600, sync=False)
            files.sweep(self._folder.path)
            for name in filter(_ENTRY.fullmatch, self._folder.names()):
                status = self._folder.status(name)
                if status is not None and now - status.st_mtime > KEEP_SECONDS:
                    self._folder.remove(name)


def _has_fix(result: Audited) -> bool:
    return any(finding.fix is not None and (finding.fix.edits or finding.fix.diff) for finding in result.findings)


@functools.cache
def _program_digest() -> str:
    """Changes when a file of the scanner or a rule file does, so that no stale result survives an update."""
    parts = []
    for folder in _program_folders():
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".toml")):
                    status = entry.stat()
                    parts.append((entry.name, status.st_size, status.st_mtime_ns))
    return _digest(sorted(parts))


def _program_folders() -> list[str]:
    """The scanner's folder with all below it, those of checks too, then the package's own and that of the rule files."""
    package = Path(__file__).parent
    folders = []
    for folder, below, _ in os.walk(package):
        below[:] = [name for name in below if name != "__pycache__"]
        folders.append(folder)
    return [*folders, str(package.parent), str(rules_folder())]


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _depends(asked: Json, path: str, project: Project) -> Json:
    """Digests of everything besides its own file that a result was made from."""
    depends: Json = {path: (seen.digest if (seen := project.glance(path)) else "") for path in asked["files"]}
    depends |= {f"mark {mark}": project.digest_of_marked(mark) for mark in asked["marks"]}
    if asked["imports"]:
        depends["imports"] = project.imports_digest
    if asked["importers"]:
        depends["importers"] = project.digest_of_importers(path)
    if asked["program"]:
        depends["program"] = project.digest_of(project.program_of(path))
    depends |= {f"setting {name}": project.settings.digest(path, name) for name in asked["settings"]}
    if asked["uses"]:
        depends["place"] = project.uses.place(path)
    depends["modules"] = _digest([project.layout.module_file(folder, name) for folder, name in asked["modules"]])
    return depends


def _uses(asked: Json, path: str, project: Project) -> list[Any]:  # Any: a digest, then answers
    """A digest of all texts, and what they say of the use of what a file defines; nothing where nothing was asked."""
    questions = [tuple(question) for question in asked["uses"]]
    return (
        [project.texts_digest, *(project.uses.answer(path, *question) for question in questions)] if questions else []
    )


def _uses_hold(data: Json, path: str, project: Project) -> bool:
    """Whether the texts say the same of the use of what a file defines; they surely do where none has changed."""
    if not data["uses"] or data["uses"][0] == project.texts_digest:
        return True
    return bool(data["uses"][1:] == _uses(data["asked"], path, project)[1:])


def _encode(result: Audited) -> Json:
    return {
        "findings": [as_json(finding) for finding in result.findings],
        "skipped": [as_json(item) for item in result.skipped],
        "unused": [as_json(item) for item in result.unused],
        "looked_at": result.looked_at,
    }


def _decode(data: Json) -> Audited:
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
        "fix": Fix(fix["title"], fix["safety"], tuple(fix["changes"])) if fix else None,
        "places": tuple(Location(**place) for place in item["places"]),
        "also": tuple(item.get("also", ())),
        "instead": None,
        "merged": tuple(item.get("merged", ())),
        "parts": tuple(map(_finding, item.get("parts", ()))),
    }
    return Finding(**{**item, **made})
