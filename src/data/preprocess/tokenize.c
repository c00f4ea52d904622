/*
 * tokenize.c - see tokenize.h. One reader turns a range of text into its canonical bytes, one at a
 * time. Hashing, comparing, measuring and copying all use it, so they cannot disagree.
 */
#include "data/preprocess/tokenize.h"

#include <string.h>

#include "base/text.h"

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_punctuation(char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

/* ---- canonical bytes ---- */

typedef struct reader {
    const uni__tokenizer *tokenizer;
    const char *at, *end, *character_end;
    bool begun, space; /* space: a space is due before the next byte */
} reader;

static size_t character_size(const char *text, size_t size)
{
    size_t length = uni__utf8_sequence(text, size);
    return length > 0 ? length : 1;
}

/* Returns the next byte, or -1 at the end. */
static int next_byte(reader *r)
{
    while (r->at < r->end) {
        char c = *r->at;
        bool words = r->tokenizer->split == UNI__SPLIT_WHITESPACE;
        if (r->tokenizer->strip && is_punctuation(c)) {
            r->at++;
            continue;
        }
        if (words && is_space(c)) {
            r->space = r->begun;
            r->at++;
            continue;
        }
        if (r->tokenizer->split == UNI__SPLIT_CHARACTER && r->at >= r->character_end) {
            r->space = r->begun;
            r->character_end = r->at + character_size(r->at, (size_t)(r->end - r->at));
        }
        if (r->space) {
            r->space = false;
            return ' ';
        }
        r->begun = true;
        r->at++;
        return (unsigned char)(r->tokenizer->lower && c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    }
    return -1;
}

static reader open_reader(const uni__tokenizer *tokenizer, const char *token, size_t size)
{
    return (
        reader){ .tokenizer = tokenizer, .at = token, .end = token + size, .character_end = token };
}

uint64_t uni__token_hash(const uni__tokenizer *tokenizer, const char *token, size_t size)
{
    reader r = open_reader(tokenizer, token, size);
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int c; (c = next_byte(&r)) >= 0;)
        hash = (hash ^ (uint64_t)c) * UINT64_C(1099511628211);
    return hash ^ hash >> 32;
}

bool uni__token_equal(const uni__tokenizer *tokenizer, const char *token, size_t size,
                      const char *word, size_t word_size)
{
    reader r = open_reader(tokenizer, token, size);
    for (size_t i = 0; i < word_size; i++)
        if (next_byte(&r) != (unsigned char)word[i])
            return false;
    return next_byte(&r) < 0;
}

size_t uni__token_size(const uni__tokenizer *tokenizer, const char *token, size_t size)
{
    reader r = open_reader(tokenizer, token, size);
    size_t count = 0;
    while (next_byte(&r) >= 0)
        count++;
    return count;
}

void uni__token_copy(const uni__tokenizer *tokenizer, const char *token, size_t size, char *out)
{
    reader r = open_reader(tokenizer, token, size);
    for (int c; (c = next_byte(&r)) >= 0;)
        *out++ = (char)c;
}

/* ---- tokens of a text ---- */

static bool is_empty(const uni__tokenizer *tokenizer, const char *token, const char *end)
{
    reader r = open_reader(tokenizer, token, (size_t)(end - token));
    return next_byte(&r) < 0;
}

/* Finds the next word or character at or after `at`: [*begin, returned end), or NULL. Skips tokens
 * that are only punctuation. */
static const char *next_token(const uni__tokenizer *tokenizer, const char *at, const char *end,
                              const char **begin)
{
    while (at < end) {
        if (tokenizer->split == UNI__SPLIT_WHITESPACE && is_space(*at)) {
            at++;
            continue;
        }
        const char *stop = at;
        if (tokenizer->split == UNI__SPLIT_CHARACTER)
            stop += character_size(at, (size_t)(end - at));
        else
            while (stop < end && !is_space(*stop))
                stop++;
        if (!is_empty(tokenizer, at, stop)) {
            *begin = at;
            return stop;
        }
        at = stop;
    }
    return NULL;
}

/* Visits all runs of `width` tokens; a ring holds where the last ones begin. */
static int visit_runs(const uni__tokenizer *tokenizer, const char *text, size_t text_size,
                      int width, uni__visit_token visit, void *context)
{
    const char *begins[UNI__MAX_NGRAMS], *at = text, *end = text + text_size, *begin;
    for (int seen = 1; (at = next_token(tokenizer, at, end, &begin)) != NULL; seen++) {
        begins[seen % width] = begin;
        if (seen >= width) {
            const char *first = begins[(seen + 1) % width];
            int status = visit(context, first, (size_t)(at - first));
            if (status < 0)
                return status;
        }
    }
    return 0;
}

int uni__tokenize(const uni__tokenizer *tokenizer, const char *text, size_t text_size,
                  uni__visit_token visit, void *context)
{
    if (text_size == 0)
        text = "";
    if (tokenizer->split == UNI__SPLIT_NONE)
        return visit(context, text, text_size);
    for (int width = 1; width <= tokenizer->ngrams; width++) {
        int status = visit_runs(tokenizer, text, text_size, width, visit, context);
        if (status < 0)
            return status;
    }
    return 0;
}
