#!/bin/sh
# report.sh - a worker that is a shell script: it reports with the command and keeps a checkpoint directory.
#
#   unisono run -n 2 -- examples/report.sh [EPOCHS]
#
# UNISONO names the command when it is not on the PATH.
set -eu
epochs=${1:-3}
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT

echo "rank ${UNISONO_RANK:-0} of ${UNISONO_WORLD_SIZE:-1}"
epoch=1
while [ "$epoch" -le "$epochs" ]; do
    loss=$(awk "BEGIN { print 1 / $epoch }")
    if [ "${UNISONO_RANK:-0}" = 0 ]; then
        # The directory is copied before the command returns, so it can be used again.
        echo "$epoch" >"$state/epoch"
        "${UNISONO:-unisono}" report epoch="$epoch" loss="$loss" --checkpoint "$state"
    else
        "${UNISONO:-unisono}" report epoch="$epoch" loss="$loss"
    fi
    epoch=$((epoch + 1))
done
