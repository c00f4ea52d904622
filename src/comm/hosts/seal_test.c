/* seal_test.c - a sealed message opens only at its own place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "comm/hosts/seal.h"

#define SIZE 100

static void test_places(void **unused)
{
    uint8_t key[UNI__DATA_KEY_BYTES] = { 1 }, other_key[UNI__DATA_KEY_BYTES] = { 2 };
    uint8_t plain[SIZE], sealed[SIZE + UNI__SEAL_MAX], again[SIZE + UNI__SEAL_MAX], opened[SIZE];
    uni__seal *seal, *other;
    assert_int_equal(uni__seal_new(&seal, key, NULL), 0);
    assert_int_equal(uni__seal_new(&other, other_key, NULL), 0);
    memset(plain, 'p', sizeof plain);
    uni__seal_place place = { .comm = 1, .kind = 2, .from = 3, .to = 4, .number = 5, .part = 6 };
    seal->seal(seal->context, &place, sealed, plain, SIZE);
    assert_null(memmem(sealed, sizeof sealed, "pppp", 4));
    assert_int_equal(seal->open(seal->context, &place, opened, sealed, SIZE), 0);
    assert_memory_equal(opened, plain, SIZE);
    /* Sealing twice gives different bytes. */
    seal->seal(seal->context, &place, again, plain, SIZE);
    assert_memory_not_equal(sealed, again, SIZE);
    assert_int_equal(other->open(other->context, &place, opened, sealed, SIZE), -1);
    for (size_t bit = 0; bit < 8 * (SIZE + seal->extra); bit++) {
        sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(seal->open(seal->context, &place, opened, sealed, SIZE), -1);
        sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t bit = 0; bit < 8 * sizeof place; bit++) {
        uni__seal_place elsewhere = place;
        ((uint8_t *)&elsewhere)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(seal->open(seal->context, &elsewhere, opened, sealed, SIZE), -1);
    }
    assert_int_equal(seal->open(seal->context, &place, sealed, sealed, SIZE), 0); /* in place */
    assert_memory_equal(sealed, plain, SIZE);
    /* An empty message works, too. */
    seal->seal(seal->context, &place, sealed, NULL, 0);
    assert_int_equal(seal->open(seal->context, &place, opened, sealed, 0), 0);
    uni__seal_free(seal);
    uni__seal_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_places) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
