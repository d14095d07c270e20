/* More ranks than processors: a message goes round, and grows; then sums of all. */
#include "check.h"

enum { LAPS = 20, STEP = 7000, NUMBERS = 5000 };

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    unsigned char *token = malloc(LAPS * STEP);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int lap = 0; lap < LAPS; lap++) {
        int len = 1 + lap * STEP;
        if (rank == 0) {
            fill(token, len, 0, lap);
            MPI_Send(token, len, MPI_BYTE, right, lap, MPI_COMM_WORLD);
        }
        memset(token, 0, len);
        MPI_Recv(token, len, MPI_BYTE, left, lap, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_bytes(token, len, 0, lap, "what goes round");
        if (rank != 0) MPI_Send(token, len, MPI_BYTE, right, lap, MPI_COMM_WORLD);
    }
    long *mine = malloc(NUMBERS * sizeof *mine), *sum = malloc(NUMBERS * sizeof *sum);
    for (int n = 1; n <= NUMBERS; n = n * 3 + 1) {
        for (int i = 0; i < n; i++) mine[i] = (long)rank * rank + i;
        MPI_Allreduce(mine, sum, n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        long squares = (long)(size - 1) * size * (2 * size - 1) / 6;
        for (int i = 0; i < n; i++) check(sum[i] == squares + (long)size * i, "a sum of all");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks went round\n", size);
    MPI_Finalize();
    return 0;
}
