"""A rank of the tests in test_torch_group.py: `torch_group_worker.py NAME`, with torch.distributed's variables set."""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import unisono.torch

TYPES = [torch.float32, torch.float64, torch.float16, torch.int8, torch.uint8, torch.int32, torch.int64]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]
gather_into = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def opened(backend="unisono", seconds=60):
    dist.init_process_group(backend, timeout=timedelta(seconds=seconds))


def drawn(shape, dtype, generator):
    """Small whole numbers: their sums and products are exact in every type."""
    return torch.randint(-2, 3, shape, generator=generator).to(dtype) if dtype != torch.uint8 else torch.randint(0, 4, shape, generator=generator).to(dtype)


def shapes(generator):
    kind = int(torch.randint(0, 5, (1,), generator=generator))
    if kind == 0:
        return ()
    return tuple(int(n) for n in torch.randint(1, [0, 70, 9, 40, 20][kind], (kind,), generator=generator))  # without elements, gloo divides by zero


def results_of(case, tensor, group, generator):
    """One operation on copies of `tensor`: what it leaves behind."""
    root = int(torch.randint(0, size(), (1,), generator=generator))
    op = OPS[int(torch.randint(0, len(OPS), (1,), generator=generator))]
    t = tensor.clone(memory_format=torch.preserve_format)
    if case == "all_reduce":
        dist.all_reduce(t, op, group=group)
    elif case == "reduce":
        dist.reduce(t, root, op, group=group)
        return [t] if rank() == root else []
    elif case == "broadcast":
        dist.broadcast(t, root, group=group)
    elif case == "all_gather":
        out = [torch.empty_like(t) for _ in range(size())]
        dist.all_gather(out, t, group=group)
        return out
    elif case == "gather":
        out = [torch.empty_like(t) for _ in range(size())] if rank() == root else None
        dist.gather(t, out, root, group=group)
        return out or []
    elif case == "scatter":
        given = [t + k for k in range(size())] if rank() == root else None
        out = torch.empty_like(t)
        dist.scatter(out, given, root, group=group)
        return [out]
    elif case == "messages":
        out = torch.empty_like(t)
        to, source = (rank() + 1) % size(), (rank() - 1) % size()
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, t, to, group), dist.P2POp(dist.irecv, out, source, group)]):
            work.wait()
        return [out]
    return [t]


CASES = ["all_reduce", "all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "messages"]


def same_as_gloo():
    """Random operations on a group of each backend, with the same tensors."""
    opened("gloo")
    ours, theirs = dist.new_group(backend="unisono"), dist.new_group(backend="gloo")
    for seed in range(int(sys.argv[2])):
        generator = torch.Generator().manual_seed(seed)
        case = CASES[seed % len(CASES)]
        dtype, shape = TYPES[int(torch.randint(0, len(TYPES), (1,), generator=generator))], shapes(generator)
        own = torch.Generator().manual_seed(1000 * seed + rank())
        tensor = drawn(shape, dtype, own)
        if case == "all_reduce" and len(shape) == 2 and seed % 3 == 0:
            tensor = tensor.t().contiguous().t()  # other strides, in both the same order of elements
        want = results_of(case, tensor.contiguous(), theirs, torch.Generator().manual_seed(seed))
        have = results_of(case, tensor, ours, torch.Generator().manual_seed(seed))
        assert len(want) == len(have), case
        for a, b in zip(want, have):
            assert a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b), (seed, case, dtype, shape, a, b)
    print("same", flush=True)


def what_gloo_lacks():
    opened()
    n, me = size(), rank()
    t = torch.full((9,), me + 1.0, dtype=torch.bfloat16)
    dist.all_reduce(t)
    assert t.dtype == torch.bfloat16 and (t == n * (n + 1) / 2).all(), t
    if hasattr(dist.ReduceOp, "AVG"):
        t = torch.full((9,), float(me))
        dist.all_reduce(t, dist.ReduceOp.AVG)
        assert torch.allclose(t, torch.tensor((n - 1) / 2)), t
    t = torch.full((4,), complex(me, 1))
    dist.all_reduce(t)
    assert (t == complex(n * (n - 1) / 2, n)).all(), t
    t = torch.tensor([1 << me, 7], dtype=torch.int16)
    dist.all_reduce(t, dist.ReduceOp.BOR)
    assert t.tolist() == [2**n - 1, 7], t
    t = torch.tensor([me == 0, True, False])
    dist.all_reduce(t, dist.ReduceOp.MIN)
    assert t.dtype == torch.bool and t.tolist() == [n == 1, True, False], t
    out, given = torch.empty(n * 2), torch.full((2,), float(me))
    gather_into(out, given)
    assert torch.equal(out, torch.arange(n).repeat_interleave(2).float())
    out = torch.empty(3)
    dist.reduce_scatter(out, [torch.full((3,), float(k)) for k in range(n)])
    assert (out == me * n).all()
    sent = [torch.full((me + k + 1,), float(me)) for k in range(n)]
    got = [torch.empty(me + k + 1) for k in range(n)]
    dist.all_to_all(got, sent)
    assert all((each == k).all() for k, each in enumerate(got))
    out = torch.empty(n, dtype=torch.int64)
    dist.all_to_all_single(out, torch.arange(n) + 10 * me)
    assert torch.equal(out, torch.arange(n) * 10 + me)
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": me})
    assert objects == [{"rank": k} for k in range(n)]
    ends = sorted({0, n - 1})
    part = dist.new_group(ends)
    if me in ends:
        t = torch.ones(1)
        dist.all_reduce(t, group=part)
        assert t.item() == len(ends)
    t = torch.empty(0)
    dist.all_reduce(t)
    dist.broadcast(t, 0)
    dist.barrier()
    print("fine", flush=True)


def waiting():
    """Operations that are not waited for, in orders that need a thread that drives them."""
    opened()
    one, other = dist.new_group(), dist.new_group()
    a, b = torch.ones(300000), torch.ones(300000)
    groups = [(one, a), (other, b)] if rank() % 2 else [(other, b), (one, a)]
    works = [dist.all_reduce(t, group=group, async_op=True) for group, t in groups]
    for work in works:
        work.wait()
    assert (a == size()).all() and (b == size()).all()
    # A message that goes out after a collective was begun, and that a peer needs before it comes to the collective.
    t, message = torch.ones(1000), torch.full((400000,), 3.0)
    if rank() == 0:
        work = dist.all_reduce(t, async_op=True)
        for to in range(1, size()):
            dist.send(message, to)
        work.wait()
    else:
        got = torch.empty(400000)
        dist.recv(got, 0)
        assert (got == 3).all()
        dist.all_reduce(t)
    assert (t == size()).all()
    # Nobody waits on rank 0; the others need it.
    t = torch.ones(500000)
    work = dist.all_reduce(t, async_op=True)
    if rank() == 0:
        limit = time.monotonic() + 30
        while not work.is_completed() and time.monotonic() < limit:
            time.sleep(0.002)
    else:
        work.wait()
    assert (t == size()).all()
    # Futures, of a rank that is later than the bounded wait.
    t = torch.ones(10)
    time.sleep(0.2 * rank())
    future = dist.all_reduce(t, async_op=True).get_future().then(lambda done: done.value()[0].sum().item())
    assert future.wait() == 10 * size()
    works = [dist.all_reduce(torch.ones(50), async_op=True) for _ in range(300)]
    for work in reversed(works):
        work.wait()
    print("fine", flush=True)


def ddp():
    """Weights after some steps, with the backend that is asked for."""
    opened(sys.argv[2])
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(12, 700), torch.nn.Tanh(), torch.nn.Linear(700, 3))
    model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    data = torch.randn(16 * 12, 12, generator=torch.Generator().manual_seed(1)).view(16, -1, 12)
    for step in data:
        optimizer.zero_grad()
        model(step[rank()::size()]).pow(2).mean().backward()
        optimizer.step()
    if rank() == 0:
        torch.save([parameter.detach() for parameter in net.parameters()], sys.argv[3])
    print("fine", flush=True)


def refused():
    opened()
    other = (rank() + 1) % size()
    for error, call in (
            (NotImplementedError, lambda: dist.send(torch.ones(1), other, tag=3)),
            (NotImplementedError, lambda: dist.recv(torch.ones(1))),
            (ValueError, lambda: dist.all_reduce(torch.ones(2, 2).to_sparse())),
            (TypeError, lambda: dist.all_reduce(torch.tensor([True]))),
            (ValueError, lambda: dist.all_to_all([torch.ones(1)], [torch.ones(1)])),
            (Exception, lambda: dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND))):
        try:
            call()
        except error as told:
            print(type(told).__name__, told, flush=True)
        else:
            raise AssertionError("not refused")
    t = torch.ones(1)
    dist.all_reduce(t)  # nothing was moved, and the group works
    assert t.item() == size()


def mismatch():
    """Errors of calls that differ name both ranks, on all of them; then the group is used again."""
    opened()
    for call in (lambda: dist.all_reduce(torch.ones(5 + (rank() == 1))),
                 lambda: dist.all_reduce(torch.ones(5, dtype=torch.float64 if rank() else torch.float32)),
                 lambda: dist.broadcast(torch.ones(5), 0) if rank() else dist.all_reduce(torch.ones(5)),
                 lambda: dist.all_reduce(torch.ones(5), dist.ReduceOp.MAX if rank() else dist.ReduceOp.SUM)):
        try:
            call()
        except Exception as error:
            print("told", error, flush=True)
        else:
            raise AssertionError("not told")
        t = torch.ones(5)
        dist.all_reduce(t)
        assert (t == size()).all()
    print("fine", flush=True)


def lost():
    """Rank 1 dies or freezes; the others say what they are told, and how long that took."""
    opened()
    dist.barrier()
    print("pid", os.getpid(), flush=True)
    if rank() == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
        time.sleep(60)
    try:
        if len(sys.argv) > 3:
            dist.all_reduce(torch.ones(10), async_op=True).get_future().wait()
        else:
            dist.all_reduce(torch.ones(10))
    except Exception as error:
        print("told %.3f %s" % (time.time(), error), flush=True)
        os._exit(0)
    raise AssertionError("not told")


def late():
    """A rank that is late is no error before the group's timeout; then the error names it."""
    opened(seconds=4)
    if rank() == 1:
        time.sleep(2)
    dist.barrier()
    print("in time", flush=True)
    if rank() == 1:
        time.sleep(9)
        os._exit(0)
    begun = time.monotonic()
    try:
        dist.barrier()
    except Exception as error:
        print("told after %.1f %s" % (time.monotonic() - begun, error), flush=True)
        os._exit(0)


def forked():
    """Workers of a DataLoader are forks of a rank: they leave its group alone."""
    opened()
    data = torch.utils.data.TensorDataset(torch.arange(40.0))
    for _ in range(2):
        total = sum(batch[0].sum() for batch in torch.utils.data.DataLoader(data, 8, num_workers=2))
        t = torch.tensor([float(total)])
        dist.all_reduce(t)
        assert t.item() == 780 * size()
    print("fine", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    if dist.is_initialized():
        dist.destroy_process_group()
