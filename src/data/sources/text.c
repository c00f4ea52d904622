/*
 * text.c - lines of text as rows of one string column. Any thread.
 */
#include <unisono/data_readers.h>

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/sources/build.h"
#include "data/sources/lines.h"
#include "base/options.h"

typedef struct text_format {
    bool keep_empty;
} text_format;

static int parse(const void *format, uni__reader *reader, const uni_table *schema,
                 const uni__lines_place *place, const char *text, size_t size, uni_table **out,
                 uni_error *err)
{
    bool keep_empty = ((const text_format *)format)->keep_empty;
    const char *at = text, *end = text + size;
    uni__build build;
    int status = 0;
    UNI_TRY(uni__build_begin(&build, reader, schema, uni__lines_count(text, size, keep_empty),
                             (int64_t)size * 2, err));
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *line = at, *stop = newline != NULL ? newline : end;
        at = stop + 1;
        if (stop > line && stop[-1] == '\r')
            stop--;
        size_t length = (size_t)(stop - line);
        if (length == 0 && !keep_empty)
            continue;
        if (!uni__utf8_valid(line, length)) {
            size_t good = 0, step;
            while ((step = uni__utf8_sequence(line + good, length - good)) > 0)
                good += step;
            UNI_TRY_GOTO(
                uni__reader_bad(reader, err, place->path,
                                uni__reader_skips(reader)
                                    ? 0
                                    : uni__lines_number(place, text, (size_t)(line - text)),
                                (int64_t)good + 1, "bytes that are not UTF-8"),
                fail);
            continue;
        }
        UNI_TRY_GOTO(uni__build_put_bytes(&build, 0, line, length, err), fail);
        UNI_TRY_GOTO(uni__build_end_row(&build, err), fail);
    }
    return uni__build_finish(&build, out, err);
fail:
    uni__build_free(&build);
    return status;
}

static int64_t count(const void *format, const char *text, size_t size)
{
    return uni__lines_count(text, size, ((const text_format *)format)->keep_empty);
}

static const uni__lines_format text_lines = {
    .name = "text", .parse = parse, .count = count, .free = free
};

int uni_dataset_read_text(uni_dataset **out, int num_paths, const char *const *paths,
                          const uni_text_lines_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_text_lines_options, options, bad, err);
    static const char *const suffixes[] = { ".txt", ".text",   ".txt.gz",  ".txt.zst",
                                            ".log", ".log.gz", ".log.zst", NULL };
    uni_text_lines_options o = *options;
    uni__files *files = NULL;
    uni_table *schema = NULL;
    UNI_TRY(uni__files_open(&files, num_paths, paths, suffixes, err));
    uni_field field = { .name = o.column != NULL ? o.column : "text",
                        .kind = UNI_FIELD_STRING,
                        .dtype = UNI_U8 };
    text_format *format = malloc(sizeof *format);
    int status = format == NULL ? uni_error_set(err, UNI_ENOMEM, "no memory for a dataset")
                                : uni__build_schema(&schema, &field, 1, err);
    if (status < 0) {
        free(format);
        uni__files_free(files);
        return status;
    }
    format->keep_empty = o.keep_empty;
    return uni__lines_dataset(out, &text_lines, format, files, schema, o.block_bytes, 0, &o.bad,
                              err);
}
