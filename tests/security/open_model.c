/*
 * open_model.c - opens a model file as a user's program would: `open_model MODEL.keras FILE` loads
 * FILE, or its weights into MODEL. Prints what it was told; 0 when it was taken, 1 when refused.
 */
#include <stdio.h>
#include <string.h>
#include <unisono/nn.h>

int main(int argc, char **argv)
{
    uni_error err = { 0 };
    uni_model *model = NULL;
    if (argc != 3)
        return 64;
    size_t length = strlen(argv[2]);
    bool whole = length > 6 && strcmp(argv[2] + length - 6, ".keras") == 0;
    int status = uni_model_load(&model, whole ? argv[2] : argv[1], &err);
    if (status == 0 && !whole)
        status = uni_model_load_weights(model, argv[2], &err);
    printf("%s\n", status < 0 ? err.message : "taken");
    uni_model_free(model);
    return status < 0;
}
