"""What the figures are made of: the look of strategies, labels that keep apart. Run by test_figures.py."""

import contextlib
import csv
import io
import itertools
import re
import tempfile
import unittest
from pathlib import Path

from matplotlib.colors import to_rgb

import plot  # sets the path of what follows
import drawing
import layout
import style


class Lists(unittest.TestCase):
    def test_commas_within_brackets_belong_to_a_label(self):
        self.assertEqual(plot.separated(["a,b(c=1,d=2)", "e, f"]), ["a", "b(c=1,d=2)", "e", "f"])

    def test_every_figure_between_commas_is_checked(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
            plot.main(["--out", "nowhere", "--figures", "matrix,memory,matrics"])
        self.assertIn("matrics: there are", said.getvalue())


class Styles(unittest.TestCase):
    @staticmethod
    def in_grey(looks):
        return {(look.marker, look.dash) for look in looks.values()}

    @staticmethod
    def luminance(colour):
        return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), to_rgb(colour)))

    def check_apart_in_grey(self, looks, where):
        """Each pair differs in marker or dash, and in marker or lightness."""
        for one, other in itertools.combinations(looks, 2):
            if looks[one].marker == looks[other].marker:
                self.assertNotEqual(looks[one].dash, looks[other].dash, (where, one, other))
                self.assertGreater(abs(self.luminance(looks[one].colour) - self.luminance(looks[other].colour)), 0.05, (where, one, other))

    def test_what_stands_together_in_a_committed_figure_is_told_apart_in_grey(self):
        self.check_apart_in_grey(style.STRATEGIES, "the catalogue")
        for file in sorted((plot.ROOT / "results").glob("*/figures/*.csv")):
            with open(file, encoding="utf-8", newline="") as rows:
                labels = list(dict.fromkeys(row["strategy"] for row in csv.DictReader(rows) if row.get("strategy")))
            self.check_apart_in_grey(style.styles_of(labels), file)

    def test_a_variant_without_its_name_looks_as_it_even_beside_another_of_that_marker(self):
        other = next(label for label in style.VARIANTS if style.styles_of([label])[label].marker == style.STRATEGIES["group_norm"].marker)
        self.assertEqual(style.styles_of([other, "group_norm(groups=4)"])["group_norm(groups=4)"], style.STRATEGIES["group_norm"])

    def test_a_variant_has_the_same_look_in_every_company(self):
        for label in style.VARIANTS:
            self.assertEqual(style.styles_of([label])[label], style.styles_of([*style.STRATEGIES, *style.VARIANTS])[label])

    def test_marker_and_dash_tell_every_strategy_apart_in_grey(self):
        self.assertEqual(len(self.in_grey(style.STRATEGIES)), len(style.STRATEGIES))
        everything = style.styles_of([f"{name}{options}" for name in style.STRATEGIES for options in ("", "(eps=1)", "(eps=2)")])
        self.assertEqual(len(self.in_grey(everything)), 3 * len(style.STRATEGIES))

    def test_a_strategy_keeps_its_look_whatever_its_options_and_what_is_drawn_beside_it(self):
        for labels in (list(style.STRATEGIES), ["sync", "sync(eps=1)"], ["sync(eps=1)", "none"]):
            for label, look in style.styles_of(labels).items():
                if label in style.STRATEGIES or len(labels) == 2 and labels[1] == "none":
                    self.assertEqual(look, style.STRATEGIES[style.base_name(label)])

    def test_a_variant_beside_its_name_keeps_the_colour_with_another_marker(self):
        variants = ["sync", "sync(eps=1)", "sync(eps=2)"]
        looks = style.styles_of(["per_tower", *variants])
        self.assertEqual({looks[label].colour for label in variants}, {style.BLUE})
        self.assertEqual(len({looks[label].marker for label in variants}), 3)

    def test_variants_of_one_name_by_themselves_have_colours_of_their_own(self):
        looks = style.styles_of(["sync", "sync(gradient=stopped)", "sync(route=host)"])
        self.assertEqual(looks["sync"], style.STRATEGIES["sync"])
        self.assertEqual(len({look.colour for look in looks.values()}), 3)

    def test_an_unknown_name_has_a_stable_look(self):
        self.assertEqual(style.styles_of(["my_norm"])["my_norm"], style.styles_of(["sync", "my_norm"])["my_norm"])

    def test_many_variants_stay_different(self):
        labels = [f"sync(group_size={size})" for size in range(2, 9)]
        self.assertEqual(len({(look.colour, look.marker) for look in style.styles_of(labels).values()}), len(labels))


class Names(unittest.TestCase):
    def test_options_are_named_where_another_label_has_the_name(self):
        variant = "batch_renorm(r_max=1.5,d_max=0.5)"
        self.assertEqual(style.names([variant, "sync"])[variant], "batch_renorm")
        self.assertEqual(style.names([variant, "batch_renorm"]), {variant: "batch_renorm, r_max 1.5, d_max 0.5", "batch_renorm": "batch_renorm"})
        self.assertEqual(style.names(["per_tower"], words=True)["per_tower"], "per_tower (each GPU by itself)")

    def test_a_text_is_renamed_longest_label_first(self):
        self.assertEqual(style.renamed("8x2 sync(variance=averaged) - sync", ["sync", "sync(variance=averaged)"]), "8x2 sync, variance averaged - sync")


class Titles(unittest.TestCase):
    def test_no_committed_figure_asks_and_every_caption_is_one_line(self):
        for file in sorted((plot.ROOT / "results").glob("**/figures/*.svg")):
            texts = re.findall(r"<text [^>]*>([^<]*)", file.read_text(encoding="utf-8"))
            self.assertEqual([text for text in texts if text.endswith("?")], [], file)
            captions = [text for text in texts if text.startswith(f"{file.parents[1].name};")]
            self.assertTrue(not captions or captions[0].endswith("."), (file, captions))

    def test_every_committed_png_is_shown_by_a_page(self):
        pictures = sorted((plot.ROOT / "results").glob("*/figures/*.png"))
        self.assertTrue(pictures)
        self.assertEqual([str(file) for file in pictures if not drawing.is_shown(file.with_suffix(""))], [])

    def test_a_png_is_written_where_a_page_shows_it(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "README.md")
            for text, shown in (("[link](figures/a.png)", True), ("[link](figures/a.svg)", False), ("![Title](figures/b.png)", False), ("![Title](figures/a.png)", True)):
                page.write_text(text, encoding="utf-8")
                self.assertEqual(drawing.is_shown(Path(folder, "figures", "a")), shown, text)


class Legends(unittest.TestCase):
    def test_labels_have_as_many_columns_as_fit_each_as_wide_as_it_needs(self):
        short, long = ["a"] * 3, ["a rather long label of a strategy"]
        wide = layout._text_width(long[0])
        self.assertEqual(layout._legend_columns(short + long, wide + 4), 4)
        self.assertEqual(layout._legend_columns(short + long, wide + 1.6), 2)
        self.assertEqual(layout._legend_columns(short + long, wide), 1)
        self.assertEqual(layout._legend_columns([], 5), 1)


class Labels(unittest.TestCase):
    def test_spread_leaves_what_fits(self):
        self.assertEqual(layout.spread([10, 40], 10, 0, 100), [10, 40])

    def test_spread_parts_neighbours_about_their_mean(self):
        self.assertEqual(layout.spread([50, 50, 50], 10, 0, 100), [40, 50, 60])

    def test_spread_keeps_order_gap_and_limits(self):
        placed = layout.spread([95, 97, 99, 20, 21], 8, 0, 100)
        self.assertEqual(sorted(range(5), key=placed.__getitem__), [3, 4, 0, 1, 2])
        ordered = sorted(placed)
        self.assertTrue(all(b - a > 8 - 1e-9 for a, b in zip(ordered, ordered[1:])))
        self.assertLessEqual(ordered[-1], 100)
