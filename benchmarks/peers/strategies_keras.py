"""TensorFlow's MultiWorkerMirroredStrategy as a peer of ./bench strategies: two processes with one thread each, batch 64 each.

A custom loop (strategy.run inside of a tf.function that makes all steps of a window), TensorFlow's fastest way; Keras 3's Model.fit does not run under this
strategy. The models are those of engine_keras.py in tf.keras' legacy form when it is installed (tf_keras), plain tf.Variables otherwise are not needed.
  strategies_keras.py [--quick]
"""

import json
import os
import subprocess
import sys
import time

STEPS = {"nnlm_head": 100, "mnist_cnn": 20, "svhn_cnn": 4}
ROUNDS = 7


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


def run(rank, quick):
    import engine_common as common
    import tensorflow as tf
    import tf_keras as keras

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    for name, steps in STEPS.items():
        x, y = (tf.constant(part) for part in common.data(name, 64))
        with strategy.scope():
            model, optimizer = build(name, keras)
            optimizer.build(model.trainable_variables)

        def one(number, model=model, optimizer=optimizer, x=x, y=y, name=name):
            with tf.GradientTape() as tape:
                logits = model(x[number], training=True)
                if name == "nnlm_head":
                    each = tf.nn.sigmoid_cross_entropy_with_logits(y[number], logits)
                else:
                    each = tf.nn.sparse_softmax_cross_entropy_with_logits(y[number], logits)
                loss = tf.reduce_sum(each) / 128
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

        @tf.function
        def window(count):
            for number in tf.range(count):
                strategy.run(one, args=(number % common.BATCHES,))

        window(tf.constant(2))
        rates = []
        for _ in range(2 if quick else ROUNDS):
            begun = time.perf_counter()
            window(tf.constant(steps))
            rates.append(steps * 128 / (time.perf_counter() - begun))
        if rank == 0:
            print(json.dumps({"metric": name + "_2w_samples_per_s", "peer": sorted(rates)[len(rates) // 2], "peer_name": "tf_mwms",
                              "versions": "tensorflow " + tf.__version__}), flush=True)


def main():
    if "--rank" in sys.argv:
        run(int(sys.argv[sys.argv.index("--rank") + 1]), "--quick" in sys.argv)
        return 0
    port = 20000 + os.getpid() % 20000
    workers = ["localhost:%d" % port, "localhost:%d" % (port + 1)]
    processes = []
    for rank in range(2):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        environment = dict(os.environ, TF_CONFIG=json.dumps(config), TF_CPP_MIN_LOG_LEVEL="3", TF_USE_LEGACY_KERAS="1", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="-1")
        processes.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), "--rank", str(rank)] + sys.argv[1:], env=environment,
                                          stdout=None if rank == 0 else subprocess.DEVNULL))
    return max(process.wait() for process in processes)


if __name__ == "__main__":
    sys.exit(main())
