/*
 * template.h - the words of a trial's program: "{lr}" is replaced by that value of its config.
 *
 * A value is data and must not become code. As an argument of a program it stays data: exec passes
 * it unchanged, whatever it contains. In a script it does not, and quotes do not help: `[[ 'x' -eq
 * 1 ]]`, `let`, `eval`, `sh -c`, awk and ssh interpret a quoted word again. So no script is parsed
 * here. A word that is code accepts only values of letters, digits and _ . / : @ + , - which mean
 * the same in all of them; others are rejected (docs/rationale.md). Pure functions; any thread.
 */
#ifndef UNISONO_TUNE_TEMPLATE_H
#define UNISONO_TUNE_TEMPLATE_H

#include <unisono/value.h>

/* Whether word number `index` of a program's arguments is code, or may be:
 *
 * - a script for an interpreter (`bash -c WORD`, `python3 -c WORD`)
 * - an argument of a program that interprets it (ssh, awk)
 * - a word that, apart from its values, contains a space, quotes, brackets or another character
 *   with a meaning to a shell */
bool uni__is_code(const uni_value *program, size_t index);

/* Inserts the values of the config into word number `index`. UNI_EINVAL when the word is code and a
 * value contains other characters than those above. The caller frees *out. */
int uni__fill_word(const uni_value *program, size_t index, const uni_value *config, uni_value **out,
                   uni_error *err) UNI_MUST_USE;

#endif
