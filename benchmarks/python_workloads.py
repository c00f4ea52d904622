#!/usr/bin/env python3
"""python_workloads.py - what ./bench python trains with real frameworks: the same functions under unisono's trainers and started by hand.

  python_workloads.py NAME FILE    one rank by hand, below torchrun or with TF_CONFIG in the environment; rank 0 writes what it measured to FILE
  python_workloads.py --compare PART [--quick]
                                   the numbers of a part (torch, tensorflow), in alternating pairs, as JSON lines of ./bench

A workload returns {"rate": samples of all ranks per second, "first": time.time() when its first step was done}.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.environ.get("UNISONO_PYTHON_PACKAGE", os.path.join(os.path.dirname(HERE), "build-release/python"))
sys.path[:0] = [PACKAGE, HERE]
from marks import recovery_seconds

WORKERS, BATCH = 2, 64
STEPS = {"torch": 150, "tensorflow": 40}


def _timed(step, count, warm, sync=lambda: None):
    """count steps after `warm` of them; (seconds, when the first was done)"""
    step()
    first = time.time()
    for _ in range(warm - 1):
        step()
    sync()
    begin = time.perf_counter()
    for _ in range(count):
        step()
    sync()
    return time.perf_counter() - begin, first


# ---- PyTorch: the 784-512-512-10 network ----


def _torch_step(model, optimizer):
    import torch

    inputs, targets = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def _torch_model():
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def torch_ddp(config=None):
    import torch
    import torch.distributed as dist

    mine = not dist.is_initialized()
    if mine:
        dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(_torch_model())
    seconds, first = _timed(_torch_step(model, torch.optim.SGD(model.parameters(), lr=0.01)), STEPS["torch"], 10, dist.barrier)
    rank = dist.get_rank()
    if mine:
        dist.destroy_process_group()
    return {"rate": WORKERS * BATCH * STEPS["torch"] / seconds, "first": first, "rank": rank}


def torch_hvd(config=None):
    import torch
    import unisono.horovod.torch as hvd

    hvd.init()
    model = _torch_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), 0)
    seconds, first = _timed(_torch_step(model, optimizer), STEPS["torch"], 10, hvd.barrier)
    return {"rate": WORKERS * BATCH * STEPS["torch"] / seconds, "first": first, "rank": hvd.rank()}


# ---- the guides' MNIST CNN ----


def _cnn(keras, optimizer):
    model = keras.Sequential([keras.layers.InputLayer((28, 28)), keras.layers.Reshape((28, 28, 1)), keras.layers.Conv2D(32, 3, activation="relu"),
                              keras.layers.Flatten(), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer=optimizer, metrics=["accuracy"])
    return model


def _images(count):
    import numpy

    random = numpy.random.default_rng(0)
    return random.random((count, 28, 28), numpy.float32), random.integers(0, 10, count)


def _fit(keras, model, dataset, batch):
    """(samples per second of one rank in the second epoch, when the first step was done)"""
    times = {}

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, step, logs=None):
            times.setdefault("first", time.time())

        def on_epoch_begin(self, epoch, logs=None):
            times["begin"] = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            times["seconds"] = time.perf_counter() - times["begin"]

    model.fit(dataset, epochs=2, steps_per_epoch=STEPS["tensorflow"], verbose=0, callbacks=[Clock()])
    return batch * STEPS["tensorflow"] / times["seconds"], times["first"]


def tensorflow_mwms(config=None):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id
    dataset = tf.data.Dataset.from_tensor_slices(_images(1024)).repeat().batch(BATCH * WORKERS)
    with strategy.scope():
        model = _cnn(tf.keras, tf.keras.optimizers.SGD(0.001))
    rate, first = _fit(tf.keras, model, dataset, BATCH * WORKERS)
    return {"rate": rate, "first": first, "rank": rank}


def keras_hvd(config=None):
    import keras
    import tensorflow as tf
    import unisono.horovod.keras as hvd

    hvd.init()
    dataset = tf.data.Dataset.from_tensor_slices(_images(1024)).repeat().batch(BATCH)
    model = _cnn(keras, hvd.DistributedOptimizer(keras.optimizers.SGD(0.001)))
    rate, first = _fit(keras, model, dataset, BATCH)
    return {"rate": WORKERS * rate, "first": first, "rank": hvd.rank()}


# ---- started by unisono, and by hand ----


def with_unisono(function, backend):
    from unisono import _template
    from unisono.train import Trainer

    _template.shutdown()  # as in a script's first fit
    trainer = Trainer(backend, WORKERS)
    begin = time.time()
    trainer.start()
    try:
        out = trainer.run(function)[0]
    finally:
        trainer.shutdown()
    return out["rate"], out["first"] - begin


def _free_ports(count):
    import socket

    holds = [socket.socket() for _ in range(count)]
    for hold in holds:
        hold.bind(("127.0.0.1", 0))
    ports = [hold.getsockname()[1] for hold in holds]
    for hold in holds:
        hold.close()
    return ports


def by_hand(function, backend):
    """Rank 0's numbers of two processes that a person started."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "rate")
        script = [os.path.abspath(__file__), function.__name__, out]
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        begin = time.time()
        if backend == "torch":
            port = _free_ports(1)[0]
            processes = [subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(WORKERS), "--master_port", str(port),
                                           *script], env=environment)]
        else:
            workers = ["127.0.0.1:%d" % port for port in _free_ports(WORKERS)]
            processes = [subprocess.Popen([sys.executable, *script], env=dict(environment, TF_USE_LEGACY_KERAS="1", TF_CONFIG=json.dumps(
                {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}))) for rank in range(WORKERS)]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise RuntimeError("%s by hand ended with %r" % (function.__name__, codes))
        with open(out, encoding="utf-8") as file:
            answer = json.load(file)
    return answer["rate"], answer["first"] - begin


def emit(metric, unit, ours, peer, name, ratio):
    print(json.dumps({"bench": "python", "metric": metric, "unit": unit, "unisono": float("%.4g" % ours), "peer": float("%.4g" % peer), "peer_name": name,
                      "ratio": float("%.4g" % ratio)}), flush=True)


def pairs(metric, function, backend, name, rounds):
    """Speed and first step under unisono beside the same started by hand; median of the pairs."""
    found = [(with_unisono(function, backend), by_hand(function, backend)) for _ in range(rounds)]
    emit(metric, "ratio", statistics.median(ours[0] / hand[0] for ours, hand in found), 1.0, name, statistics.median(ours[0] / hand[0] for ours, hand in found))
    emit(metric.replace("speed_ratio", "first_step_s"), "s", statistics.median(ours[1] for ours, _ in found), statistics.median(hand[1] for _, hand in found),
         name, statistics.median(hand[1] / ours[1] for ours, hand in found))


def until_killed(config):
    """Marks when this rank's training has begun; the first time it then waits for its death."""
    import tensorflow as tf
    from unisono import train

    rank, marks = train.world_rank(), config["marks"]
    again = os.path.exists(os.path.join(marks, "first_%d" % rank))
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = _cnn(tf.keras, "sgd")
    dataset = tf.data.Dataset.from_tensor_slices(_images(512)).repeat().batch(BATCH * WORKERS)
    model.fit(dataset, steps_per_epoch=2, verbose=0)
    path = os.path.join(marks, "%s_%d" % ("second" if again else "first", rank))
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write("%d %r" % (os.getpid(), time.time()))
    os.rename(path + ".part", path)
    if not again:
        time.sleep(120)


def recovery():
    """(ms from kill -9 of rank 1 until both ranks have trained again, ms from the start of the group to the same point: TensorFlow's own time)"""
    from unisono import _template
    from unisono.train import FailureConfig, RunConfig, ScalingConfig
    from unisono.train.tensorflow import TensorflowTrainer

    _template.shutdown()
    with tempfile.TemporaryDirectory() as marks:
        trainer = TensorflowTrainer(until_killed, train_loop_config={"marks": marks}, scaling_config=ScalingConfig(num_workers=WORKERS),
                                    run_config=RunConfig(verbose=0, failure_config=FailureConfig(max_failures=2)))
        begin = time.time()
        again, first = recovery_seconds(marks, WORKERS, trainer.fit, 120)
    return again * 1000, (first - begin) * 1000


def one_tensorflow_step(config):
    import tensorflow as tf

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = _cnn(tf.keras, "sgd")
    model.fit(*_images(BATCH * WORKERS), batch_size=BATCH * WORKERS, verbose=0)


def one_torch_step(config):
    import torch

    model = torch.nn.parallel.DistributedDataParallel(_torch_model())
    _torch_step(model, torch.optim.SGD(model.parameters(), lr=0.01))()


def next_fit(metric, trainer, function, rounds):
    """Seconds of fits after the first, with the template and without."""
    from unisono.train import RunConfig, ScalingConfig

    def seconds():
        begin = time.perf_counter()
        trainer(function, train_loop_config={}, scaling_config=ScalingConfig(num_workers=WORKERS), run_config=RunConfig(verbose=0)).fit()
        return time.perf_counter() - begin

    seconds()
    found = {"1": [], "0": []}
    for _ in range(rounds):
        for which, times in found.items():
            os.environ["UNISONO_TEMPLATE"] = which
            times.append(seconds())
            del os.environ["UNISONO_TEMPLATE"]
    ours, new = map(statistics.median, (found["1"], found["0"]))
    emit(metric, "s", ours, new, "new processes (UNISONO_TEMPLATE=0)", new / ours)


def in_turn(metric, function, backend, peer, peer_backend, name, rounds):
    """Samples a second of ours and of a peer by hand, one after the other."""
    found = [(with_unisono(function, backend)[0], by_hand(peer, peer_backend)[0]) for _ in range(rounds)]
    ours, hand = map(statistics.median, zip(*found))
    emit(metric, "samples/s", ours, hand, name, statistics.median(one / other for one, other in found))


def compare(part, quick):
    rounds = 1 if quick else 3
    if part == "torch":
        from unisono.train.torch import TorchTrainer

        pairs("torch_speed_ratio", torch_ddp, "torch", "torchrun", 1 if quick else 5)
        in_turn("hvd_torch_samples_per_s", torch_hvd, "none", torch_ddp, "torch", "DDP by torchrun", rounds)
        next_fit("torch_next_fit_s", TorchTrainer, one_torch_step, rounds)
    else:
        from unisono.train.tensorflow import TensorflowTrainer

        pairs("tf_speed_ratio", tensorflow_mwms, "tensorflow", "TF_CONFIG by hand", rounds)
        in_turn("hvd_keras3_samples_per_s", keras_hvd, "none", tensorflow_mwms, "tensorflow", "MultiWorkerMirroredStrategy with tf_keras", rounds)
        again, started = map(statistics.median, zip(*(recovery() for _ in range(rounds))))
        emit("tf_recovery_ms", "ms", again, started, "the group's first start (TensorFlow's import and build)", started / again)
        next_fit("tf_next_fit_s", TensorflowTrainer, one_tensorflow_step, rounds)


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        with tempfile.TemporaryDirectory() as results:
            os.environ.update(UNISONO_RESULTS=results, TF_CPP_MIN_LOG_LEVEL="3")
            import python_workloads  # functions travel by the name of their module

            python_workloads.compare(sys.argv[2], "--quick" in sys.argv)
    else:
        answer = globals()[sys.argv[1]]()
        if answer["rank"] == 0:
            with open(sys.argv[2], "w", encoding="utf-8") as file:
                json.dump(answer, file)
