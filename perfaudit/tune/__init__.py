"""Searching: which knobs pay, one on top of the other, verified and priced."""

from __future__ import annotations

import sys

import perfaudit

sys.modules[__name__].__class__ = perfaudit.CallablePackage
