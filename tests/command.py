"""The `dci` command in this process."""

import sys
from typing import Any

import pytest

from dci_metrics import cli


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `dci` with these arguments."""
    monkeypatch.setattr(sys, "argv", ["dci", *map(str, arguments)])
    capsys.readouterr()
    try:
        cli.main()
        code: Any = 0
    except SystemExit as error:
        code = error.code or 0
    return int(code), *capsys.readouterr()


def refused(done: tuple[int, str, str], *parts: str) -> None:
    """Checks that it ended with exit code 2 and one line that holds the parts."""
    code, out, err = done
    assert (code, out) == (2, ""), err
    assert err.startswith("dci: error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err
