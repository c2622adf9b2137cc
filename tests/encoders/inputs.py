"""Images and texts of all kinds, and what an encoder makes of them."""

import numpy as np
import PIL.Image
import torch

SIZES = [(64, 48), (1, 1), (300, 224), (3, 90), (33, 31)]
TEXTS = [
    "the red thing",
    "",
    "The RED Thing",
    "thing " * 600,
    "a caption of the layout",
    "café 塔 🙂",
    "green. Blue, red!",
]
LONG = TEXTS[3]


def image(size, seed):
    return PIL.Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


IMAGES = [image(size, seed) for seed, size in enumerate(SIZES)]


def unit(embeds):
    return torch.nn.functional.normalize(embeds.float(), dim=-1)


def cosines(encoder, images=IMAGES, texts=TEXTS):
    """(images, texts); of several vectors in an image the nearest counts."""
    image_embeds, text_embeds = unit(encoder.encode_images(images)), unit(encoder.encode_texts(texts))
    image_embeds = image_embeds if image_embeds.dim() == 3 else image_embeds[:, None]
    return torch.einsum("nqd,md->nqm", image_embeds, text_embeds).amax(1)


def tokens_of(encoder, texts):
    """What the text tower is given."""
    given = []
    whole = encoder.text_features
    encoder.text_features = lambda inputs: given.append(inputs) or whole(inputs)
    try:
        encoder.encode_texts(texts)
    finally:
        del encoder.text_features
    return given[0]
