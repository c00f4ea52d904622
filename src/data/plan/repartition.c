/*
 * repartition.c - regroups the blocks of a split source (repartition). Fewer blocks are
 * concatenations; more blocks are slices of blocks by rows. Nothing is counted in advance: as with
 * any block, the row count of a slice is known once its block was read. A block that is cut into k
 * slices is read k times per epoch. Any thread.
 */
#include <stdlib.h>
#include "data/plan/dataset.h"
#include "data/plan/plan.h"
#include "data/table/table.h"

struct repartition {
    uni__root *below;
    int64_t num_blocks, of; /* new number of blocks, and that of the source */
};

static int read_below(const struct repartition *groups, uni__reader *reader, int64_t block,
                      uni_table **out, uni_error *err)
{
    const uni__source *source = &groups->below->source;
    return source->class_->read_block(source->self, reader, block, out, err);
}

/* Reads blocks [begin, end) as one. */
static int read_joined(const struct repartition *groups, uni__reader *reader, int64_t begin,
                       int64_t end, uni_table **out, uni_error *err)
{
    int count = 0, status = 0;
    uni_table **tables = calloc((size_t)(end - begin), sizeof(uni_table *));
    if (tables == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld blocks",
                             (long long)(end - begin));
    for (; begin + count < end && status == 0; count += status == 0)
        status = read_below(groups, reader, begin + count, &tables[count], err);
    return uni__table_join(out, reader, tables, count, status, err);
}

/* Finds the block that holds part `index`, and its number among the parts of that block. */
static int64_t part_of(const struct repartition *groups, int64_t index, int *part, int *parts)
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

static int repartition_block(void *self, uni__reader *reader, int64_t index, uni_table **out,
                             uni_error *err)
{
    const struct repartition *groups = self;
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

/* From the first byte to the last; blocks that span files are named after the first file. */
static void repartition_place(void *self, int64_t index, uni__place *out)
{
    const struct repartition *groups = self;
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
    out->begin = begin + uni__share(size, part, parts); /* approximate: the cut is at a row */
    out->end = begin + uni__share(size, part + 1, parts);
    out->rows = -1;
}

static int64_t repartition_num_places(void *self)
{
    return ((const struct repartition *)self)->num_blocks;
}

static void repartition_free(void *self)
{
    struct repartition *groups = self;
    uni__root_unref(groups->below);
    free(groups);
}

static const uni__source_class repartition_class = { .name = "repartition",
                                                     .read_block = repartition_block,
                                                     .num_places = repartition_num_places,
                                                     .place = repartition_place,
                                                     .free = repartition_free };

int uni__dataset_repartition_blocks(uni_dataset **out, uni_dataset *from, int64_t num_blocks,
                                    uni_error *err)
{
    uni__source source = from->root->source;
    *out = NULL;
    if (num_blocks > INT32_MAX || source.num_blocks > INT32_MAX)
        return uni_error_set(err, UNI_ELIMIT, "repartition: %lld blocks", (long long)num_blocks);
    struct repartition *groups = malloc(sizeof *groups);
    if (groups == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    *groups = (struct repartition){ .below = from->root,
                                    .num_blocks = source.num_blocks > 0 ? num_blocks : 0,
                                    .of = source.num_blocks };
    atomic_fetch_add(&from->root->references, 1);
    source.class_ = &repartition_class;
    source.self = groups;
    source.schema = uni_table_ref(source.schema);
    source.block_rows =
        (int64_t)((double)source.block_rows * (double)source.num_blocks / (double)num_blocks);
    source.num_blocks = groups->num_blocks;
    return uni__dataset_over(out, from, &source, err);
}
