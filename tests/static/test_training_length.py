"""What of a script's text says how long it trains."""

from __future__ import annotations

import textwrap

import pytest

from perfaudit.static.training_length import words_of_length

PARSER = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--warmup-steps", type=int, default=5)
    parser.add_argument("--max-steps", type=int, default=None)
    parser.add_argument("-e", "--epochs", type=int, default=1)
    parser.add_argument("--start-epoch", type=int, default=0)
"""
TWO_COMMANDS = """
    train.add_argument("--epochs", default=100)
    tune.add_argument("--epochs", default=5)
"""
LOOP = """
    for batch in batches:
        pass
    for epoch in range(3):
        for batch in range(100):
            loss.backward()
"""
DATACLASS = """
    @dataclass
    class Args:
        num_steps: int = 128
        total_timesteps: int = 500
        save_every_epochs: int = 7
"""


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (PARSER, (), "`--epochs` (1 now) or `--max-steps`"),
        (PARSER, ("--epochs", "2"), "`--epochs` (2 now) or `--max-steps`"),
        (PARSER, ("-e", "2", "--max-steps=9"), "`--epochs` (2 now) or `--max-steps` (9 now)"),
        (PARSER, ("--epochs", "3", "-e", "2"), "`--epochs` (2 now) or `--max-steps`"),  # the last one counts
        (PARSER, ("-e2",), "`--epochs` or `--max-steps`"),
        (PARSER, ("--epoch", "2"), "`--epochs` or `--max-steps`"),
        (PARSER, ("@arguments.txt",), "`--epochs` or `--max-steps`"),
        (TWO_COMMANDS, (), "`--epochs`"),
        (f"{PARSER}    parser.set_defaults(epochs=3)", (), "`--epochs` or `--max-steps`"),
        (f"{PARSER}    parser.parse_args(['--epochs', '3'])", (), "`--epochs` or `--max-steps`"),
        (f"{PARSER}    parser.parse_args()", (), "`--epochs` (1 now) or `--max-steps`"),
        ("", ("--num_train_epochs=1", "--logging_steps=2"), "`--num_train_epochs` (1 now)"),  # HfArgumentParser
        ("@click.option('--n-epoch', default=4)\ndef main(n_epoch): ...", (), "`--n-epoch` (4 now)"),
        (DATACLASS, (), "`total_timesteps = 500` in train.py:5 or `num_steps = 128` in train.py:4"),
        ("trainer = Trainer(max_epochs=1, accelerator='cpu')", (), "`max_epochs=1` in train.py:1"),
        ("EPOCHS = 2\nmaxEpochs = rows // 2\nwarmup_iters = 3", (), "`EPOCHS = 2` in train.py:1"),
        (LOOP, (), "`range(3)` in train.py:4"),
        ("while True: loss.backward()", (), ""),
        ("for _ in range(n): loss.backward()", (), ""),
        ("accumulation_steps = 4; log_steps = 3; epoch_size = 2; steps_per_epoch = 9", (), ""),
        # Of a diffusion model.
        ("DDPMScheduler(num_train_timesteps=1000); timesteps = 1000; Diffusion(model, timesteps=1000)", (), ""),
        ("def broken(", (), ""),
    ],
)
def test_what_sets_the_length_of_a_training(text: str, arguments: tuple[str, ...], said: str) -> None:
    assert words_of_length(textwrap.dedent(text), "train.py", arguments) == said
