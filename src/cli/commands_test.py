#!/usr/bin/env python3
"""The unisono command's pages and messages, to the letter where users and scripts rely on them.

Usage: commands_test.py UNISONO FIXTURE DOCS/CLI.MD [TEST...], as cli_test.py.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time
import unittest
from xml.dom import minidom

from cli_test import UNISONO, Base
from terminal_fixture import run_in_terminal

NAME_COLUMN = 30  # where descriptions of options begin


class Help(Base):
    def commands(self):
        lines = self.call("help").stdout.split("\nCommands\n")[1].split("\n\n")[0].splitlines()
        return [line.split()[0] for line in lines]

    def test_every_width(self):
        """Nothing is cut off or wider than the terminal; descriptions stand in one column."""
        for command in self.commands():
            words = {}
            for width in (70, 80, 120):
                text = self.call("help", command, env={"COLUMNS": str(width)}).stdout
                options = text[text.index("  -h, --help"):]
                self.assertEqual(options, "  -h, --help" + " " * (NAME_COLUMN - 12) + "print this\n")
                examples = text.split("\nExamples\n")[1].split("\n\n")[0].splitlines()
                for line in text.splitlines():
                    if line not in examples and not line.startswith(("Usage", "unisono ")):
                        self.assertLessEqual(len(line), width, f"{command}: {line}")
                words[width] = text.split()
            self.assertEqual(words[70], words[120], command)  # only the breaks differ

    def test_columns_of_options(self):
        for command in self.commands():
            text = self.call("help", command).stdout
            body = text.split("\nExamples\n")[1].split("\n\n", 1)[1]
            previous = ""
            for line in body.splitlines():
                if not line or not line.startswith(" "):
                    self.assertTrue(not line or previous == "" or previous == line, f"{command}: no empty line before {line!r}")
                elif line.startswith(" " * NAME_COLUMN):
                    self.assertNotEqual(line[NAME_COLUMN], " ", line)
                else:
                    self.assertRegex(line, r"^  (-[a-zA-Z], |    )--[a-z-]+")
                    name = re.match(r"^  (-[a-zA-Z], |    )--[a-z0-9-]+( [^ ]+)*", line[:NAME_COLUMN - 1] if len(line) > NAME_COLUMN else line)
                    if len(line) > NAME_COLUMN and line[NAME_COLUMN - 2:NAME_COLUMN] == "  ":
                        self.assertNotEqual(line[NAME_COLUMN], " ", line)
                        self.assertEqual(line[name.end():NAME_COLUMN].strip(), "", line)
                    else:  # a long name stands alone, its description below it
                        self.assertGreater(len(line), NAME_COLUMN - 2, line)
                        self.assertNotIn("  ", line.strip(), line)
                previous = line

    def test_the_same_by_any_way(self):
        for command in self.commands():
            self.assertEqual(self.call("help", command).stdout, self.call(command, "--help").stdout)
            self.assertEqual(self.call("help", command).stdout, self.call(command, "-h").stdout)
        overview = self.call("help").stdout
        self.assertEqual(self.call("--help").stdout, overview)
        self.assertEqual(self.call("-h").stdout, overview)
        self.assertIn("unknown command", self.call("help", "nothing", code=64).stderr)

    def test_summaries_agree(self):
        """The line in the overview is the first line of the command's own page."""
        overview = self.call("help").stdout
        for command in self.commands():
            first = self.call("help", command).stdout.splitlines()[0]
            summary = first.split(": ", 1)[1]
            self.assertRegex(overview, re.escape(f"  {command}") + r" +" + re.escape(summary) + "\n")

    def test_colour(self):
        self.make_run()
        coloured = self.call("show", "--color", "always").stdout
        self.assertIn("\033[", coloured)
        self.assertEqual(re.sub(r"\033\[[0-9;]*m", "", coloured), self.call("show").stdout)
        self.assertEqual(self.call("show", "--color=never").stdout, self.call("show").stdout)
        self.assertIn("\033[", self.call("show", env={"UNISONO_COLOR": "always"}).stdout)
        self.assertNotIn("\033[", self.call("show", "--color", "never", env={"UNISONO_COLOR": "always"}).stdout)
        self.assertIn("--color green: must be one of auto|always|never", self.call("show", "--color", "green", code=64).stderr)
        for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
            code, text = run_in_terminal([UNISONO, "show"], 80, env={**self.environment, **environment})
            self.assertEqual((code, b"\033[" in text), (0, coloured), environment)


class Misuse(Base):
    def test_messages(self):
        """What was wrong, and what to write instead. Nothing is started or removed."""
        self.make_run("digits")
        spec = os.path.join(self.root, "spec.json")
        with open(spec, "w", encoding="utf-8") as file:
            file.write('{"program": ["true"]}')
        nothing = 'there is no run "nope" in %s: `unisono ls` lists the runs, --storage or UNISONO_RESULTS says where to look' % self.storage
        cases = (
            ("scale", 64, "missing argument: RUN [N]\nSee `unisono scale --help`."),
            ("scale digits 0", 64, '"0" is not a number of workers'),
            ("scale digits -1", 64, None),
            ("scale digits 2x", 64, '"2x" is not a number of workers'),
            ("scale digits 99999999999", 64, '"99999999999" is not a number of workers'),
            ("scale nope 3", 1, nothing),
            ("tune", 64, "missing argument: SPEC.json | resume|show|best|plot DIR\nSee `unisono tune --help`."),
            (f"tune --samples 0 {spec}", 64, "--samples must be positive, not 0"),
            (f"tune --samples -2 {spec}", 64, "--samples must be positive, not -2"),
            (f"tune --samples 2147483648 {spec}", 64, "--samples must be positive, not 2147483648"),
            (f"tune --concurrent 0 {spec}", 64, "--concurrent must be positive, not 0"),
            (f"tune --concurrent 2147483648 {spec}", 64, "--concurrent must be positive, not 2147483648"),
            (f"tune --seed -1 {spec}", 64, "--seed must be 0 or more, not -1"),
            ("tune nothing.json", 1, 'cannot open "nothing.json": No such file or directory'),
            ("data", 64, "missing argument: plan|head|schema|count FILES...\nSee `unisono data --help`."),
            ("report", 64, "nothing to report: give NAME=VALUE, --checkpoint DIR, or both"),
            ("report x", 64, '"x" is not NAME=VALUE (for example loss=0.3)'),
            ("report =1", 64, None),
            ("show nope", 1, nothing),
            ("logs nope", 1, nothing),
            ("why nope", 1, nothing),
            ("stop nope", 1, nothing),
            ("rm nope", 1, nothing),
            ("plot nope", 1, nothing),
            ("run --as-ray", 64,
             "--as-ray takes a script and its arguments; the script itself sets the number of workers and the backend"),
            (f"run --as-ray -n 2 {spec}", 64,
             "--as-ray takes a script and its arguments; the script itself sets the number of workers and the backend"),
            (f"run --as-ray -b torch {spec}", 64,
             "--as-ray takes a script and its arguments; the script itself sets the number of workers and the backend"),
            (f"run --as-ray --time-limit 3 {spec}", 64, "--time-limit cannot be used with --as-ray: the script's trainer sets it"),
            (f"run --as-ray --name x {spec}", 64, "--name cannot be used with --as-ray: the script's trainer sets it"),
            ("run --as-ray /nope.py", 125, "cannot read the script /nope.py: No such file or directory"),
        )
        for words, code, told in cases:
            with self.subTest(words=words):
                done = self.call(*words.split(), code=code)
                self.assertEqual(done.stdout, "")
                if told is not None:
                    self.assertEqual(done.stderr, f"unisono {words.split()[0]}: {told}\n")
        self.assertEqual(os.listdir(self.storage), ["digits"])

    def test_options_of_every_command_are_checked(self):
        for command in Help.commands(self):
            for words, told in ((("--nonsense",), "unknown option --nonsense"), (("-%",), "unknown option -%"), (("--color",), "requires an argument: WHEN")):
                if command in ("help", "version", "completion", "run") and words == ("--color",):
                    continue
                done = self.call(command, *words, code=64)
                self.assertIn(told, done.stderr, command)
                self.assertTrue(done.stderr.startswith(f"unisono {command}: "), done.stderr)


class AsRay(Base):
    """The command becomes the interpreter of a driver."""

    SHOW = "#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\" | tail -n 3\nenv | grep UNISONO_ | sort\n"

    def setUp(self):
        super().setUp()
        self.script = os.path.join(self.root, "driver.py")
        with open(self.script, "w", encoding="utf-8") as file:
            file.write("print('never run here')\n")
        self.python = self.write_program(os.path.join(self.root, "interpreter"))
        self.environment["UNISONO_PYTHON"] = self.python

    def write_program(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.SHOW)
        os.chmod(path, 0o755)
        return path

    def variables(self, *options):
        lines = self.call("run", "--as-ray", *options, self.script, "--epochs", "3").stdout.splitlines()
        self.assertEqual(lines[:3], [self.script, "--epochs", "3"])
        found = dict(line.split("=", 1) for line in lines[3:])
        self.assertEqual(found.pop("UNISONO_PYTHON"), self.python)
        return found

    def test_where_the_workers_run(self):
        secret = os.path.join(self.root, "secret")
        for options, name, value in (
                (("--launcher", "ssh"), "UNISONO_LAUNCHER", "ssh"), (("--hosts", "a:2,b"), "UNISONO_HOSTS", "a:2,b"),
                (("--interface", "eth7"), "UNISONO_INTERFACE", "eth7"), (("--transport", "ucx"), "UNISONO_TRANSPORT", "ucx"),
                (("--encrypt",), "UNISONO_ENCRYPT", "1"), (("--no-seal",), "UNISONO_NO_SEAL", "1"),
                (("--secret-file", secret), "UNISONO_SECRET_FILE", secret)):
            with self.subTest(name=name):
                self.assertEqual(self.variables(*options), {"UNISONO_RESULTS": self.storage, name: value})
        self.assertEqual(self.variables(), {"UNISONO_RESULTS": self.storage})
        self.assertEqual(self.variables("--storage", "/elsewhere"), {"UNISONO_RESULTS": "/elsewhere"})

    def test_the_interpreter_of_a_virtual_environment(self):
        """Not any python3 that lies beside the command: only with pyvenv.cfg above it."""
        folder = os.path.join(self.root, "venv", "bin")
        os.makedirs(folder)
        command = shutil.copy(UNISONO, folder)
        beside = self.write_program(os.path.join(folder, "python3"))
        elsewhere = os.path.join(self.root, "path")
        os.mkdir(elsewhere)
        on_path = self.write_program(os.path.join(elsewhere, "python3"))
        with open(on_path, "a", encoding="utf-8") as file:
            file.write("echo on the path\n")
        environment = {key: value for key, value in self.environment.items() if key != "UNISONO_PYTHON"}
        environment["PATH"] = elsewhere + ":" + environment["PATH"]

        def start(**more):
            return subprocess.run([command, "run", "--as-ray", self.script], env={**environment, **more}, capture_output=True, text=True, timeout=60,
                                  check=True).stdout

        self.assertIn("on the path", start())
        with open(os.path.join(self.root, "venv", "pyvenv.cfg"), "w", encoding="utf-8"):
            pass
        self.assertNotIn("on the path", start())
        self.assertIn("on the path", start(UNISONO_PYTHON=on_path))  # what was asked for
        self.assertNotIn("on the path", start(UNISONO_PYTHON=""))
        os.chmod(beside, 0o644)  # cannot be run
        self.assertIn("on the path", start())

    def test_an_interpreter_that_is_not_there(self):
        done = self.call("run", "--as-ray", self.script, code=125, env={"UNISONO_PYTHON": "/no/python"})
        self.assertIn("cannot start /no/python for --as-ray (UNISONO_PYTHON names another interpreter): No such file or directory", done.stderr)


class Following(Base):
    def test_a_rank_moves_to_another_host(self):
        """The prefix is the host that the rank is on now, as run.json says: of every rank, also of rank 0."""
        _, directory = self.live_run(["sleep", "60"], workers=2)
        for rank in range(2):
            open(os.path.join(directory, "logs", f"rank_{rank}.log"), "w", encoding="utf-8").close()
        with subprocess.Popen([UNISONO, "logs", "-f"], env=self.environment, text=True, stdout=subprocess.PIPE) as follow:
            self.addCleanup(follow.kill)

            def say(rank, line):
                with open(os.path.join(directory, "logs", f"rank_{rank}.log"), "a", encoding="utf-8") as file:
                    file.write(line + "\n")
                return follow.stdout.readline()

            self.assertEqual(say(0, "one"), "node1:0 | one\n")
            self.assertEqual(say(1, "two"), "node1:1 | two\n")
            path = os.path.join(directory, "run.json")
            with open(path, encoding="utf-8") as file:
                about = json.load(file)
            about["workers"] = [{"rank": 0, "host": "spare\033[2J"}, {"rank": 1, "host": "node2"}, {"rank": 7, "host": "none"}, {"rank": -1, "host": "x"}]
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump(about, file)
            os.rename(path + ".new", path)
            lines = [say(0, "three"), say(1, "four")]
            self.assertTrue(lines[0].startswith("spare") and lines[0].endswith(":0 | three\n"), lines)
            self.assertNotIn("\033", lines[0])  # a host's name is not believed either
            self.assertEqual(lines[1], "node2:1 | four\n")
            follow.kill()


    def test_no_line_is_lost_between_the_end_and_what_follows(self):
        """A rank writes while the log of another one is still being printed."""
        _, directory = self.live_run(["sleep", "60"], workers=2)
        paths = [os.path.join(directory, "logs", f"rank_{rank}.log") for rank in range(2)]
        with open(paths[0], "w", encoding="utf-8") as file:
            file.write("early\nhalf ")
        with open(paths[1], "w", encoding="utf-8") as file:
            file.writelines(f"line {number}\n" for number in range(20000))
        with subprocess.Popen([UNISONO, "logs", "-f", "-n", "20000"], env=self.environment, text=True, stdout=subprocess.PIPE) as follow:
            self.addCleanup(follow.kill)
            lines = [follow.stdout.readline() for _ in range(3)]  # it prints rank 1's now, and waits for us
            self.assertEqual(lines, ["node1:0 | early\n", "node1:0 | half \n", "node1:1 | line 0\n"])
            for path, text in zip(paths, ("of it\nlate\n", "last\n")):
                with open(path, "a", encoding="utf-8") as file:
                    file.write(text)
            rest = [follow.stdout.readline() for _ in range(19999)]
            self.assertEqual(rest, [f"node1:1 | line {number}\n" for number in range(1, 20000)])
            self.assertEqual(sorted(follow.stdout.readline() for _ in range(3)), ["node1:0 | late\n", "node1:0 | of it\n", "node1:1 | last\n"])
            follow.kill()


class Pictures(Base):
    """The curve that is drawn is the one that was reported."""

    def page(self, *options):
        path = os.path.join(self.root, "x.svg")
        self.call("plot", "--svg", path, *options)
        return minidom.parse(path).documentElement

    def points(self, svg):
        """Of all curves: a list of (x, y); a curve begins with a dot where its line does."""
        found = []
        for path in svg.getElementsByTagName("path"):
            if path.getAttribute("class") == "curve":
                found += [tuple(map(float, pair)) for pair in re.findall(r"([-\d.]+) ([-\d.]+)", path.getAttribute("d"))]
        return [point for at, point in enumerate(found) if at == 0 or point != found[at - 1]]

    def test_a_straight_line_is_straight(self):
        self.make_run(workers=1, iterations=11, values=lambda rank, iteration: {"loss": float(iteration)})
        svg = self.page()
        width, height = map(float, svg.getAttribute("viewBox").split()[2:])
        points = self.points(svg)
        self.assertEqual(len(points), 11)
        steps = [(round(b[0] - a[0], 1), round(b[1] - a[1], 1)) for a, b in zip(points, points[1:])]
        self.assertLessEqual(max(step[0] for step in steps) - min(step[0] for step in steps), 0.2)
        self.assertLessEqual(max(step[1] for step in steps) - min(step[1] for step in steps), 0.2)
        self.assertGreater(steps[0][0], 0)
        self.assertLess(steps[0][1], 0)  # up
        self.assertTrue(all(0 <= x <= width and 0 <= y <= height for x, y in points), points)

    def test_what_is_on_the_edge_is_inside(self):
        """The smallest and the largest value are on the axis, not outside."""
        self.make_run(workers=1, iterations=2, values=lambda rank, iteration: {"loss": float(iteration)})
        self.assertNotIn("outside", self.call("plot").stdout)
        self.assertEqual(len(self.points(self.page())), 2)

    def test_on_a_logarithmic_axis(self):
        """Powers of ten are equally far from each other; what is not positive is left out."""
        self.make_run(workers=1, iterations=4, values=lambda rank, iteration: {"loss": 10.0 ** -iteration})
        points = self.points(self.page("--log"))
        gaps = [b[1] - a[1] for a, b in zip(points, points[1:])]
        self.assertLessEqual(max(gaps) - min(gaps), 0.3, points)
        self.make_run("zero", workers=1, iterations=4, values=lambda rank, iteration: {"loss": float(iteration - 1)})
        self.assertEqual(len(self.points(self.page("--log", "zero"))), 3)

    def test_a_constant(self):
        for value in (0.0, 5.0, -5.0):
            shutil.rmtree(self.storage)
            os.mkdir(self.storage)
            self.make_run(workers=1, iterations=3, values=lambda rank, iteration, value=value: {"loss": value})
            ys = {y for _, y in self.points(self.page())}
            self.assertEqual(len(ys), 1)  # flat, and inside
            self.assertNotIn("outside", self.call("plot").stdout)


class Ages(Base):
    def test_when_and_how_long(self):
        """Ages in words; a run's duration from its own times."""
        now = time.time()
        for name, age, told in (("s", 20, r"2\d s ago|just now"), ("m", 5 * 60 + 5, "5 min ago"), ("h", 3 * 3600 + 60, "3 h ago"), ("d", 2 * 86400 + 3600, None)):
            self.make_run(name, created=now - age)
            line = next(line for line in self.call("ls").stdout.splitlines() if line.startswith(name + "/"))
            if told:
                self.assertRegex(line, told)
            self.assertIn("12.5 s", line)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=1)
