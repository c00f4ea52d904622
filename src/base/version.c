/* version.c - the version of the library that is loaded. */
#include <unisono/version.h>

const char *uni_version(void)
{
    return UNI_VERSION;
}
