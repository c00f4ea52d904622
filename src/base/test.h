/*
 * test.h - shared by the tests of this module: cmocka's headers, a private directory, and a fault
 * hook that counts. For *_test.c of src/base only.
 */
#ifndef UNISONO_BASE_TEST_H
#define UNISONO_BASE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/asserts.h"
#include "base/fault.h"
#include "base/file.h"

/* Creates a fresh directory as *state, removed afterwards. */
__attribute__((unused)) static int enter_directory(void **state)
{
    char path[256];
    *state = mkdtemp(uni__temporary_name(path, sizeof path, "base")) ? strdup(path) : NULL;
    return *state ? 0 : -1;
}

__attribute__((unused)) static int leave_directory(void **state)
{
    int status = uni__remove_tree(*state, NULL);
    free(*state);
    return status;
}

/* Fails (or crashes) at the n-th operation, counted from 1. */
typedef struct countdown {
    int at; /* 0: only count */
    int calls; /* calls so far */
    int error; /* errno to return; 0: the process dies there */
    /* Also fails at every later one, like a full disk. */
    bool sticky;
    /* Nonzero: truncates the write before the n-th operation to this many bytes. */
    size_t shorten;
} countdown;

__attribute__((unused)) static int countdown_hook(void *context, uni__fault_op op, const char *path,
                                                  size_t *size)
{
    countdown *count = context;
    count->calls++;
    if (size && count->shorten && count->calls + 1 == count->at && *size > count->shorten)
        *size = count->shorten;
    if (count->at == 0 || (count->sticky ? count->calls < count->at : count->calls != count->at))
        return 0;
    if (count->error == 0)
        _exit(99);
    return count->error;
}

#endif
