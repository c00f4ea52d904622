#!/bin/sh
# track_readers.sh WRITER [test ...]: tests/track_readers.py with the Python of the project's venv; 77 (skipped) where the readers are not installed.
python="${XDG_CACHE_HOME:-$HOME/.cache}/unisono/venv/bin/python"
if ! "$python" -c 'import importlib.util as u, sys; sys.exit(not all(u.find_spec(m) for m in ("tensorboard", "mlflow")))' 2>/dev/null; then
    echo "skipped: no tensorboard and mlflow in $python (python3 -m venv, then pip install tensorboard mlflow)"
    exit 77
fi
exec "$python" "$(dirname "$0")/track_readers.py" "$@"
