from figures_case import FiguresCase  # first: it says where the modules of the figures are

import statistics_by_site
from synthetic import cell, quantity


class StatisticsBySite(FiguresCase):
    figures = (statistics_by_site,)

    @staticmethod
    def sites(scale):
        return [{"name": f"site{k}", "saved_mean_error": quantity([0.1 * k * scale, 0.3 * k * scale]),
                 "between_sets": quantity([0.5])} for k in (1, 2)]

    def test_every_site_is_a_point_of_its_cell(self):
        printed = self.draw([cell("sync", sites=self.sites(1)), cell("per_tower", sites=self.sites(2))])
        row, = self.rows("statistics_by_site", strategy="per_tower", site="site2", quantity="saved_mean_error")
        self.assertAlmostEqual(float(row["value"]), 0.8)
        self.assertIn("largest at site2 of per_tower, 8x2 (0.800)", printed)
        self.assertEqual(len(self.rows("statistics_by_site", quantity="saved_variance_error")), 0)

    def test_sites_stand_in_the_order_of_the_network(self):
        self.draw([cell("sync", sites=self.sites(1))])
        texts = self.caption("statistics_by_site")
        self.assertLess(texts.index("site1"), texts.index("site2"))

    def test_even_and_uneven_towers_of_one_mean_have_a_row_each(self):
        self.draw([cell("sync", 2, batch, sites=self.sites(1)) for batch in ([1, 3], 2)])
        self.assertEqual([text for text in self.texts("statistics_by_site") if text.startswith("2x")], ["2x2", "2x[1,3]"])

    def test_runs_without_recomputed_statistics_are_no_figure(self):
        for sites in ((), [{"name": "site1", "values_per_image": quantity([64])}]):
            self.assertIn("under both saved and precise", self.draw([cell("sync", sites=sites)]))
