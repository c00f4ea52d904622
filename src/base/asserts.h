/*
 * asserts.h - assertions about calls that return a status and store their message in `failure`.
 * Include after cmocka.h; for *_test.c only.
 */
#ifndef UNISONO_BASE_ASSERTS_H
#define UNISONO_BASE_ASSERTS_H

#include <string.h>
#include <unisono/status.h>

static uni_error failure __attribute__((unused));

/* Fails with the error's own message. */
#define assert_ok(expr)                                                                            \
    do {                                                                                           \
        memset(&failure, 0, sizeof failure);                                                       \
        int code_ = (expr);                                                                        \
        if (code_ < 0)                                                                             \
            fail_msg("%s: %s %s", #expr, uni_status_name(code_), failure.message);                 \
    } while (0)

/* Checks the code, and that the message contains `part`. */
#define assert_fails(expr, expected, part)                                                         \
    do {                                                                                           \
        memset(&failure, 0, sizeof failure);                                                       \
        int code_ = (expr);                                                                        \
        if (code_ != (expected) || failure.code != code_ || !strstr(failure.message, part))        \
            fail_msg("%s: got %s (%s) \"%s\"", #expr, uni_status_name(code_),                      \
                     uni_status_name(failure.code), failure.message);                              \
    } while (0)

#endif
