#!/usr/bin/env python3
"""Horovod's PyTorch program with only the import changed. By itself, below `unisono run -n 2 python3 horovod_torch.py`, or in a HorovodTrainer."""

import argparse

import torch
from torch import nn

import unisono.horovod.torch as hvd


def train_func():
    hvd.init()
    torch.manual_seed(hvd.rank())
    inputs = torch.randn(256, 8)
    targets = inputs.sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for epoch in range(20):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    loss = hvd.allreduce(loss.detach(), name="loss").item()
    if hvd.rank() == 0:
        print("size", hvd.size(), "loss below 1:", loss < 1.0)
    return loss


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainer", action="store_true", help="in the two workers of a Trainer with backend=\"horovod\"")
    if parser.parse_args().trainer:
        from unisono.train import Trainer

        trainer = Trainer(backend="horovod", num_workers=2)
        trainer.start()
        losses = trainer.run(train_func)
        trainer.shutdown()
        print("workers agree:", len(set(losses)) == 1)
    else:
        train_func()
