"""TFTrainer, the workers' half: holds the model, and does what it is told."""

from __future__ import annotations

from typing import Any

from unisono import train


def validation_stats(model: Any, data: Any, options: Any) -> Any:
    """RaySGD's dictionary of what evaluate gives; None when it gives nothing."""
    values = model.evaluate(data, **options)
    if isinstance(values, (list, tuple)):
        return {"validation_" + name: value for name, value in zip(model.metrics_names, values)}
    return None if values is None else {"loss": values}


class Replica:
    """A model and its data in one worker."""

    def __init__(self, asked: Any):
        import tensorflow as tf

        self.asked, self.config = asked, asked["config"]
        self.size, self.epoch = train.world_size(), 0
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy() if self.size > 1 else None
        self.train_data, self.test_data = asked["data_creator"](self.config)
        self._build()

    def _build(self):
        if self.strategy is None:
            self.model = self.asked["model_creator"](self.config)
        else:
            with self.strategy.scope():
                self.model = self.asked["model_creator"](self.config)

    def _options(self, name):
        """fit_config or evaluate_config; only rank 0 talks when there are several."""
        options = dict(self.config.get(name) or {})
        options.setdefault("verbose", bool(self.asked["verbose"]) if self.size == 1 or train.world_rank() == 0 else 0)
        options["verbose"] = int(options["verbose"])
        return options

    def ready(self) -> None:
        """The model is built."""

    def train(self) -> Any:
        """One fit; the last value of each metric."""
        history = self.model.fit(self.train_data, **self._options("fit_config"))
        self.epoch += 1
        return {} if history is None else {"train_" + name: values[-1] for name, values in history.history.items()}

    def validate(self) -> Any:
        """One evaluate."""
        return validation_stats(self.model, self.test_data, self._options("evaluate_config"))

    def get_state(self) -> Any:
        """Epoch, weights and the optimizer's numbers."""
        return {"epoch": self.epoch, "weights": self.model.get_weights(), "optimizer_weights": self._optimizer_weights()}

    def _optimizer_variables(self):
        variables = getattr(self.model.optimizer, "variables", [])
        return list(variables() if callable(variables) else variables)

    def _optimizer_weights(self):
        return [variable.numpy() for variable in self._optimizer_variables()]

    def _build_optimizer(self):
        """The variables that an optimizer makes in its first step."""
        optimizer, trained = self.model.optimizer, self.model.trainable_variables
        make = optimizer.build if hasattr(optimizer, "build") else optimizer._create_all_weights  # legacy ones of Keras 2
        if self.strategy is None:
            make(trained)
        else:
            with self.strategy.scope():
                make(trained)

    def set_state(self, state: Any) -> None:
        """What get_state gave, into a new model: an optimizer that has not made a step has no moments."""
        self._build()
        self.epoch = state["epoch"]
        self.model.set_weights(state["weights"])
        saved = state["optimizer_weights"]
        if len(saved) > len(self._optimizer_variables()):
            self._build_optimizer()
        variables = self._optimizer_variables()
        if len(saved) > len(variables):
            raise ValueError("the state is of another optimizer: it has %d variables, and %s has %d"
                             % (len(saved), type(self.model.optimizer).__name__, len(variables)))
        for variable, value in zip(variables, saved):
            variable.assign(value)
