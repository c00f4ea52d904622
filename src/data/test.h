/* test.h - what the tests of src/data share. For *_test.c of this module only. */
#ifndef UNISONO_DATA_TEST_H
#define UNISONO_DATA_TEST_H

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
#include <unisono/data.h>
#include "base/assert.h"
#include "base/file.h"

/* A directory of this test; test_dir_remove at its end. */
static inline char *test_dir(void)
{
    char name[256];
    if (mkdtemp(uni__temporary_name(name, sizeof name, "data")) == NULL)
        fail_msg("no temporary directory");
    return strdup(name);
}

static inline void test_dir_remove(char *dir)
{
    assert_int_equal(uni__remove_tree(dir, NULL), 0);
    free(dir);
}

/* DIR/name with this content; the caller frees the path. */
static inline char *test_file(const char *dir, const char *name, const void *content, size_t size)
{
    char *path = uni__path_join(dir, name, NULL);
    assert_int_equal(uni__write_file(path, content, size, false, NULL), 0);
    return path;
}

#endif
