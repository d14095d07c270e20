/* What the programs of this folder share that go wrong on purpose. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A byte of a message that nobody else would send so. */
static inline unsigned char byte_of(unsigned from, unsigned number, unsigned i) {
    unsigned x = from * 0x9e3779b1u + number * 0x85ebca6bu + i * 0xc2b2ae35u;
    return (unsigned char)(x >> 24 ^ x >> 11);
}

static inline void fill(unsigned char *to, unsigned len, unsigned from, unsigned number) {
    for (unsigned i = 0; i < len; i++) to[i] = byte_of(from, number, i);
}

static inline void check(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "wrong: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

static inline void check_bytes(const unsigned char *at, unsigned len, unsigned from, unsigned number,
                               const char *what) {
    for (unsigned i = 0; i < len; i++)
        if (at[i] != byte_of(from, number, i)) {
            fprintf(stderr, "message %u of %u, %u bytes: wrong at %u\n", number, from, len, i);
            check(0, what);
        }
}

static inline unsigned draw(unsigned long long *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(*state >> 33);
}

/* KiB of memory that the process has. */
static inline long resident(void) {
    char line[200];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmRSS: %ld", &kib);
    if (status) fclose(status);
    return kib;
}
