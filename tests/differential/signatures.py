#!/usr/bin/env python3
"""signatures.py - the net of signatures: every argument that a peer's function has is acted on here, or refused by name.

Each public callable of unisono whose name the peer has (Ray, Keras, TensorFlow, Horovod) is compared with the peer's by introspection, and called:

  unknown    every callable is given an argument that nobody has: a TypeError must name it
  refused    an argument of the peer's that we do not take, given: a TypeError must name it
  harmless   an argument in unisono._arguments.HARMLESS: the only ones that may be ignored
  accepted   must be read in the function's own source, and a test must pass it (found in the tests' sources, or named in SHOWN)

    signatures.py             the check; the last line counts what was compared
    signatures.py --json      the table, for tools/make-signatures
    signatures.py --findings  everything that is wrong, also what signatures_open.txt knows
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import os
import pathlib
import sys
import textwrap
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")

import signatures_numbers as numbers
import signatures_peers as peers
import signatures_tests as tests

from unisono import _arguments

UNKNOWN = "an_argument_that_nobody_has"

OPEN = os.path.join(peers.HERE, "signatures_open.txt")
with open(os.path.join(peers.HERE, "signatures_shown.json"), encoding="utf-8") as _file:
    # "function argument" -> the test that shows the effect, where the call cannot be found in the test's source
    SHOWN: dict[str, str] = json.load(_file)


class Rows:
    """A Datasource that takes no arguments of its own."""

    def prepare_read(self, parallelism: int) -> list[Any]:
        return [lambda: [[{"id": 1}]]]


# What a call needs besides the argument in question, where a placeholder does not do: by function, then by the name of the argument.
SAMPLES: dict[str, dict[str, Any]] = {
    "unisono.train.report": {"metrics": {}}, "unisono.tune.report": {"metrics": {}}, "unisono.tune.with_parameters": {"trainable": lambda config: None},
    "unisono.tune.schedulers.create_scheduler": {"scheduler": "fifo"}, "unisono.data.read_datasource": {"datasource": Rows()},
}
# Functions whose keywords are the user's own words, here as in the peer: any name is taken.
OWN_WORDS = {
    "unisono.tune.report": "keywords are metrics", "unisono.data.Datasource.create_reader": "keywords are the arguments of the user's own source",
    "unisono.data.Datasource.prepare_read": "keywords are the arguments of the user's own source",
}
VALUES: dict[str, Any] = {
    "paths": "/nothing/here", "path": "/nothing/here", "filepath": "/nothing/here", "cols": "id", "columns": ["id"], "fn": lambda row: row, "on": "id",
    "col": "id", "key": "id", "batch_size": 2, "n": 2, "num_blocks": 2, "count": 2, "limit": 2, "units": 2, "filters": 2, "kernel_size": 3, "rate": 0.5,
    "learning_rate": 0.1, "input_dim": 4, "output_dim": 2, "num_heads": 2, "key_dim": 2, "target_shape": (2, 2), "padding": "valid", "axis": 0,
    "shape": (2,), "factor": 0.5, "max_value": 3, "min_value": 1, "monitor": "loss", "schedule": len, "name": "x", "indices": [1], "test_size": 1,
    "initial_learning_rate": 0.1, "decay_steps": 2, "decay_rate": 0.5, "boundaries": [1], "values": [1.0, 0.5], "size": 2, "dims": (1,), "stddev": 0.1,
    "lower": 1, "upper": 3, "base": 10, "space": {}, "metric": "loss", "mode": "max", "sql": "SELECT 1", "names": ["id"], "exprs": {}, "other": None,
    "num_tokens": 4, "max_tokens": 4, "dtype": "float32", "prob": 0.5, "height": 2, "width": 2, "scale": 1.0, "weights": [1.0], "max_steps": 1,
}


def _dataset() -> Any:
    from unisono import data

    return data.range(4)


def _model() -> Any:
    from unisono import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


# class -> an object to call its methods with
SELVES: dict[str, Any] = {"unisono.data.Dataset": _dataset, "unisono.keras.Model": _model, "unisono.keras.Sequential": _model,
                          "unisono.data.DataIterator": lambda: _dataset().iterator()}


class Sentinel:
    """A value that nothing accepts."""

    def __repr__(self) -> str:
        return "<sentinel>"


def call(pair: peers.Pair, argument: str) -> str | None:
    """None when the argument is refused by name, otherwise what happened instead."""
    function, arguments = pair.ours, ()
    if pair.owner is not None and not inspect.ismethod(function):
        static = inspect.getattr_static(pair.owner, pair.name.rpartition(".")[2])
        owner = pair.name.rpartition(".")[0]
        arguments = () if isinstance(static, staticmethod) else (SELVES[owner]() if owner in SELVES else None,)
    given: dict[str, Any] = {name: VALUES.get(name, Sentinel()) for name, default in peers.explicit(pair.ours).items() if default is peers.REQUIRED}
    given.update(SAMPLES.get(pair.name, {}), **{argument: Sentinel()})
    try:
        function(*arguments, **given)
    except TypeError as error:
        if "%s must be " % argument in str(error):  # the argument is known; the sentinel is of a wrong kind
            return "another kind of value"
        if argument in str(error) or "takes no arguments" in str(error) or "takes no keyword arguments" in str(error):
            return None
        return "TypeError: %s" % error
    except Exception as error:
        if argument != UNKNOWN and "%s=" % argument in str(error):  # refused by name, with another type
            return None
        return "%s: %s" % (type(error).__name__, str(error).splitlines()[0][:80] if str(error) else "")
    return "accepted without a word"


def functions_of(ours: Any) -> list[Any]:
    """The Python functions behind a callable: constructors of its bases too, which get what is passed on."""
    if inspect.isclass(ours):
        return [inspect.unwrap(vars(base)["__init__"]) for base in ours.__mro__ if "__init__" in vars(base) and base is not object]
    return [inspect.unwrap(getattr(ours, "__func__", ours))]


def is_hook(ours: Any) -> bool:
    """A method for subclasses to override: it does nothing, or raises."""
    tree = _tree(getattr(inspect.unwrap(ours), "__func__", inspect.unwrap(ours)))
    if inspect.isclass(ours) or tree is None:
        return False
    body = tree.body[0].body  # type: ignore[attr-defined]
    return all(isinstance(each, (ast.Pass, ast.Raise)) or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
               or (isinstance(each, ast.Return) and (each.value is None or isinstance(each.value, ast.Constant))) for each in body)


def _tree(function: Any) -> Any:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return None


@functools.cache
def fields_read() -> set[str]:
    """Attributes that are read anywhere in the package, also by getattr with a literal name."""
    out: set[str] = set()
    for path in pathlib.Path(_arguments.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                out.add(node.attr)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
                out.update(each.value for each in node.args[1:2] if isinstance(each, ast.Constant))
            elif isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Tuple):  # for name in ("a", "b"): getattr(self, name)
                out.update(each.value for each in node.iter.elts if isinstance(each, ast.Constant) and isinstance(each.value, str))
    return out


def _source_reads(function: Any, argument: str) -> bool | None:
    """Whether a function reads its argument; None where it has no source or does not declare it."""
    code = getattr(function, "__code__", None)
    if code is None or argument not in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]:
        return None
    if code.co_filename.startswith("<"):  # a dataclass's __init__ stores every field; somebody must read it
        return argument in fields_read()
    tree = _tree(function)
    if tree is None:
        return None
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return argument in words or "locals" in words


def is_read(ours: Any, argument: str) -> bool:
    """False when a function declares an argument and never looks at it. A decorator says in __reads__ what it looks at."""
    return argument in getattr(ours, "__reads__", ()) or all(_source_reads(function, argument) is not False for function in functions_of(ours))


def overrides_hook(pair: peers.Pair) -> bool:
    """A method that is a hook, or overrides one: the library calls it, with all of its arguments."""
    if pair.owner is None:
        return False
    name = pair.name.rpartition(".")[2]
    return any(name in vars(base) and is_hook(vars(base)[name]) for base in pair.owner.__mro__)


def knows(pair: peers.Pair) -> bool:
    """Classes of the engine take their arguments from tables. What such a class does not refuse, while it refuses an unknown one, is in its table."""
    return pair.name.startswith(("unisono.keras.", "unisono.tf.")) and call(pair, UNKNOWN) is None


def shown_by_hand(name: str, argument: str) -> str | None:
    """A row of signatures_shown.json; "unisono.keras.layers.* name" holds for all below."""
    keys = [name] + [name.rsplit(".", count)[0] + ".*" for count in range(1, name.count(".") + 1)]
    return next((SHOWN["%s %s" % (key, argument)] for key in keys if "%s %s" % (key, argument) in SHOWN), None)


# Defaults that are written in another way and mean the same, or mean something that is only speed: argument -> why.
DEFAULTS = {
    "prefetch_batches": "reading ahead follows the dataset's memory budget",
    "device": "batches are on the CPU, which is what 'auto' means without a GPU",
    "reuse_actors": "members of the crew are always kept from trial to trial",
    "chdir_to_trial_dir": "Ray's placeholder for an argument that it no longer has",
    "jit_compile": "there is nothing to compile",
    "name": "made of the class's name when it is used",
    "dtype": "float32 is the only type of weights, and what Keras's None means",
}


def default_differs(pair: peers.Pair, argument: str, offered: dict[str, Any]) -> str | None:
    """What is wrong with the default of an argument that both sides have: leaving it out must mean the same."""
    ours, theirs = offered.get(argument, peers.REQUIRED), pair.arguments[argument]
    if peers.REQUIRED in (ours, theirs) or pair.peer.startswith("horovod") or argument in DEFAULTS or not isinstance(theirs, (type(None), bool, int, float, str, tuple)):
        return None
    if isinstance(theirs, tuple) and not isinstance(ours, tuple):
        ours = (ours,) * len(theirs)
    return None if ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool) else "its default is %r, the peer's is %r" % (ours, theirs)


def status(pair: peers.Pair, argument: str, offered: dict[str, Any]) -> tuple[str, str]:
    """(kind, remark) of one argument of the peer's."""
    init = pair.ours.__init__ if inspect.isclass(pair.ours) else pair.ours
    refused = getattr(init, "__refused__", {})
    public = getattr(init, "__public__", pair.name)
    harmless = {**_arguments.harmless(pair.name), **_arguments.harmless(public)}
    by_name = {**_arguments.HARMLESS.get(pair.name, {}), **_arguments.HARMLESS.get(public, {})}
    if argument in (by_name if argument in offered and is_read(pair.ours, argument) else harmless):
        return "harmless", harmless[argument]
    if argument in refused or argument not in offered:
        problem = call(pair, argument)
        if problem is None:
            return "refused", refused[argument].why if argument in refused else ""
        if not knows(pair):
            return "wrong", "not refused by name: %s" % problem
    elif overrides_hook(pair):
        return "accepted", "for a subclass to override"
    elif not is_read(pair.ours, argument):
        return "wrong", "accepted and never read"
    elif default_differs(pair, argument, offered):
        return "wrong", default_differs(pair, argument, offered) or ""
    shown = shown_by_hand(pair.name, argument) or tests.shows(pair.name, argument, list(offered)) or numbers.shows(pair.name, argument, offered.get(argument))
    if shown is None:
        return "unshown", "accepted, and no test passes it"
    if not tests.exists(shown):
        return "wrong", "%s is not a test" % shown
    return "accepted", shown


def compare() -> tuple[dict[str, dict[str, Any]], list[tuple[str, str]]]:
    """({function: {"peer": ..., "arguments": {name: (kind, remark)}}}, [(function, problem)])"""
    table, wrong = {}, []
    for pair in peers.pairs():
        offered = peers.explicit(pair.ours)
        problem = None if pair.name in OWN_WORDS else call(pair, UNKNOWN)
        if problem is not None and not (overrides_hook(pair) and problem.startswith("NotImplementedError")):  # one that only a subclass can call
            wrong.append((pair.name, "an unknown argument is not refused by name: %s" % problem))
        rows = {argument: status(pair, argument, offered) for argument in pair.arguments}
        wrong += [("%s(%s=)" % (pair.name, argument), remark) for argument, (kind, remark) in rows.items() if kind in ("wrong", "unshown")]
        table[pair.name] = {"peer": pair.peer, "arguments": rows}
    return table, wrong


def silently(function: Any) -> Any:
    """Without what the functions that are called print."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        return function()
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def read_open() -> list[str]:
    """Findings that are known and not yet dealt with. The list may only become shorter."""
    with open(OPEN, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip() and not line.startswith("#")]


def main(asked: list[str]) -> int:
    table, wrong = silently(compare)
    known, found = set(read_open()), {name for name, _ in wrong}
    kinds = [kind for row in table.values() for kind, _ in row["arguments"].values()]
    if asked == ["--json"]:
        json.dump({"functions": table, "open": sorted(found)}, sys.stdout)
        return 0
    for name, problem in wrong:
        if asked == ["--findings"] or name not in known:
            print("%s: %s" % (name, problem))
    for name in sorted(known - found):
        print("%s: dealt with; run tools/make-signatures, which takes it out of %s" % (name, os.path.basename(OPEN)))
    counts = ", ".join("%d %s" % (kinds.count(kind), kind) for kind in ("accepted", "refused", "harmless"))
    print("signatures: %d functions and %d arguments of Ray, Keras, TensorFlow and Horovod compared: %s, %d findings open, %d new"
          % (len(table), len(kinds), counts, len(found & known), len(found - known)))
    return 1 if found != known else 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # TensorFlow's and Ray's threads make an ordinary end slow
