/*
 * engine.c - what the shared object libunisono-engine.so says about itself. The rest of it is src/tensor and src/nn,
 * linked whole (docs/engine.md). Any thread.
 */
#include <unisono/tensor.h>
#include <unisono/version.h>

UNI_API const char *uni_engine_version(void);

const char *uni_engine_version(void)
{
    return UNI_VERSION;
}
