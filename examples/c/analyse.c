/* The five lines in C: each unit has some columns, and two more on each side. See simulate.c. */
#include <polyduct.h>
#include <stdio.h>

int main(void) {
    polyduct_port *in;
    const void *memory;
    size_t len;
    int code = polyduct_open_read(&in, "-", "*,block;halo=0,2", NULL);
    while (!code && !(code = polyduct_map(in, &memory, &len, NULL))) {
        const float *b = memory; /* until the next step comes */
        double sum = 0;
        for (size_t i = 0; i < len / sizeof *b; i++) sum += b[i];
        printf("%zu elements, mean %g\n", len / sizeof *b, sum / (double)(len / sizeof *b));
    }
    if (code != POLYDUCT_END || polyduct_close(in)) {
        fprintf(stderr, "analyse: %s\n", polyduct_error_text());
        return 1;
    }
    return 0;
}
