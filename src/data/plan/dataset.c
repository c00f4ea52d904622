/*
 * dataset.c - creates, shares and queries datasets: the copy behind every transform, the schema,
 * sizes, and the text description. See dataset.h.
 */
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/plan/dataset.h"

#include "data/shared.h"
#include "data/run/pool.h"
#include "data/table/table.h"

/* Splittable files up to this size are read when the dataset is created, which takes a few ms.
 * From then on they are indexed: shards are exact and the shuffle is global, however small the
 * file is. */
#define SMALL_SOURCE ((int64_t)4 << 20)
/* A small file can become a large table: short lines that each have a few of many keys. */
#define SMALL_TABLE ((int64_t)64 << 20)

/* ---- references ---- */

void uni__source_free(const uni__source *source)
{
    if (source->class_ != NULL && source->class_->free != NULL)
        source->class_->free(source->self);
    uni_table_unref(source->schema);
}

void uni__root_unref(uni__root *root)
{
    if (root == NULL || atomic_fetch_sub(&root->references, 1) > 1)
        return;
    uni__source_free(&root->source);
    uni_dataset_unref(root->sample);
    free(root);
}

static void stage_unref(uni__stage *stage)
{
    if (stage == NULL || atomic_fetch_sub(&stage->references, 1) > 1)
        return;
    if (stage->free != NULL)
        stage->free(stage->self);
    free(stage->name);
    free(stage);
}

uni_dataset *uni_dataset_ref(uni_dataset *dataset)
{
    if (dataset != NULL)
        atomic_fetch_add(&dataset->references, 1);
    return dataset;
}

void uni_dataset_unref(uni_dataset *dataset)
{
    if (dataset == NULL || atomic_fetch_sub(&dataset->references, 1) > 1)
        return;
    for (int i = 0; i < dataset->num_stages; i++)
        stage_unref(dataset->stages[i]);
    free(dataset->stages);
    free(dataset->block_rows);
    uni_table_unref(dataset->schema);
    uni__root_unref(dataset->root);
    pthread_mutex_destroy(&dataset->lock);
    free(dataset);
}

/* ---- constructors ---- */

/* Takes ownership of `root`. */
static int new_dataset(uni_dataset **out, uni__root *root, uni_error *err)
{
    uni_dataset *dataset = calloc(1, sizeof *dataset);
    if (dataset == NULL) {
        uni__root_unref(root);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    }
    atomic_init(&dataset->references, 1);
    pthread_mutex_init(&dataset->lock, NULL);
    dataset->root = root;
    *out = dataset;
    return 0;
}

/* Tables that are concatenated as they arrive. Many small tables take far more memory than their
 * rows, because a buffer has at least 4 KiB. */
struct pile {
    uni_table **tables;
    int count, room;
};

static void free_pile(struct pile *pile)
{
    for (int i = 0; i < pile->count; i++)
        uni_table_unref(pile->tables[i]);
    free(pile->tables);
    *pile = (struct pile){ 0 };
}

/* Concatenates all tables into one with memory of its own. */
static int press(struct pile *pile, uni_error *err)
{
    uni_table *whole = NULL;
    UNI_TRY(uni__table_append(&whole, pile->tables, pile->count, err));
    for (int i = 0; i < pile->count; i++)
        uni_table_unref(pile->tables[i]);
    pile->tables[0] = whole;
    pile->count = 1;
    return 0;
}

/* Takes ownership of `table`. */
static int lay_on(struct pile *pile, uni_table *table, uni_error *err)
{
    pile->tables[pile->count++] = table;
    return pile->count == pile->room ? press(pile, err) : 0;
}

/* Returns UNI_ELIMIT if the tables are too large to keep. */
static int read_pile(const uni__source *source, uni__reader *reader, struct pile *pile,
                     int64_t *ends, uni_error *err)
{
    int64_t bytes = 0;
    struct pile few = { .room = 256 };
    few.tables = calloc((size_t)few.room, sizeof(uni_table *));
    int status = few.tables != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    for (int64_t i = 0; i < source->num_blocks && status == 0; i++) {
        uni_table *table = NULL;
        status = source->class_->read_block(source->self, reader, i, &table, err);
        if (status < 0)
            break;
        ends[i] = (i > 0 ? ends[i - 1] : 0) + uni_table_num_rows(table);
        few.tables[few.count++] = table;
        bytes += (int64_t)uni__table_bytes(table);
        if (bytes > SMALL_TABLE) {
            status = UNI_ELIMIT;
            break;
        }
        if (few.count < few.room && i + 1 < source->num_blocks)
            continue;
        /* Concatenated here and once more in `pile`: each row is copied three times at most. */
        status = press(&few, err);
        if (status == 0)
            status = lay_on(pile, few.tables[--few.count], err);
    }
    free_pile(&few);
    return status;
}

/* Loads all blocks of a split source into one table, which replaces the source. */
static int load_small(uni__root *root, uni_error *err)
{
    uni__source *source = &root->source, loaded = { 0 };
    uni__reader *reader = NULL;
    int64_t count = source->num_blocks;
    int status = 0;
    uni_error own = { 0 };
    struct pile pile = { .room = 4096 };
    int64_t *ends = calloc((size_t)count + 1, sizeof *ends);
    pile.tables = calloc((size_t)pile.room, sizeof(uni_table *));
    if (pile.tables == NULL || ends == NULL) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
        goto done;
    }
    UNI_TRY_GOTO(uni__reader_new(&reader, root->bad.skip, err), done);
    /* A source without blocks is an empty table. */
    pile.tables[pile.count++] = uni_table_ref(source->schema);
    status = read_pile(source, reader, &pile, ends, &own);
    if (status == UNI_ELIMIT && own.code == 0) {
        status = 0; /* read it in blocks, like a large file */
        goto done;
    }
    if (status < 0 && err != NULL)
        *err = own;
    UNI_TRY_GOTO(status, done);
    UNI_TRY_GOTO(press(&pile, err), done);
    UNI_TRY_GOTO(uni__loaded_source(&loaded, pile.tables[0], source, ends, err), done);
    ends = NULL;
    root->skipped = uni__reader_skipped(reader);
    if (root->bad.max_skipped > 0 && root->skipped > root->bad.max_skipped)
        status = uni_error_set(err, UNI_EFORMAT,
                               "%lld bad rows were skipped, and no more than %lld are allowed",
                               (long long)root->skipped, (long long)root->bad.max_skipped);
    root->loaded = true;
    *source = loaded;
done:
    free_pile(&pile);
    free(ends);
    uni__reader_free(reader);
    return status;
}

int uni__dataset_from_source(uni_dataset **out, const uni__source *source, const uni_bad_data *bad,
                             uni_error *err)
{
    *out = NULL;
    uni__root *root = calloc(1, sizeof *root);
    if (root == NULL) {
        uni__source_free(source);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    }
    atomic_init(&root->references, 1);
    root->source = *source;
    root->bad = bad != NULL ? *bad : (uni_bad_data){ 0 };
    if (source->kind == UNI__SOURCE_SPLIT && source->bytes >= 0 && source->bytes <= SMALL_SOURCE) {
        int status = load_small(root, err);
        if (status < 0) {
            uni__root_unref(root);
            return status;
        }
    }
    UNI_TRY(new_dataset(out, root, err));
    (*out)->schema = uni_table_ref(root->source.schema);
    return 0;
}

int uni__dataset_derive(uni_dataset **out, uni_dataset *from, bool keep_schema, uni_error *err)
{
    *out = NULL;
    if (from == NULL)
        return uni_error_set(err, UNI_EINVAL, "a transform needs a dataset");
    uni__stage **stages = calloc((size_t)from->num_stages + 1, sizeof(uni__stage *));
    if (stages == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    atomic_fetch_add(&from->root->references, 1);
    int status = new_dataset(out, from->root, err);
    if (status < 0) {
        free(stages);
        return status;
    }
    uni_dataset *made = *out;
    made->order = from->order;
    uni__dataset_inherit_shard(made, from);
    made->stages = stages;
    made->num_stages = from->num_stages;
    for (int i = 0; i < from->num_stages; i++) {
        stages[i] = from->stages[i];
        atomic_fetch_add(&stages[i]->references, 1);
    }
    if (keep_schema) {
        pthread_mutex_lock(&from->lock);
        made->schema = uni_table_ref(from->schema);
        pthread_mutex_unlock(&from->lock);
    }
    return 0;
}

int uni__dataset_over(uni_dataset **out, uni_dataset *from, const uni__source *source,
                      uni_error *err)
{
    uni__root *root = calloc(1, sizeof *root);
    *out = NULL;
    int status = root != NULL ? uni__dataset_derive(out, from, true, err)
                              : uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    if (status < 0) {
        free(root);
        uni__source_free(source);
        return status;
    }
    atomic_init(&root->references, 1);
    root->source = *source;
    root->bad = from->root->bad;
    uni__root_unref((*out)->root);
    (*out)->root = root;
    return 0;
}

int uni__dataset_add_stage(uni_dataset **out, uni_dataset *from, const uni__stage *stage,
                           const uni_table *schema, uni_error *err)
{
    int status = 0;
    uni__stage *copy = malloc(sizeof *copy);
    *out = NULL;
    if (copy == NULL ||
        (copy->name = NULL, *copy = *stage, copy->name = strdup(stage->name)) == NULL) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
        goto fail;
    }
    atomic_init(&copy->references, 1);
    UNI_TRY_GOTO(uni__dataset_derive(out, from, false, err), fail);
    (*out)->stages[(*out)->num_stages++] = copy;
    (*out)->schema = uni_table_ref((uni_table *)schema);
    return 0;
fail:
    if (stage->free != NULL)
        stage->free(stage->self);
    if (copy != NULL)
        free(copy->name);
    free(copy);
    return status;
}

void uni__dataset_set_interrupt(uni_dataset *dataset, int (*check)(void))
{
    atomic_store(&dataset->root->interrupted, check);
}

bool uni__dataset_one_to_one(const uni_dataset *dataset)
{
    for (int i = 0; i < dataset->num_stages; i++) {
        if (dataset->stages[i]->changes_rows)
            return false;
    }
    return true;
}

bool uni__dataset_is_stream(const uni_dataset *dataset)
{
    return dataset->root->source.kind == UNI__SOURCE_STREAM;
}

bool uni__dataset_is_quick(const uni_dataset *dataset)
{
    bool quick = dataset->root->source.in_memory;
    for (int i = 0; i < dataset->num_stages; i++)
        quick = quick && dataset->stages[i]->quick;
    return quick;
}

bool uni__dataset_is_views(const uni_dataset *dataset)
{
    return dataset->root->source.views && dataset->num_stages == 0 && !dataset->order.shuffle;
}

bool uni__dataset_in_order(const uni_dataset *dataset)
{
    for (int i = 0; i < dataset->num_stages; i++) {
        if (dataset->stages[i]->in_order)
            return true;
    }
    return false;
}

/* ---- reading elements ---- */

static int apply_in_parts(const uni__stage *stage, uni__reader *reader, uni_table *in,
                          uni_table **out, uni_error *err)
{
    int64_t rows = uni_table_num_rows(in), size = stage->batch_size;
    if (size <= 0 || rows <= size)
        return stage->apply(stage->self, reader, in, out, err);
    int64_t count = (rows + size - 1) / size, done = 0;
    int status = 0;
    uni_table *part = NULL, **parts = calloc((size_t)count, sizeof(uni_table *));
    if (parts == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld batches", (long long)count);
    for (; done < count && status == 0; done++) {
        int64_t end = (done + 1) * size < rows ? (done + 1) * size : rows;
        status = uni__reader_is_wanted(reader, err);
        if (status == 0)
            status = uni_table_slice(&part, in, done * size, end, err);
        if (status == 0)
            status = stage->apply(stage->self, reader, part, &parts[done], err);
        uni_table_unref(part);
        part = NULL;
    }
    return uni__table_join(out, reader, parts, (int)count, status, err);
}

int uni__apply_stages(uni_dataset *dataset, int first, int last, uni__reader *reader, uni_table *in,
                      uni_table **out, uni_error *err)
{
    uni_table *now = uni_table_ref(in);
    *out = NULL;
    /* Stops at an empty table: functions need not handle one, and callers that concatenate tables
     * skip it. */
    for (int i = first; i < last && uni_table_num_rows(now) > 0; i++) {
        const uni__stage *stage = dataset->stages[i];
        uni_table *next = NULL;
        int status = uni__reader_is_wanted(reader, err);
        if (status == 0)
            status = apply_in_parts(stage, reader, now, &next, err);
        if (status == 0 && !stage->changes_rows &&
            uni_table_num_rows(next) != uni_table_num_rows(now)) {
            status = uni_error_set(
                err, UNI_ESHAPE,
                "%s made %lld rows of %lld; a function that changes the number of rows must say so "
                "(changes_rows), or be a filter or flat_map",
                stage->name, (long long)uni_table_num_rows(next),
                (long long)uni_table_num_rows(now));
            uni_table_unref(next);
        } else if (status < 0 && err != NULL &&
                   strncmp(err->message, stage->name, strlen(stage->name)) != 0) {
            /* Messages of preprocessors already begin with the name. */
            uni_error_prefix(err, "%s", stage->name);
        }
        uni_table_unref(now);
        if (status < 0)
            return status;
        now = next;
    }
    *out = now;
    return 0;
}

static int finish_read(uni_dataset *dataset, uni__reader *reader, int status, uni_table *raw,
                       uni_table **out, uni_error *err)
{
    if (status == 0)
        status = uni__apply_stages(dataset, 0, dataset->num_stages, reader, raw, out, err);
    uni_table_unref(raw);
    return status;
}

/* Reads rows [begin, end) of a source that can only read individual rows. */
static int read_range(const uni__source *source, uni__reader *reader, int64_t begin, int64_t end,
                      uni_table **out, uni_error *err)
{
    if (source->class_->read_range != NULL)
        return source->class_->read_range(source->self, reader, begin, end, out, err);
    int64_t *rows = malloc((size_t)(end - begin) * sizeof *rows + 1);
    if (rows == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld rows", (long long)(end - begin));
    for (int64_t i = begin; i < end; i++)
        rows[i - begin] = i;
    int status = source->class_->read_rows(source->self, reader, rows, end - begin, out, err);
    free(rows);
    return status;
}

int uni__dataset_read_range(uni_dataset *dataset, uni__reader *reader, int64_t begin, int64_t end,
                            uni_table **out, uni_error *err)
{
    const uni__source *source = &dataset->root->source;
    uni_table *raw = NULL;
    int status = read_range(source, reader, begin, end, &raw, err);
    return finish_read(dataset, reader, status, raw, out, err);
}

int uni__dataset_read_rows(uni_dataset *dataset, uni__reader *reader, const int64_t *rows,
                           int64_t count, uni_table **out, uni_error *err)
{
    uni_table *raw = NULL;
    int status = uni__source_read_rows(&dataset->root->source, reader, rows, count, &raw, err);
    return finish_read(dataset, reader, status, raw, out, err);
}

int uni__dataset_read_block(uni_dataset *dataset, uni__reader *reader, int64_t block,
                            uni_table **out, uni_error *err)
{
    const uni__source *source = &dataset->root->source;
    uni_table *raw = NULL;
    int status = source->class_->read_block(source->self, reader, block, &raw, err);
    return finish_read(dataset, reader, status, raw, out, err);
}

int uni__dataset_count_block(uni_dataset *dataset, uni__reader *reader, int64_t block, int64_t *out,
                             uni_error *err)
{
    const uni__source *source = &dataset->root->source;
    /* Skipped bad rows are only found by reading. */
    if (uni__dataset_one_to_one(dataset) && source->class_->count_block != NULL &&
        !dataset->root->bad.skip)
        return source->class_->count_block(source->self, reader, block, out, err);
    uni_table *table = NULL;
    UNI_TRY(uni__dataset_read_block(dataset, reader, block, &table, err));
    *out = uni_table_num_rows(table);
    uni_table_unref(table);
    return 0;
}

/* Reads each run of consecutive rows as one range and concatenates the runs at the end. */
int uni__source_read_rows(const uni__source *source, uni__reader *reader, const int64_t *rows,
                          int64_t count, uni_table **out, uni_error *err)
{
    *out = NULL;
    if (count == 0) {
        *out = uni_table_ref(source->schema);
        return 0;
    }
    bool one_run = true;
    for (int64_t i = 1; i < count && one_run; i++)
        one_run = rows[i] == rows[i - 1] + 1;
    if (one_run && source->class_->read_range != NULL)
        return source->class_->read_range(source->self, reader, rows[0], rows[count - 1] + 1, out,
                                          err);
    if (source->class_->read_rows != NULL)
        return source->class_->read_rows(source->self, reader, rows, count, out, err);
    if (source->class_->read_range == NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED, "%s: cannot be read row by row",
                             source->class_->name);
    uni_table **parts = calloc((size_t)count, sizeof(uni_table *));
    if (parts == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to read %lld rows", (long long)count);
    int num_parts = 0, status = 0;
    for (int64_t i = 0; i < count && status == 0;) {
        int64_t run = 1;
        while (i + run < count && rows[i + run] == rows[i] + run)
            run++;
        status = source->class_->read_range(source->self, reader, rows[i], rows[i] + run,
                                            &parts[num_parts], err);
        num_parts += status == 0;
        i += run;
    }
    return uni__table_join(out, reader, parts, num_parts, status, err);
}

/* ---- queries ---- */

bool uni__dataset_keeps_columns(const uni_dataset *dataset)
{
    return dataset->num_stages > 0 && dataset->stages[dataset->num_stages - 1]->keeps_columns;
}

/* Keeps the first `stages` stages; with `without_filters`, only those that are not filters. */
static void keep_stages(uni_dataset *dataset, int stages, bool without_filters)
{
    int kept = 0;
    for (int i = 0; i < dataset->num_stages; i++) {
        uni__stage *stage = dataset->stages[i];
        if (i < stages && !(without_filters && stage->keeps_columns))
            dataset->stages[kept++] = stage;
        else /* the dataset it was derived from holds its own reference */
            atomic_fetch_sub(&stage->references, 1);
    }
    dataset->num_stages = kept;
}

/* Appends the stages of `from` to those of `have`. */
static int add_stages(uni_dataset *have, const uni_dataset *from, uni_error *err)
{
    uni__stage **grown = reallocarray(
        have->stages, (size_t)(have->num_stages + from->num_stages) + 1, sizeof *grown);
    if (grown == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    have->stages = grown;
    for (int i = 0; i < from->num_stages; i++) {
        atomic_fetch_add(&from->stages[i]->references, 1);
        grown[have->num_stages++] = from->stages[i];
    }
    return 0;
}

/* Passes one row through the first stages: what a function returns defines its columns. A part
 * without rows, such as limit(0), uses a row of the dataset it is a part of. */
static int schema_by_a_row(uni_dataset *dataset, int stages, bool without_filters, uni_table **out,
                           uni_error *err)
{
    uni_dataset *before = NULL, *sampled = NULL;
    uni_table *first = NULL;
    *out = NULL;
    UNI_TRY(uni__dataset_derive(&before, dataset, false, err));
    keep_stages(before, stages, without_filters);
    int status = 0;
    while (before->root->sample != NULL) {
        UNI_TRY_GOTO(uni__dataset_derive(&sampled, before->root->sample, false, err), done);
        UNI_TRY_GOTO(add_stages(sampled, before, err), done);
        uni_dataset_unref(before);
        before = sampled;
        sampled = NULL;
    }
    UNI_TRY_GOTO(uni_dataset_take(&first, before, 1, err), done);
    status = uni__table_empty(out, first, err);
done:
    uni_table_unref(first);
    uni_dataset_unref(sampled);
    uni_dataset_unref(before);
    return status;
}

/* As above. A filter may reject every row; then a row from before the filter is used, if the
 * functions accept it. */
static int schema_by_functions(uni_dataset *dataset, int stages, uni_table **out, uni_error *err)
{
    bool filtered = false;
    uni_table *other = NULL;
    for (int i = 0; i < stages; i++)
        filtered = filtered || dataset->stages[i]->keeps_columns;
    UNI_TRY(schema_by_a_row(dataset, stages, false, out, err));
    if (!filtered || uni_table_num_columns(*out) > 0 ||
        schema_by_a_row(dataset, stages, true, &other, NULL) < 0)
        return 0;
    uni_table_unref(*out);
    *out = other;
    return 0;
}

/* The columns after the first stages. Reads a row only if it has to, because a filter may reject
 * every row. */
static int find_schema(uni_dataset *dataset, int stages, uni_table **out, uni_error *err)
{
    *out = NULL;
    if (stages == 0)
        return uni__table_empty(out, dataset->root->source.schema, err);
    const uni__stage *last = dataset->stages[stages - 1];
    if (last->keeps_columns)
        return find_schema(dataset, stages - 1, out, err);
    if (!last->quick)
        return schema_by_functions(dataset, stages, out, err);
    uni_table *before = NULL;
    uni__reader *reader = NULL;
    int status = find_schema(dataset, stages - 1, &before, err);
    if (status == 0)
        status = uni__reader_new(&reader, false, err);
    if (status == 0)
        status = last->apply(last->self, reader, before, out, err);
    uni_table_unref(before);
    uni__reader_free(reader);
    return status;
}

int uni_dataset_schema(const uni_table **out, uni_dataset *dataset, uni_error *err)
{
    *out = NULL;
    if (dataset == NULL)
        return uni_error_set(err, UNI_EINVAL, "there is no dataset to ask for its columns");
    pthread_mutex_lock(&dataset->lock);
    uni_table *known = dataset->schema;
    pthread_mutex_unlock(&dataset->lock);
    if (known == NULL) {
        uni_table *found = NULL;
        UNI_TRY(find_schema(dataset, dataset->num_stages, &found, err));
        pthread_mutex_lock(&dataset->lock);
        if (dataset->schema == NULL)
            dataset->schema = found;
        else
            uni_table_unref(found);
        known = dataset->schema;
        pthread_mutex_unlock(&dataset->lock);
    }
    *out = known;
    return 0;
}

int64_t uni__dataset_known_rows(const uni_dataset *dataset)
{
    return uni__dataset_one_to_one(dataset) ? dataset->root->source.num_rows : -1;
}

int64_t uni__dataset_num_blocks(const uni_dataset *dataset)
{
    const uni__source *source = &dataset->root->source;
    if (source->kind == UNI__SOURCE_SPLIT)
        return source->num_blocks;
    if (source->kind == UNI__SOURCE_STREAM)
        return 1;
    if (dataset->order.num_blocks > 0)
        return dataset->order.num_blocks;
    int64_t rows = uni__block_rows(dataset);
    return (source->num_rows + rows - 1) / rows;
}

int64_t uni__block_rows(const uni_dataset *dataset)
{
    const uni__source *source = &dataset->root->source;
    int64_t blocks = dataset->order.num_blocks;
    if (blocks > 0)
        return source->num_rows > blocks ? (source->num_rows + blocks - 1) / blocks : 1;
    int64_t row_bytes = source->row_bytes > 0 ? source->row_bytes : 64;
    return row_bytes < SMALL_SOURCE ? SMALL_SOURCE / row_bytes : 1;
}

int64_t uni__dataset_bytes(const uni_dataset *dataset)
{
    return dataset->root->source.bytes;
}

int uni__dataset_text(const uni_dataset *dataset, char **out, uni_error *err)
{
    uni__text text = { 0 };
    const uni__order *order = &dataset->order;
    uni__text_add_string(&text, dataset->root->source.class_->name);
    for (int i = 0; i < dataset->num_stages; i++)
        uni__text_add_format(&text, " -> %s", dataset->stages[i]->name);
    if (order->window_blocks > 0)
        uni__text_add_format(&text, " -> window(%lld)", (long long)order->window_blocks);
    if (order->shuffle && order->buffer > 0)
        uni__text_add_format(&text, " -> shuffle(%lld)", (long long)order->buffer);
    else if (order->shuffle)
        uni__text_add_string(&text, " -> random_shuffle");
    if (order->repeats != 0)
        uni__text_add_format(&text, " -> repeat(%lld)", (long long)order->repeats);
    if (order->batch_size > 0)
        uni__text_add_format(&text, " -> batch(%lld)", (long long)order->batch_size);
    if (text.failed) {
        uni__text_free(&text);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset's text");
    }
    *out = text.data;
    return 0;
}
