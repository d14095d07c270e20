/* What callers may do wrong, and how waiting ends: misuse ROLE PLACE. None of it ends the program. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static polyduct_options alone(void) {
    polyduct_options o = {0};
    o.struct_size = sizeof o;
    o.units = 1;
    return o;
}

/* A file that is written: a port that waits for nobody. */
static polyduct_port *file(const char *path) {
    polyduct_options o = alone();
    polyduct_port *port;
    int64_t shape[] = {4};
    OK(polyduct_open_write(&port, path, POLYDUCT_U8, 1, shape, "*", &o));
    return port;
}

static void handles(const char *path) {
    polyduct_port *port = file(path), *closed = file("closed.npy"), *other;
    polyduct_layout *layout;
    polyduct_domain *domain;
    int64_t shape[] = {4}, step;
    int32_t unit;
    size_t len;
    void *memory;
    const void *found;
    OK(polyduct_abort(closed, NULL));
    OK(polyduct_layout_new(&layout, "block", POLYDUCT_U8, 1, shape, 2));
    FAILS(POLYDUCT_MISUSE, "the port is NULL", polyduct_write(NULL, "abcd", 4));
    FAILS(POLYDUCT_MISUSE, "the port is NULL", polyduct_close(NULL));
    FAILS(POLYDUCT_MISUSE, "the port is NULL", polyduct_view(NULL, &found, &len, NULL));
    FAILS(POLYDUCT_MISUSE, "the port is NULL", polyduct_view_end(NULL));
    FAILS(POLYDUCT_CLOSED, "the port was closed", polyduct_view(closed, &found, &len, NULL));
    FAILS(POLYDUCT_MISUSE, "memory is NULL", polyduct_view(port, NULL, &len, NULL));
    FAILS(POLYDUCT_MISUSE, "the port writes", polyduct_view(port, &found, &len, NULL));
    FAILS(POLYDUCT_MISUSE, "looks at no step", polyduct_view_end(port));
    FAILS(POLYDUCT_MISUSE, "text is NULL", polyduct_attributes(port, NULL));
    FAILS(POLYDUCT_MISUSE, "a layout was given; expected a port",
          polyduct_view_end((polyduct_port *)(void *)layout));
    FAILS(POLYDUCT_MISUSE, "the layout is NULL", polyduct_layout_close(NULL));
    FAILS(POLYDUCT_MISUSE, "the domain is NULL", polyduct_barrier(NULL));
    FAILS(POLYDUCT_MISUSE, "the domain is NULL", polyduct_leave(NULL));
    FAILS(POLYDUCT_MISUSE, "the call is NULL", polyduct_call_close(NULL));
    FAILS(POLYDUCT_MISUSE, "the channel is NULL", polyduct_channel_flush(NULL));
    FAILS(POLYDUCT_MISUSE, "the region is NULL", polyduct_region_close(NULL));
    FAILS(POLYDUCT_MISUSE, "the lent memory is NULL", polyduct_withdraw(NULL));
    FAILS(POLYDUCT_MISUSE, "the listing is NULL", polyduct_listing_count(NULL, &len));
    FAILS(POLYDUCT_CLOSED, "the port was closed", polyduct_write(closed, "abcd", 4));
    FAILS(POLYDUCT_CLOSED, "the port was closed", polyduct_step_begin(closed, &memory, &len));
    FAILS(POLYDUCT_CLOSED, "the port was closed", polyduct_close(closed));
    FAILS(POLYDUCT_CLOSED, "the port was closed", polyduct_abort(closed, "again"));
    FAILS(POLYDUCT_MISUSE, "a layout was given; expected a port",
          polyduct_close((polyduct_port *)(void *)layout));
    FAILS(POLYDUCT_MISUSE, "no handle of polyduct's", polyduct_close((polyduct_port *)(void *)&unit));
    FAILS(POLYDUCT_MISUSE, "the port writes", polyduct_read(port, &step, 4, NULL));
    FAILS(POLYDUCT_MISUSE, "the port writes", polyduct_map(port, &found, &len, NULL));
    FAILS(POLYDUCT_MISUSE, "memory is NULL", polyduct_step_begin(port, NULL, &len));
    FAILS(POLYDUCT_MISUSE, "part is NULL; expected 4 bytes", polyduct_write(port, NULL, 4));
    FAILS(POLYDUCT_MISUSE, "there is no array 1; there are 1",
          polyduct_info(port, 1, &(polyduct_part){.struct_size = sizeof(polyduct_part)}));
    FAILS(POLYDUCT_BAD_OPTION, "struct_size is 0",
          polyduct_info(port, 0, &(polyduct_part){.struct_size = 0}));
    FAILS(POLYDUCT_MISUSE, "a file has no units", polyduct_port_domain(port, NULL, &domain));
    /* What was wrong is said once more, whatever has gone well since. */
    OK(polyduct_unit(port, &unit, NULL));
    TRUE(unit == 0 && polyduct_error_code() == POLYDUCT_MISUSE &&
         strstr(polyduct_error_text(), "a file has no units"));
    OK(polyduct_write(port, "abcd", 4));
    OK(polyduct_close(port));
    /* The place of a handle is taken again, and the old one stays closed. */
    other = file("other.npy");
    FAILS(POLYDUCT_CLOSED, "the port was closed", polyduct_close(port));
    OK(polyduct_abort(other, NULL));
    OK(polyduct_layout_close(layout));
    polyduct_mail mail = {0};
    mail.struct_size = sizeof mail;
    OK(polyduct_mail_free(&mail));
}

static void arguments(const char *path) {
    polyduct_options o = alone();
    polyduct_port *port = NULL;
    polyduct_layout *layout;
    int64_t shape[] = {4, -1}, far;
    int type;
    FAILS(POLYDUCT_MISUSE, "port is NULL", polyduct_open_write(NULL, path, POLYDUCT_U8, 1, shape, "*", &o));
    FAILS(POLYDUCT_BAD_OPTION, "url is NULL",
          polyduct_open_write(&port, NULL, POLYDUCT_U8, 1, shape, "*", &o));
    FAILS(POLYDUCT_WRONG_TYPE, "no element type 77", polyduct_open_write(&port, path, 77, 1, shape, "*", &o));
    FAILS(POLYDUCT_BAD_OPTION, "shape is -1",
          polyduct_open_write(&port, path, POLYDUCT_U8, 2, shape, "*,*", &o));
    FAILS(POLYDUCT_BAD_OPTION, "shape is NULL",
          polyduct_open_write(&port, path, POLYDUCT_U8, 2, NULL, "*,*", &o));
    FAILS(POLYDUCT_BAD_OPTION, "9 dimensions",
          polyduct_open_write(&port, path, POLYDUCT_U8, 9, shape, "*", &o));
    FAILS(POLYDUCT_LAYOUT_ERROR, "expected",
          polyduct_open_write(&port, path, POLYDUCT_U8, 1, shape, "blook", &o));
    TRUE(!strcmp(polyduct_error_attribute("reason"), "text"));
    OK(polyduct_error_int("position", &far));
    GIVES(POLYDUCT_MISUSE, polyduct_error_int("depth", &far));
    TRUE(!polyduct_error_attribute("depth") && !polyduct_error_attribute(NULL));
    FAILS(POLYDUCT_BAD_URL, "cannot open", polyduct_open_read(&port, "nothing:here", "*", &o));
    FAILS(POLYDUCT_BAD_OPTION, "no text in UTF-8", polyduct_open_read(&port, "\xff", "*", &o));
    FAILS(POLYDUCT_FILE_MISSING, "missing.npy", polyduct_open_read(&port, "missing.npy", "*", &o));
    o.policy = "newest";
    FAILS(POLYDUCT_BAD_OPTION, "policy", polyduct_open_read(&port, path, "*", &o));
    TRUE(!strcmp(polyduct_error_attribute("option"), "policy"));
    o = alone();
    o.timeout = -1;
    FAILS(POLYDUCT_BAD_OPTION, "timeout", polyduct_open_read(&port, path, "*", &o));
    o = alone();
    o.units = 2;
    FAILS(POLYDUCT_BAD_OPTION, "none given, but this is unit 0 of 2",
          polyduct_open_write(&port, path, POLYDUCT_U8, 1, shape, NULL, &o));
    o.struct_size = 7;
    FAILS(POLYDUCT_BAD_OPTION, "struct_size is 7", polyduct_open_read(&port, path, "*", &o));
    FAILS(POLYDUCT_LAYOUT_ERROR, "q9", polyduct_type_of("q9", &type));
    OK(polyduct_type_of("i8", &type));
    TRUE(type == POLYDUCT_I64 && polyduct_type_size(type) == 8 &&
         polyduct_type_size(POLYDUCT_TYPE_BYTES(12)) == 12);
    FAILS(POLYDUCT_LAYOUT_ERROR, "", polyduct_layout_new(&layout, "block,*", POLYDUCT_U8, 1, shape, 2));
    TRUE(port == NULL);
    TRUE(!strcmp(polyduct_code_name(POLYDUCT_PEER_LOST), "PeerLost") && !strcmp(polyduct_code_name(7), "?"));
    TRUE(polyduct_code_is(POLYDUCT_ABSENT, POLYDUCT_TIMEOUT_ERROR) &&
         polyduct_code_is(POLYDUCT_BAD_URL, POLYDUCT_MISUSE));
    TRUE(!polyduct_code_is(POLYDUCT_BAD_URL, POLYDUCT_ABSENT) &&
         !polyduct_code_is(POLYDUCT_OK, POLYDUCT_ERROR));
    TRUE(polyduct_abi() == POLYDUCT_ABI);
}

/* An older program, whose structures end earlier; a newer one, whose structures go on. */
static void sizes(const char *path) {
    struct {
        polyduct_part part;
        int64_t more[4];
    } newer = {.more = {1, 2, 3, 4}};
    polyduct_part older = {0};
    polyduct_port *port = file(path);
    older.struct_size = offsetof(polyduct_part, shape);
    OK(polyduct_info(port, 0, &older));
    TRUE(older.type == POLYDUCT_U8 && older.ndim == 1 && older.shape[0] == 0 && older.len == 0);
    TRUE(older.struct_size == offsetof(polyduct_part, shape));
    newer.part.struct_size = sizeof newer;
    OK(polyduct_info(port, 0, &newer.part));
    TRUE(newer.part.len == 4 && newer.part.struct_size == sizeof newer && newer.more[0] == 1 &&
         newer.more[3] == 4);
    OK(polyduct_abort(port, NULL));
}

static volatile sig_atomic_t stopped;

static void on_alarm(int number) {
    (void)number;
    stopped = 1;
}

static int asks;

static int is_stopped(void *user) {
    TRUE(user == &asks);
    asks++;
    return stopped;
}

/* A signal ends nothing by itself; the program's question does, and so does a timeout. */
static void waiting(const char *pipe) {
    polyduct_options o = alone();
    polyduct_port *port;
    struct sigaction action = {0};
    action.sa_handler = on_alarm;
    sigaction(SIGUSR1, &action, NULL);
    o.interrupt = is_stopped;
    o.interrupt_user = &asks;
    o.timeout = 0;
    say("waits");
    FAILS(POLYDUCT_INTERRUPTED, "", polyduct_open_read(&port, pipe, "*", &o));
    TRUE(stopped && asks > 0);
    o = alone();
    o.timeout = 0.2;
    TRUE(polyduct_code_is(polyduct_open_read(&port, pipe, "*", &o), POLYDUCT_TIMEOUT_ERROR));
    TRUE(polyduct_error_attribute("waited") != NULL);
    polyduct_domain *domain;
    polyduct_domain_options mine = {.struct_size = sizeof mine, .units = 1};
    polyduct_mail mail = {.struct_size = sizeof mail};
    OK(polyduct_join(&domain, &mine));
    OK(polyduct_domain_set_timeout(domain, 0.05));
    GIVES(POLYDUCT_TIMEOUT_ERROR, polyduct_recv(domain, POLYDUCT_ANY, POLYDUCT_ANY, &mail));
    OK(polyduct_leave(domain));
}

/* A child of fork has no part in its parent's ports, and may have its own. */
static void forked(const char *path) {
    polyduct_port *port = file(path);
    polyduct_domain *domain;
    polyduct_domain_options alone_there = {0};
    alone_there.struct_size = sizeof alone_there;
    alone_there.units = 1;
    OK(polyduct_join(&domain, &alone_there));
    int status;
    pid_t child = fork();
    if (child == 0) {
        FAILS(POLYDUCT_MISUSE, "in a fork of the process", polyduct_write(port, "abcd", 4));
        FAILS(POLYDUCT_MISUSE, "in a fork of the process", polyduct_close(port));
        FAILS(POLYDUCT_MISUSE, "in a fork of the process", polyduct_barrier(domain));
        FAILS(POLYDUCT_MISUSE, "in a fork of the process", polyduct_leave(domain));
        polyduct_port *own = file("child.npy");
        OK(polyduct_write(own, "efgh", 4));
        OK(polyduct_close(own));
        exit(0);
    }
    TRUE(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    OK(polyduct_write(port, "abcd", 4));
    OK(polyduct_close(port));
    OK(polyduct_leave(domain));
}

enum { THREADS = 4, STEPS = 50 };
static polyduct_port *shared;

/* Each thread has an error of its own, and a share of one port. */
static void *one_thread(void *which) {
    int n = (int)(size_t)which;
    char text[64];
    uint8_t mine = (uint8_t)n;
    snprintf(text, sizeof text, "%d dimensions", 10 + n);
    for (int k = 0; k < STEPS; k++) {
        polyduct_layout *layout;
        int64_t shape[] = {8};
        FAILS(POLYDUCT_BAD_OPTION, text, polyduct_layout_new(&layout, "*", POLYDUCT_U8, 10 + n, shape, 1));
        OK(polyduct_layout_new(&layout, "block", POLYDUCT_U8, 1, shape, n + 1));
        OK(polyduct_write(shared, &mine, 1));
        TRUE(polyduct_error_code() == POLYDUCT_BAD_OPTION && strstr(polyduct_error_text(), text));
        OK(polyduct_layout_close(layout));
    }
    return NULL;
}

static void threads(const char *path) {
    pthread_t all[THREADS];
    polyduct_options o = alone();
    int64_t shape[] = {1};
    OK(polyduct_open_write(&shared, path, POLYDUCT_U8, 1, shape, "*", &o));
    for (size_t n = 0; n < THREADS; n++) TRUE(pthread_create(&all[n], NULL, one_thread, (void *)n) == 0);
    for (size_t n = 0; n < THREADS; n++) pthread_join(all[n], NULL);
    OK(polyduct_close(shared));
}

static void *looks(void *unused) {
    const uint8_t *memory;
    size_t len;
    int code;
    (void)unused;
    /* Of several threads one looks at a step, and the others are told; whoever has it gives it back. */
    while ((code = polyduct_view(shared, (const void **)&memory, &len, NULL)) != POLYDUCT_END) {
        if (code == POLYDUCT_MISUSE) continue;
        TRUE(code == POLYDUCT_OK && len == 64);
        for (size_t n = 1; n < len; n++) TRUE(memory[n] == memory[0]);
        OK(polyduct_view_end(shared));
    }
    return NULL;
}

/* Several threads look at the steps of one port; a child of fork has no part in that. */
static void views(const char *pipe) {
    pthread_t all[THREADS];
    const uint8_t *memory;
    int status;
    polyduct_options o = alone();
    OK(polyduct_open_read(&shared, pipe, "*", &o));
    OK(polyduct_view(shared, (const void **)&memory, NULL, NULL));
    pid_t child = fork();
    if (child == 0) {
        FAILS(POLYDUCT_MISUSE, "in a fork of the process", polyduct_view_end(shared));
        FAILS(POLYDUCT_MISUSE, "in a fork of the process", polyduct_close(shared));
        exit(0);
    }
    TRUE(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    TRUE(memory[0] == memory[63]);
    OK(polyduct_view_end(shared));
    for (size_t n = 0; n < THREADS; n++) TRUE(pthread_create(&all[n], NULL, looks, NULL) == 0);
    for (size_t n = 0; n < THREADS; n++) pthread_join(all[n], NULL);
    OK(polyduct_close(shared));
}

/* Words that are longer than anybody's buffer, with bytes that are no text among them. */
static void words(const char *path) {
    enum { LONG = 1 << 20 };
    char *layout = malloc(LONG + 1);
    polyduct_options o = alone();
    polyduct_port *port;
    int64_t shape[] = {4};
    memset(layout, 'x', LONG);
    layout[LONG] = 0;
    GIVES(POLYDUCT_LAYOUT_ERROR, polyduct_open_write(&port, path, POLYDUCT_U8, 1, shape, layout, &o));
    TRUE(strlen(polyduct_error_text()) > 0);
    layout[LONG / 2] = (char)0xff;
    FAILS(POLYDUCT_BAD_OPTION, "no text in UTF-8",
          polyduct_open_write(&port, path, POLYDUCT_U8, 1, shape, layout, &o));
    TRUE(polyduct_error_attribute(NULL) == NULL);
    o.attributes = layout;
    FAILS(POLYDUCT_BAD_OPTION, "no text in UTF-8",
          polyduct_open_write(&port, path, POLYDUCT_U8, 1, shape, "*", &o));
    free(layout);
}

static void *reads(void *unused) {
    uint8_t part;
    (void)unused;
    say("reads");
    int code = polyduct_read(shared, &part, 1, NULL);
    printf("%s\n", polyduct_code_name(code));
    return NULL;
}

/* Who closes ends what others wait for. The test lets it close when the reader waits. */
static void closing(const char *pipe) {
    pthread_t reader;
    polyduct_options o = alone();
    OK(polyduct_open_read(&shared, pipe, "*", &o));
    uint8_t part;
    OK(polyduct_set_timeout(shared, 0.05));
    GIVES(POLYDUCT_TIMEOUT_ERROR, polyduct_read(shared, &part, 1, NULL));
    GIVES(POLYDUCT_NOT_YET, polyduct_try_read(shared, &part, 1, NULL));
    OK(polyduct_set_timeout(shared, 0));
    TRUE(pthread_create(&reader, NULL, reads, NULL) == 0);
    wait_for_test();
    OK(polyduct_close(shared));
    pthread_join(reader, NULL);
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*run)(const char *);
    } roles[] = {
        {"handles", handles}, {"arguments", arguments}, {"sizes", sizes},     {"waiting", waiting},
        {"forked", forked},   {"threads", threads},     {"closing", closing}, {"views", views},
        {"words", words},
    };
    for (size_t n = 0; n < sizeof roles / sizeof *roles && argc > 2; n++)
        if (!strcmp(roles[n].name, argv[1])) {
            roles[n].run(argv[2]);
            return 0;
        }
    return 2;
}
