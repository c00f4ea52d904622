/*
 * status.h - error codes and messages.
 *
 * Every function that can fail returns 0 for success or one negative code of the list below, and
 * fills the caller's uni_error (NULL is always allowed) with a sentence: what failed, on which path
 * or rank, and what to do about it. Codes of libuv, errno, MPI or oneDNN are never returned raw.
 *
 * Thread rule: a uni_error belongs to one thread at a time; nothing here is shared.
 *
 * @example
 * uni_error failure = {0};
 * uni_value *config = NULL;
 * if (uni_json_read_file(&config, "config.json", &failure) < 0)
 *     fprintf(stderr, "%s: %s\n", uni_status_name(failure.code), failure.message);
 * uni_value_free(config);
 * @end
 */
#ifndef UNISONO_STATUS_H
#define UNISONO_STATUS_H

#include <stddef.h>

#if defined(__GNUC__)
#define UNI_API __attribute__((visibility("default")))
#define UNI_MUST_USE __attribute__((warn_unused_result))
#define UNI_PRINTF(format_index, first_index)                                                      \
    __attribute__((format(printf, format_index, first_index)))
#else
#define UNI_API
#define UNI_MUST_USE
#define UNI_PRINTF(format_index, first_index)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* code, number, sentence. docs/errors.md is generated from this list. Numbers are never reused. */
#define UNI_STATUS_LIST(X)                                                                         \
    X(OK, 0, "success")                                                                            \
    X(EINVAL, -1, "an argument or option is not valid")                                            \
    X(ENOMEM, -2, "out of memory")                                                                 \
    X(ENOTFOUND, -3, "not found")                                                                  \
    X(EEXISTS, -4, "already exists")                                                               \
    X(EPERMISSION, -5, "permission denied")                                                        \
    X(EIO, -6, "reading or writing failed")                                                        \
    X(EDISKFULL, -7, "the disk or the quota is full")                                              \
    X(EFORMAT, -8, "the data is not in the expected format")                                       \
    X(EVERSION, -9, "the format is newer than this program")                                       \
    X(ECORRUPT, -10, "a checksum does not match: the data is corrupt")                             \
    X(ETIMEOUT, -11, "the time limit ran out")                                                     \
    X(ECANCELED, -12, "the operation was cancelled")                                               \
    X(ESTATE, -13, "the call is not valid in the object's current state")                          \
    X(EUNSUPPORTED, -14, "not supported")                                                          \
    X(ERESOURCE, -15, "the machine does not have the requested resources")                         \
    X(EWORKER, -16, "a worker died")                                                               \
    X(EFUNCTION, -17, "the train function returned an error")                                      \
    X(EPREEMPTED, -18, "the run was asked to stop and can be resumed")                             \
    X(EMISMATCH, -19, "ranks disagree")                                                            \
    X(ESHAPE, -20, "shapes do not match")                                                          \
    X(EDTYPE, -21, "element types do not match")                                                   \
    X(EBUSY, -22, "the resource is in use")                                                        \
    X(EEND, -23, "end of data")                                                                    \
    X(ELIMIT, -24, "a size or depth limit was exceeded")                                           \
    X(EPEER, -25, "the other side of a connection is gone or does not speak our protocol")

typedef enum uni_status {
#define UNI_STATUS_ENUM(name, number, sentence) UNI_##name = number,
    UNI_STATUS_LIST(UNI_STATUS_ENUM)
#undef UNI_STATUS_ENUM
} uni_status;

#define UNI_ERROR_MESSAGE_SIZE 1000

/* A rank that is none, and a number that is not known (yet). */
#define UNI_RANK_NONE (-1)
#define UNI_UNKNOWN (-1)

typedef struct uni_error {
    int code; /* a uni_status, 0 when nothing failed */
    int os_error; /* errno of the cause, or 0 */
    char message[UNI_ERROR_MESSAGE_SIZE];
} uni_error;

/* "EINVAL" and "an argument or option is not valid"; an unknown code gives "EUNKNOWN". */
UNI_API const char *uni_status_name(int code);
UNI_API const char *uni_status_sentence(int code);

/* Sets *err (if not NULL) and returns code, so that callers can write `return uni_error_set(err,
 * ...)`. */
UNI_API int uni_error_set(uni_error *err, int code, const char *format, ...) UNI_PRINTF(3, 4);

/* Translates an errno: ENOSPC and EDQUOT become EDISKFULL, ENOENT ENOTFOUND, EACCES and EPERM
 * EPERMISSION, ENOMEM ENOMEM, all others EIO. Appends ": " and strerror's text to the message.
 * Returns the code. */
UNI_API int uni_error_set_errno(uni_error *err, int os_error, const char *format, ...)
    UNI_PRINTF(3, 4);

/* Prepends "what: " to the existing message. Returns err's code (0 if err is NULL). */
UNI_API int uni_error_prefix(uni_error *err, const char *format, ...) UNI_PRINTF(2, 3);

/* Options, by value or by address: UNI_OPTIONS(uni_run_options, .function = "train") is a pointer
 * to a struct that has these fields, zeros elsewhere, and its size. Every options struct begins
 * with `size`, so that it can grow: the library reads what the program knew when it was compiled,
 * and refuses (UNI_EUNSUPPORTED) a field that is set but newer than itself. A size of 0 stands for
 * the fields that the struct had in 0.1; set it for any later field. NULL is all defaults. */
#define UNI_OPTIONS(type, ...) (&(type){ .size = sizeof(type), __VA_ARGS__ })

/* Return, or jump to the named label, when expr is negative. The label form stores the code in
 * `status`, which the function must declare. */
#define UNI_TRY(expr)                                                                              \
    do {                                                                                           \
        int uni_try_status_ = (expr);                                                              \
        if (uni_try_status_ < 0)                                                                   \
            return uni_try_status_;                                                                \
    } while (0)
#define UNI_TRY_GOTO(expr, label)                                                                  \
    do {                                                                                           \
        status = (expr);                                                                           \
        if (status < 0)                                                                            \
            goto label;                                                                            \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
