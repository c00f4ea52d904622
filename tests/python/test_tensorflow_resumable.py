"""resumable(tf.data.Dataset): a worker is killed inside of epochs, and every element is used exactly once."""

import base64
import json
import os
import tempfile
import unittest
import unittest.mock
import warnings

import tensorflow as tf
from tensorflow.core.framework import dataset_pb2, graph_pb2, tensor_pb2

import support
from unisono import train
from unisono.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from unisono.train.tensorflow import TensorflowTrainer, resumable

ELEMENTS, EPOCHS = 23, 3


def loop(config):
    if config["seed"] is not None:
        tf.random.set_seed(1)
    data = tf.data.Dataset.range(ELEMENTS).shuffle(8, seed=config["seed"]).map(lambda x: 2 * x).batch(3).prefetch(2)
    data = resumable(data)
    checkpoint = train.get_checkpoint()
    seen = checkpoint.to_dict()["seen"] if checkpoint else []
    for epoch in range(data.epoch, EPOCHS):
        for batch in data:
            seen.append([epoch, batch.numpy().tolist()])
            if len(seen) % config["every"] == 0:
                train.report({"count": len(seen)}, checkpoint=Checkpoint.from_dict({"seen": seen}))
            marker = "%s_%d" % (config["marker"], len(seen))
            if len(seen) in config["kills"] and not os.path.exists(marker):
                open(marker, "w", encoding="utf-8").close()
                os.kill(os.getpid(), 9)
    train.report({"seen": str(seen)}, checkpoint=Checkpoint.from_dict({"seen": seen}))


def run(seed, kills=(), every=2):
    with tempfile.TemporaryDirectory(prefix="unisono-test-") as marker:
        result = TensorflowTrainer(loop, train_loop_config={"seed": seed, "kills": list(kills), "every": every, "marker": marker + "/k"},
                                   scaling_config=ScalingConfig(num_workers=1), run_config=RunConfig(failure_config=FailureConfig(max_failures=10))).fit()
    return result.checkpoint.to_dict()["seen"]


class Killed(unittest.TestCase):
    def test_in_the_same_order(self):
        calm = run(seed=7)
        self.assertEqual(run(seed=7, kills=(3, 8, 9), every=1), calm)  # 8 batches an epoch
        self.assertEqual(run(seed=7, kills=(5, 13), every=4), calm)

    def test_without_a_seed_each_element_once(self):
        seen = run(seed=None, kills=(3, 10, 18), every=1)
        for epoch in range(EPOCHS):
            self.assertEqual(sorted(element for at, batch in seen if at == epoch for element in batch), list(range(0, 2 * ELEMENTS, 2)))


# ---- the state in a checkpoint of somebody else ----

STATE, OBJECTS = "iterator/.ATTRIBUTES/ITERATOR_STATE", "_CHECKPOINTABLE_OBJECT_GRAPH"


def windows():
    """Its buffer has datasets, which TensorFlow keeps as graphs."""
    return tf.data.Dataset.range(10).window(2).shuffle(3, seed=1)


def spread(tensor):
    """A tensor of variants as a message with one message a variant; TensorFlow writes all lengths, then all bytes."""
    proto = tensor_pb2.TensorProto.FromString(tf.io.serialize_tensor(tensor).numpy())
    data, sizes, at = proto.tensor_content, [], 0
    for _ in range(tf.TensorShape(proto.tensor_shape).num_elements()):
        size = shift = 0
        while not shift or data[at - 1] > 127:
            size |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
        sizes.append(size)
    for size in sizes:
        proto.variant_val.add().ParseFromString(data[at:at + size])
        at += size
    proto.ClearField("tensor_content")
    return proto


def with_write(text, path):
    """A dataset's graph that also writes a file."""
    graph = graph_pb2.GraphDef.FromString(text)
    for name, value in (("where", path), ("what", "taken over")):
        node = graph.node.add(name=name, op="Const")
        node.attr["dtype"].type = tf.string.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    graph.node.add(name="write", op="WriteFile", input=["where", "what"])
    for node in graph.node:
        if node.op == "WindowOp":
            node.input.append("^write")
    return graph.SerializeToString()


def forge(source, target, path):
    """The checkpoint of an iterator, whose waiting datasets write to path when it is restored."""
    read = tf.raw_ops.RestoreV2(prefix=source, tensor_names=[STATE, OBJECTS], shape_and_slices=["", ""], dtypes=[tf.variant, tf.string])
    all_parts = spread(read[0])
    for one in all_parts.variant_val:
        kinds = [tf.as_dtype(part.dtype) for part in dataset_pb2.CompressedElement.FromString(one.tensors[0].variant_val[0].metadata).component_metadata]
        parts = tf.raw_ops.UncompressElement(compressed=tf.io.parse_tensor(one.tensors[0].SerializeToString(), tf.variant), output_types=kinds,
                                             output_shapes=[None] * len(kinds))
        parts = [tf.constant(with_write(part.numpy(), path)) if part.dtype == tf.string and b"_Retval" in part.numpy() else part for part in parts]
        one.tensors[0].CopyFrom(spread(tf.raw_ops.CompressElement(components=parts)))
    tf.raw_ops.SaveV2(prefix=target, tensor_names=[STATE, OBJECTS], shape_and_slices=["", ""],
                      tensors=[tf.io.parse_tensor(all_parts.SerializeToString(), tf.variant), read[1]])


def forged_files(folder, path):
    iterator = iter(windows())
    next(iterator)
    tf.train.Checkpoint(iterator=iterator).write(os.path.join(folder, "plain"))
    forge(os.path.join(folder, "plain"), os.path.join(folder, "state"), path)
    return {name: base64.b64encode(open(os.path.join(folder, name), "rb").read()).decode() for name in os.listdir(folder) if name.startswith("state")}


def resume(given):
    def victim():
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            data = resumable(windows())
            seen = [int(element) for window in data for element in window]
        train.report({"seen": str(seen), "said": " ".join(str(one.message) for one in said)})
    return TensorflowTrainer(victim, scaling_config=ScalingConfig(num_workers=1), resume_from_checkpoint=given).fit().metrics


class Crafted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="unisono-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def handed_over(self, state):
        """A checkpoint with that state of the dataset."""
        def attacker():
            train.set_state("tf.data/train", json.dumps(state).encode())
            train.report({}, checkpoint=Checkpoint.from_dict({"a": 1}))
        return TensorflowTrainer(attacker, scaling_config=ScalingConfig(num_workers=1)).fit().checkpoint

    def test_graphs_do_not_run(self):
        path = os.path.join(self.folder, "written")
        files = forged_files(self.folder, path)
        for mac in ({}, {"mac": None}, {"mac": "0" * 64}, {"mac": "\ud800"}):
            said = resume(self.handed_over(dict({"format": 1, "epoch": 0, "used": 1, "iterator": files}, **mac)))
            self.assertFalse(os.path.exists(path))
            self.assertIn("not kept with your key", said["said"])
            self.assertEqual(len(said["seen"].split()), 10)
        # They would have.
        iterator = iter(windows())
        tf.train.Checkpoint(iterator=iterator).read(os.path.join(self.folder, "state")).assert_existing_objects_matched()
        self.assertTrue(os.path.exists(path))

    def test_state_of_another_user(self):
        def half():
            data = resumable(windows())
            for _, window in zip(range(2), data):
                self_seen.append([int(element) for element in window])
            train.report({"seen": str(self_seen)}, checkpoint=Checkpoint.from_dict({"a": 1}))
        self_seen = []
        before = TensorflowTrainer(half, scaling_config=ScalingConfig(num_workers=1)).fit()
        own = resume(before.checkpoint)
        self.assertEqual((own["said"], len(own["seen"].split())), ("", 6))
        with unittest.mock.patch.dict(os.environ, XDG_CONFIG_HOME=self.folder):
            other = resume(before.checkpoint)
        self.assertIn("not kept with your key", other["said"])
        self.assertEqual(len(other["seen"].split()), 10)


class Alone(unittest.TestCase):
    def test_without_a_trainer(self):
        data = resumable(tf.data.Dataset.range(5).batch(2))
        self.assertEqual([[batch.numpy().tolist() for batch in data] for _ in range(2)], [[[0, 1], [2, 3], [4]]] * 2)
        self.assertEqual((data.epoch, len(data)), (2, 3))

    def test_mistakes(self):
        data = tf.data.Dataset.range(5)
        for wrong in (lambda: resumable([1, 2]), lambda: resumable(data, name=""), lambda: resumable(data, names="x")):
            self.assertRaises(TypeError, wrong)


if __name__ == "__main__":
    support.main()
