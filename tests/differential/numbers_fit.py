"""fit, evaluate and predict of small models: optimizers, losses, metrics, callbacks, weights of samples and classes, accumulation, several outputs of data."""

import numpy as np

from numbers_layers import numbers, some
from numbers_objects import make_optimizer_config, optimizer_of

TASKS = {
    "regression": (["mse", "mae", "huber", "MeanSquaredError"], ["mae", "mse", "RootMeanSquaredError"]),
    "binary": (["binary_crossentropy", "BinaryCrossentropy", "mse", "hinge"], ["accuracy", "binary_accuracy", "AUC", "Precision", "Recall", "BinaryCrossentropy", "mse"]),
    "classes": (["categorical_crossentropy", "kl_divergence"], ["accuracy", "categorical_accuracy", "TopKCategoricalAccuracy", "CategoricalCrossentropy"]),
    "sparse": (["sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"], ["accuracy", "sparse_categorical_accuracy", "SparseTopKCategoricalAccuracy"]),
}
# The user's own, of the batch as a whole: a mean over it, a root of a mean, a mean for each output.
FUNCTIONS = {
    "own_mean": lambda ops: lambda true, pred: ops.mean(ops.square(true - pred)),
    "own_root": lambda ops: lambda true, pred: ops.sqrt(ops.mean(ops.square(true - pred)) + 0.01),
    "own_columns": lambda ops: lambda true, pred: ops.mean(ops.square(true - pred), axis=0),
    "own_samples": lambda ops: lambda true, pred: ops.mean(ops.abs(true - pred), axis=-1),
}
CALLBACKS = ["EarlyStopping", "ReduceLROnPlateau", "LearningRateScheduler", "TerminateOnNaN"]


def make_callback(r, validates):
    name = r.choice(CALLBACKS)
    config = dict(monitor=r.choice(["loss", "val_loss"] if validates else ["loss"]))
    if name == "EarlyStopping":
        config.update(some(r, patience=[0, 1, 2], min_delta=[0, 0.01, 10.0], restore_best_weights=[True, False], start_from_epoch=[0, 1], baseline=[None, 0, 0.3], mode=["auto", "min", "max"]))
    elif name == "ReduceLROnPlateau":
        config.update(some(r, patience=[0, 1, 2], factor=[0.0, 0.5], min_delta=[0, 0.0001, 10.0], cooldown=[0, 1], min_lr=[0, 0.005], mode=["auto", "min", "max"]))
    else:
        config = {}
    return dict(name=name, config=config)


def make_fit(r):
    task = r.choice(list(TASKS))
    losses, metrics = TASKS[task]
    data = some(r, sample_weight=[True], class_weight=[True], validation_split=[0.25], validation_data=[True], validation_freq=[1, 2], initial_epoch=[0, 1],
                steps_per_epoch=[None, 2], validation_batch_size=[3], validation_steps=[None, 1])
    if task != "sparse" and r.random() < 0.3:  # a weight for each sample does not fit a number for all of them
        losses, metrics = list(FUNCTIONS), metrics + list(FUNCTIONS)
        data = {key: value for key, value in data.items() if key not in ("sample_weight", "class_weight")}
    samples, batch_size = r.choice([(8, 4), (8, 5), (10, 8), (10, 4), (40, 16), (40, 32)])
    case = dict(task=task, loss=r.choice(losses), metrics=r.sample(metrics, r.randint(0, 2)), weighted=[] if "own_root" in metrics else r.sample(metrics, r.choice([0, 0, 1])),
                samples=samples, batch_size=batch_size, epochs=r.choice([0, 1, 2, 3, 3]), hidden=r.choice([0, 3]), extras=r.sample(
                    ["BatchNormalization", "LayerNormalization", "l2", "activity", "frozen", "softmax_layer", "centre"], r.choice([0, 0, 1, 2])), data=data,
                callbacks=[make_callback(r, (data.get("validation_split") or data.get("validation_data")) and data.get("validation_freq") != 2) for _ in range(r.choice([0, 0, 1, 2]))], input=r.choice(["float32", "float64", "list", "int32"]),
                functional=r.random() < 0.3, own=r.random() < 0.15, batches=r.choice(["fit", "fit", "fit", "train_on_batch"]), loss_weights=r.choice([None, None, [0.5], [0]]),
                needs=["task", "loss", "samples", "batch_size", "epochs", "optimizer", "schedule", "schedule_config", "input", "hidden", "batches"], **make_optimizer_config(r))
    if case["own"] and case["input"] == "int32" and not case["hidden"]:
        case["input"] = "float32"  # Keras's normalising layers cut their results to the whole numbers that they were given
    if "crossentropy" in case["loss"].lower():  # pixels that nobody scaled: outputs of exactly 0 and 1
        case["scale"] = r.choice([1, 1, 255])
        # with an activation before it, a mistake that Keras warns of; without one, as it should be
        case["from_logits"] = r.choice([None, None, "mistaken", "meant"])
    return case


def centre_of(keras):
    class Centre(keras.layers.Layer):
        """Looks at the whole batch."""

        def call(self, x):
            return x - keras.ops.mean(x, axis=0, keepdims=True)

        def compute_output_shape(self, shape):
            return shape

    return Centre()


def layers_of(keras, case):
    last, activation = {"regression": (1, None), "binary": (1, "sigmoid"), "classes": (3, "softmax"), "sparse": (3, "softmax")}[case["task"]]
    extras, layers = case.get("extras") or [], []
    if case["hidden"]:
        layers.append(keras.layers.Dense(case["hidden"], activation="tanh", kernel_regularizer="l2" if "l2" in extras else None,
                                         activity_regularizer="l2" if "activity" in extras else None))
        if "frozen" in extras:
            layers[-1].trainable = False
    if "BatchNormalization" in extras:
        layers.append(keras.layers.BatchNormalization(momentum=0.5))
        if "frozen" in extras:
            layers[-1].trainable = False
    if "LayerNormalization" in extras:
        layers.append(keras.layers.LayerNormalization())
    if "centre" in extras:
        layers.append(centre_of(keras))
    if case.get("from_logits") == "meant":
        activation = None
    if "softmax_layer" in extras and activation == "softmax":
        return layers + [keras.layers.Dense(last), keras.layers.Softmax()]
    return layers + [keras.layers.Dense(last, activation=activation)]


def model_of(keras, case):
    layers = layers_of(keras, case)
    if case.get("own"):
        class Own(keras.Model):
            def __init__(self):
                super().__init__()
                self.parts = layers

            def call(self, x, training=None):
                for layer in self.parts:
                    x = layer(x, training=training) if type(layer).__name__ == "BatchNormalization" else layer(x)
                return x

        model = Own()
        model(np.zeros((1, 4), "float32"))
    elif case.get("functional"):
        inputs = x = keras.Input((4,))
        for layer in layers:
            x = layer(x)
        model = keras.Model(inputs, x)
    else:
        model = keras.Sequential([keras.Input((4,))] + layers)
    model.set_weights([numbers(case["seed"] + 7 + index, each.shape, low=0.2 if "variance" in each.name else -0.8) for index, each in enumerate(model.weights)])
    return model


def data_of(case, seed, samples):
    random = np.random.RandomState(seed % 2**32)
    x = random.uniform(-1, 1, (samples, 4)) * case.get("scale", 1)
    if case["input"] == "int32":
        x = (x * 3).astype("int32")
    y = {"regression": lambda: x.sum(axis=1, keepdims=True) / 2, "binary": lambda: (x.sum(axis=1, keepdims=True) > 0).astype("float32"),
         "classes": lambda: np.eye(3)[random.randint(0, 3, samples)], "sparse": lambda: random.randint(0, 3, (samples, 1))}[case["task"]]()
    if case["input"] in ("float32", "float64"):
        x = x.astype(case["input"])
    weight = random.uniform(0, 2, samples).astype("float32")
    if case["input"] == "list":
        return x.astype("float32"), y.astype("float32"), weight
    return x, y.astype("float32") if case["task"] != "sparse" else y, weight


def named(keras, module, name, case):
    if name in FUNCTIONS:
        function = FUNCTIONS[name](keras.ops)
        function.__name__ = name
        return function
    if case.get("from_logits") and name.lower().endswith("crossentropy"):
        return getattr(module, name if name[0].isupper() else "".join(part.title() for part in name.split("_")))(from_logits=True)
    return getattr(module, name)() if name[0].isupper() else name


def callbacks_of(keras, case):
    out = []
    for each in case.get("callbacks") or []:
        config = dict(each.get("config") or {})
        if each["name"] == "LearningRateScheduler":
            out.append(keras.callbacks.LearningRateScheduler(lambda epoch, rate: float(rate) * 0.5))
        else:
            out.append(getattr(keras.callbacks, each["name"])(**config))
    return out


def run_fit(keras, case):
    model, data = model_of(keras, case), dict(case.get("data") or {})
    extra = dict(jit_compile=False, run_eagerly=True) if keras.__name__ == "keras" else {}
    if case.get("loss_weights"):
        extra["loss_weights"] = case["loss_weights"]
    model.compile(optimizer_of(keras, case), named(keras, keras.losses, case["loss"], case), metrics=[named(keras, keras.metrics, each, case) for each in case.get("metrics") or []],
                  weighted_metrics=[named(keras, keras.metrics, each, case) for each in case.get("weighted") or []] or None, **extra)
    x, y, weight = data_of(case, case["seed"], case["samples"])
    options = {key: value for key, value in data.items() if key in ("validation_split", "validation_freq", "initial_epoch", "steps_per_epoch", "validation_batch_size",
                                                                    "validation_steps") and value is not None}
    if data.get("sample_weight"):
        options["sample_weight"] = weight
    if data.get("class_weight") and case["task"] in ("binary", "sparse"):
        options["class_weight"] = {0: 0.5, 1: 2.0, 2: 1.0} if case["task"] == "sparse" else {0: 0.5, 1: 2.0}
    if data.get("validation_data"):
        options["validation_data"] = data_of(case, case["seed"] + 1, 6)[:3 if data.get("sample_weight") else 2]
        options.pop("validation_split", None)
    out = {}
    if case["batches"] == "train_on_batch":
        size = case["batch_size"]
        for begin in range(0, case["samples"], size):
            part = slice(begin, begin + size)
            more = dict(sample_weight=weight[part]) if data.get("sample_weight") else {}
            out["batch%d" % begin] = {key: float(value) for key, value in model.train_on_batch(x[part], y[part], return_dict=True, **more).items()}
    else:
        history = model.fit(x, y, batch_size=case["batch_size"], epochs=case["epochs"], shuffle=False, verbose=0, callbacks=callbacks_of(keras, case), **options)
        out["history"] = {key: [float(value) for value in values] for key, values in history.history.items() if key != "learning_rate"}
        out["epochs"] = list(history.epoch)
    out["weights"] = [np.asarray(each) for each in model.get_weights()]
    out["rate"] = float(model.optimizer.learning_rate)
    out["evaluate"] = {key: float(value) for key, value in model.evaluate(x, y, verbose=0, return_dict=True, **(
        dict(sample_weight=weight) if data.get("sample_weight") else {})).items()}
    out["predict"] = np.asarray(model.predict(x, verbose=0))
    return out


KINDS = {"fit": (2e-3, make_fit, run_fit, 4)}
