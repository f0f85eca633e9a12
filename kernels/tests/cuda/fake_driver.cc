// A CUDA driver of which only what gpu.cc and gpu.py call is there. Kernels run
// emulated, found by the name that NVRTC gives them; memory is the process's
// own. `fake` is what a test sets and sees. Threads may call, but kernels run
// one after the other.
#include <dlfcn.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "kernels.h"

namespace {

struct Attribute {
  int id, pad;
  unsigned x, y, z;
  char rest[52];
};

struct Config {
  unsigned grid[3], block[3], shared;
  void* stream;
  const Attribute* attributes;
  unsigned count;
};

struct Fake {
  std::string log;  // a line for each call of interest
  std::map<std::string, int> failures;
  std::map<std::pair<int, int>, int> attributes;  // by device and number
  std::map<uint64_t, std::pair<uint64_t, int>> memory;  // from, to, device
  int version = 13000, devices = 2, clusters = 8, blocks = 1;
  unsigned seed = 1;
  std::atomic<int> pushed{0};  // contexts of all threads
  std::recursive_mutex lock;
} fake;

// Contexts of the thread: a device's number and 100.
thread_local std::vector<intptr_t> current;
thread_local int shared_limit, cluster_limit;

int of_current(int attribute) {
  const std::lock_guard<std::recursive_mutex> guard(fake.lock);
  return fake.attributes[{int(current.back() - 100), attribute}];
}

int answer(const std::string& function) {
  const auto found = fake.failures.find(function);
  return found == fake.failures.end() ? 0 : found->second;
}

void note(const char* what, long a, long b = 0, long c = 0, long d = 0,
          long e = 0) {
  const std::lock_guard<std::recursive_mutex> guard(fake.lock);
  char line[160];
  snprintf(line, sizeof line, "%s %ld %ld %ld %ld %ld\n", what, a, b, c, d, e);
  fake.log += line;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define ANSWER(name) \
  if (const int code = answer(name)) return code

// Which call gives which code from now on; 0 for none.
EXPORT void fake_fail(const char* function, int code) {
  if (code)
    fake.failures[function] = code;
  else
    fake.failures.erase(function);
}
EXPORT void fake_set(const char* what, int value) {
  const std::string name = what;
  (name == "version"    ? fake.version
   : name == "devices"  ? fake.devices
   : name == "clusters" ? fake.clusters
                        : fake.blocks) = value;
}
EXPORT void fake_attribute(int device, int attribute, int value) {
  fake.attributes[{device, attribute}] = value;
}
EXPORT void fake_memory(uint64_t at, uint64_t bytes, int device) {
  const std::lock_guard<std::recursive_mutex> guard(fake.lock);
  fake.memory[at] = {at + bytes, device};
}
EXPORT void fake_forget() { fake.memory.clear(), fake.log.clear(); }
EXPORT void fake_seed(unsigned seed) { fake.seed = seed; }
EXPORT const char* fake_log() { return fake.log.c_str(); }
EXPORT int fake_contexts() { return fake.pushed; }

EXPORT int cuInit(unsigned) { return answer("cuInit"); }
EXPORT int cuDriverGetVersion(int* version) {
  *version = fake.version;
  return 0;
}
EXPORT int cuDeviceGetCount(int* count) {
  *count = fake.devices;
  return answer("cuDeviceGetCount");
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (device < 0 || device >= fake.devices) return 101;
  *value = fake.attributes[{device, attribute}];
  return 0;
}
EXPORT int cuDeviceGetName(char* name, int, int device) {
  strcpy(name, fake.attributes[{device, 75}] == 9 ? "an H100" : "an A100");
  return answer("cuDeviceGetName");
}
EXPORT int cuGetErrorString(int code, const char** text) {
  *text = code == 1     ? "invalid argument"
          : code == 101 ? "invalid device ordinal"
          : code == 209 ? "no kernel image is available for execution on the "
                          "device"
          : code == 700 ? "an illegal memory access was encountered"
                        : nullptr;
  return *text ? 0 : 1;
}
EXPORT int cuLibraryLoadData(void** library, const void* image, const int*,
                             void**, unsigned, const int*, void**, unsigned) {
  *library = const_cast<void*>(image);
  note("load", 0);
  return answer("cuLibraryLoadData");
}
EXPORT int cuLibraryGetKernel(void** kernel, void*, const char* name) {
  ANSWER("cuLibraryGetKernel");
  Dl_info here;
  dladdr(&fake, &here);  // TensorFlow has functions of CUDA's names.
  void* const self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *kernel = dlsym(self, name);
  return *kernel ? 0 : 500;
}
EXPORT int cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  shared_limit = 48 << 10, cluster_limit = 8;
  return current.empty() ? 201 : answer("cuKernelGetFunction");
}
EXPORT int cuFuncSetAttribute(void*, int id, int value) {
  if (id == 8 && value > of_current(97)) return 1;
  if (id == 8) shared_limit = value > shared_limit ? value : shared_limit;
  if (id == 14) cluster_limit = 16;
  return answer("cuFuncSetAttribute");
}
EXPORT int cuOccupancyMaxActiveClusters(int* n, void*, const Config*) {
  *n = fake.clusters;
  return answer("cuOccupancyMaxActiveClusters");
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, void*, int,
                                                       size_t) {
  *n = fake.blocks;
  return answer("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}
EXPORT int cuMemsetD32Async(uint64_t at, unsigned value, size_t n,
                            void* stream) {
  note("memset", long(n), long(value), long(stream));
  std::fill_n(reinterpret_cast<unsigned*>(at), n, value);
  return answer("cuMemsetD32Async");
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (device < 0 || device >= fake.devices) return 101;
  *context = reinterpret_cast<void*>(intptr_t(device) + 100);
  note("retain", device);
  return answer("cuDevicePrimaryCtxRetain");
}
EXPORT int cuCtxPushCurrent_v2(void* context) {
  ANSWER("cuCtxPushCurrent");
  current.push_back(reinterpret_cast<intptr_t>(context));
  ++fake.pushed;
  return 0;
}
EXPORT int cuCtxPopCurrent_v2(void** context) {
  *context = reinterpret_cast<void*>(current.back());
  current.pop_back();
  --fake.pushed;
  return 0;
}
EXPORT int cuPointerGetAttribute(void* value, int attribute, uint64_t at) {
  const std::lock_guard<std::recursive_mutex> guard(fake.lock);
  const auto next = fake.memory.upper_bound(at);
  if (attribute != 9 || next == fake.memory.begin()) return 1;
  const auto& [to, device] = std::prev(next)->second;
  if (at >= to) return 1;
  *static_cast<int*>(value) = device;
  return 0;
}
// The launch's stream, device, grid, threads and shared memory are in the log.
EXPORT int cuLaunchKernelEx(const Config* c, void* function, void** arguments,
                            void**) {
  ANSWER("cuLaunchKernelEx");
  if (c->count != 1) return 1;
  const Attribute& a = c->attributes[0];
  const bool cluster = a.id == 4;
  if (!cluster && (a.id != 2 || a.x != 1)) return 1;
  const unsigned blocks = cluster ? a.x : c->grid[0];
  if (int(c->shared) > shared_limit) return 1;
  if (cluster && (int(blocks) > cluster_limit || a.y != 1 || a.z != 1))
    return 1;
  // All blocks of a grid that meet have to run at once.
  if (!cluster && int(blocks) > fake.blocks * of_current(16)) return 720;
  if (c->grid[0] % blocks) return 1;
  note(cluster ? "cluster" : "grid", long(c->stream),
       long(current.back() - 100), long(c->grid[0]), long(c->block[0]),
       long(c->shared));
  const std::lock_guard<std::recursive_mutex> guard(fake.lock);
  const auto kernel = reinterpret_cast<void (*)(Sequence)>(function);
  const auto& sequence = *static_cast<const Sequence*>(arguments[0]);
  emu::launch([&] { kernel(sequence); }, c->grid[0], c->block[0], blocks,
              c->shared, fake.seed);
  return 0;
}
