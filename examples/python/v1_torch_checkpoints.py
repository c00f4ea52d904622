#!/usr/bin/env python3
"""A PyTorch model under DistributedDataParallel: saved, and gone on from (the guide's "Saving checkpoints" and "Loading checkpoints")."""

import numpy as np
import torch
import torch.nn as nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present
from torch.optim import Adam

import unisono.train.torch
from unisono import train
from unisono.train import Trainer


def train_func(config):
    n = 100
    X = torch.Tensor(np.random.normal(0, 1, size=(n, 4)))
    Y = torch.Tensor(np.random.uniform(0, 1, size=(n, 1)))
    model = nn.Linear(4, 1)
    start_epoch = 0
    checkpoint = train.load_checkpoint()
    if checkpoint:
        model.load_state_dict(checkpoint.get("model_weights"))
        start_epoch = checkpoint.get("epoch", -1) + 1
    model = unisono.train.torch.prepare_model(model)
    criterion = nn.MSELoss()
    optimizer = Adam(model.parameters(), lr=3e-4)
    for epoch in range(start_epoch, config["num_epochs"]):
        loss = criterion(model(X), Y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state_dict = model.state_dict()
        consume_prefix_in_state_dict_if_present(state_dict, "module.")
        train.save_checkpoint(epoch=epoch, model_weights=state_dict)


if __name__ == "__main__":
    trainer = Trainer(backend="torch", num_workers=2)
    trainer.start()
    trainer.run(train_func, config={"num_epochs": 2})
    trainer.run(train_func, config={"num_epochs": 4}, checkpoint=trainer.latest_checkpoint)
    trainer.shutdown()
    print(trainer.latest_checkpoint)
    print(trainer.latest_checkpoint_dir)
    print(trainer.best_checkpoint_path)
