"""Which test passes which argument to which function: read from the syntax trees of the tests.

A call counts for every function of that last name (Dataset.map and Dataset.map of another module are told apart by the room of the test file). The test is
the method or function around the call; a helper counts through the tests that mention it.
"""

from __future__ import annotations

import ast
import glob
import os
from typing import Any, Iterator

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# our module -> files of its tests; the longest prefix counts
ROOMS = {
    "unisono": ["tests/python/test_t*.py", "tests/python/test_v1*.py", "tests/python/test_ray_api.py", "tests/python/test_names.py", "tests/python/test_sgd.py",
                "tests/python/test_frameworks.py", "tests/python/test_data*.py", "tests/python/test_horovod*.py", "examples/python/*.py", "tests/user/*.py"],
    "unisono.data": ["tests/python/test_data*.py", "tests/python/test_frameworks.py", "examples/python/*.py", "tests/differential/*.py", "tests/data/*.py"],
    "unisono.tune": ["tests/python/test_tune*.py", "tests/python/test_sgd.py", "tests/python/test_v1.py", "tests/python/test_frameworks.py", "examples/python/*.py",
                     "tests/differential/*.py"],
    "unisono.keras": ["tests/python/test_keras*.py", "tests/python/test_tf*.py", "tests/python/keras_*.py", "examples/**/*.py", "tests/differential/*.py",
                      "tests/engine/*.py"],
    "unisono.tf": ["tests/python/test_keras*.py", "tests/python/test_tf*.py", "examples/**/*.py", "tests/differential/*.py", "tests/engine/*.py"],
    "unisono.horovod": ["tests/python/test_horovod*.py", "examples/**/*.py", "tests/differential/*.py"],
}


def files_of(name: str) -> list[str]:
    """The test files of the room that a public name belongs to."""
    room = max((each for each in ROOMS if name == each or name.startswith(each + ".")), key=len)
    return sorted({os.path.relpath(path, ROOT) for pattern in ROOMS[room] for path in glob.glob(os.path.join(ROOT, pattern), recursive=True)})


class Call:
    """One call in a test: the last name of what is called, how many arguments by position, and the keywords."""

    def __init__(self, node: ast.Call, test: str):
        self.name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        self.positional = sum(1 for each in node.args if not isinstance(each, ast.Starred))
        self.keywords, self.test = {each.arg for each in node.keywords if each.arg}, test


def _expects_errors(node: ast.AST) -> bool:
    """Whether assertRaises or one of its kind is called in it."""
    return any(isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr.startswith("assertRaises") for each in ast.walk(node))


class _Reader(ast.NodeVisitor):
    """Collects calls. One that is expected to fail shows no effect: those inside `with assertRaises`, and lambdas of tests that have one."""

    def __init__(self, path: str):
        self.path, self.stack, self.calls, self.tests = path, [], [], {}  # type: ignore[var-annotated]
        self.failing, self.lambdas = 0, 0

    def _inside(self, node: Any) -> None:
        self.stack.append(node.name)
        self.tests[".".join(self.stack)] = node
        before, self.lambdas = self.lambdas, int(not isinstance(node, ast.ClassDef) and _expects_errors(node))
        self.generic_visit(node)
        self.lambdas = before
        self.stack.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _inside

    def visit_With(self, node: ast.With) -> None:
        fails = any(_expects_errors(item.context_expr) for item in node.items)
        self.failing += fails
        self.generic_visit(node)
        self.failing -= fails

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.failing += self.lambdas
        self.generic_visit(node)
        self.failing -= self.lambdas

    def visit_Call(self, node: ast.Call) -> None:
        if not self.failing:
            self.calls.append(Call(node, "%s::%s" % (self.path, ".".join(self.stack[:2]) or "<module>")))
        self.generic_visit(node)


def _keywords_in(node: ast.AST, functions: dict[str, Any], seen: frozenset[str] = frozenset()) -> set[str]:
    """Keywords of the calls in an expression, and in the functions of the file that it names."""
    out: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            out.update(word.arg for word in each.keywords if word.arg)
        elif isinstance(each, ast.Dict):
            out.update(key.value for key in each.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        elif isinstance(each, ast.Name) and each.id in functions and each.id not in seen:
            out |= _keywords_in(functions[each.id], functions, seen | {each.id})
    return out


def _tables(reader: _Reader, tree: ast.Module) -> None:
    """Nets draw their cases from tables: {"Dense": how its arguments are drawn}."""
    functions = {name: node for name, node in reader.tests.items() if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        reader.tests.setdefault(node.targets[0].id, node)
        for table in ast.walk(node.value):
            for key, value in zip(table.keys, table.values) if isinstance(table, ast.Dict) else ():
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    made = Call.__new__(Call)
                    made.name, made.positional, made.keywords = key.value, 0, _keywords_in(value, functions)
                    made.test = "%s::%s" % (reader.path, node.targets[0].id)
                    reader.calls.append(made)


_read: dict[str, _Reader] = {}


def read(path: str) -> _Reader:
    """The calls and the tests of a file."""
    if path not in _read:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            tree = ast.parse(file.read())
        _read[path] = _Reader(path)
        _read[path].visit(tree)
        if path.startswith("tests/differential/"):
            _tables(_read[path], tree)
        # A helper that takes keywords passes them on: fit(x, run_config=...) counts for the DataParallelTrainer that it makes.
        for name, node in _read[path].tests.items():
            if isinstance(node, ast.FunctionDef) and node.args.kwarg and not name.rpartition(".")[2].startswith("test"):
                targets = [Call(each, "") for each in ast.walk(node) if isinstance(each, ast.Call) and any(word.arg is None for word in each.keywords)]
                for call in [each for each in _read[path].calls if each.name == name.rpartition(".")[2]]:
                    for target in targets:
                        made = Call.__new__(Call)
                        made.name, made.positional, made.keywords, made.test = target.name, 0, call.keywords, call.test
                        _read[path].calls.append(made)
    return _read[path]


def calls_of(name: str) -> Iterator[Call]:
    """Calls of a public name in the tests of its room."""
    parts = name.split(".")
    wanted = parts[-1]
    for path in files_of(name):
        for call in read(path).calls:
            if call.name == wanted:
                yield call


def shows(name: str, argument: str, order: list[str]) -> str | None:
    """A test that passes the argument; order: the arguments by position."""
    best = None
    for call in calls_of(name):
        by_position = argument in order and order.index(argument) < call.positional
        if argument in call.keywords or by_position:
            if "::" in call.test and ("test_" in call.test.rpartition("::")[2]):
                return call.test
            best = best or call.test
    return best


def exists(reference: str) -> bool:
    """Whether FILE::Class.test or FILE::function is there."""
    path, _, name = reference.partition("::")
    return os.path.exists(os.path.join(ROOT, path)) and (name == "<module>" or name in read(path).tests)
