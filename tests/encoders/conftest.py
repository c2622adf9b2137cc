"""Shared by the tests of encoders."""

import pytest
from encoders.families import FAMILIES


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Each family made and saved once: name → (made, folder)."""
    known = {}

    def get(name):
        if name not in known:
            made = FAMILIES[name].make()
            folder = tmp_path_factory.mktemp("models") / name
            for part in made:
                part.save_pretrained(folder)
            known[name] = made, folder
        return known[name]

    return get
