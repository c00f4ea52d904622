/*
 * print.c - prints every joined report as JSON: a list with the dictionaries of the ranks, indented
 * by 4, like Ray Train's PrintCallback. Ranks that did not report are left out. Thread: the sink
 * thread.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/safe_text.h"
#include "track/sink.h"

typedef struct print {
    int fd;
    uni__text text;
} print;

/* Indents each dictionary by one level. Line breaks occur only between tokens, because those in
 * strings are escaped. */
static void add_indented(uni__text *out, const uni_value *value)
{
    uni__text one = { 0 };
    uni__emit_json(&one, value, 4);
    uni__text_add(out, "    ", 4);
    for (size_t i = 0; i < one.size; i++)
        uni__text_add(out, one.data[i] == '\n' ? "\n    " : &one.data[i],
                      one.data[i] == '\n' ? 5 : 1);
    out->failed = out->failed || one.failed;
    uni__text_free(&one);
}

static int print_result(void *self, const uni_reports *reports, uni_error *err)
{
    print *p = self;
    bool any = false;
    uni__text_clear(&p->text);
    uni__text_add(&p->text, "[", 1);
    for (int rank = 0; rank < reports->world_size; rank++) {
        if (reports->by_rank[rank] == NULL)
            continue;
        uni__text_add_string(&p->text, any ? ",\n" : "\n");
        add_indented(&p->text, reports->by_rank[rank]);
        any = true;
    }
    uni__text_add_string(&p->text, any ? "\n]\n" : "]\n");
    if (p->text.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory to print a report");
    uni__text safe = { 0 }; /* the same JSON, safe for a terminal */
    uni__text_add_safe(&safe, p->text.data, p->text.size, "\n");
    int status = safe.failed ? uni_error_set(err, UNI_ENOMEM, "no memory to print a report")
                             : uni__write_all(p->fd, safe.data, safe.size, "the output", err);
    uni__text_free(&safe);
    return status;
}

static void print_free(void *self)
{
    print *p = self;
    uni__text_free(&p->text);
    free(p);
}

static const uni_sink_class print_class = { .name = "print",
                                            .result = print_result,
                                            .free = print_free };

int uni_sink_print(uni_sink **out, int fd, uni_error *err)
{
    *out = NULL;
    print *p = calloc(1, sizeof *p);
    if (p == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the print sink");
    p->fd = fd == 0 ? STDOUT_FILENO : fd;
    int status = uni_sink_new(out, &print_class, p, err);
    if (status < 0)
        print_free(p);
    return status;
}
