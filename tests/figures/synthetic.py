"""Reports as `bnlab report --format json` prints them, with numbers chosen by the tests."""


def quantity(values, half_width=None):
    """`values`: seed -> number, or a list by seed. The half-width is what a test says, since figures compute none."""
    values = dict(enumerate(values)) if isinstance(values, (list, tuple)) else values
    values = {seed: value for seed, value in values.items() if value is not None}
    mean = sum(values.values()) / len(values) if values else None
    return {"n": len(values), "mean": mean, "half_width": half_width if len(values) > 1 else None,
            "seeds": [{"seed": seed, "value": value} for seed, value in sorted(values.items())]}


def cell(strategy="sync", towers=8, batch=2, saved=(0.5,), half_width=0.25, others=None, failures=None, missing=(),
         conditions=None, images_per_s=None, speed_half_width=None, ranks=2, towers_per_rank=4, beside_others=False,
         peak=None, rss=None, curves=None, sites=(), parts=None):
    """`saved`: the headline metric by seed; `others`: the same by population; `failures`: seed -> outcome; `parts`: the
    metric by population and part of the test split."""
    saved = dict(enumerate(saved)) if isinstance(saved, (list, tuple)) else saved
    failures = failures or {}
    emulated = towers_per_rank > 1
    outcomes = {**{seed: "ok" for seed in saved}, **failures, **{seed: "missing" for seed in missing}}
    values = {"saved": quantity(saved, half_width)}
    values.update({name: quantity(by_seed, half_width) for name, by_seed in (others or {}).items()})
    scores = {"asked": len(outcomes), "ok": len(saved), "missing": len(missing),
              "failures": {name: list(failures.values()).count(name) for name in set(failures.values())},
              "outcomes": [{"seed": seed, "outcome": outcome} for seed, outcome in sorted(outcomes.items())],
              "values": values}
    speed = quantity({seed: 40.0 for seed in saved} if images_per_s is None else images_per_s, speed_half_width)
    speed = None if beside_others or not speed["n"] else speed
    row = {"placement": f"{ranks}x{towers_per_rank}-cpu" if saved or failures else None, "ranks": ranks, "device": "cpu",
           "emulated": emulated, "ran_beside_others": beside_others, **scores,
           "images_per_s": None if emulated else speed, "emulated_images_per_s": speed if emulated else None,
           "relative_images_per_s": None, "extra_step_ms": None, "extra_us_per_collective": None,
           "peak_memory_bytes": quantity({seed: 3 << 20 for seed in saved} if peak is None else peak),
           "peak_rss_bytes": quantity({seed: 5 << 20 for seed in saved} if rss is None else rss),
           "collectives_per_step": quantity({}), "bytes_per_step": quantity({}), "machines": ["a processor"]}
    return {"cell": {}, "strategy": strategy, "group": f"{towers}x{batch}", "conditions": conditions or {},
            "towers": towers, "batch_per_tower": batch, "evaluated": ["saved", *(others or {})] if saved else [],
            **scores, "metrics": {name: {"mean_iou": value, **{f"groups/{part}/mean_iou": quantity(by_seed, half_width)
                                                               for part, by_seed in (parts or {}).get(name, {}).items()}}
                                  for name, value in values.items()}, "curves": curves or {},
            "sites": list(sites), "rows": [row]}


def not_saved(made):
    """The cell as of an experiment that does not evaluate `saved`."""
    made["evaluated"].remove("saved")
    del made["values"]["saved"], made["metrics"]["saved"]  # the row's values are the same
    return made


def curve(points, failed=()):
    """`points`: (step, n, mean, low, high); `failed`: (seed, outcome, {step: value})."""
    return {"points": [dict(zip(("step", "n", "mean", "low", "high"), point)) for point in points],
            "failed": [{"seed": seed, "outcome": outcome,
                        "points": [{"step": step, "value": value} for step, value in values.items()]}
                       for seed, outcome, values in failed]}


def contrast(differences, half_width=0.01, at="8x2", verdict="undecided", **declared):
    """What became of a comparison of sync with per_tower, unless `declared` says otherwise, in the group `at`."""
    declared = {"metric": "mean_iou", "strategy": "sync", "above": "per_tower", **declared}
    strategies = [declared["strategy"], declared["above"]]
    return {"declared": declared, "sides": strategies, "strategies": strategies, "at": at, "difference": quantity(differences, half_width), "p": 1, "p_holm": 1,
            "p_sign_flip": 1, "verdict": verdict, "warning": None}


def published(metric, low, high, cell="8x2 sync", source="Somebody 2017"):
    """What the report says of a published number beside one of its cells."""
    return {"metric": metric, "from": low, "to": high, "source": source, "cell": cell, "population": "saved",
            "here": quantity({})}


def length(chosen, tried, means, still_gaining=()):
    """What tuning says that chose the length; `means`: group -> best mean at each length."""
    return {"rule": "?", "metric": "mean_iou", "population": "saved", "seeds": [100, 101],
            "length": {"chosen": chosen, "tried": tried, "gain_below": 0.01, "still_gaining": list(still_gaining)},
            "groups": [{"group": name, "chosen": {}, "at_edge_of_grid": [], "tried": [], "best_mean_at_each_length": values}
                       for name, values in means.items()]}


def report(cells, contrasts=(), published=(), name="synthetic", tuning=None, declared="declared before the first run",
           samples="images", baseline=None):
    return {"experiment": name, "question": "?", "claim": "", "headline": "mean_iou", "samples": samples, "columns": ["strategy"],
            "populations": ["saved"], "baseline": baseline, "fewest_seeds_for_a_verdict": 6, "runs": {}, "cells": cells,
            "contrasts": list(contrasts), "declared_in_short": declared if contrasts else None, "published": list(published), "tuning": tuning, "learned": []}
