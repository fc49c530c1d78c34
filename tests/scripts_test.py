#!/usr/bin/env python3
"""What scripts/run.sh and scripts/plot.sh ask of other programs, wherever they are called, and what scripts/build.sh makes of
ninja's lines. Stand-ins take the place of these programs.

  python3 tests/scripts_test.py
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "scripts"
SAYS_HOW = '#!/bin/bash\necho "${0##*/} $*"\n'


class Scripts(unittest.TestCase):
    """A clone in which nothing is built, and a folder elsewhere."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.clone, self.elsewhere = (pathlib.Path(folder.name).resolve() / name for name in ("clone", "elsewhere"))
        self.elsewhere.mkdir()
        (self.clone / "scripts").mkdir(parents=True)

    def write(self, file, text=""):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)

    def call(self, script, *words, place, **variables):
        """Exit status and lines."""
        shutil.copy(SCRIPTS / script, self.clone / "scripts")
        done = subprocess.run([self.clone / "scripts" / script, *words], cwd=place, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={"PATH": os.environ["PATH"]} | variables)
        return done.returncode, [line for line in done.stdout.splitlines() if line]


class Run(Scripts):
    def setUp(self):
        super().setUp()
        self.write(self.clone / "build/release/bnlab", SAYS_HOW + 'echo "in $PWD, data in $BNLAB_DATA"\n')
        self.write(self.clone / "scripts/plot.sh", SAYS_HOW)
        self.write(self.clone / "scripts/build.sh", "#!/bin/bash\n")
        self.write(self.clone / "scripts/stages.sh", "load_settings() { BNLAB_INTERPRETER=true; }\n")

    def test_relative_paths_start_where_it_was_called(self):
        self.write(self.elsewhere / "mine.json")
        here = self.elsewhere
        self.assertEqual(self.call("run.sh", "mine.json", "--data", "photos", "--results=out", place=here, BNLAB_DATA="more"), (0, [
            f"bnlab run {here}/mine.json --data {here}/photos --results={here}/out", f"in {self.clone}, data in {here}/more",
            f"plot.sh {here}/out/mine --spec {here}/mine.json"]))

    def test_paths_within_the_clone_stay_as_they_are(self):
        self.write(self.clone / "experiments/mine.json")
        self.assertEqual(self.call("run.sh", "experiments/mine.json", "--results", "results/mine", place=self.clone), (0, [
            "bnlab run experiments/mine.json --results results/mine", f"in {self.clone}, data in ",
            "plot.sh results/mine/mine --spec experiments/mine.json"]))

    def test_a_name_is_that_of_the_clones_experiment(self):
        self.assertEqual(self.call("run.sh", "tradeoff", "--jobs", "2", place=self.elsewhere), (0, [
            "bnlab run tradeoff --jobs 2 --results results/here", f"in {self.clone}, data in ",
            "plot.sh results/here/tradeoff --spec tradeoff"]))


class Build(Scripts):
    """CMake's stand-in says what ninja would."""

    WORDS = ["ninja: Entering directory", "[1/4, 0.5] a.o", "[2/4, 29.9] b.o", "b.cpp:3: warning: careful",
             "[3/4, 61.0] c.o", "[4/4, 61.2] Linking"]

    def build(self, *lines, status=0):
        self.write(self.clone / "scripts/stages.sh",
                   'load_settings() { BNLAB_TOOLKIT= BNLAB_INTERPRETER=true; }\ntalk() { :; }\nstage() { :; }\n'
                   'has_gpu() { false; }\n')
        self.write(self.clone / "build/toolchain.env")
        said = "".join(f"echo '{line}'\n" for line in lines)
        self.write(self.clone / "bin/cmake", f"#!/bin/bash\n{said}exit {status}\n")
        return self.call("build.sh", place=self.clone, PATH=f"{self.clone}/bin:{os.environ['PATH']}")

    def test_steps_are_counted_now_and_then_and_warnings_stay(self):
        self.assertEqual(self.build(*self.WORDS), (0, [
            "ninja: Entering directory", "  2 of 4 steps, 29 s", "b.cpp:3: warning: careful", "  3 of 4 steps, 61 s",
            "  4 of 4 steps, 61 s"]))

    def test_what_fails_is_shown_whole(self):
        errors = ["FAILED: b.o", "g++ -c b.cpp", "b.cpp:3: error: no", "ninja: build stopped"]
        self.assertEqual(self.build("[1/4, 1.0] a.o", "[2/4, 2.0] b.o", *errors, status=1),
                         (1, ["  1 of 4 steps, 1 s", *errors]))

    def test_on_a_terminal_one_line_counts(self):
        script = shutil.which("script")
        if script is None:
            self.skipTest("the command script, which makes a terminal, is not installed")
        self.build()
        said = "".join(f"echo '{line}'\n" for line in self.WORDS)
        self.write(self.clone / "bin/cmake", f"#!/bin/bash\n{said}")
        done = subprocess.run([script, "-qec", str(self.clone / "scripts/build.sh"), "/dev/null"], check=True,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              env={"PATH": f"{self.clone}/bin:{os.environ['PATH']}"})
        lines = [line.rsplit("\r", 1)[-1] for line in done.stdout.decode().replace("\r\n", "\n").strip("\n").split("\n")]
        self.assertEqual(lines, ["ninja: Entering directory", "  2 of 4 steps, 29 s", "b.cpp:3: warning: careful",
                                 "  4 of 4 steps, 61 s"])


class Plot(Scripts):
    """The report's words are read by a stand-in for Python."""

    def setUp(self):
        super().setUp()
        self.write(self.clone / "build/release/bnlab", SAYS_HOW)
        self.write(self.clone / "scripts/python", '#!/bin/bash\n[ "$1" = -c ] || { echo "${@: -2}"; cat; }\n')
        self.results = self.elsewhere / "results"
        self.write(self.results / "mine/run/1x1-cpu/record.json")

    def plot(self, *words, place):
        return self.call("plot.sh", *words, place=place, BNLAB_PYTHON=str(self.clone / "scripts/python"))

    def test_a_folder_has_its_name_from_within_too(self):
        self.write(self.clone / "experiments/mine.json")
        asked = f"bnlab report {self.clone}/experiments/mine.json --results {self.results} --format json"
        for place, folder in (("mine", "."), ("mine/run", ".."), (".", "mine")):
            with self.subTest(folder):
                self.assertEqual(self.plot(folder, place=self.results / place), (0, [f"--out {folder}/figures", asked]))

    def test_a_spec_that_is_not_found_or_found_twice_is_told(self):
        specs = [self.clone / "experiments" / name for name in ("a/mine.json", "b/mine.json")]
        specs[0].parent.mkdir(parents=True)
        self.assertEqual(self.plot("mine", place=self.results), (2, [
            f"plot.sh: mine: no spec was found, neither spec.json in it nor mine.json below {self.clone}/experiments; "
            "--spec names one"]))
        for spec in specs:
            self.write(spec)
        self.assertEqual(self.plot("mine", place=self.results), (2, [
            f"plot.sh: mine: several specs were found, of which --spec names one: {specs[0]} {specs[1]}"]))


if __name__ == "__main__":
    unittest.main()
