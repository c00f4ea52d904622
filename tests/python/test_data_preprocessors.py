"""Preprocessors in Python: right numbers, exact values, saved with checkpoints, sentences for what cannot be."""

import json
import os
import pickle
import tempfile
import unittest

import cloudpickle
import numpy

import support
import unisono
from unisono import data, train
from unisono.data.preprocessors import BatchMapper, Chain, Concatenator, LabelEncoder, MaxAbsScaler, MinMaxScaler, Normalizer, OneHotEncoder
from unisono.data.preprocessors import OrdinalEncoder, Preprocessor, SimpleImputer, StandardScaler, Tokenizer
from unisono.train import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig

try:
    import pandas
except ImportError:
    pandas = None


class Preprocessors(unittest.TestCase):
    def setUp(self):
        generator = numpy.random.default_rng(5)
        self.x = generator.normal(3, 2, 1000).astype(numpy.float32)
        self.words = numpy.array(["red", "green", "blue"])[generator.integers(0, 3, 1000)]
        self.ds = data.from_numpy({"x": self.x, "y": numpy.arange(1000), "c": list(self.words)})

    def column(self, ds, name):
        return ds.to_numpy()[name]

    def test_scalers(self):
        x = self.x.astype(numpy.float64)
        scaler = StandardScaler(columns=["x"])
        self.assertTrue(numpy.allclose(self.column(scaler.fit_transform(self.ds), "x"), (x - x.mean()) / x.std(), atol=1e-5))
        self.assertTrue(numpy.allclose(self.column(MinMaxScaler(["x", "y"]).fit_transform(self.ds), "y"), numpy.arange(1000) / 999, atol=1e-6))
        self.assertAlmostEqual(float(numpy.abs(self.column(MaxAbsScaler(["x"]).fit_transform(self.ds), "x")).max()), 1, places=6)
        again = Preprocessor.from_dict(json.loads(json.dumps(scaler.to_dict())))
        self.assertEqual(again.transform_batch({"x": self.x[:3]})["x"].tolist(), scaler.transform_batch({"x": self.x[:3]})["x"].tolist())
        there = cloudpickle.loads(cloudpickle.dumps(scaler.transform(self.ds)))
        self.assertEqual(there.take(1), scaler.transform(self.ds).take(1))
        both = Chain(StandardScaler(["x"]), MinMaxScaler(["x"])).fit(self.ds)
        self.assertTrue(numpy.allclose(self.column(both.transform(self.ds), "x"), (x - x.min()) / (x.max() - x.min()), atol=1e-5))
        with self.assertRaisesRegex(RuntimeError, "not fitted"):
            StandardScaler(["x"]).transform(self.ds)
        with self.assertRaises(unisono.Error):
            StandardScaler(["nothing"]).fit(self.ds)

    def test_encoders(self):
        numbers = {"blue": 0, "green": 1, "red": 2}
        expected = [numbers[word] for word in self.words]
        self.assertEqual(self.column(OrdinalEncoder(["c"]).fit_transform(self.ds), "c").tolist(), expected)
        encoder = LabelEncoder("c").fit(self.ds)
        self.assertEqual(encoder.stats_, {"c": ["blue", "green", "red"]})
        with self.assertRaises(unisono.Error):
            encoder.transform_batch({"c": ["yellow"]})
        hot = self.column(OneHotEncoder(["c"]).fit_transform(self.ds), "c")
        self.assertTrue(numpy.array_equal(hot, numpy.eye(3, dtype=numpy.float32)[expected]))
        gaps = data.from_items([{"v": 1.0}, {"v": None}, {"v": 3.0}])
        self.assertEqual(self.column(SimpleImputer(["v"]).fit_transform(gaps), "v").tolist(), [1, 2, 3])

    def test_concatenator_and_tokenizer(self):
        joined = Concatenator(columns=["x", "y"], output_column_name="features").fit_transform(self.ds)
        self.assertEqual(joined.columns(), ["c", "features"])
        self.assertEqual(joined.take(2)[1]["features"].tolist(), [float(self.x[1]), 1.0])
        texts = data.from_items([{"t": "The cat, the dog!"}, {"t": "a cat"}])
        tokenizer = Tokenizer(["t"]).fit(texts)
        self.assertEqual(tokenizer.stats_["vocabulary"][0], "the")
        rows = self.column(tokenizer.transform(texts), "t")
        self.assertEqual(rows[0].tolist(), [2, 3, 2, 4])
        self.assertEqual(rows[1].tolist()[2:], [0, 0])
        self.assertEqual(tokenizer.transform_batch({"t": ["unknown words"]})["t"].tolist(), [[1, 1, 0, 0]])

    def test_normalizer(self):
        ds = data.from_numpy({"a": numpy.array([3e200, numpy.nan, 0.0]), "b": numpy.array([-4e200, 2.0, 0.0])})
        both = Normalizer(["a", "b"]).fit_transform(ds).to_numpy()
        numpy.testing.assert_allclose(both["a"], [0.6, numpy.nan, 0], rtol=1e-6)  # what is missing is passed over
        numpy.testing.assert_allclose(both["b"], [-0.8, 1, 0], rtol=1e-6)
        numpy.testing.assert_allclose(Normalizer(["a", "b"], norm="l1").transform(ds).to_numpy()["b"], [-4 / 7, 1, 0], rtol=1e-6)
        numpy.testing.assert_allclose(Normalizer(["a", "b"], norm="max").transform(ds).to_numpy()["a"], [0.75, numpy.nan, 0], rtol=1e-6)
        rows = Normalizer(["v"]).transform(data.from_numpy({"v": numpy.array([[3.0, 4.0], [0.0, 2.0]])})).to_numpy()["v"]
        numpy.testing.assert_allclose(rows, [[0.6, 0.8], [0, 1]], rtol=1e-6)

    def test_labels_are_exact_and_come_back(self):
        large = data.from_numpy({"k": numpy.array([2 ** 53 + 1, 2 ** 53, -2 ** 63, 2 ** 53 + 1])})
        encoder = LabelEncoder("k").fit(large)
        self.assertEqual(encoder.stats_, {"k": [-2 ** 63, 2 ** 53, 2 ** 53 + 1]})
        again = Preprocessor.deserialize(encoder.serialize())
        self.assertEqual(self.column(again.transform(large), "k").tolist(), [2, 1, 0, 2])
        self.assertEqual(self.column(again.inverse_transform(again.transform(large)), "k").tolist(), self.column(large, "k").tolist())
        words = LabelEncoder("c").fit(self.ds)
        self.assertEqual(words.inverse_transform_batch({"c": numpy.array([2, 0])})["c"].tolist(), ["red", "blue"])
        for wrong in (3, -1):
            with self.assertRaisesRegex(ValueError, "labels 0 to 2, not %d" % wrong):
                words.inverse_transform_batch({"c": numpy.array([wrong])})
        with self.assertRaisesRegex(unisono.Error, 'column "c" has "yellow"'):
            words.transform_batch({"c": ["yellow"]})

    def test_imputers_keep_types(self):
        gaps = data.from_numpy({"k": numpy.ma.array([2 ** 60 + 1, 0, 2 ** 60 + 1], mask=[False, True, False]), "s": ["a", None, "a"],
                                "f": numpy.array([1, numpy.nan, 3], numpy.float32)})
        filled = SimpleImputer(["k", "s"], strategy="most_frequent").fit_transform(gaps).to_numpy()
        self.assertEqual((filled["k"].tolist(), filled["s"].tolist()), ([2 ** 60 + 1] * 3, ["a"] * 3))
        self.assertEqual(self.column(SimpleImputer(["f"]).fit_transform(gaps), "f").dtype, numpy.float32)
        self.assertEqual(self.column(SimpleImputer(["k"], "constant", 7).fit_transform(gaps), "k").tolist(), [2 ** 60 + 1, 7, 2 ** 60 + 1])

    def test_outputs_of_their_own(self):
        out = StandardScaler(["y"], output_columns=["z"]).fit_transform(self.ds)
        self.assertEqual(out.columns(), ["x", "y", "c", "z"])
        self.assertEqual(out.take(1)[0]["y"], 0)
        words = LabelEncoder("c", output_column="number").fit_transform(self.ds)
        self.assertEqual(words.take(1)[0]["c"], self.words[0])
        with self.assertRaisesRegex(unisono.Error, '"x" already'):
            StandardScaler(["y"], output_columns=["x"]).fit_transform(self.ds).take(1)

    def test_the_form_of_a_batch(self):
        scaler = StandardScaler(["x"]).fit(self.ds)
        self.assertIsInstance(scaler.transform_batch({"x": [1.0]}), dict)
        if pandas is not None:
            self.assertEqual(list(scaler.transform_batch(pandas.DataFrame({"x": [1.0], "q": [2]})).columns), ["x", "q"])
            mapper = BatchMapper(lambda frame: frame.assign(z=frame.x * 2))
            self.assertEqual(mapper.transform_batch({"x": numpy.array([1.0])})["z"].tolist(), [2])

    def test_a_later_fit_does_not_change_a_dataset(self):
        scaler = MaxAbsScaler(["y"]).fit(self.ds)
        before = scaler.transform(self.ds)
        scaler.fit(self.ds.limit(2))
        self.assertEqual(pickle.loads(pickle.dumps(before)).take(1000)[-1]["y"], 1)
        self.assertEqual(scaler.transform(self.ds).take(1000)[-1]["y"], 999)

    def test_pipelines(self):
        scaled = Chain(MaxAbsScaler(["y"]), Concatenator(["x", "y"])).fit_transform(self.ds.repeat(2))
        self.assertEqual(scaled.count(), 2000)
        self.assertEqual(scaled.take(1001)[-1]["concat_out"].tolist(), scaled.take(1)[0]["concat_out"].tolist())

    def test_sentences(self):
        for kind, message in ((lambda: StandardScaler(["x", "x"]), "given twice"), (lambda: StandardScaler([]), "at least one column"),
                              (lambda: StandardScaler([1]), "name of a column"), (lambda: StandardScaler("nothing").fit(self.ds), "the columns are x, y, c"),
                              (lambda: StandardScaler(["c"]).fit(self.ds), "not numbers"), (lambda: Normalizer(["x"], norm="l3"), "not l3"),
                              (lambda: StandardScaler(["x"]).fit(self.ds.limit(0)), "no rows"), (lambda: StandardScaler(["x"]).fit([1]), "needs a Dataset"),
                              (lambda: MinMaxScaler(["x"]).fit(data.from_numpy({"x": numpy.full(3, numpy.nan)})), "only missing values"),
                              (lambda: SimpleImputer(["x"], "constant", "a").fit(self.ds), "fill_value is not"),
                              (lambda: SimpleImputer(["x"], "median"), "not median"), (lambda: OneHotEncoder(["c"], max_categories=-1), "not -1"),
                              (lambda: OneHotEncoder(["c"], max_categories={"q": 1}), "none of its columns"),
                              (lambda: Concatenator(["x"], output_column_name="c").transform(self.ds).take(1), "two columns are called c"),
                              (lambda: Concatenator(exclude=["x", "y"]).fit(self.ds), "no column of numbers"),
                              (lambda: Tokenizer(["c"], standardize="upper"), "not upper"), (lambda: Tokenizer(["c"], max_tokens=2), "at least 3"),
                              (lambda: Tokenizer(["c"], tokenization_fn=str.split), "map_batches"), (lambda: Chain(5), "takes preprocessors"),
                              (lambda: LabelEncoder(["c"]), "one column"), (lambda: Preprocessor.from_dict({"kind": "Bogus"}), "Bogus"),
                              (lambda: BatchMapper(len).to_dict(), "holds a function")):
            with self.subTest(message), self.assertRaisesRegex(Exception, message):
                kind()


def report_dictionaries():
    shard = train.get_dataset_shard("train")
    for epoch in range(2):
        top = max(float(batch["x"].max()) for batch in shard.iter_batches(batch_size=10))
        train.report({"top": top}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))


def report_directories():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "model.txt"), "w") as file:
            file.write("weights")
        train.report({"a": 1}, checkpoint=Checkpoint.from_directory(folder))


class SavedWithTheCheckpoint(unittest.TestCase):
    """A trainer's preprocessor is fitted once, and every checkpoint has it."""

    def fit(self, loop, preprocessor, workers=2):
        trainer = DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=workers), run_config=RunConfig(verbose=0), preprocessor=preprocessor,
                                      datasets={"train": data.range(100).rename_columns({"id": "x"}), "test": data.range(7).rename_columns({"id": "x"})})
        return trainer.fit()

    def test_dictionaries(self):
        chain = Chain(SimpleImputer(["x"]), MaxAbsScaler(["x"]))
        result = self.fit(report_dictionaries, chain, workers=1)
        self.assertEqual(result.metrics["top"], 1)  # 99 / 99, in the loop
        self.assertTrue(chain.is_fitted())
        found = result.checkpoint.get_preprocessor()
        self.assertEqual(found.to_dict(), chain.to_dict())
        self.assertEqual(found.transform_batch({"x": numpy.array([49.5])})["x"].tolist(), [0.5])
        self.assertIsInstance(result.checkpoint.to_dict()["_preprocessor"], Chain)

    def test_fitted_before(self):
        scaler = MaxAbsScaler(["x"]).fit(data.range(201).rename_columns({"id": "x"}))
        self.assertAlmostEqual(self.fit(report_dictionaries, scaler, workers=1).metrics["top"], 99 / 200, places=6)

    def test_directories(self):
        result = self.fit(report_directories, MaxAbsScaler(["x"]))
        self.assertEqual(result.checkpoint.get_preprocessor().stats_, {"x": [[0.0], [1 / 99]]})
        with result.checkpoint.as_directory() as folder:
            self.assertIn("preprocessor.json", os.listdir(folder))

    def test_a_function_in_it(self):
        double = Chain(BatchMapper(lambda batch: {"x": batch["x"] * 2.0}, batch_format="numpy"), MaxAbsScaler(["x"]))
        found = self.fit(report_dictionaries, double).checkpoint.get_preprocessor()
        self.assertEqual(found.transform_batch({"x": numpy.array([99.0])})["x"].tolist(), [1])

    def test_given_by_hand(self):
        scaler = MaxAbsScaler(["x"]).fit(data.range(11).rename_columns({"id": "x"}))
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = Checkpoint.from_directory(folder)
            self.assertIsNone(checkpoint.get_preprocessor())
            checkpoint.set_preprocessor(scaler)
            self.assertEqual(Checkpoint.from_directory(folder).get_preprocessor().stats_, scaler.stats_)
        written = Checkpoint(Checkpoint.from_dict({"scaler": scaler, "a": 1}).path)  # plain data, no pickle
        self.assertEqual(written.to_dict()["scaler"].stats_, scaler.stats_)


if __name__ == "__main__":
    support.main()
