"""`dci leaderboard`: the table from the Hub's API and from result files, and the page in headless Chromium."""

import json
import time

import command
import pytest
import yaml
from hub_double import here, hub  # noqa: F401
from hub_store import Blob
from huggingface_hub import RepoCard
from real_result import real_result, save

import dci_metrics
from dci_metrics.hub import eval_results, leaderboard, leaderboard_html, leaderboard_table
from dci_metrics.results import Result, percent
from dci_metrics.tasks import PAPER_TASKS, TASKS

DATASET, SHA = "owner/dci", "3" * 40
EVIL = "</script><img src=x onerror=document.title='owned'>"
MODELS = {
    "openai/clip-vit-base-patch32": "clip",
    "org/a-model-with-quite-a-long-name-large-patch14-336-finetuned": "siglip",
    EVIL: "blip",
    "/home/someone/models/secret-clip": "clip",
    "team/flava": "flava",
}


def results(folder):
    found = []
    for seed, (name, family) in enumerate(MODELS.items()):
        changes = {"model": {"family": family}, "settings": {"dtype": "bfloat16" if family == "blip" else "float32"}}
        save(folder, f"{seed}.json", name=name, seed=seed, **changes)
        found.append(real_result(name, seed, **changes))
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return folder, results(folder)


@pytest.fixture(scope="module")
def page(runs):
    path = runs[0] / "board.html"
    path.write_text(leaderboard_html.of_boards(leaderboard.from_results([runs[0]])), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(browser):
    browser.send("Emulation.setFocusEmulationEnabled", enabled=True)
    return browser


def run(monkeypatch, capsys, *arguments):
    return command.run(monkeypatch, capsys, "leaderboard", *arguments)


def fill(store, dataset=DATASET):
    """A benchmark with two models that have results, and one whose results wait in a pull request."""
    store.add_repo(dataset, "dataset", {})
    listed = []
    for seed, name in enumerate(("owner/clip", "team/flava")):
        result = real_result(name, seed, model={"family": name.split("/")[1]})
        entries = eval_results.entries(result, dataset, SHA, "2026-01-01")
        others = [{"dataset": {"id": "cais/hle", "task_id": "all_scm"}, "value": 99}]
        text = yaml.safe_dump(others) + eval_results.to_yaml(entries)
        store.add_repo(name, "model", {eval_results.FILE: text})
        listed.append((name, entries[0].value, entries[0].notes, None))
    store.add_repo("else/waiting", "model", {})
    listed += [
        ("else/waiting", 77.5, "paper mode; family other; 95 % interval 70.00 to 80.25", 4),
        ("else/gone", 1, None, None),
    ]
    store.leaderboards[dataset] = [
        {
            "rank": rank + 1, "modelId": name, "value": value, "filename": eval_results.FILE, "verified": False,
            "author": {"type": "user", "name": name.split("/")[0], "fullname": "", "avatarUrl": ""},
            "notes": notes, "pullRequest": number,
        }
        for rank, (name, value, notes, number) in enumerate(sorted(listed, key=lambda row: -row[1]))
    ]  # fmt: skip


def cells(out):
    """The table's rows, by the first column."""
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("─")) + 1
    rows = [
        [part.strip() for part in line.split("  ") if part.strip()] for line in lines[start : lines.index("", start)]
    ]
    return {row[0]: row[1:] for row in rows}


def test_the_hubs_leaderboard_has_all_tests(here, monkeypatch, capsys):  # noqa: F811
    fill(here.store)
    code, out, err = run(monkeypatch, capsys, "--dataset", DATASET)
    assert (code, err) == (0, "")
    assert out.startswith("owner/dci: 4 models by All SCM, in percent\n")
    rows = cells(out)
    for seed, name in enumerate(("owner/clip", "team/flava")):
        expected = [percent(score.value) for score in real_result(name, seed).scores.values()]
        assert rows[name] == [name.split("/")[1], *expected]
    assert rows["else/waiting (pull request 4)"] == ["other", "77.50", *"–" * 6]
    assert rows["else/gone"] == ["–", "1.00", *"–" * 6]
    assert next(iter(rows)).startswith("else/waiting")
    assert "All SCM 12.50, All Neg 50.00, Pick5-SCM 0.00, Pick5-Neg 16.67" in out
    by_neg = [
        percent(real_result(name, seed).scores["all_neg"].value)
        for seed, name in enumerate(("owner/clip", "team/flava"))
    ]
    first = "team/flava" if float(by_neg[1]) > float(by_neg[0]) else "owner/clip"
    out = run(monkeypatch, capsys, "--dataset", DATASET, "--sort", "all_neg")[1]
    assert next(iter(cells(out))) == first


STRANGE = {
    "all_scm": "<b>40</b>",
    "all_neg": None,
    "pick5_scm": 1e9,
    "pick5_neg": True,
    "base_scm": -1,
    "base_neg": 50.5,
}
"""What anybody may write into a model's file of results; one of them is a figure."""


def write_strange_values(store):
    entries = [
        {"dataset": {"id": DATASET, "task_id": key}, "value": value, "notes": 7} for key, value in STRANGE.items()
    ]
    file = Blob(yaml.safe_dump(entries).encode(), lfs=False)
    store.repos["model", "else/waiting"].commit("main", "strange", "", "else", {eval_results.FILE: file})
    listed = next(entry for entry in store.leaderboards[DATASET] if entry["modelId"] == "else/waiting")
    listed["value"] = "much"


def test_what_is_no_figure_is_passed_over(here, monkeypatch, capsys, tmp_path):  # noqa: F811
    fill(here.store)
    write_strange_values(here.store)
    code, out, err = run(monkeypatch, capsys, "--dataset", DATASET)
    assert (code, err) == (0, "")
    assert cells(out)["else/waiting (pull request 4)"] == ["–", *"–" * 5, "50.50", "–"]
    assert run(monkeypatch, capsys, "--dataset", DATASET, "--html", tmp_path / "board.html")[0] == 0


@pytest.mark.parametrize(
    "entry", [{"dataset": {"id": DATASET}}, {"value": 1}, "text", {"source": {"name": "no address"}}]
)
def test_a_model_whose_entries_cannot_be_read_keeps_its_listed_figure(entry, here, monkeypatch, capsys):  # noqa: F811
    fill(here.store)
    whole = {"dataset": {"id": DATASET, "task_id": "all_neg"}, "value": 1}
    entries = [whole, entry if "source" not in entry else whole | entry]
    file = Blob(yaml.safe_dump(entries).encode(), lfs=False)
    here.store.repos["model", "else/waiting"].commit("main", "strange", "", "else", {eval_results.FILE: file})
    code, out, err = run(monkeypatch, capsys, "--dataset", DATASET)
    assert (code, err) == (0, "")
    assert cells(out)["else/waiting (pull request 4)"] == ["other", "77.50", *"–" * 6]


def test_a_folder_is_no_repo(tmp_path):
    save(
        tmp_path,
        "a.json",
        model={"id": "openai/clip", "adapter": "runs/lora", "adapter_revision": "sha256:" + "7" * 64},
    )
    save(tmp_path, "b.json", name="owner/clip", seed=1)
    assert [row.repo for board in leaderboard.from_results([tmp_path]) for row in board.rows] == [None, "owner/clip"]


def test_one_test_has_intervals(here, monkeypatch, capsys):  # noqa: F811
    fill(here.store)
    out = run(monkeypatch, capsys, "--dataset", DATASET, "--test", "all_neg")[1]
    score = real_result("team/flava", 1).scores["all_neg"]
    interval = f"{percent(score.ci95[0])} – {percent(score.ci95[1])}"
    assert cells(out)["team/flava"] == ["flava", percent(score.value), interval, "float32"]
    assert cells(out)["else/waiting (pull request 4)"] == ["other", "–", "–", "–"]


def test_what_there_is_none_of(here, monkeypatch, capsys):  # noqa: F811
    here.store.add_repo(DATASET, "dataset", {})
    command.refused(run(monkeypatch, capsys, "--dataset", DATASET), "owner/dci: has no leaderboard yet")
    here.store.leaderboards[DATASET] = []
    command.refused(run(monkeypatch, capsys, "--dataset", DATASET), "owner/dci: has no leaderboard yet")
    command.refused(run(monkeypatch, capsys, "--dataset", "owner/none"), "owner/none", "not on the Hub")
    command.refused(run(monkeypatch, capsys, "--dataset", "dci"), "OWNER/NAME")
    here.fail("leaderboard", status=401)
    command.refused(run(monkeypatch, capsys, "--dataset", DATASET), "owner/dci", "token")
    here.fail("leaderboard", status=503)
    command.refused(run(monkeypatch, capsys, "--dataset", DATASET), "owner/dci", "503")
    fill(here.store)
    here.fail("info", status=500)
    command.refused(run(monkeypatch, capsys, "--dataset", DATASET), "500")
    command.refused(run(monkeypatch, capsys, "--dataset", DATASET, "--test", "all"), "no test 'all'", "all_scm")
    command.refused(run(monkeypatch, capsys), "--dataset", "--results")


def test_result_files_as_a_table(runs, tmp_path, monkeypatch, capsys):
    folder, found = runs
    code, out, err = run(monkeypatch, capsys, "--results", folder)
    assert (code, err) == (0, "")
    rows = cells(out)
    assert len(rows) == len(found)
    for result in found:
        name = result.name.split("/")[-1] if result.name.startswith("/") else result.name
        assert rows[name] == [result.model["family"], *(percent(score.value) for score in result.scores.values())]
    values = [float(row[1]) for row in rows.values()]
    assert values == sorted(values, reverse=True)
    assert "/home" not in out
    other = save(tmp_path, dataset={"fingerprint": "0" * 64})
    command.refused(run(monkeypatch, capsys, "--results", folder, "--results", other), "fingerprint")
    (tmp_path / "empty").mkdir()
    command.refused(run(monkeypatch, capsys, "--results", tmp_path / "empty"), "no result file")


def test_the_page_is_written_whole_or_not_at_all(runs, tmp_path, monkeypatch, capsys):
    out = tmp_path / "board.html"
    assert run(monkeypatch, capsys, "--results", runs[0], "--html", out) == (0, f"Written: {out}\n", "")
    before = out.read_bytes()
    command.refused(run(monkeypatch, capsys, "--results", runs[0], "--html", out), "exists", "--force")
    assert run(monkeypatch, capsys, "--results", runs[0], "--html", out, "--force")[0] == 0
    assert out.read_bytes() == before
    command.refused(
        run(monkeypatch, capsys, "--results", runs[0], "--html", tmp_path / "a", "--test", "all_scm"), "--test"
    )


TABLE = "[...document.querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.innerText.split('\\n')))"
NAMES = "[...document.querySelectorAll('tbody th')].map(c => c.innerText.split('\\n')[0])"
SORTED = "[...document.querySelectorAll('thead th')].map(c => c.getAttribute('aria-sort'))"
MARKS = "[...document.querySelectorAll('#plot .mark')].map(e => e.getAttribute('aria-label'))"


def shown(name):
    return name.split("/")[-1] if name.startswith("/") else name


def click(browser, expression):
    browser.evaluate(f"{expression}.click()")


def choose(browser, field, value):
    browser.evaluate(
        f"(() => {{ const e = document.getElementById('{field}'); e.value = {json.dumps(value)};"
        "e.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def press(browser, key):
    text = {"text": "\r"} if key == "Enter" else {}
    for kind in ("keyDown", "keyUp"):
        code = {"Enter": 13, "Tab": 9, "Escape": 27}[key]
        sent = text if kind == "keyDown" else {}
        browser.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **sent)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_and_needs_nothing(browser, page, width, dark):
    browser.open(page, width=width, dark=dark)
    assert browser.requests == [page.as_uri()]
    assert browser.messages == []
    assert browser.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    outside = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.wide'))
        .filter(e => e.getBoundingClientRect().right > innerWidth + .5 || e.getBoundingClientRect().left < -.5)
        .map(e => e.outerHTML.slice(0, 200))"""
    assert browser.evaluate(outside) == []
    assert browser.evaluate("document.title") == "DCI leaderboard"
    assert browser.evaluate("document.querySelectorAll('img, script, [onerror]').length") == 2


def test_a_family_of_a_long_name_fits(browser, tmp_path):
    row = leaderboard.Row("a", None, "f" * 80, None, {"all_scm": leaderboard.Figure(50.0)})
    (tmp_path / "page.html").write_text(leaderboard_html.of_boards([leaderboard.Board("x", [row])]))
    browser.open(tmp_path / "page.html", width=390)
    assert browser.evaluate("document.documentElement.scrollWidth") == 390


def test_the_page_has_every_figure_and_its_interval(browser, page, runs):
    browser.open(page)
    rows = {row[0][0]: row for row in browser.evaluate(TABLE)}
    assert len(rows) == len(runs[1])
    for result in runs[1]:
        name, family, *figures = rows[shown(result.name)]
        assert family == [result.model["family"]]
        assert name[1:] == (["bfloat16"] if result.settings["dtype"] == "bfloat16" else [])
        for cell, score in zip(figures, result.scores.values(), strict=True):
            assert cell == [percent(score.value), f"{percent(score.ci95[0])} to {percent(score.ci95[1])}"]
    heads = browser.evaluate("[...document.querySelectorAll('thead th')].map(c => c.innerText)")
    assert heads == ["Model", "Family", *(task.title for task in PAPER_TASKS.values())]
    foot = browser.evaluate("[...document.querySelectorAll('tfoot td')].map(c => c.innerText)")
    assert foot == ["", *(percent(score.chance) for score in runs[1][0].scores.values())]
    links = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('tbody a')].map(a => [a.innerText, a.href]))"
    )
    assert links == {
        name: f"https://huggingface.co/{name}"
        for name in MODELS
        if name not in (EVIL, "/home/someone/models/secret-clip")
    }
    assert "/home" not in page.read_text()
    # A Space is shown in a frame, where the Hub's pages do not open.
    assert browser.evaluate("document.querySelector('base').target") == "_blank"


def test_the_table_sorts_by_mouse_and_by_keyboard(browser, page, runs):
    browser.open(page)
    by = {shown(result.name): {key: score.value for key, score in result.scores.items()} for result in runs[1]}
    assert browser.evaluate(NAMES) == sorted(by, key=lambda name: -by[name]["all_scm"])
    assert browser.evaluate(SORTED) == ["none", "none", "descending", *["none"] * 6]
    click(browser, "document.querySelector('[data-key=base_neg] button')")
    assert browser.evaluate(NAMES) == sorted(by, key=lambda name: -by[name]["base_neg"])
    # The button keeps the focus, so that Enter turns the order round.
    press(browser, "Enter")
    assert browser.evaluate(NAMES) == sorted(by, key=lambda name: by[name]["base_neg"])
    assert browser.evaluate("document.querySelector('[data-key=base_neg]').getAttribute('aria-sort')") == "ascending"
    press(browser, "Tab")
    assert browser.evaluate("document.activeElement.parentElement.dataset.key") == "hard_negs"
    click(browser, "document.querySelector('[data-key=family] button')")
    families = [MODELS[name] for name in sorted(MODELS, key=lambda name: (MODELS[name], shown(name).lower()))]
    assert browser.evaluate("[...document.querySelectorAll('tbody td:nth-child(2)')].map(c => c.innerText)") == families
    assert browser.messages == []


def test_filter_and_search(browser, page):
    browser.open(page)
    options = browser.evaluate("[...document.querySelectorAll('#family option')].map(o => o.value)")
    assert options == ["", *sorted(set(MODELS.values()))]
    choose(browser, "family", "clip")
    assert sorted(browser.evaluate(NAMES)) == ["openai/clip-vit-base-patch32", "secret-clip"]
    assert browser.evaluate("document.getElementById('status').innerText") == "2 of 5 models"
    assert len(browser.evaluate(MARKS)) == 2
    choose(browser, "search", "OPENAI")
    assert browser.evaluate(NAMES) == ["openai/clip-vit-base-patch32"]
    choose(browser, "search", "nothing of that name")
    assert browser.evaluate(NAMES) == []
    assert "No model" in browser.evaluate("document.getElementById('plot').innerText")
    choose(browser, "search", "")
    choose(browser, "family", "")
    assert browser.evaluate("document.getElementById('status').innerText") == "5 models"
    assert browser.messages == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_plot_has_each_model_where_it_is(browser, page, runs, width):
    browser.open(page, width=width)
    places = """[...document.querySelectorAll('#plot .mark')].map(e => {
        const own = e.querySelector('.shape').getBoundingClientRect();
        const box = document.querySelector('#plot > svg').getBoundingClientRect();
        return [e.getAttribute('aria-label'), ((own.left + own.right) / 2 - box.left) / box.width,
            (own.top + own.bottom) / 2 - box.top];
    })"""
    for i, (scm, neg) in enumerate((("all_scm", "all_neg"), ("pick5_scm", "pick5_neg"), ("base_scm", "base_neg"))):
        choose(browser, "pair", i)
        found = {
            label.split(", All")[0].split(", Pick5")[0].split(", Base")[0]: place
            for label, *place in browser.evaluate(places)
        }
        assert len(found) == len(runs[1])
        for result in runs[1]:
            x, y = found[shown(result.name)]
            assert x == pytest.approx(result.scores[scm].value, abs=0.005)
            assert (y - 6) / 340 == pytest.approx(1 - result.scores[neg].value, abs=0.006)
        assert browser.evaluate("document.querySelectorAll('#plot line.ci').length") == 2 * len(runs[1])
        lines = browser.evaluate(
            "[...document.querySelectorAll('#plot line.chance')].map(e => [e.getAttribute('x1'), e.getAttribute('y1')])"
        )
        chances = [100 * runs[1][0].scores[key].chance for key in (neg, scm)]
        assert float(lines[0][1]) == pytest.approx(6 + 340 * (1 - chances[0] / 100))
        assert float(lines[1][0][:-1]) == pytest.approx(chances[1], abs=0.001)


def test_a_mark_says_its_model_on_focus_and_under_the_mouse(browser, page):
    browser.open(page, width=390)
    tip = "(() => { const e = document.getElementById('tip'); return e.hidden ? null : e.textContent; })()"
    assert browser.evaluate(tip) is None
    for i in range(len(MODELS)):
        browser.evaluate(f"document.querySelectorAll('#plot .mark')[{i}].focus()")
        text = browser.evaluate(tip)
        assert text.replace("\n", ", ") == browser.evaluate(MARKS)[i]
        box = browser.evaluate("(b => [b.left, b.right])(document.getElementById('tip').getBoundingClientRect())")
        assert box[0] >= 0
        assert box[1] <= 390
        assert browser.evaluate("document.documentElement.scrollWidth") == 390
    press(browser, "Escape")
    assert browser.evaluate(tip) is None
    browser.evaluate("document.activeElement.blur(); document.querySelector('#plot').scrollIntoView()")
    x, y = browser.evaluate(
        "(b => [(b.left + b.right) / 2, (b.top + b.bottom) / 2])"
        "(document.querySelector('#plot .mark .shape').getBoundingClientRect())"
    )
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert browser.evaluate(tip) is not None
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert browser.evaluate(tip) is None


def test_nothing_in_the_data_is_markup(page):
    text = page.read_text()
    assert text.count("</script>") == 2
    data = text[text.index('id="data">') + len('id="data">') :]
    data = data[: data.index("</script>")]
    assert not set("<>&") & set(data)
    assert EVIL in [row["model"] for row in json.loads(data)["rows"]]


def test_the_page_of_a_dataset_reads_the_hub(browser, here, tmp_path, monkeypatch, capsys):  # noqa: F811
    fill(here.store)
    out = tmp_path / "space"
    code, said, err = command.run(
        monkeypatch, capsys, "push", "leaderboard", "owner/board", "--dataset", DATASET, "--dry-run", out
    )
    assert (code, said, err) == (0, f"{out}\n", "")
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "index.html"]
    card = RepoCard.load(out / "README.md").data.to_dict()
    assert (card["sdk"], card["app_file"], card["datasets"]) == ("static", "index.html", [DATASET])
    assert len(card["short_description"]) <= 60
    browser.open(out / "index.html")
    wait_for(browser, "document.querySelectorAll('tbody tr').length === 4")
    assert browser.messages == ["Failed to load resource: the server responded with a status of 401 (Unauthorized)"]
    rows = {row[0][0]: row for row in browser.evaluate(TABLE)}
    for seed, name in enumerate(("owner/clip", "team/flava")):
        _, family, *figures = rows[name]
        assert family == [name.split("/")[1]]
        for cell, score in zip(figures, real_result(name, seed).scores.values(), strict=True):
            assert cell == [percent(score.value), f"{percent(score.ci95[0])} to {percent(score.ci95[1])}"]
    assert rows["else/waiting"][0] == ["else/waiting", "pull request 4"]
    assert rows["else/waiting"][2] == ["77.50", "70.00 to 80.25"]
    assert len(browser.evaluate(MARKS)) == 2
    asked = [call.path for call in here.calls if call.endpoint == "leaderboard"]
    assert asked == [f"/api/datasets/{DATASET}/leaderboard?base_model=false"]


def test_the_page_passes_over_what_is_no_figure(browser, here, tmp_path):  # noqa: F811
    fill(here.store)
    write_strange_values(here.store)
    (tmp_path / "index.html").write_text(leaderboard_html.of_dataset(DATASET))
    browser.open(tmp_path / "index.html")
    wait_for(browser, "document.querySelectorAll('tbody tr').length === 4")
    row = next(row for row in browser.evaluate(TABLE) if row[0][0] == "else/waiting")
    assert [cell[0] for cell in row[1:]] == ["–", *"–" * 5, "50.50", "–"]


@pytest.mark.parametrize(("status", "words"), [(404, "has no leaderboard yet"), (503, "the Hub answers 503")])
def test_the_page_says_what_is_wrong(browser, here, tmp_path, status, words):  # noqa: F811
    here.store.add_repo(DATASET, "dataset", {})
    here.fail("leaderboard", status=status)
    (tmp_path / "index.html").write_text(leaderboard_html.of_dataset(DATASET))
    browser.open(tmp_path / "index.html", width=390)
    wait_for(browser, "document.getElementById('status').className === 'error'")
    assert words in browser.evaluate("document.getElementById('status').innerText")
    assert browser.evaluate("document.documentElement.scrollWidth") == 390


def wait_for(browser, condition):
    deadline = time.monotonic() + 20
    while not browser.evaluate(condition):
        assert time.monotonic() < deadline, (condition, browser.messages)
        time.sleep(0.05)


def test_the_space_is_pushed(here, monkeypatch, capsys):  # noqa: F811
    push = ("push", "leaderboard", "owner/board", "--dataset", DATASET)
    code, out, err = command.run(monkeypatch, capsys, *push)
    assert (code, err) == (0, "")
    assert out.startswith(f"{here.url}/spaces/owner/board")
    repo = here.store.repos["space", "owner/board"]
    assert (repo.sdk, sorted(repo.files())) == ("static", ["README.md", "index.html"])
    for name in ("dci", "../..", "owner/-dci", "öwner/dci"):
        command.refused(command.run(monkeypatch, capsys, *push[:-1], name), "OWNER/NAME")


def test_tests_that_only_stand_beside_the_papers(tmp_path):
    board = leaderboard.Board(
        "x", [leaderboard.Row("a", None, None, None, {"photo_scm_i2t": leaderboard.Figure(50.0)})]
    )
    assert board.tests == ["photo_scm_i2t"]
    assert "Photo SCM" in leaderboard_table.table([board])
    assert "Chance" not in leaderboard_table.table([board])
    assert set(leaderboard.nominal_chance()) == {key for key in TASKS if not key.startswith("photo")}
    assert leaderboard.nominal_chance()["all_scm"] == 12.5


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """Results of summaries, full text and retrieval in one folder: of a model, and of one that reads otherwise."""
    folder = tmp_path_factory.mktemp("kinds")
    for name, reading in (("a", "truncate"), ("b", "sentences-mean")):
        for kind, wanted in {
            "paper": {"tests": ["base_scm"]},
            "full": {"tests": ["full_scm", "full_scm_photo"]},
            "retrieval": {"protocols": ["lotlip", "tulip"] if name == "a" else ["lotlip"]},
        }.items():
            found = dci_metrics.evaluate(
                "sample:tiny-clip", "sample:scenes", split="validation", reading=reading, device="cpu",
                progress=False, **wanted,
            )  # fmt: skip
            found.save(folder / f"{name}-{kind}.json")
    return folder


NAMES_OF_KINDS = {"a": "sample:tiny-clip", "b": "sample:tiny-clip (sentences-mean)"}


def test_a_table_for_each_set_of_tests(kinds, monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, "--results", kinds)
    assert (code, err) == (0, "")
    tables = {block.splitlines()[0].split("  ")[0]: block for block in out.split("\n\n") if "─" in block}
    assert len([block for block in out.split("\n\n") if "─" in block]) == 4
    full = out.partition(", validation): 2 models by Full SCM, in percent\n\n")[2].partition("\n\n")[0]
    retrieval = {key: tables[key].splitlines() for key in ("lotlip", "tulip")}
    assert retrieval["lotlip"][0].split("  ")[-6:] == [f"{d} R@{k}" for d in ("i2t", "t2i") for k in (1, 5, 10)]
    for name, title in NAMES_OF_KINDS.items():
        scores = Result.load(kinds / f"{name}-full.json").scores
        expected = [percent(scores[key].value) for key in ("full_scm", "full_scm_photo")]
        assert next(line for line in full.splitlines() if line.startswith(f"{title}  ")).split()[-2:] == expected
        scores = Result.load(kinds / f"{name}-retrieval.json").scores
        for protocol, lines in retrieval.items():
            row = [line for line in lines if line.startswith(f"{title}  ")]
            assert len(row) == (protocol == "lotlip" or name == "a")
            for line in row:
                keys = [f"{protocol}_{d}_r{k}" for d in ("i2t", "t2i") for k in (1, 5, 10)]
                assert line.split()[-6:] == [percent(scores[key].value) for key in keys]
    photos = Result.load(kinds / "a-retrieval.json").scores["tulip_i2t_r1"].n_images
    assert retrieval["tulip"][-1].split()[:2] == ["chance", f"{100 / photos:.2f}"]


@pytest.mark.parametrize("measure", ["r5", "medr"])
def test_one_test_of_retrieval(kinds, measure, monkeypatch, capsys):
    test = f"lotlip_i2t_{measure}"
    code, out, _ = run(monkeypatch, capsys, "--results", kinds, "--test", test)
    assert code == 0
    assert ("ranks as they are" in out) == (measure == "medr")
    found = {title: Result.load(kinds / f"{n}-retrieval.json").scores[test] for n, title in NAMES_OF_KINDS.items()}
    lines = [line for line in out.splitlines() if line.startswith("sample:tiny-clip  ") or "sentences-mean" in line]
    # A recall is the better the higher, a rank the lower it is.
    order = sorted(found, key=lambda title: found[title].value * (-1 if measure == "r5" else 1))
    assert found[order[0]].value != found[order[1]].value
    for line, title in zip(lines, order, strict=True):
        score = found[title]
        assert line.startswith(title + "  ")
        assert (percent(score.value) if measure == "r5" else f"{score.value:.2f}") in line


def test_the_page_of_full_text_and_of_no_other(kinds, browser, tmp_path, monkeypatch, capsys):
    out = tmp_path / "board.html"

    def write(*names):
        files = [part for name in names for part in ("--results", kinds / f"{name}.json")]
        return run(monkeypatch, capsys, *files, "--html", out)

    retrieval, full = kinds / "a-retrieval.json", kinds / "a-full.json"
    command.refused(write("a-retrieval"), f"{retrieval}: is of retrieval", "dci report")
    command.refused(write("a-paper", "a-full"), f"{full}: is of other tests than {kinds / 'a-paper.json'}")
    assert not out.exists()
    assert write("a-full", "b-full")[0] == 0
    browser.open(out, width=390)
    assert browser.messages == []
    rows = {row[0][0]: row[2:] for row in browser.evaluate(TABLE)}
    for name, title in NAMES_OF_KINDS.items():
        scores = Result.load(kinds / f"{name}-full.json").scores.values()
        assert [cell[0] for cell in rows[title]] == [percent(score.value) for score in scores]
    assert browser.evaluate("document.documentElement.scrollWidth") == 390
    # There is no pair of tests to set against each other.
    assert browser.evaluate("document.getElementById('scatter').offsetHeight") == 0


def test_results_that_cannot_stand_in_a_table(kinds, tmp_path, monkeypatch, capsys):
    known = run(monkeypatch, capsys, "--results", kinds, "--test", "lotlip_i2t_r3")
    command.refused(known, "no test 'lotlip_i2t_r3'", "lotlip, tulip, each as i2t_r1 or", "full_scm")
    result = real_result()
    result.scores = {"later": result.scores["all_scm"]}
    result.outcomes = {"later": result.outcomes["all_scm"]}
    result.save(tmp_path / "later.json")
    command.refused(run(monkeypatch, capsys, "--results", tmp_path), "later.json: has no test of a leaderboard")
