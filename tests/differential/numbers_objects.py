"""Losses, metrics, schedules and optimizers on their own."""

import numpy as np

from numbers_layers import some

# ---- losses ----

TYPES = ["float32", "float64", "list", "int"]
WEIGHTS = [None, "sample", "zeros", "list"]
REDUCTIONS = ["sum_over_batch_size", "sum", "none", None, "mean"]


def make_targets(r, task):
    """What a loss or a metric is given, as words and sizes."""
    classes = r.choice([2, 3, 5]) if task in ("classes", "sparse") else r.choice([1, 3])
    kinds = [each for each in TYPES if each != "list" or task != "sparse"]  # Keras compares how lists are nested, and refuses
    return dict(task=task, samples=r.randint(1, 6), classes=classes, type=r.choice(kinds), flat=r.random() < 0.3, weight=r.choice(WEIGHTS), edges=r.random() < 0.2)


def targets(case, seed):
    """(y_true, y_pred, sample_weight)."""
    random, n, classes, task = np.random.RandomState(seed % 2**32), case["samples"], case["classes"], case["task"]
    if task == "sparse":
        true = random.randint(0, classes, (n,) if case.get("flat") else (n, 1))
        pred = _rows(random, n, classes, case)
    elif task == "classes":
        true = np.eye(classes)[random.randint(0, classes, n)]
        pred = _rows(random, n, classes, case)
        if case.get("flat"):  # one sample
            true, pred = true[0], pred[0]
    elif task == "binary":
        shape = (n,) if case.get("flat") else (n, classes)
        true, pred = random.randint(0, 2, shape), random.uniform(0, 1, shape)
    elif task == "sign":
        shape = (n,) if case.get("flat") else (n, classes)
        true, pred = random.choice([-1, 1], shape), random.uniform(-2, 2, shape)
    elif task == "equal":
        shape = (n,) if case.get("flat") else (n, classes)
        true, pred = random.randint(0, 3, shape), random.randint(0, 3, shape)
    else:
        shape = (n,) if case.get("flat") else (n, classes)
        true, pred = random.uniform(-1, 1, shape), random.uniform(-1, 1, shape)
    if case.get("edges") and task in ("binary", "classes", "sparse"):
        pred = np.round(pred)
    weight = None
    if case.get("weight"):
        weight = np.zeros(n) if case["weight"] == "zeros" else random.uniform(0, 2, n)
        weight = weight.tolist() if case["weight"] == "list" else weight.astype("float32")
    kind = case.get("type") or "float32"
    if kind == "list":
        return true.tolist(), pred.astype("float32").tolist(), weight
    return true.astype("int64" if kind == "int" else kind), pred.astype("float32" if kind == "int" else kind), weight


def _rows(random, n, classes, case):
    values = random.uniform(0.01, 1, (n, classes))
    return values / values.sum(axis=1, keepdims=True)


LOSSES = {
    "MeanSquaredError": ("numbers", {}), "MeanAbsoluteError": ("numbers", {}), "Huber": ("numbers", dict(delta=[0.2, 1.0, 2.0])),
    "BinaryCrossentropy": ("binary", dict(from_logits=[True, False], label_smoothing=[0.0, 0.2])),
    "CategoricalCrossentropy": ("classes", dict(from_logits=[True, False], label_smoothing=[0.0, 0.2])),
    "SparseCategoricalCrossentropy": ("sparse", dict(from_logits=[True, False])),
    "Hinge": ("sign", {}), "SquaredHinge": ("sign", {}), "KLDivergence": ("classes", {}),
}


def make_loss(r):
    name = r.choice(list(LOSSES))
    task, options = LOSSES[name]
    round_trip = r.random() < 0.3 and name != "Huber"  # whose config has no delta in Keras
    return dict(loss=name, config=some(r, reduction=REDUCTIONS, **options), round_trip=round_trip, needs=["loss", "task", "samples", "classes", "type"], **make_targets(r, task))


def run_loss(keras, case):
    loss = getattr(keras.losses, case["loss"])(**(case.get("config") or {}))
    if case.get("round_trip"):
        loss = type(loss).from_config(loss.get_config())
    true, pred, weight = targets(case, case["seed"])
    return {"value": np.asarray(loss(true, pred, sample_weight=weight) if weight is not None else loss(true, pred)), "name": loss.name}


# ---- metrics ----

METRICS = {
    "Accuracy": ("equal", {}), "BinaryAccuracy": ("binary", dict(threshold=[0.0, 0.3, 0.5, 1.0])),
    "CategoricalAccuracy": ("classes", {}), "SparseCategoricalAccuracy": ("sparse", {}),
    "TopKCategoricalAccuracy": ("classes", dict(k=[1, 2, 5])), "SparseTopKCategoricalAccuracy": ("sparse", dict(k=[1, 2, 5])),
    "Precision": ("binary", dict(top_k=[1, 2, None], thresholds=[0.0, 0.3, [0.2, 0.5], [0.0, 1.0], None], class_id=[0, None])),
    "Recall": ("binary", dict(top_k=[1, 2, None], thresholds=[0.0, 0.3, [0.2, 0.5], [0.0, 1.0], None], class_id=[0, None])),
    "F1Score": ("classes", dict(average=[None, "micro", "macro", "weighted"], threshold=[0.3, 0.5, None])),
    "FBetaScore": ("classes", dict(average=[None, "micro", "macro", "weighted"], beta=[0.5, 2.0], threshold=[0.3, None])),
    "AUC": ("binary", dict(num_thresholds=[5, 50, 200], curve=["ROC", "PR"], from_logits=[True, False], summation_method=["interpolation", "minoring", "majoring"])),
    "MeanSquaredError": ("numbers", {}), "MeanAbsoluteError": ("numbers", {}), "RootMeanSquaredError": ("numbers", {}),
    "BinaryCrossentropy": ("binary", dict(from_logits=[True, False], label_smoothing=[0.0, 0.2])),
    "CategoricalCrossentropy": ("classes", dict(from_logits=[True, False], label_smoothing=[0.0, 0.2])),
    "SparseCategoricalCrossentropy": ("sparse", dict(from_logits=[True, False])),
    "KLDivergence": ("classes", {}), "Hinge": ("sign", {}),
}


def make_metric(r):
    name = r.choice(list(METRICS))
    task, options = METRICS[name]
    return dict(metric=name, config=some(r, **options), updates=r.randint(1, 3), reset=r.random() < 0.2, round_trip=r.random() < 0.3, call=r.random() < 0.3,
                needs=["metric", "task", "samples", "classes", "type", "updates"], **make_targets(r, task))


def run_metric(keras, case):
    metric = getattr(keras.metrics, case["metric"])(**(case.get("config") or {}))
    if case.get("round_trip"):
        metric = type(metric).from_config(metric.get_config())
    out = {"name": metric.name}
    if case["metric"] not in ("F1Score", "FBetaScore"):  # Keras does not know their size before the first update
        out["fresh"] = np.asarray(metric.result())
    for update in range(case["updates"]):
        true, pred, weight = targets(case, case["seed"] + update)
        options = {} if weight is None else dict(sample_weight=weight)
        if case.get("call"):
            out["call%d" % update] = np.asarray(metric(true, pred, **options))
        else:
            metric.update_state(true, pred, **options)
        if case.get("reset") and update == 0:
            metric.reset_state()
    out["result"] = np.asarray(metric.result())
    return out


def make_mean(r):
    return dict(metric=r.choice(["Mean", "Sum"]), values=[[r.choice([0, 1, 2.5, -1]) for _ in range(r.randint(1, 4))] for _ in range(r.randint(1, 3))],
                weight=r.choice([None, 0, 2.0, "each"]), type=r.choice(["list", "float32", "scalar"]), needs=["metric", "type", "values"])


def run_mean(keras, case):
    metric = getattr(keras.metrics, case["metric"])()
    for values in case["values"]:
        given = values if case["type"] == "list" else values[0] if case["type"] == "scalar" else np.asarray(values, "float32")
        weight = case.get("weight")
        if weight == "each":
            weight = [0.5 * index for index in range(len(values))] if case["type"] != "scalar" else 0.5
        metric.update_state(given, **({} if weight is None else dict(sample_weight=weight)))
    return np.asarray(metric.result())


# ---- schedules ----

SCHEDULES = {
    "ExponentialDecay": lambda r: dict(initial_learning_rate=r.choice([0.0, 0.1, 1.0]), decay_steps=r.choice([1, 3, 10]), decay_rate=r.choice([0.0, 0.5, 0.96]),
                                       **some(r, staircase=[True, False])),
    "CosineDecay": lambda r: dict(initial_learning_rate=r.choice([0.0, 0.1]), decay_steps=r.choice([1, 4, 10]),
                                  **some(r, alpha=[0.0, 0.1, 1.0], warmup_target=[None, 0.0, 0.3], warmup_steps=[0, 3])),
    "PiecewiseConstantDecay": lambda r: r.choice([dict(boundaries=[2, 5], values=[0.5, 0.0, 0.1]), dict(boundaries=[0], values=[1.0, 0.5]), dict(boundaries=[3], values=[0.0, 1.0])]),
}


def make_schedule(r):
    name = r.choice(list(SCHEDULES))
    return dict(schedule=name, config=SCHEDULES[name](r), steps=[r.randint(0, 15) for _ in range(4)], round_trip=r.random() < 0.3, needs=["schedule", "steps", "config"])


def schedule_of(keras, name, config):
    return getattr(keras.optimizers.schedules, name)(**config)


def run_schedule(keras, case):
    schedule = schedule_of(keras, case["schedule"], case["config"])
    if case.get("round_trip"):
        schedule = type(schedule).from_config(schedule.get_config())
    return [float(schedule(step)) for step in case["steps"]]


# ---- optimizers ----

COMMON = dict(weight_decay=[None, 0.0, 0.01], clipnorm=[None, 0.5], clipvalue=[None, 0.2], global_clipnorm=[None, 0.7], gradient_accumulation_steps=[None, 2, 3])
OPTIMIZERS = {
    "SGD": dict(momentum=[0.0, 0.9], nesterov=[True, False]),
    "Adam": dict(beta_1=[0.0, 0.5, 0.9], beta_2=[0.0, 0.5, 0.999], epsilon=[0.0, 1e-7, 1e-3], amsgrad=[True, False]),
    "AdamW": dict(beta_1=[0.0, 0.9], beta_2=[0.5, 0.999], epsilon=[1e-7], amsgrad=[True, False]),
    "RMSprop": dict(rho=[0.0, 0.9], momentum=[0.0, 0.5], epsilon=[1e-7, 1e-3]),
    "Adagrad": dict(initial_accumulator_value=[0.0, 0.1, 1.0], epsilon=[1e-7, 1e-3]),
}


def make_optimizer_config(r):
    """(class, config with a rate that is a number or a schedule's config)."""
    name = r.choice(list(OPTIMIZERS))
    config = some(r, **OPTIMIZERS[name])
    if name == "RMSprop" and config.get("rho"):  # without a memory the centred variance is rounding alone
        config.update(some(r, centered=[True, False]))
    clips = [key for key in ("clipnorm", "clipvalue", "global_clipnorm") if r.random() < 0.15]
    for key in clips[:1] + r.sample(["gradient_accumulation_steps", "weight_decay"], r.choice([0, 0, 1, 2])):
        config[key] = r.choice(COMMON[key])
    if r.random() < 0.8:
        config["learning_rate"] = r.choice([0.0, 0.01, 0.1, "schedule", "function"])
    schedule = r.choice(list(SCHEDULES))
    return dict(optimizer=name, config=config, schedule=schedule, schedule_config=SCHEDULES[schedule](r))


def optimizer_of(keras, case):
    config = dict(case.get("config") or {})
    rate = config.get("learning_rate")
    if rate == "schedule":
        config["learning_rate"] = schedule_of(keras, case["schedule"], case["schedule_config"])
    elif rate == "function":
        config["learning_rate"] = lambda: 0.05
    return getattr(keras.optimizers, case["optimizer"])(**config)


def make_optimizer(r):
    return dict(steps=r.randint(1, 6), zeros=r.random() < 0.2, needs=["optimizer", "schedule", "schedule_config", "steps"], round_trip=r.random() < 0.2, **make_optimizer_config(r))


def run_optimizer(keras, case):
    optimizer = optimizer_of(keras, case)
    if case.get("round_trip") and (case.get("config") or {}).get("learning_rate") not in ("schedule", "function"):
        optimizer = type(optimizer).from_config(optimizer.get_config())
    variables = [keras.Variable(np.random.RandomState(case["seed"] + index).uniform(-1, 1, shape).astype("float32"))
                 for index, shape in enumerate([(3, 2), (2,)])]
    for step in range(case["steps"]):
        random = np.random.RandomState(case["seed"] + 10 + step)
        gradients = [random.uniform(-1, 1, tuple(each.shape)).astype("float32") * (0 if case.get("zeros") and step == 0 else 1) for each in variables]
        if keras.__name__ == "keras":
            gradients = [keras.ops.convert_to_tensor(each) for each in gradients]
        optimizer.apply_gradients(list(zip(gradients, variables)))
    return {"variables": [np.asarray(each) for each in variables], "rate": float(optimizer.learning_rate), "iterations": int(optimizer.iterations)}


KINDS = {
    "loss": (2e-4, make_loss, run_loss, 4),
    "metric": (2e-4, make_metric, run_metric, 5),
    "mean": (1e-5, make_mean, run_mean, 1),
    "schedule": (1e-5, make_schedule, run_schedule, 1),
    "optimizer": (2e-4, make_optimizer, run_optimizer, 3),
}
