/*
 * regroup.c - other blocks out of those of a split source (repartition): fewer are several one below the other, more are parts of them by rows. Nothing is counted: how many
 * rows a part has is known when its block was read, as with any block. A block that is cut into k parts is read k times in an epoch. Any thread.
 */
#include <stdlib.h>
#include "data/dataset.h"
#include "data/plan.h"
#include "data/table.h"

struct regroup {
    uni__root *below;
    int64_t num_blocks, of; /* so many out of so many */
};

static int read_below(const struct regroup *groups, uni__reader *reader, int64_t block,
                      uni_table **out, uni_error *err)
{
    const uni__source *source = &groups->below->source;
    return source->class_->read_block(source->self, reader, block, out, err);
}

/* Blocks [begin, end) as one. */
static int read_joined(const struct regroup *groups, uni__reader *reader, int64_t begin,
                       int64_t end, uni_table **out, uni_error *err)
{
    int count = 0, status = 0;
    uni_table **tables = calloc((size_t)(end - begin), sizeof(uni_table *));
    if (tables == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld blocks",
                             (long long)(end - begin));
    for (; begin + count < end && status == 0; count += status == 0)
        status = read_below(groups, reader, begin + count, &tables[count], err);
    if (status == 0)
        status = uni__table_concat(out, reader, tables, count, err);
    for (int i = 0; i < count; i++)
        uni_table_unref(tables[i]);
    free(tables);
    return status;
}

/* Which block holds part `index`, and which of how many parts of it that is. */
static int64_t part_of(const struct regroup *groups, int64_t index, int *part, int *parts)
{
    int64_t low = 0, high = groups->of - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (uni__share(groups->num_blocks, (int)middle, (int)groups->of) <= index)
            low = middle;
        else
            high = middle - 1;
    }
    int64_t first = uni__share(groups->num_blocks, (int)low, (int)groups->of);
    *part = (int)(index - first);
    *parts = (int)(uni__share(groups->num_blocks, (int)low + 1, (int)groups->of) - first);
    return low;
}

static int regroup_block(void *self, uni__reader *reader, int64_t index, uni_table **out,
                         uni_error *err)
{
    const struct regroup *groups = self;
    uni_table *whole = NULL;
    int part, parts;
    *out = NULL;
    if (groups->num_blocks <= groups->of)
        return read_joined(
            groups, reader, uni__share(groups->of, (int)index, (int)groups->num_blocks),
            uni__share(groups->of, (int)index + 1, (int)groups->num_blocks), out, err);
    UNI_TRY(read_below(groups, reader, part_of(groups, index, &part, &parts), &whole, err));
    int64_t rows = uni_table_num_rows(whole);
    int status = uni_table_slice(out, whole, uni__share(rows, part, parts),
                                 uni__share(rows, part + 1, parts), err);
    uni_table_unref(whole);
    return status;
}

/* From the first to the last of the bytes; blocks of several files are told by their first. */
static void regroup_place(void *self, int64_t index, uni__place *out)
{
    const struct regroup *groups = self;
    const uni__source *source = &groups->below->source;
    int part = 0, parts = 1;
    bool joined = groups->num_blocks <= groups->of;
    int64_t first = joined ? uni__share(groups->of, (int)index, (int)groups->num_blocks)
                           : part_of(groups, index, &part, &parts);
    int64_t last =
        joined ? uni__share(groups->of, (int)index + 1, (int)groups->num_blocks) - 1 : first;
    uni__place end = { .rows = -1 };
    *out = end;
    if (source->class_->place == NULL)
        return;
    source->class_->place(source->self, first, out);
    source->class_->place(source->self, last, &end);
    if (end.file == out->file)
        out->end = end.end;
    int64_t begin = out->begin, size = out->end - out->begin;
    out->begin = begin + uni__share(size, part, parts); /* about: the cut is at a row */
    out->end = begin + uni__share(size, part + 1, parts);
    out->rows = -1;
}

static int64_t regroup_num_places(void *self)
{
    return ((const struct regroup *)self)->num_blocks;
}

static void regroup_free(void *self)
{
    struct regroup *groups = self;
    uni__root_unref(groups->below);
    free(groups);
}

static const uni__source_class regroup_class = { .name = "repartition",
                                                 .read_block = regroup_block,
                                                 .num_places = regroup_num_places,
                                                 .place = regroup_place,
                                                 .free = regroup_free };

int uni__dataset_regroup(uni_dataset **out, uni_dataset *from, int64_t num_blocks, uni_error *err)
{
    uni__source source = from->root->source;
    *out = NULL;
    if (num_blocks > INT32_MAX || source.num_blocks > INT32_MAX)
        return uni_error_set(err, UNI_ELIMIT, "repartition: %lld blocks", (long long)num_blocks);
    struct regroup *groups = malloc(sizeof *groups);
    if (groups == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    *groups = (struct regroup){ .below = from->root,
                                .num_blocks = source.num_blocks > 0 ? num_blocks : 0,
                                .of = source.num_blocks };
    atomic_fetch_add(&from->root->references, 1);
    source.class_ = &regroup_class;
    source.self = groups;
    source.schema = uni_table_ref(source.schema);
    source.block_rows =
        (int64_t)((double)source.block_rows * (double)source.num_blocks / (double)num_blocks);
    source.num_blocks = groups->num_blocks;
    return uni__dataset_over(out, from, &source, err);
}
