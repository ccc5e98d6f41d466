"""What the text of a file says of the widths of its layers."""

from __future__ import annotations

import pytest

from perfaudit.static.model_width import LAYERS, NARROW, WIDTH, marks_of_width
from perfaudit.static.project.convolution_marks import marks_of_convolutions

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


@pytest.mark.parametrize(
    ("line", "is_wide"),
    [
        ("self.layer = nn.Conv2d(256, 512, 3)", True),
        ("channels = [64, 512]", True),
        ("x = x.view(-1, 512)", False),
        ("x = x.reshape(len(x), 512)", False),
        ("self.out = nn.Linear(512, 10)", False),
    ],
)
def test_a_number_that_is_no_channel(line: str, is_wide: bool) -> None:
    text = f"self.inner = nn.Conv2d(3, 16, 3)\n{line}\n"
    assert ("wide convolutions" in marks_of_convolutions(text.encode())) is is_wide


@pytest.mark.parametrize("name", ["quantization_channels", "n_fcChannel", "fc_channels"])
def test_a_width_of_something_else(name: str) -> None:
    assert marks_of_width(f"def __init__(self, {name}=[256]):\n".encode()) == set()


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("vae = VAE(latent_dim=512)\n", set()),
        ("vae = VAE(latent_dim=512, hidden_dim=512)\n", {WIDTH}),
        ("vae = VAE(latent_dim=512, hidden_dim=64)\n", {NARROW}),
        ("classifier = Classifier(latent_dim=64)\n", {NARROW}),
        ("generator = Generator(latent_dim=64)\n", set()),
    ],
)
def test_a_latent_space_is_no_layer(text: str, marks: set[str]) -> None:
    assert marks_of_width(text.encode()) == marks
