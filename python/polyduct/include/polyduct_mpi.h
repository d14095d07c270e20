/* polyduct_mpi.h: layouts that MPI's communicators and datatypes say. A header alone, for programs that are
 * compiled against MPI: it includes <mpi.h> and needs no library of polyduct's beyond <polyduct.h>'s.
 *
 *     char *layout;
 *     int code = polyduct_layout_of_cart(cart, 2, (int64_t[]){4096, 4096}, &layout);   //
 * "block[0],block[1]@4x2" if (code == POLYDUCT_OK) polyduct_open_write(&out, "-", POLYDUCT_F64, 2, shape,
 * layout, NULL); free(layout);
 *
 * The units of polyduct are the ranks of the communicator: those of MPI_COMM_WORLD, where mpiexec numbers
 * them. Text is allocated by malloc, and the caller frees it. Codes are those of polyduct.h; why something
 * has no layout `polyduct_mpi_why` says, a text of this file's that lasts until its next call.
 */
#ifndef POLYDUCT_MPI_H
#define POLYDUCT_MPI_H

#include "polyduct.h"

#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What an array is that a datatype says a part of. */
typedef struct polyduct_mpi_array {
    int type; /* enum polyduct_type of its elements */
    int ndim;
    int64_t shape[POLYDUCT_MAX_DIMS];
    char *layout; /* Allocated by malloc. */
} polyduct_mpi_array;

/* ---- what the functions below are made of ---- */

static inline char *polyduct_mpi_words(void) {
    static char words[256];
    return words;
}

/* Why the last call of this file had no result. */
static inline const char *polyduct_mpi_why(void) {
    return polyduct_mpi_words();
}

static inline int polyduct_mpi_fail(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(polyduct_mpi_words(), 256, format, args);
    va_end(args);
    return code;
}

/* Text that grows. */
typedef struct polyduct_mpi_text {
    char *at;
    size_t len, room;
    int failed;
} polyduct_mpi_text;

static inline void polyduct_mpi_add(polyduct_mpi_text *text, const char *format, ...) {
    char piece[128];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (text->len + (size_t)len + 1 > text->room) {
        size_t room = text->room * 2 + 256;
        char *more = (char *)realloc(text->at, room);
        if (!more) {
            text->failed = 1;
            return;
        }
        text->at = more;
        text->room = room;
    }
    memcpy(text->at + text->len, piece, (size_t)len + 1);
    text->len += (size_t)len;
}

static inline int polyduct_mpi_done(polyduct_mpi_text *text, char **layout) {
    if (text->failed) {
        free(text->at);
        return polyduct_mpi_fail(POLYDUCT_NO_MEMORY, "no memory for the text of a layout");
    }
    *layout = text->at;
    return POLYDUCT_OK;
}

/* The type of elements of MPI's own; 0 for one that is none of polyduct's. */
static inline int polyduct_mpi_type(MPI_Datatype type) {
    const struct {
        MPI_Datatype mpi;
        int ours;
    } table[] = {
        {MPI_FLOAT, POLYDUCT_F32},
        {MPI_DOUBLE, POLYDUCT_F64},
        {MPI_INT8_T, POLYDUCT_I8},
        {MPI_INT16_T, POLYDUCT_I16},
        {MPI_INT32_T, POLYDUCT_I32},
        {MPI_INT64_T, POLYDUCT_I64},
        {MPI_UINT8_T, POLYDUCT_U8},
        {MPI_UINT16_T, POLYDUCT_U16},
        {MPI_UINT32_T, POLYDUCT_U32},
        {MPI_UINT64_T, POLYDUCT_U64},
        {MPI_CHAR, POLYDUCT_I8},
        {MPI_SIGNED_CHAR, POLYDUCT_I8},
        {MPI_UNSIGNED_CHAR, POLYDUCT_U8},
        {MPI_BYTE, POLYDUCT_U8},
        {MPI_SHORT, POLYDUCT_I16},
        {MPI_UNSIGNED_SHORT, POLYDUCT_U16},
        {MPI_INT, POLYDUCT_I32},
        {MPI_UNSIGNED, POLYDUCT_U32},
        {MPI_LONG, sizeof(long) == 8 ? POLYDUCT_I64 : POLYDUCT_I32},
        {MPI_UNSIGNED_LONG, sizeof(long) == 8 ? POLYDUCT_U64 : POLYDUCT_U32},
        {MPI_LONG_LONG, POLYDUCT_I64},
        {MPI_UNSIGNED_LONG_LONG, POLYDUCT_U64},
        {MPI_C_BOOL, POLYDUCT_BOOL},
        {MPI_C_FLOAT_COMPLEX, POLYDUCT_C64},
        {MPI_C_DOUBLE_COMPLEX, POLYDUCT_C128},
    };
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        if (table[n].mpi == type) return table[n].ours;
    return 0;
}

/* ---- communicators ---- */

/* The layout of an array of which each process of a Cartesian communicator has a block: dimension by
 * dimension along its own, cut as "block" cuts, pieces of N/P elements, rounded up, in order, the last ones
 * short or empty. Dimensions of the array beyond the communicator's are not cut.
 *
 * POLYDUCT_MISUSE: the communicator is not Cartesian, or has more dimensions than the array. */
static inline int polyduct_layout_of_cart(MPI_Comm comm, int ndim, const int64_t *shape, char **layout) {
    int topology = MPI_UNDEFINED, grid = 0;
    int dims[POLYDUCT_MAX_DIMS], periods[POLYDUCT_MAX_DIMS], coords[POLYDUCT_MAX_DIMS];
    polyduct_mpi_text text = {NULL, 0, 0, 0};
    (void)shape;
    *layout = NULL;
    if (comm == MPI_COMM_NULL) return polyduct_mpi_fail(POLYDUCT_MISUSE, "the communicator is MPI_COMM_NULL");
    if (MPI_Topo_test(comm, &topology) != MPI_SUCCESS || topology != MPI_CART)
        return polyduct_mpi_fail(POLYDUCT_MISUSE,
                                 "the communicator has no grid; expected one of MPI_Cart_create");
    MPI_Cartdim_get(comm, &grid);
    if (ndim < 0 || ndim > POLYDUCT_MAX_DIMS || grid > ndim)
        return polyduct_mpi_fail(POLYDUCT_MISUSE, "the communicator has %d dimensions, the array %d", grid,
                                 ndim);
    if (grid == 0) {
        polyduct_mpi_add(&text, "...");
        return polyduct_mpi_done(&text, layout);
    }
    MPI_Cart_get(comm, grid, dims, periods, coords);
    for (int k = 0; k < ndim; k++) {
        if (k < grid)
            polyduct_mpi_add(&text, "%sblock[%d]", k ? "," : "", k);
        else
            polyduct_mpi_add(&text, ",*");
    }
    for (int k = 0; k < grid; k++) polyduct_mpi_add(&text, "%c%d", k ? 'x' : '@', dims[k]);
    return polyduct_mpi_done(&text, layout);
}

/* ---- datatypes, by their envelopes ---- */

static inline int polyduct_mpi_of_darray(const int *made, MPI_Comm comm, polyduct_mpi_array *array) {
    /* size, rank, ndims, then gsizes, distribs, dargs, psizes, and the order. */
    int size = made[0], rank = made[1], ndim = made[2], here = rank, there = size;
    const int *gsizes = made + 3, *distribs = gsizes + ndim, *dargs = distribs + ndim, *psizes = dargs + ndim;
    int order = psizes[ndim];
    polyduct_mpi_text text = {NULL, 0, 0, 0};
    if (comm != MPI_COMM_NULL) {
        MPI_Comm_rank(comm, &here);
        MPI_Comm_size(comm, &there);
    }
    if (here != rank || there != size)
        return polyduct_mpi_fail(
            POLYDUCT_MISUSE,
            "the darray type is of process %d of %d, this one is %d of %d in the communicator", rank, size,
            here, there);
    array->ndim = ndim;
    for (int k = 0; k < ndim; k++) {
        int64_t extent = gsizes[k], parts = psizes[k], most = (extent + parts - 1) / parts;
        const char *comma = k ? "," : "";
        array->shape[k] = extent;
        if (distribs[k] == MPI_DISTRIBUTE_NONE) {
            polyduct_mpi_add(&text, "%s*", comma);
        } else if (distribs[k] == MPI_DISTRIBUTE_CYCLIC) {
            if (dargs[k] == MPI_DISTRIBUTE_DFLT_DARG)
                polyduct_mpi_add(&text, "%scyclic[%d]", comma, k);
            else
                polyduct_mpi_add(&text, "%scyclic(%d)[%d]", comma, dargs[k], k);
        } else if (dargs[k] == MPI_DISTRIBUTE_DFLT_DARG || dargs[k] == most) {
            polyduct_mpi_add(&text, "%sblock[%d]", comma, k);
        } else {
            polyduct_mpi_add(&text, "%scut(", comma);
            for (int64_t n = 0; n < parts; n++) {
                int64_t at = n * dargs[k] < extent ? n * dargs[k] : extent;
                polyduct_mpi_add(&text, "%s%lld", n ? "," : "", (long long)at);
            }
            polyduct_mpi_add(&text, ")[%d]", k);
        }
    }
    for (int k = 0; k < ndim; k++) polyduct_mpi_add(&text, "%c%d", k ? 'x' : '@', psizes[k]);
    if (order == MPI_ORDER_FORTRAN) polyduct_mpi_add(&text, ";order=F");
    return polyduct_mpi_done(&text, &array->layout);
}

static inline int polyduct_mpi_of_subarray(const int *made, MPI_Comm comm, polyduct_mpi_array *array) {
    /* ndims, then sizes, subsizes, starts, and the order. */
    int ndim = made[0], units, mine[4 * POLYDUCT_MAX_DIMS + 1], *all, code = POLYDUCT_OK;
    int count = 3 * ndim + 1;
    polyduct_mpi_text text = {NULL, 0, 0, 0};
    if (comm == MPI_COMM_NULL)
        return polyduct_mpi_fail(POLYDUCT_MISUSE,
                                 "a subarray type says what this process has, and nothing of the "
                                 "others: expected a communicator whose processes all call this");
    MPI_Comm_size(comm, &units);
    memcpy(mine, made + 1, (size_t)count * sizeof *mine);
    all = (int *)malloc((size_t)units * (size_t)count * sizeof *all);
    if (!all) return polyduct_mpi_fail(POLYDUCT_NO_MEMORY, "no memory for the boxes of %d processes", units);
    MPI_Allgather(mine, count, MPI_INT, all, count, MPI_INT, comm);
    array->ndim = ndim;
    for (int k = 0; k < ndim; k++) array->shape[k] = made[1 + k];
    polyduct_mpi_add(&text, "boxes(");
    for (int u = 0; u < units; u++) {
        const int *sizes = all + (size_t)u * (size_t)count, *subsizes = sizes + ndim,
                  *starts = subsizes + ndim;
        int empty = 0;
        if (memcmp(sizes, mine, (size_t)ndim * sizeof *mine) != 0 || sizes[3 * ndim] != mine[3 * ndim])
            code = POLYDUCT_MISUSE;
        for (int k = 0; k < ndim; k++) empty |= subsizes[k] == 0;
        if (u) polyduct_mpi_add(&text, "|");
        if (empty) polyduct_mpi_add(&text, "-");
        for (int k = 0; k < ndim && !empty; k++)
            polyduct_mpi_add(&text, "%s%d:%d", k ? "," : "", starts[k], starts[k] + subsizes[k]);
    }
    polyduct_mpi_add(&text, ")");
    if (made[3 * ndim + 1] == MPI_ORDER_FORTRAN) polyduct_mpi_add(&text, ";order=F");
    free(all);
    if (code != POLYDUCT_OK) {
        free(text.at);
        return polyduct_mpi_fail(code,
                                 "the processes' subarray types are not of one array: sizes or order differ");
    }
    return polyduct_mpi_done(&text, &array->layout);
}

/* The array and the layout that a datatype says, as a file view does: where in the whole array the elements
 * of each process lie. They lie packed in memory, in the type's order.
 *
 * MPI_Type_create_darray     its own array and distribution. MPI_Type_create_subarray   its own array; each
 * process of `comm` has the box that its own type says. All call. MPI_Type_contiguous(n)     one dimension of
 * n elements for each process, in order of the ranks: "block". MPI_Type_vector(n, b, s)   one dimension of
 * n*s elements, of which blocks of b are dealt round, the first to
 *                              rank 0, as with a displacement of rank*b: "cyclic(b)". s must be b times the
 * processes.
 *
 * Elements are of a type of MPI's own. POLYDUCT_MISUSE for anything else, and a datatype whose elements are
 * none of polyduct's is POLYDUCT_WRONG_TYPE. `comm` may be MPI_COMM_NULL for a darray type. */
static inline int polyduct_layout_of_datatype(MPI_Datatype datatype, MPI_Comm comm,
                                              polyduct_mpi_array *array) {
    int integers, addresses, types, combiner, units = 1, code, *made;
    MPI_Datatype element = MPI_DATATYPE_NULL;
    polyduct_mpi_text text = {NULL, 0, 0, 0};
    array->layout = NULL;
    if (datatype == MPI_DATATYPE_NULL)
        return polyduct_mpi_fail(POLYDUCT_MISUSE, "the datatype is MPI_DATATYPE_NULL");
    MPI_Type_get_envelope(datatype, &integers, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_DARRAY && combiner != MPI_COMBINER_SUBARRAY &&
        combiner != MPI_COMBINER_VECTOR && combiner != MPI_COMBINER_CONTIGUOUS)
        return polyduct_mpi_fail(POLYDUCT_MISUSE,
                                 "the datatype is not one of an array; expected a darray, a subarray, "
                                 "a vector or a contiguous type of elements");
    made = (int *)malloc((size_t)integers * sizeof *made);
    if (!made) return polyduct_mpi_fail(POLYDUCT_NO_MEMORY, "no memory for what a datatype is made of");
    MPI_Type_get_contents(datatype, integers, 0, 1, made, NULL, &element);
    array->type = polyduct_mpi_type(element);
    if (!array->type) {
        int inner[3], inside;
        MPI_Type_get_envelope(element, &inner[0], &inner[1], &inner[2], &inside);
        if (inside != MPI_COMBINER_NAMED) MPI_Type_free(&element);
        free(made);
        return polyduct_mpi_fail(POLYDUCT_WRONG_TYPE, "the elements of the datatype are none of polyduct's");
    }
    if (comm != MPI_COMM_NULL) MPI_Comm_size(comm, &units);
    if ((combiner == MPI_COMBINER_DARRAY && made[2] > POLYDUCT_MAX_DIMS) ||
        (combiner == MPI_COMBINER_SUBARRAY && made[0] > POLYDUCT_MAX_DIMS)) {
        code =
            polyduct_mpi_fail(POLYDUCT_MISUSE, "the datatype has more than %d dimensions", POLYDUCT_MAX_DIMS);
    } else if (combiner == MPI_COMBINER_DARRAY) {
        code = polyduct_mpi_of_darray(made, comm, array);
    } else if (combiner == MPI_COMBINER_SUBARRAY) {
        code = polyduct_mpi_of_subarray(made, comm, array);
    } else if (comm == MPI_COMM_NULL) {
        code = polyduct_mpi_fail(POLYDUCT_MISUSE,
                                 "how many processes there are the communicator says: expected one");
    } else if (combiner == MPI_COMBINER_CONTIGUOUS) {
        array->ndim = 1;
        array->shape[0] = (int64_t)made[0] * units;
        polyduct_mpi_add(&text, "block@%d", units);
        code = polyduct_mpi_done(&text, &array->layout);
    } else if (made[2] != (int64_t)made[1] * units) {
        code = polyduct_mpi_fail(POLYDUCT_MISUSE,
                                 "the vector's stride is %d; expected its block of %d times the %d processes",
                                 made[2], made[1], units);
    } else {
        array->ndim = 1;
        array->shape[0] = (int64_t)made[0] * made[2];
        polyduct_mpi_add(&text, "cyclic(%d)@%d", made[1], units);
        code = polyduct_mpi_done(&text, &array->layout);
    }
    free(made);
    return code;
}

#endif
