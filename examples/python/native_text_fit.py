"""The course's "Training with Model.fit" on the native engine.

Beside the imports, the data is another (two topics of fortunes in the place of the Quora questions) and so are the words: those of the training texts in the place
of the NNLM module, which is a TensorFlow program (--vectors FILE uses vectors of words). With the same seed and number of replicas it prints the numbers
of examples/engine/text_fit.c --strategy mirrored:N.
"""

import pathlib
import tempfile
import time

import tensorflow_docs as tfdocs  # the two beside this script
import tensorflow_docs.modeling
import tensorflow_hub as hub
import unisono.tf as tf

import native_data

options = native_data.arguments(__doc__, epochs=100)
tf.random.set_seed(options.seed)
train_df, valid_df = native_data.load(options.data)
histories, logdir = {}, pathlib.Path(options.output or tempfile.mkdtemp())

strategy = tf.distribute.MirroredStrategy(options.replicas)
print('Number of devices: {}'.format(strategy.num_replicas_in_sync))

buffer_size = train_df.size
batch_size_per_replica = 64
global_batch_size = batch_size_per_replica * strategy.num_replicas_in_sync

train_dataset = (tf.data.Dataset.from_tensor_slices((train_df.question_text.values, train_df.target.values))
                 .shuffle(buffer_size)
                 .batch(global_batch_size, drop_remainder=True)
                 .prefetch(tf.data.experimental.AUTOTUNE))
valid_dataset = (tf.data.Dataset.from_tensor_slices((valid_df.question_text.values, valid_df.target.values))
                 .batch(global_batch_size, drop_remainder=True)
                 .prefetch(tf.data.experimental.AUTOTUNE))

# The words, in the place of the module's own.
words = tf.keras.layers.TextVectorization()
words.adapt(train_df.question_text.values)


def train_and_evaluate_model(module_url, embed_size, name, trainable=True):
    hub_layer = hub.KerasLayer(module_url, input_shape=[], output_shape=[embed_size], dtype=tf.string, trainable=trainable,
                               vocabulary=words.get_vocabulary()[2:])
    model = tf.keras.models.Sequential([
        hub_layer,
        tf.keras.layers.Dense(256, activation='relu'),
        tf.keras.layers.Dense(64, activation='relu'),
        tf.keras.layers.Dense(1, activation='sigmoid')
    ])
    model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=0.0001),
                  loss=tf.losses.BinaryCrossentropy(),
                  metrics=[tf.metrics.BinaryAccuracy(name='accuracy')])
    history = model.fit(train_dataset,
                        epochs=options.epochs,
                        batch_size=32,
                        validation_data=valid_dataset,
                        callbacks=[tfdocs.modeling.EpochDots(),
                                   tf.keras.callbacks.EarlyStopping(monitor='val_loss', patience=2, mode='min'),
                                   tf.keras.callbacks.TensorBoard(logdir / name)],
                        verbose=0)
    return history


module_url = options.vectors or "https://tfhub.dev/google/tf2-preview/nnlm-en-dim128/1"
with strategy.scope():
    start = time.time()
    histories['nnlm-en-dim128'] = train_and_evaluate_model(module_url, embed_size=128, name='nnlm-en-dim128')
    endt = time.time() - start
    print("\n \n Time for {} ms".format(1000 * endt))

history = histories['nnlm-en-dim128'].history
print("{} epochs, validation loss: {:.4f}, validation accuracy: {:.2f} %".format(len(history['loss']), history['val_loss'][-1],
                                                                               100 * history['val_accuracy'][-1]))
