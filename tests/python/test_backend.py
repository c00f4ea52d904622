"""Backends of the user's own: the hooks run in the driver, what they execute runs in the workers. v1 and 2.x, no framework."""

import contextlib
import glob
import os
import signal
import tempfile
import threading
import unittest

import support
import unisono
from unisono import train, tune
from unisono.train import (Backend, BackendConfig, Checkpoint, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, Trainer, TrainingCallback)
from unisono.train._internal.worker_group import WorkerGroup
from unisono.train.torch import TorchConfig


def set_variable(name, value):
    os.environ[name] = value
    return os.getpid(), value


def where():
    return os.getpid(), train.world_rank(), threading.current_thread() is threading.main_thread()


def raises(text):
    raise KeyError(text)


class Noted(Backend):
    """Writes its calls down in the configuration, which is an object of the driver."""

    def on_start(self, worker_group, backend_config):
        pids = [pid for pid, _ in worker_group.execute(set_variable, "MY_BACKEND", value=backend_config.value)]
        backend_config.calls.append(("start", len(worker_group), worker_group.num_workers, pids))
        address = worker_group.execute_single(0, lambda: "host-of-%s" % os.environ["MY_BACKEND"])
        unisono.get([worker_group.execute_single_async(rank, set_variable, "MY_PLACE", "%s/%d" % (address, rank)) for rank in range(len(worker_group))])

    def on_training_start(self, worker_group: WorkerGroup, backend_config: BackendConfig):
        backend_config.calls.append(("training", unisono.get(worker_group.execute_async(where))))

    def on_shutdown(self, worker_group, backend_config):
        backend_config.calls.append(("shutdown", worker_group.execute(os.getpid)))


class Config(BackendConfig):
    backend_cls = Noted

    def __init__(self, value="v"):
        self.value, self.calls = value, []

    def names(self):
        return [call[0] for call in self.calls]

    def __reduce__(self):  # what is saved for restore, and nothing else
        return Config, (self.value,)


def config_with(backend, **members):
    return type("Own", (BackendConfig,), dict(members, backend_cls=backend))()


def read():
    train.report({"place": os.environ["MY_PLACE"]})
    return os.environ["MY_BACKEND"], os.environ["MY_PLACE"], os.getpid()


def fit(function, config, workers=2, **keywords):
    return DataParallelTrainer(function, backend_config=config, scaling_config=ScalingConfig(num_workers=workers), **keywords).fit()


class V1(unittest.TestCase):
    def setUp(self):
        self.config = Config()
        self.trainer = Trainer(backend=self.config, num_workers=2)
        self.trainer.start()
        self.addCleanup(self.trainer.shutdown)

    def test_hooks_surround_the_runs(self):
        first = self.trainer.run(lambda: [os.environ["MY_BACKEND"], os.environ["MY_PLACE"]])
        self.assertEqual(first, [["v", "host-of-v/0"], ["v", "host-of-v/1"]])
        pids = self.trainer.run(os.getpid)
        self.trainer.shutdown()
        self.assertEqual(self.config.names(), ["start", "training", "training", "shutdown"])
        start, training, _, shutdown = self.config.calls
        self.assertEqual(start[1:], (2, 2, pids))  # warm workers: the same processes
        self.assertEqual(training[1], [(pids[0], 0, True), (pids[1], 1, True)])
        self.assertEqual(shutdown[1], pids)

    def test_shutdown_and_start_again(self):
        for _ in range(2):
            self.assertEqual(self.trainer.run(lambda: os.environ["MY_BACKEND"]), ["v", "v"])
            self.trainer.shutdown()
            self.trainer.start()
        self.assertEqual(self.config.names(), ["start", "training", "shutdown"] * 2)

    def test_iterator_and_callbacks(self):
        def loop():
            for epoch in range(3):
                train.report(epoch=epoch, place=os.environ["MY_PLACE"])

        seen = [[report["place"] for report in reports] for reports in self.trainer.run_iterator(loop)]
        self.assertEqual(seen, [["host-of-v/0", "host-of-v/1"]] * 3)

    def test_a_killed_worker_is_started_and_set_up_again(self):
        with tempfile.TemporaryDirectory() as folder:
            def loop():
                if train.world_rank() == 1 and not os.path.exists(os.path.join(folder, "killed")):
                    open(os.path.join(folder, "killed"), "w").close()
                    os.kill(os.getpid(), signal.SIGKILL)
                return os.environ["MY_PLACE"]

            self.assertEqual(self.trainer.run(loop), ["host-of-v/0", "host-of-v/1"])
        self.assertEqual(self.config.names(), ["start", "training"] * 2)

    def test_an_exception_of_the_function_is_the_user_s(self):
        with self.assertRaisesRegex(KeyError, "mine"):
            self.trainer.run(lambda: raises("mine"))
        self.assertEqual(self.trainer.run(lambda: os.environ["MY_BACKEND"]), ["v", "v"])

    def test_nothing_is_left(self):
        self.trainer.run(os.getpid)
        self.trainer.shutdown()
        self.assertEqual(glob.glob(os.path.join(tempfile.gettempdir(), "unisono-*", "socket")), [])


class V2(unittest.TestCase):
    def test_hooks_surround_fit(self):
        config = Config("x")
        result = fit(read, config)
        self.assertEqual(result.metrics["place"], "host-of-x/0")
        self.assertEqual(config.names(), ["start", "training", "shutdown"])
        self.assertEqual(config.calls[0][3], config.calls[2][1])
        self.assertEqual([rank for _, rank, _ in config.calls[1][1]], [0, 1])

    def test_with_a_callback(self):
        class Seen(TrainingCallback):
            places = []

            def handle_result(self, results, **info):
                self.places += [result["place"] for result in results]

        config = Config("x")
        fit(read, config, run_config=RunConfig(callbacks=[Seen()]))
        self.assertEqual(Seen.places, ["host-of-x/0", "host-of-x/1"])
        self.assertEqual(config.names(), ["start", "training", "shutdown"])

    def test_restart(self):
        def loop():
            start = Checkpoint.to_dict(train.get_checkpoint())["epoch"] + 1 if train.get_checkpoint() else 0
            for epoch in range(start, 4):
                train.report({"epoch": epoch, "place": os.environ["MY_PLACE"], "start": start}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
                if epoch == 1 and start == 0 and train.world_rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)

        config = Config()
        result = fit(loop, config, run_config=RunConfig(failure_config=FailureConfig(max_failures=2)))
        self.assertEqual((result.metrics["epoch"], result.metrics["place"]), (3, "host-of-v/0"))
        self.assertGreater(result.metrics["start"], 0)
        self.assertEqual(config.names(), ["start", "training", "start", "training", "shutdown"])

    def test_on_shutdown_after_an_exception(self):
        config = Config()

        def loop():
            if train.world_rank() == 1:
                raises("mine")
            threading.Event().wait(60)  # the other rank waits for it, as in a collective

        with self.assertRaisesRegex(KeyError, "mine"):
            fit(loop, config)
        self.assertEqual(config.names(), ["start", "training", "shutdown"])

    def test_context_of_the_train_function(self):
        @contextlib.contextmanager
        def context():
            os.environ["INSIDE"] = "yes"
            yield
            print("the context is left")

        config = config_with(Backend, train_func_context=property(lambda self: context))
        result = fit(lambda: train.report({"inside": os.environ.get("INSIDE")}), config)
        self.assertEqual(result.metrics["inside"], "yes")
        trainer = Trainer(config, 2)
        trainer.start()
        self.assertEqual(trainer.run(lambda: os.environ.get("INSIDE")), ["yes", "yes"])
        trainer.shutdown()
        with self.assertRaisesRegex(TypeError, "to_tune_trainable with train_func_context is not supported"):
            trainer.to_tune_trainable(read)

    def test_where_the_workers_are(self):
        seen = []

        class Own(Backend):
            def on_start(self, worker_group, backend_config):
                seen.extend((worker.metadata.node_ip, worker.metadata.pid) for worker in worker_group.workers)
                seen.append(worker_group.execute(os.getpid))

        fit(lambda: train.report({"x": 1}), config_with(Own))
        self.assertEqual(seen[:2], [("127.0.0.1", pid) for pid in seen[2]])


class Failures(unittest.TestCase):
    def failing(self, name, action):
        return config_with(type("Bad", (Backend,), {name: lambda self, worker_group, backend_config: action(worker_group)}))

    def test_a_hook_that_raises(self):
        def action(worker_group):
            raise ZeroDivisionError("of the hook")

        for name in ("on_start", "on_training_start", "on_shutdown"):
            with self.subTest(name):
                with self.assertRaisesRegex(ZeroDivisionError, "of the hook"):
                    fit(lambda: train.report({"x": 1}), self.failing(name, action))
                trainer = Trainer(self.failing(name, action), 2)
                trainer.start()
                try:
                    with self.assertRaisesRegex(ZeroDivisionError, "of the hook"):
                        trainer.run(os.getpid)
                        trainer.shutdown()
                finally:
                    trainer.shutdown()

    def test_what_a_hook_executes_raises(self):
        with self.assertRaisesRegex(KeyError, "there") as caught:
            fit(lambda: None, self.failing("on_start", lambda worker_group: worker_group.execute_single(1, raises, "there")))
        self.assertIn("On rank 1", str(caught.exception.__cause__.__cause__))

    def test_a_worker_that_dies_in_a_hook(self):
        with tempfile.TemporaryDirectory() as folder:
            def die(path):
                if not os.path.exists(path):
                    open(path, "w").close()
                    os.kill(os.getpid(), signal.SIGKILL)

            trainer = Trainer(self.failing("on_start", lambda worker_group: worker_group.execute_single(1, die, os.path.join(folder, "died"))), 2)
            trainer.start()
            self.assertEqual(trainer.run(lambda: "done"), ["done", "done"])
            trainer.shutdown()

    def test_the_train_function_s_exception_comes_first(self):
        with self.assertRaisesRegex(KeyError, "mine"):
            fit(lambda: raises("mine"), self.failing("on_shutdown", lambda worker_group: raises("hook")))

    def test_misuse_is_named(self):
        for action, kind, text in ((lambda group: group.add_workers(1), AttributeError, "worker_group.add_workers is not supported.*execute_single"),
                                   (lambda group: group.workers[0].actor, AttributeError, "has no actor: use worker_group.execute_single"),
                                   (lambda group: group.execute(3), TypeError, "executes a function, not 3"),
                                   (lambda group: group.execute_single(2, os.getpid), ValueError, "worker_index must be from 0 to 1, not 2")):
            with self.assertRaisesRegex(kind, text):
                fit(lambda: None, self.failing("on_start", action))


class Refused(unittest.TestCase):
    def test_what_would_have_no_effect(self):
        plain = type("Own", (Backend,), {})
        for config, text in ((config_with(type("Own", (Backend,), {"encode_data": staticmethod(dict)})), "encode_data would not be called"),
                             (config_with(type("Own", (Backend,), {"handle_failure": lambda *_: None})), "handle_failure would not be called"),
                             (config_with(type("Own", (Backend,), {"has_replica_groups": True})), "has_replica_groups has no effect"),
                             (config_with("name"), "must be a class"),
                             (type("Mine", (TorchConfig,), {"backend_cls": plain})(), "derive the configuration from BackendConfig")):
            for call in (lambda: Trainer(config, 1), lambda: DataParallelTrainer(read, backend_config=config)):
                with self.assertRaisesRegex(TypeError, text):
                    call()

    def test_where_nothing_could_call_them(self):
        with self.assertRaisesRegex(TypeError, "to_tune_trainable with the hooks of Noted is not supported"):
            Trainer(Config(), 1).to_tune_trainable(read)
        with self.assertRaisesRegex(TypeError, "to_worker_group with the hooks of Noted is not supported"):
            Trainer(Config(), 1).to_worker_group(dict)
        with self.assertRaisesRegex(TypeError, r"Tuner\(DataParallelTrainer\) with the hooks of Noted is not supported"):
            tune.Tuner(DataParallelTrainer(read, backend_config=Config())).fit()


class Closing(unittest.TestCase):
    def test_no_thread_complains(self):
        """The thread that accepts may come to its end after the directory of its socket is gone: a traceback after a good run."""
        from unisono._channel import Channel

        complaints, before = [], threading.excepthook
        threading.excepthook = complaints.append
        try:
            for _ in range(20):
                channel = Channel(1, lambda *message: None)
                threads = [each for each in threading.enumerate() if each.name == "unisono-channel"]
                channel.close()
                for thread in threads:
                    thread.join(10)
        finally:
            threading.excepthook = before
        self.assertEqual([each.exc_value for each in complaints], [])


if __name__ == "__main__":
    support.main()
