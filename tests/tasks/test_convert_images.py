#!/usr/bin/env python3
"""scripts/convert_images.py: what bnlab refuses is made into what it reads; the rest stays as it is."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/convert_images.py"
try:
    from PIL import Image
except ImportError:
    Image = None


@unittest.skipIf(Image is None, "Pillow is missing; scripts/setup.sh brings it with matplotlib")
class ConvertedImages(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.rgb = Image.new("RGB", (4, 2), (200, 40, 10))
        self.rgb.putpixel((0, 0), (0, 250, 0))

    def convert(self, *words, code=0):
        done = subprocess.run([sys.executable, SCRIPT, self.folder, *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout + done.stderr

    def test_other_formats_get_a_png_beside_them(self):
        for ending in ("tif", "webp", "bmp"):
            self.rgb.save(self.folder / f"{ending}.{ending}", **({"lossless": True} if ending == "webp" else {}))
        self.assertIn("3 photographs converted", self.convert())
        for ending in ("tif", "webp", "bmp"):
            with Image.open(self.folder / f"{ending}.png") as image:
                self.assertEqual(image.convert("RGB").tobytes(), self.rgb.tobytes(), ending)
            self.assertTrue((self.folder / f"{ending}.{ending}").exists())

    def test_remove_takes_the_others_away(self):
        self.rgb.save(self.folder / "a.tif")
        self.convert("--remove")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["a.png"])

    def test_cmyk_and_sixteen_bits_are_replaced(self):
        self.rgb.convert("CMYK").save(self.folder / "cmyk.jpg")
        Image.new("I;16", (2, 2), 0x4321).save(self.folder / "deep.png")
        self.convert()
        with Image.open(self.folder / "cmyk.jpg") as image:
            self.assertEqual(image.mode, "RGB")
        with Image.open(self.folder / "deep.png") as image:
            self.assertEqual(image.getpixel((0, 0)), (0x43,) * 3)

    def test_white_says_what_becomes_255(self):
        deep = Image.new("I;16", (2, 1), 4095)
        deep.putpixel((0, 0), 0x800)
        deep.save(self.folder / "deep.png")
        self.convert("--white", "4095")
        with Image.open(self.folder / "deep.png") as image:
            self.assertEqual([image.getpixel((x, 0)) for x in (0, 1)], [(127,) * 3, (255,) * 3])

    def test_orientation_is_applied(self):
        exif = Image.Exif()
        exif[0x0112] = 6
        self.rgb.save(self.folder / "a.tif", exif=exif)
        self.convert()
        with Image.open(self.folder / "a.png") as image:
            self.assertEqual(image.size, (2, 4))
            self.assertEqual(image.getpixel((1, 0)), (0, 250, 0))

    def test_usable_files_stay_as_they_are(self):
        self.rgb.save(self.folder / "a.png")
        self.rgb.save(self.folder / "b.jpg")
        before = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        self.assertIn("0 photographs converted", self.convert())
        self.assertEqual({path.name: path.read_bytes() for path in self.folder.iterdir()}, before)

    def test_what_fails_is_named_and_the_rest_is_done(self):
        (self.folder / "bad.tif").write_bytes(b"no picture")
        self.rgb.save(self.folder / "good.tif")
        said = self.convert(code=1)
        self.assertIn("bad.tif", said)
        self.assertTrue((self.folder / "good.png").exists())


if __name__ == "__main__":
    result = unittest.main(exit=False, argv=sys.argv).result
    skipped = len(result.skipped) == result.testsRun
    sys.exit(1 if not result.wasSuccessful() else 77 if skipped else 0)
