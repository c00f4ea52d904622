/* locale_fixture.h - for tests: a locale with a decimal comma, made by localedef where none is
 * installed. */
#ifndef UNISONO_BASE_LOCALE_FIXTURE_H
#define UNISONO_BASE_LOCALE_FIXTURE_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

/* false: there is none, and it cannot be made. `setlocale(LC_NUMERIC, "C")` undoes it. */
static inline bool set_comma_locale(void)
{
    static const char *const names[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (setlocale(LC_NUMERIC, names[i]) != NULL)
            return true;
    char dir[256], command[600];
    if (mkdtemp(uni__temporary_name(dir, sizeof dir, "locale")) == NULL)
        return false;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >'%s/log' 2>&1",
             dir, dir);
    bool made = system(command) == 0 && setenv("LOCPATH", dir, 1) == 0 &&
                setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL;
    (void)!uni__remove_tree(dir, NULL);
    return made;
}

#endif
