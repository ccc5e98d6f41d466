"""What of a script's text says how long it trains."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.static.settings_files import numbers_said, settings_files
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


YAML = "data: rows.npz\ntrainer:\n  max_epochs: 3  # of ten\n  warmup_epochs: 1\n"


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
        (f"{PARSER}    import yaml", (), "`--epochs` or `--max-steps`"),  # a file may say otherwise
        (f"{PARSER}    import yaml", ("--epochs", "2"), "`--epochs` (2 now) or `--max-steps`"),
        (
            "",
            ("+trainer.max_epochs=3", "--trainer.max_steps=9"),
            "`trainer.max_epochs` (3 now) or `--trainer.max_steps` (9 now)",
        ),
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


@pytest.mark.parametrize(
    ("text", "arguments", "settings", "said"),
    [
        (PARSER, ("--config", "a.yaml"), [("a.yaml", YAML)], "`max_epochs: 3` in a.yaml:3 or `--epochs`"),
        (PARSER, ("a.yaml", "-e", "5"), [("a.yaml", "epochs: 3\n")], "`epochs: 3` in a.yaml:1 or `--epochs`"),
        (PARSER, ("a.yaml",), [("a.yaml", "{lr: 0.1, epochs: 3}\n")], "`--epochs` or `--max-steps` or what a.yaml says"),
        (PARSER, (), [("rows.yaml", "rows: 3\n")], "`--epochs` or `--max-steps`"),
        (PARSER, ("a.json",), [("a.json", '{\n  "epochs": 3,\n}')], '`"epochs": 3` in a.json:2 or `--epochs`'),
        (PARSER, ("a.json",), [("a.json", "[1, 2]")], "`--epochs` (1 now) or `--max-steps`"),  # data
        (DATACLASS, ("a.toml",), [("a.toml", "epochs = 3\n")], "`epochs = 3` in a.toml:1"),
        (DATACLASS, ("a.toml",), [("a.toml", "lr = 3\n")],
         "`total_timesteps` in train.py:5 or `num_steps` in train.py:4 or what a.toml says"),
        ("max_iters = 600000", ("a.py",), [("a.py", "max_iters = 5000")], "`max_iters = 5000` in a.py:1"),
        ("", ("max_epochs=9",), [("a.yaml", YAML)], "`max_epochs` (9 now)"),  # in the place of the file's
    ],
)  # fmt: skip
def test_what_a_file_of_settings_says_of_it(
    text: str, arguments: tuple[str, ...], settings: list[tuple[str, str]], said: str
) -> None:
    assert words_of_length(textwrap.dedent(text), "train.py", arguments, settings) == said


def test_a_line_of_a_million_blanks_is_read_once() -> None:
    """It took the square of them."""
    blanks = " " * (1 << 20)
    lines = (f"epochs: 3{blanks}x", f"epochs: 4{blanks},{blanks}# of ten", f"{blanks}x", f"epochs{blanks}:{blanks}x")
    assert [*numbers_said("\n".join(lines))] == [("epochs", "epochs: 4", 2)]


HYDRA = '@hydra.main(version_base=None, config_path="conf", config_name="small")\ndef main(cfg): ...\n'


@pytest.mark.parametrize(
    ("text", "arguments", "names"),
    [
        ("open('there.yaml'); open('nowhere.yaml')", (), ["there.yaml"]),
        ("json.dump(results, open('there.json', 'w'))", (), []),
        ("", ("there.json",), ["there.json"]),
        ("", ("--config=there.yaml", "rows.npz"), ["there.yaml"]),
        (HYDRA, (), ["sub/conf/small.yaml"]),
        (HYDRA, ("--config-name", "large"), ["sub/conf/large.yaml"]),
        ("def broken(", ("there.yaml",), ["there.yaml"]),
    ],
)
def test_the_files_of_settings_of_a_script(
    text: str, arguments: tuple[str, ...], names: list[str], project: Callable[..., Path]
) -> None:
    project(**{"there.yaml": "", "there.json": "", "sub/conf/small.yaml": "", "sub/conf/large.yaml": ""})
    assert [name for name, _ in settings_files(text, "sub/train.py", arguments)] == names
