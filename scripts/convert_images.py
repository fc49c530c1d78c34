#!/usr/bin/env python3
"""Makes photographs that bnlab does not read (TIFF, WebP, AVIF, BMP, GIF, CMYK), and those of 16 bits, into PNG or JPEG of 8 bits.

A file of another format gets a PNG of the same name beside it; a JPEG or PNG of another kind is replaced. Photographs
are turned upright by their EXIF orientation. Label maps are left to `bnlab labels`: give only folders of photographs.

  .venv/bin/python scripts/convert_images.py mydata/images [--remove]
"""

import argparse
import pathlib
import sys

try:
    from PIL import Image, ImageOps
except ImportError:
    sys.exit("convert_images.py: Pillow is missing; use the Python that scripts/setup.sh set up: "
             ".venv/bin/python scripts/convert_images.py FOLDER")

OTHER = {".tif", ".tiff", ".webp", ".bmp", ".gif", ".avif", ".ppm", ".pgm"}
READ = {".jpg", ".jpeg", ".png"}


def eight_bit_rgb(image, white):
    """Values of more than 8 bits keep their highest 8, or are scaled so that `white` becomes 255."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or image.mode == "I":
        scale = 255 / white if white else 1 / 256
        return image.convert("I").point(lambda value: value * scale).convert("L").convert("RGB")
    return image.convert("RGB")


def sixteen_bits(path):
    """Whether this is a PNG of 16 bits, by its header."""
    start = path.open("rb").read(25)
    return start[:8] == b"\x89PNG\r\n\x1a\n" and start[24] == 16


def convert(path, remove, white=None):
    """The file that was written, or None where bnlab reads this one as it is."""
    with Image.open(path) as image:
        ending = path.suffix.lower()
        usable = image.format in ("JPEG", "PNG") and image.mode != "CMYK" and not sixteen_bits(path)
        if ending in READ and usable:
            return None
        rgb = eight_bit_rgb(image, white)
    target = path if ending in READ else path.with_suffix(".png")
    if target != path and target.exists():
        raise FileExistsError(f"{target} is there already; move one of the two away")
    jpeg = target.suffix.lower() in (".jpg", ".jpeg")
    rgb.save(target, **({"format": "JPEG", "quality": 95, "subsampling": 0} if jpeg else {"format": "PNG"}))
    if remove and target != path:
        path.unlink()
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER", help="searched below, too")
    parser.add_argument("--white", type=int, help="of values of 16 bits the one that becomes 255; larger ones do, too")
    parser.add_argument("--remove", action="store_true", help="remove files whose PNG stands beside them")
    options = parser.parse_args()
    converted = failed = 0
    for folder in options.folders:
        if not folder.is_dir():
            sys.exit(f"convert_images.py: {folder}: expected a folder")
        for path in sorted(folder.rglob("*")):
            if path.name.startswith(".") or path.suffix.lower() not in OTHER | READ:
                continue
            try:
                converted += convert(path, options.remove, options.white) is not None
            except (OSError, ValueError, SyntaxError) as error:
                print(f"convert_images.py: {path}: {error}", file=sys.stderr)
                failed += 1
    print(f"{converted} photographs converted" + (f", {failed} could not be" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
