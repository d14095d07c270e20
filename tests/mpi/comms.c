/* Communicators that are made and freed, so many times: the memory of a rank stays as it was. */
#include "check.h"

int main(int argc, char **argv) {
    int rank, size, times = argc > 1 ? atoi(argv[1]) : 1000;
    long before = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int n = 0; n < times; n++) {
        MPI_Comm made;
        MPI_Comm_dup(MPI_COMM_WORLD, &made);
        if (n % 100 == 0) {
            int got;
            MPI_Sendrecv(&n, 1, MPI_INT, right, 1, &got, 1, MPI_INT, left, 1, made, MPI_STATUS_IGNORE);
            check(got == n, "a message of a new communicator");
        }
        MPI_Comm_free(&made);
        if (n == times / 10) before = resident();
    }
    long grown = resident() - before;
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d has grown by %ld KiB\n", rank, grown);
    MPI_Finalize();
    return 0;
}
