#!/bin/sh
# mpi_test.sh CONTRACT FAILURE PLUGINS - the contract and the failures over MPI, with mpirun on this host.
set -u
contract=$1 failure=$2
export UNISONO_PLUGINS="$3"
if ! command -v mpirun >/dev/null; then
    echo "mpirun is not installed (Debian package openmpi-bin)"
    exit 77
fi
root=
[ "$(id -u)" = 0 ] && root=--allow-run-as-root
run() {
    n=$1
    shift
    # shellcheck disable=SC2086
    timeout 100 mpirun $root --oversubscribe -n "$n" "$@"
}
bad=0
for n in 1 2 3; do
    run "$n" "$contract" mpi || { echo "the contract with $n ranks failed"; bad=1; }
done
# Who stays behind is ended by mpirun: after an error nobody finalises.
for case in kind:3:3 root:2:2 leave:3:3 abort:3:2 dead:3:2 asked:3:2; do
    way=${case%%:*} rest=${case#*:}
    n=${rest%:*} want=${rest#*:}
    told=$(run "$n" "$failure" "$way" 2>/dev/null)
    fine=$(printf '%s\n' "$told" | grep -c '^fine$')
    if [ "$fine" != "$want" ]; then
        echo "$way: $fine of $want ranks were told right; they said:"
        printf '%s\n' "$told"
        bad=1
    fi
done
exit $bad
