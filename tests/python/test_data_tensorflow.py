"""Datasets for TensorFlow, and the dataset examples of the guides on real workers: the starter, regression with a Concatenator, the autoencoder."""

import os
import tempfile
import unittest

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
import numpy
import tensorflow as tf

import support
from test_data_resume import ROWS, InWorkers, Notes, lines
from unisono import data, train
from unisono.data.datasource import SimpleTensorFlowDatasource
from unisono.data.extensions import TensorArray
from unisono.data.preprocessors import Concatenator
from unisono.train import Checkpoint, ScalingConfig
from unisono.train.tensorflow import TensorflowTrainer, prepare_dataset_shard
from unisono.train.tensorflow.keras import ReportCheckpointCallback


class Tensors(unittest.TestCase):
    def test_each_argument(self):
        ds = data.range(50)

        def rows(batches):
            return [int(value) for batch in batches for value in batch]

        one = [batch["id"] for batch in ds.iter_tf_batches(batch_size=20, prefetch_batches=2, drop_last=True)]
        two = list(ds.to_tf("id", batch_size=20, prefetch_batches=2, drop_last=True))
        self.assertEqual((rows(one), rows(two)), (list(range(40)), list(range(40))))
        mixed = [rows(batch["id"] for batch in ds.iter_tf_batches(batch_size=20, local_shuffle_buffer_size=20, local_shuffle_seed=seed)) for seed in (0, 1)]
        mixed += [rows(ds.to_tf("id", batch_size=20, local_shuffle_buffer_size=20, local_shuffle_seed=seed)) for seed in (0, 1)]
        for each in mixed:
            self.assertEqual(sorted(each), list(range(50)))
            self.assertNotEqual(each, list(range(50)))
        self.assertNotEqual(mixed[0], mixed[1])
        self.assertNotEqual(mixed[2], mixed[3])
        with self.assertRaisesRegex(TypeError, r"to_tf\(label_type_spec=.*output_signature"):
            ds.to_tf("id", label_type_spec=tf.TensorSpec((None,), tf.int64))

    def test_to_tf(self):
        x = numpy.arange(10, dtype=numpy.float32)
        ds = data.from_numpy({"x": x, "y": 2 * x})
        made = ds.to_tf(feature_columns="x", label_columns="y", batch_size=4)
        for _ in range(2):  # once an epoch
            batches = [(features.numpy().tolist(), labels.numpy().tolist()) for features, labels in made]
            self.assertEqual([len(features) for features, _ in batches], [4, 4, 2])
            self.assertEqual([value for _, labels in batches for value in labels], (2 * x).tolist())
        everything = next(iter(ds.to_tf()))
        self.assertEqual(sorted(everything), ["x", "y"])
        several = next(iter(ds.to_tf(feature_columns=["x", "y"], label_columns="y", batch_size=2)))
        self.assertEqual(sorted(several[0]), ["x", "y"])
        text = next(iter(data.from_items([{"s": "a"}, {"s": "\u00e9"}]).to_tf(feature_columns="s", batch_size=2)))
        self.assertEqual([value.decode() for value in text.numpy()], ["a", "\u00e9"])
        loader = ds.iter_tf_batches(batch_size=4)
        self.assertEqual([[int(batch["x"].shape[0]) for batch in loader] for _ in range(3)], [[4, 4, 2]] * 3)
        typed = next(ds.iter_tf_batches(batch_size=3, dtypes=tf.float64))
        self.assertEqual((typed["x"].dtype, typed["x"].shape[0]), (tf.float64, 3))

    def test_missing_whole_numbers_are_refused(self):
        ds = data.from_numpy({"x": numpy.array(["2020-01-01", "NaT"], dtype="M8[D]")})  # int64 with a gap
        with self.assertRaisesRegex(Exception, "column 'x' has missing values, which int64 cannot hold"):
            list(ds.to_tf(batch_size=2))
        self.assertTrue(numpy.isnan(next(iter(ds.cast("x", "float64").to_tf(batch_size=2)))["x"].numpy()[1]))

    def test_tfrecords_of_tensorflow(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.tfrecord")
            with tf.io.TFRecordWriter(path) as writer:
                for i in range(300):
                    writer.write(tf.train.Example(features=tf.train.Features(feature={
                        "image": tf.train.Feature(float_list=tf.train.FloatList(value=[i, i + 0.5])),
                        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[-i])),
                        "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n%d" % i]))})).SerializeToString())
            rows = data.read_tfrecords(path).take_all()
            self.assertEqual([(row["image"].tolist(), row["label"], row["name"]) for row in rows],
                             [([i, i + 0.5], -i, b"n%d" % i) for i in range(300)])

    def test_from_tf(self):
        made = tf.data.Dataset.from_tensor_slices((numpy.arange(6).reshape(3, 2), numpy.arange(3)))
        self.assertEqual([row["label"] for row in data.from_tf(made).take_all()], [0, 1, 2])
        named = tf.data.Dataset.from_tensor_slices(({"p": [1.0, 2.0]}, [0, 1]))
        self.assertEqual(data.from_tf(named).take_all(), [{"p": 1.0, "label": 0}, {"p": 2.0, "label": 1}])
        ragged = tf.data.Dataset.from_generator(lambda: iter([[1], [2, 3]]), output_signature=tf.TensorSpec((None,), tf.int32))
        self.assertEqual([row["item"].tolist() for row in data.from_tf(ragged).take_all()], [[1], [2, 3]])
        with self.assertRaisesRegex(ValueError, "endless"):
            data.from_tf(made.repeat())

    def test_signatures_and_more_columns(self):
        ds = data.from_numpy({"x": numpy.arange(3), "z": numpy.arange(3) * 2, "y": numpy.arange(3.0), "id": numpy.arange(3)})
        signature = (tf.TensorSpec((None, 2), tf.float32), tf.TensorSpec((None,), tf.float32))  # as Ray 1.x has it: features are one tensor
        features, label = next(iter(ds.to_tf(feature_columns=["x", "z"], label_column="y", output_signature=signature, batch_size=3)))
        self.assertEqual((features.numpy().tolist(), label.dtype), ([[0, 0], [1, 2], [2, 4]], tf.float32))
        *_, more = next(iter(ds.to_tf("x", "y", additional_columns=["id"], batch_size=3)))
        self.assertEqual(more["id"].numpy().tolist(), [0, 1, 2])
        for call, message in ((lambda: ds.to_tf("x", "y", batch_size=0), "batch_size must be positive"), (lambda: ds.to_tf(0, "y"), "name of a column"),
                              (lambda: data.from_items([(1, 2)]).to_tf(), "Python objects"),
                              (lambda: next(data.from_items([{"s": "a"}]).iter_tf_batches(dtypes=tf.float32)), "column 's' is text")):
            with self.subTest(message), self.assertRaisesRegex(Exception, message):
                call()


# ---- the guides' examples ----


def linear_model(width=1):
    model = tf.keras.Sequential([tf.keras.layers.InputLayer(input_shape=(width,) if width > 1 else ()), tf.keras.layers.Flatten(),
                                 tf.keras.layers.Dense(1)])
    return model


def starter(config):
    """tf_starter: one fit an epoch over the shard."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = linear_model()
        model.compile(optimizer=tf.keras.optimizers.SGD(learning_rate=config["lr"]), loss="mse", metrics=["mse"])
    dataset = train.get_dataset_shard("train")
    for _ in range(config["epochs"]):
        tf_dataset = dataset.to_tf(feature_columns="x", label_columns="y", batch_size=config["batch_size"])
        model.fit(tf_dataset, callbacks=[ReportCheckpointCallback()], verbose=0)


def autoencoder(config):
    """iter_tf_batches, a generator, prepare_dataset_shard."""
    dataset_shard = train.get_dataset_shard("train")

    def to_tf_dataset(dataset, batch_size):
        def to_tensor_iterator():
            for batch in dataset.iter_tf_batches(batch_size=batch_size, dtypes=tf.float32):
                yield batch["image"], batch["label"]

        output_signature = (tf.TensorSpec(shape=(None, 784), dtype=tf.float32), tf.TensorSpec(shape=(None, 784), dtype=tf.float32))
        return prepare_dataset_shard(tf.data.Dataset.from_generator(to_tensor_iterator, output_signature=output_signature))

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.InputLayer(input_shape=(784,)), tf.keras.layers.Dense(32, activation="relu"),
                                     tf.keras.layers.Dense(784, activation="sigmoid")])
        model.compile(loss=tf.keras.losses.BinaryCrossentropy(), optimizer=tf.keras.optimizers.Adam(0.01), metrics=["binary_crossentropy"])
    for _ in range(config["epochs"]):
        history = model.fit(to_tf_dataset(dataset_shard, config["batch_size"]), verbose=0)
        train.report({name: values[-1] for name, values in history.history.items()})


def autoencoder_dataset():
    """The example's own lines; the images are drawn here instead of downloaded."""
    import pandas as pd

    def dataset_factory():
        images = (numpy.random.default_rng(1).random((128, 28, 28, 1)) > 0.5).astype(numpy.uint8) * 255
        images[:, :, :14] = 0
        return tf.data.Dataset.from_tensor_slices((images, numpy.arange(128) % 10)).take(128)

    dataset = data.read_datasource(SimpleTensorFlowDatasource(), dataset_factory=dataset_factory)

    def normalize_images(x):
        x = numpy.float32(x.numpy()) / 255.0
        return numpy.reshape(x, (-1,))

    def preprocess_dataset(batch):
        return [(normalize_images(image), normalize_images(image)) for image, _ in batch]

    dataset = dataset.map_batches(preprocess_dataset)

    def convert_batch_to_pandas(batch):
        images = [TensorArray(image) for image, _ in batch]
        return pd.DataFrame({"image": images, "label": images})

    return dataset.map_batches(convert_batch_to_pandas)


def custom_loop(config):
    """A loop of one's own over to_tf, with reports in the middle of an epoch. tf.data reads ahead of it."""
    shard = train.get_dataset_shard("train")
    saved = train.get_checkpoint().to_dict() if train.get_checkpoint() is not None else {"epoch": 0, "step": 0}
    notes = Notes(config, saved["step"])
    made = shard.to_tf(feature_columns="id", label_columns="id", batch_size=16)
    for epoch in range(saved["epoch"], 2):
        for features, _ in made:
            step = notes.use(epoch, features.numpy().tolist())
            train.report({"step": step}, checkpoint=Checkpoint.from_dict({"epoch": epoch, "step": step}))
        train.report({"step": step}, checkpoint=Checkpoint.from_dict({"epoch": epoch + 1, "step": step}))


def fit_loop(config):
    """fit over a generator of iter_tf_batches, as the autoencoder example has it; what it was trained on is seen in train_step."""
    shard = train.get_dataset_shard("train")
    saved = train.get_checkpoint().to_dict() if train.get_checkpoint() is not None else {"epoch": 0, "step": 0}
    notes, now = Notes(config, saved["step"]), {"epoch": 0}

    class Model(tf.keras.Model):
        def call(self, value):
            return tf.cast(value, tf.float32)

        def train_step(self, batch):
            now["ids"] = batch[0].numpy().tolist()
            return {"loss": 0.0}

    class Save(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, index, logs=None):
            step = notes.use(now["epoch"], now["ids"])
            train.report({"step": step}, checkpoint=Checkpoint.from_dict({"epoch": now["epoch"], "step": step}))

    def batches():
        for batch in shard.iter_tf_batches(batch_size=16):
            yield batch["id"], batch["id"]

    model = Model()
    model.compile(run_eagerly=True)
    spec = tf.TensorSpec(shape=(None,), dtype=tf.int64)
    for epoch in range(saved["epoch"], 2):
        now["epoch"] = epoch
        made = prepare_dataset_shard(tf.data.Dataset.from_generator(batches, output_signature=(spec, spec)))
        model.fit(made, callbacks=[ReportCheckpointCallback(checkpoint_on=[], report_metrics_on=[]), Save()], verbose=0)
        train.report({"step": notes.step}, checkpoint=Checkpoint.from_dict({"epoch": epoch + 1, "step": notes.step}))


def uneven(config):
    """MultiWorkerMirrored over blocks with uneven rows: fit ends, because all ranks have as many batches."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = linear_model()
        model.compile(optimizer="sgd", loss="mse")
        made = train.get_dataset_shard("train").to_tf(feature_columns="id", label_columns="id", batch_size=16)
    made = made.map(lambda x, y: (tf.cast(x, tf.float32) / 1000, tf.cast(y, tf.float32) / 1000))
    steps = []
    model.fit(made, epochs=2, verbose=0, callbacks=[tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))])
    train.report({"steps": len(steps), "place": train.get_dataset_shard("train").state_dict()["place"]["ended"]})


class InStep(InWorkers):
    def test_killed_in_a_loop(self):
        for make in (lambda: lines(self.path).random_shuffle(), lambda: data.range(ROWS).random_shuffle()):
            with tempfile.TemporaryDirectory() as folder:
                config = self.config(folder=folder, kill_at=41)
                self.fit(custom_loop, make(), config)
                self.check(config)
                self.assertGreater(self.begun[1], 20)

    def test_killed_in_fit(self):
        config = self.config(kill_at=20)
        self.fit(fit_loop, lines(self.path), config)
        self.check(config)
        self.assertGreater(self.begun[1], 0)

    def test_uneven_rows(self):
        trainer = TensorflowTrainer(train_loop_per_worker=uneven, scaling_config=ScalingConfig(num_workers=2), datasets={"train": lines(self.path)})
        result = trainer.fit()
        self.assertEqual((result.metrics["steps"], result.metrics["place"]), (2 * 64, True))  # 507 and 506 rows in batches of 16, which the strategy halves


class Examples(unittest.TestCase):
    def test_starter(self):
        ds = data.from_items([{"x": x / 200, "y": 2 * x / 200} for x in range(200)])
        trainer = TensorflowTrainer(train_loop_per_worker=starter, train_loop_config={"lr": 0.05, "batch_size": 32, "epochs": 4},
                                    scaling_config=ScalingConfig(num_workers=2), datasets={"train": ds})
        result = trainer.fit()
        self.assertLess(result.metrics["loss"], 1.0)
        self.assertIsNotNone(result.checkpoint)

    def test_regression(self):
        generator = numpy.random.default_rng(2)
        x = generator.normal(size=(160, 5))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "regression.csv")
            names = ["x%03d" % i for i in range(5)]
            numpy.savetxt(path, numpy.column_stack([x, x.sum(axis=1)]), delimiter=",", header=",".join(names + ["y"]), comments="")
            dataset = data.read_csv(path)
            dataset = Concatenator(columns=names, output_column_name="x").fit_transform(dataset)
            train_dataset, validation_dataset = dataset.train_test_split(0.25)
            batch = next(iter(train_dataset.to_tf(feature_columns="x", label_columns="y", batch_size=8)))
        self.assertEqual((tuple(batch[0].shape), tuple(batch[1].shape)), ((8, 5), (8,)))
        self.assertTrue(numpy.allclose(batch[0].numpy().sum(axis=1), batch[1].numpy(), atol=1e-4))
        self.assertEqual(validation_dataset.count(), 40)

    def test_autoencoder(self):
        trainer = TensorflowTrainer(train_loop_per_worker=autoencoder, train_loop_config={"batch_size": 16, "epochs": 2},
                                    scaling_config=ScalingConfig(num_workers=2), datasets={"train": autoencoder_dataset()})
        result = trainer.fit()
        self.assertLess(result.metrics["binary_crossentropy"], 0.75)


if __name__ == "__main__":
    support.main()
