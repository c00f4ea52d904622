/* checkpoint_test.c - opening, verifying and falling back: damage anywhere is detected, and the
 * older good checkpoint is used and logged. */
#include <sys/wait.h>
#include <unisono/log.h>
#include "checkpoint/test_helpers.h"

static char said[8192];

static void listen(void *context, uni_log_level level, const char *message)
{
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", message);
}

static int setup_quiet(void **state)
{
    said[0] = '\0';
    uni_log_function_set(listen, NULL);
    return setup_root(state);
}

/* Makes checkpoints 1..n of a run at "<root>/run". */
static void make_run(int count)
{
    uni__store *store = NULL;
    MUST(uni__make_dirs(at("run"), 0700, &err));
    MUST(uni__store_open(&store, &(uni__store_options){ .run_dir = at("run") }, &err));
    for (int i = 1; i <= count; i++)
        MUST(save(store, i, 1.0 / i, NULL, &err));
    uni__store_close(store, false);
}

static void test_open_and_read(void **state)
{
    make_run(2);
    uni_checkpoint *checkpoint = NULL;
    uni_value *dict = NULL;
    MUST(uni_checkpoint_open_latest(&checkpoint, at("run"), &err));
    assert_string_equal(uni_checkpoint_info_of(checkpoint)->path,
                        at("run/checkpoints/checkpoint_000002"));
    assert_int_equal(uni_checkpoint_info_of(checkpoint)->number, 2);
    assert_int_equal(uni_checkpoint_info_of(checkpoint)->iteration, 2);
    assert_int_equal(uni_checkpoint_info_of(checkpoint)->attempt, 1);
    assert_true(uni_checkpoint_info_of(checkpoint)->timestamp == 1002.0);
    assert_true(uni_checkpoint_info_of(checkpoint)->bytes > 400);
    assert_true(uni_dict_get_float(uni_checkpoint_info_of(checkpoint)->metrics, "loss", 0) == 0.5);
    assert_true(uni_checkpoint_info_of(checkpoint)->is_dict);
    MUST(uni_checkpoint_verify(checkpoint, &err));
    MUST(uni_checkpoint_read_dict(&dict, checkpoint, &err));
    uni_checkpoint_close(checkpoint);
    uni_value *expected = model_state(2, 100);
    assert_true(uni_value_equal(dict, expected));
    uni_value_free(expected);
    uni_value_free(dict);
    /* The checkpoints folder works like the run directory. */
    MUST(uni_checkpoint_open_latest(&checkpoint, at("run/checkpoints"), &err));
    assert_int_equal(uni_checkpoint_info_of(checkpoint)->number, 2);
    uni_checkpoint_close(checkpoint);
    assert_string_equal(said, "");
}

static void test_nothing_there(void **state)
{
    uni_checkpoint *checkpoint = NULL;
    MUST(uni__make_dirs(at("run/checkpoints/checkpoint_000004"), 0700, &err));
    MUST(uni__make_dirs(at("run/checkpoints/checkpoint_x"), 0700, &err));
    MUST_FAIL(uni_checkpoint_open_latest(&checkpoint, at("gone"), &err), UNI_ENOTFOUND, "gone");
    MUST_FAIL(uni_checkpoint_open(&checkpoint, at("gone"), &err), UNI_ENOTFOUND, "gone");
    MUST_FAIL(uni_checkpoint_open(&checkpoint, at("run/checkpoints/checkpoint_000004"), &err),
              UNI_EFORMAT, "not a complete checkpoint");
    MUST_FAIL(uni_checkpoint_open_latest(&checkpoint, at("run"), &err), UNI_ENOTFOUND,
              "none of the 1");
    assert_non_null(strstr(said, "checkpoint_000004 is passed over"));
    assert_null(checkpoint);
}

static void poke(const char *path, off_t offset, unsigned char change)
{
    unsigned char byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= change;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

static off_t size_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

/* Flips every byte of every file of the newest: the previous one is always used, and the log says
 * why. */
static void test_every_flipped_byte(void **state)
{
    static const char *const files[] = { UNI__MANIFEST_NAME, "dict.msgpack", "arrays.bin" };
    make_run(2);
    for (int i = 0; i < 3; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", at("run/checkpoints/checkpoint_000002"), files[i]);
        for (off_t offset = 0; offset < size_of(path); offset++) {
            said[0] = '\0';
            poke(path, offset, (unsigned char)(1 << (offset % 8)));
            assert_int_equal(latest_epoch(at("run")), 1);
            assert_non_null(strstr(said, "checkpoint_000002 is passed over"));
            assert_non_null(strstr(said, "going back to the checkpoint"));
            poke(path, offset, (unsigned char)(1 << (offset % 8)));
        }
    }
    assert_int_equal(latest_epoch(at("run")), 2);
}

/* Truncated anywhere, or longer than it was. */
static void test_every_truncation(void **state)
{
    static const char *const files[] = { UNI__MANIFEST_NAME, "dict.msgpack", "arrays.bin" };
    make_run(2);
    for (int i = 0; i < 3; i++) {
        char path[300], kept[320], *data = NULL;
        size_t size = 0;
        snprintf(path, sizeof path, "%s/%s", at("run/checkpoints/checkpoint_000002"), files[i]);
        snprintf(kept, sizeof kept, "%s/kept", test_root);
        MUST(uni__read_file(&data, &size, path, 1 << 20, &err));
        for (size_t cut = 0; cut < size; cut += 1 + cut / 16) {
            assert_int_equal(truncate(path, (off_t)cut), 0);
            assert_int_equal(latest_epoch(at("run")), 1);
            MUST(uni__write_file(path, data, size, false, &err));
        }
        assert_int_equal(truncate(path, (off_t)size + 1), 0);
        assert_int_equal(latest_epoch(at("run")), 1);
        MUST(uni__write_file(path, data, size, false, &err));
        assert_int_equal(latest_epoch(at("run")), 2);
        assert_int_equal(rename(path, kept), 0); /* missing */
        assert_int_equal(latest_epoch(at("run")), 1);
        assert_int_equal(rename(kept, path), 0);
        free(data);
    }
}

/* Opening checks sizes; verifying and reading detect changes of the same size. */
static void test_verify_names_the_file(void **state)
{
    make_run(1);
    uni_checkpoint *checkpoint = NULL;
    uni_value *dict = NULL;
    MUST(uni_checkpoint_open(&checkpoint, at("run/checkpoints/checkpoint_000001"), &err));
    poke(at("run/checkpoints/checkpoint_000001/arrays.bin"), 17, 4);
    MUST_FAIL(uni_checkpoint_verify(checkpoint, &err), UNI_ECORRUPT, "arrays.bin");
    MUST_FAIL(uni_checkpoint_read_dict(&dict, checkpoint, &err), UNI_ECORRUPT, "arrays.bin");
    poke(at("run/checkpoints/checkpoint_000001/arrays.bin"), 17, 4);
    poke(at("run/checkpoints/checkpoint_000001/dict.msgpack"), 40, 1);
    MUST_FAIL(uni_checkpoint_read_dict(&dict, checkpoint, &err), UNI_ECORRUPT, "dict.msgpack");
    assert_null(dict);
    uni_checkpoint_close(checkpoint);
}

/* A file replaced by a link, a pipe or a directory is damage; it is not followed and does not
 * block. */
static void test_replaced_files(void **state)
{
    make_run(2);
    const char *path = "run/checkpoints/checkpoint_000002/arrays.bin";
    assert_int_equal(rename(at(path), at("elsewhere")), 0);
    assert_int_equal(symlink(at("elsewhere"), at(path)), 0);
    assert_int_equal(latest_epoch(at("run")), 1);
    assert_int_equal(unlink(at(path)), 0);
    assert_int_equal(mkfifo(at(path), 0600), 0);
    assert_int_equal(latest_epoch(at("run")), 1);
    assert_int_equal(unlink(at(path)), 0);
    assert_int_equal(mkdir(at(path), 0700), 0);
    assert_int_equal(latest_epoch(at("run")), 1);
}

/* A renamed copy must not pass for the newest. */
static void test_renamed_copy(void **state)
{
    make_run(2);
    MUST(uni__copy_tree(at("run/checkpoints/checkpoint_000001"),
                        at("run/checkpoints/checkpoint_000009"), &err));
    assert_int_equal(latest_epoch(at("run")), 2);
    assert_non_null(strstr(said, "was it renamed?"));
    uni_checkpoint *copy = NULL; /* a copy under any other name opens */
    MUST(uni__copy_tree(at("run/checkpoints/checkpoint_000001"), at("my best"), &err));
    MUST(uni_checkpoint_open(&copy, at("my best"), &err));
    MUST(uni_checkpoint_verify(copy, &err));
    uni_checkpoint_close(copy);
}

/* Files that a user adds later belong to the user. */
static void test_extra_files(void **state)
{
    make_run(1);
    write_text(at("run/checkpoints/checkpoint_000001/notes.txt"), "the good one");
    assert_int_equal(latest_epoch(at("run")), 1);
}

static void test_write_dict(void **state)
{
    uni_value *state_dict = model_state(7, 10), *read = NULL;
    uni_checkpoint *checkpoint = NULL;
    MUST(uni_checkpoint_write_dict(at("mine/"), state_dict, &err)); /* a trailing slash is fine */
    assert_string_equal(names(test_root), "mine");
    struct stat info;
    assert_int_equal(stat(at("mine"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    MUST_FAIL(uni_checkpoint_write_dict(at("mine"), state_dict, &err), UNI_EEXISTS, "mine");
    MUST_FAIL(uni_checkpoint_write_dict(at("no/such/dir"), state_dict, &err), UNI_ENOTFOUND,
              "no/such/dir");
    MUST(uni_checkpoint_open(&checkpoint, at("mine"), &err));
    assert_int_equal(uni_checkpoint_info_of(checkpoint)->number, 0);
    MUST(uni_checkpoint_verify(checkpoint, &err));
    MUST(uni_checkpoint_read_dict(&read, checkpoint, &err));
    assert_true(uni_value_equal(read, state_dict));
    uni_value_free(read);
    uni_value_free(state_dict);
    uni_checkpoint_close(checkpoint);
}

/* Another user on the machine cannot read anything (needs root to become one). */
static void test_private(void **state)
{
    make_run(1);
    if (geteuid() != 0) {
        print_message("skipped by name: test_private needs root to become another user\n");
        skip();
    }
    chmod(test_root, 0755);
    /* The trainer creates the run directory; ours must be private on its own. */
    chmod(at("run"), 0755);
    pid_t child = fork();
    if (child == 0) {
        if (setgid(65534) < 0 || setuid(65534) < 0)
            _exit(2);
        bool in = open(at("run/checkpoints"), O_RDONLY) >= 0 ||
                  open(at("run/checkpoints/checkpoint_000001/dict.msgpack"), O_RDONLY) >= 0;
        _exit(in ? 1 : 0);
    }
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define ROOTED(test) cmocka_unit_test_setup_teardown(test, setup_quiet, teardown_root)
        ROOTED(test_open_and_read),      ROOTED(test_nothing_there),
        ROOTED(test_every_flipped_byte), ROOTED(test_every_truncation),
        ROOTED(test_replaced_files),     ROOTED(test_verify_names_the_file),
        ROOTED(test_renamed_copy),       ROOTED(test_extra_files),
        ROOTED(test_write_dict),         ROOTED(test_private),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
