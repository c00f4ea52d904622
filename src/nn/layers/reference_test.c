/*
 * reference_test.c - every layer against what Keras stored in tests/reference/layers: shapes,
 * outputs, gradients of inputs and weights, names and order of weights, changed states; with the
 * fast kernels, with two threads, and with the plain kernels.
 */
#include "nn/shared.h"
#include "tensor/shared.h"
#include "nn/layers/reference.h"

#include "nn/layer.h"

static const char *const skipped[] = {
    "lstm_state",
    /* return_state: a layer has one output here; layers_test.c tests that it is rejected */
    "gru_state",
};

static bool is_skipped(const char *name)
{
    for (size_t i = 0; i < sizeof skipped / sizeof skipped[0]; i++)
        if (strcmp(skipped[i], name) == 0)
            return true;
    return false;
}

struct fixture {
    reference file;
    const char *name;
    uni_layer *layer;
    uni__build_context build;
    int num_inputs;
    reference_array inputs[UNI_MODEL_MAX_INPUTS];
    uni_spec output;
};

static void check(int status, const uni_error *err, const char *name)
{
    if (status < 0)
        fail_msg("%s: %s", name, err->message);
}

/* Builds the layer from Keras's config for the stored inputs. The metadata says which inputs the
 * call had. */
static void set_up(struct fixture *f, const char *name)
{
    char path[256];
    uni_error err = { 0 };
    snprintf(path, sizeof path, "%s.safetensors", name);
    *f = (struct fixture){ .file = reference_open(path), .name = name };
    uni_value *config = reference_json(&f->file, "config"),
              *call = reference_json(&f->file, "call");
    check(uni__layer_from_config(&f->layer, reference_text(&f->file, "layer"), config, &err), &err,
          name);
    uni__attention_set_causal(f->layer, uni_dict_get_bool(call, "use_causal_mask", false));
    for (; f->num_inputs < UNI_MODEL_MAX_INPUTS; f->num_inputs++) {
        f->inputs[f->num_inputs] = reference_get(&f->file, "input.%d", f->num_inputs);
        if (f->inputs[f->num_inputs].dtype == 0)
            break;
    }
    reference_array mask = reference_get(&f->file, "attention_mask", 0);
    if (mask.dtype != 0) { /* query, value, key, mask */
        f->inputs[1] = f->inputs[2] = f->inputs[0];
        f->inputs[3] = mask;
        f->num_inputs = 4;
    }
    uni_spec specs[UNI_MODEL_MAX_INPUTS];
    for (int i = 0; i < f->num_inputs; i++) {
        specs[i] = (uni_spec){ .dtype = f->inputs[i].dtype, .ndim = f->inputs[i].ndim };
        memcpy(specs[i].dims, f->inputs[i].shape, sizeof specs[i].dims);
        specs[i].dims[0] = -1;
    }
    check(uni_parameters_new(&f->build.store, &err), &err, name);
    f->build.seed = 7;
    uni_layer_named(f->layer, "layer");
    check(uni__layer_build(f->layer, &f->build, NULL, f->num_inputs, specs, &f->output, &err), &err,
          name);
    uni_value_free(config);
    uni_value_free(call);
}

static void load_weights(struct fixture *f)
{
    uni_value *names = reference_json(&f->file, "weight_names"),
              *trainable = reference_json(&f->file, "trainable");
    assert_int_equal(uni_layer_num_parameters(f->layer), uni_list_size(names));
    for (size_t i = 0; i < uni_layer_num_parameters(f->layer); i++) {
        uni_parameter *parameter = uni_layer_parameter(f->layer, i);
        const char *short_name = strchr(uni_parameter_info_of(parameter)->name, '/') + 1;
        if (strncmp(f->name, "layers/", 7) == 0) /* PyTorch's have names of their own */
            assert_string_equal(short_name, uni_value_as_string(uni_list_get(names, i), ""));
        assert_int_equal(uni_parameter_info_of(parameter)->kind == UNI_PARAMETER_WEIGHT,
                         uni_value_as_bool(uni_list_get(trainable, i), false));
        reference_array weight = reference_get(&f->file, "weight.%d", (int)i);
        assert_int_equal(uni_parameter_info_of(parameter)->size, weight.count);
        assert_int_equal(uni_parameter_info_of(parameter)->ndim, weight.ndim);
        for (int d = 0; d < weight.ndim; d++)
            assert_int_equal(uni_parameter_info_of(parameter)->shape[d], weight.shape[d]);
        for (size_t e = 0; e < weight.count; e++)
            uni_parameter_data(parameter)[e] = weight.dtype == UNI_I64
                                                   ? (float)((const int64_t *)weight.data)[e]
                                                   : ((const float *)weight.data)[e];
    }
    uni_value_free(names);
    uni_value_free(trainable);
}

static void tear_down(struct fixture *f)
{
    uni_layer_free(f->layer);
    uni_parameters_free(f->build.store);
    reference_close(&f->file);
}

static void run_case(const char *name, const uni_tape_options *options)
{
    struct fixture f;
    uni_error err = { 0 };
    uni_tape *tape = NULL;
    uni_gradients *gradients = NULL;
    char what[400];
    set_up(&f, name);
    load_weights(&f);
    check(uni_tape_new(&tape, options, &err), &err, name);
    check(uni_gradients_new(&gradients, f.build.store, &err), &err, name);
    uni_tape_begin(tape,
                   &(uni_step){ .training = strcmp(reference_text(&f.file, "training"), "1") == 0,
                                .gradients = gradients });
    uni_tensor *inputs[UNI_MODEL_MAX_INPUTS];
    for (int i = 0; i < f.num_inputs; i++) {
        const reference_array *x = &f.inputs[i];
        /* One tensor where Keras has one, so that its gradient is the sum. */
        bool same = i > 0 && x->data == f.inputs[0].data;
        inputs[i] = same ? inputs[0] : uni_tape_input(tape, x->dtype, x->ndim, x->shape, x->data);
        if (x->dtype == UNI_F32 && !same)
            uni_tape_watch(tape, inputs[i]);
    }
    uni_tensor *output = uni__layer_call(f.layer, tape, f.num_inputs, inputs);
    check(uni_tape_status(tape, &err), &err, name);
    reference_array want = reference_get(&f.file, "output.%d", 0),
                    upstream = reference_get(&f.file, "upstream.%d", 0);
    assert_int_equal(uni_tensor_ndim(output), want.ndim);
    assert_int_equal(f.output.ndim, want.ndim);
    for (int d = 0; d < want.ndim; d++) {
        assert_int_equal(uni_tensor_dim(output, d), want.shape[d]);
        if (d > 0)
            assert_int_equal(f.output.dims[d], want.shape[d]);
    }
    snprintf(what, sizeof what, "%s output", name);
    assert_close(what, uni_tensor_data(output), &want, 2e-5, 2e-5);

    uni_tensor *weight =
        uni_tape_input(tape, UNI_F32, upstream.ndim, upstream.shape, upstream.data);
    uni_tensor *target = uni_op_sum(tape, uni_op_mul(tape, output, weight));
    uni_tensor *penalty = uni__layer_regularization(f.layer, tape, NULL),
               *added = uni__tape_added_losses(tape);
    reference_array loss = reference_get(&f.file, "loss", 0);
    if (loss.dtype != 0) {
        uni_tensor *both = penalty == NULL ? added
                           : added == NULL ? penalty
                                           : uni_op_add(tape, penalty, added);
        assert_non_null(both);
        assert_close("penalty", uni_tensor_data(both), &loss, 1e-6, 1e-5);
        target = uni_op_add(tape, target, both);
    } else {
        assert_null(penalty);
        assert_null(added);
    }
    check(uni_tape_gradient(tape, target, NULL, &err), &err, name);
    for (int i = 0; i < f.num_inputs; i++) {
        reference_array gradient = reference_get(&f.file, "grad.input.%d", i);
        if (gradient.dtype == 0)
            continue;
        snprintf(what, sizeof what, "%s gradient of input %d", name, i);
        assert_non_null(uni_tensor_gradient(inputs[i]));
        assert_close(what, uni_tensor_gradient(inputs[i]), &gradient, 5e-5, 5e-5);
    }
    for (size_t i = 0; i < uni_layer_num_parameters(f.layer); i++) {
        uni_parameter *parameter = uni_layer_parameter(f.layer, i);
        reference_array gradient = reference_get(&f.file, "grad.weight.%d", (int)i);
        reference_array after = reference_get(&f.file, "after.weight.%d", (int)i);
        snprintf(what, sizeof what, "%s %s", name, uni_parameter_info_of(parameter)->name);
        if (gradient.dtype != 0)
            assert_close(what, uni_gradients_of(gradients, parameter), &gradient, 1e-4, 1e-4);
        if (after.dtype != 0)
            assert_close(what, uni_parameter_data(parameter), &after, 1e-5, 1e-5);
    }
    uni_gradients_free(gradients);
    uni_tape_free(tape);
    tear_down(&f);
}

/* Runs the files of a directory with this prefix; returns their number. */
static int cases_of(const char *folder, const char *prefix, const uni_tape_options *options)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", reference_root(), folder);
    DIR *directory = opendir(path);
    if (directory == NULL)
        fail_msg("cannot read %s", path);
    int count = 0;
    const char *only = getenv("CASE");
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char name[300];
        char *dot = strstr(entry->d_name, ".safetensors");
        if (dot == NULL || strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        *dot = '\0';
        if (is_skipped(entry->d_name) || (only != NULL && strcmp(only, entry->d_name) != 0))
            continue;
        snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
        run_case(name, options);
        count++;
    }
    closedir(directory);
    return count;
}

/* Keras's cases, and those computed by PyTorch in double precision. */
static void all_cases(const uni_tape_options *options)
{
    int keras = cases_of("layers", "", options), torch = cases_of("torch", "layer_", options);
    if (getenv("CASE") == NULL && (keras != 120 || torch != 23))
        fail_msg("%d and %d cases, not 120 and 23, in %s", keras, torch, reference_root());
}

static void fast(void **state)
{
    all_cases(&(uni_tape_options){ .threads = 1 });
}

static void two_threads(void **state)
{
    all_cases(&(uni_tape_options){ .threads = 2 });
}

static void plain(void **state)
{
    all_cases(&(uni_tape_options){ .threads = 1, .reference = true });
}

/* Normalization finds the same statistics in the stored data as Keras. */
static void adapt(void **state)
{
    static const char *const cases[] = { "layers/normalization_adapt",
                                         "layers/normalization_adapt_images",
                                         "layers/normalization_adapt_constant" };
    for (size_t i = 0; i < 3; i++) {
        struct fixture f;
        uni_error err = { 0 };
        set_up(&f, cases[i]);
        reference_array data = reference_get(&f.file, "adapt", 0);
        uni_column column = uni_column_view(data.dtype, data.ndim, data.shape, data.data);
        check(uni_layer_adapt(f.layer, &column, &err), &err, cases[i]);
        for (int w = 0; w < 2; w++) {
            reference_array want = reference_get(&f.file, "weight.%d", w);
            assert_close(cases[i], uni_parameter_data(uni_layer_parameter(f.layer, (size_t)w)),
                         &want, 1e-5, 1e-5);
        }
        tear_down(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(fast), cmocka_unit_test(two_threads),
                                        cmocka_unit_test(plain), cmocka_unit_test(adapt) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
