"""Every public function and class: a misspelled argument is a TypeError that names the right one."""

import importlib
import inspect
import unittest

import support

MODULES = ("unisono unisono.train unisono.train.torch unisono.train.tensorflow unisono.data unisono.data.preprocessors unisono.tune unisono.tune.schedulers unisono.tune.search "
           "unisono.tune.stopper unisono.keras unisono.keras.layers unisono.keras.losses unisono.keras.metrics unisono.keras.optimizers unisono.keras.callbacks "
           "unisono.keras.initializers unisono.keras.regularizers unisono.keras.utils unisono.keras.ops unisono.keras.models unisono.tf unisono.tf.data unisono.tf.distribute "
           "unisono.horovod unisono.horovod.torch unisono.horovod.tensorflow unisono.horovod.keras").split()
# Not called with keywords by users: bases, what functions return, keywords that become metrics, and places that say which files there are.
APART = {"report", "read_idx", "DataIterator", "DatasetPipeline", "ReadTask", "Schema", "TensorArray", "TrialScheduler", "Searcher", "KerasTensor", "Variable", "Trainable",
         "get_accelerator", "set_accelerator", "Dataset", "Asked", "ReportCheckpointCallback", "combined", "read_datasource", "load_model"}


def functions():
    seen = set()
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:  # a framework that is not here
            continue
        for key in getattr(module, "__all__", [each for each in dir(module) if each[0] != "_"]):
            try:
                found = getattr(module, key)
            except (AttributeError, ImportError):
                continue
            own = str(getattr(found, "__module__", "")).startswith(name)
            if callable(found) and own and key[0] != "_" and key not in APART and id(found) not in seen:
                seen.add(id(found))
                yield name + "." + key, found


class Misspelled(unittest.TestCase):
    def test_every_public_function(self):
        count = 0
        for name, function in functions():
            try:
                parameters = inspect.signature(function).parameters.values()
            except (TypeError, ValueError):
                continue
            named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and len(each.name) > 4]
            if not named:
                continue
            right, needed = named[-1].name, [each for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
            wrong, count = right[:2] + right[3:], count + 1
            with self.subTest(name, argument=wrong):
                with self.assertRaisesRegex(TypeError, r"did you mean|missing 1 required positional argument: '%s'" % right):
                    function(*[None for each in needed if each.name != right], **{wrong: 1})
        self.assertGreater(count, 100)


    def test_methods_of_layers_and_models(self):
        count = 0
        for name, cls in functions():
            if not (inspect.isclass(cls) and name.startswith("unisono.keras.")):
                continue
            for key, method in vars(cls).items():
                if key[0] == "_" or not inspect.isfunction(method):
                    continue
                parameters = list(inspect.signature(method).parameters.values())
                named = [each for each in parameters[1:] if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and len(each.name) > 4]
                if not named or any(each.kind is each.VAR_KEYWORD for each in parameters):
                    continue
                right, wrong, count = named[-1].name, named[-1].name[:2] + named[-1].name[3:], count + 1
                needed = [each for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD and each.name != right]
                with self.subTest("%s.%s" % (name, key), argument=wrong), self.assertRaisesRegex(TypeError, "did you mean '%s'" % right):
                    method(*[None for _ in needed], **{wrong: 1})
        self.assertGreater(count, 30)


if __name__ == "__main__":
    support.main()
