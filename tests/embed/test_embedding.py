#!/usr/bin/env python3
"""Programs of others find the library through its installed package; the examples run in one process and on two ranks.

  python3 tests/embed/test_embedding.py BUILD
"""

import difflib
import json
import os
import pathlib
import re
import socket
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


def done(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, **options)
    if result.returncode != 0:
        raise AssertionError(f"{command} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def readme_program():
    """The lines of README's library part, as a program."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    part = text.partition("## In your own LibTorch program")[2].partition("\n## ")[0]
    lines = [line[4:] for line in part.splitlines() if line.startswith("    ")]
    return "\n".join(lines) + "\n", len(lines)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Embedding(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prefix, cls.build = cls.folder / "prefix", cls.folder / "build"
        done("cmake", "--install", BUILD, "--prefix", cls.prefix)
        readme = cls.folder / "readme.cpp"
        readme.write_text(readme_program()[0], encoding="utf-8")
        cls.configure(cls.build, f"-DCMAKE_PREFIX_PATH={cls.prefix}", f"-DREADME_LINES={readme}")
        done("cmake", "--build", cls.build)

    @staticmethod
    def configure(build, *options):
        settings = [f"-D{name}={setting(name)}" for name in SETTINGS]
        done("cmake", "-G", setting("CMAKE_GENERATOR"), "-S", EXAMPLE, "-B", build, *settings, *options)

    def on_ranks(self, ranks, program, *arguments):
        """What rank 0 says, where a launcher has announced so many ranks."""
        port = str(free_port())
        started = []
        for rank in range(ranks):
            where = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            started.append(subprocess.Popen([self.build / program, *arguments], cwd=self.folder, text=True,
                                            env=os.environ | where, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        answers = [process.communicate(timeout=120) for process in started]
        self.assertEqual([process.returncode for process in started], [0] * ranks, answers)
        return answers[0][0]

    def test_readme_lines_bring_a_program_to_two_ranks(self):
        self.assertLessEqual(readme_program()[1], 20)
        losses = [float(line) for line in self.on_ranks(2, "readme").split()]
        self.assertEqual(len(losses), 20)
        self.assertLess(losses[-1], losses[0])

    def test_a_network_of_ones_own_trains_on_two_ranks_as_in_one_process(self):
        alone = done(self.build / "single_process", cwd=self.folder)
        for ranks in (1, 2):
            together = self.on_ranks(ranks, "own_network")
            for one, two in zip(alone.split(), together.split(), strict=True):
                self.assertAlmostEqual(float(one) if "." in one else 0, float(two) if "." in two else 0, places=4)
        self.assertLess(float(alone.split()[-1]), float(alone.split()[3]))

    def test_every_strategy_of_the_program_is_there(self):
        listed = json.loads(done(self.prefix / "bin" / "bnlab", "list", "strategies", "--json"))
        refused = subprocess.run([self.build / "own_network", "?"], capture_output=True, text=True, cwd=self.folder)
        known = refused.stderr.strip().partition("known: ")[2].split(", ")
        self.assertEqual(known, [entry["name"] for entry in listed])

    def test_twenty_lines_bring_it_there(self):
        before, after = ((EXAMPLE / name).read_text(encoding="utf-8").partition("#include")[2].splitlines()
                         for name in ("single_process.cpp", "own_network.cpp"))
        changed = [line for line in difflib.ndiff(before, after) if line.startswith("+ ")]
        self.assertLessEqual(len(changed), 20, changed)

    def test_a_converted_network_goes_on_from_a_checkpoint_of_pytorch_and_hands_one_back(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")
        torch.manual_seed(0)
        stock = torch.nn.Sequential()
        for inputs in (3, 8):
            stock.extend([torch.nn.Conv2d(inputs, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU()])
        stock.extend([torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4)])
        stock(torch.rand(4, 3, 8, 8))
        source, target = self.folder / "from.pt", self.folder / "to.pt"
        torch.save(dict(stock.state_dict()), source)
        self.assertIn("converted 2 layers", self.on_ranks(2, "converted_network", source, target))
        sgd = torch.optim.SGD(stock.parameters(), 0.05, momentum=0.9)
        for step in range(2):
            images = (torch.arange(9 * 3 * 8 * 8, dtype=torch.float32) * 0.37 + step).sin().view(9, 3, 8, 8)
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(stock(images), torch.arange(9).remainder(4)).backward()
            sgd.step()
        returned = torch.load(target)
        self.assertEqual(set(returned), set(stock.state_dict()))
        for name, tensor in stock.state_dict().items():
            self.assertEqual(returned[name].dtype, tensor.dtype)
            torch.testing.assert_close(returned[name], tensor, rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")

    def test_a_rank_that_has_gone_is_an_error_that_names_the_rank(self):
        where = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                 "BNLAB_MEETING_TIMEOUT_S": "2"}
        alone = subprocess.run([self.build / "own_network"], env=os.environ | where, capture_output=True, text=True,
                               cwd=self.folder, timeout=100)
        self.assertEqual(alone.returncode, 1)
        self.assertIn("rank 1", alone.stderr)

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
