/*
 * engine.h - shared by the files of unisono._engine. For this module only.
 *
 * unisono._engine wraps libunisono-engine and libunisono-native for Python: layers, models, fit,
 * tapes, strategies. It is a separate module, imported only by unisono.keras and unisono.tf, so
 * that `import unisono` and the workers of other frameworks never load oneDNN. It uses the public
 * headers and the stable ABI, and shares helpers.c, array.c and value.c with unisono._unisono
 * (door.h), whose Error and Array it uses.
 *
 * Ownership follows the engine's: what a model takes (layers, losses, optimizers) stays in its
 * Python object as a borrowed pointer together with a reference to the model. A model refers back
 * to Python only through user functions, which live as long as the model's object.
 *
 * Threads: the GIL protects all of this. fit, gradients and large operations run without it; user
 * functions (callbacks, datasets, losses) take it for their call. A model in a long call of one
 * thread rejects calls from other threads; calls from that call's own callbacks are allowed.
 */
#ifndef UNISONO_PYTHON_ENGINE_H
#define UNISONO_PYTHON_ENGINE_H

#include "door.h"

#include <unisono/native.h>
#include <unisono/nn.h>

typedef struct engine_state {
    /* Must be first: door_state_of returns it. Its error and array_type are those of
     * unisono._unisono. */
    door_state door;
    PyObject *value_error, *type_error; /* Error combined with ValueError, and with TypeError */
    PyTypeObject *strings, *batches, *layer, *parameter, *model, *loss, *metric, *optimizer, *tape,
        *tensor, *gradients, *strategy, *replica;
    PyObject *raised; /* a user function's exception, while it passes through the engine */
} engine_state;

engine_state *engine_state_of(PyObject *object);
/* Raises the engine's error (ValueError for wrong arguments, TypeError for element types, otherwise
 * Error), or the user's own exception if that was the cause. Returns NULL. */
PyObject *engine_raise(engine_state *state, const uni_error *err);
/* Keeps the current exception for engine_raise; returns UNI_EFUNCTION with its text in err. The GIL
 * is held. */
int engine_keep_exception(engine_state *state, uni_error *err);
PyObject *engine_new(PyTypeObject *type); /* zeroed, of a heap type */
void engine_free(PyObject *self); /* the end of every dealloc */
/* For Py_bf_getbuffer of objects that can convert themselves to an Array: exports that Array's
 * buffer. Takes over `array`, which may be NULL with an exception set. */
int engine_getbuffer_of(PyObject *array, Py_buffer *view, int flags);
void engine_replace(PyObject **slot, PyObject *value); /* takes over value, releases the old one */
int engine_add_type(PyObject *module, PyTypeObject **out, PyType_Spec *spec);

/* ---- columns.c ---- */

/* A column, and the owner of its data. */
typedef struct engine_column {
    uni_column column; /* dtype 0: none */
    Py_buffer buffer; /* obj NULL: unused */
    PyObject *keeper; /* Strings or Tensor, or NULL */
} engine_column;
/* From None, Strings, or any object with a C-contiguous buffer of numbers. Returns 0, or -1 with an
 * exception. */
int engine_column_from(engine_state *state, engine_column *out, PyObject *object);
void engine_column_clear(engine_column *column);
/* A list or tuple of columns, at most UNI_MODEL_MAX_INPUTS. Returns their number, or -1. None is
 * 0. */
int engine_columns_from(engine_state *state, engine_column *out, PyObject *list, const char *what);
PyObject *engine_strings_from(engine_state *state, int64_t count, const uni_string *strings,
                              int ndim, const int64_t *shape, PyObject *keeper);
int engine_columns_init(PyObject *module, engine_state *state);

/* batches.c */
uni_batches *engine_batches_of(PyObject *object);
int engine_batches_init(PyObject *module, engine_state *state);

/* ---- layers.c ---- */

typedef struct engine_layer {
    PyObject_HEAD uni_layer *raw;
    PyObject *owner; /* the model that took it; NULL: not taken */
} engine_layer;
PyObject *engine_layer_wrap(engine_state *state, uni_layer *raw, PyObject *owner);
/* Gives up the raw layer: from now on the object borrows it from `owner`. */
uni_layer *engine_layer_take(PyObject *object, PyObject *owner);
typedef struct engine_parameter {
    PyObject_HEAD uni_parameter *raw;
    uni_parameters *store;
    PyObject *owner; /* The model; NULL: a free variable, whose store is freed with it. */
} engine_parameter;
PyObject *engine_parameter_wrap(engine_state *state, uni_parameter *raw, uni_parameters *store,
                                PyObject *owner);
int engine_layers_init(PyObject *module, engine_state *state);
/* own.c: methods of Layer and Tape */
PyObject *engine_layer_own(PyObject *type, PyObject *arguments);
PyObject *engine_layer_add_weight(PyObject *object, PyObject *arguments);
PyObject *engine_layer_add_child(PyObject *object, PyObject *arguments);
PyObject *engine_tape_call_layer(PyObject *tape, PyObject *arguments);
int engine_spec_from(PyObject *object, uni_spec *out); /* (dtype, shape), None is -1 */
PyObject *engine_spec_to(const uni_spec *spec);
int engine_dtype_from(const char *name); /* including "string"; 0 and an exception if unknown */
const char *engine_dtype_name(uni_dtype dtype);
PyObject *engine_shape_to(int ndim, const int64_t *shape);

/* ---- objects.c ---- */

typedef struct engine_optimizer {
    PyObject_HEAD uni_optimizer *raw; /* NULL: its model was compiled with another one */
    PyObject *owner; /* the model that took it */
    uni_gradients *scratch; /* for gradients that do not come from the tape */
    PyObject *schedule; /* a user function, in a capsule */
} engine_optimizer;
/* A user function that the engine calls. It lives in a capsule that belongs to the loss, metric or
 * optimizer, and to the model that took it. */
typedef struct engine_function {
    engine_state *state;
    PyObject *function;
} engine_function;
PyObject *engine_function_capsule(engine_state *state, PyObject *function, engine_function **out);
typedef struct engine_loss {
    PyObject_HEAD uni_loss *raw;
    PyObject *function; /* the user's */
} engine_loss;
typedef struct engine_metric {
    PyObject_HEAD uni_metric *raw;
    PyObject *function;
} engine_metric;
int engine_objects_init(PyObject *module, engine_state *state);
int engine_optimizers_init(PyObject *module, engine_state *state);

/* ---- models.c, fit.c ---- */

typedef struct engine_model {
    PyObject_HEAD uni_model *raw;
    PyObject *optimizer; /* the engine_optimizer that borrows from it; a weak pointer */
    /* List of user functions that raw's losses, metrics and layers call. */
    PyObject *functions;
    unsigned long thread; /* the thread in a long call */
    int depth; /* nesting of long calls; 0: none */
} engine_model;
/* The raw model for a call; NULL with an exception if another thread uses it. */
uni_model *engine_model_enter(PyObject *object);
void engine_model_leave(PyObject *object);
int engine_models_init(PyObject *module, engine_state *state);
extern PyMethodDef engine_fit_methods[];

/* callbacks.c: from ("early_stopping", {...}) or a Python object with on_* methods and a set of
 * their names. */
uni_callback *engine_callback_from(engine_state *state, PyObject *object);
/* Looks for Ctrl-C ten times a second. */
uni_callback *engine_callback_signals(engine_state *state);

/* ---- tensors.c, tape.c, ops.c ---- */

typedef struct engine_tensor engine_tensor;
typedef struct engine_tape {
    PyObject_HEAD uni_tape *raw;
    bool borrowed; /* belongs to the engine; only during a call of a user function */
    engine_tensor *first; /* live tensors of the step */
    PyObject *held; /* list of objects that inputs borrow from, until the next begin */
    PyObject *gradients; /* engine_gradients of the step, or NULL */
} engine_tape;
struct engine_tensor {
    PyObject_HEAD uni_tensor *raw; /* on the tape; NULL after the tape began a new step */
    engine_tape *tape;
    engine_tensor *next, **link;
    uni_array *array; /* its own copy or view; NULL while it is only on the tape */
    uni_array *logits; /* with array: what a sigmoid or softmax made it of; NULL: not known */
    PyObject *strings; /* text instead of numbers */
    PyObject *gradients; /* the engine_gradients that the array is a view of */
    const uni_parameter *parameter; /* ... of this parameter */
};
typedef struct engine_gradients {
    PyObject_HEAD uni_gradients *raw;
    PyObject *owner; /* keeps the store */
    int views;
} engine_gradients;
/* tensors.c: an object for a tensor on the tape; the tape tracks it until the next step */
PyObject *engine_tensor_link(engine_tape *tape, uni_tensor *raw);
void engine_tensor_unlink(engine_tensor *self);
/* Copies its numbers into an array of its own; 0, or -1. */
int engine_tensor_own(engine_tensor *self);
/* The same, including its logits: all that it needs to leave its tape. */
int engine_tensor_own_all(engine_tensor *self);
engine_gradients *engine_gradients_new(engine_state *state, PyObject *model);
/* The gradient of one parameter: a view. */
PyObject *engine_gradient_of(engine_state *state, engine_gradients *self, uni_parameter *parameter);
int engine_tensors_init(PyObject *module, engine_state *state);
/* Wraps a tensor on the tape; for NULL raises the tape's error. */
PyObject *engine_tensor_wrap(PyObject *tape, uni_tensor *raw);
/* Converts an argument of an operation to a tensor on the tape; NULL with an exception. */
uni_tensor *engine_tensor_arg(PyObject *tape, PyObject *object);
/* The numbers of a tensor, which may outlive its step; a new reference, or NULL with an
 * exception. */
uni_array *engine_tensor_array(PyObject *tensor);
/* Takes over the reference. */
PyObject *engine_tensor_of_array(engine_state *state, uni_array *array);
uni_tape *engine_tape_of(PyObject *tape);
/* Gives the live tensors of the step their own numbers; 0, or -1 with an exception. */
int engine_tape_let_go(PyObject *tape);
void engine_tape_borrow(PyObject *tape, uni_tape *raw); /* replaces its own from now on */
/* Calls function(tape, *tensors) for the engine, which owns the tape; the GIL is held. A new
 * reference. */
PyObject *engine_call_on_tape(engine_state *state, uni_tape *raw, PyObject *function, int count,
                              uni_tensor *const *inputs, uni_tensor **out);
int engine_tapes_init(PyObject *module, engine_state *state);
extern PyMethodDef engine_op_methods[];

/* ---- strategy.c ---- */

uni_strategy *engine_strategy_of(PyObject *object);
int engine_strategies_init(PyObject *module, engine_state *state);

#endif
