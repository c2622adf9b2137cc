"""Models of open_clip where it is not installed, as here; `tests/with_open_clip` is for where it is."""

import sys

import pytest

import dci
from dci_metrics import cli, encoders

HOW = r"models of open_clip need open_clip_torch, which is not installed: pip install 'dci-metrics\[open-clip\]'"


@pytest.fixture(autouse=True)
def _without(monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)


def test_it_is_said_how_to_install_it(tmp_path):
    (tmp_path / "open_clip_config.json").write_text("{}")
    for name in ("open_clip:ViT-B-32/openai", "open_clip:hf-hub:some/thing", tmp_path, f"open_clip:{tmp_path}"):
        with pytest.raises(dci.DCIError, match=HOW):
            encoders.load(name)


def test_in_one_line_on_the_command_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dci", "eval", "open_clip:ViT-B-32/openai", "--dataset", "sample:scenes"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    error = capsys.readouterr().err
    assert error.startswith("dci: error: models of open_clip need open_clip_torch")
    assert error.count("\n") == 1


def test_the_help_tells_of_all_kinds_of_models(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dci", "eval", "--help"])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    text = capsys.readouterr().out
    assert "open_clip:ARCHITECTURE/TAG" in text
    assert "--adapter" in text
    with pytest.raises(dci.DCIError, match="open_clip:…"):
        encoders.load("no/such-model")
    with pytest.raises(dci.DCIError, match="open_clip:…"):
        encoders.load(3)
