"""elastic_torch.py - PyTorch DDP under torchrun and under Ray Train on the elastic suite's work: the peers' numbers for ./bench elastic.

JSON lines {"metric", "peer", "peer_name"}:
  kill_to_step_ms   from kill -9 of one of four workers to the end of the next step of all four, median. Both start all workers again; the model is loaded
                    from a checkpoint of the step before the kill, written in every step where it costs nothing that is measured (a file in memory)

The model is the MNIST CNN with Adam, a global batch of 64, over gloo. Each rank writes its process and its last step into a file of eight numbers.
"""

import argparse
import json
import mmap
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

WORKERS, BATCH = 4, 64
SECONDS = 180  # until a peer counts as hanging


class Board:
    """[pid of each rank..., last step of each rank...], in memory that all processes see."""

    def __init__(self, path):
        if not os.path.exists(path):
            with open(path, "wb") as file:
                file.write(bytes(16 * WORKERS))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 16 * WORKERS)

    def set(self, index, value):
        struct.pack_into("q", self._memory, 8 * index, value)

    def get(self, index):
        return struct.unpack_from("q", self._memory, 8 * index)[0]


def train(folder, rank, size, wrap):
    """Trains until the file `end` is there."""
    import torch

    torch.set_num_threads(1)
    board = Board(os.path.join(folder, "board"))
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(21632, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    saved, step = os.path.join(folder, "model.pt"), 0
    if os.path.exists(saved):
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        step = state["step"]
    model = wrap(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    x, y = torch.rand(BATCH // size, 1, 28, 28), torch.randint(0, 10, (BATCH // size,))
    board.set(rank, os.getpid())
    while True:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()  # ends when all ranks have their gradients
        optimizer.step()
        step += 1
        board.set(WORKERS + rank, step)
        if rank == 0 and step == 3:
            torch.save({"model": getattr(model, "module", model).state_dict(), "step": step}, saved + ".part")
            os.rename(saved + ".part", saved)
        stop = torch.tensor([float(rank == 0 and os.path.exists(os.path.join(folder, "end")))])
        torch.distributed.all_reduce(stop)
        if stop.item():
            return


def wait_for(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("no step of all workers within %d s" % SECONDS)
        time.sleep(0.0005)


def kills(folder, count):
    """Milliseconds, once for each kill."""
    board, waited = Board(os.path.join(folder, "board")), []
    for number in range(count):
        wait_for(lambda: all(board.get(WORKERS + rank) > 5 for rank in range(WORKERS)))
        victim = 1 + number % (WORKERS - 1)
        pid = board.get(victim)
        for rank in range(WORKERS):
            board.set(WORKERS + rank, 0)
        begun = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        # Survivors may still count a step; the victim's successor makes its first one together with all.
        wait_for(lambda: board.get(victim) != pid)
        for rank in range(WORKERS):
            board.set(WORKERS + rank, 0)
        wait_for(lambda: all(board.get(WORKERS + rank) > 0 for rank in range(WORKERS)))
        waited.append(1000 * (time.monotonic() - begun))
    open(os.path.join(folder, "end"), "w", encoding="utf-8").close()
    return waited


def torchrun_worker(folder):
    import torch.distributed

    # A file for each attempt: over the agent's store, the ranks of PyTorch 2.15's second attempt try the addresses of the first.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    torch.distributed.init_process_group("gloo", init_method="file://%s/meeting_%s" % (folder, attempt), rank=int(os.environ["RANK"]),
                                         world_size=int(os.environ["WORLD_SIZE"]))
    train(folder, torch.distributed.get_rank(), torch.distributed.get_world_size(), torch.nn.parallel.DistributedDataParallel)
    torch.distributed.destroy_process_group()


def measure_torchrun(folder, count):
    import torch

    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=%d" % WORKERS, "--max-restarts=%d" % (count + 5),
               "--monitor-interval=0.1", os.path.abspath(__file__), "--worker", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
    try:
        waited = kills(folder, count)
        process.wait(60)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    return waited, "torchrun " + torch.__version__


def measure_ray(folder, count):
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    source = os.path.dirname(os.path.abspath(__file__))

    def loop(config):
        sys.path.insert(0, config["source"])
        import elastic_torch
        from ray import train as ray_train

        context = ray_train.get_context()
        elastic_torch.train(config["folder"], context.get_world_rank(), context.get_world_size(), ray_train.torch.prepare_model)

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    result = []
    thread = threading.Thread(target=lambda: result.append(kills(folder, count)), daemon=True)
    try:
        thread.start()
        TorchTrainer(loop, train_loop_config={"folder": folder, "source": source}, scaling_config=ScalingConfig(num_workers=WORKERS),
                     run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=count + 5))).fit()
        thread.join()
    finally:
        ray.shutdown()
    return result[0], "ray " + ray.__version__


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--worker")
    asked = parser.parse_args()
    if asked.worker:
        torchrun_worker(asked.worker)
        return
    # Frameworks print on stdout; only our lines go there.
    ours, sys.stdout = sys.stdout, sys.stderr
    for name, measure, count in (("torchrun", measure_torchrun, 2 if asked.quick else 8), ("ray", measure_ray, 1 if asked.quick else 3)):
        try:
            with tempfile.TemporaryDirectory(prefix="unisono-bench-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
                waited, full_name = measure(folder, count)
        except ImportError as error:
            print(json.dumps({"failed_peer": name, "why": str(error)}), file=ours, flush=True)
            continue
        print(json.dumps({"metric": "kill_to_step_ms", "peer": round(statistics.median(waited), 1), "peer_name": full_name}), file=ours, flush=True)


if __name__ == "__main__":
    main()
