#include "kernels_inl.h"

namespace kln {

extern const Kernels avx512_kernels = KLN_KERNELS("avx512");

}  // namespace kln
