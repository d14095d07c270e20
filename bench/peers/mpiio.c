/* Collective writing and reading of a 3-D array of int32 in one file: MPI_File_write_all and MPI_File_read_all.
 *
 *   mpiio write|read PLANES ROWS COLS FOLDER REPEAT      FOLDER: on the disk to measure
 *
 * The grid of processes is MPI_Dims_create's, 2x2x1 of four and 2x2x2 of eight; each process has one block (pieces are
 * ceil(N/P) long, as polyduct's `block`), which is a subarray of the file. No hints are given: this is what users get.
 *
 * A repetition of `write` makes a new file. Its time is from the moment the first process left the barrier behind
 * opening and setting the view to the moment the last one has closed it, with MPI_File_sync before that: polyduct's
 * commit is durable, so the file must be too. (Its entry in the folder is not synced, which polyduct's is.)
 * A repetition of `read` begins with the file's pages dropped from the cache, of which mincore must find none left; its
 * time is from the barrier behind opening to the last process' having its block.
 *
 * Rank 0 prints one line of JSON; it says "verified":true only after every process has compared every element of its
 * block, read into poisoned memory: once at the end of `write`, in every repetition of `read`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/magic.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

static void die(const char *what) {
    fprintf(stderr, "mpiio: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static void must(int status, const char *what) { /* files return errors where all else ends the program */
    char text[MPI_MAX_ERROR_STRING];
    int len;
    if (status == MPI_SUCCESS) return;
    MPI_Error_string(status, text, &len);
    fprintf(stderr, "mpiio: %s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

typedef struct { int shape[3], sub[3], start[3]; } Block;

static Block block_of(const int shape[3], int n, int rank) {
    int grid[3] = {0, 0, 0}, at[3];
    MPI_Dims_create(n, 3, grid);
    at[2] = rank % grid[2], at[1] = rank / grid[2] % grid[1], at[0] = rank / grid[2] / grid[1];
    Block b;
    for (int d = 0; d < 3; d++) {
        int piece = (shape[d] + grid[d] - 1) / grid[d];
        b.shape[d] = shape[d];
        b.start[d] = piece * at[d];
        b.sub[d] = b.start[d] + piece < shape[d] ? piece : shape[d] - b.start[d];
        if (b.sub[d] < 1) die("a process has nothing of this shape");
    }
    return b;
}

/* Fills a block with the elements' linear indices (low 32 bits), or counts those that are not. */
static long walk(int32_t *local, Block b, int fill) {
    long bad = 0;
    for (int z = 0; z < b.sub[0]; z++)
        for (int y = 0; y < b.sub[1]; y++) {
            uint64_t first = ((uint64_t)(b.start[0] + z) * b.shape[1] + b.start[1] + y) * b.shape[2] + b.start[2];
            for (int x = 0; x < b.sub[2]; x++, local++) {
                int32_t want = (int32_t)(uint32_t)(first + x);
                if (fill) *local = want;
                else bad += *local != want;
            }
        }
    return bad;
}

static MPI_File open_file(const char *path, int mode, MPI_Datatype piece) {
    MPI_File file;
    must(MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file), "open");
    must(MPI_File_set_view(file, 0, MPI_INT32_T, piece, "native", MPI_INFO_NULL), "set the view");
    return file;
}

/* Drops the file's pages from the cache, and makes sure of it. */
static void drop_cache(const char *path) {
    int fd = open(path, O_RDONLY);
    struct stat st;
    if (fd < 0 || fsync(fd) || fstat(fd, &st) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)) die("cannot drop the cache");
    long page = sysconf(_SC_PAGESIZE), pages = (st.st_size + page - 1) / page, left = 0;
    unsigned char *there = malloc(pages);
    void *map = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (!there || map == MAP_FAILED || mincore(map, st.st_size, there)) die("cannot look at the cache");
    for (long i = 0; i < pages; i++) left += there[i] & 1;
    if (left) die("the file stays in the cache");
    munmap(map, st.st_size);
    free(there);
    close(fd);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int n, rank;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 7) die("usage: mpiio write|read PLANES ROWS COLS FOLDER REPEAT");
    int writes = !strcmp(argv[1], "write"), repeat = atoi(argv[6]);
    if (!writes && strcmp(argv[1], "read")) die("the first argument is write or read");
    int shape[3] = {atoi(argv[2]), atoi(argv[3]), atoi(argv[4])};
    if (repeat < 1) die("there is at least one repetition");
    Block b = block_of(shape, n, rank);
    size_t count = (size_t)b.sub[0] * b.sub[1] * b.sub[2];
    if (count > INT32_MAX) die("a block has at most 2^31 - 1 elements");
    char path[4096];
    snprintf(path, sizeof path, "%s/mpiio", argv[5]);
    struct statfs fs;
    if (statfs(argv[5], &fs)) die("the folder is not there");
    if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC) die("the folder is in memory, not on a disk");

    int32_t *local = malloc(count * sizeof *local);
    double *start = calloc(3 * repeat, sizeof(double)), *end = start + repeat, *own = end + repeat;
    if (!local || !start) die("out of memory");
    MPI_Datatype piece;
    MPI_Type_create_subarray(3, b.shape, b.sub, b.start, MPI_ORDER_C, MPI_INT32_T, &piece);
    MPI_Type_commit(&piece);

    long bad = 0, bad_anywhere = 0;
    walk(local, b, 1);
    for (int i = 0; i < (writes ? repeat : 1); i++) {
        if (rank == 0) unlink(path);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_File file = open_file(path, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY, piece);
        MPI_Barrier(MPI_COMM_WORLD);
        double t0 = now();
        must(MPI_File_write_all(file, local, (int)count, MPI_INT32_T, MPI_STATUS_IGNORE), "write");
        must(MPI_File_sync(file), "sync");
        must(MPI_File_close(&file), "close");
        double t1 = now();
        start[i] = t0, end[i] = t1, own[i] = t1 - t0;
    }
    for (int i = 0; i < (writes ? 1 : repeat); i++) {
        memset(local, 0xA5, count * sizeof *local);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) drop_cache(path);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_File file = open_file(path, MPI_MODE_RDONLY, piece);
        MPI_Barrier(MPI_COMM_WORLD);
        double t0 = now();
        must(MPI_File_read_all(file, local, (int)count, MPI_INT32_T, MPI_STATUS_IGNORE), "read");
        double t1 = now();
        must(MPI_File_close(&file), "close");
        if (!writes) start[i] = t0, end[i] = t1, own[i] = t1 - t0;
        bad += walk(local, b, 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(path);
    MPI_Allreduce(MPI_IN_PLACE, start, repeat, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, end, 2 * repeat, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD); /* and own, behind it */
    MPI_Allreduce(&bad, &bad_anywhere, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        for (int i = 0; i < repeat; i++) start[i] = end[i] - start[i];
        qsort(start, repeat, sizeof(double), by_value);
        qsort(own, repeat, sizeof(double), by_value);
        int low = (repeat - 1) / 2, high = repeat / 2;
        printf("{\"case\":\"%s\",\"n\":%d,\"bytes\":%lld,\"median_s\":%.9f,\"min_s\":%.9f,\"median_own_s\":%.9f,"
               "\"verified\":%s,\"runs\":%d}\n",
               argv[1], n, 4LL * shape[0] * shape[1] * shape[2], (start[low] + start[high]) / 2, start[0],
               (own[low] + own[high]) / 2, bad_anywhere ? "false" : "true", repeat);
    }
    MPI_Finalize();
    return bad_anywhere != 0;
}
