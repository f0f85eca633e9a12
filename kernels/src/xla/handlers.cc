// The library as custom calls of XLA, for JAX and TensorFlow.
//
// Written against XLA's C interface: its structs say how large they are and
// which version they have, and nothing of the C++ library is needed.
//
// Letters: B batch, T steps, D features, U units, G gates times units, R bytes.
#include <string.h>

#include "../slots.h"
#include "pool.h"

namespace {

using namespace kln_xla;
using kln::kArguments, kln::kCotangents, kln::kGradients, kln::kResults;
using kln::Slot;

// What is used here is as it was in this version, whatever the header's; an
// XLA older than what a handler asks for refuses it.
constexpr int kApiMajor = 0, kApiMinor = 1;

template <class T, size_t n>
constexpr int64_t count_of(T (&)[n]) {
  return n;
}

class Call {
 public:
  explicit Call(XLA_FFI_CallFrame* frame)
      : frame_(*frame), pool_{frame->api, frame->ctx} {
    problem_.abi_version = KLN_ABI_VERSION;
    problem_.struct_bytes = sizeof problem_;
  }

  // NULL, or what is wrong.
  const char* run(bool backward) {
    const char* wrong = read_attributes();
    if (!wrong) wrong = read_sizes();
    if (!wrong) wrong = take_arguments(backward);
    if (!wrong) wrong = take_results(backward);
    if (wrong) return wrong;
    if (!size_of('B') || !size_of('T')) return run_nothing(backward), nullptr;
    problem_.threads = pool_.threads();
    problem_.parallel_for = run_in_pool;
    problem_.parallel_context = &pool_;
    forward_.residual_bytes = backward_.residual_bytes = residual_bytes_;
    return backward ? kln_backward(&problem_, &backward_)
                    : kln_forward(&problem_, &forward_);
  }

 private:
  const char* read_attributes() {
    int64_t cell, go_backwards, carry;
    if (!attribute("cell", XLA_FFI_DataType_S64, &cell) ||
        !attribute("go_backwards", XLA_FFI_DataType_S64, &go_backwards) ||
        !attribute("carry_normalized_state", XLA_FFI_DataType_S64, &carry) ||
        !attribute("arguments", XLA_FFI_DataType_S64, &arguments_) ||
        !attribute("results", XLA_FFI_DataType_S64, &results_) ||
        !attribute("epsilon", XLA_FFI_DataType_F64, &problem_.epsilon) ||
        !attribute("zoneout_share", XLA_FFI_DataType_F64,
                   &problem_.zoneout_share) ||
        !attribute("cell_zoneout_share", XLA_FFI_DataType_F64,
                   &problem_.cell_zoneout_share))
      return "an attribute is missing";
    if (cell < KLN_LSTM || cell > KLN_SIMPLE_RNN) return "cell: unknown";
    if (go_backwards < 0 || go_backwards > 1)
      return "go_backwards: must be 0 or 1";
    if (carry < 0 || carry > 1) return "carry_normalized_state: must be 0 or 1";
    problem_.cell = int32_t(cell);
    problem_.go_backwards = int32_t(go_backwards);
    problem_.carry_normalized_state = int32_t(carry);
    return nullptr;
  }

  // A scalar of eight bytes.
  bool attribute(const char* name, XLA_FFI_DataType dtype, void* to) const {
    const XLA_FFI_Attrs& attrs = frame_.attrs;
    for (int64_t i = 0; i < attrs.size; ++i) {
      const XLA_FFI_ByteSpan& found = *attrs.names[i];
      if (found.len != strlen(name) || memcmp(found.ptr, name, found.len))
        continue;
      if (attrs.types[i] != XLA_FFI_AttrType_SCALAR) return false;
      const auto* scalar = static_cast<XLA_FFI_Scalar*>(attrs.attrs[i]);
      if (scalar->dtype != dtype) return false;
      memcpy(to, scalar->value, 8);
      return true;
    }
    return false;
  }

  const char* read_sizes() {
    const XLA_FFI_Buffer* x = argument(offsetof(KlnProblem, x));
    const XLA_FFI_Buffer* recurrent =
        argument(offsetof(KlnProblem, recurrent_kernel));
    if (!x || x->rank != 3 || !recurrent || recurrent->rank != 2)
      return "x (B, T, D) or recurrent_kernel (U, G) is missing";
    problem_.batch = x->dims[0];
    problem_.steps = x->dims[1];
    problem_.features = x->dims[2];
    problem_.units = recurrent->dims[0];
    columns_ = recurrent->dims[1];
    dtype_ = x->dtype;
    if (dtype_ != XLA_FFI_DataType_F32 && dtype_ != XLA_FFI_DataType_F64)
      return "x: expected float32 or float64";
    problem_.dtype =
        dtype_ == XLA_FFI_DataType_F32 ? KLN_FLOAT32 : KLN_FLOAT64;
    if (columns_ != kln::kGates[problem_.cell] * problem_.units)
      return "recurrent_kernel: not of this cell";
    return nullptr;
  }

  // An argument of the problem, or NULL where it is not given.
  const XLA_FFI_Buffer* argument(size_t offset) const {
    int64_t place = 0;
    for (int64_t i = 0; i < count_of(kArguments); ++i) {
      if (!(arguments_ >> i & 1)) continue;
      if (kArguments[i].offset == offset) return buffer(frame_.args, place);
      ++place;
    }
    return nullptr;
  }

  static const XLA_FFI_Buffer* buffer(const XLA_FFI_Args& args, int64_t i) {
    return i < args.size ? static_cast<XLA_FFI_Buffer*>(args.args[i]) : nullptr;
  }

  const char* take_arguments(bool backward) {
    int64_t place = 0;
    const char* wrong = take(kArguments, arguments_, frame_.args.args,
                             frame_.args.size, &place, &problem_);
    const int64_t rest = arguments_ >> count_of(kArguments);
    if (!wrong && backward)
      wrong = take(kCotangents, rest, frame_.args.args, frame_.args.size,
                   &place, &backward_);
    if (wrong) return wrong;
    return place == frame_.args.size ? nullptr : "too many arguments";
  }

  const char* take_results(bool backward) {
    int64_t place = 0;
    const char* wrong =
        backward ? take(kGradients, results_, frame_.rets.rets,
                        frame_.rets.size, &place, &backward_)
                 : take(kResults, results_, frame_.rets.rets, frame_.rets.size,
                        &place, &forward_);
    if (wrong) return wrong;
    return place == frame_.rets.size ? nullptr : "too many results";
  }

  // Enters the buffers whose bits are set into a struct.
  template <size_t n>
  const char* take(const Slot (&slots)[n], int64_t bits, void** buffers,
                   int64_t count, int64_t* place, void* to) {
    for (size_t i = 0; i < n; ++i) {
      if (!(bits >> i & 1)) continue;
      if (*place >= count) return "an array is missing";
      const auto* buffer = static_cast<XLA_FFI_Buffer*>(buffers[(*place)++]);
      if (!fits(*buffer, slots[i]))
        return "an array has another shape or dtype than its name tells";
      memcpy(static_cast<char*>(to) + slots[i].offset, &buffer->data,
             sizeof(void*));
    }
    return nullptr;
  }

  bool fits(const XLA_FFI_Buffer& buffer, const Slot& slot) {
    const char* letters = slot.letters;
    if (letters[0] == 'R') {
      residual_bytes_ = buffer.rank == 1 ? buffer.dims[0] : 0;
      return buffer.rank == 1 && buffer.dtype == XLA_FFI_DataType_U8;
    }
    if (buffer.dtype != (slot.chooses ? XLA_FFI_DataType_PRED : dtype_))
      return false;
    if (buffer.rank != int64_t(strlen(letters))) return false;
    for (int64_t i = 0; i < buffer.rank; ++i)
      if (buffer.dims[i] != size_of(letters[i])) return false;
    return true;
  }

  int64_t size_of(char letter) const {
    switch (letter) {
      case 'B':
        return problem_.batch;
      case 'T':
        return problem_.steps;
      case 'D':
        return problem_.features;
      case 'U':
        return problem_.units;
      default:
        return columns_;
    }
  }

  // No rows, or no steps: the states stay, and nothing else has a gradient.
  void run_nothing(bool backward) const {
    const size_t item = problem_.dtype == KLN_FLOAT32 ? 4 : 8;
    const XLA_FFI_Rets& rets = frame_.rets;
    for (int64_t i = 0; i < rets.size; ++i) {
      const auto* buffer = static_cast<XLA_FFI_Buffer*>(rets.rets[i]);
      size_t bytes = buffer->dtype == XLA_FFI_DataType_U8 ? 1 : item;
      for (int64_t k = 0; k < buffer->rank; ++k) bytes *= buffer->dims[k];
      if (bytes) memset(buffer->data, 0, bytes);
    }
    const size_t bytes = problem_.batch * problem_.units * item;
    const auto move = [&](void* to, const void* from) {
      if (to && from && bytes) memcpy(to, from, bytes);
    };
    if (backward) {
      move(backward_.d_initial_h, backward_.d_final_h);
      move(backward_.d_initial_c, backward_.d_final_c);
    } else {
      move(forward_.final_h, problem_.initial_h);
      move(forward_.final_c, problem_.initial_c);
    }
  }

  const XLA_FFI_CallFrame& frame_;
  Pool pool_;
  KlnProblem problem_{};
  KlnForward forward_{};
  KlnBackward backward_{};
  int64_t arguments_ = 0, results_ = 0, columns_ = 0;
  int64_t residual_bytes_ = 0;  // those of the buffer
  XLA_FFI_DataType dtype_ = XLA_FFI_DataType_INVALID;
};

XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame, bool backward) {
  XLA_FFI_Extension_Base* extension = frame->extension_start;
  if (extension && extension->type == XLA_FFI_Extension_Metadata) {
    // A question: what this was compiled for.
    XLA_FFI_Metadata* metadata =
        reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
    metadata->api_version.major_version = kApiMajor;
    metadata->api_version.minor_version = kApiMinor;
    metadata->traits = 0;
    return nullptr;
  }
  if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return nullptr;
  const char* wrong = Call(frame).run(backward);
  if (!wrong) return nullptr;
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = wrong;
  args.errc = strcmp(wrong, KLN_OUT_OF_MEMORY)
                  ? XLA_FFI_Error_Code_INVALID_ARGUMENT
                  : XLA_FFI_Error_Code_RESOURCE_EXHAUSTED;
  return frame->api->XLA_FFI_Error_Create(&args);
}

bool add(const XLA_FFI_Api* api, const char* name, XLA_FFI_Handler* handler) {
  XLA_FFI_Handler_Register_Args args{};
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = {name, strlen(name)};
  args.platform = {"Host", 4};
  args.bundle.execute = handler;
  XLA_FFI_Error* error = api->XLA_FFI_Handler_Register(&args);
  if (error) drop(api, error);
  return !error;
}

}  // namespace

extern "C" {

// Handlers of XLA's typed foreign function interface.
KLN_EXPORT XLA_FFI_Error* kln_xla_forward(XLA_FFI_CallFrame* frame) {
  return handle(frame, false);
}

KLN_EXPORT XLA_FFI_Error* kln_xla_backward(XLA_FFI_CallFrame* frame) {
  return handle(frame, true);
}

// Makes both known to the XLA whose `XLA_FFI_GetApi` gave `api`, under these
// names. NULL, or what is wrong.
KLN_EXPORT const char* kln_xla_register(const XLA_FFI_Api* api,
                                        const char* forward,
                                        const char* backward) {
  if (api->api_version.major_version != kApiMajor ||
      api->api_version.minor_version < kApiMinor)
    return "this XLA has another foreign function interface";
  if (!add(api, forward, kln_xla_forward) ||
      !add(api, backward, kln_xla_backward))
    return "XLA refuses the handlers";
  return nullptr;
}

}  // extern "C"
