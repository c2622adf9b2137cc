"""The README's example and its commands, as a reader would run them."""

import re
import subprocess
import sys
from pathlib import Path

import dci
from dci_metrics import sample
from dci_metrics.hub.folder import build

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_example_prints_what_stands_below_it(tmp_path):
    (tmp_path / "dci-demo").mkdir()
    release = dci.Release(sample.release_folder("sample:scenes", "test"))
    build(release, tmp_path / "dci-demo" / "dci", progress=False)
    example, output = blocks("python")[0], blocks("text")[0]
    run = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == output


def test_a_model_of_ones_own():
    example = next(block for block in blocks("python") if "class MyModel" in block)
    example = example.replace('"my-clip"', repr(str(sample.model_path("sample:tiny-clip"))))
    run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    table = next(block for block in blocks("text") if "right / entries" in block)
    assert run.stdout.splitlines()[1:] == table.splitlines()[1:]


def test_eval_prints_the_readmes_table():
    command = next(line for block in blocks("bash") for line in block.splitlines() if "--dataset sample:scenes" in line)
    run = subprocess.run(
        [sys.executable, "-m", "dci_metrics", *command.split()[1:]], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr

    def without_time(text):
        return re.sub(r" in [\d.]+ s$", "", text, flags=re.MULTILINE)

    assert without_time(run.stdout) == without_time(
        next(block for block in blocks("text") if "right / entries" in block)
    )


def test_what_the_readme_names_is_there():
    for path in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (Path(__file__).parent.parent / path).exists(), path
    for name in re.findall(r"`(sample:[\w-]+)`", README):
        assert sample.model_path(name).is_dir() if name == "sample:tiny-clip" else sample.release_folder(name).is_dir()
