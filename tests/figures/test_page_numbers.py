"""Numbers on the result pages: which are looked up, which are right, and that few wrong ones pass."""

import json
import subprocess
import unittest
from bisect import bisect_left, bisect_right

import plot  # first: it says where the modules of the figures are

from committed import EXPERIMENTS, PROGRAM, ROOT, written_on
from facts import facts_of
from page_numbers import Page, blocks_of, committed_facts, committed_page, is_right, numbers_in, values_for
from synthetic import cell, contrast, published, report

# Changes of committed pages that a tired writer might make: page, what stands there, what is wrong.
PLANTED = [
    ("camvid_small_batch", "4.9 ± 1.3 points", "4.6 ± 1.3 points"),
    ("camvid_small_batch", "4.9 ± 1.3 points", "4.9 ± 1.6 points"),
    ("camvid_small_batch", "0.281 instead of 0.270", "0.281 instead of 0.207"),
    ("camvid_resnet", "0.116 against 0.287", "0.116 against 0.278"),
    ("camvid_resnet", "(0.191)", "(0.119)"),
    ("catalogue", "1.6 ± 0.8 points", "1.9 ± 0.5 points"),
    ("catalogue", "0.662 on shuffled shards", "0.626 on shuffled shards"),
    ("catalogue", "sends 1.9 MB per step", "sends 1.6 MB per step"),
    ("tradeoff", "costs 21 % of images/s", "costs 26 % of images/s"),
    ("tradeoff", "693 µs for an exchange", "639 µs for an exchange"),
    ("sync_overhead", "367 to 527 µs", "367 to 572 µs"),
    ("segnet_anchor_small", "0.342 after 7,500", "0.324 after 7,500"),
    ("scaling", "is 1.88 times", "is 1.78 times"),
    ("scaling", "keeps 0.98 times", "keeps 0.89 times"),
    ("statistics_route", "to 658 µs by", "to 685 µs by"),
]


def others_than(number):
    """The value of the same number with another last digit, or another one before it."""
    for digits in range(1, 10):
        for factor in (1, 10):
            for value in (number.value + digits * factor * number.step, number.value - digits * factor * number.step):
                if value > 0:
                    yield value


def others_that_pass(number, facts):
    """For each of these whether it is right of a fact."""
    if number.unit == "p <":
        return [any(is_right(number._replace(value=value), fact) for fact in facts) for value in others_than(number)]
    values = sorted({abs(value) for fact in facts for value in values_for(number, fact)})
    reach = 0.5 * number.step + 1e-9
    return [bisect_left(values, value - reach) < bisect_right(values, value + reach) for value in others_than(number)]


@unittest.skipUnless(PROGRAM.exists(), f"there is no program {PROGRAM}")
class CommittedPages(unittest.TestCase):
    def test_every_number_is_in_the_report(self):
        for name in EXPERIMENTS:
            with self.subTest(name):
                wrong = list(committed_page(name).wrong(written_on(name)))
                self.assertFalse(wrong, "\n".join([f"results/{name}/README.md:", *wrong]))

    def test_what_came_of_the_expectations_is_in_the_reports(self):
        page, text = Page([], elsewhere=committed_facts), (ROOT / "results" / "expectations.md").read_text(encoding="utf-8")
        self.assertEqual(list(page.wrong(text)), [])
        self.assertEqual(len(list(page.wrong(text.replace("< 65.5", "< 67.9")))), 1)

    def test_a_wrong_number_is_named(self):
        for name, right, wrong in PLANTED:
            text = written_on(name)
            self.assertIn(right, text, name)
            found = list(committed_page(name).wrong(text.replace(right, wrong)))
            self.assertEqual(len(found), 1, (name, wrong, found))

    def test_of_all_wrong_last_digits_few_pass(self):
        passed = {True: [], False: []}  # whether the number has three digits -> whether each wrong one is right of something
        for name in EXPERIMENTS:
            for number, facts, _ in committed_page(name).numbers(written_on(name)):
                passed[number.value > 99 * number.step] += others_that_pass(number, facts)
        for three_digits, at_most in ((True, 0.2), (False, 0.35)):
            share = sum(passed[three_digits]) / len(passed[three_digits])
            self.assertLess(share, at_most, f"of {len(passed[three_digits])}")


@unittest.skipUnless(PROGRAM.exists(), f"there is no program {PROGRAM}")
class Predicted(unittest.TestCase):
    def test_the_answer_of_the_prediction_is_what_the_model_says(self):
        page = ROOT / "results" / "prediction"
        said = subprocess.run([PROGRAM, "cost", page / "steps.json", "--ranks", "8", "--step-ms", "100", "--only", "model.name=backbone_unet",
                               "--only", "strategy=per_tower,sync(route=all_reduce)", "--json"], check=True, capture_output=True).stdout
        alone, together = (row["step_s"]["mid"] for row in json.loads(said)["rows"])
        self.assertIn(f"about {1000 * (together - alone):.1f} ms a step on 8 GPUs", written_on("prediction"))


class LookedUp(unittest.TestCase):
    def setUp(self):
        alone = {"towers_per_rank": 1, "half_width": 0.02}
        curves = {"mean_iou": {"points": [{"step": 1000, "mean": 0.39}], "failed": []}}
        made = report([cell("per_tower", saved=(0.25, 0.35), images_per_s={0: 50.0}, **alone),
                       cell("sync", saved=(0.42, 0.46), others={"batch": (0.4,)}, images_per_s={0: 40.0}, curves=curves, **alone),
                       cell("sync(gradient=stopped)", saved=(0.1,))])
        made["contrasts"] = [{**contrast((0.13, 0.15), 0.05), "p": 0.003, "p_holm": 0.006}]
        other = facts_of(report([cell(saved=(0.9,))]))
        self.page = Page(facts_of(made), '{"lr": 0.05, // 0.7\n "weights": [0.1826]}', {"other": other}.get)

    def wrong(self, text):
        return [sentence.split(" is no fact")[0] for sentence in self.page.wrong(text)]

    def test_means_differences_costs_and_p_values_are_right(self):
        for text in ("0.300 and 0.44, as 44.0 or 44 points; 0.30 ± 0.02",
                     "14.0 ± 5.0 points, 14.0 ± 5.0, 14 points, -14 points",
                     "p = 0.003, Holm p 0.006, p < 0.01", "`sync` makes 40.0 images/s, 20 % less, or 0.8 times, with 3.1 MB"):
            self.assertEqual(self.wrong(text), [], text)

    def test_other_numbers_are_wrong(self):
        for text in ("0.301", "0.43", "43 points", "0.30 ± 0.03", "14.0 ± 4.0 points", "p = 0.004", "p < 0.001", "13 points",
                     "41 images/s", "33 %", "0.9 times", "3.4 MB"):
            self.assertEqual(self.wrong(f"It has {text}."), [text])

    def test_each_number_of_an_enumeration_is_looked_up(self):
        self.assertEqual(self.wrong("15 of the 14 points, or 16 to 14 points."), ["15 of the", "16 to"])

    def test_rates_are_compared_between_strategies_and_between_numbers_of_ranks_but_not_both_at_once(self):
        rates = {("sync", 1): 100.0, ("sync", 2): 180.0, ("none", 1): 110.0, ("none", 2): 216.0}
        self.page = Page(facts_of(report([cell(name, towers=ranks, ranks=ranks, towers_per_rank=1, images_per_s={0: rate})
                                          for (name, ranks), rate in rates.items()])))
        self.assertEqual(self.wrong("On two ranks `sync` makes 1.80 times, 1.90 times, 17 % and 19 % less."),
                         ["1.90 times", "19 %"])
        self.assertEqual(self.wrong("1.96 times with `none`; without sync 1.20 times, 2.16 times, and 1.64 times."),
                         ["2.16 times", "1.64 times"])

    def test_what_others_have_published_is_a_fact(self):
        made = report([cell()], published=[published("mean_iou", 0.463, 0.494), published("relative_images_per_s", 0.887, 0.887)])
        self.page = Page(facts_of(made))
        self.assertEqual(self.wrong("Between 0.463 and 0.494, 0.89 times, 11 % less, not 0.88 times or 46.9 points."),
                         ["0.88 times", "46.9 points"])

    def test_named_strategies_have_to_have_the_number(self):
        self.assertEqual(self.wrong("- `per_tower` has 0.30.\n- `per_tower` has 0.44,\n  not 0.10."), ["0.44", "0.10"])
        self.assertEqual(self.wrong("| `sync` | 0.10 |\n| `sync(gradient=stopped)` | 0.10 |"), ["0.10"])

    def test_named_sites_have_to_have_the_number(self):
        sites = [{"name": name, "between_sets": {"n": 1, "mean": mean, "half_width": None}}
                 for name, mean in (("first", 0.7), ("second", 0.8))]
        self.page = Page(facts_of(report([cell(sites=sites)])))
        self.assertEqual(self.wrong("Between them 0.70.\n\nThe sites' mean is 0.70."), ["0.70", "0.70"])
        self.assertEqual(self.wrong("Between towers the sites have 0.70 and 0.80."), [])
        self.assertEqual(self.wrong("Between towers the site `first` has 0.70 or 0.80."), ["0.80"])

    def test_points_of_curves_and_single_seeds_need_to_be_named(self):
        self.assertEqual(self.wrong("It has 0.39 or 0.46."), ["0.39", "0.46"])
        self.assertEqual(self.wrong("After 1,000 steps it has 0.39.\n\nOne seed (1) has 0.46."), [])

    def test_numbers_of_the_spec_need_no_report_unless_they_have_a_unit(self):
        self.assertEqual(self.wrong("With lr 0.05 or 0.7, weight 0.18 or 0.183: 0.05 points, 0.184."), ["0.05 points", "0.184"])

    def test_what_others_say_stands_in_quotation_marks_or_beside_a_link(self):
        self.assertEqual(self.wrong('Expected: "11 % or 0.777".'), [])
        self.assertEqual(self.wrong("It has 0.90 ([other](../other/README.md)).\n\nAnd 0.90."), ["0.90"])

    def test_the_sentence_is_told(self):
        sentence, = self.page.wrong("One thing. Another, 0.301, is wrong. A third.")
        self.assertTrue(sentence.endswith("\n    Another, 0.301, is wrong."), sentence)


class Read(unittest.TestCase):
    def test_what_was_seen_before_is_not_looked_up(self):
        self.assertEqual(blocks_of("**In numbers.** 1.5 points.\n\n**Seen before.** 2.5\npoints.\n\nMore."),
                         ["**In numbers.** 1.5 points.", "More."])

    def test_a_bullet_is_one_block_and_code_is_none(self):
        text = "# T\n\nOne\ntwo.\n- three\n  four\n<!-- 0.1\n0.2 -->\n- five\n\n    0.3\n\n| six |\n| seven |"
        self.assertEqual(blocks_of(text),
                         ["# T", "One two.", "- three four", "- five", "| six |", "| seven |"])

    def test_names_sizes_and_counts_are_no_measured_numbers(self):
        self.assertEqual(list(numbers_in("Six seeds of 16x1, 96x128, 0001TP, lr1.5, 1e-10, `f(x=0.8)`, 95 % t intervals, "
                                         "367 images, 10,000 steps.")), [])

    def test_digits_say_how_exact_a_number_is(self):
        numbers = {number.text: (number.value, number.step, number.half_width) for number in numbers_in("-0.30 ± 1.5, 3 points")}
        self.assertEqual(numbers, {"-0.30 ± 1.5": (0.3, 0.01, 1.5), "3 points": (3, 1, None)})
