#!/usr/bin/env python3
"""make_horovod_signatures.py SDIST - writes signatures_horovod.json: the arguments of Horovod's public functions, read from its sources.

    pip download --no-deps --no-binary :all: horovod==0.28.1
    tests/differential/make_horovod_signatures.py horovod-0.28.1.tar.gz

Nothing is built or imported: names and defaults are facts of the syntax tree. A default that is not a literal is stored as its source text.
"""

import ast
import json
import os
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = ("horovod.torch", "horovod.tensorflow", "horovod.keras", "horovod.tensorflow.keras")


def load(archive):
    """module -> syntax tree."""
    trees = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            path = member.name.partition("/")[2]
            if path.startswith("horovod/") and path.endswith(".py"):
                name = path[:-3].replace("/", ".").removesuffix(".__init__")
                trees[name] = ast.parse(tar.extractfile(member).read())
    return trees


def default(node):
    try:
        value = ast.literal_eval(node)
        json.dumps(value)
        return value
    except (ValueError, TypeError):
        return ast.unparse(node)


def arguments(function):
    given = function.args
    names = given.posonlyargs + given.args
    out = {each.arg: "<required>" for each in names}
    for each, node in zip(names[len(names) - len(given.defaults):], given.defaults):
        out[each.arg] = default(node)
    for each, node in zip(given.kwonlyargs, given.kw_defaults):
        out[each.arg] = "<required>" if node is None else default(node)
    return {name: value for name, value in out.items() if name not in ("self", "cls")}


def method(trees, name):
    """A method of the class that all of Horovod's modules share."""
    basics = next(node for node in trees["horovod.common.basics"].body if isinstance(node, ast.ClassDef) and node.name == "HorovodBasics")
    return next((node for node in basics.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def resolve(trees, module, name, depth=0):
    """The definition of a name in a module, through its imports."""
    if depth > 8 or module not in trees:
        return None
    for node in ast.walk(trees[module]):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name and node in trees[module].body:
            return node
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and ast.unparse(node.targets[0]) == name:
            return method(trees, node.value.attr)  # init = _basics.init
    for node in ast.walk(trees[module]):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                if (each.asname or each.name) == name:
                    return resolve(trees, node.module, each.name, depth + 1) or resolve(trees, "%s.%s" % (module, node.module), each.name, depth + 1)
    return None


def signature(trees, module, node):
    if isinstance(node, ast.FunctionDef):
        return arguments(node)
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return arguments(each)
    for base in node.bases:  # the constructor of a base, such as an implementation shared by two modules
        text = ast.unparse(base)
        found = resolve(trees, module, text.rpartition(".")[2]) or next(
            (hit for other in trees for hit in [resolve(trees, other, text.rpartition(".")[2])] if hit is not None and other.startswith("horovod._keras")), None)
        if found is not None and found is not node:
            return {key: value for key, value in signature(trees, module, found).items() if key != "backend"}
    return {}


def names(tree):
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("horovod"):
            for each in node.names:
                yield each.asname or each.name


def main(archive):
    trees, out = load(archive), {}
    for module in MODULES:
        for submodule in (module, module + ".callbacks"):
            if submodule not in trees:
                continue
            for name in names(trees[submodule]):
                node = resolve(trees, submodule, name)
                if node is not None and not name.startswith("_"):
                    out["%s.%s" % (submodule, name)] = signature(trees, submodule, node)
    facts = {"source": os.path.basename(archive), "made_by": "tests/differential/make_horovod_signatures.py", "functions": dict(sorted(out.items()))}
    with open(os.path.join(HERE, "signatures_horovod.json"), "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)
        file.write("\n")
    print("%d functions" % len(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
