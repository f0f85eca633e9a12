// A launch on a GPU as a custom call of XLA, for JAX and TensorFlow.
#include <stddef.h>

#include "../gpu.h"
#include "frame.h"
#include "pool.h"

namespace {

using namespace kln_xla;

constexpr int kCounterBytes = 128;  // of a group

constexpr int place(size_t offset) { return int(offset / sizeof(void*)); }
constexpr int kArrays = place(offsetof(Sequence, batch));

bool of_the_batch(int i) {
  return i < place(offsetof(Sequence, recurrent)) ||
         (i >= place(offsetof(Sequence, h)) &&
          i < place(offsetof(Sequence, exchange)));
}

class Call {
 public:
  explicit Call(XLA_FFI_CallFrame* frame) : frame_(*frame) {}

  // NULL, or what is wrong.
  const char* run() {
    int64_t given, made;
    if (!number("given", &given) || !number("made", &made) || !shape())
      return "an attribute is missing";
    // zx stands first.
    const auto* zx = frame_.args.size > 0
                         ? static_cast<XLA_FFI_Buffer*>(frame_.args.args[0])
                         : nullptr;
    if (!zx || zx->rank != 3) return "zx (B, T, G) is missing";
    Sequence& s = launch_.sequence;
    s.batch = int(zx->dims[0]);
    s.steps = int(zx->dims[1]);
    if (!s.steps) return "sequences without steps";
    const char* wrong = take(given, frame_.args.args, frame_.args.size);
    if (!wrong) wrong = take(made, frame_.rets.rets, frame_.rets.size);
    if (!wrong) wrong = stream();
    if (!wrong && s.batch) wrong = kln_gpu_device_of(zx->data, &launch_.device);
    if (wrong || !s.batch) return wrong;
    launch_.kernel = kln_gpu_kept(&launch_);
    if (!launch_.kernel)
      return "no kernel is loaded for this program: trace it in this process";
    return kln_gpu_launch(&launch_);
  }

 private:
  bool number(const char* name, int64_t* to) const {
    return attribute(frame_.attrs, name, XLA_FFI_DataType_S64, to);
  }

  bool number(const char* name, int32_t* to) const {
    int64_t value;
    if (!number(name, &value)) return false;
    *to = int32_t(value);
    return true;
  }

  bool shape() {
    KlnGpuShape& s = launch_.shape;
    double epsilon;
    if (!number("kernel", &s.kernel) || !number("units", &s.units) ||
        !number("blocks", &s.blocks) || !number("rows", &s.rows) ||
        !number("kept", &s.kept) ||
        !number("format", &s.format) || !number("cluster", &s.cluster) ||
        !number("go_backwards", &launch_.sequence.go_backwards) ||
        !attribute(frame_.attrs, "epsilon", XLA_FFI_DataType_F64, &epsilon))
      return false;
    launch_.sequence.epsilon = float(epsilon);
    kln_gpu_shape(&s);
    return true;
  }

  // Enters the buffers of the arrays with a bit in `mask`, in their order.
  const char* take(int64_t mask, void** buffers, int64_t count) {
    int64_t place = 0;
    for (int i = 0; i < kArrays; ++i) {
      if (!(mask >> i & 1)) continue;
      if (place >= count) return "an array is missing";
      const auto* buffer = static_cast<XLA_FFI_Buffer*>(buffers[place++]);
      const bool steps =
          buffer->rank == 3 || buffer->dtype == XLA_FFI_DataType_U8;
      const Sequence& s = launch_.sequence;
      if (of_the_batch(i) && (buffer->dims[0] != s.batch ||
                              (steps && buffer->dims[1] != s.steps)))
        return "an array has other rows or steps than zx";
      memcpy(reinterpret_cast<char*>(&launch_.sequence) + i * sizeof(void*),
             &buffer->data, sizeof(void*));
      // The counters, of as many groups as have room.
      if (i == kArrays - 1)
        launch_.groups = int32_t(buffer->dims[0] / kCounterBytes);
    }
    return place == count ? nullptr : "too many arrays";
  }

  const char* stream() {
    XLA_FFI_Stream_Get_Args args{};
    args.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE;
    args.ctx = frame_.ctx;
    if (XLA_FFI_Error* error = frame_.api->XLA_FFI_Stream_Get(&args)) {
      drop(frame_.api, error);
      return "XLA has no stream here";
    }
    launch_.stream = args.stream;
    return nullptr;
  }

  const XLA_FFI_CallFrame& frame_;
  KlnGpuLaunch launch_{};
};

}  // namespace

extern "C" KLN_EXPORT XLA_FFI_Error* kln_xla_gpu(XLA_FFI_CallFrame* frame) {
  return only_asks(frame) ? nullptr : error_of(frame, Call(frame).run());
}
