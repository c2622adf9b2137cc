"""The offline double of the Hub, for all tests here."""

from hub_double import here, hub  # noqa: F401
