"""ray.tune.integration's place."""
