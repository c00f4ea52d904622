"""Datasets are not part of this version; the place is kept."""


def __getattr__(name):
    from unisono._missing import complain

    return complain("unisono.data", name)
