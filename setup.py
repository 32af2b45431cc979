"""For tools that call setup.py; everything is stated in pyproject.toml."""

from setuptools import setup

setup()
