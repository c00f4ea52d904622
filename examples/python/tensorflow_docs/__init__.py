"""In the place of the package tensorflow_docs, for native_text_fit.py: what it uses of it, on the native engine."""

from tensorflow_docs import modeling  # noqa: F401
