/* layout.c - see layout.h. */
#include "data/plan/layout.h"

#include <stdlib.h>
#include "data/run/execute.h"

int uni__layout_open(uni__layout *layout, const uni_dataset *dataset, const int64_t *block_rows,
                     uni_error *err)
{
    int64_t blocks = dataset->root->source.num_blocks;
    *layout = (uni__layout){
        .dataset = dataset, .block_rows = block_rows, .blocks = blocks, .epoch = -1
    };
    layout->starts = calloc((size_t)blocks + 1, sizeof *layout->starts);
    return layout->starts != NULL
               ? 0
               : uni_error_set(err, UNI_ENOMEM, "no memory for the rows of %lld blocks",
                               (long long)blocks);
}

void uni__layout_close(uni__layout *layout)
{
    free(layout->starts);
    layout->starts = NULL;
}

void uni__layout_epoch(uni__layout *layout, int64_t epoch)
{
    if (layout->epoch == epoch)
        return;
    layout->epoch = epoch;
    for (int64_t i = 0; i < layout->blocks; i++)
        layout->starts[i + 1] =
            layout->starts[i] + layout->block_rows[uni__order_element(layout->dataset, epoch, i)];
}

int64_t uni__layout_place(const uni__layout *layout, int64_t row)
{
    int64_t low = 0, high = layout->blocks - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (layout->starts[middle] <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

int64_t uni__layout_first_window(const uni__layout *layout, const uni__piece *piece)
{
    int64_t rows = uni__layout_between(layout, piece->begin, piece->begin + piece->window);
    rows = piece->stop > 0 && piece->stop < rows ? piece->stop : rows;
    return rows > piece->skip ? rows - piece->skip : 0;
}

int64_t uni__layout_rows(const uni__layout *layout, const uni__piece *piece)
{
    return uni__layout_first_window(layout, piece) +
           uni__layout_between(layout, piece->begin + piece->window, piece->end);
}

/* Cuts rows [from, to) of positions [begin, end) in which no window has begun. */
static int cut_free(const uni__layout *layout, const uni__piece *whole, int64_t from, int64_t to,
                    uni__piece *out)
{
    int64_t begin = whole->begin, rows = uni__layout_between(layout, begin, whole->end);
    int count = 0;
    from = from < 0 ? 0 : from;
    to = to > rows ? rows : to;
    if (from >= to)
        return 0;
    int64_t base = layout->starts[begin];
    int64_t first = uni__layout_place(layout, base + from);
    int64_t last = uni__layout_place(layout, base + to - 1);
    int64_t skip = base + from - layout->starts[first], stop = base + to - layout->starts[last];
    if (stop == uni__layout_between(layout, last, last + 1))
        stop = 0;
    const uni__piece border = { .epoch = whole->epoch, .window = 1, .stop = stop };
    if (skip > 0 || (first == last && stop > 0)) {
        out[count] = border;
        out[count].begin = first;
        out[count].end = first + 1;
        out[count].skip = skip;
        out[count++].stop = first == last ? stop : 0;
        if (first++ == last)
            return count;
    }
    int64_t end = stop > 0 ? last : last + 1;
    if (first < end)
        out[count++] = (uni__piece){ .epoch = whole->epoch, .begin = first, .end = end };
    if (stop > 0) {
        out[count] = border;
        out[count].begin = last;
        out[count++].end = last + 1;
    }
    return count;
}

static int cut_piece(const uni__layout *layout, const uni__piece *piece, int64_t from, int64_t to,
                     uni__piece *out)
{
    int64_t fixed = uni__layout_first_window(layout, piece);
    uni__piece rest = { .epoch = piece->epoch, .begin = piece->begin + piece->window };
    int count = 0;
    rest.end = piece->end;
    if (from < fixed && to > 0) {
        out[count] = *piece;
        out[count].end = piece->begin + piece->window;
        out[count].skip += from > 0 ? from : 0;
        if (to < fixed)
            out[count].stop = piece->skip + to;
        count++;
    }
    return count + cut_free(layout, &rest, from - fixed, to - fixed, out + count);
}

int uni__layout_cut(const uni__layout *layout, const uni__piece *pieces, int count, int64_t from,
                    int64_t to, uni__piece *out)
{
    int made = 0;
    for (int i = 0; i < count && to > 0; i++) {
        made += cut_piece(layout, &pieces[i], from, to, out + made);
        int64_t rows = uni__layout_rows(layout, &pieces[i]);
        from -= rows;
        to -= rows;
    }
    return made;
}
