"""`dci demo`: the way from release files to a result file, step by step, on data that comes with the package."""

import shutil
from pathlib import Path

import datasets
import evaluate

import dci_metrics
from dci import DCIError, Release
from dci_metrics import sample
from dci_metrics.files import refuse_existing
from dci_metrics.hub.folder import build

MODEL = "sample:tiny-clip"

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
    from dci import ANNOTATIONS_URL, PHOTOS_PAGE

    if name not in sample.RELEASES:
        raise DCIError(f"no sample {name!r}: expected {' or '.join(sample.RELEASES)}")
    refuse_existing(out, force)
    steps = ("release", "dci", "result.json")
    if out.is_dir() and (strange := [p.name for p in out.iterdir() if p.name not in steps]):
        raise DCIError(f"{out}: holds {strange[0]}, which no demo wrote; choose another folder with --out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    datasets.disable_progress_bars()

    print(f"1. The release's files, as Meta ships them, but made of the sample: {out / 'release'}")
    shutil.copytree(sample.release_folder(sample.PREFIX + name), out / "release", symlinks=False)

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
