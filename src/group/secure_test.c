/* secure_test.c - proofs and frames between hosts, driven byte by byte without a socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "group/secure.h"

typedef struct pair {
    uni__secure controller, host;
    uni_error at_controller, at_host;
    int controller_code, host_code;
} pair;

static uni__credentials make(bool encrypt)
{
    uni__credentials credentials;
    assert_int_equal(uni__credentials_new(&credentials, NULL), 0);
    credentials.attempt = 3;
    credentials.encrypt = encrypt;
    return credentials;
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

/* The whole greeting, in pieces of that many bytes. */
static void greet(pair *it, const uni__credentials *controller, const uni__credentials *host,
                  size_t piece)
{
    memset(it, 0, sizeof *it);
    assert_int_equal(uni__secure_begin(&it->controller, true, controller, 0, NULL), 0);
    assert_int_equal(uni__secure_begin(&it->host, false, host, 7, NULL), 0);
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

static void test_frames(void **unused)
{
    for (int encrypt = 0; encrypt < 2; encrypt++)
        for (size_t piece = 1; piece < 200; piece += 33) {
            uni__credentials both = make(encrypt);
            pair it;
            const uint8_t *payload;
            size_t size;
            int type;
            greet(&it, &both, &both, piece);
            assert_true(uni__secure_is_ready(&it.controller) && uni__secure_is_ready(&it.host));
            assert_int_equal(it.controller.rank, 7);
            assert_int_equal(uni__secure_pack(&it.host, 5, "head", 4, "payload", 7, NULL), 0);
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
        }
}

/* Who is refused learns nothing: not one byte is sent to it. */
static void refused(const uni__credentials *controller, const uni__credentials *host,
                    const char *words)
{
    pair it;
    greet(&it, controller, host, 1000);
    assert_int_equal(it.controller_code, UNI_EPERMISSION);
    assert_non_null(strstr(it.at_controller.message, words));
    assert_int_equal(it.controller.out.size, 0);
    assert_false(uni__secure_is_ready(&it.controller));
    end(&it);
}

static void test_strangers(void **unused)
{
    uni__credentials ours = make(false), other = ours;
    other.secret[31] ^= 1;
    refused(&ours, &other, "does not know the job's secret");
    other = ours;
    other.job[0] ^= 1;
    refused(&ours, &other, "another job");
    other = ours;
    other.attempt = 2;
    refused(&ours, &other, "attempt 2");
}

static void test_false_controller(void **unused)
{
    uni__credentials ours = make(false), plain = make(false);
    pair it, later;
    plain = ours;
    plain.encrypt = true;
    /* One that offers no encryption where the launcher said there is. */
    greet(&it, &ours, &plain, 1000);
    assert_int_equal(it.host_code, UNI_EPERMISSION);
    end(&it);
    /* One that does not know the secret: it can only make up a reply. */
    memset(&later, 0, sizeof later);
    assert_int_equal(uni__secure_begin(&later.controller, true, &ours, 0, NULL), 0);
    assert_int_equal(uni__secure_begin(&later.host, false, &ours, 0, NULL), 0);
    assert_int_equal(carry(&later.controller, &later.host, NULL, 1000), 0);
    uint8_t reply[UNI__REPLY_BYTES] = "UNISONO\3";
    assert_int_equal(uni__secure_feed(&later.host, reply, sizeof reply, &later.at_host),
                     UNI_EPERMISSION);
    end(&later);
}

static void test_replay(void **unused)
{
    uni__credentials ours = make(false);
    pair first;
    uni__secure again;
    uni_error err = { 0 };
    greet(&first, &ours, &ours, 1000);
    assert_int_equal(uni__secure_begin(&again, true, &ours, 0, NULL), 0);
    assert_int_equal(uni__secure_feed(&again, first.host.hello, UNI__HELLO_BYTES, &err),
                     UNI_EPERMISSION);
    uni__secure_end(&again);
    end(&first);
}

static void test_damage(void **unused)
{
    uni__credentials both = make(true);
    const uint8_t *payload;
    size_t size;
    int type;
    pair it;
    uni_error err = { 0 };
    greet(&it, &both, &both, 1000);
    assert_int_equal(uni__secure_pack(&it.host, 5, NULL, 0, "payload", 7, NULL), 0);
    it.host.out.data[12] ^= 1;
    assert_int_equal(carry(&it.host, &it.controller, NULL, 1000), 0);
    assert_int_equal(uni__secure_next(&it.controller, &type, &payload, &size, &err), UNI_ECORRUPT);
    end(&it);
    both.encrypt = false;
    greet(&it, &both, &both, 1000);
    uint32_t huge = 0xfffffff0u;
    assert_int_equal(uni__secure_feed(&it.controller, &huge, sizeof huge, NULL), 0);
    assert_int_equal(uni__secure_next(&it.controller, &type, &payload, &size, &err), UNI_EFORMAT);
    end(&it);
}

static void test_secret_as_text(void **unused)
{
    uni__credentials ours = make(false), back = { 0 };
    char text[65];
    uni__secret_to_text(&ours, text);
    assert_int_equal(uni__secret_from_text(&back, text, NULL), 0);
    assert_memory_equal(ours.secret, back.secret, UNI__SECRET_BYTES);
    text[10] = 'x';
    assert_int_equal(uni__secret_from_text(&back, text, NULL), UNI_EFORMAT);
    assert_int_equal(uni__secret_from_text(&back, "ab", NULL), UNI_EFORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),           cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_false_controller), cmocka_unit_test(test_replay),
        cmocka_unit_test(test_damage),           cmocka_unit_test(test_secret_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
