// A handler of XLA's on a CPU that stands for one on a GPU: it hands calls on,
// with a stream that XLA has not there.
#include "xla/ffi/api/c_api.h"

namespace {
XLA_FFI_Error* (*handler)(XLA_FFI_CallFrame*);
void* the_stream;

XLA_FFI_Error* stream_of(XLA_FFI_Stream_Get_Args* args) {
  args->stream = the_stream;
  return nullptr;
}
}  // namespace

extern "C" {
void stand_in_use(XLA_FFI_Error* (*real)(XLA_FFI_CallFrame*), void* stream) {
  handler = real;
  the_stream = stream;
}

XLA_FFI_Error* stand_in(XLA_FFI_CallFrame* frame) {
  if (!frame->api) return handler(frame);
  XLA_FFI_CallFrame copied = *frame;
  XLA_FFI_Api api = *frame->api;
  api.XLA_FFI_Stream_Get = stream_of;
  copied.api = &api;
  return handler(&copied);
}
}
