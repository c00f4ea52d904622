"""Which arguments the Numbers net passes: its cases are drawn, not run, and every value that differs from the default counts.

The Numbers net gives the same arguments to real Keras and compares the results, so what it passes is shown to have Keras's effect.
"""

from __future__ import annotations

import functools
from typing import Any, Iterator

COUNT = 2600  # as many as numbers_net.py runs
SEED = 1
# what the Numbers net calls a thing -> (our module, the function that runs the case)
PLACES = {
    "layer": ("unisono.keras.layers", "tests/differential/numbers_layers.py::run_layer"),
    "op": ("unisono.keras.ops", "tests/differential/numbers_arguments.py::run_op"),
    "activation": ("unisono.keras.activations", "tests/differential/numbers_arguments.py::run_activation"),
    "regularizer": ("unisono.keras.regularizers", "tests/differential/numbers_arguments.py::run_regularizer"),
    "loss": ("unisono.keras.losses", "tests/differential/numbers_objects.py::run_loss"),
    "metric": ("unisono.keras.metrics", "tests/differential/numbers_objects.py::run_metric"),
    "optimizer": ("unisono.keras.optimizers", "tests/differential/numbers_objects.py::run_optimizer"),
    "schedule": ("unisono.keras.optimizers.schedules", "tests/differential/numbers_objects.py::run_schedule"),
}


def passed(case: dict[str, Any]) -> Iterator[tuple[str, str, Any, str]]:
    """(function, argument, value, where it is run) of one case."""
    for key, (module, where) in PLACES.items():
        if isinstance(case.get(key), str):
            for name, value in (case.get("schedule_config" if key == "schedule" and "schedule_config" in case else "config") or {}).items():
                yield "%s.%s" % (module, case[key]), name, value, where
    if "function" in case:
        for name, value in case["config"].items():
            yield "unisono.tf.%s" % case["function"], name, value, "tests/differential/numbers_tf.py::run_function"
    if case["kind"] in ("tf tape", "tf shuffle"):
        function = "unisono.tf.GradientTape" if case["kind"] == "tf tape" else "unisono.tf.data.Dataset.shuffle"
        for name, value in case["config"].items():
            yield function, name, value, "tests/differential/numbers_tf.py::run_%s" % case["kind"].split()[1]
    for step, config in case.get("steps") or () if case["kind"] == "tf dataset" else ():
        for name, value in config.items():
            yield "unisono.tf.data.Dataset.%s" % step, name, value, "tests/differential/numbers_tf.py::run_dataset"
    if "object" in case:
        for name, value in case["config"].items():
            yield "unisono.keras.%(module)s.%(object)s" % case, name, value, "tests/differential/numbers_arguments.py::run_name"
    for callback in case.get("callbacks") or ():
        for name, value in callback["config"].items():
            yield "unisono.keras.callbacks.%s" % callback["name"], name, value, "tests/differential/numbers_fit.py::run_fit"


@functools.lru_cache(None)
def values() -> dict[tuple[str, str], tuple[list[Any], str]]:
    """(function, argument) -> (the values that are passed, where)."""
    import numbers_net

    found: dict[tuple[str, str], tuple[list[Any], str]] = {}
    for index in range(COUNT):
        for function, argument, value, where in passed(numbers_net.draw(SEED, index)):
            found.setdefault((function, argument), ([], where))[0].append(value)
    return found


def shows(function: str, argument: str, default: Any) -> str | None:
    """Where the Numbers net passes a value other than the default to this argument."""
    given, where = values().get((function, argument), ([], ""))
    return where if any(type(each) is not type(default) or each != default for each in given) else None
