"""unisono.tf: what is refused, and what numpy() and gradients keep. The numbers themselves are compared with TensorFlow in tests/differential/numbers_tf.py."""

import unittest

import numpy as np

import unisono.tf as tf
from unisono import keras


class Arguments(unittest.TestCase):
    def test_options_that_change_what_is_read_are_refused(self):
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        with self.assertRaisesRegex(TypeError, "auto_shard_policy=OFF is not supported"):
            tf.data.Dataset.range(3).with_options(options=options)
        with self.assertRaisesRegex(AttributeError, "no 'deterministi'"):
            options.deterministi = False

    def test_unknown_and_refused_arguments_are_named(self):
        with self.assertRaisesRegex(TypeError, "drop_remainder"):
            tf.data.Dataset.range(3).batch(2, drop_remaindr=True)
        with self.assertRaisesRegex(TypeError, "input_signature"):
            tf.function(input_signature=[tf.TensorSpec(shape=(1,))])
        with self.assertRaisesRegex(TypeError, "persistent"):
            tf.GradientTape(persistent=True)
        x = tf.Variable([1.0])
        with tf.GradientTape() as tape:
            y = x * x
        with self.assertRaisesRegex(TypeError, "output_gradients"):
            tape.gradient(y, x, output_gradients=[2.0])
        self.assertEqual(tf.TensorSpec(shape=(1,), name="x").name, "x")
        with self.assertRaisesRegex(TypeError, "filename"):
            tf.data.Dataset.range(3).cache(filename="here")

    def test_arguments_by_name(self):
        x = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        self.assertEqual(tf.gather(x, [2, 0], axis=1).numpy().tolist(), [[3, 1], [6, 4]])
        for first in ({}, {"axis": 0}, {"axis": None}):
            self.assertEqual(tf.gather(x, [1], **first).numpy().tolist(), [[4, 5, 6]])
        self.assertEqual(tf.identity(input=x).numpy().tolist(), x.numpy().tolist())
        self.assertEqual(tf.ones_like(input=x).numpy().tolist(), [[1] * 3] * 2)
        self.assertEqual(tf.zeros_like(input=x).numpy().tolist(), [[0] * 3] * 2)
        self.assertEqual(int(tf.size(input=x)), 6)

    def test_an_element_that_is_not_as_declared(self):
        dataset = tf.data.Dataset.from_generator(lambda: iter([[1, 2, 3]]), output_signature=tf.TensorSpec(shape=(2,), dtype=tf.float32))
        with self.assertRaisesRegex(ValueError, r"shape \(3,\), declared is \(2,\)"):
            list(dataset)

    def test_options_about_speed_are_taken(self):
        options = tf.data.Options()
        options.deterministic, options.threading.private_threadpool_size = False, 2
        self.assertEqual([int(each) for each in tf.data.Dataset.range(3).with_options(options)], [0, 1, 2])


class Gradients(unittest.TestCase):
    def test_scalars_and_axes(self):
        """A scalar has no axis, and no axes are not all axes."""
        self.assertEqual((tf.Variable(1.5).shape, tf.Variable(1.5).numpy().shape), ((), ()))
        with tf.GradientTape() as tape:
            x = tf.Variable(3.0)
            y = x * x
        gradient = tape.gradient(y, x)
        self.assertEqual((float(gradient), tuple(gradient.shape)), (6.0, ()))
        x = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
        for function in (tf.reduce_sum, tf.reduce_mean, tf.reduce_max):
            np.testing.assert_array_equal(function(x, axis=[]).numpy(), x)
            for wrong in ("", {}, 1.5):
                with self.subTest(wrong), self.assertRaises((TypeError, ValueError)):
                    function(x, axis=wrong)
        with self.assertRaisesRegex(ValueError, "initial value"):
            tf.Variable()

    def test_kinds(self):
        ten = tf.data.Dataset.range(10)
        for call, word in ((lambda: ten.batch(1.5), "batch_size"), (lambda: ten.batch(3, drop_remainder="no"), "drop_remainder"), (lambda: ten.shuffle(2.5), "buffer_size"),
                           (lambda: ten.repeat(float("nan")), "count"), (lambda: ten.shard(2, None), "index"), (lambda: ten.shard(2, 2), "index"),
                           (lambda: ten.prefetch(""), "buffer_size"), (lambda: ten.concatenate(3), "concatenate"), (lambda: tf.data.Dataset.zip((ten, None)), "zip")):
            with self.subTest(word), self.assertRaisesRegex((TypeError, ValueError), word):
                call()
        self.assertEqual(len(list(ten.batch(np.int64(3)))), 4)

    def test_a_product_has_a_gradient(self):
        x = tf.Variable([1.0, 2.0, 4.0])
        with tf.GradientTape() as tape:
            y = keras.ops.prod(x)
        np.testing.assert_allclose(np.asarray(tape.gradient(y, x)), [8, 4, 2])

    def test_products_over_axes(self):
        x = tf.Variable(np.arange(1, 7, dtype="float32").reshape(2, 3))
        for axis, keepdims in ((0, False), (1, True), (None, True), ((0, 1), False)):
            with tf.GradientTape() as tape:
                y = keras.ops.prod(x, axis=axis, keepdims=keepdims)
                total = tf.reduce_sum(y)
            np.testing.assert_allclose(np.asarray(y), np.prod(np.asarray(x), axis=axis, keepdims=keepdims))
            whole = np.asarray(np.prod(np.asarray(x), axis=axis, keepdims=True))
            np.testing.assert_allclose(np.asarray(tape.gradient(total, x)), whole / np.asarray(x), rtol=1e-6)


if __name__ == "__main__":
    unittest.main()
