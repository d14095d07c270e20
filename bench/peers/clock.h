/* What the peers' programs share: a clock, and the order of times. */
#ifndef PEERS_CLOCK_H
#define PEERS_CLOCK_H

#include <time.h>

static double now(void) { /* MPI_Wtime may count from another origin in each process */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif
