"""What the tests share: unittest's runner with one line a test that ./test can count."""

import contextlib
import io
import os
import sys
import unittest


class _Result(unittest.TextTestResult):
    """Lines in cmocka's form."""

    def addSuccess(self, test):
        super().addSuccess(test)
        self.stream.writeln("[       OK ] %s" % test.id().rpartition("__main__.")[2])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.stream.writeln("[  SKIPPED ] %s" % test.id().rpartition("__main__.")[2])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.stream.writeln("[  FAILED  ] %s" % test.id().rpartition("__main__.")[2])

    addError = addFailure


def main():
    runner = unittest.TextTestRunner(stream=sys.stdout, resultclass=_Result, verbosity=0)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.stdout.flush()
    os._exit(0 if result.wasSuccessful() and result.testsRun else 1)


@contextlib.contextmanager
def printed():
    """What is written to stdout meanwhile."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        yield out
