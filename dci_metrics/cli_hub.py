"""The commands that speak with the Hugging Face Hub, or write what is uploaded to it; joined to `dci` by `cli.py`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dci_metrics.terminal import interruptible, quiet_unless_on_terminal

DryRunOption = Annotated[
    Path | None, typer.Option("--dry-run", help="Write what would be uploaded into this folder, and contact nobody.")
]
CreatePrOption = Annotated[bool, typer.Option("--create-pr", help="Open a pull request instead of committing.")]
PrivateOption = Annotated[bool, typer.Option("--private", help="Make a new repo private.")]

push = typer.Typer(help="Upload a dataset, the metric, a model or the leaderboard to the Hub.", no_args_is_help=True)
commands = typer.Typer()
"""Commands beside `push`: decorate with `@commands.command()`, and those of `dci push …` with `@push.command()`."""


@commands.command()
def submit(
    result: Annotated[Path, typer.Argument(help="Result file of `dci eval`, of all tests on DCI's test split.")],
    model: Annotated[str, typer.Option("--model", help="Repo of the model, or of the adapter, that was scored.")],
    dataset_repo: Annotated[
        str | None, typer.Option("--dataset-repo", help="Repo of the benchmark, OWNER/dci, when it was scored locally.")
    ] = None,
    dataset_revision: Annotated[
        str | None, typer.Option("--dataset-revision", help="Its commit; by default the one with the result's data.")
    ] = None,
    dry_run: DryRunOption = None,
) -> None:
    """Open a pull request that writes a result into its model's repo, from where it goes on the leaderboard."""
    with interruptible():
        from dci_metrics.hub import submission

    quiet_unless_on_terminal()
    print(
        submission.submit(result, model, dataset_repo=dataset_repo, dataset_revision=dataset_revision, dry_run=dry_run)
    )


@commands.command()
def leaderboard(
    dataset: Annotated[str | None, typer.Option("--dataset", help="Repo of the benchmark, OWNER/dci.")] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option("--results", help="Result file, or folder of them, instead; may be given again."),
    ] = None,
    test: Annotated[str | None, typer.Option("--test", help="One test, such as all_scm, with its intervals.")] = None,
    sort: Annotated[str | None, typer.Option("--sort", help="Test that the table is sorted by.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="HTML file to write instead of the table.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what exists.")] = False,
) -> None:
    """Show the leaderboard of a benchmark on the Hub, or one of result files, as a table or as an HTML page."""
    from dci import DCIError

    with interruptible():
        from dci_metrics.files import refuse_unwritable, write_whole
        from dci_metrics.hub import leaderboard as module
        from dci_metrics.hub import leaderboard_html, leaderboard_table

    if (dataset is None) == (not results):
        raise DCIError("expected either --dataset OWNER/dci or --results with files or folders")
    if html is not None:
        if test is not None or sort is not None:
            raise DCIError("--test and --sort are of the table; the page has all tests, and sorts by itself")
        refuse_unwritable(html, force)
    quiet_unless_on_terminal()
    boards = [module.from_hub(dataset)] if dataset is not None else module.from_results(results or [])
    if html is None:
        print(leaderboard_table.table(boards, test, sort))
        return
    write_whole(html, leaderboard_html.of_boards(boards).encode(), force)
    print(f"Written: {html}")


@push.command("leaderboard")
def push_leaderboard(
    repo: Annotated[str, typer.Argument(help="Space to make, or to write anew.")],
    dataset: Annotated[str, typer.Option("--dataset", help="Repo of the benchmark, OWNER/dci.")],
    dry_run: DryRunOption = None,
    create_pr: CreatePrOption = False,
    private: PrivateOption = False,
) -> None:
    """Upload the leaderboard's page as a static Space; it reads the Hub's leaderboard when it is opened."""
    with interruptible():
        from dci_metrics.hub import leaderboard_html

    quiet_unless_on_terminal()
    print(leaderboard_html.push(repo, dataset, create_pr=create_pr, private=private, dry_run=dry_run))


@push.command("metric")
def push_metric(
    repo: Annotated[str, typer.Argument(help="Space to make, or to write anew: OWNER/dci_scm or OWNER/dci_retrieval.")],
    dry_run: DryRunOption = None,
    create_pr: CreatePrOption = False,
    private: PrivateOption = False,
) -> None:
    """Upload a metric as a static Space, for evaluate.load("OWNER/dci_scm") without this package."""
    from dci_metrics.hub import metric_space

    quiet_unless_on_terminal()
    print(metric_space.push(repo, create_pr=create_pr, private=private, dry_run=dry_run))


@push.command("dataset")
def push_dataset(
    dataset: Annotated[str, typer.Argument(help="Folder of `dci build`, release folder, or a sample.")],
    repo: Annotated[str, typer.Argument(help="OWNER/NAME; it is made if it is not there.")],
    with_photos: Annotated[
        bool,
        typer.Option(
            "--with-photos-under-sa-1b-licence",
            help="Upload the photos too: the SA-1B licence forbids redistribution, so only with --private.",
        ),
    ] = False,
    dry_run: DryRunOption = None,
    create_pr: CreatePrOption = False,
    private: PrivateOption = False,
    gated: Annotated[bool, typer.Option("--gated", help="Let readers agree to the card's conditions first.")] = False,
) -> None:
    """Upload the dataset: the annotations with the dataset card; `image` is null, for the photos' licence."""
    with interruptible():
        from dci_metrics.hub import dataset_repo
        from dci_metrics.hub.publishing import Destination

    quiet_unless_on_terminal()
    destination = Destination(repo, "dataset", create_pr, private, dry_run, gated=gated)
    print(dataset_repo.push(dataset, destination, with_photos))


@push.command("model")
def push_model(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `dci train`.")],
    repo: Annotated[str, typer.Argument(help="Model repo to make, or to write anew: OWNER/NAME.")],
    dry_run: DryRunOption = None,
    create_pr: CreatePrOption = False,
    private: PrivateOption = False,
    merged: Annotated[
        bool, typer.Option("--merged", help="Upload merged/, the whole model, instead of the adapter.")
    ] = False,
) -> None:
    """Upload what `dci train` made: weights, processor, model card, results and log."""
    with interruptible():
        from dci_metrics.hub import model_repo

    quiet_unless_on_terminal()
    print(model_repo.push(folder, repo, merged=merged, create_pr=create_pr, private=private, dry_run=dry_run))


@commands.command("fetch-photos")
def fetch_photos(
    links: Annotated[Path, typer.Argument(help="List of links that Meta's licence form gives, saved as a text file.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to put sa_000138.tar into.")] = Path(),
) -> None:
    """Download the photos, sa_000138.tar (11 GB); run it again to go on where it was stopped."""
    from dci_metrics import photos

    try:
        print(f"Written: {photos.fetch_photos(links, out)}")
    except KeyboardInterrupt:
        print("Stopped; what has come so far is kept: run the same command again to go on.", file=sys.stderr)
        raise
