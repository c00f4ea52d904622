/* fuzz_manifest.c - any bytes are a manifest or rejected, with and without a correct checksum. What
 * was read is written and read back as the same, and no path in it leads outside. See
 * base/fuzz.h. */
#include <stdlib.h>
#include <string.h>
#include "base/fuzz.h"
#include "checkpoint/manifest.h"
#include "checkpoint/manifest_internal.h"

static void check_same(const uni__manifest *a, const uni__manifest *b)
{
    FUZZ_PROMISE(a->number == b->number && a->iteration == b->iteration &&
                 a->attempt == b->attempt);
    FUZZ_PROMISE(a->timestamp == b->timestamp && a->is_dict == b->is_dict &&
                 a->has_score == b->has_score);
    FUZZ_PROMISE(a->score == b->score || (a->score != a->score && b->score != b->score));
    FUZZ_PROMISE(uni_value_equal(a->metrics, b->metrics));
    FUZZ_PROMISE(a->file_count == b->file_count);
    for (size_t i = 0; i < a->file_count; i++)
        FUZZ_PROMISE(strcmp(a->files[i].path, b->files[i].path) == 0 &&
                     a->files[i].size == b->files[i].size);
}

static void read_one(const char *text, size_t size)
{
    uni__manifest manifest, again;
    uni_error err = { 0 };
    int status = uni__manifest_read(&manifest, text, size, &err);
    if (status < 0) {
        FUZZ_PROMISE(err.code == status && err.message[0] && !manifest.files && !manifest.metrics);
        return;
    }
    for (size_t i = 0; i < manifest.file_count; i++) {
        const char *path = manifest.files[i].path, *up = strstr(path, "/..");
        FUZZ_PROMISE(path[0] && path[0] != '/' && strncmp(path, "../", 3) != 0);
        for (; up; up = strstr(up + 1, "/.."))
            FUZZ_PROMISE(up[3] != '/' && up[3] != '\0');
    }
    char *written = NULL;
    size_t length = 0;
    FUZZ_PROMISE(uni__manifest_write(&written, &length, &manifest, &err) == 0);
    FUZZ_PROMISE(uni__manifest_read(&again, written, length, &err) == 0);
    check_same(&manifest, &again);
    free(written);
    uni__manifest_clear(&again);
    uni__manifest_clear(&manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_one((const char *)data, size);
    /* Then as an attacker who knows the format would send it: with the correct tail. */
    size_t body = size > UNI__MANIFEST_TAIL ? size - UNI__MANIFEST_TAIL : size;
    char *text = malloc(body + UNI__MANIFEST_TAIL), tail[UNI__MANIFEST_TAIL + 1];
    if (!text)
        return 0;
    if (body > 0)
        memcpy(text, data, body);
    uni__manifest_tail(tail, text, body);
    memcpy(text + body, tail, UNI__MANIFEST_TAIL);
    read_one(text, body + UNI__MANIFEST_TAIL);
    free(text);
    return 0;
}

size_t fuzz_sample(uint8_t *out, size_t room)
{
    static const char sample[] =
        "{\"format\":\"unisono "
        "checkpoint\",\"version\":2,\n\"number\":3,\n\"iteration\":12,\n\"attempt\":1,\n"
        "\"timestamp\":1763243774.25,\n\"kind\":\"dict\",\n\"score\":\"NaN\",\n\"score_attribute\":"
        "\"loss\",\n"
        "\"metrics\":{\"loss\":null,\"l\":[1,null,{\"x\":2.5}]},\n\"nonfinite\":{\"loss\":\"NaN\","
        "\"l\":{\"1\":\"Infinity\"}},\n"
        "\"files\":[\n{\"path\":\"a/b\",\"size\":4096,\"xxh3\":\"0123456789abcdef\"},\n"
        "{\"path\":\"last\",\"size\":9,\"xxh3\":\"0123456789abcdef\",\"link\":true},\n"
        "{\"path_hex\":\"ff41\",\"size\":1,\"xxh3\":\"0123456789abcdef\"}\n]\n";
    size_t body = sizeof sample - 1;
    if (body + UNI__MANIFEST_TAIL + 1 > room)
        return 0;
    memcpy(out, sample, body);
    uni__manifest_tail((char *)out + body, sample, body);
    return body + UNI__MANIFEST_TAIL;
}
