/* testing.h - shared by the tests of this module: values from JSON, and tables of mistakes. */
#ifndef UNISONO_TUNE_TESTING_H
#define UNISONO_TUNE_TESTING_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tune/shared.h"

static inline uni_value *json(const char *text)
{
    uni_error err = { 0 };
    uni_value *out = NULL;
    if (uni_json_read(&out, text, strlen(text), &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return out;
}

#endif
