/* C = A B. Rows of A are scattered; of B each rank has some, which go round the ring while it multiplies
 * by those that it has; rows of C are gathered, and must be those of the product as the textbook has it,
 * exactly: all numbers are small integers. The side need not be a multiple of the ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double *zeros(size_t n) {
    double *a = calloc(n ? n : 1, sizeof *a);
    if (!a) MPI_Abort(MPI_COMM_WORLD, 3);
    return a;
}

/* c, of m rows, gets a b more: b are `count` rows of B from row `first` on, a has all n columns. */
static void multiply(const double *a, const double *b, double *c, int m, int n, int first, int count) {
    for (int i = 0; i < m; i++)
        for (int k = 0; k < count; k++)
            for (int j = 0; j < n; j++) c[i * n + j] += a[i * n + first + k] * b[k * n + j];
}

int main(int argc, char **argv) {
    int rank, size, n = argc > 1 ? atoi(argv[1]) : 300, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    /* The first n % size ranks have a row more. */
    int *first = malloc((size + 1) * sizeof *first), *lens = malloc(size * sizeof *lens);
    int *starts = malloc(size * sizeof *starts), most = n / size + (n % size > 0);
    for (int r = 0; r <= size; r++) first[r] = r * (n / size) + (r < n % size ? r : n % size);
    for (int r = 0; r < size; r++) starts[r] = first[r] * n, lens[r] = (first[r + 1] - first[r]) * n;
    int mine = first[rank + 1] - first[rank];

    double *A = NULL, *B = NULL, *C = NULL;
    if (rank == 0) {
        A = zeros((size_t)n * n), B = zeros((size_t)n * n), C = zeros((size_t)n * n);
        for (int i = 0; i < n * n; i++) A[i] = i % 17 - 8, B[i] = (i / 3) % 13 - 6;
    }
    double *a = zeros((size_t)mine * n), *c = zeros((size_t)mine * n);
    double *b = zeros((size_t)most * n), *next = zeros((size_t)most * n);
    MPI_Scatterv(A, lens, starts, MPI_DOUBLE, a, mine * n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Scatterv(B, lens, starts, MPI_DOUBLE, b, mine * n, MPI_DOUBLE, 0, MPI_COMM_WORLD);

    for (int turn = 0; turn < size; turn++) {
        int whose = (rank + turn) % size, left = (rank + size - 1) % size, right = (rank + 1) % size;
        MPI_Request moves[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        if (turn + 1 < size) {
            MPI_Irecv(next, most * n, MPI_DOUBLE, right, turn, MPI_COMM_WORLD, &moves[0]);
            MPI_Isend(b, lens[whose], MPI_DOUBLE, left, turn, MPI_COMM_WORLD, &moves[1]);
        }
        multiply(a, b, c, mine, n, first[whose], first[whose + 1] - first[whose]);
        MPI_Waitall(2, moves, MPI_STATUSES_IGNORE);
        double *had = b;
        b = next, next = had;
    }
    MPI_Gatherv(c, mine * n, MPI_DOUBLE, C, lens, starts, MPI_DOUBLE, 0, MPI_COMM_WORLD);

    if (rank == 0) {
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                double sum = 0;
                for (int k = 0; k < n; k++) sum += A[i * n + k] * B[k * n + j];
                wrong += sum != C[i * n + j];
            }
        printf("%d ranks, %d x %d: %d wrong\n", size, n, n, wrong);
        free(A), free(B), free(C);
    }
    free(a), free(b), free(next), free(c), free(first), free(lens), free(starts);
    MPI_Bcast(&wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return wrong != 0;
}
