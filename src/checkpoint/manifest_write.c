/*
 * manifest_write.c - a manifest as text: one member per line, one file per line, so that people can
 * read and diff it.
 *
 * The output is read back before it is returned: a manifest that no reader accepts (a metric nested
 * too deep, a time that is not a number) must fail the commit and not the resume a week later. Any
 * thread.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "checkpoint/manifest_internal.h"

void uni__manifest_tail(char tail[UNI__MANIFEST_TAIL + 1], const char *text, size_t body)
{
    char sum[17];
    uni__hash_bytes(text, body, sum);
    snprintf(tail, UNI__MANIFEST_TAIL + 1, ",\"checksum\":\"%s\"}\n", sum);
}

/* As strict as JSON readers: no overlong forms, no surrogates, nothing above U+10FFFF. */
static bool is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at) {
        if (*at < 0x80) {
            at++;
            continue;
        }
        int more = *at >= 0xF0 ? 3 : *at >= 0xE0 ? 2 : 1;
        if (*at < 0xC2 || *at > 0xF4)
            return false;
        unsigned low = 0x80, high = 0xBF; /* of the second byte */
        if (*at == 0xE0)
            low = 0xA0;
        else if (*at == 0xED)
            high = 0x9F;
        else if (*at == 0xF0)
            low = 0x90;
        else if (*at == 0xF4)
            high = 0x8F;
        for (int i = 1; i <= more; i++, low = 0x80, high = 0xBF)
            if (at[i] < low || at[i] > high) /* the terminating zero is below low */
                return false;
        at += more + 1;
    }
    return true;
}

static void add_string(uni__text *text, const char *string)
{
    uni__text_add_json_string(text, string, strlen(string));
}

/* Writes the tree of non-finite numbers below value. Returns false and adds nothing when there are
 * none. */
static bool add_marks(uni__text *text, const uni_value *value)
{
    uni_value_type type = uni_value_type_of(value);
    if (type == UNI_TYPE_FLOAT) {
        double number = uni_value_as_float(value, 0);
        if (isfinite(number))
            return false;
        add_string(text, isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
        return true;
    }
    if (type != UNI_TYPE_DICT && type != UNI_TYPE_LIST)
        return false;
    size_t count = type == UNI_TYPE_DICT ? uni_dict_size(value) : uni_list_size(value);
    size_t start = text->size;
    bool any = false;
    uni__text_add_string(text, "{");
    for (size_t i = 0; i < count; i++) {
        size_t before = text->size;
        char position[24];
        snprintf(position, sizeof position, "%zu", i);
        if (any)
            uni__text_add_string(text, ",");
        add_string(text, type == UNI_TYPE_DICT ? uni_dict_key_at(value, i) : position);
        uni__text_add_string(text, ":");
        if (add_marks(text,
                      type == UNI_TYPE_DICT ? uni_dict_value_at(value, i) : uni_list_get(value, i)))
            any = true;
        else
            text->size = before;
    }
    if (any)
        uni__text_add_string(text, "}");
    else
        text->size = start;
    return any;
}

static int add_metrics(uni__text *text, const uni_value *metrics, uni_error *err)
{
    uni__text_add_string(text, "\"metrics\":");
    if (!metrics) {
        uni__text_add_string(text, "{},\n\"nonfinite\":{},\n");
        return 0;
    }
    char *json = NULL;
    size_t length = 0;
    UNI_TRY(uni_json_write(&json, &length, metrics, 0, err));
    uni__text_add(text, json, length);
    free(json);
    uni__text_add_string(text, ",\n\"nonfinite\":");
    if (!add_marks(text, metrics))
        uni__text_add_string(text, "{}");
    uni__text_add_string(text, ",\n");
    return 0;
}

static void add_score(uni__text *text, const uni__manifest *manifest)
{
    uni__text_add_string(text, "\"score\":");
    if (!manifest->has_score)
        uni__text_add_string(text, "null");
    else if (isfinite(manifest->score))
        uni__text_add_double(text, manifest->score);
    else
        add_string(text, isnan(manifest->score) ? "NaN"
                         : manifest->score > 0  ? "Infinity"
                                                : "-Infinity");
    uni__text_add_string(text, ",\n\"score_attribute\":");
    if (manifest->score_attribute)
        add_string(text, manifest->score_attribute);
    else
        uni__text_add_string(text, "null");
    uni__text_add_string(text, ",\n");
}

static void add_file(uni__text *text, const uni__manifest_file *file)
{
    if (is_utf8(file->path)) {
        uni__text_add_string(text, "{\"path\":");
        add_string(text, file->path);
    } else {
        uni__text_add_string(text, "{\"path_hex\":\"");
        for (const unsigned char *at = (const unsigned char *)file->path; *at; at++)
            uni__text_add_format(text, "%02x", *at);
        uni__text_add_string(text, "\"");
    }
    uni__text_add_format(text, ",\"size\":%" PRIu64 ",\"xxh3\":\"%s\"%s}", file->size, file->xxh3,
                         file->link ? ",\"link\":true" : "");
}

static int write_text(uni__text *text, const uni__manifest *manifest, uni_error *err)
{
    uni__text_add_format(text,
                         "{\"format\":\"unisono checkpoint\",\"version\":%d,\n"
                         "\"number\":%" PRId64 ",\n\"iteration\":%" PRId64 ",\n\"attempt\":%d,\n"
                         "\"timestamp\":",
                         UNI__MANIFEST_VERSION, manifest->number, manifest->iteration,
                         manifest->attempt);
    uni__text_add_double(text, manifest->timestamp);
    uni__text_add_format(text, ",\n\"kind\":\"%s\",\n", manifest->is_dict ? "dict" : "directory");
    add_score(text, manifest);
    UNI_TRY(add_metrics(text, manifest->metrics, err));
    uni__text_add_string(text, "\"files\":[\n");
    for (size_t i = 0; i < manifest->file_count; i++) {
        add_file(text, &manifest->files[i]);
        uni__text_add_string(text, i + 1 < manifest->file_count ? ",\n" : "\n");
    }
    uni__text_add_string(text, "]\n");
    if (text->failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a manifest");
    char tail[UNI__MANIFEST_TAIL + 1];
    uni__manifest_tail(tail, text->data, text->size);
    uni__text_add(text, tail, UNI__MANIFEST_TAIL);
    return text->failed ? uni_error_set(err, UNI_ENOMEM, "no memory for a manifest") : 0;
}

int uni__manifest_write(char **out, size_t *size, const uni__manifest *manifest, uni_error *err)
{
    int status;
    uni__text text = { 0 };
    uni__manifest again = { 0 };
    *out = NULL;
    UNI_TRY_GOTO(write_text(&text, manifest, err), fail);
    status = uni__manifest_read(&again, text.data, text.size, err);
    uni__manifest_clear(&again);
    if (status < 0) {
        uni_error_prefix(err, "the checkpoint cannot be described");
        goto fail;
    }
    *out = text.data;
    *size = text.size;
    return 0;
fail:
    uni__text_free(&text);
    return status;
}
