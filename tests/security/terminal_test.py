"""Everything that a terminal or a browser would obey instead of showing, sent through every command that prints.

Each character is put between a Q and a Z, so that its raw form can be found in any output, whatever the command itself sends around it.
"""

import contextlib
import importlib.util
import json
import os
import pty
import re
import select
import subprocess
import sys
import time

import attack
import support

CONTROLS = [chr(code) for code in [*range(1, 0x20), *range(0x7F, 0xA0)]]
DIRECTIONS = [chr(code) for code in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)]
SEQUENCES = ["\033]0;owned\007", "\033]52;c;b3duZWQ=\007", "\033[2J", "\033[31m", "\u009b2J", "\033P$q\033\\", "\033c",
             "\033[8m", "\033[5m", "\033[1;6m", "\033[30;40m", "\033[38;5;8m"]  # conceal, blink, black on black
NOT_UTF8 = [b"\xff", b"\xc0\x9b", b"\x9b2J", b"\xed\xa0\x80", b"\x80"]
UNSAFE = CONTROLS + DIRECTIONS + SEQUENCES
TEXT = "".join("Q%sZ" % each for each in UNSAFE)
RAW = [b"Q" + each.encode() + b"Z" for each in UNSAFE if each not in "\n\t"] + [b"Q" + each + b"Z" for each in NOT_UTF8]
# In a pipe nothing of this may be there at all.
FORBIDDEN = re.compile(b"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]|\xef\xbb\xbf")
BYTES = b"".join(b"Q" + each + b"Z" for each in NOT_UTF8)


def hostile_run(storage, name="evil", status="failed", **more):
    """A run directory in which every text is hostile."""
    directory = os.path.join(storage, name, "run_001")
    os.makedirs(os.path.join(directory, "logs"))
    cause = {"kind": "exit", "rank": 0, "pid": 7, "host": TEXT, "iteration": 1, "code": 3, "signal": 0, "sentence": TEXT, "log": TEXT, "message": TEXT}
    about = {"format": "unisono run", "version": 1, "id": TEXT, "name": TEXT, "run": 1, "status": status, "created": time.time() - 100,
             "updated": time.time() - 50, "finished": time.time() - 40, "unisono": TEXT, "hostname": TEXT, "user": TEXT,
             "controller": {"pid": 1, "start_ticks": 1}, "backend": TEXT, "launcher": TEXT, "num_workers": 2, "program": ["sh", "-c", TEXT],
             "config": {TEXT: TEXT, "list": [TEXT]}, "options": {"max_failures": 3, "environment": [TEXT]}, "attempt": 1,
             "workers": [{"rank": rank, "pid": 1000, "host": TEXT} for rank in range(2)], "cause": cause, "victims": TEXT,
             "error": {"code": TEXT, "message": TEXT}, "latest_checkpoint": TEXT, "best_checkpoint": TEXT, "iterations": 2, "exit_code": 3, **more}
    with open(os.path.join(directory, "run.json"), "w", encoding="utf-8") as file:
        json.dump(about, file)
    with open(os.path.join(directory, "results.jsonl"), "w", encoding="utf-8") as file:
        file.write(json.dumps({"format": "unisono results", "version": 1, "world_size": 2}, separators=(",", ":")) + "\n")
        for iteration in (1, 2):
            for rank in range(2):
                metrics = {"loss": iteration, TEXT[:200]: iteration * 2.0, "text": TEXT, **{"Q%sZ" % each: 1.0 * iteration for each in SEQUENCES + DIRECTIONS}}
                file.write(json.dumps({"attempt": 1, "rank": rank, "iteration": iteration, "metrics": metrics}, separators=(",", ":")) + "\n")
    for rank in range(2):
        with open(os.path.join(directory, "logs", "rank_%d.log" % rank), "wb") as file:
            file.write(b"".join(b"Q" + each.encode() + b"Z\n" for each in UNSAFE) + BYTES + b"\n" + b"Q\0Z\n")
    return directory


def check(output, what):
    """No raw form of any unsafe character."""
    for each in RAW:
        assert each not in output, "%r is in the output of %s: ...%r..." % (each, what, output[max(0, output.index(each) - 60):][:200])


def piped(storage, *words, codes=(0, 1, 64, 70, 125), cwd=None):
    done = subprocess.run([support.program("unisono"), *words], env=support.environment(storage, LANG="C.UTF-8"), cwd=cwd, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=60, check=False)
    assert done.returncode in codes, (words, done.returncode, done.stderr)
    for output in (done.stdout, done.stderr):
        check(output, words)
        found = FORBIDDEN.search(output)
        assert not found, "%r is in the output of %s: ...%r" % (found.group(), words, output[max(0, found.start() - 60):][:200])
    return done.stdout


def on_terminal(storage, *words, cwd=None):
    """What a terminal of 200 columns gets."""
    process, terminal = pty.fork()
    if process == 0:
        with contextlib.suppress(OSError):
            os.chdir(cwd or storage)
            os.execve(support.program("unisono"), ["unisono", *words], support.environment(storage, LANG="C.UTF-8", TERM="xterm", COLUMNS="200"))
        os._exit(99)
    os.write(terminal, b"n\n")  # what asks (rm) gets an answer
    output, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        output += part
    else:
        raise AssertionError("%s did not end: %r" % (words, output))
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) != 99
    check(output.replace(b"\r\n", b"\n"), words)
    return output


READING = [["ls"], ["ls", "-q"], ["ls", "--json"], ["show", "evil"], ["show", "--all", "evil"], ["show", "--json", "evil"], ["why", "evil"], ["why", "--json", "evil"],
           ["logs", "evil"], ["logs", "-r", "1", "evil"], ["plot", "evil"], ["plot", "evil", "-m", "Q\033[2JZ"], ["plot", "--json", "evil"],
           ["stop", "evil"], ["rm", "evil"], ["show", TEXT], ["why", TEXT], ["logs", TEXT], ["plot", TEXT], ["stop", TEXT], ["rm", TEXT], [TEXT],
           ["run", "--resume", TEXT], ["run", "--name", TEXT], ["run", "--" + TEXT], ["tune", TEXT], ["tune", "show", TEXT], ["data", TEXT], ["check", TEXT]]


def test_every_reading_command_in_a_pipe(storage):
    hostile_run(storage)
    for words in READING:
        piped(storage, *words)
        if words[0] in ("ls", "show", "why", "logs", "plot") and "--json" not in words:
            piped_colour = subprocess.run([support.program("unisono"), *words, "--color", "always"], env=support.environment(storage), capture_output=True, timeout=60, check=False)
            check(re.sub(rb"\033\[[0-9;]*m", b"", piped_colour.stdout) if words[0] != "logs" else piped_colour.stdout.replace(b"Q\033[31mZ", b""), words)


def test_every_reading_command_on_a_terminal(storage):
    hostile_run(storage)
    for words in READING:
        if words[0] != "logs":
            on_terminal(storage, *words)
    # Colours of a program's own lines stay, and end with the line.
    output = on_terminal(storage, "logs", "--color", "never", "evil")
    assert b"\\u001b[31m" in output, output


def test_nothing_is_lost(storage):
    """What was escaped can still be read, and JSON is the same JSON."""
    hostile_run(storage)
    assert json.loads(piped(storage, "show", "--json", "evil"))["user"] == TEXT
    assert b"\\u001b]0;owned\\u0007" in piped(storage, "logs", "evil")
    assert b"\\xff" in piped(storage, "logs", "evil")
    assert b"\\u202e" in piped(storage, "why", "evil")


def test_names_of_runs(storage):
    """Directory names can hold any byte but two."""
    for number, each in enumerate(UNSAFE + NOT_UTF8):
        name = os.fsencode("Q") + (each.encode() if isinstance(each, str) else each) + b"Z%d" % number
        if b"/" in name:
            continue
        os.makedirs(os.path.join(os.fsencode(storage), name, b"run_001"))
        with open(os.path.join(os.fsencode(storage), name, b"run_001", b"run.json"), "w", encoding="utf-8") as file:
            json.dump({"format": "unisono run", "version": 1, "status": "failed", "created": 1, "num_workers": 1}, file)
    os.makedirs(os.path.join(storage, "Q\033[2JZ-broken", "run_001"))
    with open(os.path.join(storage, "Q\033[2JZ-broken", "run_001", "run.json"), "w", encoding="utf-8") as file:
        file.write("{")
    for words in (["ls"], ["ls", "-n", "0"], ["ls", "-q"], ["ls", "--json"], ["show"], ["why"], ["logs"], ["plot"]):
        piped(storage, *words)
        on_terminal(storage, *words)


def test_pages(storage):
    hostile_run(storage)
    for option, name in (("--html", "page.html"), ("--svg", "page.svg")):
        path = os.path.join(storage, name)
        for metric in ("Q\033[2JZ", "Q\u202eZ", "Q\u2066Z"):
            piped(storage, "plot", "evil", "-m", metric, option, path, codes=(0,))
            with open(path, "rb") as file:
                page = file.read()
            check(page, name)
            assert not FORBIDDEN.search(page), (name, FORBIDDEN.search(page))
        piped(storage, "plot", "evil", "-m", "Q\u202eZ", option, "-")


def test_tune(storage):
    """Names and choices of a space, texts of a trial's error."""
    program = os.path.join(storage, "trial.sh")
    with open(program, "w", encoding="utf-8") as file:
        file.write('#!/bin/sh\nunisono report loss=1 "Q\033[2JZ=2"\nprintf "Q\\033]0;owned\\007Z\\nQ\\302\\2332JZ\\n" >&2\n')
    os.chmod(program, 0o755)
    spec = os.path.join(storage, "spec.json")
    with open(spec, "w", encoding="utf-8") as file:
        json.dump({"program": [program], "name": "tuned", "metric": "Q\033[2JZ", "mode": "min",
                   "space": {"Q\033]0;owned\007Z": {"$grid_search": ["Q\u202eZ", TEXT]}, "Q\u2066Z": 1}}, file)
    piped(storage, "tune", spec, codes=(0,))
    on_terminal(storage, "tune", spec)
    for words in (["show"], ["best"], ["show", "--csv"], ["plot"]):
        piped(storage, "tune", words[0], "tuned", *words[1:])
        on_terminal(storage, "tune", words[0], "tuned", *words[1:])
    pages = [os.path.join(folder, name) for folder, _, names in os.walk(storage) for name in names if name.endswith(".html")]
    assert pages
    for path in pages:
        with open(path, "rb") as file:
            check(file.read(), path)


def test_run_shows_workers_output(storage):
    """Lines, names of metrics and errors of live workers."""
    script = os.path.join(storage, "worker.sh")
    with open(script, "wb") as file:
        file.write(b"cat <<'END'\n" + b"".join(b"Q" + each.encode() + b"Z\n" for each in UNSAFE if each not in "\n\r\b") + BYTES + b"\nEND\n" +
                   b"".join(b"unisono report 'Q" + each.encode() + b"Z=1'\n" for each in ("\033[2J", "\u009b2J", "\u202e")) + b"exit 3\n")
    for sink in ("none", "print"):
        piped(storage, "run", "-n", "2", "--max-failures", "0", "--sink", sink, "--", "sh", script, codes=(3,))
        on_terminal(storage, "run", "-n", "2", "--max-failures", "0", "--sink", sink, "--color", "never", "--", "sh", script)
    piped(storage, "run", "--dry-run", "-e", "X=" + TEXT, "-n", "2", "--", "sh", "-c", TEXT)
    on_terminal(storage, "run", "--dry-run", "-e", "X=" + TEXT, "-n", "2", "--", "sh", "-c", TEXT)


def test_data(storage):
    path = os.path.join(storage, "evil.csv")
    with open(path, "wb") as file:
        names = [("Q%sZ" % each).encode() for each in UNSAFE if each not in "\n\r\t"] + [b"Q" + each + b"Z" for each in NOT_UTF8[:1]]
        file.write(b",".join(names) + b"\n" + b",".join(names) + b"\n")
    for words in (["schema", path], ["head", path], ["count", path], ["schema", path + TEXT]):
        piped(storage, "data", *words)
        on_terminal(storage, "data", *words)


def python(storage, *words, executable=sys.executable):
    done = subprocess.run([executable, *words], env=support.environment(storage, PYTHONPATH=os.path.join(support.BUILD, "python")),
                          capture_output=True, timeout=120, check=False)
    if b"No module named" in done.stderr:
        raise support.Skip(done.stderr.decode(errors="replace").strip().splitlines()[-1])
    return done


def test_python(storage):
    """What workers print, shown by a trainer and a tuner."""
    script = os.path.join(storage, "script.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write("import sys\nfrom unisono import train, tune\nTEXT = %r\n"
                   "def loop(config):\n    print(TEXT)\n    sys.stdout.flush()\n    sys.stdout.buffer.write(%r)\n"
                   "def trial(config):\n    print(TEXT)\n    raise ValueError(TEXT)\n"
                   "if __name__ == '__main__':\n"
                   "    train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=1), run_config=train.RunConfig(name='py', storage_path=sys.argv[1])).fit()\n"
                   "    tune.Tuner(trial, param_space={TEXT: 1}, run_config=train.RunConfig(name='py', storage_path=sys.argv[1], verbose=2)).fit()\n"
                   % ("".join("Q%sZ" % each for each in UNSAFE if each not in "\r\b\n"), BYTES))
    done = python(storage, script, storage)
    assert b"Q\\u001bZ" in done.stdout, done.stdout + done.stderr
    check(done.stdout + done.stderr, "fit")


NAMES_OF_FILES = """
import json, os, struct, sys, traceback, zipfile
import numpy
from unisono import data
from unisono.data import _incoming, preprocessors
os.chdir(sys.argv[1])
names = json.load(open("names.json", encoding="utf-8"))

def fails(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:
        traceback.print_exc()
        print(error, getattr(error, "message", ""))
    else:
        raise SystemExit("no exception: %r" % (arguments,))

for name in names:
    with open("twice.csv", "w", encoding="utf-8") as file:
        file.write("%s,%s\\n1,2\\n" % (name, name))
    with open("once.csv", "w", encoding="utf-8") as file:
        file.write("%s,b\\n1,2\\n" % name)
    fails(lambda: data.read_csv("twice.csv").take_all())
    dataset = data.read_csv("once.csv")
    print(dataset.schema(), repr(dataset.schema()), dataset)
    fails(lambda: dataset.select_columns(["nope"]).take_all())
    fails(lambda: dataset.map_batches(lambda batch: {name: [1, 2], "b": [1]}).take_all())
    assert dataset.schema().names == [name, "b"]  # data are not changed
    fails(_incoming.from_columns({name: numpy.array([1, 2])}).texts, 0)  # "column %s is not text", of C
    fails(preprocessors.LabelEncoder("label").fit(data.from_items([{"label": "a"}])).inverse_transform_batch, {name: numpy.array([1])})

if sys.argv[2] == "keras":
    from unisono import keras
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save("model.keras")
    with zipfile.ZipFile("model.keras") as file:
        parts = {part: file.read(part) for part in file.namelist()}

    def write(change):
        config = json.loads(parts["config.json"])
        change(config, config["config"]["layers"][-1])
        with zipfile.ZipFile("evil.keras", "w") as file:
            for part, content in parts.items():
                file.writestr(part, json.dumps(config) if part == "config.json" else content)

    for name in names:
        write(lambda config, layer: config.update(class_name=name))
        fails(keras.models.load_model, "evil.keras")
        write(lambda config, layer: layer.update(class_name=name))
        fails(keras.models.load_model, "evil.keras")
        header = json.dumps({name: {"dtype": "none", "shape": [1], "data_offsets": [0, 4]}}).encode()
        with open("evil.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + bytes(4))
        fails(model.load_weights, "evil.safetensors")
        write(lambda config, layer: (config["config"].update(name=name), layer["config"].update(name=name)))
        loaded = keras.models.load_model("evil.keras")
        loaded.summary()
        print(loaded.layers[-1], loaded.variables)
        fails(loaded.get_layer, "nope")
        fails(loaded.set_weights, [])
        fails(loaded.layers[-1].set_weights, [])
        fails(loaded.variables[0].assign, numpy.zeros(7))
print("all tried")
"""


def names_of_files(storage, what, program=NAMES_OF_FILES, executable=None):
    script = os.path.join(storage, "script.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(program)
    with open(os.path.join(storage, "names.json"), "w", encoding="utf-8") as file:
        json.dump(["Q%sZ" % each for each in SEQUENCES + DIRECTIONS + ["\033", "\007", "\x9b", "\x9d"]], file)
    # unisono.data needs NumPy, which the system's Python may have when this one does not.
    own = importlib.util.find_spec("numpy") or not os.path.exists("/usr/bin/python3")
    done = python(storage, script, storage, what, executable=executable or (sys.executable if own else "/usr/bin/python3"))
    assert done.returncode == 0 and b"all tried" in done.stdout, done.stdout + done.stderr
    assert b"Q\\u001b]0;owned\\u0007Z" in done.stdout and b"Q\\u001b]0;owned\\u0007Z" in done.stderr, done.stdout + done.stderr
    for output in (done.stdout, done.stderr):
        check(output, what)
        found = FORBIDDEN.search(output)
        assert not found, "%r: ...%r" % (found.group(), output[max(0, found.start() - 60):][:200])


def test_python_names_of_data_files(storage):
    """Exceptions and schemas that name columns."""
    names_of_files(storage, "data")


def test_python_names_of_model_files(storage):
    """Exceptions and summaries that name classes, layers and entries."""
    if not any(name.startswith("_engine.") for name in os.listdir(os.path.join(support.BUILD, "python", "unisono"))):
        raise support.Skip("built without unisono.keras")
    names_of_files(storage, "keras")


PARQUET = """
import json, os, sys
import pyarrow
from pyarrow import parquet
os.chdir(sys.argv[1])
names = json.load(open("names.json", encoding="utf-8"))
for name in names:
    parquet.write_table(pyarrow.table({name: [1]}), "a.parquet")
    parquet.write_table(pyarrow.table({name: ["text"]}), "b.parquet")
    parquet.write_table(pyarrow.table({"x": [{name: [{name: 1}]}]}), "nested.parquet")
    with open("%s.parquet" % name.replace("/", ""), "wb") as file:
        file.write(b"PAR1 is not all of it")
    fails(data.read_parquet, "a.parquet", columns=["nope"])
    fails(data.read_parquet, ["a.parquet", "b.parquet"])
    fails(lambda: data.read_parquet("nested.parquet").take_all())
    fails(data.read_parquet, "%s.parquet" % name.replace("/", ""))
print("all tried")
"""


def test_python_names_of_parquet_files(storage):
    """The exceptions that pyarrow's readers end in: columns, fields of structures, files."""
    executable = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "unisono", "venv", "bin", "python")
    if not os.path.exists(executable):
        raise support.Skip("tools/python-env has not been run")
    names_of_files(storage, "parquet", NAMES_OF_FILES.partition("for name in names:")[0] + PARQUET, executable)


def test_python_foreign_runs(storage):
    """The result of a run whose every text is hostile."""
    directory = hostile_run(storage)
    script = os.path.join(storage, "script.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write("import sys, traceback\nfrom unisono import train\nresult = train.Result.from_path(sys.argv[1])\nprint(result, result.error, str(result.checkpoint))\n"
                   "try:\n    raise result.error\nexcept Exception:\n    traceback.print_exc()\n"
                   "try:\n    result.get_best_checkpoint('nope', 'max')\nexcept RuntimeError:\n    traceback.print_exc()\n")
    done = python(storage, script, directory)
    assert done.returncode == 0 and b"Q\\u001bZ" in done.stdout and b"Q\\u001bZ" in done.stderr, done.stdout + done.stderr
    check(done.stdout + done.stderr, "Result.from_path")


def test_python_and_c_agree(storage):
    """The two functions escape the same characters in the same way."""
    directory = os.path.join(hostile_run(storage), "logs")
    everything = "".join(chr(code) for code in range(1, 0x3100) if chr(code) not in "\r\b\n") + "".join(map(chr, range(0xFB00, 0x10000))) + "".join(map(chr, range(0xE0000, 0xE0100)))
    lines = [everything[at:at + 50].encode() for at in range(0, len(everything), 50)] + [BYTES]
    with open(os.path.join(directory, "rank_0.log"), "wb") as file:
        file.write(b"\n".join(lines) + b"\n")
    shown = python(storage, "-c", "import sys; from unisono import _safe; sys.stdout.buffer.write(''.join(_safe.line(line.rstrip(b'\\n'), None) + '\\n' for line in open(sys.argv[1], 'rb')).encode())",
                   os.path.join(directory, "rank_0.log"))
    assert shown.returncode == 0, shown.stderr
    by_command = piped(storage, "logs", "-r", "0", "evil")
    assert shown.stdout == by_command, next((a, b) for a, b in zip(shown.stdout.split(b"\n"), by_command.split(b"\n")) if a != b)


if __name__ == "__main__":
    support.main()
