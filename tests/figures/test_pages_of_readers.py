"""The numbers of README.md and of the pages that it sends readers to, against the records.

README: each number is one fact, named in claims(). PAGES: each number stands with a link to what it comes from, in the same
paragraph, bullet, row or question: an experiment, whose report has it; a section of data_sets.md, whose experiments have it; or
another page that states it."""

import functools
import json
import re
import subprocess
import unittest
from itertools import chain

import plot  # pylint: disable=unused-import

from committed import EXPERIMENTS, PROGRAM, ROOT
from facts import Fact
from page_numbers import UNITS, Page, blocks_of, committed_facts, numbers_in
from test_page_numbers import others_that_pass

PAGES = ["results/limits.md", "results/data_sets.md", "results/questions.md"]
MEMORY = "peak_memory_bytes 1x1-cpu of 16 1 {0} sync / peak_memory_bytes 1x1-cpu of 16 1 {1} sync"
GROUP_NORM = [("nuclei_small_batch", "group_norm(groups=4) - sync at 8x2"), ("strategies_nuclei", "sync - group_norm(groups=4) at 8x2"),
              ("training_length", "sync - group_norm(groups=4) at steps=3000, 8x2"),
              *(("light_strength", f"sync - group_norm(groups=4) at task.nuisance={light}") for light in (0.05, 0.5))]
SHORT = ("training_length", "sync - group_norm(groups=4) at steps=300, 8x2")
ITS_OWN = [("nuclei_small_batch", "16x1"), ("strategies_nuclei", "16x1")]
PRICES = [*(("sync_overhead", f"per_tower - sync at model.base={base}, batch_per_tower={images}, 2x1-cpu") for base in (8, 16) for images in (1, 4)),
          *(("statistics_route", f"per_tower - sync at model.base={base}, 2x1-cpu") for base in (8, 16)),
          *(("scaling", f"per_tower - sync at model.base={base}, model.levels={levels}, towers=2, placement.ranks=2")
            for base, levels in ((16, 3), (8, 5)))]
OVER_SOCKETS = [*(("sync_overhead", f"relative images/s 2x1-cpu-sockets of {base} {images} sync") for base in (8, 16) for images in (1, 4)),
                *(("statistics_route", f"relative images/s 2x1-cpu-sockets of {base} sync") for base in (8, 16)),
                ("tradeoff", "relative images/s 2x1-cpu-sockets of sync")]


def fact(name, of):
    """The size of the one fact of a report that is of this, in hundredths."""
    value, = {each.value for each in committed_facts(name) if each.of == of and each.kind != "loss of rate"}
    return 100 * abs(value)


def claims():
    """What README says in numbers, with the numbers as the records have them."""
    one_image = [fact(name, "sync - per_tower at 16x1") for name in
                 ("nuclei_small_batch", "strategies_nuclei", "camvid_small_batch", "camvid_resnet")]
    one_image += [fact(name, "sync - per_tower at task.crop=[96,96], model.levels=3, 8x1") for name in ("crop_size", "crop_size_streets")]
    group_norm = [fact(*each) for each in GROUP_NORM]
    its_own = [fact(name, f"mean_iou saved of {at} sync") - fact(name, f"mean_iou batch of {at} per_tower") for name, at in ITS_OWN]
    prices, left = [fact(*each) for each in PRICES], [fact(*each) for each in OVER_SOCKETS]
    prices.append(100 - fact("tradeoff", "relative images/s 2x1-cpu of sync"))
    clips = {fact("shuffle_video", f"the margin of sync - shuffle at task.scene=gain, {grouping}") for grouping in ("8x1", "4x2")}
    late = fact("strategies_nuclei", "sync - frozen(from_fraction=0.8,base=per_tower) at 8x2")
    mabn = fact("strategies_nuclei_again", "sync - mabn(renorm_from_step=400) at 8x2")
    renorm = fact("strategies_nuclei_again", "sync - batch_renorm(r_max=1.5,d_max=0.5) at 4x4")
    eight = fact("evaluation_statistics", "mean_iou saved of 3000 2x8 sync - mean_iou saved of 3000 2x8 per_tower")
    blocks = fact("memory", MEMORY.format("blocks", "none"))
    strategies = json.loads(subprocess.run([PROGRAM, "list", "strategies", "--json"], check=True, capture_output=True).stdout)
    vectors = re.search(r"writes (\d+) cases", text_of("scripts/vectors/own_implementation.md"))[1]
    return [
        f"with {len(strategies)} ways to normalise",
        f"[{min(one_image):.0f} to {max(one_image):.0f} points]",
        f"costs {min(prices):.0f} to {max(prices):.0f} % of the images/s",
        f"costs {100 - max(left):.0f} to {100 - min(left):.0f} %.",
        f"[{min(group_norm):.0f} to {max(group_norm):.0f} points]",
        f"| {eight:.1f} points below |",
        f"| {min(group_norm):.0f} to {fact(*SHORT):.0f} points below |",
        f"| {late:.0f} and {mabn:.0f} points below at two images |",
        f"| {renorm:.1f} points below at four images |",
        f"equal within {max(clips):.0f} points | [clips]",
        f"| {min(its_own):.0f} to {max(its_own):.0f} points below on nuclei |",
        f"needs {blocks:.0f} % of it",
        f"{vectors} cases",
    ]


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def without_answers(text):
    """The table of answers is the program's: they are titles of pages, which another test looks up."""
    return re.sub(r"<!-- table:answers -->.*?<!-- end -->", "", text, flags=re.DOTALL)


@unittest.skipUnless(PROGRAM.exists(), f"there is no program {PROGRAM}")
class Readme(unittest.TestCase):
    def test_each_number_is_a_fact_and_stands_in_one_place(self):
        rest = " ".join(re.sub(r"^    .*\n", "", without_answers(text_of("README.md")), flags=re.MULTILINE).split())
        for claim in claims():
            self.assertEqual(rest.count(claim), 1, claim)
            rest = rest.replace(claim, "")
        # What the linked pages say in the same words.
        for page, said in (("results/prediction/README.md", ["8 GPUs", "60 exchanges", "1.3 ms"]),
                           ("scripts/README.md", ["0.6 GB", "3 GB"])):
            for words in said:
                self.assertEqual(rest.count(words), 1, words)
                self.assertIn(words, " ".join(text_of(page).split()))
                rest = rest.replace(words, "")
        left = [number.text for number in numbers_in(re.sub(r"(LibTorch|CUDA is|Ubuntu) [\d.]+( (and|or) [\d.]+)?", "", rest))]
        self.assertEqual(left, [])

    def test_versions_are_those_that_set_up_installs(self):
        cuda_of = {lock.stem.removeprefix("torch-"): re.search(r"^cuda-toolkit==(\d+\.\d+)", lock.read_text(), re.MULTILINE)[1]
                   for lock in sorted((ROOT / "scripts/wheels").glob("*.lock"))}
        torch = re.search(r"TORCH_VERSION:-([\d.]+)", text_of("scripts/versions.sh"))[1]
        self.assertIn(f"LibTorch {' and '.join(cuda_of)}. CUDA is {' or '.join(cuda_of.values())},", " ".join(text_of("README.md").split()))
        self.assertIn(f"| LibTorch | {torch} with CUDA {cuda_of[torch]},", text_of("results/limits.md"))

    def test_group_norm_is_near_where_it_is_said_to_be(self):
        self.assertLessEqual(max(fact(*each) for each in GROUP_NORM), 2)
        for name, at in (("cifar_small_batch", "32x2"), ("camvid_small_batch", "8x2")):
            self.assertGreater(fact(name, f"sync - group_norm at {at}"), fact(name, f"sync - per_tower at {at}"))


@functools.cache
def sections():
    """The links of each section of data_sets.md, by the anchor of its heading."""
    found = re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", text_of("results/data_sets.md"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-"): sorted(set(re.findall(r"\]\(\w+/README\.md\)", text)))
            for title, text in found}


@functools.cache
def facts_of_page(name):
    if name in EXPERIMENTS:
        return committed_facts(name)
    return [each for block in blocks_of(text_of(f"results/{name}/README.md")) for number in numbers_in(block) for each in stated(number)]


def stated(number):
    """As facts; one without a unit, as in a table, may be of any."""
    for kind, factor in UNITS[number.unit] if number.unit else [("score", 1), ("ms", 1), ("ratio", 1)]:
        half_width = None if number.half_width is None else number.half_width / factor
        yield Fact(kind, number.value / factor, half_width, frozenset(), number.text)


def read(page):
    text = re.sub(r"\b(CUDA|Ubuntu) [\d.]+", r"\1", text_of(page))
    if page == "results/questions.md":  # a question is one block
        text = re.sub(r"^    .*\n", "", text, flags=re.MULTILINE)
        text = "\n\n".join(" ".join(question.split()) for question in text.split("### "))
    return re.sub(r"\]\(data_sets\.md#([\w-]+)\)", lambda link: "](there) " + " ".join(sections()[link[1]]), text)


@unittest.skipUnless(PROGRAM.exists(), f"there is no program {PROGRAM}")
class PagesOfReaders(unittest.TestCase):
    page = Page([], elsewhere=facts_of_page)

    def test_every_number_is_in_a_linked_report(self):
        for page in PAGES:
            self.assertEqual(list(self.page.wrong(read(page))), [], page)

    def test_of_all_wrong_digits_few_pass(self):
        passed = list(chain(*(others_that_pass(number, facts) for number, facts, _ in self.page.numbers(read("results/data_sets.md"))
                              if number.value > 99 * number.step)))
        self.assertLess(sum(passed) / len(passed), 0.2)


if __name__ == "__main__":
    unittest.main()
