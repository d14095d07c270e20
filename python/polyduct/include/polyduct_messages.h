/* polyduct_messages.h: messages between the units of a program, or of a port. Part of polyduct.h, which includes it
 * and says what holds for all functions. */
#ifndef POLYDUCT_MESSAGES_H
#define POLYDUCT_MESSAGES_H

#include "polyduct.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- domains: messages between the units of a program, or of a port ---- */

/* Options of a domain. 0 is the default everywhere. */
typedef struct polyduct_domain_options {
    size_t struct_size;
    int32_t unit;        /* Number of this unit, where `units` is not 0; else the launcher's. */
    int32_t units;       /* Units of the domain. */
    const char *name;    /* The domain's name, or "tcp://HOST:PORT", "udp://HOST:PORT". */
    const char *on_loss; /* What the loss of a unit means for others: "raise", "continue". */
    double timeout;      /* The longest wait of any call; 0: as long as the units live. */
    double open_timeout; /* How long joining may take; 0: 60 s. */
    polyduct_interrupt interrupt;
    void *interrupt_user;
    const char *key; /* The job's key, 64 hexadecimal digits, across hosts; NULL: what POLYDUCT_JOB_KEY and
                      * POLYDUCT_TRUSTED_NETWORK say. */
    int32_t trusted_network; /* With `key`: proof of it, but no encryption. All units say the same. */
    int32_t reserved;
} polyduct_domain_options;

/* Joins the domain of this program, and waits until all its units have. */
int polyduct_join(polyduct_domain **domain, const polyduct_domain_options *options);

/* Joins the domain of a port: all units of the writer program and of all reader programs. Waits until all of
 * them have asked. Name, unit and units are the port's. */
int polyduct_port_domain(polyduct_port *port, const polyduct_domain_options *options,
                         polyduct_domain **domain);

/* Where in that domain a program's units are, from `*first` to below `*end`: `program` is -1 for the writers,
 * else the number of a reader program, from 0. */
int polyduct_addresses(polyduct_port *port, int32_t program, int32_t *first, int32_t *end);

/* Says which unit of how many this is. Either pointer may be NULL. */
int polyduct_domain_unit(polyduct_domain *domain, int32_t *unit, int32_t *units);

/* Sets the longest wait of the domain's later calls; 0: as at joining. */
int polyduct_domain_set_timeout(polyduct_domain *domain, double timeout);

/* A message: bytes, or an array. */
typedef struct polyduct_mail {
    size_t struct_size; /* Of the caller's structure: no more is written. */
    int32_t from;       /* The unit that sent it. */
    uint32_t tag;
    int32_t type; /* Of the elements; 0 for plain bytes, and for what only Python can say. */
    int32_t ndim;
    int64_t shape[POLYDUCT_MAX_DIMS];
    int32_t column_major; /* Its first dimension is the fastest: order F. */
    int32_t reserved;
    const void *data; /* `len` bytes, until `polyduct_mail_free`. */
    size_t len;
    polyduct_message *owner; /* What `polyduct_mail_free` frees; NULL: nothing to free. */
} polyduct_mail;

/* Sends bytes to a unit, waiting for room. Messages to a unit arrive in the order in which they were sent. */
int polyduct_send(polyduct_domain *domain, int32_t to, uint32_t tag, const void *bytes, size_t len);

/* Sends an array, which Python takes as such: `column_major` says that its first dimension is the fastest. */
int polyduct_send_array(polyduct_domain *domain, int32_t to, uint32_t tag, int type, int ndim,
                        const int64_t *shape, int column_major, const void *data);

/* Waits for the first message from a unit with a tag; POLYDUCT_ANY for any. `mail->struct_size` is to be
 * set. */
int polyduct_recv(polyduct_domain *domain, int32_t from, int64_t tag, polyduct_mail *mail);

/* The same if one is there; else POLYDUCT_NOT_YET. */
int polyduct_try_recv(polyduct_domain *domain, int32_t from, int64_t tag, polyduct_mail *mail);

/* Sends, then waits for a message: units that do so in a ring or in pairs do not wait for each other. */
int polyduct_sendrecv(polyduct_domain *domain, int32_t to, const void *bytes, size_t len, int32_t from,
                      uint32_t tag, polyduct_mail *mail);

/* Frees the memory of a message. Again does nothing. */
int polyduct_mail_free(polyduct_mail *mail);

/* Runs for a message: in whichever thread polls, waits or serves. May send, post and call, and must not
 * wait. */
typedef void (*polyduct_handler)(void *user, int32_t from, const uint32_t *args, const void *payload,
                                 size_t len);

/* Answers a call: 0, or anything else for a failure, whose words `polyduct_reply_error` says. `argument`
 * lives as long as this runs. */
typedef int (*polyduct_function)(void *user, const polyduct_mail *argument, polyduct_reply *reply);

/* Installs a handler, or a function for calls, under a name. The other units know it after the next
 * `polyduct_synchronise`. `user` must live until the domain is left. */
int polyduct_handle(polyduct_domain *domain, const char *name, uint32_t version, polyduct_handler handler,
                    void *user);
int polyduct_offer(polyduct_domain *domain, const char *name, uint32_t version, polyduct_function function,
                   void *user);

/* What a function gives, copied; without it, no bytes. */
int polyduct_reply_bytes(polyduct_reply *reply, const void *bytes, size_t len);
int polyduct_reply_array(polyduct_reply *reply, int type, int ndim, const int64_t *shape, int column_major,
                         const void *data);
int polyduct_reply_error(polyduct_reply *reply, const char *text);

/* Waits until all units have called it: from then on each knows the handlers of all. */
int polyduct_synchronise(polyduct_domain *domain);

/* Waits until all units have called it. */
int polyduct_barrier(polyduct_domain *domain);

/* Sends four words (NULL: zeros) and a payload to a handler of a unit. Without a payload it is a short
 * message, one cache line. */
int polyduct_post(polyduct_domain *domain, int32_t to, const char *name, const uint32_t *args,
                  const void *payload, size_t len);

/* Calls a function of a unit; does not wait. The call ends after `timeout` seconds; 0: with the unit. */
int polyduct_call_begin(polyduct_call **call, polyduct_domain *domain, int32_t to, const char *name,
                        const void *argument, size_t len, double timeout);
int polyduct_call_array(polyduct_call **call, polyduct_domain *domain, int32_t to, const char *name, int type,
                        int ndim, const int64_t *shape, int column_major, const void *data, double timeout);

/* Waits for its result, once. */
int polyduct_call_result(polyduct_call *call, polyduct_mail *result);

/* Whether there is an outcome: `*done` is 1 or 0. */
int polyduct_call_done(polyduct_call *call, int *done);

/* Gives the call up, unless it is over. */
int polyduct_call_cancel(polyduct_call *call);
int polyduct_call_close(polyduct_call *call);

/* Handles what has come, without waiting. `*handled` counts it, and may be NULL. */
int polyduct_poll(polyduct_domain *domain, size_t *handled);

/* Handles what comes, asleep in between, until `done` says 1, which is asked after everything that came, or
 * `timeout` seconds (0: none) are over: POLYDUCT_NOT_YET. */
int polyduct_serve(polyduct_domain *domain, int (*done)(void *user), void *user, double timeout);

/* Has all that wait in this unit look again at what they wait for. */
int polyduct_wake(polyduct_domain *domain);

/* What waits at this unit, and what it may send. */
typedef struct polyduct_status {
    size_t struct_size;
    int64_t waiting_high; /* Messages that have come and were not handled, of high priority … */
    int64_t waiting_low;  /* … and of low. */
    int64_t mails;        /* Messages that were not received. */
    int64_t calls;        /* Calls under way, and answers that nobody has fetched. */
    int64_t sends_high;   /* Short messages that each connected unit takes for certain, high … */
    int64_t sends_low;    /* … and low. */
    int64_t mail_bytes;   /* What messages that were not received hold, … */
    int64_t other_bytes;  /* … and all others. */
} polyduct_status;

int polyduct_domain_status(polyduct_domain *domain, polyduct_status *status);

/* Opens a channel to a unit: messages on it keep their order, if `ordered`, and those of high priority are
 * never behind those of low. */
int polyduct_channel_open(polyduct_channel **channel, polyduct_domain *domain, int32_t to, int high,
                          int ordered);
int polyduct_channel_send(polyduct_channel *channel, uint32_t tag, const void *bytes, size_t len);
int polyduct_channel_post(polyduct_channel *channel, const char *name, const uint32_t *args,
                          const void *payload, size_t len);
/* Waits until the unit has handled all that was sent. */
int polyduct_channel_flush(polyduct_channel *channel);
int polyduct_channel_close(polyduct_channel *channel);

/* Makes a region of `len` bytes, zeros, under a number: `*memory` is where it lies in this process, until the
 * region is closed and the domain left. */
int polyduct_region_new(polyduct_region **region, polyduct_domain *domain, uint32_t id, size_t len,
                        void **memory);
int polyduct_region_close(polyduct_region *region);

/* Bytes of a region of a unit. */
int polyduct_region_size(polyduct_domain *domain, int32_t unit, uint32_t id, size_t *len);

/* Lends `len` bytes of the program's own memory as a region. They stay the domain's to write until
 * `polyduct_withdraw` has returned POLYDUCT_OK; after another outcome it is to be called again. */
int polyduct_lend(polyduct_lent **lent, polyduct_domain *domain, uint32_t id, void *memory, size_t len);
int polyduct_withdraw(polyduct_lent *lent);

/* Writes into, or reads from, a region of a unit, without its help. The bytes are there when it returns. */
int polyduct_put(polyduct_domain *domain, int32_t to, uint32_t id, size_t offset, const void *bytes,
                 size_t len);
int polyduct_get(polyduct_domain *domain, int32_t from, uint32_t id, size_t offset, void *bytes, size_t len);

/* Writes, then posts to a handler of that unit: when it runs, the bytes are there. */
int polyduct_put_notify(polyduct_domain *domain, int32_t to, uint32_t id, size_t offset, const void *bytes,
                        size_t len, const char *handler, const uint32_t *args);

/* Leaves the domain in order. The handle is gone afterwards, also where this fails. */
int polyduct_leave(polyduct_domain *domain);

/* Gives up: others that wait learn at once that this unit is lost. The handle is gone afterwards. */
int polyduct_give_up(polyduct_domain *domain);

#ifdef __cplusplus
}
#endif

#endif
