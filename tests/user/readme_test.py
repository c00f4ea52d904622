"""readme_test.py - what the README tells a newcomer to type works, and its program compiles and runs."""

import os
import re
import subprocess

import support
from support import environment, program, run

with open(os.path.join(support.SOURCE, "README.md"), encoding="utf-8") as readme:
    TEXT = readme.read()


def blocks(language):
    return re.findall(r"^```%s\n(.*?)^```" % language, TEXT, re.M | re.S)


def test_commands(storage):
    """All sh blocks in one shell, in order, with the build under test in the place of build-release."""
    script = "set -eu\n" + "".join(blocks("sh"))
    assert script.count("unisono ") >= 6, script
    script = script.replace("$PWD/build-release", support.BUILD).replace("build-release", support.BUILD)
    # The wait is for a person.
    script = script.replace(" 40 0.15", " 4 0.01")
    out, _ = run(["sh", "-c", script], storage)
    assert "first/run_001" in out and "succeeded" in out, out
    assert sorted(os.listdir(storage)) == ["first", "search", "second"]


def test_program(storage):
    source = os.path.join(storage, "readme.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write("".join(blocks("c")))
    binary = os.path.join(storage, "readme")
    library = os.path.dirname(support.library())
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-I" + os.path.join(support.SOURCE, "include"), "-o", binary,
                    source, "-L" + library, "-lunisono", "-Wl,-rpath," + library], check=True, timeout=60)
    results = os.path.join(storage, "results")
    out, _ = run([binary], results)
    assert out.strip().startswith(results) and out.strip().endswith("run_001"), out
    assert len(support.iterations(out.strip(), 3)) == 3


def test_promised_files_exist(storage):
    for name in ("quickstart", "test", "bench", "LICENSE", "CONTRIBUTING.md"):
        assert os.path.exists(os.path.join(support.SOURCE, name)), name
    assert environment(storage)["PATH"].startswith(os.path.dirname(program("unisono")))


if __name__ == "__main__":
    support.main()
