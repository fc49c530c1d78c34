"""The numbers of a report, each with what it is of: the facts that a page may state."""

import itertools
import json
from collections import defaultdict, namedtuple

# `kind`: what is measured, see UNITS in page_numbers.py. `strategies`: labels that it is of. `of`: words for a message.
# `needs`: words that a text must hold before the fact counts. `site`: the norm site that it is of, or None.
Fact = namedtuple("Fact", "kind value half_width strategies of needs site", defaults=(frozenset(), None))

_COSTS = {"images_per_s": "rate", "step_ms": "ms", "extra_step_ms": "ms", "extra_us_per_collective": "us",
          "peak_memory_bytes": "bytes", "peak_rss_bytes": "bytes", "bytes_per_step": "bytes",
          "collectives_per_step": "collectives"}

_SITE_WORDS = {"saved_mean_error": "mean", "saved_variance_error": "variance", "between_sets": "between",
               "values_per_image": "values"}


def facts_of(report):
    """All facts of a report, as parsed from `bnlab report --format json`."""
    measured = [entry for cell in report["cells"] for entry in _measured(cell, report["headline"])]
    return [*(fact for _, fact in measured), *_pairs(measured), *_declared(report), *_tuned(report), *_on_the_way(report)]


def _measured(cell, headline):
    """[(keys, Fact)]: the means of a cell. Two whose keys differ in one value can be compared."""
    name = " ".join(map(str, cell["cell"].values()))
    where = {"strategy": cell["strategy"], "towers": cell["towers"], "batch": str(cell["batch_per_tower"]),
             **cell["conditions"]}

    def entry(kind, what, quantity, needs=(), **more):
        of = " ".join([what, *more.values(), "of", name])
        return {**where, "what": what, **more}, Fact(kind, quantity["mean"], quantity["half_width"], {cell["strategy"]}, of,
                                                     frozenset(needs), more.get("site"))

    for population, metrics in cell["metrics"].items():
        for metric, quantity in metrics.items():
            yield entry("score", metric, quantity, _needs(metric, headline), population=population)
    for population, quantity in cell["values"].items():
        for each in quantity["seeds"]:
            seed, alone = f"seed {each['seed']}", {"mean": each["value"], "half_width": None}
            yield entry("score", headline, alone, [seed], population=population, seed=seed)
    for site in cell["sites"]:
        for key, quantity in site.items():
            if key != "name" and quantity["n"]:
                yield entry("site", key, quantity, ["site", _SITE_WORDS[key]], site=site["name"])
    for row in cell["rows"]:
        for key, kind in _COSTS.items():
            if row.get(key) and row[key]["n"]:
                yield entry(kind, key, row[key], placement=row["placement"])
        relative = row["relative_images_per_s"]
        if relative:
            for kind, value in (("ratio", relative), ("loss of rate", 1 - relative)):
                yield entry(kind, "relative images/s", {"mean": value, "half_width": None}, placement=row["placement"])


def _needs(metric, headline):
    """Of "groups/0001TP/pixel_accuracy" the words 0001TP and pixel, of the headline metric none."""
    *group, name = metric.removeprefix("groups/").rsplit("/", 1) if metric.startswith("groups/") else [metric]
    return [*group, *([] if name == headline else [name.split("_")[0]])]


def _pairs(measured):
    """Differences of scores, and quotients of costs, of cells that share all keys but one."""
    alike = defaultdict(list)
    for keys, fact in measured:
        if fact.kind in ("score", "rate", "ms", "bytes"):
            for key in keys.keys() - {"what"}:
                alike[key, tuple(sorted((k, v) for k, v in keys.items() if k != key))].append(fact)
            if fact.kind == "rate":  # on more ranks, by the same way
                way = keys["placement"].endswith("sockets")
                alike["ranks", way, tuple(sorted((k, v) for k, v in keys.items() if k not in ("towers", "placement")))].append(fact)
    for group in alike.values():
        for a, b in itertools.permutations(group, 2):
            both, needs = a.strategies | b.strategies, a.needs | b.needs
            if a.kind == "score" and a.value >= b.value:
                yield Fact("difference", a.value - b.value, None, both, f"{a.of} - {b.of}", needs)
            elif a.kind != "score" and b.value:
                yield Fact("quotient", a.value / b.value, None, both, f"{a.of} / {b.of}", needs)
                if a.kind == "rate":
                    yield Fact("loss of rate", 1 - a.value / b.value, None, both, f"1 - {a.of} / {b.of}", needs)


def _declared(report):
    for contrast in report["contrasts"]:
        difference, both = contrast["difference"], set(contrast["strategies"])
        of = f"{' - '.join(contrast['sides'])} at {contrast['at']}"
        if difference["n"]:
            yield Fact("contrast", difference["mean"], difference["half_width"], both, of)
        if contrast["verdict"] == "equal":
            yield Fact("margin", contrast["declared"]["equivalence_margin"], None, both, f"the margin of {of}")
        for key in ("p", "p_holm", "p_sign_flip"):
            if contrast[key] is not None:
                yield Fact("p", contrast[key], None, both, f"{key} of {of}")
    labels = {cell["strategy"] for cell in report["cells"]}
    for published in report["published"]:
        of = f"{published['metric']} of {published['source']}"
        for value in (published["from"], published["to"]):
            if published["metric"] == "relative_images_per_s":
                yield Fact("ratio", value, None, labels, of)
                yield Fact("loss of rate", 1 - value, None, labels, of)
            else:
                yield Fact("score", value, None, labels, of)


def _tuned(report):
    for group in (report["tuning"] or {"groups": []})["groups"]:
        for tried in group["tried"]:
            for score in {tried["mean"], *tried["scores"]} - {None}:
                yield Fact("score", score, None, {group["group"]}, f"{group['group']} tuned at {json.dumps(tried['setting'])}")


def _on_the_way(report):
    """Points of the curves, for texts that name their step."""
    for cell in report["cells"]:
        for what, curve in cell["curves"].items():
            kind = "curve" if what in ("train_loss", "gradient_norm") else "score"
            for point in curve["points"]:
                of = f"{what} of {cell['strategy']} after {point['step']} steps"
                yield Fact(kind, point["mean"], None, {cell["strategy"]}, of, frozenset([str(point["step"])]))
