/* version.c - the version of the loaded library. */
#include <unisono/version.h>

const char *uni_version(void)
{
    return UNI_VERSION;
}
