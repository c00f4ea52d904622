"""TensorFlow's ParameterServerStrategy as a peer of ./bench ps: updates a second with 2 workers and 1 parameter server, each a process with one thread.

The same model (128-256-64-1, plain descent, binary cross-entropy), batch 64, data in each worker's memory, a custom loop over ClusterCoordinator. Keras is
left out: its optimizers do not run on parameter servers in every version. Prints one JSON line.

  ps_tensorflow.py [--quick]
"""

import json
import os
import socket
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
BATCH, FEATURES, WORKERS = 64, 128, 2


def one_thread():
    import tensorflow as tf
    tf.config.threading.set_inter_op_parallelism_threads(2)  # a server that waits must not block its only thread
    tf.config.threading.set_intra_op_parallelism_threads(1)
    return tf


def serve():
    """A worker or a parameter server: TF_CONFIG says which."""
    tf = one_thread()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc")
    server.join()


def coordinate(updates, warm):
    tf = one_thread()
    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        sizes = [(FEATURES, 256), (256, 64), (64, 1)]
        weights = [tf.Variable(tf.random.stateless_uniform(shape, (1, i), -0.1, 0.1)) for i, shape in enumerate(sizes)]
        biases = [tf.Variable(tf.zeros(shape[1])) for shape in sizes]

    def dataset():
        x = tf.sin(tf.range(100 * BATCH * FEATURES, dtype=tf.float32))
        x = tf.reshape(x, (100 * BATCH, FEATURES))
        y = tf.cast(x[:, :1] + x[:, 1:2] > 0, tf.float32)
        return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True).cache().repeat()

    batches = iter(coordinator.create_per_worker_dataset(dataset))

    @tf.function
    def step(iterator):
        x, y = next(iterator)
        with tf.GradientTape() as tape:
            for i in range(3):
                x = tf.matmul(x, weights[i]) + biases[i]
                x = tf.nn.relu(x) if i < 2 else x
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(y, x))
        variables = weights + biases
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(0.01 * gradient)
        return loss

    def run(count):
        for _ in range(count):
            coordinator.schedule(step, args=(batches,))
        coordinator.join()

    run(warm)
    begun = time.perf_counter()
    run(updates)
    rate = updates / (time.perf_counter() - begun)
    print(json.dumps({"bench": "ps", "metric": "ps_updates_per_s", "peer": round(rate, 1), "peer_name": "tensorflow " + tf.__version__}), flush=True)


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def main():
    if "--serve" in sys.argv:
        return serve()
    quick = "--quick" in sys.argv
    cluster = {"chief": ["127.0.0.1:%d" % free_port()], "worker": ["127.0.0.1:%d" % free_port() for _ in range(WORKERS)],
               "ps": ["127.0.0.1:%d" % free_port()]}
    children = []
    try:
        for role, index in [("ps", 0)] + [("worker", i) for i in range(WORKERS)]:
            config = json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})
            children.append(subprocess.Popen([sys.executable, __file__, "--serve"], env={**os.environ, "TF_CONFIG": config}, stdout=subprocess.DEVNULL))
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
        coordinate(200 if quick else 2000, 50 if quick else 200)
    finally:
        for child in children:
            child.kill()
            child.wait()


if __name__ == "__main__":
    main()
