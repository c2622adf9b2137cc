"""`dci report` of retrieval: the page, in headless Chromium, against files of examples, ranks and the photos."""

import base64
import io
import json

import command
import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest
from awkward_release import noise_photo
from hash_encoder import HashEncoder
from release_maker import photo_annotation, write_release

import dci_metrics
from dci_metrics.encoders.base import ModelInfo
from dci_metrics.report import write_report
from dci_metrics.results import Result, percent

PHOTOS = 14
EVIL = "</dd></li><script>document.title = 'owned'</script><img src=https://example.com/x.png onerror=alert(1)>"
LONG = " ".join(f"word{i}" for i in range(1200))
NAMES = ("org/one", "openai/a-model-with-quite-a-long-name-large-patch14-336-finetuned")
PROTOCOLS = ["lotlip", "tulip", "fgclip"]


def make_release(folder, count=PHOTOS, word="Photo"):
    notes = {
        f"{50 + i}-data.json": photo_annotation(
            f"sa_{i}.jpg",
            (400 + 20 * (i % 3), 300),
            short_caption=f"{word} {i}",
            extra_caption="" if i in (1, 2) else EVIL if i % 3 == 0 else f"{LONG} {i}.",
        )
        for i in range(count)
    }
    photos = {f"sa_{i}.jpg": noise_photo(i, (400 + 20 * (i % 3), 300)) for i in range(count)}
    return write_release(folder, notes, photos)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return make_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def runs(release, tmp_path_factory):
    """Result file and file of examples of each model."""
    folder, found = tmp_path_factory.mktemp("runs"), []
    for i, name in enumerate(NAMES):
        model = HashEncoder(seed=i)
        model.info = ModelInfo(id=name, parameters=1000, device="cpu", dtype="float32")
        paths = folder / f"{i}.json", folder / f"{i}.parquet"
        protocols = PROTOCOLS[: 3 - i]
        dci_metrics.evaluate(model, release, protocols=protocols, examples=paths[1], progress=False).save(paths[0])
        found.append(paths)
    return found


@pytest.fixture(scope="module")
def page(release, runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "report.html"
    write_report([r for r, _ in runs], release, out, examples_files=[runs[1][1], runs[0][1]])
    return out


CASES = """[...document.querySelectorAll('#worst .queries')].map(list => [...list.children].map(e => ({
    id: e.querySelector('strong').textContent, about: e.querySelector('.soft').textContent,
    texts: [...e.querySelectorAll('dd')].map(d => d.textContent), words: e.innerText,
    images: [...e.querySelectorAll('img')].map(i => [i.alt, i.src, i.naturalWidth, i.naturalHeight]),
})))"""


def own_texts(release, protocol):
    """What a protocol makes of the annotations, from the files."""
    found = {}
    for path in (release / "densely_captioned_images" / "complete").glob("*.json"):
        note = json.loads(path.read_text())
        pieces = f"{note['short_caption']}\n{note['extra_caption']}".replace("\n", ".").split(".")
        joined = ". ".join(piece.strip() for piece in pieces if piece.strip())
        found[path.name.removesuffix("-data.json")] = joined if protocol == "lotlip" else note["extra_caption"]
    return found


def is_photo(image, release):
    """Whether a picture of the page shows the photo that its text says."""
    alt, address, width, height = image
    shown = PIL.Image.open(io.BytesIO(base64.b64decode(address.partition("base64,")[2]))).convert("RGB")
    number = int(alt.removeprefix("Photo ")) - 50
    photo = PIL.Image.open(release / f"densely_captioned_images/photos/sa_{number}.jpg").convert("RGB")
    photo.thumbnail((256, 256))
    return (
        shown.size == photo.size == (width, height)
        and np.abs(np.asarray(shown, float) - np.asarray(photo, float)).mean() < 6
    )


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_leaves_the_page_or_overflows(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    assert (browser.requests, browser.messages) == ([page.as_uri()], [])
    assert browser.evaluate("document.querySelectorAll('script, [onerror], iframe').length") == 0
    assert browser.evaluate("document.title").startswith("DCI retrieval: org/one, openai/a-model")
    browser.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    assert browser.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    outside = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.wide'))
        .filter(e => e.getBoundingClientRect().right > innerWidth + .5).map(e => e.outerHTML.slice(0, 200))"""
    assert browser.evaluate(outside) == []
    assert browser.evaluate("[...document.querySelectorAll('th')].every(e => e.scope)")


def test_the_worst_queries_are_those_of_the_lowest_ranks(browser, page, runs, release):
    browser.open(page)
    lists = browser.evaluate(CASES)
    assert len(lists) == 4
    expected = []
    for _, path in runs:
        rows = pq.read_table(path).to_pylist()
        for direction in ("i2t", "t2i"):
            wrong = [r for r in rows if r["direction"] == direction and r["rank"] > 1 and r["text"]]
            wrong.sort(key=lambda r: (-r["rank"], r["margin"]))
            by_photo = {}
            for row in wrong:
                by_photo.setdefault(row["image_id"], row)
            expected.append(list(by_photo.values())[:10])
    for shown, rows in zip(lists, expected, strict=True):
        assert len(shown) > 5
        assert [case["id"] for case in shown] == [row["image_id"] for row in rows]
        for case, row in zip(shown, rows, strict=True):
            gallery = 12 if row["protocol"] == "tulip" else PHOTOS
            assert case["about"] == f"{row['protocol']}, rank {row['rank']} of {gallery}"
            text = own_texts(release, row["protocol"])[row["image_id"]]
            texts, photos = [text], [row["image_id"]]
            if row["direction"] == "i2t":
                texts.append(own_texts(release, row["protocol"])[row["rival_image_id"]] or "(empty)")
            else:
                photos.append(row["rival_image_id"])
            for got, wanted in zip(case["texts"], texts, strict=True):
                assert whole(got) == wanted
            assert [image[0] for image in case["images"]] == [f"Photo {photo}" for photo in photos]
            assert all(is_photo(image, release) for image in case["images"])
            assert f"{row['score']:.3f}" in case["words"]
            assert f"{row['rival_score']:.3f}" in case["words"]


def whole(text):
    """A text of which the page shows the beginning, and then the rest below a line of how much that is."""
    beginning, cut, rest = text.partition(" …")
    return beginning + (rest.partition(" more words")[2] if cut else "")


def test_the_rest_of_a_long_text_is_behind_a_fold(browser, page):
    browser.open(page)
    beyond = "document.body.innerText.includes('word1100')"
    assert not browser.evaluate(beyond)
    assert browser.evaluate("document.body.innerText.includes('word20 ')")
    browser.evaluate("document.querySelectorAll('summary').forEach(e => e.click())")
    assert browser.evaluate(beyond)


def test_the_table_has_every_score(browser, page, runs):
    browser.open(page)
    rows = browser.evaluate(
        "[...document.querySelectorAll('#scores tbody')].map(b => [...b.rows].map(r => "
        "[...r.cells].map(c => [...c.childNodes].map(n => n.textContent.trim()).filter(t => t))))"
    )
    results = [Result.load(path) for path, _ in runs]
    directions = {"i2t": "image → text", "t2i": "text → image"}
    keys = [(protocol, direction) for protocol in PROTOCOLS for direction in directions]
    assert len(rows) == len(keys)
    bold = browser.evaluate("[...document.querySelectorAll('#scores .best')].map(e => e.textContent)")
    best = []
    for (protocol, direction), block in zip(keys, rows, strict=True):
        assert block[0].pop(0) == [protocol, directions[direction]]
        have = [result for result in results if f"{protocol}_{direction}_r1" in result.scores]
        assert [row.pop(0) for row in block] == [[result.model["id"]] for result in have]
        for row, result in zip(block, have, strict=True):
            for cell, measure in zip(row, ("r1", "r5", "r10", "map10", "medr"), strict=False):
                score = result.scores[f"{protocol}_{direction}_{measure}"]
                figure = f"{score.value:g}" if measure == "medr" else percent(score.value)
                ends = score.ci95 and f"{percent(score.ci95[0])} to {percent(score.ci95[1])}"
                assert cell == [figure, *([ends] if ends else [])]
                others = [r.scores[f"{protocol}_{direction}_{measure}"].value for r in have]
                if len(have) > 1 and score.value == (min if measure == "medr" else max)(others):
                    best.append(figure)
            first = result.scores[f"{protocol}_{direction}_r1"]
            assert row[5:] == [[percent(first.chance)], [str(first.ties)], ["–"]]
    assert bold == best
    protocols = browser.evaluate(
        "[...document.querySelectorAll('#protocols tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert [[row[0], *row[3:]] for row in protocols] == [
        ["lotlip", "14", "7805", "14", "0", "0"],
        ["tulip", "12", "7602", "12", "0", str(12 - len(set(own_texts_of_tulip())))],
        ["fgclip", "14", "7805", "14", "2", str(14 - len({*own_texts_of_tulip(), ""}))],
    ]
    titles = browser.evaluate("[...document.querySelectorAll('#intervals .head')].map(e => e.textContent)")
    assert titles == [f"{protocol}, {directions[direction]}" for protocol, direction in keys]


def own_texts_of_tulip():
    return [EVIL if i % 3 == 0 else f"{LONG} {i}." for i in range(PHOTOS) if i not in (1, 2)]


def test_without_examples_queries_that_no_model_ranks_first(browser, runs, release, tmp_path):
    write_report([r for r, _ in runs], release, tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    lists = browser.evaluate(CASES)
    assert len(lists) == 2
    results = [Result.load(path) for path, _ in runs]
    for shown, direction in zip(lists, ("i2t", "t2i"), strict=True):
        best = {}
        for protocol in ("lotlip", "tulip"):
            of_models = [r.values_of(f"{protocol}_{direction}_medr") for r in results]
            for (image_id, _), rank in of_models[0].items():
                ranks = rank, *(m[image_id, "photo" if direction == "i2t" else "text-0"] for m in of_models[1:])
                best[image_id] = max(best.get(image_id, (0,)), (min(ranks), sum(ranks), protocol, *ranks))
        expected = sorted((b for b in best.values() if b[0] > 1), key=lambda b: (-b[0], -b[1]))[:10]
        assert len(shown) == len(expected) > 5
        for case, (_, _, protocol, *ranks) in zip(shown, expected, strict=True):
            gallery = 12 if protocol == "tulip" else PHOTOS
            by = ", ".join(f"{rank:g} by {name}" for rank, name in zip(ranks, NAMES, strict=True))
            assert case["about"] == f"{protocol}, ranks of {gallery}: {by}"
            assert [whole(text) for text in case["texts"]] == [own_texts(release, protocol)[case["id"]]]
            assert is_photo(case["images"][0], release)
    assert "no model ranks" in browser.evaluate("document.querySelector('#worst h2').textContent")


def test_a_list_with_several_texts_a_photo(browser, release, tmp_path):
    texts = [(f"sa_{i % 5}.jpg", f"text {i}") for i in range(15)]
    (tmp_path / "list.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in texts))
    options = {"protocols": ["goal"], "goal_list": tmp_path / "list.tsv", "progress": False}
    result, table = tmp_path / "r.json", tmp_path / "e.parquet"
    dci_metrics.evaluate(HashEncoder(), release, examples=table, **options).save(result)
    write_report([result], release, tmp_path / "page.html", examples_files=[table])
    browser.open(tmp_path / "page.html")
    shown = browser.evaluate(CASES)[-1]
    assert len(shown) == len({case["id"].partition(",")[0] for case in shown})
    for case in shown:
        image_id, _, number = case["id"].partition(", text ")
        photo = int(image_id) - 50
        own = [text for name, text in texts if name == f"sa_{photo}.jpg"]
        assert case["texts"] == [own[int(number or 1) - 1]]
    # Without a file of examples, nothing here knows the list's texts.
    write_report([result], release, tmp_path / "shared.html")
    browser.open(tmp_path / "shared.html")
    assert {t for list in browser.evaluate(CASES) for c in list for t in c["texts"]} == {
        "in the list that the run was given"
    }


def test_a_photo_that_was_passed_over(tmp_path):
    release = make_release(tmp_path / "release", 5)
    (release / "densely_captioned_images" / "photos" / "sa_3.jpg").write_bytes(b"no photo")
    result, table = tmp_path / "r.json", tmp_path / "e.parquet"
    dci_metrics.evaluate(
        HashEncoder(), release, protocols=["lotlip"], on_error="skip", examples=table, progress=False
    ).save(result)
    write_report([result], release, tmp_path / "page.html", examples_files=[table])
    assert "cannot be read as a photo" in (tmp_path / "page.html").read_text()


def test_what_is_refused(release, runs, tmp_path, monkeypatch, capsys):
    def dci(*arguments):
        return command.run(monkeypatch, capsys, "report", *arguments, "--out", tmp_path / "page.html")

    (a, a_examples), (_, b_examples) = runs
    command.refused(dci(a, "--dataset", release, "--examples", b_examples), f"{b_examples}: holds the examples of none")
    rows = pq.read_table(a_examples)
    ranks = [rank + (i == 7) for i, rank in enumerate(rows["rank"].to_pylist())]
    damaged = rows.set_column(5, "rank", [ranks]).replace_schema_metadata(rows.schema.metadata)
    pq.write_table(damaged, tmp_path / "damaged.parquet")
    command.refused(dci(a, "--dataset", release, "--examples", tmp_path / "damaged.parquet"), "holds the examples of")
    scm = tmp_path / "scm.parquet"
    dci_metrics.evaluate(HashEncoder(), release, tests=["base_neg"], examples=scm, progress=False).save(
        tmp_path / "scm.json"
    )
    command.refused(dci(a, "--dataset", release, "--examples", scm), f"{scm}: is no file", "other tests")
    command.refused(dci(tmp_path / "scm.json", "--dataset", release, "--examples", a_examples), "other tests")
    command.refused(dci(a, tmp_path / "scm.json", "--dataset", release), "scm.json cannot be compared with")
    other = make_release(tmp_path / "other", 5)
    command.refused(dci(a, "--dataset", other), f"{other}: is not the data of the results: its fingerprint is")
    # The same photos with other texts.
    other = make_release(tmp_path / "texts", word="Another")
    command.refused(dci(a, "--dataset", other), f"{other}: is not the data of the results: ", "its texts of lotlip")
    assert not (tmp_path / "page.html").exists()
