/*
 * test_helpers.h - a run without processes, for tests of the controller's rules: the part under
 * test is linked as it is, every other function of the controller is a stand-in that writes down
 * that it was called. Time stands still until the test moves it. Only for tests.
 */
#ifndef UNISONO_TRAIN_TEST_HELPERS_H
#define UNISONO_TRAIN_TEST_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/run_internal.h"

#define FAKE_RANKS 4
#define FAKE_PID 100 /* of rank 0; then one more for each rank */
#define SECOND 1000000000ull

typedef struct fake {
    uni__run run;
    uni_trainer trainer;
    uni__rank ranks[FAKE_RANKS];
    uni__worker workers[FAKE_RANKS];
    uni__page *pages[FAKE_RANKS];
    uint64_t now; /* what the clock says */
    bool is_ending[FAKE_RANKS]; /* what the kernel says of its process */
    bool hosts_have_not_seen; /* that the ranks are to stop */
    int start_status; /* of starting a rank */
    /* What the oldest checkpoint waits for: a rank (-1: nothing), of that iteration, from that
     * rank. */
    int missing, giver;
    int64_t missing_iteration;
    bool own_storage; /* ranks' hosts do not see the storage */
    uni_status send_status;
    char calls[1024]; /* what was called: "kill 1 9; tell 1; " */
    char told[1024]; /* the last sentence to the user */
    char note[1024]; /* the last record of the journal, as JSON */
    char sent[1024]; /* the text of the last message to a worker */
    uni__cause failed; /* the last cause that the attempt failed with */
    void (*later)(void *context);
} fake;

extern fake *the;

/* A run of so many ranks that work on their order; for cmocka. */
int fake_setup(void **state);
int fake_teardown(void **state);
/* These calls were made since the last look, in this order. */
#define assert_calls(expected) fake_assert_calls(expected, __FILE__, __LINE__)
void fake_assert_calls(const char *expected, const char *file, int line);
#define assert_told(part) assert_non_null(strstr(the->told, part))

#endif
