// Work that ends late, as on the streams of a GPU.
#pragma once

#include <ATen/ATen.h>

namespace strict {

// Makes an operation on an ordinal run after the work that was launched there before. It throws the
// error of that work.
void follow(int device);

// Ends asynchronous copies of an ordinal, because the program waits for it.
void waited(int device);

// Copies between the host and a device at the end of the present work. The program may use or change
// the host's memory only after it has waited.
void copy_later(const at::Tensor &from, const at::Tensor &to);

} // namespace strict
