"""Tensors, variables, the tape, and where an operation runs. What unisono.tf and unisono.keras.ops offer is made of this.

Every thread has a context with two tapes of the engine: one for the step that a GradientTape records, and one for single operations outside of it,
which begins anew with each of them. A tensor that outlives its step gets a copy of its numbers (engine_tape.c).
"""

from __future__ import annotations

import threading
from typing import Any, Callable

import numpy as np

from unisono import _engine
from unisono.extend import safe_text

__all__ = ["Tensor", "Variable", "convert_to_tensor", "set_random_seed"]

# ---- seeds ----

_seed = {"seed": None, "models": 0}


def set_random_seed(seed: int) -> None:
    """Seeds initial weights, shuffling and dropout of what is made from now on, and NumPy's and Python's random numbers."""
    import random

    _seed.update(seed=int(seed), models=0)
    random.seed(seed)
    np.random.seed(int(seed) % 2**32)


def next_seed() -> Any:
    """The seed of the next model: the given one for the first, the numbers after it for those that follow; None: drawn from the system."""
    if _seed["seed"] is None:
        return None
    _seed["models"] += 1
    return _seed["seed"] + _seed["models"] - 1


def data_seed() -> int:
    """The seed of a shuffle that was given none."""
    if _seed["seed"] is not None:
        return _seed["seed"]
    return int.from_bytes(__import__("os").urandom(7), "little")


# ---- contexts ----


class Context:
    """The tapes of a thread, or of a replica inside of strategy.run."""

    def __init__(self, threads: int = 0, replica: Any = None):
        self.threads, self.replica = threads, replica
        self.eager = self.tape = None  # _engine.Tape: of single operations, of a recorded step
        self.recording = None  # the GradientTape whose `with` this thread is in
        self.forced = None  # the engine's own tape, while it calls a function of the user
        self.building = None  # the layer of the user's own that is being built
        self.tracing = False  # call() of such a layer runs on zeros, to find its children and shapes
        self.steps = 0
        self.last_model = None

    def eager_tape(self, training: bool = False) -> Any:
        """The tape of single operations, begun anew."""
        if self.eager is None:
            self.eager = _engine.Tape(self.threads)
        self.eager.begin(training, False, None, _seed["seed"] or 0, self.steps)
        return self.eager


_local = threading.local()


def context() -> Context:
    """This thread's."""
    found = getattr(_local, "context", None)
    if found is None:
        found = _local.context = Context()
    return found


def set_context(value: Any) -> None:
    """For a replica's turn."""
    _local.context = value


def tape_for(model: Any = None, training: Any = None) -> Any:
    """The tape that the next operation runs on; model: it is a call of this one."""
    here = context()
    if here.forced is not None:
        return here.forced
    if here.recording is not None:
        return here.recording._begin(here, model, training)
    return here.eager_tape(bool(training))


def on_engine_tape(function: Callable[..., Any]) -> Any:
    """function(*tensors) as what the engine calls: with its tape first, raw tensors in and out."""
    def call(tape, *raw):
        here = context()
        before, here.forced = here.forced, tape
        try:
            return raw_of(function(*[Tensor(each) for each in raw]))
        finally:
            here.forced = before
    return call


# ---- arguments ----


def as_array(value: Any) -> Any:
    """Numbers as a C-contiguous NumPy array that the engine can read; text as Strings. Shares the memory where type and layout allow."""
    if isinstance(value, _engine.Strings):
        return value
    if isinstance(value, Tensor):
        return value._t.array()
    if isinstance(value, Variable):
        return value._p.array()
    if not isinstance(value, np.ndarray):
        if hasattr(value, "to_numpy"):  # pandas, pyarrow
            value = value.to_numpy()
        elif hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            value = np.from_dlpack(value)
        elif hasattr(value, "detach"):  # torch: also with a gradient
            value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.dtype.kind in "USO":
        return strings(array)
    if array.dtype.kind not in "fiub":
        raise TypeError("elements of type %s cannot be trained with; numbers and text can" % array.dtype)
    if array.dtype == np.longdouble:
        array = array.astype(np.float64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array) if array.ndim else array


def as_numbers(value: Any) -> Any:
    """What layers, losses and metrics compute with: numbers of any type, also in lists, as float32; text as it is."""
    if isinstance(value, Variable) or isinstance(value, Tensor) and value.dtype in ("float32", "string"):
        return value
    array = as_array(value)
    return array if isinstance(array, _engine.Strings) else Tensor.of(np.asarray(array).astype(np.float32, copy=False))


def as_one_sample(y_true: Any, y_pred: Any) -> tuple[Any, Any] | None:
    """Keras reduces the last axis, also when it is the only one: predictions of shape (n,) are one sample. None: they have more axes."""
    if isinstance(y_pred, _engine.Strings) or len(y_pred.shape) != 1 or len(y_true.shape) > 1:
        return None
    return reshaped(y_true, [1, *y_true.shape]), reshaped(y_pred, [1, *y_pred.shape])


def reshaped(value: Any, shape: list[int]) -> Tensor:
    """The same numbers in another shape."""
    raw = raw_of(value)
    return Tensor(tape_for().reshape(raw, shape))


def strings(array: Any) -> Any:
    """An array of str, bytes or objects that are text."""
    items = array.ravel().tolist()
    for index, item in enumerate(items):
        if not isinstance(item, (str, bytes)):
            if array.dtype.kind == "O" and isinstance(item, (int, float, np.number)):
                return as_array(array.astype(np.float32))
            raise TypeError("element %d of a column of text is %r, which is not text" % (index, item))
        break
    return _engine.Strings(items, array.shape)


def raw_of(value: Any) -> Any:
    """What the engine's operations take."""
    if isinstance(value, Tensor):
        return value._t
    if isinstance(value, Variable):
        return value._on_tape()
    if isinstance(value, (float, int)) and not isinstance(value, bool):
        return value
    return as_array(value)


# ---- whole numbers ----
# The engine computes in float32, which has no whole numbers above 2**24. Integers have no gradient, so NumPy computes with them and they stay what they are.

WHOLE = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "pow": np.power, "maximum": np.maximum, "minimum": np.minimum, "negate": np.negative,
         "abs": np.abs, "square": np.square, "sign": np.sign, "sum": np.sum, "max": np.max, "min": np.min,
         "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal}


def whole(*values: Any) -> Any:
    """The values for NumPy if they are integers throughout (a number of Python's beside them takes their type); else None."""
    if type(values[0]) is Tensor and values[0]._t.dtype == "float32":  # nearly always
        return None
    out, found = [], False
    for value in values:
        if isinstance(value, (Variable, float)):
            return None
        if isinstance(value, Tensor):
            if value.dtype[:3] not in ("int", "uin", "boo"):
                return None
            value = value.numpy()
        elif not isinstance(value, int):
            value = np.asarray(value)
            if value.dtype.kind not in "iub":
                return None
        found = found or (isinstance(value, np.ndarray) and value.dtype.kind in "iu")
        out.append(value)
    return out if found else None


# ---- tensors ----


def binary(kind: str, a: Any, b: Any) -> Tensor:
    """a kind b, element by element."""
    integers = whole(a, b)
    if integers is not None and kind in WHOLE:
        return Tensor.of(WHOLE[kind](*integers))
    a, b = raw_of(a), raw_of(b)
    return Tensor(tape_for().binary(kind, a, b))


def unary(kind: str, a: Any) -> Tensor:
    """kind of every element."""
    integers = whole(a)
    if integers is not None and kind in WHOLE:
        return Tensor.of(WHOLE[kind](*integers))
    a = raw_of(a)
    return Tensor(tape_for().unary(kind, a))


def compare(kind: str, a: Any, b: Any) -> Tensor:
    """Whether, element by element."""
    integers = whole(a, b)
    if integers is not None:
        return Tensor.of(WHOLE[kind](*integers))
    a, b = raw_of(a), raw_of(b)
    return Tensor(tape_for().compare(kind, a, b))


def floor_divide(x1: Any, x2: Any) -> Tensor:
    """The whole part of the quotient, rounded down."""
    integers = whole(x1, x2)
    return Tensor.of(np.floor_divide(*integers)) if integers is not None else unary("floor", binary("div", x1, x2))


def mod(x1: Any, x2: Any) -> Tensor:
    """What floor_divide leaves, with the sign of x2."""
    integers = whole(x1, x2)
    return Tensor.of(np.mod(*integers)) if integers is not None else binary("sub", x1, binary("mul", floor_divide(x1, x2), x2))


def _operator(function, swap=False):
    def operate(self, other):
        return function(other, self) if swap else function(self, other)
    return operate


def _binary(kind, swap=False):
    def operate(self, other):
        return binary(kind, other, self) if swap else binary(kind, self, other)
    return operate


def _compare(kind):
    def operate(self, other):
        if other is None:
            return NotImplemented
        return compare(kind, self, other)
    return operate


class _Operators:
    """Arithmetic, for tensors and variables alike."""

    __slots__ = ()
    __array_priority__ = 1000
    __array_ufunc__ = None  # numpy_array * tensor is the tensor's
    __hash__ = object.__hash__

    __add__, __radd__ = _binary("add"), _binary("add", True)
    __sub__, __rsub__ = _binary("sub"), _binary("sub", True)
    __mul__, __rmul__ = _binary("mul"), _binary("mul", True)
    __truediv__, __rtruediv__ = _binary("div"), _binary("div", True)
    __pow__, __rpow__ = _binary("pow"), _binary("pow", True)
    __floordiv__, __rfloordiv__ = _operator(floor_divide), _operator(floor_divide, True)
    __mod__, __rmod__ = _operator(mod), _operator(mod, True)
    __lt__, __le__ = _compare("less"), _compare("less_equal")
    __gt__, __ge__ = _compare("greater"), _compare("greater_equal")
    __eq__, __ne__ = _compare("equal"), _compare("not_equal")

    def __matmul__(self, other):
        other_raw = raw_of(other)
        return Tensor(tape_for().matmul(raw_of(self), other_raw, False, False))

    def __rmatmul__(self, other):
        other_raw = raw_of(other)
        return Tensor(tape_for().matmul(other_raw, raw_of(self), False, False))

    def __neg__(self):
        return unary("negate", self)

    def __abs__(self):
        return unary("abs", self)

    def __getitem__(self, key):
        return _index(self, key)

    def __len__(self):
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __float__(self):
        return float(self.numpy().reshape(-1)[0]) if self._one() else 0.0

    def __int__(self):
        return int(self.item())

    def __bool__(self):
        return bool(float(self))

    def __index__(self):
        return int(self)

    def __format__(self, spec):
        return format(float(self), spec) if spec and int(np.prod(self.shape)) == 1 else format(str(self), spec)

    def __array__(self, dtype=None, copy=None):
        array = np.asarray(self.numpy())
        return array if dtype is None or array.dtype == dtype else array.astype(dtype)

    def __dlpack__(self, **options):
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self):
        return (1, 0)

    def _one(self):
        if int(np.prod(self.shape)) != 1:
            raise TypeError("only tensors with one element are numbers; this one has the shape %s" % (self.shape,))
        return True

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def item(self):
        self._one()
        return self.numpy().reshape(-1)[0].item()


def _index(x, key):
    """Integers, slices with step 1, None and ... of the first axes, on the tape."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(not isinstance(each, (int, np.integer, slice, type(None), type(Ellipsis))) for each in keys):
        raise TypeError("a tensor is indexed with integers, slices, None and ...; use gather for arrays of indices")
    given = sum(each is not None and each is not Ellipsis for each in keys)
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        keys[at:at + 1] = [slice(None)] * (len(x.shape) - given)
    if x.dtype == "string" or whole(x) is not None:
        return Tensor.of(x.numpy()[key])
    shape, axis, out = [], 0, x
    for each in keys:
        if each is None:
            shape.append(1)
            continue
        if axis >= len(x.shape):
            raise IndexError("too many indices for a tensor of shape %s" % (x.shape,))
        size = x.shape[axis]
        if isinstance(each, slice):
            begin, end, step = each.indices(size)
            if step != 1:
                raise ValueError("slices of tensors have step 1")
            count = max(0, end - begin)
            shape.append(count)
        else:
            begin, count = int(each) + (size if each < 0 else 0), 1
            if not 0 <= begin < size:
                raise IndexError("index %d is outside of an axis of %d" % (each, size))
        if (begin, count) != (0, size):
            raw = raw_of(out)
            out = Tensor(tape_for().slice(raw, axis, begin, count))
        axis += 1
    shape += x.shape[axis:]
    if tuple(shape) == tuple(out.shape):
        return out
    raw = raw_of(out)
    return Tensor(tape_for().reshape(raw, shape))


class Tensor(_Operators):
    """Numbers (float32 as the result of operations) or text. `numpy()` gives them; operators and the functions of unisono.tf compute with them."""

    __slots__ = ("_t", "__weakref__")

    def __init__(self, raw: Any):
        self._t = raw

    @classmethod
    def of(cls, value: Any, dtype: Any = None) -> Any:
        """From anything that NumPy understands; shares the memory of arrays."""
        if isinstance(value, Tensor) and dtype in (None, value.dtype):
            return value
        if isinstance(value, Variable):
            value = value.numpy()
        if not isinstance(value, (Tensor, np.ndarray, _engine.Strings)) and not hasattr(value, "dtype"):
            value = np.asarray(value)
            if value.dtype == np.float64:
                value = value.astype(np.float32)
        array = as_array(value)
        if isinstance(array, _engine.Strings):
            return cls(_engine.Tensor(array))
        if dtype is not None:
            array = np.asarray(array).astype(dtype, copy=False)
        return cls(_engine.Tensor(shared(array)))

    @property
    def shape(self) -> tuple:
        """Its shape."""
        return self._t.shape

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        return self._t.dtype

    def numpy(self) -> np.ndarray:
        """Its numbers; an array that shares them (text: objects, bytes)."""
        array = self._t.array()
        if isinstance(array, _engine.Strings):
            out = np.empty(int(np.prod(array.shape)), object)
            out[:] = array.tolist()
            return out.reshape(array.shape)
        out = np.asarray(array)
        return out[()] if out.ndim == 0 else out

    def __repr__(self):
        return "<unisono.Tensor: shape=%s, dtype=%s, numpy=%s>" % (self.shape, self.dtype, np.array2string(np.asarray(self.numpy()), threshold=20))


def shared(array: Any) -> Any:
    """A NumPy array as the engine's Array over the same memory."""
    from unisono.extend import Array

    if isinstance(array, Array):
        return array
    array = np.asarray(array)
    return Array(array.dtype.name, array.shape, array if array.flags.c_contiguous else np.ascontiguousarray(array))


def convert_to_tensor(value: Any, dtype: Any = None) -> Tensor:
    """A Tensor of numbers or text."""
    return Tensor.of(value, dtype)


class Variable(_Operators):
    """A weight: of a model, or of one's own (Variable(initial_value)). `numpy()` is a copy, `view()` shares the engine's memory."""

    def __init__(self, initial_value: Any = None, trainable: bool = True, dtype: Any = "float32", name: str | None = None, *, parameter: Any = None):
        if parameter is None:
            if dtype not in (None, "float32", np.float32):
                raise TypeError("Variable(dtype=%r) is not supported: variables are float32; keep counts in Python's own numbers" % (dtype,))
            if callable(initial_value):
                initial_value = initial_value()
            if initial_value is None:
                raise ValueError("Variable needs an initial value")
            value = np.array(initial_value, np.float32, order="C")
            parameter = _engine.Parameter(name or "Variable", value.shape)
            np.asarray(parameter.array())[...] = value
        self._p, self._trainable = parameter, True if trainable is None else bool(trainable)

    @property
    def name(self) -> str:
        """Its short name."""
        return self._p.name.rpartition("/")[2]

    @property
    def path(self) -> str:
        """Its whole name."""
        return self._p.name

    @property
    def shape(self) -> tuple:
        """Its shape."""
        return self._p.shape

    dtype = "float32"

    @property
    def trainable(self) -> bool:
        """Whether training changes it."""
        return self._trainable and self._p.trainable

    def numpy(self) -> np.ndarray:
        """A copy of its numbers: later steps do not change it."""
        return self.view().copy()

    def view(self) -> np.ndarray:
        """Its numbers without a copy: writing to them changes the weight, and so does training."""
        numbers = np.asarray(self._p.array())
        return numbers.copy() if context().tracing else numbers  # call() on zeros changes no variable

    def value(self) -> Tensor:
        """A copy as a tensor."""
        return Tensor.of(self.numpy())

    read_value = value

    def assign(self, value: Any) -> Any:
        """Sets its numbers."""
        value = np.asarray(value)
        if value.shape != self.shape:
            raise ValueError("the shape %s cannot be assigned to %s of shape %s" % (value.shape, safe_text(self.name), self.shape))
        self._check_alone()
        self.view()[...] = value
        return self

    def assign_add(self, value: Any) -> Any:
        """Adds to its numbers."""
        self._check_alone()
        self.view()[...] += np.asarray(value)
        return self

    def assign_sub(self, value: Any) -> Any:
        """Subtracts from its numbers."""
        self._check_alone()
        self.view()[...] -= np.asarray(value)
        return self

    def _check_alone(self) -> None:
        """Replicas see parts of the batch, and each would change the one variable that they share: TensorFlow refuses it, too."""
        here = context()
        if here.forced is not None and not here.tracing and here.forced.shared:
            raise NotImplementedError("assign() to %s in call(): the replicas of a strategy would each change it with their part of the batch. Train without a strategy, or use "
                                      "BatchNormalization, whose averages are those of the whole batch" % safe_text(self.name))

    def _on_tape(self):
        """A variable that is not the recorded model's enters as a watched input, so that it has a gradient all the same."""
        recording = context().recording
        return self._p if recording is None else recording._variable(self)

    def __repr__(self):
        return "<unisono.Variable path=%s, shape=%s, dtype=float32>" % (safe_text(self.path), self.shape)
