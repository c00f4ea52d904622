"""unisono._arguments: no argument is swallowed."""

import unittest

import support

from unisono import _arguments
from unisono._arguments import Refused, check, strict


@strict({"verbose": Refused(1, "use quiet"), "seed": Refused(None, "runs are seeded by the config")})
def fit(epochs=1, batch_size=32, verbose=1):
    return epochs, batch_size


class Estimator:
    @strict({"device": Refused(None, "there is one device")}, name="unisono.Estimator")
    def __init__(self, units, activation=None):
        self.units = units


class Strict(unittest.TestCase):
    def test_declared_arguments_pass(self):
        self.assertEqual(fit(2, batch_size=8), (2, 8))
        self.assertEqual(Estimator(units=3).units, 3)

    def test_an_unknown_argument_names_the_nearest(self):
        with self.assertRaisesRegex(TypeError, r"fit\(\) got an unexpected keyword argument 'epoch'; did you mean 'epochs'\?"):
            fit(epoch=3)
        with self.assertRaisesRegex(TypeError, r"Estimator\(\) got an unexpected keyword argument 'unit'; did you mean 'units'\?"):
            Estimator(unit=3)

    def test_without_a_near_one_all_are_listed_and_refused_ones_are_not_offered(self):
        with self.assertRaisesRegex(TypeError, r"'zzz'; its arguments are: epochs, batch_size$"):
            fit(zzz=3)

    def test_a_refused_argument_is_refused_by_name_with_the_reason(self):
        with self.assertRaisesRegex(TypeError, r"fit\(seed=7\) is not supported: runs are seeded by the config"):
            fit(seed=7)
        with self.assertRaisesRegex(TypeError, r"Estimator\(device='gpu'\) is not supported: there is one device"):
            Estimator(1, device="gpu")

    def test_a_refused_argument_that_is_declared_is_refused_by_position(self):
        with self.assertRaisesRegex(TypeError, r"fit\(verbose=2\) is not supported"):
            fit(1, 32, 2)

    def test_the_peers_default_asks_for_nothing(self):
        self.assertEqual(fit(1, 32, 1), (1, 32))
        self.assertEqual(fit(seed=None), (1, 32))
        with self.assertRaises(TypeError):
            fit(seed=0)  # 0 is a value
        with self.assertRaises(TypeError):
            fit(verbose=True)  # equal to 1, but not the same thing

    def test_check_for_functions_that_take_keywords(self):
        check("unisono.f", {"a": 1}, ["a"])
        with self.assertRaisesRegex(TypeError, "f\\(\\) got an unexpected keyword argument 'b'"):
            check("unisono.f", {"b": 1}, ["a"])


class Harmless(unittest.TestCase):
    def test_a_harmless_argument_is_accepted_and_not_passed_on(self):
        _arguments.HARMLESS["unisono.harmless"] = {"echo": "only changes what is printed"}
        self.addCleanup(_arguments.HARMLESS.pop, "unisono.harmless")
        self.assertEqual(strict(name="unisono.harmless")(lambda x: x)(3, echo=True), 3)

    def test_the_list_has_a_reason_for_each(self):
        for function, arguments in _arguments.HARMLESS.items():
            self.assertTrue(function.startswith("unisono."), function)
            for name, why in arguments.items():
                self.assertGreater(len(why), 8, "%s(%s=)" % (function, name))


if __name__ == "__main__":
    support.main()
