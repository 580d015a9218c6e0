// SPDX-License-Identifier: Apache-2.0
//
// Loaded with dlopen: exceptions leave it in both directions.
#include "shapes.h"

#include <cstring>
#include <exception>
#include <memory>

namespace {

// Known to nobody else: outside it is only a std::exception.
struct Own : std::exception {
    const char *what() const noexcept override { return "thrower's own"; }
};

struct Guard {
    Report report;
    const char *line;
    ~Guard() { report(line); }
};

void inner(void (*back)(), Report report) {
    Guard guard{report, "inner frame destroyed"};
    back();
}

} // namespace

void throw_one(const char *kind) {
    if (!std::strcmp(kind, "shape"))
        std::unique_ptr<Shape>(make_square(-1));
    if (!std::strcmp(kind, "range"))
        (void)std::string("short").at(99);
    if (!std::strcmp(kind, "own"))
        throw Own();
    if (!std::strcmp(kind, "int"))
        throw 7;
    try {
        throw_one("shape");
    } catch (const ShapeError &) {
        std::throw_with_nested(std::logic_error("around it"));
    }
}

void call_back(void (*back)(), Report report) {
    Guard guard{report, "outer frame destroyed"};
    inner(back, report);
}
