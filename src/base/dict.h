/* dict.h - a dictionary in one expression. */
#ifndef UNISONO_BASE_DICT_H
#define UNISONO_BASE_DICT_H

#include <unisono/value.h>

typedef struct uni__pair {
    const char *key;
    uni_value *value; /* is taken */
} uni__pair;

/* UNI__DICT({ "rank", uni_value_int(3) }, { "host", uni_value_string(name) }). NULL when one of the
 * values is NULL or there is no memory; the values are freed then. */
#define UNI__DICT(...) uni__dict_of((const uni__pair[]){ __VA_ARGS__, { 0 } })
uni_value *uni__dict_of(const uni__pair *pairs);
/* The same for a dictionary that is there; 0, or an error when not all were added. */
#define UNI__DICT_ADD(dict, ...) uni__dict_add(dict, (const uni__pair[]){ __VA_ARGS__, { 0 } })
int uni__dict_add(uni_value *dict, const uni__pair *pairs) UNI_MUST_USE;

#endif
