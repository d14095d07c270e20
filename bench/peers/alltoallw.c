/* Redistributes a 2-D array inside one communicator with one MPI_Alltoallw of subarray types.
 *
 *   alltoallw FROM TO ROWS COLS ELEM_BYTES REPEAT      FROM, TO: rows | cols | block
 *
 * Pieces are ceil(N/P) long in order, the last ones short or empty (polyduct's `block`). The types are made once and
 * not timed. Each repetition stands between barriers. Its time is from the moment the first process left the barrier to
 * the moment the last one had its piece, on the host's one monotonic clock: with more processes than cores they run one
 * after the other, and the longest of their own times (`median_own_s`, given beside it) would leave the others' out. Rank
 * 0 prints one line of JSON; it says "verified":true only after every byte on every process has been compared, before
 * and after timing. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"

typedef struct { long lo[2], hi[2]; } Box; /* half-open; empty when lo >= hi in any dimension */

static void die(const char *what) {
    fprintf(stderr, "alltoallw: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static void cut(long extent, int parts, int part, long *lo, long *hi) {
    long piece = (extent + parts - 1) / parts;
    *lo = piece * part < extent ? piece * part : extent;
    *hi = *lo + piece < extent ? *lo + piece : extent;
}

static Box piece_of(const char *layout, const long shape[2], int n, int rank) {
    int grid[2] = {0, 0};
    if (!strcmp(layout, "rows")) grid[0] = n, grid[1] = 1;
    else if (!strcmp(layout, "cols")) grid[0] = 1, grid[1] = n;
    else if (!strcmp(layout, "block")) MPI_Dims_create(n, 2, grid);
    else die("a layout is rows, cols or block");
    Box box;
    cut(shape[0], grid[0], rank / grid[1], &box.lo[0], &box.hi[0]);
    cut(shape[1], grid[1], rank % grid[1], &box.lo[1], &box.hi[1]);
    return box;
}

static long elements(Box b) {
    long rows = b.hi[0] - b.lo[0], cols = b.hi[1] - b.lo[1];
    return rows > 0 && cols > 0 ? rows * cols : 0;
}

static Box meet(Box a, Box b) {
    for (int d = 0; d < 2; d++) {
        if (b.lo[d] > a.lo[d]) a.lo[d] = b.lo[d];
        if (b.hi[d] < a.hi[d]) a.hi[d] = b.hi[d];
    }
    return a;
}

/* The bytes that the element at a linear index holds. Wide elements hold the index itself; of narrow ones, whose low
 * bytes would repeat with every row, a mix of it. */
static void value_of(uint64_t index, int elem, unsigned char *out) {
    uint64_t v = elem >= 4 ? index : (index * 0x9E3779B97F4A7C15u) >> 40;
    for (int i = 0; i < elem; i++) out[i] = i < 8 ? (unsigned char)(v >> (8 * i)) : (unsigned char)i;
}

static void fill(unsigned char *local, Box box, const long shape[2], int elem) {
    for (long r = box.lo[0]; r < box.hi[0]; r++)
        for (long c = box.lo[1]; c < box.hi[1]; c++, local += elem) value_of((uint64_t)(r * shape[1] + c), elem, local);
}

static long wrong(const unsigned char *local, Box box, const long shape[2], int elem) {
    unsigned char want[64];
    long bad = 0;
    for (long r = box.lo[0]; r < box.hi[0]; r++)
        for (long c = box.lo[1]; c < box.hi[1]; c++, local += elem) {
            value_of((uint64_t)(r * shape[1] + c), elem, want);
            bad += memcmp(local, want, (size_t)elem) != 0;
        }
    return bad;
}

/* The part of `whole` that `part` is, as a type; returns the count to use with it (0: nothing is sent). */
static int part_type(Box whole, Box part, MPI_Datatype element, MPI_Datatype *type) {
    *type = MPI_BYTE;
    if (!elements(part)) return 0;
    int sizes[2], sub[2], start[2];
    for (int d = 0; d < 2; d++) {
        sizes[d] = (int)(whole.hi[d] - whole.lo[d]);
        sub[d] = (int)(part.hi[d] - part.lo[d]);
        start[d] = (int)(part.lo[d] - whole.lo[d]);
    }
    MPI_Type_create_subarray(2, sizes, sub, start, MPI_ORDER_C, element, type);
    MPI_Type_commit(type);
    return 1;
}

static double median(double *sorted, int count) {
    qsort(sorted, count, sizeof(double), by_value);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int n, rank;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 7) die("usage: alltoallw FROM TO ROWS COLS ELEM_BYTES REPEAT");
    long shape[2] = {atol(argv[3]), atol(argv[4])};
    int elem = atoi(argv[5]), repeat = atoi(argv[6]);
    if (shape[0] < 1 || shape[1] < 1 || shape[0] > 1 << 30 || shape[1] > 1 << 30) die("a shape has extents of 1 to 2^30");
    if (elem < 1 || elem > 64 || repeat < 1) die("elements have 1 to 64 bytes, and there is at least one repetition");

    MPI_Datatype element;
    switch (elem) {
    case 1: element = MPI_BYTE; break;
    case 2: element = MPI_SHORT; break;
    case 4: element = MPI_FLOAT; break;
    case 8: element = MPI_DOUBLE; break;
    default: MPI_Type_contiguous(elem, MPI_BYTE, &element); MPI_Type_commit(&element);
    }

    Box mine = piece_of(argv[1], shape, n, rank), wanted = piece_of(argv[2], shape, n, rank);
    size_t got_bytes = (size_t)elements(wanted) * elem;
    unsigned char *have = malloc((size_t)elements(mine) * elem + 1), *got = malloc(got_bytes + 1);
    int *send_n = calloc(n, sizeof(int)), *recv_n = calloc(n, sizeof(int)), *zeros = calloc(n, sizeof(int));
    MPI_Datatype *send_t = malloc(n * sizeof *send_t), *recv_t = malloc(n * sizeof *recv_t);
    double *start = calloc(3 * repeat, sizeof(double)), *end = start + repeat, *own = end + repeat;
    if (!have || !got || !send_n || !recv_n || !zeros || !send_t || !recv_t || !start) die("out of memory");
    for (int peer = 0; peer < n; peer++) {
        send_n[peer] = part_type(mine, meet(mine, piece_of(argv[2], shape, n, peer)), element, &send_t[peer]);
        recv_n[peer] = part_type(wanted, meet(wanted, piece_of(argv[1], shape, n, peer)), element, &recv_t[peer]);
    }
    fill(have, mine, shape, elem);

    long bad = 0, bad_anywhere = 0;
    const int warm = 2;
    for (int i = -warm; i <= repeat; i++) {
        int checked = i == -warm || i == repeat; /* outside the timed ones */
        if (checked) memset(got, 0xA5, got_bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        double t0 = now();
        MPI_Alltoallw(have, send_n, zeros, send_t, got, recv_n, zeros, recv_t, MPI_COMM_WORLD);
        double t1 = now();
        MPI_Barrier(MPI_COMM_WORLD);
        if (i >= 0 && i < repeat) start[i] = t0, end[i] = t1, own[i] = t1 - t0;
        if (checked) bad += wrong(got, wanted, shape, elem);
    }
    MPI_Allreduce(MPI_IN_PLACE, start, repeat, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, end, 2 * repeat, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD); /* and own, behind it */
    MPI_Allreduce(&bad, &bad_anywhere, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        char version[MPI_MAX_LIBRARY_VERSION_STRING];
        int len;
        MPI_Get_library_version(version, &len);
        version[strcspn(version, ",\n")] = 0;
        for (char *c = version; *c; c++)
            if (*c == '\t' || *c == '"' || *c == '\\') *c = ' ';
        for (int i = 0; i < repeat; i++) start[i] = end[i] - start[i];
        double middle = median(start, repeat); /* sorts, so that the least stands first */
        printf("{\"case\":\"%s-%s\",\"n\":%d,\"bytes\":%ld,\"median_s\":%.9f,\"min_s\":%.9f,\"median_own_s\":%.9f,"
               "\"verified\":%s,\"runs\":%d,\"library\":\"%s\"}\n",
               argv[1], argv[2], n, shape[0] * shape[1] * elem, middle, start[0], median(own, repeat),
               bad_anywhere ? "false" : "true", repeat, version);
    }
    MPI_Finalize();
    return bad_anywhere != 0;
}
