"""The course's "Custom loop training" on the native engine.

Beside the imports, data and words are those of native_text_fit.py, and history.append, which pandas no longer has, is a list of rows; with --output DIR they are
written to history.csv. Ends with the evaluation exercise. With the same seed and number of replicas it prints the numbers of examples/engine/text_loop.c
--strategy mirrored:N.
"""

import csv
import os
import time

import tensorflow_hub as hub  # the one beside this script
import unisono.tf as tf

import native_data

options = native_data.arguments(__doc__, epochs=20)
tf.random.set_seed(options.seed)
train_df, valid_df = native_data.load(options.data)

strategy = tf.distribute.MirroredStrategy(options.replicas)
print('Number of devices: {}'.format(strategy.num_replicas_in_sync))

buffer_size = train_df.size
batch_size_per_replica = 64
global_batch_size = batch_size_per_replica * strategy.num_replicas_in_sync

train_dataset = (tf.data.Dataset.from_tensor_slices((train_df.question_text.values[..., None], train_df.target.values[..., None]))
                 .shuffle(buffer_size)
                 .batch(global_batch_size, drop_remainder=True)
                 .prefetch(tf.data.experimental.AUTOTUNE))
valid_dataset = (tf.data.Dataset.from_tensor_slices((valid_df.question_text.values[..., None], valid_df.target.values[..., None]))
                 .batch(global_batch_size, drop_remainder=True)
                 .prefetch(tf.data.experimental.AUTOTUNE))

words = tf.keras.layers.TextVectorization()
words.adapt(train_df.question_text.values)
module_url = options.vectors or "https://tfhub.dev/google/tf2-preview/nnlm-en-dim128/1"
embeding_size = 128
name_of_model = 'nnlm-en-dim128/1'


def create_model(module_url, embed_size, name, trainable=True):
    hub_layer = hub.KerasLayer(module_url, input_shape=[], output_shape=[embed_size], dtype=tf.string, trainable=trainable,
                               vocabulary=words.get_vocabulary()[2:])
    model = tf.keras.models.Sequential([hub_layer,
                                        tf.keras.layers.Dense(256, activation='relu'),
                                        tf.keras.layers.Dense(64, activation='relu'),
                                        tf.keras.layers.Dense(1, activation='sigmoid')])
    return model


with strategy.scope():
    # Set reduction to `none` so we can do the reduction afterwards and divide by the global batch size.
    loss_object = tf.losses.BinaryCrossentropy(from_logits=False, reduction=tf.losses.Reduction.NONE)

    def compute_loss(labels, predictions):
        per_example_loss = loss_object(labels, predictions)
        return tf.nn.compute_average_loss(per_example_loss, global_batch_size=global_batch_size)

    train_accuracy = tf.metrics.BinaryAccuracy(name='train_accuracy')
    valid_accuracy = tf.metrics.BinaryAccuracy(name='valid_accuracy')

    model = create_model(module_url, embed_size=embeding_size, name=name_of_model)
    optimizer = tf.optimizers.Adam()


def train_step(inputs):
    texts, labels = inputs

    with tf.GradientTape() as tape:
        predictions = model(texts, training=True)
        loss = compute_loss(labels, predictions)

    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    train_accuracy.update_state(labels, predictions)
    return loss


def valid_step(inputs):
    texts, labels = inputs

    predictions = model(texts, training=False)
    v_loss = compute_loss(labels, predictions)

    valid_accuracy.update_state(labels, predictions)
    return v_loss


train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset)
valid_dist_dataset = strategy.experimental_distribute_dataset(valid_dataset)

epochs = options.epochs


# `run` replicates the provided computation and runs it with the distributed input.
@tf.function
def distributed_train_step(dataset_inputs):
    per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


@tf.function
def distributed_valid_step(dataset_inputs):
    per_replica_losses = strategy.run(valid_step, args=(dataset_inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


history = []

start = time.time()
for epoch in range(epochs):
    # TRAIN LOOP
    total_loss = 0.0
    num_batches = 0

    for x in train_dist_dataset:
        total_loss += distributed_train_step(x)
        num_batches += 1
    train_loss = total_loss / num_batches

    # TEST LOOP
    v_total_loss = 0.0
    v_num_batches = 0
    for x in valid_dist_dataset:
        v_total_loss += distributed_valid_step(x)
        v_num_batches += 1
    valid_loss = v_total_loss / v_num_batches

    template = ("Epoch {}, Loss: {:.4f}, Accuracy: {:.4f}, Valid Loss: {:.4f}, Valid Accuracy: {:.4f}")
    print(template.format(epoch + 1, train_loss,
                          train_accuracy.result() * 100,
                          valid_loss,
                          valid_accuracy.result() * 100))

    history.append({'epochs': epoch + 1,
                    'train_loss': train_loss.numpy(),
                    'valid_loss': valid_loss.numpy(),
                    'train_acc': train_accuracy.result().numpy() * 100,
                    'valid_acc': valid_accuracy.result().numpy() * 100})

    train_accuracy.reset_states()
    valid_accuracy.reset_states()

endt = time.time()
timelp = 1000 * (endt - start)
print("Elapsed time in (ms): {:.2f}".format(timelp))

if options.output:
    os.makedirs(options.output, exist_ok=True)
    with open(os.path.join(options.output, "history.csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(history[0]))
        writer.writeheader()
        writer.writerows(history)

# The exercise: evaluation of what the loop trained.
eval_accuracy = tf.metrics.BinaryAccuracy(name='eval_accuracy')


@tf.function
def eval_step(texts, labels):
    predictions = model(texts, training=False)
    eval_accuracy.update_state(labels, predictions)


for texts, labels in valid_dataset:
    eval_step(texts, labels)

print('The model accuracy : {:5.2f}%'.format(eval_accuracy.result() * 100))
