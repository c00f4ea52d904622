"""RaySGD: TFTrainer. The newer way is unisono.train."""

__all__ = ["tf"]


def __getattr__(name):
    import importlib

    if name == "tf":
        return importlib.import_module("unisono.util.sgd.tf")
    from unisono._missing import complain

    return complain("unisono.util.sgd", name)
