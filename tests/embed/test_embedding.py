#!/usr/bin/env python3
"""Programs of others find the library through its installed package; the examples run in one process and on two ranks.

  python3 tests/embed/test_embedding.py BUILD
"""

import difflib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import zipfile

BUILD = pathlib.Path(sys.argv.pop()).resolve()
EXAMPLE = pathlib.Path(__file__).resolve().parent / "example"
ROOT = EXAMPLE.parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/pages"))
from page import block  # noqa: E402 pylint: disable=wrong-import-position
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
        kept = BUILD / "embedding"  # where the next run of this test compiles what has changed alone
        cls.prefix, cls.build = kept / "prefix", kept / "build"
        shutil.rmtree(cls.prefix, ignore_errors=True)
        done("cmake", "--install", BUILD, "--prefix", cls.prefix)
        page, text = kept / "page.cpp", block("harness/embed/own_network.md", "#include <torch/torch.h>")
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
        cls.configure(cls.build, f"-DCMAKE_PREFIX_PATH={cls.prefix}", f"-DPASTED={page}")
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

    def test_bnlab_launch_starts_it(self):
        launched = [self.prefix / "bin/bnlab", "launch", "--ranks", "2", self.build / "own_network"]
        self.assertEqual(done(*launched, cwd=self.folder), self.on_ranks(2, "own_network"))
        gone = subprocess.run([*launched, "?"], capture_output=True, text=True, cwd=self.folder)
        self.assertNotEqual(gone.returncode, 0)
        self.assertRegex(gone.stderr, r"bnlab launch: rank \d of 2 ended with status 1")

    def test_the_page_s_program_trains_uneven_batches_and_leaves_a_checkpoint(self):
        for ranks in (1, 4):  # of the last batch's two rows two of four ranks get none
            (self.folder / "net.pt").unlink(missing_ok=True)
            self.on_ranks(ranks, "page")
            self.assertTrue((self.folder / "net.pt").exists())

    def test_the_shared_library_serves_as_the_archives_do(self):
        self.assertEqual(done(self.build / "with_shared", cwd=self.folder), done(self.build / "own_network", cwd=self.folder))
        self.assertEqual(self.on_ranks(2, "with_shared"), self.on_ranks(2, "own_network"))
        self.assertIn(f"libbnlab.so.{self.version().split('.', maxsplit=1)[0]} ", done("ldd", self.build / "with_shared"))

    def test_the_shared_library_shows_what_the_headers_declare_and_nothing_else(self):
        library = next(self.prefix.glob(f"lib*/**/libbnlab.so.{self.version()}"))
        names = [line.split(maxsplit=2)[2] for line in done("nm", "-DC", "--defined-only", library).splitlines()]
        shown = re.compile(r"(?:(?:vtable|typeinfo|typeinfo name) for |(?:non-)?virtual thunk to )?bnlab::"
                           r"(?:Ranks|DataParallel|BatchNormImpl|HeldTensor|convert|convert_back|fold|recompute|load_state_dict|save_state_dict)\b")
        self.assertEqual([name for name in names if not shown.match(name)], [])
        for name in ("bnlab::convert(", "bnlab::DataParallel::backward(", "typeinfo for bnlab::BatchNormImpl"):
            self.assertTrue(any(shown_name.startswith(name) for shown_name in names), name)

    @staticmethod
    def version():
        return re.search(r"project\(bnlab VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)

    def test_versions_agree(self):
        judged = (ROOT / "scripts/vectors/peers.md").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"\bbnlab (\d[\d.]+)", judged)), {self.version()})
        for file in ("CITATION.cff", "scripts/python/pyproject.toml"):
            self.assertRegex((ROOT / file).read_text(encoding="utf-8"), rf'version(?::| =) "?{re.escape(self.version())}"?\n')
        self.assertIn(f"\n## {self.version()} (", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))

    def test_another_first_number_is_refused(self):
        project = self.folder / "asks"
        project.mkdir()
        for asked, given in (("1.0", False), ("2.0", True), ("3.0", False)):
            (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES CXX)\n"
                                                    f"find_package(bnlab {asked} REQUIRED)\n", encoding="utf-8")
            answer = subprocess.run(["cmake", "-S", project, "-B", project / f"build-{asked}", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                                     f"-DCMAKE_CXX_COMPILER={setting('CMAKE_CXX_COMPILER')}"], capture_output=True, text=True)
            self.assertEqual(answer.returncode == 0, given, answer.stderr)

    def test_fetch_content_and_add_subdirectory_give_both_targets_and_nothing_else_to_build(self):
        for way in ("include(FetchContent)\nFetchContent_Declare(bnlab URL https://example.invalid/bnlab.tar.gz)\n"
                    "FetchContent_MakeAvailable(bnlab)\n", f"add_subdirectory({ROOT} bnlab)\n"):
            project = self.folder / f"tree{len(way)}"
            project.mkdir()
            (project / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.25)\nproject(tree LANGUAGES CXX)\n" + way +
                "add_executable(a a.cpp)\ntarget_link_libraries(a bnlab::strategies)\n"
                "add_executable(b a.cpp)\ntarget_link_libraries(b bnlab::shared)\n", encoding="utf-8")
            (project / "a.cpp").write_text("#include <bnlab.hpp>\nint main() { return bnlab::Ranks().rank(); }\n", encoding="utf-8")
            configured = [f"-D{name}={setting(name)}" for name in (*SETTINGS, "TORCH_INCLUDE")]
            done("cmake", "-G", setting("CMAKE_GENERATOR"), "-S", project, "-B", project / "build", *configured,
                 f"-DFETCHCONTENT_SOURCE_DIR_BNLAB={ROOT}", "-DBNLAB_CUDA=OFF")
            if setting("CMAKE_GENERATOR") == "Ninja":
                steps = done("ninja", "-C", project / "build", "-t", "commands")
                self.assertIn("libbnlab.so", steps)
                self.assertNotIn("harness_records", steps)

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

    def test_twenty_lines_bring_it_there_and_readme_shows_some_of_them(self):
        before, after = ((EXAMPLE / name).read_text(encoding="utf-8").partition("#include")[2].splitlines()
                         for name in ("single_process.cpp", "own_network.cpp"))
        changed = [line for line in difflib.ndiff(before, after) if line.startswith("+ ")]
        self.assertLessEqual(len(changed), 20, changed)
        lines = {line[2:].strip().replace('argc > 1 ? argv[1] : "sync"', '"sync"') for line in changed}
        shown = [line.partition(" //")[0].strip() for line in block("README.md", "bnlab::BatchNorm norm").splitlines()]
        self.assertEqual((len(shown), [line for line in shown if line not in lines]), (6, []))

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

    def test_checkpoints_are_read_as_people_have_them(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")
        nn, (plain, given, target) = torch.nn, (self.folder / name for name in ("plain.pt", "given.pt", "to.pt"))
        stock = nn.Sequential()
        for inputs in (3, 8):
            stock.extend([nn.Conv2d(inputs, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()])
        stock.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)])
        state, program = stock.state_dict(), self.build / "converted_network"
        torch.save(dict(state), plain)
        done(program, plain, target)
        expected = torch.load(target)

        def wrapped(prefix):
            return {prefix + name: each for name, each in state.items()}

        on_a_gpu = self.folder / "gpu.zip"
        with zipfile.ZipFile(plain) as source, zipfile.ZipFile(on_a_gpu, "w") as archive:
            for name in source.namelist():
                archive.writestr(name, source.read(name).replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0"))
        saved = [(state, {}), (state, {"_use_new_zipfile_serialization": False}), (dict(state), {"pickle_protocol": 4}),
                 ({name: each for name, each in state.items() if "tracked" not in name}, {}),
                 ({name: nn.Parameter(each, each.is_floating_point()) for name, each in state.items()}, {}),
                 ({"epoch": 3, "state_dict": wrapped("model."), "optimizer": {"lr": 0.1, "state": [None, True]}}, {}),
                 ({"model": wrapped("_orig_mod.module."), "args": ("a", -1, 2**40)}, {})]
        for checkpoint, options in saved + [(None, {})]:
            torch.save(checkpoint, given, **options)
            if checkpoint is None:
                on_a_gpu.rename(given)
            done(program, given, target)
            for name, tensor in torch.load(target).items():
                self.assertTrue(torch.equal(tensor, expected[name]), (name, str(checkpoint)[:100], options))
        torch.save(wrapped("student.") | wrapped("teacher."), given)
        refused = subprocess.run([program, given, target], capture_output=True, text=True)
        self.assertRegex(refused.stderr, r"has two such networks, student.* and teacher")
        for write in (lambda: torch.save(stock, given), lambda: torch.jit.script(stock).save(given)):
            write()
            refused = subprocess.run([program, given, target], capture_output=True, text=True)
            self.assertEqual(refused.returncode, 1)
            line = re.search(r"python (-c .*)$", refused.stderr, re.MULTILINE)[1]
            subprocess.run(f"{sys.executable} {line}", shell=True, check=True, capture_output=True)
            done(program, f"{given}.plain.pt", target)
            self.assertTrue(torch.equal(torch.load(target)["8.weight"], expected["8.weight"]))
        given.write_bytes(plain.read_bytes()[:-300])
        refused = subprocess.run([program, given, target], capture_output=True, text=True)
        self.assertRegex(refused.stderr, r"given\.pt: is damaged, .*; fetch it again")

    def test_a_program_hands_in_its_own_process_group(self):
        self.assertEqual(self.on_ranks(2, "process_group"), "running mean 0.05\n")

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
        configured = [self.folder / "other", f"-DCMAKE_PREFIX_PATH={self.prefix}"]
        self.configure(*configured, f"-DTORCH_INSTALL_PREFIX={self.libtorch()}/lib/..")
        with self.assertRaisesRegex(AssertionError, r"this\s+program\s+uses\s+that\s+in\s+/elsewhere"):
            self.configure(*configured, "-DTORCH_INSTALL_PREFIX=/elsewhere")

    def test_as_a_subdirectory_it_defines_the_library_alone(self):
        build = self.folder / "subdirectory"
        self.configure(build, f"-DBNLAB_SOURCE={ROOT}", f"-DCMAKE_PREFIX_PATH={self.libtorch()}/share/cmake",
                       "-DBNLAB_CUDA=OFF")
        targets = re.findall(r"^(?:\.\.\. )?(\w+)(?![\w/])", done("cmake", "--build", build, "--target", "help"), re.MULTILINE)
        self.assertIn("bnlab_strategies", targets)
        for name in ("bnlab", "harness_program", "plain_tests", "torch_tests", "bnlab_write_revision"):
            self.assertNotIn(name, targets)


class LikePyTorch(unittest.TestCase):
    PAGE = ROOT / "harness/embed/like_pytorch.md"

    def test_every_row_names_a_test_of_its_own(self):
        sources = "".join(file.read_text(encoding="utf-8") for file in EXAMPLE.parent.glob("*_test.cpp"))
        there = {".".join(names) for names in re.findall(r"^TEST(?:_F)?\((\w+),\s*(\w+)\)", sources, re.MULTILINE)}
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in self.PAGE.read_text(encoding="utf-8").splitlines()
                if line.startswith("| ") and not line.startswith("| member")]
        for member, answer, *_ in rows:
            self.assertRegex(answer, r"^(same|refused|different|as BatchNorm[13]d)", member)
        named = [row[2].strip("`") for row in rows]
        self.assertEqual([name for name in named if name not in there], [])
        self.assertEqual(len(named), len(set(named)), "a test is named twice")
        self.assertEqual(sorted(name for name in there - set(named) if name.startswith("Like")), [], "tests without a row")
        self.assertGreaterEqual(len(named), 120)


if __name__ == "__main__":
    unittest.main()
