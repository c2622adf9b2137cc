"""A tiny random model of several families that answer questions on images, with a processor of its real kind."""

import json
from types import SimpleNamespace

import transformers as hf
from encoders.families import SIZE, SQUARE, TOWER, VISION, bert_tokenizer, gemma_tokenizer, spread, text_tower
from tiny_models import WORDS
from tokenizers.pre_tokenizers import ByteLevel
from transformers.models.blip import BlipImageProcessorPil
from transformers.models.clip import CLIPImageProcessorPil
from transformers.models.idefics3 import Idefics3ImageProcessorPil
from transformers.models.qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip import SiglipImageProcessorPil

LLAVA_CHAT = (
    "{% for message in messages %}{{ message['role'].upper() + ':' }}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ ' <image>\n' }}"
    "{% else %}{{ (' ' if message['role'] == 'assistant' else '') + part['text'] + ' ' }}{% endif %}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
"""As LLaVA 1.5's: an answer begins with a space that the prompt does not end with."""

IDEFICS_CHAT = (
    "{{ '<s>' }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '<image>' }}"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{{ '<end_of_utterance>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Begins with the token that the tokenizer adds as well; an answer begins right on a new line."""

QWEN_CHAT = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is not defined or enable_thinking %}{{ '<think>\\n' }}{% endif %}{% endif %}"
)
"""A model of this kind thinks before it answers, unless it is asked not to."""


def byte_tokenizer(words=(), specials=(), limit=int(1e30)):
    """Byte-level BPE with a token for each of WORDS, and for those given, with and without a space before."""
    letters = sorted(ByteLevel.alphabet())
    tokens, merges = list(letters), []
    for start in [*("Ġ" + word for word in (*WORDS, *words)), *WORDS, *words]:
        left = start[0]
        for letter in start[1:]:
            merges.append((left, letter))
            left += letter
            tokens.append(left)
    tokens = list(dict.fromkeys([*tokens, "<s>", "</s>", "<pad>"]))
    tokenizer = hf.Qwen2Tokenizer(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=list(dict.fromkeys(merges)),
        model_max_length=limit,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token=None,
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(specials)})
    return tokenizer


def llama(tokenizer, **options):
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    text = TOWER | ids | {"model_type": "llama", "vocab_size": len(tokenizer), "num_key_value_heads": 1}
    return text | {"max_position_embeddings": 512} | options


def llava(words=("Yes", "No"), chat=LLAVA_CHAT, limit=512):
    tokenizer = byte_tokenizer(words, ["<image>"])
    config = hf.LlavaConfig(
        text_config=llama(tokenizer, max_position_embeddings=limit),
        vision_config=VISION | {"model_type": "clip_vision_model"},
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    processor = hf.LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": SIZE}, crop_size=SQUARE),
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=chat,
    )
    return spread(hf.LlavaForConditionalGeneration(config)), processor


def idefics3():
    """Cuts a large image into tiles, so that it has more or fewer tokens."""
    places = [f"<row_{i + 1}_col_{j + 1}>" for i in range(6) for j in range(6)]
    special = ["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", "<|im_start|>", *places]
    tokenizer = byte_tokenizer(["Yes"], special)
    config = hf.Idefics3Config(
        text_config=llama(tokenizer, max_position_embeddings=1024),
        vision_config=VISION,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
    )
    images = Idefics3ImageProcessorPil(size={"longest_edge": 2 * SIZE}, max_image_size={"longest_edge": SIZE})
    processor = hf.Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=IDEFICS_CHAT)
    return spread(hf.Idefics3ForConditionalGeneration(config)), processor


def paligemma():
    """Has no chat template, reads the question in both directions, and adds the image's place and a line end itself."""
    tokenizer = gemma_tokenizer(model_input_names=["input_ids", "attention_mask"], do_lower_case=False)
    tokenizer.add_tokens(["\n", " ", "▁Yes", "Yes", *'?."'])
    images = SiglipImageProcessorPil(size=SQUARE)
    images.image_seq_length = 16
    processor = hf.PaliGemmaProcessor(images, tokenizer)
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    text = TOWER | ids | {"model_type": "gemma", "vocab_size": len(tokenizer), "num_key_value_heads": 1, "head_dim": 8}
    config = hf.PaliGemmaConfig(
        text_config=text,
        vision_config=VISION | {"model_type": "siglip_vision_model"},
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        projection_dim=16,
    )
    return spread(hf.PaliGemmaForConditionalGeneration(config)), processor


def instructblip():
    """An encoder and a decoder (T5); the Q-Former reads the question too, with a tokenizer of its own."""
    tokenizer = hf.T5Tokenizer(
        vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -5.0), ("▁Yes", -1.0)]
        + [("▁" + word, -1.0) for word in WORDS]
        + [(letter, -5.0) for letter in 'abcdefghijklmnopqrstuvwxyzDPY?."'],
        extra_ids=0,
        model_max_length=512,
    )
    images = BlipImageProcessorPil(size=SQUARE)
    processor = hf.InstructBlipProcessor(images, tokenizer, bert_tokenizer(512), num_query_tokens=3)
    tokenizer = processor.tokenizer
    text = {"model_type": "t5", "vocab_size": len(tokenizer), "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2,
            "num_heads": 2, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}  # fmt: skip
    config = hf.InstructBlipConfig(
        vision_config=VISION,
        qformer_config=text_tower(
            processor.qformer_tokenizer, 512, encoder_hidden_size=16, cross_attention_frequency=1
        ),
        text_config=text,
        num_query_tokens=3,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    return spread(hf.InstructBlipForConditionalGeneration(config)), processor


def blip_2():
    """A decoder whose positions are learned (OPT): beyond them it fails."""
    tokenizer = byte_tokenizer(["Yes"])
    processor = hf.Blip2Processor(BlipImageProcessorPil(size=SQUARE), tokenizer, num_query_tokens=3)
    tokenizer = processor.tokenizer
    config = hf.Blip2Config(
        vision_config=VISION,
        qformer_config=TOWER | {"encoder_hidden_size": 16, "cross_attention_frequency": 1, "vocab_size": 30},
        text_config={"model_type": "opt", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
                     "ffn_dim": 16, "vocab_size": len(tokenizer), "max_position_embeddings": 256,
                     "word_embed_proj_dim": 16, "pad_token_id": tokenizer.pad_token_id,
                     "bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id},
        num_query_tokens=3,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )  # fmt: skip
    return spread(hf.Blip2ForConditionalGeneration(config)), processor


def qwen2_vl():
    """Sees an image in its own shape; its processor has a part for videos, which needs torchvision."""
    names = ["vision_start", "vision_end", "image_pad", "video_pad", "im_start", "im_end"]
    tokenizer = byte_tokenizer(["Yes"], [f"<|{name}|>" for name in names])
    number = {f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in names}
    config = hf.Qwen2VLConfig(
        text_config=llama(tokenizer, rope_parameters={"rope_type": "default", "mrope_section": [1, 1, 2]}),
        vision_config={
            "depth": 2,
            "embed_dim": 16,
            "hidden_size": 16,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": 14,
        },
        image_token_id=number["image_pad_token_id"],
        video_token_id=number["video_pad_token_id"],
        vision_start_token_id=number["vision_start_token_id"],
        vision_end_token_id=number["vision_end_token_id"],
    )
    images = Qwen2VLImageProcessorPil(min_pixels=28 * 28 * 4, max_pixels=28 * 28 * 16)
    return spread(hf.Qwen2VLForConditionalGeneration(config)), SimpleNamespace(
        tokenizer=tokenizer, image_processor=images
    )


def save(name, folder):
    """Make a model and write it as it would be published; gives the model."""
    model, processor = MODELS[name]()
    model.save_pretrained(folder)
    if name == "qwen2_vl":
        processor.tokenizer.save_pretrained(folder)
        processor.image_processor.save_pretrained(folder)
        path = folder / "preprocessor_config.json"
        kinds = {"processor_class": "Qwen2VLProcessor", "image_processor_type": "Qwen2VLImageProcessor"}
        path.write_text(json.dumps(json.loads(path.read_text()) | kinds))
        (folder / "chat_template.jinja").write_text(QWEN_CHAT)
    else:
        processor.save_pretrained(folder)
    return model


MODELS = {
    "llava": llava,
    "idefics3": idefics3,
    "qwen2_vl": qwen2_vl,
    "paligemma": paligemma,
    "instructblip": instructblip,
    "blip-2": blip_2,
}
