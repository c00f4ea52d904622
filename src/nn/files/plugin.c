/*
 * plugin.c - libunisono-keras.so, opened on first use (base/plugin.h). Any thread.
 */
#include "base/plugin.h"
#include "nn/files/files.h"

int uni__keras_plugin_load(const uni__keras_plugin **out, uni_error *err)
{
    static const uni__plugin keras = { .file = UNI__KERAS_PLUGIN_FILE,
                                       .symbol = UNI__KERAS_PLUGIN_SYMBOL,
                                       .version = UNI__KERAS_PLUGIN_VERSION,
                                       .built = "src/nn/keras",
                                       .purpose = "files of Keras",
                                       .packages = "the Debian packages libhdf5-103-1 and libzip4",
                                       .otherwise = ".safetensors files need nothing" };
    const void *table = NULL;
    UNI_TRY(uni__plugin_open(&table, &keras, err));
    *out = table;
    return 0;
}
