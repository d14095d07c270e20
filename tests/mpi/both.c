/* Two ranks that begin so many sends to each other before they receive anything. */
#include "check.h"

int main(int argc, char **argv) {
    int rank, many = argc > 1 ? atoi(argv[1]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    check(many > 0, "arguments");
    MPI_Request *requests = malloc(many * sizeof *requests);
    int *sent = malloc(many * sizeof *sent), got;
    for (int n = 0; n < many; n++) {
        sent[n] = 2 * n + rank;
        MPI_Isend(&sent[n], 1, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD, &requests[n]);
    }
    for (int n = 0; n < many; n++) {
        MPI_Recv(&got, 1, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(got == 2 * n + 1 - rank, "the order of what waited");
    }
    MPI_Waitall(many, requests, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("both received %d\n", many);
    MPI_Finalize();
    return 0;
}
