"""The version, which setuptools reads at build time."""

__version__ = "0.1.0rc2"
