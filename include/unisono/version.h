/* version.h - the library's version; formats on disk and on the wire have their own
 * (docs/formats.md). */
#ifndef UNISONO_VERSION_H
#define UNISONO_VERSION_H

#include <unisono/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UNI_VERSION_MAJOR 0
#define UNI_VERSION_MINOR 1
#define UNI_VERSION_PATCH 0
#define UNI_VERSION "0.1.0"

/* The version of the loaded library, which may differ from the compiled-in UNI_VERSION. */
UNI_API const char *uni_version(void);

#ifdef __cplusplus
}
#endif
#endif
