"""The machine a measurement belongs to: cores this process may use, memory that is free, versions."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from perfaudit.machine.limits import load_average, total_memory, usable_cores
from perfaudit.measure.facts import Facts
from perfaudit.measurements import Environment

_DEVICES = Path("/dev")
# Devices of NVIDIA, the same under Windows, of AMD, Intel and Habana.
_ACCELERATORS = ("nvidia[0-9]*", "dxg", "kfd", "dri/renderD*", "accel/*")


def may_have_accelerator() -> bool:
    """Whether a training may choose another device than the CPU here; asked of the system, without touching a driver."""
    if sys.platform != "linux":
        return True
    return any(True for pattern in _ACCELERATORS for _ in _DEVICES.glob(pattern))


def host(device: str = "cpu", torch: str = "", driver: str = "", threads: int = 0) -> Environment:
    """This machine, with what a child knows of torch and the device."""
    return Environment(
        device=device,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        cores=usable_cores(),
        memory_bytes=total_memory(),
        torch=torch,
        driver=driver,
        threads=threads,
        commit=_commit(),
        load=load_average(),
    )


def host_of(facts: Facts | None) -> Environment:
    """This machine, with what the facts of a built training say of torch and the device; nothing of these without."""
    if facts is None:
        return host()
    return host(facts.device.name, facts.host.torch, facts.device.driver, facts.host.threads)


_CONTENT_PROGRAMS = r"^(filter\..*\.(clean|process)|lfs\.extension\..*)$"
_OF_LFS = {"git-lfs clean -- %f", "git-lfs filter-process"}  # as `git lfs install --local` writes them


def _commit() -> str:
    """The commit checked out here, "" outside git; with "+" where tracked files are changed, or it cannot be told.

    Reading a repository must not run it: hooks and helpers are switched off, nothing is fetched, and where the repository's
    own settings name filters, no file is compared: git would pass it through them.
    """
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None or head.returncode:
        return ""
    settings = _git("config", "--show-scope", "--null", "--get-regexp", _CONTENT_PROGRAMS)
    if settings is None or settings.returncode not in (0, 1):  # 1: there are none
        return head.stdout.strip() + "+"
    fields = settings.stdout.split("\0")
    theirs = [entry for scope, entry in zip(fields[::2], fields[1::2], strict=False) if scope in ("local", "worktree")]
    if any(entry.partition("\n")[2] not in _OF_LFS for entry in theirs):
        return head.stdout.strip() + "+"
    changed = _git("diff", "--no-ext-diff", "--no-textconv", "--quiet", "--ignore-submodules=dirty", "HEAD")
    return head.stdout.strip() + ("+" if changed is None or changed.returncode else "")


def _git(*arguments: str) -> subprocess.CompletedProcess[str] | None:
    """None where it cannot be run, or does not end."""
    safe = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    try:
        environment = {**os.environ, "GIT_ALLOW_PROTOCOL": "none"}
        return subprocess.run([*safe, *arguments], capture_output=True, text=True, timeout=20, env=environment)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
