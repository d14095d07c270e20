/* Redistributes a block-cyclic matrix with ScaLAPACK's p?gemr2d and back, over BLACS' C interface.
 *
 *   gemr2d GRID_ROWS GRID_COLS N BLOCK_A BLOCK_B ELEM_BYTES REPEAT      ELEM_BYTES: 4 (psgemr2d) | 8 (pdgemr2d)
 *
 * Local storage is column-major, as ScaLAPACK wants it. The routine plans anew in each call, so planning is always
 * within the time. Each call stands between barriers; its time is from the first process' leaving the barrier to the last
 * one's return, on the host's one monotonic clock (`median_own_s` beside it: the longest of the processes' own times).
 * Process (0,0) prints one line of JSON for each direction; "verified":true means that every element on every process
 * was compared in both layouts, before and after timing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"

void Cblacs_pinfo(int *rank, int *size);
void Cblacs_get(int context, int what, int *value);
void Cblacs_gridinit(int *context, const char *order, int rows, int cols);
void Cblacs_gridinfo(int context, int *rows, int *cols, int *row, int *col);
void Cblacs_barrier(int context, const char *scope);
void Cblacs_gridexit(int context);
void Cblacs_exit(int keep_mpi);
void Cblacs_abort(int context, int code);
void Cdgamx2d(int context, const char *scope, const char *top, int m, int n, double *a, int lda, int *ra, int *ca,
              int ldia, int rdest, int cdest);
int numroc_(const int *n, const int *nb, const int *coord, const int *source, const int *procs);
void descinit_(int *desc, const int *m, const int *n, const int *mb, const int *nb, const int *row, const int *col,
               const int *context, const int *lld, int *info);
void Cpsgemr2d(int m, int n, float *a, int ia, int ja, int *desca, float *b, int ib, int jb, int *descb, int context);
void Cpdgemr2d(int m, int n, double *a, int ia, int ja, int *desca, double *b, int ib, int jb, int *descb, int context);

typedef struct {
    int block, rows, cols; /* local extents */
    int desc[9];
    void *data;
} Matrix;

static int context, grid[2], me[2], n, elem;

static void die(const char *what) {
    fprintf(stderr, "gemr2d: %s\n", what);
    Cblacs_abort(context, 2);
    exit(2);
}

static Matrix matrix(int block) {
    Matrix m = {.block = block};
    int zero = 0, info = 0;
    m.rows = numroc_(&n, &block, &me[0], &zero, &grid[0]);
    m.cols = numroc_(&n, &block, &me[1], &zero, &grid[1]);
    int leading = m.rows > 0 ? m.rows : 1;
    descinit_(m.desc, &n, &n, &block, &block, &zero, &zero, &context, &leading, &info);
    if (info) die("descinit refused the matrix");
    m.data = malloc((size_t)leading * (m.cols > 0 ? m.cols : 1) * elem);
    if (!m.data) die("out of memory");
    return m;
}

/* Global index of a local one. */
static long global(long local, int block, int coord, int procs) {
    return (local / block * procs + coord) * block + local % block;
}

/* Fills the matrix with each element's row-major linear index, or counts the elements that are not it. */
static long visit(Matrix m, int check) {
    long bad = 0;
    for (long c = 0; c < m.cols; c++)
        for (long r = 0; r < m.rows; r++) {
            long at = c * m.rows + r;
            double want = (double)(global(r, m.block, me[0], grid[0]) * n + global(c, m.block, me[1], grid[1]));
            if (elem == 4) {
                if (check) bad += ((float *)m.data)[at] != (float)want;
                else ((float *)m.data)[at] = (float)want;
            } else {
                if (check) bad += ((double *)m.data)[at] != want;
                else ((double *)m.data)[at] = want;
            }
        }
    return bad;
}

static void poison(Matrix m) { memset(m.data, 0xA5, (size_t)m.rows * m.cols * elem); }

typedef struct {
    double *start, *end, *own;
} Times;

static Times times(int count) {
    double *all = calloc(3 * (size_t)count, sizeof(double));
    if (!all) die("out of memory");
    return (Times){all, all + count, all + 2 * count};
}

static void move(Matrix from, Matrix to, Times times, int slot) {
    Cblacs_barrier(context, "All");
    double t0 = now();
    if (elem == 4) Cpsgemr2d(n, n, from.data, 1, 1, from.desc, to.data, 1, 1, to.desc, context);
    else Cpdgemr2d(n, n, from.data, 1, 1, from.desc, to.data, 1, 1, to.desc, context);
    double t1 = now();
    Cblacs_barrier(context, "All");
    if (slot >= 0) times.start[slot] = -t0, times.end[slot] = t1, times.own[slot] = t1 - t0; /* -t0: largest() serves */
}

static void largest(double *values, int count) {
    int unused = 0;
    Cdgamx2d(context, "All", " ", count, 1, values, count, &unused, &unused, -1, -1, -1);
}

static double median(double *values, int count) {
    qsort(values, count, sizeof(double), by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void report(int from, int to, Times times, int repeat, int verified) {
    for (int i = 0; i < repeat; i++) times.end[i] += times.start[i];
    double middle = median(times.end, repeat); /* sorts, so that the least stands first */
    printf("{\"case\":\"cyclic%d-cyclic%d\",\"n\":%d,\"bytes\":%ld,\"median_s\":%.9f,\"min_s\":%.9f,"
           "\"median_own_s\":%.9f,\"verified\":%s,\"runs\":%d}\n",
           from, to, grid[0] * grid[1], (long)n * n * elem, middle, times.end[0], median(times.own, repeat),
           verified ? "true" : "false", repeat);
}

int main(int argc, char **argv) {
    int rank, size;
    Cblacs_pinfo(&rank, &size);
    Cblacs_get(0, 0, &context);
    if (argc != 8) die("usage: gemr2d GRID_ROWS GRID_COLS N BLOCK_A BLOCK_B ELEM_BYTES REPEAT");
    grid[0] = atoi(argv[1]), grid[1] = atoi(argv[2]), n = atoi(argv[3]);
    int block_a = atoi(argv[4]), block_b = atoi(argv[5]), repeat = atoi(argv[7]);
    elem = atoi(argv[6]);
    if (grid[0] < 1 || grid[1] < 1 || (long)grid[0] * grid[1] != size) die("the grid must hold every process");
    if (n < 1 || block_a < 1 || block_b < 1 || repeat < 1) die("extent, blocks and repetitions start at 1");
    if (elem != 4 && elem != 8) die("elements have 4 or 8 bytes");
    if (elem == 4 && n > 4096) die("above 4096 a float does not hold every index; use 8 bytes");
    Cblacs_gridinit(&context, "Row", grid[0], grid[1]);
    Cblacs_gridinfo(context, &grid[0], &grid[1], &me[0], &me[1]);

    Matrix a = matrix(block_a), b = matrix(block_b);
    Times there = times(repeat), back = times(repeat);
    double bad = 0;
    visit(a, 0);
    const int warm = 1;
    for (int i = -warm; i <= repeat; i++) {
        int checked = i == -warm || i == repeat; /* outside the timed ones */
        if (checked) poison(b);
        int slot = i < repeat ? i : -1;
        move(a, b, there, slot);
        if (checked) bad += visit(b, 1), poison(a);
        move(b, a, back, slot);
        if (checked) bad += visit(a, 1);
    }
    largest(there.start, 3 * repeat);
    largest(back.start, 3 * repeat);
    largest(&bad, 1);
    if (me[0] == 0 && me[1] == 0) {
        report(block_a, block_b, there, repeat, bad == 0);
        report(block_b, block_a, back, repeat, bad == 0);
        fflush(stdout);
    }
    Cblacs_gridexit(context);
    Cblacs_exit(0);
    return bad != 0;
}
