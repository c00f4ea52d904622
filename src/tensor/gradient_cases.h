/* gradient_cases.h - the operations that gradient_test.c checks: a function that applies one, and
 * the shapes of its inputs. */

#define BINARY(NAME, KIND)                                                                         \
    static uni_tensor *NAME(uni_tape *tape, uni_tensor **in)                                       \
    {                                                                                              \
        return uni_op_binary(tape, UNI_BINARY_##KIND, in[0], in[1]);                               \
    }
BINARY(add, ADD)
BINARY(sub, SUB)
BINARY(mul, MUL)
BINARY(div_, DIV)
BINARY(power, POW)
BINARY(maximum, MAXIMUM)
BINARY(minimum, MINIMUM)
BINARY(squared, SQUARED_DIFFERENCE)

static uni_tensor *same_twice(uni_tape *tape, uni_tensor **in)
{
    return uni_op_mul(tape, in[0], in[0]);
}

#define UNARY(NAME, KIND)                                                                          \
    static uni_tensor *NAME(uni_tape *tape, uni_tensor **in)                                       \
    {                                                                                              \
        return uni_op_unary(tape, UNI_UNARY_##KIND, in[0]);                                        \
    }
UNARY(negate, NEGATE)
UNARY(exp_, EXP)
UNARY(log_, LOG)
UNARY(sqrt_, SQRT)
UNARY(rsqrt_, RSQRT)
UNARY(square_, SQUARE)
UNARY(abs_, ABS)
UNARY(sin_, SIN)
UNARY(cos_, COS)
UNARY(reciprocal_, RECIPROCAL)

#define ACTIVATION(NAME, KIND, ALPHA)                                                              \
    static uni_tensor *NAME(uni_tape *tape, uni_tensor **in)                                       \
    {                                                                                              \
        return uni_op_activation(tape, UNI_ACTIVATION_##KIND, in[0], ALPHA);                       \
    }
ACTIVATION(relu, RELU, 0)
ACTIVATION(leaky_relu, LEAKY_RELU, 0.3f)
ACTIVATION(elu, ELU, 1.3f)
ACTIVATION(gelu, GELU, 0)
ACTIVATION(gelu_tanh, GELU_TANH, 0)
ACTIVATION(sigmoid, SIGMOID, 0)
ACTIVATION(tanh_, TANH, 0)
ACTIVATION(softplus, SOFTPLUS, 0)
ACTIVATION(swish, SWISH, 0)
ACTIVATION(selu, SELU, 0)
ACTIVATION(exponential, EXPONENTIAL, 0)
ACTIVATION(softsign, SOFTSIGN, 0)
ACTIVATION(hard_sigmoid, HARD_SIGMOID, 0)
ACTIVATION(relu6, RELU6, 0)
ACTIVATION(softmax_last, SOFTMAX, 0)
ACTIVATION(log_softmax_last, LOG_SOFTMAX, 0)

static uni_tensor *softmax_middle(uni_tape *tape, uni_tensor **in)
{
    return uni_op_softmax(tape, in[0], 1);
}

static uni_tensor *scale_add(uni_tape *tape, uni_tensor **in)
{
    return uni_op_scale(tape, in[0], -1.7f, 0.3f);
}

static uni_tensor *clip(uni_tape *tape, uni_tensor **in)
{
    return uni_op_clip(tape, in[0], -0.5f, 0.8f);
}

static uni_tensor *dropout(uni_tape *tape, uni_tensor **in)
{
    return uni_op_dropout(tape, in[0], 0.4f, 3, NULL);
}

static uni_tensor *dropout_shared(uni_tape *tape, uni_tensor **in)
{
    int64_t noise[3] = { uni_tensor_dim(in[0], 0), 1, uni_tensor_dim(in[0], 2) };
    return uni_op_dropout(tape, in[0], 0.4f, 3, noise);
}

static uni_tensor *where(uni_tape *tape, uni_tensor **in)
{
    uni_tensor *less = uni_op_compare(tape, UNI_COMPARE_LESS, uni_op_stop_gradient(tape, in[2]),
                                      uni_tape_constant(tape, 0));
    return uni_op_where(tape, less, in[0], in[1]);
}

#define MATMUL(NAME, TA, TB)                                                                       \
    static uni_tensor *NAME(uni_tape *tape, uni_tensor **in)                                       \
    {                                                                                              \
        return uni_op_matmul(tape, in[0], in[1], TA, TB);                                          \
    }
MATMUL(matmul, false, false)
MATMUL(matmul_ta, true, false)
MATMUL(matmul_tb, false, true)
MATMUL(matmul_tab, true, true)

static uni_tensor *dense_linear(uni_tape *tape, uni_tensor **in)
{
    return uni_op_dense(tape, in[0], in[1], in[2], UNI_ACTIVATION_LINEAR);
}

static uni_tensor *dense_relu(uni_tape *tape, uni_tensor **in)
{
    return uni_op_dense(tape, in[0], in[1], in[2], UNI_ACTIVATION_RELU);
}

static uni_tensor *dense_tanh(uni_tape *tape, uni_tensor **in)
{
    return uni_op_dense(tape, in[0], in[1], in[2], UNI_ACTIVATION_TANH);
}

static uni_tensor *dense_elu(uni_tape *tape, uni_tensor **in)
{
    return uni_op_dense(tape, in[0], in[1], NULL, UNI_ACTIVATION_ELU);
}

static uni_tensor *dense_gelu(uni_tape *tape, uni_tensor **in)
{
    return uni_op_dense(tape, in[0], in[1], in[2], UNI_ACTIVATION_GELU);
}

static uni_tensor *conv(uni_tape *tape, uni_tensor **in, uni_conv_options options)
{
    return uni_op_conv(tape, in[0], in[1], in[2], &options);
}

#define CONV(NAME, ...)                                                                            \
    static uni_tensor *NAME(uni_tape *tape, uni_tensor **in)                                       \
    {                                                                                              \
        return conv(tape, in, (uni_conv_options){ __VA_ARGS__ });                                  \
    }
CONV(conv_valid, .padding = UNI_PADDING_VALID)
CONV(conv_same, .padding = UNI_PADDING_SAME)
CONV(conv_stride, .padding = UNI_PADDING_SAME, .stride = { 2, 2 })
CONV(conv_stride_valid, .stride = { 2, 3 })
CONV(conv_dilated, .dilation = { 2, 2 }, .padding = UNI_PADDING_SAME)
CONV(conv_groups, .groups = 2)
CONV(conv_depthwise, .depthwise = true, .padding = UNI_PADDING_SAME)
CONV(conv_tanh, .activation = UNI_ACTIVATION_TANH)
CONV(conv_relu, .activation = UNI_ACTIVATION_RELU, .padding = UNI_PADDING_SAME)
CONV(conv_swish, .activation = UNI_ACTIVATION_SWISH)
CONV(conv_causal, .padding = UNI_PADDING_CAUSAL, .dilation = { 2 })

/* The first layer of a network: the image needs no gradient. */
static uni_tensor *image_of(uni_tape *tape, int64_t channels)
{
    static float pixels[40 * 9 * 7 * 3];
    for (size_t i = 0; i < sizeof pixels / sizeof *pixels; i++)
        pixels[i] = sinf((float)i);
    uni_column column =
        uni_column_view(UNI_F32, 4, (const int64_t[]){ 40, 9, 7, channels }, pixels);
    return uni_tape_input_column(tape, &column);
}

static uni_tensor *thin(uni_tape *tape, uni_tensor **in, int64_t channels, uni_conv_options options)
{
    return uni_op_conv(tape, image_of(tape, channels), in[0], in[1], &options);
}

#define THIN(NAME, CHANNELS, ...)                                                                  \
    static uni_tensor *NAME(uni_tape *tape, uni_tensor **in)                                       \
    {                                                                                              \
        return thin(tape, in, CHANNELS, (uni_conv_options){ __VA_ARGS__ });                        \
    }
THIN(thin_same, 3, .activation = UNI_ACTIVATION_RELU, .padding = UNI_PADDING_SAME)
THIN(thin_valid, 3, .activation = UNI_ACTIVATION_RELU)
THIN(thin_linear, 1, .padding = UNI_PADDING_SAME)

#define POOL(NAME, ...)                                                                            \
    static uni_tensor *NAME(uni_tape *tape, uni_tensor **in)                                       \
    {                                                                                              \
        return uni_op_pool(tape, in[0], &(uni_pool_options){ __VA_ARGS__ });                       \
    }
POOL(pool_max, .kind = UNI_POOL_MAX)
POOL(pool_max_same, .kind = UNI_POOL_MAX, .padding = UNI_PADDING_SAME, .window = { 3, 3 },
     .stride = { 2, 2 })
POOL(pool_average, .kind = UNI_POOL_AVERAGE)
POOL(pool_average_same, .kind = UNI_POOL_AVERAGE, .padding = UNI_PADDING_SAME, .window = { 3, 2 },
     .stride = { 2, 1 })

static uni_parameters *moving_store;
static uni_parameter *moving_mean, *moving_variance;

static uni_tensor *batch_norm(uni_tape *tape, uni_tensor **in)
{
    int64_t channels = uni_tensor_dim(in[0], -1);
    if (!moving_store || uni_parameter_info_of(moving_mean)->shape[0] != channels) {
        uni_parameters_free(moving_store);
        assert_int_equal(uni_parameters_new(&moving_store, NULL), 0);
        assert_int_equal(uni_parameters_add(&moving_mean, moving_store, "m", UNI_PARAMETER_STATE, 1,
                                            &channels, NULL),
                         0);
        assert_int_equal(uni_parameters_add(&moving_variance, moving_store, "v",
                                            UNI_PARAMETER_STATE, 1, &channels, NULL),
                         0);
        for (int64_t i = 0; i < channels; i++)
            uni_parameter_data(moving_variance)[i] = 1.5f;
    }
    return uni_op_batch_norm(tape, in[0], in[1], in[2],
                             &(uni_batch_norm_options){ .momentum = 0.9f,
                                                        .epsilon = 1e-3f,
                                                        .moving_mean = moving_mean,
                                                        .moving_variance = moving_variance });
}

static uni_tensor *batch_norm_moving(uni_tape *tape, uni_tensor **in)
{
    (void)batch_norm(tape, in);
    return uni_op_batch_norm(tape, in[0], in[1], in[2],
                             &(uni_batch_norm_options){ .epsilon = 1e-3f,
                                                        .moving_mean = moving_mean,
                                                        .use_moving = true,
                                                        .moving_variance = moving_variance });
}

static uni_tensor *layer_norm(uni_tape *tape, uni_tensor **in)
{
    return uni_op_layer_norm(tape, in[0], in[1], in[2], 1, 1e-3f);
}

static uni_tensor *layer_norm_two(uni_tape *tape, uni_tensor **in)
{
    return uni_op_layer_norm(tape, in[0], NULL, NULL, 2, 1e-3f);
}

static uni_tensor *ids_of(uni_tape *tape, int64_t n, int64_t limit)
{
    uni_tensor *ids = uni_tape_scratch(tape, UNI_I32, 1, &n);
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)uni_tensor_data(ids))[i] = (int32_t)(i * 5 % limit);
    return ids;
}

static uni_tensor *embedding(uni_tape *tape, uni_tensor **in)
{
    return uni_op_embedding(tape, in[0], ids_of(tape, 11, 7)); /* some rows repeat */
}

static uni_tensor *gather_axis1(uni_tape *tape, uni_tensor **in)
{
    return uni_op_gather(tape, in[0], ids_of(tape, 4, 3), 1);
}

static uni_tensor *bag(uni_tape *tape, uni_combiner combiner, uni_tensor **in)
{
    static const int64_t offsets[] = { 0, 3, 3, 8, 11 }; /* the second bag is empty */
    return uni_op_embedding_bag(tape, in[0], ids_of(tape, 11, 7),
                                uni_tape_input(tape, UNI_I64, 1, (const int64_t[]){ 5 }, offsets),
                                combiner);
}

static uni_tensor *bag_sum(uni_tape *tape, uni_tensor **in)
{
    return bag(tape, UNI_COMBINER_SUM, in);
}

static uni_tensor *bag_mean(uni_tape *tape, uni_tensor **in)
{
    return bag(tape, UNI_COMBINER_MEAN, in);
}

static uni_tensor *bag_sqrtn(uni_tape *tape, uni_tensor **in)
{
    return bag(tape, UNI_COMBINER_SQRTN, in);
}

static uni_tensor *reshape(uni_tape *tape, uni_tensor **in)
{
    return uni_op_scale(tape, uni_op_reshape(tape, in[0], 2, (const int64_t[]){ 3, -1 }), 2, 0);
}

static uni_tensor *transpose(uni_tape *tape, uni_tensor **in)
{
    return uni_op_transpose(tape, in[0], (const int[]){ 2, 0, 1 });
}

static uni_tensor *concat_middle(uni_tape *tape, uni_tensor **in)
{
    return uni_op_concat(tape, 3, (uni_tensor *[]){ in[0], in[1], in[0] }, 1);
}

static uni_tensor *slice_first(uni_tape *tape, uni_tensor **in)
{
    return uni_op_scale(tape, uni_op_slice(tape, in[0], 0, 1, 2), 3, 0);
}

static uni_tensor *slice_last(uni_tape *tape, uni_tensor **in)
{
    return uni_op_slice(tape, in[0], -1, 1, -1);
}

static uni_tensor *pad(uni_tape *tape, uni_tensor **in)
{
    return uni_op_pad(tape, in[0], (const int64_t[]){ 0, 1, 2 }, (const int64_t[]){ 1, 0, 3 },
                      0.5f);
}

static uni_tensor *broadcast(uni_tape *tape, uni_tensor **in)
{
    return uni_op_broadcast(tape, in[0], 3, (const int64_t[]){ 4, 2, 3 });
}

#define REDUCE(NAME, KIND, KEEP, COUNT, ...)                                                       \
    static uni_tensor *NAME(uni_tape *tape, uni_tensor **in)                                       \
    {                                                                                              \
        return uni_op_reduce(tape, UNI_REDUCE_##KIND, in[0], COUNT, (const int[]){ __VA_ARGS__ },  \
                             KEEP);                                                                \
    }
REDUCE(sum_all, SUM, false, 0, 0)
REDUCE(sum_first, SUM, false, 1, 0)
REDUCE(sum_outer, SUM, true, 2, 0, 2)
REDUCE(mean_inner, MEAN, false, 2, 1, 2)
REDUCE(mean_middle, MEAN, true, 1, 1)
REDUCE(max_last, MAX, false, 1, -1)
REDUCE(min_first, MIN, false, 1, 0)

static uni_tensor *attention(uni_tape *tape, uni_tensor **in)
{
    return uni_op_attention(tape, in[0], in[1], in[2], 2, 0, false, NULL);
}

static uni_tensor *attention_self(uni_tape *tape, uni_tensor **in)
{
    return uni_op_attention(tape, in[0], in[0], in[0], 2, 0.5f, true, NULL);
}

static uni_tensor *attention_masked(uni_tape *tape, uni_tensor **in)
{
    int64_t shape[3] = { uni_tensor_dim(in[0], 0), uni_tensor_dim(in[0], 1),
                         uni_tensor_dim(in[1], 1) };
    uni_tensor *mask = uni_tape_scratch(tape, UNI_B8, 3, shape);
    for (size_t i = 0; i < uni_tensor_count(mask); i++)
        ((uint8_t *)uni_tensor_data(mask))[i] = i % 3 != 1;
    return uni_op_attention(tape, in[0], in[1], in[2], 1, 0, false, mask);
}

/* Targets are made here, because losses have no gradient for them: 0/1 per element, or classes. */
static uni_tensor *loss(uni_tape *tape, uni_loss_kind kind, uni_tensor *prediction, float parameter)
{
    uni_tensor *target =
        uni_tape_scratch(tape, UNI_F32, uni_tensor_ndim(prediction), uni_tensor_shape(prediction));
    float *data = uni_tensor_data(target);
    size_t cols = (size_t)uni_tensor_dim(prediction, -1);
    for (size_t i = 0; i < uni_tensor_count(target); i++)
        data[i] = kind == UNI_LOSS_MSE || kind == UNI_LOSS_MAE || kind == UNI_LOSS_HUBER
                      ? 0.07f + (float)(i % 5) * 0.3f
                  : kind == UNI_LOSS_KL ? 0.1f + (float)(i % 4) * 0.2f
                  : kind == UNI_LOSS_CATEGORICAL || kind == UNI_LOSS_CATEGORICAL_LOGITS
                      ? (float)(i % cols == i / cols % cols)
                      : (float)(i % 3 == 0);
    return uni_op_loss(tape, kind, target, prediction, parameter);
}

#define LOSS(NAME, KIND, PARAMETER)                                                                \
    static uni_tensor *NAME(uni_tape *tape, uni_tensor **in)                                       \
    {                                                                                              \
        return loss(tape, UNI_LOSS_##KIND, in[0], PARAMETER);                                      \
    }
LOSS(loss_mse, MSE, 0)
LOSS(loss_mae, MAE, 0)
LOSS(loss_huber, HUBER, 0.6f)
LOSS(loss_binary, BINARY, 0.1f)
LOSS(loss_binary_logits, BINARY_LOGITS, 0.1f)
LOSS(loss_categorical, CATEGORICAL, 0.1f)
LOSS(loss_categorical_logits, CATEGORICAL_LOGITS, 0.1f)
LOSS(loss_hinge, HINGE, 0)
LOSS(loss_squared_hinge, SQUARED_HINGE, 0)
LOSS(loss_kl, KL, 0)

static uni_tensor *sparse(uni_tape *tape, uni_loss_kind kind, uni_tensor *prediction)
{
    int64_t rows = (int64_t)uni_tensor_count(prediction) / uni_tensor_dim(prediction, -1);
    uni_tensor *ids = ids_of(tape, rows, uni_tensor_dim(prediction, -1));
    return uni_op_loss(
        tape, kind,
        uni_op_reshape(tape, ids, uni_tensor_ndim(prediction) - 1, uni_tensor_shape(prediction)),
        prediction, 0);
}

static uni_tensor *loss_sparse(uni_tape *tape, uni_tensor **in)
{
    return sparse(tape, UNI_LOSS_SPARSE, in[0]);
}

static uni_tensor *loss_sparse_logits(uni_tape *tape, uni_tensor **in)
{
    return sparse(tape, UNI_LOSS_SPARSE_LOGITS, in[0]);
}

/* Losses that are computed from what the activation was applied to. */
static uni_tensor *loss_sigmoid_binary(uni_tape *tape, uni_tensor **in)
{
    return loss_binary(tape, (uni_tensor *[]){ sigmoid(tape, in) });
}

static uni_tensor *loss_softmax_categorical(uni_tape *tape, uni_tensor **in)
{
    return loss_categorical(tape, (uni_tensor *[]){ softmax_last(tape, in) });
}

static uni_tensor *loss_softmax_sparse(uni_tape *tape, uni_tensor **in)
{
    return loss_sparse(tape, (uni_tensor *[]){ softmax_last(tape, in) });
}

/* The result of the activation has another use, too. */
static uni_tensor *loss_softmax_twice(uni_tape *tape, uni_tensor **in)
{
    uni_tensor *y = softmax_last(tape, in);
    return uni_op_add(
        tape, loss_sparse(tape, &y),
        uni_op_reduce(tape, UNI_REDUCE_SUM, uni_op_mul(tape, y, y), 1, (const int[]){ -1 }, false));
}

#define CASE(NAME, LOW, HIGH, ...)                                                                 \
    {                                                                                              \
        .name = #NAME, .build = NAME, .low = LOW, .high = HIGH, .shapes = { __VA_ARGS__ }          \
    }
#define FIXED(NAME, LOW, HIGH, ...)                                                                \
    {                                                                                              \
        .name = #NAME, .build = NAME, .low = LOW, .high = HIGH, .batch_axis = -1, .shapes = {      \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* Too big for differences: compared only with the plain version. */
#define BIG(NAME, LOW, HIGH, ...)                                                                  \
    {                                                                                              \
        .name = #NAME, .build = NAME, .low = LOW, .high = HIGH, .big_only = true, .shapes = {      \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define BIG_FIXED(NAME, LOW, HIGH, ...)                                                            \
    {                                                                                              \
        .name = #NAME, .build = NAME, .low = LOW, .high = HIGH, .big_only = true,                  \
        .batch_axis = -1, .shapes = {                                                              \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static gradient_case cases[] = {
    CASE(add, -2, 2, { 2, 3, 5 }, { 2, 3, 5 }),
    CASE(add, -2, 2, { 2, 3, 5 }, { 1, 5 }),
    CASE(add, -2, 2, { 1, 5 }, { 2, 3, 5 }),
    CASE(sub, -2, 2, { 3, 4, 1, 5 }, { 2, 3, 1 }),
    CASE(mul, -2, 2, { 2, 3, 9 }, { 2, 3, 9 }),
    CASE(mul, -2, 2, { 3, 2, 3, 4 }, { 2, 3, 1 }),
    CASE(mul, -2, 2, { 2, 4, 1 }, { 3, 1, 1, 6 }),
    CASE(div_, 0.5f, 2, { 2, 3, 5 }, { 2, 3, 1 }),
    CASE(power, 0.5f, 2, { 2, 3, 5 }, { 1, 5 }),
    CASE(maximum, -2, 2, { 2, 3, 5 }, { 2, 3, 5 }),
    CASE(minimum, -2, 2, { 2, 3, 5 }, { 2, 3, 5 }),
    CASE(squared, -2, 2, { 2, 3, 5 }, { 1, 5 }),
    CASE(same_twice, -2, 2, { 2, 3, 7 }),
    CASE(negate, -2, 2, { 2, 3, 7 }),
    CASE(exp_, -2, 2, { 2, 3, 7 }),
    CASE(log_, 0.3f, 2, { 2, 3, 7 }),
    CASE(sqrt_, 0.3f, 2, { 2, 3, 7 }),
    CASE(rsqrt_, 0.4f, 2, { 2, 3, 7 }),
    CASE(square_, -2, 2, { 2, 3, 7 }),
    CASE(abs_, -2, 2, { 2, 3, 7 }),
    CASE(sin_, -2, 2, { 2, 3, 7 }),
    CASE(cos_, -2, 2, { 2, 3, 7 }),
    CASE(reciprocal_, 0.5f, 2, { 2, 3, 7 }),
    CASE(relu, -2, 2, { 2, 3, 19 }),
    CASE(leaky_relu, -2, 2, { 2, 3, 19 }),
    CASE(elu, -2, 2, { 2, 3, 19 }),
    CASE(gelu, -3, 3, { 2, 3, 19 }),
    CASE(gelu_tanh, -3, 3, { 2, 3, 19 }),
    CASE(sigmoid, -4, 4, { 2, 3, 19 }),
    CASE(tanh_, -3, 3, { 2, 3, 19 }),
    CASE(softplus, -4, 4, { 2, 3, 19 }),
    CASE(swish, -4, 4, { 2, 3, 19 }),
    CASE(selu, -2, 2, { 2, 3, 19 }),
    CASE(exponential, -2, 2, { 2, 3, 19 }),
    CASE(softsign, -2, 2, { 2, 3, 19 }),
    CASE(hard_sigmoid, -5, 5, { 2, 3, 19 }),
    CASE(relu6, -2, 8, { 2, 3, 19 }),
    CASE(softmax_last, -2, 2, { 2, 3, 11 }),
    CASE(softmax_last, -2, 2, { 2, 3, 1 }),
    CASE(log_softmax_last, -2, 2, { 2, 3, 11 }),
    CASE(softmax_middle, -2, 2, { 3, 2, 4, 3 }),
    CASE(scale_add, -2, 2, { 2, 3, 7 }),
    CASE(clip, -1, 1.5f, { 2, 3, 7 }),
    CASE(dropout, 0.5f, 2, { 2, 5, 70 }),
    CASE(dropout_shared, 0.5f, 2, { 3, 5, 4, 6 }),
    CASE(where, -2, 2, { 2, 3, 5 }, { 1, 5 }, { 2, 3, 1 }),
    CASE(matmul, -1, 1, { 2, 3, 4 }, { 2, 4, 5 }),
    CASE(matmul_ta, -1, 1, { 2, 4, 3 }, { 2, 4, 5 }),
    FIXED(matmul_tb, -1, 1, { 2, 3, 4 }, { 2, 5, 4 }),
    FIXED(matmul_tab, -1, 1, { 2, 4, 3 }, { 2, 5, 4 }),
    CASE(matmul, -1, 1, { 3, 2, 3, 4 }, { 3, 2, 4, 5 }),
    CASE(matmul_ta, -1, 1, { 3, 2, 4, 3 }, { 3, 2, 4, 5 }),
    CASE(matmul_tb, -1, 1, { 3, 2, 3, 4 }, { 3, 2, 5, 4 }),
    CASE(matmul_tab, -1, 1, { 3, 2, 4, 3 }, { 3, 2, 5, 4 }),
    CASE(matmul, -1, 1, { 3, 2, 3, 4 }, { 2, 4, 5 }),
    CASE(matmul_ta, -1, 1, { 3, 2, 4, 3 }, { 2, 4, 5 }),
    CASE(matmul_tb, -1, 1, { 2, 3, 4 }, { 3, 2, 5, 4 }),
    CASE(matmul, -1, 1, { 4, 2, 1, 3, 4 }, { 3, 3, 4, 2 }),
    CASE(dense_linear, -1, 1, { 2, 3, 4 }, { 2, 4, 5 }, { 1, 5 }),
    CASE(dense_relu, -1, 1, { 2, 3, 9 }, { 2, 9, 17 }, { 1, 17 }),
    CASE(dense_tanh, -1, 1, { 3, 2, 3, 4 }, { 2, 4, 5 }, { 1, 5 }),
    BIG(dense_relu, -0.2f, 0.2f, { 2, 2, 300 }, { 2, 300, 512 }, { 1, 512 }),
    BIG(matmul_ta, -1, 1, { 2, 2, 512 }, { 2, 2, 512 }),
    CASE(dense_elu, -1, 1, { 2, 1, 4 }, { 2, 4, 1 }),
    CASE(dense_gelu, -1, 1, { 2, 3, 4 }, { 2, 4, 5 }, { 1, 5 }),
    CASE(conv_valid, -1, 1, { 4, 2, 5, 6, 3 }, { 4, 3, 3, 3, 4 }, { 1, 4 }),
    CASE(conv_valid, -1, 1, { 4, 2, 4, 4, 1 }, { 4, 3, 3, 1, 8 }, { 1, 8 }),
    CASE(conv_valid, -1, 1, { 4, 2, 1, 1, 3 }, { 4, 1, 1, 3, 2 }, { 1, 2 }),
    CASE(conv_same, -1, 1, { 4, 2, 5, 4, 2 }, { 4, 3, 2, 2, 3 }, { 1, 3 }),
    CASE(conv_same, -1, 1, { 4, 2, 4, 4, 8 }, { 4, 3, 3, 8, 16 }, { 1, 16 }),
    CASE(conv_same, -1, 1, { 4, 2, 1, 1, 2 }, { 4, 3, 3, 2, 3 }, { 1, 3 }),
    BIG(dense_relu, -0.1f, 0.1f, { 2, 2, 8200 }, { 2, 8200, 128 }, { 1, 128 }),
    BIG_FIXED(thin_same, -1, 1, { 4, 3, 3, 3, 32 }, { 1, 32 }),
    BIG_FIXED(thin_valid, -1, 1, { 4, 3, 3, 3, 16 }),
    BIG_FIXED(thin_linear, -1, 1, { 4, 5, 2, 1, 48 }, { 1, 48 }),
    BIG(conv_same, -1, 1, { 4, 2, 7, 8, 32 }, { 4, 3, 3, 32, 32 }, { 1, 32 }),
    BIG(conv_valid, -1, 1, { 4, 1, 8, 7, 48 }, { 4, 3, 3, 48, 32 }, { 1, 32 }),
    BIG(conv_relu, -1, 1, { 4, 1, 9, 6, 64 }, { 4, 3, 3, 64, 64 }, { 1, 64 }),
    CASE(conv_stride, -1, 1, { 4, 2, 5, 6, 2 }, { 4, 3, 3, 2, 3 }, { 1, 3 }),
    CASE(conv_stride_valid, -1, 1, { 4, 2, 6, 9, 2 }, { 4, 3, 2, 2, 3 }, { 1, 3 }),
    CASE(conv_dilated, -1, 1, { 4, 2, 6, 6, 2 }, { 4, 3, 3, 2, 3 }, { 1, 3 }),
    CASE(conv_groups, -1, 1, { 4, 2, 4, 4, 4 }, { 4, 3, 3, 2, 6 }, { 1, 6 }),
    CASE(conv_depthwise, -1, 1, { 4, 2, 4, 4, 3 }, { 4, 3, 3, 3, 2 }, { 1, 6 }),
    CASE(conv_depthwise, -1, 1, { 4, 2, 4, 4, 8 }, { 4, 3, 3, 8, 1 }, { 1, 8 }),
    CASE(conv_tanh, -1, 1, { 4, 3, 4, 4, 2 }, { 4, 2, 2, 2, 3 }, { 1, 3 }),
    CASE(conv_relu, -1, 1, { 4, 2, 4, 4, 2 }, { 4, 3, 3, 2, 9 }, { 1, 9 }),
    CASE(conv_swish, -1, 1, { 4, 3, 4, 4, 2 }, { 4, 2, 2, 2, 3 }),
    CASE(conv_same, -1, 1, { 3, 2, 7, 3 }, { 3, 3, 3, 4 }, { 1, 4 }),
    CASE(conv_causal, -1, 1, { 3, 2, 7, 3 }, { 3, 3, 3, 4 }, { 1, 4 }),
    CASE(pool_max, -2, 2, { 4, 2, 4, 5, 9 }),
    CASE(pool_max_same, -2, 2, { 4, 2, 5, 4, 3 }),
    CASE(pool_max, -2, 2, { 3, 2, 5, 3 }),
    CASE(pool_average, -2, 2, { 4, 2, 4, 5, 3 }),
    CASE(pool_average_same, -2, 2, { 4, 2, 5, 4, 3 }),
    CASE(pool_average_same, -2, 2, { 4, 2, 1, 1, 3 }),
    CASE(batch_norm, -2, 2, { 4, 3, 2, 2, 3 }, { 1, 3 }, { 1, 3 }),
    CASE(batch_norm_moving, -2, 2, { 2, 4, 3 }, { 1, 3 }, { 1, 3 }),
    CASE(layer_norm, -2, 2, { 2, 4, 9 }, { 1, 9 }, { 1, 9 }),
    CASE(layer_norm_two, -2, 2, { 3, 4, 3, 3 }),
    FIXED(embedding, -2, 2, { 2, 7, 3 }),
    FIXED(gather_axis1, -2, 2, { 3, 2, 3, 4 }),
    FIXED(bag_sum, -2, 2, { 2, 7, 3 }),
    FIXED(bag_mean, -2, 2, { 2, 7, 3 }),
    FIXED(bag_sqrtn, -2, 2, { 2, 7, 3 }),
    CASE(reshape, -2, 2, { 2, 6, 4 }),
    CASE(transpose, -2, 2, { 3, 2, 3, 4 }),
    CASE(concat_middle, -2, 2, { 3, 2, 3, 4 }, { 3, 2, 1, 4 }),
    CASE(slice_first, -2, 2, { 2, 4, 3 }),
    CASE(slice_last, -2, 2, { 2, 4, 3 }),
    CASE(pad, -2, 2, { 3, 2, 3, 4 }),
    FIXED(broadcast, -2, 2, { 2, 2, 1 }),
    CASE(sum_all, -2, 2, { 3, 4, 3, 2 }),
    CASE(sum_first, -2, 2, { 3, 4, 3, 2 }),
    CASE(sum_outer, -2, 2, { 3, 4, 3, 2 }),
    CASE(mean_inner, -2, 2, { 3, 4, 3, 2 }),
    CASE(mean_middle, -2, 2, { 3, 4, 3, 2 }),
    CASE(max_last, -2, 2, { 3, 4, 3, 5 }),
    CASE(min_first, -2, 2, { 2, 4, 3 }),
    CASE(attention, -1, 1, { 3, 2, 3, 4 }, { 3, 2, 5, 4 }, { 3, 2, 5, 6 }),
    CASE(attention_self, -1, 1, { 3, 2, 4, 6 }),
    CASE(attention_masked, -1, 1, { 3, 2, 3, 4 }, { 3, 2, 5, 4 }, { 3, 2, 5, 4 }),
    CASE(loss_mse, -2, 2, { 2, 4, 5 }),
    CASE(loss_mae, -2, 2, { 2, 4, 5 }),
    CASE(loss_huber, -2, 2, { 2, 4, 5 }),
    CASE(loss_binary, 0.1f, 0.9f, { 2, 4, 9 }),
    CASE(loss_binary_logits, -3, 3, { 2, 4, 9 }),
    CASE(loss_binary, 0.3f, 0.7f, { 2, 11, 1 }),
    CASE(loss_binary_logits, -3, 3, { 3, 2, 11, 1 }),
    CASE(dense_relu, -1, 1, { 2, 2, 5 }, { 2, 5, 109 }, { 1, 109 }),
    CASE(batch_norm_moving, -2, 2, { 2, 3, 43 }, { 1, 43 }, { 1, 43 }),
    CASE(sum_first, -2, 2, { 2, 3, 109 }),
    CASE(loss_categorical, 0.1f, 0.9f, { 2, 4, 5 }),
    CASE(loss_categorical_logits, -2, 2, { 2, 4, 11 }),
    CASE(loss_hinge, -2, 2, { 2, 4, 5 }),
    CASE(loss_squared_hinge, -2, 2, { 2, 4, 5 }),
    CASE(loss_kl, 0.3f, 0.9f, { 2, 4, 5 }),
    CASE(loss_sparse, 0.1f, 0.9f, { 3, 2, 4, 5 }),
    CASE(loss_sparse_logits, -2, 2, { 3, 2, 4, 11 }),
    CASE(loss_sigmoid_binary, -3, 3, { 2, 4, 9 }),
    CASE(loss_sigmoid_binary, -3, 3, { 2, 11, 1 }),
    CASE(loss_softmax_categorical, -2, 2, { 2, 4, 11 }),
    CASE(loss_softmax_sparse, -2, 2, { 3, 2, 4, 11 }),
    CASE(loss_softmax_twice, -2, 2, { 3, 2, 4, 5 }),
};
