#!/usr/bin/env python3
"""What users rely on in the unisono command, against run directories made up here.

Usage: cli_test.py UNISONO FIXTURE DOCS/CLI.MD [TEST...]. Needs only Python's own library.
"""
import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from terminal_fixture import run_in_terminal

UNISONO, FIXTURE, CLI_MD = (os.path.abspath(path) for path in sys.argv[1:4])
os.umask(0o022)  # a run that others can write to is refused


def start_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rsplit(")", 1)[1].split()[19])


class Base(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="unisono-cli-")
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.storage = os.path.join(self.root, "results")
        os.mkdir(self.storage)
        self.environment = {"PATH": os.environ["PATH"], "HOME": self.root, "UNISONO_RESULTS": self.storage,
                            "TERM": "xterm", "LANG": "C.UTF-8", "COLUMNS": "80"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH"):
            if name in os.environ:
                self.environment[name] = os.environ[name]

    def call(self, *words, code=0, env=None, stdin="", **keywords):
        done = subprocess.run([UNISONO, *words], env={**self.environment, **(env or {})}, input=stdin,
                              capture_output=True, text=True, timeout=60, check=False, **keywords)
        self.assertNotIn("runtime error", done.stderr)
        self.assertEqual(done.returncode, code, f"{words}: {done.stdout}{done.stderr}")
        return done

    def make_run(self, name="digits", number=1, status="succeeded", workers=2, iterations=5, created=None, cause=None,
                 controller=None, attempt=1, journal=(), values=None, **more):
        """A run directory as docs/formats.md says; values(rank, iteration) gives the metrics."""
        directory = os.path.join(self.storage, name, f"run_{number:03d}")
        os.makedirs(os.path.join(directory, "logs"))
        created = created if created is not None else time.time() - 100
        about = {"format": "unisono run", "version": 1, "id": f"{name}/run_{number:03d}", "name": name, "run": number,
                 "status": status, "created": created, "updated": created + 12, "finished": created + 12.5,
                 "unisono": "0.1.0", "hostname": os.uname().nodename, "user": "me",
                 "controller": controller or {"pid": 999999999, "start_ticks": 1}, "backend": "none",
                 "launcher": "local", "num_workers": workers, "program": ["python3", "train.py", "a b"],
                 "config": {"lr": 0.1}, "options": {"max_failures": 3}, "attempt": attempt,
                 "workers": [{"rank": rank, "pid": 1000 + rank, "host": "node1"} for rank in range(workers)],
                 "cause": cause, "victims": "", "error": None, "latest_checkpoint": None, "best_checkpoint": None,
                 "iterations": iterations, "exit_code": 0, **more}
        with open(os.path.join(directory, "run.json"), "w", encoding="utf-8") as file:
            json.dump(about, file)
        with open(os.path.join(directory, "results.jsonl"), "w", encoding="utf-8") as file:
            file.write(json.dumps({"format": "unisono results", "version": 1, "world_size": workers}) + "\n")
            for iteration in range(1, iterations + 1):
                for rank in range(workers):
                    metrics = values(rank, iteration) if values else {"loss": 1 / iteration + rank, "name": "x"}
                    line = {"attempt": 1, "rank": rank, "iteration": iteration, "metrics": metrics}
                    bad = {key: "NaN" for key, value in metrics.items() if value != value}
                    if bad:
                        line["nonfinite"] = bad
                        line["metrics"] = {key: None if key in bad else value for key, value in metrics.items()}
                    file.write(json.dumps(line, separators=(",", ":")) + "\n")
        for rank in range(workers):
            with open(os.path.join(directory, "logs", f"rank_{rank}.log"), "w", encoding="utf-8") as file:
                file.writelines(f"rank {rank} line {line}\n" for line in range(1, 31))
        if journal:
            subprocess.run([FIXTURE, "journal", os.path.join(directory, "journal.jsonl")], check=True, text=True,
                           input="".join(json.dumps(record) + "\n" for record in journal))
        return directory

    def failed_run(self, **more):
        cause = {"class": "signal", "rank": 1, "host": "node1", "pid": 1001, "signal": 9, "attempt": 2, "iteration": 5,
                 "time": time.time(), "message": "rank 1 (pid 1001) was killed by signal 9, Killed",
                 "log_tail": [f"tail {line}" for line in range(25)]}
        journal = [{"event": "cause", "time": 1.0, "attempt": 1, "class": "exit", "rank": 0, "exit_code": 3,
                    "iteration": 2}]
        arguments = {"status": "failed", "cause": cause, "attempt": 2, "exit_code": 137, "journal": journal,
                     "victims": "rank 0 was stopped because of it", **more}
        return self.make_run(**arguments)

    def live_run(self, program, ready=False, **more):
        """A run whose controller is this program: it has the run's journal open, as controllers have."""
        held = os.path.join(self.root, "held")
        with open(held, "w+", encoding="utf-8") as journal:
            child = subprocess.Popen(program, stdin=journal, stdout=subprocess.PIPE if ready else None)
        self.addCleanup(child.wait)
        if ready:
            self.addCleanup(child.stdout.close)
        self.addCleanup(child.kill)
        if ready:
            child.stdout.readline()
        controller = {"pid": child.pid, "start_ticks": start_ticks(child.pid)}
        directory = self.make_run(status="running", finished=None, controller=controller, **more)
        path = os.path.join(directory, "journal.jsonl")
        with open(held, "w", encoding="utf-8") as journal, contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as made:
            journal.write(made.read())
        os.replace(held, path)
        return child, directory


class Usage(Base):
    def test_nothing_is_usage_error_with_overview(self):
        self.assertIn("Commands", self.call(code=64).stderr)

    def test_help_of_every_command(self):
        overview = self.call("help").stdout
        for name in ("run report ls show logs why plot stop rm check completion version help").split():
            text = self.call(name, "--help").stdout
            self.assertIn(f"  {name}", overview)
            self.assertIn(f"Usage: unisono {name}", text)
            self.assertIn("Examples", text)
            self.assertTrue(all(len(line) <= 80 for line in text.splitlines() if not line.startswith("  unisono")
                                and not line.startswith("  echo")), text)

    def test_suggestions(self):
        self.assertIn("Did you mean `unisono show`?", self.call("sohw", code=64).stderr)
        self.assertIn("Did you mean --json?", self.call("ls", "--jsno", code=64).stderr)
        self.assertIn("Did you mean torch?", self.call("run", "-b", "troch", "--", "true", code=64).stderr)
        self.assertIn("unisono help", self.call("qqqqqqqqq", code=64).stderr)
        self.make_run("digits")
        self.assertIn("Did you mean digits?", self.call("show", "digit", code=1).stderr)
        self.assertIn("Did you mean loss?", self.call("plot", "-m", "los", "digits", code=1).stderr)

    def test_bad_words(self):
        for words, hint in ((("run",), "no program given"), (("run", "-n", "0", "--", "true"), "at least 1"),
                            (("run", "-n", "two", "--", "true"), "an integer"),
                            (("run", "-t", "5 parsecs", "--", "true"), "90s"),
                            (("run", "--memory", "much", "--", "true"), "512M"),
                            (("run", "--keep", "-3", "--", "true"), "--keep"),
                            (("run", "--keep-best", "loss", "--", "true"), "loss:min"),
                            (("run", "--set", "lr", "--", "true"), "KEY=VALUE"),
                            (("run", "--env", "X", "--", "true"), "X is not set"),
                            (("run", "--sink", "tensorbord", "--", "true"), "tensorboard"),
                            (("ls", "a", "b"), "unexpected argument"), (("stop",), "RUN"), (("ls", "-n"), "requires an argument: N"),
                            (("ls", "--json=1"), "takes no argument"), (("report",), "nothing to report"),
                            (("plot", "--smooth", "1"), "--smooth"), (("plot", "--width", "0"), "--width"), (("ls", "-n", "-3"), "--limit -3"),
                            (("completion", "tcsh"), "bash")):
            with self.subTest(words=words):
                self.assertIn(hint, self.call(*words, code=64).stderr)

    def test_options_of_data_act_or_are_refused(self):
        path = os.path.join(self.root, "a.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("x,y\n1,2\n3,4\n5,6\n")
        words = ("plan", "head", "schema", "count")
        for option, value, own in (("workers", "2", "plan"), ("rows", "1", "head")):
            for word in words:
                if word == own:
                    plain = self.call("data", word, path).stdout
                    self.assertNotEqual(self.call("data", "--" + option, value, word, path).stdout, plain)
                else:
                    done = self.call("data", "--" + option, value, word, path, code=64)
                    self.assertIn(f"--{option} has no effect on `data {word}`; it applies to: {own}", done.stderr)
        for word in words:  # JSON everywhere: head and count print it in any case
            for line in [self.call("data", "--json", word, path).stdout] if word != "head" else self.call("data", "--json", word, path).stdout.splitlines():
                json.loads(line)
            self.assertIn("--table", self.call("data", "--table", "t", "--no-header", word, path, code=64).stderr)

    def test_bad_config_file(self):
        path = os.path.join(self.root, "config.json")
        for text, hint in (("{", "config.json"), ("[1]", "dictionary")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = self.call("run", "--config", path, "--", "true", code=64 if text == "[1]" else 125)
            self.assertIn(hint, done.stderr)
        self.assertEqual(os.listdir(self.storage), [])

    def test_version(self):
        self.assertEqual(self.call("--version").stdout, self.call("version").stdout)
        self.assertIn("version", json.loads(self.call("version", "--json").stdout))

    def test_markdown_is_the_document(self):
        with open(CLI_MD, encoding="utf-8") as file:
            self.assertEqual(self.call("help", "--markdown").stdout, file.read(),
                             "make it anew: unisono help --markdown > docs/cli.md")

    def test_man_page(self):
        page = self.call("help", "--man").stdout
        for words in (".TH UNISONO 1", ".SH \"EXIT STATUS\"", "num\\-workers", "unisono why"):
            self.assertIn(words, page)
        if shutil.which("man"):
            done = subprocess.run(["man", "--warnings", "-l", "-"], input=page, capture_output=True, text=True,
                                  timeout=60, env={**self.environment, "MANWIDTH": "80"}, check=False)
            self.assertEqual(done.stderr, "")
            self.assertIn("EXIT STATUS", done.stdout)
        if shutil.which("mandoc"):
            done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=page, capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual(done.stdout, "")

    def test_completion_in_bash(self):
        script = os.path.join(self.root, "complete.bash")
        with open(script, "w", encoding="utf-8") as file:
            file.write(self.call("completion", "bash").stdout)
        self.make_run("digits")
        tests = (("unisono sh", "show"), ("unisono run --num", "--num-workers"), ("unisono run -b t", "tensorflow torch"),
                 ("unisono show dig", "digits/run_001"), ("unisono help comp", "completion"))
        for line, wanted in tests:
            words = line.split()
            shell = (f"PATH={os.path.dirname(UNISONO)}:$PATH; set -u; source {script}; COMP_WORDS=({line}); "
                     f"COMP_CWORD={len(words) - 1}; _unisono; echo \"${{COMPREPLY[*]}}\"")
            done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=20,
                                  env=self.environment, check=False)
            self.assertEqual((done.stdout.strip(), done.stderr), (wanted, ""), line)

    def test_completion_in_other_shells(self):
        for shell, check in (("zsh", "-n"), ("fish", "--no-execute")):
            script = self.call("completion", shell).stdout
            self.assertIn("num-workers", script)
            if shutil.which(shell):
                path = os.path.join(self.root, shell)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(script)
                done = subprocess.run([shell, check, path], capture_output=True, text=True, timeout=20, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_full_disk_of_output(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([UNISONO, "help"], stdout=full, stderr=subprocess.PIPE, timeout=20, check=False)
        self.assertEqual(done.returncode, 70)


class Looking(Base):
    def test_ls_of_nothing(self):
        self.assertIn("No runs", self.call("ls").stdout)
        self.assertEqual(json.loads(self.call("ls", "--json").stdout), [])
        shutil.rmtree(self.storage)
        self.assertIn("No runs", self.call("ls").stdout)

    def test_ls(self):
        now = time.time()
        self.make_run("old", created=now - 7200)
        self.make_run("new", created=now - 10)
        self.make_run("killed", status="running", created=now - 100)
        self.failed_run(name="bad", created=now - 200)
        names = ["new/run_001", "killed/run_001", "bad/run_001", "old/run_001"]
        self.assertEqual(self.call("ls", "-q").stdout.split(), names)
        runs = json.loads(self.call("ls", "--json").stdout)
        self.assertEqual([run["status"] for run in runs], ["succeeded", "interrupted", "failed", "succeeded"])
        text = self.call("ls").stdout
        self.assertIn("2 h ago", text)
        self.assertIn("interrupted", text)
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()), text)
        self.assertNotIn("\033", text)
        self.assertEqual(self.call("ls", "-q", "--status", "failed").stdout.split(), ["bad/run_001"])
        self.assertEqual(self.call("ls", "-q", "ol").stdout.split(), ["old/run_001"])
        self.assertEqual(self.call("ls", "-q", "-n", "2").stdout.split(), names[:2])
        self.assertIn("loss", self.call("ls", "--metric", "loss").stdout)
        self.assertIn("0.2", self.call("ls", "--metric", "loss", "new").stdout)

    def test_damaged_run_is_passed_over(self):
        self.make_run("good")
        directory = self.make_run("bad")
        with open(os.path.join(directory, "run.json"), "w", encoding="utf-8") as file:
            file.write('{"format": "uni')
        done = self.call("ls", "-q")
        self.assertEqual(done.stdout.split(), ["good/run_001"])
        self.assertIn("bad/run_001", done.stderr)

    def test_newer_format_is_refused(self):
        self.make_run("future", version=99)
        self.assertIn("newer", self.call("show", "future", code=70).stderr)

    def test_ls_of_hundreds_is_quick(self):
        directory = self.make_run("many", iterations=1)
        for number in range(2, 401):
            other = os.path.join(self.storage, "many", f"run_{number:03d}")
            shutil.copytree(directory, other)
        begun = time.monotonic()
        self.assertEqual(len(self.call("ls", "-q").stdout.split()), 400)
        self.assertLess(time.monotonic() - begun, 5 * max(1, os.getloadavg()[0] / os.cpu_count()))
        self.assertIn("375 older", self.call("ls").stdout)

    def test_names(self):
        first = self.make_run("digits", 1)
        self.make_run("digits", 2, created=time.time() - 50)
        self.make_run("digits", 10, created=time.time() - 40)
        self.make_run("other", 1, created=time.time() - 10)

        def shown(*words):
            return json.loads(self.call("show", "--json", *words).stdout)["id"]
        self.assertEqual(shown(), "other/run_001")
        self.assertEqual(shown("digits"), "digits/run_010")
        self.assertEqual(shown("digits/run_002"), "digits/run_002")
        self.assertEqual(shown(first), "digits/run_001")
        self.assertIn("no run", self.call("show", "zzzzzzzz", code=1).stderr)

    def test_show(self):
        directory = self.make_run()
        subprocess.run([FIXTURE, "checkpoint", directory, "2", "0.5"], check=True)
        subprocess.run([FIXTURE, "checkpoint", directory, "4", "0.25"], check=True)
        text = self.call("show").stdout
        for words in ("digits/run_001", "python3 train.py 'a b'", "loss 0.2", "checkpoint_000002", directory):
            self.assertIn(words, text)
        about = json.loads(self.call("show", "--json").stdout)
        self.assertEqual([entry["iteration"] for entry in about["checkpoints"]], [2, 4])
        self.assertEqual(about["last_reports"][1]["metrics"]["loss"], 1.2)
        os.unlink(os.path.join(directory, "checkpoints", "checkpoint_000001", "dict.msgpack"))
        self.assertIn("damaged", self.call("show").stdout)

    def test_show_of_many_checkpoints(self):
        directory = self.make_run()
        for iteration in range(1, 15):
            subprocess.run([FIXTURE, "checkpoint", directory, str(iteration), "0.5"], check=True)
        text = self.call("show").stdout
        self.assertEqual(text.count("checkpoint_0000"), 10)
        self.assertIn("checkpoint_000014", text)
        self.assertIn("4 older checkpoints not shown (--all shows them)", text)
        everything = self.call("show", "--all").stdout
        self.assertEqual(everything.count("checkpoint_0000"), 14)
        self.assertNotIn("not shown", everything)
        self.assertEqual(len(json.loads(self.call("show", "--json").stdout)["checkpoints"]), 14)

    def test_show_of_a_run_that_is_over_has_no_pids(self):
        directory = self.make_run()
        with open(os.path.join(directory, "run.json"), encoding="utf-8") as file:
            pid = json.load(file)["workers"][0]["pid"]
        self.assertTrue(pid)
        self.assertNotIn(str(pid), self.call("show").stdout)  # may belong to another process by now

    def test_logs(self):
        directory = self.make_run()
        with open(os.path.join(directory, "logs", "rank_0.log.1"), "w", encoding="utf-8") as file:
            file.write("older line\n")
        text = self.call("logs").stdout.splitlines()
        self.assertEqual(text[0], "node1:0 | older line")
        self.assertEqual(len(text), 61)
        self.assertEqual(self.call("logs", "--rank", "1", "-n", "2").stdout, "rank 1 line 29\nrank 1 line 30\n")
        self.assertEqual(self.call("logs", "-n", "0").stdout, "")
        self.assertEqual(len(self.call("logs", "-r", "0", "-n", "500").stdout.splitlines()), 30)
        self.assertIn("ranks 0 to 1", self.call("logs", "--rank", "7", code=64).stderr)
        self.assertIn("ranks 0 to 1", self.call("logs", "--rank", "x", code=64).stderr)

    def test_logs_follow_with_rotation(self):
        child, directory = self.live_run(["sleep", "60"], workers=1)
        path = os.path.join(directory, "logs", "rank_0.log")
        with open(path, "w", encoding="utf-8") as file:
            file.write("first\n")
        with subprocess.Popen([UNISONO, "logs", "-f", "--prefix", "never"], env=self.environment, text=True,
                              stdout=subprocess.PIPE) as follow:
            self.assertEqual(follow.stdout.readline(), "first\n")
            time.sleep(0.2)
            with open(path, "a", encoding="utf-8") as file:
                file.write("sec")
                file.flush()
                time.sleep(0.2)
                file.write("ond\nunseen\n")
                file.flush()
                shutil.copy(path, path + ".1.tmp")  # as the cap does it: copy, empty the file, then give the name
                os.truncate(path, 0)
                os.rename(path + ".1.tmp", path + ".1")
            with open(path, "a", encoding="utf-8") as file:
                file.write("new\n")
            time.sleep(0.3)
            with open(path, "a", encoding="utf-8") as file:
                file.write("bar 10%\rbar 100%\nlast without end")
            lines = [follow.stdout.readline() for _ in range(4)]
            self.assertEqual(lines, ["second\n", "unseen\n", "new\n", "bar 100%\n"])
            child.kill()
            child.wait()
            self.assertEqual(follow.stdout.read(), "last without end\n")
            self.assertEqual(follow.wait(20), 0)

    def test_why(self):
        directory = self.failed_run()
        subprocess.run([FIXTURE, "checkpoint", directory, "4", "0.25"], check=True)
        text = self.call("why").stdout
        for words in ("rank 1 was killed by SIGKILL, signal 9", "node1, pid 1001, attempt 2, after iteration 5",
                      "rank 0 was stopped because of it", "checkpoint_000001, taken at iteration 4 of 5",
                      "unisono logs digits/run_001 --rank 1", "unisono run --resume digits/run_001", "tail 24",
                      "rank 0 ended with exit code 3 after iteration 2"):
            self.assertIn(words, text)
        self.assertNotIn("tail 4\n", text)  # only the last 20 lines
        answer = json.loads(self.call("why", "--json").stdout)
        self.assertEqual((answer["resumable"], answer["cause"]["class"]), (True, "signal"))

    def test_why_cleans_what_workers_said(self):
        self.failed_run(cause={"class": "error", "rank": 0, "host": "h", "pid": 1, "attempt": 1, "iteration": 1,
                               "message": "bad \033]0;title\007 news", "log_tail": ["\033[2Jgone"]})
        self.assertNotIn("\033", self.call("why").stdout)

    def test_why_of_every_class(self):
        for index, name in enumerate(("exit signal error oom stopped silent no_hello preempted disk_full time_limit "
                                      "no_progress controller agent launch checkpoint internal new_kind").split(), 1):
            self.failed_run(name="each", number=index, cause={"class": name, "rank": 0, "attempt": 1, "iteration": 0})
            answer = json.loads(self.call("why", "--json", f"each/run_{index:03d}").stdout)
            self.assertTrue(answer["sentence"])
            self.assertNotIn("%", answer["sentence"])
            self.assertEqual(bool(answer["advice"]), name != "new_kind", name)

    def test_why_of_others(self):
        self.make_run("good")
        self.assertIn("every rank succeeded", self.call("why", "good").stdout)
        # The victims in run.json are those of the previous failure: the controller's death ended no worker.
        self.failed_run(name="died", status="running", attempt=3)
        self.assertNotIn("victims", self.call("why", "died").stdout)
        self.assertEqual(json.loads(self.call("why", "--json", "died").stdout)["victims"], "")
        self.make_run("killed", status="running")
        text = self.call("why", "killed").stdout
        self.assertIn("controller", text)
        self.assertIn("unisono run --resume killed/run_001", text)
        child, directory = self.live_run(["sleep", "60"], name="alive")
        self.assertIn("running", self.call("why", "alive").stdout)
        path = os.path.join(directory, "run.json")
        with open(path, encoding="utf-8") as file:
            about = json.load(file)
        about["workers"] = [{"rank": 0, "pid": child.pid, "host": "h"}, {"rank": 1, "pid": 999999999, "host": "h"}]
        about["iterations"] = 0
        with open(path, "w", encoding="utf-8") as file:
            json.dump(about, file)
        child.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        text = self.call("why", "alive").stdout
        self.assertIn("frozen", text)
        self.assertIn("no such process", text)
        self.assertIn("5", self.call("ls", "alive").stdout.splitlines()[1].split())  # from the reports, not run.json

    def test_plot(self):
        self.make_run(iterations=50)
        text = self.call("plot", "--height", "8").stdout
        self.assertIn("loss", text)
        self.assertTrue(any("\u2800" <= mark <= "\u28ff" for mark in text))
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()), text)
        plain = self.call("plot", env={"LANG": "C"}).stdout
        self.assertTrue(plain.isascii())
        curves = json.loads(self.call("plot", "--json", "--rank", "all").stdout)
        self.assertEqual([curve["y"][49] for curve in curves], [0.02, 1.02])
        mean = json.loads(self.call("plot", "--json").stdout)
        self.assertAlmostEqual(mean[0]["y"][0], 1.5)
        self.assertEqual(json.loads(self.call("plot", "--json", "-a", "max").stdout)[0]["y"][0], 2)

    def test_plot_page(self):
        self.make_run("a<b", iterations=5000)
        svg, html = os.path.join(self.root, "x.svg"), os.path.join(self.root, "x.html")
        self.call("plot", "--svg", svg, "--html", html, "--log")
        from xml.dom import minidom
        picture = minidom.parse(svg)
        self.assertEqual(picture.documentElement.tagName, "svg")
        with open(html, encoding="utf-8") as file:
            page = file.read()
        self.assertIn("a&lt;b/run_001", page)
        self.assertNotIn("src=", page)
        self.assertNotIn("a<b", page)

    def test_where_pages_go(self):
        self.make_run()
        page = os.path.join(self.root, "x.html")
        mask = os.umask(0o027)
        try:
            self.assertEqual(self.call("plot", "--html", page).stdout, "wrote %s\n" % page)
        finally:
            os.umask(mask)
        self.assertEqual(os.stat(page).st_mode & 0o777, 0o640)
        self.assertIn("is a directory", self.call("plot", "--html", self.root, code=64).stderr)
        self.assertIn("directory %s/nowhere: No such" % self.root, self.call("plot", "--svg", self.root + "/nowhere/x.svg", code=1).stderr)
        link = os.path.join(self.root, "out")  # as /dev/stdout is one: it must stay what it is
        os.symlink("/proc/self/fd/1", link)
        for name in ("-", link):
            text = self.call("plot", "--svg", name).stdout
            self.assertTrue(text.startswith("<svg") and text.endswith("</svg>\n"), text[-80:])
        self.assertTrue(os.path.islink(link))

    def test_iterations_are_whole(self):
        self.make_run(iterations=3)
        axis = self.call("plot", env={"LANG": "C"}).stdout.splitlines()[-3].split()
        self.assertEqual(axis, ["1", "2", "3"])

    def test_plot_of_nan(self):
        self.make_run(values=lambda rank, iteration: {"loss": float("nan") if iteration > 2 else 1.0}, workers=1)
        self.assertIn("3 not finite", self.call("plot").stdout)
        self.make_run("all", values=lambda rank, iteration: {"loss": float("nan")}, workers=1)
        self.assertIn("no finite numbers", self.call("plot", "all").stdout)
        self.assertIn("NaN", self.call("show", "all").stdout)

    def test_plot_of_a_diverged_run(self):
        self.make_run(values=lambda rank, iteration: {"loss": 1e30 if iteration == 20 else 3 / iteration}, workers=1, iterations=30)
        text = self.call("plot", "--height", "10", env={"LANG": "C"}).stdout
        self.assertIn("1 outside the axis", text)
        self.assertIn("max 1e+30", text)
        self.assertGreater(sum("*" in line for line in text.splitlines()), 6, text)  # a curve, not a flat line
        page = self.call("plot", "--html", "-").stdout
        self.assertIn("1 point outside the axis", page)
        self.assertNotIn("outside the axis", self.call("plot", "--log").stdout)

    def test_plot_of_nothing(self):
        self.make_run(iterations=0)
        self.assertIn("no reports", self.call("plot", code=1).stderr)

    def test_check(self):
        text = self.call("check", "--fast").stdout
        for words in ("cores", "memory", "open files", "GPUs", "writable", "mpirun", "python3"):
            self.assertIn(words, text)
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()), text)
        levels = {entry["name"]: entry["level"] for entry in json.loads(self.call("check", "--fast", "--json").stdout)}
        self.assertEqual(levels["cores"], "ok")
        whole = {entry["name"]: entry for entry in json.loads(self.call("check", "--json").stdout)}
        self.assertIn("one worker started", whole["trial run"]["text"])
        broken = self.call("check", code=1, env={"UNISONO_AGENT": "/nowhere/agent"}).stdout
        self.assertIn("/nowhere/agent", broken)
        blocked = os.path.join(self.root, "file")
        with open(blocked, "w", encoding="utf-8") as file:
            file.write("x")
        told = self.call("check", "--fast", "--storage", blocked, code=1).stdout
        self.assertIn("is a file", " ".join(told.split()))  # however the lines are broken
        self.assertIn("file://", self.call("check", "--fast", "--storage", "s3://bucket", code=1).stdout)
        self.assertFalse(os.path.exists("s3:"))

    def test_check_network(self):
        """Every address with its subnet, chosen or not, and why."""
        def network(*words, code=0):
            entries = json.loads(self.call("check", "--fast", "--json", *words, code=code).stdout)
            return [entry for entry in entries if entry["section"].startswith("Network")]
        loopback = [entry for entry in network() if entry["text"].startswith("127.0.0.1/8")]
        self.assertEqual([(entry["name"], entry["level"]) for entry in loopback], [("lo", "absent")])
        self.assertIn("not chosen: the loopback", loopback[0]["text"])
        asked = [entry for entry in network("--interface", "127.0.0.0/8") if entry["level"] == "ok"]
        self.assertEqual([entry["name"] for entry in asked], ["lo"])
        self.assertIn("chosen: it is in what was asked for", asked[0]["text"])
        self.assertIn("no address", network("--interface", "eth77", code=1)[-1]["text"])

    def test_terminal_gets_colour_and_its_width(self):
        self.make_run("a-rather-long-name-of-an-experiment")
        code, text = run_in_terminal([UNISONO, "ls"], 60, env=self.environment)
        self.assertEqual(code, 0)
        self.assertIn(b"\033[", text)
        import re
        for line in re.sub(rb"\033\[[0-9;]*m", b"", text).decode().splitlines():
            self.assertLessEqual(len(line), 60, line)


class Changing(Base):
    def test_stop(self):
        script = ("import json, signal, sys, time\n"
                  "def end(*_):\n"
                  "    about = json.load(open(sys.argv[1]))\n"
                  "    about['status'] = 'stopped'\n"
                  "    json.dump(about, open(sys.argv[1], 'w'))\n"
                  "    sys.exit()\n"
                  "signal.signal(signal.SIGTERM, end)\n"
                  "print('ready', flush=True)\n"
                  "time.sleep(60)\n")
        path = os.path.join(self.storage, "digits", "run_001", "run.json")
        child, _ = self.live_run([sys.executable, "-c", script, path], ready=True)
        done = self.call("stop", "digits")
        self.assertIn("stopped", done.stdout)
        self.assertIn("unisono run --resume digits/run_001", done.stdout)
        self.assertEqual(child.wait(20), 0)

    def test_stop_never_hits_another_process(self):
        child = subprocess.Popen(["sleep", "60"])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.make_run(status="running", controller={"pid": child.pid, "start_ticks": start_ticks(child.pid) + 1})
        self.assertIn("interrupted", self.call("stop", "digits", code=1).stderr)
        self.assertIsNone(child.poll())

    def test_stop_now_and_timeout(self):
        child, _ = self.live_run(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
        time.sleep(0.2)
        done = self.call("stop", "--timeout", "300ms", "digits", code=124)
        self.assertIn("--now", done.stderr)
        # A reaped child is what the pid of a dead controller looks like; ours is a zombie until then, which counts as dead.
        self.call("stop", "--now", "digits")
        self.assertEqual(child.wait(20), -signal.SIGKILL)

    def test_stop_of_finished(self):
        self.make_run()
        self.assertIn("not running", self.call("stop", "digits", code=1).stderr)

    def test_rm(self):
        directory = self.make_run()
        self.assertIn("--yes", self.call("rm", "digits", code=64).stderr)
        self.assertTrue(os.path.isdir(directory))
        self.call("rm", "--yes", "digits")
        self.assertFalse(os.path.exists(os.path.join(self.storage, "digits")))

    def test_rm_refuses_what_lives(self):
        _, directory = self.live_run(["sleep", "60"])
        self.assertIn("running", self.call("rm", "--yes", "digits", code=1).stderr)
        self.assertTrue(os.path.isdir(directory))

    def test_rm_asks(self):
        directory = self.make_run()
        for answer, gone in (("n\n", False), ("\n", False), ("y\n", True)):
            parent, child = pty.openpty()
            with subprocess.Popen([UNISONO, "rm", "digits"], env=self.environment, stdin=child,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                os.write(parent, answer.encode())
                out, _ = process.communicate(timeout=20)
            os.close(parent)
            os.close(child)
            self.assertIn(b"Remove digits/run_001", out)
            self.assertEqual(os.path.exists(directory), not gone)


class Reporting(Base):
    def report(self, *words, code=0, env=None):
        reader, writer = os.pipe()
        variables = {"UNISONO_REPORT_FD": str(writer), "UNISONO_RANK": "3", **(env or {})}
        done = self.call("report", *words, code=code, env=variables, pass_fds=[writer])
        os.close(writer)
        with open(reader, encoding="utf-8") as file:
            lines = file.read().splitlines()
        return done, [json.loads(line) for line in lines]

    def test_values(self):
        _, lines = self.report("loss=0.3", "epoch=2", "word=hello", "half=.5", "list=[1, 2]", "yes=true", "odd=007",
                               "empty=", "equation=a=b")
        self.assertEqual(lines, [{"metrics": {"loss": 0.3, "epoch": 2, "word": "hello", "half": 0.5, "list": [1, 2],
                                              "yes": True, "odd": 7.0, "empty": "", "equation": "a=b"}}])

    def test_not_finite(self):
        _, lines = self.report("a=nan", "b=-inf", "c=Infinity")
        self.assertEqual(lines, [{"metrics": {"a": None, "b": None, "c": None},
                                  "nonfinite": {"a": "NaN", "b": "-Infinity", "c": "Infinity"}}])

    def test_checkpoint_is_copied_before_it_returns(self):
        mine, staging = os.path.join(self.root, "mine"), os.path.join(self.root, "staging")
        os.makedirs(os.path.join(mine, "deep"))
        os.mkdir(staging)
        with open(os.path.join(mine, "deep", "weights"), "w", encoding="utf-8") as file:
            file.write("1")
        _, lines = self.report("loss=1", "--checkpoint", mine, env={"UNISONO_STAGING": staging})
        shutil.rmtree(mine)
        staged = lines[0]["staged"]
        self.assertTrue(staged.startswith(os.path.join(staging, "rank_3.")))
        with open(os.path.join(staged, "deep", "weights"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "1")
        done, lines = self.report("--checkpoint", mine, env={"UNISONO_STAGING": staging}, code=1)
        self.assertIn(mine, done.stderr)
        self.assertEqual(lines, [])

    def test_outside_of_a_run(self):
        done = self.call("report", "loss=1")
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("unisono run", done.stderr)

    def test_closed_descriptor(self):
        done = self.call("report", "loss=1", env={"UNISONO_REPORT_FD": "77"}, code=70)
        self.assertIn("pass_fds", done.stderr)
        with open(os.devnull, encoding="utf-8") as other:  # its number belongs to another file now
            done = self.call("report", "loss=1", env={"UNISONO_REPORT_FD": str(other.fileno())}, code=70,
                             pass_fds=[other.fileno()])
        self.assertIn("close_fds=False", done.stderr)

    def test_nobody_listens(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = self.call("report", "loss=1", env={"UNISONO_REPORT_FD": str(writer)}, code=70, pass_fds=[writer])
        os.close(writer)
        self.assertIn("controller", done.stderr)

    def test_too_long(self):
        done, lines = self.report("text=" + "x" * 5000, code=70)
        self.assertIn("4096", done.stderr)
        self.assertEqual(lines, [])

    def test_bad_words(self):
        self.assertIn("NAME=VALUE", self.report("loss", code=64)[0].stderr)

    def test_many_at_once_stay_whole(self):
        reader, writer = os.pipe()
        environment = {**self.environment, "UNISONO_REPORT_FD": str(writer)}
        text = "y" * 3000
        children = [subprocess.Popen([UNISONO, "report", f"n={number}", f"text={text}"], env=environment,
                                     pass_fds=[writer]) for number in range(20)]
        os.close(writer)
        with open(reader, encoding="utf-8") as file:
            numbers = sorted(json.loads(line)["metrics"]["n"] for line in file)
        self.assertEqual([child.wait(20) for child in children], [0] * 20)
        self.assertEqual(numbers, list(range(20)))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=1)
