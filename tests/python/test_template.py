"""Workers forked from a template. The framework is a module of our own, called keras, which says each time that it is imported."""

import functools
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import support
from unisono import _template, train
from unisono.train import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, TrainingFailedError

TWO = ScalingConfig(num_workers=2)
FAKE = """
import os, time
with open(os.environ["FAKE_IMPORTS"], "a") as file:
    file.write("%d\\n" % os.getpid())
exec(os.environ.get("FAKE_CODE", ""))
value = 42
"""


def here():
    """What tells a forked worker from a new one, and what is its own."""
    import random

    with open("/proc/self/cmdline", encoding="utf-8") as file:
        forked = "_template.py" in file.read()
    with open("/proc/self/stat", encoding="utf-8") as file:
        group = int(file.read().rpartition(")")[2].split()[2])
    return {"forked": forked, "pid": os.getpid(), "group": group, "rank": int(os.environ["RANK"]), "random": random.random(), "cwd": os.getcwd(),
            "mark": os.environ.get("MARK", ""), "threads": len(os.listdir("/proc/self/task"))}


def loop(config=None):
    import keras

    return dict(here(), value=keras.value)


def reporting(config=None):
    found = loop()
    print("printed by %d" % found["rank"])
    train.report(found)


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


class WithFake(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        os.mkdir(os.path.join(self.folder, "keras"))
        with open(os.path.join(self.folder, "keras", "__init__.py"), "w", encoding="utf-8") as file:
            file.write(FAKE)
        self.count = os.path.join(self.folder, "imports")
        self.before = dict(os.environ)
        os.environ["FAKE_IMPORTS"] = self.count
        sys.path.insert(0, self.folder)
        self.addCleanup(self.clean)

    def clean(self):
        os.environ.clear()
        os.environ.update(self.before)
        sys.path.remove(self.folder)
        _template.shutdown()

    def imports(self):
        if not os.path.exists(self.count):
            return []
        with open(self.count, encoding="utf-8") as file:
            return [int(line) for line in file]


class Forked(WithFake):
    def fit(self, function=reporting, failures=0, **keywords):
        with support.printed() as out:
            result = DataParallelTrainer(function, scaling_config=TWO, run_config=RunConfig(failure_config=FailureConfig(max_failures=failures)),
                                         **keywords).fit()
        self.printed = out.getvalue()
        return result

    def test_three_fits_import_once(self):
        found = [self.fit().metrics for _ in range(3)]
        self.assertEqual([each["forked"] for each in found], [True] * 3)
        self.assertEqual(len({each["pid"] for each in found}), 3)
        self.assertEqual(len(self.imports()), 1)
        self.assertIn("(rank 0) printed by 0", self.printed)
        self.assertIn("(rank 1) printed by 1", self.printed)

    def test_ranks_have_their_own_group_environment_and_random_numbers(self):
        def both():
            train.report({"both": reporting_of_all()})

        def reporting_of_all():
            found = loop()
            with open(os.path.join(os.environ["MARKS"], str(found["rank"])), "w", encoding="utf-8") as file:
                file.write(repr(found))
            return found["rank"]

        os.environ["MARKS"] = self.folder
        self.fit(both)
        found = []
        for rank in range(2):
            with open(os.path.join(self.folder, str(rank)), encoding="utf-8") as file:
                found.append(eval(file.read()))
        self.assertEqual([each["rank"] for each in found], [0, 1])
        self.assertEqual([each["group"] for each in found], [each["pid"] for each in found])
        self.assertNotEqual(found[0]["random"], found[1]["random"])

    def test_the_driver_s_directory_of_now(self):
        self.fit()
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            self.assertEqual(self.fit().metrics["cwd"], os.path.realpath(self.folder))
        finally:
            os.chdir(before)
        self.assertEqual(len(self.imports()), 1)

    def test_another_environment_is_another_template(self):
        self.fit()
        os.environ["MARK"] = "other"
        self.assertEqual(self.fit().metrics["mark"], "other")
        self.assertEqual(len(self.imports()), 2)
        del os.environ["MARK"]
        self.assertEqual(self.fit().metrics["mark"], "")
        self.assertEqual(len(self.imports()), 2)

    def test_a_killed_worker_comes_back_from_the_template(self):
        def die_once():
            found = loop()
            mark = os.path.join(os.environ["MARKS"], "died")
            if found["rank"] == 1 and not os.path.exists(mark):
                open(mark, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            if not os.path.exists(mark):
                time.sleep(30)
            train.report(found)

        os.environ["MARKS"] = self.folder
        result = self.fit(die_once, failures=1)
        self.assertTrue(result.metrics["forked"])
        self.assertEqual(len(self.imports()), 1)

    def test_a_killed_template_is_passed_by(self):
        self.fit()
        os.kill(_template._templates[-1].process, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not alive(self.imports()[0])))
        self.assertTrue(self.fit().metrics["forked"])  # from a new one
        self.assertEqual(len(self.imports()), 2)

    def test_a_template_that_dies_between_question_and_answer(self):
        self.fit()
        template = _template._templates[-1]
        os.kill(template.process, signal.SIGSTOP)
        trainer = DataParallelTrainer(reporting, scaling_config=TWO)
        killer = subprocess.Popen([sys.executable, "-c", "import os, time; time.sleep(0.7); os.kill(%d, 9)" % template.process])
        with support.printed():
            found = trainer.fit().metrics
        killer.wait()
        self.assertFalse(found["forked"])
        self.assertEqual(found["value"], 42)

    def test_exceptions_come_back_as_themselves(self):
        def fails():
            import keras

            raise KeyError(keras.value)

        with self.assertRaises(KeyError) as caught, support.printed():
            self.fit(fails)
        self.assertIsInstance(caught.exception, TrainingFailedError)

    def test_the_driver_has_no_child(self):
        self.fit()
        with self.assertRaises(ChildProcessError):
            os.wait()

    def test_shutdown_ends_it(self):
        import unisono

        self.fit()
        pid = _template._templates[-1].process
        unisono.shutdown()
        self.assertTrue(wait_until(lambda: not alive(pid)))


class NotForked(WithFake):
    fit = Forked.fit

    def test_not_when_told_so(self):
        os.environ["UNISONO_TEMPLATE"] = "0"
        self.assertFalse(self.fit().metrics["forked"])
        self.assertEqual(len(self.imports()), 2)

    def test_not_where_the_import_leaves_threads(self):
        os.environ["FAKE_CODE"] = "import threading; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
        with self.assertLogs("unisono", logging.WARNING) as logs:
            self.assertFalse(self.fit().metrics["forked"])
        self.assertIn("left threads running", logs.output[0])
        self.assertFalse(self.fit().metrics["forked"])  # and it is not tried again
        self.assertEqual(len(self.imports()), 1 + 2 + 2)

    def test_not_where_the_import_fails(self):
        os.environ["FAKE_CODE"] = "raise ImportError('no such wheel')"
        with self.assertRaisesRegex(ImportError, "no such wheel"), self.assertLogs("unisono", logging.WARNING):
            self.fit()

    def test_not_where_the_import_ends_the_process(self):
        os.environ["FAKE_CODE"] = "os.environ.get('RANK') or os._exit(3)"
        with self.assertLogs("unisono", logging.WARNING) as logs:
            self.assertFalse(self.fit().metrics["forked"])
        self.assertIn("ended while it imported keras", logs.output[0])

    def test_not_for_functions_without_a_framework(self):
        def plain():
            train.report(here())

        self.assertFalse(self.fit(plain).metrics["forked"])
        self.assertEqual(_template._templates, [])


SCRIPT = """
import os, sys, time
from unisono import train
from unisono.train import DataParallelTrainer, ScalingConfig

def loop():
    import keras
    with open(os.environ["FAKE_IMPORTS"] + ".workers", "a") as file:
        file.write("%d\\n" % os.getpid())
    time.sleep(60)

try:
    DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit()
except KeyboardInterrupt:
    print("interrupted")
"""


class Ends(WithFake):
    def start(self):
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([self.folder, os.environ.get("PYTHONPATH", "")]))
        process = subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        return process

    def workers(self):
        try:
            with open(self.count + ".workers", encoding="utf-8") as file:
                return [int(line) for line in file]
        except OSError:
            return []

    def assert_gone(self):
        left = lambda: [pid for pid in self.imports() + self.workers() if alive(pid)]
        wait_until(lambda: not left())
        self.assertEqual(left(), [])

    def test_a_driver_that_is_killed_during_the_import(self):
        os.environ["FAKE_CODE"] = "time.sleep(60)"
        process = self.start()
        self.assertTrue(wait_until(self.imports))
        process.kill()
        process.wait()
        begin = time.monotonic()
        self.assert_gone()
        self.assertLess(time.monotonic() - begin, 5)

    def test_a_driver_that_is_killed_during_a_run(self):
        process = self.start()
        self.assertTrue(wait_until(lambda: len(self.workers()) == 2))
        process.kill()
        process.wait()
        self.assert_gone()

    def test_keyboard_interrupt(self):
        process = self.start()
        self.assertTrue(wait_until(lambda: len(self.workers()) == 2))
        process.send_signal(signal.SIGINT)
        self.assertIn("interrupted", process.communicate(timeout=20)[0])
        self.assert_gone()

    def test_keyboard_interrupt_during_the_import(self):
        os.environ["FAKE_CODE"] = "time.sleep(60)"
        process = self.start()
        self.assertTrue(wait_until(self.imports))
        process.send_signal(signal.SIGINT)
        self.assertIn("interrupted", process.communicate(timeout=20)[0])
        self.assert_gone()


class Holder:
    def method(self):
        import torch

        return torch


def calls_another():
    return uses_numpy()


def uses_numpy():
    from numpy import linalg

    return linalg


class Looking(unittest.TestCase):
    def test_what_functions_need(self):
        def imports():
            import tensorflow as tf

            return tf.keras  # an attribute, not Keras 3

        def nested():
            def inner():
                import torch.nn

                return torch

            return inner

        def through_ours():
            from unisono.horovod import torch as hvd
            import unisono.train.tensorflow.keras

            return hvd, unisono

        self.assertEqual(_template.frameworks_of(imports), {"tensorflow"})
        self.assertEqual(_template.frameworks_of(nested), {"torch"})
        self.assertEqual(_template.frameworks_of(lambda: nested), {"torch"})
        self.assertEqual(_template.frameworks_of(through_ours), {"tensorflow", "torch"})
        self.assertEqual(_template.frameworks_of(Holder().method), {"torch"})
        self.assertEqual(_template.frameworks_of(functools.partial(imports)), {"tensorflow"})
        self.assertEqual(_template.frameworks_of(calls_another), {"numpy"})
        self.assertEqual(_template.frameworks_of(lambda: os.getpid()), set())


if __name__ == "__main__":
    support.main()
