"""PyTorch's DistributedDataParallel as a peer of ./bench strategies: two processes with one thread each over gloo, batch 64 each.

The models are those of engine_torch.py, the data is in memory before the clock starts. Windows of both sides come in turn (engine_common.in_turn): the first
rank asks PROGRAM (strategies_bench --serve) for its window, then tells the second how many steps their own has.
  strategies_torch.py --against PROGRAM [--quick] [--model NAME]
"""

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import engine_common as common
import engine_torch

MODELS = ["nnlm_head", "mnist_cnn", "svhn_cnn"]
STEPS = 5  # of a window, at least: a step of the largest takes a third of a second


def trainer(name):
    """A function that makes so many steps."""
    import torch

    x, y = common.data(name, 64)
    images = x.ndim == 5
    x = torch.from_numpy(x)
    x = x.permute(0, 1, 4, 2, 3).contiguous() if images else x
    y = torch.from_numpy(y)
    y = y if name == "nnlm_head" else y.long()
    torch.manual_seed(1)
    model, optimizer, loss = engine_torch.build(name)
    model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)

    def train(steps):
        for number in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss(model(x[number % common.BATCHES]), y[number % common.BATCHES]).backward()
            optimizer.step()

    return train


def worker(rank, port, options):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    pids = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
    dist.all_gather(pids, torch.tensor([os.getpid()]))
    for name in [options.model] if options.model else MODELS:
        train = trainer(name)

        def tell(steps):
            order = torch.tensor([steps])
            dist.broadcast(order, 0)
            return int(order)

        def windows(steps, count):
            seconds = []
            for _ in range(count):
                tell(steps)
                begun = time.perf_counter()
                train(steps)
                seconds.append(time.perf_counter() - begun)
            return seconds

        if rank == 0:
            common.pair_line("strategies", name + "_2w_samples_per_s", windows, name, 128, options, "torch_ddp", least=2 if options.quick else STEPS, stop=[int(pid) for pid in pids],
                             versions="torch " + torch.__version__)
            tell(0)
        else:
            while steps := tell(0):
                train(steps)
    dist.destroy_process_group()


def main():
    import torch.multiprocessing

    parser = argparse.ArgumentParser()
    parser.add_argument("--against", required=True)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--quick", action="store_true")
    torch.multiprocessing.spawn(worker, (20000 + os.getpid() % 20000, parser.parse_args()), nprocs=2)


if __name__ == "__main__":
    main()
