// What all handlers do with a call of XLA's: questions, attributes, errors.
#pragma once

#include <string.h>

#include "../keras_ln_kernels.h"
#include "xla/ffi/api/c_api.h"

namespace kln_xla {

// What is used here is as it was in this version, whatever the header's; an
// XLA older than what a handler asks for refuses it.
constexpr int kApiMajor = 0, kApiMinor = 1;

// Whether there is nothing to run: a question is answered.
inline bool only_asks(XLA_FFI_CallFrame* frame) {
  // Its type has had two names.
  auto* extension = frame->extension_start;
  if (extension && extension->type == XLA_FFI_Extension_Metadata) {
    // What this was compiled for.
    XLA_FFI_Metadata* metadata =
        reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
    metadata->api_version.major_version = kApiMajor;
    metadata->api_version.minor_version = kApiMinor;
    metadata->traits = 0;
    return true;
  }
  return frame->stage != XLA_FFI_ExecutionStage_EXECUTE;
}

// A scalar attribute of eight bytes.
inline bool attribute(const XLA_FFI_Attrs& attrs, const char* name,
                      XLA_FFI_DataType dtype, void* to) {
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

// NULL where nothing is wrong.
inline XLA_FFI_Error* error_of(XLA_FFI_CallFrame* frame, const char* wrong) {
  if (!wrong) return nullptr;
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = wrong;
  args.errc = strcmp(wrong, KLN_OUT_OF_MEMORY)
                  ? XLA_FFI_Error_Code_INVALID_ARGUMENT
                  : XLA_FFI_Error_Code_RESOURCE_EXHAUSTED;
  return frame->api->XLA_FFI_Error_Create(&args);
}

}  // namespace kln_xla
