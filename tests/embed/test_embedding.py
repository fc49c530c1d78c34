#!/usr/bin/env python3
"""A program of its own, example/, is built against the installed package, and its layers are what they are called.

  python3 tests/embed/test_embedding.py BUILD
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop()).resolve()
EXAMPLE = pathlib.Path(__file__).resolve().parent / "example"
ROOT = EXAMPLE.parent.parent.parent
# What a program must be compiled with to be linked with libraries of this build, and where this build has found a library.
SETTINGS = ("CMAKE_CXX_COMPILER", "CMAKE_CXX_FLAGS", "CMAKE_EXE_LINKER_FLAGS", "nlohmann_json_DIR")


def setting(name):
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    return re.search(rf"^{name}:\w+=(.*)$", cache, re.MULTILINE).group(1)


def done(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise AssertionError(f"{command} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


class Embedding(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.prefix, cls.build = pathlib.Path(folder.name) / "prefix", pathlib.Path(folder.name) / "build"
        done("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.configure(cls.build, f"-DCMAKE_PREFIX_PATH={cls.prefix}")
        done("cmake", "--build", cls.build)

    @staticmethod
    def configure(build, *options):
        settings = [f"-D{name}={setting(name)}" for name in SETTINGS]
        done("cmake", "-G", setting("CMAKE_GENERATOR"), "-S", EXAMPLE, "-B", build, *settings, *options)

    def embedding(self, strategy, towers):
        return subprocess.run([self.build / "embedding", strategy, str(towers)], capture_output=True, text=True)

    def differences(self, strategy, towers):
        """From batch norm of the whole batch, in training and in evaluation after one step."""
        lines = self.embedding(strategy, towers).stdout.splitlines()
        return [float(line.split()[-1]) for line in lines if line.startswith("difference")]

    def test_sync_is_batch_norm_of_the_whole_batch(self):
        for towers in (1, 2, 4):
            training, evaluation = self.differences("sync", towers)
            self.assertLess(training, 1e-5)
            self.assertLess(evaluation, 1e-5)

    def test_per_tower_is_not(self):
        training, evaluation = self.differences("per_tower", 2)
        self.assertGreater(training, 1e-3)
        self.assertGreater(evaluation, 1e-5)

    def test_the_network_learns(self):
        losses = [float(line.split()[-1]) for line in self.embedding("sync", 2).stdout.splitlines() if line.startswith("loss")]
        self.assertEqual(len(losses), 20)
        self.assertLess(losses[-1], losses[0])

    def test_every_strategy_of_the_program_is_there(self):
        listed = json.loads(done(self.prefix / "bin" / "bnlab", "list", "strategies", "--json"))
        known = self.embedding("?", 2).stderr.strip().partition("known: ")[2].split(", ")
        self.assertEqual(known, [entry["name"] for entry in listed])

    def libtorch(self):
        package = next(self.prefix.glob("lib*/**/bnlabConfig.cmake")).read_text(encoding="utf-8")
        return re.search(r'set\(bnlab_libtorch "(.*)"\)', package).group(1)

    def test_only_a_program_with_another_libtorch_is_refused(self):
        configured = [self.build.with_name("other"), f"-DCMAKE_PREFIX_PATH={self.prefix}"]
        self.configure(*configured, f"-DTORCH_INSTALL_PREFIX={self.libtorch()}/lib/..")
        with self.assertRaisesRegex(AssertionError, r"this\s+program\s+uses\s+that\s+in\s+/elsewhere"):
            self.configure(*configured, "-DTORCH_INSTALL_PREFIX=/elsewhere")

    def test_as_a_subdirectory_it_defines_the_library_alone(self):
        build = self.build.with_name("subdirectory")
        self.configure(build, f"-DBNLAB_SOURCE={ROOT}", f"-DCMAKE_PREFIX_PATH={self.libtorch()}/share/cmake",
                       "-DBNLAB_CUDA=OFF")
        targets = re.findall(r"^(?:\.\.\. )?(\w+)(?![\w/])", done("cmake", "--build", build, "--target", "help"), re.MULTILINE)
        self.assertIn("bnlab_strategies", targets)
        for name in ("bnlab", "harness_program", "plain_tests", "torch_tests", "bnlab_write_revision"):
            self.assertNotIn(name, targets)


if __name__ == "__main__":
    unittest.main()
