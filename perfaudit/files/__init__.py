"""Every file and folder that perfaudit makes, writes, replaces or deletes. A test holds that nothing else in the package does.

What is perfaudit's own is a `Folder`: opened by descriptor, never through a link, and only where it is this user's. What the
user names or has patched (`replace_file`, `replace_source`) is not reached through a link inside a project, whose author
chose where that leads, and never lies in a folder of git. Imports the standard library only.
"""

from perfaudit.files.descriptors import Refused, append_only, reason
from perfaudit.files.folder import Folder
from perfaudit.files.old_contents import Kept, forget, keep, put_back
from perfaudit.files.own_outputs import is_own_output, is_own_report
from perfaudit.files.places import destination, source_place
from perfaudit.files.private import make_folders, private_copy
from perfaudit.files.temporary import sweep
from perfaudit.files.user_files import append, create_file, cut, replace_file, replace_source

__all__ = [
    "Folder",
    "Kept",
    "Refused",
    "append",
    "append_only",
    "create_file",
    "cut",
    "destination",
    "forget",
    "is_own_output",
    "is_own_report",
    "keep",
    "make_folders",
    "private_copy",
    "put_back",
    "reason",
    "replace_file",
    "replace_source",
    "source_place",
    "sweep",
]
