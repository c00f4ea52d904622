/*
 * links_test.c - what the controller does with what a worker sends: only what is legal in the
 * worker's state reaches the owner, a worker that breaks the protocol is reported once and not
 * heard any more, and nothing is sent that the worker cannot take. Slots without processes.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "group/internal.h"

/* The owner: one letter for everything that it was told. */
typedef struct owner {
    char told[64], broken[128];
    size_t size;
    uni__page *page; /* whose worker writes over the ring while a message is read */
    bool kept; /* the message stayed as it was */
} owner;

static void note(owner *self, char what)
{
    self->told[strlen(self->told)] = what;
}

static void on_message(void *context, int rank, int type, const uint8_t *payload, size_t size)
{
    owner *self = context;
    self->size = size;
    if (self->page) {
        memset((char *)self->page + UNI__RING_OFFSET, 0xff, UNI__RING_BYTES);
        self->kept = size == 3 && memcmp(payload, "abc", 3) == 0;
    }
    note(context, (char)('0' + type));
}

static void on_mail(void *context, int rank, const uni__wire_frame *frame)
{
    note(context, 'm');
}

static void on_line(void *context, int rank, const char *line, size_t size)
{
    note(context, line ? 'l' : 'L');
}

static void on_broken(void *context, int rank, const char *sentence)
{
    owner *self = context;
    snprintf(self->broken, sizeof self->broken, "%s", sentence);
    note(self, 'b');
}

static const uni__group_events events = {
    .message = on_message, .mail = on_mail, .line = on_line, .broken = on_broken
};

typedef struct fixture {
    owner owner;
    uni__group group;
    uni__worker_slot slot;
    int other; /* the worker's end of its channel */
} fixture;

static void set_up(fixture *all)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    *all = (fixture){ .other = pair[1] };
    all->group.events = &events;
    all->group.context = &all->owner;
    all->group.slots = &all->slot;
    all->group.num_slots = 1;
    all->slot = (uni__worker_slot){ .group = &all->group, .report_fd = -1 };
    uni__wire_init(&all->slot.wire, pair[0]);
    uni__worker_spawned(&all->slot.life, false, 1);
}

static void take_down(fixture *all)
{
    uni__links_empty_slot(&all->slot);
    close(all->other);
}

static void say(fixture *all, int type)
{
    uni__links_take_frame(&all->slot, (const uint8_t *)"abc", 3, type, 0);
}

static int order(fixture *all, int type, uni_error *err)
{
    return uni__group_send(&all->group, 0, type, "\x80", 1, -1, err);
}

static void legal_things_are_handed_on(void **state)
{
    fixture all;
    set_up(&all);
    assert_int_equal(order(&all, UNI__TO_WORKER_RUN, NULL), 0);
    say(&all, UNI__SAYS_HELLO);
    uni__links_take_frame(&all.slot, (const uint8_t *)"abc", 3, UNI__SAYS_REPORT, UNI__FRAME_MORE);
    uni__links_take_frame(&all.slot, (const uint8_t *)"defg", 4, UNI__SAYS_REPORT, 0);
    assert_int_equal(all.owner.size, 7);
    uni__links_take_line(&all.slot, "{}", 2);
    uni__links_take_line(&all.slot, NULL, 0);
    uni__links_take_channel(&all.slot, &(uni__wire_frame){ .type = UNI__PASSES_TO_PEER });
    say(&all, UNI__SAYS_RETURN);
    say(&all, UNI__SAYS_REPORT); /* late */
    assert_string_equal(all.owner.told, "12lLm4");
    uni__worker_ended(&all.slot.life);
    say(&all, UNI__SAYS_HELLO);
    uni__links_take_line(&all.slot, "{}", 2);
    assert_string_equal(all.owner.told, "12lLm4");
    take_down(&all);
}

/* What is checked is what is used: a worker can write the ring at any time. */
static void messages_do_not_change_while_they_are_read(void **state)
{
    fixture all;
    int page_fd;
    set_up(&all);
    assert_int_equal(uni__page_new(&all.slot.page, &page_fd, NULL), 0);
    all.owner.page = all.slot.page;
    uint8_t *at = uni__ring_reserve(all.slot.page, 3);
    assert_non_null(at);
    memcpy(at, "abc", 3);
    (void)uni__ring_commit(all.slot.page, at, 3, UNI__SAYS_HELLO, 0);
    uni__group_drain(&all.group, 0);
    assert_string_equal(all.owner.told, "1b"); /* then the damage is seen */
    assert_true(all.owner.kept);
    free(all.group.frame);
    close(page_fd);
    take_down(&all);
}

static void a_liar_is_not_heard_again(void **state)
{
    static const struct {
        int types[3];
        const char *told, *sentence;
    } cases[] = {
        { { UNI__SAYS_REPORT }, "b", "it sent a report before its hello" },
        { { UNI__SAYS_HELLO, UNI__SAYS_HELLO }, "1b", "it said hello while it had no order" },
        { { UNI__SAYS_HELLO, UNI__SAYS_RETURN },
          "1b",
          "it returned from a function while it had no order" },
        { { 200 }, "b", "it sent a message of an unknown kind before its hello" },
        { { UNI__WORKER_EXIT }, "b", "it sent a message of an unknown kind before its hello" },
        { { UNI__SAYS_HELLO, UNI__WORKER_ORDER },
          "1b",
          "it sent a message of an unknown kind while it had no order" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture all;
        set_up(&all);
        for (int n = 0; n < 3 && cases[i].types[n]; n++)
            say(&all, cases[i].types[n]);
        assert_string_equal(all.owner.broken, cases[i].sentence);
        say(&all, UNI__SAYS_HELLO);
        say(&all, 201);
        uni__links_take_channel(&all.slot, &(uni__wire_frame){ .type = 77 });
        assert_string_equal(all.owner.told, cases[i].told); /* once, and nothing after it */
        take_down(&all);
    }
}

static void unknown_frames_on_the_channel(void **state)
{
    static const int types[] = { 0, 1, UNI__SNAPSHOT_SLOTS, 5,
                                 -1 }; /* a slot without a descriptor */
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        fixture all;
        set_up(&all);
        uni__links_take_channel(&all.slot, &(uni__wire_frame){ .type = types[i] });
        assert_string_equal(all.owner.told, "b");
        take_down(&all);
    }
}

static void pass_buffer(fixture *all, int number, off_t size)
{
    int fd = memfd_create("snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    uni__wire wire;
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    uni__wire_init(&wire, dup(all->other));
    assert_int_equal(uni__wire_send(&wire, number + 1, NULL, 0, &fd, 1, 1000, NULL), 0);
    uni__wire_close(&wire);
    close(fd);
}

static void buffers_outlive_their_worker(void **state)
{
    fixture all;
    set_up(&all);
    assert_null(uni__group_snapshot(&all.group, 0, 0, 100)); /* none was passed */
    pass_buffer(&all, 0, 8192);
    assert_null(uni__group_snapshot(&all.group, 0, 0, 8193));
    assert_null(uni__group_snapshot(&all.group, 0, 1, 1));
    assert_null(uni__group_snapshot(&all.group, 0, 0, 0));
    assert_null(uni__group_snapshot(&all.group, 0, -1, 1));
    assert_null(uni__group_snapshot(&all.group, 0, UNI__SNAPSHOT_SLOTS, 1));
    uni__region *first = uni__group_snapshot(&all.group, 0, 0, 8192);
    assert_non_null(first);
    pass_buffer(&all, 0, 65536); /* a larger one, which is found when it is asked for */
    uni__region *second = uni__group_snapshot(&all.group, 0, 0, 9000);
    assert_non_null(second);
    assert_ptr_not_equal(first, second);
    uni__worker_ended(&all.slot.life);
    assert_int_equal(((const char *)first->memory)[8191], 0);
    assert_int_equal(atomic_load(&first->references), 1);
    assert_int_equal(atomic_load(&second->references), 1);
    uni__region_unref(first);
    uni__region_unref(second);
    assert_null(uni__group_snapshot(&all.group, 0, 0, 1));
    take_down(&all);
}

static void only_what_it_can_take_is_sent(void **state)
{
    fixture all;
    uni_error err = { 0 };
    set_up(&all);
    assert_int_equal(order(&all, UNI__TO_WORKER_RUN, &err), 0);
    assert_int_equal(order(&all, UNI__TO_WORKER_RUN, &err), UNI_ESTATE);
    assert_string_equal(err.message, "nothing is sent to rank 0: it got an order before its hello");
    say(&all, UNI__SAYS_HELLO);
    assert_int_equal(order(&all, UNI__TO_WORKER_SHUTDOWN, &err), UNI_ESTATE);
    assert_int_equal(order(&all, UNI__TO_WORKER_PEER, &err), 0);
    say(&all, UNI__SAYS_ERROR);
    assert_int_equal(order(&all, UNI__TO_WORKER_SHUTDOWN, &err), 0);
    assert_int_equal(all.slot.life.state, UNI__WORKER_CLOSING);
    uni__worker_ended(&all.slot.life);
    assert_int_equal(order(&all, UNI__TO_WORKER_RUN, &err), UNI_EPEER);
    assert_int_equal(order(&all, UNI__TO_WORKER_PEER, &err), UNI_EPEER);
    take_down(&all);
}

/* A warm worker finds the words of its page as a new one would. */
static void the_next_order_begins_anew(void **state)
{
    fixture all;
    int fd = -1;
    set_up(&all);
    assert_int_equal(uni__page_new(&all.slot.page, &fd, NULL), 0);
    close(fd);
    assert_int_equal(order(&all, UNI__TO_WORKER_RUN, NULL), 0);
    say(&all, UNI__SAYS_HELLO);
    atomic_store(&all.slot.page->stopping, 1);
    atomic_store(&all.slot.page->iteration, 9);
    assert_int_equal(order(&all, UNI__TO_WORKER_RUN, NULL), UNI_ESTATE);
    assert_int_equal(atomic_load(&all.slot.page->stopping), 1);
    say(&all, UNI__SAYS_RETURN);
    assert_int_equal(order(&all, UNI__TO_WORKER_RUN, NULL), 0);
    assert_int_equal(atomic_load(&all.slot.page->stopping), 0);
    assert_int_equal(atomic_load(&all.slot.page->iteration), 0);
    take_down(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(legal_things_are_handed_on),
        cmocka_unit_test(messages_do_not_change_while_they_are_read),
        cmocka_unit_test(a_liar_is_not_heard_again),
        cmocka_unit_test(unknown_frames_on_the_channel),
        cmocka_unit_test(buffers_outlive_their_worker),
        cmocka_unit_test(only_what_it_can_take_is_sent),
        cmocka_unit_test(the_next_order_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
