#include "kernels_inl.h"

namespace kln {

extern const Kernels neon_kernels = KLN_KERNELS("neon");

}  // namespace kln
