/*
 * journal_test.c - the owner of a slice is killed at any moment of an update, and another process
 * ends the slice: weights and slots are those of an undisturbed update, bit by bit.
 *
 * A child updates weights in shared pages, and kill -9 comes at random moments; how far it came is
 * in the journal. The expected values are computed without journal, pieces and second process.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "nn/layers/reference.h"
#include "nn/optimizer/optimizer.h"
#include "nn/step.h"

#define PARTS 3
#define SIZE ((size_t)200000)
#define STRIDE ((size_t)200704) /* whole pages */

/* What all processes see. */
typedef struct pages {
    uni__update_journal journals[2];
    _Atomic uint64_t steps; /* that the child has committed */
    _Alignas(4096) float memory[4][STRIDE]; /* weights and slots */
    float parts[PARTS][STRIDE];
} pages;

/* One process's view. */
typedef struct side {
    uni_parameters *store;
    uni_parameter *small, *large;
    uni_gradients *gradients;
    uni_optimizer *optimizer;
    const float *parts[PARTS];
} side;

static void ok(int status, const uni_error *err)
{
    if (status < 0)
        fail_msg("%s", err->message);
}

/* home: where weights and slots lie; NULL: in memory of their own. */
static side side_new(const char *optimizer, const char *config, pages *shared, bool adopt)
{
    side out = { 0 };
    uni_error err = { 0 };
    uni_value *options = NULL;
    ok(uni_json_read(&options, config, strlen(config), &err), &err);
    ok(uni_parameters_new(&out.store, &err), &err);
    int64_t small[] = { 1000 }, large[] = { (int64_t)SIZE - 1008 };
    ok(uni_parameters_add(&out.small, out.store, "small", UNI_PARAMETER_WEIGHT, 1, small, &err),
       &err);
    ok(uni_parameters_add(&out.large, out.store, "large", UNI_PARAMETER_WEIGHT, 1, large, &err),
       &err);
    ok(uni_gradients_new(&out.gradients, out.store, &err), &err);
    ok(uni__optimizer_from_config(&out.optimizer, optimizer, options, &err), &err);
    ok(uni__optimizer_build(out.optimizer, out.store, &err), &err);
    if (shared != NULL) {
        ok(uni__parameters_rehome(out.store, shared->memory[0], adopt, &err), &err);
        ok(uni__optimizer_rehome(out.optimizer, shared->memory[1], STRIDE, adopt, &err), &err);
    }
    uni_value_free(options);
    return out;
}

static void side_free(side *one)
{
    uni_optimizer_free(one->optimizer);
    uni_gradients_free(one->gradients);
    uni_parameters_free(one->store);
}

static size_t size_of(const side *one)
{
    size_t size = 0;
    uni_parameters_weights(one->store, &size);
    return size;
}

/* Gradients that depend on step, part and place, so that no two updates are alike. */
static void fill_parts(pages *shared, uint64_t step)
{
    for (uint64_t part = 0; part < PARTS; part++)
        for (uint64_t i = 0; i < SIZE; i++) {
            uint64_t mixed = (i + 1) * 2654435761u + step * 40503u + part * 97u;
            shared->parts[part][i] = (float)(int32_t)(mixed % 2001 - 1000) / 1000.0f;
        }
}

static uni__update update_of(side *one, pages *shared, int journal)
{
    for (int i = 0; i < PARTS; i++)
        one->parts[i] = shared->parts[i];
    return (uni__update){ .optimizer = one->optimizer,
                          .gradients = one->gradients,
                          .parts = one->parts,
                          .num_parts = PARTS,
                          .journal = journal < 0 ? NULL : &shared->journals[journal] };
}

static uni__span slice_of(const side *one, int index)
{
    size_t size = size_of(one), middle = size / 2 / 16 * 16;
    return index == 0 ? (uni__span){ 0, middle } : (uni__span){ middle, size };
}

/* The child owns slice 1; the parent owns slice 0. */
static void own_slice(side *one, pages *shared)
{
    for (;;) {
        uint64_t step = atomic_load(&shared->steps);
        uni__update update = update_of(one, shared, 1);
        uni_error err = { 0 };
        one->optimizer->iterations = (int64_t)step;
        if (uni__update_begin(&update, 7, &err) < 0)
            _exit(3);
        uni__update_slice(&update, slice_of(one, 1));
        atomic_store(&shared->steps, step + 1);
        while (atomic_load(&shared->steps) == step + 1) {
        }
    }
}

static void sleep_ns(long ns)
{
    nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

/* Starts the child for one step and kills it after a while; true when it was in the middle. */
static bool disturbed(side *one, pages *shared, uint64_t step, long after_ns)
{
    atomic_store(&shared->steps, step);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        own_slice(one, shared);
    while (atomic_load(&shared->journals[1].step) != step + 1)
        sleep_ns(1000); /* it has begun */
    sleep_ns(after_ns);
    kill(child, SIGKILL);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    return atomic_load(&shared->steps) == step;
}

static void compare(const side *one, const side *expected, uint64_t step)
{
    size_t size = size_of(one);
    const uni_optimizer *a = one->optimizer, *b = expected->optimizer;
    if (memcmp(uni_parameters_weights(one->store, NULL),
               uni_parameters_weights(expected->store, NULL), size * sizeof(float)) != 0)
        fail_msg("%s: weights differ after step %d", uni__optimizer_name(a), (int)step);
    for (int role = 0; role < UNI__OPTIMIZER_MAX_SLOTS; role++)
        if (a->slots[role] != NULL &&
            memcmp(a->slots[role], b->slots[role], size * sizeof(float)) != 0)
            fail_msg("%s: slot %d differs after step %d", uni__optimizer_name(a), role, (int)step);
}

static void killed_anywhere(const char *name, const char *config, int kills)
{
    pages *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    side one = side_new(name, config, shared, false),
         expected = side_new(name, config, NULL, false);
    int in_the_middle = 0;
    uint64_t random = 88172645463325252u;
    for (uint64_t step = 0; step < (uint64_t)kills; step++) {
        uni_error err = { 0 };
        fill_parts(shared, step);
        random = random * 6364136223846793005u + 1442695040888963407u;
        in_the_middle += disturbed(&one, shared, step, (long)(random >> 33) % 60000);
        /* The survivor does its own slice, then what is left of the dead one's. */
        uni__update mine = update_of(&one, shared, 0), theirs = update_of(&one, shared, 1);
        one.optimizer->iterations = (int64_t)step;
        ok(uni__update_begin(&mine, 7, &err), &err);
        uni__update_slice(&mine, slice_of(&one, 0));
        uni__update_slice(&theirs, slice_of(&one, 1));
        uni__update_commit(&mine);
        uni__update plain = update_of(&expected, shared, -1);
        ok(uni__update_begin(&plain, 7, &err), &err);
        uni__update_slice(&plain, (uni__span){ 0, size_of(&expected) });
        uni__update_commit(&plain);
        compare(&one, &expected, step);
    }
    print_message("%s: %d of %d kills in the middle of a slice\n", name, in_the_middle, kills);
    assert_true(in_the_middle > 0);
    side_free(&one);
    side_free(&expected);
    munmap(shared, sizeof *shared);
}

static void killed(void **state)
{
    killed_anywhere("adam", "{\"amsgrad\": true}", 60);
    killed_anywhere("sgd", "{\"momentum\": 0.9, \"nesterov\": true}", 60);
    killed_anywhere("rmsprop", "{\"centered\": true, \"momentum\": 0.5}", 60);
}

/* Every state that a kill can leave, one by one: the marks of a piece and its values, torn. */
static void torn_pieces(void **state)
{
    enum { PIECES = 5 };
    pages *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    side one = side_new("adam", "{}", shared, false),
         expected = side_new("adam", "{}", NULL, false);
    uni__span slice = { 64, 64 + PIECES * UNI__JOURNAL_PIECE - 20 };
    uint64_t step = 0;
    for (uint64_t done = 0; done < PIECES; done++)
        for (int torn = 0; torn < 3; torn++, step++) {
            uni_error err = { 0 };
            fill_parts(shared, step);
            uni__update update = update_of(&one, shared, 1),
                        plain = update_of(&expected, shared, -1);
            ok(uni__update_begin(&update, 2, &err), &err);
            /* The owner: `done` pieces, then one that is not begun, saved, or half written. */
            uni__span first = { slice.begin, slice.begin + done * UNI__JOURNAL_PIECE };
            uni__update_slice(&update, first);
            float *weights = uni_parameters_weights(one.store, NULL) + first.end;
            size_t left = slice.end - first.end,
                   count = left < UNI__JOURNAL_PIECE ? left : UNI__JOURNAL_PIECE;
            if (torn > 0) {
                float *old = shared->journals[1].old;
                memcpy(old, weights, count * sizeof *old);
                for (int role = 0; role < 2; role++)
                    memcpy(old + (size_t)(role + 1) * UNI__JOURNAL_PIECE,
                           one.optimizer->slots[role] + first.end, count * sizeof *old);
                atomic_store(&shared->journals[1].saved, done + 1);
            }
            for (size_t i = 0; torn == 2 && i < count / 3; i++) {
                weights[i] = 1e9f;
                one.optimizer->slots[1][first.end + i] = -1e9f;
            }
            uni__update_slice(&update, slice);
            assert_int_equal(atomic_load(&shared->journals[1].done), PIECES);
            uni__update_commit(&update);
            ok(uni__update_begin(&plain, 2, &err), &err);
            uni__update_slice(&plain, slice);
            uni__update_commit(&plain);
            compare(&one, &expected, step);
        }
    side_free(&one);
    side_free(&expected);
    munmap(shared, sizeof *shared);
}

/* Clipping by norm gives every parameter its own scale, and frozen parameters have no pieces. */
static void clipped_and_frozen(void **state)
{
    pages *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    static const char *const configs[] = { "{\"clipnorm\": 0.5}", "{\"clipvalue\": 0.25}", "{}" };
    for (int i = 0; i < 3; i++) {
        uni_error err = { 0 };
        memset(shared, 0, sizeof *shared);
        side one = side_new("adam", configs[i], shared, false),
             expected = side_new("adam", configs[i], NULL, false);
        if (i == 2) {
            uni_parameter_freeze(one.small, true);
            uni_parameter_freeze(expected.small, true);
        }
        for (uint64_t step = 0; step < 4; step++) {
            size_t size = size_of(&one);
            fill_parts(shared, step);
            memcpy(uni_gradients_data(one.gradients, NULL), shared->parts[0], size * sizeof(float));
            memcpy(uni_gradients_data(expected.gradients, NULL), shared->parts[0],
                   size * sizeof(float));
            uni__update update = { .optimizer = one.optimizer,
                                   .gradients = one.gradients,
                                   .journal = &shared->journals[0] };
            uni__update plain = { .optimizer = expected.optimizer,
                                  .gradients = expected.gradients };
            ok(uni__update_begin(&update, 1, &err), &err);
            ok(uni__update_begin(&plain, 1, &err), &err);
            uni__update_slice(&update, (uni__span){ 0, size });
            uni__update_slice(&update, (uni__span){ 0, size }); /* done: changes nothing */
            uni__update_slice(&plain, (uni__span){ 0, size });
            uni__update_commit(&update);
            uni__update_commit(&plain);
            compare(&one, &expected, step);
        }
        side_free(&one);
        side_free(&expected);
    }
    munmap(shared, sizeof *shared);
}

/* Owners of slices add up their sums of squares: the update is that of the whole sum. A frozen
 * parameter does not count. */
static void norms_by_slices(void **state)
{
    pages *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    static const char *const configs[] = { "{\"clipnorm\": 0.5}", "{\"global_clipnorm\": 0.5}",
                                           "{\"global_clipnorm\": 1e9}" };
    for (int i = 0; i < 6; i++) {
        uni_error err = { 0 };
        side one = side_new("sgd", configs[i % 3], NULL, false),
             expected = side_new("sgd", configs[i % 3], NULL, false);
        size_t size = size_of(&one), count = uni__optimizer_num_squares(one.optimizer);
        double squares[16] = { 0 };
        assert_true(count > 0 && count <= 16 && (i % 3 > 0) == (count == 1));
        uni_parameter_freeze(one.small, i >= 3);
        uni_parameter_freeze(expected.small, i >= 3);
        fill_parts(shared, (uint64_t)i);
        uni__update update = update_of(&one, shared, -1), plain = update_of(&expected, shared, -1);
        for (int owner = 0; owner < 2; owner++) {
            double mine[16] = { 0 };
            uni__update_squares(&update, slice_of(&one, owner), mine);
            for (size_t k = 0; k < count; k++)
                squares[k] += mine[k];
        }
        update.squares = squares;
        ok(uni__update_begin(&update, 3, &err), &err);
        for (int owner = 0; owner < 2; owner++)
            uni__update_slice(&update, slice_of(&one, owner));
        uni__update_commit(&update);
        ok(uni__update_alone(&plain, 3, NULL, &err), &err);
        const float *a = uni_parameters_weights(one.store, NULL),
                    *b = uni_parameters_weights(expected.store, NULL);
        for (size_t k = 0; k < size; k++)
            assert_float_equal(a[k], b[k], 1e-7 * (1 + fabsf(b[k])));
        side_free(&one);
        side_free(&expected);
    }
    munmap(shared, sizeof *shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_by_slices),
        cmocka_unit_test(torn_pieces),
        cmocka_unit_test(clipped_and_frozen),
        cmocka_unit_test(killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
