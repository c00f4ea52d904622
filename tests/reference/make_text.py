"""Stores what Keras's TextVectorization makes of strings: text/CASE.safetensors.

Keys: output (int64 ids; counts and multi-hot are whole numbers too; tf_idf is float32). Metadata: strings (JSON list), column ("1" where they came as
(batch, 1) instead of (batch,)), vocabulary (JSON list as get_vocabulary() gives it: "" for padding and "[UNK]" first in integer
mode, only "[UNK]" otherwise), corpus (JSON list of the strings that adapt saw, absent where the vocabulary was given), config,
made_by. Worth knowing: lower-casing and punctuation are ASCII only, words of equal count are sorted by descending bytes.
"""

from common import made_by, save

import keras
import numpy as np

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "The dog barks; the fox runs away!",
    "A quick-witted fox, a lazy dog: what's new?",
    "",
    "   spaces\tand\nnewlines   everywhere  ",
    "Ünïcödé wörter: naïve café ÉTÉ, straße",
    "numbers 1 22 333 1 22 1",
    "fox fox fox FOX Fox",
]
STRINGS = [
    "the fox and the dog",
    "The FOX, the dog!",
    "",
    "unknown words only-here",
    "café ÉTÉ été straße STRASSE",
    "don't what's new? a_b (c) [d] {e} <f> ~g `h' \"i\" #j $k %l &m *n +o =p |q \\r ^s @t",
    "  leading and trailing  ",
    "one\ttab\nnew line\r\nand\u00a0no-break\u3000wide space",
    "1 22 333 4444",
    "a very long line " * 6,
    "日本語 テキスト emoji 🎉 party",
]


def case(name, adapt=True, strings=STRINGS, column=False, **config):
    layer = keras.layers.TextVectorization(**config)
    metadata = {}
    if adapt:
        layer.adapt(CORPUS)
        metadata["corpus"] = CORPUS
    output = np.asarray(layer(np.array(strings)[:, None] if column else np.array(strings)))
    vocabulary = [str(word) for word in layer.get_vocabulary()]
    save(f"text/{name}.safetensors", {"output": output}, strings=strings, vocabulary=vocabulary, config=config, made_by=made_by(),
         column="1" if column else "0", **metadata)


if __name__ == "__main__":
    case("default")
    case("column", column=True)
    case("sequence_length_4", output_sequence_length=4)
    case("sequence_length_20", output_sequence_length=20)
    case("max_tokens_8", max_tokens=8)
    case("lower_only", standardize="lower")
    case("strip_only", standardize="strip_punctuation")
    case("no_standardize", standardize=None)
    case("characters", split="character", output_sequence_length=12)
    case("no_split", split=None)
    case("given_vocabulary", adapt=False, vocabulary=["fox", "dog", "the"])
    case("bigrams", ngrams=2)
    case("multi_hot", output_mode="multi_hot", max_tokens=10)
    case("count", output_mode="count", max_tokens=10)
    case("tf_idf", output_mode="tf_idf", max_tokens=12)
    case("one_string", strings=["the fox"])
