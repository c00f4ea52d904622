/*
 * file_shards.c - sharding by files: a source with every n-th file of another source. Its blocks
 * and rows are those of the files, in the order of the underlying source; streams open only their
 * own files. The dataset's transforms are unchanged, and iterators use such a dataset as it is. Any
 * thread once created.
 *
 * The state of such a dataset also has "file_shard" and "file_shards". The merged state of all
 * shards is {"version", "end", "file_shards", "parts": [one per shard]}.
 */
#include <stdlib.h>
#include "data/shared.h"
#include "data/plan/dataset.h"

/* A run of consecutive elements: [begin, begin + count) of the underlying source are [first, first
 * + count) here. */
struct run {
    int64_t begin, first, count;
};

struct files_part {
    uni__root *below;
    int shard, num_shards;
    int64_t num_runs, elements;
    struct run *runs;
};

static const uni__source *below(const struct files_part *part)
{
    return &part->below->source;
}

/* Maps an index to the element of the underlying source. */
static int64_t element(const struct files_part *part, int64_t index)
{
    int64_t low = 0, high = part->num_runs - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (part->runs[middle].first <= index)
            low = middle;
        else
            high = middle - 1;
    }
    return part->runs[low].begin + index - part->runs[low].first;
}

/* ---- reading ---- */

static int part_rows(void *self, uni__reader *reader, const int64_t *rows, int64_t count,
                     uni_table **out, uni_error *err)
{
    const struct files_part *part = self;
    int64_t *list = malloc((size_t)count * sizeof *list + 1);
    if (list == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld rows", (long long)count);
    for (int64_t i = 0; i < count; i++)
        list[i] = element(part, rows[i]);
    int status = uni__source_read_rows(below(part), reader, list, count, out, err);
    free(list);
    return status;
}

static int part_block(void *self, uni__reader *reader, int64_t block, uni_table **out,
                      uni_error *err)
{
    const struct files_part *part = self;
    return below(part)->class_->read_block(below(part)->self, reader, element(part, block), out,
                                           err);
}

static int part_count(void *self, uni__reader *reader, int64_t block, int64_t *out, uni_error *err)
{
    const struct files_part *part = self;
    const uni__source *source = below(part);
    uni_table *table = NULL;
    if (source->class_->count_block != NULL)
        return source->class_->count_block(source->self, reader, element(part, block), out, err);
    UNI_TRY(part_block(self, reader, block, &table, err));
    *out = uni_table_num_rows(table);
    uni_table_unref(table);
    return 0;
}

static int part_open(void *self, void **cursor, uni_error *err)
{
    const struct files_part *part = self;
    const uni__source *source = below(part);
    UNI_TRY(source->class_->stream_open(source->self, cursor, err));
    source->class_->stream_files(source->self, *cursor, part->shard, part->num_shards);
    return 0;
}

static int part_next(void *self, void *cursor, uni__reader *reader, uni_table **out, uni_error *err)
{
    const uni__source *source = below(self);
    return source->class_->stream_next(source->self, cursor, reader, out, err);
}

static void part_close(void *self, void *cursor)
{
    const uni__source *source = below(self);
    if (source->class_->stream_close != NULL)
        source->class_->stream_close(source->self, cursor);
}

static int64_t part_num_places(void *self)
{
    return ((const struct files_part *)self)->elements;
}

static void part_place(void *self, int64_t index, uni__place *out)
{
    const struct files_part *part = self;
    below(part)->class_->place(below(part)->self, element(part, index), out);
}

static void part_free(void *self)
{
    struct files_part *part = self;
    uni__root_unref(part->below);
    free(part->runs);
    free(part);
}

static const uni__source_class part_class = { .name = "files",
                                              .read_rows = part_rows,
                                              .read_block = part_block,
                                              .count_block = part_count,
                                              .stream_open = part_open,
                                              .stream_next = part_next,
                                              .stream_close = part_close,
                                              .num_places = part_num_places,
                                              .place = part_place,
                                              .free = part_free };

/* ---- constructors ---- */

static const char *file_of(const uni__source *source, int64_t index)
{
    uni__place place = { .rows = -1 };
    source->class_->place(source->self, index, &place);
    return place.file;
}

/* Returns where the file of element `begin` ends. The elements of a file are contiguous. */
static int64_t end_of_file(const uni__source *source, int64_t begin, int64_t total)
{
    const char *file = file_of(source, begin);
    int64_t low = begin, high = total, step = 1; /* low is in the file, high is not */
    while (low + step < high && file_of(source, low + step) == file) {
        low += step;
        step *= 2;
    }
    high = low + step < high ? low + step : high;
    while (low + 1 < high) {
        int64_t middle = low + (high - low) / 2;
        if (file_of(source, middle) == file)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* Finds the runs of this shard's files; *files is the number of all files. */
static int find_runs(struct files_part *part, int64_t total, int64_t *files, uni_error *err)
{
    const uni__source *source = below(part);
    *files = 0;
    for (int64_t begin = 0, end; begin < total; begin = end, (*files)++) {
        end = end_of_file(source, begin, total);
        if (file_of(source, begin) == NULL) {
            *files = 0;
            return 0;
        }
        if (*files % part->num_shards != part->shard)
            continue;
        struct run *runs = reallocarray(part->runs, (size_t)part->num_runs + 1, sizeof *part->runs);
        if (runs == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a shard");
        part->runs = runs;
        runs[part->num_runs++] =
            (struct run){ .begin = begin, .first = part->elements, .count = end - begin };
        part->elements += end - begin;
    }
    return 0;
}

static int64_t elements_below(const uni__source *source)
{
    if (source->class_->place == NULL)
        return 0;
    if (source->kind == UNI__SOURCE_INDEXED)
        return source->num_rows;
    if (source->kind == UNI__SOURCE_SPLIT)
        return source->num_blocks;
    return source->class_->stream_files != NULL ? source->class_->num_places(source->self) : 0;
}

/* Creates the source of a shard's files. The caller owns *out. */
static int make_source(uni__root *root, int shard, int num_shards, uni__source *out, uni_error *err)
{
    const uni__source *source = &root->source;
    int64_t files = 0, total = elements_below(source);
    struct files_part *part = calloc(1, sizeof *part);
    if (part == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a shard");
    *part = (struct files_part){ .below = root, .shard = shard, .num_shards = num_shards };
    atomic_fetch_add(&root->references, 1);
    int status = find_runs(part, total, &files, err);
    if (status == 0 && files == 0)
        status = uni_error_set(err, UNI_EUNSUPPORTED,
                               "this source has no files to share out; shard it by ranges (shard "
                               "and num_shards of its iterators)");
    else if (status == 0 && files < num_shards)
        status = uni_error_set(err, UNI_EINVAL,
                               "%lld files cannot be shared out to %d workers; shard by ranges "
                               "(shard and num_shards of its iterators), or write more files",
                               (long long)files, num_shards);
    if (status < 0) {
        part_free(part);
        return status;
    }
    *out = *source;
    out->class_ = &part_class;
    out->self = part;
    out->schema = uni_table_ref(source->schema);
    out->num_rows = source->kind == UNI__SOURCE_INDEXED ? part->elements : -1;
    if (source->kind == UNI__SOURCE_SPLIT)
        out->num_blocks = part->elements;
    out->bytes = source->bytes >= 0 && total > 0
                     ? (int64_t)((double)source->bytes * (double)part->elements / (double)total)
                     : -1;
    return 0;
}

int uni_dataset_shard_files(uni_dataset **out, uni_dataset *from, int shard, int num_shards,
                            uni_error *err)
{
    uni__source source;
    *out = NULL;
    if (from == NULL || num_shards < 1 || shard < 0 || shard >= num_shards)
        return uni_error_set(err, UNI_EINVAL, "there is no shard %d of %d; they count from 0",
                             shard, num_shards);
    if (from->num_shards > 0)
        return uni_error_set(err, UNI_EINVAL,
                             "the dataset is shard %d of %d already, and is not cut again",
                             from->shard, from->num_shards);
    UNI_TRY(make_source(from->root, shard, num_shards, &source, err));
    UNI_TRY(uni__dataset_over(out, from, &source, err));
    (*out)->shard = shard;
    (*out)->num_shards = num_shards;
    return 0;
}

int uni__count_shard_of_files(uni_dataset *dataset, int index, int64_t *out, uni_error *err)
{
    uni__source source;
    uni_dataset *sibling = NULL;
    if (dataset->root->source.class_ != &part_class)
        return uni_error_set(
            err, UNI_EUNSUPPORTED,
            "what the other shards of these files have after limit, cache, union or "
            "zip is not known here; shard by files last");
    const struct files_part *part = dataset->root->source.self;
    UNI_TRY(make_source(part->below, index, part->num_shards, &source, err));
    UNI_TRY(uni__dataset_over(&sibling, dataset, &source, err));
    int status = uni_dataset_count(out, sibling, err);
    uni_dataset_unref(sibling);
    return status;
}

bool uni__dataset_is_sharded(const uni_dataset *dataset)
{
    return dataset->num_shards > 0;
}

/* ---- states ---- */

int uni__state_of_files(const uni_dataset *dataset, uni_value **state, uni_error *err)
{
    if (dataset->num_shards == 0 ||
        (uni_dict_take(*state, "file_shard", uni_value_int(dataset->shard)) == 0 &&
         uni_dict_take(*state, "file_shards", uni_value_int(dataset->num_shards)) == 0))
        return 0;
    uni_value_free(*state);
    *state = NULL;
    return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a dataset");
}

int uni__part_of_state(const uni_dataset *dataset, const uni_value *state, const uni_value **out,
                       uni_error *err)
{
    *out = NULL;
    if (state == NULL)
        return 0;
    const uni_value *parts = uni_dict_get(state, "parts");
    int64_t shards = uni_dict_get_int(state, "file_shards", 0);
    *out = parts != NULL ? uni_list_get(parts, (size_t)dataset->shard) : state;
    if (shards == dataset->num_shards && *out != NULL)
        return 0;
    return uni_error_set(err, UNI_EMISMATCH,
                         "the state was saved with files shared out to %lld workers, now they are "
                         "%d (0: not by files): what each worker has read of its files fits no "
                         "others",
                         (long long)shards, dataset->num_shards);
}

int uni__merge_file_states(uni_value **out, const uni_value *states, uni_error *err)
{
    const uni_value *first = uni_list_get(states, 0);
    int64_t count = (int64_t)uni_list_size(states);
    *out = NULL;
    if (uni_dict_get_int(first, "file_shards", 0) == 0)
        return 0;
    uni_value *all = uni_value_dict(), *parts = uni_value_list();
    int status = 0;
    for (int64_t i = 0; i < count && status == 0; i++) {
        const uni_value *state = uni_list_get(states, (size_t)i);
        if (uni_dict_get_int(state, "file_shards", 0) != count ||
            uni_dict_get_int(state, "file_shard", -1) != i)
            status = uni_error_set(err, UNI_EMISMATCH,
                                   "the states are not those of %lld shards of files, by rank",
                                   (long long)count);
        else
            status = uni_list_take(parts, uni_value_copy(state));
    }
    if (status < 0 || uni_dict_take(all, "version", uni_value_int(1)) < 0 ||
        uni_dict_take(all, "end", uni_value_int(uni_dict_get_int(first, "end", -1))) < 0 ||
        uni_dict_take(all, "file_shards", uni_value_int(count)) < 0 ||
        uni_dict_take(all, "parts", uni_value_copy(parts)) < 0) {
        uni_value_free(parts);
        uni_value_free(all);
        return status == UNI_EMISMATCH ? status
                                       : uni_error_set(err, UNI_ENOMEM, "no memory for a state");
    }
    uni_value_free(parts);
    *out = all;
    return 0;
}
