"""Style of the pictures of the gallery: readable at the width of a page and of a phone."""

import gc

import matplotlib as mpl


def style(settings: dict, script: str) -> None:
    """Sets Matplotlib's defaults before a script runs."""
    gc.freeze()  # the gallery collects garbage before each script, here without all that was imported
    mpl.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "figure.constrained_layout.use": True,
            "font.size": 11,
            "axes.titlesize": 11.5,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "image.cmap": "viridis",
        }
    )
