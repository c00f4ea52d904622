"""Arguments: none is swallowed.

Every public function takes an argument and acts on it, or refuses it with a TypeError that names it. There are three kinds of names that a
function does not act on:

  unknown    a misspelling: the error names the nearest argument
  refused    an argument of the peer's (Ray, Keras, TensorFlow, Horovod) without an effect here. The error says why, and what to use
             instead. The peer's default value asks for nothing and is accepted.
  harmless   an argument of the peer's that cannot change a result: HARMLESS below is the only list of them

A function that takes only what it declares is decorated with @strict(...), or its module ends with strict_module(globals()). A function that takes keywords of its
own (**metrics) calls check().
docs/signatures.md lists all of them; tests/differential/signatures.py compares that list with the peers' own signatures.
"""

from __future__ import annotations

import functools
import numbers
from typing import Any, Callable, Iterable, Mapping, NamedTuple, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Refused(NamedTuple):
    """An argument of the peer's that has no effect here."""

    default: Any  # the peer's: asks for nothing
    why: str  # "… is not supported: <why>", with what to use instead
    also: tuple = ()  # other values that ask for nothing, such as False where the default is None


# function -> {argument: why ignoring it cannot change what the user gets}. Keep it short: speed, memory and looks are harmless, results are not. The look-alikes add theirs.
# "unisono.data.*" holds for all functions and methods of a module.
_BLOCKS = "how many blocks a dataset has: the rows and their order are the same"
_SCHEDULING = "where and how many at once Ray runs the work: the rows are the same"
HARMLESS: dict[str, dict[str, str]] = {
    # Where a function acts on one of them (concurrency of map_batches), it declares it.
    "unisono.data.*": {
        "parallelism": _BLOCKS, "override_num_blocks": _BLOCKS, "target_num_rows_per_block": _BLOCKS, "meta_provider": _BLOCKS,
        "ray_remote_args": _SCHEDULING, "ray_remote_args_fn": _SCHEDULING, "concurrency": _SCHEDULING, "num_cpus": _SCHEDULING, "num_gpus": _SCHEDULING,
        "memory": _SCHEDULING, "max_concurrency": _SCHEDULING, "compute": _SCHEDULING, "accelerator_type": _SCHEDULING,
        "scheduling_strategy": _SCHEDULING, "max_retries": _SCHEDULING, "resources": _SCHEDULING,
        "zero_copy_batch": "whether a batch may be a view of memory: the values are the same",
    },
    "unisono.data.ActorPoolStrategy": dict.fromkeys(("initial_size", "max_tasks_in_flight_per_actor", "max_concurrent_calls_per_actor", "enable_true_multi_threading"), _SCHEDULING),
    **{"unisono.data.%s.%s" % (kind, name): {"fetch_if_missing": "the columns are always known: there is no answer without them"}
       for kind in ("Dataset", "DataIterator", "DatasetPipeline") for name in ("schema", "columns")},
    "unisono.data.ReadTask": {"metadata": "what is known of a block before it is read: the rows are those of the block",
                              "schema": "what is known of a block before it is read: the columns are those of the block"},
    "unisono.data.read_json": {"lines": "whether a file is one list or has an object a line is read from the file"},
    "unisono.data.preprocessors.Concatenator": {"raise_if_missing": "a column that is missing is an error either way, as in Ray"},
    **{"unisono.tune." + name: {"base": "the base of a logarithm does not change the distribution"}
       for name in ("loguniform", "qloguniform", "lograndint", "qlograndint")},
    "unisono.tune.search.BasicVariantGenerator.set_search_properties": {"config": "the library has the space from the experiment itself"},
    "unisono.tune.schedulers.PopulationBasedTraining": {"log_config": "the experiment's journal has every config that a trial ran with"},
    "unisono.init": {
        "ignore_reinit_error": "init may be called again at any time",
        "dashboard_host": "there is no dashboard; include_dashboard=True is refused",
        "dashboard_port": "there is no dashboard; include_dashboard=True is refused",
        "object_store_memory": "there is no object store; data is streamed from files",
        "configure_logging": "unisono leaves the logging module's configuration alone",
        "logging_level": "the level of Ray's own messages, not of the program's",
        "logging_format": "the form of Ray's own messages, not of the program's",
        "logging_config": "the form of Ray's own messages, not of the program's",
        "namespace": "there are no named actors that a namespace could hold apart",
    },
    "unisono.shutdown": {
        "wait_for_processes": "no process of a run outlives it, so there is none to wait for",
        "_exiting_interpreter": "Ray's own atexit handler passes it; the order of shutdown is the same here",
    },
    "unisono.train.SyncConfig": {
        "sync_period": "files are written to storage_path directly: there is no copy that could be late",
        "sync_timeout": "files are written to storage_path directly: there is no copy that could be late",
        "sync_artifacts_on_checkpoint": "only says when artifacts are copied, and sync_artifacts=True is refused",
    },
    "unisono.train.DataConfig": {
        "enable_shard_locality": "every worker reads its shard from the files itself: locality is only speed",
    },
    "unisono.train.torch.prepare_data_loader": {
        "auto_transfer": "overlaps the copies of batches to a GPU with compute: only speed",
    },
}


def near(name: str, known: Iterable[str], others: Iterable[str] = ()) -> str:
    """The end of an error about an unknown argument: the nearest one, or all that there are. others: names that are not offered but may be meant."""
    import difflib

    known = list(known)
    found = difflib.get_close_matches(name, known, 1, 0.6)
    closer = difflib.get_close_matches(name, [*found, *others], 1, 0.8)
    found = closer or found
    if found:
        return "; did you mean %r?" % found[0]
    return "; its arguments are: %s" % ", ".join(known) if known else "; it takes no keyword arguments"


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and isinstance(value, (bool, int, float, str, tuple, list, dict, type(None))) and value == default)


def harmless(what: str) -> dict[str, str]:
    """The harmless arguments of a function."""
    out = dict(HARMLESS.get(what, {}))
    while "." in what:
        what = what.rpartition(".")[0]
        out = {**HARMLESS.get(what + ".*", {}), **out}
    return out


def _short(what: str) -> str:
    """unisono.train.Checkpoint.to_directory -> Checkpoint.to_directory"""
    parts = what.split(".")
    return ".".join(parts[-2:] if len(parts) > 2 and parts[-2][:1].isupper() else parts[-1:])


def check(what: str, given: Mapping[str, Any], known: Iterable[str] = (), refused: Mapping[str, Refused] | None = None) -> None:
    """A TypeError for every name in `given` that is neither known nor harmless. `what` is the public name, "unisono.init"."""
    known, refused = list(known), refused or {}
    short = _short(what)
    for name, value in given.items():
        if name in refused:
            if not any(_is_default(value, each) for each in (refused[name].default, *refused[name].also)):
                raise TypeError("%s(%s=%.40r) is not supported: %s" % (short, name, value, refused[name].why))
        elif name not in known and name not in harmless(what):
            raise TypeError("%s() got an unexpected keyword argument %r%s" % (short, name, near(name, known, [*refused, *HARMLESS.get(what, ())])))


def public_name(function: Any) -> str:
    """unisono.train._config.ScalingConfig.__init__ -> unisono.train.ScalingConfig"""
    parts = (function.__module__ + "." + function.__qualname__.removesuffix(".__init__")).split(".")
    return ".".join(part for part in parts if not part.startswith("_") or part.startswith("__"))


def _declared(function: Any) -> tuple[list[str], bool]:
    """(names of the arguments, whether it takes **keywords). Without the module inspect, whose import costs a worker 10 ms."""
    code = function.__code__
    return list(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]), bool(code.co_flags & 8)


def strict(refused: Mapping[str, Refused] | None = None, *, name: str | None = None, also: Iterable[str] = ()) -> Callable[[_Function], _Function]:
    """Decorates a function (or an __init__) that takes only the arguments it declares: any other one is a TypeError that helps, and those in
    `refused` are refused by name. A refused argument may also be declared, where the peer's scripts pass it by position. also: names that the
    function passes on through its **keywords."""
    refused, also = dict(refused or {}), list(also)

    def wrap(function: _Function) -> _Function:
        what, (positional, passes_on) = name or public_name(function), _declared(function)
        assert passes_on == bool(also), "%s takes any keyword: name them with also=, or call check() in it" % what
        declared = {*positional, *also}
        offered = [each for each in positional + also if each not in refused and each not in ("self", "cls") and not each.startswith("_")]
        places = [(index, each) for index, each in enumerate(positional) if each in refused]

        @functools.wraps(function)
        def call(*arguments: Any, **given: Any) -> Any:
            if given and not declared.issuperset(given):
                check(what, given, offered, refused)
                given = {key: value for key, value in given.items() if key in declared}
            if places:
                asked = {each: arguments[index] for index, each in places if index < len(arguments)}
                check(what, dict(asked, **{key: value for key, value in given.items() if key in refused}), offered, refused)
            return function(*arguments, **given)

        call.__refused__, call.__public__, call.__also__ = refused, what, also  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return wrap


_Class = TypeVar("_Class", bound=type)


def strict_class(refused: Mapping[str, Refused] | None = None, *, also: Iterable[str] = (),
                 methods: Mapping[str, Mapping[str, Refused]] | None = None) -> Callable[[_Class], _Class]:
    """Decorates a class: its __init__ (with `refused` and `also`) and its public methods (with `methods`) are strict. Methods that take keywords of
    their own stay as they are. Stands above @dataclass."""

    def wrap(cls: _Class) -> _Class:
        prefix = public_name(cls)
        aliases: dict[Any, Any] = {}  # two names of one function stay one
        for key, value in list(vars(cls).items()):
            function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if not hasattr(function, "__code__") or (key.startswith("_") and key != "__init__") or hasattr(function, "__refused__"):
                continue
            if function in aliases:
                made = aliases[function]
            elif key == "__init__":
                made = strict(refused, name=prefix, also=also)(function)
            elif _declared(function)[1]:
                continue
            else:
                made = strict((methods or {}).get(key), name="%s.%s" % (prefix, key))(function)
            aliases[function] = made
            setattr(cls, key, type(value)(made) if isinstance(value, (classmethod, staticmethod)) else made)
        return cls

    return wrap


def strict_module(namespace: dict[str, Any]) -> None:
    """The last line of a public module: what its __all__ names and is not strict yet names the nearest argument for one that it does not have, too.
    Functions, and the __init__ and methods of classes; those that take any keyword look themselves."""
    module = ".".join(part for part in namespace["__name__"].split(".") if not part.startswith("_"))
    for name in namespace["__all__"]:
        value: Any = namespace.get(name)
        if isinstance(value, type):
            if not issubclass(value, BaseException):
                _make_strict(value, "%s.%s" % (module, name))
        elif _takes_only_its_own(value):
            namespace[name] = strict(name="%s.%s" % (module, name))(value)


def _make_strict(cls: type, what: str) -> None:
    """Its __init__ and its public methods; two names of one function stay one."""
    made: dict[Any, Any] = {}
    for key, function in list(vars(cls).items()):
        if (key == "__init__" or not key.startswith("_")) and _takes_only_its_own(function):
            if function not in made:
                made[function] = strict(name=what if key == "__init__" else "%s.%s" % (what, key))(function)
            setattr(cls, key, made[function])


def _takes_only_its_own(function: Any) -> bool:
    return hasattr(function, "__code__") and not hasattr(function, "__refused__") and not _declared(function)[1]


# ---- kinds of values ----

# What an annotation asks for: how an error calls it, and whether a value is one.
_KINDS = {
    "float": ("a number", lambda value: isinstance(value, numbers.Real) and not isinstance(value, bool)),
    "int": ("a whole number", lambda value: isinstance(value, numbers.Integral)),
    "bool": ("True or False", lambda value: isinstance(value, numbers.Integral) and value in (0, 1) or type(value).__name__ in ("bool_", "bool")),
    "str": ("a text", lambda value: isinstance(value, str)),
    "None": ("None", lambda value: value is None),
}


def as_kind(what: str, name: str, value: Any, kind: str) -> Any:
    """The value, if it is of the kind ("float", "int | None"), else a TypeError: the library's readers would take their default in its place.
    Other annotations say nothing: there the class looks itself."""
    kinds = kind.split(" | ")
    if not all(each in _KINDS for each in kinds):
        return value
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of NumPy's
        value = value.item()
    if not any(_KINDS[each][1](value) for each in kinds):
        raise TypeError("%s(%s=%.40r): %s must be %s" % (what, name, value, name, " or ".join(_KINDS[each][0] for each in kinds)))
    return bool(value) if kind == "bool" else value


def checks_kinds(*classes: type, methods: Iterable[str] = ("__init__",)) -> None:
    """Arguments of these classes must be of the kinds that their __init__ (or these methods) declares."""
    for cls in classes:
        for name in methods:
            what = cls.__name__ if name == "__init__" else "%s.%s" % (cls.__name__, name)
            setattr(cls, name, _checked(what, vars(cls)[name]))


def _checked(what: str, function: Any) -> Any:
    inner = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    names = inner.__code__.co_varnames[1:inner.__code__.co_argcount]
    passes_on = _declared(inner)[1]
    refused = getattr(function, "__refused__", {})  # of any kind
    kinds = {name: kind for name, kind in inner.__annotations__.items() if name not in refused}

    @functools.wraps(function)
    def call(self: Any, *arguments: Any, **given: Any) -> Any:
        if not passes_on and not given.keys() <= set(names):  # names come before kinds
            check(getattr(function, "__public__", what), given, names, refused)
        by_place = [as_kind(what, name, value, kinds.get(name, "")) for name, value in zip(names, arguments)]
        given = {name: as_kind(what, name, value, kinds.get(name, "")) for name, value in given.items()}
        return function(self, *by_place, *arguments[len(names):], **given)

    return call
