#!/usr/bin/env python3
"""What scripts/run.sh and scripts/plot.sh ask of other programs, wherever they are called, what scripts/build.sh makes of
ninja's lines, and what scripts/test.sh builds and counts. Stand-ins take the place of these programs.

  python3 tests/scripts_test.py
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
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


class SetUp(Scripts):
    """What set-up would fetch, into a clone where nothing is."""

    LOCK = ("uv==1 --hash=sha256:aa  # uv\n" "torch==2.11.0 --hash=sha256:bb  # first\n"
            "cuda-toolkit==13.0.2 --hash=sha256:cc  # first\n" "sympy==1 --hash=sha256:dd  # cuda\n")

    def setUp(self):
        super().setUp()
        for file in ("stages.sh", "versions.sh"):
            shutil.copy(SCRIPTS / file, self.clone / "scripts")
        self.write(self.clone / "scripts/wheels/torch-2.11.0.lock", self.LOCK)

    def wheels(self, **variables):
        """The groups of the lock file that are missing."""
        _, lines = self.call("setup.sh", "--check", place=self.elsewhere, **variables)
        missing = [line for line in lines if "Python wheels" in line]
        return missing[0].split("Python wheels ")[1].split(" of ")[0] if missing else ""

    def test_without_cuda_few_wheels_are_fetched(self):
        self.assertEqual(self.wheels(BNLAB_CUDA="off"), "first")

    def test_whoever_asks_for_cuda_gets_them_all(self):
        self.assertIn("first cuda", self.wheels(BNLAB_CUDA="on"))
        self.assertEqual(self.wheels(BNLAB_CUDA_TOOLKIT="wheels"), "first cuda nvcc")

    def test_the_few_are_not_all_and_all_serve_who_needs_few(self):
        of_lock = hashlib.sha256(self.LOCK.encode()).hexdigest()
        self.write(self.clone / ".venv/bnlab-wheels", f"first {of_lock}\n")
        self.assertEqual(self.wheels(BNLAB_CUDA="off"), "")
        self.assertIn("first cuda", self.wheels(BNLAB_CUDA="on"))
        self.write(self.clone / ".venv/bnlab-wheels", f"first cuda nvcc {of_lock}\n")
        self.assertEqual(self.wheels(BNLAB_CUDA="off"), "")
        self.write(self.clone / "scripts/wheels/torch-2.11.0.lock", self.LOCK + "# more\n")
        self.assertIn("first", self.wheels(BNLAB_CUDA="off"))

    def test_a_version_without_a_lock_file_is_answered_by_the_line_that_writes_it(self):
        status, lines = self.call("setup.sh", place=self.elsewhere, BNLAB_TORCH_VERSION="9.9.9")
        self.assertEqual((status, len(lines)), (3, 1))
        self.assertIn("BNLAB_TORCH_VERSION=9.9.9 scripts/lock.sh", lines[0])

    def test_another_hash_is_told_in_a_line(self):
        self.write(self.clone / "scripts/stage.sh", "#!/bin/bash\nlog=$0.log LOCK=the.lock\nsource ${0%/*}/stages.sh\n"
                   "stage Wheels bash -c 'echo \"Hash mismatch for \\`numpy==2.4.6\\`\"; false'\n")
        done = subprocess.run([self.clone / "scripts/stage.sh"], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 3)
        self.assertIn("numpy==2.4.6 has another hash than in the.lock", done.stderr.splitlines()[-1])

    def test_every_wheel_that_is_fetched_has_a_hash_and_a_group(self):
        for lock in (SCRIPTS / "wheels").glob("torch-*.lock"):
            for line in lock.read_text(encoding="utf-8").splitlines():
                self.assertRegex(line, r"^[\w.-]+==\S+ (; .* )?--hash=sha256:[0-9a-f]{64}.*  # (uv|first|cuda|nvcc|tests)$")


class Build(Scripts):
    """CMake's stand-in says what ninja would."""

    WORDS = ["ninja: Entering directory", "[1/4, 0.5] a.o", "[2/4, 29.9] b.o", "b.cpp:3: warning: careful",
             "[3/4, 61.0] c.o", "[4/4, 61.2] Linking"]

    def build(self, *lines, status=0):
        self.write(self.clone / "scripts/stages.sh",
                   'load_settings() { BNLAB_TOOLKIT= BNLAB_INTERPRETER=true; }\ntalk() { :; }\nstage() { :; }\n'
                   'wants_cuda() { false; }\n')
        self.write(self.clone / "build/toolchain.env")
        said = "".join(f"echo '{line}'\n" for line in lines)
        self.write(self.clone / "bin/cmake", f"#!/bin/bash\n{said}exit {status}\n")
        return self.call("build.sh", place=self.clone, PATH=f"{self.clone}/bin:{os.environ['PATH']}")

    def test_steps_are_counted_now_and_then_and_warnings_stay(self):
        self.assertEqual(self.build(*self.WORDS), (0, [
            "ninja: Entering directory", "  2 of 4 steps, 29 s", "b.cpp:3: warning: careful", "  3 of 4 steps, 61 s",
            "  4 of 4 steps, 61 s"]))

    def test_a_set_up_that_adds_cuda_keeps_what_is_compiled(self):
        self.write(self.clone / "scripts/stages.sh",
                   'load_settings() { BNLAB_TOOLKIT=/cuda BNLAB_INTERPRETER=true; }\ntalk() { :; }\n'
                   'stage() { echo "${@:2}"; }\nwants_cuda() { true; }\n')
        self.write(self.clone / "bin/cmake", "#!/bin/bash\n")
        before, folder = "export CMAKE_PREFIX_PATH=/torch\nexport BNLAB_TOOLKIT=''\n", self.clone / "build/release"
        with_cuda = before.replace("''", "/cuda") + "export CUDACXX=/cuda/bin/nvcc\nexport CUDAARCHS=80\n"
        for after, cache, fresh in ((with_cuda, "", False), (with_cuda.replace("/torch", "/other"), "", True),
                                    (with_cuda, "CMAKE_CUDA_COMPILER:FILEPATH=/old/bin/nvcc\n", True), (before, "", False)):
            with self.subTest(after=after, cache=cache):
                self.write(folder / "toolchain.env", before)
                self.write(folder / "CMakeCache.txt", cache)
                self.write(self.clone / "build/toolchain.env", after)
                _, lines = self.call("build.sh", place=self.clone, PATH=f"{self.clone}/bin:{os.environ['PATH']}")
                self.assertEqual(lines, ["cmake --preset release -DBNLAB_CUDA=ON -DPython3_EXECUTABLE=true "
                                         "-UCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit" + " --fresh" * fresh])

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


class Tests(Scripts):
    def counted(self, cases, **reports):
        """What count_tests.py says of a JUnit file with these test cases, and reports of GoogleTest by their names."""
        self.write(self.clone / "ctest.xml", f"<testsuite>{cases}</testsuite>")
        for name, text in reports.items():
            self.write(self.clone / "reports" / f"{name}.xml", f"<testsuites><testsuite>{text}</testsuite></testsuites>")
        done = subprocess.run([sys.executable, SCRIPTS / "count_tests.py", self.clone / "ctest.xml"], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()

    def test_every_case_counts_of_googletest_and_of_unittest(self):
        case = '<testcase classname="Sync" name="{}" result="completed">{}</testcase>'
        shards = {"t_1of3": case.format("A", "") + case.format("B", ""), "t_2of3": case.format("C", "<failure/>"), "t_3of3": ""}
        cases = ('<testcase name="t/1of3" status="run"/><testcase name="t/2of3" status="fail"/><testcase name="t/3of3" status="run"/>'
                 '<testcase name="figures" status="run"><system-out>..s\nRan 3 tests in 1.2s\n\nOK (skipped=1)</system-out></testcase>'
                 '<testcase name="prose" status="fail"><system-out>FAIL: test_a (x.Y.test_a)\nRan 2 tests in 1s</system-out></testcase>'
                 '<testcase name="trials" status="run"><system-out>100 trials</system-out></testcase>')
        self.assertEqual(self.counted(cases, **shards), (1, [
            "skipped: a case of figures", "failed: Sync.C", "failed: test_a", "6 passed, 2 failed, 1 skipped"]))

    def test_what_crashed_or_was_not_there_has_failed_and_what_skips_itself_is_named(self):
        cases = ('<testcase name="t/1of1" status="fail"/><testcase name="gone" status="notrun"><skipped message="Required Files Missing"/>'
                 '</testcase><testcase name="peers" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>'
                 '<testcase name="good" status="run"/>')
        self.assertEqual(self.counted(cases), (1, ["skipped: peers", "failed: t/1of1", "failed: gone", "1 passed, 2 failed, 1 skipped"]))

    def needed(self, tests, steps="", log=""):
        """What needed_by_tests.py prints where ctest would run these tests, and ninja take these steps."""
        build = self.clone / "build/release"
        self.write(build / "build.ninja", "build build.ninja: RERUN_CMAKE\n  pool = console\n\nbuild bnlab: phony\n")
        self.write(build / ".ninja_log", "# ninja log v5\n" + log)
        listed = [{"name": name, "properties": [{"name": key, "value": value} for key, value in properties.items()]}
                  for name, properties in tests.items()]
        self.write(self.clone / "bin/ctest", f"#!/bin/bash\ncat <<'EOF'\n{json.dumps({'tests': listed})}\nEOF\n")
        self.write(self.clone / "bin/ninja", f"#!/bin/bash\ngrep -q RERUN {build}/plan.ninja || cat <<'EOF'\n{steps}\nEOF\n")
        done = subprocess.run([sys.executable, SCRIPTS / "needed_by_tests.py", "release", "-R", "Sync"], capture_output=True, text=True,
                              cwd=self.clone, env=os.environ | {"PATH": f"{self.clone}/bin:{os.environ['PATH']}"})
        return done.returncode, done.stdout.split(), done.stderr.strip()

    def test_only_what_the_tests_need_is_built_and_how_long_it_takes_is_said(self):
        program = str(self.clone / "build/release/tests/torch_tests")
        tests = {"torch_tests/Sync": {"REQUIRED_FILES": [program], "COST": 20.0}, "structure": {"COST": 200.0}}
        steps = "[1/3] Building CXX object a.cpp.o\n[2/3] Building CXX object b.cpp.o\n[3/3] Linking CXX executable tests/torch_tests"
        log = "0\t600000\t1\ta.cpp.o\tf00\n"  # the other takes as long, as far as is known
        building = "20 min" if os.cpu_count() == 1 else "10 min" if os.cpu_count() == 2 else None
        code, files, said = self.needed(tests, steps, log)
        self.assertEqual((code, files), (0, ["tests/torch_tests"]))
        self.assertRegex(said, rf"^2 tests, about 3 min, after 3 steps of building, about {building or '.*'}\.$")

    def test_what_is_built_is_only_run_and_a_name_of_nothing_is_told(self):
        self.assertEqual(self.needed({"structure": {"COST": 5.0}}), (0, [], "1 test, about 5 s."))
        self.assertEqual(self.needed({}), (1, [], "No test is called so: -R Sync"))


if __name__ == "__main__":
    unittest.main()
