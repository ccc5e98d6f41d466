"""The command line. Each command imports what it needs inside its function, so that the others start fast."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `perfaudit` script."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from perfaudit import __version__

        print(f"perfaudit {__version__}")
        return
    from perfaudit.cli.app import run

    sys.exit(run())
