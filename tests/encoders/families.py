"""A tiny random model of each family, of its real class, with a tokenizer and an image processor of its real kind.

Each maker gives (model, processor), and `cosines` how transformers itself compares an image with a text.

    family = FAMILIES["siglip"]
    model, processor = family.make()
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers as hf
from tiny_models import WORDS, clip_tokenizer
from tokenizers.processors import TemplateProcessing
from transformers.models.blip import BlipImageProcessorPil
from transformers.models.chinese_clip import ChineseCLIPImageProcessorPil
from transformers.models.clip import CLIPImageProcessorPil
from transformers.models.efficientnet import EfficientNetImageProcessorPil
from transformers.models.flava import FlavaImageProcessorPil
from transformers.models.siglip import SiglipImageProcessorPil
from transformers.models.siglip2 import Siglip2ImageProcessorPil
from transformers.models.vit import ViTImageProcessorPil

SIZE = 32
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOWER = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = TOWER | {"image_size": SIZE, "patch_size": 8}
SQUARE = {"height": SIZE, "width": SIZE}

Made = tuple[Any, Any]


@dataclass(frozen=True)
class Family:
    """How a family is made and used.

    Attributes:
        make: Gives (model, processor).
        limit: Tokens that the text tower reads, of the model that `make` gives.
        end: The token that stands last in every text.
        cosines: The model's own comparison, undone of its scale: (model, image inputs, text inputs) → (images, texts).
        loaded: The class that is scored.
        read: Text inputs of one text, as its documentation makes them.
        image_size: Side of the square that it sees.
        images: Arguments of its image processor.
    """

    make: Callable[[], Made]
    limit: int
    end: str
    cosines: Callable[[Any, dict, dict], torch.Tensor]
    loaded: str
    read: Callable[[Any, str, int], dict] = field(default=lambda *given: by_processor(*given))
    image_size: int | None = SIZE
    images: dict[str, Any] = field(default_factory=dict)


# Reading a text


def by_processor(processor, text, limit):
    return processor(text=[text], truncation=True, max_length=limit, return_tensors="pt")


def padded_in_full(processor, text, limit):
    return processor(text=[text], padding="max_length", truncation=True, max_length=limit, return_tensors="pt")


def lower_cased(processor, text, limit):
    """Gemma's tokenizer leaves that to its user."""
    return padded_in_full(processor, text.lower(), limit)


def by_tokenizer(processor, text, limit):
    """BLIP-2's processor takes no limit without its count of query tokens."""
    return processor.tokenizer(
        [text], truncation=True, max_length=limit, return_token_type_ids=False, return_tensors="pt"
    )


# Comparisons


def by_scale(model, images, texts):
    return model(**images, **texts).logits_per_image / model.logit_scale.exp()


def by_scale_and_bias(model, images, texts):
    return (model(**images, **texts).logits_per_image - model.logit_bias) / model.logit_scale.exp()


def by_temperature(model, images, texts):
    return model(**images, **texts).logits_per_image * model.temperature


def by_clip_inside(model, images, texts):
    return by_scale(model.clip, images, texts)


def by_flava(model, images, texts):
    """Its contrastive head compares batches of equal size only."""
    n = len(images["pixel_values"])
    texts = {name: ids.expand(n, -1) for name, ids in texts.items()}
    found = model(**images, **texts, input_ids_masked=texts["input_ids"], return_loss=False)
    return found.contrastive_logits_per_image[:, :1] / model.flava.logit_scale.exp()


def by_blip_head(model, images, texts):
    return model(**images, **texts, use_itm_head=False).itm_score


def by_nearest_query(model, images, texts):
    return model(**images, **texts, use_image_text_matching_head=False).logits_per_image


# Tokenizers


def bert_tokenizer(limit=512, **options):
    letters = [*LETTERS, "塔"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *("##" + letter for letter in letters)]
    vocab = {word: i for i, word in enumerate(dict.fromkeys(words))}
    return hf.BertTokenizer(vocab=vocab, model_max_length=limit, **options)


def xlmr_tokenizer(limit):
    specials = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    words = [("▁" + word, -1.0) for word in WORDS]
    letters = [(letter, -5.0) for letter in ["▁", *LETTERS, *LETTERS.upper(), "é"]]
    return hf.XLMRobertaTokenizer(vocab=[*specials, *words, *letters, ("<mask>", 0.0)], model_max_length=limit)


def gemma_tokenizer(kind=hf.GemmaTokenizer, **options):
    """As SigLIP 2's: one token a letter, upper-case ones too, and an end token; no attention mask."""
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    letters = ["▁", *LETTERS, *LETTERS.upper(), *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens, merges = [*specials, *letters], []
    for word in WORDS:
        left = word[0]
        for letter in word[1:]:
            merges.append((left, letter))
            left += letter
            tokens.append(left)
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    options = {"padding_side": "right", "do_lower_case": True, "model_input_names": ["input_ids"]} | options
    tokenizer = kind(vocab=vocab, merges=list(dict.fromkeys(merges)), **options)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    return tokenizer


# Models


def spread(model):
    """Weights so large that embeddings differ from input to input."""
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                wide = parameter.dim() == 4 and name.startswith("vision_model.encoder.blocks")  # EfficientNet is deep
                scale = 3 / parameter[0].numel() ** 0.5 if wide else 0.25
                parameter.copy_(torch.randn_like(parameter) * scale)
            elif name.endswith("bias"):
                parameter.copy_(torch.randn_like(parameter) * 0.1)
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0  # as in any trained model; some are loaded so whatever was saved
    return model.eval()


def text_tower(tokenizer, limit, **options):
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    return TOWER | ids | {"vocab_size": len(tokenizer), "max_position_embeddings": limit} | options


def clip_kind(config, model, processor=hf.CLIPProcessor, images=None, tokenizer=None, limit=77, **options):
    """A model that differs from CLIP in its classes only."""
    tokenizer = tokenizer or clip_tokenizer(limit)
    images = images or CLIPImageProcessorPil(size={"shortest_edge": SIZE}, crop_size=SQUARE)
    vision = VISION | options.pop("vision", {})
    text = text_tower(tokenizer, limit, **options.pop("text", {}))
    config = config(text_config=text, vision_config=vision, projection_dim=12, **options)
    torch.manual_seed(5)
    return spread(model(config)), processor(image_processor=images, tokenizer=tokenizer)


def clipseg():
    """Its images are larger than its config says; what is published is the model that segments."""
    images = ViTImageProcessorPil(size={"height": 48, "width": 48})
    return clip_kind(hf.CLIPSegConfig, hf.CLIPSegForImageSegmentation, hf.CLIPSegProcessor, images, extract_layers=[1])


def metaclip_2():
    return clip_kind(hf.MetaClip2Config, hf.MetaClip2Model, tokenizer=xlmr_tokenizer(77))


def groupvit():
    vision = {"depths": [1, 1, 1], "num_group_tokens": [4, 2, 0], "num_output_groups": [4, 2, 2]}
    vision |= {"num_hidden_layers": 3}
    return clip_kind(hf.GroupViTConfig, hf.GroupViTModel, vision=vision, projection_intermediate_dim=16)


def aimv2():
    """Eager attention is causal in any batch, as the model was trained; SDPA, in which it is loaded, is not."""
    model, processor = clip_kind(hf.Aimv2Config, hf.Aimv2Model)
    model.set_attn_implementation("eager")
    return model, processor


def altclip():
    """Of its 26 positions, two are no token's; its tokenizer does not tell."""
    tokenizer = xlmr_tokenizer(int(1e30))
    text = {"project_dim": 16}
    return clip_kind(hf.AltCLIPConfig, hf.AltCLIPModel, hf.AltCLIPProcessor, tokenizer=tokenizer, limit=26, text=text)


def chinese_clip():
    images = ChineseCLIPImageProcessorPil(size=SQUARE, crop_size=SQUARE)
    return clip_kind(
        hf.ChineseCLIPConfig, hf.ChineseCLIPModel, hf.ChineseCLIPProcessor, images, bert_tokenizer(52), limit=512
    )


def align():
    vision = {"image_size": SIZE, "hidden_dim": 16, "width_coefficient": 0.25, "depth_coefficient": 0.25}
    images = EfficientNetImageProcessorPil(
        size={"height": 40, "width": 40}, crop_size=SQUARE, do_center_crop=True, rescale_factor=1 / 127.5,
        rescale_offset=True, do_normalize=False, include_top=False, resample=2,
    )  # fmt: skip
    tokenizer = bert_tokenizer(int(1e30))
    config = hf.AlignConfig(text_config=text_tower(tokenizer, 512), vision_config=vision, projection_dim=80)
    torch.manual_seed(5)
    model = spread(hf.AlignModel(config))
    return model, hf.AlignProcessor(image_processor=images, tokenizer=tokenizer)


def flava():
    """What is published is the model for pretraining, whose image processor hides patches."""
    tokenizer = bert_tokenizer(512)
    tower = VISION | {"vocab_size": 20}
    config = hf.FlavaConfig(
        text_config=text_tower(tokenizer, 512),
        image_config=tower,
        multimodal_config=TOWER,
        image_codebook_config={"hidden_size": 4, "vocab_size": 20},
        init_codebook=False, hidden_size=16, projection_dim=12,
    )  # fmt: skip
    model = spread(hf.FlavaForPreTraining(config))
    images = FlavaImageProcessorPil(
        size=SQUARE, crop_size=SQUARE, input_size_patches=4, total_mask_patches=6, mask_group_min_patches=2,
        return_image_mask=True,
    )  # fmt: skip
    return model, hf.FlavaProcessor(image_processor=images, tokenizer=tokenizer)


def blip(model=hf.BlipModel):
    tokenizer = bert_tokenizer(512)
    text = text_tower(tokenizer, 512, encoder_hidden_size=16, bos_token_id=2, eos_token_id=3)
    config = hf.BlipConfig(text_config=text, vision_config=VISION, projection_dim=12, image_text_hidden_size=12)
    return spread(model(config)), hf.BlipProcessor(
        image_processor=BlipImageProcessorPil(size=SQUARE), tokenizer=tokenizer
    )


def blip_retrieval():
    return blip(hf.BlipForImageTextRetrieval)


def blip_2():
    tokenizer = bert_tokenizer(512)
    qformer = text_tower(
        tokenizer, 512, encoder_hidden_size=16, cross_attention_frequency=1, use_qformer_text_input=True
    )
    config = hf.Blip2Config(
        vision_config=VISION, qformer_config=qformer, num_query_tokens=3, image_text_hidden_size=12,
        text_config={"model_type": "opt", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                     "ffn_dim": 16, "vocab_size": 50, "max_position_embeddings": 2048, "word_embed_proj_dim": 16},
    )  # fmt: skip
    processor = hf.Blip2Processor(image_processor=BlipImageProcessorPil(size=SQUARE), tokenizer=tokenizer)
    return spread(hf.Blip2ForImageTextRetrieval(config)), processor


def vision_text_dual_encoder():
    """A ViT and a RoBERTa: its positions count from the padding's id on."""
    tokenizer = xlmr_tokenizer(int(1e30))
    config = hf.VisionTextDualEncoderConfig.from_vision_text_configs(
        hf.ViTConfig(**VISION),
        hf.XLMRobertaConfig(**text_tower(tokenizer, 40)),
        projection_dim=12,
    )
    images = ViTImageProcessorPil(size=SQUARE)
    model = spread(hf.VisionTextDualEncoderModel(config))
    return model, hf.VisionTextDualEncoderProcessor(image_processor=images, tokenizer=tokenizer)


def siglip_kind(config, model, processor, images, tokenizer, vision):
    text = text_tower(tokenizer, 64, projection_size=16)
    made = spread(model(config(text_config=text, vision_config=vision)))
    return made, processor(image_processor=images, tokenizer=tokenizer)


def siglip_with_gemma():
    """SigLIP 2 of fixed resolution, as it is published."""
    images = SiglipImageProcessorPil(size=SQUARE, resample=2)
    return siglip_kind(hf.SiglipConfig, hf.SiglipModel, hf.SiglipProcessor, images, gemma_tokenizer(), VISION)


def siglip2():
    """NaFlex: at most 12 patches, in the shape of the image."""
    images = Siglip2ImageProcessorPil(patch_size=8, max_num_patches=12)
    tokenizer = gemma_tokenizer(hf.Siglip2Tokenizer)
    vision = TOWER | {"patch_size": 8, "num_patches": 16}
    return siglip_kind(hf.Siglip2Config, hf.Siglip2Model, hf.Siglip2Processor, images, tokenizer, vision)


FAMILIES = {
    "aimv2": Family(aimv2, 77, "<|endoftext|>", by_scale, "Aimv2Model"),
    "align": Family(align, 64, "[SEP]", by_temperature, "AlignModel"),
    "altclip": Family(altclip, 24, "</s>", by_scale, "AltCLIPModel"),
    "blip": Family(blip, 512, "[SEP]", by_scale, "BlipModel"),
    "blip-retrieval": Family(blip_retrieval, 512, "[SEP]", by_blip_head, "BlipForImageTextRetrieval"),
    "blip-2": Family(blip_2, 512, "[SEP]", by_nearest_query, "Blip2ForImageTextRetrieval", by_tokenizer),
    "chinese_clip": Family(chinese_clip, 52, "[SEP]", by_scale, "ChineseCLIPModel"),
    "clipseg": Family(clipseg, 77, "<|endoftext|>", by_clip_inside, "CLIPSegModel", image_size=48),
    "flava": Family(flava, 512, "[SEP]", by_flava, "FlavaModel", images={"return_image_mask": False}),
    "groupvit": Family(groupvit, 77, "<|endoftext|>", by_scale, "GroupViTModel"),
    "metaclip_2": Family(metaclip_2, 77, "</s>", by_scale, "MetaClip2Model"),
    "siglip-gemma": Family(siglip_with_gemma, 64, "<eos>", by_scale_and_bias, "SiglipModel", lower_cased),
    "siglip2": Family(siglip2, 64, "<eos>", by_scale_and_bias, "Siglip2Model", image_size=None),
    "vision-text-dual-encoder": Family(vision_text_dual_encoder, 38, "</s>", by_scale, "VisionTextDualEncoderModel"),
}
