"""Seven functions for search.py, four of them with parameters that exist only for one value of a choice. No constant of src/tune was chosen on them."""

import math
import random


def uniform(low, high):
    return {"$uniform": [low, high]}


def loguniform(low, high):
    return {"$loguniform": [low, high]}


def randint(low, high):
    return {"$randint": [low, high]}


def choice(*values):
    return {"$choice": list(values)}


def _noise(key, deviation):
    return random.Random(key).gauss(0, deviation)


def ackley(config, key):
    x = [config["x%d" % i] - 1.5 for i in range(4)]
    mean = sum(each * each for each in x) / len(x)
    waves = sum(math.cos(2 * math.pi * each) for each in x) / len(x)
    return -20 * math.exp(-0.2 * math.sqrt(mean)) - math.exp(waves) + 20 + math.e


def styblinski(config, key):
    x = [config["a"], config["b"], config["n"] / 4]
    kind = {"up": 0, "down": 15, "flat": 30}[config["kind"]]
    return 0.5 * sum(each**4 - 16 * each**2 + 5 * each for each in x) + kind


def training(config, key):
    rate = math.log10(config["lr"])
    loss = 0.3 * (rate + 2) ** 2 + 0.2 * math.log2(config["batch"] / 64) ** 2 / 9 + (0.5 - config["momentum"]) ** 2
    return loss + _noise(key, 0.05)


def kernels(config, key):
    kernel, cost = config["kernel"], 0.05 * (math.log10(config["C"]) - 0.5) ** 2
    if kernel["name"] == "linear":
        return cost + 0.35
    if kernel["name"] == "rbf":
        return cost + 0.1 + 0.12 * (math.log10(kernel["gamma"]) + 2.2) ** 2
    return cost + 0.2 + 0.05 * (kernel["degree"] - 3) ** 2 + 0.3 * (kernel["coef"] - 0.4) ** 2


def network(config, key):
    body = config["body"]
    if "filters" in body:
        loss = 0.2 + ((body["filters"] - 48) / 60) ** 2 + 0.1 * (body["size"] - 3) ** 2
    else:
        loss = 0.1 + ((body["units"] - 190) / 250) ** 2 + abs(body["depth"] - 2) * 0.15
        drop = body["drop"]
        loss += 0.1 if drop == "off" else (drop["rate"] - 0.25) ** 2
    return loss + 0.2 * (math.log10(config["lr"]) + 3) ** 2


def pipeline(config, key):
    scale = config["scale"]
    loss = {"minmax": 0.1, "none": 0.3}[scale] if isinstance(scale, str) else (scale["clip"] - 2.5) ** 2 / 20
    model = config["model"]
    if model["kind"] == "tree":
        loss += 0.25 + ((model["depth"] - 9) / 12) ** 2
    elif model["kind"] == "boost":
        loss += 0.05 + ((model["depth"] - 4) / 8) ** 2 + 0.1 * (math.log10(model["rate"]) + 1.2) ** 2
    else:
        loss += 0.3 + 0.3 * model["mix"]
    return loss + _noise(key, 0.02)


def ranges(config, key):
    """The values of a choice differ only in what their parameters may be: a trial's branch is known by its numbers."""
    solver = config["solver"]
    return 0.2 * (math.log10(solver["lr"]) + 3.3) ** 2 + (solver["decay"] - 0.2) ** 2 + 0.1 * (config["width"] - 1.5) ** 2 + _noise(key, 0.01)


FUNCTIONS = {
    "ackley": (ackley, {"x%d" % i: uniform(-4, 6) for i in range(4)}),
    "styblinski": (styblinski, {"a": uniform(-5, 5), "b": uniform(-5, 5), "n": randint(-20, 21), "kind": choice("up", "down", "flat")}),
    "training": (training, {"lr": loguniform(1e-6, 1), "batch": {"$lograndint": [1, 1025]}, "momentum": uniform(0, 1)}),
    "kernels": (kernels, {"C": loguniform(1e-3, 1e3), "kernel": choice({"name": "linear"}, {"name": "rbf", "gamma": loguniform(1e-5, 10)},
                                                                     {"name": "poly", "degree": randint(1, 8), "coef": uniform(0, 1)})}),
    "network": (network, {"lr": loguniform(1e-6, 1), "body": choice({"filters": randint(1, 129), "size": randint(1, 8)},
                                                                  {"units": randint(1, 513), "depth": randint(1, 6),
                                                                   "drop": choice("off", {"rate": uniform(0, 0.9)})})}),
    "pipeline": (pipeline, {"scale": choice("minmax", "none", {"clip": uniform(0, 10)}),
                            "model": choice({"kind": "tree", "depth": randint(1, 31)}, {"kind": "boost", "depth": randint(1, 16), "rate": loguniform(1e-4, 1)},
                                            {"kind": "linear", "mix": uniform(0, 1)})}),
    "ranges": (ranges, {"width": uniform(0, 4), "solver": choice({"lr": loguniform(0.5, 50), "decay": uniform(0, 1)}, {"lr": loguniform(0.02, 0.4), "decay": uniform(0, 1)},
                                                               {"lr": loguniform(1e-5, 1e-2), "decay": uniform(0, 1)})}),
}
CONDITIONAL = ("kernels", "network", "pipeline", "ranges")
