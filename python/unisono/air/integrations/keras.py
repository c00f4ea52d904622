"""ray.air.integrations.keras' place."""


def __getattr__(name):
    from unisono.train.tensorflow import keras

    if name == "Callback":  # its older name
        name = "ReportCheckpointCallback"
    return getattr(keras, name)
