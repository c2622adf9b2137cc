"""The examples and commands of README and docs, as a reader would run them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dci
from dci_metrics import sample
from dci_metrics.hub.folder import build

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def printed(*command, cwd=None):
    run = subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def table_of_the_readme():
    return next(block for block in blocks("README.md", "text") if "right / entries" in block)


def test_the_readmes_example_prints_what_stands_below_it(tmp_path):
    (tmp_path / "dci-demo").mkdir()
    release = dci.Release(sample.release_folder("sample:scenes", "test"))
    build(release, tmp_path / "dci-demo" / "dci", progress=False)
    example, output = blocks("README.md", "python")[0], blocks("README.md", "text")[0]
    assert printed("-c", example, cwd=tmp_path) == output


def test_the_worked_example_prints_what_stands_below_it(tmp_path):
    (example,), (output,) = blocks("docs/tests.md", "python"), blocks("docs/tests.md", "text")
    assert printed("-c", example, cwd=tmp_path) == output


def test_a_model_of_ones_own():
    (example,) = blocks("docs/models.md", "python")
    example = example.replace('"my-clip"', repr(str(sample.model_path("sample:tiny-clip"))))
    assert printed("-c", example).splitlines()[1:] == table_of_the_readme().splitlines()[1:]


def test_eval_prints_the_readmes_table():
    lines = [line for block in blocks("README.md", "bash") for line in block.splitlines()]
    command = next(line for line in lines if "--dataset sample:scenes" in line)

    def without_time(text):
        return re.sub(r" in [\d.]+ s$", "", text, flags=re.MULTILINE)

    assert without_time(printed("-m", "dci_metrics", *command.split()[1:])) == without_time(table_of_the_readme())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page):
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!http)([^)]+)\)", text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings], link
    for name in re.findall(r"`(sample:[\w-]+)`", text):
        assert sample.model_path(name).is_dir() if name == "sample:tiny-clip" else sample.release_folder(name).is_dir()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_of_a_page_is_there(page):
    """Each `dci …` line of a shell block is asked for its help, which must know the options."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"```(?:bash|console)\n(.*?)```", text, re.DOTALL)
    lines = [line.removeprefix("$ ") for block in found for line in block.splitlines()]
    commands = {}
    for line in lines:
        words = line.split("  #")[0].split()
        if words[:1] == ["dci"] and words[1] != "error:":
            names = words[1:3] if words[1] == "push" else words[1:2]
            commands.setdefault(tuple(names), set()).update(word for word in words if word.startswith("--"))
    helps = {names: printed("-m", "dci_metrics", *names, "--help") for names in commands}
    for names, options in commands.items():
        assert options <= set(re.findall(r"--[\w-]+", helps[names])), (names, options)
