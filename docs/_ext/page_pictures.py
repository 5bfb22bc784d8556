"""Writes the pictures of the pages from scripts of the gallery, for readers of the sources.

    python docs/_ext/page_pictures.py                 # or with names of scripts

Each picture holds a digest of its script and of the records that the script reads, which the tests compare.
"""

import hashlib
import io
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
PICTURES = DOCS / "pictures"
SCRIPTS = (
    "same_forest", "claims", "speed", "speed_hinge", "speed_tables", "invalid_tests", "repeated", "becoming",
)  # fmt: skip
COLORS, INTERVAL = 96, 250
"""Colors of an animated picture, and milliseconds for which each of its pictures is shown."""


def path_of(script: str) -> Path:
    """Returns the file of a script of the gallery."""
    return next((DOCS / "gallery").rglob(f"plot_{script}.py"))


def digest(script: str) -> str:
    """Returns the digest of the text of a script of the gallery and of the records that it names."""
    text = path_of(script).read_bytes()
    for name in sorted(set(re.findall(rb'"(\w+\.json)"', text))):
        text += (DOCS.parent / "bench" / "results" / name.decode()).read_bytes()
    return hashlib.sha256(text).hexdigest()


def digest_of(picture: Path) -> str:
    """Returns the digest of its script that a PNG contains."""
    data, at = picture.read_bytes(), 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        if zlib.crc32(kind + body) != struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0]:
            raise ValueError(f"{picture.name}: expected a whole PNG, a chunk at byte {at} is damaged")
        if kind == b"tEXt" and body.startswith(b"digest\0"):
            return body.removeprefix(b"digest\0").decode()
        at += 12 + size
    return ""


def save_animated(names: dict[str, Any], path: Path, digest: str) -> None:
    """Writes the pictures that ``draw`` of a script draws on ``fig``, as one PNG."""
    from PIL import Image, PngImagePlugin

    pictures = []
    for frame in range(len(names["history"])):
        names["draw"](frame)
        names["fig"].savefig(file := io.BytesIO())
        pictures.append(Image.open(file).convert("RGB"))
    width, height = pictures[0].size
    together = Image.new("RGB", (width, height * len(pictures)))
    for frame, picture in enumerate(pictures):
        together.paste(picture, (0, height * frame))
    palette = together.quantize(COLORS)
    pictures = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    text = PngImagePlugin.PngInfo()
    text.add_text("digest", digest)
    pictures[0].save(
        path, save_all=True, append_images=pictures[1:], duration=INTERVAL, pnginfo=text, optimize=True
    )


def main() -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from pictures import style

    PICTURES.mkdir(exist_ok=True)
    for script in sys.argv[1:] or SCRIPTS:
        plt.close("all")
        style({}, script)
        path = path_of(script)
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
        if "draw" in names:
            save_animated(names, PICTURES / f"{script}.png", digest(script))
            continue
        for n in plt.get_fignums():
            name = f"{script}_{n}.png" if len(plt.get_fignums()) > 1 else f"{script}.png"
            plt.figure(n).savefig(PICTURES / name, metadata={"digest": digest(script)})
            print(PICTURES / name)


if __name__ == "__main__":
    main()
