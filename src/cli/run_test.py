#!/usr/bin/env python3
"""`unisono run` with real workers: exit codes, output, reports, checkpoints, resume, signals.

Usage: run_test.py UNISONO [TEST...]. The workers are sh scripts, so that nothing but the command is tested.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from terminal_fixture import run_in_terminal

os.umask(0o022)  # a run that others can write to is refused
UNISONO = os.path.abspath(sys.argv[1])
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it comes ignored, and the command leaves it so


class Base(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="unisono-run-")
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.storage = os.path.join(self.root, "results")
        self.environment = {**os.environ, "HOME": self.root, "UNISONO_RESULTS": self.storage, "U": UNISONO,
                            "TERM": "xterm", "LANG": "C.UTF-8", "D": self.root}
        self.environment.pop("NO_COLOR", None)

    def call(self, *words, code=0, env=None):
        done = subprocess.run([UNISONO, *words], env={**self.environment, **(env or {})}, capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, f"{words}: {done.stdout}{done.stderr}")
        return done

    def run_script(self, script, *options, code=0, workers=2, env=None):
        return self.call("run", "-n", str(workers), "--name", "test", *options, "--", "sh", "-c", script, code=code,
                         env=env)

    def about(self, run="test"):
        return json.loads(self.call("show", "--json", run).stdout)

    def start(self, script, *options, workers=2):
        process = subprocess.Popen([UNISONO, "run", "-n", str(workers), "--name", "test", *options, "--", "sh", "-c",
                                    script], env=self.environment, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        def end():
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()
        self.addCleanup(end)
        return process

    def wait_for(self, path, seconds=20):
        deadline = time.monotonic() + seconds
        while not os.path.exists(os.path.join(self.root, path)):
            self.assertLess(time.monotonic(), deadline, f"{path} never came")
            time.sleep(0.02)


class Runs(Base):
    def test_success(self):
        done = self.run_script('echo "rank $UNISONO_RANK of $UNISONO_WORLD_SIZE"; printf "no end"', workers=3)
        host = os.uname().nodename
        self.assertEqual(sorted(done.stdout.splitlines()),
                         sorted([f"{host}:{rank} | rank {rank} of 3" for rank in range(3)] +
                                [f"{host}:{rank} | no end" for rank in range(3)]))
        self.assertIn("succeeded test/run_001", done.stderr)
        self.assertEqual(self.about()["exit_code"], 0)

    def test_reports_and_sinks(self):
        done = self.run_script('for i in 1 2 3; do $U report loss=0.$i word=a; done', "--sink", "csv,json")
        self.assertIn("loss 0.3", done.stderr)
        about = self.about()
        self.assertEqual([report["metrics"]["loss"] for report in about["last_reports"]], [0.3, 0.3])
        self.assertTrue({"results.jsonl", "progress.csv", "results.json"} <= set(os.listdir(about["dir"])))
        curves = json.loads(self.call("plot", "--json", "test", "--rank", "all").stdout)
        self.assertEqual(curves[1]["y"], [0.1, 0.2, 0.3])

    def test_json_lines_on_the_descriptor(self):
        self.run_script('echo \'{"metrics": {"loss": 2.5}}\' > /dev/fd/$UNISONO_REPORT_FD', workers=1)
        self.assertEqual(self.about()["last_reports"][0]["metrics"]["loss"], 2.5)

    def test_a_misspelled_key_of_a_line_is_told(self):
        done = self.run_script('echo \'{"metrics": {"loss": 1}, "checkpont": "x"}\' > /dev/fd/$UNISONO_REPORT_FD; $U report a=1 a=2 || echo refused', workers=1)
        self.assertIn('is left out (said once): unknown key "checkpont" in a report line', done.stderr)
        self.assertIn("a is given twice", done.stdout)
        self.assertIn("refused", done.stdout)

    def test_nan_survives(self):
        self.run_script("$U report loss=nan", workers=1)
        self.assertIn("NaN", self.call("show", "test").stdout)

    def test_exit_code_is_the_first_causes(self):
        script = 'if [ $UNISONO_RANK = 1 ]; then echo "my last words" >&2; exit 7; fi; sleep 30'
        begun = time.monotonic()
        done = self.run_script(script, "-f", "0", code=7)
        self.assertLess(time.monotonic() - begun, 10)
        for words in ("rank 1 ended with exit code 7", "my last words", "unisono logs test/run_001 --rank 1",
                      "unisono run --resume test/run_001"):
            self.assertIn(words, done.stderr)
        why = json.loads(self.call("why", "--json").stdout)
        self.assertEqual((why["cause"]["class"], why["cause"]["rank"], why["cause"]["exit_code"]), ("exit", 1, 7))

    def test_signal_is_128_and_its_number(self):
        done = self.run_script("kill -SEGV $$", "-f", "0", code=128 + signal.SIGSEGV, workers=1)
        self.assertIn("SIGSEGV", done.stderr)

    def test_restart_within_the_budget(self):
        script = 'if [ $UNISONO_RANK = 0 ] && ! [ -e $D/once ]; then touch $D/once; exit 9; fi'
        done = self.run_script(script)
        self.assertIn("with 1 restart", done.stderr)
        self.assertIn("rank 0 ended with exit code 9", self.call("why").stdout)

    def test_killed_from_outside_again_and_again(self):
        """With restarts without limit an outside kill does not end the run; the same crash twice does."""
        script = 'echo x >> $D/starts; [ $(wc -l < $D/starts) -gt 3 ] || kill -%s $$'
        self.run_script(script % "KILL", "-f", "-1", workers=1)
        self.assertEqual(self.about()["attempt"], 4)
        os.remove(os.path.join(self.root, "starts"))
        self.run_script(script % "SEGV", "-f", "-1", code=128 + signal.SIGSEGV, workers=1)
        self.assertIn("restarting again would not help", self.about("test/run_002")["error"]["message"])

    def test_members_that_were_started_again(self):
        script = '''case $UNISONO_RANK in
            0) while ! [ -e $D/back ]; do sleep 0.02; done;;
            1) [ -e $D/once ] && touch $D/back || { touch $D/once; kill -9 $$; };;
        esac'''
        self.run_script(script, "--servers", "1", workers=1)
        why = " ".join(self.call("why", "test").stdout.split())
        self.assertIn("restarted worker, alone, 1 time: rank 1", why)
        told = json.loads(self.call("why", "test", "--json").stdout)["members"]
        self.assertEqual([(event["rank"], event["role"]) for event in told], [(1, "worker")])
        table = self.call("show", "test").stdout
        for worker in self.about()["workers"]:  # none of them ever reported
            self.assertRegex(table, r"(?m)^ +%d +.*%s" % (worker["rank"], worker["pid"] or "-"))

    def test_program_that_is_not_there(self):
        done = self.call("run", "--", "/no/such/program", code=125)
        self.assertIn("/no/such/program", done.stderr)

    def test_bad_options_start_nothing(self):
        self.call("run", "-n", "0", "--", "true", code=64)
        self.call("run", "--use-gpu", "--", "true", code=125)
        done = self.call("run", "--storage", "s3://bucket/x", "--", "true", code=125)
        self.assertIn("s3://bucket/x", done.stderr)
        self.call("run", "--sink", "nothing-like-it", "--", "true", code=64)
        self.assertFalse(os.path.exists(self.storage) and os.listdir(self.storage))

    def test_zero_is_not_the_default(self):
        for name in ("cpus", "address-space", "time-limit", "progress-timeout", "log-cap", "min-workers"):
            done = self.call("run", "--" + name, "0", "--", "true", code=64)
            self.assertIn("--%s 0: must be greater than 0 (leave it out " % name, done.stderr)
        self.assertFalse(os.path.exists(self.storage) and os.listdir(self.storage))
        # No time to save: the trap would need a minute.
        done = self.run_script('trap "sleep 60" TERM; sleep 60', "-t", "300ms", "--grace", "0", code=124, workers=1)
        self.assertIn("within the grace time of 0 s and are killed", done.stderr)

    def test_errors_are_not_retried(self):
        for script, attempts, code in (("exit 3", 1, 3), ("kill -9 $$", 3, 137), ("exit 137", 3, 137)):
            self.run_script(script, "-f", "2", "--no-retry-errors", code=code, workers=1)
            self.assertEqual(self.about()["attempt"], attempts, script)
        self.run_script("exit 3", "-f", "2", code=3, workers=1)
        self.assertEqual(self.about()["attempt"], 3)

    def test_sinks_are_those_that_were_named(self):
        for names, files in (("none", set()), ("json", {"results.json"}), ("csv,json", {"progress.csv", "results.json"})):
            for how in ((), ("--quiet",)):
                self.run_script("$U report loss=1", "--sink", names, *how, workers=1)
                self.assertEqual(set(os.listdir(self.about()["dir"])) & {"progress.csv", "results.json"}, files, (names, how))
        for words in (("--sink", "none,csv"), ("--sink", "csv", "--sink", "none"), ("--sink", ""), ("--keep", "none", "--keep-best", "loss:min")):
            self.run_script("true", *words, code=64)

    def test_options_without_an_effect_are_told(self):
        """Only the engine's fit saves between reports, and only the library's report() waits for a checkpoint."""
        for script in ("$U report loss=1; $U report loss=2", "true"):
            done = self.run_script(script, "--checkpoint-every", "500steps")
            self.assertEqual(done.stderr.count("warning: no checkpoints are taken between reports (--checkpoint-every"), 1, done.stderr)
            self.assertNotIn("warning", self.run_script(script).stderr)
        script = 'mkdir -p $D/w$UNISONO_RANK; $U report loss=1 --checkpoint $D/w$UNISONO_RANK'
        done = self.run_script(script, "--sync-checkpoints")
        self.assertEqual(done.stderr.count("does not wait for its checkpoints (--sync-checkpoints"), 1, done.stderr)

    def test_time_limit(self):
        begun = time.monotonic()
        done = self.run_script("sleep 60", "-t", "300ms", "--grace", "200ms", code=124)
        self.assertLess(time.monotonic() - begun, 10)
        self.assertIn("time limit", done.stderr)

    def test_environment_and_directory(self):
        script = 'echo "$MINE $PWD $RANK $MASTER_ADDR"'
        done = self.run_script(script, "-e", "MINE=yours", "--chdir", "/usr", "-b", "torch", workers=1)
        self.assertIn("| yours /usr 0 ", done.stdout)
        self.assertNotIn("/usr 0 \n", done.stdout)

    def test_config_reaches_run_json(self):
        path = os.path.join(self.root, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"lr": 1, "model": {"width": 2}}, file)
        self.run_script(":", "--config", path, "--set", "lr=0.5", "--set", "model.name=big", workers=1)
        self.assertEqual(self.about()["config"], {"lr": 0.5, "model": {"width": 2, "name": "big"}})

    def test_quiet_and_json(self):
        done = self.run_script("echo noise", "--quiet", workers=1)
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        done = self.run_script("echo noise", "--json", workers=1)
        self.assertEqual(json.loads(done.stdout)["id"], "test/run_002")
        self.assertIn("rank 0 ended", self.run_script("exit 2", "--quiet", "-f", "0", code=2, workers=1).stderr)

    def test_dry_run(self):
        done = self.run_script("exit 5", "--dry-run", "-b", "torch", "--set", "lr=1")
        for words in ("rank 1", "RANK=1", "MASTER_ADDR", "sh -c 'exit 5'", self.storage, '{"lr":1}'):
            self.assertIn(words, done.stdout)
        plan = json.loads(self.run_script("exit 5", "--dry-run", "--json").stdout)
        self.assertEqual([worker["environment"]["UNISONO_RANK"] for worker in plan["workers"]], ["0", "1"])
        self.assertFalse(os.path.exists(self.storage) and os.listdir(self.storage))

    def test_many_lines_stay_whole_and_in_order(self):
        done = self.run_script('i=0; while [ $i -lt 3000 ]; do echo "line $i of rank $UNISONO_RANK"; i=$((i+1)); done')
        by_rank = {"0": [], "1": []}
        for line in done.stdout.splitlines():
            found = re.fullmatch(r"\S+:(\d) \| line (\d+) of rank (\d)", line)
            self.assertTrue(found, line)
            self.assertEqual(found[1], found[3])
            by_rank[found[1]].append(int(found[2]))
        self.assertEqual(by_rank, {"0": list(range(3000)), "1": list(range(3000))})


    def test_log_cap(self):
        kind = subprocess.check_output(["stat", "-f", "-c", "%T", self.root], text=True).strip()
        if kind not in ("ext2/ext3", "xfs"):
            self.skipTest(f"a file's head cannot be cut off on {kind}, so lines may go missing by design")
        script = ('i=0; while [ $i -lt 8000 ]; do echo "line $i"; i=$((i+1)); '
                  '[ $((i % 500)) = 0 ] && sleep 0.05; done; exit 0')
        done = self.run_script(script, "--log-cap", "32k", workers=1)
        shown = [line.split(" | ")[1] for line in done.stdout.splitlines()]
        self.assertEqual(shown, [f"line {number}" for number in range(8000)])  # nothing missed, nothing torn
        kept = self.call("logs", "test").stdout.splitlines()
        self.assertLess(len(kept), 8000)
        whole = kept[1:]  # the oldest may have lost its beginning
        self.assertEqual(whole, [f"line {number}" for number in range(8000 - len(whole), 8000)])

    def test_frozen_worker(self):
        done = self.run_script('[ $UNISONO_RANK = 1 ] && kill -STOP $$; sleep 60', "-f", "0", code=126)
        self.assertIn("rank 1 was frozen", done.stderr)


class Checkpoints(Base):
    # Each attempt goes on from the newest checkpoint of the run, as a script would do it.
    SCRIPT = ('mkdir -p $D/w; for i in 1 2 3 4; do echo $i > $D/w/step; '
              '$U report loss=$((10 - i)) --checkpoint $D/w || exit 50; %s; done')

    def test_kept(self):
        self.run_script(self.SCRIPT % ":", "--keep", "2", workers=1)
        about = self.about()
        self.assertEqual([entry["iteration"] for entry in about["checkpoints"]], [3, 4])
        with open(os.path.join(about["checkpoints"][1]["path"], "step"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "4\n")
        self.assertTrue(os.path.exists(os.path.join(self.root, "w", "step")))

    def test_keep_best(self):
        self.run_script(self.SCRIPT % ":", "--keep", "1", "--keep-best", "loss:max", workers=1)
        self.assertEqual([entry["iteration"] for entry in self.about()["checkpoints"]], [1])

    def test_resume_after_failure(self):
        script = "echo attempt; " + self.SCRIPT % '[ -e $D/second ] || { [ $i = 2 ] && { touch $D/second; exit 6; }; }; :'
        self.run_script(script, "-f", "0", "--set", "lr=3", code=6, workers=1)
        done = self.call("run", "--resume", "test")
        self.assertIn("succeeded test/run_001", done.stderr)
        self.assertEqual(done.stdout.count("attempt"), 1)  # the first attempt's lines are not shown again
        about = self.about()
        self.assertEqual((about["status"], about["config"], about["run"]), ("succeeded", {"lr": 3}, 1))
        self.assertIn("succeeded", self.call("run", "--resume", "test", code=64).stderr)

    def test_resume_keeps_what_was_asked(self):
        self.run_script("[ -e $D/killed ] && kill -9 $$; exit 4", "-f", "0", "--keep", "2", "--keep-best", "loss:min",
                        "--no-retry-errors", "--grace", "3s", code=4, workers=1)
        asked = self.about()["options"]
        # No restarts were allowed then, so none are now: one more attempt, not four.
        self.call("run", "--resume", "test", code=4)
        about = self.about()
        self.assertEqual((about["options"], about["attempt"]), (asked, 2))
        self.assertEqual((asked["num_to_keep"], asked["score_order"]), (2, "min"))
        self.call("run", "--resume", "test", "-f", "1", "--keep", "5", code=4)
        about = self.about()
        self.assertEqual((about["options"]["num_to_keep"], about["attempt"]), (5, 3))  # --no-retry-errors is kept
        with open(os.path.join(self.root, "killed"), "w", encoding="utf-8"):
            pass
        self.call("run", "--resume", "test", "-f", "1", code=137)
        self.assertEqual(self.about()["attempt"], 5)

    def test_memory_is_reserved_and_address_space_limited(self):
        own = subprocess.run("ulimit -v", shell=True, text=True, capture_output=True, check=True).stdout.strip()
        self.assertIn("│ %s\n" % own, self.run_script("ulimit -v", "--memory", "1G", workers=1).stdout.replace("|", "│"))
        self.assertIn("│ 2097152\n", self.run_script("ulimit -v", "--address-space", "2G", workers=1).stdout.replace("|", "│"))
        for script, code in (("exit 3", 3), ("kill -ABRT $$", 134)):  # libraries that cannot be loaded, new and malloc
            done = self.run_script(script, "--address-space", "2G", "-f", "0", code=code, workers=1)
            self.assertIn("its address space is limited to 2.0 GiB (address_space_limit, --address-space)", " ".join(done.stderr.split()))
            self.assertIn("limited to 2.0 GiB", " ".join(self.call("why").stdout.split()))
            self.assertNotIn("limited", self.run_script(script, "-f", "0", code=code, workers=1).stderr)
        done = self.run_script("true", "--memory", "900T", code=125)
        self.assertIn("reserve less with memory_per_worker (--memory)", done.stderr)

    def test_resume_keeps_place_limits_and_sinks(self):
        elsewhere = os.path.join(self.root, "elsewhere")
        os.mkdir(elsewhere)
        self.run_script("pwd; $U report loss=1; exit 4", "-f", "0", "--chdir", elsewhere, "--sink", "json", "--memory", "2G",
                        "--address-space", "4G", "--time-limit", "1h", "--env", "TOKEN=dont-tell", code=4, workers=1)
        asked = self.about()["options"]
        self.assertEqual((asked["working_directory"], asked["memory_per_worker"], asked["time_limit"], asked["environment"]),
                         (elsewhere, 2 << 30, 3600, ["TOKEN"]))
        self.assertEqual(asked["address_space_limit"], 4 << 30)
        self.assertNotIn("dont-tell", json.dumps(self.about()))
        os.remove(os.path.join(self.about()["dir"], "results.json"))
        done = self.call("run", "--resume", "test", code=4)
        self.assertIn(elsewhere, done.stdout)
        self.assertIn("--env are not recorded", done.stderr)
        self.assertIn("TOKEN", done.stderr)
        about = self.about()
        self.assertEqual(about["options"], {**asked, "environment": []})
        self.assertTrue(os.path.exists(os.path.join(about["dir"], "results.json")), "the sink is not back")

    @unittest.skipUnless(os.geteuid() == 0, "a small disk needs root")
    def test_full_disk_of_report(self):
        os.mkdir(self.storage)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", self.storage], check=True)
        try:
            script = "mkdir -p $D/big; head -c 4000000 /dev/zero > $D/big/x; $U report loss=1 --checkpoint $D/big || exit 5"
            done = self.run_script(script, code=74, workers=1)
            self.assertIn("ran out of disk space", done.stderr)
            about = self.about()
            self.assertEqual((about["cause"]["class"], about["cause"]["rank"], about["attempt"]), ("disk_full", 0, 1))
        finally:
            subprocess.run(["umount", "-l", self.storage], check=True)

    @unittest.skipUnless(os.geteuid() == 0, "a small disk needs root")
    def test_disk_filled_to_the_last_byte(self):
        """Also then the end is written down: a later `why` tells of the disk, not of a controller that was killed."""
        os.mkdir(self.storage)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", self.storage], check=True)
        try:
            script = ("cat /dev/zero > %s/fill 2> /dev/null; "
                      "for i in $(seq 2000); do echo '{\"metrics\": {\"loss\": 1}}' >&$UNISONO_REPORT_FD; done; sleep 30") % self.storage
            self.run_script(script, code=74, workers=1)
            about = self.about()
            self.assertEqual((about["status"], about["cause"]["class"]), ("failed", "disk_full"))
            self.assertNotIn(".reserve", os.listdir(about["dir"]))
            self.assertIn("ran out of disk space", self.call("why", "test").stdout)
        finally:
            subprocess.run(["umount", "-l", self.storage], check=True)

    def test_resume_of_nothing(self):
        self.assertIn("no run", self.call("run", "--resume", code=64).stderr)
        self.assertIn("no run", self.call("run", "--resume", "xyz", code=125).stderr)


class Signals(Base):
    SCRIPT = "touch $D/up$UNISONO_RANK; while :; do sleep 0.05; done"

    def test_sigint_and_sigterm(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start(self.SCRIPT, "--grace", "300ms")
            self.wait_for("up0")
            self.wait_for("up1")
            process.send_signal(number)
            _, err = process.communicate(timeout=20)
            self.assertEqual(process.returncode, 75, err)
            self.assertIn("unisono run --resume test/run_", err)
            self.assertEqual(self.about()["status"], "stopped")
            for name in ("up0", "up1"):
                os.unlink(os.path.join(self.root, name))

    def test_closed_terminal_stops_it(self):
        process = self.start(self.SCRIPT, "--grace", "300ms")
        self.wait_for("up1")
        process.send_signal(signal.SIGHUP)
        _, err = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 75, err)

    def test_reader_that_goes_away_does_not(self):
        process = self.start("echo first; while ! [ -e $D/go ]; do sleep 0.05; done; echo second; $U report loss=1",
                             workers=1)
        process.stdout.readline()
        process.stdout.close()
        with open(os.path.join(self.root, "go"), "w", encoding="utf-8"):
            pass
        err = process.stderr.read()
        process.stderr.close()
        process.wait(20)
        self.assertIn("succeeded", err)
        self.assertEqual(self.call("logs", "test").stdout, "first\nsecond\n")
        self.assertEqual(process.returncode, 0)

    def test_stop_command(self):
        process = self.start(self.SCRIPT, "--grace", "300ms")
        self.wait_for("up1")
        self.assertEqual(self.about()["status"], "running")
        self.assertIn("running", self.call("rm", "--yes", "test", code=1).stderr)
        self.assertIn("stopped", self.call("stop", "test").stdout)
        process.communicate(timeout=20)
        self.assertEqual(process.returncode, 75)

    def test_killed_controller(self):
        process = self.start("echo $$ > $D/pid$UNISONO_RANK; touch $D/up$UNISONO_RANK; exec sleep 60")
        self.wait_for("up0")
        self.wait_for("up1")
        time.sleep(0.6)
        process.kill()
        process.communicate(timeout=20)
        deadline = time.monotonic() + 5
        pids = []
        for rank in (0, 1):
            with open(os.path.join(self.root, f"pid{rank}"), encoding="utf-8") as file:
                pids.append(file.read().strip())
        while any(os.path.exists(f"/proc/{pid}") for pid in pids):
            self.assertLess(time.monotonic(), deadline, "a worker was left behind")
            time.sleep(0.02)
        self.assertEqual(self.about()["status"], "interrupted")
        why = self.call("why").stdout
        self.assertIn("controller", why)
        # Nothing was written after the first milliseconds; the duration is still known.
        number, unit = re.search(r" after ([0-9.]+) (m?s)", why).groups()
        self.assertGreaterEqual(float(number) * (1e-3 if unit == "ms" else 1), 0.6, why)


class Terminal(Base):
    def test_bar_and_lines_share_the_terminal(self):
        script = 'for i in 1 2 3 4; do echo "line $i"; $U report loss=0.$i; sleep 0.15; done'
        code, text = run_in_terminal([UNISONO, "run", "-n", "2", "--name", "test", "--", "sh", "-c", script], 80, env=self.environment)
        self.assertEqual(code, 0)
        screen = play(text.decode())
        shown = [line for line in screen if re.search(r":[01] │ line \d", line)]
        self.assertEqual(len(shown), 8, "\n".join(screen))  # no line was painted over
        self.assertTrue(any("succeeded test/run_001" in line for line in screen), "\n".join(screen))
        self.assertEqual(sum("iteration 4" in line and "last report" not in line for line in screen), 1,
                         "\n".join(screen))


def play(text):
    """The lines that a terminal of unlimited height would show: CR, LF, cursor up, erase."""
    lines, row, column, at = [""], 0, 0, 0
    while at < len(text):
        escape = re.compile(r"\033\[([0-9;]*)([A-Za-z])").match(text, at)
        if escape:
            number = int(escape[1] or 0) if escape[1].isdigit() or not escape[1] else 0
            if escape[2] == "A":
                row = max(0, row - max(1, number))
            elif escape[2] == "K":
                lines[row] = lines[row][:column]
            elif escape[2] == "J":
                lines[row] = lines[row][:column]
                del lines[row + 1:]
            at = escape.end()
            continue
        mark = text[at]
        at += 1
        if mark == "\r":
            column = 0
        elif mark == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        else:
            lines[row] = lines[row][:column].ljust(column) + mark + lines[row][column + 1:]
            column += 1
    return lines


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=1)
