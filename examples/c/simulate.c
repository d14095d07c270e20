/* The five lines in C: each unit has some rows, and fills them where they lie.
 *
 *     cc examples/c/simulate.c $(polyduct config --cflags --libs) -o simulate
 *     cc examples/c/analyse.c $(polyduct config --cflags --libs) -o analyse
 *     polyduct run "-n 4 ./simulate | -n 3 ./analyse"
 */
#include <polyduct.h>
#include <stdio.h>

static int failed(void) {
    fprintf(stderr, "simulate: %s\n", polyduct_error_text());
    return 1;
}

int main(void) {
    polyduct_port *out;
    int64_t shape[] = {4096, 4096};
    if (polyduct_open_write(&out, "-", POLYDUCT_F32, 2, shape, "block,*", NULL)) return failed();
    for (int t = 0; t < 10; t++) {
        float *a; /* this unit's rows, in shared memory: no copy */
        size_t len;
        if (polyduct_step_begin(out, (void **)&a, &len)) return failed();
        for (size_t i = 0; i < len / sizeof *a; i++) a[i] = (float)t;
        if (polyduct_step_end(out)) return failed();
    }
    return polyduct_close(out) ? failed() : 0;
}
