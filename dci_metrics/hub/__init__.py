"""Folders and files for the Hugging Face Hub."""
