"""What the figures are made of: intervals, the look of strategies, labels that keep apart. Run by test_figures.py."""

import math
import unittest

import intervals
import layout
import style


class Intervals(unittest.TestCase):
    def test_quantiles_are_those_of_the_printed_tables(self):
        tables = {1: 12.7062, 2: 4.30265, 3: 3.18245, 5: 2.57058, 7: 2.36462, 10: 2.22814, 30: 2.04227, 100: 1.98397}
        for degrees, expected in tables.items():
            self.assertAlmostEqual(intervals.t_quantile(0.975, degrees), expected, places=4)
        self.assertAlmostEqual(intervals.t_quantile(0.95, 9), 1.83311, places=4)

    def test_quantiles_with_closed_forms(self):
        # One degree of freedom is the Cauchy distribution; two: t = (2 p - 1) sqrt(2 / (1 - (2 p - 1)^2)).
        for p in (0.6, 0.9, 0.975, 0.999):
            self.assertAlmostEqual(intervals.t_quantile(p, 1) / math.tan(math.pi * (p - 0.5)), 1, places=10)
            q = 2 * p - 1
            self.assertAlmostEqual(intervals.t_quantile(p, 2), q * math.sqrt(2 / (1 - q * q)), places=9)

    def test_interval_by_hand(self):
        interval = intervals.t_interval([0.5, 0.6, 0.7])  # deviation 0.1, so 4.30265 * 0.1 / sqrt(3)
        self.assertEqual(interval.n, 3)
        self.assertAlmostEqual(interval.mean, 0.6, places=12)
        self.assertAlmostEqual(interval.half_width, 0.248414, places=6)

    def test_one_value_has_no_interval(self):
        self.assertEqual(intervals.t_interval([0.5]), (1, 0.5, None))


class Styles(unittest.TestCase):
    def test_no_two_named_strategies_look_alike(self):
        looks = [(look.colour, look.marker) for look in style.STRATEGIES.values()]
        self.assertEqual(len(set(looks)), len(looks))

    def test_a_strategy_keeps_its_look_whatever_is_drawn_beside_it(self):
        everything = style.styles_of(list(style.STRATEGIES) + ["sync(gradient=stopped)"])
        self.assertEqual(style.styles_of(["sync"])["sync"], everything["sync"])
        self.assertEqual(style.styles_of(["sync(gradient=stopped)"])["sync(gradient=stopped)"],
                         everything["sync(gradient=stopped)"])

    def test_a_variant_keeps_the_colour_of_its_name_with_another_marker(self):
        looks = style.styles_of(["sync", "sync(gradient=stopped)", "sync(route=host)"])
        self.assertEqual({look.colour for look in looks.values()}, {style.BLUE})
        self.assertEqual(len({look.marker for look in looks.values()}), 3)

    def test_an_unknown_name_has_a_stable_look(self):
        self.assertEqual(style.styles_of(["my_norm"])["my_norm"], style.styles_of(["sync", "my_norm"])["my_norm"])

    def test_many_variants_stay_different(self):
        labels = [f"sync(group_size={size})" for size in range(2, 9)]
        self.assertEqual(len({(look.colour, look.marker) for look in style.styles_of(labels).values()}), len(labels))


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
