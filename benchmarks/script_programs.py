"""Training scripts by other people that `scripts.py` runs: where each is from, its command, its data, and marks for its phases.

None of them is in this repository. SOURCES has clones, as `git clone https://github.com/OWNER/NAME SOURCES/OWNER+NAME`; commits
are named here. Data sets are made at random in the files and formats that a script reads, so that nothing is downloaded and no
script is changed. Where a program needs a package that is not there, it ends at its import, and its row says so.
"""

from __future__ import annotations

import gzip
import io
import pickle
import random
import string
import struct
import subprocess
import tarfile
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# What every script calls alike: see `marked_phases`. A row of PROGRAMS has the forward pass, and what differs.
PHASES: Mapping[str, str] = {
    "data_wait": r"^for .* in .*(loader|pbar)|= next\(.*(loader|iter)",
    "backward": r"\.backward\(|autograd\.grad\(",
    "optimizer": r"opt\w*(\.\w+)?\.step\(|\w*optim\w*\.step\(|\.zero_grad\(",
}
STEP = r"opt\w*\.step\("


@dataclass(frozen=True)
class Program:
    """A script: where it is from, the folder that it is run in, how it is called, what kind it is, and data it needs.

    forward, step: expressions for lines, see `marked_phases`; "" where the loop is a trainer's. phases: of other phases, where
    those of PHASES do not fit.
    marked: files beside the script that are marked, too. parts: folders or files of the repository that are needed; all
    where none is named. needs: packages. variables: of the environment, which the folder's path stands in as {folder}.
    """

    repository: str
    commit: str
    folder: str
    command: tuple[str, ...]
    kind: str
    prepare: Callable[[Path], None] = lambda folder: None
    parts: tuple[str, ...] = ()
    forward: str = r"= (model|net)\(|loss = "
    step: str = STEP
    phases: Mapping[str, str] = field(default_factory=dict)
    marked: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def marks(self) -> dict[str, object]:
        """For `marked_phases`."""
        phases = {**PHASES, "forward": self.forward, **self.phases}
        return {
            "files": list(self.marked),
            "phases": {k: v for k, v in phases.items() if v and self.step},
            "step": self.step,
        }


# ---- data ------------------------------------------------------------------------------------------------------------


def noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def digits(where: str, count: int = 60_000, name: str = "MNIST") -> Callable[[Path], None]:
    """Images of noise in the files of MNIST, below a folder."""

    def write(folder: Path) -> None:
        place = folder / where / name / "raw"
        place.mkdir(parents=True)
        for kind, size in (("train", count), ("t10k", count // 6)):
            labels = bytes(random.Random(1).choices(range(10), k=size))
            (place / f"{kind}-images-idx3-ubyte").write_bytes(
                struct.pack(">IIII", 2051, size, 28, 28) + noise(0, size * 784)
            )
            (place / f"{kind}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, size) + labels)

    return write


def letters(folder: Path) -> None:
    """Tokens for nanoGPT's character data set, drawn at random: what a step takes does not depend on them."""
    dice, place = random.Random(0), folder / "data" / "shakespeare_char"
    for name, count in (("train.bin", 400_000), ("val.bin", 40_000)):
        (place / name).write_bytes(array("H", [dice.randrange(65) for _ in range(count)]).tobytes())
    (place / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65, "itos": {}, "stoi": {}}))


def prose(folder: Path) -> None:
    """Text for minGPT's chargpt."""
    dice = random.Random(0)
    (folder / "input.txt").write_text("".join(dice.choice(string.ascii_letters + " ,.!\n") for _ in range(200_000)))


def words(*names: str, vocabulary: int = 5000, count: int = 60_000) -> Callable[[Path], None]:
    """Lines of made-up words."""

    def write(folder: Path) -> None:
        dice = random.Random(0)
        known = ["".join(dice.choices(string.ascii_lowercase, k=6)) for _ in range(vocabulary)]
        for number, name in enumerate(names):
            dice = random.Random(number)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            size = count if not number else count // 10
            lines = (" ".join(dice.choices(known, k=20)) for _ in range(size // 20))
            (folder / name).write_text("\n".join(lines) + "\n")

    return write


def citations(where: str, count: int) -> Callable[[Path], None]:
    """A graph in the files of Cora."""

    def write(folder: Path) -> None:
        dice, place = random.Random(0), folder / where
        place.mkdir(parents=True, exist_ok=True)
        papers = (
            "\t".join([str(paper), *("1" if dice.random() < 0.02 else "0" for _ in range(1433)), f"Field_{paper % 7}"])
            for paper in range(count)
        )
        (place / "cora.content").write_text("\n".join(papers) + "\n")
        pairs = (f"{dice.randrange(count)}\t{dice.randrange(count)}" for _ in range(2 * count))
        (place / "cora.cites").write_text("\n".join(pairs) + "\n")

    return write


def waves(folder: Path) -> None:
    """Sines for time_sequence_prediction, as an array of numpy that is saved with torch."""
    import numpy as np
    import torch

    starts = np.random.default_rng(0).integers(-80, 80, (20, 1))
    torch.save(np.sin((np.arange(100) + starts) / 20.0).astype("float64"), folder / "traindata.pt")


def photographs(
    *places: str, count: int = 64, size: tuple[int, int] = (320, 320), mask: str = ""
) -> Callable[[Path], None]:
    """Images of noise as files, and of those in the folder `mask` black and white ones."""

    def write(folder: Path) -> None:
        from PIL import Image

        for place in places:
            (folder / place).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                if place == mask:
                    Image.frombytes("L", size, bytes(b & 1 for b in noise(number, size[0] * size[1]))).save(
                        folder / place / f"p{number}.png"
                    )
                else:
                    Image.frombytes("RGB", size, noise(number, 3 * size[0] * size[1])).save(
                        folder / place / f"p{number}.jpg"
                    )

    return write


def zeros(folder: Path) -> None:
    """A text of so many bytes as enwik8 has, all alike."""
    (folder / "data").mkdir()
    with gzip.open(folder / "data" / "enwik8.gz", "wb", 1) as out:
        for _ in range(96):
            out.write(b"abcdefgh" * 125_000)


def gym(folder: Path) -> None:
    """The name that Gymnasium had."""
    (folder / "gym.py").write_text("from gymnasium import *\nfrom gymnasium import spaces, wrappers\n")


def all_of(*steps: Callable[[Path], None]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for step in steps:
            step(folder)

    return write


# ---- programs --------------------------------------------------------------------------------------------------------

EXAMPLES, ZERO, MINGPT = (
    ("pytorch/examples", "77f55b9"),
    ("hunkim/PyTorchZeroToAll", "e5a260f"),
    ("karpathy/minGPT", "37baab7"),
)
GANS, YUNJEY = ("eriklindernoren/PyTorch-GAN", "36d3c77"), ("yunjey/pytorch-tutorial", "0500d3d")
RL, NLP, TCN = ("seungeunrho/minimalRL", "c8efed8"), ("graykode/nlp-tutorial", "d05e31e"), ("locuslab/TCN", "2f8c2b8")
LIGHTNING, IGNITE = ("Lightning-AI/pytorch-lightning", "7f0c343"), ("pytorch/ignite", "de08e79")
MORVAN = ("MorvanZhou/PyTorch-Tutorial", "dbe154a")
VISION = ("torchvision",)
HEADLESS = {"MPLBACKEND": "Agg"}
GAN_LINES = r"_loss\w* = |= (generator|discriminator|encoder|decoder|netG|netD|D|G)\("

PROGRAMS: dict[str, Program] = {
    "nanogpt": Program(
        "karpathy/nanoGPT",
        "3adf61e",
        ".",
        (
            "train.py",
            "config/train_shakespeare_char.py",
            "--device=cpu",
            "--compile=False",
            "--eval_iters=1",
            "--block_size=64",
            "--batch_size=8",
            "--n_layer=4",
            "--n_head=4",
            "--n_embd=128",
            "--dtype=float32",
        ),
        "loop at top level, GradScaler, no loader",
        letters,
        forward=r"logits, loss = model\(|loss = loss /",
        step=r"optimizer\.zero_grad\(",
        phases={"optimizer": r"scaler\.(step|unscale_)\(|optimizer\.zero_grad"},
    ),
    "diabetes": Program(
        *ZERO, ".", ("08_2_dataset_loade_logistic.py",), "loop at top level", forward=r"y_pred = model|loss = "
    ),
    "char_rnn": Program(*ZERO, ".", ("13_3_char_rnn.py",), "loop in a function"),
    "two_layers": Program(
        "jcjohnson/pytorch-examples",
        "0003fcd",
        "nn",
        ("two_layer_net_optim.py",),
        "no loader",
        forward=r"y_pred = model|loss = loss_fn",
    ),
    "dynamic": Program(
        "jcjohnson/pytorch-examples",
        "0003fcd",
        "nn",
        ("dynamic_net.py",),
        "another graph each step",
        forward=r"y_pred = model|loss = criterion",
    ),
    "regression": Program(
        *EXAMPLES,
        "regression",
        ("main.py",),
        "by hand, no optimizer",
        parts=("regression",),
        forward=r"output = |loss = ",
        step=r"\.backward\(\)",
    ),
    "adder": Program(
        *MINGPT,
        ".",
        ("projects/adder/adder.py",),
        "trainer of its own, callbacks",
        marked=("mingpt/trainer.py",),
        forward=r"self\.loss = model",
        step=r"optimizer\.step\(",
    ),
    "chargpt": Program(
        *MINGPT,
        ".",
        ("projects/chargpt/chargpt.py", "--model.model_type=gpt-nano", "--data.block_size=64"),
        "trainer of its own, callbacks",
        prose,
        marked=("mingpt/trainer.py",),
        forward=r"self\.loss = model",
    ),
    "makemore": Program(
        "karpathy/makemore",
        "988aa59",
        ".",
        ("makemore.py",),
        "loader without end, 4 workers",
        needs=("tensorboard",),
        forward=r"logits, loss = model\(X, Y\)",
        phases={"data_wait": r"batch = batch_loader\.next"},
    ),
    "mnist": Program(
        *EXAMPLES,
        "mnist",
        ("main.py",),
        "loop in a function, evaluation",
        digits("../data", 6000),
        ("mnist",),
        forward=r"output = model|loss = F\.nll",
        phases={"data_wait": r"enumerate\(train_loader"},
        needs=VISION,
    ),
    "mnist_rnn": Program(
        *EXAMPLES,
        "mnist_rnn",
        ("main.py", "--batch-size", "64"),
        "recurrent, in a function",
        digits("../data", 6000),
        ("mnist_rnn",),
        forward=r"output = model|loss = F\.nll",
        phases={"data_wait": r"enumerate\(train_loader"},
        needs=VISION,
    ),
    "vae": Program(
        *EXAMPLES,
        "vae",
        ("main.py",),
        "variational autoencoder",
        digits("../data", 6000),
        ("vae",),
        forward=r"recon_batch, mu, logvar = model|loss = loss_function",
        phases={"data_wait": r"enumerate\(train_loader"},
        needs=VISION,
    ),
    "siamese": Program(
        *EXAMPLES,
        "siamese_network",
        ("main.py", "--batch-size", "8"),
        "pairs of images",
        digits("../data", 6000),
        ("siamese_network",),
        forward=r"outputs = model|loss = criterion",
        phases={"data_wait": r"enumerate\(train_loader"},
        needs=VISION,
    ),
    "dcgan": Program(
        *EXAMPLES,
        "dcgan",
        ("main.py", "--dataset", "fake", "--batchSize", "16", "--ngf", "16", "--ndf", "16", "--niter", "2"),
        "two optimizers, loop at top level",
        parts=("dcgan",),
        needs=VISION,
        forward=r"output = netD|fake = netG|err\w+ = criterion",
        step=r"optimizerG\.step",
    ),
    "layerwise": Program(
        *EXAMPLES,
        "mnist_forward_forward",
        ("main.py", "--train_size", "1000", "--test_size", "500", "--epochs", "60"),
        "layer after layer, each with its optimizer",
        digits("data", 3000),
        ("mnist_forward_forward",),
        needs=VISION,
        forward=r"g_(pos|neg) = |^loss = |^torch\.exp|^torch\.cat",
        step=r"self\.opt\.step",
    ),
    "lbfgs": Program(
        *EXAMPLES,
        "time_sequence_prediction",
        ("train.py",),
        "closure, LBFGS, double",
        waves,
        ("time_sequence_prediction",),
        needs=("matplotlib",),
        forward=r"out = seq\(|^loss = criterion\(out",
        variables={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},
    ),
    "words": Program(
        *EXAMPLES,
        "word_language_model",
        ("main.py", "--emsize", "64", "--nhid", "64"),
        "update by hand, no optimizer",
        words(*(f"data/wikitext-2/{part}.txt" for part in ("train", "valid", "test"))),
        tuple(f"word_language_model/{file}.py" for file in ("main", "data", "model")),
        forward=r"output, hidden = model\(data, hidden\)|loss = criterion",
        step=r"\.backward\(\)",
    ),
    "words_adam": Program(
        *EXAMPLES,
        "word_language_model",
        ("main.py", "--model", "Transformer", "--use-optimizer", "--lr", "0.001", "--emsize", "64", "--nhid", "64"),
        "batches cut by hand",
        words(*(f"data/wikitext-2/{part}.txt" for part in ("train", "valid", "test"))),
        tuple(f"word_language_model/{file}.py" for file in ("main", "data", "model")),
        forward=r"output = model\(data\)|output = output.view|loss = criterion",
    ),
    "super_resolution": Program(
        *EXAMPLES,
        "super_resolution",
        ("main.py", "--upscale_factor", "4", "--batchSize", "4", "--threads", "1", "--nEpochs", "3"),
        "images from files, one worker",
        photographs("dataset/BSDS300/images/train", "dataset/BSDS300/images/test", count=80),
        ("super_resolution",),
        needs=(*VISION, "six"),
        forward=r"loss = criterion",
        phases={"data_wait": r"enumerate\(training_data"},
    ),
    "reinforce": Program(
        *EXAMPLES,
        "reinforcement_learning",
        ("reinforce.py",),
        "reinforcement, an episode a step",
        parts=("reinforcement_learning",),
        needs=("gymnasium",),
        forward=r"probs = policy|policy_loss = torch.cat|m = Categorical|action = m.sample|policy.saved_log_probs.append",
    ),
    "actor_critic": Program(
        *EXAMPLES,
        "reinforcement_learning",
        ("actor_critic.py",),
        "reinforcement, two heads",
        parts=("reinforcement_learning",),
        needs=("gymnasium",),
        forward=r"probs, state_value = model|loss = torch.stack|m = Categorical|action = m.sample"
        r"|model.saved_actions.append|_losses.append",
    ),
    "gan": Program(
        *GANS,
        "implementations/gan",
        ("gan.py",),
        "two optimizers",
        digits("../../data/mnist"),
        ("implementations/gan",),
        needs=VISION,
        forward=GAN_LINES + r"|gen_imgs = generator",
        step=r"optimizer_D\.step",
    ),
    "wgan_gp": Program(
        *GANS,
        "implementations/wgan_gp",
        ("wgan_gp.py",),
        "five critic updates a generator's, autograd.grad",
        digits("../../data/mnist"),
        ("implementations/wgan_gp",),
        needs=VISION,
        forward=GAN_LINES + r"|gradient_penalty = |_validity = |fake_imgs = gen",
        step=r"optimizer_G\.step",
        phases={"backward": r"\.backward\(|gradients = autograd\.grad"},
    ),
    "aae": Program(
        *GANS,
        "implementations/aae",
        ("aae.py",),
        "one optimizer for two models",
        digits("../../data/mnist"),
        ("implementations/aae",),
        needs=VISION,
        forward=GAN_LINES + r"|encoded_imgs = |decoded_imgs = ",
        step=r"optimizer_D\.step",
    ),
    "infogan": Program(
        *GANS,
        "implementations/infogan",
        ("infogan.py", "--batch_size", "16"),
        "three optimizers",
        digits("../../data/mnist"),
        ("implementations/infogan",),
        needs=VISION,
        forward=GAN_LINES + r"|gen_imgs = |_pred\w*(, \w+)* = |, pred_\w+ = ",
        step=r"optimizer_info\.step",
    ),
    "dense_gan": Program(
        *YUNJEY,
        "tutorials/03-advanced/generative_adversarial_network",
        ("main.py",),
        "two optimizers, both zeroed",
        digits("../../data"),
        ("tutorials/03-advanced/generative_adversarial_network",),
        needs=VISION,
        forward=r"outputs = D|fake_images = G|_loss\w* = ",
        step=r"g_optimizer\.step",
        phases={"optimizer": r"_optimizer\.step|reset_grad\(\)"},
    ),
    "birnn": Program(
        *YUNJEY,
        "tutorials/02-intermediate/bidirectional_recurrent_neural_network",
        ("main.py",),
        "loop at top level",
        digits("../../data", 6000),
        ("tutorials/02-intermediate/bidirectional_recurrent_neural_network",),
        needs=VISION,
        forward=r"outputs = model|loss = criterion",
    ),
    "ptb": Program(
        *YUNJEY,
        "tutorials/02-intermediate/language_model",
        ("main.py",),
        "truncated through time",
        words("data/train.txt", vocabulary=1000),
        tuple(f"tutorials/02-intermediate/language_model/{file}.py" for file in ("main", "data_utils")),
        forward=r"outputs, states = model|loss = criterion",
    ),
    "dqn": Program(
        *RL,
        ".",
        ("dqn.py",),
        "reinforcement, replay, ten updates an episode",
        gym,
        needs=("gymnasium",),
        forward=r"q_out = q\(|max_q_prime = |^target = |loss = F|q_a = ",
    ),
    "ppo": Program(
        *RL,
        ".",
        ("ppo.py",),
        "reinforcement, three updates a rollout",
        gym,
        needs=("gymnasium",),
        forward=r"prob = model\.pi|^pi = self|^pi_a|ratio = |surr\d = |loss = |td_target = |^delta = td",
    ),
    "sac": Program(
        *RL,
        ".",
        ("sac.py",),
        "reinforcement, four optimizers in a loop",
        gym,
        needs=("gymnasium", "pygame"),
        forward=r"loss = |a, log_prob = |a_prime, log_prob|q1_val, q2_val|td_target = ",
        step=r"q2_target\.soft|q2\.soft_update",
    ),
    "cleanrl_dqn": Program(
        "vwxyzjn/cleanrl",
        "fe8d8a0",
        ".",
        ("cleanrl/dqn.py", "--learning-starts", "500", "--no-cuda"),
        "reinforcement, every tenth action",
        parts=("cleanrl/dqn.py", "cleanrl_utils"),
        needs=("gymnasium", "tyro", "tensorboard"),
        forward=r"old_val = |loss = F|target_max, _ = |td_target = |q_values = ",
    ),
    "cleanrl_ppo": Program(
        "vwxyzjn/cleanrl",
        "fe8d8a0",
        ".",
        ("cleanrl/ppo.py", "--no-cuda"),
        "reinforcement, sixteen updates a rollout",
        parts=("cleanrl/ppo.py", "cleanrl_utils"),
        needs=("gymnasium", "tyro", "tensorboard"),
        forward=r"newvalue = agent|, value = agent|loss\w* = |ratio = ",
    ),
    "tiny_diffusion": Program(
        "tanelp/tiny-diffusion",
        "726b6bb",
        ".",
        ("ddpm.py", "--dataset", "moons"),
        "diffusion, zeroes last",
        parts=("datasets.py", "ddpm.py", "positional_embeddings.py"),
        needs=("matplotlib", "tqdm"),
        forward=r"noise_pred = model|loss = F",
        phases={"data_wait": r"enumerate\(dataloader"},
        variables=HEADLESS,
    ),
    "text_cnn": Program(
        *NLP,
        "2-1.TextCNN",
        ("TextCNN.py",),
        "one batch for ever",
        parts=("2-1.TextCNN",),
        forward=r"output = model|loss = criterion",
    ),
    "attention": Program(
        *NLP,
        "4-3.Bi-LSTM(Attention)",
        ("Bi-LSTM(Attention).py",),
        "one batch for ever",
        parts=("4-3.Bi-LSTM(Attention)",),
        needs=("matplotlib",),
        forward=r"output, attention = model|loss = criterion",
        variables=HEADLESS,
    ),
    "transformer": Program(
        *NLP,
        "5-1.Transformer",
        ("Transformer.py",),
        "twenty steps in all",
        parts=("5-1.Transformer",),
        needs=("matplotlib",),
        forward=r"outputs, enc_self|loss = criterion",
        variables=HEADLESS,
    ),
    "bert": Program(
        *NLP,
        "5-2.BERT",
        ("BERT.py",),
        "two losses",
        parts=("5-2.BERT",),
        forward=r"logits_lm, logits_clsf = model|loss\w* = ",
    ),
    "pygcn": Program(
        "tkipf/pygcn",
        "1600b5b",
        "pygcn",
        ("train.py",),
        "graph, evaluation each step",
        citations("../data/cora", 1600),
        ("pygcn",),
        needs=("scipy",),
        forward=r"^output = model|loss_train = ",
        variables={"PYTHONPATH": "{folder}/.."},
    ),
    "pygat": Program(
        "Diego999/pyGAT",
        "3664f2d",
        ".",
        ("train.py",),
        "graph, deletes its checkpoints",
        citations("data/cora", 1600),
        ("layers.py", "models.py", "train.py", "utils.py"),
        needs=("scipy",),
        forward=r"^output = model|loss_train = ",
    ),
    "adding": Program(
        *TCN,
        "TCN/adding_problem",
        ("add_test.py", "--cuda", "--seq_len", "100"),
        "batches cut by hand",
        parts=("TCN/adding_problem", "TCN/tcn.py", "TCN/__init__.py"),
        forward=r"output = model|loss = F",
    ),
    "copying": Program(
        *TCN,
        "TCN/copy_memory",
        ("copymem_test.py", "--cuda", "--blank_len", "100"),
        "clips before it derives",
        parts=("TCN/copy_memory", "TCN/tcn.py", "TCN/__init__.py"),
        forward=r"out = model|loss = criterion",
    ),
    "painter": Program(
        *MORVAN,
        "tutorial-contents",
        ("406_GAN.py",),
        "two optimizers, plots",
        needs=("matplotlib",),
        parts=("tutorial-contents/406_GAN.py",),
        variables=HEADLESS,
        forward=r"G_paintings = G|prob_artist\d = D|_loss = ",
        step=r"opt_D\.step",
    ),
    "plain_torch": Program(
        *LIGHTNING,
        "examples/fabric/image_classifier",
        ("train_torch.py",),
        "loop in a function",
        digits("../../../Datasets", 6000),
        ("examples/fabric/image_classifier",),
        needs=(*VISION, "torchmetrics"),
        forward=r"output = model|loss = F",
        phases={"data_wait": r"enumerate\(train_loader"},
    ),
    "fabric": Program(
        *LIGHTNING,
        "examples/fabric/image_classifier",
        ("train_fabric.py",),
        "Fabric",
        digits("../../../Datasets", 6000),
        ("examples/fabric/image_classifier",),
        needs=(*VISION, "lightning"),
        forward=r"output = model|loss = F",
        phases={"data_wait": r"enumerate\(train_loader"},
    ),
    "lightning_autoencoder": Program(
        *LIGHTNING,
        "examples/pytorch/basics",
        ("autoencoder.py",),
        "Lightning Trainer, command line",
        digits("../../Datasets"),
        ("examples/pytorch/basics",),
        needs=(*VISION, "lightning", "jsonargparse"),
        forward="",
        step="",
    ),
    "ignite": Program(
        *IGNITE,
        "examples/mnist",
        ("mnist.py",),
        "Ignite",
        digits(".", 6000),
        ("examples/mnist",),
        needs=(*VISION, "ignite"),
        forward="",
        step="",
    ),
    "ignite_gan": Program(
        *IGNITE,
        "examples/gan",
        (
            "dcgan.py",
            "--dataset",
            "fake",
            "--dataroot",
            ".",
            "--output-dir",
            "out",
            "--batch-size",
            "8",
            "--g-filters",
            "16",
            "--d-filters",
            "16",
        ),
        "Ignite, two optimizers",
        parts=("examples/gan",),
        needs=(*VISION, "ignite"),
        forward=r"output = netD|fake = netG|err\w+ = bce|errD = ",
        step=r"optimizerG\.step",
        phases={"data_wait": ""},
    ),
    "enwik8": Program(
        "lucidrains/x-transformers",
        "9252ed7",
        ".",
        ("train_enwik8.py", "--seq_len", "64", "--batch_size", "2", "--generate_length", "16"),
        "Accelerate, accumulates four",
        zeros,
        ("train_enwik8.py", "x_transformers"),
        needs=("einops", "einx", "loguru", "fire", "wandb", "accelerate", "torch_einops_utils"),
        forward=r"loss = model\(next\(train",
        step=r"optim\.step",
        phases={"backward": r"accelerator\.backward", "data_wait": "", "optimizer": r"optim\.(step|zero_grad)"},
    ),
    "unet": Program(
        "milesial/Pytorch-UNet",
        "21d7850",
        ".",
        ("train.py", "--scale", "0.5", "--epochs", "2"),
        "GradScaler, tracker, evaluation",
        photographs("data/imgs", "data/masks", count=100, size=(128, 128), mask="data/masks"),
        ("train.py", "evaluate.py", "unet", "utils"),
        needs=(*VISION, "wandb"),
        variables={"WANDB_MODE": "offline"},
        forward=r"masks_pred = model|loss \+?= ",
        step=r"grad_scaler\.step",
        phases={
            "optimizer": r"grad_scaler\.(step|unscale_)|optimizer\.zero_grad",
            "data_wait": r"for batch in train_loader",
        },
    ),
}


def put(program: Program, folder: Path, sources: Path) -> Path | None:
    """The program and its data in a folder; that in which it is run, None where SOURCES lack it."""
    clone = sources / program.repository.replace("/", "+")
    clone = clone / "repo" if (clone / "repo").exists() else clone
    if not clone.exists():
        return None
    packed = subprocess.run(
        ["git", "-C", str(clone), "archive", program.commit, *program.parts], check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
    program.prepare(folder / program.folder)
    return folder / program.folder
