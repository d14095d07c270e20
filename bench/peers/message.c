/* Messages between two processes of one communicator.
 *
 *   message MODE LEN REPEAT       MODE: latency (there and back; the time is one way) | rate (a window of sends in one
 *                                 direction, answered once; the time is that of each message)
 *
 * Each process keeps to a processor of its own, as polyduct's do: the first and the second that it may run on. Messages are the
 * next part of 64 MiB each time, larger than the caches, except short ones and latencies, which use one place. Rank 0 prints
 * one line of JSON; it says "verified":true only after every byte of a window has been compared, before and after timing. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"

enum { WINDOW = 64, TAG = 7 };
#define ROOM (64L << 20)

static void die(const char *what) {
    fprintf(stderr, "message: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static void pin(int rank) {
    cpu_set_t may, one;
    int nth = 0, count;
    if (sched_getaffinity(0, sizeof may, &may)) return;
    count = CPU_COUNT(&may);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &may) || nth++ != rank % count) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

static int rank;
static unsigned char *from, *to;
static long len, places;

static unsigned char value_of(long at) { return (unsigned char)(at * 31 / 7 % 253); }

static double latency(int times) {
    double t0 = now();
    for (int i = 0; i < times; i++) {
        if (rank == 0) MPI_Send(from, (int)len, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(to, (int)len, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) MPI_Send(from, (int)len, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
    return (now() - t0) / times / 2;
}

/* `windows` windows of `window` messages. */
static double rate(int windows, int window) {
    MPI_Request requests[WINDOW];
    char answer = 0;
    long turn = 0;
    double t0 = now();
    for (int w = 0; w < windows; w++) {
        for (int i = 0; i < window; i++, turn++) {
            long at = turn % places * len;
            if (rank == 0) MPI_Isend(from + at, (int)len, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
            else MPI_Irecv(to + at, (int)len, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    }
    if (rank == 0) MPI_Recv(&answer, 1, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else MPI_Send(&answer, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    return (now() - t0) / windows / window;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int size, repeat = argc == 4 ? atoi(argv[3]) : 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    len = argc == 4 ? atol(argv[2]) : -1;
    int round_trips = argc == 4 && !strcmp(argv[1], "latency");
    if (argc != 4 || size != 2 || len < 0 || len > ROOM || repeat < 1 || repeat > 1000 ||
        (!round_trips && strcmp(argv[1], "rate")))
        die("usage: message latency|rate LEN REPEAT, with 2 processes");
    pin(rank);

    from = malloc(ROOM), to = malloc(ROOM);
    double *took = calloc((size_t)repeat, sizeof *took);
    if (!from || !to || !took) die("out of memory");
    for (long i = 0; i < ROOM; i++) from[i] = value_of(i);
    memset(to, 0xA5, ROOM);
    places = len > 64 && !round_trips ? ROOM / len : 1;
    int window = (int)(places == 1 || places > WINDOW ? WINDOW : places);
    long budget = round_trips ? 32L << 20 : 128L << 20; /* bytes of a repetition, about */
    long count = len > 0 ? budget / len : budget;
    int times = (int)(count < 4 ? 4 : count > 10000 ? 10000 : count);
    int windows = (int)(count / window < 1 ? 1 : count / window > 2000 ? 2000 : count / window);

    long bad = 0, bad_anywhere = 0;
    for (int i = -2; i <= repeat; i++) {
        int checked = i == -2 || i == repeat;
        if (checked) memset(to, 0xA5, ROOM);
        MPI_Barrier(MPI_COMM_WORLD);
        double t = round_trips ? latency(checked ? 1 : times) : rate(checked ? 1 : windows, window);
        if (i >= 0 && i < repeat) took[i] = t;
        if (checked && (round_trips || rank == 1)) {
            long end = len * (round_trips ? 1 : window < places ? window : places);
            for (long k = 0; k < end; k++) bad += to[k] != value_of(k);
        }
    }
    MPI_Allreduce(&bad, &bad_anywhere, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(took, (size_t)repeat, sizeof *took, by_value);
        double middle = repeat % 2 ? took[repeat / 2] : (took[repeat / 2 - 1] + took[repeat / 2]) / 2;
        printf("{\"case\":\"%s\",\"n\":2,\"bytes\":%ld,\"median_s\":%.12f,\"min_s\":%.12f,\"verified\":%s,\"runs\":%d}\n",
               argv[1], len, middle, took[0], bad_anywhere ? "false" : "true", repeat);
    }
    MPI_Finalize();
    return bad_anywhere != 0;
}
