/* newest_test.c - whom the controller answers at once that asks for the newest checkpoint, and what
 * the others wait for. */
#include <stdio.h>
#include <string.h>

#include "train/test_helpers.h"

#define WAIT (30 * SECOND)

static void ask(int rank, uint32_t serial, uint32_t saves)
{
    const uint32_t payload[2] = { serial, saves };
    uni__newest_asked(&the->run, rank, (const uint8_t *)payload, sizeof payload);
}

static void look(void)
{
    uni__newest_look(&the->run);
}

static void nothing_was_asked(void **state)
{
    look();
    assert_calls("");
    uni__newest_asked(&the->run, 1, (const uint8_t *)"\1\2\3", 3); /* not a question */
    look();
    assert_calls("");
}

/* After everything that any rank has published was read. */
static void answered_at_once(void **state)
{
    ask(2, 41, 0);
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; newest 2 41; ");
    look();
    assert_calls("");
    ask(2, 42, 0);
    the->run.state = UNI__RUN_FAILING;
    look();
    assert_calls("");
}

static void a_checkpoint_that_is_not_complete(void **state)
{
    the->missing = 3;
    the->missing_iteration = 5;
    the->ranks[0].iteration = the->ranks[1].iteration = 5;
    ask(1, 7, 0);
    look();
    the->now += WAIT - 1;
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; drain 0; drain 1; drain 2; drain 3; ");
    the->now++;
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; send 1; ");
    assert_string_equal(the->sent,
                        "newest checkpoint 7: !the newest checkpoint, of iteration 5, is not "
                        "complete: rank 3 has not reported that iteration for 30 s. Call report() "
                        "equally often on every rank");
    /* A rank that has not reported that iteration does not know of it. */
    the->ranks[0].iteration = the->ranks[2].iteration = 4;
    ask(2, 8, 0);
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; newest 2 8; ");
}

/* It means rank 0's dictionary of the same call. */
static void after_save_checkpoint(void **state)
{
    the->ranks[0].saves = 2;
    ask(3, 1, 3);
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; ");
    the->ranks[0].saves = 3;
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; newest 3 1; ");
    ask(3, 2, 4);
    the->now += WAIT;
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; send 3; ");
    assert_string_equal(the->sent,
                        "newest checkpoint 2: !rank 0 has called save_checkpoint 3 times, and this "
                        "rank 4 times, for 30 s. Call save_checkpoint() equally often on every "
                        "rank");
    ask(3, 3, 4);
    the->ranks[0].done = true; /* it will not call it any more */
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; newest 3 3; ");
}

/* A rank that is ahead of rank 0 waits for its report, in which the checkpoint may be; in vain only
 * once. */
static void ahead_of_rank_0(void **state)
{
    the->ranks[1].iteration = 6;
    the->ranks[0].iteration = 5;
    ask(1, 1, 0);
    look();
    the->now += WAIT - 1;
    look();
    the->calls[0] = '\0';
    the->now++;
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; tell 1; newest 1 1; ");
    assert_told("rank 1 asked for the newest checkpoint after iteration 6, and rank 0 has not "
                "reported it for 30 s: rank 1 gets an earlier one");
    ask(1, 2, 0);
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; newest 1 2; ");
    /* The other ranks still wait. */
    the->ranks[2].iteration = 6;
    ask(2, 1, 0);
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; ");
    the->ranks[0].iteration = 6;
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; newest 2 1; ");
}

/* Rank 0 comes no more, or none reports but it. */
static void not_ahead_of_rank_0(void **state)
{
    the->ranks[1].iteration = 6;
    the->ranks[0].failed = true;
    ask(1, 1, 0);
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; newest 1 1; ");
    the->ranks[0].failed = false;
    the->workers[0].state = UNI__WORKER_ENDED;
    ask(1, 2, 0);
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; newest 1 2; ");
    the->workers[0].state = UNI__WORKER_RUNNING;
    the->trainer.roles.servers = 1;
    ask(1, 3, 0);
    look();
    assert_calls("drain 0; drain 1; drain 2; drain 3; newest 1 3; ");
}

static void what_is_sent(void **state)
{
    uni__newest_answer(&the->run, 1, 9, "/runs/x/checkpoints/checkpoint_000003", -1);
    assert_string_equal(the->sent, "newest checkpoint 9: /runs/x/checkpoints/checkpoint_000003");
    assert_calls("send 1; ");
    /* A path that its host does not see is not sent; "none" and a sentence are. */
    the->own_storage = true;
    uni__newest_answer(&the->run, 1, 10, "/runs/x/checkpoints/checkpoint_000003", -1);
    assert_non_null(strstr(the->sent, ": !the checkpoint is complete, but this rank's host does "
                                      "not see the storage"));
    uni__newest_answer(&the->run, 1, 11, "", -1);
    assert_string_equal(the->sent, "newest checkpoint 11: ");
    uni__newest_answer(&the->run, 1, 12, "!why", -1);
    assert_string_equal(the->sent, "newest checkpoint 12: !why");
    the->calls[0] = '\0';
    the->workers[1].state = UNI__WORKER_ENDED;
    uni__newest_answer(&the->run, 1, 13, "", -1);
    assert_calls("");
}

static void a_message_that_is_lost(void **state)
{
    the->send_status = UNI_EPEER; /* it has just ended: its end is told of */
    uni__newest_answer(&the->run, 1, 9, "", -1);
    assert_calls("send 1; ");
    the->send_status = UNI_EIO;
    uni__newest_answer(&the->run, 1, 9, "", -1);
    assert_calls("send 1; tell 1; ");
    assert_string_equal(the->told,
                        "rank 1 was not told of the newest checkpoint: the channel is broken");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_was_asked),
        TEST(answered_at_once),
        TEST(a_checkpoint_that_is_not_complete),
        TEST(after_save_checkpoint),
        TEST(ahead_of_rank_0),
        TEST(not_ahead_of_rank_0),
        TEST(what_is_sent),
        TEST(a_message_that_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
