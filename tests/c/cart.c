/* Layouts of communicators and datatypes against what MPI itself says: mpirun -n N cart. */
#include "check.h"

#include <polyduct_mpi.h>

static int rank, ranks;

/* The elements that a layout gives this unit, in the order of its memory: each is its row-major number. */
static int32_t *held(const char *text, int ndim, const int64_t *shape, int64_t units, size_t *count) {
    polyduct_layout *whole, *layout;
    int64_t elements = 1;
    for (int k = 0; k < ndim; k++) elements *= shape[k];
    int32_t *all = malloc((size_t)elements * 4 + 4), *mine = NULL;
    for (int64_t n = 0; n < elements; n++) all[n] = (int32_t)n;
    OK(polyduct_layout_new(&whole, "...", POLYDUCT_I32, ndim, shape, 1));
    OK(polyduct_layout_new(&layout, text, POLYDUCT_I32, ndim, shape, units));
    const void *from[] = {all};
    size_t len = (size_t)elements * 4;
    void **to = malloc((size_t)units * sizeof *to);
    size_t *lens = malloc((size_t)units * sizeof *lens);
    for (int64_t u = 0; u < units; u++) {
        OK(polyduct_layout_size(layout, u, &lens[u]));
        to[u] = malloc(lens[u] + 4);
    }
    OK(polyduct_redistribute(whole, from, &len, layout, to, lens));
    for (int64_t u = 0; u < units; u++) {
        if (u == rank)
            mine = to[u];
        else
            free(to[u]);
    }
    *count = lens[rank] / 4;
    free(all);
    free(to);
    free(lens);
    OK(polyduct_layout_close(whole));
    OK(polyduct_layout_close(layout));
    return mine;
}

/* The elements that MPI takes by a type out of the whole array in its order. */
static int32_t *packed(MPI_Datatype type, int ndim, const int64_t *shape, int fortran, size_t at,
                       size_t *count) {
    int64_t elements = 1, index[POLYDUCT_MAX_DIMS];
    for (int k = 0; k < ndim; k++) elements *= shape[k];
    int32_t *all = malloc((size_t)elements * 4 + 4);
    for (int64_t n = 0; n < elements; n++) {
        int64_t rest = n, place = 0, stride = 1;
        for (int k = ndim - 1; k >= 0; k--) {
            index[k] = rest % shape[k];
            rest /= shape[k];
        }
        for (int k = 0; k < ndim; k++) {
            int dim = fortran ? k : ndim - 1 - k;
            place += index[dim] * stride;
            stride *= shape[dim];
        }
        all[place] = (int32_t)n;
    }
    int size, position = 0;
    MPI_Type_size(type, &size);
    int32_t *mine = malloc((size_t)size + 4);
    MPI_Type_commit(&type);
    if (size) MPI_Pack(all + at, 1, type, mine, size, &position, MPI_COMM_SELF);
    MPI_Type_free(&type);
    *count = (size_t)size / 4;
    free(all);
    return mine;
}

static void same(const char *layout, int ndim, const int64_t *shape, MPI_Datatype type, int fortran,
                 size_t at) {
    size_t ours, theirs;
    int32_t *a = held(layout, ndim, shape, ranks, &ours),
            *b = packed(type, ndim, shape, fortran, at, &theirs);
    if (ours != theirs || memcmp(a, b, ours * 4))
        fprintf(stderr, "%s: %zu and %zu elements\n", layout, ours, theirs);
    TRUE(ours == theirs && !memcmp(a, b, ours * 4));
    free(a);
    free(b);
}

/* A block for each process of a grid, at the coordinates that MPI says. */
static void carts(void) {
    const int64_t shapes[][3] = {{7, 5, 4}, {13, 2, 3}, {1, 9, 8}};
    for (int grid = 1; grid <= 3; grid++) {
        int dims[3] = {0, 0, 0}, periods[3] = {1, 0, 1}, coords[3];
        MPI_Comm cart;
        MPI_Dims_create(ranks, grid, dims);
        MPI_Cart_create(MPI_COMM_WORLD, grid, dims, periods, 0, &cart);
        MPI_Cart_coords(cart, rank, grid, coords);
        for (int s = 0; s < 3; s++)
            for (int ndim = grid; ndim <= 3; ndim++) {
                char *text = NULL;
                polyduct_layout *layout;
                int64_t lo[3], hi[3];
                size_t count;
                OK(polyduct_layout_of_cart(cart, ndim, shapes[s], &text));
                OK(polyduct_layout_new(&layout, text, POLYDUCT_I32, ndim, shapes[s], ranks));
                OK(polyduct_layout_boxes(layout, rank, 0, 1, lo, hi, &count));
                int empty = 0;
                for (int k = 0; k < grid; k++) {
                    int64_t size = (shapes[s][k] + dims[k] - 1) / dims[k];
                    empty |= coords[k] * size >= shapes[s][k];
                }
                TRUE(count == !empty);
                for (int k = 0; k < ndim && !empty; k++) {
                    int64_t extent = shapes[s][k],
                            size = k < grid ? (extent + dims[k] - 1) / dims[k] : extent;
                    int64_t from = k < grid ? coords[k] * size : 0;
                    TRUE(lo[k] == from && hi[k] == (from + size < extent ? from + size : extent));
                }
                OK(polyduct_layout_close(layout));
                free(text);
            }
        MPI_Comm_free(&cart);
    }
}

static void datatypes(void) {
    MPI_Datatype type;
    polyduct_mpi_array array;
    for (int fortran = 0; fortran < 2; fortran++) {
        int order = fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C;
        int sizes[] = {ranks * 2, 5}, subsizes[] = {2, 5}, starts[] = {rank * 2, 0}, psizes[2] = {0, 0};
        MPI_Type_create_subarray(2, sizes, subsizes, starts, order, MPI_INT, &type);
        OK(polyduct_layout_of_datatype(type, MPI_COMM_WORLD, &array));
        TRUE(array.type == POLYDUCT_I32 && array.ndim == 2 && array.shape[0] == ranks * 2 &&
             array.shape[1] == 5);
        same(array.layout, 2, array.shape, type, fortran, 0);
        free(array.layout);
        MPI_Dims_create(ranks, 2, psizes);
        const int kinds[][2] = {{MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_DFLT_DARG},
                                {MPI_DISTRIBUTE_BLOCK, 9},
                                {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_DFLT_DARG},
                                {MPI_DISTRIBUTE_CYCLIC, 2}};
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < 4; b++) {
                int gsizes[] = {9, 7}, distribs[] = {kinds[a][0], kinds[b][0]},
                    dargs[] = {kinds[a][1], kinds[b][1]};
                MPI_Type_create_darray(ranks, rank, 2, gsizes, distribs, dargs, psizes, order, MPI_INT,
                                       &type);
                OK(polyduct_layout_of_datatype(type, MPI_COMM_WORLD, &array));
                same(array.layout, 2, array.shape, type, fortran, 0);
                free(array.layout);
            }
    }
    MPI_Type_contiguous(5, MPI_INT, &type);
    OK(polyduct_layout_of_datatype(type, MPI_COMM_WORLD, &array));
    TRUE(array.ndim == 1 && array.shape[0] == 5 * ranks);
    same(array.layout, 1, array.shape, type, 0, (size_t)rank * 5);
    free(array.layout);
    MPI_Type_vector(4, 3, 3 * ranks, MPI_INT, &type);
    OK(polyduct_layout_of_datatype(type, MPI_COMM_WORLD, &array));
    TRUE(array.shape[0] == 12 * ranks);
    same(array.layout, 1, array.shape, type, 0, (size_t)rank * 3);
    free(array.layout);
}

static void refuses(const char *words, int code, int expected) {
    if (code != expected || !strstr(polyduct_mpi_why(), words))
        fprintf(stderr, "%d: %s\n", code, polyduct_mpi_why());
    TRUE(code == expected && strstr(polyduct_mpi_why(), words));
}

static void misuse(void) {
    MPI_Datatype type, other;
    polyduct_mpi_array array;
    MPI_Comm cart;
    char *text = NULL;
    int dims[] = {ranks, 1}, periods[] = {0, 0}, blocks[] = {1, 2}, at[] = {0, 3};
    int64_t shape[] = {4, 4};
    refuses("has no grid", polyduct_layout_of_cart(MPI_COMM_WORLD, 2, shape, &text), POLYDUCT_MISUSE);
    refuses("MPI_COMM_NULL", polyduct_layout_of_cart(MPI_COMM_NULL, 2, shape, &text), POLYDUCT_MISUSE);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
    refuses("2 dimensions, the array 1", polyduct_layout_of_cart(cart, 1, shape, &text), POLYDUCT_MISUSE);
    MPI_Comm_free(&cart);
    MPI_Type_indexed(2, blocks, at, MPI_INT, &type);
    refuses("not one of an array", polyduct_layout_of_datatype(type, MPI_COMM_WORLD, &array),
            POLYDUCT_MISUSE);
    refuses("not one of an array", polyduct_layout_of_datatype(MPI_INT, MPI_COMM_WORLD, &array),
            POLYDUCT_MISUSE);
    MPI_Type_contiguous(2, type, &other);
    refuses("none of polyduct's", polyduct_layout_of_datatype(other, MPI_COMM_WORLD, &array),
            POLYDUCT_WRONG_TYPE);
    MPI_Type_free(&other);
    MPI_Type_free(&type);
    MPI_Type_vector(4, 3, 3 * ranks + 1, MPI_INT, &type);
    refuses("the vector's stride", polyduct_layout_of_datatype(type, MPI_COMM_WORLD, &array),
            POLYDUCT_MISUSE);
    refuses("the communicator says", polyduct_layout_of_datatype(type, MPI_COMM_NULL, &array),
            POLYDUCT_MISUSE);
    MPI_Type_free(&type);
    if (ranks > 1) {
        int sizes[] = {ranks, 4 + rank % 2}, subsizes[] = {1, 4}, starts[] = {rank, 0};
        MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &type);
        refuses("are not of one array", polyduct_layout_of_datatype(type, MPI_COMM_WORLD, &array),
                POLYDUCT_MISUSE);
        MPI_Type_free(&type);
    }
    TRUE(text == NULL);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    carts();
    datatypes();
    misuse();
    int all = 0, one = 1;
    MPI_Reduce(&one, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d of %d\n", all, ranks);
    MPI_Finalize();
    return 0;
}
