/* A rank to which the system gives nothing more, before it and the other have reached each other: both ranks of a job,
 * of which only one sends at first. `limits SENDER RANK WHAT`: `files`, no more descriptors; `memory`, no more than
 * 1 MiB. What comes is right, or the job ends. */
#include "check.h"
#include <fcntl.h>
#include <sys/resource.h>

enum { LONG = 1 << 20 };

static void limit(const char *what) {
    struct rlimit limit;
    if (strcmp(what, "files") == 0) {
        int next = open("/dev/null", O_RDONLY);
        limit.rlim_cur = limit.rlim_max = next;
        close(next);
        check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "a limit");
    } else if (strcmp(what, "memory") == 0) {
        unsigned long pages = 0;
        FILE *size = fopen("/proc/self/statm", "r");
        check(size && fscanf(size, "%lu", &pages) == 1, "the size");
        fclose(size);
        limit.rlim_cur = limit.rlim_max = pages * 4096 + LONG;
        check(setrlimit(RLIMIT_AS, &limit) == 0, "a limit");
    }
}

/* Messages to one side, and then to the other. */
static void send(int rank, int sender, unsigned char *bytes) {
    for (int n = 0; n < 200; n++) {
        int len = n % 10 ? n * 40 : LONG;
        if (rank == sender) {
            fill(bytes, len, sender, n);
            MPI_Send(bytes, len, MPI_BYTE, 1 - sender, n, MPI_COMM_WORLD);
        } else {
            MPI_Recv(bytes, len, MPI_BYTE, sender, n, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_bytes(bytes, len, sender, n, "a message");
        }
    }
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    check(argc == 4, "arguments");
    unsigned char *bytes = malloc(LONG);
    int sender = atoi(argv[1]);
    memset(bytes, 0, LONG);
    if (rank == atoi(argv[2])) limit(argv[3]);
    send(rank, sender, bytes);
    send(rank, 1 - sender, bytes);
    if (rank == 0) printf("they went without\n");
    MPI_Finalize();
    return 0;
}
