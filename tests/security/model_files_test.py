"""Model files that are small to store and large to open: refused, or opened, within a few seconds of processor time and 350 MB.

The time is the process's own, so that a busy machine changes little.
"""

import json
import os
import resource
import struct
import subprocess
import zipfile

import attack  # finds support
import support
from sanitized import is_sanitized

MODELS = os.path.join(support.SOURCE, "tests", "reference", "models")
SECONDS, MEGABYTES = 20, 350
# AddressSanitizer keeps freed memory for a while, and marks around every block.
SANITIZED_MEGABYTES = 1000


def cost(path):
    """Opens the file: what was said, and how much memory it took at its peak."""
    program = os.environ.get("UNISONO_TEST_OPEN_MODEL", "")
    if not program:
        raise support.Skip("needs the engine with HDF5 and libzip")

    def lower():
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    process = subprocess.Popen([program, os.path.join(MODELS, "mlp.keras"), path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", preexec_fn=lower, env=support.environment(os.path.dirname(path)))
    said = process.stdout.read()
    process.stdout.close()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = status  # reaped here, for its peak
    assert os.WIFEXITED(status), "signal %d after %.1f s: %s" % (os.WTERMSIG(status), used.ru_utime, said)
    limit = SANITIZED_MEGABYTES if is_sanitized(program) else MEGABYTES
    assert used.ru_maxrss < limit << 10, "%d MB: %s" % (used.ru_maxrss >> 10, said)
    return said


def keras_file(path, config, name="mlp"):
    """The file of a real model with another config, stored as it is: no ratio gives it away."""
    with zipfile.ZipFile(os.path.join(MODELS, name + ".keras")) as archive:
        files = {member: archive.read(member) for member in archive.namelist()}
    files["config.json"] = config if isinstance(config, bytes) else json.dumps(config, separators=(",", ":")).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in files.items():
            archive.writestr(member, data)
    return path


def sequential(layers):
    return {"class_name": "Sequential", "config": {"name": "s", "layers": layers}}


FLATTEN = {"class_name": "Flatten", "config": {}}


def test_many_layers(storage):
    with zipfile.ZipFile(os.path.join(MODELS, "mlp.keras")) as archive:
        dense = json.loads(archive.read("config.json"))["config"]["layers"][1]
    said = cost(keras_file(os.path.join(storage, "a.keras"), sequential([dense] * 50_000)))
    assert "more than" in said, said


def test_models_in_models(storage):
    said = cost(keras_file(os.path.join(storage, "a.keras"), sequential([sequential([FLATTEN] * 9_999) for _ in range(25)])))
    assert "at most 10000 layers" in said, said


def test_a_config_of_lists(storage):
    said = cost(keras_file(os.path.join(storage, "a.keras"), b'{"a":[' + b"[]," * 4_000_000 + b"1]}"))
    assert "more than" in said, said


def graph(names, order):
    """A chain of layers by those names, listed in that order."""
    def tensor(name):
        return {"class_name": "__keras_tensor__", "config": {"keras_history": [name, 0, 0]}}
    layers = [{"class_name": "InputLayer", "name": "in", "config": {"name": "in", "batch_shape": [None, 4], "dtype": "float32"}, "inbound_nodes": []}]
    layers += [{"class_name": "Activation", "name": name, "config": {"name": name, "activation": "relu"}, "inbound_nodes": [{"args": [tensor(before)], "kwargs": {}}]}
               for name, before in zip(names, ["in", *names])]
    return {"class_name": "Functional", "config": {"name": "m", "layers": order(layers), "input_layers": ["in", 0, 0], "output_layers": [names[-1], 0, 0]}}


def test_layers_in_reverse(storage):
    """Each layer needs the one behind it; the names differ at their ends only."""
    names = ["x" * 200 + str(number) for number in range(6_000)]
    for order in (list, lambda layers: layers[::-1]):
        said = cost(keras_file(os.path.join(storage, "a.keras"), graph(names, order)))
        assert "of another model" in said, said


def safetensors(path, header, data=b""):
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)
    return path


def test_many_tensors(storage):
    """More than are allowed, and a header of 15 MB that has no tensor at all."""
    path = os.path.join(storage, "a.safetensors")
    entry = '"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    said = cost(safetensors(path, ("{" + ",".join(entry % number for number in range(300_000)) + "}").encode()))
    assert "more than 200000 arrays" in said, said
    said = cost(safetensors(path, b'{"__metadata__":{"a":[' + b"[]," * 5_000_000 + b"1]}}"))
    assert "hidden/kernel" in said, said


def test_tensors_up_to_the_limit(storage):
    """As many as are allowed, in 200,000 places of one byte."""
    entry = '"t%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'
    header = ("{" + ",".join(entry % (number, number, number + 1) for number in reversed(range(200_000))) + "}").encode()
    said = cost(safetensors(os.path.join(storage, "a.safetensors"), header, bytes(200_000)))
    assert "hidden/kernel" in said, said


def test_headers_that_are_odd(storage):
    """Escapes in names, keys that appear twice, something behind the end, lists that are none."""
    good = '"dtype":"U8","shape":[1],"data_offsets":[0,1]'
    for header, word in ((r'{"hid\u0064en/k\"\\":{%s}}' % good, "hidden/kernel"), ('{"a":{%s,"dtype":"U8"}}' % good, "appears twice"),
                         ('{"a":{%s},"a":{%s}}' % (good, good), "gap or an overlap"), ('{"a":{%s}} {}' % good, "behind its end"),
                         ('{"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}}', "no shape"), ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}}', "data_offsets"),
                         ('{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', "no shape"), ('{"a":[1]}', "dictionary"), ('{"a":', "dictionary"), ('{"a":{%s}' % good, "JSON"),
                         ('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{%s}}' % good, "appears twice")):
        said = cost(safetensors(os.path.join(storage, "a.safetensors"), header.encode(), b"x"))
        assert word in said, (header, said)


if __name__ == "__main__":
    support.main()
