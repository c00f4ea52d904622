"""PyTorch's DistributedDataParallel as a peer of ./bench strategies: two processes with one thread each over gloo, batch 64 each.

The models are those of engine_torch.py, the data is in memory before the clock starts. Prints samples/s of both together.
  strategies_torch.py [--quick]
"""

import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import engine_common as common
import engine_torch

STEPS = {"nnlm_head": 200, "mnist_cnn": 20, "svhn_cnn": 4}
ROUNDS = 7


def worker(rank, port, quick):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for name, steps in STEPS.items():
        x, y = common.data(name, 64)
        images = x.ndim == 5
        x = torch.from_numpy(x)
        x = x.permute(0, 1, 4, 2, 3).contiguous() if images else x
        y = torch.from_numpy(y)
        y = y if name == "nnlm_head" else y.long()
        torch.manual_seed(1)
        model, optimizer, loss = engine_torch.build(name)
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)

        def step(number):
            optimizer.zero_grad(set_to_none=True)
            loss(model(x[number % common.BATCHES]), y[number % common.BATCHES]).backward()
            optimizer.step()

        step(0)
        rates = []
        for _ in range(2 if quick else ROUNDS):
            dist.barrier()
            begun = time.perf_counter()
            for number in range(steps):
                step(number)
            rates.append(steps * 128 / (time.perf_counter() - begun))
        if rank == 0:
            print(json.dumps({"metric": name + "_2w_samples_per_s", "peer": sorted(rates)[len(rates) // 2], "peer_name": "torch_ddp",
                              "versions": "torch " + torch.__version__}), flush=True)
    dist.destroy_process_group()


def main():
    import torch.multiprocessing

    torch.multiprocessing.spawn(worker, (20000 + os.getpid() % 20000, "--quick" in sys.argv), nprocs=2)


if __name__ == "__main__":
    main()
