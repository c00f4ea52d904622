"""install_test.py - what `meson install` brings is enough for a C program: pkg-config, cc, CMake, and the command beside it."""

import contextlib
import gzip
import os
import shutil
import sqlite3
import subprocess

import support
from support import environment


def installed(storage):
    """An environment with everything installed below a root of its own."""
    root = os.path.join(os.path.dirname(storage), os.path.basename(storage) + ".root")
    done = subprocess.run(["meson", "install", "-C", support.BUILD, "--no-rebuild", "--quiet"], env=dict(os.environ, DESTDIR=root), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, check=False)
    assert done.returncode == 0, done.stdout
    [config] = [folder for folder, _, names in os.walk(root) if "unisono.pc" in names]
    library = os.path.dirname(config)
    env = environment(storage, PKG_CONFIG_PATH=config, PKG_CONFIG_SYSROOT_DIR=root, LD_LIBRARY_PATH=library)
    [command] = [folder for folder, _, names in os.walk(root) if "unisono" in names and os.path.basename(folder) == "bin"]
    env["PATH"] = command + ":" + os.environ["PATH"]
    return root, env


def call(command, env, cwd):
    done = subprocess.run(command, env=env, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
    assert done.returncode == 0, "%s\n%s" % (command, done.stdout)
    return done.stdout


def test_programs_by_hand_and_by_cmake(storage):
    root, env = installed(storage)
    try:
        with open(os.path.join(support.SOURCE, "README.md"), encoding="utf-8") as readme:
            program = readme.read().split("```c\n")[1].split("```")[0]
        with open(os.path.join(storage, "mine.c"), "w", encoding="utf-8") as file:
            file.write(program)
        call(["sh", "-c", "eval cc -Wall -o mine mine.c $(pkg-config --cflags --libs unisono)"], env, storage)
        assert call(["./mine"], env, storage).strip().endswith("run_001")
        if subprocess.run(["pkg-config", "--exists", "unisono-native"], env=env, check=False).returncode == 0:
            shutil.copy(os.path.join(support.SOURCE, "examples/train.c"), storage)
            call(["sh", "-c", "eval cc -Wall -o trainer train.c $(pkg-config --cflags --libs unisono-native)"], env, storage)
            data = os.path.join(support.SOURCE, "examples/data/digits.csv")
            assert "digits.keras" in call(["./trainer", data, "2", "2"], env, storage)
            assert os.path.getsize(os.path.join(storage, "digits.keras")) > 10000
        if shutil.which("cmake"):
            with open(os.path.join(storage, "CMakeLists.txt"), "w", encoding="utf-8") as file:
                file.write("cmake_minimum_required(VERSION 3.16)\nproject(mine C)\nfind_package(PkgConfig REQUIRED)\n"
                           "pkg_check_modules(UNISONO REQUIRED IMPORTED_TARGET unisono)\nadd_executable(mine mine.c)\n"
                           "target_link_libraries(mine PRIVATE PkgConfig::UNISONO)\n")
            call(["cmake", "-B", "made", "."], env, storage)
            call(["cmake", "--build", "made"], env, storage)
            assert "run_" in call(["made/mine"], env, storage)
        assert "mine" in call(["unisono", "run", "-n", "1", "--", "echo", "mine"], env, storage)
    finally:
        shutil.rmtree(root)


def test_the_installed_command_finds_its_plug_ins(storage):
    root, env = installed(storage)
    env = {name: value for name, value in env.items() if name not in ("LD_LIBRARY_PATH", "UNISONO_PLUGINS")}
    try:
        names = {name for _, _, files in os.walk(root) for name in files}
        if "libunisono-zlib.so" in names:
            with gzip.open(os.path.join(storage, "table.csv.gz"), "wt", encoding="utf-8") as file:
                file.write("a,b\n1,2\n")
            assert '{"a":1,"b":2}' in call(["unisono", "data", "head", "table.csv.gz"], env, storage).replace(" ", "")
        if "libunisono-sqlite.so" in names:
            with contextlib.closing(sqlite3.connect(os.path.join(storage, "table.db"))) as base:
                base.execute("create table t(a integer, b integer)")
                base.execute("insert into t values(3, 4)")
                base.commit()
            assert '{"a":3,"b":4}' in call(["unisono", "data", "head", "--table", "t", "table.db"], env, storage).replace(" ", "")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    support.main()
