"""The tests of matching on a whole dataset: what each one sets against each other, and its figure."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from dci import DCIError
from dci_metrics import scoring, statistics
from dci_metrics.encoders.base import cut
from dci_metrics.encoding import Encoded
from dci_metrics.results import Score
from dci_metrics.scoring import Similarity
from dci_metrics.subcrops import Entry
from dci_metrics.tasks import FULL_TASKS, GROUP_SIZE, PAPER_TASKS, TASKS, Task


def select_tasks(keys: Iterable[str] | None) -> list[Task]:
    """The tests of the given keys, in the paper's order; those of the paper for None, all of summaries for "all".

    Raises:
        DCIError: If a key is none of the tests', or they are of summaries and of full text.
    """
    wanted = list(PAPER_TASKS if keys is None else keys)
    if wanted == ["all"]:
        return list(TASKS.values())
    known_tasks = TASKS | FULL_TASKS
    unknown = [key for key in wanted if key not in known_tasks]
    if unknown or not wanted:
        known = ", ".join(known_tasks)
        raise DCIError(f"no test {', '.join(map(repr, unknown)) or 'given'}: expected some of {known}, or all")
    tasks = [task for task in known_tasks.values() if task.key in wanted]
    if len({task.config for task in tasks}) > 1:
        full = ", ".join(task.key for task in tasks if task.config == "full")
        raise DCIError(
            f"{full}: of full text, have other entries than the other tests; score them in a run of their own"
        )
    return tasks


def run(
    wanted: Sequence[Task], entries: Sequence[Entry], text_index: dict[str, int], similarity: Similarity
) -> dict[str, scoring.Outcomes | scoring.Rates]:
    """Run the wanted tests on the scores of images against texts; by key, what became of the entries in each."""
    found: dict[str, scoring.Outcomes | scoring.Rates] = {}
    for task in wanted:
        members = task.members(entries)
        images = torch.tensor(members, dtype=torch.long)
        texts = [[text_index[text] for text in entries[i].texts(task)] for i in members]
        captions, negatives = _columns(texts, task)
        if task.kind == "scm":
            found[task.key] = scoring.match_in_groups(similarity, images, captions, GROUP_SIZE, task.by_text)
        elif task.kind == "neg":
            positive = similarity.pairs(images[:, None], captions)
            found[task.key] = scoring.beat_negative(positive, similarity.pairs(images, negatives))
        elif task.kind == "random_scm":
            found[task.key] = scoring.chance_of_match(similarity, images, captions[:, 0], GROUP_SIZE, task.by_text)
        else:
            number = {image_id: n for n, image_id in enumerate(dict.fromkeys(entry.image_id for entry in entries))}
            photos = torch.tensor([number[entries[i].image_id] for i in members], dtype=torch.long)
            found[task.key] = scoring.match_within_photos(similarity, images, captions[:, 0], photos, task.by_text)
    return found


def _columns(texts: list[list[int]], task: Task) -> tuple[Tensor, Tensor]:
    """(n, k) captions and (n,) negatives of a test's entries."""
    width = task.captions + task.has_negative
    table = torch.tensor(texts, dtype=torch.long).reshape(len(texts), width)
    return table[:, : task.captions], table[:, -1]


def score_of(task: Task, encoded: Encoded, found: scoring.Outcomes | scoring.Rates, seed: int) -> Score:
    """One test's figure."""
    entries = [encoded.entries[i] for i in task.members(encoded.entries)]
    photos = [entry.image_id for entry in entries]
    n = len(entries)
    is_rate = isinstance(found, scoring.Rates)
    values = found.rate if isinstance(found, scoring.Rates) else found.correct.double()
    texts = {encoded.text_index[text] for entry in entries for text in entry.texts(task)}
    lengths = [encoded.text_lengths[t] for t in texts] if encoded.text_lengths is not None else None
    truncated, tokens_lost = cut(lengths)
    return Score(
        value=float(values.sum()) / n if n else None,
        correct=None if is_rate else int(values.sum()),
        n=n,
        n_images=n,
        n_texts=len(texts),
        ci95=statistics.interval(values, photos, seed=seed),
        chance=task.chance(photos),
        ties=int(found.tied.sum()),
        truncated=truncated,
        tokens_lost=tokens_lost,
        left_out=[{"image_id": i, "reason": r} for i, rule, r in encoded.left_out if rule == task.rule],
    )


def marks_of(task: Task, encoded: Encoded, found: scoring.Outcomes | scoring.Rates) -> str | list[float | None]:
    """What became of every entry, in the order of all entries."""
    members = task.members(encoded.entries)
    if isinstance(found, scoring.Rates):
        rates: list[float | None] = [None] * len(encoded.entries)
        for i, rate in zip(members, found.rate.tolist(), strict=True):
            rates[i] = rate
        return rates
    marks = ["-"] * len(encoded.entries)
    for i, right in zip(members, found.correct.tolist(), strict=True):
        marks[i] = "1" if right else "0"
    return "".join(marks)
