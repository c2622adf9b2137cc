"""From a folder with a model to the figures, against transformers used directly inside of an encoder of the test's."""

import pytest
import torch
from awkward_release import noise_photo
from encoders.families import FAMILIES
from encoders.inputs import image
from release_maker import mask_entry, photo_annotation, write_release

import dci
import dci_metrics


class Direct:
    """One image and one text at a time, through the model's own forward."""

    def __init__(self, family, made):
        self.family, (self.model, self.processor) = family, made
        self.text = self.read("red")
        self.image = self.see(image((40, 40), 0))

    def read(self, text):
        return self.family.read(self.processor, text, self.family.limit)

    def see(self, one):
        return self.processor.image_processor(one, return_tensors="pt", **self.family.images)

    @torch.no_grad()
    def encode_images(self, images):
        return torch.cat([self.model(**self.see(one), **self.text).image_embeds for one in images])

    @torch.no_grad()
    def encode_texts(self, texts):
        return torch.cat([self.model(**self.image, **self.read(text)).text_embeds for text in texts])


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    size = (300, 280)
    masks = [mask_entry(3, (5, 6, 240, 250), size=size), mask_entry(4, (40, 10, 290, 260), size=size)]
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", size, masks) for i in range(5)}
    photos = {f"sa_{i}.jpg": noise_photo(i, size) for i in range(5)}
    return list(dci.Release(write_release(tmp_path_factory.mktemp("release"), notes, photos)).rows("test", "sdci"))


@pytest.mark.parametrize("name", ["altclip", "siglip2", "blip-2"])
def test_figures_are_those_of_transformers(rows, tmp_path, name):
    made = FAMILIES[name].make()
    for part in made:
        part.save_pretrained(tmp_path)
    result = dci_metrics.evaluate(tmp_path, rows, batch_size=3, device="cpu", progress=False)
    expected = dci_metrics.evaluate(Direct(FAMILIES[name], made), rows, batch_size=1, progress=False)
    assert result.model["family"] == made[0].config.model_type
    assert result.model["text_limit"] == FAMILIES[name].limit
    assert result.outcomes == expected.outcomes
    assert all(score.n for score in result.scores.values())
    marks = "".join(result.outcomes.values())
    assert {"0", "1"} <= set(marks)
