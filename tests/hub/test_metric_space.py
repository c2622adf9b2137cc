"""`dci push metric`: the Space loads where this package is not installed, and its page works in a browser."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import command
import fresh_venv
import gradio_app
import numpy as np
import pytest
import torch
from brute_force import GROUP, cosine
from hub_double import here, hub  # noqa: F401
from huggingface_hub import SpaceCard

import dci
import dci_metrics
from dci_metrics import encoders, sample, scoring
from dci_metrics.embeddings import score_embeddings
from dci_metrics.hub import metric_space
from dci_metrics.subcrops import read_photos
from dci_metrics.tasks import TASKS
from dci_metrics.version import __version__

LOAD = """
import json
import sys

import evaluate

try:
    import dci_metrics
except ModuleNotFoundError:
    dci_metrics = None
columns = json.loads(sys.stdin.read())
found = {"package": dci_metrics is not None}
for name in sys.argv[1:]:
    scm = evaluate.load(name)
    scm.add_batch(**columns)
    found[name] = {"scores": scm.compute()}
    found[name]["from"] = sys.modules[type(scm).__module__].score_embeddings.__module__
    try:
        given = {"model": "sample:tiny-clip", "dataset": "sample:photographs", "progress": False, "cache": False}
        found[name]["model"] = scm.compute(**given)
    except Exception as error:
        found[name]["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    """The folder of a dry run; it is called as the metric, which is how `evaluate` knows it."""
    folder = tmp_path_factory.mktemp("space") / "dci_scm"
    assert metric_space.push("owner/dci_scm", dry_run=folder, progress=False) == str(folder)
    return folder


def random_columns(seed, n=45, d=12):
    """Embeddings of entries of all kinds; some texts are equal, so that there are ties."""
    rng = np.random.default_rng(seed)

    def near(vector, noise):
        return (np.array(vector) + noise * rng.normal(size=d)).round(3).tolist()

    words = [near(np.zeros(d), 1) for _ in range(20)]
    found = {name: [] for name in ("image_embeds", "text_embeds", "negative_embeds", "hard_negative_embeds")}
    for _ in range(n):
        topic = near(np.zeros(d), 1)
        captions = [
            near(topic, 0.4) if rng.random() < 0.9 else words[rng.integers(20)] for _ in range(rng.integers(1, 8))
        ]
        found["image_embeds"].append(near(topic, 0.9))
        found["text_embeds"].append(captions)
        for name, share in (("negative_embeds", 0.8), ("hard_negative_embeds", 0.6)):
            negative = captions[0] if rng.random() < 0.1 else near(topic, 0.6)
            found[name].append(negative if rng.random() < share else [])
    keys = ["base" if i % 5 == 0 else f"m-{i}-sc" for i in range(n)]
    left_out = [[rule for rule in ("all", "pick5", "base", "hard") if rng.random() < 0.1] for _ in range(n)]
    return found | {"key": keys, "left_out": left_out}


def brute_force(columns):
    """The seven tests in loops, from the release's rules alone."""

    def unit(vector):
        return (np.array(vector, np.float32).astype(float) / np.linalg.norm(np.array(vector, np.float32))).astype("f4")

    entries = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    scores = {}
    for test in ("all_scm", "all_neg", "pick5_scm", "pick5_neg", "base_scm", "base_neg", "hard_negs"):
        rule, k = test.split("_")[0], 5 if test.startswith("pick5") else 1
        members = [e for e in entries if rule not in e["left_out"] and len(e["text_embeds"]) >= k]
        members = [e for e in members if rule != "base" or e["key"] == "base"]
        column = "hard_negative_embeds" if rule == "hard" else "negative_embeds"
        if not test.endswith("scm"):
            members = [e for e in members if e[column]]
        right = 0
        for i, entry in enumerate(members):
            image, start = unit(entry["image_embeds"]), i - i % GROUP
            own = min(cosine(image, unit(text)) for text in entry["text_embeds"][:k])
            if test.endswith("scm"):
                group = members[start : start + GROUP]
                rivals = [max(cosine(image, unit(text)) for text in e["text_embeds"][:k]) for e in group]
                rivals[i - start] = own
                right += rivals.index(max(rivals)) == i - start
            else:
                right += bool(own > cosine(image, unit(entry[column])))
        scores[test] = right / len(members)
    return scores


def run(python, folder, columns, *names, environment=None):
    folder.mkdir()
    done = subprocess.run(
        [python, "-c", LOAD, *map(str, names)],
        cwd=folder, input=json.dumps(columns), env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.usefixtures("here")
def test_without_the_package_from_a_folder_and_from_the_hub(space, hub, tmp_path):  # noqa: F811
    said = metric_space.push("owner/dci_scm", progress=False)
    assert said.startswith(f"{hub.url}/spaces/owner/dci_scm/commit/")
    repo = hub.store.repos["space", "owner/dci_scm"]
    ours = {path.name: path.read_bytes() for path in space.iterdir()}
    assert {name: content for name, content in repo.files().items() if name != ".gitattributes"} == ours

    columns = random_columns(0)
    environment = fresh_venv.environment(tmp_path / "home") | hub.environment(None) | {"HF_EVALUATE_OFFLINE": "0"}
    python = fresh_venv.make(tmp_path / "venv")
    # Download counts are not the double's: they would go to another server.
    environment |= {"HF_UPDATE_DOWNLOAD_COUNTS": "0"}
    found = run(python, tmp_path / "empty", columns, space, "owner/dci_scm", environment=environment)
    assert found.pop("package") is False
    assert list(found) == [str(space), "owner/dci_scm"]
    expected = brute_force(columns)
    assert all(0 < value < 1 for value in expected.values())
    for loaded in found.values():
        assert loaded["scores"] == pytest.approx(expected, abs=1e-12)
        assert loaded["scores"] == score_embeddings(columns)
        assert loaded["from"].startswith("evaluate_modules.metrics.")
        assert loaded["error"] == (
            "ModuleNotFoundError: scoring a model needs the package dci-metrics (pip install dci-metrics); "
            "embeddings are scored without"
        )
    names = {call.path.rpartition("/")[2] for call in hub.calls if call.endpoint == "resolve" and call.status == 200}
    assert names == {"dci_scm.py", "embeddings.py", "scoring.py", "similarity.py", "tasks.py"}


def test_with_the_package(space, tmp_path):
    columns = random_columns(1)
    source = str(Path(dci_metrics.__file__).parent.parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    found = run(sys.executable, tmp_path / "empty", columns, space, environment=environment)
    assert found.pop("package") is True
    (loaded,) = found.values()
    assert loaded["scores"] == pytest.approx(brute_force(columns), abs=1e-12)
    # Of the package that is there, whatever its version, only models are scored.
    assert loaded["from"].startswith("evaluate_modules.metrics.")
    expected = dci_metrics.evaluate("sample:tiny-clip", "sample:photographs", progress=False, cache=False)
    assert loaded["model"] == expected.values()


def test_what_is_in_the_space(space):
    assert sorted(path.name for path in space.iterdir()) == [
        "README.md", "app.py", "dci_scm.py", "embeddings.py", "index.html", "requirements.txt", "scoring.py",
        "similarity.py", "tasks.py",
    ]  # fmt: skip
    card = SpaceCard.load(space / "README.md")
    assert (card.data.sdk, card.data.app_file, card.data.tags) == ("static", "index.html", ["evaluate", "metric"])
    assert card.data.title == "DCI Subcrop-Caption Matching"
    assert card.data.license == "apache-2.0"
    assert len(card.data.short_description) <= 60  # the Hub's limit
    for path in space.iterdir():
        text = path.read_text("utf-8")
        assert "you/dci_scm" not in text
        if path.name in ("README.md", "dci_scm.py", "index.html"):
            assert 'evaluate.load("owner/dci_scm")' in text
        if path.suffix == ".py":
            assert text.startswith(("# A copy of dci_metrics/" + path.name, "# A copy of dci_metrics/dci_scm/"))
            assert f"of dci-metrics {__version__}, made by `dci push metric`" in text.splitlines()[0]


def test_copies_differ_from_the_package_in_their_imports_alone(space):
    package = Path(dci_metrics.__file__).parent
    for name in ("embeddings", "scoring", "similarity", "tasks"):
        copied = (space / f"{name}.py").read_text("utf-8").splitlines()[2:]
        source = (package / f"{name}.py").read_text("utf-8").splitlines()
        changed = [(ours, theirs) for ours, theirs in zip(source, copied, strict=True) if ours != theirs]
        assert all(re.sub(r"from dci_metrics(\.| )", r"from .\1", a).replace("..", ".") == b for a, b in changed)
    outside = {"__future__", "datasets", "evaluate", "gradio", "numpy", "torch", *sys.stdlib_module_names}
    beside = {"embeddings", "scoring", "similarity", "tasks"}
    for path in space.glob("*.py"):
        # What runs when the file is loaded; `dci_scm` looks for the package only when a model is scored.
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= outside, path
                assert len(node.names) == 1
            elif isinstance(node, ast.ImportFrom) and (node.level or path.name == "app.py"):
                named = [node.module] if node.module else [alias.name for alias in node.names]
                assert {name.split(".")[0] for name in named} <= beside | outside, path
            elif isinstance(node, ast.ImportFrom):
                assert node.module.split(".")[0] in outside, path


def test_the_command_and_what_it_refuses(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "dci_scm"
    done = command.run(monkeypatch, capsys, "push", "metric", "me/dci_scm", "--dry-run", folder)
    assert done == (0, f"{folder}\n", "")
    assert 'evaluate.load("me/dci_scm")' in (folder / "README.md").read_text("utf-8")
    for name in ("me/metric", "me/dci-scm"):
        done = command.run(monkeypatch, capsys, "push", "metric", name, "--dry-run", tmp_path / "other")
        message = "a file of the Space's name; call it dci_scm or dci_retrieval, as OWNER/dci_scm"
        command.refused(done, f"{name}: ", message)
    done = command.run(monkeypatch, capsys, "push", "metric", "me too/dci_scm", "--dry-run", tmp_path / "other")
    command.refused(done, "me too/dci_scm: is no name of a repo")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_and_asks_for_nothing(browser, space, width, dark):
    browser.open(space / "index.html", width=width, dark=dark)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    # What is wider scrolls in a box of its own, with the keyboard too.
    assert browser.evaluate(
        "[...document.querySelectorAll('body *')].filter((e) => !e.closest('.wide, pre') && "
        "e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"
    ) == []  # fmt: skip
    assert browser.evaluate("[...document.querySelectorAll('.wide, pre')].every((e) => e.tabIndex === 0)")
    assert browser.messages == []
    assert [url for url in browser.requests if not url.startswith("file:")] == []
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(22, 24, 27)" if dark else "rgb(255, 255, 255)"
    )
    # Every field has a name that says which image and which caption it is of, and so has every picture.
    labels = browser.evaluate("[...document.querySelectorAll('#scores input')].map((e) => e.ariaLabel)")
    assert len(set(labels)) == len(labels) == 72
    assert browser.evaluate("[...document.querySelectorAll('#scores img')].every((e) => e.alt && e.naturalWidth > 20)")


def shown(browser):
    """The verdicts as read, and both totals."""
    rows = browser.evaluate(
        "[...document.querySelectorAll('#scores tbody tr')].map((r) => [1, 2].map((i) => r.cells[i].textContent))"
    )
    totals = [browser.evaluate(f"document.getElementById('{name}').textContent") for name in ("scm", "neg")]
    return rows, totals


def test_the_example_is_what_the_samples_model_gives(browser, space):
    """Its numbers, captions and verdicts are those of a group of the sample's test split."""
    browser.open(space / "index.html")
    example = browser.evaluate("example")
    release = dci.Release(sample.release_folder("sample:scenes", "test"))
    wanted = [tuple(entry["id"]) for entry in example["entries"]]
    entries, crops, place = [], [], 0
    for photo in read_photos(release.rows("test", "sdci", masks=False)):
        taken = [entry for entry in photo.entries if TASKS["all_scm"].takes(entry)]
        inside = [entry for entry in taken if (entry.image_id, entry.key) in wanted]
        if inside and not entries:
            # It is a group of the test, not any eight entries.
            assert (place + taken.index(inside[0])) % GROUP == 0
        place += len(taken)
        entries += inside
        crops += photo.crops(inside)
        if len(entries) == len(wanted):
            break
    assert [(entry.image_id, entry.key) for entry in entries] == wanted
    assert [entry["caption"] for entry in example["entries"]] == [entry.captions[0] for entry in entries]
    assert [entry["negative"] for entry in example["entries"]] == [entry.first_swap for entry in entries]
    encoder = encoders.load("sample:tiny-clip", device="cpu")

    def embed(texts):
        return torch.nn.functional.normalize(encoder.encode_texts(texts).double(), dim=-1)

    images = torch.nn.functional.normalize(encoder.encode_images(crops).double(), dim=-1)
    similarity = images @ embed([entry.captions[0] for entry in entries]).T
    negative = (images * embed([entry.first_swap for entry in entries])).sum(-1)
    assert torch.tensor(example["scores"]).numpy() == pytest.approx(similarity.numpy(), abs=0.00501)
    assert torch.tensor(example["negatives"]).numpy() == pytest.approx(negative.numpy(), abs=0.00501)
    # What two decimals show is what all decimals give.
    matched = scoring.match_within_group(similarity[:, :, None]).correct.tolist()
    beaten = (similarity.diagonal() > negative).tolist()
    word = {True: "✓ right", False: "✗ wrong"}
    rows, totals = shown(browser)
    assert rows == [[word[scm], word[neg]] for scm, neg in zip(matched, beaten, strict=True)]
    assert totals == [f"{sum(matched)} of 8", f"{sum(beaten)} of 8"]
    # The pictures are those crops, made small.
    ratios = browser.evaluate(
        "[...document.querySelectorAll('#scores img')].map((e) => e.naturalWidth/e.naturalHeight)"
    )
    assert ratios == pytest.approx([crop.width / crop.height for crop in crops], rel=0.05)


def paste(browser, text):
    browser.evaluate(f"document.getElementById('paste').value = {json.dumps(text)}")
    browser.evaluate("document.getElementById('apply').click()")
    return browser.evaluate("document.getElementById('error').textContent")


def test_pasted_numbers_are_judged_as_the_package_does(browser, space):
    browser.open(space / "index.html")
    rng = np.random.default_rng(5)
    word = {True: "✓ right", False: "✗ wrong"}
    separators = (" ", "\t", ", ", ";")
    for i, g in enumerate((8, 8, 8, 8, 5, 2, 1)):
        # Few different numbers, so that there are ties.
        scores, negatives = rng.integers(0, 5, (g, g)) / 8, rng.integers(0, 5, g) / 8
        rows = [[*row, negative] for row, negative in zip(scores.tolist(), negatives.tolist(), strict=True)]
        separator = separators[i % 4]
        assert paste(browser, "\n".join(separator.join(map(str, row)) for row in rows)) == ""
        matched = scoring.match_within_group(torch.tensor(scores)[:, :, None]).correct.tolist()
        beaten = scoring.beat_negative(
            torch.tensor(scores).diagonal()[:, None], torch.tensor(negatives)
        ).correct.tolist()
        verdicts, totals = shown(browser)
        assert verdicts == [[word[scm], word[neg]] for scm, neg in zip(matched, beaten, strict=True)]
        assert totals == [f"{sum(matched)} of {g}", f"{sum(beaten)} of {g}"]
    # Without negatives.
    assert paste(browser, "0.2 0.1\n0.4 0.3") == ""
    assert shown(browser) == ([["✓ right", "–"], ["✗ wrong", "–"]], ["1 of 2", "–"])
    assert browser.messages == []


def test_a_changed_number_changes_the_verdict(browser, space):
    browser.open(space / "index.html")
    before, _ = shown(browser)

    def enter(row, column, text):
        browser.evaluate(
            f"(() => {{ const field = document.querySelectorAll('#scores tbody tr')[{row}].querySelectorAll('input')"
            f"[{column}]; field.value = {json.dumps(text)}; field.dispatchEvent(new Event('input')); }})()"
        )

    enter(1, 1, "0.99")
    after, totals = shown(browser)
    assert (before[1], after[1]) == (["✗ wrong", "✓ right"], ["✓ right", "✓ right"])
    assert totals == ["4 of 8", "4 of 8"]
    enter(1, 8, "0.99")  # equal to its negative: wrong
    assert shown(browser)[0][1] == ["✓ right", "✗ wrong"]
    enter(1, 0, "much")
    assert shown(browser) == ([*after[:1], ["–", "✗ wrong"], *after[2:]], ["3 of 7", "3 of 8"])
    assert browser.evaluate("document.querySelectorAll('#scores [aria-invalid=true]').length") == 1
    browser.evaluate("document.getElementById('random').click()")
    assert browser.evaluate("document.querySelectorAll('#scores img').length") == 0
    browser.evaluate("document.getElementById('example').click()")
    assert shown(browser)[0] == before
    assert browser.messages == []


def test_what_the_page_refuses(browser, space):
    browser.open(space / "index.html")
    before = shown(browser)
    for text, message in (
        ("", "Expected 1 to 8 rows, got 0."),
        ("1\n" * 9, "Expected 1 to 8 rows, got 9."),
        ("1 2 3 4\n1 2 3 4", "Row 1 has 4 numbers; with 2 rows, expected 2, or 3 with the negative."),
        ("1 2 3\n1 2", "Row 2 has 2 numbers, row 1 has 3; expected the same."),
        ("1 2\n3 <b>", "Row 2: “<b>” is not a number."),
        ("1 2\n3 Infinity", "Row 2: “Infinity” is not a number."),
    ):
        assert paste(browser, text) == message
        assert shown(browser) == before
    assert browser.messages == []


class RefusedError(Exception):
    def __init__(self, message, print_exception=True):
        super().__init__(message)


@pytest.fixture
def app(space, monkeypatch):
    """The app's functions; Gradio, which is not among the package's dependencies, only makes their page."""
    monkeypatch.setitem(sys.modules, "gradio", types.SimpleNamespace(Error=RefusedError))
    monkeypatch.syspath_prepend(str(space))
    for name in ("scoring", "tasks", "embeddings"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_file_location("app_of_the_space", space / "app.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_apps_functions(app, tmp_path):
    columns = random_columns(2)
    expected = [[test, f"{100 * score:.2f}"] for test, score in brute_force(columns).items()]
    assert app.score_embeddings(json.dumps(columns), None) == expected
    (tmp_path / "c.json").write_text(json.dumps(columns))
    assert app.score_embeddings("", str(tmp_path / "c.json")) == expected
    assert app.score_embeddings(app.EXAMPLE_EMBEDDINGS, None)[0] == ["all_scm", "33.33"]
    assert app.score_similarities("0.2 0.1\n0.4 0.3") == ("SCM 1 of 2", [["1", "right", "–"], ["2", "wrong", "–"]])
    rng = np.random.default_rng(3)
    table = rng.integers(0, 9, (19, 20)) / 16
    summary, rows = app.score_similarities("\n".join(", ".join(map(str, row)) for row in table))
    best = [int(table[i, i - i % 8 : min(19, i - i % 8 + 8)].argmax()) == i % 8 for i in range(19)]
    assert [row[1] for row in rows] == ["right" if one else "wrong" for one in best]
    assert [row[2] for row in rows] == ["right" if table[i, i] > table[i, 19] else "wrong" for i in range(19)]
    assert summary == f"SCM {sum(best)} of 19, Neg {sum(table[i, i] > table[i, 19] for i in range(19))} of 19"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Not valid JSON"),
        ("[]", "JSON object with some of image_embeds"),
        # A visitor must not make the server load what he names.
        ('{"model": "sample:tiny-clip", "dataset": "sample:photographs"}', "JSON object with some of image_embeds"),
        ('{"image_embeds": [[1, 0]], "text_embeds": [[[0, 0]]]}', "text_embeds: an embedding is zero"),
    ],
)
def test_embeddings_that_the_app_refuses(app, text, message):
    with pytest.raises(RefusedError, match=message):
        app.score_embeddings(text, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"rows \(0\)"),
        ("1 2 3", r"rows \(1\)"),
        ("1 2\n3", r"rows \(2\)"),
        ("a", "not a number"),
        ("nan", "finite"),
    ],
)
def test_similarities_that_the_app_refuses(app, text, message):
    with pytest.raises(RefusedError, match=f"(?i){message}"):
        app.score_similarities(text)


def test_the_app_answers(space, tmp_path):
    columns = random_columns(4)
    asked = [("/score_embeddings", [json.dumps(columns), None]), ("/score_similarities", ["0.2 0.1\n0.4 0.3"])]
    scores, (summary, _) = gradio_app.ask(space, tmp_path, asked)
    assert scores["data"] == [[test, f"{100 * score:.2f}"] for test, score in brute_force(columns).items()]
    assert summary == "SCM 1 of 2"
