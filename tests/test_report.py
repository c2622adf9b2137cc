"""`dci report`: the page, in headless Chromium and as text."""

import base64
import io
import json
import re

import command
import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest
from awkward_release import noise_photo
from hash_encoder import HashEncoder
from release_maker import mask_entry, photo_annotation, write_release

import dci_metrics
from dci import DCIError, Release
from dci_metrics.encoders.base import ModelInfo
from dci_metrics.report import write_report
from dci_metrics.results import Result, percent

SIZE = (900, 700)
EVIL = (
    "</dd></li><script>document.title = 'owned'</script><img src=https://example.com/x.png onerror=alert(1)> & \"é\" 塔"
)
NAMES = (
    "org/one",
    "/home/someone/models/two<b>",
    "openai/a-model-with-quite-a-long-name-large-patch14-336-finetuned",
)
TESTS = 11


def make_release(folder, photos=9):
    notes, contents = {}, {}
    for i in range(photos):
        masks = [
            mask_entry(1, (0, 0, 880, 690), size=SIZE, requirements=[2]),
            mask_entry(2, (10, 10, 500, 500), size=SIZE, parent=1, requirements=[3]),
            mask_entry(3, (20, 20, 250, 250), size=SIZE, parent=2),
        ]
        note = photo_annotation(f"sa_{i}.jpg", SIZE, masks)
        for key, captions in note["summaries"].items():
            captions[0] = f"{i} {key} {EVIL}" if i % 3 == 0 else f"{i} {key} A wide wall.\nIt has {i} windows."
            note["negatives"][key]["swaps"] = [f"{i} {key} a swapped wall"]
        notes[f"{10 + i}-data.json"] = note
        contents[f"sa_{i}.jpg"] = noise_photo(i, SIZE)
    return write_release(folder, notes, contents)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return make_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def runs(release, tmp_path_factory):
    """Result file and file of examples of each model."""
    folder = tmp_path_factory.mktemp("runs")
    found = []
    for i, name in enumerate(NAMES):
        model = HashEncoder(seed=i)
        model.info = ModelInfo(id=name, parameters=1000, device="cpu", dtype="float32")
        paths = folder / f"{i}.json", folder / f"{i}.parquet"
        dci_metrics.evaluate(model, release, tests=["all"], examples=paths[1], progress=False).save(paths[0])
        found.append(paths)
    return found


@pytest.fixture(scope="module")
def page(release, runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "report.html"
    # In any order: each is matched to its result.
    write_report([r for r, _ in runs], release, out, examples_files=[runs[2][1], runs[0][1]])
    return out


def test_nothing_leaves_the_page(browser, page):
    browser.open(page)
    assert browser.requests == [page.as_uri()]
    assert browser.messages == []
    assert browser.evaluate("document.title").startswith("DCI benchmark: org/one, two<b>, openai/a-model")
    assert browser.evaluate("document.querySelectorAll('script, [onerror], iframe, object, form').length") == 0
    addresses = browser.evaluate("[...document.querySelectorAll('[src], [href]')].map(e => e.src || e.href)")
    assert addresses
    assert all(address.startswith("data:") for address in addresses)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_overflows_or_is_clipped(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    assert browser.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    # What is wider lies in a region that scrolls by itself.
    outside = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.wide'))
        .filter(e => e.getBoundingClientRect().right > innerWidth + .5 || e.getBoundingClientRect().left < -.5)
        .map(e => e.outerHTML.slice(0, 200))"""
    assert browser.evaluate(outside) == []
    assert browser.evaluate(
        "[...document.querySelectorAll('.wide')].every(e => e.tabIndex == 0 && e.getAttribute('aria-label'))"
    )
    assert browser.evaluate(OVERLAPS) == []


OVERLAPS = """[...document.querySelectorAll('svg[role=img]')].flatMap(svg => {
    const texts = [...svg.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
    return texts.flatMap(([a, p], i) => texts.slice(i + 1)
        .filter(([b, q]) => p.left < q.right && q.left < p.right && p.top + 2 < q.bottom && q.top + 2 < p.bottom)
        .map(([b, q]) => [svg.getAttribute('aria-label').slice(0, 30), a, b]));
})"""
"""Pairs of labels that lie on each other."""

MARKS = """[...document.querySelectorAll('%s svg[role=img]')].map(svg => {
    const box = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('.mark')].map(e => {
        const own = e.querySelector('.shape').getBoundingClientRect();
        return [e.querySelector('title').textContent, e.className.baseVal,
            ((own.left + own.right) / 2 - box.left) / box.width, (own.top + own.bottom) / 2 - box.top];
    });
})"""
"""Title, class, x as a share of the width and y in pixels of each mark, plot by plot."""


def marks_of(browser, section):
    return browser.evaluate(MARKS % section)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_plot_of_intervals_shows_every_figure_where_it_is(browser, page, runs, width):
    browser.open(page, width=width)
    (marks,) = marks_of(browser, "#intervals")
    results = [Result.load(path) for path, _ in runs]
    assert len(marks) == TESTS * len(results)
    figures = [(i, score) for test in results[0].scores for i, r in enumerate(results) for score in [r.scores[test]]]
    for (title, css, x, _), (i, score) in zip(marks, figures, strict=True):
        assert css.split()[0] == f"m{i}"
        assert f"{percent(score.value)} % ({percent(score.ci95[0])} to {percent(score.ci95[1])})" in title
        # Inside of the margins the width is that of 0 to 100 percent.
        assert x == pytest.approx(score.value, abs=0.004)
    tops = [y for *_, y in marks]
    assert tops == sorted(tops)
    assert browser.evaluate("document.querySelectorAll('#intervals line.ci').length") == len(marks)
    assert browser.evaluate("document.querySelectorAll('#intervals .row line.chance').length") == TESTS
    names = browser.evaluate("[...document.querySelectorAll('#intervals .legend li')].map(e => e.textContent.trim())")
    assert names == ["org/one", "two<b>", NAMES[2], "chance"]


def test_the_scatter_sets_matching_against_negatives(browser, page, runs):
    browser.open(page)
    panels = marks_of(browser, "#scatter")
    assert [len(panel) for panel in panels] == [3, 3, 3]
    for panel, (scm, neg) in zip(
        panels, (("all_scm", "all_neg"), ("pick5_scm", "pick5_neg"), ("base_scm", "base_neg")), strict=True
    ):
        for (_, _, x, y), (path, _) in zip(panel, runs, strict=True):
            scores = Result.load(path).scores
            assert x == pytest.approx(scores[scm].value, abs=0.004)
            assert (y - 6) / 250 == pytest.approx(1 - scores[neg].value, abs=0.008)
    assert browser.evaluate("document.querySelectorAll('#scatter .panel line.chance').length") == 6


def test_accuracy_by_size_and_depth(browser, page, runs):
    browser.open(page)
    expected = {"size": ["photo", "256–511", "512–1023"], "depth": ["photo", "0", "1", "2"]}
    for kind, names in expected.items():
        panels = marks_of(browser, f"#by-{kind}")
        assert [len(panel) for panel in panels] == [3 * len(names)] * 3
        for panel, test in zip(panels, ("all_scm", "all_neg", "hard_negs"), strict=True):
            bins = [Result.load(path).breakdown[test][kind] for path, _ in runs]
            values = [found["value"] for place in zip(*(b.values() for b in bins), strict=True) for found in place]
            for (title, *_, y), value in zip(panel, values, strict=True):
                assert (y - 6) / 210 == pytest.approx(1 - value, abs=0.008)
                assert f"{percent(value)} %" in title
            assert [x for _, _, x, _ in panel] == sorted(x for _, _, x, _ in panel)
        shown = browser.evaluate(f"[...document.querySelectorAll('#by-{kind} .bin')].map(e => e.textContent)")
        assert shown == names * 3


@pytest.mark.parametrize("dark", [False, True])
def test_marks_have_their_colours_and_text_its_contrast(browser, page, tmp_path, dark):
    browser.open(page, dark=dark)
    browser.screenshot(tmp_path / "page.png")
    picture = PIL.Image.open(tmp_path / "page.png").convert("RGB")
    centres = """[...document.querySelectorAll('#intervals .forest .mark .shape')].map(e => {
        const box = e.getBoundingClientRect();
        return [(box.left + box.right) / 2 + scrollX, (box.top + box.bottom) / 2 + scrollY, getComputedStyle(e).color];
    })"""
    seen = set()
    for x, y, colour in browser.evaluate(centres):
        wanted = tuple(map(int, re.findall(r"\d+", colour)))
        # A little off the centre, where a line of chance may cross the mark.
        around = {picture.getpixel((int(x) + dx, int(y))) for dx in (-2, -1, 0, 1, 2)}
        assert any(max(abs(a - b) for a, b in zip(wanted, got, strict=True)) <= 3 for got in around)
        seen.add(wanted)
    assert len(seen) == len(NAMES)
    names = ["ink", "soft", "chance", *(f"m{i}" for i in range(8))]
    colours = browser.evaluate(
        f"{json.dumps(['paper', 'card', *names])}.map(n => getComputedStyle(document.documentElement)"
        ".getPropertyValue('--' + n).trim())"
    )
    paper, card, *others = map(luminance, colours)
    for name, other in zip(names, others, strict=True):
        for ground in (paper, card):
            ratio = (max(ground, other) + 0.05) / (min(ground, other) + 0.05)
            assert ratio >= (4.5 if name in ("ink", "soft") else 3), name


def luminance(colour):
    """Relative luminance, as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(w * part for w, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_the_table_has_every_score(browser, page, runs):
    browser.open(page)
    rows = browser.evaluate(
        "[...document.querySelectorAll('#scores tbody tr')].map(r => [...r.cells].map(c => c.innerText.split('\\n')))"
    )
    results = [Result.load(path) for path, _ in runs]
    assert len(rows) == TESTS
    for (_, *cells, chance, entries), test in zip(rows, results[0].scores, strict=True):
        for cell, result in zip(cells, results, strict=True):
            score = result.scores[test]
            assert cell[:2] == [percent(score.value), f"{percent(score.ci95[0])} to {percent(score.ci95[1])}"]
        assert (chance, entries) == ([percent(score.chance)], [str(score.n)])
    assert browser.evaluate("[...document.querySelectorAll('th')].every(e => e.scope)")
    assert browser.evaluate("document.documentElement.lang") == "en"


def test_the_worst_entries_are_those_of_the_largest_margins(browser, page, runs):
    browser.open(page)
    read = """[...document.querySelectorAll('#worst .cases')].map(list => [...list.children].map(e => [
        e.querySelector('strong').textContent, [...e.querySelectorAll('dd')].map(d => d.textContent),
        e.querySelector('img').complete && e.querySelector('img').naturalWidth, e.querySelector('img').naturalHeight,
        e.querySelector('img').alt, e.innerText]))"""
    lists = browser.evaluate(read)
    assert len(lists) == 2
    for cases, table in zip(lists, (runs[0][1], runs[2][1]), strict=True):
        assert len(cases) == 20
        worst = {}
        for row in pq.read_table(table).to_pylist():
            if row["test"] in ("all_scm", "all_neg", "hard_negs", "base_scm", "base_neg") and row["right"] is False:
                key = f"{row['image_id']}, {row['key']}"
                worst[key] = min(worst.get(key, row), row, key=lambda r: r["margin"])
        expected = sorted(worst.items(), key=lambda item: item[1]["margin"])[:20]
        assert [case[0] for case in cases] == [key for key, _ in expected]
        for (_, texts, width, height, alt, words), (_, row) in zip(cases, expected, strict=True):
            assert texts == [row["caption"], row["rival_text"]]
            x0, y0, x1, y1 = row["crop_xyxy"]
            assert max(width, height) == min(256, max(x1 - x0, y1 - y0))
            assert width / height == pytest.approx((x1 - x0) / (y1 - y0), rel=0.02)
            assert row["image_id"] in alt
            assert f"margin {row['margin']:.3f}" in words
    assert any(EVIL in case[1][0] for cases in lists for case in cases)
    assert "two<b>: no file of examples was given." in browser.evaluate("document.querySelector('#worst').innerText")


def test_crops_are_those_of_the_photo(browser, page, release):
    content = page.read_text()
    name = re.search(r'alt="Photo (\d+), subcrop m-3-sc"', content)
    tag = content[content.rindex("<img", 0, name.start()) : name.start()]
    picture = PIL.Image.open(io.BytesIO(base64.b64decode(re.search(r"base64,([^\"]+)", tag)[1]))).convert("RGB")
    photo = PIL.Image.open(release / "densely_captioned_images" / "photos" / f"sa_{int(name[1]) - 10}.jpg")
    wide = int(0.15 * 230)
    crop = photo.convert("RGB").crop((max(20 - wide, 0), max(20 - wide, 0), 250 + wide, 250 + wide))
    crop.thumbnail((256, 256))
    assert picture.size == crop.size
    assert np.abs(np.asarray(picture, float) - np.asarray(crop, float)).mean() < 6


def test_without_examples_entries_that_all_models_get_wrong(browser, runs, release, tmp_path):
    out = tmp_path / "report.html"
    write_report([runs[0][0], runs[1][0]], release, out)
    browser.open(out)
    assert browser.messages == []
    results = [Result.load(runs[i][0]) for i in (0, 1)]
    failed = {}
    for test in ("all_scm", "all_neg", "base_scm", "base_neg", "hard_negs"):
        values = [result.values_of(test) for result in results]
        for entry in values[0]:
            failed[entry] = failed.get(entry, 0) + (values[0][entry] == values[1][entry] == 0)
    shown = browser.evaluate(
        "[...document.querySelectorAll('#worst .case strong')].map(e => e.textContent.split(', '))"
    )
    counts = [failed[tuple(entry)] for entry in shown]
    assert counts == sorted((count for count in failed.values() if count), reverse=True)[:20]
    assert "every model gets wrong" in browser.evaluate("document.querySelector('#worst h2').textContent")


def test_one_model_a_few_tests_and_no_depths(browser, release, tmp_path):
    rows = list(Release(release).rows("test", "sdci", masks=False))[:1]
    path = tmp_path / "one.json"
    dci_metrics.evaluate(HashEncoder(), rows, tests=["base_neg", "random_scm_i2t"], progress=False).save(path)
    write_report([path], rows, tmp_path / "report.html")
    browser.open(tmp_path / "report.html", width=390)
    assert (browser.messages, browser.evaluate("document.documentElement.scrollWidth")) == ([], 390)
    words = browser.evaluate("document.body.innerText")
    for part in ("no interval", "No result has both", "Depth of mask: not known"):
        assert part in words
    assert [len(panel) for panel in marks_of(browser, "#intervals")] == [2]
    assert [len(panel) for panel in marks_of(browser, "#by-size")] == [1]


def test_the_same_results_give_the_same_page(page, release, runs, tmp_path):
    out = tmp_path / "report.html"
    write_report([r for r, _ in runs], release, out, examples_files=[runs[0][1], runs[2][1]])
    assert out.read_bytes() == page.read_bytes()


def test_photos_that_were_passed_over(tmp_path):
    release = make_release(tmp_path / "release", photos=4)
    photos = release / "densely_captioned_images" / "photos"
    (photos / "sa_0.jpg").write_bytes((photos / "sa_0.jpg").read_bytes()[:200])
    (photos / "sa_1.jpg").unlink()
    path = tmp_path / "result.json"
    dci_metrics.evaluate(HashEncoder(), release, on_error="skip", progress=False).save(path)
    write_report([path], release, tmp_path / "report.html")
    content = (tmp_path / "report.html").read_text()
    assert "photo sa_1.jpg is missing" in content
    assert "sa_0.jpg: cannot be read as a photo" in content


def test_command_and_what_it_refuses(release, runs, tmp_path, monkeypatch, capsys):
    def dci(*arguments):
        return command.run(monkeypatch, capsys, "report", *arguments, "--out", tmp_path / "report.html")

    (a, a_examples), (b, _), (_, c_examples) = runs
    code, out, err = dci(a, b, "--dataset", release, "--examples", a_examples)
    assert (code, out, err) == (0, f"Written: {tmp_path / 'report.html'}\n", "")
    command.refused(dci(a, "--dataset", release), "report.html: exists", "--force")
    other = make_release(tmp_path / "other", photos=2)
    command.refused(dci(a, "--dataset", other, "--force"), "is not the data of the results")
    small = tmp_path / "small.json"
    dci_metrics.evaluate(HashEncoder(), other, progress=False).save(small)
    command.refused(dci(a, small, "--dataset", release, "--force"), "small.json cannot be compared", "fingerprint")
    files = ("--examples", a_examples, "--examples", c_examples)
    command.refused(dci(a, b, "--dataset", release, *files, "--force"), f"{c_examples}: holds the examples of none of")
    command.refused(dci(a, "--dataset", release, "--examples", a, "--force"), f"{a}: cannot be read")
    command.refused(dci(tmp_path / "nowhere.json", "--dataset", release, "--force"), "nowhere.json: cannot be read")
    command.refused(dci(a, "--dataset", "nowhere", "--force"), "nowhere: is no folder here")


def test_two_runs_of_one_model_have_labels_of_their_own(release, runs, tmp_path):
    again = tmp_path / "again.json"
    Result.load(runs[0][0]).save(again)
    write_report([runs[0][0], again], release, tmp_path / "report.html")
    content = (tmp_path / "report.html").read_text()
    assert "<title>DCI benchmark: org/one (0), org/one (again)</title>" in content
    with pytest.raises(DCIError, match="at least one result"):
        write_report([], release, tmp_path / "none.html")
