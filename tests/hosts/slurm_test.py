"""slurm_test.py - runs inside an allocation of a real Slurm: munged, slurmctld and two slurmd of this machine, all below a temporary directory."""

import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from network import COMMAND, EXAMPLES, WEIGHTS, WORKER, Run, comm_of, finish

SERVERS = os.environ.get("UNISONO_TEST_SERVERS", "")
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch")
EXAMPLE = os.path.join(EXAMPLES, "slurm", "train.sbatch")

CONF = """ClusterName=unisono
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={base}/munge/socket
CredType=cred/munge
SlurmctldPort={ports[0]}
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool_%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd_%n.pid
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd_%n.log
TmpFS={base}/tmp_%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=2
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES State=UP OverSubscribe=YES
"""


def why_not():
    if os.geteuid() != 0:
        return "a Slurm of its own needs root"
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return "Slurm is not installed (Debian: slurm-wlm, munge): %s" % ", ".join(missing)
    return None


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def has_in_environment(pid, text):
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return text.encode() in file.read()
    except OSError:
        return False


class Cluster:
    def __init__(self):
        self.base = tempfile.mkdtemp(prefix="unisono-slurm-")
        self.storage = os.path.join(self.base, "results")
        for name in ("munge", "state", "log", "results", "tmp_n1", "tmp_n2"):
            os.mkdir(os.path.join(self.base, name), 0o700)
        os.chmod(self.base, 0o755)
        os.chmod(self.base + "/munge", 0o755)
        key = self.base + "/munge/key"
        with open(key, "wb") as file:
            file.write(os.urandom(1024))
        os.chmod(key, 0o400)
        self.env = dict(os.environ, SLURM_CONF=self.base + "/slurm.conf", UNISONO_RESULTS=self.storage)
        with open(self.env["SLURM_CONF"], "w", encoding="utf-8") as file:
            file.write(CONF.format(base=self.base, host=socket.gethostname(), ports=free_ports(3)))
        try:
            munge = self.base + "/munge/"
            self.sh("munged", "--force", "--key-file=" + key, "--socket=" + munge + "socket", "--pid-file=" + munge + "pid",
                    "--log-file=" + munge + "log", "--seed-file=" + munge + "seed")
            self.sh("slurmctld")
            for node in ("n1", "n2"):
                self.start_node(node)
            self.wait()
        except BaseException:
            self.close()
            raise

    def sh(self, *words):
        return subprocess.run(words, env=self.env, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout

    def wait(self):
        end = time.monotonic() + 30
        while self.sh("sinfo", "-h", "-o", "%t %D").split() != ["idle", "2"]:
            if time.monotonic() > end:
                raise AssertionError("Slurm did not come up: " + self.sh("sinfo"))
            time.sleep(0.1)

    def run(self, *words, timeout=60, env=None):
        return finish(subprocess.Popen(words, env=dict(self.env, **(env or {})), text=True, errors="replace", stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.base), timeout)

    def start(self, *words):
        return subprocess.Popen(words, env=self.env, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, cwd=self.base)

    def start_node(self, node):
        # Each with a name and a /dev/shm of its own: MPI names its shared memory after the host.
        self.sh("unshare", "--uts", "--mount", "sh", "-c",
                f"hostname {node} && mount -t tmpfs none /dev/shm && exec slurmd -N {node}")

    def lose_node(self, node):
        """Kills the node's daemon and every process below it: those in its namespace of names, which is its alone."""
        with open(self.base + "/slurmd_%s.pid" % node, encoding="utf-8") as file:
            daemon = int(file.read())
        space = os.readlink("/proc/%d/ns/uts" % daemon)
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            try:
                if os.readlink("/proc/%d/ns/uts" % pid) == space:
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.sh("scontrol", "update", "NodeName=" + node, "State=DOWN", "Reason=lost")

    def bring_back(self, node):
        self.start_node(node)
        # It may be back by itself (ReturnToService), and is then not to be resumed.
        subprocess.run(["scontrol", "update", "NodeName=" + node, "State=RESUME"], env=self.env, check=False, stderr=subprocess.DEVNULL)
        self.wait()

    def close(self):
        files = glob.glob(self.base + "/slurmd_*.pid") + [self.base + "/slurmctld.pid", self.base + "/munge/pid"]
        pids = []
        for name in files:
            try:
                with open(name, encoding="utf-8") as file:
                    pids.append(int(file.read()))
                os.kill(pids[-1], signal.SIGTERM)
            except (OSError, ValueError):
                pass
        end = time.monotonic() + 10
        while any(os.path.exists("/proc/%d" % pid) for pid in pids) and time.monotonic() < end:
            time.sleep(0.05)
        shutil.rmtree(self.base, ignore_errors=True)


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def tearDown(self):
        """A job that a failed test has left would keep the others waiting."""
        subprocess.run(["scancel", "--user=root"], env=self.cluster.env, check=False)

    def good(self, name, code, out, steps=20, ranks=4):
        self.assertEqual(code, 0, out)
        run = Run(self.cluster.storage, name)
        reports = run.reports()
        self.assertEqual(sorted(reports), [(rank, step) for rank in range(ranks) for step in range(1, steps + 1)])
        for (_, step), metrics in reports.items():
            self.assertAlmostEqual(metrics["sum"], step * (step + 1) / 2)
        return run

    def salloc(self, *words, **options):
        return self.cluster.run("salloc", "-Q", "-N2", "-n4", *words, **options)

    def test_srun(self):
        code, out = self.salloc(COMMAND, "run", "--launcher", "slurm", "--name", "plain", "-v", "--", WORKER)
        run = self.good("plain", code, out)
        self.assertEqual([worker["host"] for worker in run.about()["workers"]], ["n1", "n1", "n2", "n2"])
        self.assertIn("transport hosts", run.log(3))
        self.assertRegex(out, r"(?m)^n2:3 \| begins after step 0 ")

    def test_killed_rank(self):
        code, out = self.salloc(COMMAND, "run", "--launcher", "slurm", "--name", "killed", "-v", "--", WORKER, "die=3", "pause=10")
        run = self.good("killed", code, out)
        cause = run.events("cause")[0]["cause"]
        self.assertEqual((cause["class"], cause["rank"], cause["host"]), ("signal", 3, "n2"), run.events("cause"))
        self.assertGreaterEqual(int(re.findall(r"begins after step (\d+)", run.log(0))[1]), 7)
        self.assertEqual(run.about()["attempt"], 2)

    def test_replaced_worker(self):
        """Over UCX workers are no tasks of srun: one that dies in fit is replaced while the others train, and the weights are the same bits."""
        weights = {}
        for name, pause in (("calm", "0"), ("replaced", "20")):
            process = self.cluster.start("salloc", "-Q", "-N2", "-n4", COMMAND, "run", "--launcher", "slurm", "--transport", "ucx", "--name", name, "-v", "--",
                                         WEIGHTS, pause, "20")
            run, pids = Run(self.cluster.storage, name), {}
            end = time.monotonic() + 30
            while pause != "0" and not pids and time.monotonic() < end:
                time.sleep(0.02)
                try:
                    about = run.about()
                    pids = {worker["rank"]: worker["pid"] for worker in about["workers"]} if about["iterations"] else {}
                except (OSError, ValueError):
                    pass
            if pids:
                os.kill(pids[3], signal.SIGKILL)
            code, out = finish(process, 90)
            self.assertEqual(code, 0, out)
            self.assertEqual(run.about()["attempt"], 1, out)
            weights[name] = set(run.weights())
            last = {line["rank"]: line["pid"] for line in run.events("exit")}
            self.assertEqual({rank for rank in pids if pids[rank] != last[rank]}, {3} if pids else set())
        self.assertEqual(weights["calm"], weights["replaced"])

    def test_inside_srun(self):
        code, out = self.salloc("srun", "--mpi=pmix", COMMAND, "run", "--name", "inside", "-v", "--", WORKER)
        self.good("inside", code, out)

    def test_batch_script(self):
        log = os.path.join(self.cluster.base, "batch.log")
        code, out = self.cluster.run("sbatch", "-W", "-N2", "-n4", "-o", log, EXAMPLE, WORKER, "steps=10",
                                     env={"PATH": os.path.dirname(COMMAND) + ":" + os.environ["PATH"], "UNISONO_NAME": "batch"})
        with open(log, encoding="utf-8") as file:
            self.good("batch", code, out + file.read(), steps=10)

    def submit(self, log, *words, options=()):
        """The number of a job of the example's script."""
        env = {"PATH": os.path.dirname(COMMAND) + ":" + os.environ["PATH"], "UNISONO_NAME": "shared"}
        code, out = self.cluster.run("sbatch", "--parsable", "-n1", "-o", os.path.join(self.cluster.base, log), *options, EXAMPLE, WORKER,
                                     *words, env=env)
        self.assertEqual(code, 0, out)
        return out.strip()

    def wait_for(self, condition, seconds=40):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                value = condition()
            except (AttributeError, OSError, ValueError, KeyError):
                value = None
            if value:
                return value
            time.sleep(0.1)
        logs = ""
        for path in glob.glob(self.cluster.base + "/*.log") + glob.glob(self.cluster.base + "/log/*"):
            with open(path, encoding="utf-8", errors="replace") as file:
                logs += "\n%s:\n%s" % (path, file.read()[-3000:])
        self.fail("it did not come to that; the queue: " + self.cluster.sh("squeue", "-a") + self.cluster.sh("scontrol", "show", "job") + logs)

    def run_of(self, job):
        """The run that belongs to a job."""
        for number in range(1, 20):
            run = Run(self.cluster.storage, "shared", number)
            if os.path.exists(run.dir) and run.about()["options"].get("slurm_job") == job:
                return run
        return None

    def trains(self, job):
        return self.wait_for(lambda: self.run_of(job).about()["iterations"] > 2 and self.run_of(job))

    def state(self, job):
        return self.cluster.sh("squeue", "-h", "-j", job, "-o", "%T").strip() if job in self.cluster.sh("squeue", "-h", "-o", "%A").split() else ""

    def hurry(self, job):
        """Slurm puts a job back with a start two minutes ahead; when it is pending it takes another. Not at once: slurmd tells lives of a job
        apart by the second, and refuses one that begins in the second in which the last one ended ("already killed, do not launch")."""
        if job not in self.hurried and subprocess.run(["scontrol", "update", "JobId=" + job, "StartTime=now+5"], env=self.cluster.env, check=False,
                                                      stderr=subprocess.DEVNULL).returncode == 0:
            self.hurried.add(job)

    def test_scancel_is_the_end(self):
        """scancel's SIGTERM stops the run well (75), but the job does not come back."""
        job = self.submit("cancelled.log", "pause=100", "steps=3000")
        run = self.trains(job)
        self.cluster.sh("scancel", job)
        self.wait_for(lambda: self.state(job) == "")
        time.sleep(1.5)
        self.assertEqual(self.state(job), "")
        about = self.cluster.sh("scontrol", "show", "job", job)
        self.assertIn("JobState=CANCELLED", about)
        self.assertIn("Restarts=0", about)
        self.assertNotEqual(run.about()["status"], "succeeded")

    def test_requeued_jobs_resume_their_own_runs(self):
        """Two tasks of an array under one name are asked to stop as Slurm asks before the time is over; each goes on with its own run."""
        self.hurried = set()
        # The first lives are long, so that both are under way when they are asked to stop.
        steps = ("pause=1000", "steps=60", "rush=1")
        array = self.submit("array_%a.log", *steps, options=["--array=0-1"])
        runs = {}

        def both_train():
            # SLURM_JOB_ID of a task, and its name for commands (ARRAY_TASK): one of the numbers is that of the whole array.
            for line in self.cluster.sh("squeue", "-h", "-t", "R", "-o", "%A %i").splitlines():
                number, task = line.split()
                if task.startswith(array + "_") and self.run_of(number).about()["iterations"] > 2:
                    runs[task] = self.run_of(number)
            return len(runs) == 2
        self.wait_for(both_train)
        self.assertEqual(len({run.dir for run in runs.values()}), 2)
        for task in runs:
            self.cluster.sh("scancel", "--batch", "--signal=TERM", task)
        for task, run in runs.items():
            self.wait_for(lambda: "Restarts=1" in self.cluster.sh("scontrol", "show", "job", task))
            self.wait_for(lambda: self.hurry(task) or run.about()["status"] == "succeeded", 240)
            begun = [int(step) for step in re.findall(r"begins after step (\d+)", run.log(0))]
            self.assertEqual(len(begun), 2)
            self.assertGreater(begun[1], 2, "it went on from its own checkpoint")
            self.assertEqual(max(step for _, step in run.reports()), 60)

    @unittest.skipUnless(WEIGHTS, "the native engine was not built")
    def test_preempted_often(self):
        """A fit that is preempted inside its epochs, by Slurm (scontrol requeue) and by its own job (a signal before the time limit), ends with the
        weights of one that was left alone, and repeats no step."""
        often = 50 if os.environ.get("UNISONO_TEST_SOAK") else 10
        code, out = self.cluster.run(COMMAND, "run", "--cpus", "1", "--name", "calm", "-n", "2", "--", WEIGHTS, "0", "40")
        self.assertEqual(code, 0, out)
        job = self.cluster.sh("sbatch", "--parsable", "-n2", "--requeue", "--open-mode=append", "-o", self.cluster.base + "/often.log", "--wrap",
                              "exec %s run --cpus 1 --requeue --name shared -n 2 -- %s 60 40" % (COMMAND, WEIGHTS)).strip()
        self.wait_for(lambda: self.run_of(job))
        run = self.run_of(job)
        for number in range(1, often + 1):
            self.hurried = set()
            self.wait_for(lambda: self.hurry(job) or (self.state(job) == "RUNNING" and run.about()["attempt"] == number and
                                                      run.about()["status"] == "running" and run.about()["workers"][0]["pid"]), 60)
            time.sleep(1)  # some steps
            if number % 2:
                self.cluster.sh("scontrol", "requeue", job)
            else:
                self.cluster.sh("scancel", "--batch", "--signal=TERM", job)
            self.wait_for(lambda: "Restarts=%d " % number in self.cluster.sh("scontrol", "show", "job", job), 60)
        self.hurried = set()
        self.wait_for(lambda: self.hurry(job) or run.about()["status"] == "succeeded", 120)
        self.assertEqual(run.about()["attempt"], often + 1)
        self.assertEqual(run.weights(), Run(self.cluster.storage, "calm").weights())
        stops = [int(steps) for steps in re.findall(r"fit stopped after (\d+) steps", run.log(0))]
        self.assertTrue([steps for steps in stops if steps % 10], "it stopped inside of epochs: %s" % stops)

    @unittest.skipUnless(WEIGHTS, "the native engine was not built")
    def test_weights_bit_for_bit(self):
        """The same as without Slurm (mpi_test.py has MPI)."""
        words = (COMMAND, "run", "--cpus", "1")
        code, out = self.cluster.run(*words, "--name", "local", "-n", "2", "--", WEIGHTS)
        self.assertEqual(code, 0, out)
        code, out = self.cluster.run("salloc", "-Q", "-N2", "-n2", *words, "--name", "nodes", "--launcher", "slurm", "--", WEIGHTS)
        self.assertEqual(code, 0, out)
        local, nodes = Run(self.cluster.storage, "local"), Run(self.cluster.storage, "nodes")
        self.assertEqual([worker["host"] for worker in nodes.about()["workers"]], ["n1", "n2"])
        self.assertEqual(nodes.weights(), local.weights())
        self.assertEqual(nodes.files() - {"logs/launcher.log"}, local.files())

    @unittest.skipUnless(SERVERS, "the native engine was not built")
    def test_parameter_servers(self):
        """A coordinator, two workers and a server on two nodes; one of them dies, and all go on from the checkpoint."""
        words = (COMMAND, "run", "--launcher", "slurm", "-n", "2", "--servers", "1", "-v")
        code, out = self.salloc(*words, "--name", "servers", "--", SERVERS, "fit", "parameter_server:sync", "6")
        self.assertEqual(code, 0, out)
        run = Run(self.cluster.storage, "servers")
        self.assertEqual([worker["host"] for worker in run.about()["workers"]], ["n1", "n1", "n2", "n2"])
        self.assertIn("updates 36", run.log(0))
        code, out = self.salloc(*words, "--name", "struck", "--", SERVERS, "loop", "parameter_server", "10", "5", "2")
        self.assertEqual(code, 0, out)
        run = Run(self.cluster.storage, "struck")
        cause = run.events("cause")[0]["cause"]
        self.assertEqual((cause["class"], cause["rank"], cause["host"], cause["signal"]), ("signal", 2, "n2", 9))
        self.assertEqual(run.about()["attempt"], 2)
        self.assertGreaterEqual(int(re.findall(r"begins after epoch (\d+)", run.log(0))[1]), 4)

    def test_stopped_rank(self):
        code, out = self.salloc(COMMAND, "run", "--launcher", "slurm", "--name", "stopped", "--", WORKER, "stop=1", "pause=10")
        run = self.good("stopped", code, out)
        cause = run.events("cause")[0]["cause"]
        self.assertEqual((cause["class"], cause["rank"], cause["host"]), ("stopped", 1, "n1"))

    def test_srun_killed(self):
        """kill -9 of srun is a failure of the launcher, not a wish to stop."""
        process = self.cluster.start("salloc", "-Q", "-N2", "-n2", COMMAND, "run", "--launcher", "slurm", "--name", "srun", "-v", "--", WORKER,
                                     "pause=50", "steps=60")
        run = Run(self.cluster.storage, "srun")
        self.wait_for(lambda: run.about()["iterations"] > 2)
        # Of our cluster; srun has a child of its own, which is younger.
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and comm_of(int(name)) == "srun"
                and has_in_environment(int(name), self.cluster.base)]
        self.assertTrue(pids)
        os.kill(min(pids), signal.SIGKILL)
        code, out = finish(process, 90)
        self.assertEqual(code, 0, out)
        cause = run.events("cause")[0]["cause"]
        self.assertEqual(cause["class"], "launcher", cause)
        self.assertIn("srun was killed by signal 9", cause["message"])
        self.assertEqual(run.about()["attempt"], 2)

    def test_lost_node(self):
        """The node's daemon and all that ran below it are gone, and Slurm is told: the run goes on with the rest of its allocation."""
        process = self.cluster.start("salloc", "-Q", "-N2", "-n4", "--no-kill", COMMAND, "run", "--launcher", "slurm", "--name", "lost",
                                     "--min-workers", "2", "-v", "--", WORKER, "pause=50", "steps=60")
        run = Run(self.cluster.storage, "lost")
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                about = run.about()
                if about["iterations"] > 2 and all(worker["pid"] for worker in about["workers"]):
                    break
            except (OSError, ValueError):
                pass
            time.sleep(0.05)
        try:
            begun = time.time()
            self.cluster.lose_node("n2")
            code, out = finish(process, 90)
            self.assertEqual(code, 0, out)
            cause = run.events("cause")[0]
            self.assertEqual((cause["cause"]["class"], cause["cause"]["host"]), ("host_lost", "n2"))
            self.assertLess(cause["time"] - begun, 8)
            self.assertEqual([worker["host"] for worker in run.about()["workers"]], ["n1", "n1"])
            self.assertAlmostEqual(run.reports()[(0, 60)]["sum"], 60 * 61 / 2)
        finally:
            self.cluster.bring_back("n2")

    def test_check(self):
        """The nodes of an allocation, asked by srun."""
        code, out = self.salloc(COMMAND, "check", "--launcher", "slurm")
        self.assertEqual(code, 0, out)
        for node in ("n1", "n2"):
            self.assertRegex(out, r"(?m)^%s +ready" % node)
        code, out = self.cluster.run(COMMAND, "check", "--launcher", "slurm")
        self.assertNotEqual(code, 0)
        self.assertIn("inside an allocation", out)

    def test_outside_of_an_allocation(self):
        code, out = self.cluster.run(COMMAND, "run", "--launcher", "slurm", "--name", "outside", "--", WORKER)
        self.assertEqual(code, 125, out)
        self.assertIn("salloc or sbatch", out)


if __name__ == "__main__":
    SKIP = why_not()
    if SKIP:
        print(SKIP)
        sys.exit(77)
    unittest.main(verbosity=2)
