"""What objects that are made from arguments share: losses, metrics, optimizers. And the arguments that the engine may ignore."""

from __future__ import annotations

from typing import Any

from unisono.extend import HARMLESS, Refused, as_kind, check

__all__ = ["Configured", "check_float32", "dtype_name", "named_arguments"]

HARMLESS.update({
    "unisono.tf.function": dict.fromkeys(
        ("autograph", "jit_compile", "reduce_retracing", "experimental_implements", "experimental_autograph_options", "experimental_attributes",
         "experimental_relax_shapes", "experimental_compile", "experimental_follow_type_hints"),
        "operations run at once: there is no graph that it could change"),
    **{"unisono.tf.data.Dataset." + name: {"num_parallel_calls": "only speed", "deterministic": "the order is always kept", "synchronous": "only speed",
                                          "name": "only a name"}
       for name in ("map", "batch", "shuffle", "filter", "prefetch", "repeat", "take", "skip", "from_generator", "from_tensor_slices", "from_tensors", "unbatch",
                    "padded_batch", "concatenate", "shard", "zip", "range", "cache", "enumerate", "with_options")},
    "unisono.tf.data.Dataset.prefetch": {"buffer_size": "only speed", "name": "only a name"},
    "unisono.keras.Model.compile": {
        "auto_scale_loss": "float32 needs no loss scaling", "run_eagerly": "operations run at once: there is no graph that it could change",
        "jit_compile": "only speed", "steps_per_execution": "only speed: callbacks are called after every batch",
    },
    "unisono.keras.Model.predict": {"verbose": "predict prints no progress bar"},
    "unisono.keras.utils.clear_session": {"free_memory": "memory is freed with the last reference to a model"},
    "unisono.keras.layers.TextVectorization.adapt": {"batch_size": "the texts are read at once"},
    "unisono.keras.Model.summary": {"line_length": "the table has a width of its own", "positions": "the table has a width of its own"},
    "unisono.keras.models.load_model": {"safe_mode": "no code of a file is ever run"},
    **{"unisono.keras.layers." + name: {
        "seed": "random numbers come from the model's seed (keras.utils.set_random_seed), as initial weights do",
        "flash_attention": "only speed", "use_cudnn": "only speed", "unroll": "only speed", "input_length": "Keras 3 ignores it, too",
        "synchronized": "replicas always share their batch statistics",
    } for name in ("Dropout", "MultiHeadAttention", "LSTM", "GRU", "BatchNormalization", "Embedding")},
})


def _rebuild(kind: type, config: dict[str, Any]) -> Any:
    return kind(**config)


class Configured:
    """get_config gives the arguments; from_config and pickle make the object of them again."""

    def get_config(self) -> dict[str, Any]:
        """Its arguments."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """An object of what get_config gave."""
        return cls(**config)

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), self.get_config()))


def _kind_of(default: Any) -> str:
    """Of an argument that only has a default."""
    return type(default).__name__ if type(default) in (bool, int, float, str) else ""


def dtype_name(dtype: Any) -> Any:
    """float32 of "float32", numpy.float32, a policy, and what a config has for one."""
    if isinstance(dtype, dict):  # a policy in a config
        dtype = (dtype.get("config") or {}).get("name", dtype)
    return getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype


def check_float32(what: str, dtype: Any) -> None:
    """A TypeError unless the type (or policy) is float32, which is what the engine computes in."""
    name = dtype_name(dtype)
    if name is not None and name != "float32":
        raise TypeError("%s(dtype=%r) is not supported: the engine computes in float32; leave dtype out, or convert the data" % (what, name))


def named_arguments(what: str, defaults: dict[str, Any], arguments: tuple, given: dict[str, Any], also: tuple = (),
                    refused: dict[str, Refused] | None = None) -> dict[str, Any]:
    """All arguments by their names, for a class of the engine's. `what` is the public name; unknown and refused ones are a TypeError."""
    names, short = list(defaults), what.rpartition(".")[2]
    if len(arguments) > len(names):
        raise TypeError("%s() takes at most %d arguments, got %d" % (short, len(names), len(arguments)))
    twice = set(given).intersection(names[:len(arguments)])
    if twice:
        raise TypeError("%s() got %s twice" % (short, ", ".join(sorted(twice))))
    check(what, given, [*names, *also, "name", "dtype"], refused)
    check_float32(short, given.get("dtype"))
    out = dict(defaults, **given, **dict(zip(names, arguments)))
    return {name: as_kind(short, name, value, _kind_of(defaults.get(name))) for name, value in out.items()}
