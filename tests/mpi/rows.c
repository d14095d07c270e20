/* Ranks of a stage of a pipeline: each writes its rows of an array, step after step, with a word from the
 * rank on its left in them. Then all end; or with "wait" they say who they are, and wait for a message
 * that never comes; or with "fail" the last one ends with status 7 while the others wait. */
#include <mpi.h>
#include <polyduct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 12, COLUMNS = 5, STEPS = 4 };

static void need(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "rows: %s: %s\n", what, polyduct_error_text());
    MPI_Abort(MPI_COMM_WORLD, 4);
}

int main(int argc, char **argv) {
    int rank, size, nothing;
    const char *then = argc > 1 ? argv[1] : "end";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *unit = getenv("POLYDUCT_UNIT"), *units = getenv("POLYDUCT_UNITS");
    need(unit && atoi(unit) == rank && units && atoi(units) == size, "another unit than MPI's rank");

    polyduct_port *out;
    int64_t shape[] = {ROWS, COLUMNS};
    need(!polyduct_open_write(&out, "-", POLYDUCT_F64, 2, shape, "balanced,*", NULL), "opening");
    for (int t = 0; t < STEPS; t++) {
        int left = (rank + size - 1) % size, right = (rank + 1) % size, word = 10 * rank + t;
        MPI_Sendrecv_replace(&word, 1, MPI_INT, right, t, left, t, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        double *rows;
        size_t len;
        need(!polyduct_step_begin(out, (void **)&rows, &len), "beginning a step");
        for (size_t i = 0; i < len / sizeof *rows; i++) rows[i] = 1000 * rank + word;
        need(!polyduct_step_end(out), "ending a step");
    }
    if (strcmp(then, "end")) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (!strcmp(then, "fail") && rank == size - 1) exit(7);
        printf("rank %d is %d\n", rank, (int)getpid());
        fflush(stdout);
        MPI_Recv(&nothing, 1, MPI_INT, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    need(!polyduct_close(out), "closing");
    MPI_Finalize();
    return 0;
}
