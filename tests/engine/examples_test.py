"""examples_test.py - the engine's examples, run as a user runs them: each must reach what its first comment states.

The numbers that are asserted are those of the files and of examples/engine/README.md; keras_examples.py beside this file says what Keras reaches. Data that
is not in the repository comes from examples/engine/get-data; where that cannot be had the test is skipped and says so.
"""

import csv
import json
import os
import re
import struct
import subprocess
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "user"))
import support
from support import SOURCE, Skip, run

LICENCES = "/usr/share/common-licenses/"
TABLE = r"Epoch (\d+), Loss: (\d+\.\d{4}), Accuracy: (\d+\.\d{4}), Valid Loss: (\d+\.\d{4}), Valid Accuracy: (\d+\.\d{4})"


def example(name):
    return os.path.join(support.BUILD, "examples", "engine", "engine_" + name)


def need(name):
    """Skips unless the data is there or can be had."""
    done = subprocess.run([os.path.join(SOURCE, "examples/engine/get-data"), name], stderr=subprocess.PIPE, text=True, check=False, stdout=subprocess.DEVNULL)
    if done.returncode == 77:
        raise Skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


def train(storage, name, *options, **more):
    return run([example(name), *options], storage, timeout=more.pop("timeout", 240), **more)


def number(out, label):
    found = re.findall(label + r": (\d+\.\d+)", out)
    assert found, "no %r in:\n%s" % (label, out[-2000:])
    return float(found[-1])


def test_digits_mlp(storage):
    out, _ = train(storage, "digits_mlp")
    assert number(out, "test accuracy") >= 94.5, out[-300:]
    assert len(re.findall(r"^Epoch \d+/20$", out, re.M)) == 20, out[:300]


def test_the_same_seed_gives_the_same_numbers(storage):
    def numbers(seed):
        out, _ = train(storage, "digits_cnn", "--epochs", "2", "--seed", seed)
        return re.findall(r"(?:loss|accuracy): (\d+\.\d+)", out)

    assert numbers("3") == numbers("3") and numbers("3") != numbers("4")


def test_digits_cnn(storage):
    out, _ = train(storage, "digits_cnn")
    assert number(out, "test accuracy") >= 95.5, out[-300:]
    assert "Total params: 38,282" in out, out[:1500]


def test_a_line(storage):
    out, _ = train(storage, "linear", "--quiet")
    lines = out.splitlines()
    assert len(lines) == 4 and lines[3] == "success!" and re.fullmatch(r"dLoss: -\S+, dMSE: -\S+", lines[2]), out
    assert float(re.search(r"'validation_loss': (\S+),", lines[1])[1]) <= 1e-4, out


def test_mnist_mlp(storage):
    need("mnist")
    out, _ = train(storage, "mnist_mlp")
    assert number(out, "test accuracy") >= 87, out[-300:]


def test_mnist_cnn(storage):
    need("mnist")
    out, _ = train(storage, "mnist_cnn")
    assert number(out, "test accuracy") >= 82, out[-300:]
    assert out.count("70/70") == 15, out[-300:]


def test_autoencoder(storage):
    need("mnist")
    out, _ = train(storage, "autoencoder")
    assert number(out, "test loss") <= 0.13, out[-300:]


def test_residual_cnn(storage):
    need("street")
    out, _ = train(storage, "residual_cnn")
    assert number(out, "test accuracy") >= 70, out[-300:]


def test_transformer(storage):
    if not os.path.exists(LICENCES + "GPL-3"):
        raise Skip("no %sGPL-3 on this machine" % LICENCES)
    out, _ = train(storage, "transformer")
    assert number(out, "held-out loss") <= 2.2, out[-600:]


def test_text_fit(storage):
    need("fortunes")
    out, _ = train(storage, "text_fit", "--output", os.path.join(storage, "nnlm-en-dim128"))
    assert number(out, "validation accuracy") >= 83, out
    # EpochDots: the first epoch's line with its names in order, then a dot an epoch; then the time.
    found = re.fullmatch(r"\nEpoch: 0, accuracy:0\.\d{4},  loss:\d\.\d{4},  val_accuracy:0\.\d{4},  val_loss:\d\.\d{4},  \n(\.+)\n \n Time for \d+\.\d+ ms\n(\d+) epochs, .*\n", out)
    assert found and len(found[1]) == int(found[2]) < 100, out
    for part in ("train", "validation"):
        files = os.listdir(os.path.join(storage, "nnlm-en-dim128", part))
        assert len(files) == 1 and files[0].startswith("events.out.tfevents."), files


def test_text_loop(storage):
    need("fortunes")
    out, _ = train(storage, "text_loop", "--output", storage)
    lines = out.splitlines()
    assert len(lines) == 22, out
    table = [re.fullmatch(TABLE, line) for line in lines[:20]]
    assert all(table) and [int(row[1]) for row in table] == list(range(1, 21)), out
    assert re.fullmatch(r"Elapsed time in \(ms\): \d+\.\d\d", lines[20]), lines[20]
    accuracy = re.fullmatch(r"The model accuracy : (\d\d\.\d\d)%", lines[21])
    assert accuracy and float(accuracy[1]) >= 85, lines[21]
    # The evaluation is of the same texts as the last epoch's validation, by another metric.
    assert abs(float(accuracy[1]) - float(table[19][5])) < 0.01, lines[19:]
    with open(os.path.join(storage, "history.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["epochs", "train_loss", "valid_loss", "train_acc", "valid_acc"] and len(rows) == 20, rows[:1]
    for row, line in zip(rows, table):
        shown = [row["epochs"]] + ["%.4f" % float(row[key]) for key in ("train_loss", "train_acc", "valid_loss", "valid_acc")]
        assert shown == list(line.groups()), (row, line[0])


def table_of(out):
    return re.findall(TABLE, out)


def test_one_flag_switches_the_strategy(storage):
    """The same global batch, so the same table, by replicas in one process, workers of a run, and processes started by hand with TF_CONFIG."""
    need("fortunes")
    out, _ = train(storage, "text_loop", "--epochs", "2", "--strategy", "mirrored:2")
    assert out.startswith("Number of devices: 2\n") and len(table_of(out)) == 2, out
    reference = [[float(number) for number in row] for row in table_of(out)]

    def same(text):
        rows = [[float(number) for number in row] for row in table_of(text)]
        assert len(rows) == 2 and all(abs(a - b) < 2e-3 for row, other in zip(rows, reference) for a, b in zip(row, other)), text

    command = [support.program("unisono"), "run", "-n", "2", "--", example("text_loop"), "--epochs", "2", "--strategy", "multi_worker"]
    out, _ = run(command, storage, timeout=120)
    same(out)
    processes = []
    for index in range(2):
        cluster = {"cluster": {"worker": ["localhost:12345", "127.0.0.1:23456"]}, "task": {"type": "worker", "index": index}}
        processes.append(subprocess.Popen(command[5:], cwd=SOURCE, env=dict(os.environ, TF_CONFIG=json.dumps(cluster)), text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    same(outputs[0][0])
    assert outputs[1][0] == "", outputs[1]


def test_fit_under_strategies(storage):
    one, _ = train(storage, "digits_cnn", "--epochs", "2", "--quiet", "--strategy", "none")
    for strategy in ("mirrored:3", "mirrored:cpu:0", "one_device:cpu:0"):
        out, _ = train(storage, "digits_cnn", "--epochs", "2", "--quiet", "--strategy", strategy)
        assert abs(number(out, "test loss") - number(one, "test loss")) < 2e-3, (strategy, out, one)
    out, _ = run([support.program("unisono"), "run", "-n", "3", "--", example("digits_cnn"), "--epochs", "2", "--quiet", "--strategy", "multi_worker"], storage, timeout=120)
    assert abs(number(out, "test loss") - number(one, "test loss")) < 2e-3, (out, one)
    _, err = train(storage, "digits_cnn", "--strategy", "wings", expect=64)
    assert "there are: none, mirrored" in err, err


def test_which_is_faster(storage):
    need("fortunes")
    out, _ = train(storage, "which_is_faster", "--epochs", "3")
    assert re.search(r"^mirrored, 4 devices: Time for \d+\.\d+ ms, .*\none_device, 1 device: Time for \d+\.\d+ ms, .*\n.* is faster, \d+\.\d\d times$", out, re.M), out


def mat_element(kind, data):
    return struct.pack("<II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def mat_matrix(name, dims, kind, data):
    return mat_element(14, mat_element(6, struct.pack("<II", 9, 0)) + mat_element(5, struct.pack("<%di" % len(dims), *dims)) + mat_element(1, name) +
                       mat_element(kind, data))


def write_mat(path, images, labels, count):
    """As SVHN's files are: X column by column, y from 1 to 10, both compressed."""
    parts = []
    for matrix in (mat_matrix(b"X", (32, 32, 3, count), 2, images), mat_matrix(b"y", (count, 1), 2, labels)):
        packed = zlib.compress(matrix)
        parts.append(struct.pack("<II", 15, len(packed)) + packed)
    with open(path, "wb") as file:
        file.write(b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM" + b"".join(parts))


def test_svhn_files(storage):
    """A file of SVHN's format with something that can be learnt: the digit is how bright the upper rows are."""
    path, count = os.path.join(storage, "train_32x32.mat"), 320
    labels = bytes(1 + i % 10 for i in range(count))
    images = b"".join(bytes(25 * (label % 10) if row < 16 else 128 for _ in range(3 * 32) for row in range(32)) for label in labels)
    write_mat(path, images, labels, count)
    out, _ = train(storage, "svhn_loop", "--data", path, "--epochs", "12", "--strategy", "mirrored:2")
    rows = table_of(out)
    assert out.startswith("Number of devices: 2") and len(rows) == 12 and "Elapsed time in (ms): " in out, out
    assert float(rows[-1][1]) < 0.7 * float(rows[0][1]), out
    with open(path, "rb") as file:
        whole = file.read()
    for bad in (b"", whole[:100], whole[:300], whole[:-50], b"MATLAB 7.3" + whole[10:], whole[:140] + b"\xff" * 64 + whole[204:]):
        with open(path, "wb") as file:
            file.write(bad)
        _, err = train(storage, "svhn_loop", "--data", path, expect=1)
        assert "SVHN" in err or "cannot read" in err, err


def sentences(name, count):
    with open(LICENCES + name, encoding="utf-8", errors="replace") as file:
        return [part.strip() for part in re.split(r"[.;:]\s", file.read()) if len(part.split()) > 3][:count]


def test_texts_of_ones_own(storage):
    """Any CSV with question_text,target: here with quotes, commas and line ends inside, CRLF, and the columns in another order."""
    path = os.path.join(storage, "own.csv")
    pairs = [(text, i % 2) for both in zip(sentences("GPL-3", 200), sentences("Apache-2.0", 200)) for i, text in enumerate(both)]
    pairs = pairs * (800 // len(pairs) + 1)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n", quoting=csv.QUOTE_MINIMAL)
        writer.writerow(["target", "qid", "question_text"])
        writer.writerows((target, i, text + ', "quoted"') for i, (text, target) in enumerate(pairs))
    out, _ = train(storage, "text_loop", "--data", path, "--epochs", "8")
    # Texts come more than once, so that the held-out ones are known: it must learn them.
    assert float(re.search(r"The model accuracy : (\d+\.\d\d)%", out)[1]) > 95, out


def test_bad_input_is_a_clear_error(storage):
    _, err = train(storage, "text_loop", "--data", "/nonexistent/texts.csv", expect=1)
    assert "/nonexistent/texts.csv" in err and "get-data" in err and "--data" in err, err
    _, err = train(storage, "mnist_mlp", "--data", "/nonexistent/mnist.csv", expect=1)
    assert "/nonexistent/mnist.csv" in err and "get-data" in err, err
    path = os.path.join(storage, "bad.csv")
    for text in ("question,target\na,1\n", "question_text,target\na,1\nb,yes\n", ""):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        _, err = train(storage, "text_fit", "--data", path, expect=1)
        assert "question_text" in err and path in err, err
    with open(path, "w", encoding="utf-8") as file:
        file.write("1,2,3\n")
    _, err = train(storage, "digits_mlp", "--data", path, expect=1)
    assert "line 1" in err and "64 numbers" in err, err
    with open(path, "w", encoding="utf-8") as file:
        file.write("question_text,target\n" + "one,1\n" * 20)
    _, err = train(storage, "text_loop", "--data", path, expect=1)
    assert "fewer texts than one batch" in err, err
    _, err = train(storage, "digits_mlp", "--epochs", "0", expect=64)
    assert "usage" in err, err


if __name__ == "__main__":
    if sys.argv[1:2] == ["--without"]:
        sys.argv[1:] = [name for name in dir() if name.startswith("test_") and name not in sys.argv[2:]]
    support.main()
