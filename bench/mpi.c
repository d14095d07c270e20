/* Figures of an MPI library: each case prints one number. What arrives is compared with what was sent.
 *
 *   mpi latency | rate | bandwidth | put | get | alltoallw | allreduce | overlap
 *
 * latency: microseconds of 8 bytes one way. rate: millions of messages of 8 bytes a second. bandwidth: GB/s of
 * 16 MiB one way. put, get: GB/s of 1 MiB at a window of MPI_Win_create. alltoallw: milliseconds of a matrix of
 * 4096 x 4096 f32 from rows to columns. allreduce: milliseconds of 1 MiB. overlap: how much longer a send of
 * 1 MiB and work as long take together than the longer of the two.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void check(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void *room(size_t bytes) {
    void *p = malloc(bytes);
    check(p != NULL, "memory");
    return p;
}

static int all_are(const char *bytes, size_t n, char value) {
    return n == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, n - 1) == 0);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of what a case takes, of several rounds, as rank 0 sees it. Those before, in which memory comes
 * from the system, do not count. */
static double median_of(double (*round)(void *), void *with) {
    enum { BEFORE = 8, ROUNDS = 9 };
    double took[ROUNDS];
    for (int i = 0; i < BEFORE; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        round(with);
    }
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        took[i] = round(with);
    }
    qsort(took, ROUNDS, sizeof *took, compare);
    return took[ROUNDS / 2];
}

static double latency(void *with) {
    (void)with;
    enum { TIMES = 10000 };
    char sent[8], got[8];
    double start = MPI_Wtime();
    for (int i = 0; i < TIMES; i++) {
        memset(sent, rank + i % 50, sizeof sent);
        if (rank == 0) {
            MPI_Send(sent, 8, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(got, 8, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(got, 8, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(sent, 8, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        }
        check(all_are(got, 8, (char)(1 - rank + i % 50)), "a short message");
    }
    return (MPI_Wtime() - start) / TIMES / 2 * 1e6;
}

struct windowed {
    size_t bytes;
    int window, times;
    char *memory;
};

/* Messages a second. */
static double windows(void *with) {
    struct windowed *of = with;
    MPI_Request requests[64];
    char done = 0;
    if (rank == 0)
        for (int w = 0; w < of->window; w++)
            memset(of->memory + w * of->bytes, w + 1, of->bytes);
    double start = MPI_Wtime();
    for (int i = 0; i < of->times; i++) {
        for (int w = 0; w < of->window; w++) {
            char *at = of->memory + w * of->bytes;
            if (rank == 0)
                MPI_Isend(at, (int)of->bytes, MPI_CHAR, 1, 2, MPI_COMM_WORLD, requests + w);
            else
                MPI_Irecv(at, (int)of->bytes, MPI_CHAR, 0, 2, MPI_COMM_WORLD, requests + w);
        }
        MPI_Waitall(of->window, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(&done, 1, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&done, 1, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
    }
    double rate = (double)of->times * of->window / (MPI_Wtime() - start);
    for (int w = 0; w < of->window; w++)
        check(all_are(of->memory + w * of->bytes, of->bytes, (char)(w + 1)), "a message");
    return rate;
}

static double windowed(size_t bytes, int window, int times) {
    struct windowed of = {bytes, window, times, room(bytes * window)};
    memset(of.memory, 0, bytes * window);
    return median_of(windows, &of);
}

enum { PART = 1 << 20 };

struct remote {
    int gets;
    char *own, *here;
    MPI_Win window;
};

/* GB/s. */
static double remote(void *with) {
    enum { TIMES = 100 };
    struct remote *of = with;
    memset(of->own, of->gets ? 5 : 0, PART);
    memset(of->here, of->gets ? 0 : 5, PART);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, of->window);
        for (int i = 0; i < TIMES; i++) {
            if (of->gets)
                MPI_Get(of->here, PART, MPI_CHAR, 1, 0, PART, MPI_CHAR, of->window);
            else
                MPI_Put(of->here, PART, MPI_CHAR, 1, 0, PART, MPI_CHAR, of->window);
            MPI_Win_flush(1, of->window);
        }
        MPI_Win_unlock(1, of->window);
    }
    double rate = (double)TIMES * PART / (MPI_Wtime() - start) / 1e9;
    MPI_Barrier(MPI_COMM_WORLD);
    check(rank == 1 || all_are(of->here, PART, 5), "what was read");
    check(rank == 0 || all_are(of->own, PART, 5), "what was written");
    return rate;
}

static double windowed_memory(int gets) {
    struct remote of = {gets, room(PART), room(PART), MPI_WIN_NULL};
    MPI_Win_create(of.own, PART, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &of.window);
    double rate = median_of(remote, &of);
    MPI_Win_free(&of.window);
    return rate;
}

enum { SIDE = 4096 };

struct matrix {
    float *rows, *columns;
    int *counts, *displacements;
    MPI_Datatype *sends, *receives;
};

static double transpose(void *with) {
    struct matrix *of = with;
    int own = SIDE / ranks;
    for (size_t i = 0; i < (size_t)own * SIDE; i++)
        of->rows[i] = (float)((size_t)rank * own * SIDE + i);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    MPI_Alltoallw(of->rows, of->counts, of->displacements, of->sends, of->columns, of->counts,
                  of->displacements, of->receives, MPI_COMM_WORLD);
    double took = (MPI_Wtime() - start) * 1e3;
    for (int row = 0; row < SIDE; row++)
        for (int column = 0; column < own; column++)
            check(of->columns[(size_t)row * own + column] == (float)((size_t)row * SIDE + rank * own + column),
                  "an element");
    return took;
}

static double alltoallw(void) {
    int own = SIDE / ranks;
    struct matrix of = {room(sizeof(float) * own * SIDE), room(sizeof(float) * own * SIDE),
                        room(sizeof(int) * ranks),        room(sizeof(int) * ranks),
                        room(sizeof(MPI_Datatype) * ranks), room(sizeof(MPI_Datatype) * ranks)};
    for (int to = 0; to < ranks; to++) {
        int whole[2] = {own, SIDE}, part[2] = {own, own}, from[2] = {0, to * own};
        MPI_Type_create_subarray(2, whole, part, from, MPI_ORDER_C, MPI_FLOAT, of.sends + to);
        int all[2] = {SIDE, own}, at[2] = {to * own, 0};
        MPI_Type_create_subarray(2, all, part, at, MPI_ORDER_C, MPI_FLOAT, of.receives + to);
        MPI_Type_commit(of.sends + to);
        MPI_Type_commit(of.receives + to);
        of.counts[to] = 1;
        of.displacements[to] = 0;
    }
    return median_of(transpose, &of);
}

static double reduce(void *with) {
    enum { COUNT = (1 << 20) / sizeof(float), TIMES = 20 };
    float *own = with, *sum = own + COUNT;
    for (int i = 0; i < COUNT; i++)
        own[i] = (float)(rank + i % 1000);
    double start = MPI_Wtime();
    for (int i = 0; i < TIMES; i++)
        MPI_Allreduce(own, sum, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double took = (MPI_Wtime() - start) / TIMES * 1e3;
    for (int i = 0; i < COUNT; i++)
        check(sum[i] == (float)(ranks * (ranks - 1) / 2 + ranks * (i % 1000)), "a sum");
    return took;
}

static volatile double sink;

static void work(double seconds) {
    double end = MPI_Wtime() + seconds;
    while (MPI_Wtime() < end)
        for (int i = 0; i < 100; i++)
            sink += i;
}

struct overlapped {
    char *memory;
    double seconds;
};

/* A send of 1 MiB, begun before the work and waited for after it; the receiver waits all the while. */
static double send_beside(void *with) {
    struct overlapped *of = with;
    MPI_Request request;
    char done = 0;
    memset(of->memory, rank == 0 ? 3 : 0, PART);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    if (rank == 0) {
        MPI_Isend(of->memory, PART, MPI_CHAR, 1, 4, MPI_COMM_WORLD, &request);
        work(of->seconds);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Recv(&done, 1, MPI_CHAR, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(of->memory, PART, MPI_CHAR, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&done, 1, MPI_CHAR, 0, 5, MPI_COMM_WORLD);
    }
    double took = MPI_Wtime() - start;
    check(all_are(of->memory, PART, 3), "a message");
    return took;
}

static double overlap(void) {
    struct overlapped of = {room(PART), 0};
    double alone = median_of(send_beside, &of);
    MPI_Bcast(&alone, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    of.seconds = alone;
    return median_of(send_beside, &of) / alone;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *name = argc > 1 ? argv[1] : "";
    double value = 0;
    if (strcmp(name, "latency") == 0)
        value = median_of(latency, NULL);
    else if (strcmp(name, "rate") == 0)
        value = windowed(8, 64, 2000) / 1e6;
    else if (strcmp(name, "bandwidth") == 0)
        value = windowed(16 << 20, 4, 4) * (16 << 20) / 1e9;
    else if (strcmp(name, "put") == 0 || strcmp(name, "get") == 0)
        value = windowed_memory(name[0] == 'g');
    else if (strcmp(name, "alltoallw") == 0)
        value = alltoallw();
    else if (strcmp(name, "allreduce") == 0)
        value = median_of(reduce, room(2 << 20));
    else if (strcmp(name, "overlap") == 0)
        value = overlap();
    else {
        fprintf(stderr, "no case %s\n", name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (rank == 0)
        printf("%.4f\n", value);
    MPI_Finalize();
    return 0;
}
