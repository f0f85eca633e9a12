// A handler of XLA's on a CPU that stands for one on a GPU: it hands calls on,
// with a stream of each device's, which XLA has not there.
#include <stdint.h>

#include "xla/ffi/api/c_api.h"

namespace {
XLA_FFI_Error* (*handler)(XLA_FFI_CallFrame*);
char* streams;
// Told of each buffer's device; NULL where all memory is one device's.
void (*remember)(uint64_t at, uint64_t bytes, int device);
thread_local int32_t device;

XLA_FFI_Error* stream_of(XLA_FFI_Stream_Get_Args* args) {
  args->stream = streams + device;
  return nullptr;
}

void remember_all(void** buffers, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto* buffer = static_cast<XLA_FFI_Buffer*>(buffers[i]);
    remember(reinterpret_cast<uint64_t>(buffer->data), 1, device);
  }
}
}  // namespace

extern "C" {
void stand_in_use(XLA_FFI_Error* (*real)(XLA_FFI_CallFrame*), void* first,
                  void (*of_memory)(uint64_t, uint64_t, int)) {
  handler = real;
  streams = static_cast<char*>(first);
  remember = of_memory;
}

XLA_FFI_Error* stand_in(XLA_FFI_CallFrame* frame) {
  if (!frame->api) return handler(frame);
  XLA_FFI_CallFrame copied = *frame;
  XLA_FFI_Api api = *frame->api;
  api.XLA_FFI_Stream_Get = stream_of;
  copied.api = &api;
  device = 0;
  if (remember && frame->ctx) {
    XLA_FFI_DeviceOrdinal_Get_Args args{};
    args.struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE;
    args.ctx = frame->ctx;
    if (XLA_FFI_Error* error = api.XLA_FFI_DeviceOrdinal_Get(&args))
      return error;
    device = args.device_ordinal;
    remember_all(frame->args.args, frame->args.size);
    remember_all(frame->rets.rets, frame->rets.size);
  }
  return handler(&copied);
}
}
