"""The version of the package, in a module of its own so that setup.cfg reads it without importing torch."""

__version__ = "0.1.0"
