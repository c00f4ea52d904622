"""Opens the files that unisono saved with real Keras, in one process (importing TensorFlow takes seconds): see keras_files.sh.

    keras_files.py DIRECTORY      NAME.keras and NAME.weights.h5, and NAME.expected.safetensors unless it is a model of reference/models
"""

import pathlib
import sys

REFERENCE = pathlib.Path(__file__).parent / "reference"
sys.path.insert(0, str(REFERENCE))
sys.dont_write_bytecode = True

import check_keras_opens


def run(*arguments):
    sys.argv = ["check_keras_opens.py", *map(str, arguments)]
    try:
        return check_keras_opens.main() or 0
    except SystemExit as end:
        return end.code or 0


def main(directory):
    wrong = 0
    for model in sorted(directory.glob("*.keras")):
        name = model.stem
        expected = directory / f"{name}.expected.safetensors"
        into = model
        if not expected.exists():
            expected = REFERENCE / "models" / f"{name.removesuffix('_deflated')}.expected.safetensors"
            into = REFERENCE / "models" / f"{name}.keras"
        wrong += run(model, "--expected", expected) != 0
        wrong += run(directory / f"{name}.weights.h5", "--into", into, "--expected", expected) != 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
