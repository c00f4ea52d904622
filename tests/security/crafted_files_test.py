"""Files that would run code if they were believed: pickles where a restore, a checkpoint or a result looks for them, and weights of torch.

Each holds a real malicious pickle. What matters is the marker file, which only code from the pickle could make.
"""

import importlib.util
import os
import pickle
import subprocess
import sys

import attack
import support


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def marker_of(storage):
    return os.path.join(storage, "owned")


def python(storage, script, *words, executable=sys.executable, more=""):
    path = os.path.join(storage, "script.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write("import os, sys\nfrom unisono import train, tune\nplace = sys.argv[1]\n" + script)
    done = subprocess.run([executable, path, storage, *words], capture_output=True, text=True, errors="replace", timeout=120, check=False,
                          env=support.environment(storage, HOME=storage, TMPDIR=storage, XDG_CONFIG_HOME=os.path.join(storage, "config"), PYTHONPATH=os.path.join(support.BUILD, "python") + more))
    if "No module named" in done.stderr:
        raise support.Skip(done.stderr.strip().splitlines()[-1])
    return done


def assert_not_run(storage, done, word="your key"):
    assert not os.path.exists(marker_of(storage)), "the pickle was run"
    assert word in done.stdout + done.stderr, done.stdout + done.stderr


def evil(storage, mac=True):
    return (b"\0" * 32 if mac else b"") + pickle.dumps(Evil(marker_of(storage)))


LOOPS = """
def loop(config):
    raise ValueError("no")

def trial(config):
    raise ValueError("no")

if __name__ == "__main__":
    try:
        train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=1), run_config=train.RunConfig(name="py", storage_path=place)).fit()
    except Exception:
        pass
    tune.Tuner(trial, run_config=train.RunConfig(name="pytune", storage_path=place)).fit()
"""


def test_the_pickle_is_real(storage):
    """A test that cannot fail is none: unpickled, it makes the marker."""
    pickle.loads(evil(storage, mac=False))
    assert os.path.isdir(marker_of(storage))


def test_restore(storage):
    """trainer.pkl and tuner.pkl that the user's key has not signed, of one's own runs (copied from elsewhere)."""
    python(storage, LOOPS)
    for name in ("py", "pytune/tune_001"):
        path = os.path.join(storage, name, "trainer.pkl" if name == "py" else "tuner.pkl")
        assert os.path.exists(path), path
        with open(path, "wb") as file:
            file.write(evil(storage))
    assert_not_run(storage, python(storage, "train.DataParallelTrainer.restore(place + '/py')\n"))
    assert_not_run(storage, python(storage, "tune.Tuner.restore(place + '/pytune')\n"))


def test_the_exception_of_a_trial(storage):
    """The file in which the driver keeps the exception of a trial, forged."""
    done = python(storage, "from unisono.tune import _analysis\n"
                  "for mac in (b'', bytes(32), os.urandom(32)):\n"
                  "    open(os.path.join(place, _analysis.FAILURE_FILE), 'wb').write(mac + bytes.fromhex(sys.argv[2]))\n"
                  "    error = _analysis._exception_of({'status': 'ERROR', 'dir': place, 'error': 'it failed'})\n"
                  "    assert str(error) == 'it failed', error\nprint('only its text')\n", evil(storage).hex())
    assert_not_run(storage, done, "only its text")


def test_checkpoint(storage):
    """A dictionary with a pickled part that somebody else wrote."""
    make = ("from unisono import _unisono\nfrom unisono.train import Checkpoint\n"
            "_unisono.checkpoint_write(place + '/%s', {'x': {'__unisono__': 'pickle', 'data': bytes.fromhex(sys.argv[2]), 'mac': %s}})\n"
            "Checkpoint.from_directory(place + '/%s').to_dict()\n")
    for number, mac in enumerate(("b''", "b'x' * 32", "'text'", "None", "7", "[]")):
        done = python(storage, make % ("c%d" % number, mac, "c%d" % number), evil(storage, mac=False).hex())
        assert not os.path.exists(marker_of(storage)), "the pickle was run"
        assert done.returncode != 0 and "Error" in done.stderr + "Error" * ("PickleRefused" in done.stderr), done.stderr


def python_with(module, name):
    """An interpreter that has this module."""
    if importlib.util.find_spec(module):
        return sys.executable
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for path in ("/usr/bin/python3", os.path.join(cache, "unisono", "venv", "bin", "python")):
        if os.path.exists(path) and subprocess.run([path, "-c", "import " + module], capture_output=True, check=False).returncode == 0:
            return path
    raise support.Skip("needs " + name)


TORCH = """
import pickle, shutil, tarfile, torch, zipfile, io, struct
from unisono.train.torch import TorchCheckpoint

class Evil:
    def __reduce__(self):
        return os.mkdir, (place + "/owned",)

def legacy(path):
    torch.save({"w": Evil()}, path, _use_new_zipfile_serialization=False)

def plain(path):
    with open(path, "wb") as file:
        pickle.dump(Evil(), file)

def zipped(path):
    torch.save({"w": Evil()}, path)

def tar(path):
    with tarfile.open(path, "w") as archive:
        for name in ("pickle", "storages", "tensors"):
            data = pickle.dumps(Evil())
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))

def script(path):
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("a/constants.pkl", "a/data.pkl"):
            archive.writestr(name, pickle.dumps(Evil()))

for number, make in enumerate((legacy, plain, zipped, tar, script)):
    folder = place + "/t%d" % number
    os.mkdir(folder)
    make(folder + "/model.pt")
    try:
        TorchCheckpoint.from_directory(folder).get_model(torch.nn.Linear(1, 1))
    except Exception as error:
        print(make.__name__, type(error).__name__, str(error)[:100])
    else:
        raise SystemExit(make.__name__ + " was read")
    assert not os.path.exists(place + "/owned"), make.__name__ + " was run"
# Another user puts another file in its place, or writes into it, after it was checked.
real, good, bad = zipfile.ZipFile, place + "/good", place + "/bad"
torch.save(torch.nn.Linear(1, 1).state_dict(), good)
tar(bad)

def replaced(path):
    shutil.copy(bad, path + ".new")
    os.replace(path + ".new", path)

def rewritten(path):
    with open(bad, "rb") as source, open(path, "wb") as target:
        target.write(source.read())

for number, change in enumerate((replaced, rewritten)):
    folder = place + "/r%d" % number
    os.mkdir(folder)
    path = shutil.copy(good, folder + "/model.pt")
    os.chmod(path, 0o666)

    class Checked(real):
        def namelist(self):
            names = real.namelist(self)
            change(path)
            return names
    zipfile.ZipFile = Checked
    TorchCheckpoint.from_directory(folder).get_model(torch.nn.Linear(1, 1))  # of the file that was checked
    zipfile.ZipFile = real
    assert open(path, "rb").read() == open(bad, "rb").read()
model = torch.nn.Linear(2, 3)
twin = TorchCheckpoint.from_model(model).get_model(torch.nn.Linear(2, 3))
assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters()))
print("weights are read")
"""


def test_weights_of_torch(storage):
    done = python(storage, TORCH, executable=python_with("torch", "PyTorch"))
    assert done.returncode == 0 and "weights are read" in done.stdout, done.stdout + done.stderr


FILES = """
import signal
from unisono.train.tensorflow import TensorflowCheckpoint
from unisono.train.torch import TorchCheckpoint

def said(call):
    signal.alarm(20)  # a pipe that is waited for ends the script
    try:
        return "done: %r" % (call(),)
    except Exception as error:
        return "%s: %s" % (type(error).__name__, error)
    finally:
        signal.alarm(0)

def made(name):
    os.mkdir(os.path.join(place, name))
    return os.path.join(place, name), train.Checkpoint.from_directory(os.path.join(place, name))

private = os.path.join(place, "private")
with open(private, "w") as file:
    file.write("mine")
for target in (private, "/dev/zero", "..", "inside/up/../private"):
    path, checkpoint = made("links%d" % len(os.listdir(place)))
    os.mkdir(path + "/inside")
    os.symlink("..", path + "/inside/up")
    os.symlink(target, path + "/weights")
    print("link:", said(lambda: checkpoint.to_directory(path + "_copy")), os.path.lexists(path + "_copy/weights"))
path, checkpoint = made("good")
os.symlink("file", path + "/link")
with open(path + "/file", "w") as file:
    file.write("x")
print("inside:", said(lambda: open(checkpoint.to_directory(path + "_copy") + "/link").read()))
path, checkpoint = made("written")
for name in (".metadata.json", ".metadata.json.new", "preprocessor.json", "preprocessor.json.new"):
    os.symlink(private, os.path.join(path, name))
print("read:", said(checkpoint.get_metadata), said(checkpoint.get_preprocessor))
checkpoint.set_metadata({"a": 1})
checkpoint.set_preprocessor(type("Fitted", (), {"serialize": lambda self: "{}"})())
print("private:", open(private).read(), checkpoint.get_metadata())
path, checkpoint = made("pipes")
for name in (".metadata.json", "preprocessor.json", "model.pt"):
    os.mkfifo(os.path.join(path, name))
print("pipe:", said(checkpoint.get_metadata), said(checkpoint.get_preprocessor))
for name in ("model.h5", "saved_model/saved_model.pb", "model.keras", "model.keras/saved_model.pb"):
    path, _ = made(name.replace("/", "_") + "_of")
    os.makedirs(os.path.dirname(os.path.join(path, name)), exist_ok=True)
    for each in (name, "model.mac"):
        with open(os.path.join(path, each), "wb") as file:
            file.write(bytes(32))
    print("model:", said(TensorflowCheckpoint(path).get_model), "tensorflow" in sys.modules)
"""


def test_files_of_a_checkpoint(storage):
    """Links, pipes and models in a directory that somebody else made: nothing outside is read or written, nothing is waited for, no code is loaded."""
    done = python(storage, FILES)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    links = [line for line in lines if line.startswith("link:")]
    assert len(links) == 4 and all("ValueError" in line and "leads out of it" in line and line.endswith("False") for line in links), done.stdout
    assert "inside: done: 'x'" in lines and "private: mine {'a': 1}" in lines, done.stdout
    assert [line.count("done:") for line in lines if line.startswith(("read:", "pipe:"))] == [0, 0], done.stdout
    models = [line for line in lines if line.startswith("model:")]
    assert len(models) == 4 and all("PickleRefused" in line and "safe_mode=False" in line and line.endswith("False") for line in models), done.stdout


MODELS = """
import json, os, sys, zipfile
from unisono import keras
import unisono.tf as tf

def said(function):
    try:
        return "done: %r" % (function(),)
    except Exception as error:
        return "%s: %s" % (type(error).__name__, error)

marker = os.path.join(sys.argv[1], "executed")
function = {"module": "os", "class_name": "function", "config": "mkdir", "registered_name": "function"}
code = {"class_name": "__lambda__", "config": {"value": "4wAAAAA="}}
program = {"module": "subprocess", "class_name": "Popen", "config": {"args": ["mkdir", marker]}, "registered_name": None}
good = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
good.save("good.keras")

def crafted(number, change):
    path = "%d.keras" % number
    with zipfile.ZipFile("good.keras") as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "config.json":
                config = json.loads(data)
                change(config, config["config"]["layers"][-1])
                data = json.dumps(config)
            target.writestr(name, data)
    return path

changes = [lambda whole, dense: dense.update(class_name="Lambda", config={"function": code, "arguments": {}}),
           lambda whole, dense: dense.update(class_name="Lambda", config={"function": function, "arguments": {"mode": 448}}),
           lambda whole, dense: dense.update(program),
           lambda whole, dense: dense["config"].update(activation=function),
           lambda whole, dense: dense["config"].update(kernel_initializer=program),
           lambda whole, dense: dense["config"].update(kernel_regularizer=program),
           lambda whole, dense: dense.update(module="os", class_name="mkdir", config={"path": marker}, registered_name="Custom>mkdir"),
           lambda whole, dense: whole.update(program),
           lambda whole, dense: whole.update(compile_config={"optimizer": program, "loss": function, "metrics": [program]})]
for number, change in enumerate(changes):
    path = crafted(number, change)
    for load in (keras.models.load_model, tf.keras.models.load_model):
        print("model", number, said(lambda: load(path)))
print("executed", os.path.exists(marker), "os" in dir(keras))
"""


def test_models_that_name_code(storage):
    """Layers, functions and classes of other modules in a .keras file, by every loader of the engine: refused by name, none is looked up."""
    done = python(storage, MODELS, executable=python_with("numpy", "NumPy"))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("model")]
    assert len(lines) == 18 and "executed False" in done.stdout, done.stdout
    assert not [line for line in lines if "done:" in line], done.stdout


def test_every_use_is_reviewed(storage):
    """tools/check-review: each place that could run foreign code is in the table of SECURITY.md; a new one is noticed."""
    tool = os.path.join(support.SOURCE, "tools", "check-review")
    done = subprocess.run([sys.executable, tool], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    top = os.path.join(storage, "copy")
    for name in ("tools/check-review", "SECURITY.md", "python/unisono/_codec.py", "src/base/plugin.c"):
        os.makedirs(os.path.dirname(os.path.join(top, name)), exist_ok=True)
        with open(os.path.join(support.SOURCE, name), encoding="utf-8") as source, open(os.path.join(top, name), "w", encoding="utf-8") as copy:
            copy.write(source.read())
    for line, where in (("import pickle; pickle.loads(data)", "python/unisono/new.py"), ("value = eval(text)", "python/unisono/new.py"),
                        ("getattr(module, name)()", "python/unisono/new.py"), ("int f(void) { return system(command); }", "src/new.c"), ("void *f(void) { return dlopen(path, 1); }", "src/new.c")):
        os.makedirs(os.path.dirname(os.path.join(top, where)), exist_ok=True)
        with open(os.path.join(top, where), "w", encoding="utf-8") as file:
            file.write(line + "\n")
        done = subprocess.run([sys.executable, os.path.join(top, "tools", "check-review")], cwd=top, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and where + ": 1 uses" in done.stdout, (line, done.stdout)
        os.unlink(os.path.join(top, where))


if __name__ == "__main__":
    support.main()
