"""restarts_fronts.py - the net for restarts, over the front ends: programs of the command line, Python's sessions, v1 and v2 trainers, unisono.keras, and PyTorch.

Each front end is run undisturbed, then killed once per case (which rank, epoch and moment); what it returned and left on disk must be equal. Natively every
combination is in restarts.c; here, where a run takes seconds, policies and moments are taken in pairs. `RESTARTS_ONLY=words` chooses by name; the last line counts.
"""

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
        result = getattr(module, kind)(train_loop, train_loop_config=config, scaling_config=train.ScalingConfig(num_workers=workers, **scaling),
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


# ---- comparing ----


def left_behind(run_dir):
    """Checkpoints with their contents (of files that say no time), by name."""
    out = {}
    for folder, _, names in os.walk(os.path.join(run_dir, "checkpoints")):
        for name in names:
            path = os.path.join(folder, name)
            plain = name in ("state", "epoch")
            with open(path, "rb") as file:
                out[os.path.relpath(path, run_dir)] = file.read().hex() if plain and b"PK" not in file.read(4) and not file.seek(0) else None
    return out


def run_case(front, policy, kill, extra):
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
    try:
        import torch  # noqa: F401
    except ImportError:
        print("PyTorch is not here: its two front ends are left out", flush=True)
        return
    yield "v2, TorchTrainer with DDP", v2(torch_loop, 2, "TorchTrainer"), ("all", "1", "best"), 2, both, {}


def main():
    done = different = 0
    only = os.environ.get("RESTARTS_ONLY", "")
    for name, front, policies, workers, moments, extra in fronts():
        if only not in name:
            continue
        undisturbed = {policy: run_case(front, policy, (-1, -1, "never"), extra)[0] for policy in policies}
        for policy, kill in cases(policies, workers, moments):
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
