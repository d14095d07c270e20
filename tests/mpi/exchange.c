/* Every rank sends to every other, itself too: messages of many lengths, in rounds, received in an order that is not
 * theirs; then collectives, and one-sided access. Ends with 0 only where every byte is the right one. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static const int LENGTHS[] = {0, 1, 8, 31, 33, 1000, 8192, 8193, 65536, 300000};
enum { KINDS = sizeof LENGTHS / sizeof *LENGTHS, ROUNDS = 3 };

static unsigned char at(int from, int to, int kind, int i) {
    return (unsigned char)(from * 31 + to * 17 + kind * 7 + i + (i >> 8) * 3);
}

static void check(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "wrong: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

static void messages(int rank, int size) {
    int n = size * KINDS;
    MPI_Request *requests = malloc(2 * n * sizeof *requests);
    unsigned char **out = malloc(n * sizeof *out), **in = malloc(n * sizeof *in);
    for (int peer = 0; peer < size; peer++)
        for (int kind = 0; kind < KINDS; kind++) {
            int k = peer * KINDS + kind, len = LENGTHS[kind];
            out[k] = malloc(len + 1), in[k] = malloc(len + 1);
            for (int i = 0; i < len; i++) out[k][i] = at(rank, peer, kind, i);
            MPI_Isend(out[k], len, MPI_BYTE, peer, kind, MPI_COMM_WORLD, &requests[k]);
        }
    for (int k = n - 1; k >= 0; k--)
        MPI_Irecv(in[k], LENGTHS[k % KINDS], MPI_BYTE, k / KINDS, k % KINDS, MPI_COMM_WORLD, &requests[n + k]);
    MPI_Waitall(2 * n, requests, MPI_STATUSES_IGNORE);
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < LENGTHS[k % KINDS]; i++) check(in[k][i] == at(k / KINDS, rank, k % KINDS, i), "a message");
        free(in[k]), free(out[k]);
    }
    free(in), free(out), free(requests);
}

static void together(int rank, int size) {
    int *all = malloc(size * sizeof *all), *turned = malloc(size * sizeof *turned), sum, mine = rank + 1;
    for (int i = 0; i < size; i++) all[i] = rank * size + i;
    MPI_Alltoall(all, 1, MPI_INT, turned, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) check(turned[i] == i * size + rank, "an all-to-all");
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(sum == size * (size + 1) / 2, "a sum");
    free(all), free(turned);
}

static void one_sided(int rank, int size) {
    enum { LEN = 50000 };
    int *window = calloc(LEN + 1, sizeof *window), *got = malloc(LEN * sizeof *got), one = 1, before;
    MPI_Win win;
    MPI_Win_create(window, (LEN + 1) * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int i = 0; i < LEN; i++) got[i] = rank * LEN + i;
    MPI_Win_fence(0, win);
    MPI_Put(got, LEN, MPI_INT, right, 0, LEN, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < LEN; i++) check(window[i] == left * LEN + i, "a put");
    MPI_Get(got, LEN, MPI_INT, right, 0, LEN, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < LEN; i++) check(got[i] == rank * LEN + i, "a get");
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    for (int i = 0; i < 10; i++) {
        MPI_Fetch_and_op(&one, &before, MPI_INT, 0, LEN, MPI_SUM, win);
        MPI_Win_flush(0, win);
    }
    MPI_Win_unlock(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        MPI_Fetch_and_op(&one, &before, MPI_INT, 0, LEN, MPI_NO_OP, win);
        MPI_Win_unlock(0, win);
        check(before == 10 * size, "a count");
    }
    MPI_Win_free(&win);
    free(window), free(got);
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < ROUNDS; round++) messages(rank, size), together(rank, size);
    one_sided(rank, size);
    if (rank == 0) printf("%d ranks exchanged all\n", size);
    MPI_Finalize();
    return 0;
}
