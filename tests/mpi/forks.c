/* Ranks that fork while their messages are under way: children that end at once, that become another program, and
 * one that outlives the rank. */
#include "check.h"
#include <sys/wait.h>

enum { ROUNDS = 60, LONG = 1 << 20 };
static const int LENGTHS[] = {8, 5000, 60000, LONG};

static void wait_for(pid_t child) {
    int status;
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child");
}

int main(int argc, char **argv) {
    int rank, size, ends[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    unsigned char *out = malloc(LONG), *in = malloc(LONG);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    pid_t last = 0;
    for (int n = 0; n < ROUNDS; n++) {
        int len = LENGTHS[n % 4];
        MPI_Request requests[2];
        fill(out, len, rank, n);
        MPI_Isend(out, len, MPI_BYTE, right, 0, MPI_COMM_WORLD, &requests[0]);
        if (n % 3) MPI_Irecv(in, len, MPI_BYTE, left, 0, MPI_COMM_WORLD, &requests[1]);
        pid_t child = 0;
        if (n == ROUNDS / 2) {
            /* It ends when the rank has. */
            check(pipe(ends) == 0, "a pipe");
            if ((last = fork()) == 0) {
                char end;
                close(ends[1]);
                _exit((int)read(ends[0], &end, 1));
            }
            close(ends[0]);
        } else if ((child = fork()) == 0) {
            if (n % 2) execlp("true", "true", NULL);
            /* What the parent is about to send is written over in the child alone. */
            memset(out, 0, LONG), memset(in, 0, LONG);
            _exit(0);
        }
        if (n % 3 == 0) MPI_Irecv(in, len, MPI_BYTE, left, 0, MPI_COMM_WORLD, &requests[1]);
        if (child && n % 4 < 2) wait_for(child), child = 0;
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        check_bytes(in, len, left, n, "a message around a fork");
        if (child) wait_for(child);
    }
    check(system("true") == 0, "a shell");
    check(last > 0 && waitpid(last, NULL, WNOHANG) == 0, "the last child");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks forked\n", size);
    MPI_Finalize();
    return 0;
}
