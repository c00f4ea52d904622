/* state_test.c - the state of all ranks in a checkpoint: it comes back byte by byte, belongs to its
 * checkpoint only, and damage or another version is refused. */
#include "base/shared.h"
#include "base/msgpack.h"
#include "checkpoint/state.h"
#include "checkpoint/test_helpers.h"

/* {name: text} as a section, malloc'ed. */
static uni__state_section section(const char *name, const char *text)
{
    uni__packer packer = { 0 };
    uni__pack_map(&packer, 1);
    uni__pack_string(&packer, name, strlen(name));
    uni__pack_bytes(&packer, text, strlen(text));
    return (uni__state_section){ packer.data, packer.size };
}

static void assert_bytes(const uni_value *ranks, size_t rank, const char *name, const char *text)
{
    size_t size = 0;
    const void *bytes = uni_value_as_bytes(uni_dict_get(uni_list_get(ranks, rank), name), &size);
    assert_non_null(bytes);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(bytes, text, size);
}

static void test_round_trip(void **state)
{
    uni__state_section sections[3] = { section("dataset/train", "at 7"),
                                       { NULL, 0 },
                                       section("sampler", "\x01\x02") };
    void *bytes = NULL;
    size_t size = 0;
    uni_value *ranks = NULL;
    MUST(uni__state_pack(&bytes, &size, sections, 3, &err));
    MUST(uni__state_unpack(&ranks, bytes, size, &err));
    assert_int_equal(uni_list_size(ranks), 3);
    assert_bytes(ranks, 0, "dataset/train", "at 7");
    assert_int_equal(uni_dict_size(uni_list_get(ranks, 1)), 0);
    assert_bytes(ranks, 2, "sampler", "\x01\x02");
    uni_value_free(ranks);
    for (size_t cut = 0; cut < size; cut++) {
        assert_true(uni__state_unpack(&ranks, bytes, cut, NULL) < 0);
        assert_null(ranks);
    }
    free(bytes);
    free((void *)sections[0].bytes);
    free((void *)sections[2].bytes);
    /* Ranks without state make no file. */
    static const uint8_t empty_map[1] = { 0x80 };
    MUST(uni__state_pack(&bytes, &size, (uni__state_section[]){ { empty_map, 1 }, { NULL, 0 } }, 2,
                         &err));
    assert_null(bytes);
}

static void test_sections_are_checked(void **state)
{
    uni__state_section good = section("a", "b");
    MUST(uni__state_check(good.bytes, good.size, &err));
    MUST(uni__state_check("\x80", 1, &err));
    assert_true(uni__state_check(good.bytes, good.size - 1, NULL) < 0);
    MUST_FAIL(uni__state_check("\x80\x80", 2, &err), UNI_EFORMAT, "followed by other bytes");
    MUST_FAIL(uni__state_check("\x90", 1, &err), UNI_EFORMAT, "not a map");
    MUST_FAIL(uni__state_check("\x81\xa1x\xa1y", 5, &err), UNI_EFORMAT, "not bytes");
    MUST_FAIL(uni__state_check("\x81\x01\xa1y", 4, &err), UNI_EFORMAT, "not text");
    free((void *)good.bytes);
}

static void refuse(const char *format, int64_t version, uni_value *ranks, int code,
                   const char *words)
{
    uni_value *tree = uni_value_dict(), *out = NULL;
    void *bytes = NULL;
    size_t size = 0;
    assert_int_equal(uni_dict_take(tree, "format", uni_value_string(format)), 0);
    assert_int_equal(uni_dict_take(tree, "version", uni_value_int(version)), 0);
    assert_int_equal(uni_dict_take(tree, "ranks", ranks), 0);
    MUST(uni__msgpack_write(&bytes, &size, tree, &err));
    MUST_FAIL(uni__state_unpack(&out, bytes, size, &err), code, words);
    assert_null(out);
    free(bytes);
    uni_value_free(tree);
}

static void test_files_are_refused(void **state)
{
    uni_value *number = uni_value_list(), *text = uni_value_list(), *names = uni_value_dict();
    assert_int_equal(uni_list_take(number, uni_value_int(1)), 0);
    assert_int_equal(uni_dict_take(names, "a", uni_value_string("no bytes")), 0);
    assert_int_equal(uni_list_take(text, names), 0);
    refuse("unisono run", 1, uni_value_list(), UNI_EFORMAT, "format");
    refuse("unisono state", 2, uni_value_list(), UNI_EVERSION, "version 2, this program reads 1");
    refuse("unisono state", 0, uni_value_list(), UNI_EVERSION, "version 0, this program reads 1");
    refuse("unisono state", 1, uni_value_int(3), UNI_EFORMAT, "\"ranks\" is missing");
    refuse("unisono state", 1, number, UNI_EFORMAT, "not a map");
    refuse("unisono state", 1, text, UNI_EFORMAT, "not bytes");
}

/* A checkpoint of a directory with that file in it, optionally with state. */
static void save_directory(uni__store *store, int64_t iteration, const char *name, const char *text,
                           uni__state_section given)
{
    char *staged = NULL, path[600];
    uni__draft *draft = NULL;
    void *bytes = NULL;
    size_t size = 0;
    MUST(uni__stage_new(&staged, uni__store_staging_dir(store), 0, &err));
    snprintf(path, sizeof path, "%s/%s", staged, name);
    MUST(uni__write_file(path, text, strlen(text), false, &err));
    MUST(uni__draft_new(&draft, store, iteration, 1, &err));
    MUST(uni__draft_take_directory(draft, 0, staged, &err));
    MUST(uni__state_pack(&bytes, &size, &given, 1, &err));
    uni__draft_take_state(draft, bytes, size);
    MUST(uni__draft_commit(draft, NULL, NULL, 1, NULL, &err));
    free(staged);
}

static void test_in_a_checkpoint(void **state)
{
    uni__store *store = NULL;
    uni_checkpoint *latest = NULL;
    uni_value *ranks = NULL;
    uni__state_section given = section("generator", "seed and place");
    MUST(uni__store_open(&store, &(uni__store_options){ .run_dir = at("run") }, &err));
    save_directory(store, 1, "weights", "w", given);
    MUST(uni_checkpoint_open_latest(&latest, at("run"), &err));
    MUST(uni_checkpoint_verify(latest, &err));
    MUST(uni__checkpoint_read_state(&ranks, latest, &err));
    assert_bytes(ranks, 0, "generator", "seed and place");
    uni_value_free(ranks);
    uni_checkpoint_close(latest);
    /* A state file in a copy of the directory does not become the state of the next checkpoint. */
    save_directory(store, 2, UNI__STATE_NAME, "of an older one, copied along",
                   (uni__state_section){ 0 });
    MUST(uni_checkpoint_open_latest(&latest, at("run"), &err));
    assert_int_equal(uni_checkpoint_info_of(latest)->iteration, 2);
    MUST(uni__checkpoint_read_state(&ranks, latest, &err));
    assert_null(ranks);
    uni_checkpoint_close(latest);
    uni__store_close(store, true);
    free((void *)given.bytes);
}

static void test_damage(void **state)
{
    uni__store *store = NULL;
    uni_checkpoint *latest = NULL;
    uni_value *ranks = NULL;
    uni__state_section given = section("generator", "seed");
    char path[600];
    MUST(uni__store_open(&store, &(uni__store_options){ .run_dir = at("run") }, &err));
    save_directory(store, 1, "weights", "w", given);
    MUST(uni_checkpoint_open_latest(&latest, at("run"), &err));
    snprintf(path, sizeof path, "%s/%s", uni_checkpoint_info_of(latest)->path, UNI__STATE_NAME);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "S", 1, (off_t)lseek(fd, 0, SEEK_END) - 4), 1);
    close(fd);
    MUST_FAIL(uni__checkpoint_read_state(&ranks, latest, &err), UNI_ECORRUPT, UNI__STATE_NAME);
    assert_null(ranks);
    uni_checkpoint_close(latest);
    uni__store_close(store, true);
    free((void *)given.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_sections_are_checked),
        cmocka_unit_test(test_files_are_refused),
        cmocka_unit_test_setup_teardown(test_in_a_checkpoint, setup_root, teardown_root),
        cmocka_unit_test_setup_teardown(test_damage, setup_root, teardown_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
