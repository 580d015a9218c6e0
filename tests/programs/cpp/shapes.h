// SPDX-License-Identifier: Apache-2.0
//
// What the program, the library it is linked with (shapes.cpp) and the libraries it loads (thrower.cpp, counter.cpp)
// share: a class hierarchy, an exception type, and the functions looked up by name.
#pragma once

#include <stdexcept>
#include <string>

class Shape {
  public:
    virtual ~Shape();
    virtual double area() const = 0;
};

// Its type information is in libshapes.so: one address for all who throw and catch it.
class ShapeError : public std::runtime_error {
  public:
    ShapeError(const std::string &what, int code);
    ~ShapeError() override;
    int code() const { return code_; }

  private:
    int code_;
};

// A square whose side is not negative; ShapeError with code 22 otherwise.
Shape *make_square(double side);

using Report = void (*)(const char *line);

extern "C" {
// libthrower.so: throws the type that `kind` names ("shape", "range", "own", "int", "nested").
void throw_one(const char *kind);
// libthrower.so: calls `back` below two frames that have something to destroy; tells `report` when they are.
void call_back(void (*back)(), Report report);
// libcounter.so: adds to a counter of the calling thread, whose destructor tells the sum, and gives it back.
long count(long by);
// libcounter.so: where destructors and the library's end are reported.
void set_report(Report report);
}
