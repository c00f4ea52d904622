/*
 * speed_test.c - a million reports through the writer and the follower at the same time: how many
 * lines per second of CPU time each manages alone, and that memory stays flat. Prints the rates;
 * fails on rates far below what the trainer needs (with room for a slow machine), and on growing
 * memory.
 */
#include "track/testing.h"

#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW_BUILD 1
#define REPORTS 100000
#else
#define SLOW_BUILD 0
#define REPORTS 1000000
#endif

static double resident_mb(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &pages, &resident), 2);
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

/* CPU time of this thread, which excludes the load of other processes. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* What a session sends: two user metrics and the three autofilled ones. */
static void add_typical(uni__results_writer *writer, int rank, int64_t iteration)
{
    uint8_t bytes[256];
    uni__packer packer = { .data = bytes, .capacity = sizeof bytes, .fixed = true };
    uni__pack_map(&packer, 5);
    uni__pack_string(&packer, "epoch", 5);
    uni__pack_int(&packer, iteration);
    uni__pack_string(&packer, "loss", 4);
    uni__pack_double(&packer, 1.0 / (double)(iteration + 3));
    uni__pack_string(&packer, "_timestamp", 10);
    uni__pack_double(&packer, 1763243534.123456 + (double)iteration * 1e-6);
    uni__pack_string(&packer, "_time_this_iter_s", 17);
    uni__pack_double(&packer, 4.7e-6 + (double)(iteration % 1000) * 1e-9);
    uni__pack_string(&packer, "_training_iteration", 19);
    uni__pack_int(&packer, iteration);
    assert_false(packer.overflow);
    MUST(uni__results_writer_add(writer, 1, rank, iteration, packer.data, packer.size, err));
}

static int count_all(uni__follower *follower)
{
    const uni_reports *reports = NULL;
    uni_error failure = { 0 };
    int count = 0, status;
    while ((status = uni__follower_next(follower, 0, &reports, &failure)) == 1)
        count += (reports->by_rank[0] != NULL) + (reports->by_rank[1] != NULL);
    assert_true(status == 0 || status == UNI_EEND);
    return count;
}

/* Alternates between both in one thread, in bursts: the rate of each, and the memory after the
 * first tenth against the end. */
static void million_reports(void **state)
{
    char path[300];
    uni__results_writer *writer = NULL;
    uni__follower *follower = NULL;
    snprintf(path, sizeof path, "%s/results.jsonl", (char *)*state);
    MUST(uni__results_writer_open(&writer, path, 2, false, err));
    MUST(uni__follower_new(&follower, writer, err));
    uint64_t writing = 0, reading = 0;
    const int burst = 5000;
    double early = 0;
    for (int done = 0, read = 0; done < REPORTS / 2; done += burst) {
        uint64_t start = cpu_ns();
        for (int rank = 0; rank < 2; rank++)
            for (int i = 1; i <= burst; i++)
                add_typical(writer, rank, done + i);
        MUST(uni__results_writer_flush(writer, err));
        uint64_t middle = cpu_ns();
        read += count_all(follower);
        uint64_t end = cpu_ns();
        writing += middle - start;
        reading += end - middle;
        assert_int_equal(read, 2 * (done + burst)); /* joined completely, none lost */
        if (done == REPORTS / 20)
            early = resident_mb();
    }
    double grown = resident_mb() - early;
    double written_per_s = REPORTS / ((double)writing * 1e-9),
           read_per_s = REPORTS / ((double)reading * 1e-9);
    print_message("writer %.0f lines/s, follower %.0f lines/s, memory grew by %.2f MB\n",
                  written_per_s, read_per_s, grown);
    uni__follower_free(follower);
    uni__results_writer_close(writer);
    if (SLOW_BUILD)
        return;
    assert_true(grown < 1.0);
    assert_true(written_per_s > 200000);
    assert_true(read_per_s > 150000);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(million_reports, make_dir,
                                                                        drop_dir) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
