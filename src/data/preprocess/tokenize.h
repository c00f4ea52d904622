/*
 * tokenize.h - splits text into tokens and numbers them. Shared by the dataset preprocessors and
 * the engine's text layers (src/nn/text).
 *
 * A token is a range of the original text, read through a filter: lower case, without punctuation,
 * and with a single space between the words of an n-gram. Looking up a token copies and allocates
 * nothing. The rules are those of Keras's TextVectorization on TensorFlow: lower case, punctuation
 * and white space are ASCII only. Everything here is const once created: any thread.
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
    int ngrams; /* 1: single words; n: those, then all pairs, ... then all runs of n */
} uni__tokenizer;
#define UNI__MAX_NGRAMS 16

/* Calls visit for every token of the text, in Keras's order. Stops at a negative result and returns
 * it. */
typedef int (*uni__visit_token)(void *context, const char *token, size_t size);
UNI__SHARED int uni__tokenize(const uni__tokenizer *tokenizer, const char *text, size_t text_size,
                              uni__visit_token visit, void *context) UNI_MUST_USE;
/* The token's canonical bytes: hash, comparison, length, and a copy into `out`, which has that
 * length. */
UNI__SHARED uint64_t uni__token_hash(const uni__tokenizer *tokenizer, const char *token,
                                     size_t size);
bool uni__token_equal(const uni__tokenizer *tokenizer, const char *token, size_t size,
                      const char *word, size_t word_size);
UNI__SHARED size_t uni__token_size(const uni__tokenizer *tokenizer, const char *token, size_t size);
void uni__token_copy(const uni__tokenizer *tokenizer, const char *token, size_t size, char *out);

/* ---- vocabulary ---- */

typedef struct uni__word {
    const char *text; /* NUL-terminated */
    size_t size;
    uint64_t hash;
    int64_t count, documents, last_document; /* while adapting */
} uni__word;

typedef struct uni__vocabulary {
    uni__word *words;
    size_t count, capacity;
    uint32_t *slots; /* word number + 1, by hash; a power of two, at most half full */
    size_t num_slots;
} uni__vocabulary;

/* Returns the word's number, or -1. */
UNI__SHARED int64_t uni__vocabulary_find(const uni__vocabulary *vocabulary,
                                         const uni__tokenizer *tokenizer, const char *token,
                                         size_t size);
/* Adds a word that is not yet in the vocabulary; copies its canonical bytes. */
UNI__SHARED int uni__vocabulary_add(uni__vocabulary *vocabulary, const uni__tokenizer *tokenizer,
                                    const char *token, size_t size, uni_error *err) UNI_MUST_USE;
/* The same for a word in canonical form. Returns UNI_EEXISTS if it is already in the vocabulary. */
UNI__SHARED int uni__vocabulary_add_word(uni__vocabulary *vocabulary, const char *word, size_t size,
                                         uni_error *err) UNI_MUST_USE;
/* Sorts by descending count, ties by descending bytes; keeps the first `limit` words (0: all). */
UNI__SHARED int uni__vocabulary_sort(uni__vocabulary *vocabulary, size_t limit,
                                     uni_error *err) UNI_MUST_USE;
UNI__SHARED void uni__vocabulary_clear(uni__vocabulary *vocabulary);

#endif
