"""unisono.tf beside TensorFlow: functions, gradients and datasets by keyword."""

import numpy as np

from numbers_layers import numbers


def module_of(keras):
    """TensorFlow for real Keras, unisono.tf for ours."""
    if keras.__name__ == "keras":
        import tensorflow as tf
    else:
        import unisono.tf as tf
    return tf


def plain(value):
    """Numbers of tensors in structures."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    return value if value is None else np.asarray(value.numpy() if hasattr(value, "numpy") else value)


# ---- functions: "any" stands for an array of the case's shape ----

FUNCTIONS = {
    "argmax": lambda r, n: dict(input="any", axis=r.choice([0, 1, -1])),
    "concat": lambda r, n: dict(values=["any", "any"], axis=r.choice([0, 1, -1])),
    "constant": lambda r, n: dict(value="any", dtype=r.choice(["float32", "int32", None]), shape=r.choice([None, [n * n]])),
    "convert_to_tensor": lambda r, n: dict(value="any", dtype=r.choice(["float32", "int64", None])),
    "expand_dims": lambda r, n: dict(input="any", axis=r.choice([0, 1, -1])),
    "matmul": lambda r, n: dict(a="any", b="any", transpose_a=r.random() < 0.5, transpose_b=r.random() < 0.5),
    "one_hot": lambda r, n: dict(indices=[0, n - 1, 1], depth=n),
    "reduce_mean": lambda r, n: dict(input_tensor="any", axis=r.choice([None, 0, -1]), keepdims=r.random() < 0.5),
    "shape": lambda r, n: dict(input="any"),
    "nn.compute_average_loss": lambda r, n: dict(per_example_loss="row", sample_weight=r.choice([None, "row"]), global_batch_size=r.choice([4, 8])),
    "nn.scale_regularization_loss": lambda r, n: dict(regularization_loss="row"),
}


def make_function(r):
    name, size = r.choice(list(FUNCTIONS)), r.randint(2, 4)
    return dict(function=name, size=size, config=FUNCTIONS[name](r, size), needs=["function", "size", "config"])


def run_function(keras, case):
    tf, seed, size = module_of(keras), case["seed"], case["size"]

    def value_of(word, index):
        if isinstance(word, list) and word and isinstance(word[0], str):
            return [value_of(each, index + place) for place, each in enumerate(word)]
        if word == "row":
            return tf.constant(numbers(seed + index, [size], low=0.1))
        array = numbers(seed + index, [size, size]) if word == "any" else word
        return tf.constant(array) if word == "any" and case["function"] not in ("constant", "convert_to_tensor") else array

    function = tf
    for part in case["function"].split("."):
        function = getattr(function, part)
    return plain(function(**{name: value_of(word, 10 * place) for place, (name, word) in enumerate(case["config"].items())}))


# ---- gradients ----


def make_tape(r):
    return dict(config=dict(watch_accessed_variables=r.random() < 0.5), watch=r.choice(["variable", "tensor", None]), power=r.choice([2.0, 3.0]), needs=["config", "power"])


def run_tape(keras, case):
    tf = module_of(keras)
    variable, tensor = tf.Variable(numbers(case["seed"], [3], low=0.1)), tf.constant(numbers(case["seed"] + 1, [3], low=0.1))
    with tf.GradientTape(**case["config"]) as tape:
        if case.get("watch"):
            tape.watch(tensor=variable if case["watch"] == "variable" else tensor)
        out = tf.reduce_sum(tf.pow(variable, case["power"]) * tensor)
    return plain(tape.gradient(out, [variable, tensor]))


# ---- datasets ----

STEPS = {
    "batch": lambda r: dict(batch_size=r.choice([1, 2, 3]), drop_remainder=r.random() < 0.5),
    "cache": lambda r: dict(filename=""),
    "repeat": lambda r: dict(count=r.choice([0, 1, 2])),
    "shard": lambda r: dict(num_shards=r.choice([2, 3]), index=r.choice([0, 1])),
    "skip": lambda r: dict(count=r.choice([0, 1, 3])),
    "take": lambda r: dict(count=r.choice([0, 2, 100])),
    "unbatch": lambda r: dict(),
    "enumerate": lambda r: dict(start=r.choice([0, 5])),
}
SOURCES = ["slices", "tensors", "generator", "typed generator", "range"]


def make_dataset(r):
    names = r.sample(list(STEPS), r.randint(0, 3))
    if "batch" not in names[:names.index("unbatch")] if "unbatch" in names else False:
        names.remove("unbatch")  # TensorFlow refuses single numbers when the pipeline is made, unisono when it is read
    return dict(source=r.choice(SOURCES), rows=r.randint(1, 7), steps=[(name, STEPS[name](r)) for name in names], needs=["source", "rows"])


def source_of(tf, case):
    x, rows = numbers(case["seed"], [case["rows"], 2]), case["rows"]
    if case["source"] == "slices":
        return tf.data.Dataset.from_tensor_slices((x, np.arange(rows)))
    if case["source"] == "tensors":
        return tf.data.Dataset.from_tensors(tensors=x)
    if case["source"] == "range":
        return tf.data.Dataset.range(rows)
    if case["source"] == "generator":
        return tf.data.Dataset.from_generator(lambda: (int(each) for each in range(rows)), output_signature=tf.TensorSpec(shape=(), dtype=tf.int64))
    return tf.data.Dataset.from_generator(lambda: ((each, [each]) for each in range(rows)), output_types=(tf.float32, tf.int32), output_shapes=((), (1,)))


def run_dataset(keras, case):
    tf = module_of(keras)
    dataset = source_of(tf, case)
    for name, config in case.get("steps") or ():
        dataset = getattr(dataset, name)(**config)
    return {"first": [plain(each) for each in dataset], "second": [plain(each) for each in dataset]}


def make_shuffle(r):
    return dict(config=dict(buffer_size=r.choice([10, 100]), seed=r.choice([0, 3]), reshuffle_each_iteration=r.random() < 0.5), cached=r.random() < 0.3, batch=r.choice([None, 4]),
                needs=["config"])


def run_shuffle(keras, case):
    """What holds for any generator of random numbers: all elements once, another order or the same one in the second epoch."""
    tf = module_of(keras)
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(40)).shuffle(**case["config"])
    dataset = dataset.cache() if case.get("cached") else dataset
    dataset = dataset.batch(case["batch"]) if case.get("batch") else dataset
    first, second = [np.concatenate([np.ravel(plain(each)) for each in dataset]) for _ in range(2)]
    return [sorted(first.tolist()), sorted(second.tolist()), first.tolist() == second.tolist(), first.tolist() == sorted(first.tolist())]


KINDS = {
    "tf function": (1e-5, make_function, run_function, 2),
    "tf tape": (1e-5, make_tape, run_tape, 1),
    "tf dataset": (1e-6, make_dataset, run_dataset, 2),
    "tf shuffle": (0.0, make_shuffle, run_shuffle, 1),
}
