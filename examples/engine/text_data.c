/* text_data.c - reads CSV as RFC 4180 has it (quotes, doubled quotes and line ends inside them), in
 * place. See text_data.h. */
#include "text_data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- CSV ---- */

/* The next field, unquoted in place; *at moves behind it. *last: it ended its line. false at the
 * end of the file. */
static bool next_field(char **at, char *end, uni_string *field, bool *last)
{
    char *p = *at, *to = p;
    if (p >= end)
        return false;
    char *begin = p;
    bool quoted = *p == '"';
    p += quoted;
    for (; p < end; p++) {
        if (quoted && *p == '"' && p + 1 < end && p[1] == '"')
            p++;
        else if (quoted && *p == '"') {
            quoted = false;
            continue;
        } else if (!quoted && (*p == ',' || *p == '\n'))
            break;
        *to++ = *p;
    }
    *last = p >= end || *p == '\n';
    if (*last && to > begin && to[-1] == '\r')
        to--;
    *field = (uni_string){ begin, (size_t)(to - begin) };
    *at = p + 1;
    return true;
}

static bool is(uni_string field, const char *name)
{
    return field.size == strlen(name) && memcmp(field.data, name, field.size) == 0;
}

static int find_columns(char **at, char *end, int *text, int *target)
{
    uni_string field;
    bool last = false;
    *text = *target = -1;
    for (int i = 0; !last && next_field(at, end, &field, &last); i++) {
        *text = is(field, "question_text") ? i : *text;
        *target = is(field, "target") ? i : *target;
    }
    return *text >= 0 && *target >= 0 ? 0 : UNI_EFORMAT;
}

static int add_text(text_set *set, uni_string text, float target)
{
    if ((set->count & (set->count - 1)) == 0) { /* room for the next power of two */
        size_t room = set->count > 0 ? 2 * (size_t)set->count : 1;
        uni_string *texts = realloc(set->texts, room * sizeof *texts);
        set->texts = texts != NULL ? texts : set->texts;
        float *targets = realloc(set->targets, room * sizeof *targets);
        set->targets = targets != NULL ? targets : set->targets;
        if (texts == NULL || targets == NULL)
            return UNI_ENOMEM;
    }
    set->texts[set->count] = text;
    set->targets[set->count++] = target;
    return 0;
}

static int read_rows(text_data *data, char *at, char *end, int *row)
{
    int text_column, target_column;
    *row = 0;
    UNI_TRY(find_columns(&at, end, &text_column, &target_column));
    while (at < end) {
        uni_string field, text = { NULL, 0 }, target = { NULL, 0 };
        bool last = false;
        for (int i = 0; !last && next_field(&at, end, &field, &last); i++) {
            text = i == text_column ? field : text;
            target = i == target_column ? field : target;
        }
        if (text.data == NULL || (!is(target, "0") && !is(target, "1")))
            return UNI_EFORMAT;
        text_set *set = *row % 5 == 4 ? &data->valid : &data->train;
        UNI_TRY(add_text(set, text, target.data[0] == '1' ? 1 : 0));
        ++*row;
    }
    return data->valid.count > 0 ? 0 : UNI_EFORMAT;
}

/* ---- the whole file ---- */

static char *read_whole(const char *path, size_t *size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return NULL;
    char *memory = NULL;
    size_t room = 0;
    *size = 0;
    do {
        char *grown = realloc(memory, room = room > 0 ? 2 * room : 1 << 16);
        if (grown == NULL)
            break;
        memory = grown;
        *size += fread(memory + *size, 1, room - *size, file);
    } while (*size == room);
    fclose(file);
    return memory;
}

int text_load(text_data *data, const char *path, uni_error *err)
{
    size_t size = 0;
    int row = 0;
    memset(data, 0, sizeof *data);
    data->memory = read_whole(path, &size);
    if (data->memory == NULL)
        return uni_error_set_errno(err, errno,
                                   "cannot open the texts in %s (examples/engine/get-data fortunes "
                                   "fetches them; --data FILE.csv is another place)",
                                   path);
    int status = read_rows(data, data->memory, data->memory + size, &row);
    if (status == 0)
        return 0;
    text_free(data);
    return uni_error_set(err, status,
                         "%s: row %d is not right: a CSV file with the columns question_text and "
                         "target (0 or 1) and at least five rows was expected",
                         path, row + 1);
}

void text_free(text_data *data)
{
    for (int i = 0; i < 2; i++) {
        text_set *set = i == 0 ? &data->train : &data->valid;
        free(set->texts);
        free(set->targets);
    }
    free(data->memory);
    memset(data, 0, sizeof *data);
}

uni_column text_x(const text_set *set, bool dummy_axis)
{
    return uni_column_view(UNI_STRING, dummy_axis ? 2 : 1, (const int64_t[]){ set->count, 1 },
                           set->texts);
}

uni_column text_y(const text_set *set, bool dummy_axis)
{
    return uni_column_view(UNI_F32, dummy_axis ? 2 : 1, (const int64_t[]){ set->count, 1 },
                           set->targets);
}

/* The words of the texts, the frequent ones first, are what TextVectorization learns; the sentence
 * layer takes them over. */
static uni_layer *sentence_layer(const text_set *texts, uni_error *err)
{
    uni_layer *words = uni_layer_text_vectorization(NULL), *sentence = NULL;
    uni_column column = text_x(texts, false);
    if (words != NULL && uni_layer_adapt(words, &column, err) == 0) {
        size_t count = 0;
        const char *const *vocabulary = uni_layer_vocabulary(words, &count);
        sentence = uni_layer_sentence_embedding(
            128,
            UNI_OPTIONS(uni_sentence_options, .vocabulary = vocabulary + 2, /* after "" and [UNK] */
                        .num_vocabulary = count - 2));
    }
    uni_layer_free(words);
    return sentence;
}

int text_model(uni_model **out, const char *name, const text_set *texts, uint64_t seed,
               uni_error *err)
{
    uni_layer *sentence = sentence_layer(texts, err);
    if (sentence == NULL)
        return err != NULL && err->code < 0 ? err->code : UNI_ENOMEM;
    UNI_TRY(uni_sequential_new(
        out, name,
        UNI_LAYERS(uni_layer_input(UNI_STRING, 0, NULL), sentence,
                   uni_layer_dense(256, UNI_OPTIONS(uni_dense_options, .activation = "relu")),
                   uni_layer_dense(64, UNI_OPTIONS(uni_dense_options, .activation = "relu")),
                   uni_layer_dense(1, UNI_OPTIONS(uni_dense_options, .activation = "sigmoid"))),
        err));
    uni_model_set_seed(*out, seed);
    return 0;
}
