"""hvd.elastic with NumPy: ranks are killed, come and go at any moment; every batch counts once, all ranks end with the weights of a run that was left alone, and survivors keep
their processes."""

import os
import signal
import subprocess
import sys
import time
import unittest

import elastic_support
import support

EPOCHS, BATCHES = 4, 20
LOOP = """
import numpy
import unisono.horovod as hvd
from unisono import train

hvd.init()
say(begun=hvd.rank())


@hvd.elastic.run
def loop(state):
    say(entered=hvd.rank(), size=hvd.size(), epoch=state.epoch, batch=state.batch)
    while state.epoch < %d:
        while state.batch < %d:
            place = state.epoch * %d + state.batch
            time.sleep(float(os.environ.get("SECONDS", "0")))
            if os.environ.get("DIE") == "%%d of %%d" %% (place, hvd.rank()):
                die("")
            # The same for any number of ranks, to the bit: small whole numbers.
            state.w = state.w * 0.5 + hvd.allreduce(numpy.full(3, place / 1024.0))
            state.used.append(place)
            state.batch += 1
            if state.batch %% 3 == 0:
                state.commit()
        state.epoch, state.batch = state.epoch + 1, 0
        train.report(epoch=state.epoch, size=hvd.size())
        state.commit()


state = hvd.elastic.ObjectState(epoch=0, batch=0, used=[], w=numpy.zeros(3))
resets = []
state.register_reset_callbacks([lambda: resets.append(hvd.size())])
loop(state)
say(w=state.w.tolist(), used=state.used, resets=resets, rank=hvd.rank(), size=hvd.size(), sum=hvd.allreduce(numpy.ones(1), op=hvd.Sum).tolist())
""" % (EPOCHS, BATCHES, BATCHES)


def expected():
    w = 0.0
    for place in range(EPOCHS * BATCHES):
        w = w * 0.5 + place / 1024.0
    return w


class Elastic(unittest.TestCase):
    def right(self, ended, ranks=None):
        self.assertEqual(ended.code, 0, ended.output)
        last = ended.of("w")
        self.assertEqual({each["size"] for each in last}, {len(last)}, ended.output)
        if ranks is not None:
            self.assertEqual(len(last), ranks, ended.output)
        for each in last:
            self.assertEqual(each["used"], list(range(EPOCHS * BATCHES)), "every batch once, in order")
            self.assertEqual(each["w"], [expected()] * 3)
            self.assertEqual(each["sum"], [len(last)])
        self.assertEqual(sorted(each["rank"] for each in last), list(range(len(last))))
        # Every rank's reports count once, and in order; whichever rank has made them.
        for rank in {each["rank"] for each in ended.reports if "epoch" in each}:
            mine = [(each["iteration"], each["epoch"]) for each in ended.reports if each.get("rank") == rank and "epoch" in each]
            self.assertEqual(mine, [(iteration, iteration) for iteration, _ in mine], ended.reports)
            self.assertEqual(len(mine), len(set(mine)), ended.reports)
        self.assertEqual({each["epoch"] for each in ended.reports if "epoch" in each}, set(range(1, EPOCHS + 1)))
        return last

    def test_undisturbed(self):
        ended = elastic_support.run(LOOP, "-n", "2")
        self.right(ended, 2)
        self.assertEqual(len(ended.pids()), 2)

    def test_either_rank_is_replaced_and_the_other_keeps_its_process(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                ended = elastic_support.run(LOOP, "-n", "2", "--max-failures", "3", env={"DIE": "25 of %d" % rank})
                last = self.right(ended, 2)
                self.assertEqual(len(ended.pids()), 3, "one more process than ranks")
                self.assertNotIn("restart", ended.output)
                self.assertEqual(ended.record["replaced"], 1)
                survivors = [lines for lines in ended.said.values() if sum("entered" in line for line in lines) == 2]
                self.assertEqual(len(survivors), 1)
                # Back to the commit after batch 3 of the second epoch, and rank 0, because it has what the new process does not.
                self.assertEqual([line for line in survivors[0] if "entered" in line][1], {"entered": 0, "size": 2, "epoch": 1, "batch": 3})
                self.assertEqual(sorted(each["resets"] for each in last), [[], [2]])

    def test_fewer_go_on_and_the_lost_one_comes_back(self):
        ended = elastic_support.run(LOOP, "--workers", "1:2", "-n", "2", "--max-failures", "3", env={"DIE": "5 of 1", "SECONDS": "0.03"})
        self.right(ended, 2)
        self.assertIn("rank 1 was lost", ended.output)
        self.assertIn("rank 1 joined", ended.output)
        chief = [lines for lines in ended.said.values() if "begun" in lines[0] and len([line for line in lines if "entered" in line]) == 3]
        sizes = [[line["size"] for line in lines if "entered" in line] for lines in chief]
        self.assertEqual(sizes, [[2, 1, 2]], "the survivor goes on alone until the other is back")
        # It was let in at a commit: nothing that the survivor had done was done again.
        alone, together = [line for line in chief[0] if "entered" in line][1:]
        self.assertGreater((together["epoch"], together["batch"]), (alone["epoch"], alone["batch"]))

    def test_scaled(self):
        asked = []

        def disturb(chance, alive, folder):
            wanted = (4, 1, 3)[len(asked)]
            time.sleep(0.9)
            out = elastic_support.scale(folder, wanted)
            asked.append((wanted, out.stdout))
            return len(asked) < 3

        ended = elastic_support.run(LOOP, "--workers", "1:4", "-n", "2", disturb=disturb, env={"SECONDS": "0.06"})
        self.right(ended)
        sizes = [line["size"] for line in next(lines for lines in ended.said.values() if lines[0] == {"begun": 0}) if "entered" in line]
        self.assertEqual((sizes[0], max(sizes)), (2, 4), (sizes, asked, ended.output))
        self.assertIn(1, sizes, (asked, ended.output))
        self.assertIn("left the group, as it was told to", ended.output)

    def test_killed_at_random_moments(self):
        for seed in range(int(os.environ.get("UNISONO_TEST_SEEDS", "3"))):
            with self.subTest(seed=seed):
                times = [0]

                def disturb(chance, alive, folder):
                    time.sleep(chance.uniform(0.05, 0.7))
                    if elastic_support.epochs(folder) >= EPOCHS - 1:
                        return False
                    if len(alive) < 3:
                        return True  # never the last one that trains
                    elastic_support.kill(chance.choice(alive))
                    times[0] += 1
                    return times[0] < 5

                ended = elastic_support.run(LOOP, "-n", "3", "--max-failures", "20", disturb=disturb, seed=seed, env={"SECONDS": "0.02"})
                self.right(ended, 3)

    def test_killed_and_scaled_at_random_moments(self):
        for seed in range(int(os.environ.get("UNISONO_TEST_SEEDS", "2"))):
            with self.subTest(seed=seed):
                times = [0]

                def disturb(chance, alive, folder):
                    time.sleep(chance.uniform(0.1, 0.6))
                    if elastic_support.epochs(folder) >= EPOCHS - 1:
                        return False
                    if chance.random() < 0.5:
                        elastic_support.scale(folder, chance.randint(2, 4))
                    elif len(alive) >= 3:
                        elastic_support.kill(chance.choice(alive))
                    times[0] += 1
                    return times[0] < 8

                ended = elastic_support.run(LOOP, "--workers", "2:4", "-n", "3", "--max-failures", "20", disturb=disturb, seed=seed, env={"SECONDS": "0.03"})
                self.right(ended)

    def test_a_frozen_rank_is_replaced(self):
        def disturb(chance, alive, folder):
            time.sleep(0.4)
            elastic_support.kill(alive[-1], signal.SIGSTOP)
            return False

        ended = elastic_support.run(LOOP, "-n", "2", "--max-failures", "3", disturb=disturb, env={"SECONDS": "0.03"})
        self.right(ended, 2)


class Errors(unittest.TestCase):
    def test_an_error_of_the_program_ends_it(self):
        ended = elastic_support.run("""
import unisono.horovod as hvd
hvd.init()


@hvd.elastic.run
def loop(state):
    say(entered=1)
    raise KeyError("the user's own")


loop(hvd.elastic.ObjectState(x=1))
""", "-n", "2", "--max-failures", "0")
        self.assertNotEqual(ended.code, 0)
        self.assertIn("the user's own", ended.output)
        self.assertEqual(len(ended.of("entered")), 2, "it is not tried again")

    def test_calls_that_do_not_fit_are_tried_once_more(self):
        """HorovodInternalError restores and calls again, as in Horovod; without progress it ends the program, which would otherwise go round for ever."""
        ended = elastic_support.run("""
import numpy
import unisono.horovod as hvd
hvd.init()


@hvd.elastic.run
def loop(state):
    say(entered=hvd.rank())
    hvd.allreduce(numpy.zeros(2 + hvd.rank(), "float32"))


loop(hvd.elastic.ObjectState(x=1))
""", "-n", "2", "--max-failures", "0")
        self.assertNotEqual(ended.code, 0)
        self.assertIn("the ranks do not call the same", ended.output)
        self.assertEqual(len(ended.of("entered")), 4, ended.output)

    def test_the_programs_own_internal_error(self):
        """Raised on one rank alone: the others are brought back, too."""
        ended = elastic_support.run("""
import numpy
import unisono.horovod as hvd
from horovod.common.exceptions import HorovodInternalError
hvd.init()
raised = []


@hvd.elastic.run
def loop(state):
    while state.batch < 10:
        hvd.allreduce(numpy.zeros(2))
        state.batch += 1
        if state.batch == 7 and hvd.rank() == 1 and not raised:
            raised.append(1)
            raise HorovodInternalError("the user's own")
        if state.batch % 4 == 0:
            state.commit()
    state.commit()


state = hvd.elastic.ObjectState(batch=0)
loop(state)
say(batch=state.batch, raised=len(raised))
""".replace("hvd.init()", "hvd.install()\nhvd.init()", 1).replace("from horovod.common.exceptions", "hvd.install()\nfrom horovod.common.exceptions"), "-n", "2")
        self.assertEqual(ended.code, 0, ended.output)
        self.assertEqual(sorted(line["raised"] for line in ended.of("raised")), [0, 1])
        self.assertEqual({line["batch"] for line in ended.of("raised")}, {10})

    def test_a_collective_before_run_in_a_new_process(self):
        """It meets the others' synchronization: an error with both names, and an end."""
        ended = elastic_support.run("""
import numpy
import unisono.horovod as hvd
hvd.init()
hvd.allreduce(numpy.zeros(2))


@hvd.elastic.run
def loop(state):
    for state.batch in range(state.batch, 10):
        hvd.allreduce(numpy.zeros(3))
        if state.batch == 5 and hvd.rank() == 1:
            die("")
        state.commit()


loop(hvd.elastic.ObjectState(batch=0))
""", "-n", "2", "--max-failures", "2")
        self.assertIn("hvd.elastic.run", ended.output)
        self.assertIn("calls allreduce of", ended.output)

    def test_one_rank_returns_early(self):
        ended = elastic_support.run("""
import numpy
import unisono.horovod as hvd
hvd.init()


@hvd.elastic.run
def loop(state):
    if hvd.rank() == 0:
        return
    hvd.allreduce(numpy.zeros(3))


loop(hvd.elastic.ObjectState(batch=0))
""", "-n", "2", timeout=60)
        self.assertNotEqual(ended.code, 0)
        self.assertIn("the end of the function under hvd.elastic.run", ended.output)

    def test_wrong_states(self):
        import unisono.horovod as hvd

        hvd.init()
        with self.assertRaisesRegex(TypeError, "is a State, not dict"):
            hvd.elastic.run(lambda state: None)({})
        own = hvd.elastic.State(None, None)
        for name in ("save", "restore", "sync"):
            with self.assertRaisesRegex(NotImplementedError, name):
                getattr(own, name)()
        hvd.shutdown()

    def test_alone(self):
        """A world of one, and a state that is told of hosts by the program itself."""
        import unisono.horovod as hvd

        hvd.init()
        entered = []

        @hvd.elastic.run
        def loop(state, more, extra=0):
            entered.append((state.n, hvd.size()))
            if state.n == 0:
                state.n = 5
                state.on_hosts_updated(1, hvd.elastic.HostUpdateResult.added)
                state.check_host_updates()
            if state.n == 5:
                state.n, state.left = 6, [1]
                state.commit()
                state.left.append(2)
                raise hvd.HorovodInternalError("once")
            return state.n + more + extra

        state = hvd.elastic.ObjectState(n=0, left=[])
        self.assertEqual(loop(state, 10, extra=100), 116)
        self.assertEqual(entered, [(0, 1), (5, 1), (6, 1)])
        self.assertEqual(state.left, [1], "a list is restored, too")
        hvd.shutdown()


class Own(unittest.TestCase):
    def test_a_state_of_ones_own(self):
        """With save, restore and sync by hand: it has no part in what ObjectState does."""
        ended = elastic_support.run("""
import numpy
import unisono.horovod as hvd
hvd.init()


class Mine(hvd.elastic.State):
    def __init__(self):
        super().__init__(hvd.broadcast_object, hvd.rank)
        self.value, self.kept = [], []

    def save(self):
        self.kept = list(self.value)

    def restore(self):
        self.value = list(self.kept)

    def sync(self):
        self.value = hvd.broadcast_object(self.value, root_rank=0)


@hvd.elastic.run
def loop(state):
    say(entered=len(state.value))
    while len(state.value) < 10:
        hvd.allreduce(numpy.zeros(2))
        if len(state.value) in (4, 7) and hvd.rank() == len(state.value) % 2:
            die(str(len(state.value)))
        state.value.append(len(state.value))
        if len(state.value) % 2 == 0:
            state.commit()


state = Mine()
loop(state)
say(value=state.value)
""", "-n", "2", "--max-failures", "4")
        self.assertEqual(ended.code, 0, ended.output)
        self.assertEqual([line["value"] for line in ended.of("value")], [list(range(10))] * 2)

    def test_in_a_trainer(self):
        """A HorovodTrainer's function is replaced in the same way."""
        script = """
import os, sys, tempfile
sys.path.insert(0, %r)
from unisono.train import FailureConfig, RunConfig, ScalingConfig
from unisono.train.horovod import HorovodTrainer


def loop(config):
    import numpy
    import horovod as hvd
    from unisono import train
    hvd.init()
    open(os.path.join(config["folder"], "pid_%%d" %% os.getpid()), "w").close()

    @hvd.elastic.run
    def steps(state):
        while state.batch < 12:
            marker = os.path.join(config["folder"], "killed_%%d" %% state.batch)
            if state.batch in (4, 9) and hvd.rank() == 1 and not os.path.exists(marker):
                open(marker, "w").close()
                os.kill(os.getpid(), 9)
            state.sum += float(hvd.allreduce(numpy.full(1, float(state.batch)))[0])
            state.batch += 1
            if state.batch %% 3 == 0:
                train.report({"batch": state.batch, "sum": state.sum})
                state.commit()

    steps(hvd.elastic.ObjectState(batch=0, sum=0.0))


with tempfile.TemporaryDirectory() as folder:
    result = HorovodTrainer(loop, train_loop_config={"folder": folder}, scaling_config=ScalingConfig(num_workers=2),
                            run_config=RunConfig(failure_config=FailureConfig(max_failures=3))).fit()
    print("metrics", result.metrics["batch"], result.metrics["sum"], len([name for name in os.listdir(folder) if name.startswith("pid_")]))
""" % os.path.dirname(os.path.dirname(os.path.abspath(__import__("unisono").__file__)))
        done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120,
                              env=dict(os.environ, UNISONO_HOROVOD="own"))
        self.assertIn("metrics 12 66.0 4", done.stdout)


if __name__ == "__main__":
    support.main()
