/* Requests that do not end as they usually do: cancelled, freed while active, with too little room for what comes.
 * What follows them is right. Two ranks. */
#include "check.h"

static const int LENGTHS[] = {0, 4, 32, 33, 4000, 8192, 8193, 100000, 1 << 20};
enum { KINDS = sizeof LENGTHS / sizeof *LENGTHS, LONGEST = 1 << 20, MARGIN = 64 };

static int rank, peer;
static unsigned char *out, *in;

/* Everything that is left behind would be taken for one of these. */
static void all_is_well(void) {
    for (int n = 0; n < 2 * KINDS; n++) {
        int len = LENGTHS[n % KINDS], got;
        MPI_Request request;
        MPI_Status status;
        fill(out, len, rank, n);
        MPI_Isend(out, len, MPI_BYTE, peer, n, MPI_COMM_WORLD, &request);
        MPI_Recv(in, LONGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        check(got == len && status.MPI_TAG == n, "what follows, or its order");
        check_bytes(in, len, peer, n, "what follows");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static int cancelled(MPI_Request *request) {
    int flag;
    MPI_Status status;
    MPI_Cancel(request);
    MPI_Wait(request, &status);
    MPI_Test_cancelled(&status, &flag);
    return flag;
}

static void cancels(void) {
    enum { MANY = 3000 };
    MPI_Request requests[100];
    /* Of many that wait, every second. */
    for (int i = 0; i < 100; i++) MPI_Irecv(in + i, 1, MPI_BYTE, peer, 5, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < 100; i += 2) check(cancelled(&requests[i]), "a receive that nothing was sent to");
    MPI_Barrier(MPI_COMM_WORLD);
    for (unsigned char i = 0; i < 50; i++) MPI_Send(&i, 1, MPI_BYTE, peer, 5, MPI_COMM_WORLD);
    for (int i = 1; i < 100; i += 2) {
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        check(in[i] == i / 2, "a receive beside those that were cancelled");
    }
    all_is_well();
    /* While their messages come: each is received once, by the receive that is cancelled too late, or by the next. */
    int late = 0;
    for (int n = 0; n < MANY; n++) {
        int len = LENGTHS[n % (KINDS - 1)];
        if (rank == 0) {
            fill(out, len, rank, n);
            MPI_Send(out, len, MPI_BYTE, peer, 6, MPI_COMM_WORLD);
        } else {
            MPI_Irecv(in, len, MPI_BYTE, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, requests);
            for (int spin = n % 7 * 50, i = 0; i < spin; i++) __asm__ volatile("" ::: "memory");
            if (cancelled(requests)) {
                MPI_Recv(in, len, MPI_BYTE, peer, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                late++;
            }
            check_bytes(in, len, peer, n, "a message whose receive was cancelled");
        }
        if (n % 50 == 0) MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 1) printf("%d of %d were cancelled too late\n", late, MANY);
    all_is_well();
}

static void frees(void) {
    for (int n = 0; n < 4 * KINDS; n++) {
        int len = LENGTHS[n % KINDS];
        MPI_Request request;
        unsigned char *mine = out, done = 1;
        memset(in, 0, len);
        fill(mine, len, rank, n);
        /* What is freed first: the send, or the receive that waits, or that of a message that is here. */
        if (n % 2) {
            MPI_Irecv(in, len, MPI_BYTE, peer, 7, MPI_COMM_WORLD, &request);
            MPI_Request_free(&request);
            MPI_Barrier(MPI_COMM_WORLD);
        }
        MPI_Isend(mine, len, MPI_BYTE, peer, 7, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        if (n % 2 == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Irecv(in, len, MPI_BYTE, peer, 7, MPI_COMM_WORLD, &request);
            MPI_Request_free(&request);
        }
        /* Nothing says that the message is here, but the message. */
        for (int i = len - 1; i >= 0; i--)
            while (*(volatile unsigned char *)&in[i] != byte_of(peer, n, i)) {
                int flag;
                MPI_Iprobe(peer, 8, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            }
        /* Until the other has it, too, its bytes stay. */
        MPI_Sendrecv_replace(&done, 1, MPI_BYTE, peer, 9, peer, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    all_is_well();
}

static void truncates(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int n = 0; n < 8 * KINDS; n++) {
        int len = LENGTHS[n / 8], room = n & 1 ? len / 2 : len - 1, before = n & 2, any = n & 4;
        if (len == 0) continue;
        MPI_Request send, receive;
        MPI_Status status;
        memset(in, 0xa5, len + MARGIN);
        fill(out, len, rank, n);
        int from = any ? MPI_ANY_SOURCE : peer;
        if (before) MPI_Irecv(in, room, MPI_BYTE, from, 10, MPI_COMM_WORLD, &receive);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Isend(out, len, MPI_BYTE, peer, 10, MPI_COMM_WORLD, &send);
        if (!before) {
            MPI_Probe(from, 10, MPI_COMM_WORLD, &status);
            MPI_Irecv(in, room, MPI_BYTE, from, 10, MPI_COMM_WORLD, &receive);
        }
        int error = MPI_Wait(&receive, &status), class = MPI_SUCCESS;
        MPI_Error_class(error, &class);
        check(class == MPI_ERR_TRUNCATE, "too little room");
        for (int i = room; i < len + MARGIN; i++) check(in[i] == 0xa5, "what lies behind the room");
        check(MPI_Wait(&send, MPI_STATUS_IGNORE) == MPI_SUCCESS, "who sent too much");
    }
    all_is_well();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    peer = 1 - rank;
    out = malloc(LONGEST), in = malloc(LONGEST + MARGIN);
    const char *what = argc > 1 ? argv[1] : "";
    check(strstr("cancel free truncate", what) != NULL, "an argument");
    if (*what == 'c' || !*what) cancels();
    if (*what == 'f' || !*what) frees();
    if (*what == 't' || !*what) truncates();
    free(out), free(in);
    if (rank == 0) printf("all requests ended\n");
    MPI_Finalize();
    return 0;
}
