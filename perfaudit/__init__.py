"""perfaudit: why PyTorch training is slow, with proof and a patch."""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__", "scan"]


def scan(paths: list[str], **options: object):  # type: ignore[no-untyped-def]  # imported late, typed at its home
    """The report of a static scan of files and folders; see `perfaudit.static.scan.scan`."""
    from perfaudit.static.scan import scan as scan_paths

    return scan_paths(paths, **options)  # type: ignore[arg-type]
