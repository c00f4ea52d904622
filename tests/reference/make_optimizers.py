"""Stores ten steps of each Keras optimizer on fixed gradients: optimizers/CASE.safetensors, and what the learning rate
schedules give: schedules/CASE.safetensors.

Optimizers: keys var.V (initial values of three variables), grad.STEP.V, after.STEP.V (STEP 0 to 9), slot.N (the
optimizer's own variables after the last step, in the order of optimizer.variables). Metadata: optimizer, config (the constructor's
arguments; a schedule is {"class": ..., "config": ...}), steps, slots (the names of slot.N), made_by. One gradient element is 0 in every step, and one step has large gradients, so that clipping and
epsilon matter.
Schedules: step (int64), value. Metadata: schedule, config.
"""

import numpy as np

from common import made_by, normal, rng, save

import keras
import tensorflow as tf

O = keras.optimizers
S = keras.optimizers.schedules
SHAPES = [(3, 4), (4,), (2, 2, 3)]
STEPS = 10


def gradients():
    random, steps = rng("gradients"), []
    for step in range(STEPS):
        step_gradients = [normal(random, *shape) * (30 if step == 4 else 1) for shape in SHAPES]
        step_gradients[0][0, 0] = 0
        step_gradients[1] *= 1e-4  # small beside epsilon
        steps.append(step_gradients)
    return steps


def optimizer_case(name, cls, schedule=None, **config):
    random = rng("variables")
    initial = [normal(random, *shape) for shape in SHAPES]
    variables = [keras.Variable(value, name=f"v{i}") for i, value in enumerate(initial)]
    optimizer = cls(learning_rate=schedule, **config) if schedule else cls(**config)
    arrays = {f"var.{i}": value for i, value in enumerate(initial)}
    for step, grads in enumerate(gradients()):
        optimizer.apply([tf.constant(g) for g in grads], variables)
        for i, (gradient, variable) in enumerate(zip(grads, variables)):
            arrays[f"grad.{step}.{i}"] = gradient
            arrays[f"after.{step}.{i}"] = variable.numpy()
    slots = []
    for slot in optimizer.variables:
        slots.append(slot.path.split("/", 1)[-1] if "/" in slot.path else slot.path)
        arrays["slot." + str(len(slots) - 1)] = slot.numpy().astype(np.int64 if "int" in slot.dtype else np.float32)
    if schedule:
        config = config | {"learning_rate": {"class": type(schedule).__name__, "config": schedule.get_config()}}
    save(f"optimizers/{name}.safetensors", arrays, optimizer=cls.__name__, config=config, steps=str(STEPS), slots=slots, made_by=made_by())


def schedule_case(name, schedule, last):
    steps = np.unique(np.concatenate([np.arange(0, min(last, 30)), np.linspace(0, last, 40).astype(int)])).astype(np.int64)
    values = np.array([float(schedule(int(step))) for step in steps], np.float32)
    save(f"schedules/{name}.safetensors", {"step": steps, "value": values}, schedule=type(schedule).__name__,
         config=schedule.get_config(), made_by=made_by())


def optimizers():
    case = optimizer_case
    case("sgd", O.SGD)
    case("sgd_momentum", O.SGD, learning_rate=0.05, momentum=0.9)
    case("sgd_nesterov", O.SGD, learning_rate=0.05, momentum=0.9, nesterov=True)
    case("sgd_weight_decay", O.SGD, learning_rate=0.05, weight_decay=0.01)
    case("sgd_clipnorm", O.SGD, learning_rate=0.1, clipnorm=1.0)
    case("sgd_clipvalue", O.SGD, learning_rate=0.1, clipvalue=0.5)
    case("sgd_global_clipnorm", O.SGD, learning_rate=0.1, global_clipnorm=2.0)
    case("sgd_exponential", O.SGD, S.ExponentialDecay(0.1, 4, 0.5, staircase=True))
    case("adam", O.Adam)
    case("adam_options", O.Adam, learning_rate=0.02, beta_1=0.8, beta_2=0.95, epsilon=1e-4)
    case("adam_clipnorm", O.Adam, learning_rate=0.01, clipnorm=1.0)
    case("adam_global_clipnorm", O.Adam, learning_rate=0.01, global_clipnorm=1.5)
    case("adam_cosine_warmup", O.Adam, S.CosineDecay(0.0, 5, alpha=0.1, warmup_target=0.01, warmup_steps=4))
    case("adam_accumulate_2", O.Adam, learning_rate=0.01, gradient_accumulation_steps=2)
    case("adamw", O.AdamW)
    case("adamw_decay", O.AdamW, learning_rate=0.01, weight_decay=0.1)
    case("rmsprop", O.RMSprop)
    case("rmsprop_momentum", O.RMSprop, learning_rate=0.01, momentum=0.9)
    case("rmsprop_centered", O.RMSprop, learning_rate=0.01, rho=0.8, centered=True)
    case("rmsprop_centered_momentum", O.RMSprop, learning_rate=0.01, momentum=0.5, centered=True)
    case("adagrad", O.Adagrad)
    case("adagrad_options", O.Adagrad, learning_rate=0.1, initial_accumulator_value=0.5, epsilon=1e-3)


def schedules():
    case = schedule_case
    case("exponential", S.ExponentialDecay(0.1, 10, 0.96), 100)
    case("exponential_staircase", S.ExponentialDecay(0.1, 10, 0.5, staircase=True), 100)
    case("cosine", S.CosineDecay(0.1, 50), 80)
    case("cosine_alpha", S.CosineDecay(0.1, 50, alpha=0.05), 80)
    case("cosine_warmup", S.CosineDecay(0.01, 50, alpha=0.1, warmup_target=0.2, warmup_steps=10), 100)
    case("piecewise", S.PiecewiseConstantDecay([10, 20, 40], [1.0, 0.5, 0.1, 0.05]), 60)


if __name__ == "__main__":
    optimizers()
    schedules()
