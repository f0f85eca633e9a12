/* The C interface to kernels on a GPU: cuda/ has their sources, which NVRTC
 * compiles elsewhere. A function that can fail returns NULL, or a sentence that
 * says what is wrong and lives as long as the process.
 */
#ifndef KERAS_LN_KERNELS_GPU_H
#define KERAS_LN_KERNELS_GPU_H

#include "cuda/sequence.h"
#include "keras_ln_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which kernel: a cell's number plus one of these. */
enum { KLN_GPU_FORWARD = 0, KLN_GPU_BACKWARD = 2 };

/* A kernel's template arguments, and what follows from them. */
typedef struct KlnGpuShape {
  int32_t kernel, units, blocks, rows, kept, format, cluster;
  int32_t threads, shared_bytes, box_bytes; /* kln_gpu_shape sets these */
} KlnGpuShape;

typedef struct KlnGpuLaunch {
  KlnGpuShape shape;
  int32_t device; /* the driver's number of it */
  int32_t array;  /* of Sequence, where an array is what is wrong; or -1; -2
                   * if the driver does not know where one is */
  int32_t groups; /* that meet in `exchange` and `counters` at once at most */
  int32_t code;   /* the driver's of an error */
  void* kernel;   /* from kln_gpu_load */
  void* stream;
  Sequence sequence;
} KlnGpuLaunch;

/* Takes the driver's functions, in the order of `Driver` in gpu.cc: it is the
 * caller who opens the driver. */
KLN_EXPORT void kln_gpu_use_driver(void* const* functions);

KLN_EXPORT void kln_gpu_shape(KlnGpuShape* shape);

/* Loads an image that NVRTC made, for all devices of its kind. */
KLN_EXPORT const char* kln_gpu_load(const void* image, const char* name,
                                    void** kernel);

/* Keeps the kernel of a launch for `kln_gpu_kept`, which finds it by its shape
 * and device: a program of XLA's holds numbers, no address. */
KLN_EXPORT const char* kln_gpu_keep(const KlnGpuLaunch* launch);
KLN_EXPORT void* kln_gpu_kept(const KlnGpuLaunch* launch);

/* The device in whose memory this is. */
KLN_EXPORT const char* kln_gpu_device_of(const void* at, int32_t* device);

/* How many groups of blocks run at once on the device. */
KLN_EXPORT const char* kln_gpu_groups(KlnGpuLaunch* launch, int32_t* groups);

/* All rows and steps, on the stream; does not wait for it. */
KLN_EXPORT const char* kln_gpu_launch(KlnGpuLaunch* launch);

#ifdef __cplusplus
}
#endif

#endif
