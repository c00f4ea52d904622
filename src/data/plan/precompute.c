/*
 * precompute.c - precomputes small datasets that are read many times. The results of column
 * transforms (select, cast, concat_columns) on data in memory are computed once and kept, so an
 * epoch is a gather of rows or only views. Iterators never do this on their own, because kept data
 * comes out as read-only views, which matters to callers that modify batches in place. Any thread.
 */
#include "data/shared.h"
#include "data/plan/dataset.h"
#include "data/run/pool.h"
#include "data/table/table.h"

#define PRECOMPUTED_BYTES ((int64_t)8 << 20)

static bool is_small(const uni_dataset *dataset)
{
    const uni__source *source = &dataset->root->source;
    return uni__dataset_is_quick(dataset) && source->kind == UNI__SOURCE_INDEXED &&
           source->num_rows <= PRECOMPUTED_BYTES / (source->row_bytes > 0 ? source->row_bytes : 1);
}

/* Computes all rows after all stages, as a dataset in the same order. */
static int keep_rows(uni_dataset **out, uni_dataset *from, uni_error *err)
{
    const uni__source *source = &from->root->source;
    uni__reader *reader = NULL;
    uni_table *rows = NULL;
    int status = 0;
    UNI_TRY(uni__reader_new(&reader, false, err));
    UNI_TRY_GOTO(uni__dataset_read_range(from, reader, 0, source->num_rows, &rows, err), done);
    UNI_TRY_GOTO(uni_dataset_from_table(out, rows, err), done);
    (*out)->order = from->order;
    if (from->order.window_blocks > 0) { /* window sizes depend on the bytes of a row */
        (*out)->root->source.bytes = source->bytes;
        (*out)->root->source.row_bytes = source->row_bytes;
    }
    (*out)->root->skipped = from->root->skipped;
    uni__dataset_inherit_shard(*out, from);
done:
    uni_table_unref(rows);
    uni__reader_free(reader);
    return status;
}

int uni__dataset_precompute(uni_dataset **out, uni_dataset *from, bool *repeats, uni_error *err)
{
    bool small = is_small(from);
    *repeats = small && (!from->order.shuffle || from->order.same_each_epoch);
    if (small)
        return keep_rows(out, from, err);
    *out = uni_dataset_ref(from);
    return 0;
}
