// Two substances that react and diffuse (Gray and Scott), in C++ and MPI: each process has a block of the
// plate, and neighbours exchange the edges of theirs. Every so often the plate goes to whoever looks, in
// whatever pieces that has it: here the layout is what the communicator's grid says.
//
//     mpicxx -O2 examples/c/stencil.cpp $(polyduct config --cflags --libs) -o stencil
//     mpirun -n 4 ./stencil pipe:spots 400 10000 & python examples/c/spots.py pipe:spots spots.png
#include <polyduct_mpi.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace {

// A polyduct call that fails ends all processes, with its words.
void check(int code) {
    if (code >= 0) return;
    std::fprintf(stderr, "stencil: %s\n", polyduct_error_text());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// A block with a cell more on each side.
struct Block {
    int rows, columns;
    std::vector<float> cells;

    Block(int rows, int columns, float value)
        : rows(rows), columns(columns), cells(static_cast<size_t>((rows + 2) * (columns + 2)), value) {}
    float &at(int i, int j) { return cells[static_cast<size_t>((i + 1) * (columns + 2) + j + 1)]; }
};

void exchange(Block &b, MPI_Comm cart) {
    MPI_Datatype row, column;
    MPI_Type_contiguous(b.columns + 2, MPI_FLOAT, &row);
    MPI_Type_vector(b.rows + 2, 1, b.columns + 2, MPI_FLOAT, &column);
    MPI_Type_commit(&row);
    MPI_Type_commit(&column);
    for (int dim = 0; dim < 2; dim++) {
        int before, after;
        MPI_Cart_shift(cart, dim, 1, &before, &after);
        MPI_Datatype edge = dim ? column : row;
        float *first = dim ? &b.at(-1, 0) : &b.at(0, -1),
              *last = dim ? &b.at(-1, b.columns - 1) : &b.at(b.rows - 1, -1);
        float *low = &b.at(-1, -1), *high = dim ? &b.at(-1, b.columns) : &b.at(b.rows, -1);
        MPI_Sendrecv(first, 1, edge, before, 0, high, 1, edge, after, 0, cart, MPI_STATUS_IGNORE);
        MPI_Sendrecv(last, 1, edge, after, 1, low, 1, edge, before, 1, cart, MPI_STATUS_IGNORE);
    }
    MPI_Type_free(&row);
    MPI_Type_free(&column);
}

} // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 4) {
        std::fprintf(stderr, "usage: stencil URL SIZE STEPS\n");
        return 2;
    }
    const std::int64_t size = std::atoll(argv[2]), shape[] = {size, size};
    const int steps = std::atoi(argv[3]), every = steps > 20 ? steps / 20 : 1;
    int ranks, dims[] = {0, 0}, periods[] = {1, 1};
    MPI_Comm cart;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Dims_create(ranks, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);

    char *layout = nullptr;
    polyduct_port *out;
    polyduct_options options = {};
    polyduct_part part = {};
    options.struct_size = sizeof options;
    options.timeout = 60;
    part.struct_size = sizeof part;
    // It has a grid, and as many dimensions as the plate.
    polyduct_layout_of_cart(cart, 2, shape, &layout);
    check(polyduct_open_write(&out, argv[1], POLYDUCT_F32, 2, shape, layout, &options));
    check(polyduct_info(out, 0, &part));
    std::free(layout);

    const int rows = static_cast<int>(part.local_shape[0]), columns = static_cast<int>(part.local_shape[1]);
    Block u(rows, columns, 1), v(rows, columns, 0), u2 = u, v2 = v;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            // A few squares of the second substance.
            std::int64_t y = (part.lo[0] + i) * 8 / size, x = (part.lo[1] + j) * 8 / size;
            if ((y * 5 + x * 3) % 11 == 4) {
                u.at(i, j) = 0.5f;
                v.at(i, j) = 0.25f;
            }
        }
    for (int step = 0; step < steps; step++) {
        exchange(u, cart);
        exchange(v, cart);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) {
                const float a = u.at(i, j), b = v.at(i, j), reacts = a * b * b;
                const auto spreads = [&](Block &w) {
                    return w.at(i - 1, j) + w.at(i + 1, j) + w.at(i, j - 1) + w.at(i, j + 1) - 4 * w.at(i, j);
                };
                u2.at(i, j) = a + 0.16f * spreads(u) - reacts + 0.040f * (1 - a);
                v2.at(i, j) = b + 0.08f * spreads(v) + reacts - 0.100f * b;
            }
        std::swap(u, u2);
        std::swap(v, v2);
        if ((step + 1) % every) continue;
        void *memory;
        check(polyduct_step_begin(out, &memory, nullptr));
        float *a = static_cast<float *>(memory);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++)
                a[i * part.local_strides[0] + j * part.local_strides[1]] = v.at(i, j);
        check(polyduct_step_end(out));
    }
    check(polyduct_close(out));
    MPI_Comm_free(&cart);
    MPI_Finalize();
    return 0;
}
