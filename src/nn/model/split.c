/*
 * split.c - validation_split: the last part of the arrays becomes the validation data. fit calls
 * it, and a strategy before it gives each process its part. The caller's thread.
 */
#include <math.h>

#include "nn/step.h"

int uni__fit_split(uni_fit_options *o, uni__fit_halves *made, uni_error *err)
{
    if (o->validation_split == 0)
        return 0;
    int64_t samples =
        !o->batches && o->x && o->num_x > 0 && o->x[0].ndim > 0 ? o->x[0].shape[0] : 0;
    int64_t middle = (int64_t)floor((double)samples * (1 - o->validation_split));
    if (!(o->validation_split > 0 && o->validation_split < 1) || o->batches ||
        o->num_x > UNI_MODEL_MAX_INPUTS || o->num_y > UNI_MODEL_MAX_INPUTS)
        return uni_error_set(
            err, UNI_EINVAL, "validation_split %g: expected a fraction between 0 and 1%s",
            o->validation_split, o->batches ? ", and arrays instead of batches" : "");
    if (middle < 1 || middle >= samples)
        return uni_error_set(err, UNI_EINVAL,
                             "validation_split %g of %lld samples leaves one part empty",
                             o->validation_split, (long long)samples);
    for (int part = 0; part < 2; part++) {
        int64_t begin = part ? middle : 0, end = part ? samples : middle;
        for (int i = 0; i < o->num_x; i++)
            made->x[part][i] = uni_column_rows(&o->x[i], begin, end);
        for (int i = 0; i < o->num_y; i++)
            made->y[part][i] = uni_column_rows(&o->y[i], begin, end);
        if (o->sample_weight)
            made->weights[part] = uni_column_rows(o->sample_weight, begin, end);
    }
    o->x = made->x[0];
    o->y = made->y[0];
    o->validation_x = made->x[1];
    o->validation_y = made->y[1];
    o->validation_weight = o->sample_weight ? &made->weights[1] : NULL;
    o->sample_weight = o->sample_weight ? &made->weights[0] : NULL;
    o->validation_batches = NULL;
    o->validation_split = 0;
    return 0;
}
