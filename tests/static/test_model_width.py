"""What the text of a file says of the widths of its layers."""

from __future__ import annotations

import pytest

from perfaudit.static.model_width import LAYERS, NARROW, WIDTH, marks_of_width

RECURRENT = "self.rnn = getattr({owner}, {kind})(inputs, hidden_size)\n"


@pytest.mark.parametrize(
    ("owner", "kind", "is_layer"),
    [
        ("nn", "rnn_type", True),
        ("torch.nn", "rnn", True),
        ("nn", "self.rnn_type", True),
        ("nn", "RNN_TYPE", True),
        ("nn", 'args["rnn"].upper()', True),
        ("nn", '"LSTM"', True),
        ("nn", "activation", False),
        ("nn", "loss_name", False),
        ("cells", "rnn_type", False),
        ("nn.init", "rnn_weights", False),
    ],
)
def test_a_recurrent_layer_that_an_option_names(owner: str, kind: str, is_layer: bool) -> None:
    text = RECURRENT.replace("{owner}", owner).replace("{kind}", kind)
    for default, width in (("hidden_size=896", WIDTH), ("hidden_size=64", NARROW)):
        marks = marks_of_width(f"def __init__(self, {default}):\n    {text}".encode())
        assert marks == ({LAYERS, width} if is_layer else {width})
