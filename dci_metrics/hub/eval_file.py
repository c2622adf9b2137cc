"""Putting entries into a file of results that is in a repo already, without a change to what others wrote there."""

import itertools
from collections.abc import Sequence
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml, parse_eval_result_entries

from dci import DCIError
from dci_metrics.hub.eval_results import FILE, dump, to_yaml


def merge(text: str | None, new: Sequence[EvalResultEntry], name: str = FILE) -> str | None:
    """Put entries into a file: those of the same dataset and task are replaced, all others keep their very text.

    Args:
        text: Of the file that is there; None where there is none.
        new: The entries.
        name: What an error calls the file.

    Returns:
        The new text; None if nothing would change but the date.

    Raises:
        DCIError: If what is there is no list of entries.
    """
    if text is None or not text.strip():
        return to_yaml(new)
    known = _read(text, name)
    ours = {_key(item): item for item in eval_result_entries_to_yaml(list(new))}
    if all(any(_undated(item) == _undated(other) for other in known) for item in ours.values()):
        return None
    others = [_key(item) not in ours for item in known]
    expected = [item for item, other in zip(known, others, strict=True) if other] + list(ours.values())
    merged = _kept(text, others) + dump(list(ours.values()))
    try:
        if yaml.safe_load(merged) == expected:
            return merged
    except yaml.YAMLError:
        pass
    # A file of one line, or with anchors, cannot be taken apart by lines; its data can.
    return dump(expected)


def _read(text: str, name: str) -> list[dict[str, Any]]:
    try:
        data = yaml.safe_load(text)
        if data is None:  # nothing but comments
            return []
        if not isinstance(data, list):
            raise TypeError(f"it is no list but {type(data).__name__}")
        parse_eval_result_entries(data)
        for item in data:
            _key(item)
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise DCIError(
            f"{name}: cannot be read as a list of evaluation results ({why}); mend it in the repo first, since "
            "replacing it would lose what it holds"
        ) from error
    return data


def _kept(text: str, wanted: Sequence[bool]) -> str:
    """The lines of the wanted items, and what stands above the first one."""
    lines = (text if text.endswith("\n") else text + "\n").splitlines(keepends=True)
    starts = [i for i, line in enumerate(lines) if line.startswith(("- ", "-\n"))]
    if len(starts) != len(wanted):
        return ""
    if not starts:
        return "".join(lines)
    ends = [*starts[1:], len(lines)]
    blocks = ["".join(lines[start:end]) for start, end in zip(starts, ends, strict=True)]
    return "".join([*lines[: starts[0]], *itertools.compress(blocks, wanted)])


def _key(item: dict[str, Any]) -> tuple[str, str]:
    return str(item["dataset"]["id"]), str(item["dataset"]["task_id"])


def _undated(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "date"}
