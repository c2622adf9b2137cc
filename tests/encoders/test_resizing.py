"""Images resized by torch on the model's device, against the image processors of transformers, which use PIL."""

import command
import numpy as np
import PIL.Image
import pytest
import tiny_models
import torch
import transformers
from encoders import families, vlms
from encoders.families import FAMILIES
from encoders.inputs import IMAGES, TEXTS, image, unit
from transformers.models.clip import CLIPImageProcessorPil
from transformers.models.convnext import ConvNextImageProcessorPil
from transformers.models.siglip import SiglipImageProcessorPil
from transformers.models.vit import ViTImageProcessorPil

import dci_metrics
from dci_metrics import encoders, sample, walk
from dci_metrics.encoders import resizing
from dci_metrics.results import Result

CPU = torch.device("cpu")

BOXES = [
    (1000, 872), (640, 480), (300, 301), (226, 224), (223, 225), (224, 224), (100, 37), (33, 31), (7, 9),
    (1000, 20), (9, 700), (1, 1), (1, 60), (60, 1), (2, 500),
]  # fmt: skip
"""Sizes of pieces of a photograph: larger and smaller than what models see, as large, long strips, a pixel wide."""

PROCESSORS = {
    "clip": CLIPImageProcessorPil(),
    "small": CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
    "odd": CLIPImageProcessorPil(size={"shortest_edge": 61}, crop_size={"height": 48, "width": 31}),
    "padded": CLIPImageProcessorPil(size={"shortest_edge": 20}, crop_size={"height": 33, "width": 40}),
    "uncropped": CLIPImageProcessorPil(size={"shortest_edge": 50}, do_center_crop=False),
    "siglip": SiglipImageProcessorPil(),
    "flat": SiglipImageProcessorPil(size={"height": 24, "width": 70}),
    "bilinear": ViTImageProcessorPil(),
    "not rescaled": ViTImageProcessorPil(do_rescale=False),
    "not normalised": CLIPImageProcessorPil(do_normalize=False),
    "one mean": SiglipImageProcessorPil(image_mean=0.4, image_std=0.3, rescale_factor=1 / 127.5),
    "not resized": CLIPImageProcessorPil(do_resize=False),
}


@pytest.fixture(scope="module")
def photograph():
    path = next(sample.release_folder("sample:photographs").rglob("sa_9100005.jpg"))
    return PIL.Image.open(path).convert("RGB")


def pieces(photograph):
    for width, height in BOXES:
        left, top = (1000 - width) // 2, (872 - height) // 2
        yield photograph.crop((left, top, left + width, top + height))


def both(processor, images):
    """(transformers', ours) of each image."""
    found = resizing.read(processor, {}, "a model", CPU)
    ours = found.prepared([found.pixels(image, False) for image in images], CPU)
    theirs = [processor([image], return_tensors="pt")["pixel_values"][0] for image in images]
    return list(zip(theirs, ours, strict=True))


@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_are_those_of_pil(photograph, name):
    processor = PROCESSORS[name]
    level = processor.rescale_factor if processor.do_rescale else 1
    std = torch.as_tensor(processor.image_std if processor.do_normalize else 1.0).reshape(-1, 1, 1)
    for theirs, ours in both(processor, list(pieces(photograph))):
        assert (ours.shape, ours.dtype) == (theirs.shape, torch.float32)
        apart = (theirs - ours).abs() * std / level
        # Some fall to the other side of a half, and few of them twice.
        assert apart.max() < 2.01
        assert (apart > 1.01).float().mean() < 1e-3
        assert apart.mean() < 0.02


@pytest.mark.parametrize("name", ["clip", "bilinear"])
def test_edges_between_black_and_white(name):
    """Where a cubic filter leaves the grey levels: PIL brings it back after the width, and after the height again."""
    stripes = np.zeros((400, 500, 3), dtype=np.uint8)
    stripes[::2, 3:] = 255
    stripes[100:300, 100:130] = 255
    processor = PROCESSORS[name]
    std = torch.tensor(processor.image_std).reshape(-1, 1, 1)
    images = [PIL.Image.fromarray(stripes), PIL.Image.fromarray(stripes[::40, ::31]), image((90, 80), 0)]
    for theirs, ours in both(processor, images):
        assert ((theirs - ours).abs() * std * 255).max() < 2.01


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_the_order_of_width_and_height_is_pils(mode):
    """Noise tells the two apart, as each rounds to whole grey levels."""
    resample = {"bilinear": PIL.Image.Resampling.BILINEAR, "bicubic": PIL.Image.Resampling.BICUBIC}[mode]
    sizes = np.random.default_rng(7).integers(4, 120, (200, 4)).tolist()
    for width, height, new_width, new_height in [*sizes, (106, 247, 7, 49), (106, 248, 7, 49), (53, 104, 6, 8)]:
        steps = resizing.DeviceResizing((new_height, new_width), mode, None, 1.0, (0.0,) * 3, (1.0,) * 3)
        noise = image((width, height), width)
        expected = torch.tensor(np.array(noise.resize((new_width, new_height), resample))).permute(2, 0, 1)
        apart = (steps.prepared([steps.pixels(noise, False)], CPU)[0] - expected).abs()
        # In the other order it is a fourth of a level.
        assert apart.mean() < 0.1, (width, height, new_width, new_height)


@pytest.mark.parametrize("edge", [1, 32, 224, 225, 336])
def test_the_shortest_edge_is_transformers(edge):
    from transformers.image_transforms import get_resize_output_image_size

    found = resizing.read(CLIPImageProcessorPil(size={"shortest_edge": edge}), {}, "a model", CPU)
    for height, width in np.random.default_rng(edge).integers(1, 3000, (500, 2)).tolist():
        empty = np.broadcast_to(np.uint8(0), (3, height, width))
        options = {"default_to_square": False, "input_data_format": "channels_first"}
        expected = get_resize_output_image_size(empty, edge, **options)
        assert found.output_size(height, width) == expected


def test_on_the_cpu_what_is_too_much_for_a_gpu(photograph, monkeypatch):
    """The image stays where it is for that; the outcome is the same."""
    places = []
    along = resizing._along

    def seen(given, *arguments):
        places.append(given.device.type)
        return along(given, *arguments)

    processor = CLIPImageProcessorPil(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    found = resizing.read(processor, {}, "a model", CPU)
    monkeypatch.setattr(resizing, "_along", seen)
    # Of 872 pixels 8 are left, of 64 too; the device "meta" stands for a GPU.
    for size, place in (((1000, 872), "cpu"), ((64, 64), "meta")):
        places.clear()
        (out,) = found.prepared([found.pixels(photograph.resize(size), False)], torch.device("meta"))
        assert (set(places), out.device.type) == ({place}, "meta")


def test_pixels_are_the_image(photograph):
    found = resizing.read(CLIPImageProcessorPil(), {}, "a model", CPU)
    pixels = found.pixels(photograph, False)
    assert (pixels.dtype, pixels.shape) == (torch.uint8, (3, 872, 1000))
    assert np.array_equal(pixels.permute(1, 2, 0).numpy(), np.asarray(photograph))


# Models


REFUSED = {
    "align": r"EfficientNetImageProcessorPil does more than .* \(it has `rescale_offset`\)",
    "siglip2": r"Siglip2ImageProcessorPil resizes to `size` None, .* `max_num_patches`",
}


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in REFUSED])
def test_embeddings_are_close(folders, name, photograph):
    pil, device = (encoders.load(folders(name)[1], device="cpu", resize=resize) for resize in ("pil", "device"))
    assert (pil.info.image_backend, device.info.image_backend) == ("pil", "torch")
    assert device.info.image_size == device.image_size == pil.image_size
    images = [*IMAGES, *pieces(photograph)]
    close = torch.nn.functional.cosine_similarity(pil.encode_images(images), device.encode_images(images), dim=-1)
    assert close.min() > 0.999
    assert torch.equal(pil.encode_texts(TEXTS), device.encode_texts(TEXTS))


@pytest.mark.parametrize("name", REFUSED)
def test_processors_that_do_something_else_are_refused(folders, name, monkeypatch):
    # Before the weights are read.
    monkeypatch.setattr(encoders, "_made", pytest.fail)
    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", pytest.fail)
    with pytest.raises(dci_metrics.DCIError, match=rf"{name}: its images cannot .*: {REFUSED[name]}.*--resize device"):
        encoders.load(folders(name)[1], device="cpu", resize="device")


class Inverted(CLIPImageProcessorPil):
    """Has no setting that would tell of what it does."""

    def rescale(self, image, scale, **options):
        return super().rescale(255 - image, scale, **options)


class WithMask(CLIPImageProcessorPil):
    def preprocess(self, images, **options):
        found = super().preprocess(images, **options)
        found["pixel_mask"] = torch.ones(1, 2, 2)
        return found


@pytest.mark.parametrize(
    ("processor", "why"),
    [
        (CLIPImageProcessorPil(do_pad=True), "has the step `do_pad`"),
        (CLIPImageProcessorPil(resample=PIL.Image.Resampling.LANCZOS), "resizes with `resample` .*1"),
        (CLIPImageProcessorPil(resample=0), "resizes with `resample` .*0"),
        (CLIPImageProcessorPil(size={"shortest_edge": 20, "longest_edge": 30}), "resizes to `size` .*longest_edge"),
        (ConvNextImageProcessorPil(), "does more .*`crop_pct`"),
        (Inverted(), "Inverted does more than to resize, crop, rescale and normalise;"),
        (WithMask(), "WithMask does more"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_steps_that_are_not_known_are_refused(processor, why):
    with pytest.raises(dci_metrics.DCIError, match=f"^a/model: its images cannot be resized on the device: .*{why}"):
        resizing.read(processor, {}, "a/model", CPU)


def test_a_device_that_has_no_such_filter(monkeypatch):
    def missing(*_, **__):
        raise NotImplementedError("The operator is not implemented there.\nA second line.")

    monkeypatch.setattr(resizing, "interpolate", missing)
    with pytest.raises(dci_metrics.DCIError, match=r"does not have there: The operator is not implemented there\.; go"):
        resizing.read(CLIPImageProcessorPil(), {}, "a/model", CPU)


def test_a_batch_of_mixed_sizes(folders, photograph):
    encoder = encoders.load(folders("blip")[1], device="cpu", resize="device")
    images = [*pieces(photograph)]
    prepared = encoder.prepare_images(images)
    assert {one["pixel_values"].dtype for one in prepared} == {torch.uint8}
    assert [one["pixel_values"].shape[1:][::-1] for one in prepared] == [one.size for one in images]
    together = encoder.batched(prepared)["pixel_values"]
    alone = [encoder.batched([one])["pixel_values"][0] for one in reversed(prepared)][::-1]
    assert torch.equal(together, torch.stack(alone))
    embeds = torch.cat([encoder.encode_prepared([one]) for one in prepared])
    torch.testing.assert_close(unit(embeds), unit(encoder.encode_prepared(prepared)), atol=1e-5, rtol=0)


def test_other_types_of_weights(folders):
    encoder = encoders.load(folders("blip")[1], device="cpu", dtype="bfloat16", resize="device")
    assert encoder.batched(encoder.prepare_images(IMAGES))["pixel_values"].dtype == torch.bfloat16
    assert encoder.encode_images(IMAGES).isfinite().all()


def test_matching_heads(folders):
    pil, device = (
        encoders.load(folders("blip-retrieval")[1], scorer="matching", device="cpu", resize=resize)
        for resize in ("pil", "device")
    )
    assert device.info.image_backend == "torch"
    torch.testing.assert_close(pil.score(IMAGES, TEXTS), device.score(IMAGES, TEXTS), atol=0.05, rtol=0.05)


def test_a_loaded_model(folders):
    made, processor = families.blip()
    encoder = encoders.load(made, processor=processor, resize="device")
    assert encoder.info.image_backend == "torch"
    assert encoders.load(made, processor=processor).info.image_backend == "pil"


def test_models_that_prepare_images_themselves(tmp_path):
    class Own:
        def encode_images(self, images):
            return torch.ones(len(images), 2)

        encode_texts = encode_images

    with pytest.raises(dci_metrics.DCIError, match=r"object of type Own: its images .*prepares its images itself"):
        encoders.load(Own(), resize="device")
    with pytest.raises(dci_metrics.DCIError, match=r"open_clip:ViT-B-32/openai: .*is a model of open_clip"):
        encoders.load("open_clip:ViT-B-32/openai", device="cpu", resize="device")
    vlms.save("blip-2", tmp_path)
    with pytest.raises(dci_metrics.DCIError, match=r"image and question together; go without --resize device"):
        encoders.load(tmp_path, device="cpu", scorer="vqascore", resize="device")
    with pytest.raises(dci_metrics.DCIError, match="no resize 'gpu': expected one of pil, device"):
        encoders.load(tmp_path, resize="gpu")


# Results


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return tiny_models.save_clip(tmp_path_factory.mktemp("models") / "clip", seed=3)


def test_the_result_tells(clip, tmp_path, monkeypatch, capsys):
    files = {}
    for resize in ("pil", "device"):
        files[resize] = tmp_path / f"{resize}.json"
        arguments = ("--dataset", "sample:photographs", "--resize", resize, "--cache-dir", tmp_path / "cache")
        code, _, err = command.run(monkeypatch, capsys, "eval", clip, *arguments, "--out", files[resize])
        assert code == 0, err
    results = {resize: Result.load(file) for resize, file in files.items()}
    assert [result.settings["image_backend"] for result in results.values()] == ["pil", "torch"]
    command.refused(
        command.run(monkeypatch, capsys, "compare", *files.values()), "settings.image_backend is 'torch', not 'pil'"
    )


def test_the_cache_does_not_mix(clip, tmp_path, monkeypatch):
    seen = []
    encode = encoders.HuggingFaceEncoder.encode_prepared

    def counted(self, prepared):
        seen.append(self.info.image_backend)
        return encode(self, prepared)

    monkeypatch.setattr(encoders.HuggingFaceEncoder, "encode_prepared", counted)
    options = {"cache": tmp_path, "progress": False, "batch_size": 64}
    for resize in ("pil", "device", "pil", "device"):
        dci_metrics.evaluate(clip, "sample:photographs", resize=resize, **options)
    assert seen == ["pil", "torch"]
    assert len(list(tmp_path.iterdir())) == 2


def test_no_command_without_it(monkeypatch, capsys, clip):
    found = command.run(monkeypatch, capsys, "eval", clip, "--dataset", "sample:photographs", "--resize", "gpu")
    command.refused(found, "--resize", "gpu")


# Threads that load


@pytest.mark.parametrize(
    ("device", "cores", "processes", "expected"),
    [
        ("cpu", 64, None, 2),
        (None, 64, None, 2),
        ("cuda:0", 8, None, 8),
        ("cuda:1", 64, None, 16),
        ("cuda:1", 64, "8", 8),
        ("cuda:1", 8, "8", 2),
        ("mps:0", None, None, 2),
    ],
)
def test_threads_suit_the_device(monkeypatch, device, cores, processes, expected):
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if processes is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    assert walk.loaders(device) == expected


@pytest.mark.parametrize("threads", [2, 5])
def test_no_more_is_loaded_than_may_wait(threads):
    read = []

    def items():
        for item in range(100):
            read.append(item)
            yield item

    found = walk._in_order(lambda item: -item, items(), threads)
    assert [next(found) for _ in range(3)] == [0, -1, -2]
    assert len(read) == 2 * threads + 3
    found.close()
