"""ray.air.integrations' place."""
