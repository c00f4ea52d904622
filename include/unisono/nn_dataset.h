/*
 * nn_dataset.h - datasets (data.h) as the batches that fit takes (nn.h).
 *
 * Every name of x is an input of the model, every one of y a target; put columns side by side
 * before (uni_dataset_concat_columns) when an input has several. float64 becomes float32. Each
 * epoch is the dataset's own order of that epoch. Under a strategy all ranks are given the same
 * dataset; batch_size is that of all of them together, and each reads its own rows only where the
 * dataset allows it.
 *
 * Thread rule: as uni_batches.
 *
 * @example
 * uni_dataset *rows = NULL, *wide = NULL;
 * uni_batches *batches = NULL;
 * UNI_TRY(uni_dataset_read_csv(&rows, 1, (const char *const[]){ "train.csv" }, NULL, err));
 * UNI_TRY(uni_dataset_concat_columns(&wide, rows, (const char *const[]){ "a", "b", NULL },
 *                                    "features", UNI_F32, err));
 * UNI_TRY(
 *     uni_batches_dataset(&batches, wide,
 *                         &(uni_dataset_columns){ .x = (const char *const[]){ "features", NULL },
 *                                                 .y = (const char *const[]){ "label", NULL } },
 *                         err));
 * uni_batches_free(batches);
 * uni_dataset_unref(wide);
 * uni_dataset_unref(rows);
 * @end
 */
#ifndef UNISONO_NN_DATASET_H
#define UNISONO_NN_DATASET_H

#include <unisono/data.h>
#include <unisono/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uni_dataset_columns {
    const char *const *x; /* required; NULL-terminated */
    const char *const *y; /* NULL-terminated; NULL: none (predict) */
    const char *weights; /* NULL: none */
    uni_data_options data; /* batch_size, budget, shards ...; epochs and state are not looked at */
} uni_dataset_columns;

/* Takes a reference of its own. */
UNI_API UNI_MUST_USE int uni_batches_dataset(uni_batches **out, uni_dataset *dataset,
                                             const uni_dataset_columns *columns, uni_error *err);

/* Seconds that fit spent with these batches and all their parts so far: in next (also without
 * waiting), at the beginning of epochs, and in opening parts. What training waited for data. 0 for
 * batches that do not come from a dataset. */
UNI_API double uni_batches_dataset_wait(const uni_batches *batches);

#ifdef __cplusplus
}
#endif
#endif
