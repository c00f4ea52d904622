"""restarts_fronts.py - the net for restarts, over the front ends: programs of the command line, Python's sessions, v1 and v2 trainers, unisono.keras,
PyTorch, TensorFlow with both Kerases, RaySGD's TFTrainer, and searches.

Each front end is run undisturbed, then killed once per case (which rank, epoch and moment); what it returned and left on disk must be equal. Natively every
combination is in restarts.c and restarts_tune.c; here, where a run takes seconds, policies and moments are taken in pairs. `RESTARTS_ONLY=words` chooses by
name; the last line counts.
"""

import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

EPOCHS = 4


def die(config, rank, epoch, moment):
    """Kills this process where the case says so, once."""
    if config["kill"] != [rank, epoch, moment] or os.path.exists(config["flag"]):
        return
    with open(config["flag"], "w", encoding="utf-8"):
        os.kill(os.getpid(), signal.SIGKILL)


def step(number, epoch):
    """Depends on every epoch before."""
    return number * 0.75 + epoch + 1


# ---- the command line ----

SHELL = """
n=0; epoch=0
if [ -n "$UNISONO_CHECKPOINT" ]; then read -r epoch n < "$UNISONO_CHECKPOINT/state"; fi
die() { if [ "$KILL" = "$UNISONO_RANK $epoch $1" ] && [ ! -e "$FLAG" ]; then : > "$FLAG"; kill -9 $$; fi; }
mkdir -p "$MINE.$UNISONO_RANK"
while [ $epoch -lt 4 ]; do
    die begin
    n=$(( (n * 3 + epoch * 7 + 1) % 1000 )); epoch=$(( epoch + 1 ))
    if [ $UNISONO_RANK = 0 ]; then
        echo "$epoch $n" > "$MINE.$UNISONO_RANK/state"
        unisono report loss=$n --checkpoint "$MINE.$UNISONO_RANK"
    else
        unisono report loss=$n
    fi
    die reported
done
[ $UNISONO_RANK != 0 ] || echo $n > "$OUT"
"""

SCRIPT = """
import json, os, sys
sys.path.insert(0, %r)
import restarts_fronts
from unisono import train
config = json.loads(os.environ["UNISONO_CONFIG"])
number = restarts_fronts.plain_loop(config)
if train.get_context().get_world_rank() == 0:
    json.dump(number, open(config["out"], "w"))
"""


def unisono_command():
    """Of the same build as the module."""
    import unisono

    return os.path.join(os.path.dirname(os.path.abspath(unisono.__file__)), "..", "..", "src", "cli", "unisono")


def command(words, config, policy, folder):
    env = dict(os.environ, KILL="%d %d %s" % tuple(config["kill"]), FLAG=config["flag"], OUT=config["out"], MINE=os.path.join(folder, "mine"),
               UNISONO_RESULTS=os.path.join(folder, "results"), PATH=os.path.dirname(unisono_command()) + os.pathsep + os.environ["PATH"])
    keep = {"all": [], "1": ["--keep", "1"], "best": ["--keep", "2", "--keep-best", "loss:min"]}[policy]
    done = subprocess.run(["unisono", "run", "-n", "2", "--name", "net", "-q", *keep, "--set", "front=1",
                           *["--set=%s=%s" % (key, json.dumps(value)) for key, value in config.items()], "--", *words],
                          env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    with open(config["out"], encoding="utf-8") as file:
        return file.read(), os.path.join(folder, "results", "net", "run_001")


def by_shell(config, policy, folder):
    return command(["sh", "-c", SHELL], config, policy, folder)


def by_script(config, policy, folder):
    return command([sys.executable, "-c", SCRIPT % os.path.dirname(os.path.abspath(__file__))], config, policy, folder)


# ---- Python ----


def plain_loop(config):
    """Ray Train's own form: a directory from rank 0 at each report."""
    from unisono import train

    rank = train.get_context().get_world_rank()
    number, first, checkpoint = 0.0, 0, train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "state"), encoding="utf-8") as file:
            first, number = json.load(file)
    for epoch in range(first, EPOCHS):
        die(config, rank, epoch, "begin")
        number = step(number, epoch)
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "state"), "w", encoding="utf-8") as file:
                json.dump([epoch + 1, number], file)
            metrics = {"loss": (number - 4) ** 2}
            if rank == 0:
                train.report(metrics, checkpoint=train.Checkpoint.from_directory(folder))
            else:
                train.report(metrics)
        die(config, rank, epoch + 1, "reported")
    return number


def v2(loop, workers, kind="DataParallelTrainer", **scaling):
    def run(config, policy, folder):
        from unisono import train

        def train_loop(settings):
            out = loop(settings)
            if train.get_context().get_world_rank() == 0:
                with open(settings["out"], "w", encoding="utf-8") as file:
                    json.dump(out, file)

        keep = {"all": {}, "1": {"num_to_keep": 1}, "best": {"num_to_keep": 2, "checkpoint_score_attribute": "loss", "checkpoint_score_order": "min"}}[policy]
        module = __import__("unisono.train.torch", fromlist=["TorchTrainer"]) if kind == "TorchTrainer" else train
        result = (getattr(module, kind) if isinstance(kind, str) else kind)(train_loop, train_loop_config=config, scaling_config=train.ScalingConfig(num_workers=workers, **scaling),
                                       run_config=train.RunConfig(name="net", storage_path=folder, failure_config=train.FailureConfig(max_failures=2),
                                                                  checkpoint_config=train.CheckpointConfig(**keep))).fit()
        with open(config["out"], encoding="utf-8") as file:
            out = [file.read(), os.path.basename(result.checkpoint.path), [os.path.basename(each.path) for each, _ in result.best_checkpoints],
                   {name: value for name, value in result.metrics.items() if "time" not in name and name not in ("pid", "date")}]
        return out, result.path

    return run


def by_v1(config, policy, folder):
    from unisono import train
    from unisono.train import CheckpointStrategy, Trainer

    def loop(settings):
        rank, state = train.world_rank(), train.load_checkpoint() or {"epoch": 0, "number": 0.0}
        number = state["number"]
        for epoch in range(state["epoch"], EPOCHS):
            die(settings, rank, epoch, "begin")
            number = step(number, epoch)
            train.save_checkpoint(epoch=epoch + 1, number=number, loss=(number - 4) ** 2)
            if rank == 0:
                assert train.load_checkpoint()["epoch"] == epoch + 1
            train.report(loss=number)
            die(settings, rank, epoch + 1, "reported")
        return number

    keep = {"all": {}, "1": {"num_to_keep": 1}, "none": {"num_to_keep": 0},
            "best": {"num_to_keep": 2, "checkpoint_score_attribute": "loss", "checkpoint_score_order": "min"}}[policy]
    trainer = Trainer(backend="torch" if config.get("torch") else "native", num_workers=2, logdir=folder)
    trainer.start()
    returned = trainer.run(loop, config, checkpoint_strategy=CheckpointStrategy(**keep))
    latest = {key: value for key, value in (trainer.latest_checkpoint or {}).items() if not key.startswith("_")}
    run_dir = str(trainer.latest_run_dir)
    trainer.shutdown()
    return [returned, latest], run_dir


def keras_loop(config):
    """The native engine in Python, with every callback that remembers something."""
    import numpy as np

    from unisono import keras, train
    from unisono.keras import callbacks

    class Killer(callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            die(config, 0, epoch, "begin")

        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                die(config, 0, self.model_epoch(), "middle")

        def model_epoch(self):
            return len(open(os.path.join(config["files"], "epochs"), encoding="utf-8").read()) if os.path.exists(os.path.join(config["files"], "epochs")) else 0

    class Reporter(callbacks.ReportCheckpointCallback):
        def _save(self, folder):
            super()._save(folder)
            with open(os.path.join(folder, "epoch"), "w", encoding="utf-8") as file:
                file.write(str(self.now + 1))

        def after_epoch(self, epoch, logs=None):
            self.now = epoch
            super().after_epoch(epoch, logs)
            die(config, 0, epoch + 1, "reported")

    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    x, v = random.normal(size=(48, 3)).astype("float32"), random.normal(size=(24, 3)).astype("float32")
    checkpoint, epoch = train.get_checkpoint(), 0
    if checkpoint is None:
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.08), "mse")
    else:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "epoch"), encoding="utf-8") as file:
            model, epoch = keras.models.load_model(os.path.join(folder, "model.keras")), int(file.read())
    files = config["files"]
    history = model.fit(x, x.sum(1, keepdims=True) * 2 + 1, batch_size=8, epochs=EPOCHS + 3, initial_epoch=epoch, verbose=0,
                        validation_data=(v, v.sum(1, keepdims=True) + 0.5),
                        callbacks=[Killer(), Reporter(), callbacks.EarlyStopping(patience=2, restore_best_weights=True), callbacks.ReduceLROnPlateau(patience=1),
                                   callbacks.CSVLogger(os.path.join(files, "log.csv")),
                                   callbacks.ModelCheckpoint(os.path.join(files, "best.weights.h5"), save_best_only=True, save_weights_only=True)])
    with open(os.path.join(files, "log.csv"), encoding="utf-8") as file:
        return [history.history, history.epoch, [each.tolist() for each in model.get_weights()], file.read()]


def torch_loop(config):
    """A model of two parameters under DDP; its state is a dictionary of tensors in a file."""
    import torch

    from unisono import train
    from unisono.train import torch as train_torch

    torch.manual_seed(0)
    rank, first = train.get_context().get_world_rank(), 0
    model = train_torch.prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state"))
        first = state["epoch"]
        getattr(model, "module", model).load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for epoch in range(first, EPOCHS):
        die(config, rank, epoch, "begin")
        x = torch.arange(8.0).reshape(4, 2) / 8 + rank + epoch
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plain = getattr(model, "module", model)
        with tempfile.TemporaryDirectory() as folder:
            if rank == 0:
                torch.save({"epoch": epoch + 1, "model": plain.state_dict(), "optimizer": optimizer.state_dict()}, os.path.join(folder, "state"))
                train.report({"loss": plain.weight.sum().item()}, checkpoint=train.Checkpoint.from_directory(folder))
            else:
                train.report({"loss": plain.weight.sum().item()})
        die(config, rank, epoch + 1, "reported")
    return [each.tolist() for each in getattr(model, "module", model).parameters()]


# ---- TensorFlow ----


def tf_loop(config):
    """A model of Keras under MultiWorkerMirroredStrategy, with the state of its optimizer; an epoch is a fit."""
    import numpy as np
    import tensorflow as tf

    from unisono import train

    assert tf.keras.Model.__module__.startswith("tf_keras") == config["legacy"], tf.keras.Model
    tf.keras.utils.set_random_seed(1)
    rank, first, checkpoint = train.get_context().get_world_rank(), 0, train.get_checkpoint()
    x = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        if checkpoint is None:
            model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(4, activation="tanh"), tf.keras.layers.Dense(1)])
            model.compile(optimizer=tf.keras.optimizers.Adam(0.05), loss="mse")
        else:
            with checkpoint.as_directory() as folder, open(os.path.join(folder, "epoch"), encoding="utf-8") as file:
                model, first = tf.keras.models.load_model(os.path.join(folder, "model.keras")), int(file.read())
    for epoch in range(first, EPOCHS):
        die(config, rank, epoch, "begin")
        data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True) + epoch)).batch(8)
        loss = round(float(model.fit(data, epochs=1, verbose=0).history["loss"][-1]), 5)
        with tempfile.TemporaryDirectory() as folder:
            model.save(os.path.join(folder, "model.keras"))
            if rank == 0:
                with open(os.path.join(folder, "epoch"), "w", encoding="utf-8") as file:
                    file.write(str(epoch + 1))
                train.report({"loss": loss}, checkpoint=train.Checkpoint.from_directory(folder))
            else:
                train.report({"loss": loss})
        die(config, rank, epoch + 1, "reported")
    return [np.round(each, 4).tolist() for each in model.get_weights()]


def by_tensorflow(config, policy, folder):
    from unisono.train.tensorflow import TensorflowTrainer

    return v2(tf_loop, 2, TensorflowTrainer)(config, policy, folder)


def by_v1_tensorflow(config, policy, folder):
    from unisono.train import Trainer

    def loop(settings):
        import tensorflow as tf

        from unisono import train

        rank, state = train.world_rank(), train.load_checkpoint() or {"epoch": 0, "weight": 1.0}
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            weight = tf.Variable(state["weight"])

        @tf.function
        def add(number):
            with tf.GradientTape() as tape:
                loss = weight * number
            gradient = tape.gradient(loss, weight)
            weight.assign_sub(0.1 * tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradient))

        for epoch in range(state["epoch"], EPOCHS):
            die(settings, rank, epoch, "begin")
            strategy.run(add, args=(tf.constant(epoch + rank + 0.5),))
            train.save_checkpoint(epoch=epoch + 1, weight=float(weight.numpy()))
            train.report(loss=float(weight.numpy()))
            die(settings, rank, epoch + 1, "reported")
        return float(weight.numpy())

    trainer = Trainer(backend="tensorflow", num_workers=2, logdir=folder)
    trainer.start()
    returned = trainer.run(loop, config)
    latest = {key: value for key, value in trainer.latest_checkpoint.items() if not key.startswith("_")}
    run_dir = str(trainer.latest_run_dir)
    trainer.shutdown()
    return [returned, latest], run_dir


def by_tftrainer(config, policy, folder):
    """RaySGD has no restarts: a replica's death is an error, and a new trainer goes on with what save() wrote."""
    import signal as signals

    import numpy as np

    import unisono
    from unisono.util.sgd.tf import TFTrainer

    def model_creator(settings):
        import tensorflow as tf

        with open(os.path.join(settings["files"], "pid." + os.environ.get("UNISONO_RANK", "driver")), "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        tf.keras.utils.set_random_seed(3)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
        model.compile(optimizer=tf.keras.optimizers.SGD(0.05, momentum=0.9), loss="mse")
        return model

    def data_creator(settings):
        import numpy
        import tensorflow as tf

        x = numpy.arange(32, dtype="float32").reshape(16, 2) / 32
        return (tf.data.Dataset.from_tensor_slices((x, x.sum(1))).batch(8),) * 2

    def new():
        return TFTrainer(model_creator=model_creator, data_creator=data_creator, num_replicas=2, config={"files": config["files"]})

    trainer, numbers, epoch, path = new(), [], 0, os.path.join(folder, "saved")
    trainer.save(path)
    while epoch < EPOCHS:
        rank, at, _ = config["kill"]
        if epoch == at and not os.path.exists(config["flag"]):
            with open(config["flag"], "w", encoding="utf-8"), open(os.path.join(config["files"], "pid.%d" % rank), encoding="utf-8") as file:
                os.kill(int(file.read()), signals.SIGKILL)
        try:
            stats = trainer.train()
        except (RuntimeError, unisono.Error):
            assert os.path.exists(config["flag"])
            trainer.shutdown()
            trainer = new()
            trainer.restore(path)
            continue
        numbers.append(round(stats["train_loss"], 5))
        epoch += 1
        trainer.save(path)
    weights = [np.round(each, 4).tolist() for each in trainer.get_model().get_weights()]
    trainer.shutdown()
    for name in os.listdir(config["files"]):
        os.remove(os.path.join(config["files"], name))
    return [numbers, weights], folder


# ---- searches: three trials one after the other, the second one dies ----


def tune_loop(config):
    """plain_loop, scaled by the parameter; only one trial is killed."""
    from unisono import train

    number, first, checkpoint = 0.0, 0, train.get_checkpoint()
    dies = config if config["x"] == 2 else dict(config, kill=[-1, -1, "never"])
    rank = train.get_context().get_world_rank()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "state"), encoding="utf-8") as file:
            first, number = json.load(file)
    for epoch in range(first, EPOCHS):
        die(dies, rank, epoch, "begin")
        number = step(number, epoch) * config["x"]
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "state"), "w", encoding="utf-8") as file:
                json.dump([epoch + 1, number], file)
            train.report({"loss": (number - 4) ** 2}, checkpoint=train.Checkpoint.from_directory(folder) if rank == 0 else None)
        die(dies, rank, epoch + 1, "reported")


def trial_outcome(grid):
    """Of every trial: its config, last metrics, and what its checkpoints have in them."""
    out = []
    for result in grid:
        saved = []
        for checkpoint in [result.checkpoint] + [each for each, _ in result.best_checkpoints or []]:
            with checkpoint.as_directory() as folder, open(os.path.join(folder, "state"), encoding="utf-8") as file:
                saved.append(file.read())
        out.append([result.config.get("x"), result.metrics["loss"], result.metrics["training_iteration"], saved[0], sorted(set(saved))])
    best = grid.get_best_result()
    return [out, best.metrics["loss"]]


def tune_settings(policy, folder):
    from unisono import train, tune

    keep = {"all": {}, "1": {"num_to_keep": 1}, "best": {"num_to_keep": 2, "checkpoint_score_attribute": "loss", "checkpoint_score_order": "min"}}[policy]
    return {"tune_config": tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=1),
            "run_config": train.RunConfig(name="net", storage_path=folder, failure_config=train.FailureConfig(max_failures=2),
                                          checkpoint_config=train.CheckpointConfig(**keep), verbose=0)}


def by_tuner(config, policy, folder):
    from unisono import tune

    grid = tune.Tuner(tune_loop, param_space=dict(config, x=tune.grid_search([1, 2, 3])), **tune_settings(policy, folder)).fit()
    return trial_outcome(grid), folder


def by_tuned_trainer(config, policy, folder):
    """Trials of two workers."""
    from unisono import train, tune

    trainer = train.DataParallelTrainer(tune_loop, scaling_config=train.ScalingConfig(num_workers=2))
    grid = tune.Tuner(trainer, param_space={"train_loop_config": dict(config, x=tune.grid_search([1, 2, 3]))}, **tune_settings(policy, folder)).fit()
    # A trial has a run for every start, and num_to_keep counts in each of them (docs/tune.md, Limits).
    return [each[1:4] for each in trial_outcome(grid)[0]], os.path.join(folder, "none")


def by_trainable(config, policy, folder):
    """A class: the tuner asks it for its state."""
    from unisono import tune

    class Adds(tune.Trainable):
        def setup(self, settings):
            self.settings, self.number = settings, 0.0
            self.dies = settings if settings["x"] == 2 else dict(settings, kill=[-1, -1, "never"])

        def step(self):
            die(self.dies, 0, self.iteration, "begin")
            self.number = step(self.number, self.iteration) * self.settings["x"]
            return {"loss": (self.number - 4) ** 2, "done": self.iteration + 1 == EPOCHS}

        def save_checkpoint(self, checkpoint_dir):
            with open(os.path.join(checkpoint_dir, "state"), "w", encoding="utf-8") as file:
                json.dump([self.iteration, self.number], file)
            die(self.dies, 0, self.iteration, "reported")

        def load_checkpoint(self, checkpoint_dir):
            with open(os.path.join(checkpoint_dir, "state"), encoding="utf-8") as file:
                self.number = json.load(file)[1]

    keep = {"all": {}, "1": {"keep_checkpoints_num": 1}}[policy]
    analysis = tune.run(Adds, config=dict(config, x=tune.grid_search([1, 2, 3])), metric="loss", mode="min", checkpoint_freq=1, max_failures=2,
                        name="net", local_dir=folder, max_concurrent_trials=1, verbose=0, **keep)
    return [[trial.last_result["loss"], trial.last_result["training_iteration"]] for trial in analysis.trials] + [analysis.best_result["loss"]], folder


DRIVER = """
import json, os, sys
sys.path.insert(0, %r)
import restarts_fronts as net
from unisono import tune
config, policy, folder = json.loads(sys.argv[1])
with open(config["driver"], "w") as file:
    file.write(str(os.getpid()))
place = os.path.join(folder, "net")
if os.path.exists(config["flag"]):
    tuner = tune.Tuner.restore(place, net.driver_loop)
else:
    tuner = tune.Tuner(net.driver_loop, param_space=dict(config, x=tune.grid_search([1, 2, 3])), **net.tune_settings(policy, folder))
grid = tuner.fit()
with open(config["out"], "w") as file:
    json.dump(net.trial_outcome(grid), file)
"""


def driver_loop(config):
    """Kills the driver instead of itself."""
    import restarts_fronts

    def die_above(settings, rank, epoch, moment):
        if settings["kill"] == [rank, epoch, moment] and not os.path.exists(settings["flag"]):
            with open(settings["flag"], "w", encoding="utf-8"), open(settings["driver"], encoding="utf-8") as file:
                os.kill(int(file.read()), signal.SIGKILL)

    restarts_fronts.die = die_above
    restarts_fronts.tune_loop(config)


def by_restored_tuner(config, policy, folder):
    config = dict(config, driver=os.path.join(folder, "driver"))
    script = [sys.executable, "-c", DRIVER % os.path.dirname(os.path.abspath(__file__)), json.dumps([config, policy, folder])]
    done = subprocess.run(script, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
    if done.returncode == -signal.SIGKILL:
        done = subprocess.run(script, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    with open(config["out"], encoding="utf-8") as file:
        return json.load(file), folder


def by_tune_command(config, policy, folder):
    """`unisono tune` of a shell script."""
    script = SHELL.replace('"$UNISONO_RANK $epoch $1"', '"$X $UNISONO_RANK $epoch $1"').replace("$MINE.$UNISONO_RANK", "$MINE.$X") \
        .replace("n * 3", "n * (3 + X)").replace('[ $UNISONO_RANK != 0 ] || echo $n > "$OUT"', ":")
    spec = {"name": "net", "storage_path": folder, "program": ["sh", "-c", "X={x}\n" + script], "space": {"x": {"$grid_search": [1, 2, 3]}},
            "metric": "loss", "mode": "min", "max_concurrent": 1, "max_failures": 2,
            "checkpoint": {"all": {}, "1": {"num_to_keep": 1},
                           "best": {"num_to_keep": 2, "score_attribute": "loss", "score_order": "min"}}[policy]}
    path = os.path.join(folder, "spec.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(spec, file)
    env = dict(os.environ, KILL="2 %d %d %s" % tuple(config["kill"]), FLAG=config["flag"], OUT=config["out"], MINE=os.path.join(folder, "mine"),
               PATH=os.path.dirname(unisono_command()) + os.pathsep + os.environ["PATH"])
    for words in (["unisono", "tune", path], ["unisono", "tune", "show", "--csv", os.path.join(folder, "net")]):
        done = subprocess.run(words, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split(",") for line in done.stdout.splitlines()]
    same = [at for at, name in enumerate(rows[0]) if name not in ("seconds", "time_total_s", "attempts")]
    return [[row[at] for at in same] for row in rows], os.path.join(folder, "net", "tune_001")


# ---- comparing ----


def left_behind(run_dir):
    """Checkpoints with their contents (of files that say no time), by name."""
    out = {}
    for folder, _, names in os.walk(run_dir):
        for name in names if "checkpoints" in os.path.relpath(folder, run_dir).split(os.sep) else ():
            path = os.path.join(folder, name)
            plain = name in ("state", "epoch")
            with open(path, "rb") as file:
                out[os.path.relpath(path, run_dir)] = file.read().hex() if plain and b"PK" not in file.read(4) and not file.seek(0) else None
    return out


def in_process(name, policy, kill, extra):
    """A front end whose driver must choose its Keras before anything else: a process for every case."""
    env = {key: value for key, value in os.environ.items() if key != "TF_USE_LEGACY_KERAS"}
    env.update({"TF_USE_LEGACY_KERAS": "1"} if extra["legacy"] else {}, TF_CPP_MIN_LOG_LEVEL="3")
    script = ("import json, sys\nsys.path.insert(0, %r)\nlegacy = %r\nif not legacy:\n    from tensorflow.keras.layers import Dense\nimport restarts_fronts as net\n"
              "json.dump(net.run_case(getattr(net, %r), %r, %r, %r), open(sys.argv[1], 'w'))")
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        done = subprocess.run([sys.executable, "-c", script % (os.path.dirname(os.path.abspath(__file__)), extra["legacy"], name, policy, kill, extra), out],
                              env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False)
        assert done.returncode == 0, done.stdout[-3000:]
        with open(out, encoding="utf-8") as file:
            return tuple(json.load(file))


def run_case(front, policy, kill, extra):
    if isinstance(front, str):
        return in_process(front, policy, kill, extra)
    folder = tempfile.mkdtemp()
    try:
        files = os.path.join(folder, "files")
        os.mkdir(files)
        config = dict(extra, kill=list(kill), flag=os.path.join(folder, "killed"), out=os.path.join(folder, "out"), files=files)
        returned, run_dir = front(config, policy, folder)
        return json.loads(json.dumps([returned, left_behind(run_dir), sorted(os.listdir(files))])), os.path.exists(config["flag"])
    finally:
        shutil.rmtree(folder)


def cases(policies, workers, moments):
    """Every epoch with every moment; policies and ranks go round, so that each pair of them comes up."""
    rounds = zip(itertools.cycle(policies), itertools.cycle(range(workers)))
    for epoch in range(EPOCHS):
        for moment in moments:
            policy, rank = next(rounds)
            yield policy, (rank, epoch + (moment == "reported"), moment)
        next(rounds)


def fronts():
    both = ("begin", "reported")
    yield "unisono run of a shell script", by_shell, ("all", "1", "best"), 2, both, {}
    yield "unisono run of a Python script", by_script, ("all", "1", "best"), 2, both, {}
    yield "v2, DataParallelTrainer", v2(plain_loop, 2), ("all", "1", "best"), 2, both, {}
    yield "v1, Trainer", by_v1, ("all", "1", "best", "none"), 2, both, {}
    yield "unisono.keras, one worker", v2(keras_loop, 1), ("all", "1"), 1, both, {}
    yield "tune, unisono tune of a shell script", by_tune_command, ("all", "1", "best"), 1, both, {}
    yield "tune, Tuner of a function", by_tuner, ("all", "1", "best"), 1, both, {}
    yield "tune, Tuner of a trainer with two workers", by_tuned_trainer, ("all", "1", "best"), 2, both, {}
    yield "tune, a Trainable", by_trainable, ("all", "1"), 1, both, {}
    yield "tune, Tuner.restore after its driver was killed", by_restored_tuner, ("all", "1", "best"), 1, both, {}
    if has("torch"):
        yield "v2, TorchTrainer with DDP", v2(torch_loop, 2, "TorchTrainer"), ("all", "1", "best"), 2, both, {}
        yield "v1, Trainer with torch", by_v1, ("all", "none"), 2, both, {"torch": True}
    if has("tensorflow") and has("tf_keras"):
        yield "TensorFlow, tf_keras", "by_tensorflow", ("all", "1"), 2, both, {"legacy": True}
        yield "TensorFlow, Keras 3", "by_tensorflow", ("best", "1"), 2, both, {"legacy": False}
        yield "TensorFlow, v1 without Keras", "by_v1_tensorflow", ("all",), 2, both, {"legacy": True}
        yield "TensorFlow, TFTrainer", "by_tftrainer", ("all",), 2, ("begin",), {"legacy": True}


def has(module):
    if importlib.util.find_spec(module):
        return True
    print("%s is not here: its front ends are left out" % module, flush=True)
    return False


def main():
    done = different = 0
    only = os.environ.get("RESTARTS_ONLY", "")
    for name, front, policies, workers, moments, extra in fronts():
        if only not in name:
            continue
        undisturbed = {policy: run_case(front, policy, (-1, -1, "never"), extra)[0] for policy in policies}
        for policy, kill in itertools.islice(cases(policies, workers, moments), 0, None, 2 if name.startswith("TensorFlow") else 1):
            killed, happened = run_case(front, policy, kill, extra)
            if not happened:  # an early stop came first
                continue
            done += 1
            if killed != undisturbed[policy]:
                different += 1
                print("%s, keep %s, killed at %r:\n  undisturbed %s\n  killed      %s" % (name, policy, kill, json.dumps(undisturbed[policy])[:1000],
                                                                                   json.dumps(killed)[:1000]), flush=True)
        print("%s: done" % name, flush=True)
    print("%d cases, %d different" % (done, different))
    return 1 if different or not done else 0


if __name__ == "__main__":
    sys.exit(main())
