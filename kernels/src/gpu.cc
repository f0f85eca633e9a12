// Launches kernels through the CUDA driver, whose functions the caller hands
// over: there is no CUDA header here, and no CUDA library is linked.
//
// The structs and numbers are those of cuda.h, which are the driver's ABI.
#include "gpu.h"

#include <stddef.h>

namespace {

struct Attribute {  // CUlaunchAttribute
  int id, pad;
  union {
    char bytes[64];
    unsigned cluster[3];
    int cooperative;
  };
};
enum { kCooperative = 2, kClusterDimension = 4 };      // CUlaunchAttributeID
enum { kDynamicShared = 8, kNonPortableCluster = 14 };  // CUfunction_attribute
enum { kMultiprocessors = 16 };                        // CUdevice_attribute
enum { kDeviceOrdinal = 9 };                           // CUpointer_attribute
enum {  // CUresult
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotSupported = 801,
  kInvalidClusterSize = 912
};

struct Config {  // CUlaunchConfig
  unsigned grid[3], block[3], shared;
  void* stream;
  Attribute* attributes;
  unsigned count;
};

struct Driver {
  int (*LibraryLoadData)(void**, const void*, const int*, void**, unsigned,
                         const int*, void**, unsigned);
  int (*LibraryGetKernel)(void**, void*, const char*);
  int (*KernelGetFunction)(void**, void*);
  int (*FuncSetAttribute)(void*, int, int);
  int (*OccupancyMaxActiveClusters)(int*, void*, const Config*);
  int (*OccupancyMaxActiveBlocksPerMultiprocessor)(int*, void*, int, size_t);
  int (*LaunchKernelEx)(const Config*, void*, void**, void**);
  int (*MemsetD32Async)(uint64_t, unsigned, size_t, void*);
  int (*GetErrorString)(int, const char**);
  int (*DevicePrimaryCtxRetain)(void**, int);
  int (*CtxPushCurrent)(void*);
  int (*CtxPopCurrent)(void**);
  int (*DeviceGetAttribute)(int*, int, int);
  int (*PointerGetAttribute)(void*, int, uint64_t);
} driver;

const char* explained(int code) {
  if (!code) return nullptr;
  if (code == kOutOfMemory) return KLN_OUT_OF_MEMORY;
  const char* text = nullptr;
  driver.GetErrorString(code, &text);
  return text ? text : "an error that the CUDA driver has no words for";
}

// Entries are added and never changed: they are read without a lock.
struct Kept {
  KlnGpuShape shape;
  int32_t device;
  void* kernel;
};
constexpr int kMostKept = 1024;
Kept kept[kMostKept];
int kept_count;
char kept_lock;

bool equal(const Kept& k, const KlnGpuLaunch& l) {
  return k.device == l.device &&
         !__builtin_memcmp(&k.shape, &l.shape, sizeof k.shape);
}

// The context that frameworks use of a device, current while this lives.
class Current {
 public:
  explicit Current(int device) {
    constexpr int kDevices = 64;
    static void* contexts[kDevices];
    void* context = nullptr;
    const bool known = device >= 0 && device < kDevices;
    if (known) context = __atomic_load_n(&contexts[device], __ATOMIC_RELAXED);
    // Kept: it lives as long as the frameworks' own.
    if (!context) code = driver.DevicePrimaryCtxRetain(&context, device);
    if (!code && known)
      __atomic_store_n(&contexts[device], context, __ATOMIC_RELAXED);
    if (!code) code = driver.CtxPushCurrent(context);
    pushed_ = !code;
  }
  ~Current() {
    void* context;
    if (pushed_) driver.CtxPopCurrent(&context);
  }
  Current(const Current&) = delete;
  void operator=(const Current&) = delete;

  int code = 0;

 private:
  bool pushed_ = false;
};

struct Prepared {
  Attribute attribute = {};
  Config config = {};
  void* function = nullptr;
  int groups = 0;  // at once

  int prepare(const KlnGpuLaunch& l) {
    const KlnGpuShape& s = l.shape;
    if (s.cluster) {
      attribute.id = kClusterDimension;
      attribute.cluster[0] = unsigned(s.blocks);
      attribute.cluster[1] = attribute.cluster[2] = 1;
    } else {
      attribute.id = kCooperative;
      attribute.cooperative = 1;
    }
    config = {{unsigned(s.blocks), 1, 1},
              {unsigned(s.threads), 1, 1},
              unsigned(s.shared_bytes),
              l.stream,
              &attribute,
              1};
    int code = driver.KernelGetFunction(&function, l.kernel);
    if (!code)
      code = driver.FuncSetAttribute(function, kDynamicShared, s.shared_bytes);
    if (!code && s.cluster && s.blocks > 8)
      code = driver.FuncSetAttribute(function, kNonPortableCluster, 1);
    return code;
  }

  int count(const KlnGpuLaunch& l) {
    const KlnGpuShape& s = l.shape;
    if (s.cluster) {
      const int code =
          driver.OccupancyMaxActiveClusters(&groups, function, &config);
      // A part of a GPU that has no room for so many blocks side by side.
      const bool none = code == kInvalidClusterSize || code == kInvalidValue ||
                        code == kNotSupported;
      if (none) groups = 0;
      return none ? 0 : code;
    }
    int each = 0, processors = 0;
    int code = driver.OccupancyMaxActiveBlocksPerMultiprocessor(
        &each, function, s.threads, size_t(s.shared_bytes));
    if (!code)
      code = driver.DeviceGetAttribute(&processors, kMultiprocessors, l.device);
    groups = each * processors / s.blocks;
    return code;
  }
};

// The place of an array that is another device's; or -1, or -2 if the driver does
// not know of one, as of addresses that are mapped piece by piece.
int stranger(const KlnGpuLaunch& l) {
  const char* const start = reinterpret_cast<const char*>(&l.sequence);
  const int count = int(offsetof(Sequence, batch) / sizeof(void*));
  int found = -1;
  for (int i = 0; i < count; ++i) {
    const uint64_t at = reinterpret_cast<const uint64_t*>(start)[i];
    int device = -1;
    if (!at) continue;
    if (driver.PointerGetAttribute(&device, kDeviceOrdinal, at) || device < 0)
      found = -2;
    else if (device != l.device)
      return i;
  }
  return found;
}

}  // namespace

extern "C" {

void kln_gpu_use_driver(void* const* functions) {
  __builtin_memcpy(&driver, functions, sizeof driver);
}

void kln_gpu_shape(KlnGpuShape* s) {
  const auto shape =
      s->kernel & KLN_GPU_BACKWARD ? backward_shape : forward_shape;
  const Shape made = shape(s->kernel % 2, s->units, s->blocks, s->rows, s->kept,
                           s->format, s->cluster != 0);
  s->threads = made.warps * 32;
  s->shared_bytes = made.shared;
  s->box_bytes = made.box;
}

const char* kln_gpu_load(const void* image, const char* name, void** kernel) {
  void* library;
  int code = driver.LibraryLoadData(&library, image, nullptr, nullptr, 0,
                                    nullptr, nullptr, 0);
  if (!code) code = driver.LibraryGetKernel(kernel, library, name);
  return explained(code);
}

void* kln_gpu_kept(const KlnGpuLaunch* launch) {
  const int count = __atomic_load_n(&kept_count, __ATOMIC_ACQUIRE);
  for (int i = 0; i < count; ++i)
    if (equal(kept[i], *launch)) return kept[i].kernel;
  return nullptr;
}

const char* kln_gpu_keep(const KlnGpuLaunch* launch) {
  while (__atomic_test_and_set(&kept_lock, __ATOMIC_ACQUIRE)) {
  }
  const char* wrong = nullptr;
  if (kln_gpu_kept(launch) != launch->kernel) {
    if (kept_count < kMostKept) {
      kept[kept_count] = {launch->shape, launch->device, launch->kernel};
      __atomic_store_n(&kept_count, kept_count + 1, __ATOMIC_RELEASE);
    } else {
      wrong = "a process has no more than 1024 kernels on GPUs";
    }
  }
  __atomic_clear(&kept_lock, __ATOMIC_RELEASE);
  return wrong;
}

const char* kln_gpu_device_of(const void* at, int32_t* device) {
  if (!driver.PointerGetAttribute) return "no CUDA driver is open";
  return explained(driver.PointerGetAttribute(device, kDeviceOrdinal,
                                              reinterpret_cast<uint64_t>(at)));
}

const char* kln_gpu_groups(KlnGpuLaunch* launch, int32_t* groups) {
  const Current current(launch->device);
  Prepared prepared;
  int code = current.code;
  if (!code) code = prepared.prepare(*launch);
  if (!code) code = prepared.count(*launch);
  *groups = prepared.groups;
  return explained(code);
}

const char* kln_gpu_launch(KlnGpuLaunch* launch) {
  Sequence& sequence = launch->sequence;
  const Current current(launch->device);
  launch->code = current.code;
  if (current.code) return explained(current.code);
  launch->array = stranger(*launch);
  if (launch->array >= 0) return "an array is not in the device's memory";
  Prepared prepared;
  int code = prepared.prepare(*launch);
  const int rows = launch->shape.rows;
  const int all = ceil_of(sequence.batch, rows);
  int at_once = all;
  // Clusters wait for their turn. Blocks that meet in memory must all run, or
  // the first ones would wait for ever for those that have not begun.
  if (!code && !launch->shape.cluster) {
    code = prepared.count(*launch);
    if (launch->groups < at_once) at_once = launch->groups;
    if (prepared.groups < at_once) at_once = prepared.groups;
    if (!code && at_once < 1) return "no group of blocks fits the device";
  }
  for (int first = 0; !code && first < all; first += at_once) {
    const int groups = all - first < at_once ? all - first : at_once;
    if (!launch->shape.cluster)
      code = driver.MemsetD32Async(
          reinterpret_cast<uint64_t>(sequence.counters), 0,
          size_t(groups) * 32, launch->stream);
    sequence.first_row = first * rows;
    prepared.config.grid[0] = unsigned(groups * launch->shape.blocks);
    void* arguments[] = {&sequence};
    if (!code)
      code = driver.LaunchKernelEx(&prepared.config, prepared.function,
                                   arguments, nullptr);
  }
  launch->code = code;
  return explained(code);
}

}  // extern "C"
