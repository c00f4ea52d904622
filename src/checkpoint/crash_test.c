/*
 * crash_test.c - the process dies, or the disk fills up, at every single change of the file system
 * during opening a store, committing and closing. Afterwards the run has the old or the new
 * checkpoint, complete, and nothing partial.
 *
 * A power cut is worse than a kill: what was written and not fsynced is lost too. So the hook
 * remembers those files, and empties them when it crashes.
 */
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unisono/log.h>
#include "base/fault.h"
#include "checkpoint/test_helpers.h"

/* ---- the hook ---- */

enum { CRASHED = 77, FAILED = 78 };
typedef enum fault_mode { COUNT, CRASH, TORN_CRASH, FULL_ONCE, FULL_FROM } fault_mode;

typedef struct fault_plan {
    fault_mode mode;
    long at, seen;
    struct {
        /* Kept open, because the file may be renamed before the crash. */
        int fd;
        ino_t inode;
    } unsynced[64];
    int unsynced_count;
    char trace[32768];
} fault_plan;

static fault_plan plan;

static void track(uni__fault_op op, const char *path)
{
    struct stat info;
    int i = 0;
    if ((op != UNI__FAULT_WRITE && op != UNI__FAULT_FSYNC) || stat(path, &info) < 0)
        return;
    while (i < plan.unsynced_count && plan.unsynced[i].inode != info.st_ino)
        i++;
    if (op == UNI__FAULT_WRITE && i == plan.unsynced_count && i < 64) {
        plan.unsynced[i].fd = open(path, O_WRONLY | O_CLOEXEC);
        plan.unsynced[i].inode = info.st_ino;
        plan.unsynced_count++;
    } else if (op == UNI__FAULT_FSYNC && i < plan.unsynced_count) {
        close(plan.unsynced[i].fd);
        plan.unsynced[i] = plan.unsynced[--plan.unsynced_count];
    }
}

static void forget_unsynced(void)
{
    while (plan.unsynced_count > 0)
        close(plan.unsynced[--plan.unsynced_count].fd);
}

static void crash(void)
{
    for (int i = 0; i < plan.unsynced_count; i++)
        if (ftruncate(plan.unsynced[i].fd, 0) < 0)
            _exit(FAILED);
    _exit(CRASHED);
}

static int hook(void *context, uni__fault_op op, const char *path, size_t *size)
{
    static const char *const words[] = { "create", "write", "truncate", "fsync",
                                         "rename", "mkdir", "unlink" };
    long now = ++plan.seen;
    size_t used = strlen(plan.trace);
    size_t prefix = strlen(test_root);
    bool below = strncmp(path, test_root, prefix) == 0 && path[prefix] == '/';
    snprintf(plan.trace + used, sizeof plan.trace - used, "%s %s\n", words[op],
             below ? path + prefix + 1 : path);
    if (plan.mode == CRASH && now == plan.at)
        crash();
    if (plan.mode == TORN_CRASH && now > plan.at)
        crash();
    if (plan.mode == TORN_CRASH && now == plan.at && size && *size > 1)
        *size /= 2; /* half is written; the next call crashes */
    bool makes = op != UNI__FAULT_UNLINK && op != UNI__FAULT_TRUNCATE;
    if ((plan.mode == FULL_ONCE && now == plan.at) ||
        (plan.mode == FULL_FROM && now >= plan.at && makes))
        return ENOSPC;
    track(op, path);
    return 0;
}

static void start_plan(fault_mode mode, long when)
{
    forget_unsynced();
    plan = (fault_plan){ .mode = mode, .at = when };
    uni__fault_hook_set(hook, NULL);
}

/* ---- scenarios ---- */

typedef struct scenario {
    const char *name;
    uni_checkpoint_policy before, policy;
    int saves; /* number of epochs saved before the faults */
    double losses[4]; /* of those and of the next one */
    /* The new one has a dictionary and two directories. */
    bool directories;
} scenario;

static const scenario scenarios[] = {
    { "the first one", { 0 }, { 0 }, 0, { 1 }, false },
    { "keep all", { 0 }, { 0 }, 2, { 1, 1, 1 }, false },
    { "keep the newest", { .num_to_keep = 1 }, { .num_to_keep = 1 }, 1, { 1, 1 }, false },
    { "the first kept aside",
      { .num_to_keep = 1, .score_attribute = "loss", .score_order = UNI_SCORE_MIN },
      { .num_to_keep = 1, .score_attribute = "loss", .score_order = UNI_SCORE_MIN },
      1,
      { 1, 2 },
      false },
    { "kept aside replaced",
      { .num_to_keep = 1, .score_attribute = "loss", .score_order = UNI_SCORE_MIN },
      { .num_to_keep = 1, .score_attribute = "loss", .score_order = UNI_SCORE_MIN },
      2,
      { 1, 2, 3 },
      false },
    { "a better one",
      { .num_to_keep = 1, .score_attribute = "loss", .score_order = UNI_SCORE_MIN },
      { .num_to_keep = 1, .score_attribute = "loss", .score_order = UNI_SCORE_MIN },
      2,
      { 1, 2, 0.5 },
      false },
    { "another policy",
      { 0 },
      { .num_to_keep = 1, .score_attribute = "loss", .score_order = UNI_SCORE_MIN },
      3,
      { 1, 2, 3, 4 },
      false },
    { "parts of three ranks", { .num_to_keep = 1 }, { .num_to_keep = 1 }, 1, { 1, 1 }, true },
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

static int save_parts(uni__store *store, int epoch, uni_error *err)
{
    uni__draft *draft = NULL;
    uni_value *state = model_state(epoch, 100);
    size_t size;
    void *bytes = encode(state, &size);
    int status = uni__draft_new(&draft, store, epoch, 1, err);
    if (status == 0)
        status = uni__draft_add_dict(draft, 0, bytes, size, err);
    for (int rank = 1; status == 0 && rank <= 2; rank++) {
        char *staged = NULL;
        status = uni__stage_copy(&staged, uni__store_staging_dir(store), rank,
                                 at(rank == 1 ? "user1" : "user2"), err);
        if (status == 0)
            status = uni__draft_take_directory(draft, rank, staged, err);
        free(staged);
    }
    if (status == 0)
        status = uni__draft_commit(draft, NULL, NULL, 1000.0 + epoch, NULL, err);
    else
        uni__draft_abandon(draft);
    free(bytes);
    uni_value_free(state);
    return status;
}

/* Opens the run, saves the next epoch, closes. *saved: the commit succeeded. */
static int act(const scenario *s, const char *run, bool *saved, uni_error *err)
{
    uni__store *store = NULL;
    *saved = false;
    UNI_TRY(uni__store_open(&store, &(uni__store_options){ .run_dir = run, .policy = &s->policy },
                            err));
    int epoch = s->saves + 1;
    int status = s->directories ? save_parts(store, epoch, err)
                                : save(store, epoch, s->losses[s->saves], NULL, err);
    *saved = status == 0;
    uni__store_close(store, true);
    return status;
}

static void prepare(const scenario *s)
{
    uni__store *store = NULL;
    uni__fault_hook_set(NULL, NULL);
    MUST(uni__remove_tree(at("run"), &err));
    MUST(uni__make_dirs(at("run"), 0700, &err));
    MUST(uni__make_dirs(at("user1/model/part"), 0700, &err));
    MUST(uni__make_dirs(at("user2/model"), 0700, &err));
    write_text(at("user1/model/part/1"), "one");
    write_text(at("user1/same"), "same");
    write_text(at("user2/model/2"), "two");
    write_text(at("user2/same"), "same");
    MUST(uni__store_open(
        &store, &(uni__store_options){ .run_dir = at("run"), .policy = &s->before }, &err));
    for (int i = 1; i <= s->saves; i++)
        MUST(save(store, i, s->losses[i - 1], NULL, &err));
    uni__store_close(store, true);
}

/* Everything visible is complete, whatever happened. */
static void check_whole(const char *run)
{
    static const char *const places[] = { "checkpoints", ".recovery" };
    for (int i = 0; i < 2; i++) {
        char dir[600];
        snprintf(dir, sizeof dir, "%s/%s", run, places[i]);
        char *list = strdup(names(dir)), *rest = list;
        if (strcmp(list, "-") != 0) {
            for (char *name; (name = strsep(&rest, " ")) && *name;) {
                char path[900];
                uni_checkpoint *checkpoint = NULL;
                snprintf(path, sizeof path, "%s/%s", dir, name);
                MUST(uni_checkpoint_open(&checkpoint, path, &err));
                MUST(uni_checkpoint_verify(checkpoint, &err));
                uni_checkpoint_close(checkpoint);
            }
        }
        free(list);
    }
}

/* The run continues: opens, resumes from the latest, saves, and leaves nothing behind. */
static void check_goes_on(const scenario *s, int latest)
{
    uni__store *store = NULL;
    MUST(uni__store_open(
        &store, &(uni__store_options){ .run_dir = at("run"), .policy = &s->policy }, &err));
    assert_string_equal(names(at("run/.staging")), "");
    const uni__checkpoint_info *resume = uni__store_resume(store);
    assert_int_equal(resume ? resume->iteration : -1, latest);
    if (s->policy.num_to_keep > 0)
        assert_true(uni__store_count(store) <= (size_t)s->policy.num_to_keep);
    MUST(save(store, 9, 0, NULL, &err));
    uni__store_close(store, false);
    assert_string_equal(names(at("run")), "checkpoints");
    assert_int_equal(latest_epoch(at("run")), 9);
    check_whole(at("run"));
}

/* ---- the tests ---- */

static long crash_everywhere(const scenario *s, fault_mode mode)
{
    int old = s->saves > 0 ? s->saves : -1, new = s->saves + 1;
    for (long n = 1;; n++) {
        prepare(s);
        pid_t child = fork();
        if (child == 0) {
            bool saved;
            uni_error err = { 0 };
            start_plan(mode, n);
            if (act(s, at("run"), &saved, &err) < 0)
                _exit(FAILED);
            _exit(plan.seen < n + (mode == TORN_CRASH) ? 0 : FAILED);
        }
        int result = -1;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFEXITED(result));
        int latest = latest_epoch(at("run"));
        check_whole(at("run"));
        if (WEXITSTATUS(result) == 0) { /* there were fewer than n */
            assert_int_equal(latest, new);
            return n - 1;
        }
        assert_int_equal(WEXITSTATUS(result), CRASHED);
        assert_true(latest == old || latest == new);
        check_goes_on(s, latest);
        assert_true(n < 500);
    }
}

static void test_crash(void **state)
{
    for (int i = 0; i < SCENARIOS; i++) {
        long kills = crash_everywhere(&scenarios[i], CRASH),
             torn = crash_everywhere(&scenarios[i], TORN_CRASH);
        print_message("  %s: %ld crashes, %ld after a torn write\n", scenarios[i].name, kills,
                      torn);
        assert_true(kills >= 15); /* the hook does see the work */
    }
}

static void full_everywhere(const scenario *s, fault_mode mode)
{
    int old = s->saves > 0 ? s->saves : -1, new = s->saves + 1;
    long failures = 0;
    for (long n = 1;; n++) {
        bool saved;
        uni_error why = { 0 };
        prepare(s);
        start_plan(mode, n);
        int status = act(s, at("run"), &saved, &why);
        long seen = plan.seen;
        uni__fault_hook_set(NULL, NULL);
        int latest = latest_epoch(at("run"));
        check_whole(at("run"));
        if (status < 0) {
            failures++;
            assert_int_equal(status, UNI_EDISKFULL);
            assert_int_equal(why.code, UNI_EDISKFULL);
            assert_true(strlen(why.message) > 20);
        }
        /* Success means the new one, failure means no change. */
        assert_int_equal(latest, saved ? new : old);
        check_goes_on(s, latest);
        if (seen < n)
            break;
        assert_true(n < 500);
    }
    print_message("  %s: %ld failures\n", s->name, failures);
    assert_true(failures >= 8);
}

static void test_disk_full(void **state)
{
    for (int i = 0; i < SCENARIOS; i++) {
        full_everywhere(&scenarios[i], FULL_ONCE);
        full_everywhere(&scenarios[i], FULL_FROM);
    }
    assert_text(at("user1/same"), "same"); /* the user's directories are untouched */
    assert_string_equal(names(at("user1/model/part")), "1");
}

/* A checkpoint outside a run, in the same way. */
static void test_write_dict(void **state)
{
    uni_value *dict = model_state(1, 100);
    for (long n = 1;; n++) {
        uni_checkpoint *checkpoint = NULL;
        MUST(uni__remove_tree(at("one"), &err));
        start_plan(FULL_ONCE, n);
        uni_error why = { 0 };
        int status = uni_checkpoint_write_dict(at("one"), dict, &why);
        long seen = plan.seen;
        uni__fault_hook_set(NULL, NULL);
        assert_true(status == 0 || status == UNI_EDISKFULL);
        if (status == 0) {
            MUST(uni_checkpoint_open(&checkpoint, at("one"), &err));
            MUST(uni_checkpoint_verify(checkpoint, &err));
            uni_checkpoint_close(checkpoint);
        }
        assert_string_equal(names(test_root), status == 0 ? "one" : "");
        if (seen < n)
            break;
    }
    uni_value_free(dict);
}

/* Position of a line in the trace, or -1. */
static long line_of(const char *line)
{
    const char *found = strstr(plan.trace, line);
    return found ? (long)(found - plan.trace) : -1;
}

/* Required for a power cut: everything is synced before the rename, and the rename before anything
 * older is removed. */
static void test_order(void **state)
{
    bool saved;
    prepare(&scenarios[7]);
    start_plan(COUNT, 0);
    uni_error why = { 0 };
    assert_int_equal(act(&scenarios[7], at("run"), &saved, &why), 0);
    uni__fault_hook_set(NULL, NULL);
    /* The publishing rename is the one whose next line syncs checkpoints/. */
    long parent = line_of("fsync run/checkpoints\n");
    assert_true(parent > 0);
    char *before = strndup(plan.trace, (size_t)parent), *publish = NULL;
    for (char *at_rename = before; (at_rename = strstr(at_rename, "rename run/.staging/draft."));
         at_rename++)
        publish = at_rename;
    assert_non_null(publish);
    assert_non_null(strchr(publish, '\n'));
    assert_string_equal(strchr(publish, '\n') + 1, ""); /* nothing in between */
    char draft[128];
    assert_int_equal(sscanf(publish, "rename %127s", draft), 1);
    *publish = '\0';
    static const char *const synced[] = { "/dict.msgpack", "/arrays.bin",
                                          "/model/part/1", "/model/2",
                                          "/same",         "/model",
                                          "/model/part",   "" };
    for (size_t i = 0; i < sizeof synced / sizeof synced[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "fsync %s%s\n", draft, synced[i]);
        if (!strstr(before, line))
            fail_msg("no \"%s\" before the rename in\n%s", line, before);
    }
    /* The manifest is written last, and synced (under its temporary name) before it gets its
     * own. */
    char *manifest = strstr(before, UNI__MANIFEST_NAME ".tmp");
    assert_non_null(manifest);
    for (char *write = manifest; (write = strstr(write, "\nwrite ")); write++)
        assert_non_null(strstr(write, UNI__MANIFEST_NAME ".tmp"));
    assert_non_null(strstr(manifest, "fsync "));
    assert_true(strstr(manifest, "fsync ") < strstr(manifest, "rename "));
    /* The older one is removed only now. */
    assert_true(line_of("rename run/checkpoints/checkpoint_000001") > parent);
    free(before);
}

/* A real small disk, filled repeatedly with states of other sizes. */
static void test_small_disk(void **state)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", test_root, "tmpfs", 0, "size=512k") < 0) {
        print_message("skipped by name: test_small_disk needs the right to mount a tmpfs (root)\n");
        skip();
    }
    for (int64_t count = 1000; count < 40000; count = count * 5 / 4) {
        uni__store *store = NULL;
        uni_value *weights = model_state(0, count);
        int saved = 0, status = 0;
        size_t size;
        char *bytes = encode(weights, &size);
        MUST(uni__make_dirs(at("run"), 0700, &err));
        MUST(uni__store_open(&store, &(uni__store_options){ .run_dir = at("run") }, &err));
        while (status == 0) {
            uni__draft *draft = NULL;
            uni_error why = { 0 };
            status = uni__draft_new(&draft, store, saved + 1, 1, &why);
            if (status == 0 && (status = uni__draft_add_dict(draft, 0, bytes, size, &why)) < 0)
                uni__draft_abandon(draft);
            else if (status == 0)
                status = uni__draft_commit(draft, NULL, NULL, saved + 1, NULL, &why);
            saved += status == 0;
            assert_true(status == 0 || status == UNI_EDISKFULL);
        }
        assert_true(saved > 0);
        assert_string_equal(names(at("run/.staging")), "");
        check_whole(at("run"));
        assert_int_equal(uni__store_resume(store)->iteration, saved);
        uni__store_close(store, true);
        /* With a policy that keeps less, the full disk gets room again and the run continues. */
        MUST(uni__store_open(
            &store,
            &(uni__store_options){ .run_dir = at("run"),
                                   .policy = &(uni_checkpoint_policy){ .num_to_keep = 1 } },
            &err));
        assert_int_equal(uni__store_resume(store)->iteration, saved);
        MUST(save(store, saved + 1, 1, NULL, &err));
        assert_int_equal(latest_epoch(at("run")), saved + 1);
        uni__store_close(store, false);
        MUST(uni__remove_tree(at("run"), &err));
        free(bytes);
        uni_value_free(weights);
    }
    assert_int_equal(umount(test_root), 0);
}

static int setup(void **state)
{
    uni_log_level_set(UNI_LOG_OFF);
    /* Thousands of fsyncs: in memory they cost nothing, and the hook simulates the disk anyway. */
    return setup_root_in("/dev/shm");
}

static int teardown(void **state)
{
    uni__fault_hook_set(NULL, NULL);
    forget_unsynced();
    return teardown_root(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define ROOTED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
        ROOTED(test_crash), ROOTED(test_disk_full),  ROOTED(test_write_dict),
        ROOTED(test_order), ROOTED(test_small_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
