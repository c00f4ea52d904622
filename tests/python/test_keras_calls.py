"""unisono.keras: exceptions of the user's code come back as themselves, training= reaches the layers, layers stand on their own."""

import traceback
import unittest

import numpy as np

import support
from unisono import keras
import unisono.tf as tf

X = np.random.RandomState(0).rand(12, 4).astype("float32")
Y = X.sum(axis=1)


def compiled(rate, **options):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate, **options), "mse")
    return model


class Mine(Exception):
    """Of the user."""


class Exceptions(unittest.TestCase):
    def comes_back(self, function, *arguments, **options):
        try:
            function(*arguments, **options)
        except Mine as error:
            self.assertEqual(str(error), "why")
            self.assertIn("the_user_s_function", "".join(traceback.format_tb(error.__traceback__)))
        else:
            self.fail("%s swallowed the exception" % function)

    def test_names_before_a_model_is_built(self):
        self.assertEqual([keras.layers.Dense(3).name, keras.layers.BatchNormalization().name, keras.layers.Dense(3, name="Mine").name],
                         ["dense", "batch_normalization", "Mine"])
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5), keras.layers.Dense(2)])
        self.assertEqual(model.get_layer("dense_1").weights[0].shape, (5, 2))

    def test_what_is_not_compiled_or_not_a_number_says_so(self):
        model, x = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]), np.ones((3, 4), "float32")
        for name in ("fit", "evaluate", "train_on_batch", "test_on_batch"):
            with self.assertRaisesRegex(ValueError, "compiled first: call compile before " + name):
                getattr(model, name)(x, x[:, :1])
        model.compile("sgd", "mse")
        with self.assertRaisesRegex(ValueError, r"validation_freq is a whole number of at least 1, or None; got \[1, 3\]"):
            model.fit(x, x[:, :1], validation_data=(x, x[:, :1]), validation_freq=[1, 3])

    def test_whole_numbers_are_exact(self):
        """float32 has none above 2**24: integers are not computed in it."""
        ids = keras.ops.convert_to_tensor(np.array([2**24 + 1, 2**40 + 1]))
        for got, wanted in ((ids + 1, [2**24 + 2, 2**40 + 2]), (3 * ids, [3 * 2**24 + 3, 3 * 2**40 + 3]), (ids % 2, [1, 1]), (ids // 2, [2**23, 2**39]),
                            (keras.ops.sum(ids), 2**24 + 2**40 + 2), (keras.ops.concatenate([ids, ids[:1]]), [2**24 + 1, 2**40 + 1, 2**24 + 1]),
                            (ids == 2**24, [False, False]), (keras.ops.take(ids, [1]), [2**40 + 1]), (int(ids[1]), 2**40 + 1), (keras.ops.absolute(x=-ids), [2**24 + 1, 2**40 + 1])):
            self.assertEqual(np.asarray(got).tolist(), wanted)
        np.testing.assert_allclose(np.asarray(keras.ops.convert_to_tensor(np.float32([5.5, -5.5])) % 2.0), [1.5, 0.5])

    def test_a_learning_rate_is_assigned_as_in_keras(self):
        import pickle

        optimizer = keras.optimizers.SGD(0.1)
        optimizer.learning_rate.assign(0.5)
        self.assertEqual((optimizer.learning_rate, float(optimizer.learning_rate.numpy())), (0.5, 0.5))
        optimizer.learning_rate.assign(optimizer.learning_rate * 0.5)
        self.assertEqual(optimizer.learning_rate, 0.25)
        self.assertEqual(type(pickle.loads(pickle.dumps(optimizer.learning_rate))), float)

    def test_learning_rates(self):
        def the_user_s_function(step):
            raise Mine("why")

        class Schedule(keras.optimizers.schedules.LearningRateSchedule):
            def __call__(self, step):
                return the_user_s_function(step)

        for rate in (the_user_s_function, Schedule(), lambda: the_user_s_function(0)):
            model = compiled(rate)
            before = model.get_weights()
            self.comes_back(model.fit, X, Y, verbose=0)
            self.comes_back(model.train_on_batch, X, Y)
            self.comes_back(getattr, model.optimizer, "learning_rate")
            self.comes_back(model.get_state)
            for a, b in zip(before, model.get_weights()):
                np.testing.assert_array_equal(a, b)
        self.comes_back(compiled(the_user_s_function).fit, X, Y, verbose=0, replicas=2, batch_size=6)

    def test_a_rate_that_is_no_number(self):
        with self.assertRaises(TypeError):
            compiled(lambda: None).fit(X, Y, verbose=0)
        with self.assertRaises(ValueError) as caught:
            compiled(lambda: float("nan")).fit(X, Y, verbose=0)
        self.assertIn("returned nan for step 0", str(caught.exception))

    def test_a_rate_without_arguments_is_asked_once_a_step(self):
        asked = []

        def rate():
            asked.append(None)
            return 0.1

        compiled(rate).fit(X, Y, batch_size=4, epochs=2, verbose=0, replicas=1)
        self.assertEqual(len(asked), 6)

    def test_scheduler_does_not_hide_a_type_error(self):
        def the_user_s_function(epoch, rate):
            raise TypeError("mine")

        with self.assertRaises(TypeError) as caught:
            compiled(0.1).fit(X, Y, verbose=0, callbacks=[keras.callbacks.LearningRateScheduler(the_user_s_function)])
        self.assertEqual(str(caught.exception), "mine")
        seen = []
        compiled(0.1).fit(X, Y, epochs=2, verbose=0, callbacks=[keras.callbacks.LearningRateScheduler(lambda epoch: seen.append(epoch) or 0.5)])
        self.assertEqual(seen, [0, 1])

    def test_length_of_batches_by_index(self):
        class Batches(keras.utils.PyDataset):
            def __len__(self):
                raise TypeError("why")

        with self.assertRaises(TypeError) as caught:
            compiled(0.1).fit(Batches(), verbose=0)
        self.assertEqual(str(caught.exception), "why")


class Training(unittest.TestCase):
    def test_layers_alone(self):
        layer, x = keras.layers.Dropout(0.5), np.ones((4, 50), "float32")
        self.assertTrue((np.asarray(layer(x)) == 1).all())
        self.assertTrue((np.asarray(layer(x, training=False)) == 1).all())
        self.assertFalse((np.asarray(layer(x, training=True)) == 1).all())
        norm = keras.layers.BatchNormalization()
        values = np.random.RandomState(1).rand(64, 3).astype("float32") * 9
        np.testing.assert_allclose(np.asarray(norm(values, training=True)).mean(axis=0), 0, atol=1e-5)
        self.assertGreater(np.asarray(norm(values)).mean(), 1)

    def test_inside_of_a_call(self):
        class Frozen(keras.Model):
            def __init__(self, flag):
                super().__init__()
                self.dropout, self.head, self.flag = keras.layers.Dropout(0.5), keras.layers.Dense(1, kernel_initializer="ones"), flag

            def call(self, x, training=None):
                return self.head(self.dropout(x, training=training if self.flag is None else self.flag))

        x = np.ones((4, 50), "float32")

        def constant(model, **options):
            return np.unique(np.asarray(model(x, **options))).size == 1

        self.assertTrue(constant(Frozen(None)))
        self.assertFalse(constant(Frozen(None), training=True))
        self.assertTrue(constant(Frozen(False), training=True))
        self.assertFalse(constant(Frozen(True), training=False))
        self.assertEqual(np.unique(Frozen(None).predict(x)).size, 1)
        self.assertGreater(np.unique(Frozen(True).predict(x)).size, 1)

    def test_of_a_call_in_a_graph(self):
        inputs = keras.Input((50,))
        model = keras.Model(inputs, keras.layers.Dropout(0.5)(inputs, training=True))
        x = np.ones((4, 50), "float32")
        self.assertFalse((model.predict(x) == 1).all())
        again = keras.Model.from_config(model.get_config())
        self.assertFalse((again.predict(x) == 1).all())

    def test_on_a_tape(self):
        model, x = keras.Sequential([keras.Input((50,)), keras.layers.Dropout(0.5)]), np.ones((4, 50), "float32")
        with tf.GradientTape():
            quiet, loud = np.array(model(x)), np.array(model(x, training=True))
        self.assertTrue((quiet == 1).all())
        self.assertFalse((loud == 1).all())


class Layers(unittest.TestCase):
    def test_build_and_shapes(self):
        layer = keras.layers.Dense(3)
        layer.build((None, 4))
        kernel = layer.get_weights()[0]
        self.assertEqual(kernel.shape, (4, 3))
        for shape in ((2, 4), (5, 4), (2, 7, 4), (2, 3, 5, 4)):
            x = np.random.RandomState(2).rand(*shape).astype("float32")
            np.testing.assert_allclose(np.asarray(layer(x)), x @ kernel, rtol=1e-5, atol=1e-6)
        with self.assertRaises(ValueError):
            layer(np.ones((2, 5), "float32"))
        model = keras.Sequential([keras.Input((4,)), layer])
        np.testing.assert_array_equal(model.get_weights()[0], kernel)
        np.testing.assert_allclose(np.asarray(layer(X)), model.predict(X), rtol=1e-5)

    def test_build_of_one_s_own(self):
        class Scale(keras.layers.Layer):
            def build(self, input_shape):
                self.gain = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="gain")

            def call(self, x):
                return x * self.gain

        layer = Scale()
        layer.build((None, 4))
        self.assertEqual([each.shape for each in layer.weights], [(4,)])
        np.testing.assert_array_equal(np.asarray(layer(X)), X)
        self.assertEqual(len(keras.Sequential([keras.Input((4,)), layer]).get_weights()), 1)

    def test_numbers_of_any_type(self):
        layer = keras.layers.Dense(2, kernel_initializer="ones")
        for x in ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]], "float64"), np.array([[1, 2], [3, 4]], "uint8")):
            np.testing.assert_array_equal(np.asarray(layer(x)), [[3, 3], [7, 7]])


class WholeBatch(unittest.TestCase):
    """The user's losses, metrics and layers see the batch that fit was told, and a loss may be one number for it. The numbers are those of Keras 3.16 on
    TensorFlow; a loss of one number counted a batch's size too little, and batches were cut for the replicas of a process."""

    def model(self, middle=None, **compile_options):
        model = keras.Sequential([keras.Input((2,))] + ([middle] if middle else []) + [keras.layers.Dense(1)])
        model.compile(**dict(dict(optimizer=keras.optimizers.SGD(0.1), loss="mse"), **compile_options))
        model.set_weights([np.array([[0.5], [-0.25]], "float32"), np.zeros(1, "float32")])
        return model

    def setUp(self):
        index = np.arange(64, dtype="float32")
        self.x = np.stack([np.sin(index), np.cos(index * 0.7)], axis=1)
        self.y = (self.x[:, :1] * 2 + 0.5 + index[:, None] / 64).astype("float32")

    def fit(self, model, **options):
        return model.fit(self.x, self.y, epochs=2, batch_size=32, shuffle=False, verbose=0, **options).history

    def test_losses(self):
        ops = keras.ops
        for loss, expected in ((lambda ops: lambda true, pred: ops.mean(ops.square(true - pred)), [1.90711, 1.07331]),
                               (lambda ops: lambda true, pred: ops.sqrt(ops.mean(ops.square(true - pred))), [1.4354, 1.29603]),
                               (lambda ops: lambda true, pred: ops.mean(ops.square(true - pred), axis=0), [1.90711, 1.07331]),
                               (lambda ops: lambda true, pred: ops.mean(ops.square(true - pred), axis=-1), [1.90711, 1.07331])):
            got = self.fit(self.model(loss=loss(ops)))["loss"]
            np.testing.assert_allclose(got, expected, rtol=1e-4)

    def test_metrics(self):
        def root(true, pred):
            return keras.ops.sqrt(keras.ops.mean(keras.ops.square(true - pred)))

        model = self.model(metrics=[root])
        np.testing.assert_allclose(self.fit(model)["root"], [1.37975, 1.03367], rtol=1e-4)

    def test_layers(self):
        class Centre(keras.layers.Layer):
            def call(self, x):
                return x - keras.ops.mean(x, axis=0, keepdims=True)

            def compute_output_shape(self, shape):
                return shape

        model = self.model(Centre())
        np.testing.assert_allclose(self.fit(model)["loss"], [1.90411, 1.0775], rtol=1e-4)
        model = self.model(Centre())
        self.assertAlmostEqual(model.evaluate(self.x, self.y, batch_size=32, verbose=0), 2.17412, places=4)
        self.assertAlmostEqual(float(model.predict(self.x, batch_size=32, verbose=0)[0, 0]), -0.24483, places=4)


class OneSample(unittest.TestCase):
    """Predictions of shape (n,): Keras 3.15's numbers."""

    def test_losses(self):
        true, pred, weights = np.array([1.0, 0, 1]), np.array([0.9, 0.4, 0.2]), np.array([1.0, 0, 3])
        for loss, expected in ((keras.losses.MeanSquaredError, 0.27), (keras.losses.BinaryCrossentropy, 0.74187), (keras.losses.Hinge, 0.76667)):
            self.assertAlmostEqual(float(loss()(true, pred)), expected, places=5)
            self.assertAlmostEqual(float(loss()(true, pred, sample_weight=weights)), expected * 4 / 3, places=4)
            self.assertAlmostEqual(float(loss(reduction="sum")(true, pred, sample_weight=weights)), expected * 4, places=4)
            self.assertEqual(np.shape(loss(reduction=None)(true, pred)), ())
        self.assertAlmostEqual(float(keras.losses.categorical_crossentropy(np.array([0.0, 1, 0]), np.array([0.2, 0.5, 0.3]))), 0.69315, places=5)
        self.assertAlmostEqual(float(keras.losses.SparseCategoricalCrossentropy()(1, np.array([0.2, 0.5, 0.3]))), 0.69315, places=5)

    def test_its_gradient(self):
        weight = tf.Variable([1.0, 2.0, 4.0])
        with tf.GradientTape() as tape:
            loss = keras.losses.MeanSquaredError()(np.zeros(3), weight * 1.0)
        np.testing.assert_allclose(tape.gradient(loss, weight).numpy(), [2 / 3, 4 / 3, 8 / 3], rtol=1e-6)

    def test_metrics(self):
        true, pred = np.array([0.0, 1, 0]), np.array([0.2, 0.5, 0.3])
        for metric, expected in (("CategoricalCrossentropy", 0.69315), ("KLDivergence", 0.69314), ("CategoricalAccuracy", 1.0)):
            one = getattr(keras.metrics, metric)()
            one.update_state(true, pred)
            self.assertAlmostEqual(float(one.result()), expected, places=4)
        wrong = keras.metrics.CategoricalAccuracy()
        wrong.update_state(true, pred[::-1] * [1, 1, 3])
        self.assertEqual(float(wrong.result()), 0.0)
        for metric in (keras.metrics.F1Score(), keras.metrics.TopKCategoricalAccuracy(1)):
            with self.assertRaisesRegex(ValueError, r"needs predictions of shape \(batch, classes\)"):
                metric.update_state(true, pred)
        with self.assertRaisesRegex(ValueError, "one sample and have one weight, not 3"):
            keras.metrics.KLDivergence().update_state(true, pred, sample_weight=[1, 2, 3])


class Accumulation(unittest.TestCase):
    def test_apply_gradients_waits(self):
        weight = tf.Variable([1.0, 2.0])
        optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=2)
        optimizer.apply_gradients([(np.array([1.0, 0.0], "float32"), weight)])
        np.testing.assert_array_equal(weight.numpy(), [1, 2])
        optimizer.apply_gradients([(np.array([0.0, 1.0], "float32"), weight)])
        np.testing.assert_array_equal(weight.numpy(), [0.5, 1.5])

    def test_too_few_steps(self):
        for steps in (0, 1):
            with self.assertRaises(ValueError):
                keras.optimizers.SGD(gradient_accumulation_steps=steps)


class Arguments(unittest.TestCase):
    """None is swallowed: unknown ones name the nearest, known ones without effect are refused, harmless ones are taken."""

    def test_refused_and_unknown(self):
        layers, optimizers = keras.layers, keras.optimizers
        model = compiled(0.1)
        dataset = tf.data.Dataset.range(3)
        for call, words in (
                (lambda: layers.Dense(3, activaton="relu"), "did you mean 'activation'"),
                (lambda: layers.Dense(3, kernel_constraint="non_neg"), "kernel_constraint"),
                (lambda: layers.Dense(3, dtype="float64"), "float64"),
                (lambda: layers.LSTM(3, return_state=True), "return_state"),
                (lambda: layers.BatchNormalization(renorm=True), "renorm"),
                (lambda: keras.losses.Huber(detla=1.0), "did you mean 'delta'"),
                (lambda: keras.losses.SparseCategoricalCrossentropy(ignore_class=0), "ignore_class"),
                (lambda: keras.metrics.AUC(multi_label=True), "multi_label"),
                (lambda: keras.metrics.Mean(dtype="float16"), "float16"),
                (lambda: optimizers.Adam(use_ema=True), "use_ema"),
                (lambda: optimizers.SGD(momentun=0.9), "did you mean 'momentum'"),
                (lambda: optimizers.schedules.CosineDecay(0.1, 3, alhpa=0.1), "did you mean 'alpha'"),
                (lambda: keras.initializers.RandomNormal(stdev=1), "did you mean 'stddev'"),
                (lambda: keras.callbacks.TensorBoard(embeddings_freq=1), "embeddings_freq"),
                (lambda: keras.callbacks.EarlyStopping(patiance=1), "did you mean 'patience'"),
                (lambda: keras.callbacks.ModelCheckpoint("a.keras", initial_value_threshold=1), "initial_value_threshold"),
                (lambda: model.compile("sgd", "mse", metric=["mae"]), "did you mean 'metrics'"),
                (lambda: model.fit(X, Y, epoch=3), "did you mean 'epochs'"),
                (lambda: model.evaluate(X, Y, batchsize=3), "did you mean 'batch_size'"),
                (lambda: model.load_weights("a.weights.h5", skip_mismatch=True), "skip_mismatch"),
                (lambda: model.summary(show_trainable=True), "show_trainable"),
                (lambda: keras.Input((3,), sparse=True), "sparse"),
                (lambda: keras.models.load_model("a.keras", custom_objects={"a": 1}), "custom_objects"),
                (lambda: tf.function(inputsignature=None), "inputsignature"),
                (lambda: dataset.batch(2, drop_reminder=True), "did you mean 'drop_remainder'"),
                (lambda: dataset.cache(filename="somewhere"), "filename"),
                (lambda: tf.distribute.MirroredStrategy(1).run(len, options=object()), "options"),
                (lambda: tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=object()), "cluster_resolver")):
            with self.assertRaises(TypeError) as caught:
                call()
            self.assertIn(words, str(caught.exception))

    def test_harmless(self):
        keras.layers.Dropout(0.1, seed=3)
        keras.layers.LSTM(2, unroll=True)
        keras.layers.Dense(2, kernel_constraint=None, lora_rank=None, dtype="float32")
        compiled(0.1).compile("sgd", "mse", jit_compile=True, run_eagerly=True, auto_scale_loss=False)
        self.assertEqual([int(each) for each in tf.data.Dataset.range(3).map(lambda each: each, num_parallel_calls=2)], [0, 1, 2])

        @tf.function(jit_compile=True)
        def same(x):
            return x
        self.assertEqual(same(3), 3)

    def test_zeros_are_values(self):
        model = compiled(0.1)
        before = model.get_weights()
        self.assertEqual(model.fit(X, Y, epochs=0, verbose=0).history, {})
        np.testing.assert_array_equal(before[0], model.get_weights()[0])
        for wrong in (dict(batch_size=0), dict(steps_per_epoch=0), dict(validation_freq=0), dict(epochs=-1)):
            with self.assertRaises(ValueError):
                model.fit(X, Y, verbose=0, **wrong)
        drawn = []
        for _ in range(2):
            keras.utils.set_random_seed(0)
            drawn.append(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]).get_weights()[0])
        np.testing.assert_array_equal(*drawn)
        self.assertEqual(keras.callbacks.ReduceLROnPlateau(patience=0)._options["patience"], 0)

    def test_frozen_models(self):
        self.assertEqual(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)], trainable=False).trainable_weights, [])
        inputs = keras.Input((4,))
        self.assertEqual(keras.Model(inputs, keras.layers.Dense(3)(inputs), trainable=False).trainable_weights, [])


if __name__ == "__main__":
    support.main()
