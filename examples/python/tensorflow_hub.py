"""In the place of the package tensorflow_hub, for native_text_fit.py and native_text_loop.py: sentences as vectors, by the engine's SentenceEmbedding.

Modules of TensorFlow Hub are TensorFlow programs and are not run here. The handle may be the path of a text file of word vectors ("word v1 v2 ..." a line), or the
address of a module: then the file of that name with .txt or .vec is looked for in TFHUB_CACHE_DIR and in ~/.cache/unisono/vectors (for
".../nnlm-en-dim128/1": nnlm-en-dim128.txt); without it every word has a random vector, which is said once on stderr.
"""

import os
import re
import sys

from unisono.keras.layers import SentenceEmbedding

_said = set()


def _places(handle):
    """The files that may hold the vectors of a module's address."""
    name = next((part for part in reversed(re.split(r"[/:]", handle.rstrip("/"))) if not part.isdigit() and part), "vectors")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folders = (os.environ.get("TFHUB_CACHE_DIR"), os.path.join(cache, "unisono", "vectors"))
    return [os.path.join(folder, name + ending) for folder in folders if folder for ending in (".txt", ".vec")]


class KerasLayer(SentenceEmbedding):
    """KerasLayer(handle, input_shape=[], output_shape=[dim], dtype=tf.string, trainable=False): text to a vector of dim numbers."""

    def __init__(self, handle, trainable=False, output_shape=None, dtype=None, input_shape=None, name=None, vocabulary=None):
        if dtype not in (None, "string") or (input_shape is not None and tuple(input_shape) not in ((), (1,))):
            raise TypeError("KerasLayer(dtype=%r, input_shape=%r) is not supported: a sample is one text, of shape []" % (dtype, input_shape))
        handle = str(handle)
        dims = re.search(r"dim(\d+)", handle)
        if output_shape is None and dims is None:
            raise ValueError("KerasLayer needs output_shape=[numbers a vector]")
        vectors = next((path for path in [handle, *_places(handle)] if os.path.isfile(path)), None)
        if vectors is None and vocabulary is None and handle not in _said:
            _said.add(handle)
            sys.stderr.write("tensorflow_hub.py: no word vectors for %s: every word gets a random one. A text file of vectors (\"word v1 v2 ...\" a line) "
                             "is read from %s\n" % (handle, _places(handle)[0]))
        super().__init__(int(output_shape[-1]) if output_shape is not None else int(dims.group(1)), vectors=vectors,
                         vocabulary=vocabulary if vectors is None else None, trainable=bool(trainable), name=name)
