"""Checks of the machine on made-up machines: files below another root, variables, programs that print what was recorded."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perfaudit.machine import checks
from perfaudit.machine.checks import (
    all_checks,
    build_and_driver,
    cores,
    disk,
    frequency,
    look_at,
    memory,
    nvidia,
    other_work,
    resource_limits,
    shared_memory,
    torch_build,
    variables,
)
from perfaudit.machine.limits import core_quota, free_memory, memory_limit
from perfaudit.machine.place import Place
from perfaudit.machine.tell_torch import versions_in
from perfaudit.machine_facts import MachineFact
from perfaudit.render.machine import machine_page
from perfaudit.render.paint import plain
from perfaudit.report import Report

TOLD = {
    "version": "2.13.0", "cuda": "12.8", "hip": None, "threads": 2, "mkl": True, "onednn": True, "openmp": True,
    "cpu_capability": "AVX512", "cudnn": 91002, "nccl": "2.27.3", "gpus": 1, "copies": {"pinned": 2.5e10, "pageable": 4e9},
}  # fmt: skip


class Machine(Place):
    """A place whose torch says what it is given."""

    torch: dict[str, Any] = {}  # type: ignore[assignment]  # noqa: RUF012  # in place of the property


def machine(root: Path, files: dict[str, str] | None = None, **environment: str) -> Machine:
    for name, text in (files or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Machine(root=root, environment=environment, folder=root, has_bandwidth=False)


def fact(check: ModuleType, place: Place, name: str) -> MachineFact:
    return next(one for one in check.look(place) if one.name.endswith(name))


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, None),
        ({"proc/self/cgroup": "0::/slurm/job_7\n", "sys/fs/cgroup/slurm/job_7/cpu.max": "300000 100000"}, 3.0),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000",
                "sys/fs/cgroup/a/b/cpu.max": "max 1",
            },
            2.0,
        ),
        ({}, None),
    ],
)
def test_cores_of_a_control_group(files: dict[str, str], quota: float | None, tmp_path: Path) -> None:
    place = machine(tmp_path, files)
    assert core_quota(tmp_path) == quota
    told = fact(cores, place, "usable cores")
    assert isinstance(told.value, int) and told.value >= 1
    if quota is not None:
        assert told.value <= -int(-quota // 1)


@pytest.mark.parametrize(("nodes", "state"), [(0, None), (1, "ok"), (2, "note")])
def test_nodes_of_memory_are_told_also_where_there_is_one(nodes: int, state: str | None, tmp_path: Path) -> None:
    place = machine(tmp_path, {f"sys/devices/system/node/node{n}/cpulist": f"{n}\n" for n in range(nodes)})
    found = {one.name: one for one in cores.look(place)}
    assert found["physical cores"].state == "ok"  # nothing says that two share one
    assert found.get("NUMA nodes") is None if state is None else found["NUMA nodes"].state == state


def test_memory_of_a_control_group(tmp_path: Path) -> None:
    machine(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 999 kB\nMemAvailable:   8388608 kB\nSwapTotal: 0 kB\n",
            "sys/fs/cgroup/memory.max": f"{3 << 30}\n",
            "sys/fs/cgroup/memory.current": f"{2 << 30}\n",
        },
    )
    assert memory_limit(tmp_path) == 3 << 30
    assert free_memory(tmp_path) == 1 << 30
    told = fact(memory, Place(root=tmp_path), "free")
    assert (told.value, told.state) == (1 << 30, "warning")


def test_a_limit_of_version_1_that_is_none(tmp_path: Path) -> None:
    machine(
        tmp_path,
        {
            "proc/meminfo": "MemAvailable:   8388608 kB\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
        },
    )
    assert memory_limit(tmp_path) is None
    assert free_memory(tmp_path) == 8388608 << 10


def test_memory_that_is_swapped_out(tmp_path: Path) -> None:
    lines = "MemAvailable: 8388608 kB\nSwapTotal: 900000000 kB\nSwapFree: 1000 kB\n"
    assert fact(memory, machine(tmp_path, {"proc/meminfo": lines}), "swapped out").state == "warning"


def test_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Said:
        f_blocks = f_bavail = 16384
        f_frsize = 4096

    monkeypatch.setattr("os.statvfs", lambda path: Said)
    told = fact(shared_memory, machine(tmp_path), "free")
    assert (told.value, told.state) == (64 << 20, "warning")
    assert "--shm-size" in told.advice


@pytest.mark.parametrize(("governor", "state"), [("powersave", "note"), ("performance", "ok")])
def test_the_clock(governor: str, state: str, tmp_path: Path) -> None:
    files = {f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor": governor for n in range(4)}
    assert fact(frequency, machine(tmp_path, files), "governor").state == state


def test_time_that_the_hypervisor_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = machine(tmp_path, {"proc/stat": "cpu  100 0 0 100 0 0 0 0 0 0\ncpu0 1\n"})

    def sleep(seconds: float) -> None:
        (tmp_path / "proc/stat").write_text("cpu  150 0 0 140 0 0 0 10 0 0\n")

    monkeypatch.setattr(other_work.time, "sleep", sleep)
    told = fact(other_work, place, "stolen time")
    assert (told.value, told.state) == (10.0, "warning")


NVIDIA = (
    "0, NVIDIA A100-SXM4-40GB, 550.54.15, 40960, {used}, {busy}, 41, 1410, 1410, {slowed}, {ecc}, Disabled, 4, 4, {lanes}, 16, "
    "Enabled\n"
)
USUAL = {"used": 4, "busy": 0, "slowed": "0x0000000000000001", "lanes": 16, "ecc": "Enabled"}


@pytest.mark.parametrize(
    ("said", "warned"),
    [
        ({}, {}),
        ({"used": 12000}, {"memory in use": "warning"}),
        ({"busy": 97}, {"memory in use": "warning"}),
        ({"slowed": "0x0000000000000044"}, {"is slowed by": "warning"}),
        ({"lanes": 8}, {"PCIe lanes": "note"}),
        ({"slowed": "[N/A]", "used": "[N/A]"}, {}),
    ],
)
def test_a_gpu(said: dict[str, Any], warned: dict[str, str], tmp_path: Path) -> None:
    printed = NVIDIA.format(**USUAL | said)
    place = with_program(tmp_path, "nvidia-smi", printed)
    found = {one.name.removeprefix("GPU 0, "): one.state for one in nvidia.look(place) if one.state != "ok"}
    assert found == warned


def test_what_slows_a_gpu(tmp_path: Path) -> None:
    printed = NVIDIA.format(**USUAL | {"slowed": "0x0000000000000044"})
    told = fact(nvidia, with_program(tmp_path, "nvidia-smi", printed), "is slowed by")
    assert told.value == "its power limit and heat"


@pytest.mark.parametrize(("said", "told"), [("Enabled", ["on"]), ("Disabled", ["off"]), ("[N/A]", [])])
def test_whether_memory_of_a_gpu_is_checked(said: str, told: list[str], tmp_path: Path) -> None:
    place = with_program(tmp_path, "nvidia-smi", NVIDIA.format(**USUAL | {"ecc": said}))
    assert [one.value for one in nvidia.look(place) if one.name == "GPU 0, ECC"] == told


def with_program(root: Path, name: str, printed: str, code: int = 0) -> Machine:
    program = root / name
    program.write_text(f"#!{sys.executable}\nprint({printed!r}, end='')\nraise SystemExit({code})\n")
    program.chmod(0o755)
    return machine(root, PATH=str(root))


def test_a_driver_that_fails_tells_nothing(tmp_path: Path) -> None:
    assert list(nvidia.look(with_program(tmp_path, "nvidia-smi", "No devices were found", 6))) == []
    assert list(nvidia.look(machine(tmp_path / "empty", PATH=""))) == []


def test_a_driver_that_does_not_know_a_field_is_asked_for_fewer(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "if 'mig.mode.current' in sys.argv[1]:\n"
        "    sys.exit('Field \"mig.mode.current\" is not a valid field to query.')\n"
        "print('0, Tesla K80, 440.33.01, 11441, 9000, 0, 41, 324, 875')\n"
    )
    program.chmod(0o755)
    facts = list(nvidia.look(machine(tmp_path, PATH=str(tmp_path))))
    assert {one.name.removeprefix("GPU 0, "): one.value for one in facts} == {
        "name": "Tesla K80, driver 440.33.01",
        "memory in use": 9000 << 20,
        "clock": 324,
    }
    assert [one.state for one in facts] == ["ok", "warning", "ok"]


def test_locked_memory_is_told_and_never_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (65536, 65536))
    told = fact(resource_limits, machine(tmp_path), "limit of locked memory")
    assert (told.value, told.unit, told.state) == (65536, "bytes", "ok")


@pytest.mark.parametrize("width", [40, 80])
def test_a_long_value_stays_within_the_terminal(width: int) -> None:
    preloaded = "/" + "/".join(["usr", "lib", "x" * 180, "libtcmalloc.so.4"])
    facts = (MachineFact("variables", "LD_PRELOAD", preloaded), MachineFact("variables", "OMP_NUM_THREADS", "2"))
    lines = machine_page(Report("doctor", machine=facts), plain, width).splitlines()
    assert max(map(len, lines)) <= width
    assert preloaded in "".join(line.strip() for line in lines)


@pytest.mark.parametrize(
    ("environment", "state"),
    [
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "warning"),
        ({"CUDA_LAUNCH_BLOCKING": "0"}, None),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "8"}, None),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "warning"),
        ({"NVIDIA_TF32_OVERRIDE": "0"}, "warning"),
        ({"TORCHDYNAMO_DISABLE": "1"}, "warning"),
        ({"OMP_NUM_THREADS": "512"}, "warning"),
        ({"OMP_NUM_THREADS": "1"}, "ok"),
        ({"HOME": "/home/me"}, None),
    ],
)
def test_variables(environment: dict[str, str], state: str | None, tmp_path: Path) -> None:
    found = [one.state for one in variables.look(machine(tmp_path, **environment))]
    assert found == ([state] if state else [])


def test_torch_that_is_not_there_or_does_not_load(tmp_path: Path) -> None:
    place = machine(tmp_path)
    assert [one.advice for one in torch_build.look(place)] == ["torch is not installed beside perfaudit"]
    place.torch = {"problem": "libcudart.so.12: cannot open shared object file"}
    (told,) = torch_build.look(place)
    assert told.state == "warning" and "libcudart" in told.advice
    assert list(build_and_driver.look(place)) == []


BUILT = """PyTorch built with:
  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for Intel(R) 64 architecture applications
  - Intel(R) MKL-DNN v3.12.0 (Git Hash 80afa71049cd69a3df32adcccb623b12cd7baa22)
  - OpenMP 201511 (a.k.a. OpenMP 4.5)
"""


def test_libraries_of_torch_are_told_with_their_versions(tmp_path: Path) -> None:
    place = machine(tmp_path)
    place.torch = {**TOLD, "versions": versions_in(BUILT)}
    told = {one.name: one.value for one in torch_build.look(place)}
    assert [told[name] for name in ("MKL", "oneDNN", "OpenMP", "cuDNN")] == ["2024.2", "3.12.0", "4.5", "9.10.2"]
    place.torch = {**TOLD, "versions": versions_in("nothing of it"), "mkl": False, "cudnn": 8902}
    told = {one.name: one.value for one in torch_build.look(place)}
    assert [told[name] for name in ("MKL", "oneDNN", "cuDNN")] == ["no", "yes", "8.9.2"]


@pytest.mark.parametrize(("threads", "state"), [(2, "ok"), (500, "warning"), (1, "note")])
def test_threads_of_torch(threads: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfaudit.machine.place.usable_cores", lambda root: 2)
    place = machine(tmp_path)
    place.torch = {**TOLD, "threads": threads}
    assert fact(torch_build, place, "threads of an operator").state == state


@pytest.mark.parametrize(
    ("told", "files", "said"),
    [
        (TOLD, {"dev/nvidia0": ""}, ""),
        ({**TOLD, "cuda": None, "gpus": 0}, {"dev/nvidia0": ""}, "this build is for the CPU"),
        ({**TOLD, "gpus": 0}, {"dev/nvidia0": ""}, "torch cannot use it"),
        ({**TOLD, "cuda": None, "gpus": 0}, {}, ""),
    ],
)
def test_a_build_that_does_not_fit_the_machine(
    told: dict[str, Any], files: dict[str, str], said: str, tmp_path: Path
) -> None:
    place = machine(tmp_path, files)
    place.torch = told
    advice = fact(build_and_driver, place, "torch is built for").advice
    assert said in advice and bool(said) == bool(advice)


def test_the_working_directory_cannot_stand_in_for_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file called torch.py or json.py there is not run, and neither is one that an empty PYTHONPATH would find."""
    for name in ("torch", "json", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("open('was_run', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    told = Place(has_bandwidth=False).torch
    assert "problem" not in told
    assert not (tmp_path / "was_run").exists()


def test_every_check_has_an_area_and_none_fails_on_an_empty_machine(tmp_path: Path) -> None:
    assert len(all_checks()) >= 12
    found = look_at(machine(tmp_path / "nothing", PATH=""))
    assert {one.area for one in found} <= set(checks.AREAS)
    assert not [one for one in found if one.advice.startswith("not told")]


def test_a_check_that_fails_is_a_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        AREA = "memory"
        __name__ = "checks.of_nothing"

        def look(self, place: Place) -> list[MachineFact]:
            raise ValueError("a form that nobody has seen")

    monkeypatch.setattr(checks, "all_checks", lambda: [Broken()])
    (told,) = look_at(machine(tmp_path))
    assert (told.name, told.value, told.state) == ("of nothing", None, "unknown")
    assert "a form that nobody has seen" in told.advice


def test_the_disk_is_read_and_nothing_is_left_behind(tmp_path: Path) -> None:
    place = Place(folder=tmp_path)
    found = {one.name: one for one in disk.look(place)}
    assert list(tmp_path.iterdir()) == []
    read = found.get("read here")
    if read is not None:  # left out where the disk is nearly full
        assert read.state == "unknown" or (isinstance(read.value, int) and read.value > 0)
    place.has_bandwidth = False
    assert "read here" not in {one.name for one in disk.look(place)}
