/* secure_test.c - proofs, keys and frames between hosts, driven byte by byte without a socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "group/keyring.h"
#include "group/secure.h"

#define RANK 7
#define RANKS 8
#define MAX_FRAMES 4

typedef struct pair {
    uni__secure controller, host;
    uni_error at_controller, at_host;
    int controller_code, host_code;
} pair;

/* A controller and an agent of the same job, the agent announced. */
typedef struct job {
    uni__credentials controller, host;
    uni__keyring *ring;
} job;

static void announce(job *it)
{
    char line[UNI__ANNOUNCEMENT_MAX];
    uni__announcement_write(&it->host, RANK, line);
    assert_int_equal(uni__keyring_read(it->ring, &it->controller, line, strlen(line)),
                     strlen(line));
}

static job make(bool seal)
{
    job it;
    assert_int_equal(uni__credentials_new(&it.controller, NULL), 0);
    it.controller.attempt = 3;
    it.controller.seal = seal;
    assert_int_equal(uni__keyring_new(&it.ring, RANKS, NULL), 0);
    it.controller.ring = it.ring;
    it.host = (uni__credentials){ .attempt = 3, .seal = seal };
    memcpy(it.host.job, it.controller.job, UNI__JOB_BYTES);
    memcpy(it.host.controller_key, it.controller.public_key, UNI__KEY_BYTES);
    assert_int_equal(uni__credentials_make_pair(&it.host, NULL), 0);
    announce(&it);
    return it;
}

static void forget(job *it)
{
    uni__keyring_free(it->ring);
}

static int carry(uni__secure *from, uni__secure *to, uni_error *err, size_t piece)
{
    int status = 0;
    for (size_t at = 0; at < from->out.size && status == 0; at += piece) {
        size_t size = from->out.size - at < piece ? from->out.size - at : piece;
        status = uni__secure_feed(to, from->out.data + at, size, err);
    }
    uni__text_clear(&from->out);
    return status;
}

static void begin(pair *it, const job *of)
{
    memset(it, 0, sizeof *it);
    assert_int_equal(uni__secure_begin(&it->controller, true, &of->controller, 0, NULL), 0);
    assert_int_equal(uni__secure_begin(&it->host, false, &of->host, RANK, NULL), 0);
}

/* The whole greeting, in pieces of that many bytes. */
static void greet(pair *it, const job *of, size_t piece)
{
    begin(it, of);
    it->host_code = carry(&it->controller, &it->host, &it->at_host, piece);
    it->controller_code = carry(&it->host, &it->controller, &it->at_controller, piece);
    if (it->controller_code == 0 && it->host_code == 0)
        it->host_code = carry(&it->controller, &it->host, &it->at_host, piece);
    if (it->controller_code == 0 && it->host_code == 0)
        it->controller_code = carry(&it->host, &it->controller, &it->at_controller, piece);
}

static void end(pair *it)
{
    uni__secure_end(&it->controller);
    uni__secure_end(&it->host);
}

static int next(uni__secure *secure, uni_error *err)
{
    const uint8_t *payload;
    size_t size;
    int type;
    return uni__secure_next(secure, &type, &payload, &size, err);
}

static void test_frames(void **unused)
{
    for (int seal = 0; seal < 2; seal++)
        for (size_t piece = 1; piece < 200; piece += 33) {
            job both = make(seal);
            pair it;
            const uint8_t *payload;
            size_t size;
            int type;
            greet(&it, &both, piece);
            assert_true(uni__secure_is_ready(&it.controller) && uni__secure_is_ready(&it.host));
            assert_int_equal(it.controller.rank, RANK);
            assert_int_equal(uni__secure_pack(&it.host, 5, "head", 4, "payload", 7, NULL), 0);
            /* Readable exactly when it was asked for. */
            assert_int_equal(!seal,
                             memmem(it.host.out.data, it.host.out.size, "payload", 7) != NULL);
            assert_int_equal(uni__secure_pack(&it.host, 6, NULL, 0, NULL, 0, NULL), 0);
            assert_int_equal(carry(&it.host, &it.controller, NULL, piece), 0);
            assert_int_equal(uni__secure_next(&it.controller, &type, &payload, &size, NULL), 1);
            assert_int_equal(type, 5);
            assert_int_equal(size, 11);
            assert_memory_equal(payload, "headpayload", 11);
            assert_int_equal(uni__secure_next(&it.controller, &type, &payload, &size, NULL), 1);
            assert_int_equal(type, 6);
            assert_int_equal(size, 0);
            assert_int_equal(uni__secure_next(&it.controller, &type, &payload, &size, NULL), 0);
            end(&it);
            forget(&both);
        }
}

/* A refused peer learns nothing: not one byte is sent to it. */
static void refused(const job *of, const char *words)
{
    pair it;
    greet(&it, of, 1000);
    assert_int_equal(it.controller_code, UNI_EPERMISSION);
    assert_non_null(strstr(it.at_controller.message, words));
    assert_int_equal(it.controller.out.size, 0);
    assert_false(uni__secure_is_ready(&it.controller));
    end(&it);
}

static void test_strangers(void **unused)
{
    job ours = make(true), other = ours;
    other.host.job[0] ^= 1;
    refused(&other, "another job");
    other = ours;
    other.host.attempt = 2;
    refused(&other, "attempt 2");
    /* All that crossed the launcher's channel is known to it, but no private key. */
    other = ours;
    assert_int_equal(uni__credentials_make_pair(&other.host, NULL), 0);
    refused(&other, "another key than the agent of rank 7 announced");
    memcpy(other.host.public_key, ours.host.public_key, UNI__KEY_BYTES);
    refused(&other, "cannot prove that it is the agent of rank 7");
    /* A controller's own secret file that the host does not have. */
    other = ours;
    other.controller.secret[0] = 1;
    refused(&other, "does not have the secret file");
    forget(&ours);
}

/* The agent's line may be slower than its connection. */
static void test_announced_later(void **unused)
{
    job late = make(true);
    pair it;
    late.ring->ranks[RANK].known = false;
    begin(&it, &late);
    assert_int_equal(carry(&it.controller, &it.host, NULL, 1000), 0);
    assert_int_equal(carry(&it.host, &it.controller, NULL, 1000), 0);
    assert_true(it.controller.unannounced);
    assert_int_equal(it.controller.out.size, 0);
    assert_int_equal(uni__secure_feed(&it.controller, NULL, 0, NULL), 0);
    assert_true(it.controller.unannounced);
    announce(&late);
    assert_int_equal(uni__secure_feed(&it.controller, NULL, 0, NULL), 0);
    assert_int_equal(carry(&it.controller, &it.host, NULL, 1000), 0);
    assert_int_equal(carry(&it.host, &it.controller, NULL, 1000), 0);
    assert_true(uni__secure_is_ready(&it.controller) && uni__secure_is_ready(&it.host));
    end(&it);
    /* Meanwhile it takes no memory. */
    late.ring->ranks[RANK].known = false;
    begin(&it, &late);
    assert_int_equal(carry(&it.controller, &it.host, NULL, 1000), 0);
    assert_int_equal(carry(&it.host, &it.controller, NULL, 1000), 0);
    assert_int_equal(uni__secure_feed(&it.controller, "more", 4, NULL), UNI_EPEER);
    end(&it);
    forget(&late);
}

static void test_false_controller(void **unused)
{
    job ours = make(true), plain = ours;
    pair it;
    /* One that offers no seal where the launcher said there is. */
    plain.controller.seal = false;
    greet(&it, &plain, 1000);
    assert_int_equal(it.host_code, UNI_EPERMISSION);
    end(&it);
    /* One that has another key than the launcher said: it can only make up a reply. */
    begin(&it, &ours);
    assert_int_equal(carry(&it.controller, &it.host, NULL, 1000), 0);
    uint8_t reply[UNI__REPLY_BYTES] = "UNISONO\6";
    assert_int_equal(uni__secure_feed(&it.host, reply, sizeof reply, &it.at_host), UNI_EPERMISSION);
    end(&it);
    /* One that is in between, with the announced keys of both but not their private halves: it
     * cannot turn one side's greeting into its own. */
    job middle = ours;
    assert_int_equal(uni__credentials_make_pair(&middle.controller, NULL), 0);
    memcpy(middle.controller.public_key, ours.controller.public_key, UNI__KEY_BYTES);
    greet(&it, &middle, 1000);
    assert_true(it.controller_code == UNI_EPERMISSION || it.host_code == UNI_EPERMISSION);
    assert_false(uni__secure_is_ready(&it.host));
    end(&it);
    forget(&ours);
}

static void test_replayed_greeting(void **unused)
{
    job ours = make(true);
    pair first;
    uni__secure again;
    uni_error err = { 0 };
    greet(&first, &ours, 1000);
    assert_int_equal(uni__secure_begin(&again, true, &ours.controller, 0, NULL), 0);
    assert_int_equal(uni__secure_feed(&again, first.host.hello, UNI__HELLO_BYTES, &err),
                     UNI_EPERMISSION);
    assert_non_null(strstr(err.message, "repeats an earlier greeting"));
    uni__secure_end(&again);
    end(&first);
    forget(&ours);
}

/* An attacker that learns all lasting keys later still needs the ephemeral ones, which are gone. */
static void test_forward_secrecy(void **unused)
{
    job ours = make(true);
    static const uint8_t zero[UNI__KEY_BYTES];
    pair first, second;
    greet(&first, &ours, 1000);
    greet(&second, &ours, 1000);
    uni__secure *all[] = { &first.controller, &first.host, &second.controller, &second.host };
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(all[i]->ephemeral, zero, sizeof zero);
        assert_memory_equal(all[i]->root, zero, sizeof zero);
        assert_memory_equal(all[i]->credentials.private_key, zero, sizeof zero);
    }
    assert_memory_not_equal(first.controller.challenge, second.controller.challenge,
                            UNI__CHALLENGE_BYTES);
    /* The keys of frames differ though all lasting keys are the same. */
    assert_memory_not_equal(first.host.push.k, second.host.push.k, sizeof first.host.push.k);
    assert_memory_not_equal(first.host.push.k, first.host.pull.k, sizeof first.host.push.k);
    end(&first);
    end(&second);
    forget(&ours);
}

/* Four frames, as they go over the wire. */
static void pack_some(uni__secure *from, size_t at[MAX_FRAMES + 1])
{
    at[0] = 0;
    for (int i = 0; i < MAX_FRAMES; i++) {
        assert_int_equal(uni__secure_pack(from, i + 1, "head", 4, "payload", 7, NULL), 0);
        at[i + 1] = from->out.size;
    }
}

/* What arrives instead, in this order (-1: the end); how many are taken before the error. */
static void on_the_way(bool seal, const int *order, int taken, bool fails, size_t flip)
{
    job ours = make(seal);
    pair it;
    size_t at[MAX_FRAMES + 1];
    uni_error err = { 0 };
    greet(&it, &ours, 1000);
    pack_some(&it.host, at);
    if (flip)
        it.host.out.data[flip] ^= 1;
    for (; *order >= 0; order++)
        assert_int_equal(uni__secure_feed(&it.controller, it.host.out.data + at[*order],
                                          at[*order + 1] - at[*order], NULL),
                         0);
    for (int i = 0; i < taken; i++)
        assert_int_equal(next(&it.controller, NULL), 1);
    if (fails) {
        assert_int_equal(next(&it.controller, &err), UNI_ECORRUPT);
        assert_non_null(strstr(err.message, "possible man in the middle"));
        char number[32];
        snprintf(number, sizeof number, "frame %d was", taken + 1);
        assert_non_null(strstr(err.message, number));
    } else {
        assert_int_equal(next(&it.controller, &err), 0);
    }
    end(&it);
    forget(&ours);
}

static void test_frames_on_their_way(void **unused)
{
    for (int seal = 0; seal < 2; seal++) {
        on_the_way(seal, (const int[]){ 0, 1, 2, 3, -1 }, 4, false, 0);
        on_the_way(seal, (const int[]){ 0, 0, -1 }, 1, true, 0); /* repeated */
        on_the_way(seal, (const int[]){ 0, 2, 1, 3, -1 }, 1, true, 0); /* reordered */
        on_the_way(seal, (const int[]){ 0, 1, 3, -1 }, 2, true, 0); /* left out */
        /* Every bit of the first frame but those of its length. */
        for (size_t byte = 4; byte < 4 + 12 + 17; byte++)
            on_the_way(seal, (const int[]){ 0, -1 }, 0, true, byte);
    }
}

/* A frame of one connection is worth nothing on another, nor in the other direction. */
static void test_frames_elsewhere(void **unused)
{
    job ours = make(true);
    pair one, two;
    greet(&one, &ours, 1000);
    greet(&two, &ours, 1000);
    assert_int_equal(uni__secure_pack(&one.host, 5, NULL, 0, "payload", 7, NULL), 0);
    assert_int_equal(uni__secure_feed(&two.controller, one.host.out.data, one.host.out.size, NULL),
                     0);
    assert_int_equal(next(&two.controller, NULL), UNI_ECORRUPT);
    assert_int_equal(uni__secure_feed(&one.host, one.host.out.data, one.host.out.size, NULL), 0);
    assert_int_equal(next(&one.host, NULL), UNI_ECORRUPT);
    end(&one);
    end(&two);
    forget(&ours);
}

static void test_impossible_sizes(void **unused)
{
    static const uint32_t sizes[] = { 0, 1, 17, UNI__SECURE_FRAME_MAX + 18, 0xfffffff0u };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        job ours = make(i % 2);
        pair it;
        greet(&it, &ours, 1000);
        assert_int_equal(uni__secure_feed(&it.controller, &sizes[i], 4, NULL), 0);
        assert_int_equal(next(&it.controller, NULL), UNI_EFORMAT);
        end(&it);
        forget(&ours);
    }
}

/* A point of a small order would make the shared keys public. */
static void test_weak_keys(void **unused)
{
    job ours = make(true);
    pair it;
    begin(&it, &ours);
    memset(it.controller.out.data + 8, 0, UNI__KEY_BYTES);
    assert_int_equal(carry(&it.controller, &it.host, NULL, 1000), UNI_EPERMISSION);
    end(&it);
    begin(&it, &ours);
    assert_int_equal(carry(&it.controller, &it.host, NULL, 1000), 0);
    memset(it.host.out.data + 24, 0, UNI__KEY_BYTES);
    assert_int_equal(carry(&it.host, &it.controller, NULL, 1000), UNI_EPERMISSION);
    end(&it);
    forget(&ours);
}

static char secret_path[256];

static int make_secret(void **unused)
{
    const char *base = getenv("TMPDIR");
    snprintf(secret_path, sizeof secret_path, "%.200s/unisono-secret-XXXXXX", base ? base : "/tmp");
    return 0;
}

static int remove_secret(void **unused)
{
    unlink(secret_path); /* already gone when the test has passed */
    return 0;
}

static void test_secret_file(void **unused)
{
    char *path = secret_path;
    job ours = make(true);
    static const uint8_t zero[UNI__KEY_BYTES];
    uni_error err = { 0 };
    pair it;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "too short", 9), 9);
    assert_int_equal(uni__credentials_read_secret(&ours.host, path, &err), UNI_EINVAL);
    assert_int_equal(write(fd, "now it is long enough for a key.", 32), 32);
    assert_int_equal(fchmod(fd, 0640), 0);
    assert_int_equal(uni__credentials_read_secret(&ours.host, path, &err), UNI_EPERMISSION);
    assert_non_null(strstr(err.message, "chmod 600"));
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(uni__credentials_read_secret(&ours.host, path, &err), 0);
    assert_memory_not_equal(ours.host.secret, zero, sizeof zero);
    refused(&ours, "does not have the secret file");
    assert_int_equal(uni__credentials_read_secret(&ours.controller, path, &err), 0);
    greet(&it, &ours, 1000);
    assert_true(uni__secure_is_ready(&it.controller) && uni__secure_is_ready(&it.host));
    end(&it);
    close(fd);
    unlink(path);
    assert_int_equal(uni__credentials_read_secret(&ours.host, path, &err), UNI_ENOTFOUND);
    forget(&ours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_announced_later),
        cmocka_unit_test(test_false_controller),
        cmocka_unit_test(test_replayed_greeting),
        cmocka_unit_test(test_forward_secrecy),
        cmocka_unit_test(test_frames_on_their_way),
        cmocka_unit_test(test_frames_elsewhere),
        cmocka_unit_test(test_impossible_sizes),
        cmocka_unit_test(test_weak_keys),
        cmocka_unit_test_setup_teardown(test_secret_file, make_secret, remove_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
