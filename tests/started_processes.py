"""Processes that a test starts and does not wait for, of the tests in faults/ and simgpu/."""

import subprocess
import time
import unittest

PATIENCE = 600  # seconds, for a busy machine


class StartedProcesses(unittest.TestCase):
    def start_process(self, command, variables, **how):
        process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, **how)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def until(self, process, happened):
        """Waits while the process runs."""
        deadline = time.monotonic() + PATIENCE
        while not happened():
            self.assertIsNone(process.poll(), "the process has ended")
            self.assertLess(time.monotonic(), deadline, "it does not happen")
            time.sleep(0.02)
