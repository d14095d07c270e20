/* One of two C programs started apart, 64 MiB steps of float32 from one to the other: what python_pipe.py
 * does in Python, step by step. The writer writes an ordinary array; the reader checks all of the first step,
 * and stamps of every other, and prints the median time of a step. */
#define _DEFAULT_SOURCE
#include <polyduct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { SIDE = 4096, WARM = 5, STEPS = 40, STAMPS = 64 };
static const size_t COUNT = (size_t)SIDE * SIDE;

static int failed(void) {
    fprintf(stderr, "c_pipe: %s\n", polyduct_error_text());
    return 1;
}

static size_t stamp(int n) {
    return (size_t)((double)n * (double)(COUNT - 1) / (STAMPS - 1));
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int write_steps(const char *pipe, const polyduct_options *options) {
    polyduct_port *out;
    int64_t shape[] = {SIDE, SIDE};
    /* In large pages, as NumPy has its arrays. */
    float *a = NULL;
    if (posix_memalign((void **)&a, 2 << 20, COUNT * sizeof *a)) return 1;
    madvise(a, COUNT * sizeof *a, MADV_HUGEPAGE);
    for (size_t i = 0; i < COUNT; i++) a[i] = (float)i;
    if (polyduct_open_write(&out, pipe, POLYDUCT_F32, 2, shape, "block,*", options)) return failed();
    for (int step = 0; step < WARM + STEPS; step++) {
        for (int n = 0; n < STAMPS; n++) a[stamp(n)] = (float)step;
        if (polyduct_write(out, a, COUNT * sizeof *a)) return failed();
    }
    free(a);
    return polyduct_close(out) ? failed() : 0;
}

static int read_steps(const char *pipe, const polyduct_options *options) {
    polyduct_port *in;
    const void *memory;
    double times[STEPS], last;
    int verified = 1, code, step = 0;
    if (polyduct_open_read(&in, pipe, "block,*", options)) return failed();
    last = now();
    for (; !(code = polyduct_map(in, &memory, NULL, NULL)); step++) {
        const float *b = memory;
        double came = now();
        if (step >= WARM && step < WARM + STEPS) times[step - WARM] = came - last;
        for (int n = 0; n < STAMPS; n++) verified &= b[stamp(n)] == (float)step;
        if (step == 0) {
            size_t other = 0;
            for (size_t i = 0; i < COUNT; i++) other += b[i] != (float)i;
            verified &= other <= STAMPS;
        }
        last = step < WARM ? now() : came;
    }
    if (code != POLYDUCT_END || polyduct_close(in)) return failed();
    verified &= step == WARM + STEPS;
    qsort(times, STEPS, sizeof *times, by_size);
    printf("{\"median_s\": %.9f, \"verified\": %s}\n", (times[STEPS / 2 - 1] + times[STEPS / 2]) / 2,
           verified ? "true" : "false");
    return 0;
}

int main(int argc, char **argv) {
    polyduct_options options = {.struct_size = sizeof options, .timeout = 60};
    if (argc != 3) return 2;
    return strcmp(argv[1], "write") ? read_steps(argv[2], &options) : write_steps(argv[2], &options);
}
