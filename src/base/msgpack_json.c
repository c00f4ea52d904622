/*
 * msgpack_json.c - a msgpack message straight to JSON text: how reports get into results.jsonl.
 *
 * It builds no tree and, once the text has grown, does not allocate. The path from the root to the
 * current value is a chain of frames on the stack, used only to write the dotted path of a number
 * that is not finite. Any thread.
 */
#include <math.h>
#include <string.h>
#include "base/shared.h"
#include "base/msgpack.h"

typedef struct frame {
    const struct frame *up; /* NULL for the outermost container */
    const char *key; /* NULL in a list */
    size_t key_size, index;
} frame;

typedef struct conversion {
    uni__cursor *cursor;
    uni__text *out, *nonfinite;
    uni_error *err;
} conversion;

static int convert(conversion *c, const frame *up, int depth);

static void add_path(uni__text *path, const frame *at)
{
    if (at->up) {
        add_path(path, at->up);
        uni__text_add_char(path, '.');
    }
    if (at->key)
        uni__text_add(path, at->key, at->key_size);
    else
        uni__text_add_int(path, (int64_t)at->index);
}

static void add_nonfinite(conversion *c, const frame *at, double value)
{
    if (!c->nonfinite)
        return;
    uni__text path = { 0 };
    if (at)
        add_path(&path, at);
    if (c->nonfinite->size > 0)
        uni__text_add_char(c->nonfinite, ',');
    uni__text_add_json_string(c->nonfinite, path.data ? path.data : "", path.size);
    uni__text_add(c->nonfinite, ":\"", 2);
    uni__text_add_double(c->nonfinite, value);
    uni__text_add(c->nonfinite, "\"", 1);
    if (path.failed)
        c->nonfinite->failed = true;
    uni__text_free(&path);
}

static int convert_dict(conversion *c, const frame *up, size_t count, int depth)
{
    frame here = { .up = up };
    uni__text_add_char(c->out, '{');
    for (size_t i = 0; i < count; i++) {
        uni__token key;
        UNI_TRY(uni__cursor_next(c->cursor, &key, c->err));
        if (key.type != UNI_TYPE_STRING)
            return uni_error_set(c->err, UNI_EFORMAT,
                                 "msgpack: a key is a %s, but must be a string",
                                 uni__value_type_name(key.type));
        /* Two broken keys could become the same text, and the line would be refused when it is
         * read. */
        if (!uni__json_is_plain(key.data, key.size) &&
            (!uni__utf8_valid(key.data, key.size) || memchr(key.data, 0, key.size)))
            return uni_error_set(c->err, UNI_EFORMAT, "msgpack: a key is not UTF-8 text");
        if (i > 0)
            uni__text_add_char(c->out, ',');
        uni__text_add_json_string(c->out, key.data, key.size);
        uni__text_add_char(c->out, ':');
        here.key = key.data;
        here.key_size = key.size;
        UNI_TRY(convert(c, &here, depth + 1));
    }
    uni__text_add_char(c->out, '}');
    return 0;
}

static int convert_list(conversion *c, const frame *up, size_t count, int depth)
{
    frame here = { .up = up };
    uni__text_add_char(c->out, '[');
    for (; here.index < count; here.index++) {
        if (here.index > 0)
            uni__text_add_char(c->out, ',');
        UNI_TRY(convert(c, &here, depth + 1));
    }
    uni__text_add_char(c->out, ']');
    return 0;
}

static void convert_bytes(conversion *c, const uni__token *token)
{
    uni__text_add_char(c->out, '[');
    for (size_t i = 0; i < token->size; i++) {
        if (i > 0)
            uni__text_add_char(c->out, ',');
        uni__text_add_int(c->out, (uint8_t)token->data[i]);
    }
    uni__text_add_char(c->out, ']');
}

static int convert(conversion *c, const frame *up, int depth)
{
    uni__token token;
    UNI_TRY(uni__cursor_next(c->cursor, &token, c->err));
    int levels =
        token.type == UNI_TYPE_LIST || token.type == UNI_TYPE_DICT || token.type == UNI_TYPE_BYTES;
    if (depth + levels > UNI_VALUE_MAX_DEPTH)
        return uni_error_set(c->err, UNI_ELIMIT, "msgpack: nested deeper than %d levels",
                             UNI_VALUE_MAX_DEPTH);
    switch (token.type) {
    case UNI_TYPE_FLOAT:
        if (isfinite(token.real)) {
            uni__text_add_double(c->out, token.real);
        } else {
            uni__text_add(c->out, "null", 4);
            add_nonfinite(c, up, token.real);
        }
        return 0;
    case UNI_TYPE_INT:
        uni__text_add_int(c->out, token.integer);
        return 0;
    case UNI_TYPE_BOOL:
        uni__text_add_string(c->out, token.integer ? "true" : "false");
        return 0;
    case UNI_TYPE_STRING:
        uni__text_add_json_string(c->out, token.data, token.size);
        return 0;
    case UNI_TYPE_BYTES:
        convert_bytes(c, &token);
        return 0;
    case UNI_TYPE_LIST:
        return convert_list(c, up, token.size, depth);
    case UNI_TYPE_DICT:
        return convert_dict(c, up, token.size, depth);
    default:
        uni__text_add(c->out, "null", 4);
        return 0;
    }
}

int uni__cursor_to_json(uni__cursor *cursor, uni__text *out, uni__text *nonfinite, uni_error *err)
{
    conversion c = { cursor, out, nonfinite, err };
    UNI_TRY(convert(&c, NULL, 0));
    if (out->failed || (nonfinite && nonfinite->failed))
        return uni_error_set(err, UNI_ENOMEM, "msgpack: no memory for the JSON text");
    return 0;
}
