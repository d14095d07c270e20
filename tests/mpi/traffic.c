/* Traffic of all kinds, without end: messages of mixed lengths, collectives, writes, reads and sums in the memory of
 * others, drawn by a seed that all ranks have. `traffic SEED END VICTIM WHEN`: one rank ends it, by a signal after so
 * many microseconds (`kill`), or with status 7 after so many rounds (`abort`, `exit`). */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

static const int LENGTHS[] = {0, 8, 300, 8192, 8200, 100000, 1 << 20};
enum { KINDS = sizeof LENGTHS / sizeof *LENGTHS, LONGEST = 1 << 20, SOME = 4 };

static void die(int signal) {
    (void)signal;
    kill(getpid(), SIGKILL);
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check(argc == 5, "arguments");
    unsigned long long seed = strtoull(argv[1], NULL, 10);
    const char *end = argv[2];
    int is_victim = rank == atoi(argv[3]), when = atoi(argv[4]);
    unsigned char *out = malloc(SOME * LONGEST), *in = malloc(SOME * LONGEST), *window = malloc(size * LONGEST);
    MPI_Win win;
    MPI_Win_create(window, size * LONGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock_all(0, win);
    /* So that whoever reads it all has it of all. */
    for (int i = 0; i < size; i++) {
        if (i == rank) printf("rank %d is %d\n", rank, (int)getpid()), fflush(stdout);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (is_victim && strcmp(end, "kill") == 0) {
        struct itimerval timer = {.it_value = {when / 1000000, when % 1000000 + 1}};
        signal(SIGALRM, die);
        setitimer(ITIMER_REAL, &timer, NULL);
    }
    for (int round = 0;; round++) {
        if (is_victim && round == when) {
            if (strcmp(end, "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 7);
            if (strcmp(end, "exit") == 0) _exit(7);
        }
        int shift = 1 + (int)(draw(&seed) % (unsigned)(size - 1)), to = (rank + shift) % size,
            from = (rank + size - shift) % size, kind = (int)(draw(&seed) % 4), len = LENGTHS[draw(&seed) % KINDS];
        MPI_Request requests[2 * SOME];
        long one = 1, sum;
        switch (kind) {
        case 0:
        case 1:
            for (int i = 0; i < SOME; i++) {
                if (kind) MPI_Irecv(in + i * LONGEST, len, MPI_BYTE, from, i, MPI_COMM_WORLD, &requests[i]);
                fill(out + i * LONGEST, len, rank, round + i);
                MPI_Isend(out + i * LONGEST, len, MPI_BYTE, to, i, MPI_COMM_WORLD, &requests[SOME + i]);
            }
            for (int i = 0; i < SOME && !kind; i++)
                MPI_Irecv(in + i * LONGEST, len, MPI_BYTE, from, i, MPI_COMM_WORLD, &requests[i]);
            MPI_Waitall(2 * SOME, requests, MPI_STATUSES_IGNORE);
            for (int i = 0; i < SOME; i++) check_bytes(in + i * LONGEST, len, from, round + i, "a message");
            break;
        case 2:
            fill(out, len, rank, round);
            MPI_Put(out, len, MPI_BYTE, to, rank * LONGEST, len, MPI_BYTE, win);
            MPI_Win_flush(to, win);
            MPI_Get(in, len, MPI_BYTE, to, rank * LONGEST, len, MPI_BYTE, win);
            MPI_Win_flush(to, win);
            check_bytes(in, len, rank, round, "what was put");
            break;
        default:
            MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
            check(sum == size, "a sum");
        }
    }
}
