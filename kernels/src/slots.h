// The arrays of a call and their shapes, in the order in which a custom call
// has them.
//
// Letters: B batch, T steps, D features, U units, G gates times units, R bytes.
#pragma once

#include <stddef.h>

#include "keras_ln_kernels.h"

namespace kln {
namespace {

// Where a struct points to an array, and the array's shape.
struct Slot {
  size_t offset;
  const char* letters;
  bool chooses = false;  // of bools, such as a mask
};

// Columns of the kernels, in units, by cell.
constexpr int64_t kGates[] = {4, 3, 1};

// In the order of the bits that say which of them there are.
constexpr Slot kArguments[] = {
    {offsetof(KlnProblem, x), "BTD"},
    {offsetof(KlnProblem, mask), "BT", true},
    {offsetof(KlnProblem, input_mask), "BD"},
    {offsetof(KlnProblem, recurrent_mask), "BU"},
    {offsetof(KlnProblem, zoneout), "BTU", true},
    {offsetof(KlnProblem, cell_zoneout), "BTU", true},
    {offsetof(KlnProblem, initial_h), "BU"},
    {offsetof(KlnProblem, initial_c), "BU"},
    {offsetof(KlnProblem, starts), "BT", true},
    {offsetof(KlnProblem, reset_h), "BU"},
    {offsetof(KlnProblem, reset_c), "BU"},
    {offsetof(KlnProblem, kernel), "DG"},
    {offsetof(KlnProblem, recurrent_kernel), "UG"},
    {offsetof(KlnProblem, bias), "G"},
    {offsetof(KlnProblem, recurrent_bias), "G"},
    {offsetof(KlnProblem, kernel_gamma), "G"},
    {offsetof(KlnProblem, kernel_beta), "G"},
    {offsetof(KlnProblem, recurrent_gamma), "G"},
    {offsetof(KlnProblem, recurrent_beta), "G"},
    {offsetof(KlnProblem, state_gamma), "U"},
    {offsetof(KlnProblem, state_beta), "U"},
};
constexpr Slot kCotangents[] = {
    {offsetof(KlnBackward, residuals), "R"},
    {offsetof(KlnBackward, d_outputs), "BTU"},
    {offsetof(KlnBackward, d_final_h), "BU"},
    {offsetof(KlnBackward, d_final_c), "BU"},
};
constexpr Slot kResults[] = {
    {offsetof(KlnForward, outputs), "BTU"},
    {offsetof(KlnForward, final_h), "BU"},
    {offsetof(KlnForward, final_c), "BU"},
    {offsetof(KlnForward, residuals), "R"},
};
constexpr Slot kGradients[] = {
    {offsetof(KlnBackward, d_x), "BTD"},
    {offsetof(KlnBackward, d_initial_h), "BU"},
    {offsetof(KlnBackward, d_initial_c), "BU"},
    {offsetof(KlnBackward, d_reset_h), "BU"},
    {offsetof(KlnBackward, d_reset_c), "BU"},
    {offsetof(KlnBackward, d_kernel), "DG"},
    {offsetof(KlnBackward, d_recurrent_kernel), "UG"},
    {offsetof(KlnBackward, d_bias), "G"},
    {offsetof(KlnBackward, d_recurrent_bias), "G"},
    {offsetof(KlnBackward, d_kernel_gamma), "G"},
    {offsetof(KlnBackward, d_kernel_beta), "G"},
    {offsetof(KlnBackward, d_recurrent_gamma), "G"},
    {offsetof(KlnBackward, d_recurrent_beta), "G"},
    {offsetof(KlnBackward, d_state_gamma), "U"},
    {offsetof(KlnBackward, d_state_beta), "U"},
};

}  // namespace
}  // namespace kln
