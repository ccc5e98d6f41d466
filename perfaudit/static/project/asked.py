"""What the findings of one file depend on besides its own text; for the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfaudit.records import field, record

if TYPE_CHECKING:
    from perfaudit.static.uses import Question


@record(slots=True)
class Asked:
    """What the findings of one file depend on besides its own text; for the cache."""

    files: set[str] = field(default_factory=set)
    modules: dict[tuple[str, str], str] = field(default_factory=dict)  # folder and name, and the file it was found in
    marks: set[str] = field(default_factory=set)
    imports: bool = False  # who imports whom, and what the bytes of files show
    importers: bool = False  # what files say that import this one, directly or through others
    program: bool = False  # what all files say that run together with this one
    uses: set[tuple[Question, str]] = field(default_factory=set)  # of what is defined here, in any file of the scan
    settings: set[str] = field(default_factory=set)  # names that were looked for in the settings files of the project
