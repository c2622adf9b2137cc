"""`dci demo`: the way from release files to a result file, step by step, on data that comes with the package."""

import shutil
from pathlib import Path

import datasets
import evaluate

import dci_metrics
from dci import ANNOTATIONS_URL, PHOTOS_PAGE, DCIError, Release
from dci_metrics import sample
from dci_metrics.files import refuse_existing
from dci_metrics.hub.folder import build

MODEL = "sample:tiny-clip"

MARK = ".dci-demo"
"""A file in the demo's folder, by which it knows its own."""

NEXT = """\
Next, on the real data:
  1. Put two archives, unopened, into one folder, RELEASE:
     dci.tar.gz from {annotations}
     sa_000138.tar from {photos} (Meta asks you to accept its licence)
  2. dci build RELEASE --out dci --num-proc 8
  3. dci eval openai/clip-vit-base-patch32 --dataset dci --out clip-b32.json"""


def run(name: str, out: Path, force: bool) -> None:
    """Run the demo and print what happens.

    Args:
        name: `scenes` or `photographs`.
        out: Folder to write: `release/`, the built `dci/`, and `result.json`.
        force: Whether an existing folder is replaced.

    Raises:
        DCIError: If there is no such sample, or the folder exists and `force` is off.
    """
    if name not in sample.RELEASES:
        raise DCIError(f"no sample {name!r}: expected {' or '.join(sample.RELEASES)}")
    refuse_existing(out, force)
    if out.exists() or out.is_symlink():
        if out.is_symlink() or not (out / MARK).is_file():
            # A slip of the pen must not remove somebody's files.
            raise DCIError(f"{out}: is not a folder that `dci demo` wrote; choose another one with --out")
        shutil.rmtree(out)
    out.mkdir()
    try:
        (out / MARK).write_text("Written by `dci demo`, which replaces this folder when it is run with --force.\n")
        _run(name, out)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _run(name: str, out: Path) -> None:
    datasets.disable_progress_bars()
    print(f"1. The release's files, as Meta ships them, but made of the sample: {out / 'release'}")
    inner = "densely_captioned_images"
    shutil.copytree(sample.release_folder(sample.PREFIX + name) / inner, out / "release" / inner)

    print(f"2. dci build {out / 'release'} --out {out / 'dci'}")
    print(build(Release(out / "release"), out / "dci", num_proc=2))

    print(f'3. ds = load_dataset("{out / "dci"}", "sdci", split="test")')
    ds = datasets.load_dataset(str(out / "dci"), "sdci", split="test")
    entries = sum(len(row) for row in ds["entries"])
    print(f"   {len(ds)} photos, {entries} entries; the first caption: {ds[0]['entries'][0]['captions'][0]}")

    print(f'4. scm = evaluate.load(dci_metrics.metric_path("dci_scm")); scm.compute(model="{MODEL}", dataset=ds)')
    scm = evaluate.load(dci_metrics.metric_path("dci_scm"))
    scm.compute(model=MODEL, dataset=ds)
    print(scm.result.report())

    scm.result.save(out / "result.json")
    print(f"5. Written: {out / 'result.json'}\n")
    print(NEXT.format(annotations=ANNOTATIONS_URL, photos=PHOTOS_PAGE))
