"""The Trainer against plain torch, whole batches against pieces, and one process against two."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models
import torch
import torch.nn.functional as F
from encoders.families import FAMILIES
from training import runs
from transformers import CLIPConfig, CLIPModel, Trainer, TrainerCallback, TrainingArguments

from dci import DCIError
from dci_metrics import encoders
from dci_metrics.training import BenchmarkCallback, load_config
from dci_metrics.training.objective import Objective
from dci_metrics.training.towers import TwoTowers, add_lora


@pytest.fixture
def clip():
    model, processor = tiny_models.clip(seed=3)
    # Trained models' cosines are not all but one, as those of random weights.
    return model, processor


def losses(model, processor, batch, captions, a, b):
    """The paper's loss of a batch by transformers' own forward; hand-written for one and for two captions."""
    images, texts = batch["images"], batch["texts"]
    per_entry = len(texts["input_ids"]) // len(images["pixel_values"])
    logits = model(**images, **texts).logits_per_image
    n = len(logits)
    cells = logits.view(n, n, per_entry)
    positive = sum(cells[:, :, k] for k in range(captions)) / captions
    own = torch.arange(n)
    loss = a * (F.cross_entropy(positive, own) + F.cross_entropy(positive.T, own)) / 2
    if b:
        right, wrong = positive.diagonal(), cells[:, :, captions].diagonal()
        loss = loss + b * (F.softplus(-right).mean() + F.softplus(wrong).mean()) / 2
    return loss


@pytest.mark.parametrize(("captions", "a", "b"), [("first", 1, 1), ("pick2", 1, 9), ("pick1", 1, 0), ("first", 0.5, 1)])
@pytest.mark.parametrize("full", [False, True], ids=["lora", "full"])
def test_a_step_is_that_of_plain_torch(clip, tmp_path, captions, a, b, full):
    model, processor = clip
    n = 1 if captions == "first" else int(captions[4:])
    made = runs.trainer(model, processor, tmp_path, runs.rows(4), lora=None if full else runs.LORA, captions=captions,
                        objective=Objective(n, a, b))  # fmt: skip
    twin = copy.deepcopy(made.peft_model if not full else made.model.encoder.model)
    (batch,) = made.get_train_dataloader()
    made.train()

    weights = [p for p in twin.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-2, weight_decay=0.0)
    loss = losses(twin.train(), processor, batch, n, a, b)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    # Adam's first step has the size of the learning rate whatever the gradient, so of one that is zero but for rounding
    # (attention does not depend on the keys' bias) it is noise.
    moved = {id(p): p.grad.abs() > 1e-5 for p in weights}
    optimizer.step()

    assert made.state.log_history[0]["loss"] == pytest.approx(loss.item(), abs=1e-4)  # the log rounds
    ours = runs.trained_weights(made)
    theirs = {name.removeprefix("base_model.model."): p for name, p in twin.named_parameters() if p.requires_grad}
    assert ours.keys() == theirs.keys()
    assert sum(int(mask.sum()) for mask in moved.values()) > 0.5 * sum(mask.numel() for mask in moved.values())
    for name, weight in ours.items():
        other, mask = theirs[name], moved[id(theirs[name])]
        torch.testing.assert_close(weight[mask], other[mask], atol=1e-5, rtol=0)


def gradients(made, steps=1):
    """The gradients of the first step, before they are clipped."""
    found = {}

    class Keep(TrainerCallback):
        def on_pre_optimizer_step(self, *_, **__):
            for name, p in made.model.model.named_parameters():
                if p.requires_grad:
                    found.setdefault(name, p.grad.detach().clone())

    made.args.max_grad_norm = 0.0
    made.add_callback(Keep())
    made.train()
    return found


def same(one, other, atol=1e-5):
    assert one.keys() == other.keys()
    scale = max(float(value.abs().max()) for value in one.values())
    for name, value in one.items():
        torch.testing.assert_close(value / scale, other[name] / scale, atol=atol, rtol=0, msg=name)


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("full", [False, True], ids=["lora", "full"])
def test_pieces_give_the_gradients_of_the_whole(clip, tmp_path, size, full):
    options = {"lora": None if full else runs.LORA, "captions": "pick2", "objective": Objective(2)}
    whole = runs.trainer(copy.deepcopy(clip[0]), clip[1], tmp_path, runs.rows(4), **options)
    pieces = runs.trainer(clip[0], clip[1], tmp_path, runs.rows(4), micro_batch_size=size, **options)
    if not full:
        copy_weights(whole, pieces)
    one, other = gradients(whole), gradients(pieces)
    same(one, other)
    assert ("logit_scale" in one) == full
    assert whole.state.log_history[0]["loss"] == pytest.approx(pieces.state.log_history[0]["loss"], abs=1e-4)


def copy_weights(one, other):
    """LoRA starts at random, and its half at zero would hide errors."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p, q in zip(one.model.parameters(), other.model.parameters(), strict=True):
            if p.requires_grad:
                p.normal_(std=0.2, generator=generator)
                q.copy_(p)


def test_dropout_is_the_same_in_both_passes(clip, tmp_path):
    """With a piece as large as the batch, one pass with the same masks must give the same gradients."""
    made = [
        runs.trainer(copy.deepcopy(clip[0]), clip[1], tmp_path, runs.rows(4), dropout=0.5) for _ in range(2)
    ]  # fmt: skip
    copy_weights(*made)
    found = []
    for which, one in enumerate(made):
        (batch,) = one.get_train_dataloader()
        torch.manual_seed(7)
        one.create_optimizer()
        one.model.train()
        if which:
            one._cached_step(one.model, [batch])
        else:
            one.compute_loss(one.model, batch).backward()
        found.append({n: p.grad for n, p in one.model.model.named_parameters() if p.requires_grad})
    same(*found)


WORKER = """
import os, sys, torch
sys.path[:0] = [{tests!r}]
import tiny_models
from training import runs, test_trainer
from dci_metrics.training.objective import Objective
from pathlib import Path
processes, folder = int(sys.argv[1]), Path(sys.argv[2])
rank = int(os.environ.get("RANK", "0"))
for kind, micro in test_trainer.CASES:
    own = folder / f"{{processes}}-{{kind}}-{{micro}}-{{rank}}"
    own.mkdir()
    model, processor = tiny_models.clip(seed=3)
    made = runs.trainer(model, processor, own, runs.rows(4), lora=None if kind == "full" else runs.LORA,
                        micro_batch_size=micro, captions="pick2", objective=Objective(2),
                        per_device_train_batch_size=8 // processes, ddp_backend="gloo" if processes > 1 else None)
    if kind == "lora":
        test_trainer.copy_weights(made, made)
    found = test_trainer.gradients(made)
    if rank == 0:
        kept = {{"gradients": found, "loss": made.state.log_history[0]["loss"]}}
        torch.save(kept, folder / f"{{processes}}-{{kind}}-{{micro}}.pt")
if processes > 1:
    torch.distributed.barrier()
# Threads of gloo's, still running when Python ends, may make C++ abort the process after all its work.
os._exit(0)
"""

CASES = [(kind, micro) for kind in ("lora", "full") for micro in (None, 3)]


@pytest.fixture(scope="module")
def gradients_of(tmp_path_factory):
    """A folder with the gradients of all cases, of one process and of two; each starts once."""
    folder = tmp_path_factory.mktemp("gradients")
    script = folder / "worker.py"
    script.write_text(WORKER.format(tests=str(Path(__file__).parents[1])))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    for processes, launch in ((1, [sys.executable]), (2, [*launcher, "--standalone"])):
        done = subprocess.run(
            [*launch, str(script), str(processes), str(folder)],
            capture_output=True, text=True, timeout=240, check=False, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("kind", "micro"), CASES)
def test_two_processes_give_the_gradients_of_one(gradients_of, kind, micro):
    one, two = (torch.load(gradients_of / f"{processes}-{kind}-{micro}.pt") for processes in (1, 2))
    assert one["loss"] == pytest.approx(two["loss"], abs=1e-4)
    same(one["gradients"], two["gradients"])


# Runs


def long_run(folder, batches="random", **options):
    folder.mkdir(exist_ok=True)
    model, processor = tiny_models.clip(seed=3)
    torch.manual_seed(0)
    return runs.trainer(model, processor, folder, runs.rows(12), dropout=0.3, captions="pick1", batches=batches,
                        validation=runs.rows(5), max_steps=-1, num_train_epochs=3, save_strategy="steps", save_steps=2,
                        eval_strategy="steps", eval_steps=2, **options)  # fmt: skip


@pytest.mark.parametrize("batches", ["random", "image"])
def test_a_resumed_run_is_the_uninterrupted_one(batches, tmp_path):
    whole = long_run(tmp_path / "a", batches)
    whole.train()

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 5:
                raise KeyboardInterrupt

    first = long_run(tmp_path / "b", batches)
    first.add_callback(Stop())
    with pytest.raises(KeyboardInterrupt):
        first.train()
    second = long_run(tmp_path / "b", batches)
    torch.manual_seed(99)
    second.train(resume_from_checkpoint=str(tmp_path / "b" / "out" / "checkpoint-4"))
    one, other = runs.trained_weights(whole), runs.trained_weights(second)
    assert all(torch.equal(weight, other[name]) for name, weight in one.items())
    timeless = [
        [{k: v for k, v in row.items() if "runtime" not in k and "per_second" not in k} for row in t.state.log_history]
        for t in (whole, second)
    ]
    assert timeless[0][:-1] == timeless[1][:-1]


def test_validation_is_logged_and_decides(tmp_path):
    made = long_run(tmp_path, load_best_model_at_end=True, metric_for_best_model="eval_all_neg", greater_is_better=True)
    callback = BenchmarkCallback(made.model.encoder, runs.rows(6), log=made.log)
    scripted = iter([0.2, 0.7, 0.5, 0.7, 0.1])
    made.add_callback(callback)
    asked = []
    real = callback.scores

    def scores():
        found = dict(real())
        asked.append((found, runs.trained_weights(made)))
        return found | {"all_neg": next(scripted, 0.0)}

    callback.scores = scores
    made.train()
    logged = [row for row in made.state.log_history if "eval_loss" in row]
    assert all({"eval_clip_loss", "eval_negatives_loss"} <= row.keys() for row in logged)
    for row in logged:
        assert row["eval_loss"] == pytest.approx(row["eval_clip_loss"] + row["eval_negatives_loss"], abs=1e-4)
    assert [row["eval_all_neg"] for row in made.state.log_history if "eval_all_neg" in row][:4] == [0.2, 0.7, 0.5, 0.7]
    assert all(0 <= found["all_scm"] <= 1 for found, _ in asked)
    assert made.state.best_metric == 0.7
    assert made.state.best_model_checkpoint.endswith("checkpoint-4")
    best = asked[1][1]
    now = runs.trained_weights(made)
    assert all(torch.equal(weight, now[name]) for name, weight in best.items())
    assert any(not torch.equal(weight, asked[2][1][name]) for name, weight in best.items())


def test_the_callback_serves_any_trainer(tmp_path, clip):
    """Of a user's own: transformers' Trainer over CLIPModel with return_loss."""
    model, processor = clip
    rows = runs.rows(6)

    def collate(items):
        return dict(processor(images=[row["image"] for row in items], text=["red thing"] * len(items), padding=True,
                              return_tensors="pt")) | {"return_loss": True}  # fmt: skip

    settings = TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, eval_strategy="steps", eval_steps=1, use_cpu=True, report_to="none",
        remove_unused_columns=False, label_names=["return_loss"], disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    made = Trainer(model=model, args=settings, train_dataset=rows, eval_dataset=rows, data_collator=collate)
    made.add_callback(BenchmarkCallback(encoders.load(model, processor=processor), rows))
    modes = []

    class Mode(TrainerCallback):
        def on_evaluate(self, *_, **__):
            modes.append(model.training)

    model.train()
    made.add_callback(Mode())
    metrics = made.evaluate()
    assert {"eval_all_scm", "eval_all_neg", "eval_loss"} <= metrics.keys()
    made.train()  # which starts the log anew
    assert len([row for row in made.state.log_history if "eval_all_scm" in row]) == 2


def test_the_callback_puts_the_mode_back(clip):
    model, processor = clip
    encoder = encoders.load(model, processor=processor)
    model.train()
    model.vision_model.eval()
    BenchmarkCallback(encoder, runs.rows(3)).scores()
    assert model.text_model.training
    assert not model.vision_model.training


# Options


def test_gradient_checkpointing_gives_the_same(clip, tmp_path):
    made = [runs.trainer(copy.deepcopy(clip[0]), clip[1], tmp_path, runs.rows(4)) for _ in range(2)]
    copy_weights(*made)
    made[1].model.encoder.model.activation_checkpointing_enable({"use_reentrant": False})
    same(*map(gradients, made))


def test_bfloat16_is_near(clip, tmp_path):
    made = [runs.trainer(copy.deepcopy(clip[0]), clip[1], tmp_path, runs.rows(4), bf16=half) for half in (False, True)]
    copy_weights(*made)
    for one in made:
        one.train()
    full, half = (one.state.log_history[0]["loss"] for one in made)
    assert half == pytest.approx(full, rel=0.05)
    assert half != full
    assert {p.dtype for p in made[1].model.parameters()} == {torch.float32}


def test_accumulation_over_batches_is_refused(clip, tmp_path):
    with pytest.raises(DCIError, match=r"gradient_accumulation_steps: expected 1.*micro_batch_size"):
        runs.trainer(*clip, tmp_path, runs.rows(4), gradient_accumulation_steps=2)


# Towers


@pytest.mark.parametrize("name", list(FAMILIES))
def test_logits_are_the_models_own(name):
    family = FAMILIES[name]
    model, processor = family.make()
    model = getattr(model, "flava", getattr(model, "clip", model))
    encoder = encoders.load(model, processor=processor)
    cosines = torch.tensor([[0.1, -0.3], [0.5, 0.9]])
    own = getattr(model, "logit_scale", None)
    if own is None and not hasattr(model, "temperature"):
        with pytest.raises(DCIError, match="has no `logit_scale`, so there is no contrastive loss"):
            TwoTowers(encoder)
        return
    found = encoder.logits(cosines)
    expected = cosines / model.temperature if own is None else cosines * own.exp()
    expected = expected + getattr(model, "logit_bias", 0)
    torch.testing.assert_close(found, expected)


def test_the_papers_adapter_has_its_count_of_weights():
    with torch.device("meta"):
        model = CLIPModel(CLIPConfig(text_config={"projection_dim": 512}, vision_config={"patch_size": 32}))

    class Encoder:
        model_id = "clip"

    Encoder.model = model
    peft_model = add_lora(Encoder(), load_config("sdci_p1").lora)
    assert sum(p.numel() for p in peft_model.parameters() if p.requires_grad) == 417_024
    assert not model.logit_scale.requires_grad


def test_missing_layers_are_named(clip):
    encoder = encoders.load(clip[0], processor=clip[1])
    lora = load_config("sdci_p1", target_modules=["q_proj", "query", "fc3"]).lora
    with pytest.raises(DCIError, match=r"has no layer query, fc3 .*--target-modules: .*q_proj"):
        add_lora(encoder, lora)
