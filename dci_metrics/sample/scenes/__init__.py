"""Scenes: deterministic synthetic pictures with exact nested masks, in the layout of DCI's release."""

from .release import SPLITS, annotation, split_seeds, write_release
from .scene import make_scene
from .world import Look, Region, Scene

__all__ = ["SPLITS", "Look", "Region", "Scene", "annotation", "make_scene", "split_seeds", "write_release"]
