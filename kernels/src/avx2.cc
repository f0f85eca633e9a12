#include "kernels_inl.h"

namespace kln {

extern const Kernels avx2_kernels = KLN_KERNELS("avx2");

}  // namespace kln
