"""The one place that holds the version; setuptools reads it at build time."""

__version__ = "0.1.0rc1"
