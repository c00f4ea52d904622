/*
 * test_helpers.h - shared by this module's tests: a private directory, small commits, and directory
 * listings. Only the tests of this module include it.
 */
#ifndef UNISONO_CHECKPOINT_TEST_HELPERS_H
#define UNISONO_CHECKPOINT_TEST_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/dict.h"
#include "checkpoint/stage.h"
#include "checkpoint/store.h"

/* A call that must succeed; shows the message if it does not. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        uni_error err = { 0 };                                                                     \
        if ((call) < 0)                                                                            \
            fail_msg("%s: %s: %s", #call, uni_status_name(err.code), err.message);                 \
    } while (0)

/* A call that must fail with that code and contain these words in its message. */
#define MUST_FAIL(call, expected, words)                                                           \
    do {                                                                                           \
        uni_error err = { 0 };                                                                     \
        int result_ = (call);                                                                      \
        if (result_ != (expected) || err.code != (expected) || !strstr(err.message, (words)))      \
            fail_msg("%s: returned %s, expected %s with \"%s\": %s", #call,                        \
                     uni_status_name(result_), uni_status_name(expected), (words), err.message);   \
    } while (0)

static char test_root[256];

/* Below `where` if it is writable; otherwise TMPDIR or /tmp. */
static inline int setup_root_in(const char *where)
{
    if (access(where, W_OK) == 0)
        snprintf(test_root, sizeof test_root, "%s/unisono-checkpoint-XXXXXX", where);
    else
        uni__temporary_name(test_root, sizeof test_root, "checkpoint");
    return mkdtemp(test_root) ? 0 : -1;
}

static inline int setup_root(void **state)
{
    return setup_root_in("");
}

static inline int teardown_root(void **state)
{
    return uni__remove_tree(test_root, NULL);
}

/* "<root>/<name>", in one of a few static buffers, so that one call can use several. */
static inline const char *at(const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", test_root, name);
    return path;
}

static inline void write_text(const char *path, const char *text)
{
    MUST(uni__write_file(path, text, strlen(text), false, &err));
}

static inline void assert_text(const char *path, const char *expected)
{
    char *text = NULL;
    MUST(uni__read_file(&text, NULL, path, 1 << 20, &err));
    assert_string_equal(text, expected);
    free(text);
}

/* The names in a directory, sorted and joined by spaces; "-" when it does not exist. */
static inline const char *names(const char *dir)
{
    static char text[4096];
    struct dirent **entries;
    int count = scandir(dir, &entries, NULL, alphasort);
    snprintf(text, sizeof text, "%s", count < 0 ? "-" : "");
    for (int i = 0; i < count; i++) {
        size_t used = strlen(text);
        if (strcmp(entries[i]->d_name, ".") != 0 && strcmp(entries[i]->d_name, "..") != 0)
            snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "", entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return text;
}

static inline uni_value *dict_with(const char *key, double number)
{
    uni_value *dict = uni_value_dict();
    assert_int_equal(uni_dict_take(dict, key, uni_value_float(number)), 0);
    return dict;
}

/* {"epoch": n, "weights": float32 array of `count` times n}, as a worker would save it. */
static inline uni_value *model_state(int epoch, int64_t count)
{
    uni_array *weights = NULL;
    MUST(uni_array_new(&weights, UNI_F32, 1, &count, &err));
    for (int64_t i = 0; i < count; i++)
        ((float *)uni_array_data(weights))[i] = (float)epoch;
    uni_value *dict = uni_value_dict();
    assert_int_equal(uni_dict_take(dict, "epoch", uni_value_int(epoch)), 0);
    assert_int_equal(uni_dict_take(dict, "weights", uni_value_array(weights)), 0);
    uni_array_unref(weights);
    return dict;
}

static inline void *encode(const uni_value *dict, size_t *size)
{
    MUST(uni__dict_encoded_size(dict, size, &err));
    void *bytes = malloc(*size);
    MUST(uni__dict_encode(dict, bytes, *size, &err));
    return bytes;
}

/* Saves one dictionary checkpoint with {"loss": loss} as its metrics; the status of the commit. */
static inline int save(uni__store *store, int epoch, double loss, uni__checkpoint_info *info,
                       uni_error *err)
{
    uni__draft *draft = NULL;
    uni_value *state = model_state(epoch, 100), *metrics = dict_with("loss", loss);
    size_t size;
    void *bytes = encode(state, &size);
    int status = uni__draft_new(&draft, store, epoch, 1, err);
    if (status == 0 && (status = uni__draft_add_dict(draft, 0, bytes, size, err)) < 0)
        uni__draft_abandon(draft);
    else if (status == 0)
        status = uni__draft_commit(draft, metrics, NULL, 1000.0 + epoch, info, err);
    free(bytes);
    uni_value_free(state);
    uni_value_free(metrics);
    return status;
}

/* The epoch in the dictionary of the run's latest checkpoint, after verifying all its bytes; -1
 * when there is none. */
static inline int latest_epoch(const char *run)
{
    uni_checkpoint *latest = NULL;
    uni_value *state = NULL;
    uni_error why = { 0 };
    if (uni_checkpoint_open_latest(&latest, run, &why) < 0) {
        assert_int_equal(why.code, UNI_ENOTFOUND);
        return -1;
    }
    MUST(uni_checkpoint_read_dict(&state, latest, &err));
    int epoch = (int)uni_dict_get_int(state, "epoch", -2);
    const uni_array *weights = uni_value_as_array(uni_dict_get(state, "weights"));
    for (size_t i = 0; i < uni_array_count(weights); i++)
        assert_true(((float *)uni_array_data(weights))[i] == (float)epoch);
    assert_int_equal(uni_checkpoint_info_of(latest)->iteration, epoch);
    uni_value_free(state);
    uni_checkpoint_close(latest);
    return epoch;
}

#endif
