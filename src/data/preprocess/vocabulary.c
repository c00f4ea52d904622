/*
 * vocabulary.c - words and their numbers: a list, and a hash table of positions in it (open
 * addressing, at most half full). Built by one thread, then read by any.
 */
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "data/preprocess/tokenize.h"

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for the vocabulary");
}

int64_t uni__vocabulary_find(const uni__vocabulary *vocabulary, const uni__tokenizer *tokenizer,
                             const char *token, size_t size)
{
    if (vocabulary->num_slots == 0)
        return -1;
    uint64_t hash = uni__token_hash(tokenizer, token, size);
    for (size_t i = hash;; i++) {
        uint32_t number = vocabulary->slots[i & (vocabulary->num_slots - 1)];
        if (number == 0)
            return -1;
        const uni__word *word = &vocabulary->words[number - 1];
        if (word->hash == hash && uni__token_equal(tokenizer, token, size, word->text, word->size))
            return (int64_t)number - 1;
    }
}

static void put_slot(uni__vocabulary *vocabulary, size_t number)
{
    size_t i = vocabulary->words[number].hash;
    while (vocabulary->slots[i & (vocabulary->num_slots - 1)] != 0)
        i++;
    vocabulary->slots[i & (vocabulary->num_slots - 1)] = (uint32_t)number + 1;
}

static int rehash(uni__vocabulary *vocabulary, size_t num_slots, uni_error *err)
{
    uint32_t *slots = calloc(num_slots, sizeof *slots);
    if (slots == NULL)
        return no_memory(err);
    free(vocabulary->slots);
    vocabulary->slots = slots;
    vocabulary->num_slots = num_slots;
    for (size_t i = 0; i < vocabulary->count; i++)
        put_slot(vocabulary, i);
    return 0;
}

static int reserve(uni__vocabulary *vocabulary, uni_error *err)
{
    if (vocabulary->count >= UINT32_MAX / 4)
        return uni_error_set(err, UNI_ELIMIT, "a vocabulary has at most %u words", UINT32_MAX / 4);
    uni__word *words =
        uni__grown(vocabulary->words, vocabulary->count, &vocabulary->capacity, sizeof *words);
    if (!words)
        return no_memory(err);
    vocabulary->words = words;
    if (2 * (vocabulary->count + 1) > vocabulary->num_slots)
        return rehash(vocabulary, vocabulary->num_slots > 0 ? 2 * vocabulary->num_slots : 512, err);
    return 0;
}

int uni__vocabulary_add(uni__vocabulary *vocabulary, const uni__tokenizer *tokenizer,
                        const char *token, size_t size, uni_error *err)
{
    UNI_TRY(reserve(vocabulary, err));
    uni__word word = { .size = uni__token_size(tokenizer, token, size),
                       .hash = uni__token_hash(tokenizer, token, size),
                       .last_document = -1 };
    char *text = malloc(word.size + 1);
    if (text == NULL)
        return no_memory(err);
    uni__token_copy(tokenizer, token, size, text);
    text[word.size] = '\0';
    word.text = text;
    vocabulary->words[vocabulary->count] = word;
    put_slot(vocabulary, vocabulary->count++);
    return 0;
}

static const uni__tokenizer as_it_is = { .split = UNI__SPLIT_NONE, .ngrams = 1 };

int uni__vocabulary_add_word(uni__vocabulary *vocabulary, const char *word, size_t size,
                             uni_error *err)
{
    if (uni__vocabulary_find(vocabulary, &as_it_is, word, size) >= 0)
        return uni_error_set(err, UNI_EEXISTS, "the word \"%.*s\" is in the vocabulary twice",
                             (int)(size < 80 ? size : 80), word);
    return uni__vocabulary_add(vocabulary, &as_it_is, word, size, err);
}

static int compare(const void *a, const void *b)
{
    const uni__word *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    size_t least = x->size < y->size ? x->size : y->size;
    int order = memcmp(x->text, y->text, least);
    if (order == 0)
        order = (x->size > y->size) - (x->size < y->size);
    return -order;
}

int uni__vocabulary_sort(uni__vocabulary *vocabulary, size_t limit, uni_error *err)
{
    if (vocabulary->count == 0)
        return 0;
    qsort(vocabulary->words, vocabulary->count, sizeof *vocabulary->words, compare);
    for (size_t i = limit; limit > 0 && i < vocabulary->count; i++)
        free((char *)vocabulary->words[i].text);
    if (limit > 0 && vocabulary->count > limit)
        vocabulary->count = limit;
    return rehash(vocabulary, vocabulary->num_slots, err);
}

void uni__vocabulary_clear(uni__vocabulary *vocabulary)
{
    for (size_t i = 0; i < vocabulary->count; i++)
        free((char *)vocabulary->words[i].text);
    free(vocabulary->words);
    free(vocabulary->slots);
    *vocabulary = (uni__vocabulary){ 0 };
}
