"""A finished run of `dci train` as a model repo: weights, processor, card, results, and what made it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import HfApi, ModelCard

from dci import DCIError
from dci_metrics import sample
from dci_metrics.encoders import adapters
from dci_metrics.hub import eval_file, eval_results, model_files
from dci_metrics.hub.publishing import Destination, link, publish
from dci_metrics.hub.refusals import in_one_line
from dci_metrics.hub.repo_files import text_of
from dci_metrics.hub.session import patient, trying
from dci_metrics.results import Result
from dci_metrics.training import folder as run_folder
from dci_metrics.training.card import PLOTS

SUFFIXES = (".safetensors", ".json", ".txt", ".model", ".jinja", ".py")
"""Of the files that transformers and PEFT write; others, such as a report with crops of photos, are the user's own."""

REPLACES = ("adapter_*", "config.json", "model*.safetensors*", f"{run_folder.LOGS}/*", f"{PLOTS}/*")
"""Files in the repo that go when they are not among the new ones: an adapter's would win over a merged model's."""


@dataclass(frozen=True)
class Run:
    """A finished run, as it is to be pushed.

    Attributes:
        folder: Of the run.
        repo: Where it goes.
        merged: Whether the whole model goes there instead of the adapter.
        model: The base model, as the run was given it.
        datasets: What it was trained and tested on, likewise.
        card: Its README.
        after: Its result.
    """

    folder: Path
    repo: str
    merged: bool
    model: str
    datasets: tuple[str, ...]
    card: ModelCard
    after: Result

    @property
    def has_adapter(self) -> bool:
        """Whether the run trained an adapter, and not all weights."""
        return (self.folder / adapters.CONFIG).is_file()

    @property
    def is_adapter(self) -> bool:
        """Whether an adapter is pushed."""
        return self.has_adapter and not self.merged

    @property
    def has_public_base(self) -> bool:
        """Whether others can load the base model: by its Hub id, or from this package."""
        return self.model.startswith(sample.PREFIX) or self.card.data.get("base_model") == self.model

    @property
    def names(self) -> dict[str, str]:
        """What is not to be told of this machine, and what stands for it."""
        here = {self.after.model["id"], self.after.model.get("adapter"), str(self.folder), str(self.folder.resolve())}
        found = {name: self.repo for name in here if name and name != self.model}
        for name in (*self.datasets, *([] if self.has_public_base else [self.model])):
            kind, colon, path = name.rpartition(":")
            if eval_results.is_local(path) or path.startswith("~"):
                found[name] = f"{kind}{colon}{Path(path).name}"
        return found


def push(
    folder: Path,
    repo: str,
    *,
    merged: bool = False,
    create_pr: bool = False,
    private: bool = False,
    dry_run: Path | None = None,
    progress: bool = True,
) -> str:
    """Upload what a run of `dci train` made.

    Args:
        folder: Of the run.
        repo: `owner/name`.
        merged: Upload `merged/`, the whole model, instead of the adapter.
        create_pr: Whether it becomes a pull request.
        private: Whether a repo that is made for it is private.
        dry_run: A folder to write instead.
        progress: Whether to show it.

    Returns:
        The address of the commit or pull request, or the folder of a dry run; below it, what was left out, and why.

    Raises:
        DCIError: If there is no finished run, nobody else could load the model, something in it names a folder of this
            machine, or as `publish`.
    """
    destination = Destination(repo, "model", create_pr=create_pr, private=private, dry_run=dry_run)
    run = _read(folder, repo, merged)
    left_out = list(_left_out(run))
    message = f"Upload a model fine-tuned with dci-metrics, preset {_preset(run)}"
    address = publish(lambda out: write(out, run, dry_run is None), destination, message, progress, REPLACES)
    return "\n".join([address, *left_out])


def write(out: Path, run: Run, online: bool) -> None:
    """Write the files of the repo into a folder.

    Args:
        out: Is there, and empty.
        run: What goes there.
        online: Whether the repo is asked for results that it has already.
    """
    for path in _files(run):
        target = out / path.name
        if path.suffix == ".safetensors":
            link(path, target)
        else:
            target.write_bytes(model_files.public(path, run.names))
    (out / "README.md").write_text(model_files.card(run.card, run, run.names), "utf-8", newline="\n")
    (out / run_folder.AFTER).write_text(_result_of_repo(run).to_json(), "utf-8")
    if run.is_adapter:
        _name_base(out / adapters.CONFIG, run.model)
    _copy_plots_and_logs(out, run)
    if _no_entries(run) is None:
        (out / eval_results.FILE).parent.mkdir()
        (out / eval_results.FILE).write_text(_entries(run, online), "utf-8")
    model_files.refuse_paths(out, run.folder)


# -- what is refused


def _read(folder: Path, repo: str, merged: bool) -> Run:
    _check(folder, merged)
    try:
        asked = yaml.safe_load((folder / run_folder.CONFIG).read_text("utf-8"))
        model, *datasets = (str(asked[key]) for key in ("model", "dataset", "test_dataset"))
        card = ModelCard.load(folder / "README.md")
    # What its author, or the Hub's parser, stumbles over.
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise DCIError(f"{folder}: {run_folder.CONFIG} or README.md cannot be read ({why})") from error
    run = Run(folder, repo, merged, model, tuple(datasets), card, Result.load(folder / run_folder.AFTER))
    if merged and not run.has_adapter:
        raise DCIError(f"{folder}: all weights were trained, so the whole model is pushed anyway; leave --merged out")
    if run.is_adapter and not run.has_public_base:
        raise DCIError(
            f"{folder}: the adapter is over {run.model}, a folder of this machine, so nobody else could load it; push "
            "the whole model with --merged (`dci train --export-merged` writes it), or train on a Hub id"
        )
    return run


def _check(folder: Path, merged: bool) -> None:
    if not folder.is_dir():
        raise DCIError(f"{folder}: is no folder; expected one that `dci train` wrote")
    seeds = sorted(path.parent for path in folder.glob(f"seed-*/{run_folder.CONFIG}"))
    if seeds:
        raise DCIError(f"{folder}: holds the runs of several seeds; push one of them, such as {seeds[0]}")
    if not (folder / run_folder.CONFIG).is_file():
        raise DCIError(f"{folder}: has no {run_folder.CONFIG}; expected a folder that `dci train` wrote")
    if not run_folder.is_finished(folder) or not (folder / "README.md").is_file():
        raise DCIError(f"{folder}: holds a run that is not finished; go on with `dci train --resume`")
    if merged and not (folder / run_folder.MERGED / "config.json").is_file() and (folder / adapters.CONFIG).is_file():
        raise DCIError(f"{folder}: has no {run_folder.MERGED}/; `dci train --export-merged` writes it")


# -- what is written


def _files(run: Run) -> Iterator[Path]:
    """Weights, processor and configuration, and what tells of the run."""
    weights = run.folder / run_folder.MERGED if run.merged else run.folder
    found = {path.name: path for path in sorted(weights.iterdir()) if path.is_file() and path.suffix in SUFFIXES}
    told = (run_folder.CONFIG, run_folder.BEFORE, "training_log.json")
    found |= {name: run.folder / name for name in told if (run.folder / name).is_file()}
    return (path for name, path in found.items() if not name.startswith(".") and name != run_folder.AFTER)


def _name_base(path: Path, model: str) -> None:
    config = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(config | {"base_model_name_or_path": model}, indent=2) + "\n", "utf-8")


def _copy_plots_and_logs(out: Path, run: Run) -> None:
    plots = sorted((run.folder / PLOTS).glob("*.png"))
    if plots:
        (out / PLOTS).mkdir()
    for path in plots:
        (out / PLOTS / path.name).write_bytes(path.read_bytes())
    logs = sorted((run.folder / run_folder.LOGS).glob("events.out.tfevents.*"))
    if logs and model_files.can_read_logs():
        (out / run_folder.LOGS).mkdir()
        for number, path in enumerate(logs):
            model_files.copy_scalars(path, out / run_folder.LOGS / f"events.out.tfevents.{number}.dci")


# -- results


def _result_of_repo(run: Run) -> Result:
    """The result, of the repo instead of the folder."""
    data = json.loads(model_files.replaced(run.after.to_json(), run.names))
    model: dict[str, Any] = run.after.model
    changed = {"adapter": run.repo} if model.get("adapter") else {"id": run.repo}
    if model.get("adapter_base") and not run.has_public_base:
        changed["adapter_base"] = Path(run.model).name
    return replace(run.after, model=data["model"] | changed, dataset=data["dataset"])


def _no_entries(run: Run) -> str | None:
    """Why the repo gets no entries for the leaderboard."""
    path = run.folder / run_folder.AFTER
    if run.merged:
        return "is of the adapter, not of the merged weights; score those, and submit that with `dci submit`"
    # Here still with the name of the dataset as it was given.
    result = replace(_result_of_repo(run), dataset=run.after.dataset)
    why = eval_results.refusal(result, run.repo)
    dataset, revision = str(result.dataset["id"]), str(result.dataset["revision"])
    if why is None and not (eval_results.HUB_ID.fullmatch(dataset) and eval_results.COMMIT.fullmatch(revision)):
        why = (
            f"is of {dataset}, which is at no commit on the Hub; add it with "
            f"`dci submit {path} --model {run.repo} --dataset-repo OWNER/dci`"
        )
    return why


def _entries(run: Run, online: bool) -> str:
    result, path = _result_of_repo(run), run.folder / run_folder.AFTER
    dataset, revision = str(run.after.dataset["id"]), str(run.after.dataset["revision"])
    new = eval_results.entries(result, dataset, revision, eval_results.date_of(path))
    known = _known_entries(run.repo) if online else None
    return eval_file.merge(known, new, f"{run.repo}: {eval_results.FILE}") or known or ""


def _known_entries(repo: str) -> str | None:
    """The file that the repo has already: others may have put their results into it."""
    with in_one_line(repo, "model"), patient():
        if not trying(lambda: HfApi().file_exists(repo, eval_results.FILE)):
            return None
        return trying(lambda: text_of(repo, eval_results.FILE))


def _left_out(run: Run) -> Iterator[str]:
    why = _no_entries(run)
    if why is not None:
        yield f"Without {eval_results.FILE}: {run_folder.AFTER} {why}"
    if not run.card.data.get("license"):
        yield "Without a licence: the base model's card names none; name it in README.md"
    if (run.folder / run_folder.LOGS).is_dir() and not model_files.can_read_logs():
        yield f"Without {run_folder.LOGS}/: they are read with TensorBoard (pip install 'dci-metrics[train]')"


def _preset(run: Run) -> str:
    return str(yaml.safe_load((run.folder / run_folder.CONFIG).read_text("utf-8")).get("preset"))
