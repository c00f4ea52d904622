/* scattered_test.c - rows from a mapping: the same bytes in every way, and a file that is
 * truncated, being written, or owned by another user. */
#include "data/sources/scattered.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "data/test.h"

enum { ROWS = 20000, ROW = 1000, COUNT = 3000 };

static char path[256];

static char byte_of(int64_t row, int64_t column)
{
    return (char)(row * 31 + column * 7 + (row >> 8));
}

static void write_file(int fd)
{
    static char row[ROW];
    for (int64_t i = 0; i < ROWS; i++) {
        for (int64_t k = 0; k < ROW; k++)
            row[k] = byte_of(i, k);
        assert_int_equal(pwrite(fd, row, ROW, i * ROW), ROW);
    }
}

static int make_file(void **state)
{
    (void)state;
    /* Not in the directory of the tests: another user must be able to reach it. */
    snprintf(path, sizeof path, "%s/unisono-scattered-XXXXXX", P_tmpdir);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    write_file(fd);
    return close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

struct copy {
    uni__files *files;
    uni__scattered *file;
    uni__scattered_row *rows;
    int64_t *which;
    char *out;
    int64_t count;
    size_t row_bytes;
};

static void begin_copy(struct copy *copy, int64_t count, size_t row_bytes)
{
    uni_error err = { 0 };
    assert_int_equal(uni__files_open(&copy->files, 1, (const char *const[]){ path }, NULL, &err),
                     0);
    assert_int_equal(uni__scattered_new(&copy->file, copy->files, &err), 0);
    copy->count = count;
    copy->row_bytes = row_bytes;
    copy->out = malloc((size_t)count * row_bytes);
    copy->rows = calloc((size_t)count, sizeof *copy->rows);
    copy->which = calloc((size_t)count, sizeof *copy->which);
    for (int64_t i = 0; i < count; i++) {
        copy->which[i] = (i * 7919 + 13) % (ROWS - (int64_t)(row_bytes / ROW));
        copy->rows[i] = (uni__scattered_row){ .offset = copy->which[i] * ROW,
                                              .to = copy->out + (size_t)i * row_bytes };
    }
}

static void end_copy(struct copy *copy)
{
    uni__scattered_free(copy->file);
    uni__files_free(copy->files);
    free(copy->out);
    free(copy->rows);
    free(copy->which);
}

static bool is_right(const struct copy *copy)
{
    for (int64_t i = 0; i < copy->count; i++) {
        for (size_t k = 0; k < copy->row_bytes; k++) {
            int64_t row = copy->which[i] + (int64_t)(k / ROW);
            if (copy->out[(size_t)i * copy->row_bytes + k] != byte_of(row, (int64_t)(k % ROW)))
                return false;
        }
    }
    return true;
}

static void copies(int64_t count, size_t row_bytes)
{
    struct copy copy;
    uni_error err = { 0 };
    begin_copy(&copy, count, row_bytes);
    assert_int_equal(uni__scattered_copy(copy.file, 0, copy.rows, copy.count, copy.row_bytes, &err),
                     0);
    assert_true(is_right(&copy));
    int writer = open(path, O_RDWR | O_NONBLOCK);
    assert_true(writer >= 0 || errno != EWOULDBLOCK); /* no lease is held afterwards */
    if (writer >= 0)
        close(writer);
    end_copy(&copy);
}

static void test_sizes(void **state)
{
    (void)state;
    copies(COUNT, ROW);
    copies(COUNT, 1);
    copies(COUNT, 100);
    copies(3, ROW); /* few rows */
    copies(100, 40 * ROW); /* large rows */
    copies(1, 4);
}

/* The file is open for writing: no lease, so the kernel copies. */
static void test_open_for_writing(void **state)
{
    (void)state;
    int writer = open(path, O_RDWR);
    assert_true(writer >= 0);
    copies(COUNT, ROW);
    copies(COUNT, 3);
    copies(COUNT, 20 * ROW);
    close(writer);
    copies(COUNT, ROW);
}

static int exit_code_of(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A forked child can copy, too. */
static void test_fork(void **state)
{
    (void)state;
    struct copy copy;
    uni_error err = { 0 };
    begin_copy(&copy, COUNT, ROW);
    pid_t child = fork();
    if (child == 0) {
        int status = uni__scattered_copy(copy.file, 0, copy.rows, COUNT, ROW, &err);
        _exit(status == 0 && is_right(&copy) ? 0 : 1);
    }
    assert_int_equal(exit_code_of(child), 0);
    end_copy(&copy);
}

static void test_other_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(path, 0644), 0);
    pid_t child = fork();
    if (child == 0) {
        if (setgid(65534) < 0 || setuid(65534) < 0)
            _exit(2);
        copies(COUNT, ROW);
        _exit(0);
    }
    assert_int_equal(exit_code_of(child), 0);
}

/* No address space for a mapping: reads row by row. */
static void test_no_address_space(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        struct copy copy;
        uni_error err = { 0 };
        begin_copy(&copy, COUNT, ROW);
        if (setrlimit(RLIMIT_AS, &(struct rlimit){ 1 << 20, 1 << 20 }) < 0)
            _exit(2);
        int status = uni__scattered_copy(copy.file, 0, copy.rows, COUNT, ROW, &err);
        _exit(status == 0 && is_right(&copy) ? 0 : 1);
    }
    assert_int_equal(exit_code_of(child), 0);
}

static void test_cut_off_before(void **state)
{
    (void)state;
    struct copy copy;
    uni_error err = { 0 };
    begin_copy(&copy, COUNT, ROW);
    assert_int_equal(uni__scattered_copy(copy.file, 0, copy.rows, COUNT, ROW, &err), 0);
    assert_int_equal(truncate(path, (off_t)ROWS * ROW / 2), 0);
    assert_int_equal(uni__scattered_copy(copy.file, 0, copy.rows, COUNT, ROW, &err), UNI_EIO);
    assert_non_null(strstr(err.message, path));
    end_copy(&copy);
}

/* Another file with the same name, size and time: rows come from that file, never from the
 * mapping. */
static void test_replaced(void **state)
{
    (void)state;
    struct copy copy;
    struct stat found;
    char other[sizeof path + 8];
    uni_error err = { 0 };
    begin_copy(&copy, COUNT, ROW);
    assert_int_equal(uni__scattered_copy(copy.file, 0, copy.rows, COUNT, ROW, &err), 0);
    assert_int_equal(stat(path, &found), 0);
    snprintf(other, sizeof other, "%s.other", path);
    int fd = open(other, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)ROWS * ROW), 0);
    assert_int_equal(futimens(fd, (const struct timespec[]){ found.st_mtim, found.st_mtim }), 0);
    close(fd);
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(uni__scattered_copy(copy.file, 0, copy.rows, COUNT, ROW, &err), 0);
    for (int64_t i = 0; i < (int64_t)COUNT * ROW; i++)
        assert_int_equal(copy.out[i], 0);
    end_copy(&copy);
}

/* ---- truncating and restoring the file while two threads copy ---- */

struct thread {
    pthread_t id;
    struct copy copy;
    atomic_long good, cut, other; /* how copies ended */
};

static atomic_bool stop;
/* The file's mtime, restored after each change so that the file counts as unchanged. */
static struct timespec written;

static void set_length(int64_t rows)
{
    assert_int_equal(truncate(path, (off_t)rows * ROW), 0);
    const struct timespec times[2] = { written, written };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void *copy_all_the_time(void *argument)
{
    struct thread *thread = argument;
    while (!atomic_load(&stop)) {
        uni_error err = { 0 };
        int status = uni__scattered_copy(thread->copy.file, 0, thread->copy.rows, COUNT, ROW, &err);
        atomic_fetch_add(status == 0         ? &thread->good
                         : status == UNI_EIO ? &thread->cut
                                             : &thread->other,
                         1);
    }
    return NULL;
}

/* Waits until each of both threads has ended one more copy with this result. */
static void wait_for(atomic_long *one, atomic_long *other)
{
    long before_one = *one, before_other = *other;
    for (int i = 0; *one == before_one || *other == before_other; i++) {
        assert_true(i < 100000);
        usleep(200);
    }
}

/* Returns the longest time that truncate() had to wait, in ns. */
static uint64_t cut_off_and_fill(struct thread *a, struct thread *b)
{
    uint64_t slowest = 0;
    for (int i = 0; i < 60; i++) {
        uint64_t before = uni__monotonic_ns();
        set_length(ROWS / 10);
        uint64_t took = uni__monotonic_ns() - before;
        slowest = took > slowest ? took : slowest;
        if (i % 4 == 0)
            wait_for(&a->cut, &b->cut);
        set_length(ROWS); /* extends with zeros */
        if (i % 4 == 2)
            wait_for(&a->good, &b->good);
        else
            usleep((useconds_t)(i * 53 % 3000));
    }
    return slowest;
}

static void cut_off_during(bool writer_open)
{
    struct thread threads[2] = { 0 };
    int writer = writer_open ? open(path, O_RDWR) : -1;
    uni_error err = { 0 };
    struct stat found;
    atomic_store(&stop, false);
    assert_int_equal(stat(path, &found), 0);
    written = found.st_mtim;
    for (int i = 0; i < 2; i++) {
        begin_copy(&threads[i].copy, COUNT, ROW);
        uni__scattered *own = threads[i].copy.file;
        threads[i].copy.file = threads[0].copy.file; /* one file for both */
        if (i > 0)
            uni__scattered_free(own);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i].id, NULL, copy_all_the_time, &threads[i]), 0);
    uint64_t slowest = cut_off_and_fill(&threads[0], &threads[1]);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i].id, NULL);
        assert_int_equal(threads[i].other, 0);
    }
    assert_true(slowest < 5000000000u); /* a writer waits only for the copies in progress */
    /* Restored to the original length and time. */
    int fd = writer >= 0 ? writer : open(path, O_RDWR);
    assert_true(fd >= 0);
    write_file(fd);
    close(fd);
    set_length(ROWS);
    assert_int_equal(
        uni__scattered_copy(threads[0].copy.file, 0, threads[0].copy.rows, COUNT, ROW, &err), 0);
    assert_true(is_right(&threads[0].copy));
    threads[1].copy.file = NULL;
    for (int i = 0; i < 2; i++)
        end_copy(&threads[i].copy);
}

static void test_cut_off_while_leased(void **state)
{
    (void)state;
    cut_off_during(false);
}

static void test_cut_off_while_the_kernel_copies(void **state)
{
    (void)state;
    cut_off_during(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, make_file, remove_file)
        WITH_FILE(test_sizes),
        WITH_FILE(test_open_for_writing),
        WITH_FILE(test_fork),
        WITH_FILE(test_other_user),
        WITH_FILE(test_no_address_space),
        WITH_FILE(test_cut_off_before),
        WITH_FILE(test_replaced),
        WITH_FILE(test_cut_off_while_leased),
        WITH_FILE(test_cut_off_while_the_kernel_copies),
    };
    return cmocka_run_group_tests_name("scattered", tests, NULL, NULL);
}
