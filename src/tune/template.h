/*
 * template.h - the words of a trial's program: "{lr}" is replaced by that value of its config.
 *
 * A value is data and must not become code. As an argument of a program it is: exec hands it over
 * as it is, whatever it holds. In a script it is not, and quotes do not make it data: `[[ 'x' -eq
 * 1 ]]`, `let`, `eval`, `sh -c`, awk and ssh interpret a quoted word again. So no script is parsed
 * here. A word that is code takes only values of letters, digits and _ . / : @ + , - which mean the
 * same in all of them; others are refused (docs/rationale.md). Pure functions; any thread.
 */
#ifndef UNISONO_TUNE_TEMPLATE_H
#define UNISONO_TUNE_TEMPLATE_H

#include <unisono/value.h>

/* Whether word number `index` of a program's arguments is code, or may be: a script for an
 * interpreter (`bash -c WORD`, `python3 -c WORD`), an argument of a program that interprets it (ssh,
 * awk), or any word that has a space, quotes, brackets or another character besides its values that
 * means something to a shell. */
bool uni__is_code(const uni_value *program, size_t index);

/* Word number `index` with the values of the config put in. UNI_EINVAL when the word is code and a
 * value has other characters than those above. The caller frees *out. */
int uni__fill_word(const uni_value *program, size_t index, const uni_value *config, uni_value **out,
                   uni_error *err) UNI_MUST_USE;

#endif
