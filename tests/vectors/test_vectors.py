#!/usr/bin/env python3
"""The files of `bnlab vectors`, read and judged by scripts/vectors: formulas in NumPy pass, the program and the library pass,
and each mistake is failed by the cases that say they catch it.

  BNLAB_PROGRAM=build/release/bnlab .venv/bin/python tests/vectors/test_vectors.py
"""

import copy
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/vectors"))
PROGRAM = os.environ["BNLAB_PROGRAM"]

try:
    import numpy

    import judge
    import plain
    import programs
except ModuleNotFoundError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

# The mistake, and the families of cases that are there to catch it.
CAUGHT = {
    "e_x2": ["huge_mean"],
    "biased": ["steps", "one_value"],
    "mean_of_ranks": ["uneven", "image_sizes", "ranks_apart"],
    "variance_of_ranks": ["ranks_apart"],
    "eps_outside": ["tiny_variance", "tiny_eps", "constant"],
    "wrong_eps": ["large_eps", "tiny_eps"],
    "no_exchange": ["even", "uneven", "empty_ranks"],
    "all_ranks": ["groups_of_1", "groups_of_2", "groups_of_3"],
    "momentum_swapped": ["momentum_0.3", "momentum_1"],
    "momentum_fixed": ["momentum_null", "momentum_1"],
    "counts_samples": ["image_sizes"],
    "rank_count": ["one_value"],
    "empty_is_nan": ["empty_ranks"],
    "half_sums": ["half_mean"],
    "half_squares": ["half_deviation"],
    "half_counts": ["half_count"],
    "first_32_channels": ["channels_33", "channels_65", "channels_129"],
    "layout_ignored": ["channels_last"],
    "kept_in_layer": ["two_forwards"],
    "eval_by_batch": ["evaluation", "steps"],
    "nan_hidden": ["inf", "nan"],
    "stopped_gradient": ["even"],
    "normalises_unbiased": ["even", "one_value"],
}


class Vectors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = pathlib.Path(cls.folder.name) / "new/vectors"
        said = subprocess.run([PROGRAM, "vectors", "--out", cls.out], capture_output=True, text=True, check=True).stdout
        cls.cases = judge.read_cases(cls.out)
        assert said.startswith(f"{len(cls.cases)} cases in"), said

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check_passes(self, implementation, cases=None):
        for case in cases or self.cases:
            verdict = judge.judge(case, implementation)
            self.assertEqual(verdict["verdict"], "passed", f"{case.name}: {judge.reason(verdict)}")

    def test_a_second_command_writes_the_same(self):
        again = pathlib.Path(self.folder.name) / "again"
        subprocess.run([PROGRAM, "vectors", "--out", again], capture_output=True, check=True)
        for name in ("vectors.json", "vectors.safetensors"):
            self.assertEqual((again / name).read_bytes(), (self.out / name).read_bytes())

    def test_formulas_in_numpy_agree_with_the_reference(self):
        self.assertGreaterEqual(len(self.cases), 150)
        self.check_passes(plain.plain())

    def test_each_mistake_is_failed_by_the_cases_for_it(self):
        self.assertEqual(sorted(CAUGHT), sorted(plain.FAULTS))
        for fault, families in CAUGHT.items():
            implementation = plain.plain(fault)
            for family in families:
                with self.subTest(fault=fault, family=family):
                    verdicts = [judge.judge(case, implementation)["verdict"] for case in self.cases
                                if case.name.split("/")[0] == family]
                    self.assertIn("failed", verdicts)

    def test_a_biased_running_variance_is_told_from_other_mistakes(self):
        for case in self.cases:
            verdict = judge.judge(case, plain.plain("biased"))
            self.assertTrue(verdict["verdict"] == "passed" or verdict["with_biased_variance"], case.name)
        steps = next(case for case in self.cases if case.name.startswith("steps"))
        self.assertFalse(judge.judge(steps, plain.plain("momentum_swapped"))["with_biased_variance"])

    def test_refusals_and_what_cannot_be_asked_are_told_apart(self):
        def refuses(case):
            raise ValueError("no")

        def cannot(case):
            raise judge.Unsupported("never")

        verdicts = {case.name: judge.judge(case, refuses)["verdict"] for case in self.cases}
        self.assertEqual(verdicts["all_empty/0-0/nchw/float64"], "passed")
        self.assertEqual(verdicts["even/6/nc/float64"], "refused")
        self.assertEqual(judge.judge(self.cases[0], cannot)["verdict"], "unsupported")
        self.assertEqual(judge.judge(self.cases[0], lambda case: {})["verdict"], "failed")

    def test_another_implementation_says_what_is_expected(self):
        steps, biased = next(case for case in self.cases if case.name.startswith("steps")), plain.plain("biased")
        verdicts = [judge.judge(steps, implementation, like=biased)["verdict"] for implementation in (biased, plain.plain())]
        self.assertEqual(verdicts, ["passed", "failed"])

    def test_the_table_counts_and_folds_the_families_behind_the_counts(self):
        verdict = {"verdict": "passed", "with_biased_variance": True}
        some = {"even/1": verdict, "even/2": {"verdict": "unsupported"}, "inf/1": {"verdict": "refused", "with_biased_variance": False}}
        counts, families = judge.table([{"text": "all", "verdicts": {"even/1": verdict}}, {"text": "some", "verdicts": some}]).split("<details>")
        self.assertIn("| all | 1 | 1 | 1 |\n| some | 2 | 1 | 1 |\n", counts)
        self.assertEqual([row for row in families.splitlines() if row.startswith(("| all", "| some"))], ["| some | inf (1) | even (1) |"])

    def test_the_program_passes(self):
        os.environ["BNLAB_PROGRAM"] = PROGRAM
        program = programs.bnlab_program()
        cases = [case for case in self.cases if case.dtype in ("float64", "bfloat16")]
        program.ask(cases)
        self.check_passes(program, cases)

    def test_what_others_compute_is_an_option(self):
        """What is a mistake of sync is what others compute, and an option of it."""
        os.environ["BNLAB_PROGRAM"] = PROGRAM
        cases = [case for case in self.cases if case.dtype == "float64" and case.ranks_per_group == case.ranks and
                 case.name.startswith(("even", "uneven", "image_sizes", "empty_ranks", "one_value"))]
        for option, fault in (('"weights": "equal"', "mean_of_ranks"), ('"weights": "equal", "route": "all_reduce"', "mean_of_ranks"),
                              ('"normalise": "unbiased"', "normalises_unbiased")):
            program, others = programs.bnlab_program(f'{{"name": "sync", {option}}}'), plain.plain(fault)
            program.ask(cases)
            for case in cases:
                expected, answers = others(case), program(case)
                for name in expected:
                    if name.endswith(("output", "running_mean", "running_var")):
                        numpy.testing.assert_allclose(answers[name], expected[name], rtol=1e-9, atol=1e-11,
                                                      err_msg=f"{option} {case.name} {name}")

    def test_the_program_asked_for_many_cases_answers_each_as_alone(self):
        first, last = [case for case in self.cases if case.name.startswith("momentum_1/")][:2]
        refused = copy.copy(first)
        refused.name, refused.momentum = "refused", 7
        together, alone = programs.bnlab_program(), programs.bnlab_program()
        together.ask([first, refused, last])
        self.assertIn("momentum", str(together.known["refused"]))
        self.assertRaises(RuntimeError, together, refused)
        alone(last)
        self.assertEqual(together.known[last.name], alone.known[last.name])

    def test_the_answers_that_the_library_leaves_pass(self):
        file = pathlib.Path(self.folder.name) / "answers.safetensors"
        subprocess.run([os.environ["BNLAB_VECTORS_TESTS"], "--gtest_filter=Vectors.TheLibraryPassesAll"], check=True,
                       capture_output=True, env={**os.environ, "BNLAB_VECTOR_ANSWERS": str(file)})
        self.check_passes(programs.answers(str(file)))

    def test_other_versions_are_refused(self):
        index = (self.out / "vectors.json").read_text(encoding="utf-8")
        other = pathlib.Path(self.folder.name) / "other"
        other.mkdir()
        (other / "vectors.json").write_text(index.replace('"version": 1', '"version": 2'), encoding="utf-8")
        with self.assertRaisesRegex(SystemExit, "expected vectors of version 1"):
            judge.read_cases(other)

    def test_what_is_not_there_is_said_in_one_line(self):
        nowhere = f"{self.folder.name}/nowhere"
        for words, message in (([nowhere, "plain"], f"{nowhere}/vectors.json: No such file or directory; `bnlab vectors --out "
                                f"{nowhere}` writes it\n"),
                               ([str(self.out), "foo"], f"unknown implementation foo: there are {', '.join(judge.MODULES)}, and "
                                "FILE.py:CLASS\n"),
                               ([str(self.out), f"answers:{nowhere}"],
                                f"answers:{nowhere}: [Errno 2] No such file or directory: '{nowhere}'\n")):
            done = subprocess.run([sys.executable, judge.__file__, *words], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", message))


if __name__ == "__main__":
    unittest.main()
