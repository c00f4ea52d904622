/*
 * tokenize.h - text as tokens, and tokens as numbers, shared by the preprocessors of datasets and the engine's text layers (src/nn/text).
 *
 * A token is a range of the original text, read through a filter (lower case, punctuation left out,
 * white space between the words of an n-gram as one space), so that nothing is copied or allocated
 * to look one up. The rules are those of Keras's TextVectorization on TensorFlow: lower case,
 * punctuation and white space are ASCII's only. Everything here is const once made: any thread.
 */
#ifndef UNISONO_DATA_TOKENIZE_H
#define UNISONO_DATA_TOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>

#include "base/compiler.h"

enum uni__split { UNI__SPLIT_WHITESPACE, UNI__SPLIT_CHARACTER, UNI__SPLIT_NONE };

typedef struct uni__tokenizer {
    bool lower, strip;
    enum uni__split split;
    int ngrams; /* 1: words alone; n: those, then all pairs, ... then all runs of n */
} uni__tokenizer;
#define UNI__MAX_NGRAMS 16

/* Calls visit for every token of the text, in Keras's order; stops at a negative return and hands
 * it on. */
typedef int (*uni__visit_token)(void *context, const char *token, size_t size);
UNI__SHARED int uni__tokenize(const uni__tokenizer *tokenizer, const char *text, size_t text_size,
                              uni__visit_token visit, void *context) UNI_MUST_USE;
/* The token's canonical bytes: hash, comparison, length, and a copy into `out` (of that length). */
UNI__SHARED uint64_t uni__token_hash(const uni__tokenizer *tokenizer, const char *token,
                                     size_t size);
bool uni__token_equal(const uni__tokenizer *tokenizer, const char *token, size_t size,
                      const char *word, size_t word_size);
UNI__SHARED size_t uni__token_size(const uni__tokenizer *tokenizer, const char *token, size_t size);
void uni__token_copy(const uni__tokenizer *tokenizer, const char *token, size_t size, char *out);

/* ---- words with numbers ---- */

typedef struct uni__word {
    const char *text; /* zero-terminated */
    size_t size;
    uint64_t hash;
    int64_t count, documents, last_document; /* while adapting */
} uni__word;

typedef struct uni__vocabulary {
    uni__word *words;
    size_t count, capacity;
    uint32_t *slots; /* number + 1 by hash; a power of two of them, at most half full */
    size_t num_slots;
} uni__vocabulary;

/* The word's number, or -1. */
UNI__SHARED int64_t uni__vocabulary_find(const uni__vocabulary *vocabulary,
                                         const uni__tokenizer *tokenizer, const char *token,
                                         size_t size);
/* Adds a word (its canonical bytes are copied) that is not there yet. */
UNI__SHARED int uni__vocabulary_add(uni__vocabulary *vocabulary, const uni__tokenizer *tokenizer,
                                    const char *token, size_t size, uni_error *err) UNI_MUST_USE;
/* The same for a word that is canonical already. *number gets where it is; a word that is there
 * already is UNI_EEXISTS. */
UNI__SHARED int uni__vocabulary_add_word(uni__vocabulary *vocabulary, const char *word, size_t size,
                                         uni_error *err) UNI_MUST_USE;
/* By falling count, equal ones by falling bytes; keeps the first `limit` (0: all). */
UNI__SHARED int uni__vocabulary_sort(uni__vocabulary *vocabulary, size_t limit,
                                     uni_error *err) UNI_MUST_USE;
UNI__SHARED void uni__vocabulary_clear(uni__vocabulary *vocabulary);

#endif
