// Arrays that are cut from one piece of memory, for the address sanitizer: it
// knows pieces only, and is told here what lies between arrays.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define KLN_GUARDS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KLN_GUARDS 1
#endif
#endif

#if defined(KLN_GUARDS)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(from, bytes) ((void)(from), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(from, bytes) ((void)(from), (void)(bytes))
#endif
