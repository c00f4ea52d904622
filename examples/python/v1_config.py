#!/usr/bin/env python3
"""One function, two configurations: what it returns comes back by rank (Ray Train v1's guide, "Configuring Training")."""

import argparse

from unisono.train import Trainer


def train_func(config):
    results = []
    for i in range(config["num_epochs"]):
        results.append(i)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--num-workers", "-n", type=int, default=2)
    arguments = parser.parse_args()
    trainer = Trainer(backend=arguments.backend, num_workers=arguments.num_workers)
    trainer.start()
    print(trainer.run(train_func, config={"num_epochs": 2}))
    print(trainer.run(train_func, config={"num_epochs": 5}))
    trainer.shutdown()
    print(trainer.logdir)
    print(trainer.latest_run_dir)
