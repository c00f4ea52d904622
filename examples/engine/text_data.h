/*
 * text_data.h - the texts of the two text examples: a CSV file with the columns question_text and
 * target (0 or 1), as the Quora file of the original has them, and the model that both train.
 */
#ifndef EXAMPLES_ENGINE_TEXT_DATA_H
#define EXAMPLES_ENGINE_TEXT_DATA_H

#include "common.h"

typedef struct text_set {
    int64_t count;
    uni_string *texts;
    float *targets;
} text_set;

typedef struct text_data {
    text_set train, valid; /* every fifth text is held out in valid */
    char *memory; /* the file; the texts point into it */
} text_data;

UNI_MUST_USE int text_load(text_data *data, const char *path, uni_error *err);
void text_free(text_data *data);
/* (count) columns, or (count, 1) with the dummy axis that a custom loop needs. */
uni_column text_x(const text_set *set, bool dummy_axis);
uni_column text_y(const text_set *set, bool dummy_axis);

/* The sentence embedding (128, trained, with the words of `texts`) in the role of the hub layer,
 * Dense 256 and 64 with relu, Dense 1 with sigmoid. */
UNI_MUST_USE int text_model(uni_model **out, const char *name, const text_set *texts, uint64_t seed,
                            uni_error *err);

#endif
