/*
 * compiler.h - what GCC and clang express differently, for kernels that both compile, and the
 * marker for functions that our libraries share.
 *
 * A file whose functions need more instructions than the build's target allows puts them between
 * UNI__TARGET_BEGIN and UNI__TARGET_END. System headers are included before that, so that none of
 * their functions uses these instructions.
 */
#ifndef UNISONO_BASE_COMPILER_H
#define UNISONO_BASE_COMPILER_H

/* An internal function of libunisono that libunisono-engine and libunisono-native call. It is
 * exported under the node UNISONO_PRIVATE_x.y.z (src/lib), which only libraries of the same version
 * find. Never used in include/. */
#define UNI__SHARED __attribute__((visibility("default")))

#define UNI__PRAGMA(text) _Pragma(#text)

#ifdef __clang__
/* Goes before a loop whose iterations do not depend on each other. */
#define UNI__INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define UNI__TARGET_BEGIN(names)                                                                   \
    UNI__PRAGMA(clang attribute push(__attribute__((target(names))), apply_to = function))
#define UNI__TARGET_END UNI__PRAGMA(clang attribute pop)
/* Selects eight lanes of two vectors; 8 to 15 are those of the second. `type` is a vector of eight
 * 32-bit integers. */
#define UNI__SHUFFLE8(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define UNI__INDEPENDENT _Pragma("GCC ivdep")
#define UNI__TARGET_BEGIN(names) UNI__PRAGMA(GCC push_options) UNI__PRAGMA(GCC target(names))
#define UNI__TARGET_END UNI__PRAGMA(GCC pop_options)
#define UNI__SHUFFLE8(type, a, b, ...) __builtin_shuffle(a, b, (type){ __VA_ARGS__ })
#endif

#endif
