// Handles in objects that close them, exceptions in the midst of a step, and steps that threads pass on.
#include <polyduct.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

struct Error : std::runtime_error {
    int code;
    explicit Error(int code) : std::runtime_error(polyduct_error_text()), code(code) {}
};

static int checked(int code) {
    if (code < 0) throw Error(code);
    return code;
}

static void expect(bool what, const char *words) {
    if (what) return;
    std::cerr << "not so: " << words << "\n";
    std::exit(1);
}

// A port that gives up what was not closed: an exception leaves no file that looks complete.
class Port {
    struct GiveUp {
        void operator()(polyduct_port *port) const { polyduct_abort(port, "unwound"); }
    };
    std::unique_ptr<polyduct_port, GiveUp> port;

public:
    Port(const std::string &url, std::vector<int64_t> shape) {
        polyduct_options options{};
        options.struct_size = sizeof options;
        options.units = 1;
        polyduct_port *made = nullptr;
        int ndim = static_cast<int>(shape.size());
        checked(polyduct_open_write(&made, url.c_str(), POLYDUCT_U8, ndim, shape.data(), "*", &options));
        port.reset(made);
    }
    polyduct_port *get() const { return port.get(); }
    void close() { checked(polyduct_close(port.release())); }
};

// A step that is forgotten unless it was published.
class Step {
    polyduct_port *port;
    void *memory = nullptr;
    std::size_t len = 0;

public:
    explicit Step(const Port &of) : port(of.get()) { checked(polyduct_step_begin(port, &memory, &len)); }
    Step(const Step &) = delete;
    Step &operator=(const Step &) = delete;
    ~Step() {
        if (port) polyduct_step_cancel(port);
    }
    void fill() {
        auto *bytes = static_cast<unsigned char *>(memory);
        for (std::size_t n = 0; n < len; n++) bytes[n] = static_cast<unsigned char>(n);
    }
    void publish() { checked(polyduct_step_end(std::exchange(port, nullptr))); }
};

int main() {
    try {
        Port port("unwound.npy", {4});
        Step step(port);
        step.fill();
        throw std::logic_error("in a step");
    } catch (const std::logic_error &) {
    }

    Port whole("whole.npy", {4});
    try {
        Step step(whole);
        throw 1;
    } catch (int) {
    }
    // The step that was forgotten is there again.
    Step step(whole);
    step.fill();
    try {
        Step second(whole);
        expect(false, "two steps at once");
    } catch (const Error &error) {
        expect(error.code == POLYDUCT_MISUSE && std::strstr(error.what(), "step open"), error.what());
    }
    step.publish();
    polyduct_port *raw = whole.get();
    whole.close();
    expect(polyduct_write(raw, "abcd", 4) == POLYDUCT_CLOSED, "a port that was closed");

    // A port that moves to another thread, which ends it; the error of one thread is none of another.
    Port moved("moved.npy", {4});
    std::thread other([port = std::move(moved)]() mutable {
        checked(polyduct_write(port.get(), "abcd", 4));
        expect(polyduct_error_code() == POLYDUCT_OK, "another thread's error");
        port.close();
    });
    other.join();

    // An interrupt that is asked for, and a question with state.
    bool asked = false;
    polyduct_options options{};
    options.struct_size = sizeof options;
    options.units = 1;
    options.interrupt = [](void *user) {
        *static_cast<bool *>(user) = true;
        return 1;
    };
    options.interrupt_user = &asked;
    polyduct_port *none = nullptr;
    int code = polyduct_open_read(&none, ("pipe:raii-" + std::to_string(std::rand())).c_str(), "*", &options);
    expect(code == POLYDUCT_INTERRUPTED && asked && !none, "an interrupt");
}
