"""What the make_*.py scripts share: seeds, and the writer of the files that the C tests read.

The format is safetensors: 8 bytes little-endian header length, a JSON header that names dtype, shape and byte
range of every array, then the arrays, row-major and little-endian. Strings live in "__metadata__" (every value
is a string; lists and dictionaries are JSON inside that string). It is written here by hand, in 20 lines, so
that Debian's Python with PyTorch needs no further package. Arrays are sorted by item size, widest first, so
that every array is aligned to its own item size, and the same run always gives the same bytes.
"""

import json
import os
import pathlib
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # plain Eigen kernels: the same numbers on every machine
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = {"float64": "F64", "int64": "I64", "float32": "F32", "int32": "I32", "uint8": "U8", "bool": "BOOL"}


def rng(name):
    """A random generator of its own for each case, so that adding a case changes no other."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def normal(random, *shape, scale=1.0):
    return (random.standard_normal(shape) * scale).astype(np.float32)


def save(path, arrays, **metadata):
    """Writes arrays (name -> array) and metadata (strings as they are, anything else as JSON)."""
    path = HERE / path
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.asarray(value) for name, value in arrays.items()}
    texts = {k: v if isinstance(v, str) else json.dumps(v, sort_keys=True) for k, v in metadata.items()}
    header, offset, body = {"__metadata__": dict(sorted(texts.items()))}, 0, []
    for name in sorted(arrays, key=lambda n: (-arrays[n].dtype.itemsize, n)):
        array = arrays[name]
        data = array.astype(array.dtype.newbyteorder("<")).tobytes()  # C order
        header[name] = {
            "dtype": DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
        body.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(body))


def load(path):
    """Reads such a file (or any safetensors file of these dtypes): (arrays, metadata)."""
    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    names = {short: long for long, short in DTYPES.items()}
    arrays = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        array = np.frombuffer(data[begin:end], dtype=np.dtype(names[entry["dtype"]]).newbyteorder("<"))
        arrays[name] = array.reshape(entry["shape"])
    return arrays, metadata


def made_by():
    """The versions that a file's numbers come from."""
    import keras
    import tensorflow as tf

    return f"keras {keras.__version__}, tensorflow {tf.__version__}"
