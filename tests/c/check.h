/* What the tests in C share: a call that does not give what it should ends the program, with its words. */
#ifndef CHECK_H
#define CHECK_H

#include <polyduct.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void check_fail(const char *file, int line, const char *what, int code) {
    fprintf(stderr, "%s:%d: %s: %s: %s\n", file, line, what, polyduct_code_name(code), polyduct_error_text());
    exit(1);
}

/* The call gives this code. */
#define GIVES(expected, call)                                                  \
    do {                                                                       \
        int code_ = (call);                                                    \
        if (code_ != (expected)) check_fail(__FILE__, __LINE__, #call, code_); \
    } while (0)

#define OK(call) GIVES(POLYDUCT_OK, call)

/* The call gives this error, whose words have this in them. */
#define FAILS(expected, words, call)                                                      \
    do {                                                                                  \
        GIVES(expected, call);                                                            \
        if (polyduct_error_code() != (expected) || !strstr(polyduct_error_text(), words)) \
            check_fail(__FILE__, __LINE__, "the words of " #call, polyduct_error_code()); \
    } while (0)

#define TRUE(what)                                                       \
    do {                                                                 \
        if (!(what)) check_fail(__FILE__, __LINE__, #what, POLYDUCT_OK); \
    } while (0)

/* Says where the program is, for a test that waits for that. */
static inline void say(const char *word) {
    printf("%s\n", word);
    fflush(stdout);
}

/* Waits until the test lets it go on. */
static inline void wait_for_test(void) {
    while (getchar() != '\n') {
    }
}

#endif
