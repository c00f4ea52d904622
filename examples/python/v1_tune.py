#!/usr/bin/env python3
"""A v1 Trainer as a Trainable, tuned by a grid (Ray Train v1's guide, "Hyperparameter tuning")."""

import argparse

from unisono import train, tune
from unisono.train import Trainer


def train_func(config):
    for _ in range(config["num_epochs"]):
        train.report(output=config["input"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="torch")
    trainer = Trainer(backend=parser.parse_args().backend, num_workers=2)
    trainable = trainer.to_tune_trainable(train_func)
    analysis = tune.run(trainable, config={"num_epochs": 2, "input": tune.grid_search([1, 2, 3])})
    print(analysis.get_best_config(metric="output", mode="max"))
