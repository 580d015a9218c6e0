// SPDX-License-Identifier: Apache-2.0
//
// The library the program is linked with.
#include "shapes.h"

namespace {

class Square : public Shape {
  public:
    explicit Square(double side) : side_(side) {}
    double area() const override { return side_ * side_; }

  private:
    double side_;
};

} // namespace

Shape::~Shape() = default;

ShapeError::ShapeError(const std::string &what, int code) : std::runtime_error(what), code_(code) {}

ShapeError::~ShapeError() = default;

Shape *make_square(double side) {
    if (side < 0)
        throw ShapeError("a side of " + std::to_string(side), 22);
    return new Square(side);
}
