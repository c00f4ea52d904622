"""The worker's half of the tensorflow backend. TF_CONFIG is in the environment; TensorFlow itself is not touched, so that the train function's
first line may still be tf.config.threading. Only the servers of ParameterServerStrategy are started here."""

import json
import os

from unisono.train.tensorflow import _keras3


def _name_the_chief(config):
    """Worker 0 as chief; the others count on from 0."""
    workers, task = config["cluster"]["worker"], config["task"]
    config["cluster"] = {**config["cluster"], "chief": workers[:1], "worker": workers[1:]}
    if len(workers) == 1:
        del config["cluster"]["worker"]
    if task["type"] == "worker":
        config["task"] = {"type": "worker", "index": task["index"] - 1} if task["index"] else {"type": "chief", "index": 0}
    os.environ["TF_CONFIG"] = json.dumps(config)


def _serve(task):
    """Does not return: the library ends it when the chief has returned."""
    import tensorflow as tf

    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
    tf.distribute.Server(cluster, job_name=task["type"], task_index=task["index"], protocol="grpc").join()


def set_up(session, settings):
    config = json.loads(os.environ["TF_CONFIG"])
    if settings.get("parameter_servers") and config["task"]["type"] in ("worker", "ps"):
        _serve(config["task"])
    elif settings.get("chief") and "chief" not in config["cluster"]:
        _name_the_chief(config)
    _keras3.put_right()
    return lambda: None
