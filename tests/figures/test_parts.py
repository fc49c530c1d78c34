"""What the figures are made of: the look of strategies, labels that keep apart. Run by test_figures.py."""

import contextlib
import io
import unittest

import plot  # sets the path of what follows
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

    def test_marker_and_dash_tell_every_strategy_apart_in_grey(self):
        self.assertEqual(len(self.in_grey(style.STRATEGIES)), len(style.STRATEGIES))
        everything = style.styles_of([f"{name}{options}" for name in style.STRATEGIES for options in ("", "(eps=1)", "(eps=2)")])
        self.assertEqual(len(self.in_grey(everything)), 3 * len(style.STRATEGIES))

    def test_a_strategy_keeps_its_look_whatever_its_options_and_what_is_drawn_beside_it(self):
        for labels in (list(style.STRATEGIES), ["sync", "sync(gradient=stopped)"], ["sync(gradient=stopped)", "none"]):
            for label, look in style.styles_of(labels).items():
                if label in style.STRATEGIES or len(labels) == 2 and labels[1] == "none":
                    self.assertEqual(look, style.STRATEGIES[style.base_name(label)])

    def test_a_variant_beside_its_name_keeps_the_colour_with_another_marker(self):
        variants = ["sync", "sync(gradient=stopped)", "sync(route=host)"]
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
