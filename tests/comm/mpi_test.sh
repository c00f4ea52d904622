#!/bin/sh
# mpi_test.sh CONTRACT FAILURE PLUGINS - the contract and the failures over MPI, with mpirun on this host.
set -u
contract=$1 failure=$2
export UNISONO_PLUGINS="$3"
if ! command -v mpirun >/dev/null; then
    echo "mpirun is not installed (Debian package openmpi-bin)"
    exit 77
fi
launch="mpirun --oversubscribe"
[ "$(id -u)" = 0 ] && launch="$launch --allow-run-as-root"
run() {
    n=$1
    shift
    # shellcheck disable=SC2086
    timeout 100 $launch -n "$n" "$@"
}
bad=0
for n in 1 2 3; do
    run "$n" "$contract" mpi || { echo "the contract with $n ranks failed"; bad=1; }
done
# Who stays behind is ended by mpirun: after an error nobody finalises.
expect() { # WAY RANKS WANT: so many ranks are told right
    told=$(run "$2" "$failure" "$1" 2>/dev/null)
    fine=$(printf '%s\n' "$told" | grep -o fine | grep -c fine)
    if [ "$fine" != "$3" ]; then
        echo "$1 with $2 ranks of $launch: $fine of $3 were told right; they said:"
        printf '%s\n' "$told"
        bad=1
    fi
}
for case in kind:3:3 root:2:2 leave:3:3 abort:3:2 dead:3:2 asked:3:2; do
    way=${case%%:*} rest=${case#*:}
    expect "$way" "${rest%:*}" "${rest#*:}"
done
# Calls that differ only a little, which MPI itself takes without a word. With two ranks and with three it goes other ways.
differ="count count-many type op op-reduce mean broadcast gather scatter started message-long message-short message-type"
for way in $differ; do
    expect "$way" 2 2
    expect "$way" 3 3
done
if command -v mpirun.mpich >/dev/null && [ -e "$3/libunisono-mpi-mpich.so" ]; then
    launch=mpirun.mpich
    for way in $differ; do
        expect "$way" 2 2
    done
fi
exit $bad
