/* test.h - helpers for the tests of src/data. */
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
#include "base/asserts.h"
#include "base/file.h"
#include "data/test_ids.h"

/* Creates a directory for this test; test_dir_remove deletes it. */
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

/* Writes DIR/name; the caller frees the path. */
static inline char *test_file(const char *dir, const char *name, const void *content, size_t size)
{
    char *path = uni__path_join(dir, name, NULL);
    assert_int_equal(uni__write_file(path, content, size, false, NULL), 0);
    return path;
}

/* One column, "id", from begin to end - 1. */
static inline uni_table *ids_table(int64_t begin, int64_t end)
{
    uni_table *table = NULL;
    assert_ok(test_ids_table(&table, begin, end - begin, &failure));
    return table;
}

#endif
