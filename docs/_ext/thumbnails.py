"""Thumbnails of the gallery: squares, large enough to read, from the first picture of a page."""

from pathlib import Path

from PIL import Image, ImageOps
from sphinx.application import Sphinx

RIGHT = ("co2_regions", "hinge_regions", "manifold_importance", "same_forest", "signal")
"""Scripts whose subject is in the right part of a wide picture; of others it is in the left part."""
WIDE = 1.6
"""Ratio of the sides from which a thumbnail is a part of a picture."""
SIDE = 400


def thumbnail(image: Image.Image, right: bool) -> Image.Image:
    """Returns a square: the whole picture on white, or of a wide one its left or right part."""
    image = image.convert("RGB")
    width, height = image.size
    if width < WIDE * height:
        return ImageOps.pad(image, (SIDE, SIDE), color="white")
    left = width - height if right else 0
    return image.crop((left, 0, left + height, height)).resize((SIDE, SIDE))


def write(app: Sphinx) -> None:
    """Writes the thumbnails of all pages."""
    for path in (Path(app.srcdir) / "auto_gallery").rglob("*_thumb.png"):
        name = path.name.removesuffix("_thumb.png")
        picture = path.parents[1] / f"{name}_001.png"
        if picture.is_file():
            with Image.open(picture) as image:
                thumbnail(image, name.removeprefix("sphx_glr_plot_") in RIGHT).save(path)


def setup(app: Sphinx) -> dict[str, bool]:
    """Writes them after the gallery."""
    app.connect("builder-inited", write, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
