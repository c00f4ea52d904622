/*
 * log.h - the library's log. Errors that are returned are not logged; warnings (a rank that reports
 * less often, a skipped checkpoint) go to stderr or to the program's own function.
 *
 * Thread rule: set the level and the function before starting threads; the function may be called
 * from any.
 *
 * @example
 * uni_log_level_set(UNI_LOG_DEBUG);
 * @end
 */
#ifndef UNISONO_LOG_H
#define UNISONO_LOG_H

#include <unisono/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum uni_log_level {
    UNI_LOG_OFF,
    UNI_LOG_ERROR,
    UNI_LOG_WARN,
    UNI_LOG_INFO,
    UNI_LOG_DEBUG
} uni_log_level;

typedef void (*uni_log_function)(void *context, uni_log_level level, const char *message);

/* Default: UNISONO_LOG, otherwise UNI_LOG_WARN. */
UNI_API void uni_log_level_set(uni_log_level level);
/* NULL: one line "unisono: message" on stderr. */
UNI_API void uni_log_function_set(uni_log_function function, void *context);

#ifdef __cplusplus
}
#endif
#endif
