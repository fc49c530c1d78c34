"""Records as bnlab writes them, with numbers chosen by the tests."""

import json
import os


def run(strategy="sync", towers=8, batch=2, seed=0, status="ok", accuracy=0.5, others=None, images_per_s=40.0,
        ranks=2, towers_per_rank=4, jobs=1, peak=(3 << 20,), rss=(5 << 20,), history=(), **spec):
    """A record.json; `others`: accuracies by population beside saved; further keywords become keys of its spec."""
    final = {name: {"mean_iou": value} for name, value in {"saved": accuracy, **(others or {})}.items()}
    result = {"headline": "mean_iou", "final": final, "history": list(history),
              "throughput": {"images_per_s": images_per_s},
              "memory": {"peak_memory_bytes": list(peak), "peak_rss_bytes": list(rss)}}
    return {"schema_version": 1, "kind": "bnlab.run", "experiment": "synthetic",
            "run_id": f"{strategy}-{towers}x{batch}-seed{seed}", "strategy_label": strategy,
            "spec": {"strategy": {"name": strategy}, "towers": towers, "batch_per_tower": batch, "seed": seed, **spec},
            "placement": {"name": f"{ranks}x{towers_per_rank}-cpu", "ranks": ranks, "towers_per_rank": towers_per_rank,
                          "device": "cpu", "emulated": towers_per_rank > 1, "jobs": jobs, "threads_per_rank": 1},
            "environment": {"cpu": "a processor", "libraries": {"gpus": []}},
            "outcome": {"status": status, "message": None}, "wall_time_s": 1.0,
            "result": result if status == "ok" else None, "notes": []}


def write(folder, records, metrics=None):
    """Writes FOLDER/RUN_ID/PLACEMENT/record.json for each record; `metrics` maps a record to lines of metrics.jsonl."""
    for k, record in enumerate(records):
        place = os.path.join(folder, f"{record['run_id']}-{k:03}", record["placement"]["name"])
        os.makedirs(place)
        with open(os.path.join(place, "record.json"), "w", encoding="utf-8") as file:
            json.dump(record, file)
        lines = metrics(record) if metrics else []
        if lines:
            with open(os.path.join(place, "metrics.jsonl"), "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
