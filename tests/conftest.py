"""Shared by all tests: this file's folder goes on the import path, so that every test finds `release_maker`."""
