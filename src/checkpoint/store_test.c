/* store_test.c - a run's checkpoints as users see them: what is listed, what a resume uses, and
 * whose files are touched. */
#include <math.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unisono/log.h>
#include "checkpoint/test_helpers.h"

static uni__store *store;
/* What the callbacks were told: "+1 +2 -1". */
static char events[512];
static int completed_result;

static void note(const char *sign, int64_t number)
{
    size_t used = strlen(events);
    snprintf(events + used, sizeof events - used, "%s%s%d", used ? " " : "", sign, (int)number);
}

static int on_completed(void *context, const uni__checkpoint_info *info, uni_error *why)
{
    uni_checkpoint *checkpoint = NULL;
    MUST(uni_checkpoint_open(&checkpoint, info->path, &err)); /* must be complete by now */
    uni_checkpoint_close(checkpoint);
    if (completed_result < 0)
        return uni_error_set(why, completed_result, "the journal is full");
    note(info->kept ? "+" : "~", info->number);
    return 0;
}

static void on_removed(void *context, int64_t number)
{
    note("-", number);
}

static void open_store(const uni_checkpoint_policy *policy)
{
    MUST(uni__make_dirs(at("run"), 0700, &err));
    MUST(uni__store_open(&store,
                         &(uni__store_options){ .run_dir = at("run"),
                                                .policy = policy,
                                                .completed = on_completed,
                                                .removed = on_removed },
                         &err));
}

static int setup(void **state)
{
    store = NULL;
    events[0] = '\0';
    completed_result = 0;
    uni_log_level_set(UNI_LOG_OFF);
    return setup_root(state);
}

static int teardown(void **state)
{
    uni__store_close(store, false);
    store = NULL;
    return teardown_root(state);
}

static const uni_checkpoint_policy keep_2_min = { .num_to_keep = 2,
                                                  .score_attribute = "loss",
                                                  .score_order = UNI_SCORE_MIN };

/* Golden case of seed 003, with what recovery needs beside it. */
static void test_golden(void **state)
{
    uni__checkpoint_info info;
    open_store(&keep_2_min);
    const double losses[] = { 2, 4, 1, 3 };
    for (int i = 0; i < 4; i++)
        MUST(save(store, i + 1, losses[i], &info, &err));
    assert_string_equal(info.path, ""); /* the fourth was not kept */
    assert_false(info.kept);
    assert_int_equal(info.number, 4);
    assert_string_equal(names(at("run/checkpoints")), "checkpoint_000001 checkpoint_000003");
    assert_string_equal(names(at("run/.recovery")), "checkpoint_000004");
    assert_string_equal(events, "+1 +2 +3 -2 ~4");
    assert_string_equal(uni__store_best(store)->path, at("run/checkpoints/checkpoint_000003"));
    assert_int_equal(uni__store_latest(store)->number, 3);
    assert_int_equal(uni__store_resume(store)->number, 4);
    assert_string_equal(uni__store_resume(store)->path, at("run/.recovery/checkpoint_000004"));
    assert_int_equal(uni__store_count(store), 2);
    assert_int_equal(uni__store_at(store, 0)->number, 1);
    assert_null(uni__store_at(store, 2));
    assert_int_equal(latest_epoch(at("run")), 4); /* the public function finds it too */
    uni__store_close(store, false);
    store = NULL;
    assert_string_equal(names(at("run")), "checkpoints"); /* nothing hidden is left */
    assert_int_equal(latest_epoch(at("run")), 3);
}

static void test_golden_nan(void **state)
{
    open_store(&keep_2_min);
    const double losses[] = { NAN, 3, 7, 5 };
    for (int i = 0; i < 4; i++)
        MUST(save(store, i + 1, losses[i], NULL, &err));
    assert_string_equal(names(at("run/checkpoints")), "checkpoint_000002 checkpoint_000004");
    assert_string_equal(events, "+1 +2 +3 -1 +4 -3");
    assert_int_equal(uni__store_best(store)->number, 2);
    assert_int_equal(uni__store_resume(store)->number, 4);
}

/* At most one is kept aside, and none when the newest is kept. */
static void test_recovery_is_one(void **state)
{
    open_store(&(uni_checkpoint_policy){
        .num_to_keep = 1, .score_attribute = "loss", .score_order = UNI_SCORE_MIN });
    const double losses[] = { 1, 2, 3, 0.5 };
    static const char *const aside[] = { "-", "checkpoint_000002", "checkpoint_000003", "" };
    for (int i = 0; i < 4; i++) {
        MUST(save(store, i + 1, losses[i], NULL, &err));
        assert_string_equal(names(at("run/.recovery")), aside[i]);
        assert_int_equal(latest_epoch(at("run")), i + 1);
    }
    assert_string_equal(names(at("run/checkpoints")), "checkpoint_000004");
    assert_string_equal(events, "+1 ~2 ~3 -2 +4 -3 -1");
}

static void test_default_keeps_all(void **state)
{
    uni__checkpoint_info info;
    struct stat mode;
    open_store(NULL);
    assert_null(uni__store_best(store));
    assert_null(uni__store_latest(store));
    assert_null(uni__store_resume(store));
    for (int i = 1; i <= 3; i++)
        MUST(save(store, i, 1, &info, &err));
    assert_true(info.kept && isnan(info.score));
    assert_int_equal(uni__store_best(store)->number, 3); /* the newest is the best */
    assert_int_equal(uni__store_count(store), 3);
    static const char *const private[] = { "run/checkpoints", "run/.staging",
                                           "run/checkpoints/checkpoint_000001" };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(stat(at(private[i]), &mode), 0);
        assert_int_equal(mode.st_mode & 0777, 0700);
    }
    assert_string_equal(names(at("run/.staging")), "");
}

static void test_keep_newest(void **state)
{
    open_store(&(uni_checkpoint_policy){ .num_to_keep = 2 });
    for (int i = 1; i <= 4; i++)
        MUST(save(store, i, 1, NULL, &err));
    assert_string_equal(names(at("run/checkpoints")), "checkpoint_000003 checkpoint_000004");
}

/* UNI_KEEP_NONE writes nothing, not even a directory. */
static void test_keep_none(void **state)
{
    uni__checkpoint_info info;
    uni__draft *draft = NULL;
    char *staged = NULL;
    open_store(&(uni_checkpoint_policy){ .num_to_keep = UNI_KEEP_NONE,
                                         .score_attribute = "not looked at" });
    MUST(save(store, 1, 1, &info, &err));
    MUST(save(store, 2, 1, &info, &err));
    assert_int_equal(info.number, 2);
    assert_string_equal(info.path, "");
    assert_null(uni__store_best(store));
    assert_null(uni__store_resume(store));
    assert_string_equal(names(at("run")), "");
    /* A directory that the session made must be somewhere; it is dropped. */
    MUST(uni__stage_new(&staged, uni__store_staging_dir(store), 0, &err));
    MUST(uni__draft_new(&draft, store, 3, 1, &err));
    MUST(uni__draft_take_directory(draft, 0, staged, &err));
    MUST(uni__draft_commit(draft, NULL, NULL, 1, NULL, &err));
    free(staged);
    assert_string_equal(names(at("run")), ".staging");
    assert_string_equal(names(at("run/.staging")), "");
    assert_string_equal(events, "");
}

/* The errors of the seed; nothing of the draft is left and the number is not used up. */
static void test_score_errors(void **state)
{
    uni__draft *draft = NULL;
    uni__checkpoint_info info;
    open_store(&keep_2_min);
    MUST(uni__draft_new(&draft, store, 1, 1, &err));
    MUST_FAIL(uni__draft_commit(draft, NULL, NULL, 1, &info, &err), UNI_EINVAL,
              "score attribute missing");
    uni_value *text = uni_value_dict();
    assert_int_equal(uni_dict_take(text, "loss", uni_value_string("low")), 0);
    MUST(uni__draft_new(&draft, store, 1, 1, &err));
    MUST_FAIL(uni__draft_commit(draft, text, NULL, 1, &info, &err), UNI_EINVAL, "not a number");
    uni_value_free(text);
    assert_string_equal(names(at("run/.staging")), "");
    MUST(save(store, 1, 1, &info, &err));
    assert_int_equal(info.number, 1);
    uni__store *other = NULL;
    MUST_FAIL(uni__store_open(
                  &other,
                  &(uni__store_options){ .run_dir = at("run"),
                                         .policy = &(uni_checkpoint_policy){ .num_to_keep = -3 } },
                  &err),
              UNI_EINVAL, "-3");
}

/* A controller that died and one that continues: numbers, scores, recovery and the rest of the
 * policy. */
static void test_resume(void **state)
{
    open_store(&keep_2_min);
    const double losses[] = { 2, 4, 1, 3 };
    for (int i = 0; i < 4; i++)
        MUST(save(store, i + 1, losses[i], NULL, &err));
    uni__store_close(store, true);
    MUST(uni__make_dirs(at("run/.staging/rank_0.0.left over"), 0700, &err));
    events[0] = '\0';
    open_store(&keep_2_min);
    assert_string_equal(names(at("run/.staging")), "");
    assert_int_equal(uni__store_resume(store)->number, 4);
    assert_int_equal(uni__store_resume(store)->iteration, 4);
    assert_int_equal(uni__store_best(store)->number, 3);
    uni__checkpoint_info info;
    MUST(save(store, 5, 1.5, &info, &err));
    assert_int_equal(info.number, 5);
    assert_string_equal(names(at("run/checkpoints")), "checkpoint_000003 checkpoint_000005");
    assert_string_equal(names(at("run/.recovery")), "");
    assert_string_equal(events, "+5 -4 -1");
}

/* Another policy at the resume: the disk follows, and the newest is never lost. */
static void test_resume_with_another_policy(void **state)
{
    open_store(NULL);
    const double losses[] = { 2, 1, 4, 3 };
    for (int i = 0; i < 4; i++)
        MUST(save(store, i + 1, losses[i], NULL, &err));
    uni__store_close(store, true);
    open_store(&(uni_checkpoint_policy){ .num_to_keep = 1,
                                         .score_attribute = "loss",
                                         /* Scores come from the metrics. */
                                         .score_order = UNI_SCORE_MIN });
    assert_string_equal(names(at("run/checkpoints")), "checkpoint_000002");
    assert_string_equal(names(at("run/.recovery")), "checkpoint_000004");
    assert_int_equal(latest_epoch(at("run")), 4);
    uni__store_close(store, true);
    open_store(NULL);
    assert_string_equal(names(at("run/checkpoints")), "checkpoint_000002 checkpoint_000004");
}

/* Damaged ones stay where they are, are not resumed from, and their numbers are not reused. */
static void test_resume_past_damage(void **state)
{
    uni__checkpoint_info info;
    open_store(NULL);
    for (int i = 1; i <= 3; i++)
        MUST(save(store, i, 1, NULL, &err));
    uni__store_close(store, true);
    assert_int_equal(truncate(at("run/checkpoints/checkpoint_000003/arrays.bin"), 5), 0);
    int fd = open(at("run/checkpoints/checkpoint_000002/arrays.bin"), O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 3), 1); /* same size: only verifying detects it */
    close(fd);
    open_store(&(uni_checkpoint_policy){ .num_to_keep = 1 });
    assert_int_equal(uni__store_resume(store)->number, 1);
    MUST(save(store, 9, 1, &info, &err));
    assert_int_equal(info.number, 4);
    assert_string_equal(names(at("run/checkpoints")),
                        "checkpoint_000002 checkpoint_000003 checkpoint_000004");
}

/* Damage of the oldest, which is looked at last, does not keep the others from use. */
static void test_resume_before_damage(void **state)
{
    open_store(NULL);
    for (int i = 1; i <= 2; i++)
        MUST(save(store, i, 1, NULL, &err));
    uni__store_close(store, true);
    assert_int_equal(truncate(at("run/checkpoints/checkpoint_000001/arrays.bin"), 5), 0);
    open_store(NULL);
    assert_int_equal(uni__store_resume(store)->number, 2);
    assert_int_equal(uni__store_count(store), 1);
}

/* From the worst to the best; of equals the earlier one is better. */
static void test_ranking(void **state)
{
    static const double losses[] = { 3, 1, 2, 2 };
    static const int order[] = { 1, 4, 3, 2 };
    open_store(&(uni_checkpoint_policy){ .score_attribute = "loss", .score_order = UNI_SCORE_MIN });
    for (int i = 0; i < 4; i++)
        MUST(save(store, i + 1, losses[i], NULL, &err));
    uni_value *ranking = uni__store_ranking(store);
    assert_int_equal(uni_list_size(ranking), 4);
    for (size_t i = 0; i < 4; i++) {
        char name[100];
        snprintf(name, sizeof name, "run/checkpoints/checkpoint_%06d", order[i]);
        assert_string_equal(uni_value_as_string(uni_list_get(ranking, i), ""), at(name));
    }
    assert_int_equal(uni__store_best(store)->number, 2);
    uni_value_free(ranking);
}

static void test_next_number(void **state)
{
    uni__checkpoint_info info;
    MUST(uni__make_dirs(at("run"), 0700, &err));
    MUST(uni__store_open(&store, &(uni__store_options){ .run_dir = at("run"), .next_number = 8 },
                         &err));
    MUST(save(store, 1, 1, &info, &err));
    assert_int_equal(info.number, 8);
}

/* If the journal cannot record it, the checkpoint does not exist either. */
static void test_completed_fails(void **state)
{
    open_store(&(uni_checkpoint_policy){ .num_to_keep = 1 });
    MUST(save(store, 1, 1, NULL, &err));
    completed_result = UNI_EDISKFULL;
    MUST_FAIL(save(store, 2, 1, NULL, &err), UNI_EDISKFULL, "journal");
    assert_string_equal(names(at("run/checkpoints")), "checkpoint_000001");
    assert_string_equal(names(at("run/.staging")), "");
    completed_result = 0;
    MUST(save(store, 2, 1, NULL, &err));
    assert_string_equal(names(at("run/checkpoints")), "checkpoint_000002");
}

/* ---- directories ---- */

static char *stage(int rank)
{
    char *staged = NULL;
    MUST(uni__stage_new(&staged, uni__store_staging_dir(store), rank, &err));
    return staged;
}

static void put_file(const char *dir, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    *strrchr(path, '/') = '\0';
    MUST(uni__make_dirs(path, 0700, &err));
    snprintf(path, sizeof path, "%s/%s", dir, name);
    write_text(path, text);
}

static void verify_latest(void)
{
    uni_checkpoint *latest = NULL;
    MUST(uni_checkpoint_open_latest(&latest, at("run"), &err));
    MUST(uni_checkpoint_verify(latest, &err));
    uni_checkpoint_close(latest);
}

static void test_directory_parts(void **state)
{
    uni__draft *draft = NULL;
    uni_value *read = NULL;
    open_store(NULL);
    char *first = stage(0), *second = stage(1), *third = stage(2);
    put_file(first, "model/weights.0", "zero");
    put_file(first, "vocabulary", "a b c");
    put_file(second, "model/weights.1", "one");
    put_file(second, "vocabulary", "a b c"); /* equal files on all ranks are fine */
    put_file(second, UNI__MANIFEST_NAME, "of an older one, copied along");
    put_file(third, "model/deep/er/x", "x");
    put_file(third, "model/" UNI__MANIFEST_NAME, "the user's own");
    MUST(uni__draft_new(&draft, store, 1, 1, &err));
    MUST(uni__draft_take_directory(draft, 0, first, &err));
    MUST(uni__draft_take_directory(draft, 1, second, &err));
    MUST(uni__draft_take_directory(draft, 2, third, &err));
    MUST(uni__draft_commit(draft, NULL, NULL, 5, NULL, &err));
    assert_string_equal(names(at("run/.staging")), "");
    const char *dir = at("run/checkpoints/checkpoint_000001");
    assert_string_equal(names(dir), UNI__MANIFEST_NAME " model vocabulary");
    assert_text(at("run/checkpoints/checkpoint_000001/model/weights.0"), "zero");
    assert_text(at("run/checkpoints/checkpoint_000001/model/weights.1"), "one");
    assert_text(at("run/checkpoints/checkpoint_000001/model/deep/er/x"), "x");
    assert_text(at("run/checkpoints/checkpoint_000001/model/" UNI__MANIFEST_NAME),
                "the user's own");
    verify_latest();
    uni_checkpoint *latest = NULL;
    MUST(uni_checkpoint_open_latest(&latest, at("run"), &err));
    assert_false(uni_checkpoint_info_of(latest)->is_dict);
    MUST_FAIL(uni_checkpoint_read_dict(&read, latest, &err), UNI_EDTYPE, "directory");
    assert_int_equal(uni_dict_size(uni_checkpoint_info_of(latest)->metrics), 0);
    uni_checkpoint_close(latest);
    free(first);
    free(second);
    free(third);
}

/* Same name, different contents: both ranks are named, and the run's checkpoints do not change. */
static void test_conflict(void **state)
{
    static const char *const pairs[][2] = {
        { "w", "w" }, { "w/x", "w" }, { "w", "w/x" }, { "d/w", "d/w" }
    };
    open_store(NULL);
    for (int i = 0; i < 4; i++) {
        uni__draft *draft = NULL;
        char *first = stage(3), *second = stage(5);
        put_file(first, "only here", "x");
        put_file(first, pairs[i][0], "three");
        put_file(second, pairs[i][1], "five!");
        MUST(uni__draft_new(&draft, store, 1, 1, &err));
        MUST(uni__draft_take_directory(draft, 3, first, &err));
        MUST_FAIL(uni__draft_take_directory(draft, 5, second, &err), UNI_EMISMATCH,
                  "ranks 3 and 5");
        uni__draft_abandon(draft);
        MUST(uni__store_clean_staging(store, &err));
        assert_string_equal(names(at("run/.staging")), "");
        free(first);
        free(second);
    }
    assert_string_equal(names(at("run/checkpoints")), "");
}

/* A third rank's conflict is with the rank that brought the file, not with the first. */
static void test_conflict_names_the_owner(void **state)
{
    uni__draft *draft = NULL;
    open_store(NULL);
    char *parts[3] = { stage(0), stage(1), stage(2) };
    put_file(parts[0], "d/a", "0");
    put_file(parts[1], "d/b", "1");
    put_file(parts[2], "d/b", "2");
    MUST(uni__draft_new(&draft, store, 1, 1, &err));
    MUST(uni__draft_take_directory(draft, 0, parts[0], &err));
    MUST(uni__draft_take_directory(draft, 1, parts[1], &err));
    MUST_FAIL(uni__draft_take_directory(draft, 2, parts[2], &err), UNI_EMISMATCH,
              "ranks 1 and 2 both bring \"d/b\"");
    uni__draft_abandon(draft);
    for (int i = 0; i < 3; i++)
        free(parts[i]);
}

/* Ray's way of merging, if requested: the lowest rank's file stays, whatever the order. */
static void test_lowest_rank_wins(void **state)
{
    uni__draft *draft = NULL;
    open_store(&(uni_checkpoint_policy){ .lowest_rank_wins = true });
    int order[3] = { 1, 0, 2 };
    char text[8];
    MUST(uni__draft_new(&draft, store, 1, 1, &err));
    for (int i = 0; i < 3; i++) {
        char *part = stage(order[i]);
        snprintf(text, sizeof text, "%d", order[i]);
        put_file(part, "d/model", text);
        put_file(part, text, text);
        MUST(uni__draft_take_directory(draft, order[i], part, &err));
        free(part);
    }
    MUST(uni__draft_commit(draft, NULL, NULL, 1, NULL, &err));
    assert_string_equal(names(at("run/.staging")), "");
    FILE *file = fopen(at("run/checkpoints/checkpoint_000001/d/model"), "r");
    assert_non_null(file);
    assert_int_equal(fgetc(file), '0');
    fclose(file);
    assert_string_equal(names(at("run/checkpoints/checkpoint_000001")),
                        ".unisono-manifest.json 0 1 2 d");
}

/* Dictionaries of several ranks, and a directory beside them. */
static void test_dict_parts(void **state)
{
    uni__draft *draft = NULL;
    uni_value *zero = model_state(1, 5), *two = dict_with("rank", 2), *read = NULL;
    size_t zero_size, two_size;
    void *zero_bytes = encode(zero, &zero_size), *two_bytes = encode(two, &two_size);
    open_store(NULL);
    char *extra = stage(1);
    put_file(extra, "tokenizer.json", "{}");
    MUST(uni__draft_new(&draft, store, 1, 1, &err));
    MUST(uni__draft_add_dict(draft, 2, two_bytes, two_size, &err));
    MUST(uni__draft_take_directory(draft, 1, extra, &err));
    MUST(uni__draft_add_dict(draft, 0, zero_bytes, zero_size, &err));
    MUST_FAIL(uni__draft_add_dict(draft, 0, zero_bytes, zero_size, &err), UNI_EMISMATCH, "twice");
    MUST_FAIL(uni__draft_add_dict(draft, 3, zero_bytes, zero_size - 1, &err), UNI_EFORMAT,
              "cut off");
    MUST(uni__draft_commit(draft, NULL, NULL, 5, NULL, &err));
    const char *dir = at("run/checkpoints/checkpoint_000001");
    assert_string_equal(names(dir), UNI__MANIFEST_NAME
                        " arrays.bin dict.msgpack dict.msgpack.rank_2 tokenizer.json");
    MUST(uni__dict_read(&read, dir, ".rank_2", &err));
    assert_true(uni_value_equal(read, two));
    uni_value_free(read);
    MUST(uni__dict_read(&read, dir, "", &err));
    assert_true(uni_value_equal(read, zero));
    uni_value_free(read);
    MUST_FAIL(uni__dict_read(&read, dir, ".rank_7", &err), UNI_ENOTFOUND, "dict.msgpack.rank_7");
    verify_latest();
    free(extra);
    free(zero_bytes);
    free(two_bytes);
    uni_value_free(zero);
    uni_value_free(two);
}

/* A user's directory is copied, reusable, and never touched; a link that leads outside is replaced
 * by its target. */
static void test_users_directory(void **state)
{
    uni__draft *draft = NULL;
    char *staged = NULL;
    open_store(NULL);
    put_file(at("mine"), "w.bin", "weights");
    put_file(at("mine"), "sub/x", "x");
    put_file(at("cache"), "blob", "of the cache");
    put_file(at("cache"), "tree/leaf", "leaf");
    assert_int_equal(symlink("w.bin", at("mine/latest")), 0);
    assert_int_equal(symlink("../w.bin", at("mine/sub/up")), 0);
    assert_int_equal(symlink("../cache/blob", at("mine/blob")), 0);
    assert_int_equal(symlink(at("cache/blob"), at("mine/sub/absolute")), 0);
    assert_int_equal(symlink("../cache/tree", at("mine/tree")), 0);
    MUST(uni__stage_copy(&staged, uni__store_staging_dir(store), 0, at("mine"), &err));
    assert_true(uni__stage_owns(uni__store_staging_dir(store), staged));
    assert_false(uni__stage_owns(uni__store_staging_dir(store), at("mine")));
    MUST(uni__draft_new(&draft, store, 1, 1, &err));
    MUST_FAIL(uni__draft_take_directory(draft, 0, at("mine"), &err), UNI_EINVAL, "never moved");
    MUST(uni__draft_take_directory(draft, 0, staged, &err));
    MUST(uni__draft_commit(draft, NULL, NULL, 5, NULL, &err));
    free(staged);
    assert_string_equal(names(at("mine")), "blob latest sub tree w.bin");
    assert_text(at("mine/w.bin"), "weights");
    MUST(uni__remove_tree(at("cache"), &err)); /* not needed any more */
    assert_text(at("run/checkpoints/checkpoint_000001/blob"), "of the cache");
    assert_text(at("run/checkpoints/checkpoint_000001/sub/absolute"), "of the cache");
    assert_text(at("run/checkpoints/checkpoint_000001/tree/leaf"), "leaf");
    assert_text(at("run/checkpoints/checkpoint_000001/sub/up"), "weights");
    char target[16] = "";
    assert_int_equal(
        readlink(at("run/checkpoints/checkpoint_000001/latest"), target, sizeof target), 5);
    verify_latest();
    /* Links are verified, too: pointing elsewhere is damage. */
    uni_checkpoint *checkpoint = NULL;
    assert_int_equal(unlink(at("run/checkpoints/checkpoint_000001/latest")), 0);
    assert_int_equal(symlink("x.bin", at("run/checkpoints/checkpoint_000001/latest")), 0);
    MUST_FAIL(uni_checkpoint_open(&checkpoint, at("run/checkpoints/checkpoint_000001"), &err),
              UNI_ECORRUPT, "latest");
}

static void test_bad_sources(void **state)
{
    char *staged = NULL;
    uni__draft *draft = NULL;
    open_store(NULL);
    MUST_FAIL(uni__stage_copy(&staged, uni__store_staging_dir(store), 0, at("gone"), &err),
              UNI_ENOTFOUND, "gone");
    write_text(at("file"), "x");
    MUST_FAIL(uni__stage_copy(&staged, uni__store_staging_dir(store), 0, at("file"), &err),
              UNI_EINVAL, "file");
    put_file(at("mine"), "x", "x");
    assert_int_equal(symlink("/no/such/file", at("mine/dangling")), 0);
    MUST_FAIL(uni__stage_copy(&staged, uni__store_staging_dir(store), 0, at("mine"), &err),
              UNI_ENOTFOUND, "dangling");
    assert_string_equal(names(at("run/.staging")), ""); /* nothing partial is left */
    assert_null(staged);
    MUST(uni__draft_new(&draft, store, 1, 1, &err));
    char gone[600];
    snprintf(gone, sizeof gone, "%s/rank_0.0.gone", uni__store_staging_dir(store));
    MUST_FAIL(uni__draft_take_directory(draft, 0, gone, &err), UNI_ENOTFOUND, "rank 0");
    uni__draft_abandon(draft);
}

static void test_owns(void **state)
{
    open_store(NULL);
    const char *staging = uni__store_staging_dir(store);
    char *staged = stage(0), path[600];
    put_file(staged, "sub/x", "x");
    assert_true(uni__stage_owns(staging, staged));
    snprintf(path, sizeof path, "%s/", staged);
    assert_true(uni__stage_owns(staging, path));
    snprintf(path, sizeof path, "%s/sub", staged);
    assert_false(uni__stage_owns(staging, path));
    snprintf(path, sizeof path, "%s/..", staged);
    assert_false(uni__stage_owns(staging, path));
    assert_false(uni__stage_owns(staging, staging));
    assert_false(uni__stage_owns(staging, "/"));
    assert_false(uni__stage_owns(staging, ""));
    assert_int_equal(symlink(at("mine"), at("run/.staging/link")), 0);
    /* That would move a user's directory. */
    assert_false(uni__stage_owns(staging, at("run/.staging/link")));
    free(staged);
}

/* File names that are not UTF-8, and a directory without files. */
static void test_odd_names(void **state)
{
    uni__draft *draft = NULL;
    open_store(NULL);
    char *staged = stage(0);
    put_file(staged, "caf\xe9", "latin 1");
    put_file(staged, "new\nline \"quoted\" \\", "odd");
    MUST(uni__draft_new(&draft, store, 1, 1, &err));
    MUST(uni__draft_take_directory(draft, 0, staged, &err));
    MUST(uni__draft_commit(draft, NULL, NULL, 5, NULL, &err));
    verify_latest();
    free(staged);
    staged = stage(0);
    MUST(uni__draft_new(&draft, store, 2, 1, &err));
    MUST(uni__draft_take_directory(draft, 0, staged, &err));
    MUST(uni__draft_commit(draft, NULL, NULL, 6, NULL, &err));
    verify_latest();
    free(staged);
}

/* Pieces of a file from another host, in their order and in others. */
static void test_pieces(void **state)
{
    static const uint64_t wrong[] = { 0, 3, 6, 1ull << 40, 1ull << 62, UINT64_MAX };
    char *staged = NULL;
    struct stat info;
    MUST(uni__stage_new(&staged, at("staging"), 3, &err));
    MUST(uni__stage_write(staged, "deep/er/file", 0, "abc", 3, &err));
    MUST(uni__stage_write(staged, "deep/er/file", 3, "de", 2, &err));
    MUST(uni__stage_write(staged, "deep/er/file", 5, NULL, 0, &err));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        MUST_FAIL(uni__stage_write(staged, "deep/er/file", wrong[i], "x", 1, &err), UNI_EFORMAT,
                  "does not follow");
    char *path = uni__path_join(staged, "deep/er/file", NULL);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 5);
    assert_true(uni__stage_write(staged, "deep/er", 0, "x", 1, NULL) < 0);
    free(path);
    free(staged);
}

/* Pieces without end on a disk of 4 MiB, as root: a twentieth of it stays free. */
static void test_pieces_leave_room(void **state)
{
    static char piece[256 << 10];
    uint64_t size = 0;
    int status = 0;
    char *staged = NULL;
    struct statvfs room;
    uni_error why = { 0 };
    MUST(uni__make_dirs(at("small"), 0700, &err));
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", at("small"), "tmpfs", 0, "size=4m") < 0)
        skip();
    MUST(uni__stage_new(&staged, at("small"), 0, &err));
    for (; status == 0 && size < 8 << 20; size += sizeof piece)
        status = uni__stage_write(staged, "file", size, piece, sizeof piece, &why);
    assert_int_equal(status, UNI_EDISKFULL);
    assert_non_null(strstr(why.message, "nearly full"));
    assert_int_equal(statvfs(staged, &room), 0);
    assert_true(room.f_bavail * 20 >= room.f_blocks);
    assert_true(room.f_bavail * 4 < room.f_blocks);
    assert_int_equal(umount(at("small")), 0);
    free(staged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define ROOTED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
        ROOTED(test_golden),
        ROOTED(test_golden_nan),
        ROOTED(test_recovery_is_one),
        ROOTED(test_default_keeps_all),
        ROOTED(test_keep_newest),
        ROOTED(test_keep_none),
        ROOTED(test_score_errors),
        ROOTED(test_resume),
        ROOTED(test_resume_with_another_policy),
        ROOTED(test_resume_past_damage),
        ROOTED(test_resume_before_damage),
        ROOTED(test_ranking),
        ROOTED(test_next_number),
        ROOTED(test_completed_fails),
        ROOTED(test_directory_parts),
        ROOTED(test_conflict),
        ROOTED(test_conflict_names_the_owner),
        ROOTED(test_lowest_rank_wins),
        ROOTED(test_dict_parts),
        ROOTED(test_users_directory),
        ROOTED(test_bad_sources),
        ROOTED(test_owns),
        ROOTED(test_pieces),
        ROOTED(test_pieces_leave_room),
        ROOTED(test_odd_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
