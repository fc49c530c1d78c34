#!/usr/bin/env python3
"""What experiments/in_pytorch.md gives to paste does what the page says of it.

  python3 tests/pages/test_in_pytorch.py

Exit status 77, which ctest reports as skipped, where torch is not installed.
"""

import re
import sys
import unittest

from page import ROOT

try:
    import torch
except ImportError as error:
    print(f"SKIPPED: the page on PyTorch, because {error}")
    sys.exit(77)

PAGE = (ROOT / "experiments/in_pytorch.md").read_text(encoding="utf-8")
BLOCKS = {heading: re.sub("^    ", "", block, flags=re.MULTILINE)
          for heading, block in re.findall(r"^## (.*)\n\n((?:    .*\n)+)", PAGE, re.MULTILINE)}


def norms(model, kind=torch.nn.modules.batchnorm._BatchNorm):
    return [module for module in model.modules() if isinstance(module, kind)]


class InPyTorch(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
            torch.nn.Sequential(torch.nn.Conv2d(8, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()))
        self.images = torch.randn(6, 3, 8, 8) + torch.arange(6).view(6, 1, 1, 1)

    def paste(self, heading, **names):
        """The names after the lines of the page below a heading that begins so."""
        block, = (block for title, block in BLOCKS.items() if title.startswith(heading))
        names = {"torch": torch, "model": self.model, **names}
        exec(block, names)  # pylint: disable=exec-used
        return names

    def test_every_block_is_tried(self):
        tried = ("One to four", "No exchange in a step", "No exchange, and", "The statistics lag", "Trained with one")
        self.assertEqual([heading for heading in BLOCKS if not heading.startswith(tried)], [])
        self.assertEqual(len(BLOCKS), len(tried))

    def test_synchronised_norms_keep_weights_and_statistics(self):
        self.model(self.images)
        before = self.model.eval()(self.images)
        model = self.paste("One to four")["model"]
        self.assertEqual(len(norms(model, torch.nn.SyncBatchNorm)), 2)
        self.assertTrue(torch.equal(model.eval()(self.images), before))

    def test_with_group_norm_images_do_not_depend_on_each_other(self):
        alone = self.model(self.images[:1])
        self.assertFalse(torch.allclose(self.model(self.images)[:1], alone, atol=1e-3))
        self.paste("No exchange in a step")
        self.assertEqual((len(norms(self.model)), len(norms(self.model, torch.nn.GroupNorm))), (0, 2))
        torch.testing.assert_close(self.model(self.images)[:1], self.model(self.images[:1]))

    def test_the_last_fifth_is_frozen(self):
        seen = []
        for step in range(10):
            self.model.train()
            self.paste("No exchange, and", step=step, steps=10)
            self.model(self.images + step)
            seen.append([norm.running_mean.clone() for norm in norms(self.model)])
        moved = [not all(map(torch.equal, before, after)) for before, after in zip(seen, seen[1:])]
        self.assertEqual(moved, [True] * 7 + [False] * 2)

    def test_recomputed_statistics_are_those_of_the_data(self):
        for norm in norms(self.model):
            norm.momentum = 0.001
        self.model(self.images)
        loader = [(batch, None) for batch in self.images.split(3)]
        self.paste("The statistics lag", loader=loader)
        self.assertFalse(self.model.training)
        first = self.model[0](self.images)
        torch.testing.assert_close(self.model[1].running_mean, first.mean((0, 2, 3)))
        variances = [self.model[0](batch).var((0, 2, 3)) for batch, _ in loader]
        torch.testing.assert_close(self.model[1].running_var, sum(variances) / 2)  # what lies between batches is not in it

    def test_each_image_is_normalised_by_itself(self):
        self.model.append(torch.nn.Dropout(0.5))
        self.paste("Trained with one")
        for image in self.images:
            torch.testing.assert_close(self.model(image[None]), self.model(image[None] + 5), rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    unittest.main()
