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

#define KLN_EXPORT __attribute__((visibility("default")))

/* Changes with every change of a struct, a meaning or a function here. */
#define KLN_ABI_VERSION 6

#define KLN_RESIDUAL_ALIGNMENT 16 /* bytes, as malloc has it */

/* The sentence where there is no scratch memory for a call. */
#define KLN_OUT_OF_MEMORY "out of memory"

#ifdef __cplusplus
extern "C" {
#endif

enum { KLN_LSTM = 0, KLN_GRU = 1, KLN_SIMPLE_RNN = 2 }; /* cell */
enum { KLN_FLOAT32 = 0, KLN_FLOAT64 = 1 };              /* dtype */

/* Calls task(task_context, i) once for every i in 0 .. count - 1, in any
 * order, on any threads, and returns when all have returned. Tasks never wait
 * for each other. */
typedef void (*KlnTask)(void* task_context, int64_t index);
typedef void (*KlnParallelFor)(void* context, int64_t count, KlnTask task,
                               void* task_context);

/* What forward and backward have in common. A pointer may be NULL where the
 * comment says "or NULL". */
typedef struct KlnProblem {
  int32_t abi_version;  /* KLN_ABI_VERSION */
  int32_t struct_bytes; /* sizeof(KlnProblem) */
  int32_t cell;
  int32_t dtype;
  int32_t go_backwards;           /* visit the last step first */
  int32_t carry_normalized_state; /* LSTM: the next step gets N(c) */
  int64_t batch, steps, features, units;
  double epsilon; /* > 0, inside the square root */

  /* Zoneout: the share of h, and of an LSTM's c, that stays what it was before
   * a step, in [0, 1). 0 where there are choices instead. */
  double zoneout_share, cell_zoneout_share;

  /* How many threads may work on it: those of the library's own pool, or, by
   * rows, of parallel_for where it is not NULL. No result depends on it. */
  int64_t threads;
  KlnParallelFor parallel_for;
  void* parallel_context;

  const void* x;              /* (B, T, D) */
  const uint8_t* mask;        /* (B, T), 0 where a step is left out; or NULL */
  const void* input_mask;     /* (B, D), factors of x; or NULL */
  const void* recurrent_mask; /* (B, U), factors of h in h R; or NULL */
  const uint8_t* zoneout;     /* (B, T, U), 1 where a unit keeps its h; or NULL */
  const uint8_t* cell_zoneout; /* LSTM: likewise of c */
  const void* initial_h;      /* (B, U), or NULL for zeros */
  const void* initial_c;      /* LSTM: (B, U), or NULL for zeros */

  /* Where a row starts anew: before the visit of that step its states are
   * replaced, whatever the mask says. */
  const uint8_t* starts; /* (B, T), or NULL */
  const void* reset_h;   /* (B, U), or NULL for zeros, like the next */
  const void* reset_c;   /* LSTM: (B, U) */

  /* A site is normalised where its gamma is there; there is no beta without
   * its gamma. The simple RNN's one site, x W + h R + bias, takes
   * kernel_gamma and kernel_beta. */
  const void* kernel;           /* (D, nU) */
  const void* recurrent_kernel; /* (U, nU) */
  const void* bias;             /* (nU), or NULL */
  const void* recurrent_bias;   /* GRU: (nU), added to N(h R); or NULL */
  const void* kernel_gamma;     /* (nU), or NULL, like all below */
  const void* kernel_beta;
  const void* recurrent_gamma;
  const void* recurrent_beta;
  const void* state_gamma; /* LSTM: (U) */
  const void* state_beta;
} KlnProblem;

typedef struct KlnForward {
  void* outputs; /* (B, T, U), h after every step, in the order of visits; or
                    NULL. A step left out repeats the h that is carried. */
  void* final_h; /* (B, U) */
  void* final_c; /* LSTM: (B, U) */

  /* Memory for what backward needs, of kln_residual_bytes(problem) bytes or
   * more, aligned to KLN_RESIDUAL_ALIGNMENT; or NULL for inference. */
  void* residuals;
  int64_t residual_bytes;
} KlnForward;

typedef struct KlnBackward {
  const void* residuals; /* as forward left them, for the same problem */
  int64_t residual_bytes;
  const void* d_outputs; /* (B, T, U), or NULL for zeros, like all d_ here */
  const void* d_final_h;
  const void* d_final_c;

  /* Gradients, of the shapes of what they belong to; NULL where not wanted. */
  void* d_x;
  void* d_initial_h;
  void* d_initial_c;
  void* d_reset_h;
  void* d_reset_c;
  void* d_kernel;
  void* d_recurrent_kernel;
  void* d_bias;
  void* d_recurrent_bias;
  void* d_kernel_gamma;
  void* d_kernel_beta;
  void* d_recurrent_gamma;
  void* d_recurrent_beta;
  void* d_state_gamma;
  void* d_state_beta;
} KlnBackward;

KLN_EXPORT int32_t kln_abi_version(void);

/* NULL, or why this CPU is not served. */
KLN_EXPORT const char* kln_unsupported_reason(void);

/* "avx512", "avx2" or "neon": what calls take. NULL where none is served. */
KLN_EXPORT const char* kln_instruction_set(void);

/* Makes calls take `name` from now on; NULL for the best there is. The
 * environment variable KERAS_LN_KERNELS_ISA does the same at the start. */
KLN_EXPORT const char* kln_use_instruction_set(const char* name);

/* -1 where kln_forward would refuse the problem. Depends on sizes, cell and
 * which weights there are, neither on threads nor on the instruction set. */
KLN_EXPORT int64_t kln_residual_bytes(const KlnProblem* problem);

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

KLN_EXPORT const char* kln_forward(const KlnProblem* problem,
                                   const KlnForward* forward);
KLN_EXPORT const char* kln_backward(const KlnProblem* problem,
                                    const KlnBackward* backward);

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
