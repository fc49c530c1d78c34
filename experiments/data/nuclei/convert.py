"""Makes this folder: the Data Science Bowl 2018 nuclei with corrected masks (CC0), at half size, in tiles, three classes.

  python3 convert.py STAGE1_TRAIN OUT          needs numpy and Pillow

SPLIT/images/ID_K.jpg (RGB or grey, JPEG of quality 92) and SPLIT/labels/ID_K.png (palette: 0 background, 1 inside of a
nucleus, 2 its rim: pixels of a nucleus within two pixels, at full size, of its outside or of another nucleus), all
128x128, up to four tiles of an image, spread evenly. index.csv: name, image, kind of microscopy, nuclei in the image,
brightness of the tile, split. A label is the highest class of its 2x2 block (rim before inside before background).
"""
import csv, os, sys
import numpy as np
from PIL import Image

TILE = 128

def rim(ids):
    edge = np.zeros(ids.shape, bool)
    p = np.pad(ids, 1, mode="edge")
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            edge |= p[1 + dy:1 + dy + ids.shape[0], 1 + dx:1 + dx + ids.shape[1]] != ids
    wide, q = edge.copy(), np.pad(edge, 1)
    for dy, dx in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        wide |= q[1 + dy:1 + dy + ids.shape[0], 1 + dx:1 + dx + ids.shape[1]]
    return wide & (ids > 0)

def starts(length):
    """Of one tile in the middle, or of two at the ends."""
    return [(length - TILE) // 2] if length < 2 * TILE else [0, length - TILE]

def main(source, out):
    for split in ("train", "test"):
        for kind in ("images", "labels"):
            os.makedirs(os.path.join(out, split, kind), exist_ok=True)
    rows = []
    for name in sorted(os.listdir(source)):
        folder = os.path.join(source, name)
        image = Image.open(os.path.join(folder, "images", name + ".png")).convert("RGB")
        ids, count = np.zeros((image.height, image.width), np.int32), 0
        for mask in sorted(os.listdir(os.path.join(folder, "masks"))):
            if not mask.endswith(".png"):
                continue
            inside = np.asarray(Image.open(os.path.join(folder, "masks", mask)).convert("L")) > 127
            if inside.shape != ids.shape:
                sys.exit("shape differs: %s %s" % (name, mask))
            count += 1
            ids[inside] = count
        h, w = image.height // 2 * 2, image.width // 2 * 2
        full = np.where(rim(ids), 2, (ids > 0).astype(np.uint8)).astype(np.uint8)[:h, :w]
        label = full.reshape(h // 2, 2, w // 2, 2).max((1, 3))
        pixels = np.asarray(image, np.float32) / 255
        colour, bright = float((pixels.max(2) - pixels.min(2)).mean()), float(pixels.mean())
        kind = "histology" if colour > 0.02 else "brightfield" if bright > 0.5 else "fluorescence"
        split = "test" if int(name[:8], 16) % 5 == 0 else "train"
        small = image.crop((0, 0, w, h)).resize((w // 2, h // 2), Image.BOX)
        small = small.convert("L") if colour == 0 else small
        for k, (y, x) in enumerate((y, x) for y in starts(h // 2) for x in starts(w // 2)):
            tile = "%s_%d" % (name[:12], k)
            piece = small.crop((x, y, x + TILE, y + TILE))
            piece.save(os.path.join(out, split, "images", tile + ".jpg"), quality=92)
            picture = Image.fromarray(label[y:y + TILE, x:x + TILE])
            picture = picture.convert("P") if picture.mode != "P" else picture
            picture.putpalette([0, 0, 0, 80, 160, 240, 250, 200, 60])
            picture.save(os.path.join(out, split, "labels", tile + ".png"), optimize=True, bits=2)
            rows.append((tile, name[:12], kind, count, round(float(np.asarray(piece.convert("L"), np.float32).mean()) / 255, 4),
                         split))
    with open(os.path.join(out, "index.csv"), "w", newline="") as f:
        csv.writer(f).writerows([("name", "image", "kind", "nuclei", "brightness", "split"), *rows])

main(*sys.argv[1:])
