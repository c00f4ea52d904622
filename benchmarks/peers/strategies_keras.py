"""TensorFlow's MultiWorkerMirroredStrategy as a peer of ./bench strategies: two processes with one thread each, batch 64 each, in three ways:

tf_mwms (Model.fit)               as most users run it: Model.fit of tf_keras on a tf.data set (Keras 3's own does not run under this strategy)
tf_mwms (custom loop)             as the courses write it: strategy.run and strategy.reduce in a tf.function, called once a step on a distributed set
tf_mwms (one tf.function a window)  its fastest: all steps of a window inside of one tf.function, the data constants; nobody trains like this

The models are those of engine_keras.py in tf.keras' legacy form (tf_keras). Windows of both sides come in turn (engine_common.in_turn): the first rank asks PROGRAM
(strategies_bench --serve) for its window, then tells the second how many steps their own has.
  strategies_keras.py --against PROGRAM [--quick] [--model NAME]
"""

import argparse
import json
import os
import subprocess
import sys
import time

MODELS = ["nnlm_head", "mnist_cnn", "svhn_cnn"]
STEPS = 5  # of a window, at least: a step of the largest takes a third of a second
HEARTBEAT_MS = 120000


def build(name, keras):
    L = keras.layers
    if name == "nnlm_head":
        return keras.Sequential([L.Input((128,)), L.Dense(256, "relu"), L.Dense(64, "relu"), L.Dense(1)]), keras.optimizers.Adam(1e-4)
    if name == "mnist_cnn":
        return (keras.Sequential([L.Input((28, 28, 1)), L.Conv2D(32, 3, activation="relu"), L.Flatten(), L.Dense(128, "relu"), L.Dense(10)]),
                keras.optimizers.SGD(0.001))

    def conv(filters):
        return L.Conv2D(filters, 3, padding="same", activation="relu")

    return (keras.Sequential([L.Input((32, 32, 3)), conv(32), conv(32), L.MaxPooling2D(2), conv(64), conv(64), L.MaxPooling2D(2), L.Flatten(),
                              L.Dense(512, "relu"), L.Dense(10)]), keras.optimizers.Adam(1e-3))


def losses(name, tf, y, logits):
    if name == "nnlm_head":
        return tf.nn.sigmoid_cross_entropy_with_logits(y, logits)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)


def ways(name, strategy):
    """(how it is called, a function that makes so many steps and may say how long they took), one after the other; every rank must build them in the same order."""
    import engine_common as common
    import tensorflow as tf
    import tf_keras as keras

    x, y = common.data(name, 128)
    rows = tf.data.Dataset.from_tensor_slices((x.reshape(-1, *x.shape[2:]), y.reshape(-1, *y.shape[2:]))).batch(128).repeat().prefetch(tf.data.AUTOTUNE)
    with strategy.scope():
        model, optimizer = build(name, keras)
        optimizer.build(model.trainable_variables)
        loss = keras.losses.BinaryCrossentropy if name == "nnlm_head" else keras.losses.SparseCategoricalCrossentropy
        model.compile(optimizer, loss(from_logits=True))

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.last = time.perf_counter()
            if batch == 0:
                self.first = self.last

    clock = Clock()

    def fit(steps):
        """Seconds from the end of one step to that of the last: fit's own beginning, which makes an iterator, is not counted."""
        model.fit(rows, steps_per_epoch=steps + 1, epochs=1, verbose=0, callbacks=[clock])
        return clock.last - clock.first

    yield "Model.fit", fit

    def train(inputs):
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(losses(name, tf, inputs[1], model(inputs[0], training=True))) / 128
        optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
        return value

    @tf.function
    def distributed_train_step(inputs):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train, args=(inputs,)), axis=None)

    feed = iter(strategy.experimental_distribute_dataset(rows))

    def loop(steps):
        total = 0.0
        for _ in range(steps):
            total += distributed_train_step(next(feed))
        float(total)

    yield "custom loop", loop

    constants = [tf.constant(part[:, :64]) for part in (x, y)]

    @tf.function
    def window(count):
        for number in tf.range(count):
            strategy.run(train, args=([part[number % common.BATCHES] for part in constants],))

    def whole(steps):
        window(tf.constant(steps))

    yield "one tf.function a window", whole


def wait_longer():
    """TensorFlow's workers give each other up after 10 seconds of silence: too soon where others use the cores. The strategy has no option for it."""
    import functools

    from tensorflow.python.eager import context

    configured = context.context()
    configured.configure_coordination_service = functools.partial(configured.configure_coordination_service, heartbeat_timeout_in_ms=HEARTBEAT_MS)


def run(rank, options, orders):
    import engine_common as common
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    wait_longer()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    for name in [options.model] if options.model else MODELS:
        for way, train in ways(name, strategy):
            if options.quick and name == MODELS[-1] and way != "Model.fit":
                continue  # a step takes a third of a second: minutes on a busy machine, for a smoke run
            if rank == 1:
                while steps := int(orders.readline()):
                    train(steps)
                continue

            def windows(steps, count, train=train):
                seconds = []
                for _ in range(count):
                    print(steps, file=orders, flush=True)
                    begun = time.perf_counter()
                    counted = train(steps)
                    seconds.append(counted or time.perf_counter() - begun)
                return seconds

            common.pair_line("strategies", name + "_2w_samples_per_s", windows, name, 128, options, "tf_mwms (%s)" % way, least=2 if options.quick else STEPS,
                             stop=[os.getpid(), options.other], versions="tensorflow " + tf.__version__)
            print(0, file=orders, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", required=True)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--orders", type=int)
    parser.add_argument("--other", type=int, default=0, help="the second rank's process")
    options = parser.parse_args()
    if options.rank is not None:
        with os.fdopen(options.orders, "w" if options.rank == 0 else "r") as orders:
            run(options.rank, options, orders)
        os._exit(0)  # TensorFlow's own end waits for the other rank
    port = 20000 + os.getpid() % 20000
    workers = ["localhost:%d" % port, "localhost:%d" % (port + 1)]
    reads, writes = os.pipe()
    processes = []
    for rank, end in ((1, reads), (0, writes)):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        environment = dict(os.environ, TF_CONFIG=json.dumps(config), TF_CPP_MIN_LOG_LEVEL="3", TF_USE_LEGACY_KERAS="1", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="-1")
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--rank", str(rank), "--orders", str(end)]
        command += ["--other", str(processes[0].pid)] if processes else []
        processes.append(subprocess.Popen(command, env=environment, pass_fds=(end,), stdout=None if rank == 0 else subprocess.DEVNULL))
    os.close(reads)
    os.close(writes)
    return max(process.wait() for process in processes)


if __name__ == "__main__":
    sys.exit(main())
