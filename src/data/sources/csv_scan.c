/*
 * csv_scan.c - counts a byte, and finds the next of a few bytes: plain loops, and AVX2 versions
 * that handle 32 bytes at a time. The plain loops remain as the reference for tests. Any thread.
 */
#include <string.h>
#include "data/sources/csv.h"

static size_t count_base(const char *text, size_t size, char c)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += text[i] == c;
    return count;
}

static const char *find_base(const char *text, const char *end, char a, char b, char c, char d)
{
    while (text < end && *text != a && *text != b && *text != c && *text != d)
        text++;
    return text;
}

const uni__csv_scan uni__csv_scan_base = { .name = "base", .count = count_base, .find = find_base };

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2"))) static size_t count_avx2(const char *text, size_t size, char c)
{
    const __m256i wanted = _mm256_set1_epi8(c);
    size_t count = 0, i = 0;
    while (i + 32 <= size) {
        /* Byte counters overflow after 255 hits. */
        __m256i sums = _mm256_setzero_si256();
        for (int k = 0; k < 255 && i + 32 <= size; k++, i += 32) {
            __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)(text + i));
            sums = _mm256_sub_epi8(sums, _mm256_cmpeq_epi8(bytes, wanted));
        }
        __m256i quarters = _mm256_sad_epu8(sums, _mm256_setzero_si256());
        count += (size_t)(_mm256_extract_epi64(quarters, 0) + _mm256_extract_epi64(quarters, 1) +
                          _mm256_extract_epi64(quarters, 2) + _mm256_extract_epi64(quarters, 3));
    }
    return count + count_base(text + i, size - i, c);
}

__attribute__((target("avx2"))) static const char *find_avx2(const char *text, const char *end,
                                                             char a, char b, char c, char d)
{
    const __m256i wa = _mm256_set1_epi8(a), wb = _mm256_set1_epi8(b), wc = _mm256_set1_epi8(c),
                  wd = _mm256_set1_epi8(d);
    for (; text + 32 <= end; text += 32) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)text);
        __m256i hits = _mm256_or_si256(
            _mm256_or_si256(_mm256_cmpeq_epi8(bytes, wa), _mm256_cmpeq_epi8(bytes, wb)),
            _mm256_or_si256(_mm256_cmpeq_epi8(bytes, wc), _mm256_cmpeq_epi8(bytes, wd)));
        unsigned mask = (unsigned)_mm256_movemask_epi8(hits);
        if (mask != 0)
            return text + __builtin_ctz(mask);
    }
    return find_base(text, end, a, b, c, d);
}

static const uni__csv_scan scan_avx2 = { .name = "avx2", .count = count_avx2, .find = find_avx2 };
#endif

const uni__csv_scan *uni__csv_scanner(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return &scan_avx2;
#endif
    return &uni__csv_scan_base;
}
