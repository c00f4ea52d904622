"""Keras 3's Model.fit, evaluate and predict under MultiWorkerMirroredStrategy, in workers of the tensorflow backend.

Two functions of Keras 3 fail there. _maybe_symbolic_build averages the first batch over the replicas, to learn its shapes, by a call that cannot take what
several workers have; the shapes of this worker's own replica say the same. reduce_per_replica averages a step's results over axis 0, which numbers
do not have. Both are put right for this strategy only, here in the worker, and a line says so; with any other strategy Keras's own run. The results
are those of tf_keras and of one process (tests/python/test_keras3.py).
"""

import sys

from unisono._imported import when_imported

TRAINER = "keras.src.backend.tensorflow.trainer"
_REMEDY = "import unisono.train.tensorflow before tensorflow, or set TF_USE_LEGACY_KERAS=1: tf_keras can"
_told: list[str] = []


def _refuse(model):
    """What Keras 3 fails at under this strategy, in words. Keras's own errors are about placeholders and merge_call."""
    optimizer = getattr(model, "optimizer", None)
    if model.steps_per_execution > 1:
        raise ValueError("steps_per_execution=%d: Keras 3 cannot run several steps at once under MultiWorkerMirroredStrategy. Leave it out, or %s"
                         % (model.steps_per_execution, _REMEDY))
    if getattr(optimizer, "use_ema", False) and optimizer.ema_overwrite_frequency:
        raise ValueError("ema_overwrite_frequency=%d: Keras 3 cannot do that under MultiWorkerMirroredStrategy. Leave it out, or %s"
                         % (optimizer.ema_overwrite_frequency, _REMEDY))
    if getattr(optimizer, "gradient_accumulation_steps", None):
        raise ValueError("gradient_accumulation_steps=%d: Keras 3 cannot do that under MultiWorkerMirroredStrategy. Take a larger batch, or %s"
                         % (optimizer.gradient_accumulation_steps, _REMEDY))


def _tell():
    if not _told:
        _told.append(True)
        print("unisono: Model.fit of Keras %s under MultiWorkerMirroredStrategy uses unisono's steps for shapes and averages: Keras's own fail "
              "(docs/tensorflow.md)" % sys.modules["keras"].__version__, flush=True)


def _builder(trainer, original):
    """_maybe_symbolic_build, with the shapes of this worker's own replica."""
    import tensorflow as tf

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        strategy = self.distribute_strategy
        if self._distribute_strategy is None or not trainer._collective_all_reduce_multi_worker(strategy):
            return original(self, iterator=iterator, data_batch=data_batch)
        _refuse(self)
        _tell()

        def own(value):
            return strategy.experimental_local_results(value)[0] if isinstance(value, tf.distribute.DistributedValues) else value

        for _, _, batches in iterator or ():
            data_batch = trainer.tree.map_structure(own, next(batches))
            break
        with strategy.scope():
            return self._symbolic_build(data_batch=data_batch)

    return _maybe_symbolic_build


def _reducer(trainer, original):
    """reduce_per_replica, whose mean and sum take numbers, too."""

    def reduce_per_replica(values, strategy, reduction):
        if reduction not in ("auto", "mean", "sum") or not trainer._collective_all_reduce_multi_worker(strategy):
            return original(values, strategy, reduction)
        how = "SUM" if reduction == "sum" else "MEAN"

        def reduce(value):
            one = strategy.experimental_local_results(value)[0]
            return strategy.reduce(how, value, axis=0 if one.shape.rank else None)

        return trainer.tree.map_structure(reduce, values)

    return reduce_per_replica


def _change(trainer):
    kind = getattr(trainer, "TensorFlowTrainer", None)
    parts = (kind, getattr(kind, "_maybe_symbolic_build", None), getattr(trainer, "reduce_per_replica", None), getattr(trainer, "tree", None),
             getattr(trainer, "_collective_all_reduce_multi_worker", None))
    if any(part is None for part in parts):  # another Keras: its own fit, and its own errors
        return
    kind._maybe_symbolic_build = _builder(trainer, kind._maybe_symbolic_build)
    trainer.reduce_per_replica = _reducer(trainer, trainer.reduce_per_replica)


def put_right() -> None:
    """Before the train function, once in a process."""
    when_imported(TRAINER, _change)
