#!/usr/bin/env python3
"""tables.py [--cases N] [--seed S] [--only KIND] [--jobs N] [--replay JSON] - the tables net: files and pipelines made by random numbers, read by unisono.data and by pandas, pyarrow,
NumPy or json, and compared value by value. A case that fails is made smaller and printed with the command that repeats it. The last line has the count."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def kinds():
    """{name: (makes a case, checks it, how many of all)}"""
    import tables_files
    import tables_pipelines
    import tables_shapes

    return {**tables_files.KINDS, **tables_pipelines.KINDS, **tables_shapes.KINDS}


def make(seed, number, known, only):
    """Case number `number`."""
    chance = random.Random("%d/%d" % (seed, number))
    names = [name for name in known if not only or name == only]
    name = chance.choices(names, [known[each][2] for each in names])[0]
    return known[name][0](chance)


def complaint(case, known, folder):
    """What is wrong with a case; None: nothing."""
    try:
        known[case["kind"]][1](case, folder)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "%s: %s (%s:%d)" % (type(error).__name__, str(error).replace(folder, "DIR"), os.path.basename(where.filename), where.lineno)
    return None


def tell(case, seed, number, known, folder, first):
    """Prints a failing case, as small as it goes."""
    from tables_net import as_text, shrink

    kind = first.partition(":")[0]
    less = shrink(case, lambda each: (complaint(each, known, folder) or "").startswith(kind))
    print("FAILED case %d of seed %d: %s\n  smaller: %s\n  again: tests/differential/tables.py --replay '%s'"
          % (number, seed, first, complaint(less, known, folder), as_text(less).replace("'", "'\\''")), flush=True)


def run(arguments):
    """The cases of one process."""
    known, failed, done = kinds(), 0, 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.replay:
            wrong = complaint(json.loads(arguments.replay), known, folder)
            print(wrong or "no difference")
            return 1, int(wrong is not None)
        for number in range(arguments.part, arguments.cases, arguments.jobs):
            case = make(arguments.seed, number, known, arguments.only)
            wrong = complaint(case, known, folder)
            done += 1
            if wrong:
                failed += 1
                if failed <= 10:
                    tell(case, arguments.seed, number, known, folder, wrong)
            if arguments.seconds and time.monotonic() - begin > arguments.seconds:
                break
    return done, failed


def spread(arguments):
    """All cases, over several processes."""
    command = [sys.executable, os.path.abspath(__file__), "--seed", str(arguments.seed), "--cases", str(arguments.cases), "--jobs", str(arguments.jobs),
               "--seconds", str(arguments.seconds)] + (["--only", arguments.only] if arguments.only else [])
    parts = [subprocess.Popen(command + ["--part", str(part)], stdout=subprocess.PIPE, text=True) for part in range(arguments.jobs)]
    done = failed = 0
    for part in parts:
        out, _ = part.communicate()
        lines = out.splitlines()
        if part.returncode not in (0, 1) or not lines or not lines[-1].startswith("part: "):
            failed += 1
            print("\n".join(lines[-5:] + ["FAILED: a process of the net died with status %d" % part.returncode]))
            continue
        print("\n".join(lines[:-1]), end="\n" if lines[:-1] else "")
        done, failed = done + int(lines[-1].split()[1]), failed + int(lines[-1].split()[2])
    return done, failed


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long; 0: all cases")
    parser.add_argument("--part", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--replay")
    arguments = parser.parse_args()
    if arguments.replay:
        sys.exit(run(arguments)[1])
    if arguments.part is not None:
        done, failed = run(arguments)
        print("part: %d %d" % (done, failed))
        sys.stdout.flush()
        os._exit(1 if failed else 0)
    done, failed = spread(arguments)
    if not arguments.seconds and done < arguments.cases:
        failed += 1
    print("tables: %d cases, %d differ (seed %d)" % (done, failed, arguments.seed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
