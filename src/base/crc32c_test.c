/* crc32c_test.c - known values (RFC 3720, B.4), and the fast version against the plain one. */
#include "base/crc32c.h"

#include "base/random.h"
#include "base/test.h"

static void known_values(void **state)
{
    uint8_t bytes[32];
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(uni__crc32c(bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(uni__crc32c(bytes, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(uni__crc32c(bytes, 32), 0x46dd794eu);
    assert_int_equal(uni__crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(uni__crc32c(NULL, 0), 0);
}

static void every_length_and_alignment(void **state)
{
    uint8_t bytes[700];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)uni__random_u64(1, 2, i);
    for (size_t begin = 0; begin < 9; begin++)
        for (size_t size = 0; begin + size <= sizeof bytes; size++)
            assert_int_equal(uni__crc32c(bytes + begin, size),
                             uni__crc32c_reference(bytes + begin, size));
}

/* The longest thirds, several rounds of them, and the remainder. */
static void long_ones(void **state)
{
    enum { SIZE = 20000 };
    uint8_t *bytes = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)uni__random_u64(3, 4, i);
    for (size_t size = 700; size <= SIZE; size += size < 7000 ? 1 : 97)
        assert_int_equal(uni__crc32c(bytes, size), uni__crc32c_reference(bytes, size));
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(known_values),
                                        cmocka_unit_test(every_length_and_alignment),
                                        cmocka_unit_test(long_ones) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
