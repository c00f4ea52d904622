#!/usr/bin/env python3
"""A metric of TorchMetrics in every report (the guide's "PyTorch Distributed metrics"; torchmetrics 0.11 and later want the task)."""

import torch
import torchmetrics

from unisono import train
from unisono.train import Trainer, TrainingCallback


class PrintingCallback(TrainingCallback):
    def handle_result(self, results, **info):
        print(results)


def train_func(config):
    preds = torch.randn(10, 5).softmax(dim=-1)
    target = torch.randint(5, (10,))
    accuracy = torchmetrics.functional.accuracy(preds, target, task="multiclass", num_classes=5).item()
    train.report(accuracy=accuracy)


if __name__ == "__main__":
    trainer = Trainer(backend="torch", num_workers=2)
    trainer.start()
    trainer.run(train_func, callbacks=[PrintingCallback()])
    trainer.shutdown()
