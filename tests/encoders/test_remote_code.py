"""Models that bring code of their own."""

import json

import pytest
import tiny_models
import torch
from encoders.inputs import cosines

import dci
from dci_metrics import encoders

CODE = """
import torch
from transformers import CLIPModel, PreTrainedConfig, PreTrainedModel


class WordsAndPicturesConfig(PreTrainedConfig):
    model_type = "words_and_pictures"

    def __init__(self, clip=None, **options):
        self.clip = clip or {}
        self.max_position_embeddings = 77
        super().__init__(**options)


class WordsAndPictures(PreTrainedModel):
    config_class = WordsAndPicturesConfig

    def __init__(self, config):
        super().__init__(config)
        self.inside = CLIPModel(CLIPModel.config_class(**config.clip))
        self.post_init()

    def get_text_features(self, input_ids, attention_mask=None):
        return self.inside.get_text_features(input_ids, attention_mask).pooler_output

    def get_image_features(self, pixel_values):
        return self.inside.get_image_features(pixel_values).pooler_output
"""


@pytest.fixture
def clip():
    return tiny_models.clip(seed=5)


@pytest.fixture
def folder(tmp_path, clip):
    """CLIP under a type of its own, whose getters give plain tensors, as many models' on the Hub do."""
    model, processor = clip
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    config = {
        "model_type": "words_and_pictures",
        "architectures": ["WordsAndPictures"],
        "auto_map": {
            "AutoConfig": "code_of_its_own.WordsAndPicturesConfig",
            "AutoModel": "code_of_its_own.WordsAndPictures",
        },
        "clip": model.config.to_dict(),
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code_of_its_own.py").write_text(CODE)
    from safetensors.torch import save_file

    weights = {f"inside.{name}": weight.contiguous() for name, weight in model.state_dict().items()}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path


def test_its_code_is_not_run_unasked(folder):
    ran = folder / "ran"
    (folder / "code_of_its_own.py").write_text(f"open({str(ran)!r}, 'w')\n" + CODE)
    with pytest.raises(dci.DCIError, match=r"brings code of its own, .* --trust-remote-code") as caught:
        encoders.load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not ran.exists()
    encoders.load(folder, trust_remote_code=True)
    assert ran.exists()


def test_it_is_served_by_its_getters(folder, clip):
    encoder = encoders.load(folder, trust_remote_code=True)
    assert (encoder.info.family, encoder.info.text_limit, encoder.info.image_size) == ("words_and_pictures", 77, 32)
    expected = cosines(encoders.load(clip[0], processor=clip[1]))
    torch.testing.assert_close(cosines(encoder), expected, atol=1e-5, rtol=0)
    # As a loaded model, with its processor from where it came from.
    given = encoders.load(encoder.model, processor=clip[1])
    torch.testing.assert_close(cosines(given), expected, atol=1e-5, rtol=0)


def test_its_positions_are_stretched(folder, clip):
    encoder = encoders.load(folder, trust_remote_code=True, max_tokens=100, stretch="keep-first-20")
    expected = encoders.load(clip[0], processor=clip[1], max_tokens=100, stretch="keep-first-20")
    torch.testing.assert_close(cosines(encoder), cosines(expected), atol=1e-5, rtol=0)


def test_code_that_counts_positions_by_itself(folder):
    counting = "torch.ones(77)[torch.arange(input_ids.shape[1])] * attention_mask"
    code = CODE.replace("get_text_features(input_ids, attention_mask)", f"get_text_features(input_ids, {counting})")
    assert code != CODE
    (folder / "code_of_its_own.py").write_text(code)
    assert encoders.load(folder, trust_remote_code=True).encode_texts(["thing " * 100]).shape == (1, 12)
    with pytest.raises(
        dci.DCIError, match="cannot be stretched to 100 tokens; its code is made for fewer: index"
    ) as caught:
        encoders.load(folder, trust_remote_code=True, max_tokens=100, stretch="interpolate")
    assert "\n" not in str(caught.value)


def test_a_model_without_getters(folder):
    (folder / "code_of_its_own.py").write_text(CODE.replace("get_image_features(self", "see(self"))
    with pytest.raises(dci.DCIError, match="WordsAndPictures has no get_image_features"):
        encoders.load(folder, trust_remote_code=True)


def test_code_that_is_not_there(folder):
    (folder / "code_of_its_own.py").unlink()
    with pytest.raises(dci.DCIError, match="cannot be loaded as a model") as caught:
        encoders.load(folder, trust_remote_code=True)
    assert "\n" not in str(caught.value)


def test_trust_changes_nothing_for_others(tmp_path, clip):
    folder = tiny_models.save_clip(tmp_path / "clip", seed=5)
    encoder = encoders.load(folder, trust_remote_code=True)
    assert type(encoder.model).__name__ == "CLIPModel"
