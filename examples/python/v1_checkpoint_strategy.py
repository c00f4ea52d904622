#!/usr/bin/env python3
"""Which checkpoints stay on disk (the guide's "Configuring checkpoints")."""

import argparse

from unisono import train
from unisono.train import CheckpointStrategy, Trainer


def in_memory_only():
    for epoch in range(3):
        train.save_checkpoint(epoch=epoch)


def four_losses():
    train.save_checkpoint(loss=2)
    train.save_checkpoint(loss=4)
    train.save_checkpoint(loss=1)
    train.save_checkpoint(loss=3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="torch")
    trainer = Trainer(backend=parser.parse_args().backend, num_workers=2)
    trainer.start()
    trainer.run(in_memory_only, checkpoint_strategy=CheckpointStrategy(num_to_keep=0))
    print(trainer.latest_checkpoint["epoch"], trainer.best_checkpoint_path)

    # The two with the smallest loss.
    strategy = CheckpointStrategy(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    trainer.run(four_losses, checkpoint_strategy=strategy)
    print(trainer.best_checkpoint_path)
    print(trainer.latest_checkpoint_dir)
    print(sorted(path.name for path in trainer.latest_checkpoint_dir.iterdir()))
    trainer.shutdown()
