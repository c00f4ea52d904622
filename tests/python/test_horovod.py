"""unisono.horovod for NumPy: every operation against what its definition says, with ranks that bring different things."""

import os
import subprocess
import sys
import tempfile
import unittest

import numpy

import support
from unisono import train
from unisono.train import DataParallelTrainer, RunConfig, ScalingConfig, Trainer

QUIET = RunConfig(verbose=0)


def run(function, workers=3):
    """What the function returned, by rank."""
    trainer = Trainer("none", workers)
    trainer.start()
    try:
        return trainer.run(function)
    finally:
        trainer.shutdown()


class Operations(unittest.TestCase):
    def test_who_is_who(self):
        def loop():
            import unisono.horovod as hvd

            try:
                hvd.rank()
            except ValueError as error:
                said = str(error)
            hvd.init()
            hvd.init()  # again: nothing
            return said, hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size(), hvd.is_initialized()

        out = run(loop, 2)
        self.assertIn("hvd.init()", out[0][0])
        self.assertEqual([answer[1:] for answer in out], [(0, 2, 0, 2, 0, 1, True), (1, 2, 1, 2, 0, 1, True)])

    def test_reductions(self):
        def loop():
            import unisono.horovod as hvd

            hvd.init()
            mine = numpy.arange(5, dtype=numpy.float32).reshape(5, 1) * (hvd.rank() + 1)
            out = {"average": hvd.allreduce(mine), "sum": hvd.allreduce(mine, op=hvd.Sum), "old": hvd.allreduce(mine, average=False),
                   "min": hvd.allreduce(mine, op=hvd.Min), "max": hvd.allreduce(mine, op=hvd.Max),
                   "scaled": hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5),
                   "half": hvd.allreduce(mine, compression=hvd.Compression.fp16),
                   "float16": hvd.allreduce(mine.astype(numpy.float16), op=hvd.Sum), "whole": hvd.allreduce(numpy.array([hvd.rank(), 7])),
                   "bytes": hvd.allreduce(numpy.array([hvd.rank()], numpy.int8), op=hvd.Max), "scalar": hvd.allreduce(numpy.float64(hvd.rank()))}
            return {name: (value.dtype.name, value.tolist()) for name, value in out.items()}

        column = [[float(i)] for i in range(5)]
        times = [[[6.0 * i] for i in range(5)], [[2.0 * i] for i in range(5)], [[3.0 * i] for i in range(5)]]
        for answer in run(loop):
            self.assertEqual(answer, {"average": ("float32", times[1]), "sum": ("float32", times[0]), "old": ("float32", times[0]),
                                      "min": ("float32", column), "max": ("float32", times[2]), "scaled": ("float32", times[0]),
                                      "half": ("float32", times[1]), "float16": ("float16", times[0]), "whole": ("int64", [1, 7]),
                                      "bytes": ("int8", [2]), "scalar": ("float64", 1.0)})

    def test_what_moves_data(self):
        def loop():
            import unisono.horovod as hvd

            hvd.init()
            rank = hvd.rank()
            rows = numpy.full((rank + 1, 2), rank, numpy.int32)
            blocks = numpy.arange(6) + 10 * rank
            uneven, came = hvd.alltoall(blocks, splits=[1, 2, 3])
            return {"gather": hvd.allgather(rows).tolist(), "nothing": hvd.allgather(rows[:0]).shape,
                    "broadcast": hvd.broadcast(numpy.array([rank, 5]), 2).tolist(), "alltoall": hvd.alltoall(blocks).tolist(),
                    "uneven": uneven.tolist(), "came": came.tolist(), "scatter": hvd.reducescatter(numpy.arange(6.0), op=hvd.Sum).tolist(),
                    "left over": hvd.reducescatter(numpy.arange(4.0), op=hvd.Sum).tolist(),
                    "object": hvd.broadcast_object({"from": rank}, 1), "objects": hvd.allgather_object("rank %d" % rank)}

        for rank, answer in enumerate(run(loop)):
            self.assertEqual(answer["gather"], [[0, 0], [1, 1], [1, 1], [2, 2], [2, 2], [2, 2]])
            self.assertEqual(answer["nothing"], (0, 2))
            self.assertEqual(answer["broadcast"], [2, 5])
            self.assertEqual(answer["alltoall"], [2 * rank, 2 * rank + 1, 10 + 2 * rank, 11 + 2 * rank, 20 + 2 * rank, 21 + 2 * rank])
            first = [0, 1, 3][rank]
            self.assertEqual(answer["uneven"], [10 * other + first + i for other in range(3) for i in range(rank + 1)])
            self.assertEqual(answer["came"], [rank + 1] * 3)
            self.assertEqual(answer["scatter"], [6.0 * rank, 6.0 * rank + 3])
            self.assertEqual(answer["left over"], [[0.0, 3.0], [6.0], [9.0]][rank])
            self.assertEqual((answer["object"], answer["objects"]), ({"from": 1}, ["rank 0", "rank 1", "rank 2"]))

    def test_ranks_without_more_data_join(self):
        def loop():
            import unisono.horovod as hvd

            hvd.init()
            seen = []
            for step in range(hvd.rank() + 1):  # rank 0 has one batch, rank 2 three
                seen.append((hvd.allreduce(numpy.array([1.0]), op=hvd.Sum).tolist(), hvd.allreduce(numpy.array([hvd.rank()]), op=hvd.Min).tolist(),
                             len(hvd.allgather(numpy.zeros(2))), hvd.reducescatter(numpy.ones(3), op=hvd.Sum).tolist()))
            last = hvd.join()
            hvd.barrier()
            return seen, last, hvd.allreduce(numpy.array([1.0]), op=hvd.Sum).tolist()

        out = run(loop)
        steps = [([3.0], [0], 6, [3.0]), ([2.0], [1], 4, [2.0]), ([1.0], [2], 2, [1.0])]
        self.assertEqual(out, [(steps[:1], 2, [3.0]), (steps[:2], 2, [3.0]), (steps, 2, [3.0])])

    def test_errors(self):
        def loop():
            import unisono.horovod as hvd

            hvd.init()
            said = []
            for call in (lambda: hvd.allreduce(numpy.ones(1), op=hvd.Adasum), lambda: hvd.allreduce(numpy.ones(1), average=True, op=hvd.Sum),
                         lambda: hvd.broadcast(numpy.ones(1), 7), lambda: hvd.alltoall(numpy.ones(3)), lambda: hvd.ProcessSet([0]),
                         lambda: hvd.allreduce(numpy.ones(1), process_set="mine")):
                try:
                    call()
                except Exception as error:
                    said.append("%s: %s" % (type(error).__name__, error))
            return said

        said = run(loop, 2)[1]
        for part, sentence in zip(("NotImplementedError.*Average", "ValueError.*not both", "ValueError.*root_rank 7", "ValueError.*equal parts",
                                   "AttributeError.*not offered", "NotImplementedError.*process set"), said):
            self.assertRegex(sentence, part)

    def test_ranks_that_disagree_are_named(self):
        def loop():
            import unisono.horovod as hvd

            hvd.init()
            hvd.allreduce(numpy.ones(4 + hvd.rank()))

        with self.assertRaisesRegex(Exception, "rank"):
            DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2), run_config=QUIET).fit()

    def test_a_second_run_of_the_same_workers(self):
        def loop():
            import unisono.horovod as hvd

            hvd.init()
            return hvd.allreduce(numpy.array([hvd.rank() + 1.0]), op=hvd.Sum).tolist()

        trainer = Trainer("none", 2)
        trainer.start()
        self.assertEqual([trainer.run(loop) for _ in range(2)], [[[3.0], [3.0]]] * 2)
        trainer.shutdown()

    def test_a_world_of_one(self):
        import unisono.horovod as hvd

        hvd.init()
        self.addCleanup(hvd.shutdown)
        self.assertEqual((hvd.size(), hvd.allreduce(numpy.array([2.0])).tolist(), hvd.join(), hvd.broadcast_object("x")), (1, [2.0], 0, "x"))


class Programs(unittest.TestCase):
    def command(self, *words, code):
        unisono = os.environ.get("UNISONO_COMMAND")
        if not unisono:
            self.skipTest("UNISONO_COMMAND is not set")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w") as file:
                file.write(code)
            words = [path if word == "SCRIPT" else word for word in words]
            return subprocess.run([unisono, "run", *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120)

    def test_under_unisono_run(self):
        done = self.command("-n", "2", sys.executable, "SCRIPT", code="""
import numpy, unisono.horovod as hvd
hvd.init()
print("sum", hvd.allreduce(numpy.array([hvd.rank() + 1.0]), op=hvd.Sum), "of", hvd.size())
""")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("sum [3.] of 2"), 2, done.stdout)

    def test_import_horovod_means_ours_when_there_is_no_other(self):
        def loop():
            import horovod
            from horovod import rank

            horovod.init()
            return horovod.__name__, rank()

        os.environ["UNISONO_HOROVOD"] = "own"
        self.addCleanup(os.environ.pop, "UNISONO_HOROVOD")
        trainer = Trainer("horovod", 2)
        trainer.start()
        self.assertEqual(trainer.run(loop), [("unisono.horovod", 0), ("unisono.horovod", 1)])
        trainer.shutdown()


if __name__ == "__main__":
    support.main()
