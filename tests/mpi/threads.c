/* Two ranks with four threads each: every thread exchanges messages on a communicator of its own, sends and receives
 * on a common one from anybody with any tag, and writes, reads and counts in the other rank's memory. */
#include "check.h"
#include <pthread.h>

static const int LENGTHS[] = {0, 1, 32, 33, 500, 8192, 8193, 70000, 400000};
enum { KINDS = sizeof LENGTHS / sizeof *LENGTHS, LONGEST = 400000, THREADS = 4, OWN = 150, COMMON = 400, WORDS = 3000 };

static int rank, peer;
static MPI_Comm own[THREADS], common;
static MPI_Win win;
static long *window;
static int seen[THREADS * COMMON];

static void on_its_own(int me, unsigned char *out, unsigned char *in) {
    for (int n = 0; n < OWN; n++) {
        int len = LENGTHS[(n + me) % KINDS], got;
        MPI_Request requests[2];
        MPI_Status statuses[2];
        fill(out, len, rank * THREADS + me, n);
        if (n % 2) MPI_Irecv(in, LONGEST, MPI_BYTE, peer, 0, own[me], &requests[0]);
        MPI_Isend(out, len, MPI_BYTE, peer, 0, own[me], &requests[1]);
        if (n % 2 == 0) MPI_Irecv(in, LONGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, own[me], &requests[0]);
        MPI_Waitall(2, requests, statuses);
        MPI_Get_count(&statuses[0], MPI_BYTE, &got);
        check(got == len && statuses[0].MPI_SOURCE == peer, "what a thread's own message says");
        check_bytes(in, len, peer * THREADS + me, n, "a thread's own message");
    }
}

/* Whichever thread receives it: once, and all of it. */
static void among_all(int me, unsigned char *out, unsigned char *in) {
    for (int n = 0; n < COMMON; n++) {
        int number = me * COMMON + n, len = LENGTHS[number % (KINDS - 1)], got;
        MPI_Request request;
        MPI_Status status;
        fill(out, len, rank, number);
        MPI_Isend(out, len, MPI_BYTE, peer, number, common, &request);
        if (n % 2) {
            MPI_Message message;
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, common, &message, &status);
            MPI_Get_count(&status, MPI_BYTE, &got);
            MPI_Mrecv(in, got, MPI_BYTE, &message, &status);
        } else {
            MPI_Recv(in, LONGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, common, &status);
        }
        MPI_Get_count(&status, MPI_BYTE, &got);
        int which = status.MPI_TAG;
        check(status.MPI_SOURCE == peer && which >= 0 && which < THREADS * COMMON, "whose it is");
        check(got == LENGTHS[which % (KINDS - 1)], "the length of a common message");
        check_bytes(in, got, peer, which, "a common message");
        check(__atomic_add_fetch(&seen[which], 1, __ATOMIC_RELAXED) == 1, "a message came twice");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void one_sided(int me, long *out, long *in) {
    long one = 1, before;
    for (int n = 0; n < 100; n++) {
        int len = n % 3 ? 1 + n : WORDS;
        for (int i = 0; i < len; i++) out[i] = (long)rank << 48 | (long)me << 40 | (long)n << 20 | i;
        MPI_Put(out, len, MPI_LONG, peer, 1 + me * WORDS, len, MPI_LONG, win);
        MPI_Win_flush(peer, win);
        MPI_Get(in, len, MPI_LONG, peer, 1 + me * WORDS, len, MPI_LONG, win);
        MPI_Win_flush(peer, win);
        check(memcmp(out, in, len * sizeof *in) == 0, "what a thread has written");
        MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, win);
        MPI_Win_flush(0, win);
    }
}

static void *work(void *number) {
    int me = (int)(long)number;
    unsigned char *out = malloc(LONGEST), *in = malloc(LONGEST);
    on_its_own(me, out, in);
    among_all(me, out, in);
    one_sided(me, (long *)out, (long *)in);
    on_its_own(me, out, in);
    free(out), free(in);
    return NULL;
}

int main(int argc, char **argv) {
    int provided;
    long count, nothing = 0;
    pthread_t threads[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    check(provided == MPI_THREAD_MULTIPLE, "threads");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    peer = 1 - rank;
    window = calloc(1 + THREADS * WORDS, sizeof *window);
    MPI_Win_create(window, (1 + THREADS * WORDS) * sizeof *window, sizeof *window, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock_all(0, win);
    MPI_Comm_dup(MPI_COMM_WORLD, &common);
    for (long i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &own[i]);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Fetch_and_op(&nothing, &count, MPI_LONG, 0, 0, MPI_NO_OP, win);
    MPI_Win_unlock_all(win);
    check(count == 2 * THREADS * 100, "a count");
    for (int i = 0; i < THREADS * COMMON; i++) check(seen[i] == 1, "a message did not come");
    for (int i = 0; i < THREADS; i++) MPI_Comm_free(&own[i]);
    MPI_Comm_free(&common);
    MPI_Win_free(&win);
    free(window);
    if (rank == 0) printf("8 threads exchanged all\n");
    MPI_Finalize();
    return 0;
}
