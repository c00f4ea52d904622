/* fuzz_model_config.c - any JSON is a model's config or refused; what is taken has no more weights
 * than allowed and gives a config again. See base/fuzz.h. */
#include <string.h>

#include "nn/shared.h"
#include "base/fuzz.h"
#include "base/json.h"
#include "nn/layer.h"

#define MAX_WEIGHTS 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uni_value *config = NULL, *again = NULL;
    uni_model *model = NULL;
    uni_error err = { 0 };
    if (uni_json_read(&config, (const char *)data, size, NULL) < 0)
        return 0;
    int status = uni__model_from_config(&model, config, MAX_WEIGHTS, &err);
    if (status < 0)
        FUZZ_PROMISE(model == NULL && err.code == status && err.message[0] != '\0');
    else
        FUZZ_PROMISE(uni__model_get_config(&again, model, &err) == 0 || err.message[0] != '\0');
    uni_value_free(again);
    uni_value_free(config);
    uni_model_free(model);
    return 0;
}

FUZZ_SAMPLE_TEXT(
    "{\"class_name\":\"Sequential\",\"config\":{\"name\":\"m\",\"layers\":[{\"class_name\":"
    "\"InputLayer\",\"config\":{\"batch_shape\":[null,4,4,1],\"dtype\":\"float32\"}},"
    "{\"class_name\":\"Conv2D\",\"config\":{\"filters\":2,\"kernel_size\":[3,3],\"strides\":"
    "[1,1],\"padding\":\"same\",\"activation\":\"relu\"}},{\"class_name\":"
    "\"BatchNormalization\",\"config\":{\"axis\":-1,\"momentum\":0.9}},{\"class_name\":"
    "\"Flatten\",\"config\":{}},{\"class_name\":\"Dense\",\"config\":{\"units\":3,"
    "\"kernel_initializer\":{\"class_name\":\"RandomUniform\",\"config\":{\"minval\":0,"
    "\"maxval\":1}},\"kernel_regularizer\":{\"class_name\":\"L2\",\"config\":{\"l2\":0.1}}}}]},"
    "\"compile_config\":{\"optimizer\":{\"class_name\":\"Adam\",\"config\":{\"learning_rate\":"
    "0.01}},\"loss\":\"mse\",\"metrics\":[\"mae\"],\"weighted_metrics\":[\"mse\"]}}")
