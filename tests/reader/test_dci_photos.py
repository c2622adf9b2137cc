"""Photos: turned as the masks count them, of any colour mode, whole or refused."""

import io
import json

import numpy as np
import PIL.Image
import pytest
from release_maker import SIZE, mask_entry, photo, photo_annotation, write_release

import dci

# What is done to the stored pixels to see them upright, by EXIF orientation, in numpy's words.
UPRIGHT = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels.swapaxes(0, 1)[:, ::-1],
    7: lambda pixels: pixels.swapaxes(0, 1)[::-1, ::-1],
    8: lambda pixels: pixels.swapaxes(0, 1)[::-1],
}


def stored_pixels(content):
    with PIL.Image.open(io.BytesIO(content)) as image:
        return np.asarray(image)


def row_of(note, content, config="both"):
    return dci.make_row(dci.parse_annotation(json.dumps(note).encode(), "1-data.json"), config, content)


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_boxes_and_masks_agree_with_the_upright_pixels(orientation, form):
    content = photo((360, 300), orientation=orientation, form=form)
    upright = UPRIGHT[orientation](stored_pixels(content))
    height, width = upright.shape[:2]
    # a mask over the upright photo's top left quarter, which has another colour than the three others
    note = photo_annotation(
        "sa_7.jpg", (width, height), [mask_entry(0, (0, 0, width // 2, height // 2), size=(width, height))]
    )
    row = row_of(note, content)
    assert (row["width"], row["height"]) == (width, height)
    assert row["entries"][0]["crop_xyxy"] == [0, 0, width, height]
    assert row["image"] == {"bytes": content, "path": "sa_7.jpg"}

    opened = dci.open_photo(content, (width, height), "sa_7.jpg")
    assert opened.mode == "RGB"
    pixels = np.asarray(opened)
    assert np.array_equal(pixels, upright)
    inside = pixels[dci.decode_mask(row["masks"][0]["rle"])].astype(int)
    x, y, w, h = row["masks"][0]["bbox"]
    assert np.array_equal(inside.reshape(h, w, 3), pixels[y : y + h, x : x + w])
    assert np.abs(inside - inside.mean(axis=0)).mean() < 3  # one colour


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_where_only_the_stored_pixels_have_the_masks_size_they_are_taken_as_stored(orientation):
    content = photo((360, 300), orientation=orientation)
    note = photo_annotation("sa_7.jpg", (360, 300), [mask_entry(0, (0, 0, 180, 150), size=(360, 300))])
    row = row_of(note, content)
    assert (row["width"], row["height"]) == (360, 300)
    pixels = np.asarray(dci.open_photo(content, (360, 300), "sa_7.jpg"))
    expected = stored_pixels(content)
    if orientation in (2, 3, 4):  # these fit both ways: as OpenCV reads them
        expected = UPRIGHT[orientation](expected)
    assert np.array_equal(pixels, expected)


def test_without_a_known_size_photos_are_upright():
    content = photo((360, 300), orientation=8)
    assert dci.open_photo(content, None, "x.jpg").size == (300, 360)


@pytest.mark.parametrize(
    ("mode", "form"),
    [("L", "JPEG"), ("CMYK", "JPEG"), ("P", "PNG"), ("P", "GIF"), ("RGBA", "PNG"), ("LA", "PNG"), ("1", "PNG")],
)
def test_other_colour_modes_become_rgb_as_pillow_makes_it(mode, form):
    content = photo(mode=mode, form=form)
    with PIL.Image.open(io.BytesIO(content)) as image:
        expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(np.asarray(dci.open_photo(content, SIZE, "x")), expected)
    row = row_of(photo_annotation(masks=[mask_entry(0)]), content)
    assert row["image"]["bytes"] == content


def test_a_photo_of_16_bits():
    ramp = (np.arange(SIZE[0] * SIZE[1]).reshape(SIZE[::-1]) % 65536).astype(np.uint16)
    out = io.BytesIO()
    PIL.Image.fromarray(ramp).save(out, "PNG")
    with PIL.Image.open(io.BytesIO(out.getvalue())) as image:
        expected = np.asarray(image.convert("RGB"))
    opened = dci.open_photo(out.getvalue(), SIZE, "x.png")
    assert np.array_equal(np.asarray(opened), expected)
    row_of(photo_annotation(masks=[mask_entry(0)]), out.getvalue())


def noisy_jpeg(**options):
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    out = io.BytesIO()
    PIL.Image.fromarray(pixels).save(out, "JPEG", **options)
    return out.getvalue()


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("keep", [0.0, 0.01, 0.5, 0.9, 0.99])
def test_a_cut_photo_is_refused_by_name(keep, progressive):
    content = noisy_jpeg(progressive=progressive)
    content = content[: int(len(content) * keep)]
    for read in (
        lambda: row_of(photo_annotation("sa_9.jpg", masks=[mask_entry(0)]), content),
        lambda: dci.open_photo(content, SIZE, "sa_9.jpg"),
    ):
        with pytest.raises(dci.DCIError, match=r"sa_9\.jpg: cannot be read as a photo .*download or unpack") as caught:
            read()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"\x00" * 5000, b"<html>404</html>", b"\xff\xd8\xff\xe0" + b"\x00" * 500])
def test_what_is_no_photo_is_refused(content):
    with pytest.raises(dci.DCIError, match=r"sa_7\.jpg: cannot be read as a photo"):
        row_of(photo_annotation(masks=[mask_entry(0)]), content)


@pytest.mark.parametrize("exif", [b"\xff" * 30, b"MM\0*\0\0", b"MM\0*\0\0\xff\0", b""])
def test_broken_exif_leaves_the_photo_as_it_is(exif, recwarn):
    content = photo()
    payload = b"Exif\0\0" + exif
    content = content[:2] + b"\xff\xe1" + (len(payload) + 2).to_bytes(2, "big") + payload + content[2:]
    assert np.array_equal(np.asarray(dci.open_photo(content, SIZE, "x.jpg")), stored_pixels(content))
    row_of(photo_annotation(masks=[mask_entry(0)]), content)


def test_a_photo_of_another_size_than_its_masks_is_refused():
    note = photo_annotation(masks=[mask_entry(0)])
    for read in (
        lambda: row_of(note, photo((200, 150))),
        lambda: dci.open_photo(photo((200, 150)), SIZE, "sa_7.jpg"),
    ):
        with pytest.raises(dci.DCIError, match=r"sa_7\.jpg: is 200x150 pixels, but its masks are 400x300; use the"):
            read()


def test_one_cut_photo_among_good_ones(tmp_path):
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", masks=[mask_entry(0)]) for i in range(3)}
    photos = {f"sa_{i}.jpg": photo(orientation=i) for i in range(3)}
    whole = list(dci.Release(write_release(tmp_path / "whole", notes, photos)).rows("test", "sdci"))
    photos["sa_1.jpg"] = photos["sa_1.jpg"][:1500]
    release = dci.Release(write_release(tmp_path / "cut", notes, photos))
    with pytest.raises(dci.DCIError, match=r"sa_1\.jpg"):
        list(release.rows("test", "sdci"))
    assert list(release.rows("test", "sdci", on_error="skip")) == [whole[0], whole[2]]
    (skipped,) = release.skipped
    assert skipped.image_id == "1"
    assert "sa_1.jpg: cannot be read as a photo" in skipped.reason
