"""collectives.py - the net of the collectives: 1,000 random calls of unisono.horovod beside torch.distributed (gloo) and Horovod's definitions.

Every worker makes the same calls with data of its own: operation, type, shape, reduction, factors, splits and root are drawn from the seed, the values from seed and rank. References come from
gloo in the same processes: sums, minima and maxima by its all_reduce, everything that moves data from its all_gather_object of the inputs. Gradients are compared with Horovod 0.28's
definitions (docs/horovod.md). One call in eight does not fit on one rank: all ranks must raise HorovodInternalError that names two ranks, and the next call must work.
"""

import os
import sys
import tempfile

CALLS = {2: 400, 3: 600}
FLOATS = ("float32", "float64", "float16", "bfloat16")
WHOLE = ("int8", "uint8", "int16", "int32", "int64")
KINDS = ("allreduce", "allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "async", "grouped", "gradient", "mismatch")


def worker(config):
    import datetime
    import random

    import numpy
    import torch
    import torch.distributed as gloo

    import unisono.horovod.torch as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    gloo.init_process_group("gloo", init_method="file://" + config["store"], rank=rank, world_size=size, timeout=datetime.timedelta(seconds=120))
    tolerance = {"float32": 1e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 2e-2}
    differences, counts = [], {}

    def dtype_of(name):
        return getattr(torch, name)

    def data(seed, who, shape, name):
        made = numpy.random.default_rng([seed, who])
        if name in FLOATS:
            return torch.tensor(made.normal(size=shape)).to(dtype_of(name))
        low = 0 if name == "uint8" else -20
        return torch.tensor(made.integers(low, 21, size=shape)).to(dtype_of(name))

    def all_of(tensor):
        """Every rank's tensor, by gloo."""
        out = [None] * size
        gloo.all_gather_object(out, tensor)
        return out

    def check(what, ours, theirs):
        theirs = theirs.to(ours.dtype)
        name = str(ours.dtype).rpartition(".")[2]
        same = ours.shape == theirs.shape and (
            torch.equal(ours, theirs) if name not in tolerance else
            torch.allclose(ours.double(), theirs.double(), rtol=tolerance[name], atol=tolerance[name] * 4 * size))
        if not same and len(differences) < 20:
            differences.append("%s: %s is not %s" % (what, ours.tolist(), theirs.tolist()))

    def scale(tensor, factor):
        if factor == 1.0:
            return tensor
        return tensor * factor if tensor.dtype.is_floating_point else (tensor.double() * factor).trunc().to(tensor.dtype)

    def reduced(tensor, op, pre=1.0, post=1.0):
        """The reduction of all ranks' tensors, by gloo in a wide type."""
        wide = tensor.double() if tensor.dtype.is_floating_point else tensor.long()
        wide = scale(wide, pre).clone()
        gloo.all_reduce(wide, op={"Min": gloo.ReduceOp.MIN, "Max": gloo.ReduceOp.MAX}.get(op.name, gloo.ReduceOp.SUM))
        if op is hvd.Average and wide.dtype == torch.int64:
            return torch.div(wide, size, rounding_mode="trunc") if post == 1.0 else scale(wide, post / size)
        return scale(wide / size if op is hvd.Average else wide, post)

    def shape_of(dice, least=0):
        return tuple(dice.randint(0 if n else 1, 5) for n in range(dice.randint(least, 3)))

    def do_allreduce(dice, seed, name, how):
        shape, op = shape_of(dice), dice.choice((hvd.Average, hvd.Sum, hvd.Min, hvd.Max))
        pre, post = (dice.choice((1.0, 1.0, 0.5, 2.0, -1.5)) for _ in range(2)) if name in ("float32", "float64", "int32", "int64") else (1.0, 1.0)
        mine = data(seed, rank, shape, name)
        wanted = reduced(mine, op, pre, post)
        if how == "in place":
            out = mine.clone()
            hvd.allreduce_(out, op=op, prescale_factor=pre, postscale_factor=post)
        else:
            out = hvd.allreduce(mine, op=op, prescale_factor=pre, postscale_factor=post)
        check("allreduce %s %s %s %s %s %s" % (name, shape, op, pre, post, how), out, wanted)

    def do_async(dice, seed, name, how):
        asked = [(data(seed + 7 * n, rank, (dice.randint(1, 6),), name), dice.choice((hvd.Average, hvd.Sum))) for n in range(dice.randint(1, 40))]
        wanted = [reduced(tensor, op) for tensor, op in asked]
        handles = [hvd.allreduce_async(tensor, op=op) for tensor, op in asked]
        for number in dice.sample(range(len(asked)), len(asked)):
            if dice.random() < 0.3:
                hvd.poll(handles[number])
            check("allreduce_async %s, %d of %d" % (name, number, len(asked)), hvd.synchronize(handles[number]), wanted[number])

    def do_grouped(dice, seed, name, how):
        tensors = [data(seed + n, rank, shape_of(dice), name) for n in range(dice.randint(1, 5))]
        wanted = [reduced(tensor, hvd.Sum) for tensor in tensors]
        for ours, theirs in zip(hvd.grouped_allreduce(tensors, op=hvd.Sum), wanted):
            check("grouped_allreduce %s" % name, ours, theirs)

    def do_allgather(dice, seed, name, how):
        rest, rows = shape_of(dice), [dice.randint(0, 4) for _ in range(size)]
        mine = data(seed, rank, (rows[rank], *rest), name)
        check("allgather %s %s %s" % (name, rows, rest), hvd.allgather(mine), torch.cat(all_of(mine)))

    def do_broadcast(dice, seed, name, how):
        shape, root = shape_of(dice), dice.randrange(size)
        mine = data(seed, rank, shape, name)
        wanted = all_of(mine)[root]
        out = mine.clone()
        if how == "in place":
            hvd.broadcast_(out, root)
        else:
            out = hvd.broadcast(mine, root)
        check("broadcast %s %s from %d" % (name, shape, root), out, wanted)

    def blocks(dice):
        """[from][to]: rows"""
        return [[dice.randint(0, 3) for _ in range(size)] for _ in range(size)]

    def do_alltoall(dice, seed, name, how):
        rest, table, even = shape_of(dice), blocks(dice), dice.random() < 0.4
        if even:
            table = [[dice.randint(0, 2)] * size for _ in range(size)]
        mine = data(seed, rank, (sum(table[rank]), *rest), name)
        every = all_of(mine)
        wanted = torch.cat([every[r][sum(table[r][:rank]):sum(table[r][:rank + 1])] for r in range(size)])
        out = hvd.alltoall(mine) if even else hvd.alltoall(mine, splits=torch.tensor(table[rank]))
        if not even:
            out, came = out
            check("alltoall's splits", came, torch.tensor([table[r][rank] for r in range(size)]))
        check("alltoall %s %s %s" % (name, table, rest), out, wanted)

    def part_of(rows):
        base, more = divmod(rows, size)
        first = rank * base + min(rank, more)
        return slice(first, first + base + (rank < more))

    def do_reducescatter(dice, seed, name, how):
        shape, op = (dice.randint(0, 9), *shape_of(dice)), dice.choice((hvd.Average, hvd.Sum, hvd.Min, hvd.Max))
        mine = data(seed, rank, shape, name)
        check("reducescatter %s %s %s" % (name, shape, op), hvd.reducescatter(mine, op=op), reduced(mine, op)[part_of(shape[0])])

    def do_gradient(dice, seed, name, how):
        name = dice.choice(("float32", "float64"))
        what = dice.choice(("allreduce", "allgather", "broadcast", "alltoall", "reducescatter"))
        op, root, table, rest = dice.choice((hvd.Average, hvd.Sum)), dice.randrange(size), blocks(dice), (dice.randint(1, 3),)
        rows = {"allgather": [dice.randint(1, 4) for _ in range(size)][rank], "alltoall": sum(table[rank])}.get(what, 5)
        mine = data(seed, rank, (rows, *rest), name).requires_grad_()
        out = {"allreduce": lambda: hvd.allreduce(mine, op=op), "allgather": lambda: hvd.allgather(mine), "broadcast": lambda: hvd.broadcast(mine, root),
               "alltoall": lambda: hvd.alltoall(mine, splits=torch.tensor(table[rank]))[0],
               "reducescatter": lambda: hvd.reducescatter(mine, op=op)}[what]()
        weights = data(seed + 1, rank, tuple(out.shape), name)
        (out * weights).sum().backward()
        every = all_of(weights)
        if what == "allreduce":
            wanted = sum(every) / (size if op is hvd.Average else 1)
        elif what == "allgather":
            first = sum(int(each) for each in all_of(torch.tensor(rows))[:rank])
            wanted = (sum(every) / size)[first:first + rows]
        elif what == "broadcast":
            wanted = sum(every) / size * (rank == root)
        elif what == "alltoall":
            came = [[table[r][to] for r in range(size)] for to in range(size)]
            wanted = torch.cat([every[to][sum(came[to][:rank]):sum(came[to][:rank + 1])] for to in range(size)])
        else:
            wanted = torch.cat(every) * (size if op is hvd.Sum else 1)
        check("gradient of %s %s" % (what, op), mine.grad, wanted)

    def do_mismatch(dice, seed, name, how):
        odd, shape, root = dice.randrange(size), (4, 3), dice.randrange(size)
        mine = data(seed, rank, shape, "float32")
        other = dice.choice(("type", "shape", "transposed", "operation", "rows"))
        if rank == odd:
            mine = {"type": mine.double(), "shape": mine[:, :2].contiguous(), "transposed": mine.t().contiguous(), "rows": mine[:2]}.get(other, mine)
        what = dice.choice(("allreduce", "async", "broadcast", "reducescatter") if other == "rows" else
                           ("allreduce", "async", "allgather", "broadcast", "alltoall", "reducescatter"))
        calls = {"allreduce": lambda: hvd.allreduce(mine), "async": lambda: hvd.synchronize(hvd.allreduce_async_(mine)), "allgather": lambda: hvd.allgather(mine),
                 "broadcast": lambda: hvd.broadcast(mine, root), "reducescatter": lambda: hvd.reducescatter(mine),
                 "alltoall": lambda: hvd.alltoall(mine, splits=[len(mine)] + [0] * (size - 1)), "barrier": hvd.barrier}
        try:
            calls["barrier" if other == "operation" and rank == odd else what]()
            differences.append("rank %d: %s with another %s on rank %d was no error" % (rank, what, other, odd))
        except hvd.HorovodInternalError as error:
            if "rank %d calls" % odd not in str(error) or str(error).count(" calls ") < 2:
                differences.append("%s: %s" % (what, error))
        total = hvd.allreduce(torch.ones(3), op=hvd.Sum)
        check("allreduce after a mismatch", total, torch.full((3,), float(size)))

    calls = {"allreduce": do_allreduce, "async": do_async, "grouped": do_grouped, "allgather": do_allgather, "broadcast": do_broadcast,
             "alltoall": do_alltoall, "reducescatter": do_reducescatter, "gradient": do_gradient, "mismatch": do_mismatch}
    for number in range(config["calls"]):
        dice = random.Random(1000 * size + number)
        kind = KINDS[number % len(KINDS)]
        counts[kind] = counts.get(kind, 0) + 1
        calls[kind](dice, number, dice.choice(FLOATS + WHOLE), dice.choice(("in place", "new")))
    gloo.destroy_process_group()
    return differences, counts


def main():
    from unisono.train import Trainer

    differences, counts = [], {}
    for workers, calls in CALLS.items():
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer("none", workers)
            trainer.start()
            try:
                answers = trainer.run(worker, {"calls": calls, "store": os.path.join(folder, "store")})
            finally:
                trainer.shutdown()
        for found, _ in answers:
            differences += found
        for kind, count in answers[0][1].items():
            counts[kind] = counts.get(kind, 0) + count
    for each in differences[:40]:
        print("FAILED: " + each[:400])
    print("collectives: %d calls (%s), %d differences" % (sum(counts.values()), ", ".join("%s %d" % item for item in sorted(counts.items())), len(differences)))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
