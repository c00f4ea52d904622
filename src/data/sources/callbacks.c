/* callbacks.c - a source made of user functions: indexed (read_range), split (read_block) or a
 * stream (open, next, close). data.h says which threads call them. */
#include <stdlib.h>
#include <string.h>
#include "data/plan/dataset.h"
#include "data/table/table.h"

/* Copies of ours. The names of blocks of one file are one. */
static void free_copies(uni_source_functions *own)
{
    const char *const *files = own->block_files;
    for (int64_t i = 0; files != NULL && i < own->num_blocks; i++) {
        if (i == 0 || files[i] != files[i - 1])
            free((char *)files[i]);
    }
    free((void *)files);
    free((int64_t *)own->block_rows);
    free((char *)own->name);
}

static void callbacks_free(void *self)
{
    uni_source_functions *own = self;
    if (own->free != NULL)
        own->free(own->context);
    free_copies(own);
    free(own);
}

static const char *name_of(const uni_source_functions *own)
{
    return own->name != NULL ? own->name : "a source of callbacks";
}

/* What a user's function returned. One that fails without saying why would otherwise look like the
 * end of the data. */
static int returned(const uni_source_functions *own, int status, uni_error *err)
{
    if (status < 0 && err != NULL && err->code == 0)
        return uni_error_set(err, UNI_EFUNCTION, "%s: the function failed (%d) without a message",
                             name_of(own), status);
    return status;
}

static int callbacks_range(void *self, uni__reader *reader, int64_t begin, int64_t end,
                           uni_table **out, uni_error *err)
{
    const uni_source_functions *own = self;
    *out = NULL;
    UNI_TRY(returned(own, own->read_range(own->context, begin, end, out, err), err));
    if (*out == NULL || uni_table_num_rows(*out) != end - begin) {
        int64_t got = *out != NULL ? uni_table_num_rows(*out) : 0;
        uni_table_unref(*out);
        *out = NULL;
        return uni_error_set(err, UNI_EFUNCTION, "%s: rows %lld to %lld were asked for, %lld came",
                             name_of(own), (long long)begin, (long long)end, (long long)got);
    }
    return 0;
}

static int callbacks_block(void *self, uni__reader *reader, int64_t block, uni_table **out,
                           uni_error *err)
{
    const uni_source_functions *own = self;
    *out = NULL;
    UNI_TRY(returned(own, own->read_block(own->context, block, out, err), err));
    int64_t got = *out != NULL ? uni_table_num_rows(*out) : -1;
    if (got >= 0 && (own->block_rows == NULL || got == own->block_rows[block]))
        return 0;
    uni_table_unref(*out);
    *out = NULL;
    return uni_error_set(err, UNI_EFUNCTION,
                         "%s: block %lld came with %lld rows, it should have %lld", name_of(own),
                         (long long)block, (long long)got,
                         own->block_rows != NULL ? (long long)own->block_rows[block] : 0LL);
}

static int callbacks_count(void *self, uni__reader *reader, int64_t block, int64_t *out,
                           uni_error *err)
{
    const uni_source_functions *own = self;
    if (own->block_rows != NULL) {
        *out = own->block_rows[block];
        return 0;
    }
    uni_table *table = NULL;
    UNI_TRY(callbacks_block(self, reader, block, &table, err));
    *out = uni_table_num_rows(table);
    uni_table_unref(table);
    return 0;
}

/* The rows of a block within its file; blocks of a file are contiguous. */
static void callbacks_place(void *self, int64_t index, uni__place *out)
{
    const uni_source_functions *own = self;
    *out = (uni__place){ .begin = index, .end = index + 1, .rows = -1, .unit = "blocks" };
    if (own->read_range != NULL) {
        out->unit = "rows";
        out->rows = 1;
        return;
    }
    if (own->block_rows != NULL)
        out->rows = own->block_rows[index];
    if (own->block_files == NULL)
        return;
    int64_t first = index;
    out->file = own->block_files[index];
    while (first > 0 && own->block_files[first - 1] == out->file)
        first--;
    out->begin = own->block_rows != NULL ? 0 : index - first;
    for (int64_t i = first; i < index && own->block_rows != NULL; i++)
        out->begin += own->block_rows[i];
    out->end = out->begin + (own->block_rows != NULL ? out->rows : 1);
    out->unit = own->block_rows != NULL ? "rows" : "blocks";
}

static int callbacks_open(void *self, void **cursor, uni_error *err)
{
    const uni_source_functions *own = self;
    *cursor = NULL;
    return own->open != NULL ? returned(own, own->open(own->context, cursor, err), err) : 0;
}

static int callbacks_next(void *self, void *cursor, uni__reader *reader, uni_table **out,
                          uni_error *err)
{
    const uni_source_functions *own = self;
    *out = NULL;
    int more = returned(own, own->next(own->context, cursor, out, err), err);
    if (more > 0 && *out == NULL)
        return uni_error_set(err, UNI_EFUNCTION,
                             "%s: next returned %d and no table; 0 says that there is none",
                             name_of(own), more);
    return more;
}

static void callbacks_close(void *self, void *cursor)
{
    const uni_source_functions *own = self;
    if (own->close != NULL)
        own->close(own->context, cursor);
}

static const uni__source_class callbacks_class = { .name = "callbacks",
                                                   .read_range = callbacks_range,
                                                   .read_block = callbacks_block,
                                                   .count_block = callbacks_count,
                                                   .stream_open = callbacks_open,
                                                   .stream_next = callbacks_next,
                                                   .stream_close = callbacks_close,
                                                   .place = callbacks_place,
                                                   .free = callbacks_free };

/* The columns: of one row when the source is indexed, of the first table when it is not. */
static int find_schema(uni_source_functions *own, uni_table **out, uni_error *err)
{
    uni_table *first = NULL;
    void *cursor = NULL;
    int status;
    if (own->read_range != NULL) {
        status = returned(
            own, own->read_range(own->context, 0, own->num_rows > 0 ? 1 : 0, &first, err), err);
    } else if (own->read_block != NULL) {
        status = callbacks_block(own, NULL, 0, &first, err);
    } else {
        UNI_TRY(callbacks_open(own, &cursor, err));
        status = callbacks_next(own, cursor, NULL, &first, err);
        callbacks_close(own, cursor);
    }
    if (status >= 0)
        status = first != NULL ? uni__table_empty(out, first, err) : uni_table_new(out, 0, err);
    uni_table_unref(first);
    return status < 0 ? status : 0;
}

/* The names of files; on failure what was copied is there to be freed. */
static int copy_files(uni_source_functions *own, uni_error *err)
{
    const char *const *given = own->block_files;
    if (given == NULL)
        return 0;
    char **copy = calloc((size_t)own->num_blocks, sizeof(char *));
    own->block_files = (const char *const *)copy;
    for (int64_t i = 0; copy != NULL && i < own->num_blocks; i++) {
        bool same = i > 0 && strcmp(given[i], given[i - 1]) == 0;
        copy[i] = same ? copy[i - 1] : strdup(given[i]);
        if (copy[i] == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a source");
    }
    return copy != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a source");
}

/* What is known of blocks: copies the numbers of their rows and their files. */
static int describe_blocks(uni__source *source, uni_source_functions *own, uni_error *err)
{
    size_t size = (size_t)own->num_blocks * sizeof *own->block_rows;
    const int64_t *given = own->block_rows;
    own->block_rows = NULL;
    UNI_TRY(copy_files(own, err));
    source->kind = UNI__SOURCE_SPLIT;
    source->num_blocks = own->num_blocks;
    source->bytes = own->bytes > 0 ? own->bytes : -1;
    if (given == NULL)
        return 0;
    int64_t *copy = malloc(size + 1);
    if (copy == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a source");
    memcpy(copy, given, size);
    own->block_rows = copy;
    source->num_rows = 0;
    for (int64_t i = 0; i < own->num_blocks; i++)
        source->num_rows += given[i];
    source->block_rows = source->num_rows / own->num_blocks + 1;
    source->row_bytes = source->num_rows > 0 && own->bytes > 0 ? own->bytes / source->num_rows : 0;
    return 0;
}

int uni_dataset_from_functions(uni_dataset **out, const uni_source_functions *callbacks,
                               uni_error *err)
{
    *out = NULL;
    if (callbacks == NULL || (callbacks->read_range == NULL && callbacks->next == NULL &&
                              (callbacks->read_block == NULL || callbacks->num_blocks < 1)))
        return uni_error_set(err, UNI_EINVAL,
                             "a source of callbacks needs read_range, blocks and read_block, or "
                             "next");
    if (callbacks->read_range != NULL && callbacks->num_rows < 0)
        return uni_error_set(err, UNI_EINVAL, "%s: a source of %lld rows", name_of(callbacks),
                             (long long)callbacks->num_rows);
    uni_source_functions *own = malloc(sizeof *own);
    if (own == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a source");
    *own = *callbacks;
    /* Needed for later messages. */
    own->name = callbacks->name != NULL ? strdup(callbacks->name) : NULL;
    bool indexed = callbacks->read_range != NULL, split = !indexed && callbacks->read_block != NULL;
    uni__source source = { .class_ = &callbacks_class,
                           .self = own,
                           .kind = indexed ? UNI__SOURCE_INDEXED : UNI__SOURCE_STREAM,
                           .num_rows = indexed ? callbacks->num_rows : -1,
                           .bytes = -1 };
    if (!split) {
        own->block_rows = NULL;
        own->block_files = NULL;
    }
    int status = split ? describe_blocks(&source, own, err) : 0;
    if (status == 0)
        status = find_schema(own, &source.schema, err);
    if (status < 0) {
        free_copies(own);
        free(own); /* on failure the context still belongs to the caller */
        return status;
    }
    return uni__dataset_from_source(out, &source, NULL, err);
}
