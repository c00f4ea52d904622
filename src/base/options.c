/* options.c - see options.h. */
#include "base/options.h"

#include <string.h>

int uni__options_read(void *own, size_t known, size_t first, const void *options, const char *type,
                      uni_error *err)
{
    memset(own, 0, known);
    if (!options)
        return 0;
    size_t size = 0;
    memcpy(&size, options, sizeof size);
    if (size == 0)
        size = first;
    if (size < first)
        return uni_error_set(err, UNI_EINVAL,
                             "%s: size is %zu, but the struct has at least %zu bytes; use "
                             "UNI_OPTIONS(%s, ...), or leave size 0",
                             type, size, first, type);
    const unsigned char *bytes = options;
    for (size_t i = known; i < size; i++)
        if (bytes[i])
            return uni_error_set(err, UNI_EUNSUPPORTED,
                                 "%s: an option is set that this library does not know (the "
                                 "program's struct has %zu bytes, the library's %zu); install the "
                                 "version of unisono that the program was compiled with",
                                 type, size, known);
    memcpy(own, options, size < known ? size : known);
    memcpy(own, &known, sizeof known);
    return 0;
}
