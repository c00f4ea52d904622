#!/bin/sh
# keras_files.sh WRITER ...: real Keras opens what unisono saved (every model of tests/reference/models, loaded and saved again; models made
# of every layer) and finds the same predictions, weights, optimizer state and next training step. 77 (skipped) where Keras is not installed (tools/python-env keras).
set -eu
python="${XDG_CACHE_HOME:-$HOME/.cache}/unisono/venv/bin/python"
if ! "$python" -c 'import importlib.util as u, sys; sys.exit(not all(u.find_spec(m) for m in ("keras", "tensorflow", "h5py")))' 2>/dev/null; then
    echo "skipped: no keras in $python (tools/python-env keras installs it)"
    exit 77
fi
here=$(cd "$(dirname "$0")" && pwd)
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
for writer in "$@"; do
    UNISONO_REFERENCE="$here/reference" "$writer" "$directory"
done
TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES="" "$python" "$here/keras_files.py" "$directory" 2>"$directory/stderr" || { cat "$directory/stderr"; exit 1; }
