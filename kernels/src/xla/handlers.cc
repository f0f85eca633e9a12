// The library as custom calls of XLA, for JAX and TensorFlow.
//
// Written against XLA's C interface: its structs say how large they are and
// which version they have, and nothing of the C++ library is needed.
//
// Letters: B batch, T steps, D features, U units, G gates times units, R bytes.
#include <stdio.h>

#include "../problem.h"
#include "frame.h"
#include "pool.h"

namespace {

using namespace kln_xla;

constexpr int kNaN = 0xff;  // every byte of one

class Call {
 public:
  explicit Call(XLA_FFI_CallFrame* frame)
      : frame_(*frame), pool_{frame->api, frame->ctx} {
    problem_.abi_version = KLN_ABI_VERSION;
    problem_.struct_bytes = sizeof problem_;
  }

  // NULL, or what is wrong.
  const char* run(bool backward) {
    const auto pass = backward ? &KlnSlot::backward : &KlnSlot::forward;
    const char* wrong = read_attributes();
    if (!wrong) wrong = read_sizes();
    if (!wrong) wrong = take(pass, 'r', frame_.args.args, frame_.args.size);
    if (!wrong) wrong = take(pass, 'w', frame_.rets.rets, frame_.rets.size);
    if (wrong) return wrong;
    if (!problem_.batch || !problem_.steps) return run_nothing(backward), nullptr;
    problem_.threads = pool_.threads();
    problem_.parallel_for = run_in_pool;
    problem_.parallel_context = &pool_;
    wrong = backward ? kln_backward(&problem_) : kln_forward(&problem_);
    // jax.vmap makes jax.lax.cond a choice of results: both branches run, and
    // backward of the one that was not taken gets zeros, or the residuals of
    // the other. Its results are dropped.
    if (wrong && !strcmp(wrong, KLN_OTHER_RESIDUALS))
      return fill_results(kNaN), nullptr;
    return wrong;
  }

 private:
  const char* read_attributes() {
    int64_t cell;
    if (!attribute("cell", XLA_FFI_DataType_S64, &cell) ||
        !attribute("arrays", XLA_FFI_DataType_S64, &arrays_))
      return "an attribute is missing";
    if (!kln_cell(cell)) return "cell: unknown";
    problem_.cell = int32_t(cell);
    for (int i = 0; const KlnSlot* slot = kln_slot(i); ++i)
      if (!slot->letters[0] &&
          !attribute(slot->name,
                     slot->type[0] == 'n' ? XLA_FFI_DataType_F64
                                          : XLA_FFI_DataType_S64,
                     row(i)))
        return "an attribute is missing";
    return nullptr;
  }

  char* row(int place) {
    return reinterpret_cast<char*>(&problem_) + kln::kFirst + 8 * place;
  }

  bool attribute(const char* name, XLA_FFI_DataType dtype, void* to) const {
    return kln_xla::attribute(frame_.attrs, name, dtype, to);
  }

  // Of x, which stands first, and of recurrent_kernel.
  const char* read_sizes() {
    const XLA_FFI_Buffer* x = argument("x");
    const XLA_FFI_Buffer* recurrent = argument("recurrent_kernel");
    if (!x || x->rank != 3 || !recurrent || recurrent->rank != 2)
      return "x (B, T, D) or recurrent_kernel (U, G) is missing";
    problem_.batch = x->dims[0];
    problem_.steps = x->dims[1];
    problem_.features = x->dims[2];
    problem_.units = recurrent->dims[0];
    dtype_ = x->dtype;
    if (dtype_ != XLA_FFI_DataType_F32 && dtype_ != XLA_FFI_DataType_F64)
      return "x: expected float32 or float64";
    problem_.dtype =
        dtype_ == XLA_FFI_DataType_F32 ? KLN_FLOAT32 : KLN_FLOAT64;
    if (recurrent->dims[1] != kln::length(problem_, 'G'))
      return "recurrent_kernel: not of this cell";
    return nullptr;
  }

  // An argument of both passes, or NULL where it is not given.
  const XLA_FFI_Buffer* argument(const char* name) const {
    int64_t place = 0;
    for (int i = 0; const KlnSlot* slot = kln_slot(i); ++i) {
      if (!(arrays_ >> i & 1)) continue;
      if (!strcmp(slot->name, name))
        return place < frame_.args.size
                   ? static_cast<XLA_FFI_Buffer*>(frame_.args.args[place])
                   : nullptr;
      ++place;
    }
    return nullptr;
  }

  // Enters the buffers of the arrays that the pass reads, or writes.
  const char* take(char KlnSlot::*pass, char use, void** buffers,
                   int64_t count) {
    int64_t place = 0;
    for (int i = 0; const KlnSlot* slot = kln_slot(i); ++i) {
      if (!(arrays_ >> i & 1) || slot->*pass != use) continue;
      if (place >= count) return "an array is missing";
      const auto* buffer = static_cast<XLA_FFI_Buffer*>(buffers[place++]);
      if (!fits(*buffer, *slot)) return misfit(*buffer, *slot);
      memcpy(row(i), &buffer->data, sizeof(void*));
    }
    return place == count ? nullptr : "too many arrays";
  }

  bool fits(const XLA_FFI_Buffer& buffer, const KlnSlot& slot) {
    const char* letters = slot.letters;
    if (letters[0] == 'R') {
      problem_.residual_bytes = buffer.rank == 1 ? buffer.dims[0] : 0;
      return buffer.rank == 1 && buffer.dtype == XLA_FFI_DataType_U8;
    }
    if (buffer.dtype != (slot.type[0] == 'f' ? XLA_FFI_DataType_PRED : dtype_))
      return false;
    if (buffer.rank != int64_t(strlen(letters))) return false;
    for (int64_t i = 0; i < buffer.rank; ++i)
      if (buffer.dims[i] != kln::length(problem_, letters[i])) return false;
    return true;
  }

  // What the array should be, and which shape it has.
  const char* misfit(const XLA_FFI_Buffer& buffer, const KlnSlot& slot) {
    const size_t room = sizeof message_;
    const char* dtype = slot.type[0] == 'f' ? "bool" : "the dtype of x";
    if (slot.letters[0] == 'R') dtype = "bytes";
    size_t end = snprintf(message_, room, "%s: expected shape (", slot.name);
    const char* letters = slot.letters;
    for (int64_t i = 0; letters[i] && letters[0] != 'R' && end < room; ++i)
      end += snprintf(message_ + end, room - end, i ? ", %lld" : "%lld",
                      (long long)kln::length(problem_, letters[i]));
    if (end < room)
      end += snprintf(message_ + end, room - end,
                      ") and %s. Received: shape (", dtype);
    for (int64_t i = 0; i < buffer.rank && end < room; ++i)
      end += snprintf(message_ + end, room - end, i ? ", %lld" : "%lld",
                      (long long)buffer.dims[i]);
    if (end < room) snprintf(message_ + end, room - end, ")");
    return message_;
  }

  size_t item() const { return problem_.dtype == KLN_FLOAT32 ? 4 : 8; }

  void fill_results(int byte) const {
    const XLA_FFI_Rets& rets = frame_.rets;
    for (int64_t i = 0; i < rets.size; ++i) {
      const auto* buffer = static_cast<XLA_FFI_Buffer*>(rets.rets[i]);
      size_t bytes = buffer->dtype == XLA_FFI_DataType_U8 ? 1 : item();
      for (int64_t k = 0; k < buffer->rank; ++k) bytes *= buffer->dims[k];
      if (bytes) memset(buffer->data, byte, bytes);
    }
  }

  // No rows, or no steps: the states stay, and nothing else has a gradient.
  void run_nothing(bool backward) const {
    fill_results(0);
    const size_t bytes = problem_.batch * problem_.units * item();
    const auto move = [&](void* to, const void* from) {
      if (to && from && bytes) memcpy(to, from, bytes);
    };
    if (backward) {
      move(problem_.d_initial_h, problem_.d_final_h);
      move(problem_.d_initial_c, problem_.d_final_c);
    } else {
      move(problem_.final_h, problem_.initial_h);
      move(problem_.final_c, problem_.initial_c);
    }
  }

  const XLA_FFI_CallFrame& frame_;
  Pool pool_;
  KlnProblem problem_{};
  int64_t arrays_ = 0;  // a bit for each that is given or wanted
  XLA_FFI_DataType dtype_ = XLA_FFI_DataType_INVALID;
  char message_[192];
};

XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame, bool backward) {
  if (only_asks(frame)) return nullptr;
  return error_of(frame, Call(frame).run(backward));
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

// Makes a handler known, under this name, to the XLA whose `XLA_FFI_GetApi` gave
// `api`: NULL, or what is wrong. XLA takes any name of a platform.
KLN_EXPORT const char* kln_xla_register(const XLA_FFI_Api* api,
                                        const char* name, const char* platform,
                                        XLA_FFI_Handler* handler) {
  if (api->api_version.major_version != kApiMajor ||
      api->api_version.minor_version < kApiMinor)
    return "this XLA has another foreign function interface";
  XLA_FFI_Handler_Register_Args args{};
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = {name, strlen(name)};
  args.platform = {platform, strlen(platform)};
  args.bundle.execute = handler;
  XLA_FFI_Error* error = api->XLA_FFI_Handler_Register(&args);
  if (!error) return nullptr;
  drop(api, error);
  return "XLA refuses the handlers";
}

}  // extern "C"
