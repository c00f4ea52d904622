"""ray.train._internal: what scripts import from there."""
