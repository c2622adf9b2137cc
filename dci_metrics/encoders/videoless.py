"""Processors of models that see videos too, without their part for videos, of which transformers has none for PIL."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import ProcessorMixin

VIDEO = "video_processor"


@contextmanager
def left_out() -> Iterator[None]:
    """Lets processors be loaded without that part, as if they had none; `settled` keeps them so."""
    whole = ProcessorMixin.__dict__["get_attributes"]
    ProcessorMixin.get_attributes = classmethod(lambda cls: _others(whole.__func__(cls)))
    try:
        yield
    finally:
        ProcessorMixin.get_attributes = whole


def settled(processor: Any) -> Any:
    """A processor that was loaded so, unchanged if it never had that part."""
    kind = type(processor)
    if not isinstance(processor, ProcessorMixin) or VIDEO not in kind.get_attributes():
        return processor
    parts = _others(kind.get_attributes())
    processor.__class__ = type(kind.__name__, (kind,), {"get_attributes": classmethod(lambda cls: parts)})
    return processor


def _others(parts: list[str]) -> list[str]:
    return [part for part in parts if part != VIDEO]
