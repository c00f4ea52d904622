/*
 * file_test.c - files and trees: what users rely on in the normal case, and what is on disk after a
 * failure or a crash at every single operation.
 */
#include "base/test.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char *at(void **state, const char *name)
{
    char *path = uni__path_join(*state, name, NULL);
    assert_non_null(path);
    return path;
}

static void put(const char *path, const char *text)
{
    assert_ok(uni__write_file(path, text, strlen(text), false, &failure));
}

static void check_contents(const char *path, const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    assert_ok(uni__read_file(&text, &size, path, 1 << 20, &failure));
    assert_string_equal(text, expected);
    assert_int_equal(size, strlen(expected));
    free(text);
}

static int count_file(void *context, const char *relative, const char *full, uint64_t size,
                      uni_error *err)
{
    ++*(int *)context;
    return 0;
}

static int files_below(const char *dir)
{
    int count = 0;
    assert_ok(uni__walk_files(dir, count_file, &count, &failure));
    return count;
}

static void reading(void **state)
{
    char *path = at(state, "f"), *text = NULL;
    size_t size = 7;
    assert_fails(uni__read_file(&text, &size, path, 10, &failure), UNI_ENOTFOUND, path);
    assert_null(text);
    put(path, "0123456789");
    assert_ok(uni__read_file(&text, &size, path, 10, &failure)); /* exactly the limit */
    assert_int_equal(size, 10);
    assert_string_equal(text, "0123456789");
    free(text);
    assert_fails(uni__read_file(&text, &size, path, 9, &failure), UNI_ELIMIT, "more than 9");
    put(path, "");
    assert_ok(uni__read_file(&text, NULL, path, 0, &failure));
    assert_string_equal(text, "");
    free(text);
    /* stat reports 0 bytes there */
    assert_ok(uni__read_file(&text, &size, "/proc/self/status", 1 << 20, &failure));
    assert_true(size > 100);
    free(text);
    free(path);
}

/* A FIFO without a writer blocks open(2) forever; ours must return. */
static void a_fifo_in_place_of_a_file_is_refused(void **state)
{
    char *path = at(state, "fifo"), *to = at(state, "copy"), *text = NULL, hash[17];
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(10);
    assert_fails(uni__read_file(&text, NULL, path, 10, &failure), UNI_EINVAL, "not a regular");
    assert_fails(uni__hash_file(path, hash, NULL, &failure), UNI_EINVAL, "not a regular");
    assert_fails(uni__copy_file(path, to, &failure), UNI_EINVAL, "not a regular");
    char beside[64]; /* outside the source */
    snprintf(beside, sizeof beside, "%s-copy", (const char *)*state);
    assert_fails(uni__copy_tree(*state, beside, &failure), UNI_EUNSUPPORTED, path);
    assert_ok(uni__remove_tree(beside, &failure));
    assert_int_equal(files_below(*state), 0);
    alarm(0);
    free(path);
    free(to);
}

static void writing_replaces_the_whole(void **state)
{
    char *path = at(state, "f");
    struct stat info;
    put(path, "a longer text");
    put(path, "short");
    check_contents(path, "short");
    assert_ok(uni__write_file(path, "durable", 7, true, &failure));
    check_contents(path, "durable");
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(files_below(*state), 1);
    char *nowhere = at(state, "no/such/dir/f");
    assert_fails(uni__write_file(nowhere, "x", 1, false, &failure), UNI_ENOTFOUND, nowhere);
    free(nowhere);
    free(path);
}

/* After an error at the n-th operation only the old file exists, and the error says why. */
static void a_failed_write_changes_nothing(void **state)
{
    char *path = at(state, "f");
    countdown count = { 0 };
    put(path, "old");
    uni__fault_hook_set(countdown_hook, &count);
    assert_ok(uni__write_file(path, "new contents", 12, true, &failure));
    int operations = count.calls;
    assert_int_equal(operations, 5); /* create, write, fsync, rename, fsync of the directory */
    for (int n = 1; n <= operations; n++) {
        uni__fault_hook_set(NULL, NULL);
        put(path, "old");
        count = (countdown){ .at = n, .error = ENOSPC };
        uni__fault_hook_set(countdown_hook, &count);
        assert_fails(uni__write_file(path, "new contents", 12, true, &failure), UNI_EDISKFULL,
                     n < 5 ? path : (const char *)*state); /* the last one is the directory */
        assert_int_equal(failure.os_error, ENOSPC);
        uni__fault_hook_set(NULL, NULL);
        check_contents(path, n < 5 ? "old" : "new contents");
        assert_int_equal(files_below(*state), 1);
    }
    free(path);
}

static void a_crash_leaves_the_old_or_the_new(void **state)
{
    char *path = at(state, "f");
    int seen_old = 0, seen_new = 0;
    for (int n = 1; n <= 7; n++) {
        put(path, "old");
        pid_t child = fork();
        if (child == 0) {
            countdown count = { .at = n, .shorten = 4 };
            uni__fault_hook_set(countdown_hook, &count);
            _exit(uni__write_file(path, "new contents", 12, true, NULL) < 0 ? 1 : 0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), n <= 5 ? 99 : 0);
        char *text = NULL;
        assert_ok(uni__read_file(&text, NULL, path, 100, &failure));
        seen_old += strcmp(text, "old") == 0;
        seen_new += strcmp(text, "new contents") == 0;
        free(text);
    }
    assert_int_equal(seen_old, 4);
    assert_int_equal(seen_new, 3);
    free(path);
}

/* Only regular files with exactly such a name, and only in the directory itself. */
static void temporaries_of_a_killed_process_are_removed(void **state)
{
    static const char *const stay[] = { "f",
                                        "f.tmp-0123abc",
                                        "f.tmp-0123abcd.x",
                                        "f.tmp-0123ABCD",
                                        ".tmp-0123abcd",
                                        "below/f.tmp-0123abcd" };
    enum { STAY = sizeof stay / sizeof stay[0] };
    char *below = at(state, "below"), *folder = at(state, "g.tmp-0123abcd");
    char *stale = at(state, "f.tmp-0123abcd"), *other = at(state, "a.b.tmp-ffffffff");
    assert_ok(uni__make_dirs(below, 0700, &failure));
    assert_ok(uni__make_dirs(folder, 0700, &failure));
    for (int i = 0; i < STAY; i++) {
        char *path = at(state, stay[i]);
        put(path, "mine");
        free(path);
    }
    put(stale, "half");
    put(other, "half");
    assert_int_equal(files_below(*state), STAY + 2);
    assert_ok(uni__remove_temporaries(*state, &failure));
    assert_false(uni__path_exists(stale));
    assert_false(uni__path_exists(other));
    assert_int_equal(files_below(*state), STAY);
    assert_true(uni__path_is_dir(folder));
    assert_fails(uni__remove_temporaries(stale, &failure), UNI_ENOTFOUND, stale);
    free(below);
    free(folder);
    free(stale);
    free(other);
}

static int short_writes(void *context, uni__fault_op op, const char *path, size_t *size)
{
    if (size && *size > 3)
        *size = 3;
    return 0;
}

static void short_writes_go_on(void **state)
{
    char *path = at(state, "f");
    uni__fault_hook_set(short_writes, NULL);
    put(path, "eleven byte");
    uni__fault_hook_set(NULL, NULL);
    check_contents(path, "eleven byte");
    assert_fails(uni__write_all(-1, "x", 1, "nothing", &failure), UNI_EIO, "nothing");
    free(path);
}

static void a_really_full_disk(void **state)
{
    int fd = open("/dev/full", O_WRONLY);
    if (fd < 0)
        skip();
    assert_fails(uni__write_all(fd, "x", 1, "/dev/full", &failure), UNI_EDISKFULL, "No space");
    close(fd);
}

static void making_directories(void **state)
{
    char *deep = at(state, "a/b//c/"), *file = at(state, "file"), *below = at(state, "file/x/y");
    struct stat info;
    assert_ok(uni__make_dirs(deep, 0700, &failure));
    assert_ok(uni__make_dirs(deep, 0700, &failure)); /* repeating it is fine */
    assert_true(uni__path_is_dir(deep));
    assert_int_equal(stat(deep, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    put(file, "");
    assert_fails(uni__make_dirs(file, 0700, &failure), UNI_EEXISTS, "a file is in its place");
    assert_fails(uni__make_dirs(below, 0700, &failure), UNI_EEXISTS, "a file is in its place");
    assert_fails(uni__make_dirs("", 0700, &failure), UNI_EINVAL, "empty");
    assert_false(uni__path_is_dir(file));
    assert_true(uni__path_exists(file));
    assert_false(uni__path_exists(below));
    countdown count = { .at = 2, .error = EACCES };
    char *other = at(state, "p/q/r");
    uni__fault_hook_set(countdown_hook, &count);
    assert_fails(uni__make_dirs(other, 0700, &failure), UNI_EPERMISSION, "p/q");
    uni__fault_hook_set(NULL, NULL);
    free(other);
    free(deep);
    free(file);
    free(below);
}

/* dir: a/1, a/b/2, c, link -> a, plus a file outside that a link points at. */
static char *make_tree(void **state)
{
    char *dir = at(state, "tree"), *inner = at(state, "tree/a/b"), *path;
    assert_ok(uni__make_dirs(inner, 0700, &failure));
    put(path = at(state, "tree/a/1"), "one");
    free(path);
    put(path = at(state, "tree/a/b/2"), "two");
    free(path);
    put(path = at(state, "tree/c"), "three");
    assert_int_equal(chmod(path, 0640), 0);
    free(path);
    put(path = at(state, "outside"), "precious");
    free(path);
    assert_int_equal(symlink("../outside", path = at(state, "tree/link")), 0);
    free(path);
    assert_int_equal(symlink("..", path = at(state, "tree/up")), 0);
    free(path);
    free(inner);
    return dir;
}

static void removing_does_not_follow_links(void **state)
{
    char *dir = make_tree(state), *outside = at(state, "outside"), *link = at(state, "l");
    assert_ok(uni__remove_tree(dir, &failure));
    assert_false(uni__path_exists(dir));
    check_contents(outside, "precious");
    assert_ok(uni__remove_tree(dir, &failure)); /* succeeds when missing */
    assert_int_equal(symlink("outside", link), 0);
    assert_ok(uni__remove_tree(link, &failure)); /* the link itself */
    check_contents(outside, "precious");
    assert_ok(uni__remove_tree(outside, &failure)); /* a single file */
    assert_false(uni__path_exists(outside));
    free(dir);
    free(outside);
    free(link);
}

static void removing_reports_what_failed(void **state)
{
    char *dir = make_tree(state);
    countdown count = { .at = 3, .error = EIO };
    uni__fault_hook_set(countdown_hook, &count);
    assert_fails(uni__remove_tree(dir, &failure), UNI_EIO, dir);
    uni__fault_hook_set(NULL, NULL);
    assert_true(uni__path_exists(dir));
    assert_ok(uni__remove_tree(dir, &failure));
    free(dir);
}

typedef struct listing {
    char text[200];
    int stop_at;
} listing;

static int list_file(void *context, const char *relative, const char *full, uint64_t size,
                     uni_error *err)
{
    listing *list = context;
    if (list->stop_at > 0 && --list->stop_at == 0)
        return uni_error_set(err, UNI_ECANCELED, "enough");
    char entry[64];
    snprintf(entry, sizeof entry, "%s:%d ", relative, (int)size);
    strcat(list->text, entry);
    return 0;
}

static void walking_is_sorted_and_can_stop(void **state)
{
    char *dir = make_tree(state), *missing = at(state, "missing");
    listing list = { 0 };
    assert_ok(uni__walk_files(dir, list_file, &list, &failure));
    assert_string_equal(list.text, "a/1:3 a/b/2:3 c:5 link:10 up:2 ");
    list = (listing){ .stop_at = 3 };
    assert_fails(uni__walk_files(dir, list_file, &list, &failure), UNI_ECANCELED, "enough");
    assert_string_equal(list.text, "a/1:3 a/b/2:3 ");
    assert_fails(uni__walk_files(missing, list_file, &list, &failure), UNI_ENOTFOUND, missing);
    free(dir);
    free(missing);
}

static void copying_a_tree(void **state)
{
    char *dir = make_tree(state), *to = at(state, "copy"), *path, target[32] = "";
    struct stat info;
    listing list = { 0 };
    for (int round = 0; round < 2; round++) { /* the second copy overwrites the first */
        assert_ok(uni__copy_tree(dir, to, &failure));
        list = (listing){ 0 };
        assert_ok(uni__walk_files(to, list_file, &list, &failure));
        assert_string_equal(list.text, "a/1:3 a/b/2:3 c:5 link:10 up:2 ");
    }
    check_contents(path = at(state, "copy/a/b/2"), "two");
    free(path);
    assert_int_equal(lstat(path = at(state, "copy/c"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    free(path);
    assert_true(readlink(path = at(state, "copy/link"), target, sizeof target - 1) > 0);
    assert_string_equal(target, "../outside");
    free(path);
    check_contents(path = at(state, "tree/c"), "three"); /* the source is unchanged */
    free(path);
    path = at(state, "tree/a/self");
    assert_fails(uni__copy_tree(dir, path, &failure), UNI_EINVAL, "into itself");
    free(path);
    assert_fails(uni__copy_tree(dir, dir, &failure), UNI_EINVAL, "itself");
    path = at(state, "gone");
    assert_fails(uni__copy_tree(path, to, &failure), UNI_ENOTFOUND, path);
    free(path);
    free(dir);
    free(to);
}

static void copying_files_of_all_sizes(void **state)
{
    static const size_t sizes[] = { 0, 1, 4096, 300000, 3 << 20 };
    char *from = at(state, "from"), *to = at(state, "to");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *data = malloc(sizes[i] + 1), first[17], second[17];
        uint64_t size = 0;
        for (size_t k = 0; k < sizes[i]; k++)
            data[k] = (char)(k * 31 + k / 7);
        assert_ok(uni__write_file(from, data, sizes[i], false, &failure));
        assert_ok(uni__copy_file(from, to, &failure));
        assert_ok(uni__hash_file(to, first, &size, &failure));
        uni__hash_bytes(data, sizes[i], second);
        assert_string_equal(first, second);
        assert_int_equal(size, sizes[i]);
        free(data);
    }
    assert_fails(uni__copy_file(from, from, &failure), UNI_EINVAL, "onto itself");
    for (int n = 1; n <= 4; n++) { /* create, empty, write, write */
        countdown count = { .at = n, .error = ENOSPC, .sticky = true };
        uni__fault_hook_set(countdown_hook, &count);
        assert_fails(uni__copy_file(from, to, &failure), UNI_EDISKFULL, to);
        uni__fault_hook_set(NULL, NULL);
    }
    /* a link in place of the target is not followed */
    char *victim = at(state, "victim"), *link = at(state, "trap");
    put(victim, "safe");
    assert_int_equal(symlink("victim", link), 0);
    assert_fails(uni__copy_file(from, link, &failure), UNI_EIO, link);
    check_contents(victim, "safe");
    free(victim);
    free(link);
    free(from);
    free(to);
}

/* Values of the reference implementation (xxhsum -H3). */
static void hashes_are_xxh3(void **state)
{
    char out[17], *path = at(state, "abc");
    uint64_t size;
    uni__hash_bytes("", 0, out);
    assert_string_equal(out, "2d06800538d394c2");
    uni__hash_bytes("abc", 3, out);
    assert_string_equal(out, "78af5f94892f3950");
    put(path, "abc");
    assert_ok(uni__hash_file(path, out, &size, &failure));
    assert_string_equal(out, "78af5f94892f3950");
    free(path);
    path = at(state, "missing");
    assert_fails(uni__hash_file(path, out, NULL, &failure), UNI_ENOTFOUND, path);
    free(path);
}

static void check_absolute(const char *path, const char *expected)
{
    char *full = uni__path_absolute(path, &failure);
    assert_non_null(full);
    assert_string_equal(full, expected);
    free(full);
}

static void paths(void **state)
{
    char *joined = uni__path_join("a/", "/b", "c", NULL);
    assert_string_equal(joined, "a/b/c");
    free(joined);
    joined = uni__path_join("/", "x", NULL);
    assert_string_equal(joined, "/x");
    free(joined);
    assert_int_equal(setenv("HOME", "/home/someone/", 1), 0);
    assert_int_equal(chdir("/tmp"), 0);
    check_absolute("~", "/home/someone");
    check_absolute("~/runs", "/home/someone/runs");
    check_absolute("~other/x", "/tmp/~other/x");
    check_absolute("x", "/tmp/x");
    check_absolute(".", "/tmp");
    check_absolute("./x//y/./z/", "/tmp/x/y/z");
    check_absolute("a/../b", "/tmp/a/../b"); /* a may be a link */
    check_absolute("/", "/");
    check_absolute("//etc/.hidden", "/etc/.hidden");
    unsetenv("HOME");
    char *home = uni__path_absolute("~", &failure);
    assert_true(home && home[0] == '/');
    free(home);
    assert_null(uni__path_absolute("", &failure));
    assert_int_equal(failure.code, UNI_EINVAL);
}

static void renaming_unlinking_syncing(void **state)
{
    char *from = at(state, "from"), *to = at(state, "to");
    put(from, "x");
    assert_ok(uni__fsync_path(from, &failure));
    assert_ok(uni__fsync_path(*state, &failure));
    assert_ok(uni__rename(from, to, &failure));
    assert_ok(uni__fsync_parent(to, &failure));
    assert_ok(uni__fsync_parent("relative", &failure));
    assert_fails(uni__rename(from, to, &failure), UNI_ENOTFOUND, from);
    assert_fails(uni__fsync_path(from, &failure), UNI_ENOTFOUND, from);
    assert_ok(uni__unlink(to, &failure));
    assert_ok(uni__unlink(to, &failure));
    countdown count = { .at = 1, .error = EIO, .sticky = true };
    uni__fault_hook_set(countdown_hook, &count);
    assert_fails(uni__rename(from, to, &failure), UNI_EIO, "rename");
    assert_fails(uni__unlink(to, &failure), UNI_EIO, "remove");
    assert_fails(uni__fsync_path(*state, &failure), UNI_EIO, "sync");
    uni__fault_hook_set(NULL, NULL);
    free(from);
    free(to);
}

#define WITH_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, enter_directory, leave_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIRECTORY(reading),
        WITH_DIRECTORY(a_fifo_in_place_of_a_file_is_refused),
        WITH_DIRECTORY(writing_replaces_the_whole),
        WITH_DIRECTORY(a_failed_write_changes_nothing),
        WITH_DIRECTORY(a_crash_leaves_the_old_or_the_new),
        WITH_DIRECTORY(temporaries_of_a_killed_process_are_removed),
        WITH_DIRECTORY(short_writes_go_on),
        cmocka_unit_test(a_really_full_disk),
        WITH_DIRECTORY(making_directories),
        WITH_DIRECTORY(removing_does_not_follow_links),
        WITH_DIRECTORY(removing_reports_what_failed),
        WITH_DIRECTORY(walking_is_sorted_and_can_stop),
        WITH_DIRECTORY(copying_a_tree),
        WITH_DIRECTORY(copying_files_of_all_sizes),
        WITH_DIRECTORY(hashes_are_xxh3),
        WITH_DIRECTORY(renaming_unlinking_syncing),
        cmocka_unit_test(paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
