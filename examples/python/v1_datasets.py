#!/usr/bin/env python3
"""A CSV file, split and sharded among the workers, and a pipeline that is shuffled anew every epoch (Ray Train v1's guide, "Distributed Data Ingest")."""

import argparse
import os
import tempfile

import torch
from torch import nn

import unisono
import unisono.data
import unisono.train
from unisono.train import Trainer


def train_func(config):
    model = unisono.train.torch.prepare_model(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    batch_size = config["worker_batch_size"]
    train_torch_dataset = unisono.train.get_dataset_shard("train").to_torch(label_column="label", batch_size=batch_size)
    validation_torch_dataset = unisono.train.get_dataset_shard("validation").to_torch(label_column="label", batch_size=batch_size)
    losses = []
    for _ in range(config["num_epochs"]):
        for X, y in train_torch_dataset:
            loss = nn.functional.mse_loss(model(X), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            losses.append(sum(float(nn.functional.mse_loss(model(X), y, reduction="sum")) for X, y in validation_torch_dataset))
    return losses


def pipeline_func(config):
    dataset_iterator = unisono.train.get_dataset_shard().iter_epochs()
    seen = []
    for _ in range(config["num_epochs"]):
        train_dataset = next(dataset_iterator)
        train_torch_dataset = train_dataset.to_torch(label_column="label", batch_size=config["worker_batch_size"])
        seen.append(sum(len(y) for X, y in train_torch_dataset))
    return seen


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-workers", "-n", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("x,label\n" + "".join("%r,%r\n" % (i / 100, 2 * i / 100 + 1) for i in range(100)))
        dataset = unisono.data.read_csv(path, types={"x": "float32", "label": "float32"})
        split_index = int(dataset.count() * 0.8)
        train_dataset, validation_dataset = dataset.random_shuffle(seed=1).split_at_indices([split_index])
        trainer = Trainer(num_workers=arguments.num_workers, backend="torch")
        trainer.start()
        result = trainer.run(train_func, config={"worker_batch_size": 8, "num_epochs": 8},
                             dataset={"train": train_dataset, "validation": validation_dataset})
        print("validation loss falls:", all(losses[-1] < losses[0] / 4 for losses in result))
        dataset_pipeline = dataset.repeat().random_shuffle_each_window()
        print("rows of each epoch by rank:", trainer.run(pipeline_func, config={"worker_batch_size": 8, "num_epochs": 3}, dataset=dataset_pipeline))
        trainer.shutdown()
