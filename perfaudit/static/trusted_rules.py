"""Which folders of rules the user of this machine trusts, by path and content; kept in their own configuration folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from perfaudit.errors import UserError
from perfaudit.expressions import regex
from perfaudit.files import Folder, reason
from perfaudit.records import record
from perfaudit.static.rule_folder import RuleFolder
from perfaudit.user_folder import NoUserFolder, config_folder

TRUSTED = "trusted-rules.json"
VARIABLE = "PERFAUDIT_TRUST_RULES"  # digests of folders, for CI, where nobody has a configuration folder
SCHEMA = "perfaudit.trusted-rules/1"
_LOCK = "trusted-rules.lock"
_DIGEST = regex(r"\b[0-9a-f]{64}\b")


NOT_TRUSTED = "they are Python that would run, and nobody here has trusted it"


class Damaged(Exception):
    """The file that says what is trusted cannot be understood; the message names it."""


@record(frozen=True, slots=True)
class Trust:
    """What the user trusts. folders: digest by name of each file of a folder, by its real path. trouble: why it is not known."""

    folders: Mapping[str, Mapping[str, str]]
    digests: frozenset[str] = frozenset()
    trouble: str = ""

    def may_know(self, folder: Path) -> bool:
        """Whether a folder has to be read to tell if it is trusted."""
        return bool(self.digests) or os.path.realpath(folder) in self.folders

    def why_not(self, folder: RuleFolder) -> str:
        """Why the rules of a folder are not run, "" where the user trusts them as they are."""
        if folder.digest in self.digests:
            return ""
        known = self.folders.get(os.path.realpath(folder.path))
        if known is None:
            return self.trouble or NOT_TRUSTED
        now = folder.digests
        different = sorted(name for name in known.keys() | now.keys() if known.get(name) != now.get(name))
        more = f" and {len(different) - 1} more" if len(different) > 1 else ""
        return f"{different[0]}{more} changed since they were trusted" if different else ""


def trust() -> Trust:
    """What the user trusts: by their configuration folder, and by digests in the environment. A damaged file trusts nothing."""
    digests = frozenset(_DIGEST.findall(os.environ.get(VARIABLE, "")))
    try:
        with config_folder() as folder:
            return Trust(_read(folder), digests)
    except NoUserFolder:
        return Trust({}, digests)
    except Damaged as error:
        return Trust({}, digests, f"{error}, so nothing is trusted")
    except OSError as error:
        return Trust({}, digests, f"what you trust cannot be read: {reason(error)}")


def set_trust(add: Iterable[RuleFolder] = (), remove: Iterable[str] = ()) -> None:
    """Trust folders as they were read, and no longer those at some real paths. Raises UserError where that cannot be kept."""
    try:
        with config_folder() as folder, folder.lock(_LOCK):
            try:
                known = dict(_read(folder))
            except Damaged:  # it trusted nothing
                known = {}
            for place in remove:
                known.pop(place, None)
            known |= {os.path.realpath(rules.path): rules.digests for rules in add}
            text = json.dumps({"schema": SCHEMA, "folders": known}, indent=1)
            folder.write(TRUSTED, text.encode(), 0o600)
    except NoUserFolder as error:
        raise UserError(
            f"what you trust cannot be kept: {error}; for CI there is {VARIABLE}, see docs/scan.md"
        ) from error
    except OSError as error:
        raise UserError(f"what you trust cannot be kept: {reason(error)}") from error


def _read(folder: Folder) -> dict[str, dict[str, str]]:
    """The file's folders. Raises Damaged for one that cannot be understood, OSError for one that others can look into."""
    try:
        data = folder.read(TRUSTED, private=True)
    except FileNotFoundError:
        return {}
    place = folder.path / TRUSTED
    try:
        table = json.loads(data)
        schema, folders = table["schema"], table["folders"]
        found = {place: dict(files) for place, files in folders.items()}
        is_whole = all(_DIGEST.fullmatch(digest) for files in found.values() for digest in files.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{place} is damaged") from error
    if schema != SCHEMA or not is_whole:
        raise Damaged(f"{place} is damaged, or of another version")
    return found
