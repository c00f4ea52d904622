"""sanitized.py - for what makes no sense under AddressSanitizer."""


def is_sanitized(path):
    """Whether a program was built with AddressSanitizer, which has its own memory beside the program's."""
    with open(path, "rb") as file:
        return b"__asan_init" in file.read()
