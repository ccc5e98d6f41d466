"""What the text of a file says of the shapes of its batches."""

from __future__ import annotations

import pytest

from perfaudit.static.project.batch_shapes import COLLATES, PADS, STACKS_ONLY, marks_of_shapes


@pytest.mark.parametrize(
    "text",
    [
        "model = progressive_growing(model, step)",
        "size = progressive_resize(step)",
        "size = progressive_resizing(step)",
        "size = progressiveSize(step)",
        "mode = 'progressive training'",
        "from_scratch = 'progressive-learning'",
        "model = ProgressiveGAN(depth)",
        "model = Progressive_GAN(depth)",
        "model = progressive_gan(depth)",
        "PROGRESSIVE_GROWING = True",
        "img = img.reshape((1,1,img.shape[0],img.shape[1]))",
        "img = img.reshape(1, 3, img.shape[0], img.shape[1])",
        "loader = make_loader(multi_scale=True)  # multi_scale",
        "parser.add_argument('--train', default='multiscale')",
        "sampler = by_length(num_buckets=8)",
        "parser.add_argument('--ms', action='store_true', help='multi-scale')",
        "if args.ms:  # multi-scale training",
    ],
)
def test_batches_grow(text: str) -> None:
    assert marks_of_shapes(f"{text}\n".encode()) == {"sizes change"}


@pytest.mark.parametrize(
    "text",
    [
        "model.progressive = 'none'",
        "img = img.reshape((1, 1, size, size))",
        "img = img.reshape((1, 1, other.shape[0], other.shape[1]))",
        "model.progressive_input = 'none'",
        "model.progressive_combine = 'sum'",
        "Progressive = None",
        "import progressive_growing",
        "parser.add_argument('--depth', help='of a progressive_growing model')",
        "size = step  # progressive_growing",
        "targets = pad_sequence(targets)",
        "module = HighResolutionModule(branches, multi_scale_output=True)",
        "# of the paper, without multi-scale inputs",
        "bias = relative_position_bucket(distance, num_buckets=32)",
        "loss = distance(a, b)  # multi-scale",
        "parser.add_argument('--netD', type=str, default='multiscale', help='(n_layers|multiscale|image)')",
        "parser.add_argument('--num_D', help='number of discriminators to be used in multiscale')",
    ],
)
def test_a_word_that_says_nothing_of_batches(text: str) -> None:
    assert marks_of_shapes(f"{text}\n".encode()) == set()


CAPTIONS = """
def collate_fn(data):
    data.sort(key=lambda x: len(x[1]), reverse=True)
    images, captions = zip(*data)
    images = torch.stack(images, 0)
    lengths = [len(caption) for caption in captions]
    targets = torch.zeros(len(captions), max(lengths)).long()
    for i, caption in enumerate(captions):
        targets[i, : lengths[i]] = caption[: lengths[i]]
    return images, targets, lengths
"""
PADDED = """
def collate_fn(data):
    images, clips = zip(*data)
    clips = pad_sequence(clips)
    return torch.stack(images, 0), clips
"""


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("images = pad_sequence(images)\n", {PADS}),
        ("packed = pack_padded_sequence(embeddings, lengths)\n", {PADS}),
        ("captions = pad_sequence(captions)  # of progressive_resizing\n", {PADS}),
        ("# pad_sequence\n", set()),
        (CAPTIONS, {COLLATES, STACKS_ONLY}),
        (PADDED, {COLLATES, PADS, "sizes change"}),
        (PADDED.replace("clips", "captions"), {COLLATES, PADS, STACKS_ONLY}),
    ],
)
def test_captions_beside_pictures(text: str, marks: set[str]) -> None:
    assert marks_of_shapes(text.encode()) == marks
