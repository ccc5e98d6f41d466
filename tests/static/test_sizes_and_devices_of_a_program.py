"""PA301 and PA304: words that say nothing of the batches, buckets of a histogram; a device that a setting names, and the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.test_programs_of_several_files import LOOP, NET, findings_in, write

SHOWN = "def show(values):\n    {line}\n"
CHOSEN = LOOP.replace(".cuda()", ".to(device)")


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("hist.bucket_limit.append(1)", True),
        ("histogram.bucket.append(1)", True),
        ("return bucket_by_length(values)", False),
    ],
)
def test_buckets(tmp_path: Path, line: str, is_told: bool) -> None:
    script = LOOP.replace("import torch", "import torch\nimport shown")
    folder = write(tmp_path, {"net.py": NET, "shown.py": SHOWN.replace("{line}", line), "train.py": script})
    assert bool(findings_in(folder, "train.py", {"PA301"})) is is_told


@pytest.mark.parametrize(
    ("device", "is_told"),
    [
        ('torch.device(args.gpu if torch.cuda.is_available() else "cpu")', True),
        ('torch.device(args.gpu if args.gpu and torch.cuda.is_available() else "cpu")', True),
        ('torch.device(args.gpu if args.use_gpu else "cpu")', False),
        ('torch.device("mps" if torch.backends.mps.is_available() else "cpu")', False),
    ],
)
def test_a_device_that_a_setting_names_where_there_is_cuda(tmp_path: Path, device: str, is_told: bool) -> None:
    script = CHOSEN.replace("    model =", f"    device = {device}\n    model =")
    folder = write(tmp_path, {"net.py": NET, "train.py": script})
    assert bool(findings_in(folder, "train.py", {"PA301"})) is is_told


TRIES = "def generate(model, text, device):\n    return model(text.to(device))\n"


@pytest.mark.parametrize(
    ("device", "tries", "is_told"),
    [
        ('"cpu"', TRIES, False),
        ('torch.device("cpu")', TRIES, False),
        ('"cuda"', TRIES, True),
        ('"cpu"', f"{TRIES}\n# device: cuda\n", True),  # the program speaks of it: somebody may hand it in
        ("config.device", TRIES, True),
        ('"mps" if config.mac else "cpu"', TRIES, True),
        ('parser.add_argument("--device", default="cpu")', TRIES, True),
        ('config.device\n    print(device == "cpu")', TRIES, True),
    ],
)
def test_a_training_on_the_cpu(tmp_path: Path, device: str, tries: str, is_told: bool) -> None:
    script = CHOSEN.replace("    model =", f"    device = {device}\n    model =")
    script = script.replace("from net import Net", "from net import Net\nfrom tries import generate")
    folder = write(tmp_path, {"net.py": NET, "tries.py": tries, "train.py": script})
    assert bool(findings_in(folder, "train.py", {"PA304"})) is is_told
