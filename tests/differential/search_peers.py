"""A search by this library's TPE and by Optuna's over the same space, for search.py."""

import json
import subprocess
import warnings


class Pipe:
    """search_ask.c."""

    def __init__(self, program, about):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.say(json.dumps(about))

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line):
        self.say(line)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("search_ask ended")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        if self.process.wait() != 0:
            raise SystemExit("search_ask failed")


def search(program, function, space, seed, trials, searcher=None):
    """(value, config) of every trial, one after the other."""
    ours, out = Pipe(program, {"space": space, "seed": seed, "mode": "min", "searcher": searcher or {"type": "tpe"}}), []
    for trial in range(trials):
        config = ours.ask("ask")
        out.append((function(config, seed * 1000 + trial), config))
        ours.say("tell %d %r" % (trial, float(out[-1][0])))
    ours.close()
    return out


def _suggest(trial, tree, path):
    """The config that Optuna chooses; names of parameters say the branch that they are in."""
    if isinstance(tree, list):
        return [_suggest(trial, item, "%s.%d" % (path, i)) for i, item in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    if len(tree) != 1 or not next(iter(tree)).startswith("$"):
        return {key: _suggest(trial, item, path + "." + key) for key, item in tree.items()}
    (mark, given), = tree.items()
    if mark == "$choice":
        at = trial.suggest_categorical(path, list(range(len(given))))
        return _suggest(trial, given[at], "%s[%d]" % (path, at))
    if mark in ("$uniform", "$loguniform"):
        return trial.suggest_float(path, given[0], given[1], log=mark == "$loguniform")
    if mark == "$quniform":
        return trial.suggest_float(path, given[0], given[1], step=given[2])
    if mark in ("$randint", "$lograndint"):
        return trial.suggest_int(path, given[0], given[1] - 1, log=mark == "$lograndint")
    raise SystemExit("search_peers: no counterpart of %s in Optuna" % mark)


def search_optuna(function, space, seed, trials, **settings):
    """The same by Optuna's TPESampler with its defaults."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    study = optuna.create_study(direction="minimize", sampler=optuna.samplers.TPESampler(seed=seed, **settings))
    out = []
    for number in range(trials):
        trial = study.ask()
        config = _suggest(trial, space, "")
        out.append((function(config, seed * 1000 + number), config))
        study.tell(trial, out[-1][0])
    return out
