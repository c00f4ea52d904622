/*
 * callbacks.c - a source of the user's own (uni_source_callbacks): indexed when it reads ranges, otherwise a stream. Every table is compared with the
 * first one, so that a source that changes its mind about its columns is told so. Threads as the callbacks' own rules say.
 */
#include <unisono/data.h>

#include <stdlib.h>
#include <string.h>

#include "data/source.h"

typedef struct callbacks {
    uni__source_class class_;
    uni_source_callbacks user;
    char *name;
    uni_table *schema;
} callbacks;

/* A failing callback that says nothing is given a sentence. */
static int failed(const callbacks *self, int status, uni_error *err)
{
    if (err != NULL && err->code == 0)
        return uni_error_set(err, UNI_EFUNCTION, "the source %s failed (%d) without a message",
                             self->name, status);
    return status;
}

/* The table belongs to the caller on success; otherwise it is gone. */
static int checked(const callbacks *self, uni_table **table, uni_error *err)
{
    int count = uni_table_num_columns(self->schema), found = uni_table_num_columns(*table);
    for (int i = 0; i < count && count == found; i++) {
        const uni_field *expected = &uni_table_column_at(self->schema, i)->field,
                        *field = &uni_table_column_at(*table, i)->field;
        char a[100], b[100];
        if (uni_field_equal(expected, field))
            continue;
        int status = uni_error_set(
            err, UNI_EFORMAT, "the source %s first gave column %d as %s %s and now as %s %s",
            self->name, i, expected->name, uni_field_text(a, sizeof a, expected), field->name,
            uni_field_text(b, sizeof b, field));
        uni_table_unref(*table);
        *table = NULL;
        return status;
    }
    if (count == found)
        return 0;
    uni_table_unref(*table);
    *table = NULL;
    return uni_error_set(err, UNI_EFORMAT, "the source %s first gave %d columns and now %d",
                         self->name, count, found);
}

static int read_range(void *self_, uni__reader *reader, int64_t begin, int64_t end, uni_table **out,
                      uni_error *err)
{
    callbacks *self = self_;
    *out = NULL;
    int status = self->user.read_range(self->user.context, begin, end, out, err);
    if (status < 0 || *out == NULL)
        return failed(self, status < 0 ? status : UNI_EFUNCTION, err);
    if (uni_table_num_rows(*out) != end - begin) {
        status = uni_error_set(
            err, UNI_EFORMAT, "the source %s gave %lld rows when it was asked for [%lld, %lld)",
            self->name, (long long)uni_table_num_rows(*out), (long long)begin, (long long)end);
        uni_table_unref(*out);
        *out = NULL;
        return status;
    }
    return checked(self, out, err);
}

static int stream_open(void *self_, void **cursor, uni_error *err)
{
    callbacks *self = self_;
    int status = self->user.open(self->user.context, cursor, err);
    return status < 0 ? failed(self, status, err) : 0;
}

static int stream_next(void *self_, void *cursor, uni__reader *reader, uni_table **out,
                       uni_error *err)
{
    callbacks *self = self_;
    *out = NULL;
    int more = self->user.next(self->user.context, cursor, out, err);
    if (more < 0)
        return failed(self, more, err);
    if (more == 0 || *out == NULL)
        return 0;
    UNI_TRY(checked(self, out, err));
    return 1;
}

static void stream_close(void *self_, void *cursor)
{
    callbacks *self = self_;
    if (self->user.close != NULL)
        self->user.close(self->user.context, cursor);
}

static void callbacks_free(void *self_)
{
    callbacks *self = self_;
    if (self->user.free != NULL)
        self->user.free(self->user.context);
    uni_table_unref(self->schema);
    free(self->name);
    free(self);
}

/* The columns, from an empty range or the first table. */
static int find_schema(callbacks *self, uni_error *err)
{
    uni_table *first = NULL;
    void *cursor = NULL;
    int status;
    if (self->user.read_range != NULL) {
        status = self->user.read_range(self->user.context, 0, 0, &first, err);
    } else {
        UNI_TRY(stream_open(self, &cursor, err));
        status = self->user.next(self->user.context, cursor, &first, err);
        stream_close(self, cursor);
    }
    if (status < 0)
        return failed(self, status, err);
    if (first == NULL)
        return uni_error_set(err, UNI_EINVAL,
                             "the source %s gave no table, so that its columns are not known",
                             self->name);
    status = uni_table_slice(&self->schema, first, 0, 0, err);
    uni_table_unref(first);
    return status;
}

int uni_dataset_from_callbacks(uni_dataset **out, const uni_source_callbacks *user, uni_error *err)
{
    bool indexed = user->read_range != NULL;
    *out = NULL;
    if (indexed ? user->num_rows < 0 : user->open == NULL || user->next == NULL)
        return uni_error_set(
            err, UNI_EINVAL,
            "a source needs num_rows (not negative) and read_range, or open and next");
    callbacks *self = calloc(1, sizeof *self);
    if (self == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    self->user = *user;
    self->name = strdup(user->name != NULL ? user->name : "callbacks");
    self->user.free = NULL; /* the caller's until it went well */
    int status = self->name == NULL ? uni_error_set(err, UNI_ENOMEM, "no memory for a dataset")
                                    : find_schema(self, err);
    if (status < 0) {
        callbacks_free(self);
        return status;
    }
    self->user.free = user->free;
    self->class_ = (uni__source_class){ .name = self->name, .free = callbacks_free };
    if (indexed) {
        self->class_.read_range = read_range;
    } else {
        self->class_.stream_open = stream_open;
        self->class_.stream_next = stream_next;
        self->class_.stream_close = stream_close;
    }
    uni__source source = { .class_ = &self->class_,
                           .self = self,
                           .kind = indexed ? UNI__SOURCE_INDEXED : UNI__SOURCE_STREAM,
                           .schema = uni_table_ref(self->schema),
                           .num_rows = indexed ? user->num_rows : -1,
                           .bytes = -1 };
    return uni__dataset_from_source(out, &source, NULL, err);
}
