"""Models of open_clip through the package, against open_clip used directly. Run by `make test-open-clip`."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import open_clip
import PIL.Image
import pytest
import torch
from awkward_release import noise_photo
from encoders.inputs import IMAGES, TEXTS, cosines, unit
from release_maker import mask_entry, photo_annotation, write_release
from safetensors.torch import save_file
from with_open_clip.conftest import PREPROCESS, Direct, random_weights

import dci
import dci_metrics
from dci_metrics import cli, encoders
from dci_metrics.encoders.base import MeasuresTexts, Prepares, TextLength

LONG = "thing " * 300


@pytest.fixture(scope="module")
def direct(checkpoint):
    return Direct("tiny", str(checkpoint))


@pytest.fixture(scope="module")
def encoder(checkpoint):
    return encoders.load(f"open_clip:tiny/{checkpoint}", device="cpu")


def same(found, expected):
    torch.testing.assert_close(cosines(found), cosines(expected), atol=1e-5, rtol=0)


def refused(model, match, **options):
    with pytest.raises(dci.DCIError, match=match) as caught:
        encoders.load(model, device="cpu", **options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


# What it computes


def test_cosines_are_those_of_open_clip(encoder, direct):
    same(encoder, direct)
    assert cosines(encoder).std() > 0.1


def test_batches_and_order_change_nothing(encoder):
    images, texts = IMAGES * 13, [f"{text} {i}" for i, text in enumerate(TEXTS * 10)]
    many = unit(encoder.encode_images(images[:64])), unit(encoder.encode_texts(texts[:64]))
    one = (
        unit(torch.cat([encoder.encode_images([image]) for image in images[:64]])),
        unit(torch.cat([encoder.encode_texts([text]) for text in texts[:64]])),
    )
    back = (
        unit(encoder.encode_images(images[:64][::-1])).flip(0),
        unit(encoder.encode_texts(texts[:64][::-1])).flip(0),
    )
    for found in (one, back):
        torch.testing.assert_close(found, many, atol=1e-5, rtol=0)
    assert torch.equal(encoder.encode_prepared(encoder.prepare_images(IMAGES)), encoder.encode_images(IMAGES))


def test_long_texts_are_cut_with_the_end_token_kept(encoder, direct):
    words = direct.tokenizer.encode(LONG)
    assert len(words) == 300
    cut = torch.tensor([[direct.tokenizer.sot_token_id, *words[:75], direct.tokenizer.eot_token_id]])
    with torch.no_grad():
        torch.testing.assert_close(encoder.encode_texts([LONG]), direct.model.encode_text(cut))
    assert encoder.text_lengths([LONG, "", "thing " * 75, "thing " * 76]) == [
        TextLength(77, 225),
        TextLength(2, 0),
        TextLength(77, 0),
        TextLength(77, 1),
    ]


def test_token_ids_are_what_the_model_reads(encoder, direct):
    texts = [" the red  thing", "the red thing", "the red things", LONG, f"{LONG} more", ""]
    ids = encoder.token_ids(texts)
    assert [list(row) for row in ids] == direct.tokenizer(texts).tolist()
    assert ids[0] == ids[1]
    assert ids[3] == ids[4]
    assert len(set(ids)) == 4


def test_the_limit_is_the_models(tmp_path):
    torch.save(random_weights("tiny-short"), tmp_path / "short.pt")
    encoder = encoders.load(f"open_clip:tiny-short/{tmp_path / 'short.pt'}", device="cpu")
    assert encoder.text_limit == encoder.info.text_limit == 20
    assert encoder.text_lengths([LONG]) == [TextLength(20, 282)]
    same(encoder, Direct("tiny-short", str(tmp_path / "short.pt")))


def test_words_are_not_dropped_at_random(folder):
    config = json.loads((folder / "open_clip_config.json").read_text())
    config["model_cfg"]["text_cfg"]["tokenizer_kwargs"] = {"reduction_mask": "random"}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    text = " ".join(f"word {i}" for i in range(100))
    encoder = encoders.load(folder, device="cpu")
    assert torch.equal(encoder.encode_texts([text]), encoder.encode_texts([text]))


def test_images_are_resized_by_pil(encoder):
    """As the result says: torchvision's transform of a PIL image is PIL's own."""
    image = IMAGES[2]
    resize = encoder.transform.transforms[0]
    assert resize.size == 32
    assert resize(image).tobytes() == image.resize((42, 32), PIL.Image.Resampling.BICUBIC).tobytes()


def test_thin_crops(encoder):
    images = [PIL.Image.new("RGB", size, (255, 0, 0)) for size in ((1, 1), (9, 3), (3, 9), (1, 1000), (1000, 1))]
    prepared = encoder.prepare_images(images)
    assert {tuple(one.shape) for one in prepared} == {(3, 32, 32)}
    for one in prepared:
        torch.testing.assert_close(one, prepared[0])


def test_info(encoder, checkpoint, weights):
    info = encoders.describe(encoder)
    assert (info.id, info.family) == (f"open_clip:tiny/{checkpoint}", "open_clip")
    assert info.revision == f"sha256:{hashlib.sha256(Path(checkpoint).read_bytes()).hexdigest()}"
    assert (info.text_limit, info.image_size, info.image_backend) == (77, 32, "pil")
    assert (info.dtype, info.device, info.scorer) == ("float32", "cpu", "contrastive")
    assert info.parameters == sum(value.numel() for name, value in weights.items())
    assert isinstance(encoder, Prepares)
    assert isinstance(encoder, MeasuresTexts)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(checkpoint, encoder, dtype):
    half = encoders.load(f"open_clip:tiny/{checkpoint}", device="cpu", dtype=dtype)
    assert half.info.dtype == dtype
    close = torch.nn.functional.cosine_similarity(half.encode_images(IMAGES).float(), encoder.encode_images(IMAGES))
    assert (close > 0.95).all()
    close = torch.nn.functional.cosine_similarity(half.encode_texts(TEXTS).float(), encoder.encode_texts(TEXTS))
    assert (close > 0.95).all()


# Where it comes from


@pytest.mark.parametrize("form", ["plain", "module", "wrapped", "safetensors"])
def test_checkpoints_of_all_kinds(weights, direct, tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    parallel = {f"module.{name}": value for name, value in weights.items()}
    if form == "safetensors":
        save_file(weights, "x.safetensors")
    else:
        torch.save({"plain": weights, "module": parallel, "wrapped": {"state_dict": weights}}[form], "x.pt")
    Path("in").mkdir()
    file = next(Path().glob("x.*")).rename(f"in/{next(Path().glob('x.*')).name}")
    same(encoders.load(f"open_clip:tiny/{file}", device="cpu"), direct)


def test_a_folder(folder, direct, weights):
    for name in (folder, f"open_clip:{folder}", f"open_clip:local-dir:{folder}"):
        encoder = encoders.load(name, device="cpu")
        assert encoder.info.id == str(name)
        same(encoder, Direct(f"local-dir:{folder}"))
        # Its own preprocessing, not CLIP's.
        mean, std = (torch.tensor(PREPROCESS[key]) for key in ("mean", "std"))
        black = encoder.prepare_images([PIL.Image.new("RGB", (40, 40))])[0]
        torch.testing.assert_close(black.mean((1, 2)), -mean / std)


def test_a_folder_with_both_is_for_transformers(folder):
    shutil.copytree(dci_metrics.sample.model_path("sample:tiny-clip"), folder, dirs_exist_ok=True)
    assert encoders.load(folder, device="cpu").info.family == "clip"
    assert encoders.load(f"open_clip:{folder}", device="cpu").info.family == "open_clip"


def test_from_the_hub(cached):
    repo, commit = cached
    encoder = encoders.load(f"open_clip:hf-hub:{repo}", device="cpu")
    assert (encoder.info.id, encoder.info.revision) == (f"open_clip:hf-hub:{repo}", commit)
    same(encoder, Direct(f"hf-hub:{repo}"))


def test_a_tag_says_whether_its_weights_are_of_quickgelu(cached, checkpoint, monkeypatch):
    tag = {"hf_hub": f"{cached[0]}/", "quick_gelu": True, **PREPROCESS}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny", {"tagged": tag, "slow": tag | {"quick_gelu": False}})
    quick = encoders.load(f"open_clip:tiny-quickgelu/{checkpoint}", device="cpu").encode_texts(TEXTS)
    slow = encoders.load(f"open_clip:tiny/{checkpoint}", device="cpu").encode_texts(TEXTS)
    assert not torch.allclose(quick, slow, atol=1e-3)
    torch.testing.assert_close(encoders.load("open_clip:tiny/tagged", device="cpu").encode_texts(TEXTS), quick)
    torch.testing.assert_close(encoders.load("open_clip:tiny/slow", device="cpu").encode_texts(TEXTS), slow)


def test_a_text_tower_of_transformers(with_bert):
    encoder = encoders.load(with_bert, device="cpu")
    same(encoder, Direct(f"local-dir:{with_bert}"))
    assert encoder.text_lengths([LONG, "", "the red thing"]) == [
        TextLength(30, 272),
        TextLength(2, 0),
        TextLength(5, 0),
    ]
    ids = encoder.tokenizer([LONG])[0].tolist()
    assert (ids[0], ids[-1], len(ids)) == (2, 3, 30)


def test_a_tokenizer_with_code_of_its_own(with_bert):
    path = with_bert / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["model_cfg"]["text_cfg"]["tokenizer_kwargs"] = {"trust_remote_code": True}
    path.write_text(json.dumps(config))
    refused(with_bert, "brings code of its own, which is not run unasked")
    encoders.load(with_bert, device="cpu", trust_remote_code=True)


# What is refused


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiny-wide", r"size mismatch for visual\."),
        ("tiny-custom", None),
        ("tiny-short", r"positional_embedding is of \(77, 16\), and the architecture's of \(20, 16\)"),
        ("tiny-large", r"visual.positional_embedding is of \(17, 32\), and the architecture's of \(65, 32\)"),
        ("RN50", r"cannot be loaded as a model of open_clip: text pos_embed width changed"),
    ],
)
def test_weights_of_another_architecture(checkpoint, direct, name, message):
    if message is not None:
        refused(f"open_clip:{name}/{checkpoint}", message)
    else:  # open_clip knows how to read the one as the other
        same(encoders.load(f"open_clip:{name}/{checkpoint}", device="cpu"), direct)


def test_weights_missing_or_too_many(weights, tmp_path):
    path = tmp_path / "x.pt"
    torch.save({name: value for name, value in weights.items() if name != "text_projection"}, path)
    refused(f"open_clip:tiny/{path}", r'x.pt: cannot be loaded as a model of open_clip: .*Missing .*"text_projection"')
    torch.save(weights | {"more": torch.zeros(2)}, path)
    refused(f"open_clip:tiny/{path}", r'x.pt: cannot be loaded as a model of open_clip: .*Unexpected .*"more"')
    torch.save({}, path)
    refused(f"open_clip:tiny/{path}", "x.pt: cannot be loaded as a model of open_clip: ")


class Harm:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_broken_files_and_such_as_would_run_code(checkpoint, weights, tmp_path):
    path, ran = tmp_path / "x.pt", tmp_path / "ran"
    whole = checkpoint.read_bytes()
    for keep in (0, 10, 1000, len(whole) // 2):
        path.write_bytes(whole[:keep])
        refused(f"open_clip:tiny/{path}", "x.pt: cannot be loaded as a model of open_clip: .")
    torch.save({"state_dict": weights, "more": Harm(ran)}, path)
    refused(f"open_clip:tiny/{path}", "x.pt: .* holds code and not only weights")
    path.write_bytes(pickle.dumps(Harm(ran)))
    refused(f"open_clip:tiny/{path}", "x.pt: cannot be loaded")
    assert not ran.exists()


def test_what_is_not_there(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = refused("open_clip:ViT-B-33/openai", r"no architecture 'ViT-B-33' \(near to it: .*ViT-B-32")
    assert "ARCHITECTURE/TAG, ARCHITECTURE/FILE, hf-hub:ORG/NAME or a folder" in message
    refused("open_clip:nothing", "no architecture 'nothing'")
    refused("open_clip:", "no architecture ''")
    refused("open_clip:ViT-B-32", r"'nothing' is neither a tag of ViT-B-32 \(there are: openai, laion400m_e31")
    refused("open_clip:ViT-B-32/", "'nothing' is neither a tag")
    refused("open_clip:ViT-B-32/opnai", "'opnai' is neither a tag of ViT-B-32 .* nor a file")
    refused("open_clip:ViT-B-32/no/file.pt", "'no/file.pt' is neither a tag of ViT-B-32 .* nor a file")
    refused("open_clip:tiny/x", r"is neither a tag of tiny \(there are: none\) nor a file")
    refused("open_clip:ViT-B-32/openai", "cannot be loaded as a model of open_clip: Failed to download")
    refused("open_clip:hf-hub:some/thing", "cannot be loaded as a model of open_clip: Failed to download")
    refused("open_clip:hf-hub:", "cannot be loaded as a model of open_clip: Empty identifier")
    refused("open_clip:local-dir:nowhere", "cannot be loaded as a model of open_clip: ")
    assert capfd.readouterr() == ("", "")


def test_folders_that_are_not_whole(folder):
    (folder / "open_clip_model.safetensors").unlink()
    refused(folder, "cannot be loaded as a model of open_clip: Required pretrained weights")
    for text in ("{", "{}", "[]", '{"model_cfg": {}}'):
        (folder / "open_clip_config.json").write_text(text)
        refused(folder, "cannot be loaded as a model of open_clip: .")


def test_devices_and_dtypes_that_are_not_there(checkpoint):
    refused(f"open_clip:tiny/{checkpoint}", "no dtype 'int8'", dtype="int8")
    with pytest.raises(dci.DCIError, match="no device 'gpu'"):
        encoders.load(f"open_clip:tiny/{checkpoint}", device="gpu")
    refused(f"open_clip:tiny/{checkpoint}", "not by 'matching'", scorer="matching")


# From end to end


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    size = (300, 280)
    masks = [mask_entry(3, (5, 6, 240, 250), size=size), mask_entry(4, (40, 10, 290, 260), size=size)]
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", size, masks) for i in range(5)}
    notes["0-data.json"]["summaries"]["base"][0] = LONG
    photos = {f"sa_{i}.jpg": noise_photo(i, size) for i in range(5)}
    return write_release(tmp_path_factory.mktemp("release"), notes, photos)


def test_figures_are_those_of_open_clip(release, checkpoint, direct, tmp_path, monkeypatch):
    out = tmp_path / "result.json"
    arguments = ["eval", f"open_clip:tiny/{checkpoint}", "--dataset", str(release), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["dci", *arguments])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    result = dci_metrics.Result.load(out)
    expected = dci_metrics.evaluate(direct, release, batch_size=1, progress=False)
    assert result.outcomes == expected.outcomes
    assert {"0", "1"} <= set("".join(result.outcomes.values()))
    assert all(score.n for score in result.scores.values())
    assert result.model["family"] == "open_clip"
    assert result.settings["image_backend"] == "pil"
    score = result.scores["all_scm"]
    assert (score.tokens_lost, score.truncated) == (225, 1 / score.n_texts)


def test_it_is_imported_only_when_asked_for():
    code = "import sys, dci_metrics.benchmark, dci_metrics.encoders as e; e._family; "
    code += "assert not {'peft', 'open_clip'} & set(sys.modules)"  # torchvision, where it is, transformers imports
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": "."})


def test_beside_torchvision_transformers_still_resizes_by_pil():
    assert encoders.load("sample:tiny-clip", device="cpu").info.image_backend == "pil"
