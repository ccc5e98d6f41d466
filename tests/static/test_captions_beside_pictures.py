"""PA301 in programs that pad captions beside pictures of one size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.project.test_batch_shapes import CAPTIONS
from tests.static.test_programs_of_several_files import LOOP, NET, findings_in, write

DECODER = """
from torch.nn.utils.rnn import pack_padded_sequence

def decode(embeddings, lengths):
    return pack_padded_sequence(embeddings, lengths, batch_first=True)
"""
SCRIPT = LOOP.replace("from net", "from data import loader\nfrom decoder import decode\nfrom net").replace(
    "        loss =", "        y = pack_padded_sequence(y, lengths, batch_first=True)[0]\n        loss ="
)
OF_PICTURES = CAPTIONS.replace("images = torch.stack(images, 0)", "images = pad_sequence(images)")


@pytest.mark.parametrize(
    ("data", "is_told"),
    [
        (CAPTIONS, True),
        (CAPTIONS.replace("caption", "clip").replace("targets", "clips_of_batch"), False),
        (OF_PICTURES, False),
        ("loader = DataLoader(data)\n", False),  # what is padded is not known
    ],
)
def test_what_is_padded(tmp_path: Path, data: str, *, is_told: bool) -> None:
    folder = write(tmp_path, {"net.py": NET, "data.py": data, "decoder.py": DECODER, "train.py": SCRIPT})
    assert bool(findings_in(folder, "train.py", {"PA301"})) is is_told
