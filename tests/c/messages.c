/* A unit of a domain, whose others are Python or more of these: messages NAME UNIT UNITS.
 *
 * All units do the same, each with the next one in a ring: `domain_units` of tests/python/test_capi.py is
 * this in Python. */
#include "check.h"

static int handled;
static uint32_t seen[4];
static char payload[16];

static void note(void *user, int32_t from, const uint32_t *args, const void *bytes, size_t len) {
    TRUE(user == &handled && from >= 0 && len < sizeof payload);
    memcpy(seen, args, sizeof seen);
    memcpy(payload, bytes, len);
    payload[len] = 0;
    handled++;
}

static int is_handled(void *expected) {
    return handled >= *(int *)expected;
}

/* Twice each element of an array of doubles; fails for anything else. */
static int twice(void *user, const polyduct_mail *argument, polyduct_reply *reply) {
    /* A handler may send, and must not wait. */
    polyduct_mail mail = {0};
    mail.struct_size = sizeof mail;
    GIVES(POLYDUCT_IN_HANDLER, polyduct_recv(user, POLYDUCT_ANY, POLYDUCT_ANY, &mail));
    GIVES(POLYDUCT_IN_HANDLER, polyduct_barrier(user));
    if (argument->type != POLYDUCT_F64) {
        OK(polyduct_reply_error(reply, "no array of doubles"));
        return 1;
    }
    const double *given = argument->data;
    size_t count = argument->len / sizeof *given;
    double *result = malloc(argument->len);
    for (size_t n = 0; n < count; n++) result[n] = 2 * given[n];
    OK(polyduct_reply_array(reply, POLYDUCT_F64, argument->ndim, argument->shape, argument->column_major,
                            result));
    free(result);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    polyduct_domain_options o = {0};
    polyduct_domain *domain;
    int32_t unit, units;
    o.struct_size = sizeof o;
    o.name = argv[1];
    o.unit = atoi(argv[2]);
    o.units = atoi(argv[3]);
    o.timeout = 60;
    OK(polyduct_join(&domain, &o));
    OK(polyduct_domain_unit(domain, &unit, &units));
    TRUE(unit == o.unit && units == o.units);
    int32_t right = (unit + 1) % units, left = (unit + units - 1) % units;
    polyduct_mail mail = {0}, none = {0};
    mail.struct_size = none.struct_size = sizeof mail;

    /* Bytes, and arrays in both orders. */
    char words[] = "unit ?";
    words[5] = (char)('0' + unit);
    OK(polyduct_send(domain, right, 7, words, sizeof words - 1));
    OK(polyduct_recv(domain, left, 7, &mail));
    TRUE(mail.from == left && mail.tag == 7 && mail.type == 0 && mail.len == 6 &&
         ((const char *)mail.data)[5] == '0' + left);
    OK(polyduct_mail_free(&mail));
    OK(polyduct_mail_free(&mail));
    GIVES(POLYDUCT_NOT_YET, polyduct_try_recv(domain, POLYDUCT_ANY, 999, &none));
    float array[6];
    int64_t shape[] = {2, 3};
    for (int order = 0; order < 2; order++) {
        for (int n = 0; n < 6; n++) array[n] = (float)(unit * 100 + n);
        OK(polyduct_send_array(domain, right, 8, POLYDUCT_F32, 2, shape, order, array));
        OK(polyduct_recv(domain, left, POLYDUCT_ANY, &mail));
        TRUE(mail.type == POLYDUCT_F32 && mail.ndim == 2 && mail.shape[0] == 2 && mail.shape[1] == 3);
        TRUE(mail.column_major == order && ((const float *)mail.data)[4] == (float)(left * 100 + 4));
        OK(polyduct_mail_free(&mail));
    }
    int64_t nothing[] = {2, 0};
    OK(polyduct_send_array(domain, right, 9, POLYDUCT_F32, 2, nothing, 0, NULL));
    OK(polyduct_recv(domain, left, 9, &mail));
    OK(polyduct_mail_free(&mail));
    OK(polyduct_sendrecv(domain, right, words, 6, left, 10, &mail));
    TRUE(mail.len == 6);
    OK(polyduct_mail_free(&mail));
    FAILS(POLYDUCT_NO_UNIT, "", polyduct_send(domain, units, 0, words, 1));

    /* Handlers and functions. */
    OK(polyduct_handle(domain, "note", 1, note, &handled));
    OK(polyduct_offer(domain, "twice", 0, twice, domain));
    GIVES(POLYDUCT_DUPLICATE_HANDLER, polyduct_handle(domain, "note", 1, note, NULL));
    OK(polyduct_synchronise(domain));
    uint32_t args[] = {1, 2, 3, (uint32_t)unit};
    int expected = 1;
    OK(polyduct_post(domain, right, "note", args, "bulk", 4));
    OK(polyduct_serve(domain, is_handled, &expected, 60));
    TRUE(seen[0] == 1 && seen[3] == (uint32_t)left && !strcmp(payload, "bulk"));
    OK(polyduct_barrier(domain));
    polyduct_channel *channel;
    OK(polyduct_channel_open(&channel, domain, right, 1, 1));
    OK(polyduct_channel_post(channel, "note", NULL, NULL, 0));
    OK(polyduct_channel_flush(channel));
    OK(polyduct_channel_close(channel));
    expected = 2;
    OK(polyduct_serve(domain, is_handled, &expected, 60));
    TRUE(seen[0] == 0 && !payload[0]);
    GIVES(POLYDUCT_NOT_YET, polyduct_serve(domain, is_handled, &(int){100}, 0.05));
    FAILS(POLYDUCT_UNKNOWN_HANDLER, "nobody", polyduct_post(domain, right, "nobody", NULL, NULL, 0));

    polyduct_call *call;
    double given[] = {1, 2.5, -3};
    int64_t three[] = {3};
    int done;
    OK(polyduct_call_array(&call, domain, right, "twice", POLYDUCT_F64, 1, three, 0, given, 60));
    OK(polyduct_call_result(call, &mail));
    TRUE(mail.type == POLYDUCT_F64 && mail.len == 24 && ((const double *)mail.data)[1] == 5);
    OK(polyduct_call_done(call, &done));
    TRUE(done == 1);
    FAILS(POLYDUCT_MISUSE, "fetched before", polyduct_call_result(call, &none));
    OK(polyduct_mail_free(&mail));
    OK(polyduct_call_close(call));
    OK(polyduct_call_begin(&call, domain, right, "twice", "abc", 3, 60));
    FAILS(POLYDUCT_CALL_FAILED, "no array of doubles", polyduct_call_result(call, &mail));
    OK(polyduct_call_close(call));

    /* Memory that the others write and read. */
    polyduct_region *region;
    polyduct_lent *lent;
    void *memory;
    char own[8] = "lent...", back[8];
    size_t len;
    OK(polyduct_region_new(&region, domain, 1, 64, &memory));
    OK(polyduct_lend(&lent, domain, 2, own, sizeof own));
    OK(polyduct_barrier(domain));
    OK(polyduct_region_size(domain, right, 1, &len));
    TRUE(len == 64);
    OK(polyduct_put(domain, right, 1, 8, words, 6));
    expected = 3;
    OK(polyduct_put_notify(domain, right, 1, 16, words, 6, "note", args));
    OK(polyduct_serve(domain, is_handled, &expected, 60));
    TRUE(((char *)memory)[13] == '0' + left && ((char *)memory)[21] == '0' + left);
    OK(polyduct_get(domain, right, 2, 0, back, 8));
    TRUE(!strcmp(back, "lent..."));
    FAILS(POLYDUCT_REGION_ERROR, "", polyduct_get(domain, right, 1, 60, back, 8));
    OK(polyduct_barrier(domain));
    OK(polyduct_withdraw(lent));
    FAILS(POLYDUCT_CLOSED, "was closed", polyduct_withdraw(lent));
    OK(polyduct_region_close(region));

    polyduct_status status = {sizeof status, 0, 0, 0, 0, 0, 0, 0, 0};
    OK(polyduct_domain_status(domain, &status));
    TRUE(status.mails == 0 && status.calls == 0);
    OK(polyduct_barrier(domain));
    OK(polyduct_leave(domain));
    FAILS(POLYDUCT_CLOSED, "the domain was closed", polyduct_barrier(domain));
    return 0;
}
