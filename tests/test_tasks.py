"""The tests as data: their chance levels by Monte Carlo, and which entries they take."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

import dci
from dci_metrics import scoring
from dci_metrics.tasks import GROUP_SIZE, PAPER_TASKS, TASKS

ROUNDS = 4000


@dataclass
class Member:
    key: str = "base"
    captions: list[str] = field(default_factory=lambda: ["a"] * 5)
    left_out: dict[str, str] = field(default_factory=dict)


@pytest.mark.parametrize("test", PAPER_TASKS)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 12, 16])
def test_chance_is_what_random_scores_give(test, n):
    task = TASKS[test]
    generator = torch.Generator().manual_seed(n)
    if task.kind == "neg":
        positive = torch.rand(ROUNDS * n, task.captions, generator=generator)
        right = scoring.beat_negative(positive, torch.rand(ROUNDS * n, generator=generator)).correct
        right = right.reshape(ROUNDS, n).double()
    else:
        groups = []
        for start in range(0, n, GROUP_SIZE):
            size = min(GROUP_SIZE, n - start)
            similarity = torch.rand(ROUNDS, size, size, task.captions, generator=generator)
            groups.append(scoring.match_within_group(similarity).correct)
        right = torch.cat(groups, -1).double()
    # Entries of one round have rows of their own, so all of them are independent.
    p = np.array([_alone(task, n, i) for i in range(n)])
    tolerance = 4.5 * np.sqrt((p * (1 - p)).sum() / ROUNDS) / n + 1e-12
    assert abs(right.mean().item() - task.chance(["photo"] * n)) <= tolerance


def _alone(task, n, i):
    """Any rough value will do for a tolerance."""
    if task.kind == "neg":
        return 1 / (task.captions + 1)
    size = min(GROUP_SIZE, n - i // GROUP_SIZE * GROUP_SIZE)
    return 1 / size if task.captions == 1 or size == 1 else 1 / size**task.captions


def test_chance_in_figures():
    assert TASKS["all_scm"].chance(["photo"] * 16) == 1 / 8
    assert TASKS["all_scm"].chance(["photo"] * 9) == 2 / 9
    assert TASKS["base_neg"].chance(["photo"] * 7) == TASKS["hard_negs"].chance(["photo"] * 1) == 1 / 2
    assert TASKS["pick5_neg"].chance(["photo"] * 3) == 1 / 6
    assert TASKS["pick5_scm"].chance(["photo"] * 8) == pytest.approx(1 / 658008)
    assert TASKS["pick5_scm"].chance(["photo"] * 2) == pytest.approx(1 / 252)
    assert TASKS["pick5_scm"].chance(["photo"] * 1) == 1
    assert all(task.chance(["photo"] * 0) is None for task in TASKS.values())


def test_which_entries_a_test_takes():
    def taking(member):
        return [test for test, task in PAPER_TASKS.items() if task.takes(member)]

    swaps = ["all_scm", "all_neg", "pick5_scm", "pick5_neg"]
    base = ["base_scm", "base_neg"]
    assert taking(Member()) == [*swaps, *base, "hard_negs"]
    assert taking(Member(key="m-3-sc")) == [*swaps, "hard_negs"]
    assert taking(Member(captions=["a"] * 4)) == ["all_scm", "all_neg", *base, "hard_negs"]
    assert taking(Member(captions=[])) == []
    assert taking(Member(left_out={"all": "so"})) == ["pick5_scm", "pick5_neg", *base, "hard_negs"]
    assert taking(Member(left_out={"pick5": "so"})) == ["all_scm", "all_neg", *base, "hard_negs"]
    assert taking(Member(left_out={"base": "so"})) == [*swaps, "hard_negs"]
    assert taking(Member(left_out={"hard": "so"})) == [*swaps, *base]
    assert taking(Member(left_out=dict.fromkeys(dci.TESTS, "so"))) == []


def test_rules_are_those_of_the_reader():
    assert {task.rule for task in TASKS.values()} == set(dci.TESTS)
    assert [key for key, task in TASKS.items() if key != task.key] == []
