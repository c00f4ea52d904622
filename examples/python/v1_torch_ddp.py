#!/usr/bin/env python3
"""The same training twice: with prepare_model and prepare_data_loader, and written by hand with DDP and DistributedSampler (the guide's "Update
training function")."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from unisono import train
from unisono.train import Trainer


def dataset():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 4, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def fit(model, loader, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        if isinstance(getattr(loader, "sampler", None), DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for X, y in loader:
            loss = nn.functional.mse_loss(model(X.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        train.report(epoch=epoch, loss=loss.item())
    return round(next(model.parameters()).sum().item(), 4)


def prepared():
    torch.manual_seed(1)
    model = train.torch.prepare_model(nn.Linear(4, 1))
    loader = train.torch.prepare_data_loader(DataLoader(dataset(), batch_size=8))
    return fit(model, loader, train.torch.get_device())


def by_hand():
    torch.manual_seed(1)
    device = torch.device(f"cuda:{train.local_rank()}" if torch.cuda.is_available() else "cpu")
    model = nn.Linear(4, 1).to(device)
    model = DistributedDataParallel(model, device_ids=[train.local_rank()] if torch.cuda.is_available() else None)
    loader = DataLoader(dataset(), batch_size=8, sampler=DistributedSampler(dataset(), shuffle=False))
    return fit(model, loader, device)


if __name__ == "__main__":
    trainer = Trainer(backend="torch", num_workers=2)
    trainer.start()
    weights = trainer.run(prepared) + trainer.run(by_hand)
    trainer.shutdown()
    print("workers agree:", len(set(weights)) == 1)
