"""Datasets for PyTorch: tensors, and the dataset examples of the v1 guide on real workers."""

import os
import tempfile
import unittest

import numpy
import torch
from torch import nn

import support
from test_data_resume import ROWS, InWorkers, Notes, lines, stream
from unisono import data, train
from unisono.train import Checkpoint, ScalingConfig, Trainer
from unisono.train.torch import TorchTrainer


def two_columns(n=64):
    x = numpy.linspace(-1, 1, n, dtype=numpy.float32)
    return data.from_numpy({"x": x, "z": x * x, "label": 3 * x + 1})


class Tensors(unittest.TestCase):
    def test_to_torch(self):
        ds = two_columns()
        made = ds.to_torch(label_column="label", batch_size=16)
        batches = list(made)
        self.assertEqual([(tuple(features.shape), tuple(label.shape)) for features, label in batches], [((16, 2), (16, 1))] * 4)
        self.assertTrue(torch.allclose(batches[0][1][:, 0], 3 * batches[0][0][:, 0] + 1))
        self.assertEqual(len(list(made)), 4)  # again: another epoch
        one = next(iter(ds.to_torch(label_column="label", feature_columns=["x"], batch_size=4, feature_column_dtypes=torch.float64,
                                    unsqueeze_label_tensor=False)))
        self.assertEqual((one[0].dtype, tuple(one[1].shape)), (torch.float64, (4,)))
        for wrong in (0, "", [], {}):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "feature_columns"):
                ds.to_torch(feature_columns=wrong)
        for wrong in (True, 1.5):  # Tensor.to(True) makes bools
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "device"):
                next(iter(ds.iter_torch_batches(device=wrong)))
        groups = next(iter(ds.to_torch(label_column="label", feature_columns={"a": ["x"], "b": ["x", "z"]}, batch_size=4)))
        self.assertEqual((groups[0]["a"].shape[1], groups[0]["b"].shape[1]), (1, 2))
        with self.assertRaisesRegex(KeyError, "no column"):
            ds.to_torch(label_column="nothing")

    def test_each_argument(self):
        ds = data.range(50)

        def rows(batches):
            return [int(value) for batch in batches for value in batch]

        for make in (lambda **given: [batch["id"] for batch in ds.iter_torch_batches(batch_size=20, **given)],
                     lambda **given: [batch[0][:, 0] for batch in ds.to_torch(feature_columns=["id"], batch_size=20, **given)]):
            self.assertEqual(rows(make()), list(range(50)))
            self.assertNotEqual(rows(make(local_shuffle_buffer_size=20, local_shuffle_seed=0)), rows(make(local_shuffle_buffer_size=20, local_shuffle_seed=1)))
        one = list(ds.iter_torch_batches(batch_size=20, prefetch_batches=2, drop_last=True, local_shuffle_buffer_size=20, local_shuffle_seed=0))
        two = list(ds.to_torch(feature_columns=["id"], batch_size=20, prefetch_batches=2, drop_last=True, local_shuffle_buffer_size=20, local_shuffle_seed=0))
        self.assertEqual((len(one), len(two)), (2, 2))
        mixed = rows(batch["id"] for batch in one)
        self.assertEqual(len(set(mixed)), 40)
        self.assertNotEqual(mixed, sorted(mixed))
        typed = next(iter(two_columns().to_torch(label_column="label", feature_columns=["x"], label_column_dtype=torch.float64, batch_size=4)))
        self.assertEqual((typed[0].dtype, typed[1].dtype, tuple(typed[0].shape)), (torch.float32, torch.float64, (4, 1)))
        flat = next(iter(two_columns().to_torch(label_column="label", feature_columns=["x"], unsqueeze_feature_tensors=False, batch_size=4)))
        self.assertEqual(tuple(flat[0].shape), (4,))

    def test_many_columns_and_what_is_missing(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "wide.csv")
        rows = numpy.random.default_rng(1).random((300, 101)).round(6)
        numpy.savetxt(path, rows, delimiter=",", fmt="%.6f", header=",".join("c%d" % i for i in range(101)), comments="")
        ds = data.read_csv(path)
        features, label = zip(*ds.to_torch(label_column="c100", batch_size=128))
        self.assertEqual([tuple(each.shape) for each in features], [(128, 100), (128, 100), (44, 100)])
        self.assertTrue(numpy.array_equal(torch.cat(features).numpy(), rows[:, :100]))  # in the order of the columns, whoever put them together
        self.assertTrue(numpy.array_equal(torch.cat(label)[:, 0].numpy(), rows[:, 100]))
        mixed = data.from_items([{"a": 1, "b": 0.5}, {"a": None, "b": 1.5}])
        got = next(iter(mixed.to_torch(batch_size=2)))[0]
        self.assertTrue(numpy.array_equal(got.numpy(), [[1, 0.5], [numpy.nan, 1.5]], equal_nan=True))
        with self.assertRaisesRegex(TypeError, "is text"):
            next(iter(data.from_items([{"a": "x"}]).to_torch(batch_size=1)))

    def test_tensors_are_the_loop_s_own(self):
        values = numpy.arange(8, dtype=numpy.float32)
        ds = data.from_numpy(values)
        for _ in range(2):  # a tensor cannot be read only: what the dataset keeps is copied
            batch = next(ds.iter_torch_batches(batch_size=8))
            self.assertEqual(batch["data"].tolist(), values.tolist())
            batch["data"] /= 255
        self.assertEqual(values.tolist(), list(range(8)))

    def test_types_of_iter_torch_batches(self):
        typed = next(two_columns().iter_torch_batches(batch_size=4, dtypes={"x": torch.float64}))
        self.assertEqual((typed["x"].dtype, typed["z"].dtype), (torch.float64, torch.float32))
        with self.assertRaisesRegex(TypeError, "is text"):
            next(data.from_items([{"s": "a"}]).iter_torch_batches())

    def test_a_loader_that_was_made_before_the_epochs(self):
        loader = data.range(20).iter_torch_batches(batch_size=8)
        self.assertEqual([[len(batch["id"]) for batch in loader] for _ in range(3)], [[8, 8, 4]] * 3)

    def test_collate_fn_is_the_only_one_that_makes_tensors(self):
        collated = next(data.range(4).iter_torch_batches(collate_fn=lambda batch: torch.tensor(batch["id"], dtype=torch.float16), device="auto"))
        self.assertEqual(collated.dtype, torch.float16)
        for options in ({"dtypes": torch.float32}, {"device": "cpu"}, {"dtypes": {"id": torch.int32}, "device": "meta"}):
            with self.assertRaisesRegex(ValueError, "collate_fn makes the tensors itself, so that %s" % next(iter(options))):
                data.range(4).iter_torch_batches(collate_fn=len, **options)
        self.assertEqual(next(data.range(4).iter_torch_batches(device="meta"))["id"].device.type, "meta")
        with self.assertRaisesRegex(KeyError, "no column 'x'"):
            data.range(4).iter_torch_batches(dtypes={"x": torch.int32})

    def test_processes_of_a_data_loader(self):
        made = two_columns().to_torch(label_column="label", batch_size=16)
        alone = [label[:, 0].tolist() for _, label in made]
        loader = torch.utils.data.DataLoader(made, batch_size=None, num_workers=2)
        self.assertEqual([label[:, 0].tolist() for _, label in loader], alone)  # each batch once, in their order

    def test_what_is_no_tensor(self):
        with self.assertRaisesRegex(TypeError, "dtypes are those of torch"):
            list(two_columns().to_torch(label_column="label", feature_column_dtypes="float32"))
        with self.assertRaisesRegex(TypeError, "Python objects"):
            list(data.from_items([(1, 2)]).iter_torch_batches())
        halves = data.range(4).map_batches(lambda batch: {"t": torch.ones(len(batch["id"]), 2, dtype=torch.bfloat16)})
        self.assertEqual(halves.take_batch(4)["t"].tolist(), [[1, 1]] * 4)

    def test_a_stream_of_torch_with_a_length(self):
        class Stream(torch.utils.data.IterableDataset):
            def __len__(self):
                return 3

            def __iter__(self):
                return iter([(torch.ones(2) * i, i) for i in range(3)])

        self.assertEqual([row["label"] for row in data.from_torch(Stream()).take_all()], [0, 1, 2])

    def test_from_torch(self):
        made = torch.utils.data.TensorDataset(torch.arange(12).reshape(6, 2), torch.arange(6))
        rows = data.from_torch(made).random_shuffle(seed=1).take_all()
        self.assertEqual(sorted(row["label"] for row in rows), list(range(6)))
        self.assertTrue(all(row["item"].tolist() == [2 * row["label"], 2 * row["label"] + 1] for row in rows))


# ---- the guide's examples ----


def simple(config):
    """Distributed data ingest: the simple dataset example."""
    torch.manual_seed(0)
    model = train.torch.prepare_model(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch_size = config["worker_batch_size"]
    train_torch_dataset = train.get_dataset_shard("train").to_torch(label_column="label", batch_size=batch_size)
    validation_torch_dataset = train.get_dataset_shard("validation").to_torch(label_column="label", batch_size=batch_size)
    seen, losses = 0, []
    for _ in range(config["num_epochs"]):
        for features, label in train_torch_dataset:
            loss = nn.functional.mse_loss(model(features), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(label)
        with torch.no_grad():
            losses.append(float(numpy.mean([float(nn.functional.mse_loss(model(x), y)) for x, y in validation_torch_dataset])))
    return seen, losses


def pipeline(config):
    """The per-epoch shuffle pipeline."""
    epochs = train.get_dataset_shard().iter_epochs()
    orders = []
    for _ in range(config["num_epochs"]):
        shard = next(epochs)
        orders.append([int(label) for _, batch in shard.to_torch(label_column="id", feature_columns=["id"], batch_size=4) for label in batch])
    return orders


def loop(config):
    shard = train.get_dataset_shard("train")
    for epoch in range(2):
        total = sum(float(batch["label"].sum()) for batch in shard.iter_torch_batches(batch_size=8))
        train.report({"total": total, "rows": shard.count(), "epoch": epoch})


def uneven(config):
    """Real gradients of DDP at every batch: a rank with fewer batches than the others would leave them waiting for ever."""
    model = train.torch.prepare_model(nn.Linear(1, 1))
    out = {}
    for name in config["names"]:
        ids, batches = [], 0
        for features, label in train.get_dataset_shard(name).to_torch(label_column="id", feature_columns=["id"], batch_size=16):
            model(features.float()).sum().backward()
            ids += label[:, 0].tolist()
            batches += 1
        out[name] = (batches, ids)
    return out


def killed(config):
    """Tensors in the middle of an epoch, and a kill there: to_torch in the first epoch, iter_torch_batches in the second."""
    shard = train.get_dataset_shard("train")
    saved = train.get_checkpoint().to_dict() if train.get_checkpoint() is not None else {"epoch": 0, "step": 0}
    notes = Notes(config, saved["step"])
    for epoch in range(saved["epoch"], 2):
        tensors = ((label for _, label in shard.to_torch(label_column="id", feature_columns=["id"], batch_size=16)) if epoch == 0
                   else (batch["id"] for batch in shard.iter_torch_batches(batch_size=16)))
        for ids in tensors:
            step = notes.use(epoch, ids.flatten().tolist())
            train.report({"step": step}, checkpoint=Checkpoint.from_dict({"epoch": epoch, "step": step}))
        train.report({"step": step}, checkpoint=Checkpoint.from_dict({"epoch": epoch + 1, "step": step}))


class InStep(InWorkers):
    """Workers that meet at every batch, and kills in the middle of an epoch."""

    def test_uneven_rows(self):
        for workers in (2, 3):
            datasets = {"blocks": lines(self.path), "shuffled": lines(self.path).random_shuffle(seed=1),
                        "filter": data.range(ROWS).filter(lambda row: row["id"] % 3 > 0), "stream": stream(97)}
            trainer = Trainer(num_workers=workers, backend="torch")
            trainer.start()
            ranks = trainer.run(uneven, config={"names": list(datasets)}, dataset=datasets)
            trainer.shutdown()
            for name, rows in (("blocks", range(ROWS)), ("shuffled", range(ROWS)), ("filter", [i for i in range(ROWS) if i % 3]), ("stream", range(97))):
                self.assertEqual(len({each[name][0] for each in ranks}), 1, name)
                self.assertEqual(sorted(i for each in ranks for i in each[name][1]), list(rows), name)

    def test_killed(self):
        for victim, kill_at in ((0, 20), (1, 45)):
            with tempfile.TemporaryDirectory() as folder:
                config = self.config(folder=folder, victim=victim, kill_at=kill_at)
                self.fit(killed, lines(self.path).random_shuffle(), config)
                self.check(config)
                self.assertGreater(self.begun[1], 0)


class Examples(unittest.TestCase):
    def test_simple_example(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "data.csv")
            with open(path, "w") as file:
                file.write("x,z,label\n")
                for x in numpy.linspace(-1, 1, 200):
                    file.write("%.6f,%.6f,%.6f\n" % (x, x * x, 3 * x + 1))
            dataset = data.read_csv(path, float_dtype="float32")
            split_index = int(dataset.count() * 0.8)
            train_dataset, validation_dataset = dataset.random_shuffle().split_at_indices([split_index])
            trainer = Trainer(num_workers=2, backend="torch")
            trainer.start()
            results = trainer.run(simple, config={"worker_batch_size": 8, "num_epochs": 5},
                                  dataset={"train": train_dataset, "validation": validation_dataset})
            trainer.shutdown()
        self.assertEqual([seen for seen, _ in results], [400, 400])
        self.assertLess(results[0][1][-1], 0.1 * results[0][1][0])

    def test_pipeline_example(self):
        pipe = data.range(40).repeat().random_shuffle_each_window(seed=1)
        trainer = Trainer(num_workers=2, backend="torch")
        trainer.start()
        first, second = trainer.run(pipeline, config={"num_epochs": 3}, dataset=pipe)
        trainer.shutdown()
        for a, b in zip(first, second):
            self.assertEqual(sorted(a + b), list(range(40)))
        self.assertNotEqual(first[0], first[1])

    def test_trainer_with_datasets(self):
        result = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2), datasets={"train": two_columns()}).fit()
        self.assertEqual(result.metrics["rows"], 32)


if __name__ == "__main__":
    support.main()
