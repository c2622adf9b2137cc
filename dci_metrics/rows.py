"""What is needed of a row, looked at before it is used: users give rows of their own."""

from collections.abc import Mapping, Sequence
from typing import Any

from dci import DCIError


def head_of(row: Any, columns: Sequence[str], config: str) -> tuple[str, int, int]:
    """image_id, width and height of a row.

    Args:
        row: As a user may give it.
        columns: What is needed of it.
        config: The configuration of the dataset that has them.

    Raises:
        DCIError: If a column is missing, or the size is not of whole numbers.
    """
    if not isinstance(row, Mapping):
        raise DCIError(f'expected rows of DCI\'s configuration "{config}", got {type(row).__name__}')
    missing = [column for column in columns if column not in row]
    if missing:
        raise DCIError(
            f"the rows have no column {', '.join(f'`{column}`' for column in missing)}; expected those of DCI's "
            f'configuration "{config}", as load_dataset("dci", "{config}") gives them'
        )
    image_id = str(row["image_id"])
    return image_id, *size_of(row, image_id)


def size_of(row: Mapping[str, Any], image_id: str) -> tuple[int, int]:
    """Width and height.

    Raises:
        DCIError: If they are no whole numbers.
    """
    try:
        return int(row["width"]), int(row["height"])
    except (TypeError, ValueError) as error:
        raise DCIError(f"{image_id}: fields `width`, `height`: expected whole numbers ({error})") from error
