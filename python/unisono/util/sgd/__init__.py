"""RaySGD: TFTrainer. The newer way is unisono.train."""

from unisono.extend import complain

__all__ = ["tf"]


def __getattr__(name):
    import importlib

    if name == "tf":
        return importlib.import_module("unisono.util.sgd.tf")
    return complain("unisono.util.sgd", name)
