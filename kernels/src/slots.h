/* What a call is told and handed: every option and every array, once.
 *
 * The struct and its checks, custom calls of XLA and, through kln_slot, Python
 * follow from these rows. To add one: a row here, what check() in api.cc has to
 * refuse, and its use.
 *
 * X(type, name, letters of the shape, cells that have it). Letters: B batch,
 * T steps, D features of the inputs, U units, G gates times units, R bytes.
 * Types: `real` is float or double as the problem's dtype says, a `flag` is a
 * byte that is 0 or not. Where there is no comment, zero or NULL is nothing.
 */
#ifndef KERAS_LN_KERNELS_SLOTS_H
#define KERAS_LN_KERNELS_SLOTS_H

/* Cells, and their gates: the columns of the kernels, in units. */
#define KLN_CELLS(X) \
  X(LSTM, "lstm", 4) \
  X(GRU, "gru", 3)   \
  X(SIMPLE_RNN, "simple_rnn", 1)

#define KLN_ALL 7 /* cells, a bit for each */
#define KLN_ONLY(cell) (1 << KLN_##cell)

/* Scalars: `choice` is 0 or 1, `number` a double, finite and not negative. */
#define KLN_OPTIONS(X)                                                       \
  X(number, epsilon, "", KLN_ALL)      /* > 0, inside the square root */     \
  X(choice, go_backwards, "", KLN_ALL) /* visit the last step first */       \
  /* The next step gets N(c). */                                             \
  X(choice, carry_normalized_state, "", KLN_ONLY(LSTM))                      \
  /* The sum has statistics for each gate, not for all gates together. */    \
  X(choice, sum_by_gate, "", KLN_ONLY(LSTM) | KLN_ONLY(GRU))                 \
  /* Zoneout: the share of h, and of c, that stays what it was before a      \
   * step, in [0, 1). 0 where there are choices instead. */                  \
  X(number, zoneout_share, "", KLN_ALL)                                      \
  X(number, cell_zoneout_share, "", KLN_ONLY(LSTM))

/* What both passes read. A site is normalised where its gamma is there; there
 * is no beta without its gamma. The simple RNN's one site, x W + h R + bias,
 * takes kernel_gamma and kernel_beta. sum_gamma normalises x W + h R + sum_bias
 * in place of both products. `LEARNED` have gradients, d_NAME, of their shape;
 * NULL where not wanted. */
#define KLN_ARGUMENTS(LEARNED, OTHER)                                        \
  LEARNED(real, x, "BTD", KLN_ALL)           /* never NULL */                \
  OTHER(flag, mask, "BT", KLN_ALL)           /* 0 where a step is left out */ \
  OTHER(real, input_mask, "BD", KLN_ALL)     /* factors of x */              \
  OTHER(real, recurrent_mask, "BU", KLN_ALL) /* factors of h in h R */       \
  OTHER(flag, zoneout, "BTU", KLN_ALL)       /* 1 where a unit keeps its h */ \
  OTHER(flag, cell_zoneout, "BTU", KLN_ONLY(LSTM)) /* likewise of c */       \
  LEARNED(real, initial_h, "BU", KLN_ALL)    /* NULL is zeros */             \
  LEARNED(real, initial_c, "BU", KLN_ONLY(LSTM))                             \
  /* Where a row starts anew: before the visit of that step its states are   \
   * replaced, by zeros without resets, whatever the mask says. */           \
  OTHER(flag, starts, "BT", KLN_ALL)                                         \
  LEARNED(real, reset_h, "BU", KLN_ALL)                                      \
  LEARNED(real, reset_c, "BU", KLN_ONLY(LSTM))                               \
  LEARNED(real, kernel, "DG", KLN_ALL)           /* never NULL */            \
  LEARNED(real, recurrent_kernel, "UG", KLN_ALL) /* never NULL */            \
  LEARNED(real, bias, "G", KLN_ALL)                                          \
  LEARNED(real, recurrent_bias, "G", KLN_ONLY(GRU)) /* added to N(h R) */    \
  LEARNED(real, kernel_gamma, "G", KLN_ALL)                                  \
  LEARNED(real, kernel_beta, "G", KLN_ALL)                                   \
  LEARNED(real, recurrent_gamma, "G", KLN_ONLY(LSTM) | KLN_ONLY(GRU))        \
  LEARNED(real, recurrent_beta, "G", KLN_ONLY(LSTM) | KLN_ONLY(GRU))         \
  LEARNED(real, state_gamma, "U", KLN_ONLY(LSTM))                            \
  LEARNED(real, state_beta, "U", KLN_ONLY(LSTM))                             \
  LEARNED(real, sum_gamma, "G", KLN_ONLY(LSTM) | KLN_ONLY(GRU))              \
  LEARNED(real, sum_beta, "G", KLN_ONLY(LSTM) | KLN_ONLY(GRU))               \
  LEARNED(real, sum_bias, "G", KLN_ONLY(LSTM) | KLN_ONLY(GRU))

/* What forward writes, and of which backward reads the gradients, d_NAME: NULL
 * is zeros. */
#define KLN_RESULTS(X)                                                       \
  /* h after every step, in the order of visits; or NULL. A step left out    \
   * repeats the h that is carried. */                                       \
  X(real, outputs, "BTU", KLN_ALL)                                           \
  X(real, final_h, "BU", KLN_ALL) /* never NULL, like the next */            \
  X(real, final_c, "BU", KLN_ONLY(LSTM))

#endif
