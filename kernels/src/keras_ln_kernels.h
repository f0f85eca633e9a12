/* The C interface of the library.
 *
 * Recurrent layers with layer normalisation over whole sequences, forward and
 * backward, on a CPU. Plain C: pointers, sizes and functions, so that anything
 * can bind it. A function that can fail returns NULL, or a sentence that says
 * what is wrong and lives as long as the process.
 *
 * Letters: B batch, T steps, D features of the inputs, U units, n gates.
 * Arrays are dense and row-major, float or double throughout one problem, and
 * need no alignment beyond that of their elements. An array that is written
 * overlaps no other: a call whose arrays do is refused. Gates stand in the
 * order i, f, c, o (LSTM) and z, r, h (GRU).
 */
#ifndef KERAS_LN_KERNELS_H
#define KERAS_LN_KERNELS_H

#include <stdint.h>

#include "slots.h"

#define KLN_EXPORT __attribute__((visibility("default")))

/* Changes with every change of a struct, a meaning or a function here, but for
 * rows of slots.h, which whoever reads kln_slot sees. */
#define KLN_ABI_VERSION 11

#define KLN_RESIDUAL_ALIGNMENT 16 /* bytes, as malloc has it */

/* The sentence where there is no scratch memory for a call. */
#define KLN_OUT_OF_MEMORY "out of memory"

/* The sentence where backward cannot read the residuals. */
#define KLN_OTHER_RESIDUALS \
  "the residuals were not left by a forward pass of this problem"

#ifdef __cplusplus
extern "C" {
#endif

#define KLN_NUMBERED(cell, name, gates) KLN_##cell,
enum { KLN_CELLS(KLN_NUMBERED) };          /* cell */
enum { KLN_FLOAT32 = 0, KLN_FLOAT64 = 1 }; /* dtype */

/* Calls task(task_context, i) once for every i in 0 .. count - 1, in any
 * order, on any threads, and returns when all have returned. Tasks never wait
 * for each other. */
typedef void (*KlnTask)(void* task_context, int64_t index);
typedef void (*KlnParallelFor)(void* context, int64_t count, KlnTask task,
                               void* task_context);

/* GOMP_parallel of an OpenMP library, and its omp_get_num_threads. The first
 * calls body(context) once on each thread of a team, all at the same time, on
 * the calling thread too, and returns when all have returned; with 0 `threads`
 * the team is as large as the library likes. The second tells body its size. */
typedef void (*KlnOpenMpParallel)(void (*body)(void* context), void* context,
                                  unsigned threads, unsigned flags);
typedef int (*KlnOpenMpThreads)(void);

/* What forward and backward are called with: from `epsilon` on the rows of
 * slots.h, of 8 bytes each. */
#define KLN_TYPE_number double
#define KLN_TYPE_choice int64_t
#define KLN_TYPE_real void
#define KLN_TYPE_flag uint8_t
#define KLN_OPTION(type, name, ...) KLN_TYPE_##type name;
#define KLN_READ(type, name, ...) const KLN_TYPE_##type* name;
#define KLN_WRITTEN(type, name, ...) KLN_TYPE_##type* name;
#define KLN_READ_GRADIENT(type, name, ...) const KLN_TYPE_##type* d_##name;
#define KLN_WRITTEN_GRADIENT(type, name, ...) KLN_TYPE_##type* d_##name;
#define KLN_NONE(...)
typedef struct KlnProblem {
  int32_t abi_version;  /* KLN_ABI_VERSION */
  int32_t struct_bytes; /* sizeof(KlnProblem) */
  int32_t cell;
  int32_t dtype;
  int64_t batch, steps, features, units;

  /* How many threads may work on it: of an OpenMP team where openmp_parallel is
   * not NULL, else, by rows, of parallel_for where that is not NULL, else of the
   * library's own pool. In a forked child, where OpenMP's threads are gone, it
   * is always the pool. No result depends on it. */
  int64_t threads;
  KlnParallelFor parallel_for;
  void* parallel_context;
  KlnOpenMpParallel openmp_parallel;
  KlnOpenMpThreads openmp_threads;

  int64_t residual_bytes; /* that `residuals` has */
  KLN_OPTIONS(KLN_OPTION)
  KLN_ARGUMENTS(KLN_READ, KLN_READ)
  KLN_RESULTS(KLN_WRITTEN)

  /* Memory for what backward needs, of kln_residual_layout's bytes or more,
   * aligned to KLN_RESIDUAL_ALIGNMENT, or NULL for inference; backward reads it
   * as forward left it, for the same problem. */
  void* residuals;
  KLN_RESULTS(KLN_READ_GRADIENT)
  KLN_ARGUMENTS(KLN_WRITTEN_GRADIENT, KLN_NONE)
} KlnProblem;

/* A row of slots.h. */
typedef struct KlnSlot {
  const char* name;
  const char* letters; /* of the shape; "" of an option */
  const char* type;    /* "number", "choice", "real", "flag"; or "byte" */
  int64_t cells;       /* that have it, a bit for each */
  char forward, backward; /* what they do with it: 'r' reads, 'w' writes, or 0 */
} KlnSlot;

typedef struct KlnCell {
  const char* name;
  int64_t gates;
} KlnCell;

/* The rows in the order of the struct, and the cells by their numbers; NULL
 * after the last. */
KLN_EXPORT const KlnSlot* kln_slot(int64_t place);
KLN_EXPORT const KlnCell* kln_cell(int64_t number);

KLN_EXPORT int32_t kln_abi_version(void);

/* "avx512", "avx2" or "neon", or "generic", which every CPU has: what calls
 * take. */
KLN_EXPORT const char* kln_instruction_set(void);

/* Makes calls take `name` from now on; NULL for the best there is. The
 * environment variable KERAS_LN_KERNELS_ISA does the same at the start. */
KLN_EXPORT const char* kln_use_instruction_set(const char* name);

/* The bytes of residuals: fixed, of each row, and of each of its steps, that is
 * layout[0] + batch * (layout[1] + steps * layout[2]). Depends on features,
 * units, cell and which weights there are, neither on threads nor on the
 * instruction set. */
KLN_EXPORT const char* kln_residual_layout(const KlnProblem* problem,
                                           int64_t layout[3]);

/* As many of the problem's threads as have enough to do, to wake one takes some
 * ten microseconds: calls take no more. 1 where kln_forward would refuse the
 * problem. */
KLN_EXPORT int64_t kln_useful_threads(const KlnProblem* problem);

/* How a call shares out the work: by "rows" of the batch, which threads take
 * through all steps, or by "columns" of the products of a step, before and
 * after which threads meet. A rule of sizes, threads and cores decides; where
 * the library's pool cannot give as many threads, it is by rows. NULL where
 * kln_forward would refuse the problem. */
KLN_EXPORT const char* kln_sharing(const KlnProblem* problem);

/* Makes calls share it out so from now on, among all threads that are asked
 * for; NULL for the rule. The environment variable KERAS_LN_KERNELS_SHARING
 * does the same at the start. For tests and measurements. */
KLN_EXPORT const char* kln_use_sharing(const char* name);

/* Bytes of the cache that the rule supposes a core to have for itself. */
KLN_EXPORT int64_t kln_core_cache_bytes(void);

/* How often the library has run CPUID, for a test: it traps in a virtual
 * machine. */
KLN_EXPORT int64_t kln_cpuid_runs(void);

KLN_EXPORT const char* kln_forward(const KlnProblem* problem);
KLN_EXPORT const char* kln_backward(const KlnProblem* problem);

/* C (rows, columns) = A (rows, depth) B (depth, columns) by the product the
 * cells use, on the calling thread: for tests and for measuring its rate. */
KLN_EXPORT const char* kln_product(int32_t dtype, int64_t rows, int64_t depth,
                                   int64_t columns, const void* a,
                                   const void* b, void* c, int64_t times);

/* Frees the scratch memory that is kept between calls. */
KLN_EXPORT void kln_release_scratch(void);

#ifdef __cplusplus
}
#endif

#endif
