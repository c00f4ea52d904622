/*
 * experimental/custom_layer.h - layers with a class of their own: weights, a forward function, a
 * configuration. uni_layer_function (layers.h) is enough for a layer without a class.
 *
 * Experimental: this header may change in any release, and the ABI policy of docs/c.md does not
 * cover its functions (version node UNISONO_EXPERIMENTAL).
 *
 * Thread rule: as layers.h.
 *
 * @example
 * uni_layer *layer = uni_layer_new(&(uni_layer_class){ .name = "Function" });
 * (void)err;
 * uni_layer_free(layer);
 * @end
 */
#ifndef UNISONO_EXPERIMENTAL_CUSTOM_LAYER_H
#define UNISONO_EXPERIMENTAL_CUSTOM_LAYER_H

#include <unisono/layers.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Slots say: required or default. `self` is class->size bytes, zeroed by uni_layer_new, freed by
 * the layer. */
typedef struct uni_layer_class {
    const char *name; /* Keras's class_name; "Function" for the user's own */
    size_t size;
    /* Creates parameters with uni_layer_add_parameter.
     * Default: none. */
    int (*build)(uni_layer *layer, void *self, int num_inputs, const uni_spec *inputs,
                 uni_error *err);
    /* The output's type and shape from the inputs'. Required. Runs after build. */
    int (*infer)(const uni_layer *layer, const void *self, int num_inputs, const uni_spec *inputs,
                 uni_spec *output, uni_error *err);
    /* Forward. Required. Errors by uni_tape_fail. */
    uni_tensor *(*call)(const uni_layer *layer, const void *self, uni_tape *tape, int num_inputs,
                        uni_tensor *const *inputs);
    /* Keras's get_config and from_config without name, trainable and dtype. Default: such a layer
     * cannot be saved in .keras. */
    int (*get_config)(const uni_layer *layer, const void *self, uni_value *config, uni_error *err);
    int (*set_config)(uni_layer *layer, void *self, const uni_value *config, uni_error *err);
    int (*adapt)(uni_layer *layer, void *self, const uni_column *data,
                 uni_error *err); /* default: refused */
    void (*free)(void *self); /* default: nothing */
} uni_layer_class;

/* The class is borrowed (usually static). NULL without memory. */
UNI_API uni_layer *uni_layer_new(const uni_layer_class *class_);
UNI_API void *uni_layer_self(const uni_layer *layer);
/* Remembers the first error of a constructor; the taker reports it. */
UNI_API uni_layer *uni_layer_fail(uni_layer *layer, int code, const char *format, ...)
    UNI_PRINTF(3, 4);

/* Within build. The short name ("kernel") becomes "dense_1/kernel". Weights get the regulariser
 * (NULL: none). */
UNI_API UNI_MUST_USE int
uni_layer_add_parameter(uni_parameter **out, uni_layer *layer, const char *name,
                        uni_parameter_kind kind, int ndim, const int64_t *shape,
                        const uni_initializer *initializer, const char *default_initializer,
                        const uni_regularizer *regularizer, uni_error *err);
UNI_API uint32_t uni_layer_stream(const uni_layer *layer); /* for random operations */

#ifdef __cplusplus
}
#endif
#endif
