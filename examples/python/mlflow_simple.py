#!/usr/bin/env python3
"""Reports in MLflow and TensorBoard, with Ray Train v1's Trainer and with 2.x's TorchTrainer. Neither mlflow nor tensorboardX is needed to write them."""

import argparse
from pathlib import Path

from unisono import train
from unisono.train import RunConfig, ScalingConfig, Trainer
from unisono.train.callbacks import MLflowLoggerCallback, TBXLoggerCallback
from unisono.train.torch import TorchTrainer


def train_func():
    for i in range(3):
        train.report({"epoch": i})


def with_v1(backend):
    trainer = Trainer(backend=backend, num_workers=2)
    trainer.start()
    trainer.run(train_func, callbacks=[MLflowLoggerCallback(experiment_name="train_experiment"), TBXLoggerCallback()])
    trainer.shutdown()
    print("Run directory:", trainer.latest_run_dir)


def with_2():
    trainer = TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2),
                           run_config=RunConfig(callbacks=[MLflowLoggerCallback(experiment_name="train_experiment"), TBXLoggerCallback()]))
    result = trainer.fit()
    print("Run directory:", Path(result.path).parent)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--v1", action="store_true", help="the Trainer of Ray 1.x")
    parser.add_argument("--backend", default="torch")
    arguments = parser.parse_args()
    with_v1(arguments.backend) if arguments.v1 else with_2()
