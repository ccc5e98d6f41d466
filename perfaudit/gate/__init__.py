"""Guarding: a change against a commit or a file, by findings, counters and step time."""

from __future__ import annotations

import sys

import perfaudit

sys.modules[__name__].__class__ = perfaudit.CallablePackage
