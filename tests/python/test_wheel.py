"""`pip wheel .`: one wheel with the library, the command, the agent and (where oneDNN is) the engine; used by every Python of at least 3.11 that is here."""

import glob
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

import support

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = """
import sys
import unisono
from unisono.train import Trainer

def function():
    from unisono import train
    train.report(x=1)
    return train.world_rank()

if __name__ == "__main__":
    trainer = Trainer("none", 2)
    trainer.start()
    print("workers", trainer.run(function))
    trainer.shutdown()
    try:
        import numpy as np
        from unisono import keras
    except ImportError as error:
        print("no engine:", error)
    else:
        x = np.ones((64, 4), np.float32)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        model.fit(x, x[:, :2], verbose=0)
        print("engine", model.predict(x[:3], verbose=0).shape)
"""


def pythons():
    """The interpreters here, by version."""
    found = {}
    for path in ["/usr/bin/python3", sys.executable] + sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))):
        if os.access(path, os.X_OK):
            code = "import sys; print('%d.%d' % sys.version_info[:2]); import venv, ensurepip"
            done = subprocess.run([path, "-c", code], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
            version = done.stdout.strip()
            if done.returncode == 0 and tuple(map(int, version.split("."))) >= (3, 11):
                found.setdefault(version, path)
    return found


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run([sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "-w", cls.folder.name,
                               "-Cbuilddir=" + os.path.join(cls.folder.name, "build"), "-Ccompile-args=-j2"], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode and ("No matching distribution" in done.stdout or "Could not find a version" in done.stdout or "No module named pip" in done.stdout):
            raise unittest.SkipTest("pip cannot get what builds the wheel (meson-python)")
        cls.output, cls.wheels = done.stdout, glob.glob(os.path.join(cls.folder.name, "*.whl"))

    def test_one_wheel_for_all(self):
        self.assertEqual(len(self.wheels), 1, self.output[-3000:])
        self.assertIn("-cp311-abi3-", self.wheels[0])
        with zipfile.ZipFile(self.wheels[0]) as archive:
            names = archive.namelist()
        for wanted in ("unisono/_unisono.abi3.so", "unisono/py.typed", "unisono/_unisono.pyi", "unisono/keras/_own.py", "unisono/data/__init__.py"):
            self.assertIn(wanted, names)
        for wanted in ("scripts/unisono", "scripts/unisono-agent"):
            self.assertTrue(any(name.endswith(wanted) for name in names), wanted)
        if os.path.exists("/usr/include/dnnl.h"):
            self.assertIn("unisono/_engine.abi3.so", names)

    def test_it_runs_with_every_python(self):
        tried = []
        for version, path in pythons().items():
            place = os.path.join(self.folder.name, "venv-" + version)
            subprocess.run([path, "-m", "venv", place], check=True)
            python = os.path.join(place, "bin", "python")
            environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
            done = subprocess.run([python, "-m", "pip", "install", "-q", "numpy", self.wheels[0]], env=environment, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
            if done.returncode and "No matching distribution" in done.stdout:
                continue  # no network for NumPy or cloudpickle
            self.assertEqual(done.returncode, 0, done.stdout)
            script = os.path.join(place, "script.py")
            with open(script, "w") as file:
                file.write(SCRIPT)
            done = subprocess.run([python, script], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("workers [0, 1]", done.stdout, version)
            if os.path.exists("/usr/include/dnnl.h"):
                self.assertIn("engine (3, 2)", done.stdout, version)
            tried.append(version)
        if not tried:
            self.skipTest("no Python here could install the wheel's requirements")
        print("tried with Python", ", ".join(tried))


class Missing(unittest.TestCase):
    def test_the_command_that_installs_the_libraries_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["meson", "setup", os.path.join(folder, "build"), ROOT, "-Dtests=false"], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False, env=dict(os.environ, PKG_CONFIG_LIBDIR=folder, CMAKE_PREFIX_PATH=""))
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"ERROR: .*libraries are missing. On Debian: apt-get install pkg-config libuv1-dev libsodium-dev ")


if __name__ == "__main__":
    support.main()
