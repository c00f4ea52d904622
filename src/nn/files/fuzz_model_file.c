/* fuzz_model_file.c - any bytes with the suffix .keras are a model or refused; HDF5 and libzip read
 * them in a child process. See base/fuzz.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unisono/nn.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[400];
    uni_model *model = NULL;
    uni_error err = { 0 };
    fuzz_file(path, "model.keras", data, size);
    int status = uni_model_load(&model, path, &err);
    FUZZ_PROMISE(status == 0 ? model != NULL
                             : model == NULL && err.code == status && err.message[0] != '\0');
    uni_model_free(model);
    return 0;
}

/* What this build saves; nothing without the plug-in for Keras's files. */
size_t fuzz_sample(uint8_t *out, size_t room)
{
    char path[400];
    uni_model *model = NULL;
    size_t size = 0;
    fuzz_file(path, "sample.keras", "", 0);
    if (uni_sequential_new(&model, "m",
                           UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 2 }),
                                      uni_layer_dense(2, NULL)),
                           NULL) < 0)
        return 0;
    if (uni_model_save(model, path, NULL) == 0) {
        FILE *file = fopen(path, "rb");
        size = file != NULL ? fread(out, 1, room, file) : 0;
        if (file != NULL)
            fclose(file);
    }
    uni_model_free(model);
    return size;
}
