/* A rank that sends and one that does not receive: until it reads a line, or ever. `flood SMALL LONG WAY`: so
 * many small messages, and so many of 1 MiB between them. The sender says when it is held up, or has sent
 * all; the receiver reads two lines of the file WAY: at the first it says how it has grown, and it does what
 * the second says. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

enum { LONG = 1 << 20, SHORT = 64 };
static volatile int sent, looked;

/* Nothing was sent since the last look. */
static void look(int signal) {
    (void)signal;
    char line[80];
    if (sent == looked && sent > 0) {
        int len = snprintf(line, sizeof line, "held up at %d\n", sent);
        if (write(1, line, len) != len) _exit(3);
        struct itimerval none = {{0, 0}, {0, 0}};
        setitimer(ITIMER_REAL, &none, NULL);
    }
    looked = sent;
}

int main(int argc, char **argv) {
    int rank, many = atoi(argv[1]), some = atoi(argv[2]), every = many / (some + 1) + 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    unsigned char *bytes = malloc(LONG);
    int first = 1;
    MPI_Sendrecv_replace(&first, 1, MPI_INT, 1 - rank, 0, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0) {
        MPI_Request *requests = malloc((many + some) * sizeof *requests);
        unsigned char *all = malloc((size_t)many * SHORT), *longs = malloc((size_t)some * LONG + 1);
        struct itimerval timer = {{0, 300000}, {0, 300000}};
        signal(SIGALRM, look);
        int begun = 0, at = 0;
        setitimer(ITIMER_REAL, &timer, NULL);
        for (int n = 0; n < many; n++) {
            fill(all + (size_t)n * SHORT, n % SHORT, 0, n);
            MPI_Isend(all + (size_t)n * SHORT, n % SHORT, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[begun++]);
            if (n % every == every - 1) {
                unsigned char *one = longs + (size_t)at * LONG;
                fill(one, LONG, 1, at++);
                MPI_Isend(one, LONG, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[begun++]);
            }
            sent = n + 1;
        }
        printf("sent %d\n", begun), fflush(stdout);
        MPI_Waitall(begun, requests, MPI_STATUSES_IGNORE);
    } else {
        char line[10];
        long before = resident();
        /* Two signals, by a way of their own: a file of the test's. */
        FILE *signal = fopen(argv[3], "r");
        check(signal && fgets(line, sizeof line, signal) != NULL, "a signal to say how much it is");
        printf("the receiver has grown by %ld KiB\n", resident() - before), fflush(stdout);
        check(fgets(line, sizeof line, signal) != NULL, "a signal to go on");
        if (strcmp(line, "abort\n") == 0) MPI_Abort(MPI_COMM_WORLD, 7);
        int at = 0;
        for (int n = 0; n < many; n++) {
            int got;
            MPI_Status status;
            MPI_Recv(bytes, LONG, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &got);
            check(got == n % SHORT, "the order of what waited");
            check_bytes(bytes, got, 0, n, "what waited");
            if (n % every == every - 1) {
                MPI_Recv(bytes, LONG, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                check_bytes(bytes, LONG, 1, at++, "what was long and waited");
            }
        }
        printf("received all, grown by %ld KiB\n", resident() - before), fflush(stdout);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
