/*
 * comm_mpi.c - plain MPI as a peer of ./bench comm: MPI_Allreduce of float32 sums in place. Run by
 * comm_bench with mpirun -n 2; rank 0 reads orders "count repetitions" and answers with
 * microseconds a call.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_COUNT (100u * 1000 * 1000 / 4)

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    float *data = malloc(MAX_COUNT * sizeof *data);
    int pid = (int)getpid(), pids[64] = { 0 };
    MPI_Gather(&pid, 1, MPI_INT, pids, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < size; r++)
        printf("pid %d\n", pids[r]);
    fflush(stdout);
    for (;;) {
        long order[2] = { 0, 0 };
        char line[64];
        if (rank == 0 && (!fgets(line, sizeof line, stdin) ||
                          sscanf(line, "%ld %ld", &order[0], &order[1]) != 2))
            order[0] = -1;
        MPI_Bcast(order, 2, MPI_LONG, 0, MPI_COMM_WORLD);
        if (order[0] < 0)
            break;
        int count = (int)order[0];
        for (int i = 0; i < count; i++)
            data[i] = (float)(i % 1000 + rank);
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++)
            if (data[i] != (float)(size * (i % 1000) + size * (size - 1) / 2))
                MPI_Abort(MPI_COMM_WORLD, 1);
        memset(data, 0, (size_t)count * sizeof *data);
        for (int i = 0; i < 3; i++)
            MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = MPI_Wtime();
        for (long i = 0; i < order[1]; i++)
            MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("%.3f\n", (MPI_Wtime() - begun) * 1e6 / (double)order[1]);
            fflush(stdout);
        }
    }
    MPI_Finalize();
    return 0;
}
