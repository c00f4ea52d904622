"""Where reports go: names of metrics that would be paths, lines or code elsewhere, and a tracking server that never stops talking."""

import csv
import http.server
import os
import subprocess
import sys
import threading
import time

import attack  # finds support
import support

NAMES = """
import json, os, sys
place = sys.argv[1]
names = ["../" * 12 + place.lstrip("/") + "/escaped", place + "/escaped", "a/../../../../../../escaped", "..", ".", " ", "a\\\\r\\\\nHost: evil", "a\\\\nb", "\\\\u202eabc",
         "x" * 5000, "a//b", "a/", "/", "~/x", "$(touch %s/owned)" % place, "a\\\\\\\\..\\\\\\\\b", "a/./b", "loss", "loss/val", "../../meta.yaml", "../../tags/mlflow.user",
         "d/" * 300 + "x", "=cmd()", ",", '"', "\\\\x1b]0;owned\\\\x07"]
for group in [[name] for name in names] + [names]:
    os.write(int(os.environ["UNISONO_REPORT_FD"]), (json.dumps({"metrics": {name: 1.5 for name in group}}) + "\\\\n").encode())
""".replace("\\\\", "\\")


def run(storage, worker, *words, **variables):
    script = os.path.join(storage, "worker.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(worker)
    return subprocess.run([support.program("unisono"), "run", "-n", "1", "--name", "sinks", "--max-failures", "0", *words, "--", sys.executable, script, storage],
                          env=support.environment(storage, **variables), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60,
                          check=False)


def everything(storage):
    return {os.path.join(place, name) for place, folders, names in os.walk(storage) for name in folders + names}


def test_names_that_are_paths(storage):
    done = run(storage, NAMES, "--sink", "csv,json,tensorboard,mlflow")
    assert done.returncode == 0, done.stderr
    assert not [path for path in everything(storage) if os.path.basename(path) == "owned"], "a name was executed"
    top = os.path.join(support.environment(storage)["UNISONO_RESULTS"], "sinks")
    escaped = [path for path in everything(storage) if "escaped" in os.path.basename(path)]
    assert escaped and all(path.startswith(top + os.sep) for path in escaped), escaped
    outside = [path for path in everything(storage) if not path.startswith(top) and path != os.path.join(storage, "worker.py")]
    assert not outside, outside
    metas = [path for path in everything(storage) if os.path.basename(path) == "meta.yaml" and "metrics" not in path]
    for path in metas:
        with open(path, encoding="utf-8") as file:
            assert "1.5" not in file.read(), "a metric is in %s" % path
    with open(os.path.join(top, "run_001", "progress.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert len({len(row) for row in rows}) == 1, "a name has begun a line of its own"


class Endless(http.server.BaseHTTPRequestHandler):
    """Begins an answer and never ends it."""

    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b" " * 65536)
        except OSError:
            return

    do_GET = do_PUT = do_POST

    def log_message(self, *words):
        pass


def test_a_server_that_never_ends(storage):
    """The run ends all the same, and soon: an answer has an end, or none is read."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    begun = time.monotonic()
    done = run(storage, NAMES, "--sink", "mlflow", MLFLOW_TRACKING_URI="http://127.0.0.1:%d" % server.server_address[1])
    server.shutdown()
    server.server_close()
    assert 0 <= done.returncode < 128, done.stderr
    if "libunisono-mlflow" in done.stderr:
        raise support.Skip("needs libcurl")
    assert "MLflow" in done.stderr or "mlflow" in done.stderr, done.stderr
    assert time.monotonic() - begun < 20, "it took %.1f s" % (time.monotonic() - begun)


if __name__ == "__main__":
    support.main()
