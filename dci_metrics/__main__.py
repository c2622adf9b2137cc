"""`python -m dci_metrics` is the `dci` command."""

from dci_metrics.cli import main

if __name__ == "__main__":
    main()
