#!/usr/bin/env python3
"""Reports of all workers in a callback of one's own, in an iterator, and in results.json (the guide's "Callbacks")."""

import argparse
import json

from unisono import train
from unisono.train import Trainer, TrainingCallback
from unisono.train.callbacks import JsonLoggerCallback


class PrintingCallback(TrainingCallback):
    def handle_result(self, results, **info):
        print(results)


def train_func():
    for i in range(3):
        train.report(epoch=i)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="torch")
    arguments = parser.parse_args()
    trainer = Trainer(backend=arguments.backend, num_workers=2)
    trainer.start()
    trainer.run(train_func, callbacks=[PrintingCallback(), JsonLoggerCallback()])
    with open(trainer.latest_run_dir / "results.json", encoding="utf-8") as file:
        print("reports in results.json:", len(json.load(file)))
    iterator = trainer.run_iterator(train_func)
    for results in iterator:
        print("epochs", [result["epoch"] for result in results])
    print("finished", iterator.is_finished(), iterator.get_final_results())
    trainer.shutdown()
