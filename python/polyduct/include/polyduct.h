/* polyduct.h: distributed arrays between parallel programs, files, disks, sockets and browsers.
 *
 * Two programs, five lines each. Every unit (process) says only what *its own* part of the array is:
 *
 *     polyduct_port *out;                                       // simulate.c: this unit has some rows
 *     polyduct_open_write(&out, "-", POLYDUCT_F32, 2, (int64_t[]){4096, 4096}, "block,*", NULL);
 *     for (int t = 0; t < 10; t++) {
 *         float *a;                                             // in shared memory: no copy
 *         size_t len;
 *         polyduct_step_begin(out, (void **)&a, &len);
 *         for (size_t i = 0; i < len / sizeof *a; i++) a[i] = t;
 *         polyduct_step_end(out);
 *     }
 *     polyduct_close(out);
 *
 *     polyduct_port *in;                                        // analyse.c: this unit has some columns
 *     const void *b;
 *     size_t len;
 *     polyduct_open_read(&in, "-", "*,block;halo=0,2", NULL);
 *     while (polyduct_map(in, &b, &len, NULL) == POLYDUCT_OK) look_at(b, len);
 *     polyduct_close(in);
 *
 *     polyduct run "-n 4 ./simulate | -n 3 ./analyse"
 *
 *     cc simulate.c $(polyduct config --cflags --libs) -o simulate
 *
 * WHAT HOLDS EVERYWHERE
 *
 * Results. Every function that can fail returns an `int`: POLYDUCT_OK (0); a positive outcome that is no
 * error (POLYDUCT_END, POLYDUCT_NOT_YET, POLYDUCT_DROPPED); or a negative error, by the classes that Python
 * has (POLYDUCT_PEER_LOST is `polyduct.PeerLost`). The words and attributes of the calling thread's last
 * error are at `polyduct_error_text` and its companions. After POLYDUCT_TIMEOUT_ERROR, POLYDUCT_INTERRUPTED
 * and POLYDUCT_WRONG_SIZE a port can be used again, after any other error it should be closed; a domain can
 * be used after any error. Where an error is returned, what pointers lead to for results is not written, but
 * for arrays that were about to be filled: their content is undefined.
 *
 * Handles are opaque. NULL, one that was closed, one of another kind and one of the process that this one was
 * forked from are errors (POLYDUCT_MISUSE, POLYDUCT_CLOSED), never crashes. Calls on one handle from several
 * threads take turns, and closing ends what others wait for; calls on different handles are independent.
 *
 * Structures for arguments begin with `struct_size`, which is their `sizeof` where the caller was compiled;
 * all else may be 0, which is the default: `polyduct_options o = {.struct_size = sizeof o};`. Later versions
 * add members at the end.
 *
 * Shapes, indices and units are `int64_t` and `int32_t` in the order of the array's dimensions, at most
 * POLYDUCT_MAX_DIMS of them; sizes of memory are `size_t` bytes; times are `double` seconds. Text is UTF-8
 * that ends with 0. Layouts are text exactly as in Python and in docs/layouts.md: "block,*",
 * "cyclic(64),block@2x3;order=F".
 *
 * Waiting. Nothing waits for ever unless it is told to: `timeout` bounds each call, and `interrupt`, a
 * question that a waiting call asks of the calling program about every 100 ms, ends it with
 * POLYDUCT_INTERRUPTED. Signals end no call by themselves: have a handler set a flag, and let `interrupt` say
 * what the flag says. The library installs no signal handlers, prints nothing, never exits and never unwinds
 * into C; a fault of its own is POLYDUCT_INTERNAL. Callbacks must return: no `longjmp`, no C++ exception may
 * leave them.
 */
#ifndef POLYDUCT_H
#define POLYDUCT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface: raised when a program that was compiled before has to be compiled again. */
#define POLYDUCT_ABI 1
/* The most dimensions of an array. */
#define POLYDUCT_MAX_DIMS 8
/* Any unit, any tag: see `polyduct_recv`. */
#define POLYDUCT_ANY (-1)

/* What a call returns. */
enum polyduct_code {
    POLYDUCT_OK = 0,
    /* -- outcomes that are no errors -- */
    POLYDUCT_END = 1,     /* There is no further step. */
    POLYDUCT_NOT_YET = 2, /* It would have to be waited for. */
    POLYDUCT_DROPPED = 3, /* A lossy queue (`policy`) dropped the step. */
    /* -- the caller's misuse -- */
    POLYDUCT_ERROR = -1,           /* Any error. */
    POLYDUCT_MISUSE = -2,          /* The caller asked for something that cannot be. */
    POLYDUCT_BAD_OPTION = -3,      /* An option has a value that it cannot have: `option`. */
    POLYDUCT_BAD_URL = -4,         /* A URL that is not understood: `url`. */
    POLYDUCT_BAD_ENVIRONMENT = -5, /* A launcher's variable makes no sense: `variable`. */
    POLYDUCT_LAYOUT_ERROR = -6,  /* A layout does not parse or fit: `reason`, `position`, `index`, `units`. */
    POLYDUCT_WRONG_SIZE = -7,    /* Memory of the wrong size: `unit`, `expected`, `found`. */
    POLYDUCT_WRONG_TYPE = -8,    /* An element type that is not the one expected, or none. */
    POLYDUCT_BAD_INDEX = -9,     /* An index beyond an array in a store. */
    POLYDUCT_NO_UNIT = -10,      /* There is no such unit in the domain: `unit`, `units`. */
    POLYDUCT_AT_ODDS = -11,      /* Units are in a barrier and in a synchronisation at once: `unit`. */
    POLYDUCT_IN_HANDLER = -12,   /* A handler called something that waits for messages. */
    POLYDUCT_REGION_ERROR = -13, /* A region that is not there, or bytes beyond its end: `reason`. */
    POLYDUCT_HANDLER_ERROR = -14,     /* A handler's name is wrong: `name`. */
    POLYDUCT_UNKNOWN_HANDLER = -15,   /* Nobody, or not this unit, has such a handler: `name`, `unit`. */
    POLYDUCT_DUPLICATE_HANDLER = -16, /* The name is taken in this unit: `name`. */
    POLYDUCT_HANDLER_VERSIONS = -17,  /* Two units have it in different versions. */
    POLYDUCT_CONFIG_ERROR = -18,      /* The file or the environment gives a size that cannot be. */
    POLYDUCT_LIMIT_REACHED = -19,     /* A limit was reached: `what`, `limit`, `found`. */
    POLYDUCT_FULL = -20,              /* The other unit has not taken what was sent before: `unit`. */
    POLYDUCT_NAME_TAKEN = -21,        /* Another program has the pipe or file, or this unit: `pid`. */
    POLYDUCT_CLOSED = -22,            /* The port is closed, or the domain was left. */
    /* -- the peers -- */
    POLYDUCT_PEER_LOST = -23, /* A unit's process ended without closing: `unit`, `side`, `program`, `pid`. */
    POLYDUCT_PEER_LEFT = -24, /* A unit has left the domain in order: `unit`. */
    POLYDUCT_PEER_ABORTED = -25,  /* A unit gave up: `unit`, `side`, `reason`. */
    POLYDUCT_UNREACHABLE = -26,   /* Nobody is at the other end of a stream: `place`. */
    POLYDUCT_STREAM_BROKEN = -27, /* A stream ended before its program did: `place`, `step`. */
    POLYDUCT_UNEVEN_STEPS = -28,  /* Units closed after different numbers of steps. */
    POLYDUCT_READERS_GONE = -29,  /* All reader programs have closed: `step`. */
    POLYDUCT_REFUSED = -30,       /* The other units did not agree to this one joining: `reason`, `unit`. */
    POLYDUCT_STRANGER = -31,      /* The other process is of another user, or has another key. */
    POLYDUCT_BAD_PEER = -32,      /* A peer broke the protocol. */
    /* -- calls of functions of other units -- */
    POLYDUCT_CALL_ERROR = -33,     /* A call has no result: `unit`, `name`. */
    POLYDUCT_CALL_FAILED = -34,    /* The function failed: `error`, `traceback`. */
    POLYDUCT_CALL_DEADLINE = -35,  /* No answer came before the call's deadline: `waited`. */
    POLYDUCT_CALL_CANCELLED = -36, /* This unit gave the call up. */
    POLYDUCT_CALL_PEER_GONE = -37, /* The unit was lost, or left, before it answered. */
    /* -- time and the system -- */
    POLYDUCT_TIMEOUT_ERROR = -38,  /* A wait came to its deadline: `waited`. */
    POLYDUCT_ABSENT = -39,         /* Units did not come within the time that opening may take. */
    POLYDUCT_INTERRUPTED = -40,    /* `interrupt` said so. */
    POLYDUCT_SYSTEM_REFUSED = -41, /* The system refused something: `errno`. */
    POLYDUCT_NO_MEMORY = -42,      /* There is not enough memory for the slots, or for a region. */
    /* -- files and stores -- */
    POLYDUCT_FILE_ERROR = -43,       /* `reason`, `filename`, `errno`. */
    POLYDUCT_FILE_MISSING = -44,     /* The file or its directory is not there. */
    POLYDUCT_FILE_NOT_ALLOWED = -45, /* The file may not be read or written. */
    POLYDUCT_STORE_ERROR = -46,      /* `reason`, `filename`. */
    POLYDUCT_BAD_NAME = -47,         /* No array in a store can have this name. */
    POLYDUCT_DATASET_MISSING = -48,  /* There is no dataset of this name in the store. */
    /* -- the library -- */
    POLYDUCT_INTERNAL = -99 /* A fault of the library's own; its words say where. */
};

/* Types of elements, little-endian. `POLYDUCT_TYPE_BYTES(n)`: n bytes that are carried and never
 * interpreted. */
enum polyduct_type {
    POLYDUCT_BOOL = 1,
    POLYDUCT_I8 = 2,
    POLYDUCT_I16 = 3,
    POLYDUCT_I32 = 4,
    POLYDUCT_I64 = 5,
    POLYDUCT_U8 = 6,
    POLYDUCT_U16 = 7,
    POLYDUCT_U32 = 8,
    POLYDUCT_U64 = 9,
    POLYDUCT_F16 = 10,
    POLYDUCT_F32 = 11,
    POLYDUCT_F64 = 12,
    POLYDUCT_C64 = 13,  /* Two F32: real and imaginary part. */
    POLYDUCT_C128 = 14, /* Two F64. */
    POLYDUCT_BF16 = 15
};
#define POLYDUCT_TYPE_BYTES(n) (256 + (n))

/* How an array of a bundle changes from step to step. */
enum polyduct_changes {
    POLYDUCT_FIXED = 0,   /* Its size is the same in all steps. */
    POLYDUCT_OPEN = 1,    /* Dimension `open_dim` changes: each unit of the writer brings a piece of it. */
    POLYDUCT_WHOLE = 2,   /* The shape changes as a whole; all units of the writer say the same. */
    POLYDUCT_CONSTANT = 3 /* Given with the first step alone; readers have it in all. */
};

/* How pieces follow each other: see `polyduct_rule`. */
enum polyduct_join { POLYDUCT_ALONG = 0, POLYDUCT_STACKED = 1 };

/* One unit's port, open for writing or for reading. */
typedef struct polyduct_port polyduct_port;
/* What a port brings, without reading it. */
typedef struct polyduct_listing polyduct_listing;
/* A layout bound to a shape, an element type and a number of units. */
typedef struct polyduct_layout polyduct_layout;
/* One unit's place in a domain of messages. */
typedef struct polyduct_domain polyduct_domain;
/* A channel to a unit: an order of its own, a priority. */
typedef struct polyduct_channel polyduct_channel;
/* A call of a function of another unit, under way. */
typedef struct polyduct_call polyduct_call;
/* Shared memory that other units put into and get from. */
typedef struct polyduct_region polyduct_region;
/* Memory of the program's own, lent for that. */
typedef struct polyduct_lent polyduct_lent;
/* The answer of a function, while it runs. */
typedef struct polyduct_reply polyduct_reply;
/* The memory of a message that has come. */
typedef struct polyduct_message polyduct_message;

/* Shall the call that waits give up? Asked by the thread that waits, about every 100 ms. */
typedef int (*polyduct_interrupt)(void *user);

/* ---- versions and errors ---- */

/* The version of the library, "0.1.0". */
const char *polyduct_version(void);

/* POLYDUCT_ABI of the library: another one than the header's cannot be used. */
int polyduct_abi(void);

/* The name of a code, as Python's class has it: "PeerLost", "OK"; "?" for what is none. */
const char *polyduct_code_name(int code);

/* Whether an error is one of a class: POLYDUCT_ABSENT is a POLYDUCT_REFUSED, a POLYDUCT_TIMEOUT_ERROR and a
 * POLYDUCT_ERROR. 1 or 0. */
int polyduct_code_is(int code, int of);

/* The code of the calling thread's last error; POLYDUCT_OK before the first. Calls that succeed leave it. */
int polyduct_error_code(void);

/* Its full text, which names the thing, the place, what was expected and what was found; "" before the first.
 * Valid until the thread's next error, or its end. */
const char *polyduct_error_text(void);

/* One of its attributes as text, "1" or "reader"; NULL where it has none of this name. Valid as the text
 * is. */
const char *polyduct_error_attribute(const char *name);

/* The same of a number. POLYDUCT_MISUSE where there is none of this name; the last error stays. */
int polyduct_error_int(const char *name, int64_t *value);

/* The type of a name: "f4", "float32", "f32", "<i8", "bf16", "bytes(12)". Names that NumPy has mean what they
 * mean there: "i8" has eight bytes. POLYDUCT_LAYOUT_ERROR for one that there is not. */
int polyduct_type_of(const char *name, int *type);

/* Bytes of an element; 0 for what is no type. */
size_t polyduct_type_size(int type);

/* ---- ports ---- */

/* Options of a port. 0 is the default everywhere. */
typedef struct polyduct_options {
    size_t struct_size;
    int32_t unit;        /* Number of this unit, where `units` is not 0; else the launcher's. */
    int32_t units;       /* Units of this program. */
    const char *program; /* Name of this program, the same in all its units. */
    const char *job;     /* The job that names of pipes belong to. */
    const char *policy;  /* For when all slots are full: "block", "latest", "drop_oldest", "drop_newest". */
    const char *on_loss; /* What the loss of a unit of this program means: "raise", "wait". */
    int32_t depth;       /* Slots of each writer unit, 1 to 64; 0: 2. */
    int32_t readers; /* Reader programs that a writer waits for, 1 to 8; 0: 1; -1: any, which come and go. */
    double timeout;  /* The longest wait of any call, opening included; 0: as long as the peers live. */
    polyduct_interrupt interrupt;
    void *interrupt_user;
    int32_t append;  /* A writer's steps follow those that are there, in a store. */
    int32_t stepped; /* The steps are a dimension of what is written, even if there is just one. */
    int32_t convert; /* A reader converts to `type`: f32-bf16, f32-f16, f64-f32. */
    int32_t type;    /* What a reader expects; 0: anything. Needed where the other end gives plain bytes. */
    int32_t ndim;    /* Dimensions of `shape`. */
    int32_t chunk_ndim;    /* Dimensions of `chunks`. */
    const int64_t *shape;  /* What a reader expects; NULL: anything. */
    const int64_t *chunks; /* Of a Zarr array that is written. */
    const char *compress;  /* What its chunks are compressed with. */
    int64_t shard_bytes;   /* Of each file of a set that is written. */
    const char *attributes; /* What a writer writes down of the array, or of all arrays: the text of a JSON
                             * object. Kept by Zarr and by stores, of all arrays by .safetensors files. */
    const char *dims; /* What its dimensions are called, that of the steps too: "time,y,x". Kept by Zarr. */
    const char *key;  /* The job's key, 64 hexadecimal digits, for pipes and streams across hosts; NULL: what
                       * POLYDUCT_JOB_KEY and POLYDUCT_TRUSTED_NETWORK say. */
    int32_t trusted_network; /* With `key`: proof of it, but no encryption. All units say the same. */
    int32_t reserved;
} polyduct_options;

/* Opens a port at `url` for writing: this program holds an array of `ndim` dimensions of sizes `shape`, of
 * elements of `type`, in `layout`. A NULL layout is for a program of one unit, which has everything.
 *
 * The URL is whatever `polyduct.open` of Python takes: "-" (what `polyduct run` gives), "pipe:NAME",
 * "pipe://HOST:PORT/NAME", "tcp://…", "display://…", "PATH.npy", "PATH.zarr", "store:DIR/NAME", …
 * Waits for the other program, 60 s at most unless a timeout says otherwise. */
int polyduct_open_write(polyduct_port **port, const char *url, int type, int ndim, const int64_t *shape,
                        const char *layout, const polyduct_options *options);

/* Opens a port at `url` for reading in `layout` (NULL: everything); what the array is, the other end says. */
int polyduct_open_read(polyduct_port **port, const char *url, const char *layout,
                       const polyduct_options *options);

/* An array of a bundle, as a writer says it. */
typedef struct polyduct_array {
    size_t struct_size; /* Arrays of these lie one behind the other by the first one's. */
    const char *name;
    int32_t type;
    int32_t ndim;
    const int64_t *shape; /* The most, where the size changes. */
    const char *layout;   /* NULL: everything, or where a dimension is open, which has none. */
    int32_t changes;      /* enum polyduct_changes */
    int32_t open_dim;     /* Of POLYDUCT_OPEN. */
    const char *attributes; /* As in polyduct_options, of this array; kept by groups of Zarr and by stores. */
    const char *dims;       /* What its dimensions are called, without that of the steps. */
} polyduct_array;

/* A box of an array of the writers, of which a reader's array is made. */
typedef struct polyduct_piece {
    size_t struct_size;
    const char *array;
    int32_t ndim;      /* Dimensions of `lo` and `hi`; of those that are not said it has all. */
    int32_t at_ndim;   /* Dimensions of `at_lo` and `at_hi`; 0: behind the pieces that stand before it. */
    const int64_t *lo; /* From here … */
    const int64_t *hi; /* … up to below; -1: to the end; -2: the index `lo` alone, without the dimension. */
    const int64_t *at_lo; /* Where it comes to lie. */
    const int64_t *at_hi;
} polyduct_piece;

/* What a reader says of arrays of a bundle. Of several rules the first that fits a name counts. */
typedef struct polyduct_rule {
    size_t struct_size;
    const char *pattern; /* A name, or a pattern: `*` is any characters, `?` is one. */
    const char *layout;  /* NULL: everything. */
    int32_t type;        /* What is expected; 0: anything. */
    int32_t convert;     /* Convert to `type`. */
    int32_t ndim;        /* Dimensions of `shape`. */
    int32_t join;        /* enum polyduct_join: how pieces follow each other along `axis`, … */
    int32_t axis;
    int32_t piece_count;  /* 0: the writers' array as it is. */
    const int64_t *shape; /* What is expected; NULL: anything. */
    const polyduct_piece *pieces;
} polyduct_rule;

/* Opens a port for writing several arrays and values in each step: a bundle. */
int polyduct_open_write_arrays(polyduct_port **port, const char *url, size_t count,
                               const polyduct_array *arrays, const polyduct_options *options);

/* Opens a port for reading those arrays of a bundle that the rules choose. */
int polyduct_open_read_arrays(polyduct_port **port, const char *url, size_t count, const polyduct_rule *rules,
                              const polyduct_options *options);

/* Says which unit of how many this is. Either pointer may be NULL. */
int polyduct_unit(polyduct_port *port, int32_t *unit, int32_t *units);

/* Arrays of the port: 1, or of a bundle those that it carries or takes. */
int polyduct_count(polyduct_port *port, size_t *count);

/* What one of its arrays is, and this unit's part of it. */
typedef struct polyduct_part {
    size_t struct_size; /* Of the caller's structure: no more is written. */
    const char *name;   /* "" for the only one of a port that has no name. Valid until the port is closed. */
    const char *layout; /* This program's layout. Valid until the port is closed. */
    int32_t type;
    int32_t ndim;
    int64_t shape[POLYDUCT_MAX_DIMS]; /* Of the whole array: where its size changes, in the step at hand. */
    int32_t local_ndim; /* 1 where a part is several boxes, packed one behind the other; else `ndim`. */
    int32_t changes;    /* enum polyduct_changes */
    int64_t local_shape[POLYDUCT_MAX_DIMS];   /* Of this unit's part, its halo included. */
    int64_t local_strides[POLYDUCT_MAX_DIMS]; /* In elements; all 0 where a part is packed. */
    int64_t lo[POLYDUCT_MAX_DIMS]; /* The box of the whole array that the part is, with its halo: from … */
    int64_t hi[POLYDUCT_MAX_DIMS]; /* … up to below; all 0 where it is several boxes, or none. */
    size_t offset;    /* Where the part begins in the memory of a step, in bytes: 0 but for bundles. */
    size_t len;       /* Bytes of the part. */
    int32_t open_dim; /* The dimension that is open; -1 if none is. */
} polyduct_part;

/* Says what array number `index` is. */
int polyduct_info(polyduct_port *port, size_t index, polyduct_part *part);

/* Sets the longest wait of the port's later calls; 0: as at opening. */
int polyduct_set_timeout(polyduct_port *port, double timeout);

/* ---- writing ---- */

/* Waits for room and gives this unit's part of the next step where it lies: `*len` bytes to be filled until
 * `polyduct_step_end`, after which they are no longer the caller's. In pipes it is the shared memory that
 * readers copy from. Its content is undefined. `len` may be NULL. */
int polyduct_step_begin(polyduct_port *port, void **memory, size_t *len);

/* The same if there is room; else POLYDUCT_NOT_YET. */
int polyduct_try_step_begin(polyduct_port *port, void **memory, size_t *len);

/* Makes the part visible, together with those of the other units. */
int polyduct_step_end(polyduct_port *port);

/* Forgets the step: the next `polyduct_step_begin` gives it again. */
int polyduct_step_cancel(polyduct_port *port);

/* Writes this unit's part of the next step, `len` bytes that lie elsewhere: one copy more. */
int polyduct_write(polyduct_port *port, const void *part, size_t len);

/* Writes the parts of all arrays of a bundle: of array n `lens[n]` bytes at `parts[n]`. */
int polyduct_write_arrays(polyduct_port *port, size_t count, const void *const *parts, const size_t *lens);

/* Says how large array number `index` is in the step to come, or the one that was begun: where a dimension is
 * open, the shape of this unit's piece; else that of the whole. */
int polyduct_bring(polyduct_port *port, size_t index, int ndim, const int64_t *shape);

/* Has a value with a name go with the step to come of a bundle, or the one that was begun. Unit 0's count. */
int polyduct_set_int(polyduct_port *port, const char *name, int64_t value);
int polyduct_set_real(polyduct_port *port, const char *name, double value);
int polyduct_set_text(polyduct_port *port, const char *name, const char *text);
int polyduct_set_bytes(polyduct_port *port, const char *name, const void *bytes, size_t len);

/* Number of the next step, from 0, or of the one that was begun. */
int polyduct_next_step(polyduct_port *port, int64_t *step);

/* ---- reading ---- */

/* Waits for the next step and copies this unit's part of it, `len` bytes, into `part`. `*step` is its number;
 * `step` may be NULL. POLYDUCT_END after the last. */
int polyduct_read(polyduct_port *port, void *part, size_t len, int64_t *step);

/* The same if the step is there; else POLYDUCT_NOT_YET. */
int polyduct_try_read(polyduct_port *port, void *part, size_t len, int64_t *step);

/* The same into a place of its own for each array of a bundle. */
int polyduct_read_arrays(polyduct_port *port, size_t count, void *const *parts, const size_t *lens,
                         int64_t *step);

/* Waits for the next step and gives this unit's part of it in memory of the port's own, aligned to 64 bytes
 * and valid until the next call on the port: the same memory again and again, and so without a copy of the
 * caller's. Of a bundle, `polyduct_info` says where each part lies. */
int polyduct_map(polyduct_port *port, const void **memory, size_t *len, int64_t *step);

/* Waits for the next step and gives this unit's part of it where the writer has put it: `*len` bytes in
 * shared memory, without any copy and not to be written, until `polyduct_view_end` gives them back or the
 * port is closed. Until then the writer cannot use the slot again (`depth`), and nothing else can be read;
 * `polyduct_info` and values are those of the step. POLYDUCT_MISUSE where the part does not lie in one slot
 * on this host, in one piece and in this layout's order: of files, across hosts, from several writers. The
 * step is still to be read then, by `polyduct_map` for one. `len` and `step` may be NULL. */
int polyduct_view(polyduct_port *port, const void **memory, size_t *len, int64_t *step);
int polyduct_view_end(polyduct_port *port);

/* Waits for the next step of a bundle without reading it, so that `polyduct_info` knows sizes that change. */
int polyduct_peek(polyduct_port *port, int64_t *step);

/* A value of the step that was read last. POLYDUCT_MISUSE where there is none of this name,
 * POLYDUCT_WRONG_TYPE for one of another type. Text and bytes are valid until the next call that reads. */
int polyduct_get_int(polyduct_port *port, const char *name, int64_t *value);
int polyduct_get_real(polyduct_port *port, const char *name, double *value);
int polyduct_get_text(polyduct_port *port, const char *name, const char **text);
int polyduct_get_bytes(polyduct_port *port, const char *name, const void **bytes, size_t *len);

/* What is written down of the array that a port reads, as the text of a JSON object: "{}" for nothing, and
 * where there is no place for it, as in pipes and bundles. Valid until the port is closed. */
int polyduct_attributes(polyduct_port *port, const char **json);

/* What its dimensions are called, that of the steps included: "time,y,x"; "" where nothing says it. Valid
 * until the port is closed. */
int polyduct_dims(polyduct_port *port, const char **names);

/* Steps that there are; POLYDUCT_NOT_YET for a pipe or a stream, which does not know. */
int polyduct_steps(polyduct_port *port, int64_t *steps);

/* Reads, or durably overwrites, a box of a step of an array in a store by a port that reads it: from `lo` to
 * below `hi` in each dimension, row-major. */
int polyduct_read_box(polyduct_port *port, int64_t step, const int64_t *lo, const int64_t *hi, void *out,
                      size_t len);
int polyduct_write_box(polyduct_port *port, int64_t step, const int64_t *lo, const int64_t *hi,
                       const void *from, size_t len);

/* ---- the end of ports ---- */

/* Counters since opening. */
typedef struct polyduct_stats {
    size_t struct_size;
    int64_t steps;   /* Written or read. */
    int64_t dropped; /* By a lossy queue. */
    int64_t bytes;   /* Of this unit's part. */
    int64_t runs;    /* Contiguous runs that they came in. */
    double waited;   /* Seconds of waiting for others, … */
    double copied;   /* … of moving bytes, … */
    double opened;   /* … and of opening. */
} polyduct_stats;

int polyduct_port_stats(polyduct_port *port, polyduct_stats *stats);

/* Ends the stream, or completes the file under its name; a reader leaves. The handle is gone afterwards, also
 * where this fails. A process that ends without it has given up: its partners get POLYDUCT_PEER_LOST. */
int polyduct_close(polyduct_port *port);

/* Gives up: the other units get an error that has `reason` (which may be NULL), and no file appears. The
 * handle is gone afterwards. */
int polyduct_abort(polyduct_port *port, const char *reason);

/* What the writers of a port bring, or what there is in a file or a store, without reading it. An array
 * without a name, as a .npy file is one, has the name "". */
int polyduct_describe(polyduct_listing **listing, const char *url, const polyduct_options *options);
int polyduct_listing_count(polyduct_listing *listing, size_t *count);
/* Array number `index`. Of its part nothing is said. */
int polyduct_listing_info(polyduct_listing *listing, size_t index, polyduct_part *part);
int polyduct_listing_close(polyduct_listing *listing);

/* Makes a store in directory `dir`: so many units, of which `parity` may be lost, each with a directory
 * there. `stripe` is the bytes of a stripe unit; 0: the usual. */
int polyduct_store_create(const char *dir, int32_t units, int32_t parity, int64_t stripe);

/* ---- layouts ---- */

/* Binds the layout `text` to an array and a number of units. */
int polyduct_layout_new(polyduct_layout **layout, const char *text, int type, int ndim, const int64_t *shape,
                        int64_t units);

/* Its text, as it is written most shortly. Valid until the layout is closed. */
int polyduct_layout_text(polyduct_layout *layout, const char **text);

/* Shape and strides (in elements) of a unit's part, its halo included: `*ndim` numbers each, room for
 * POLYDUCT_MAX_DIMS. One dimension where a part is several boxes. `strides` may be NULL. */
int polyduct_layout_local(polyduct_layout *layout, int64_t unit, int *ndim, int64_t *shape, int64_t *strides);

/* Bytes of a unit's part, its halo included. */
int polyduct_layout_size(polyduct_layout *layout, int64_t unit, size_t *len);

/* The boxes that a unit owns, or with `halo` those that it holds, in the order of its memory: `*count` of
 * them, of which the first `capacity` are written, `ndim` numbers each to `lo` and `hi`. */
int polyduct_layout_boxes(polyduct_layout *layout, int64_t unit, int halo, size_t capacity, int64_t *lo,
                          int64_t *hi, size_t *count);

/* A unit that owns an element, and where in its memory that lies, in elements. */
int polyduct_layout_locate(polyduct_layout *layout, const int64_t *index, int64_t *unit, int64_t *offset);

/* What moves between two layouts of one array, a line for each pair of units that share elements:
 * "0 -> 2: 4096 bytes in 16 runs". Valid until `src` is closed or asked again. */
int polyduct_plan_text(polyduct_layout *src, polyduct_layout *dst, const char **text);

/* Regroups an array within this process: fills the parts of `dst` (`to[u]`, `to_lens[u]` bytes, of each of
 * its units) from the parts of `src`, on all processors. */
int polyduct_redistribute(polyduct_layout *src, const void *const *from, const size_t *from_lens,
                          polyduct_layout *dst, void *const *to, const size_t *to_lens);

int polyduct_layout_close(polyduct_layout *layout);

#ifdef __cplusplus
}
#endif

#include "polyduct_messages.h"

#endif
