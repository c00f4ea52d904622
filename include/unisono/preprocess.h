/*
 * preprocess.h - preprocessors for datasets: fitted once, applied as a transform, saved as a small
 * dictionary with the checkpoint.
 *
 * A preprocessor is created from the name of its kind and a dictionary of options; `columns` is a
 * list of names and required unless stated otherwise. Columns are replaced in place. Missing values
 * stay missing and are ignored by fit.
 *
 *   StandardScaler  columns                 (x - mean) / deviation, as float32; a column that never
 *                   changes gives 0
 *   MinMaxScaler    columns                 (x - min) / (max - min)
 *   MaxAbsScaler    columns                 x / max |x|
 *   Normalizer      columns, norm           each row over the columns: "l2" (default), "l1", "max";
 *                   needs no fit
 *   SimpleImputer   columns, strategy       "mean" (default), "most_frequent", "constant"
 *                   (fill_value). Columns keep their type, but for a mean (or a fraction) among
 *                   whole numbers, which makes them float64
 *   OrdinalEncoder  columns                 values (text or numbers) in sorted order to int64 0
 *                   ...; unknown ones become missing
 *   LabelEncoder    label_column            the same for one column; an unknown value is an error
 *   OneHotEncoder   columns, max_categories values to a vector of float32 with one 1; unknown ones
 *                   are all 0. max_categories (a number, or a dictionary with one for some
 *                   columns): keeps the most frequent
 *   Concatenator    columns, output_column_name ("concat_out"), dtype ("float32")   side by side
 *                   into one; needs no fit
 *   Tokenizer       columns, max_tokens, output_sequence_length, standardize
 *                   ("lower_and_strip_punctuation", "lower", "strip_punctuation", "none"), split
 *                   ("whitespace", "character"), ngrams   text to numbers of words, as
 *                   TextVectorization: 0 padding, 1 unknown, then by falling frequency; without
 *                   output_sequence_length the longest text of the fit
 *
 * All but the Concatenator accept output_columns, as many names as columns: the results go there,
 * after all columns, and the original columns stay. An unknown option is UNI_EINVAL, and so is a
 * fit to no rows or to a column of only missing values.
 *
 * Thread rule: fit on one thread; any number of threads may apply a fitted one.
 *
 * @example
 * uni_preprocessor *scaler = NULL;
 * uni_dataset *rows = NULL, *scaled = NULL;
 * uni_value *options = NULL;
 * const char *text = "{\"columns\": [\"id\"]}";
 * UNI_TRY(uni_json_read(&options, text, strlen(text), err));
 * UNI_TRY(uni_dataset_range(&rows, 1000, err));
 * UNI_TRY(uni_preprocessor_new(&scaler, "StandardScaler", options, err));
 * UNI_TRY(uni_preprocessor_fit(scaler, rows, err));
 * UNI_TRY(uni_preprocessor_transform(&scaled, scaler, rows, err));
 * uni_dataset_unref(scaled);
 * uni_dataset_unref(rows);
 * uni_preprocessor_unref(scaler);
 * uni_value_free(options);
 * @end
 */
#ifndef UNISONO_PREPROCESS_H
#define UNISONO_PREPROCESS_H

#include <unisono/data.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uni_preprocessor uni_preprocessor;

UNI_API UNI_MUST_USE int uni_preprocessor_new(uni_preprocessor **out, const char *kind,
                                              const uni_value *options, uni_error *err);
UNI_API void uni_preprocessor_unref(uni_preprocessor *preprocessor);

/* Reads the dataset once. A second fit is UNI_ESTATE if a transform uses the preprocessor. */
UNI_API UNI_MUST_USE int uni_preprocessor_fit(uni_preprocessor *preprocessor, uni_dataset *dataset,
                                              uni_error *err);
/* Lazy; not fitted is UNI_ESTATE. */
UNI_API UNI_MUST_USE int uni_preprocessor_transform(uni_dataset **out,
                                                    uni_preprocessor *preprocessor,
                                                    uni_dataset *from, uni_error *err);
/* {"kind", "version", "options", "state"}: plain data (JSON, a checkpoint), and back. */
UNI_API UNI_MUST_USE int
uni_preprocessor_save(uni_value **out, const uni_preprocessor *preprocessor, uni_error *err);
UNI_API UNI_MUST_USE int uni_preprocessor_load(uni_preprocessor **out, const uni_value *saved,
                                               uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
