#!/usr/bin/env python3
"""Holds cmake/fingerprint.py: what the tokens of sources tell apart, which records name for GPUs and for components
that the panel of harness/numerics lacks; and
cmake/write_revision.cmake: what a record says of the checkout that its program was built from."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "cmake"))
from fingerprint import fingerprints, sources  # noqa: E402

SYNC = """// Pools the moments.
#include "harness/network.hpp"

double pooled(double sum, double count) {
  return sum / count;  // never empty
}
"""



def component(name, body, space=None):
    entry = f'const Registered<Strategy> entry{{{{.name = "{name}", .summary = "..."}}, make<Strategy, Own>}};'
    return f"namespace bnlab::{space or name} {{\n{body}\n{entry}\n}}  // namespace bnlab::{space or name}\n"


class Fingerprint(unittest.TestCase):
    tree = {
        "strategies/sync.cpp": SYNC,
        "strategies/reference/sync.cpp": "double formula = 1;\n",
        "strategies/ghost.cpp": component("ghost", "int slice = 2;"),
        "strategies/kernels/sweep.cu": "int threads = 256;\n",
        "harness/towers.hpp": '#pragma once\nconst char* kName = "tower // of \\"one\\"";\n',
        "harness/training/trainer.cpp": "int step = 0x1F;\n",
        "harness/launch/launch.cpp": "int jobs = 1;\n",
        "cmake/kernels.cmake": "# fast\nset(flags -O3)\nset_source_files_properties(strategies/a.cpp)\n",
    }

    def of(self, changes=()):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**self.tree, **dict(changes)}.items():
                if text is not None:
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    (root / name).write_text(text, encoding="utf-8")
            return fingerprints(root)

    def same(self, changes):
        self.assertEqual(self.of(), self.of(changes))

    def differs(self, changes):
        self.assertNotEqual(self.of()["all"], self.of(changes)["all"])

    def changed(self, changes):
        """The parts that are others, gone or new by the changes."""
        before, after = self.of(), self.of(changes)
        return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} - {"all"}

    def test_a_moved_file_computes_the_same(self):
        self.same({"strategies/sync.cpp": None, "strategies/engine/pooling.cpp": SYNC})

    def test_comments_and_layout_compute_nothing(self):
        bare = "double pooled(double sum,\n    double count)\n{ /* of towers */ return sum/count; }"
        self.same({"strategies/sync.cpp": bare})

    def test_include_lines_compute_nothing(self):
        self.same({"strategies/sync.cpp": "#include <cmath>\n" + SYNC})

    def test_a_changed_number_counts(self):
        self.differs({"harness/training/trainer.cpp": "int step = 0x2F;\n"})

    def test_a_new_file_counts(self):
        self.differs({"strategies/kernels/new.cu": "int x;\n"})

    def test_text_in_quotes_is_no_comment(self):
        self.differs({"harness/towers.hpp": self.tree["harness/towers.hpp"].replace("one", "two")})

    def test_words_do_not_run_together(self):
        self.differs({"harness/training/trainer.cpp": "intstep = 0x1F;\n"})

    def test_what_no_run_computes_with_does_not_count(self):
        self.same({"strategies/reference/sync.cpp": "double formula = 2;\n"})
        self.same({"harness/launch/launch.cpp": "int jobs = 2;\n"})
        self.same({"strategies/README.md": "Words."})

    def test_flags_of_the_kernels_count_but_not_their_paths(self):
        flags = self.tree["cmake/kernels.cmake"]
        self.differs({"cmake/kernels.cmake": flags.replace("-O3", "-Ofast")})
        self.same({"cmake/kernels.cmake": flags.replace("strategies/a.cpp", "strategies/kernels/a.cpp")})

    def test_a_component_counts_where_it_is_used(self):
        self.assertEqual(self.changed({"strategies/ghost.cpp": component("ghost", "int slice = 4;")}), {"ghost"})
        self.assertEqual(self.changed({"strategies/new.cpp": component("new", "int x;")}), {"new"})

    def test_a_component_whose_code_others_can_use_counts_for_all(self):
        for used in [
            {"harness/training/trainer.cpp": "int step = bnlab::ghost::slice;\n"},
            {"strategies/ghost.hpp": "namespace bnlab::ghost {\nextern int slice;\n}\n"},
            {"strategies/ghost.cpp": component("ghost", "int slice = 2;") + "namespace bnlab {\nint sliced() { return 1; }\n}\n"},
        ]:
            self.assertNotIn("ghost", self.of(used))
            self.assertIn("shared", self.changed(used))

    def test_two_components_of_one_name_count_together(self):
        model = component("ghost", "int width = 3;", "ghost_model")
        self.assertEqual(self.changed({"harness/models/ghost.cpp": model}), {"ghost"})

    def test_kernels_for_gpus_count_on_gpus(self):
        self.assertEqual(self.changed({"strategies/kernels/sweep.cu": "int threads = 128;\n"}), {"cuda"})
        self.assertEqual(self.changed({"harness/training/cuda_graphs.cpp": "int graphs = 2;\n"}), {"cuda"})

    def test_everything_else_counts_for_all(self):
        self.assertEqual(self.changed({"harness/training/trainer.cpp": "int step = 0x2F;\n"}), {"shared"})
        self.assertEqual(self.changed({"cmake/kernels.cmake": "set(flags -Ofast)\n"}), {"shared", "cuda"})

    def test_knows_the_components_of_this_project(self):
        parts = fingerprints(ROOT)
        names = {"all", "shared", "cuda"}
        for path in sorted((ROOT / "strategies").glob("*.cpp")):
            names.add(path.stem)
        self.assertLessEqual(names | {"unet", "camvid", "cifar10", "cifar100", "sgd", "cross_entropy"}, parts.keys())

    def test_finds_the_sources_of_this_project(self):
        found = {path.relative_to(ROOT).as_posix() for path in sources(ROOT)}
        for name in ["strategies/sync.cpp", "strategies/kernels/cpu_loops.inc", "harness/towers.cpp", "harness/models/unet.cpp"]:
            self.assertIn(name, found)


class Revision(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "cmake").mkdir()
        (self.root / "cmake/fingerprint.py").write_text("print('all 0')\n")
        (self.root / "strategies").mkdir()
        (self.root / "strategies/sync.cpp").write_text(SYNC)
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "all")

    def git(self, *words):
        return subprocess.run(["git", "-C", self.root, *words], check=True, capture_output=True, text=True).stdout.strip()

    def written(self):
        out = self.root / "build" / "revision.cpp"
        settings = [f"-D{name}={value}" for name, value in
                    {"OUT": out, "SOURCE": self.root, "VERSION": "1", "BUILD_TYPE": "", "PYTHON": sys.executable}.items()]
        script = ROOT / "cmake" / "write_revision.cmake"
        subprocess.run([os.environ.get("BNLAB_CMAKE", "cmake"), *settings, "-P", script], check=True, capture_output=True)
        return out.read_text()

    def test_is_that_of_the_checkout(self):
        text = self.written()
        self.assertIn(f'.git = "{self.git("rev-parse", "--short=12", "HEAD")}"', text)
        self.assertIn(".dirty = false", text)

    def test_sources_that_are_not_committed_are_told(self):
        (self.root / "README.md").write_text("Words.")  # from which nothing is built
        self.assertIn(".dirty = false", self.written())
        for name, text in {"strategies/new.cpp": "int x;\n", "strategies/sync.cpp": SYNC + "int x;\n"}.items():
            before = (self.root / name).read_text() if (self.root / name).exists() else None
            (self.root / name).write_text(text)
            self.assertIn(".dirty = true", self.written(), name)
            (self.root / name).unlink() if before is None else (self.root / name).write_text(before)
            self.assertIn(".dirty = false", self.written(), name)

    def test_without_git_there_is_none(self):
        (self.root / ".git").rename(self.root / "gone")
        text = self.written()
        self.assertIn('.git = ""', text)
        self.assertIn(".dirty = false", text)


if __name__ == "__main__":
    unittest.main()
