"""Python objects as plain data, for checkpoints and reports.

A checkpoint's dictionary is data: numbers, text, containers, and the arrays of NumPy, PyTorch and TensorFlow. What plain data cannot say is a
dictionary with the key "__unisono__" (its value names the kind). Everything else is pickled and carries a MAC by the user's own key: it is
unpickled only when that fits, or when the caller says allow_pickle=True.

No framework is imported here: what an object is, is looked up only among modules that are loaded already.
"""

from __future__ import annotations

import collections
import inspect
import sys
from typing import Any

from unisono import _key
from unisono._unisono import Array

TAG = "__unisono__"
_PLAIN = (type(None), bool, float, str, bytes)
_DTYPES = {"float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "float16", "bfloat16"}


class PickleRefused(ValueError):
    """A pickled part of a checkpoint was not written by this user."""


def _pickler():
    try:
        import cloudpickle
    except ImportError:
        raise ImportError("unisono sends functions to workers with cloudpickle: pip install cloudpickle (Debian: python3-cloudpickle)") from None
    return cloudpickle


def dumps(value: Any) -> bytes:
    """A pickle that has functions and classes of the user's own in it (cloudpickle)."""
    return _pickler().dumps(value)


def _remake(kind: type[BaseException], arguments: tuple, state: dict[str, Any]) -> BaseException:
    """An exception whose class cannot be made from its args again."""
    error: BaseException = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(state)
    return error


def dumps_exception(error: BaseException) -> bytes | None:
    """An exception with its own type, message and attributes; attributes that cannot be pickled are left out. None where even its class cannot be sent."""
    def attempts() -> Any:
        yield lambda: dumps(error)
        state = {key: value for key, value in vars(error).items() if _can_be_pickled(value)}
        arguments = tuple(each if _can_be_pickled(each) else repr(each) for each in error.args)
        yield lambda: dumps(_Remade(type(error), arguments, state))

    error = error.with_traceback(None)
    for attempt in attempts():
        try:
            data: bytes = attempt()
            if type(loads(data)) is type(error) and str(loads(data)) == str(error):
                return data
        except Exception:
            continue
    return None


class _Remade:
    """Pickles as the exception that _remake makes."""

    def __init__(self, kind: type, arguments: tuple, state: dict[str, Any]):
        self.parts = kind, arguments, state

    def __reduce__(self) -> Any:
        return _remake, self.parts


class Unsendable:
    """In the place of a value that cannot be pickled."""

    def __init__(self, why: str):
        self.why = why


def dumps_value(value: Any) -> bytes:
    """A train function's return value. One that cannot be pickled does not fail the run: it is an Unsendable that says why."""
    try:
        return dumps(unwrapped(value))
    except Exception as error:
        return dumps(Unsendable("a %s cannot be pickled (%s: %s)" % (type(value).__name__, type(error).__name__, error)))


def dumps_call(function: Any, config: Any, *more: Any) -> bytes:
    """A train function with its config, for the workers. The error names the variable that cannot be pickled."""
    try:
        return dumps((function, config, *more))
    except Exception as error:
        culprit = _culprit(function, config)
        if culprit is None:
            raise
        raise TypeError("the train function %s cannot be sent to the workers: %s cannot be pickled (%s); make it inside the function"
                        % (getattr(function, "__name__", function), culprit, error)) from error


def _can_be_pickled(value: Any) -> bool:
    try:
        dumps(value)
    except Exception:
        return False
    return True


def _culprit(function: Any, config: Any) -> str | None:
    """The variable that keeps a function, or the key that keeps its config, from being pickled."""
    for key, value in config.items() if isinstance(config, dict) else ():
        if not _can_be_pickled(value):
            return "config[%r], a %s," % (key, type(value).__name__)
    inner = getattr(function, "func", function)  # functools.partial
    inner = getattr(inner, "__func__", inner)
    code = getattr(inner, "__code__", None)
    if code is None:
        return None
    cells = {name: cell.cell_contents for name, cell in zip(code.co_freevars, inner.__closure__ or ()) if cell is not None}
    used = {name: inner.__globals__[name] for name in code.co_names if name in inner.__globals__}
    for kind, values in (("the variable", cells), ("the global variable", used)):
        for name, value in values.items():
            if not _can_be_pickled(value):
                deeper = _culprit(value, None) if callable(value) and value is not function else None
                return deeper or "%s %r, a %s," % (kind, name, type(value).__name__)
    return None


def unwrapped(value: Any) -> Any:
    """Models out of torch's DistributedDataParallel, which only a process of the group can unpickle; also inside a dictionary, a list or a tuple."""
    parallel = sys.modules.get("torch.nn.parallel")
    if parallel is None:
        return value
    if isinstance(value, parallel.DistributedDataParallel):
        return value.module
    if type(value) is dict:
        return {key: unwrapped(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(unwrapped(item) for item in value)
    return value


def loads(data: Any) -> Any:
    """What dumps wrote; only for bytes of this user's own processes."""
    import pickle

    return pickle.loads(data)


def loads_signed(path: str) -> Any:
    """The pickle in a file of _key.write_signed; PickleRefused when its MAC is not by the user's own key."""
    with open(path, "rb") as file:
        code, data = file.read(32), file.read()
    if not _key.fits(data, code):
        raise PickleRefused("%s was not written with your key (%s); reading it could run any code" % (path, _key._path()))
    return loads(data)


# ---- arrays ----


def _array_of_numpy(array):
    import numpy

    name = array.dtype.name
    if name not in _DTYPES or not array.dtype.isnative or array.ndim > 8:
        return None
    array = numpy.ascontiguousarray(array).reshape(array.shape)
    return Array(name, array.shape, memoryview(array.reshape(-1).view(numpy.uint8)) if array.size else b"")


def _array_of_torch(tensor):
    import torch

    name = str(tensor.dtype).rpartition(".")[2]
    if name not in _DTYPES or tensor.layout is not torch.strided or tensor.dim() > 8:
        return None
    tensor = tensor.detach().cpu().contiguous()
    if tensor.numel() == 0:
        return Array(name, tuple(tensor.shape), b"")
    return Array(name, tuple(tensor.shape), memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))


def _numpy_of_array(array):
    try:
        import numpy
    except ImportError:
        raise ImportError("this checkpoint holds arrays: pip install numpy (Debian: python3-numpy) to read them") from None
    out = numpy.frombuffer(array, dtype=numpy.uint8) if 0 not in array.shape else numpy.empty(0, numpy.uint8)
    name = array.dtype
    if name == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401  (registers the type)
        except ImportError:
            name = "uint16"
    return out.view(numpy.dtype(name)).reshape(array.shape)


def _torch_of_array(array):
    import torch

    dtype = getattr(torch, array.dtype)
    if 0 in array.shape:
        return torch.empty(array.shape, dtype=dtype)
    return torch.frombuffer(array, dtype=dtype).reshape(array.shape)


# ---- encoding ----


def _is(value, module, *names):
    loaded = sys.modules.get(module)
    return loaded is not None and any(isinstance(value, getattr(loaded, name, ())) for name in names)


def _encode_framework(value):
    if _is(value, "numpy", "ndarray") and type(value).__name__ == "ndarray":
        return _array_of_numpy(value)
    if _is(value, "numpy", "generic"):
        import numpy

        array = _array_of_numpy(numpy.asarray(value))
        return array and {TAG: "scalar", "data": array}
    if _is(value, "torch", "Tensor") and type(value).__name__ == "Tensor":
        array = _array_of_torch(value)
        return array and {TAG: "torch", "data": array, "grad": bool(value.requires_grad)}
    if _is(value, "tensorflow", "Tensor", "Variable") and hasattr(value, "numpy"):
        import numpy

        array = _array_of_numpy(numpy.asarray(value.numpy()))
        return array and {TAG: "tensorflow", "data": array}
    if _is(value, "unisono.data.preprocessors", "Preprocessor"):
        try:
            return {TAG: "preprocessor", "data": value.to_dict()}
        except (TypeError, RuntimeError):  # has a function in it, or no columns yet
            return None
    return None


def _pairs(value):
    return [[encode(key), encode(item)] for key, item in value.items()]


def _encode_pickle(value):
    data = dumps(value)
    return {TAG: "pickle", "data": data, "mac": _key.mac(data)}


def encode(value: Any) -> Any:
    """Plain data (see above) for any picklable value."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 63 else {TAG: "int", "text": str(value)}
    if kind is list:
        return [encode(item) for item in value]
    if kind is dict:
        if all(type(key) is str and "\0" not in key for key in value) and TAG not in value:
            return {key: encode(item) for key, item in value.items()}
        return {TAG: "dict", "items": _pairs(value)}
    if kind is tuple:
        return {TAG: "tuple", "items": [encode(item) for item in value]}
    if kind is collections.OrderedDict:
        return {TAG: "OrderedDict", "items": _pairs(value)}
    if kind in (set, frozenset):
        return {TAG: kind.__name__, "items": [encode(item) for item in value]}
    if kind is complex:
        return {TAG: "complex", "items": [value.real, value.imag]}
    plain = _encode_framework(value)
    return _encode_pickle(unwrapped(value)) if plain is None else plain


def encode_dict(value: Any) -> Any:
    """A checkpoint: a dictionary with text as keys at the top."""
    for key in value:
        if type(key) is not str:
            raise TypeError("the keys of a checkpoint must be text, not %r" % (key,))
    if TAG in value:
        raise ValueError("the key %r of a checkpoint is unisono's own" % TAG)
    return {key: encode(item) for key, item in value.items()}


# ---- decoding ----


def _decode_pickle(value, allow_pickle):
    if not allow_pickle and not _key.fits(value["data"], value.get("mac", b"")):
        raise PickleRefused("a part of this checkpoint is a pickle that was not written with your key (%s); reading it can run any code. If you "
                            "trust where it comes from, say allow_pickle=True" % _key._path())
    return loads(value["data"])


def _decode_tagged(value, allow_pickle):
    kind = value[TAG]
    if kind == "pickle":
        return _decode_pickle(value, allow_pickle)
    if kind == "int":
        return int(value["text"])
    if kind == "scalar":
        return _numpy_of_array(value["data"])[()]
    if kind == "torch":
        tensor = _torch_of_array(value["data"])
        return tensor.requires_grad_() if value.get("grad") else tensor
    if kind == "tensorflow":
        import tensorflow

        return tensorflow.constant(_numpy_of_array(value["data"]))
    if kind == "preprocessor":
        from unisono.data.preprocessors import Preprocessor

        return Preprocessor.from_dict(value["data"])
    items = [decode(item, allow_pickle) for item in value["items"]]
    if kind in ("dict", "OrderedDict"):
        return (dict if kind == "dict" else collections.OrderedDict)(items)
    if kind == "complex":
        return complex(*items)
    makers = {"tuple": tuple, "set": set, "frozenset": frozenset}
    if kind not in makers:
        raise ValueError("this checkpoint has a part of a kind that this version does not know: %r" % (kind,))
    return makers[kind](items)


def decode(value: Any, allow_pickle: bool = False) -> Any:
    """The value that encode made plain; pickled parts need the user's key or allow_pickle."""
    kind = type(value)
    if kind is dict:
        if TAG in value:
            return _decode_tagged(value, allow_pickle)
        return {key: decode(item, allow_pickle) for key, item in value.items()}
    if kind is list:
        return [decode(item, allow_pickle) for item in value]
    if kind is Array:
        return _numpy_of_array(value)
    return value


# ---- reports ----


def metric(value: Any) -> Any:
    """For what is not a plain value in a report: one element is a number, an array a list; anything else its text, as Ray's loggers do."""
    if isinstance(value, int):
        return float(value)  # does not fit 64 bits
    if hasattr(value, "numpy") and not hasattr(value, "item"):  # TensorFlow
        value = value.numpy()
    size = getattr(value, "size", None)
    if callable(size):  # PyTorch
        size = value.numel()
    if hasattr(value, "item") and size == 1:
        return value.item()
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    return str(value)


def describable(value: Any) -> Any:
    """A config as run.json and the loggers may show it."""
    if isinstance(value, dict):
        return {str(key).replace("\0", ""): describable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [describable(item) for item in value]
    if value is None or isinstance(value, (bool, float, str)):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else str(value)
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:
        return describable(value.item())
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "..."


def check_returned(value: Any) -> None:
    """Of a function with yield, and of an async one, nothing has run when they return."""
    if inspect.isgenerator(value) or inspect.iscoroutine(value) or inspect.isasyncgen(value):
        if not inspect.isasyncgen(value):
            value.close()
        raise TypeError("the train function has returned a %s, so nothing of it has run: do not use yield or async def, call train.report() for each "
                        "result" % type(value).__name__)
