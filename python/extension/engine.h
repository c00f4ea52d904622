/*
 * engine.h - what the files of unisono._engine share. Only for this module.
 *
 * unisono._engine is libunisono-engine and libunisono-native in Python's hands: layers, models, fit, tapes, strategies. It is a module of its own,
 * imported by unisono.keras and unisono.tf only, so that `import unisono` and the workers of other frameworks never load oneDNN. It uses the public headers
 * and the stable ABI, and shares helpers.c, array.c and value.c with unisono._unisono (door.h), whose Error and Array it uses.
 *
 * Ownership follows the engine's: what a model takes (layers, losses, optimizers) stays in its Python object as a borrowed pointer together with a
 * reference to the model. Nothing in a model points back to Python but functions of the user, which live as long as the model's object.
 *
 * Threads: the GIL protects all of this. fit, gradients and big operations run without it; functions of the user (callbacks, datasets, losses) take
 * it for their call. A model that is in a long call of one thread is refused to others; calls from that call's own callbacks are let through.
 */
#ifndef UNISONO_PYTHON_ENGINE_H
#define UNISONO_PYTHON_ENGINE_H

#include "door.h"

#include <unisono/native.h>
#include <unisono/nn.h>

typedef struct engine_state {
    door_state
        door; /* first: door_state_of gives it; its error and array_type are those of unisono._unisono */
    PyObject *value_error, *type_error; /* Error and ValueError, Error and TypeError in one */
    PyTypeObject *strings, *batches, *layer, *parameter, *model, *loss, *metric, *optimizer, *tape,
        *tensor, *gradients, *strategy, *replica;
    PyObject *raised; /* the exception of a function of the user, on its way through the engine */
} engine_state;

engine_state *engine_state_of(PyObject *object);
/* The engine's error as an exception (ValueError for wrong arguments, TypeError for element types, else Error), or the user's own
 * exception when that was the cause. Returns NULL. */
PyObject *engine_raise(engine_state *state, const uni_error *err);
/* The exception that is set, kept for engine_raise; returns UNI_EFUNCTION with its text in err. The GIL is held. */
int engine_keep_exception(engine_state *state, uni_error *err);
PyObject *engine_new(PyTypeObject *type); /* zeroed, of a heap type */
void engine_free(PyObject *self); /* the end of every dealloc */
/* For Py_bf_getbuffer of what can make an Array of itself: that Array's buffer. Takes `array`, which may be NULL with an exception set. */
int engine_getbuffer_of(PyObject *array, Py_buffer *view, int flags);
void engine_replace(PyObject **slot, PyObject *value); /* takes value, lets go of the old one */
int engine_add_type(PyObject *module, PyTypeObject **out, PyType_Spec *spec);

/* ---- columns.c ---- */

/* A column and what keeps its data alive. */
typedef struct engine_column {
    uni_column column; /* dtype 0: there is none */
    Py_buffer buffer; /* obj NULL when not used */
    PyObject *keeper; /* Strings or Tensor, or NULL */
} engine_column;
/* From None, Strings, or anything with a C-contiguous buffer of numbers. 0, or -1 with an exception. */
int engine_column_from(engine_state *state, engine_column *out, PyObject *object);
void engine_column_clear(engine_column *column);
/* A list or tuple of columns, at most UNI_MODEL_MAX_INPUTS; returns how many, or -1. None is 0. */
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
    PyObject *owner; /* the model that took it; NULL: its own */
} engine_layer;
PyObject *engine_layer_wrap(engine_state *state, uni_layer *raw, PyObject *owner);
/* Gives the raw layer away: from now on the object borrows it from `owner`. */
uni_layer *engine_layer_take(PyObject *object, PyObject *owner);
typedef struct engine_parameter {
    PyObject_HEAD uni_parameter *raw;
    uni_parameters *store;
    PyObject *owner; /* the model, or NULL: a variable of its own, whose store is freed with it */
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
int engine_dtype_from(const char *name); /* with "string"; 0 and an exception when unknown */
const char *engine_dtype_name(uni_dtype dtype);
PyObject *engine_shape_to(int ndim, const int64_t *shape);

/* ---- objects.c ---- */

typedef struct engine_optimizer {
    PyObject_HEAD uni_optimizer *raw; /* NULL: its model was compiled with another one */
    PyObject *owner; /* the model that took it */
    uni_gradients *scratch; /* for gradients that are not the tape's own */
    PyObject *schedule; /* the user's own, in a capsule */
} engine_optimizer;
/* A function of the user that the engine calls. It lives in a capsule that the loss, metric or optimizer has, and the model that took it. */
typedef struct engine_function {
    engine_state *state;
    PyObject *function;
} engine_function;
PyObject *engine_function_capsule(engine_state *state, PyObject *function, engine_function **out);
typedef struct engine_loss {
    PyObject_HEAD uni_loss *raw;
    PyObject *function; /* the user's own */
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
    PyObject *optimizer; /* the engine_optimizer that borrows from it; not counted */
    PyObject
        *functions; /* a list: functions of the user that raw's losses, metrics and layers call */
    unsigned long thread; /* that is in a long call */
    int depth; /* of long calls; 0: nobody */
} engine_model;
/* The raw model for a call; NULL with an exception when another thread uses it. */
uni_model *engine_model_enter(PyObject *object);
void engine_model_leave(PyObject *object);
int engine_models_init(PyObject *module, engine_state *state);
extern PyMethodDef engine_fit_methods[];

/* callbacks.c: from ("early_stopping", {...}) or a Python object with on_* methods and a set of their names. */
uni_fit_callback *engine_callback_from(engine_state *state, PyObject *object);
/* Looks for Ctrl-C ten times a second. */
uni_fit_callback *engine_callback_signals(engine_state *state);

/* ---- tensors.c, tape.c, ops.c ---- */

typedef struct engine_tensor engine_tensor;
typedef struct engine_tape {
    PyObject_HEAD uni_tape *raw;
    bool borrowed; /* the engine's own, for the time of a call to a function of the user */
    engine_tensor *first; /* live tensors of the step */
    PyObject *held; /* list: what inputs borrow from, until the next begin */
    PyObject *gradients; /* engine_gradients of the step, or NULL */
} engine_tape;
struct engine_tensor {
    PyObject_HEAD uni_tensor *raw; /* on the tape; NULL when that began anew */
    engine_tape *tape;
    engine_tensor *next, **link;
    uni_array *array; /* its own copy or view; NULL while only on the tape */
    PyObject *strings; /* text instead of numbers */
    PyObject *gradients; /* engine_gradients that the array is a view of */
    const uni_parameter *parameter; /* ... of this parameter */
};
typedef struct engine_gradients {
    PyObject_HEAD uni_gradients *raw;
    PyObject *owner; /* keeps the store */
    int views;
} engine_gradients;
/* tensors.c: an object for a tensor on the tape, which knows it until the next step */
PyObject *engine_tensor_link(engine_tape *tape, uni_tensor *raw);
void engine_tensor_unlink(engine_tensor *self);
int engine_tensor_own(engine_tensor *self); /* its numbers in an array of its own; 0, or -1 */
engine_gradients *engine_gradients_new(engine_state *state, PyObject *model);
/* The gradient of one parameter: a view. */
PyObject *engine_gradient_of(engine_state *state, engine_gradients *self, uni_parameter *parameter);
int engine_tensors_init(PyObject *module, engine_state *state);
/* A tensor on the tape as an object; NULL raises the tape's error. */
PyObject *engine_tensor_wrap(PyObject *tape, uni_tensor *raw);
/* The argument of an operation on the tape; NULL with an exception. */
uni_tensor *engine_tensor_arg(PyObject *tape, PyObject *object);
/* The numbers of a tensor that may outlive its step; a new reference, or NULL with an exception. */
uni_array *engine_tensor_array(PyObject *tensor);
PyObject *engine_tensor_of_array(engine_state *state, uni_array *array); /* takes the reference */
uni_tape *engine_tape_of(PyObject *tape);
/* The tensors of the step that are still alive get their own numbers; 0, or -1 with an exception. */
int engine_tape_let_go(PyObject *tape);
void engine_tape_borrow(PyObject *tape, uni_tape *raw); /* in place of its own, from now on */
/* Calls function(tape, *tensors) for the engine, whose tape this is; the GIL is held. A new reference. */
PyObject *engine_call_on_tape(engine_state *state, uni_tape *raw, PyObject *function, int count,
                              uni_tensor *const *inputs, uni_tensor **out);
int engine_tapes_init(PyObject *module, engine_state *state);
extern PyMethodDef engine_op_methods[];

/* ---- strategy.c ---- */

uni_strategy *engine_strategy_of(PyObject *object);
int engine_strategies_init(PyObject *module, engine_state *state);

#endif
