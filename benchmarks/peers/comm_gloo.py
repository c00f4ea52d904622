"""gloo (torch.distributed) as a peer of ./bench comm: all_reduce of float32 sums by two processes.

Started by comm_bench; prints "pid N" for both ranks, then rank 0 reads orders "count repetitions" and answers with
microseconds a call. The result is checked before it is timed.
"""

import ctypes
import os
import sys
import tempfile
import time


def run(rank, store):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    pids = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
    dist.all_gather(pids, torch.tensor([os.getpid()]))
    if rank == 0:
        for pid in pids:
            print("pid %d" % int(pid), flush=True)
    while True:
        order = torch.tensor([-1, 0], dtype=torch.int64)
        if rank == 0:
            line = sys.stdin.readline().split()
            if len(line) == 2:
                order = torch.tensor([int(line[0]), int(line[1])], dtype=torch.int64)
        dist.broadcast(order, 0)
        count, repetitions = (int(number) for number in order)
        if count < 0:
            return
        pattern = (torch.arange(count) % 1000).float()
        data = pattern + rank
        dist.all_reduce(data)
        assert torch.equal(data, 2 * pattern + 1)
        data.zero_()
        for _ in range(3):
            dist.all_reduce(data)
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(repetitions):
            dist.all_reduce(data)
        if rank == 0:
            print("%.3f" % ((time.perf_counter() - begun) * 1e6 / repetitions), flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: a bench that is killed leaves nobody behind, also who stands still
            run(1, store)
            os._exit(0)
        run(0, store)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
