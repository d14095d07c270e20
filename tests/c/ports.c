/* One side of a port, for tests whose other side is Python or another of these: ports ROLE URL [UNIT UNITS].
 */
#include "check.h"

enum { ROWS = 6, COLUMNS = 10, STEPS = 3 };

static polyduct_options options(char **argv) {
    polyduct_options o = {0};
    o.struct_size = sizeof o;
    o.timeout = 60;
    if (argv[3]) {
        o.unit = atoi(argv[3]);
        o.units = atoi(argv[4]);
        o.program = argv[1];
    }
    return o;
}

static int32_t value(int64_t step, int64_t i, int64_t j) {
    return (int32_t)(step * 1000 + i * COLUMNS + j);
}

static polyduct_part part_of(polyduct_port *port, size_t index) {
    polyduct_part part = {0};
    part.struct_size = sizeof part;
    OK(polyduct_info(port, index, &part));
    return part;
}

static void fill(int32_t *a, const polyduct_part *part, int64_t step) {
    for (int64_t i = 0; i < part->local_shape[0]; i++)
        for (int64_t j = 0; j < part->local_shape[1]; j++)
            a[i * part->local_strides[0] + j * part->local_strides[1]] =
                value(step, part->lo[0] + i, part->lo[1] + j);
}

static void check(const int32_t *a, const polyduct_part *part, int64_t step) {
    for (int64_t i = 0; i < part->local_shape[0]; i++)
        for (int64_t j = 0; j < part->local_shape[1]; j++)
            TRUE(a[i * part->local_strides[0] + j * part->local_strides[1]] ==
                 value(step, part->lo[0] + i, part->lo[1] + j));
}

/* Steps that are written from elsewhere, and in place. */
static void write_rows(char **argv) {
    polyduct_options o = options(argv);
    polyduct_port *port;
    int64_t shape[] = {ROWS, COLUMNS}, next;
    OK(polyduct_open_write(&port, argv[2], POLYDUCT_I32, 2, shape, "block,*", &o));
    polyduct_part part = part_of(port, 0);
    TRUE(part.type == POLYDUCT_I32 && part.ndim == 2 && part.shape[0] == ROWS &&
         part.local_shape[1] == COLUMNS);
    TRUE(!strcmp(part.name, "") && !strcmp(part.layout, "block,*") && part.changes == POLYDUCT_FIXED);
    int32_t *elsewhere = malloc(part.len);
    for (int step = 0; step < STEPS; step++) {
        OK(polyduct_next_step(port, &next));
        TRUE(next == step);
        if (step == 1) {
            void *memory;
            size_t len;
            OK(polyduct_step_begin(port, &memory, &len));
            TRUE(len == part.len);
            FAILS(POLYDUCT_MISUSE, "has a step open", polyduct_write(port, elsewhere, part.len));
            OK(polyduct_step_cancel(port));
            FAILS(POLYDUCT_MISUSE, "no step open", polyduct_step_end(port));
            OK(polyduct_step_begin(port, &memory, NULL));
            fill(memory, &part, step);
            OK(polyduct_step_end(port));
        } else {
            fill(elsewhere, &part, step);
            FAILS(POLYDUCT_WRONG_SIZE, "", polyduct_write(port, elsewhere, part.len - 4));
            OK(polyduct_write(port, elsewhere, part.len));
        }
    }
    polyduct_stats stats = {sizeof stats, 0, 0, 0, 0, 0, 0, 0};
    OK(polyduct_port_stats(port, &stats));
    TRUE(stats.steps == STEPS && stats.bytes == (int64_t)(STEPS * part.len));
    free(elsewhere);
    OK(polyduct_close(port));
}

/* Steps that are read into memory of the program's, and of the port's. */
static void read_columns(char **argv) {
    polyduct_options o = options(argv);
    polyduct_port *port;
    int64_t step = -1;
    OK(polyduct_open_read(&port, argv[2], "*,block;halo=0,1", &o));
    polyduct_part part = part_of(port, 0);
    TRUE(part.ndim == 2 && part.shape[0] == ROWS && part.shape[1] == COLUMNS);
    int32_t *mine = malloc(part.len);
    OK(polyduct_read(port, mine, part.len, &step));
    TRUE(step == 0);
    check(mine, &part, 0);
    const void *memory;
    size_t len;
    OK(polyduct_map(port, &memory, &len, &step));
    TRUE(step == 1 && len == part.len && (size_t)memory % 64 == 0);
    check(memory, &part, 1);
    int code;
    while ((code = polyduct_try_read(port, mine, part.len, &step)) == POLYDUCT_NOT_YET) {
    }
    TRUE(code == POLYDUCT_OK && step == 2);
    check(mine, &part, 2);
    GIVES(POLYDUCT_END, polyduct_read(port, mine, part.len, NULL));
    GIVES(POLYDUCT_END, polyduct_map(port, &memory, &len, NULL));
    free(mine);
    OK(polyduct_close(port));
}

/* Steps that are looked at where the writer has put them, one at a time. */
static void view_rows(char **argv) {
    polyduct_options o = options(argv);
    polyduct_port *port;
    const void *memory, *other;
    char mine[ROWS * COLUMNS * 4];
    size_t len;
    int64_t step = -1;
    OK(polyduct_open_read(&port, argv[2], "block,*", &o));
    polyduct_part part = part_of(port, 0);
    FAILS(POLYDUCT_MISUSE, "looks at no step", polyduct_view_end(port));
    for (int n = 0; n < STEPS; n++) {
        OK(polyduct_view(port, &memory, &len, &step));
        TRUE(step == n && len == part.len);
        check(memory, &part, n);
        FAILS(POLYDUCT_MISUSE, "give that back first", polyduct_read(port, mine, len, NULL));
        FAILS(POLYDUCT_MISUSE, "give that back first", polyduct_view(port, &other, NULL, NULL));
        TRUE(part_of(port, 0).len == len);
        if (n == 1) {
            say("holds");
            wait_for_test();
            check(memory, &part, n);
        }
        OK(polyduct_view_end(port));
    }
    GIVES(POLYDUCT_END, polyduct_view(port, &memory, NULL, NULL));
    OK(polyduct_close(port));
}

/* Steps that have to be copied: to look at them is an error, and the step is still to be read. */
static void view_columns(char **argv) {
    polyduct_options o = options(argv);
    polyduct_port *port;
    const void *memory;
    size_t len;
    int64_t step;
    OK(polyduct_open_read(&port, argv[2], "*,block", &o));
    polyduct_part part = part_of(port, 0);
    for (int n = 0; n < STEPS; n++) {
        FAILS(POLYDUCT_MISUSE, "slot", polyduct_view(port, &memory, &len, &step));
        FAILS(POLYDUCT_MISUSE, "looks at no step", polyduct_view_end(port));
        OK(polyduct_map(port, &memory, &len, &step));
        TRUE(step == n);
        check(memory, &part, n);
    }
    OK(polyduct_close(port));
}

/* A bundle that is looked at: sizes and values are those of the step. Closed while it is. */
static void view_bundle(char **argv) {
    polyduct_options o = options(argv);
    polyduct_port *port;
    const void *memory;
    int64_t step, value;
    polyduct_rule rule = {sizeof rule, "u", "*,*", 0, 0, 0, 0, 0, 0, NULL, NULL};
    OK(polyduct_open_read_arrays(&port, argv[2], 1, &rule, &o));
    OK(polyduct_view(port, &memory, NULL, &step));
    const double *u = (const double *)((const char *)memory + part_of(port, 0).offset);
    for (int n = 0; n < 12; n++) TRUE(u[n] == n);
    OK(polyduct_get_int(port, "step", &value));
    TRUE(value == 0 && step == 0);
    OK(polyduct_close(port));
    FAILS(POLYDUCT_CLOSED, "was closed", polyduct_view_end(port));
}

/* Begins a step, or looks at one, and is killed there. */
static void hold_step(char **argv) {
    polyduct_options o = options(argv);
    polyduct_port *port;
    int64_t shape[] = {ROWS, COLUMNS};
    void *memory;
    size_t len;
    OK(polyduct_open_write(&port, argv[2], POLYDUCT_I32, 2, shape, "*,*", &o));
    OK(polyduct_step_begin(port, &memory, &len));
    memset(memory, 7, len);
    say("holds");
    wait_for_test();
}

/* An array of Zarr with what is written down of it; and several in a group. */
static void notes(char **argv) {
    char url[4096];
    polyduct_options o = {0};
    polyduct_port *port;
    int64_t shape[] = {2, 3};
    int32_t part[6] = {1, 2, 3, 4, 5, 6};
    const char *text;
    o.struct_size = sizeof o;
    o.attributes = "{\"units\": \"K\", \"level\": [1, 2.5]}";
    o.dims = "time,y,";
    o.stepped = 1;
    snprintf(url, sizeof url, "%s/one.zarr", argv[2]);
    OK(polyduct_open_write(&port, url, POLYDUCT_I32, 2, shape, NULL, &o));
    FAILS(POLYDUCT_MISUSE, "the port writes", polyduct_attributes(port, &text));
    OK(polyduct_write(port, part, sizeof part));
    OK(polyduct_close(port));
    OK(polyduct_open_read(&port, url, NULL, NULL));
    OK(polyduct_attributes(port, &text));
    TRUE(strstr(text, "\"units\":\"K\"") && strstr(text, "[1,2.5]"));
    OK(polyduct_dims(port, &text));
    TRUE(!strcmp(text, "time,y,"));
    OK(polyduct_close(port));
    polyduct_array array = {.struct_size = sizeof array, .name = "a/b", .type = POLYDUCT_I32, .ndim = 2};
    array.shape = shape;
    array.attributes = "{\"long_name\": \"depth\"}";
    array.dims = "y,x";
    o = (polyduct_options){.struct_size = sizeof o, .attributes = "{\"title\": \"run 7\"}"};
    snprintf(url, sizeof url, "%s/all.zarr", argv[2]);
    OK(polyduct_open_write_arrays(&port, url, 1, &array, &o));
    OK(polyduct_write_arrays(port, 1, (const void *const[]){part}, (size_t[]){sizeof part}));
    OK(polyduct_close(port));
    o.attributes = "[1]";
    FAILS(POLYDUCT_BAD_OPTION, "the text of a JSON object",
          polyduct_open_write(&port, url, POLYDUCT_I32, 2, shape, NULL, &o));
}

/* Two units of one program across hosts, with a key that only the program has. */
static void keyed(char **argv) {
    polyduct_options o = options(argv);
    polyduct_port *port;
    int64_t shape[] = {4};
    char part[4] = "abc";
    const void *memory;
    o.key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    o.program = argv[3][0] == '0' ? "w" : "r";
    o.units = 1;
    o.unit = 0;
    if (argv[3][0] == '0') {
        OK(polyduct_open_write(&port, argv[2], POLYDUCT_U8, 1, shape, "*", &o));
        OK(polyduct_write(port, part, 4));
    } else {
        OK(polyduct_open_read(&port, argv[2], "*", &o));
        FAILS(POLYDUCT_MISUSE, "slot", polyduct_view(port, &memory, NULL, NULL));
        OK(polyduct_map(port, &memory, NULL, NULL));
        TRUE(!strcmp(memory, "abc"));
    }
    OK(polyduct_close(port));
    o.key = "0011";
    FAILS(POLYDUCT_BAD_OPTION, "64 hexadecimal digits", polyduct_open_read(&port, argv[2], "*", &o));
    o.key = NULL;
    o.trusted_network = 1;
    FAILS(POLYDUCT_BAD_OPTION, "no key is given", polyduct_open_read(&port, argv[2], "*", &o));
}

/* Two arrays and four values, of which one array changes its size. */
static void write_bundle(char **argv) {
    polyduct_options o = options(argv);
    polyduct_port *port;
    int64_t u[] = {4, 3}, cells[] = {100};
    polyduct_array arrays[] = {
        {sizeof *arrays, "u", POLYDUCT_F64, 2, u, "block,*", POLYDUCT_FIXED, 0, NULL, NULL},
        {sizeof *arrays, "cells", POLYDUCT_I64, 1, cells, NULL, POLYDUCT_OPEN, 0, NULL, NULL},
    };
    OK(polyduct_open_write_arrays(&port, argv[2], 2, arrays, &o));
    int32_t unit, units;
    OK(polyduct_unit(port, &unit, &units));
    for (int step = 0; step < 2; step++) {
        int64_t mine[] = {unit + step + 1};
        OK(polyduct_bring(port, 1, 1, mine));
        OK(polyduct_set_int(port, "step", step));
        OK(polyduct_set_real(port, "time", step * 0.5));
        OK(polyduct_set_text(port, "units", "m\xc3\xbc"));
        OK(polyduct_set_bytes(port, "raw", "\0\1", 2));
        polyduct_part part = part_of(port, 0);
        double *field = malloc(part.len);
        int64_t *found = malloc((size_t)mine[0] * sizeof *found);
        for (int64_t i = 0; i < part.local_shape[0] * 3; i++)
            field[i] = (double)(step * 100 + part.lo[0] * 3 + i);
        for (int64_t i = 0; i < mine[0]; i++) found[i] = unit * 10 + i;
        const void *parts[] = {field, found};
        size_t lens[] = {part.len, (size_t)mine[0] * sizeof *found};
        FAILS(POLYDUCT_MISUSE, "the port has 2 arrays", polyduct_write_arrays(port, 1, parts, lens));
        OK(polyduct_write_arrays(port, 2, parts, lens));
        free(field);
        free(found);
    }
    OK(polyduct_close(port));
}

/* The same, read: `cells` by everybody, `u` put together with itself as planes of a new dimension. */
static void read_bundle(char **argv) {
    polyduct_options o = options(argv);
    polyduct_port *port;
    polyduct_piece pieces[] = {
        {sizeof *pieces, "u", 0, 0, NULL, NULL, NULL, NULL},
        {sizeof *pieces, "u", 0, 0, NULL, NULL, NULL, NULL},
    };
    polyduct_rule rules[] = {
        {sizeof *rules, "twice", "*,block,*", 0, 0, 0, POLYDUCT_STACKED, 0, 2, NULL, pieces},
        {sizeof *rules, "cel*", "*", POLYDUCT_I64, 0, 0, 0, 0, 0, NULL, NULL},
    };
    OK(polyduct_open_read_arrays(&port, argv[2], 2, rules, &o));
    size_t count, len;
    OK(polyduct_count(port, &count));
    TRUE(count == 2);
    for (int64_t step = 0, found; step < 2; step++) {
        OK(polyduct_peek(port, &found));
        TRUE(found == step);
        polyduct_part twice = {0}, cells = {0};
        for (size_t n = 0; n < count; n++) {
            polyduct_part part = part_of(port, n);
            *(strcmp(part.name, "twice") ? &cells : &twice) = part;
        }
        TRUE(cells.shape[0] == 2 * (step + 1) + 1 && cells.changes == POLYDUCT_OPEN && cells.open_dim == 0);
        TRUE(twice.ndim == 3 && twice.shape[0] == 2 && twice.shape[1] == 4 && twice.shape[2] == 3);
        const void *memory;
        OK(polyduct_map(port, &memory, &len, &found));
        const int64_t *ids = (const int64_t *)((const char *)memory + cells.offset);
        TRUE(ids[0] == 0 && ids[step + 1] == 10);
        const double *u = (const double *)((const char *)memory + twice.offset);
        int64_t half = twice.local_shape[1] * 3;
        for (int64_t i = 0; i < half; i++)
            TRUE(u[i] == (double)(step * 100 + twice.lo[1] * 3 + i) && u[half + i] == u[i]);
        double time;
        const char *text;
        const void *raw;
        OK(polyduct_get_int(port, "step", &found));
        TRUE(found == step);
        OK(polyduct_get_real(port, "time", &time));
        TRUE(time == (double)step * 0.5);
        OK(polyduct_get_text(port, "units", &text));
        TRUE(!strcmp(text, "m\xc3\xbc"));
        OK(polyduct_get_bytes(port, "raw", &raw, &len));
        TRUE(len == 2 && !memcmp(raw, "\0\1", 2));
        FAILS(POLYDUCT_MISUSE, "no value \"mass\"", polyduct_get_int(port, "mass", &found));
        FAILS(POLYDUCT_WRONG_TYPE, "is text; expected an integer", polyduct_get_int(port, "units", &found));
    }
    const void *memory;
    GIVES(POLYDUCT_END, polyduct_map(port, &memory, &len, NULL));
    OK(polyduct_close(port));
}

/* What a file or a pipe has, said and not read. */
static void describe(char **argv) {
    polyduct_options o = options(argv);
    polyduct_listing *listing;
    size_t count;
    OK(polyduct_describe(&listing, argv[2], &o));
    OK(polyduct_listing_count(listing, &count));
    for (size_t n = 0; n < count; n++) {
        polyduct_part part = {0};
        part.struct_size = sizeof part;
        OK(polyduct_listing_info(listing, n, &part));
        printf("%s %d %d %lld\n", part.name, part.type, part.ndim, part.ndim ? (long long)part.shape[0] : -1);
    }
    FAILS(POLYDUCT_MISUSE, "there is no array 7",
          polyduct_listing_info(listing, 7, &(polyduct_part){.struct_size = sizeof(polyduct_part)}));
    OK(polyduct_listing_close(listing));
}

/* A store of three units, one of which may be lost: written, read in a box, and overwritten there. */
static void store(char **argv) {
    char url[4096];
    polyduct_port *port;
    polyduct_options o = {0};
    o.struct_size = sizeof o;
    int64_t shape[] = {20, 30}, lo[] = {5, 6}, hi[] = {7, 9}, steps;
    int32_t all[600], box[6];
    for (int n = 0; n < 600; n++) all[n] = n;
    OK(polyduct_store_create(argv[2], 3, 1, 4096));
    GIVES(POLYDUCT_STORE_ERROR, polyduct_store_create(argv[2], 3, 1, 4096));
    TRUE(!strcmp(polyduct_error_attribute("reason"), "exists"));
    snprintf(url, sizeof url, "store:%s/table", argv[2]);
    OK(polyduct_open_write(&port, url, POLYDUCT_I32, 2, shape, NULL, &o));
    OK(polyduct_write(port, all, sizeof all));
    OK(polyduct_close(port));
    OK(polyduct_open_read(&port, url, NULL, &o));
    OK(polyduct_steps(port, &steps));
    TRUE(steps == 1);
    OK(polyduct_read_box(port, 0, lo, hi, box, sizeof box));
    TRUE(box[0] == 156 && box[3] == 186 && box[5] == 188);
    for (int n = 0; n < 6; n++) box[n] = -n;
    OK(polyduct_write_box(port, 0, lo, hi, box, sizeof box));
    FAILS(POLYDUCT_WRONG_SIZE, "", polyduct_read_box(port, 0, lo, hi, box, 4));
    hi[1] = 31;
    FAILS(POLYDUCT_MISUSE, "expected a range within 0..30",
          polyduct_read_box(port, 0, lo, hi, box, sizeof box));
    OK(polyduct_close(port));
}

/* Waits for a step that does not come, and says how that ended. */
static void wait_for_step(char **argv) {
    polyduct_options o = options(argv);
    polyduct_port *port;
    int64_t pid = 0;
    OK(polyduct_open_read(&port, argv[2], "*,*", &o));
    say("open");
    char part[ROWS * COLUMNS * 4];
    int code = polyduct_read(port, part, sizeof part, NULL);
    polyduct_error_int("pid", &pid);
    const char *side = polyduct_error_attribute("side"), *reason = polyduct_error_attribute("reason");
    printf("%s %s %lld %s\n", polyduct_code_name(code), side ? side : "-", (long long)pid,
           reason ? reason : "-");
    polyduct_close(port);
}

/* Writes until that is an error. */
static void write_until_error(char **argv) {
    polyduct_options o = options(argv);
    polyduct_port *port;
    int64_t shape[] = {ROWS, COLUMNS};
    int32_t part[ROWS * COLUMNS] = {0};
    int code;
    OK(polyduct_open_write(&port, argv[2], POLYDUCT_I32, 2, shape, "*,*", &o));
    while (!(code = polyduct_write(port, part, sizeof part))) {
    }
    printf("%s\n", polyduct_code_name(code));
    polyduct_close(port);
}

/* Gives up before the first step. */
static void give_up(char **argv) {
    polyduct_options o = options(argv);
    polyduct_port *port;
    int64_t shape[] = {ROWS, COLUMNS};
    OK(polyduct_open_write(&port, argv[2], POLYDUCT_I32, 2, shape, "*,*", &o));
    OK(polyduct_abort(port, "no fuel"));
    FAILS(POLYDUCT_CLOSED, "was closed", polyduct_close(port));
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*run)(char **);
    } roles[] = {
        {"write", write_rows},        {"read", read_columns}, {"write_bundle", write_bundle},
        {"read_bundle", read_bundle}, {"describe", describe}, {"store", store},
        {"wait", wait_for_step},      {"give_up", give_up},
        {"until_error", write_until_error}, {"view", view_rows}, {"view_columns", view_columns},
        {"view_bundle", view_bundle}, {"hold", hold_step},       {"notes", notes},
        {"keyed", keyed},
    };
    for (size_t n = 0; n < sizeof roles / sizeof *roles && argc > 2; n++)
        if (!strcmp(roles[n].name, argv[1])) {
            roles[n].run(argv);
            return 0;
        }
    return 2;
}
