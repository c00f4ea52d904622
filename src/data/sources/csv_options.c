/*
 * csv_options.c - CSV options: parses them from words (for the command, configurations and Python),
 * checks combinations, and converts other encodings to UTF-8. Options are read when the dataset is
 * created; any thread converts text.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "data/shared.h"
#include "base/text.h"
#include "data/sources/csv.h"

/* ---- words ---- */

struct word {
    const char *text;
    int value;
};

static int find_word(const char *name, const char *value, const struct word *words, int count,
                     int *out, uni_error *err)
{
    char list[80] = "";
    for (int i = 0; i < count; i++) {
        if (strcmp(words[i].text, value) == 0) {
            *out = words[i].value;
            return 0;
        }
        size_t size = strlen(list);
        snprintf(list + size, sizeof list - size, "%s%s", i > 0 ? ", " : "", words[i].text);
    }
    return uni_error_set(err, UNI_EINVAL, "%s \"%s\": must be one of %s", name, value, list);
}

/* A single character, or its name. */
static int character_of(const char *name, const char *value, char *out, uni_error *err)
{
    static const char *const tabs[] = { "\t", "\\t", "tab" };
    for (size_t i = 0; i < sizeof tabs / sizeof tabs[0]; i++) {
        if (strcmp(value, tabs[i]) == 0) {
            *out = '\t';
            return 0;
        }
    }
    if (strlen(value) != 1 || (unsigned char)*value > 127)
        return uni_error_set(err, UNI_EINVAL, "%s \"%s\": must be one ASCII character, or tab",
                             name, value);
    *out = *value;
    return 0;
}

int uni__csv_options_set(uni_csv_options *options, const char *name, const char *value,
                         uni_error *err)
{
    static const struct word rows[] = { { "error", UNI_CSV_ERROR },
                                        { "skip", UNI_CSV_SKIP },
                                        { "fill", UNI_CSV_FIT } };
    static const struct word cuts[] = { { "error", UNI_CSV_ERROR },
                                        { "skip", UNI_CSV_SKIP },
                                        { "cut", UNI_CSV_FIT } };
    static const struct word names[] = { { "error", 0 }, { "rename", 1 } };
    int found = 0;
    if (strcmp(name, "delimiter") == 0)
        return character_of(name, value, &options->delimiter, err);
    if (strcmp(name, "quote") == 0)
        return character_of(name, value, &options->quote, err);
    if (strcmp(name, "encoding") == 0) {
        options->encoding = value;
        return uni__csv_encoding(value, &found) ? 0 : uni__csv_no_encoding(value, err);
    }
    if (strcmp(name, "short_rows") == 0) {
        UNI_TRY(find_word(name, value, rows, 3, &found, err));
        options->short_rows = (uni_csv_rows)found;
    } else if (strcmp(name, "long_rows") == 0) {
        UNI_TRY(find_word(name, value, cuts, 3, &found, err));
        options->long_rows = (uni_csv_rows)found;
    } else if (strcmp(name, "bad_rows") == 0) {
        UNI_TRY(find_word(name, value, rows, 2, &found, err));
        options->bad.skip = found == UNI_CSV_SKIP;
    } else if (strcmp(name, "duplicate_names") == 0) {
        UNI_TRY(find_word(name, value, names, 2, &found, err));
        options->rename_duplicates = found == 1;
    } else {
        return uni_error_set(err, UNI_EINVAL, "CSV files do not have the option \"%s\"", name);
    }
    return 0;
}

/* ---- combinations ---- */

/* Tabs if the first file has such a suffix: it has no other meaning. */
static bool is_tsv(const char *path)
{
    static const char *const suffixes[] = { ".tsv", ".tab", ".tsv.gz", ".tsv.zst" };
    size_t size = strlen(path);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        size_t end = strlen(suffixes[i]);
        if (size >= end && strcasecmp(path + size - end, suffixes[i]) == 0)
            return true;
    }
    return false;
}

int uni__csv_take_options(uni__csv *csv, const uni_csv_options *options, uni_error *err)
{
    int encoding = UNI__CSV_UTF8;
    char quote = options->quote != 0 ? options->quote : '"';
    bool tabs = csv->files->count > 0 && is_tsv(csv->files->items[0].path);
    csv->delimiter = options->delimiter != 0 ? options->delimiter : tabs ? '\t' : ',';
    csv->quote = options->no_quotes ? UNI__CSV_NO_QUOTE : quote;
    csv->header = !options->no_header;
    csv->named = options->column_names != NULL;
    csv->masks = options->masks;
    csv->short_rows = options->short_rows;
    csv->long_rows = options->long_rows;
    if (options->no_quotes && options->quote != 0)
        return uni_error_set(err, UNI_EINVAL, "a quote ('%c') and no quotes at all", quote);
    if (csv->delimiter == csv->quote || csv->delimiter == '\n' || csv->delimiter == '\r' ||
        quote == '\n' || quote == '\r' || csv->delimiter == '.' || csv->delimiter == '-' ||
        (csv->delimiter >= '0' && csv->delimiter <= '9'))
        return uni_error_set(err, UNI_EINVAL, "a CSV delimiter cannot be '%c' with the quote '%c'",
                             csv->delimiter, quote);
    if (options->encoding != NULL && !uni__csv_encoding(options->encoding, &encoding))
        return uni__csv_no_encoding(options->encoding, err);
    csv->encoding = (uni__csv_encodings)encoding;
    return 0;
}

/* ---- encodings ---- */

bool uni__csv_encoding(const char *name, int *out)
{
    static const struct word known[] = {
        { "utf8", UNI__CSV_UTF8 },         { "utf8sig", UNI__CSV_UTF8 },
        { "ascii", UNI__CSV_UTF8 },        { "usascii", UNI__CSV_UTF8 },
        { "latin1", UNI__CSV_LATIN1 },     { "iso88591", UNI__CSV_LATIN1 },
        { "l1", UNI__CSV_LATIN1 },         { "cp1252", UNI__CSV_CP1252 },
        { "windows1252", UNI__CSV_CP1252 }
    };
    char plain[24];
    size_t size = 0;
    for (; *name != 0 && size < sizeof plain - 1; name++) {
        if (*name != '-' && *name != '_' && *name != ' ')
            plain[size++] = (char)tolower((unsigned char)*name);
    }
    plain[size] = 0;
    for (size_t i = 0; *name == 0 && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(plain, known[i].text) == 0) {
            *out = known[i].value;
            return true;
        }
    }
    return false;
}

int uni__csv_no_encoding(const char *name, uni_error *err)
{
    return uni_error_set(err, UNI_EUNSUPPORTED,
                         "the encoding \"%s\" is not supported: it is utf-8, latin-1 or "
                         "windows-1252; iconv -f %s -t UTF-8 converts a file",
                         name, name);
}

bool uni__csv_is_ascii(const char *text, size_t size)
{
    uint64_t all = 0, eight;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        memcpy(&eight, text + i, 8);
        all |= eight;
    }
    for (; i < size; i++)
        all |= (uint64_t)(unsigned char)text[i];
    return (all & 0x8080808080808080u) == 0;
}

/* Bytes 0x80 to 0x9f. The five without a character are control characters, as in browsers. */
static const uint16_t cp1252[32] = {
    0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
    0x2039, 0x152,  0x8d,   0x17d,  0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178
};

size_t uni__csv_utf8_size(const uni__csv *csv, size_t size)
{
    return csv->encoding == UNI__CSV_CP1252 ? 3 * size : 2 * size;
}

size_t uni__csv_to_utf8(const uni__csv *csv, const char *text, size_t size, char *out)
{
    char *to = out;
    for (size_t i = 0; i < size; i++) {
        unsigned c = (unsigned char)text[i];
        if (csv->encoding == UNI__CSV_CP1252 && c >= 0x80 && c < 0xa0)
            c = cp1252[c - 0x80];
        if (c < 0x80) {
            *to++ = (char)c;
        } else if (c < 0x800) {
            *to++ = (char)(0xc0 | c >> 6);
            *to++ = (char)(0x80 | (c & 0x3f));
        } else {
            *to++ = (char)(0xe0 | c >> 12);
            *to++ = (char)(0x80 | (c >> 6 & 0x3f));
            *to++ = (char)(0x80 | (c & 0x3f));
        }
    }
    return (size_t)(to - out);
}

int uni__csv_decode(const uni__csv *csv, uni__reader *reader, const char **text, size_t *size,
                    uni_error *err)
{
    if (csv->encoding == UNI__CSV_UTF8 || uni__csv_is_ascii(*text, *size))
        return 0;
    char *out =
        uni__reader_scratch(reader, UNI__SCRATCH_CSV_DECODED, uni__csv_utf8_size(csv, *size) + 1);
    if (out == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to decode a CSV file");
    *size = uni__csv_to_utf8(csv, *text, *size, out);
    out[*size] = '\n';
    *text = out;
    return 0;
}
